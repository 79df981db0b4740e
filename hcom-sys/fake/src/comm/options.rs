//! The configuration of one communicator, whatever version of `HcclCommConfig` it came in.

use std::ffi::c_char;
use std::time::Duration;

use hcom_sys::bindings::{self as sys, HcclCommConfig};

use crate::config;
use crate::error::{Outcome, refuse};
use crate::soc::Family;

/// Bytes in front of the fields: size, magic word, version, zeros.
pub(crate) const HEAD: usize = 24;

/// What a configuration says that means something here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The communicator's name, if it is not left to the library.
    pub name: Option<String>,
    /// How long an operation may wait inside, `None` in it for ever; outside, as the environment says.
    pub exec_timeout: Option<Option<Duration>>,
    /// Everything that all ranks must agree on, for comparing and for people.
    pub shared: String,
}

/// A communicator without a configuration.
impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            exec_timeout: None,
            shared: shared(sys::HCCL_COMM_DEFAULT, sys::HCCL_COMM_DEFAULT, -1, ""),
        }
    }
}

fn shared(buffer: u32, deterministic: u32, timeout: i32, algorithm: &str) -> String {
    let or_default = |value: u32| match value {
        sys::HCCL_COMM_DEFAULT => "default".to_owned(),
        value => value.to_string(),
    };
    format!(
        "hcclBufferSize {}, hcclDeterministic {}, hcclExecTimeOut {timeout}, hcclAlgo {algorithm:?}",
        or_default(buffer),
        or_default(deterministic)
    )
}

fn wrong<T>(field: &str, value: impl std::fmt::Display, expected: &str) -> Outcome<T> {
    refuse(
        sys::HCCL_E_PARA.0 as i32,
        format!("configuration: {field} is {value}; expected {expected}"),
    )
}

