//! Errors: a library not found, a function missing, a call refused.

use std::fmt;

use thiserror::Error;

use crate::bindings::{
    ACL_SUCCESS, ACLNN_SUCCESS, HCCL_SUCCESS, HcclResult, aclError, aclnnStatus,
};
use crate::{Since, codes};

/// A place where something was looked for, and why it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// A path, a variable or a table.
    pub place: String,
    /// The reason.
    pub reason: String,
}

impl Place {
    pub(crate) fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// No library was found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no Ascend library found{}", Listed(tried))]
#[non_exhaustive]
pub struct LoadError {
    /// Every place that was tried, in order.
    pub tried: Vec<Place>,
}

/// The library lacks a function.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the library has no function {symbol} ({since}){}", Listed(tried))]
#[non_exhaustive]
pub struct MissingSymbol {
    /// Name of the function.
    pub symbol: &'static str,
    /// The version that has it.
    pub since: Since,
    /// Every library that was asked, in order.
    pub tried: Vec<Place>,
}

/// Places, one per line.
struct Listed<'a>(&'a [Place]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|place| write!(f, "\n  {place}"))
    }
}

/// A result code together with the part of the ABI that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Of ACL or the runtime below it.
    Acl(aclError),
    /// Of an operator call; runtime codes pass through.
    Aclnn(aclnnStatus),
    /// Of HCCL.
    Hccl(HcclResult),
}

impl Code {
    /// Whether the code means success.
    pub fn is_success(self) -> bool {
        match self {
            Self::Acl(code) => code == ACL_SUCCESS,
            Self::Aclnn(code) => code == ACLNN_SUCCESS,
            Self::Hccl(code) => code == HCCL_SUCCESS,
        }
    }

    /// The number.
    pub fn number(self) -> i64 {
        match self {
            Self::Acl(code) | Self::Aclnn(code) => code.into(),
            Self::Hccl(code) => code.0.into(),
        }
    }

    /// The constant's name in the headers; `None` for a code they do not know.
    pub fn name(self) -> Option<&'static str> {
        self.entry().map(|(name, _)| name)
    }

    /// What the code means, in a few words; `None` for a code that the headers do not know.
    pub fn meaning(self) -> Option<&'static str> {
        self.entry().map(|(_, meaning)| meaning)
    }

    fn entry(self) -> Option<(&'static str, &'static str)> {
        fn find<T: PartialEq>(
            table: &[(T, &'static str, &'static str)],
            code: T,
        ) -> Option<(&'static str, &'static str)> {
            let (_, name, meaning) = table.iter().find(|(known, _, _)| *known == code)?;
            Some((name, meaning))
        }
        match self {
            Self::Acl(code) => find(codes::ACL, code),
            Self::Aclnn(code) => find(codes::ACLNN, code).or_else(|| find(codes::ACL, code)),
            Self::Hccl(code) => find(codes::HCCL, code),
        }
    }
}

/// `ACL_ERROR_RT_CONTEXT_NULL (107002): the thread has no context: no device was set`
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry() {
            Some((name, meaning)) => write!(f, "{name} ({}): {meaning}", self.number()),
            None => write!(f, "unknown code {}", self.number()),
        }
    }
}

/// A call returned something else than success.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{call} returned {code}{}", detail.as_deref().map(|d| format!(" [{d}]")).unwrap_or_default())]
#[non_exhaustive]
pub struct CallError {
    /// The function.
    pub call: &'static str,
    /// What it returned.
    pub code: Code,
    /// What the library itself said about it.
    pub detail: Option<String>,
}

impl CallError {
    /// The error of a call, without the library's own words.
    pub fn new(call: &'static str, code: Code) -> Self {
        Self {
            call,
            code,
            detail: None,
        }
    }

    /// Adds the library's own words, unless there are none.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into()).filter(|text| !text.is_empty());
        self
    }
}

/// `Ok` when an ACL call succeeded.
///
/// # Errors
/// [`CallError`] for any code but 0.
pub fn check_acl(call: &'static str, code: aclError) -> Result<(), CallError> {
    check(call, Code::Acl(code))
}

/// `Ok` when an aclnn call succeeded.
///
/// # Errors
/// [`CallError`] for any code but 0.
pub fn check_aclnn(call: &'static str, code: aclnnStatus) -> Result<(), CallError> {
    check(call, Code::Aclnn(code))
}

/// `Ok` when an HCCL call succeeded.
///
/// # Errors
/// [`CallError`] for any code but 0.
pub fn check_hccl(call: &'static str, code: HcclResult) -> Result<(), CallError> {
    check(call, Code::Hccl(code))
}

fn check(call: &'static str, code: Code) -> Result<(), CallError> {
    if code.is_success() {
        Ok(())
    } else {
        Err(CallError::new(call, code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::{ACL_ERROR_RT_CONTEXT_NULL, ACLNN_ERR_PARAM_NULLPTR, HCCL_E_TIMEOUT};

    #[test]
    fn a_code_has_name_number_and_meaning() {
        assert_eq!(
            Code::Acl(107_002).to_string(),
            "ACL_ERROR_RT_CONTEXT_NULL (107002): the thread has no context: no device was set"
        );
        assert_eq!(Code::Acl(1).to_string(), "unknown code 1");
        assert_eq!(Code::Hccl(HCCL_E_TIMEOUT).name(), Some("HCCL_E_TIMEOUT"));
        assert_eq!(Code::Hccl(HCCL_E_TIMEOUT).number(), 9);
        assert_eq!(Code::Hccl(HcclResult(1042)).name(), None);
        // Operators hand runtime codes on.
        let codes = [ACLNN_ERR_PARAM_NULLPTR, ACL_ERROR_RT_CONTEXT_NULL];
        assert!(
            codes
                .iter()
                .all(|code| Code::Aclnn(*code).meaning().is_some())
        );
    }

    #[test]
    fn a_call_error_names_the_call_and_carries_the_library_s_words() {
        assert_eq!(check_acl("aclInit", 0), Ok(()));
        let error = check_hccl("HcclAllReduce", HCCL_E_TIMEOUT).unwrap_err();
        let text =
            "HcclAllReduce returned HCCL_E_TIMEOUT (9): a wait for other ranks took too long";
        assert_eq!(error.to_string(), text);
        let told = error.clone().with_detail("rank 3 is missing");
        assert_eq!(told.to_string(), format!("{text} [rank 3 is missing]"));
        assert_eq!(error.clone().with_detail(""), error);
    }

    #[test]
    fn every_code_is_listed_once() {
        fn unique<T: Copy + Into<i64>>(table: &[(T, &str, &str)]) {
            let mut codes: Vec<i64> = table.iter().map(|(code, ..)| (*code).into()).collect();
            codes.sort_unstable();
            codes.dedup();
            assert_eq!(codes.len(), table.len());
        }
        unique(codes::ACL);
        unique(codes::ACLNN);
    }
}
