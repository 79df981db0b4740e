//! `hcom launch`: starts the ranks of any program.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::{Ranks, exit_code, launch_error, parse_seconds, print_json, settings};
use crate::launch::{End, Launch, Outcome};

/// Start the ranks of a program and watch over them.
///
/// Every rank gets torchrun's variables: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom launch -n 4 -- python3 train.py --epochs 3\n  hcom launch --fake -n 4 -- ./all_reduce_test\n  hcom launch --ranks 2 -- sh -c 'echo I am rank $RANK of $WORLD_SIZE'\n\nWhen a rank fails, the others get the timeout and 2 s more to report, then SIGTERM, then SIGKILL.\nThe exit code is that of the first failure (128 + n for a rank that signal n ended)."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    ranks: Ranks,
    /// Seconds that the ranks wait for each other in a collective [default: HCOM_TIMEOUT, else 60].
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = parse_seconds)]
    timeout: Option<Duration>,
    /// Run a program for Ascend NPUs on the CPU library: sets LD_LIBRARY_PATH and ASCEND_HOME_PATH for it, and
    /// HCOM_FAKE_STRICT=1 where it is not set, so that the host cannot touch device addresses.
    #[cfg(feature = "fake")]
    #[arg(long)]
    fake: bool,
    /// Print how the job ended as one JSON object; the ranks' output goes to standard error.
    #[arg(long)]
    pub(super) json: bool,
    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let timeout = settings(arguments.timeout)?.timeout;
    let mut program = arguments.program.into_iter();
    let ranks = arguments.ranks.ranks.unwrap_or(1);
    let mut job = Launch::program(ranks, program.next().unwrap_or_default())
        .args(program)
        .timeout(timeout);
    if arguments.timeout.is_some() {
        job = job.env("HCOM_TIMEOUT", timeout.as_secs_f64().to_string());
    }
    #[cfg(feature = "fake")]
    if arguments.fake {
        job = on_the_cpu(job)?;
    }
    if arguments.json {
        job = job.collect();
    }
    let outcome = job.run().map_err(launch_error)?;
    if arguments.json {
        print_json(&summary(ranks, &outcome))?;
    }
    Ok(exit_code(&outcome))
}

#[cfg(feature = "fake")]
fn on_the_cpu(mut job: Launch) -> anyhow::Result<Launch> {
    for (name, value) in super::ascend_home::Home::cached()?.variables() {
        job = job.env(name, value);
    }
    Ok(match std::env::var_os("HCOM_FAKE_STRICT") {
        Some(_) => job,
        None => job.env("HCOM_FAKE_STRICT", "1"),
    })
}

fn summary(ranks: u32, outcome: &Outcome) -> serde_json::Value {
    let failure = outcome.failure.map(|failure| {
        let (code, signal) = match failure.end {
            End::Code(code) => (Some(code), None),
            End::Signal(signal) => (None, Some(signal)),
        };
        json!({"rank": failure.rank, "code": code, "signal": signal})
    });
    json!({
        "ranks": ranks,
        "exit_code": outcome.exit_code(),
        "failure": failure,
        "interrupted_by": outcome.interrupted_by,
    })
}
