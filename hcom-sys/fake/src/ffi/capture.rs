//! Captured graphs.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use hcom_sys::bindings::{
    self as sys, aclError, aclmdlRI, aclmdlRICaptureMode, aclmdlRICaptureStatus, aclrtStream,
};

use super::{acl, put};
use crate::capture::{self, Mode};
use crate::code;
use crate::error::{Outcome, refuse};
use crate::handle::to_pointer;
use crate::{model, stream};

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_capture_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> aclError;
            fn aclmdlRICaptureGetInfo(stream: aclrtStream, status: *mut aclmdlRICaptureStatus, modelRI: *mut aclmdlRI) -> aclError;
            fn aclmdlRICaptureEnd(stream: aclrtStream, modelRI: *mut aclmdlRI) -> aclError;
            fn aclmdlRICaptureThreadExchangeMode(mode: *mut aclmdlRICaptureMode) -> aclError;
            fn aclmdlRIExecuteAsync(modelRI: aclmdlRI, stream: aclrtStream) -> aclError;
            fn aclmdlRIDestroy(modelRI: aclmdlRI) -> aclError;
        }
    };
}

fn mode_of(mode: aclmdlRICaptureMode) -> Outcome<Mode> {
    match Mode::from_number(mode.0) {
        Some(mode) => Ok(mode),
        None => refuse(
            code::INVALID_PARAM,
            format!("capture mode {}, expected 0 to 2", mode.0),
        ),
    }
}

/// `aclmdlRICaptureBegin`
pub unsafe extern "C" fn aclmdlRICaptureBegin(
    stream: aclrtStream,
    mode: aclmdlRICaptureMode,
) -> aclError {
    acl("aclmdlRICaptureBegin", || {
        if stream.is_null() {
            return refuse(code::INVALID_PARAM, "the default stream cannot be captured");
        }
        capture::begin(&stream::find(stream)?, mode_of(mode)?)
    })
}

/// `aclmdlRICaptureGetInfo`
pub unsafe extern "C" fn aclmdlRICaptureGetInfo(
    stream: aclrtStream,
    status: *mut aclmdlRICaptureStatus,
    model: *mut aclmdlRI,
) -> aclError {
    acl("aclmdlRICaptureGetInfo", || {
        let capture = stream::find(stream)?.capture();
        let answer = match &capture {
            None => sys::ACL_MODEL_RI_CAPTURE_STATUS_NONE,
            Some(capture) if capture.is_whole() => sys::ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE,
            Some(_) => sys::ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED,
        };
        // SAFETY: the caller passes null or places for the answers.
        unsafe {
            put(status, code::INVALID_PARAM, answer)?;
            match capture {
                Some(capture) if !model.is_null() => {
                    put(model, code::INVALID_PARAM, to_pointer(capture.model))
                }
                _ => Ok(()),
            }
        }
    })
}

/// `aclmdlRICaptureEnd`
pub unsafe extern "C" fn aclmdlRICaptureEnd(stream: aclrtStream, model: *mut aclmdlRI) -> aclError {
    acl("aclmdlRICaptureEnd", || {
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(model, code::INVALID_PARAM, std::ptr::null_mut())? };
        let handle = capture::end(&stream::find(stream)?)?;
        // SAFETY: as above.
        unsafe { put(model, code::INVALID_PARAM, to_pointer(handle)) }
    })
}

/// `aclmdlRICaptureThreadExchangeMode`
pub unsafe extern "C" fn aclmdlRICaptureThreadExchangeMode(
    mode: *mut aclmdlRICaptureMode,
) -> aclError {
    acl("aclmdlRICaptureThreadExchangeMode", || {
        // SAFETY: the caller passes null or a mode that is replaced by the one before.
        let Some(mode) = (unsafe { mode.as_mut() }) else {
            return refuse(code::INVALID_PARAM, "the mode is null");
        };
        let before = capture::exchange_mode(mode_of(*mode)?);
        *mode = aclmdlRICaptureMode(before as u32);
        Ok(())
    })
}

/// `aclmdlRIExecuteAsync`
pub unsafe extern "C" fn aclmdlRIExecuteAsync(model: aclmdlRI, stream: aclrtStream) -> aclError {
    acl("aclmdlRIExecuteAsync", || {
        model::execute(model, &stream::find(stream)?)
    })
}

/// `aclmdlRIDestroy`
pub unsafe extern "C" fn aclmdlRIDestroy(model: aclmdlRI) -> aclError {
    acl("aclmdlRIDestroy", || {
        model::destroy(model)?;
        super::graph::forget(model);
        Ok(())
    })
}
