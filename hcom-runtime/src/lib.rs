//! Devices, streams, communicators, plan, launch and watchdog for graphs with collectives.

mod aclnn;
pub mod buffer;
pub mod control;
pub mod crosscheck;
pub mod error;
pub mod failure;
pub mod launch;
pub mod memory;
pub mod plan;
pub mod rank_table;
mod raw;
pub mod runtime;
pub mod settings;
pub mod startup;
pub mod timeline;

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
