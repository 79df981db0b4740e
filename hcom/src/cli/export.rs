//! `hcom export`: graphs as files that Huawei's offline compiler reads.

use std::path::PathBuf;
use std::process::ExitCode;

use hcom_ir::Graph;
use serde_json::json;

use super::bad_input::BadInput;
use super::{graph, print, print_json};

/// Write graphs in the form that Huawei's offline compiler `atc` reads: one model per rank.
///
/// One file is the program of every rank; several files are those of rank 0, 1, … . Inputs stay inputs.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom export examples/mlp.hcom out\n  hcom export examples/pair.r0.hcom examples/pair.r1.hcom out --name pair\n\nWrites NAME<rank>.air, rank_<rank>/dynamo.pbtxt and rank_<rank>/graph.hcom, and for several ranks the files that say\nwhich model runs where and which ranks form which group. atc itself was never run on them. An operation without a form\nthere is an error that names it; exit code 2."
)]
pub(super) struct Arguments {
    /// The graphs, and the folder to write to.
    #[arg(required = true, num_args = 2.., value_names = ["FILE", "DIR"])]
    paths: Vec<PathBuf>,
    /// What the models are called.
    #[arg(long, default_value = "export")]
    name: String,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (dir, files) = arguments
        .paths
        .split_last()
        .expect("the parser asks for two");
    let graphs = read(files)?;
    let written = hcom_patch::export_graphs(dir, &arguments.name, &graphs)?;
    let written: Vec<String> = written
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    if arguments.json {
        print_json(&json!({ "ranks": graphs.len(), "written": written }))?;
    } else {
        print(&format!("{}\n", written.join("\n")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The graphs of all ranks: one file for all, or one for each.
pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Graph>> {
    let graphs: Vec<Graph> = files
        .iter()
        .map(|file| graph::read(file))
        .collect::<Result<_, _>>()?;
    let needed = graphs.iter().map(Graph::world_size).max().unwrap_or(1) as usize;
    match &graphs[..] {
        [only] => Ok(vec![only.clone(); needed]),
        _ if graphs.len() < needed => Err(BadInput::new("there are fewer graphs than ranks")
            .expected(format!(
                "1 or at least {needed} files: a group has rank {}",
                needed - 1
            ))
            .got(format!("{} files", graphs.len()))
            .into()),
        _ => Ok(graphs),
    }
}
