//! Operators that other libraries have and this one has not: each call is written to the error stream by name, once
//! per operator and process.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::error::fail;
use crate::memory::lock;

static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Writes that `operator` was called and is missing.
pub(crate) fn report(operator: &str) {
    if lock(&REPORTED).insert(operator.to_owned()) {
        eprintln!("hcom-fake: operator {operator} was called, which this library has not");
    }
}

/// `ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND`: there is no such kernel.
const NO_KERNEL: i32 = 561_003;

/// What a function of a missing operator answers: its name goes to the error stream and into the thread's error text.
#[doc(hidden)]
pub fn missing_operator(function: &str) -> i32 {
    let operator = function.trim_end_matches("GetWorkspaceSize");
    report(operator);
    fail(
        NO_KERNEL,
        format!("{function}: this CPU library has no operator {operator}"),
    )
}
