//! References lead to earlier definitions, every value has one definition, and names are unique.

use rustc_hash::FxHashSet;

use super::about;
use crate::arena::Id as _;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Def, Graph};
use crate::op::is_identifier;
use crate::text::is_reserved;

pub(super) fn validate(graph: &Graph, found: &mut Vec<Diagnostic>) {
    names(graph, found);
    let mut defined = vec![false; graph.values.len()];
    for (index, input) in graph.inputs.iter().enumerate() {
        let def = graph
            .values
            .get(input.value)
            .map(|value| (value.def, &value.name));
        if def != Some((Def::Input(index as u32), &input.name)) {
            let message = format!(
                "input {index} `%{}` is not the definition of its value",
                input.name
            );
            found.push(Diagnostic::new(Code::Reference, message));
            continue;
        }
        defined[input.value.index()] = true;
    }
    for (id, node) in graph.nodes.iter() {
        for (position, operand) in node.operands.iter().enumerate() {
            if !defined.get(operand.index()).copied().unwrap_or(false) {
                let diagnostic = Diagnostic::new(
                    Code::Reference,
                    format!("operand {position} is not defined before its use"),
                );
                found.push(about(graph, id, diagnostic));
            }
        }
        for (position, result) in node.results.iter().enumerate() {
            let def = Def::Node {
                node: id,
                index: position as u32,
            };
            match graph.values.get(*result) {
                Some(value) if value.def == def && !defined[result.index()] => {
                    defined[result.index()] = true;
                }
                _ => {
                    let diagnostic = Diagnostic::new(
                        Code::Reference,
                        format!("result {position} is not defined by this node alone"),
                    );
                    found.push(about(graph, id, diagnostic));
                }
            }
        }
    }
    for (value, name) in graph.outputs.iter().zip(&graph.output_names) {
        if !defined.get(value.index()).copied().unwrap_or(false) {
            found.push(Diagnostic::new(
                Code::Reference,
                format!("output `{name}` is not defined"),
            ));
        }
    }
    if graph.outputs.len() != graph.output_names.len() {
        found.push(
            Diagnostic::new(Code::Arity, "outputs and their names differ in number")
                .expected(format!("{} names", graph.outputs.len()))
                .got(graph.output_names.len()),
        );
    }
}

fn names(graph: &Graph, found: &mut Vec<Diagnostic>) {
    let mut unique = |what: &str, names: &mut dyn Iterator<Item = &String>| {
        let mut seen = FxHashSet::default();
        for name in names.filter(|name| !seen.insert(name.as_str())) {
            found.push(Diagnostic::new(
                Code::Duplicate,
                format!("{what} `{name}` appears twice"),
            ));
        }
    };
    unique(
        "value",
        &mut graph.values.iter().map(|(_, value)| &value.name),
    );
    unique(
        "group",
        &mut graph.groups.iter().map(|(_, group)| &group.name),
    );
    unique("symbol", &mut graph.symbols.iter());
    unique("output", &mut graph.output_names.iter());
    for symbol in graph
        .symbols
        .iter()
        .filter(|name| !is_identifier(name) || is_reserved(name))
    {
        found.push(
            Diagnostic::new(
                Code::Syntax,
                format!("`{symbol}` cannot be the name of a symbol"),
            )
            .expected(
                "a letter or `_`, then letters, digits and `_`, and no word of the text form",
            ),
        );
    }
}
