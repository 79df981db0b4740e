//! Devices, streams, communicators, plan, launch and watchdog for graphs with collectives.

pub mod control;
pub mod failure;
pub mod rank_table;
pub mod settings;
pub mod startup;

pub use control::{Control, ControlError, InProcess, Life, PeerStatus, Position, RankState};
pub use failure::{Failure, FailureKind};
pub use settings::{Settings, SettingsError};
pub use startup::{Master, StartError, World, connect};
