//! Random programs until the time is over.
//!
//! Programs of several ranks run every way there is and are compared with the oracle; the tests of
//! the gate run the first few thousand of them, this command goes on with other seeds.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::tools;

/// Arguments of `fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// The first seed; by default one that the clock gives.
    #[arg(long)]
    seed: Option<u64>,
    /// How many programs between two looks at the clock.
    #[arg(long, default_value_t = 500)]
    programs: u64,
}

/// Runs programs, by all tests of the oracle, until the time is over or one fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60 * args.minutes);
    let mut seed = match args.seed {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH
            .elapsed()
            .context("the clock is before 1970")?
            .as_secs(),
    };
    let first = seed;
    while seed == first || Instant::now() < end {
        println!("fuzz: seeds {seed} to {}", seed + args.programs - 1);
        let mut command = tools::cargo();
        command
            .args(["test", "--quiet", "--locked", "--package", "hcom-runtime"])
            .args(["--test", "oracle"])
            .env("HCOM_FUZZ_SEED", seed.to_string())
            .env("HCOM_FUZZ_PROGRAMS", args.programs.to_string());
        tools::run(&mut command).with_context(|| {
            format!(
                "a program fails; `cargo xtask fuzz --minutes 0 --seed {seed} --programs {}` runs it again",
                args.programs
            )
        })?;
        seed += args.programs;
    }
    println!(
        "fuzz: passed {} programs on each kind of ranks",
        seed - first
    );
    Ok(())
}
