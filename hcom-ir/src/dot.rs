//! Graphs as input for Graphviz.

use std::fmt::Write as _;

use crate::arena::{Id as _, ValueId};
use crate::graph::{Def, Graph};
use crate::op::Class;

/// The graph in the DOT language: one box per node, communication filled, edges labelled with
/// types, and dashed edges for the order of each group's collectives.
pub fn dot(graph: &Graph) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "digraph {} {{", quote(graph.name()));
    out.push_str("  rankdir = TB;\n  node [shape = box, style = \"rounded,filled\", fillcolor = white, fontname = monospace];\n  edge [fontname = monospace, fontsize = 10];\n");
    for (index, input) in graph.inputs().iter().enumerate() {
        let mutable = if input.mutable { "mut " } else { "" };
        let label = format!(
            "%{}\n{mutable}{}",
            input.name,
            graph.ty(input.value).display(graph.symbols())
        );
        let _ = writeln!(
            out,
            "  i{index} [label = {}, shape = ellipse];",
            quote(&label)
        );
    }
    for (id, node) in graph.nodes() {
        let group = node.group().map_or(String::new(), |group| {
            format!("\n@{}", graph.group(group).name)
        });
        let color = match node.op.class() {
            Class::Collective | Class::Barrier => ", fillcolor = lightsalmon",
            Class::PointToPoint => ", fillcolor = khaki",
            Class::Custom => ", fillcolor = lightgrey",
            Class::Source => ", fillcolor = honeydew",
            Class::Compute | Class::View | Class::Write => "",
        };
        let tooltip = quote(&graph.print_node(id));
        let label = quote(&format!("{}{group}", node.op));
        let _ = writeln!(
            out,
            "  n{} [label = {label}, tooltip = {tooltip}{color}];",
            id.index()
        );
        for &operand in &node.operands {
            edge(&mut out, graph, operand, &format!("n{}", id.index()));
        }
    }
    for (group, _) in graph.groups() {
        let sequence: Vec<usize> = graph
            .nodes()
            .filter(|(_, node)| {
                node.group() == Some(group) && node.op.class() != Class::PointToPoint
            })
            .map(|(id, _)| id.index())
            .collect();
        for pair in sequence.windows(2) {
            let _ = writeln!(
                out,
                "  n{} -> n{} [style = dashed, constraint = false];",
                pair[0], pair[1]
            );
        }
    }
    for (index, (&value, name)) in graph.outputs().iter().zip(graph.output_names()).enumerate() {
        let _ = writeln!(
            out,
            "  o{index} [label = {}, shape = ellipse];",
            quote(name)
        );
        edge(&mut out, graph, value, &format!("o{index}"));
    }
    out.push_str("}\n");
    out
}

fn edge(out: &mut String, graph: &Graph, value: ValueId, to: &str) {
    let from = match graph.value(value).def {
        Def::Input(index) => format!("i{index}"),
        Def::Node { node, .. } => format!("n{}", node.index()),
    };
    let label = quote(&graph.ty(value).display(graph.symbols()).to_string());
    let _ = writeln!(out, "  {from} -> {to} [label = {label}];");
}

fn quote(text: &str) -> String {
    format!(
        "\"{}\"",
        text.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    )
}
