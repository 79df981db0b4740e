//! Random input until the time is over.
//!
//! `programs`: programs of several ranks run every way there is and are compared with the oracle; the
//! tests of the gate run the first few thousand of them, this command goes on with other seeds.
//!
//! `text` and `valid`: libFuzzer drives the parser and the validator (`fuzz/`). It needs a C++ compiler,
//! and no nightly toolchain: the instrumentation is a pass of the stable compiler's LLVM, without a
//! sanitizer, since the crate has no unsafe code. This way was not run so far; the tests of `hcom-ir` drive
//! the same functions with random and damaged graphs, everywhere.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::tools;

/// Arguments of `fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is given random input.
    #[arg(long, value_enum, default_value_t = Target::Programs)]
    target: Target,
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

#[derive(Clone, Copy, clap::ValueEnum)]
enum Target {
    /// Everything that runs a graph, against the oracle.
    Programs,
    /// The parser, with libFuzzer.
    Text,
    /// The validator and the builder, with libFuzzer.
    Valid,
}

/// Gives random input until the time is over or something fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    match args.target {
        Target::Programs => programs(args),
        Target::Text => libfuzzer("text", args),
        Target::Valid => libfuzzer("valid", args),
    }
}

fn programs(args: &Args) -> Result<()> {
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

/// What the compiler adds so that libFuzzer sees which branches an input takes.
const COVERAGE: [&str; 7] = [
    "--cfg=fuzzing",
    "-Ccodegen-units=1",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

fn libfuzzer(target: &str, args: &Args) -> Result<()> {
    tools::require_cxx()?;
    let folder = tools::target().join("fuzz");
    let corpus = folder.join("corpus").join(target);
    std::fs::create_dir_all(&corpus).context("cannot create the folder of inputs")?;
    // With a target named, build scripts and macros are built without these flags.
    let host = tools::capture(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let host = host.trim();
    let mut build = tools::cargo();
    build
        .args(["build", "--quiet", "--locked", "--release", "--bin", target])
        .args(["--manifest-path", "fuzz/Cargo.toml", "--target", host])
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", COVERAGE.join(" "));
    tools::run(&mut build)?;
    let mut fuzz = Command::new(folder.join(host).join("release").join(target));
    fuzz.current_dir(&folder)
        .arg(&corpus)
        .arg(tools::root().join("examples"))
        .arg(format!("-max_total_time={}", (60 * args.minutes).max(1)))
        .args(["-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"])
        .arg("-print_final_stats=1");
    if let Some(seed) = args.seed {
        fuzz.arg(format!("-seed={seed}"));
    }
    tools::run(&mut fuzz)
}