fn text(field: &str, bytes: &[c_char]) -> Outcome<String> {
    let Some(end) = bytes.iter().position(|&byte| byte == 0) else {
        return wrong(
            field,
            "a text without an end",
            "one that ends inside its field",
        );
    };
    let bytes: Vec<u8> = bytes[..end].iter().map(|&byte| byte as u8).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Options {
    /// Reads the fields that `version` has. Those that the caller's structure was too short for must be zero.
    ///
    /// # Errors
    /// `HCCL_E_PARA` naming the field and its value; `HCCL_E_NOT_SUPPORT` for strict determinism on a chip without it.
    pub(crate) fn read(from: &HcclCommConfig, version: u32) -> Outcome<Self> {
        let mut options = Self::default();
        if version == 0 {
            return wrong("the version", version, "1 or more");
        }
        if from.hcclBufferSize == 0 {
            return wrong("hcclBufferSize", 0, "1 MB or more");
        }
        match from.hcclDeterministic {
            0 | 1 | sys::HCCL_COMM_DEFAULT => {}
            2 if config::or_default().soc.family == Family::A2 => {}
            2 => {
                return refuse(
                    sys::HCCL_E_NOT_SUPPORT.0 as i32,
                    "configuration: hcclDeterministic is 2; strict determinism is for Ascend910B only",
                );
            }
            other => return wrong("hcclDeterministic", other, "0, 1 or 2"),
        }
        let (mut timeout, mut algorithm) = (-1, String::new());
        if version >= 2 {
            let name = text("hcclCommName", &from.hcclCommName)?;
            options.name = (!name.is_empty()).then_some(name);
        }
        if version >= 3 {
            text("hcclUdi", &from.hcclUdi)?;
        }
        if version >= 5 {
            let class = from.hcclRdmaTrafficClass;
            if class != sys::HCCL_COMM_DEFAULT && (class > 255 || !class.is_multiple_of(4)) {
                return wrong("hcclRdmaTrafficClass", class, "a multiple of 4 up to 255");
            }
            let level = from.hcclRdmaServiceLevel;
            if level != sys::HCCL_COMM_DEFAULT && level > 7 {
                return wrong("hcclRdmaServiceLevel", level, "0 to 7");
            }
        }
        if version >= 7 && from.aclGraphZeroCopyEnable > 1 {
            return wrong(
                "aclGraphZeroCopyEnable",
                from.aclGraphZeroCopyEnable,
                "0 or 1",
            );
        }
        if version >= 8 {
            timeout = from.hcclExecTimeOut;
            options.exec_timeout = match timeout {
                -1 => None,
                0 => Some(None),
                seconds if seconds > 0 => {
                    Some(Some(Duration::from_secs(u64::from(seconds.unsigned_abs()))))
                }
                other => return wrong("hcclExecTimeOut", other, "-1 or more seconds"),
            };
            algorithm = text("hcclAlgo", &from.hcclAlgo)?;
            text("hcclRetryEnable", &from.hcclRetryEnable)?;
            text("hcclRetryParams", &from.hcclRetryParams)?;
        }
        if version >= 9 {
            text("hcclBufferName", &from.hcclBufferName)?;
        }
        options.shared = shared(
            from.hcclBufferSize,
            from.hcclDeterministic,
            timeout,
            &algorithm,
        );
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared() -> HcclCommConfig {
        HcclCommConfig {
            hcclBufferSize: sys::HCCL_COMM_DEFAULT,
            hcclDeterministic: sys::HCCL_COMM_DEFAULT,
            hcclRdmaTrafficClass: sys::HCCL_COMM_DEFAULT,
            hcclRdmaServiceLevel: sys::HCCL_COMM_DEFAULT,
            hcclExecTimeOut: -1,
            ..HcclCommConfig::default()
        }
    }

    #[test]
    fn fields_count_up_to_their_version() {
        let mut config = prepared();
        config.hcclCommName[0] = b'x' as c_char;
        config.hcclExecTimeOut = 7;
        config.aclGraphZeroCopyEnable = 2;
        let read = |version| Options::read(&config, version);
        assert_eq!(read(1).unwrap().name, None);
        assert_eq!(read(2).unwrap().name.as_deref(), Some("x"));
        assert_eq!(read(6).unwrap().exec_timeout, None);
        let refusal = read(7).unwrap_err();
        assert!(
            refusal.text.contains("aclGraphZeroCopyEnable is 2"),
            "{}",
            refusal.text
        );
        config.aclGraphZeroCopyEnable = 1;
        for version in [8, 10, 99] {
            let seven = Some(Some(Duration::from_secs(7)));
            assert_eq!(Options::read(&config, version).unwrap().exec_timeout, seven);
        }
    }

    #[test]
    fn wrong_values_are_named() {
        let refused = |change: fn(&mut HcclCommConfig), what: &str| {
            let mut config = prepared();
            change(&mut config);
            let refusal = Options::read(&config, 11).unwrap_err();
            assert!(refusal.text.contains(what), "{}", refusal.text);
        };
        refused(|config| config.hcclBufferSize = 0, "hcclBufferSize is 0");
        refused(
            |config| config.hcclDeterministic = 3,
            "hcclDeterministic is 3",
        );
        refused(|config| config.hcclDeterministic = 2, "strict determinism");
        refused(
            |config| config.hcclRdmaTrafficClass = 6,
            "hcclRdmaTrafficClass is 6",
        );
        refused(
            |config| config.hcclRdmaServiceLevel = 8,
            "hcclRdmaServiceLevel is 8",
        );
        refused(
            |config| config.hcclExecTimeOut = -2,
            "hcclExecTimeOut is -2",
        );
        refused(
            |config| config.hcclCommName = [1; 128],
            "hcclCommName is a text without an end",
        );
        assert!(Options::read(&prepared(), 0).is_err());
        // Ranks may come with different versions of the headers, or without a configuration.
        assert_eq!(Options::read(&prepared(), 2).unwrap(), Options::default());
        assert_eq!(Options::read(&prepared(), 11).unwrap(), Options::default());
    }
}
