//! The `hcom` command, one file per subcommand.
//!
//! Exit codes: 0 done, 1 the job failed, 2 the input was wrong; `launch` ends with the code of the first rank that
//! failed. With `--json` one JSON object goes to standard output and everything for people to standard error.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use hcom_runtime::Runtime;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::launch::{self, LaunchError, Outcome, Role};

#[cfg(feature = "fake")]
mod ascend_home;
mod bad_input;
mod bench;
mod check;
mod collectives;
mod demo;
mod drawing;
mod env;
mod export;
mod graph;
mod launch_command;
mod record;
mod run;
mod selftest;
mod status;

use bad_input::BadInput;

/// One line per command.
const EXAMPLES: &str = "Examples:
  hcom demo                                   a model with its collectives inside one graph, on 4 ranks
  hcom run examples/mlp.hcom --ranks 2        run a graph that is written as text
  hcom graph examples/mlp.hcom --svg > g.svg  draw it
  hcom check r0.hcom r1.hcom                  whether the graphs of several ranks fit each other
  hcom export examples/mlp.hcom DIR           write it for Huawei's offline compiler
  hcom launch -n 4 -- python3 train.py        start 4 ranks of any program
  hcom bench all_reduce --ranks 2             how fast collectives are
  hcom env                                    what this machine offers
  hcom collectives                            which types and reductions each call takes
  hcom record show DIR                        what a failed job's ranks left behind, in one sentence per group
  hcom status                                 where the ranks of the running jobs stand
  hcom selftest                               what works on the library that is found";

#[derive(Parser)]
#[command(
    name = "hcom",
    version,
    about = "Collective communication inside the compute graph",
    after_help = EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Run(run::Arguments),
    Launch(launch_command::Arguments),
    Graph(graph::Arguments),
    Check(check::Arguments),
    Export(export::Arguments),
    Bench(bench::Arguments),
    Env(env::Arguments),
    #[cfg(feature = "fake")]
    AscendHome(ascend_home::Arguments),
    Collectives(collectives::Arguments),
    Record(record::Arguments),
    Status(status::Arguments),
    Selftest(selftest::Arguments),
}

/// `-n`, `--ranks`: the same wherever ranks are started.
#[derive(Args)]
struct Ranks {
    /// Number of ranks.
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: Option<u32>,
}

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    let role = launch::attach();
    crate::offer_cpu();
    let cli = Cli::parse();
    let (json, result) = match cli.command {
        Command::Demo(arguments) => (arguments.json, demo::run(arguments, role)),
        Command::Run(arguments) => (arguments.json, run::run(arguments, role)),
        Command::Launch(arguments) => (arguments.json, launch_command::run(arguments)),
        Command::Graph(arguments) => (arguments.json, graph::run(&arguments)),
        Command::Check(arguments) => (arguments.json, check::run(&arguments)),
        Command::Export(arguments) => (arguments.json, export::run(&arguments)),
        Command::Bench(arguments) => (arguments.json(), bench::run(&arguments, role)),
        Command::Env(arguments) => (arguments.json, env::run(&arguments)),
        #[cfg(feature = "fake")]
        Command::AscendHome(arguments) => (arguments.json, ascend_home::run(&arguments)),
        Command::Collectives(arguments) => (arguments.json, collectives::run(&arguments)),
        Command::Record(arguments) => (arguments.json(), record::run(&arguments)),
        Command::Status(arguments) => (arguments.json, status::run(&arguments)),
        Command::Selftest(arguments) => (arguments.json, selftest::run(&arguments, role)),
    };
    result.unwrap_or_else(|error| fail(&error, json))
}

