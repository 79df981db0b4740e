//! Every function of the headers: what is known of it, its typed accessor on [`Library`], and its
//! typed constructor for a [`Table`](crate::Table).

#![expect(
    unsafe_code,
    reason = "an address found by name becomes a function of the signature in the headers"
)]

use std::ffi::c_void;

use crate::bindings::prototype;
use crate::{Library, MissingSymbol, Symbol};

/// A function of the C ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// The libraries that export it.
    pub group: Group,
    /// Where it was first seen.
    pub since: Since,
}

/// Libraries that belong together. Which of them exist depends on the CANN release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Group {
    /// `aclInit`, `aclrt*`, `aclmdlRI*`.
    Runtime,
    /// Tensor descriptions.
    Model,
    /// `aclop*` attributes.
    OpExecutor,
    /// `aclopCompile*` and compiler options.
    OpCompiler,
    /// `aclprof*`.
    Profiler,
    /// `Msprof*`, what other libraries report to the profiler.
    ProfilerReports,
    /// `rt*`, the layer below ACL.
    Driver,
    /// `Hccl*`.
    Hccl,
    /// Tensors, scalars and executors of aclnn.
    OpBase,
    /// `aclnn*` operators.
    Operators,
    /// `hcomExt*`, in hcom's own CPU library only.
    Extension,
}

impl Group {
    /// File names by layout of a CANN release. Within a layout each file is asked in order; layouts
    /// are not mixed, the first of which a file opens is taken.
    pub const fn layouts(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Runtime | Self::Extension => &[&["libacl_rt.so", "libascendcl.so"]],
            Self::Model => &[&["libacl_mdl.so", "libascendcl.so"]],
            Self::OpExecutor => &[&["libacl_op_executor.so", "libascendcl.so"]],
            Self::OpCompiler => &[&["libacl_op_compiler.so"]],
            Self::Profiler => &[&["libmsprofiler.so"]],
            Self::ProfilerReports => &[&["libprofapi.so"]],
            Self::Driver => &[&["libruntime.so"]],
            Self::Hccl => &[&["libhccl.so"]],
            Self::OpBase => &[&["libnnopbase.so"]],
            Self::Operators => &[
                &[
                    "libopapi.so",
                    "libaclnn_math.so",
                    "libaclnn_ops_infer.so",
                    "libaclnn_ops_train.so",
                ],
                &[
                    "libopapi_math.so",
                    "libopapi_nn.so",
                    "libopapi_cv.so",
                    "libopapi_transformer.so",
                ],
            ],
        }
    }
}

/// The oldest headers known to declare a function. A library that is older lacks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Since {
    /// No record of a first version.
    Unrecorded,
    /// CANN 8.0.
    Cann8,
    /// The headers that torch_npu 2.9.0 ships, which are newer than CANN 8.0.
    TorchNpu29,
    /// The HCCL sources of April 2026, shortly before CANN 9.
    Hcomm202604,
    /// The sources of August 2026, CANN 9.x.
    Cann9,
}

impl std::fmt::Display for Since {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unrecorded => "no CANN version on record",
            Self::Cann8 => "in CANN 8.0 and later",
            Self::TorchNpu29 => "newer than CANN 8.0; in the headers that torch_npu 2.9.0 ships",
            Self::Hcomm202604 => "in the HCCL sources of April 2026 and later",
            Self::Cann9 => "in the CANN 9.x sources of August 2026 and later",
        })
    }
}

macro_rules! define {
    ($($name:ident: $group:ident, $since:ident;)*) => {
        /// Index of each function in [`FUNCTIONS`].
        #[expect(non_camel_case_types, clippy::enum_variant_names, reason = "the names of the C ABI")]
        #[repr(usize)]
        enum Index { $($name,)* }

        /// Every function, in the order of the headers.
        pub static FUNCTIONS: &[Function] = &[$(Function {
            name: stringify!($name),
            group: Group::$group,
            since: Since::$since,
        },)*];

        /// One accessor per function, of the function's name. The first call looks the name up, later
        /// calls read an atomic. An error says where it was looked for; it is not remembered.
        #[expect(non_snake_case, reason = "the names of the C ABI")]
        impl Library {
            $(
                #[doc = concat!("The function of signature [`prototype::", stringify!($name), "`].")]
                #[doc = ""]
                #[doc = "# Errors"]
                #[doc = "[`MissingSymbol`] when the library does not export it."]
                #[inline]
                pub fn $name(&self) -> Result<prototype::$name, MissingSymbol> {
                    let address = self.resolve(Index::$name as usize)?;
                    // SAFETY: the address is not null and was found under this very name, in a table
                    // whose constructors check the signature or in a library that implements the
                    // headers; who opened the library vouches for that.
                    Ok(unsafe { std::mem::transmute::<*mut c_void, prototype::$name>(address) })
                }
            )*
        }

        /// Constructors of table entries that check the signature against the headers.
        #[expect(non_snake_case, reason = "the names of the C ABI")]
        pub mod entry {
            use super::{Symbol, prototype};

            $(
                #[doc = concat!("`", stringify!($name), "`, implemented by `function`.")]
                pub const fn $name(function: prototype::$name) -> (&'static str, Symbol) {
                    (stringify!($name), Symbol::new(function as *const _))
                }
            )*
        }
    };
}

for_each_function!(define);
