//! Executes graphs in which collectives are nodes: devices, streams, communicators, plan, launch and
//! watchdog of one rank.
//!
//! A [`Runtime`] is the place of one rank, a process or a thread, in a job. It holds [`Array`]s in
//! device memory, executes single operations, and [compiles](Runtime::compile) graphs of
//! [`hcom_ir`] into [`Executable`]s whose communication hides under computation. The device library
//! is found at run time; on a host without a device the CPU library of the `hcom-fake` crate takes
//! its place.
//!
//! ```
//! use hcom_ir::{DType, parse};
//! use hcom_runtime::{CompileOptions, InProcess, Runtime, Settings};
//!
//! hcom_sys::register_fallback(hcom_fake::table());
//! let ranks: Vec<_> = InProcess::new(2)
//!     .into_iter()
//!     .map(|control| {
//!         std::thread::spawn(move || -> Result<Vec<u8>, hcom_runtime::Error> {
//!             let rank = control.rank();
//!             let runtime = Runtime::with_control(control, rank, &Settings::default())?;
//!             let graph = parse(
//!                 "hcom 1
//!                  group @all = ranks(0, 1)
//!                  graph @sum(%x: f32[2]) -> f32[2] {
//!                    %y = all_reduce %x, op = sum, group = @all
//!                    return %y
//!                  }",
//!                 "example",
//!             )?;
//!             let sum = runtime.compile(&graph, &CompileOptions::default())?;
//!             let x = [rank as f32 + 1.0, 10.0].map(f32::to_le_bytes).concat();
//!             let x = runtime.array(DType::F32, &[2], &x)?;
//!             sum.run(&[x])?[0].to_host()
//!         })
//!     })
//!     .collect();
//! for rank in ranks {
//!     let y = rank.join().unwrap().unwrap();
//!     assert_eq!(y, [3.0f32, 20.0].map(f32::to_le_bytes).concat());
//! }
//! ```
//!
//! # Modules
//! | module | what it holds |
//! |---|---|
//! | [`runtime`], `eager` | the runtime of a rank; single operations |
//! | [`fence`] | points that the host can wait for; host addresses of device memory |
//! | [`launch`], `load`, [`replay`] | compiled graphs and their execution, step by step or as one launch |
//! | [`plan`], [`memory`] | order, streams, events and memory of a graph; the proof that they are right |
//! | `aclnn` | what the device executes for each operation |
//! | `watchdog` | what happens when a rank dies, hangs or disagrees |
//! | [`recorder`] | what a rank did last, written when the job fails |
//! | [`status`] | how another process asks a running job where it stands |
//! | [`control`], [`startup`], [`rank_table`] | how ranks find each other and talk beside the device |
//! | [`crosscheck`] | what the ranks compare before anything is launched |
//! | `joint` | what they compare before each launch, where splits come from data |
//! | `comm`, [`buffer`] | communicators; arrays and the pool they come from |
//! | [`direct`] | collectives straight on the library, for measuring it |
//! | [`timeline`], [`bound`] | what was executed when; how fast it could be |
//! | `raw` | the only caller of the device library |
//! | [`error`], [`failure`], [`settings`] | errors of a rank and of a job; the environment |
//!
//! # What holds
//! - Work is issued in the order of the calls and all of it passes the compute stream; an array can
//!   be dropped or overwritten as soon as the call that uses it has returned.
//! - The modes of a plan give equal results, bit by bit.
//! - A communicator is used by one stream, and ranks that share two groups see their collectives in
//!   one order.
//! - No call waits for a rank that is dead, has left or has failed, and none waits for an absent one
//!   longer than [`Settings::timeout`]. The first failure reaches every rank and stays.
//! - No handle is used after it is gone, and device memory is given back only when the device is
//!   idle. Nothing panics while it is dropped.
//!
//! # What it does not do
//! It starts no processes, changes no graph, runs no custom operations, and has never run on a card.

mod aclnn;
pub mod bound;
pub mod buffer;
mod comm;
pub mod control;
pub mod crosscheck;
pub mod direct;
mod eager;
pub mod error;
pub mod failure;
pub mod fence;
mod joint;
pub mod launch;
mod load;
pub mod memory;
pub mod plan;
pub mod rank_table;
mod raw;
pub mod recorder;
pub mod replay;
pub mod runtime;
pub mod settings;
pub mod startup;
pub mod status;
pub mod timeline;
mod watchdog;

pub use bound::Bound;
pub use buffer::Array;
pub use control::{Control, ControlError, InProcess, Life, PeerStatus, Position, RankState, Run};
pub use crosscheck::Uniformity;
pub use direct::{Direct, DirectCall, DirectOp};
pub use error::Error;
pub use failure::{Failure, FailureKind};
pub use fence::Fence;
pub use joint::varies_by_rank;
pub use launch::{CompileOptions, Executable};
pub use plan::{Mode, Plan};
pub use raw::Link;
pub use recorder::Record;
pub use runtime::Runtime;
pub use settings::{Settings, SettingsError};
pub use startup::{Master, StartError, World, connect};
pub use timeline::Trace;
