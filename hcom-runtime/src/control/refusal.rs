//! Why a job does not start.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::failure::RankList;

/// Why the ranks cannot start together. Every rank that has joined reports the same.
#[derive(Clone, Debug, PartialEq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// Ranks did not come.
    #[error(
        "waiting for {} of {world_size}; {seconds} seconds are over (HCOM_CONNECT_TIMEOUT)",
        RankList(.missing)
    )]
    Missing {
        /// The ranks that did not come.
        missing: Vec<u32>,
        /// Number of ranks in the job.
        world_size: u32,
        /// The time limit in seconds.
        seconds: f64,
    },
    /// Two processes claim the same rank.
    #[error(
        "two processes are rank {rank}, at {first} and at {second}: start each process with a RANK of \
         its own, from 0 to {last}"
    )]
    DuplicateRank {
        /// The rank.
        rank: u32,
        /// Where the first process is.
        first: IpAddr,
        /// Where the second process is.
        second: IpAddr,
        /// The highest rank of the job.
        last: u32,
    },
    /// Two processes disagree about the number of ranks.
    #[error(
        "rank {rank} expects {got} ranks, rank 0 expects {expected}: start all with the same WORLD_SIZE"
    )]
    WorldSize {
        /// The rank that disagrees with rank 0.
        rank: u32,
        /// Its number of ranks.
        got: u32,
        /// The number of ranks on rank 0.
        expected: u32,
    },
    /// A rank came and ended before all had come.
    #[error("rank {rank} ended while waiting for {}: look at its output", RankList(.missing))]
    Gone {
        /// The rank that ended.
        rank: u32,
        /// The ranks that had not come yet.
        missing: Vec<u32>,
    },
    /// The address belongs to another job.
    #[error(
        "the address of rank 0 belongs to another job ({theirs:?}, this one is {ours:?}): give each \
         job a MASTER_PORT of its own"
    )]
    OtherJob {
        /// Name of the job that uses the address.
        theirs: String,
        /// Name of the job of this rank.
        ours: String,
    },
}
