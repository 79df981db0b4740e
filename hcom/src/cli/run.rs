//! `hcom run`: runs a graph that is written as text, on ranks that it starts, or as one of them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use hcom_ir::{Bindings, Graph};
use serde_json::{Value, json};

use super::bad_input::BadInput;
use super::{
    Ranks, exit_code, graph, is_rank, launch_error, parse_seconds, print, progress_bar, settings,
};
use crate::launch::{Event, Launch, Outcome, Role};

mod inputs;
mod rank;
mod values;

use inputs::Inputs;

/// Run a graph on several ranks and print its outputs.
///
/// One file is the program of every rank; several files are those of rank 0, 1, … .
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom run examples/mlp.hcom --ranks 2\n  hcom run examples/all_reduce.hcom --inputs examples/all_reduce.json --json\n  hcom run examples/pair.r0.hcom examples/pair.r1.hcom\n  hcom run examples/batch.hcom --dim s0=8 --mode split --steps 100\n\nInputs are JSON, {\"all\": {\"x\": [[1, 2]]}} or per rank {\"0\": {…}, \"1\": {…}}, or a .safetensors file with tensors\n`x` for all ranks and `0/x` for rank 0. A value is nested lists, or {\"dtype\", \"shape\", \"data\": [flat]}; NaN and\ninfinities are \"NaN\", \"Infinity\", \"-Infinity\"; a complex number is [re, im]. Missing inputs are random: by seed, rank\nand name.\n\nUnder torchrun or `hcom launch` the process is the rank that its environment names."
)]
pub(super) struct Arguments {
    /// The graph, or one graph per rank.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    ranks: Ranks,
    /// Values of inputs: a .json or .safetensors file.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// How it is run.
    #[arg(long, value_enum, default_value_t = Mode::Launch)]
    mode: Mode,
    /// How often it is run; inputs that it writes keep what the step before wrote.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Seconds that the ranks wait for each other [default: HCOM_TIMEOUT, else 60].
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = parse_seconds)]
    timeout: Option<Duration>,
    /// The size that a symbol of the graph stands for, such as s0=8 (repeatable).
    #[arg(long = "dim", value_name = "SYMBOL=SIZE", value_parser = parse_dim)]
    dims: Vec<(String, u64)>,
    /// Seed of the random inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Mode {
    /// One operation after the other, without a plan.
    Eager,
    /// As one plan, communication beside computation.
    Launch,
    /// As one plan, captured once and started as one launch at each step.
    Replay,
    /// As one plan, cut at every collective by a wait of the host.
    Split,
}

pub(super) fn parse_dim(text: &str) -> Result<(String, u64), String> {
    let wrong = || "expected SYMBOL=SIZE, such as s0=8".to_owned();
    let (symbol, size) = text.split_once('=').ok_or_else(wrong)?;
    Ok((
        symbol.trim().to_owned(),
        size.trim().parse().map_err(|_| wrong())?,
    ))
}

pub(super) fn run(arguments: Arguments, role: Role) -> anyhow::Result<ExitCode> {
    match is_rank(role) {
        true => Ok(rank::run(&arguments)),
        false => start(&arguments),
    }
}

/// What all ranks will run; every mistake that can be found without running is found here.
struct Job {
    /// One graph for all, or one per rank; all sizes known.
    graphs: Vec<Graph>,
    inputs: Inputs,
    ranks: u32,
}

