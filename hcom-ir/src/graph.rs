//! The graph: values, nodes in program order, inputs and outputs.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::arena::{Arena, GroupId, NodeId, SymbolId, ValueId};
use crate::builder::Builder;
use crate::diag::{Code, Diagnostic, Diagnostics, Location};
use crate::group::Group;
use crate::op::attr::{Attr, Attrs};
use crate::op::work::{self, Work};
use crate::op::{Class, Op};
use crate::shape::{Bindings, Dim, DimError, Guard};
use crate::types::Type;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Def {
    /// The input with this index.
    Input(u32),
    /// Result `index` of a node.
    Node {
        /// The node.
        node: NodeId,
        /// Position among its results.
        index: u32,
    },
}

/// A value: assigned once, never changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Element type and shape.
    pub ty: Type,
    /// The name in text, without `%`; unique in the graph.
    pub name: String,
    /// Where it comes from.
    pub def: Def,
}

/// An input of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its value at the start.
    pub value: ValueId,
    /// The name, that of the value.
    pub name: String,
    /// Whether `copy_to_input` may write it.
    pub mutable: bool,
}

/// One operation applied to values.
///
/// Equality ignores the location.
#[derive(Clone, Debug)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Its operands, all defined earlier.
    pub operands: SmallVec<[ValueId; 3]>,
    /// Its attributes, complete: defaults are filled in.
    pub attrs: Attrs,
    /// The values it defines.
    pub results: SmallVec<[ValueId; 1]>,
    /// Where the program calls it.
    pub location: Option<Location>,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.op == other.op
            && self.operands == other.operands
            && self.attrs == other.attrs
            && self.results == other.results
    }
}

impl Eq for Node {}

impl Node {
    /// The group the node communicates in, if any.
    pub fn group(&self) -> Option<GroupId> {
        match self.attrs.get("group") {
            Some(Attr::Group(group)) => Some(*group),
            _ => None,
        }
    }

    /// Whether the node has an effect beyond its results, so that it stays although nothing uses
    /// them: communication, writes of inputs, and custom work not declared pure.
    pub fn has_effect(&self) -> bool {
        match self.op.class() {
            Class::Collective | Class::PointToPoint | Class::Barrier | Class::Write => true,
            Class::Custom => !matches!(self.attrs.get("pure"), Some(Attr::Bool(true))),
            Class::Source | Class::Compute | Class::View => false,
        }
    }
}

/// A program over values, made by a [`Builder`] or [`parse`](crate::parse), and valid.
///
/// Two graphs are equal when they print the same text; locations are not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    pub(crate) name: String,
    pub(crate) symbols: Vec<String>,
    pub(crate) guards: Vec<Guard>,
    pub(crate) groups: Arena<GroupId, Group>,
    pub(crate) values: Arena<ValueId, Value>,
    pub(crate) nodes: Arena<NodeId, Node>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<ValueId>,
    pub(crate) output_names: Vec<String>,
}

impl Graph {
    /// The name in text, without `@`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names of the symbols; a [`SymbolId`] is an index into them.
    pub fn symbols(&self) -> &[String] {
        &self.symbols
    }

    /// The symbol of this name.
    pub fn symbol(&self, name: &str) -> Option<SymbolId> {
        let index = self.symbols.iter().position(|symbol| symbol == name)?;
        Some(SymbolId(u32::try_from(index).ok()?))
    }

