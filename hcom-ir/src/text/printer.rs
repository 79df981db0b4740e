//! Graphs to text.

use std::fmt::{self, Write as _};

use super::lexer::quote;
use super::literal;
use crate::arena::{NodeId, ValueId};
use crate::graph::Graph;
use crate::op::attr::{Attr, Attrs};
use crate::op::{AttrKind, Op, fallback, info, is_identifier};
use crate::shape::FromFn;
use crate::types::Type;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hcom 1\n")?;
        for (_, group) in self.groups.iter() {
            writeln!(f, "group {group}")?;
        }
        write!(f, "graph @{}", self.name)?;
        if !self.symbols.is_empty() {
            write!(f, "[{}]", self.symbols.join(", "))?;
        }
        f.write_str("(")?;
        for (index, input) in self.inputs.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let mutable = if input.mutable { "mut " } else { "" };
            let ty = self.ty(input.value).display(&self.symbols);
            write!(f, "{separator}%{}: {mutable}{ty}", input.name)?;
        }
        f.write_str(")")?;
        result_types(f, self, self.outputs.iter().map(|&value| self.ty(value)))?;
        for (index, guard) in self.guards.iter().enumerate() {
            let separator = if index == 0 { " where " } else { ", " };
            write!(f, "{separator}{}", guard.display(&self.symbols))?;
        }
        f.write_str(" {\n")?;
        for (id, _) in self.nodes.iter() {
            writeln!(f, "  {}", self.node_text(id, false))?;
        }
        for (index, (name, &value)) in self.output_names.iter().zip(&self.outputs).enumerate() {
            f.write_str(if index == 0 { "  return " } else { ", " })?;
            let own = name_of(self, value);
            if name != own {
                let name = if is_identifier(name) {
                    name.clone()
                } else {
                    quote(name)
                };
                write!(f, "{name} = ")?;
            }
            write!(f, "%{own}")?;
        }
        if !self.outputs.is_empty() {
            f.write_str("\n")?;
        }
        f.write_str("}\n")
    }
}

impl Graph {
    /// One node for a reader, on one line: as in the text form, but without the bytes of literals that
    /// are large.
    ///
    /// # Panics
    /// When the node belongs to another graph.
    pub fn print_node(&self, node: NodeId) -> String {
        self.node_text(node, true)
    }

    fn node_text(&self, node: NodeId, brief: bool) -> String {
        let node = self.node(node);
        let mut out = String::new();
        for (index, &result) in node.results.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let _ = write!(out, "{separator}%{}", name_of(self, result));
        }
        if !node.results.is_empty() {
            out.push_str(" = ");
        }
        out.push_str(&parts(self, node.op, &node.operands, &node.attrs, brief));
        out
    }
}

fn name_of(graph: &Graph, value: ValueId) -> &str {
    graph.values.get(value).map_or("?", |value| &value.name)
}

/// A node without its results, for a reader. It need not be valid.
pub(crate) fn describe_parts(graph: &Graph, op: Op, operands: &[ValueId], attrs: &Attrs) -> String {
    parts(graph, op, operands, attrs, true)
}

fn parts(graph: &Graph, op: Op, operands: &[ValueId], attrs: &Attrs, brief: bool) -> String {
    let show = FromFn(|f: &mut fmt::Formatter<'_>| {
        f.write_str(op.name())?;
        if op == Op::Custom {
            return print_custom(f, graph, operands, attrs, brief);
        }
        let mut separator = " ";
        if let Some(Attr::Type(ty)) = attrs.get("type") {
            write!(f, " {}", ty.display(&graph.symbols))?;
            separator = ", ";
        }
        for &operand in operands {
            write!(f, "{separator}%{}", name_of(graph, operand))?;
            separator = ", ";
        }
        for spec in info(op).attrs {
            let Some(value) = attrs.get(spec.name) else {
                continue;
            };
            if spec.kind == AttrKind::Type || fallback(spec).as_ref() == Some(value) {
                continue;
            }
            write!(
                f,
                "{separator}{} = {}",
                spec.name,
                attr(graph, value, spec.kind, brief)
            )?;
            separator = ", ";
        }
        // Attributes the operation does not have appear in the report about them.
        for (name, value) in attrs
            .iter()
            .filter(|(name, _)| info(op).attr(name).is_none())
        {
            write!(
                f,
                "{separator}{name} = {}",
                attr(graph, value, AttrKind::Text, brief)
            )?;
            separator = ", ";
        }
        Ok(())
    });
    show.to_string()
}

