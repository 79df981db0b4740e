//! Writes of inputs: the name of an input means its value at the start, so nothing may read it once
//! it is written, and one write is the last.

use rustc_hash::FxHashSet;

use super::about;
use crate::arena::ValueId;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Def, Graph};
use crate::op::Op;

pub(super) fn validate(graph: &Graph, found: &mut Vec<Diagnostic>) {
    let mut written = Written::default();
    for (id, node) in graph.nodes.iter() {
        match written.check(graph, node.op, &node.operands) {
            Ok(()) => written.record(node.op, &node.operands),
            Err(diagnostic) => found.push(about(graph, id, diagnostic)),
        }
    }
    for (name, value) in graph.output_names.iter().zip(&graph.outputs) {
        if written.0.contains(value) {
            let message = format!("output `{name}` is an input that was written");
            found.push(
                Diagnostic::new(Code::Order, message).help("return the value that was written"),
            );
        }
    }
}

/// The inputs written so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(FxHashSet<ValueId>);

impl Written {
    /// Remembers the input that a node writes.
    pub(crate) fn record(&mut self, op: Op, operands: &[ValueId]) {
        self.0.extend(target(op, operands));
    }

    /// Fails when a node of this operation and operands may not come next.
    pub(crate) fn check(
        &self,
        graph: &Graph,
        op: Op,
        operands: &[ValueId],
    ) -> Result<(), Diagnostic> {
        let target = target(op, operands);
        let read = if target.is_some() {
            &operands[..1]
        } else {
            operands
        };
        let name = |value: ValueId| &graph.value(value).name;
        if let Some(value) = read.iter().find(|value| self.0.contains(value)) {
            let message = format!("input `%{}` is read after it was written", name(*value));
            return Err(Diagnostic::new(Code::Order, message)
                .help("read the value that was written, or write the input at the end"));
        }
        let Some(target) = target else { return Ok(()) };
        let Def::Input(index) = graph.value(target).def else {
            return Err(
                Diagnostic::new(Code::Order, format!("`%{}` is no input", name(target)))
                    .expected("an input of the graph"),
            );
        };
        if !graph
            .inputs
            .get(index as usize)
            .is_some_and(|input| input.mutable)
        {
            let message = format!("input `%{}` is not mutable", name(target));
            let ty = graph.ty(target).display(&graph.symbols);
            return Err(Diagnostic::new(Code::Order, message)
                .expected(format!("%{}: mut {ty}", name(target)))
                .got(format!("%{}: {ty}", name(target))));
        }
        if self.0.contains(&target) {
            let message = format!("input `%{}` is written twice", name(target));
            return Err(Diagnostic::new(Code::Order, message).help("keep the last write"));
        }
        Ok(())
    }
}

fn target(op: Op, operands: &[ValueId]) -> Option<ValueId> {
    match (op, operands) {
        (Op::CopyToInput, [_, target]) => Some(*target),
        _ => None,
    }
}
