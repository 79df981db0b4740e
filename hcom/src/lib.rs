//! Collective communication inside the compute graph, for Ascend NPUs and for any Linux machine without one.
//!
//! This crate gathers the others and adds what a program needs around them: [`init`] finds a device library,
//! [`launch`] starts ranks, and the `hcom` command (feature `cli`) does both for graphs that are written as text.
//!
//! | module | what it is |
//! |---|---|
//! | [`prelude`] | what a model uses: tensors, collective calls, `compile` |
//! | [`launch`] | ranks as processes: starting, watching, ending them |
//! | `cli` | the command, one file per subcommand |
//! | [`ir`], [`convert`], [`runtime`], [`patch`], [`sys`] | the crates below, whole |
//!
//! Patch, compile, call:
//!
//! ```
//! use hcom::prelude::*;
//!
//! fn main() -> Result<(), Error> {
//!     hcom::init(&Settings::from_env()?)?;
//!     let w = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
//!     let layer = move |inputs: &[Tensor]| {
//!         let mut y = inputs[0].matmul(&w)?;
//!         dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
//!         Ok(vec![y.relu()?])
//!     };
//!
//!     let _patch = patch_for_hcom();
//!     let layer = compile(layer, Config::default());
//!     let y = layer.call(&[Tensor::from_slice(&[1.0f32, 1.0], &[1, 2])?])?;
//!
//!     assert_eq!(y[0].to_vec::<f32>()?, [4.0, 6.0]);
//!     assert_eq!(layer.report().graphs, 1);
//!     Ok(())
//! }
//! ```
//!
//! Started by `hcom launch -n 4 -- program`, by torchrun or by its own [`launch::Launch`], the same program runs on
//! as many ranks.
//!
//! Invariants: there is one path through the code for a card and for none, the C ABI of the device library; a rank
//! never outlives its launcher; nothing but [`launch::Launch::run`] installs a signal handler.
//!
//! What it does not do: start ranks on other hosts (torchrun does, or a rank table), train, or choose for you how a
//! model is split.

#[cfg(feature = "cli")]
pub mod cli;
pub mod launch;
#[cfg(feature = "cli")]
mod seeded;

pub use hcom_convert as convert;
pub use hcom_ir as ir;
pub use hcom_patch as patch;
pub use hcom_runtime as runtime;
pub use hcom_sys as sys;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// What a model that communicates uses.
pub mod prelude {
    pub use hcom_patch::{
        Break, Collectives, Compiled, Config, DType, DeviceTensor, Error, Group, ReduceOp, Report,
        Root, Tensor, compile, dist, export, patch_for_hcom,
    };
    pub use hcom_runtime::{Mode, Settings, Uniformity};
}

/// Makes the calling thread a rank, the one that the environment names or the only one, and returns its runtime.
///
/// The device library is the one of `settings`, else that of `HCOM_LIBRARY_PATH`, else that of
/// `$ASCEND_HOME_PATH/lib64`, else, with the feature `fake`, the CPU implementation inside this program.
///
/// # Errors
/// No library was found, the environment names no valid place, or the ranks did not come together in time.
pub fn init(settings: &runtime::Settings) -> Result<runtime::Runtime, patch::Error> {
    offer_cpu();
    patch::dist::init(settings)
}

/// Lets hosts without a device library run on their CPU.
fn offer_cpu() {
    #[cfg(feature = "fake")]
    sys::register_fallback(hcom_fake::table());
}
