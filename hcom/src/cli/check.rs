//! `hcom check`: whether the graphs of several ranks fit each other, without running them.

use std::path::PathBuf;
use std::process::ExitCode;

use hcom_ir::Graph;
use hcom_ir::order::{self, Difference};
use serde_json::{Value, json};

use super::{export, print, print_json, run};

/// Check that the graphs of several ranks fit each other: their collectives, sends and receives.
///
/// One file is the program of every rank; several files are those of rank 0, 1, … . Nothing is started.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom check examples/pair.r0.hcom examples/pair.r1.hcom\n  hcom check examples/batch.hcom --dim s0=8 --json\n\nEvery difference is printed, with both sides and their places; exit code 2 if there is one."
)]
pub(super) struct Arguments {
    /// The graph, or one graph per rank.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The size that a symbol of the graphs stands for, such as s0=8 (repeatable).
    #[arg(long = "dim", value_name = "SYMBOL=SIZE", value_parser = run::parse_dim)]
    dims: Vec<(String, u64)>,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let read = export::read(&arguments.files)?;
    let graphs: Vec<Graph> = read
        .iter()
        .enumerate()
        .map(|(rank, graph)| {
            let file = &arguments.files[rank.min(arguments.files.len() - 1)];
            run::bind(graph, &file.display().to_string(), &arguments.dims)
        })
        .collect::<Result<_, _>>()?;
    run::require_symbols(&read, &arguments.dims)?;
    let found = order::differences(&graphs);
    let ranks = graphs.len();
    if arguments.json {
        print_json(&json!({
            "ranks": ranks,
            "differences": found.iter().map(describe).collect::<Vec<Value>>(),
        }))?;
    } else {
        for difference in &found {
            print(&format!("{difference}\n"))?;
        }
        print(&match found.len() {
            0 => format!("the graphs of {ranks} ranks fit each other\n"),
            1 => format!("1 difference between the graphs of {ranks} ranks\n"),
            count => format!("{count} differences between the graphs of {ranks} ranks\n"),
        })?;
    }
    Ok(match found.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(2),
    })
}

fn describe(difference: &Difference) -> Value {
    let mut object = serde_json::to_value(difference).unwrap_or_default();
    object["message"] = difference.to_string().into();
    object
}
