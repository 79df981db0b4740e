//! `hcom selftest`: tries what hcom needs on whatever library is found, and writes a report to send back.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use hcom_ir::{DType, Graph, Literal, interpret};
use hcom_runtime::{CompileOptions, Error, Mode, Runtime};
use hcom_sys::{FUNCTIONS, Library};
use serde::{Deserialize, Serialize};

use super::{
    Ranks, exit_code, gather, is_rank, launch_error, print, print_json, report_of_rank_0, settings,
};
use crate::launch::{self, Launch, Role};

mod checks;

/// Try operations and collectives with values on the library that is found, and write a report.
///
/// Each check runs on all ranks, launched step by step and as a replayed capture, and is compared with the oracle, which
/// computes on the host. One that fails does not keep the others from running.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom selftest\n  hcom selftest --ranks 8 --report card.json\n\ndocs/on-a-card.md says what to do with the report."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    ranks: Ranks,
    /// File for the report, as JSON.
    #[arg(long, value_name = "FILE", default_value = "hcom-selftest.json")]
    report: PathBuf,
    /// Print the report instead of a summary.
    #[arg(long)]
    pub(super) json: bool,
}

/// What the ranks found.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    hcom: String,
    /// Where the library comes from.
    library: String,
    chip: Option<String>,
    interface: Option<[i32; 3]>,
    devices: Option<u32>,
    ranks: u32,
    /// Functions that hcom knows and the library does not have.
    missing_functions: Vec<String>,
    checks: Vec<Verdict>,
}

/// What became of one check.
#[derive(Debug, Serialize, Deserialize)]
struct Verdict {
    check: String,
    mode: String,
    outcome: Outcome,
    /// One sentence for each rank that has something to say.
    details: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// All values are those of the oracle.
    Right,
    /// It was refused with an error before it ran.
    Refused,
    /// It ran, and values differ.
    Wrong,
    /// The job failed in it.
    Failed,
}

