//! What only this library offers: host-readable memory, the modelled link, faults on demand.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::ffi::{CStr, c_char, c_void};

use hcom_sys::bindings::{self as sys, aclError, hcomExtFaultStage, hcomExtLink};

use super::{acl, put};
use crate::config::LinkModel;
use crate::error::refuse;
use crate::{code, fault, link, memory};

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_ext_symbol {
    ($callback:ident) => {
        $callback! {
            fn hcomExtHostPointer(devPtr: *const c_void, bytes: usize, hostPtr: *mut *mut c_void) -> aclError;
            fn hcomExtGetLink(link: *mut hcomExtLink) -> aclError;
            fn hcomExtSetLink(link: *const hcomExtLink) -> aclError;
            fn hcomExtInjectFault(symbol: *const c_char, nth: u64, code: i32, stage: hcomExtFaultStage) -> aclError;
            fn hcomExtPlanFaults(faults: *const c_char) -> aclError;
            fn hcomExtClearFaults() -> aclError;
        }
    };
}

/// `hcomExtHostPointer`
pub unsafe extern "C" fn hcomExtHostPointer(
    pointer: *const c_void,
    bytes: usize,
    place: *mut *mut c_void,
) -> aclError {
    acl("hcomExtHostPointer", || {
        let span = memory::span(pointer, bytes)?;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, span.as_ptr().cast()) }
    })
}

/// `hcomExtGetLink`
pub unsafe extern "C" fn hcomExtGetLink(place: *mut hcomExtLink) -> aclError {
    acl("hcomExtGetLink", || {
        let answer = link::model().map_or(
            hcomExtLink {
                alphaUs: 0.0,
                gbytesPerS: 0.0,
            },
            |model| hcomExtLink {
                alphaUs: model.alpha_ns as f64 / 1e3,
                gbytesPerS: model.bytes_per_ns,
            },
        );
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, answer) }
    })
}

/// `hcomExtSetLink`
pub unsafe extern "C" fn hcomExtSetLink(link: *const hcomExtLink) -> aclError {
    acl("hcomExtSetLink", || {
        // SAFETY: the caller passes null or a link.
        let Some(&hcomExtLink {
            alphaUs: alpha,
            gbytesPerS: beta,
        }) = (unsafe { link.as_ref() })
        else {
            return refuse(code::INVALID_PARAM, "the link is null");
        };
        let model = match (alpha, beta) {
            (0.0, 0.0) => None,
            (alpha, beta) if (0.0..=1e6).contains(&alpha) && beta > 0.0 && beta.is_finite() => {
                Some(LinkModel {
                    alpha_ns: (alpha * 1e3).round() as u64,
                    bytes_per_ns: beta,
                })
            }
            _ => {
                return refuse(
                    code::INVALID_PARAM,
                    format!(
                        "a link of {alpha} us and {beta} GB/s: expected 0 to 1000000 and above 0"
                    ),
                );
            }
        };
        link::set_model(model);
        Ok(())
    })
}

/// `hcomExtInjectFault`
pub unsafe extern "C" fn hcomExtInjectFault(
    symbol: *const c_char,
    nth: u64,
    code: i32,
    stage: hcomExtFaultStage,
) -> aclError {
    acl("hcomExtInjectFault", || {
        if symbol.is_null() {
            return refuse(code::INVALID_PARAM, "the symbol is null");
        }
        // SAFETY: not null, and the caller passes a C string.
        let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
        let known = crate::table()
            .symbols
            .iter()
            .any(|(name, _)| *name == symbol);
        if !known || nth == 0 || code == 0 || stage.0 > sys::HCOM_EXT_FAULT_TASK.0 {
            return refuse(
                code::INVALID_PARAM,
                format!("fault {code} in call {nth} of {symbol}, stage {}", stage.0),
            );
        }
        fault::plan(&symbol, nth, code, stage == sys::HCOM_EXT_FAULT_TASK);
        Ok(())
    })
}

/// `hcomExtPlanFaults`
pub unsafe extern "C" fn hcomExtPlanFaults(faults: *const c_char) -> aclError {
    acl("hcomExtPlanFaults", || {
        if faults.is_null() {
            return refuse(code::INVALID_PARAM, "the text is null");
        }
        // SAFETY: not null, and the caller passes a C string.
        let text = unsafe { CStr::from_ptr(faults) }.to_string_lossy();
        match fault::plan::parse(&text) {
            Ok(faults) => {
                fault::plan_from_environment();
                fault::plan_operations(faults);
                Ok(())
            }
            Err(what) => refuse(code::INVALID_PARAM, what),
        }
    })
}

/// `hcomExtClearFaults`
pub unsafe extern "C" fn hcomExtClearFaults() -> aclError {
    acl("hcomExtClearFaults", || {
        fault::clear();
        Ok(())
    })
}
