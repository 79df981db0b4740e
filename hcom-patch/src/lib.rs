//! Tensors and collective calls that run at once, or are recorded into one graph.
//!
//! A model is a Rust function over [`Tensor`]s that calls the collectives of [`dist`]. Run as it
//! is, every operator and every collective executes when it is called. [Compiled](compile()), its
//! first call is recorded: operators and collectives become nodes of one graph, which is checked
//! across ranks, scheduled so that communication runs under computation, and launched as a whole
//! from then on.
//!
//! Patch, compile, call:
//!
//! ```
//! use hcom_patch::{Config, Error, ReduceOp, Tensor, compile, dist, patch_for_hcom};
//!
//! // The device library; a program for an Ascend host needs no fallback.
//! hcom_sys::register_fallback(hcom_fake::table());
//! // Ranks come from `RANK`, `WORLD_SIZE`, …; without those this is a world of one.
//! dist::init(&hcom_runtime::Settings::default())?;
//!
//! let w = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?.named("w");
//! let layer = |inputs: &[Tensor]| {
//!     let mut y = inputs[0].matmul(&w)?;
//!     dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
//!     Ok(vec![y.relu()?])
//! };
//!
//! let _patch = patch_for_hcom();
//! let layer = compile(layer, Config::default());
//! let x = Tensor::from_slice(&[1.0f32, -1.0], &[1, 2])?;
//! let y = layer.call(&[x])?;
//!
//! assert_eq!(y[0].to_vec::<f32>()?, [0.0, 0.0]);
//! assert_eq!(layer.report().graphs, 1);
//! assert_eq!(layer.report().collectives, 1);
//! # Ok::<(), Error>(())
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`tensor`] | the tensor: a handle to device memory or to a value being recorded |
//! | `ops` | its operators |
//! | [`dist`] | ranks, groups, the collective calls |
//! | `rank` | the rank a thread is; [`patch_for_hcom`] |
//! | `eager` | operators and collectives, run when called |
//! | `recording` | operators and collectives, made nodes of a graph; where a graph breaks |
//! | `scope` | where a recording begins and ends |
//! | `sizes` | which sizes of arguments are symbols |
//! | `compile` | compiled functions, guards, the report |
//! | `cache` | what a compiled function remembers |
//! | `export` | the graph of a function without running it, as a value or as files |
//! | `foreign` | tensors in memory that belongs to someone else |
//!
//! Invariants:
//! - The same function gives the same results eagerly and compiled.
//! - Operators never write; only the calls of [`dist`] and [`Tensor::copy_`] do, and then every
//!   clone of the tensor sees it, compiled or not.
//! - Two tensors never share memory, unless they were made over the same memory.
//! - A tensor of a recording that has ended without delivering it is an error to use, never a
//!   wrong value.
//! - A rank is a thread: [`dist::init`] and [`patch_for_hcom`] act on the thread that calls them.
//!
//! What it does not do: differentiate; move tensors between devices; notice that a recorded
//! function has captured other numbers or other handles since (see [`compile()`]).

mod cache;
mod compile;
pub mod dist;
mod eager;
mod error;
mod export;
mod foreign;
mod ops;
mod rank;
mod recording;
mod scope;
mod sizes;
pub mod tensor;

pub use compile::{Collectives, Compiled, Config, Report, Shapes, compile};
pub use dist::{Group, Peer, ReduceOp, Reduction, Root};
pub use error::Error;
pub use export::{ExportOptions, Exported, Weights, export, export_graphs, export_to};
pub use foreign::DeviceTensor;
pub use hcom_ir::{Dim, Element, Literal, Shape, TopologyOrder};
pub use rank::{PatchGuard, patch_for_hcom};
pub use recording::Break;
pub use tensor::{DType, Tensor};