pub(super) fn run(arguments: &Arguments, role: Role) -> Result<ExitCode> {
    if is_rank(role) {
        if let Some(report) = attempt_all()? {
            launch::report(&serde_json::to_string(&report)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = Launch::this(arguments.ranks.ranks.unwrap_or(2))
        .timeout(settings(None)?.timeout)
        .collect()
        .run()
        .map_err(launch_error)?;
    if outcome.exit_code() != 0 {
        return Ok(exit_code(&outcome));
    }
    let report: Report = report_of_rank_0(&outcome)?;
    let value = serde_json::to_value(&report)?;
    let place = || format!("the report {}", arguments.report.display());
    fs::write(&arguments.report, serde_json::to_vec_pretty(&value)?).with_context(place)?;
    match arguments.json {
        true => print_json(&value)?,
        false => print(&report.summary(arguments))?,
    }
    let worst = report.checks.iter().map(|verdict| verdict.outcome).max();
    Ok(match worst {
        Some(Outcome::Wrong | Outcome::Failed) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

impl Report {
    fn summary(&self, arguments: &Arguments) -> String {
        let count = |outcome| self.checks.iter().filter(|v| v.outcome == outcome).count();
        let mut text = format!(
            "library    {}{}\nfunctions  {} of {} are missing\nchecks     {} on {} ranks: {} right, {} refused, {} wrong, {} failed\n",
            self.library,
            self.chip
                .as_ref()
                .map_or_else(String::new, |chip| format!(", {chip}")),
            self.missing_functions.len(),
            FUNCTIONS.len(),
            self.checks.len(),
            self.ranks,
            count(Outcome::Right),
            count(Outcome::Refused),
            count(Outcome::Wrong),
            count(Outcome::Failed),
        );
        for verdict in &self.checks {
            if verdict.outcome != Outcome::Right {
                let outcome = format!("{:?}", verdict.outcome).to_lowercase();
                text += &format!("\n{outcome}: {} ({})\n", verdict.check, verdict.mode);
                for detail in &verdict.details {
                    text += &format!("  {detail}\n");
                }
            }
        }
        text += &format!("\nreport     {}\n", arguments.report.display());
        text
    }
}

/// Runs all checks as one rank; rank 0 has the report.
fn attempt_all() -> Result<Option<Report>> {
    let settings = settings(None)?;
    let mut runtime = Runtime::start(&settings)?;
    let (rank, ranks) = (runtime.rank(), runtime.world_size());
    let world: Vec<u32> = (0..ranks).collect();
    let mut verdicts = Vec::new();
    for check in checks::all(ranks) {
        let inputs: Vec<Vec<Literal>> = world.iter().map(|&rank| check.inputs(rank)).collect();
        let graphs = vec![&check.graph; ranks as usize];
        let expected = interpret(&graphs, &inputs)?.swap_remove(rank as usize);
        for mode in [Mode::Overlapped, Mode::Replay] {
            let own = attempt(&runtime, &check.graph, &inputs[rank as usize], mode).map_or_else(
                |error| {
                    let outcome = match error {
                        Error::Failure(_) => Outcome::Failed,
                        _ => Outcome::Refused,
                    };
                    (outcome, error.to_string())
                },
                |outputs| compare(&outputs, &expected.outputs),
            );
            let all = match gather(&runtime, "selftest", &own) {
                Ok(all) => all,
                // Some rank failed, and with it the job: the next check needs a new one.
                Err(_) => {
                    runtime = runtime.shrink(&world)?.0;
                    gather(&runtime, "selftest", &own)?
                }
            };
            let outcome = all.iter().map(|(outcome, _)| *outcome).max();
            let details = (0..)
                .zip(all)
                .filter(|(_, (_, detail))| !detail.is_empty())
                .map(|(rank, (_, detail)): (u32, _)| format!("rank {rank}: {detail}"));
            verdicts.push(Verdict {
                check: check.name.clone(),
                mode: mode.name().to_owned(),
                outcome: outcome.context("there are ranks")?,
                details: details.collect(),
            });
        }
    }
    let library = Library::search(settings.library.as_deref())?;
    let missing = FUNCTIONS
        .iter()
        .filter(|function| !library.has(function.name));
    Ok((rank == 0).then(|| Report {
        hcom: env!("CARGO_PKG_VERSION").to_owned(),
        library: runtime.library().to_owned(),
        chip: runtime.chip(),
        interface: runtime.interface_version(),
        devices: runtime.device_count().ok(),
        ranks,
        missing_functions: missing.map(|function| function.name.to_owned()).collect(),
        checks: verdicts,
    }))
}

/// Runs a graph twice and reads its outputs of the second time.
fn attempt(
    runtime: &Runtime,
    graph: &Graph,
    inputs: &[Literal],
    mode: Mode,
) -> Result<Vec<Literal>, Error> {
    let options = CompileOptions {
        mode,
        ..CompileOptions::default()
    };
    let executable = runtime.compile(graph, &options)?;
    let arrays = inputs
        .iter()
        .map(|input| runtime.array(input.dtype, &input.shape, &input.bytes))
        .collect::<Result<Vec<_>, _>>()?;
    executable.run(&arrays)?;
    executable
        .run(&arrays)?
        .iter()
        .map(|array| {
            Ok(Literal {
                dtype: array.dtype(),
                shape: array.shape().to_vec(),
                bytes: array.to_host()?,
            })
        })
        .collect()
}

/// Compares outputs, which are all f32, with the oracle's.
fn compare(got: &[Literal], expected: &[Literal]) -> (Outcome, String) {
    for (output, (got, expected)) in got.iter().zip(expected).enumerate() {
        if got.shape != expected.shape || got.dtype != DType::F32 {
            let detail = format!(
                "output {output} is {}, expected {}",
                got.ty(),
                expected.ty()
            );
            return (Outcome::Wrong, detail);
        }
        let numbers = |literal: &Literal| {
            let (words, _) = literal.bytes.as_chunks::<4>();
            words
                .iter()
                .map(|word| f32::from_le_bytes(*word))
                .collect::<Vec<f32>>()
        };
        let pairs = numbers(got).into_iter().zip(numbers(expected));
        for (index, (got, expected)) in pairs.enumerate() {
            // Kernels of a card compute in other orders, and matrix products in narrower types.
            let close = got == expected
                || (got.is_nan() && expected.is_nan())
                || (got - expected).abs() <= 4e-3 * expected.abs().max(1.0);
            if !close {
                let detail =
                    format!("element {index} of output {output} is {got}, expected {expected}");
                return (Outcome::Wrong, detail);
            }
        }
    }
    (Outcome::Right, String::new())
}
