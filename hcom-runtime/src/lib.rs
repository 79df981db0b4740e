//! Devices, streams, communicators, plan, launch and watchdog for graphs with collectives.

mod aclnn;
pub mod bound;
pub mod buffer;
mod comm;
pub mod control;
pub mod crosscheck;
mod eager;
pub mod error;
pub mod failure;
pub mod launch;
mod load;
pub mod memory;
pub mod plan;
pub mod rank_table;
mod raw;
pub mod runtime;
pub mod settings;
pub mod startup;
pub mod timeline;
mod watchdog;

pub use bound::Bound;
pub use buffer::Array;
pub use control::{Control, ControlError, InProcess, Life, PeerStatus, Position, RankState};
pub use crosscheck::Uniformity;
pub use error::Error;
pub use failure::{Failure, FailureKind};
pub use launch::{CompileOptions, Executable};
pub use plan::{Mode, Plan};
pub use runtime::Runtime;
pub use settings::{Settings, SettingsError};
pub use startup::{Master, StartError, World, connect};
pub use timeline::Trace;
