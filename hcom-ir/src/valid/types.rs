//! Recorded types are those the operations yield.

use smallvec::SmallVec;

use super::about;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, Node};
use crate::op::infer::infer;
use crate::op::{Op, complete, info};
use crate::shape::Dim;
use crate::text::MAX_RANK;
use crate::types::Type;

pub(super) fn validate(graph: &Graph, found: &mut Vec<Diagnostic>) {
    for input in &graph.inputs {
        if let Err(diagnostic) = representable(graph, graph.ty(input.value)) {
            let message = format!("input `%{}`: {}", input.name, diagnostic.message);
            found.push(Diagnostic {
                message: message.into(),
                ..diagnostic
            });
        }
    }
    for (id, node) in graph.nodes.iter() {
        if let Err(diagnostic) = check(graph, node) {
            found.push(about(graph, id, diagnostic));
        }
    }
}

fn check(graph: &Graph, node: &Node) -> Result<(), Diagnostic> {
    let attrs = complete(node.op, &node.attrs)?;
    if attrs != node.attrs {
        return Err(
            Diagnostic::new(Code::Attribute, "the attributes are not complete")
                .expected(format!("values for {}", names(node.op))),
        );
    }
    let operands: SmallVec<[&Type; 3]> =
        node.operands.iter().map(|&value| graph.ty(value)).collect();
    let inferred = infer(
        node.op,
        &operands,
        &attrs,
        graph.groups.as_slice(),
        &graph.symbols,
    )?;
    if !inferred
        .types
        .iter()
        .eq(node.results.iter().map(|&value| graph.ty(value)))
    {
        let show = |types: &mut dyn Iterator<Item = &Type>| {
            let types: Vec<String> = types
                .map(|ty| ty.display(&graph.symbols).to_string())
                .collect();
            if types.is_empty() {
                "no result".to_owned()
            } else {
                types.join(", ")
            }
        };
        return Err(Diagnostic::new(
            Code::Type,
            format!("`{}`: the results have other types", node.op),
        )
        .expected(show(&mut inferred.types.iter()))
        .got(show(&mut node.results.iter().map(|&value| graph.ty(value)))));
    }
    for guard in &inferred.guards {
        if !graph.guards.contains(guard) {
            return Err(Diagnostic::new(
                Code::Binding,
                "a guard that the types rest on is missing",
            )
            .expected(guard.display(&graph.symbols)));
        }
    }
    inferred
        .types
        .iter()
        .try_for_each(|ty| representable(graph, ty))
}

fn names(op: Op) -> String {
    let names: Vec<&str> = info(op).attrs.iter().map(|spec| spec.name).collect();
    names.join(", ")
}

/// Fails when a type cannot be written in text or counted in 64 bits.
fn representable(graph: &Graph, ty: &Type) -> Result<(), Diagnostic> {
    if ty.shape.rank() > MAX_RANK {
        return Err(
            Diagnostic::new(Code::TooLarge, "a type has too many dimensions")
                .expected(format!("at most {MAX_RANK}"))
                .got(ty.shape.rank()),
        );
    }
    if ty.shape.as_fixed().is_some() && ty.bytes().is_none() {
        return Err(Diagnostic::new(Code::TooLarge, "a type is too large")
            .expected("less than 2^64 bytes")
            .got(ty.display(&graph.symbols)));
    }
    let symbols = graph.symbols.len() as u32;
    let unknown = |dim: &Dim| dim.terms().iter().any(|term| term.0.0 >= symbols);
    if ty.shape.dims().iter().any(unknown) {
        return Err(Diagnostic::new(
            Code::Unknown,
            "a type has a symbol the graph does not declare",
        )
        .got(ty.display(&graph.symbols)));
    }
    Ok(())
}
