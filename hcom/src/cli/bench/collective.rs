//! `hcom bench <collective>`: one operation over sizes.
//!
//! The launcher goes through the sizes. For each it probes the machine, starts a job of ranks, and probes again; a row
//! whose probes disagree is measured again.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;
use hcom_ir::DType;
use serde::Serialize;
use serde_json::json;

use super::data;
use super::peer::{self, Fastest, Peers};
use super::rank::{self, Measured};
use super::{machine, output};
use crate::cli::bad_input::BadInput;
use crate::cli::{
    Ranks, exit_code, is_rank, launch_error, print, print_json, progress_bar, report_of_rank_0,
    settings,
};
use crate::launch::{self, Event, Launch, Role};

/// How often a row is measured before it stands although the machine changed meanwhile.
const TRIES: u32 = 3;

#[derive(clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  hcom bench all_reduce --ranks 2\n  hcom bench all_gather --ranks 4 --mode owned --max-bytes 16M --json\n  hcom bench all_reduce --peer mpi --mode whole\n  hcom bench all_reduce --dtype bf16 --csv --svg bandwidth.svg\n\nBytes are those of the larger of a rank's two buffers. algbw = bytes / time; busbw = algbw x factor, which is\n2 (n - 1) / n for all_reduce, (n - 1) / n for all_gather, reduce_scatter and all_to_all, and 1 for broadcast.\nbound: the kernel alone by threads of one process. mixed: the cores moved while the row was measured."
)]
pub(super) struct Arguments {
    #[command(flatten)]
    ranks: Ranks,
    /// What happens between two operations.
    #[arg(long, value_enum, default_value_t = Mode::Reused)]
    pub(super) mode: Mode,
    /// Smallest size; K, M and G mean powers of 1024.
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = parse_bytes)]
    min_bytes: u64,
    /// Largest size.
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_bytes)]
    max_bytes: u64,
    /// From one size to the next.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..))]
    factor: u64,
    /// Type of the elements.
    #[arg(long, default_value = "f32", value_parser = parse_dtype)]
    pub(super) dtype: DType,
    /// Operations to measure at each size; without it, as many as a quarter of a second holds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) iterations: Option<u64>,
    /// Operations before the measured ones.
    #[arg(long, default_value_t = 5)]
    pub(super) warmup: u64,
    /// Input and output are the same memory.
    #[arg(long)]
    pub(super) in_place: bool,
    /// Wait for each operation; without it, operations of the mode `reused` follow each other in the queue.
    #[arg(long)]
    pub(super) synchronize: bool,
    /// Measure another library in the same run and print the ratio to its time.
    #[arg(long, value_enum)]
    peer: Option<PeerKind>,
    /// Print one JSON object.
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,
    /// Print comma-separated values.
    #[arg(long)]
    csv: bool,
    /// Draw bandwidth over size into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PeerKind {
    /// The installed MPI libraries: Open MPI, Intel MPI. The faster one counts.
    Mpi,
}

/// What happens between two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// Nothing: the buffers stay as they are.
    Reused,
    /// Every rank rewrites its input, which is not counted.
    Owned,
    /// Every rank rewrites its input and reads the result, and both count.
    Whole,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Reused => "reused",
            Mode::Owned => "owned",
            Mode::Whole => "whole",
        }
    }
}

/// Which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::AllReduce => "all_reduce",
            Operation::AllGather => "all_gather",
            Operation::ReduceScatter => "reduce_scatter",
            Operation::AllToAll => "all_to_all",
            Operation::Broadcast => "broadcast",
        }
    }

    /// Elements of the larger buffer when about `bytes` are asked for: at least one for each rank, and as many for each.
    pub(super) fn elements(self, bytes: u64, dtype: DType, ranks: u32) -> u64 {
        let elements = (bytes / dtype.bytes()).max(1);
        match self {
            Operation::AllReduce | Operation::Broadcast => elements,
            _ => elements.next_multiple_of(u64::from(ranks)),
        }
    }

    /// What an optimal algorithm must carry over each link, in units of the bytes.
    fn bus_factor(self, ranks: u32) -> f64 {
        let ranks = f64::from(ranks);
        match self {
            Operation::AllReduce => 2.0 * (ranks - 1.0) / ranks,
            Operation::AllGather | Operation::ReduceScatter | Operation::AllToAll => {
                (ranks - 1.0) / ranks
            }
            Operation::Broadcast => 1.0,
        }
    }
}

