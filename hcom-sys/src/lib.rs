//! The Ascend C ABI: ACL runtime, HCCL and aclnn, as one table of functions resolved on first use.
//!
//! The headers under `include/` are hcom's own description of the ABI; the bindings are generated
//! from them (`cargo xtask bindings`). Nothing is linked: a [`Library`] is opened at run time, either
//! Huawei's shared objects on a host with an NPU or an implementation inside the process.
//!
//! | module | what it holds |
//! |---|---|
//! | [`bindings`] | types, constants and [`prototype`]s, generated |
//! | [`entry`] | typed constructors for the entries of a [`Table`] |
//! | `loader` | [`Library`]: search, opening, look-up |
//! | `symbol` | [`FUNCTIONS`]: group of libraries and first version of each; the accessors |
//! | `table` | [`Table`]: a library that is part of the process |
//! | `headers` | the headers themselves, with the feature `headers` |
//! | `error`, `codes` | [`LoadError`], [`MissingSymbol`], [`CallError`]; names and meanings of the codes |
//!
//! ```no_run
//! use hcom_sys::{Library, check_acl};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let library = Library::search(None)?;
//! let mut devices = 0;
//! let count = library.aclrtGetDeviceCount()?;
//! // SAFETY: the signature is the headers', and `devices` is a valid place for the answer.
//! check_acl("aclrtGetDeviceCount", unsafe { count(&mut devices) })?;
//! println!("{devices} devices");
//! # Ok(())
//! # }
//! ```
//!
//! Invariants: an address handed out is not null and stays valid until the process ends; a function of
//! a [`Table`] has the signature of the headers; no name is looked up outside the library found.
//!
//! It does not: call any function by itself, own a handle, wait, or translate between the element
//! types of ACL and HCCL, whose numbers differ. C-variadic functions (`aclAppLog`) have no accessor.

#[macro_use]
#[rustfmt::skip]
pub mod bindings;
mod codes;
mod config;
mod error;
#[cfg(feature = "headers")]
mod headers;
mod loader;
mod symbol;
mod table;

pub use bindings::prototype;
pub use config::comm_config;
pub use error::{
    CallError, Code, LoadError, MissingSymbol, Place, check_acl, check_aclnn, check_hccl,
};
#[cfg(feature = "headers")]
pub use headers::headers;
pub use loader::{ASCEND_HOME_VARIABLE, LIBRARY_PATH_VARIABLE, Library, Origin, register_fallback};
pub use symbol::{FUNCTIONS, Function, Group, Since, entry};
pub use table::{AppLog, Symbol, Table};