impl Job {
    /// Reads the files for a job of `ranks`, or of as many ranks as they need.
    fn read(arguments: &Arguments, ranks: Option<u32>) -> anyhow::Result<Job> {
        let read: Vec<Graph> = arguments
            .files
            .iter()
            .map(|file| graph::read(file))
            .collect::<Result<_, _>>()?;
        let files = read.len();
        let needed = read.iter().map(Graph::world_size).max().unwrap_or(1);
        let ranks = ranks.unwrap_or(if files > 1 { files as u32 } else { needed });
        if files > 1 && files != ranks as usize {
            return Err(
                BadInput::new("the number of graphs is not the number of ranks")
                    .expected(format!("1 or {ranks} files for {ranks} ranks"))
                    .got(format!("{files} files"))
                    .into(),
            );
        }
        let mut graphs = Vec::new();
        for (file, graph) in arguments.files.iter().zip(&read) {
            for (_, group) in graph.groups() {
                if let Some(rank) = group.ranks.iter().find(|rank| **rank >= ranks) {
                    return Err(BadInput::new(format!(
                        "group @{} has rank {rank}, the job has {ranks} ranks",
                        group.name
                    ))
                    .at(file.display().to_string())
                    .expected(format!("at least {needed} ranks"))
                    .got(ranks.to_string())
                    .help(format!("run it with --ranks {needed}"))
                    .into());
                }
            }
            graphs.push(bind(graph, &file.display().to_string(), &arguments.dims)?);
        }
        require_symbols(&read, &arguments.dims)?;
        let inputs = match &arguments.inputs {
            Some(path) => Inputs::read(path, ranks)?,
            None => Inputs::none(),
        };
        Ok(Job {
            graphs,
            inputs,
            ranks,
        })
    }

    fn graph(&self, rank: u32) -> &Graph {
        match self.graphs.as_slice() {
            [one] => one,
            graphs => &graphs[rank as usize],
        }
    }
}

/// Fails for a size of a symbol that no graph has.
pub(super) fn require_symbols(graphs: &[Graph], dims: &[(String, u64)]) -> Result<(), BadInput> {
    let unknown = |name: &str| graphs.iter().all(|graph| graph.symbol(name).is_none());
    match dims.iter().find(|(name, _)| unknown(name)) {
        None => Ok(()),
        Some((name, _)) => Err(BadInput::new(format!("no graph has a symbol {name}"))
            .at("--dim")
            .help("symbols are the sizes that are names, as `s0` in f32[s0, 4]")),
    }
}

pub(super) fn bind(graph: &Graph, file: &str, dims: &[(String, u64)]) -> Result<Graph, BadInput> {
    let mut bindings = Bindings::new();
    for (name, size) in dims {
        if let Some(symbol) = graph.symbol(name) {
            bindings.set(symbol, *size);
        }
    }
    let missing: Vec<&str> = graph
        .symbols()
        .iter()
        .map(String::as_str)
        .filter(|name| !dims.iter().any(|(given, _)| given == name))
        .collect();
    if !missing.is_empty() {
        return Err(BadInput::new(format!(
            "sizes of graph @{} are not known: {}",
            graph.name(),
            missing.join(", ")
        ))
        .at(file)
        .expected("a size for every symbol")
        .help(
            missing
                .iter()
                .map(|name| format!("--dim {name}=8"))
                .collect::<Vec<_>>()
                .join(" "),
        ));
    }
    graph
        .bind(&bindings)
        .map_err(|diagnostics| BadInput::graph(file, "", &diagnostics))
}

/// Checks the input, starts the ranks and puts their reports together.
fn start(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let settings = settings(arguments.timeout)?;
    let job = Job::read(arguments, arguments.ranks.ranks)?;
    for rank in 0..job.ranks {
        job.inputs.of_rank(job.graph(rank), rank, arguments.seed)?;
    }
    let bar = progress_bar(arguments.steps, "steps");
    let shown = bar.clone();
    let outcome = Launch::this(job.ranks)
        .timeout(settings.timeout)
        .env("HCOM_TIMEOUT", settings.timeout.as_secs_f64().to_string())
        .collect_with(move |event| match event {
            Event::Progress { rank: 0, done, .. } => shown.set_position(done),
            Event::Line(line) => shown.suspend(|| eprintln!("{line}")),
            _ => {}
        })
        .run()
        .map_err(launch_error)?;
    bar.finish_and_clear();
    let reports = reports(&outcome);
    let failed = outcome.exit_code() != 0;
    match (arguments.json, failed) {
        (true, false) => print(&format!("{{\"ranks\": [{}]}}\n", reports.join(", ")))?,
        (true, true) => print(&format!(
            "{{\"error\": {}, \"ranks\": [{}]}}\n",
            first_error(&outcome, &reports),
            reports.join(", ")
        ))?,
        (false, false) => print(&summary(arguments, &reports))?,
        (false, true) => eprint!("{}", errors(&reports)),
    }
    Ok(exit_code(&outcome))
}

