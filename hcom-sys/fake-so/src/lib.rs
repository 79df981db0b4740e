//! The fake as a shared object: every function of `hcom-fake` exported under its C name.
//!
//! The object has no SONAME, so that one file can stand under every name of a CANN release
//! (`cargo xtask ascend-home` lays such a folder out). Load it by absolute path, as
//! `HCOM_LIBRARY_PATH` does; under a name like `libhccl.so` it must never lie where a loader finds
//! it unasked.
//!
//! Each export only calls the function of the same name: that one checks the arguments and lets no
//! panic out. `aclAppLog` is exported without its variadic arguments, which Rust cannot read.

#![expect(unsafe_code, reason = "exported C functions")]
#![allow(non_snake_case, reason = "the names of the C ABI")]

use std::ffi::{c_char, c_int, c_void};

use hcom_fake::ffi::all;
use hcom_fake::{for_each_missing_operator, for_each_operator, for_each_symbol};
use hcom_sys::bindings::*;

macro_rules! export {
    ($(fn $name:ident($($parameter:ident: $ty:ty),*) -> $answer:ty;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of the headers.")]
            ///
            /// # Safety
            /// As the headers demand of the caller.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($parameter: $ty),*) -> $answer {
                // SAFETY: the same function under another name; the caller keeps its contract.
                unsafe { all::$name($($parameter),*) }
            }
        )*
    };
}

macro_rules! export_operators {
    ($($second:ident $first:ident($($parameter:ident: $ty:ty),*) = $plan:expr;)*) => {
        export! {$(
            fn $first(
                $($parameter: $ty,)*
                workspace_size: *mut u64,
                executor: *mut *mut aclOpExecutor
            ) -> aclnnStatus;
            fn $second(
                workspace: *mut c_void,
                workspace_size: u64,
                executor: *mut aclOpExecutor,
                stream: aclrtStream
            ) -> aclnnStatus;
        )*}
    };
}

for_each_symbol!(export);
export! {
    fn aclAppLog(
        level: aclLogLevel,
        function: *const c_char,
        file: *const c_char,
        line: u32,
        format: *const c_char
    ) -> ();
}
for_each_operator!(export_operators);

/// Exports of operators that are not here. They take no notice of their arguments, which a C caller removes itself.
macro_rules! export_missing {
    ($($second:ident $first:ident;)*) => {$(
        #[doc = concat!("`", stringify!($first), "`: names the operator and refuses.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $first() -> aclnnStatus {
            all::missing_operator(stringify!($first))
        }
        #[doc = concat!("`", stringify!($second), "`: names the operator and refuses.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $second() -> aclnnStatus {
            all::missing_operator(stringify!($second))
        }
    )*};
}

for_each_missing_operator!(export_missing);
