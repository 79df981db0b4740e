//! `hcom graph`: checks a graph and shows it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use hcom_ir::{Class, Graph};
use serde_json::{Value, json};

use super::bad_input::BadInput;
use super::{drawing, print, print_json};

/// Check a graph and print it: as canonical text, for Graphviz, as a drawing or as JSON.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom graph examples/mlp.hcom                    canonical text\n  hcom graph examples/mlp.hcom --svg > mlp.svg    a drawing\n  hcom graph examples/mlp.hcom --dot | dot -Tpdf  Graphviz\n  hcom graph examples/mlp.hcom --json             types, groups and collectives\n\nA graph with mistakes is refused: all of them are printed, with the lines they stand on; exit code 2."
)]
pub(super) struct Arguments {
    /// The graph's text.
    file: PathBuf,
    /// Print it in Graphviz's language.
    #[arg(long, conflicts_with_all = ["svg", "json"])]
    dot: bool,
    /// Print a drawing.
    #[arg(long, conflicts_with = "json")]
    svg: bool,
    /// Print its inputs, outputs, groups and nodes as one JSON object.
    #[arg(long)]
    pub(super) json: bool,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let graph = read(&arguments.file)?;
    let text = match arguments {
        Arguments { dot: true, .. } => hcom_ir::dot(&graph),
        Arguments { svg: true, .. } => drawing::svg(&graph),
        Arguments { json: true, .. } => format!("{}\n", describe(&graph)),
        _ => graph.to_string(),
    };
    match &arguments.output {
        Some(path) => {
            std::fs::write(path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
            if arguments.json {
                print_json(&json!({ "written": path.display().to_string() }))?;
            }
        }
        None => print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads, parses and validates the graph in a file.
pub(super) fn read(path: &std::path::Path) -> anyhow::Result<Graph> {
    let file = path.display().to_string();
    let source = std::fs::read_to_string(path).map_err(|error| {
        BadInput::new(format!("cannot read {file}: {error}"))
            .expected("a text file that holds a graph")
            .help("examples/ has graphs to start from")
    })?;
    let graph = hcom_ir::parse(&source, &file)
        .and_then(|graph| graph.validate().map(|()| graph))
        .map_err(|diagnostics| BadInput::graph(&file, &source, &diagnostics))?;
    Ok(graph)
}

fn describe(graph: &Graph) -> Value {
    let ty = |value| graph.ty(value).display(graph.symbols()).to_string();
    let inputs: Vec<Value> = graph
        .inputs()
        .iter()
        .map(|input| json!({"name": input.name, "type": ty(input.value), "mutable": input.mutable}))
        .collect();
    let outputs: Vec<Value> = graph
        .output_names()
        .iter()
        .zip(graph.outputs())
        .map(|(name, value)| json!({"name": name, "type": ty(*value)}))
        .collect();
    let groups: Vec<Value> = graph
        .groups()
        .map(|(_, group)| json!({"name": group.name, "ranks": group.ranks}))
        .collect();
    let nodes: Vec<Value> = graph
        .nodes()
        .map(|(id, node)| {
            json!({
                "op": node.op.name(),
                "operands": node.operands.iter().map(|value| graph.value(*value).name.clone()).collect::<Vec<_>>(),
                "results": node.results.iter().map(|value| json!({"name": graph.value(*value).name, "type": ty(*value)})).collect::<Vec<_>>(),
                "group": node.group().map(|group| graph.group(group).name.clone()),
                "text": graph.print_node(id),
            })
        })
        .collect();
    let collectives = graph
        .nodes()
        .filter(|(_, node)| matches!(node.op.class(), Class::Collective | Class::Barrier))
        .count();
    json!({
        "name": graph.name(),
        "world_size": graph.world_size(),
        "symbols": graph.symbols(),
        "guards": graph.guards().iter().map(|guard| guard.display(graph.symbols()).to_string()).collect::<Vec<_>>(),
        "groups": groups,
        "inputs": inputs,
        "outputs": outputs,
        "collectives": collectives,
        "nodes": nodes,
    })
}