/// One JSON object per rank; what a rank could not say itself, its end says.
fn reports(outcome: &Outcome) -> Vec<String> {
    (0u32..)
        .zip(&outcome.reports)
        .map(|(rank, report)| {
            report.clone().unwrap_or_else(|| {
                let message = match outcome.failure {
                    Some(failure) if failure.rank == rank => format!("rank {rank} {}", failure.end),
                    _ => format!("rank {rank} ended without a report"),
                };
                let error = json!({
                    "kind": "ended", "op": null, "group": null, "seq": null, "rank": rank, "ranks": [rank], "node": null,
                    "expected": "a report", "got": null, "help": null, "message": message,
                });
                json!({"rank": rank, "error": error}).to_string()
            })
        })
        .collect()
}

/// The error of the rank that failed first.
fn first_error(outcome: &Outcome, reports: &[String]) -> Value {
    let first = outcome.failure.map_or(0, |failure| failure.rank as usize);
    let error = |report: &String| {
        serde_json::from_str::<Value>(report)
            .ok()?
            .get("error")
            .cloned()
    };
    reports
        .get(first)
        .and_then(error)
        .or_else(|| reports.iter().find_map(error))
        .unwrap_or_default()
}

/// Every distinct error once, with the ranks that report it.
fn errors(reports: &[String]) -> String {
    let mut messages: Vec<(String, Vec<usize>)> = Vec::new();
    for (rank, report) in reports.iter().enumerate() {
        let report: Value = serde_json::from_str(report).unwrap_or_default();
        let Some(error) = report.get("error") else {
            continue;
        };
        let mut message = error["message"].as_str().unwrap_or_default().to_owned();
        if let Some(help) = error["help"].as_str() {
            message += &format!("\n  = help: {help}");
        }
        match messages.iter_mut().find(|(other, _)| *other == message) {
            Some((_, ranks)) => ranks.push(rank),
            None => messages.push((message, vec![rank])),
        }
    }
    messages
        .iter()
        .map(|(message, ranks)| {
            let list: Vec<String> = ranks.iter().map(usize::to_string).collect();
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            format!("error on {noun} {}: {message}\n", list.join(", "))
        })
        .collect()
}

/// The outputs for a person: types and first values.
fn summary(arguments: &Arguments, reports: &[String]) -> String {
    let mut text = String::new();
    let mut slowest: f64 = 0.0;
    for (rank, report) in reports.iter().enumerate() {
        let report: Value = serde_json::from_str(report).unwrap_or_default();
        slowest = slowest.max(report["step_us"].as_f64().unwrap_or_default());
        text += &format!("rank {rank}\n");
        for (section, title) in [("outputs", ""), ("inputs_after", " (after)")] {
            for (name, value) in report[section].as_object().into_iter().flatten() {
                text += &format!("  {name}{title} = {}\n", short(value));
            }
        }
    }
    let steps = match arguments.steps {
        1 => "1 step".to_owned(),
        steps => format!("{steps} steps"),
    };
    text += &format!(
        "{} ranks, {steps}, {slowest:.0} µs per step\n",
        reports.len()
    );
    text
}

/// A value, cut where a line gets too long to read.
fn short(value: &Value) -> String {
    const LONGEST: usize = 160;
    let text = value.to_string().replace(',', ", ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}