    /// Conditions on the symbols, in the order in which they arose.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The declared groups with their ids.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = (GroupId, &Group)> + ExactSizeIterator {
        self.groups.iter()
    }

    /// One group.
    ///
    /// # Panics
    /// When the id belongs to another graph; so do [`Graph::node`] and [`Graph::value`].
    pub fn group(&self, id: GroupId) -> &Group {
        &self.groups[id]
    }

    /// The inputs, in the order of the parameters.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The values returned.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// The names of the outputs, one per entry of [`Graph::outputs`].
    pub fn output_names(&self) -> &[String] {
        &self.output_names
    }

    /// All nodes with their ids, in program order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> + ExactSizeIterator {
        self.nodes.iter()
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// All values with their ids, in the order of their definition.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = (ValueId, &Value)> + ExactSizeIterator {
        self.values.iter()
    }

    /// One value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id]
    }

    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> &Type {
        &self.values[id].ty
    }

    /// For each value, by index, the nodes that have it as an operand, in program order.
    pub fn users(&self) -> Vec<SmallVec<[NodeId; 2]>> {
        let mut users = vec![SmallVec::new(); self.values.len()];
        for (id, node) in self.nodes.iter() {
            for operand in &node.operands {
                let list: &mut SmallVec<[NodeId; 2]> = &mut users[operand.0 as usize];
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
        }
        users
    }

    /// The smallest world the graph can run in: one more than the largest rank of its groups, at
    /// least 1.
    pub fn world_size(&self) -> u32 {
        let largest = self.groups.iter().flat_map(|(_, group)| &group.ranks).max();
        largest.map_or(1, |rank| rank.saturating_add(1))
    }

    /// Whether no size is a symbol.
    pub fn is_fixed(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Arithmetic and traffic of one execution of `node`; `None` when a size is a symbol.
    pub fn work(&self, node: NodeId) -> Option<Work> {
        work::of(self, node)
    }

    /// Checks every rule of the graph and reports everything found.
    pub fn validate(&self) -> Result<(), Diagnostics> {
        crate::valid::validate(self)
    }

    /// The same graph with every size fixed. Fails when a symbol has no value, a guard does not
    /// hold, a size is negative or too large.
    pub fn bind(&self, bindings: &Bindings) -> Result<Graph, Diagnostics> {
        let mut found = Diagnostics::default();
        for (index, name) in self.symbols.iter().enumerate() {
            if bindings.get(SymbolId(index as u32)).is_none() {
                found.0.push(
                    Diagnostic::new(Code::Binding, format!("symbol `{name}` has no value"))
                        .expected(format!("a value for each of {}", self.symbols.join(", "))),
                );
            }
        }
        if !found.0.is_empty() {
            return Err(found);
        }
        for guard in &self.guards {
            if guard.holds(bindings) != Ok(true) {
                found.0.push(self.broken_guard(guard, bindings));
            }
        }
        if !found.0.is_empty() {
            return Err(found);
        }
        self.rebuild(bindings)
    }

    /// Numbers the values anew: inputs first, then results in program order, as in a graph read from
    /// text. Ids that lead nowhere stay as they are, for the validator to report.
    pub(crate) fn order_values(&mut self) {
        let inputs_first = self
            .inputs
            .iter()
            .zip(0u32..)
            .all(|(input, index)| input.value.0 == index);
        if inputs_first {
            return;
        }
        let mut order: Vec<(ValueId, Value)> = Vec::with_capacity(self.values.len());
        let is_input = |value: &Value| matches!(value.def, Def::Input(_));
        for wanted in [true, false] {
            let values = self
                .values
                .iter()
                .filter(|(_, value)| is_input(value) == wanted);
            order.extend(values.map(|(id, value)| (id, value.clone())));
        }
        let mut renamed: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let mut values = Arena::new();
        for (old, value) in order {
            renamed.insert(old, values.push(value));
        }
        let rename = |value: &mut ValueId| *value = renamed.get(value).copied().unwrap_or(*value);
        self.values = values;
        self.inputs
            .iter_mut()
            .for_each(|input| rename(&mut input.value));
        self.outputs.iter_mut().for_each(rename);
        for node in self.nodes.iter_mut() {
            node.operands.iter_mut().for_each(rename);
            node.results.iter_mut().for_each(rename);
        }
    }

    fn broken_guard(&self, guard: &Guard, bindings: &Bindings) -> Diagnostic {
        let values: Vec<String> = (0u32..)
            .zip(&self.symbols)
            .filter_map(|(index, name)| {
                Some(format!("{name} = {}", bindings.get(SymbolId(index))?))
            })
            .collect();
        Diagnostic::new(Code::Binding, "a guard does not hold for these sizes")
            .expected(guard.display(&self.symbols))
            .got(values.join(", "))
    }

    fn rebuild(&self, bindings: &Bindings) -> Result<Graph, Diagnostics> {
        let mut builder = Builder::new(self.name.clone());
        for (_, group) in self.groups.iter() {
            builder.group(group.clone());
        }
        let unfit = |what: &str, error: DimError| {
            Diagnostic::new(
                Code::Binding,
                format!("a size of {what} has no value: {error}"),
            )
        };
        for input in &self.inputs {
            let ty = bind_type(self.ty(input.value), bindings)
                .map_err(|error| unfit(&format!("input `%{}`", input.name), error))?;
            builder.input(&input.name, ty, input.mutable);
        }
        for (id, node) in self.nodes.iter() {
            let mut attrs = node.attrs.clone();
            for attr in attrs.values_mut() {
                bind_attr(attr, bindings).map_err(|error| {
                    unfit("an attribute", error)
                        .at(node.location.clone())
                        .node(self.print_node(id))
                })?;
            }
            builder.set_location(node.location.clone());
            let names: Vec<&str> = node
                .results
                .iter()
                .map(|&value| &*self.value(value).name)
                .collect();
            // Values keep their ids: inputs come first and results follow in program order.
            builder.push_named(node.op, &node.operands, attrs, &names)?;
        }
        let outputs = self
            .output_names
            .iter()
            .cloned()
            .zip(self.outputs.iter().copied());
        builder.finish(outputs.collect())
    }
}

fn bind_type(ty: &Type, bindings: &Bindings) -> Result<Type, DimError> {
    Ok(Type::new(ty.dtype, ty.shape.bind(bindings)?))
}

fn bind_attr(attr: &mut Attr, bindings: &Bindings) -> Result<(), DimError> {
    let bind = |dim: &mut Dim| -> Result<(), DimError> {
        *dim = Dim::fixed(dim.bind(bindings)?);
        Ok(())
    };
    match attr {
        Attr::Dim(dim) => bind(dim),
        Attr::Dims(dims) => dims.iter_mut().try_for_each(bind),
        Attr::Type(ty) => {
            **ty = bind_type(ty, bindings)?;
            Ok(())
        }
        Attr::Types(types) => types.iter_mut().try_for_each(|ty| {
            *ty = bind_type(ty, bindings)?;
            Ok(())
        }),
        _ => Ok(()),
    }
}