/// One row of the result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) op: &'static str,
    pub(super) ranks: u32,
    pub(super) mode: &'static str,
    pub(super) dtype: DType,
    pub(super) in_place: bool,
    pub(super) regime: &'static str,
    pub(super) bytes: u64,
    /// Microseconds of one operation.
    pub(super) us: f64,
    /// 10⁹ bytes per second: bytes over time, and that times the factor of the operation.
    pub(super) algbw_gbs: f64,
    pub(super) busbw_gbs: f64,
    /// Elements with a wrong value.
    pub(super) wrong: u64,
    pub(super) iterations: u64,
    /// The faster peer, and its microseconds.
    pub(super) peer: Option<&'static str>,
    pub(super) peer_us: Option<f64>,
    /// Microseconds of the kernel alone on this machine.
    pub(super) bound_us: Option<f64>,
    /// Time over the peer's time, and over the bound.
    pub(super) ratio: Option<f64>,
    pub(super) ratio_bound: Option<f64>,
}

/// What was measured between two probes.
struct Figures {
    regime: &'static str,
    measured: Measured,
    peer: Option<Fastest>,
    bound_us: Option<f64>,
}

pub(super) fn run(operation: Operation, arguments: &Arguments, role: Role) -> Result<ExitCode> {
    if arguments.min_bytes > arguments.max_bytes {
        return Err(BadInput::new("the smallest size is above the largest")
            .at("--min-bytes, --max-bytes")
            .expected("a range of sizes")
            .got(format!(
                "{} to {}",
                arguments.min_bytes, arguments.max_bytes
            ))
            .into());
    }
    if arguments.in_place && operation == Operation::AllToAll {
        return Err(BadInput::new("all_to_all does not work in place")
            .at("--in-place")
            .help("leave --in-place out")
            .into());
    }
    if is_rank(role) {
        let rows = rank::run(operation, arguments, &sizes(arguments))?;
        launch::report(&json!({ "rows": rows }).to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let ranks = arguments.ranks.ranks.unwrap_or(2);
    let sizes = sizes(arguments);
    let bar = progress_bar(sizes.len() as u64, operation.name());
    let peers = match arguments.peer {
        Some(PeerKind::Mpi) => Some(Peers::find()?),
        None => None,
    };
    if let Some(peers) = &peers {
        bar.suspend(|| eprintln!("compared with: {}", peers.names().join(", ")));
    }
    let mut rows = Vec::new();
    for size in sizes {
        let bytes = operation.elements(size, arguments.dtype, ranks) * arguments.dtype.bytes();
        match steady(operation, arguments, peers.as_ref(), ranks, bytes)? {
            Ok(figures) => rows.push(row(operation, arguments, ranks, bytes, &figures)),
            Err(failed) => return Ok(failed),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(file) = &arguments.svg {
        fs::write(file, output::svg(&rows))
            .with_context(|| format!("the plot {}", file.display()))?;
    }
    if arguments.json {
        print_json(&json!({ "rows": rows }))?;
    } else if arguments.csv {
        print(&output::csv(&rows))?;
    } else {
        print(&output::table(&rows))?;
    }
    let wrong = rows.iter().any(|row| row.wrong > 0);
    Ok(ExitCode::from(u8::from(wrong)))
}

/// Measures everything between two probes, again when they disagree.
fn steady(
    operation: Operation,
    arguments: &Arguments,
    peers: Option<&Peers>,
    ranks: u32,
    bytes: u64,
) -> Result<Result<Figures, ExitCode>> {
    let case = peer::Case {
        operation,
        mode: arguments.mode,
        ranks,
        bytes,
        dtype: arguments.dtype,
        warmup: arguments.warmup,
        iterations: arguments.iterations.unwrap_or(0),
        in_place: arguments.in_place,
    };
    let mut before = machine::regime();
    let mut attempt = 1;
    loop {
        let measured = match start(ranks, bytes)? {
            Ok(measured) => measured,
            Err(failed) => return Ok(Err(failed)),
        };
        let peer = match peers {
            Some(peers) => peers.fastest(&case)?,
            None => None,
        };
        let bound_us = machine::bound_us(operation, arguments.mode, ranks, bytes, arguments.dtype);
        let after = machine::regime();
        if before == after || attempt >= TRIES {
            return Ok(Ok(Figures {
                regime: if before == after { after } else { "mixed" },
                measured,
                peer,
                bound_us,
            }));
        }
        before = after;
        attempt += 1;
    }
}

/// Runs a job of ranks on one size; the exit code when it fails.
fn start(ranks: u32, bytes: u64) -> Result<Result<Measured, ExitCode>> {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let size = bytes.to_string();
    // The last of an option counts.
    arguments.extend(["--min-bytes", &size, "--max-bytes", &size].map(Into::into));
    let outcome = Launch::this(ranks)
        .args(arguments)
        .timeout(settings(None)?.timeout)
        .collect_with(|event| {
            if let Event::Line(line) = event {
                eprintln!("{line}");
            }
        })
        .run()
        .map_err(launch_error)?;
    if outcome.exit_code() != 0 {
        return Ok(Err(exit_code(&outcome)));
    }
    let report: serde_json::Value = report_of_rank_0(&outcome)?;
    Ok(Ok(serde_json::from_value(report["rows"][0].clone())?))
}

fn row(
    operation: Operation,
    arguments: &Arguments,
    ranks: u32,
    bytes: u64,
    figures: &Figures,
) -> Row {
    let measured = &figures.measured;
    let algbw_gbs = bytes as f64 / measured.us / 1e3;
    let peer_us = figures.peer.map(|peer| peer.us);
    Row {
        op: operation.name(),
        ranks,
        mode: arguments.mode.name(),
        dtype: arguments.dtype,
        in_place: arguments.in_place,
        regime: figures.regime,
        bytes,
        us: measured.us,
        algbw_gbs,
        busbw_gbs: algbw_gbs * operation.bus_factor(ranks),
        wrong: measured.wrong,
        iterations: measured.iterations,
        peer: figures.peer.map(|peer| peer.name),
        peer_us,
        bound_us: figures.bound_us,
        ratio: peer_us.map(|peer| measured.us / peer),
        ratio_bound: figures.bound_us.map(|bound| measured.us / bound),
    }
}

fn sizes(arguments: &Arguments) -> Vec<u64> {
    let next = |bytes: &u64| bytes.checked_mul(arguments.factor);
    std::iter::successors(Some(arguments.min_bytes), next)
        .take_while(|&bytes| bytes <= arguments.max_bytes)
        .collect()
}

/// Parses `8`, `16K`, `4M`, `1G`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "expected a number of bytes such as 8, 16K, 4M or 1G".to_owned();
    let text = text.trim();
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1u64),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match number.checked_mul(unit) {
        Some(bytes) if (1..=1 << 36).contains(&bytes) => Ok(bytes),
        _ => Err("expected 1 byte to 64G".to_owned()),
    }
}

fn parse_dtype(text: &str) -> Result<DType, String> {
    let found = data::DTYPES.into_iter().find(|dtype| dtype.name() == text);
    found.ok_or_else(|| {
        let names: Vec<_> = data::DTYPES.iter().map(|dtype| dtype.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("8"), Ok(8));
        assert_eq!(parse_bytes("16K"), Ok(16384));
        assert_eq!(parse_bytes("64m"), Ok(64 << 20));
        for wrong in ["", "K", "-1", "0", "1.5M", "9999999999G", "7q"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn blocks_are_equal() {
        assert_eq!(Operation::AllGather.elements(8, DType::F32, 4), 4);
        assert_eq!(Operation::AllReduce.elements(8, DType::F32, 4), 2);
        assert_eq!(
            Operation::AllToAll.elements(1 << 20, DType::BF16, 3),
            524_289
        );
        assert_eq!(Operation::Broadcast.elements(1, DType::I64, 2), 1);
    }
}
