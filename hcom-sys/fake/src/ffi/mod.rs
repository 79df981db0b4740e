//! The exported C functions, by header. They check pointers, call the safe modules and turn outcomes into codes; no
//! panic leaves them.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]

pub(crate) mod aclnn;
pub(crate) mod address;
pub(crate) mod allocator;
pub(crate) mod capture;
pub(crate) mod copies;
pub(crate) mod ext;
pub(crate) mod graph;
pub(crate) mod hccl;
pub(crate) mod memory;
pub(crate) mod missing;
pub(crate) mod refused;
pub(crate) mod runtime;
pub(crate) mod settings;
pub(crate) mod stream;
pub(crate) mod tasks;
pub(crate) mod tensor;
pub(crate) mod tools;
pub(crate) mod values;

/// Every exported function, whatever file it is in.
pub mod all {
    pub use super::aclnn::*;
    pub use super::address::*;
    pub use super::allocator::*;
    pub use super::capture::*;
    pub use super::copies::*;
    pub use super::ext::*;
    pub use super::graph::*;
    pub use super::hccl::*;
    pub use super::memory::*;
    pub use super::missing::missing_operator;
    pub use super::refused::*;
    pub use super::runtime::*;
    pub use super::settings::*;
    pub use super::stream::*;
    pub use super::tasks::*;
    pub use super::tensor::*;
    pub use super::tools::*;
    pub use super::values::*;
}

use std::panic::{AssertUnwindSafe, catch_unwind};

use hcom_sys::bindings::{self as sys, HcclResult, aclError};

use crate::code;
use crate::error::{Failure, Outcome, fail, refuse};
use crate::fault;

/// Runs the body of the exported function `name`; answers its code and keeps the text of a failure.
fn guard(name: &str, panicked: i32, body: impl FnOnce() -> Outcome) -> i32 {
    if let Some(code) = fault::at_call(name) {
        return fail(code, format!("{name}: injected fault"));
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(Failure { code, text })) => fail(code, format!("{name}: {text}")),
        Err(_) => fail(
            panicked,
            format!("{name} panicked; this is a defect of the library"),
        ),
    }
}

/// The body of a function of the runtime.
fn acl(name: &str, body: impl FnOnce() -> Outcome) -> aclError {
    guard(name, code::INTERNAL, body)
}

/// The body of a function of the collective library.
fn hccl(name: &str, body: impl FnOnce() -> Outcome) -> HcclResult {
    HcclResult(guard(name, sys::HCCL_E_INTERNAL.0 as i32, body) as u32)
}

/// Answers through a pointer of the program.
///
/// # Safety
/// `place` is null or a writable place for a `T`.
///
/// # Errors
/// `null` when the pointer is null.
unsafe fn put<T>(place: *mut T, null: i32, value: T) -> Outcome {
    if place.is_null() {
        return refuse(null, "a place for the answer is null");
    }
    // SAFETY: not null (checked), and writable as the caller promises.
    unsafe { place.write(value) };
    Ok(())
}
