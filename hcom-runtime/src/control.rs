//! The control plane: how ranks talk to each other beside the device library.
//!
//! Every rank holds one [`Control`]. It exchanges small messages (communicator ids, checks, merged
//! records), tells who is alive and where each rank stands, and spreads the first failure to all.
//! Nothing here touches device memory.
//!
//! Two forms exist: [`InProcess`] for ranks that are threads of one process, and the socket mesh
//! that [`connect`](crate::connect) sets up for ranks that are processes. Both are one state machine,
//! `control/board.rs`, fed by different transports.
//!
//! # What holds
//! - Exchanges are matched by group, key and how often that pair was used before; several may be
//!   outstanding and may arrive in any order.
//! - No call blocks beyond its deadline, and none blocks on a peer that died, left or failed.
//! - The first failure wins. It never changes afterwards, and every later exchange returns it; ranks
//!   that go on without the missing ones do so in a new era.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

mod board;
mod in_process;
mod lobby;
mod meeting;
mod mesh;
mod refusal;
mod wire;

pub use in_process::InProcess;
pub(crate) use meeting::Meeting;
pub use refusal::Refusal;

use crate::failure::{Failure, FailureKind, RankList};

/// A rank's connection to the other ranks of the job.
///
/// Ranks are global ranks everywhere in this trait. All methods may be called from any thread.
pub trait Control: Send + Sync {
    /// The own global rank.
    fn rank(&self) -> u32;

    /// Number of ranks in the job.
    fn world_size(&self) -> u32;

    /// A name that no other running job has, the same on all ranks: letters, digits and dashes.
    fn job(&self) -> &str;

    /// Exchanges `bytes` with the other members of `group` and returns what each contributed, in
    /// the order of `group`.
    ///
    /// The members call this with the same `group` (in the same order; it includes the own rank)
    /// and the same `key`; the n-th call of one member meets the n-th call of the others. `key` is
    /// shown to the user when the exchange fails, so it should say what is exchanged.
    ///
    /// # Errors
    /// See [`ControlError`]. An error is final for this exchange and does not fail the job by
    /// itself.
    fn all_gather(
        &self,
        group: &[u32],
        key: &str,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, ControlError>;

    /// Tells all ranks where this rank stands. Only the latest state counts.
    fn publish(&self, state: &RankState);

    /// What is known about every rank, by global rank, the own one included.
    fn peers(&self) -> Vec<PeerStatus>;

    /// Asks each of `ranks` whether its process runs, unless a question is still open. Returns those
    /// that have left one open for `patience`: they are stopped, or cannot be reached.
    fn silent(&self, ranks: &[u32], patience: Duration) -> Vec<u32>;

    /// Fails the job: every rank's exchanges return `failure` from now on. If the job has failed
    /// before, nothing changes.
    fn fail(&self, failure: &Failure);

    /// The failure of the job, if it has failed.
    fn failure(&self) -> Option<Failure>;

    /// This rank's place in the job as it goes on after a failure: with the same ranks and
    /// connections, without the failure and the exchanges of the past. Ranks that are gone stay gone.
    /// The first era of one rank meets the first of the others, its next one the next.
    fn next_era(&self) -> Arc<dyn Control>;
}

/// One collective in the sequence of its group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Name of the collective, as in the graph text.
    pub op: String,
    /// Name of the group on the rank that says so.
    pub group: String,
    /// Global ranks of the group, in its order: what ranks compare, since names may differ.
    pub ranks: Vec<u32>,
    /// Sequence number within the group, counted from 1.
    pub seq: u64,
    /// The execution of a compiled graph that it is part of; `None` for a single operation.
    pub run: Option<Run>,
}

impl Position {
    /// Which replay it is in, when it is in one.
    pub(crate) fn replay(&self) -> Option<u64> {
        let run = self.run.as_ref()?;
        run.replayed.then_some(run.number)
    }
}

/// One execution of a compiled graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the graph on the rank that says so.
    pub graph: String,
    /// Which of the graphs that were compiled for the group it is, counted from 1: the same on all
    /// members, also when they name their graphs differently.
    pub program: u64,
    /// Which execution of the graph it is, counted from 1.
    pub number: u64,
    /// Whether a capture was replayed.
    pub replayed: bool,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.replayed { "replay" } else { "run" };
        write!(
            f,
            "{kind} {} of graph {} #{}",
            self.number, self.graph, self.program
        )
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of group {}", self.op, self.seq, self.group)?;
        match &self.run {
            Some(run) if run.replayed => write!(f, " in {run}"),
            _ => Ok(()),
        }
    }
}

/// Where a rank stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankState {
    /// The collective it entered last.
    pub entered: Option<Position>,
    /// The collective it completed last.
    pub completed: Option<Position>,
    /// What it waits in outside of any collective, such as an exchange of the control plane.
    pub waiting: Option<String>,
}

