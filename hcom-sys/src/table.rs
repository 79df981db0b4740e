//! A library that is part of this process: functions by name, no `dlopen`.

#![expect(
    unsafe_code,
    reason = "a table shares function pointers between threads"
)]

use std::ffi::c_void;

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

impl Table {
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
