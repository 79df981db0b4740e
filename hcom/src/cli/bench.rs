//! `hcom bench`: how fast collectives are, beside what the machine allows and what other libraries do.

use std::process::ExitCode;

use anyhow::Result;

use crate::launch::Role;

mod collective;
mod data;
mod machine;
mod output;
mod peer;
mod rank;

/// Measure collectives: time, bandwidth and correctness over sizes.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

/// What is measured.
#[derive(clap::Subcommand)]
#[command(rename_all = "snake_case")]
enum What {
    /// Everybody gets the sum of all buffers.
    AllReduce(collective::Arguments),
    /// Everybody gets all buffers.
    AllGather(collective::Arguments),
    /// Everybody gets a block of the sum of all buffers.
    ReduceScatter(collective::Arguments),
    /// Everybody gets a block of every buffer.
    AllToAll(collective::Arguments),
    /// Everybody gets the buffer of rank 0.
    Broadcast(collective::Arguments),
}

impl Arguments {
    /// Whether one JSON object is asked for.
    pub(super) fn json(&self) -> bool {
        match &self.what {
            What::AllReduce(arguments)
            | What::AllGather(arguments)
            | What::ReduceScatter(arguments)
            | What::AllToAll(arguments)
            | What::Broadcast(arguments) => arguments.json,
        }
    }
}

pub(super) fn run(arguments: &Arguments, role: Role) -> Result<ExitCode> {
    use collective::Operation as O;
    match &arguments.what {
        What::AllReduce(arguments) => collective::run(O::AllReduce, arguments, role),
        What::AllGather(arguments) => collective::run(O::AllGather, arguments, role),
        What::ReduceScatter(arguments) => collective::run(O::ReduceScatter, arguments, role),
        What::AllToAll(arguments) => collective::run(O::AllToAll, arguments, role),
        What::Broadcast(arguments) => collective::run(O::Broadcast, arguments, role),
    }
}