impl fmt::Display for RankState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.entered, &self.completed) {
            (None, None) => f.write_str("has entered no collective")?,
            (Some(entered), Some(completed)) if entered == completed => {
                write!(f, "last completed {completed}")?
            }
            (Some(entered), Some(completed)) => {
                write!(f, "is inside {entered}, last completed {completed}")?
            }
            (Some(entered), None) => write!(f, "is inside {entered}")?,
            (None, Some(completed)) => write!(f, "last completed {completed}")?,
        }
        if let Some(waiting) = &self.waiting {
            write!(f, ", waits in {waiting}")?;
        }
        Ok(())
    }
}

/// Whether a rank takes part in the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// It runs, as far as is known; it may be stuck.
    Alive,
    /// It said goodbye: an orderly end.
    Left,
    /// It ended without saying goodbye.
    Dead {
        /// What was noticed.
        reason: String,
    },
}

/// What is known about a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its global rank.
    pub rank: u32,
    /// Whether it takes part.
    pub life: Life,
    /// What it published last.
    pub state: RankState,
}

/// Why an exchange failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Not every member arrived before the deadline.
    #[error(
        "{key}: timed out after {waited:.1?} waiting for {} ({})",
        RankList(.missing),
        last_seen(.missing, .states)
    )]
    Timeout {
        /// Key of the exchange.
        key: String,
        /// The members that did not arrive.
        missing: Vec<u32>,
        /// What each of them published last, in the order of `missing`.
        states: Vec<RankState>,
        /// How long this rank has waited.
        waited: Duration,
    },
    /// A member died before it contributed.
    #[error("{key}: rank {rank} died ({reason})")]
    PeerDied {
        /// Key of the exchange.
        key: String,
        /// The dead member.
        rank: u32,
        /// What was noticed.
        reason: String,
    },
    /// A member left in order without contributing.
    #[error("{key}: rank {rank} has left; it {state}")]
    PeerLeft {
        /// Key of the exchange.
        key: String,
        /// The member that left.
        rank: u32,
        /// What it published last.
        state: Box<RankState>,
    },
    /// The job has failed.
    #[error(transparent)]
    Failed(Box<Failure>),
    /// A contribution is longer than the control plane carries.
    #[error("{key}: {bytes} bytes are more than the {limit} an exchange carries")]
    TooLong {
        /// Key of the exchange.
        key: String,
        /// Length of the contribution.
        bytes: usize,
        /// The longest contribution.
        limit: usize,
    },
    /// The group does not hold the own rank, holds a rank twice or one outside of the world.
    #[error(
        "{key}: group {group:?} is not a list of distinct ranks below {world_size} that includes \
         rank {rank}"
    )]
    BadGroup {
        /// Key of the exchange.
        key: String,
        /// The group.
        group: Vec<u32>,
        /// The own rank.
        rank: u32,
        /// Number of ranks in the job.
        world_size: u32,
    },
}

fn last_seen(missing: &[u32], states: &[RankState]) -> String {
    let seen: Vec<String> = missing
        .iter()
        .zip(states)
        .map(|(rank, state)| format!("rank {rank} {state}"))
        .collect();
    seen.join("; ")
}

impl ControlError {
    /// This error as the failure of the job, noticed by global rank `rank`. A job that has failed
    /// keeps its failure.
    pub fn into_failure(self, rank: u32) -> Failure {
        match self {
            ControlError::Failed(failure) => *failure,
            ControlError::Timeout {
                key,
                missing,
                states,
                waited,
            } => Failure {
                op: Some(key),
                expected: Some(format!("all members within {waited:.1?}")),
                got: Some(last_seen(&missing, &states)),
                ranks: missing,
                help: Some(
                    "every member of the group must take part; raise HCOM_TIMEOUT if a rank is only \
                     slow"
                        .into(),
                ),
                ..Failure::new(FailureKind::Timeout, rank)
            },
            ControlError::PeerDied {
                key,
                rank: dead,
                reason,
            } => Failure {
                op: Some(key),
                ranks: vec![dead],
                got: Some(reason),
                help: Some(format!("look at the output of rank {dead}")),
                ..Failure::new(FailureKind::PeerDied, rank)
            },
            ControlError::PeerLeft {
                key,
                rank: left,
                state,
            } => Failure {
                op: Some(key),
                ranks: vec![left],
                got: Some(format!("rank {left} {state}")),
                help: Some("every rank must run the same number of steps".into()),
                ..Failure::new(FailureKind::PeerLeft, rank)
            },
            ControlError::TooLong { .. } | ControlError::BadGroup { .. } => Failure {
                got: Some(self.to_string()),
                ranks: vec![rank],
                ..Failure::new(FailureKind::Usage, rank)
            },
        }
    }
}
