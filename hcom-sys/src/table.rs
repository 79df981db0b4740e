//! A library that is part of this process: functions by name, no `dlopen`.

#![expect(
    unsafe_code,
    reason = "a table shares function pointers between threads"
)]

use std::ffi::{c_char, c_void};

use crate::bindings::aclLogLevel;

/// Functions that a crate offers under the names of the C ABI.
#[derive(Debug)]
pub struct Table {
    /// What the functions are, for people.
    pub name: &'static str,
    /// Version of that implementation.
    pub version: &'static str,
    /// The functions; the constructors in [`entry`](crate::entry) check each one's signature.
    pub symbols: &'static [(&'static str, Symbol)],
}

/// `aclAppLog` without the arguments behind its format. The C function takes any number of them, which a function of
/// Rust cannot; on the ABIs of Linux a callee may leave such arguments alone.
pub type AppLog = unsafe extern "C" fn(
    level: aclLogLevel,
    function: *const c_char,
    file: *const c_char,
    line: u32,
    format: *const c_char,
);

impl Table {
    /// The entry for `aclAppLog`, for which [`entry`](crate::entry) has no constructor.
    pub const fn app_log(function: AppLog) -> (&'static str, Symbol) {
        ("aclAppLog", Symbol::new(function as *const _))
    }

    /// The function with this name.
    pub(crate) fn find(&self, name: &str) -> Option<*mut c_void> {
        let (_, symbol) = self.symbols.iter().find(|(known, _)| *known == name)?;
        Some(symbol.0.cast_mut())
    }
}

/// Address of a function whose signature was checked against the headers.
#[derive(Debug, Clone, Copy)]
pub struct Symbol(*const c_void);

// SAFETY: the pointer is made from a function by `Symbol::new` and never dereferenced as data; code
// is immutable and lives as long as the process, which the compiler guarantees for `fn` items.
unsafe impl Send for Symbol {}
// SAFETY: as for Send; there is no interior state.
unsafe impl Sync for Symbol {}

impl Symbol {
    /// Only for [`entry`](crate::entry), which hands in functions of the right signature.
    pub(crate) const fn new(function: *const c_void) -> Self {
        Self(function)
    }
}