/// Prints what went wrong and returns the exit code it stands for.
fn fail(error: &anyhow::Error, json: bool) -> ExitCode {
    if let Some(error) = error.downcast_ref::<io::Error>()
        && error.kind() == io::ErrorKind::BrokenPipe
    {
        // The reader of our output has seen enough.
        return ExitCode::SUCCESS;
    }
    let bad_input = error.downcast_ref::<BadInput>();
    match bad_input {
        Some(bad) => eprintln!("error: {bad}"),
        None => eprintln!("error: {error:#}"),
    }
    if json {
        let object = match bad_input {
            Some(bad) => bad.to_json(),
            None => json!({"kind": "error", "message": format!("{error:#}")}),
        };
        // Nobody is left to tell when standard output is closed.
        let _ = print_json(&json!({ "error": object }));
    }
    ExitCode::from(if is_bad_input(error) { 2 } else { 1 })
}

/// Whether the user's input or surroundings are wrong, rather than the job having failed.
fn is_bad_input(error: &anyhow::Error) -> bool {
    let patch = error.downcast_ref::<hcom_patch::Error>();
    let runtime = error.downcast_ref::<hcom_runtime::Error>();
    error.is::<BadInput>()
        || patch.is_some_and(hcom_patch::Error::is_bad_input)
        || runtime.is_some_and(hcom_runtime::Error::is_bad_input)
}

/// Writes text to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes one object on one line to standard output.
fn print_json(object: &Value) -> anyhow::Result<()> {
    print(&format!("{object}\n"))
}

/// A launcher that found its input wrong, rather than a job that failed.
fn launch_error(error: LaunchError) -> anyhow::Error {
    match error {
        LaunchError::ProgramNotFound { program } => {
            BadInput::new(format!("there is no program {}", program.display()))
                .expected("a path to an executable file, or a name in PATH")
                .into()
        }
        other => other.into(),
    }
}

/// The job's exit code, for a process.
fn exit_code(outcome: &Outcome) -> ExitCode {
    ExitCode::from(outcome.exit_code())
}

/// The settings of the environment, with the timeout that the command line gives.
fn settings(timeout: Option<Duration>) -> anyhow::Result<hcom_runtime::Settings> {
    let mut settings = hcom_runtime::Settings::from_env().map_err(|error| {
        BadInput::new(format!("{} is {:?}", error.variable, error.value)).expected(error.expected)
    })?;
    if let Some(timeout) = timeout {
        settings.timeout = timeout;
    }
    Ok(settings)
}

/// Parses a positive number of seconds, fractions included.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a positive number of seconds, such as 60 or 0.5".to_owned();
    let seconds: f64 = text.trim().parse().map_err(|_| wrong())?;
    if seconds.is_nan() || seconds <= 0.0 {
        return Err(wrong());
    }
    // 30 years stand for ever.
    Ok(Duration::from_secs_f64(seconds.min(1e9)).max(Duration::from_nanos(1)))
}

/// A bar on standard error; invisible when that is no terminal.
fn progress_bar(steps: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:>12} {wide_bar:.cyan/dim} {pos}/{len} {eta}")
        .expect("the template names fields that exist");
    ProgressBar::new(steps).with_style(style).with_message(what)
}

/// What every rank says under `key`, in the order of the ranks.
fn gather<T: Serialize + DeserializeOwned>(
    runtime: &Runtime,
    key: &str,
    own: &T,
) -> anyhow::Result<Vec<T>> {
    let world: Vec<u32> = (0..runtime.world_size()).collect();
    let deadline = Instant::now() + runtime.settings().timeout;
    let said = runtime
        .control()
        .all_gather(&world, key, &serde_json::to_vec(own)?, deadline)?;
    said.iter()
        .map(|bytes| serde_json::from_slice(bytes).context("a rank says something else"))
        .collect()
}

/// What rank 0 of a job reported.
fn report_of_rank_0<T: DeserializeOwned>(outcome: &Outcome) -> anyhow::Result<T> {
    let report = outcome.reports.first().and_then(Option::as_ref);
    Ok(serde_json::from_str(
        report.context("rank 0 reports nothing")?,
    )?)
}

/// True in a process that is a rank already, under `hcom launch` or torchrun.
fn is_rank(role: Role) -> bool {
    role == Role::Rank
}