fn print_custom(
    f: &mut fmt::Formatter<'_>,
    graph: &Graph,
    operands: &[ValueId],
    attrs: &Attrs,
    brief: bool,
) -> fmt::Result {
    if let Some(Attr::Text(name)) = attrs.get("name") {
        write!(f, " {}", quote(name))?;
    }
    f.write_str("(")?;
    let mut separator = "";
    for &operand in operands {
        write!(f, "{separator}%{}", name_of(graph, operand))?;
        separator = ", ";
    }
    for (name, value) in attrs.iter() {
        let default = info(Op::Custom).attr(name).and_then(fallback);
        if !matches!(name, "name" | "types") && default.as_ref() != Some(value) {
            write!(
                f,
                "{separator}{name} = {}",
                attr(graph, value, AttrKind::Text, brief)
            )?;
            separator = ", ";
        }
    }
    f.write_str(")")?;
    match attrs.get("types") {
        Some(Attr::Types(types)) => result_types(f, graph, types.iter()),
        _ => Ok(()),
    }
}

fn result_types<'a>(
    f: &mut fmt::Formatter<'_>,
    graph: &Graph,
    types: impl ExactSizeIterator<Item = &'a Type>,
) -> fmt::Result {
    let count = types.len();
    for (index, ty) in types.enumerate() {
        f.write_str(match (index, count) {
            (0, 1) => " -> ",
            (0, _) => " -> (",
            _ => ", ",
        })?;
        write!(f, "{}", ty.display(&graph.symbols))?;
    }
    f.write_str(if count > 1 { ")" } else { "" })
}

fn attr<'a>(
    graph: &'a Graph,
    value: &'a Attr,
    kind: AttrKind,
    brief: bool,
) -> impl fmt::Display + 'a {
    FromFn(move |f: &mut fmt::Formatter<'_>| match value {
        Attr::Bool(value) => write!(f, "{value}"),
        Attr::Int(value) => write!(f, "{value}"),
        Attr::Float(value) if value.is_nan() => f.write_str("nan"),
        Attr::Float(value) => write!(f, "{value:?}"),
        Attr::Text(value) if matches!(kind, AttrKind::Choice(_)) => f.write_str(value),
        Attr::Text(value) => f.write_str(&quote(value)),
        Attr::DType(value) => write!(f, "{value}"),
        Attr::Dim(value) => write!(f, "{}", value.display(&graph.symbols)),
        Attr::Dims(values) => list(f, values.iter().map(|value| value.display(&graph.symbols))),
        Attr::Ints(values) => list(f, values.iter()),
        Attr::Reduce(value) => write!(f, "{value}"),
        Attr::Group(value) => {
            write!(
                f,
                "@{}",
                graph.groups.get(*value).map_or("?", |group| &group.name)
            )
        }
        Attr::Literal(value) => literal::print(value, brief, f),
        Attr::Type(value) => write!(f, "{}", value.display(&graph.symbols)),
        Attr::Types(values) => list(f, values.iter().map(|value| value.display(&graph.symbols))),
    })
}

fn list(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = impl fmt::Display>) -> fmt::Result {
    f.write_str("[")?;
    for (index, item) in items.enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(f, "{separator}{item}")?;
    }
    f.write_str("]")
}
