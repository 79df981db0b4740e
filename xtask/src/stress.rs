//! The stress run of the CPU library: random operations of real ranks against an oracle, for as long as asked.
//!
//! The jobs and the oracle are a test of `hcom-fake`; this starts it, shows how far it is and says what it found.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::tools;

const TEST: &str = "random_operations_match_the_oracle";

/// Arguments of `stress`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long to go on, in minutes; the job that runs then is finished.
    #[arg(long, default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,
    /// The seed of the first job; each further one adds 1. Without it the clock says.
    #[arg(long)]
    seed: Option<u64>,
    /// End after so many jobs.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: Option<u64>,
    /// Ranks of every job; without it each has 2 to 4.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16))]
    ranks: Option<u32>,
    /// Print the result as one line of JSON on the standard output.
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= 10_000.0 => Ok(minutes),
        _ => Err("expected a number of minutes above 0, at most 10000".to_owned()),
    }
}

impl Args {
    /// A run of so many seconds with new seeds.
    pub(crate) fn of_seconds(seconds: u32) -> Args {
        Args {
            minutes: f64::from(seconds) / 60.0,
            seed: None,
            jobs: None,
            ranks: None,
            json: false,
        }
    }
}

/// Runs the jobs; an error lists what went wrong, with the seeds that show it again.
pub(crate) fn run(args: &Args) -> Result<()> {
    let seconds = (args.minutes * 60.0).ceil() as u64;
    let mut command = tools::cargo();
    // Tests of the whole workspace, so that nothing is built twice; only one package has this one.
    command.args([
        "test",
        "--quiet",
        "--workspace",
        "--locked",
        "--test",
        "stress",
        "--",
    ]);
    command.args(["--exact", TEST, "--nocapture"]);
    command.env("HCOM_STRESS_SECONDS", seconds.to_string());
    let options = [
        ("HCOM_STRESS_SEED", args.seed),
        ("HCOM_STRESS_JOBS", args.jobs),
        ("HCOM_STRESS_RANKS", args.ranks.map(u64::from)),
    ];
    for (name, value) in options {
        match value {
            Some(value) => command.env(name, value.to_string()),
            None => command.env_remove(name),
        };
    }
    // What the test itself prints about a failure is in its state too.
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = tools::shown(&command);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let errors = child.stderr.take().context("the errors are piped")?;
    let errors = std::thread::spawn(move || std::io::read_to_string(errors).unwrap_or_default());
    let bar = ProgressBar::new(seconds).with_style(ProgressStyle::with_template(
        "{bar:30} {elapsed_precise} of {len} s  {msg}",
    )?);
    bar.set_message("building");
    bar.enable_steady_tick(Duration::from_secs(1));
    let mut last = None;
    let output = child.stdout.take().context("the output is piped")?;
    for line in BufReader::new(output).lines() {
        let line = line.with_context(|| format!("cannot read what `{shown}` prints"))?;
        if let Some(state) = line.strip_prefix("STRESS ") {
            let state: Value = serde_json::from_str(state)
                .with_context(|| format!("`{shown}` printed no JSON: {line}"))?;
            bar.set_position((state["seconds"].as_f64().unwrap_or(0.0) as u64).min(seconds));
            bar.set_message(summary(&state));
            last = Some(state);
        }
    }
    bar.finish_and_clear();
    let status = child.wait()?;
    let errors = errors.join().unwrap_or_default();
    let Some(state) = last else {
        bail!("`{shown}` ended with {status} before its first job:\n{errors}");
    };
    if args.json {
        println!("{state}");
    }
    eprintln!(
        "stress: {}, seeds from {}",
        summary(&state),
        state["first_seed"]
    );
    let troubles = state["troubles"].as_array().map_or(&[][..], Vec::as_slice);
    ensure!(troubles.is_empty(), "{}", report(troubles));
    ensure!(status.success(), "`{shown}` failed ({status}):\n{errors}");
    Ok(())
}

/// The counts of a state.
fn summary(state: &Value) -> String {
    format!(
        "{} jobs, {} operations, {:.1} GB compared in {:.0} s: {} wrong, {} hung, {} failed",
        state["jobs"],
        state["operations"],
        state["bytes_compared"].as_f64().unwrap_or(0.0) / 1e9,
        state["seconds"].as_f64().unwrap_or(0.0),
        state["wrong"],
        state["hung"],
        state["failed"]
    )
}

/// What went wrong, and how to see it again.
fn report(troubles: &[Value]) -> String {
    let each = troubles.iter().map(|trouble| {
        let what = trouble["what"].as_str().unwrap_or("no reason");
        match trouble["seed"].as_u64() {
            None => what.to_owned(),
            Some(seed) => {
                let ranks = match trouble["ranks"].as_u64() {
                    Some(ranks) => format!(" --ranks {ranks}"),
                    None => String::new(),
                };
                format!(
                    "{what}\n  job: {}\n  again: cargo xtask stress --jobs 1 --seed {seed}{ranks}",
                    trouble["settings"].as_str().unwrap_or("unknown")
                )
            }
        }
    });
    each.collect::<Vec<String>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_trouble_says_how_to_see_it_again() {
        let troubles = [
            json!({"seed": 7, "ranks": 3, "settings": "three ranks", "what": "4 bytes differ"}),
            json!({"what": "memory grew"}),
        ];
        assert_eq!(
            report(&troubles),
            "4 bytes differ\n  job: three ranks\n  again: cargo xtask stress --jobs 1 --seed 7 --ranks 3\nmemory grew"
        );
    }

    #[test]
    fn a_time_must_be_one() {
        assert_eq!(minutes("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "nan", "x", "1e9"] {
            assert!(minutes(wrong).is_err(), "{wrong}");
        }
        let state = json!({"jobs": 1, "operations": 20, "bytes_compared": 3_000_000_000u64, "seconds": 4.4, "wrong": 0,
            "hung": 1, "failed": 0});
        assert_eq!(
            summary(&state),
            "1 jobs, 20 operations, 3.0 GB compared in 4 s: 0 wrong, 1 hung, 0 failed"
        );
    }
}
