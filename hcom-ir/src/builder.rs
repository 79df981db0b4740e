//! Building graphs node by node, checked at each step.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::arena::{Arena, GroupId, NodeId, SymbolId, ValueId};
use crate::diag::{Code, Diagnostic, Diagnostics, Location};
use crate::graph::{Def, Graph, Input, Node, Value};
use crate::group::Group;
use crate::op::attr::Attrs;
use crate::op::infer::{Inferred, infer};
use crate::op::{Op, complete, is_identifier};
use crate::shape::{Dim, Guard};
use crate::types::Type;
use crate::valid::order::Written;

/// The results of one node.
pub type Results = SmallVec<[ValueId; 1]>;

/// Builds a [`Graph`] in program order.
///
/// Every [`push`](Builder::push) checks the operation at once; [`finish`](Builder::finish) checks the
/// whole. Ids of values are those of the builder: a graph in which an input was added after a node
/// gets new ones when it is finished, so take ids from the graph then.
#[derive(Clone, Debug)]
pub struct Builder {
    graph: Graph,
    names: FxHashMap<String, ValueId>,
    written: Written,
    location: Option<Location>,
}

impl Builder {
    /// An empty graph of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            graph: Graph {
                name: clean(&name.into()),
                symbols: Vec::new(),
                guards: Vec::new(),
                groups: Arena::new(),
                values: Arena::new(),
                nodes: Arena::new(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                output_names: Vec::new(),
            },
            names: FxHashMap::default(),
            written: Written::default(),
            location: None,
        }
    }

    /// Renames the graph.
    pub fn set_name(&mut self, name: &str) {
        self.graph.name = clean(name);
    }

    /// Declares a group; one with the same ranks is reused, whatever its name. A name that is
    /// taken by other ranks gets a suffix.
    pub fn group(&mut self, group: Group) -> GroupId {
        if let Some((id, _)) = self
            .graph
            .groups
            .iter()
            .find(|(_, known)| known.ranks == group.ranks)
        {
            return id;
        }
        let taken = |name: &str| {
            self.graph
                .groups
                .iter()
                .any(|(_, known)| known.name == name)
        };
        let name = free_name(&group.name, taken);
        self.graph.groups.push(Group { name, ..group })
    }

    /// Declares a symbol; one of the same name is reused. A name that text cannot hold in the place
    /// of a number is changed by underscores.
    pub fn symbol(&mut self, name: &str) -> SymbolId {
        let mut name = clean(name).replace('.', "_");
        if !is_identifier(&name) {
            name.insert(0, '_');
        }
        if crate::text::is_reserved(&name) {
            name.push('_');
        }
        if let Some(id) = self.graph.symbol(&name) {
            return id;
        }
        self.graph.symbols.push(name);
        SymbolId((self.graph.symbols.len() - 1) as u32)
    }

    /// Adds a condition on the symbols unless it is there already.
    pub fn guard(&mut self, guard: Guard) {
        if !self.graph.guards.contains(&guard) {
            self.graph.guards.push(guard);
        }
    }

    /// Adds an input; a name that is taken gets a suffix. `mutable` allows `copy_to_input`.
    pub fn input(&mut self, name: &str, ty: Type, mutable: bool) -> ValueId {
        let index = self.graph.inputs.len() as u32;
        let value = self.define(Some(name), ty, Def::Input(index));
        let name = self.graph.value(value).name.clone();
        self.graph.inputs.push(Input {
            value,
            name,
            mutable,
        });
        value
    }

    /// Allows or forbids that `copy_to_input` writes an input; nothing happens for other values.
    pub fn set_mutable(&mut self, input: ValueId, mutable: bool) {
        if let Some(slot) = self
            .graph
            .inputs
            .iter_mut()
            .find(|slot| slot.value == input)
        {
            slot.mutable = mutable;
        }
    }

    /// Adds a node and returns its results. Attributes with a default may be left out.
    pub fn push(
        &mut self,
        op: Op,
        operands: &[ValueId],
        attrs: Attrs,
    ) -> Result<Results, Diagnostic> {
        self.push_named(op, operands, attrs, &[])
    }

    /// Adds a node with one result and returns it. An operation without or with several results is
    /// an error, and is not added.
    pub fn one(
        &mut self,
        op: Op,
        operands: &[ValueId],
        attrs: Attrs,
    ) -> Result<ValueId, Diagnostic> {
        let results = self.push(op, operands, attrs)?;
        match results[..] {
            [result] => Ok(result),
            _ => Err(
                Diagnostic::new(Code::Arity, format!("`{op}` does not have one result"))
                    .expected("1 result")
                    .got(format!("{} results", results.len())),
            ),
        }
    }

    /// Adds a node whose results have these names, as far as the list goes; a name that is taken
    /// gets a suffix.
    pub fn push_named(
        &mut self,
        op: Op,
        operands: &[ValueId],
        attrs: Attrs,
        names: &[&str],
    ) -> Result<Results, Diagnostic> {
        let checked = self.check(op, operands, &attrs);
        let (attrs, inferred) = checked.map_err(|diagnostic| {
            let node = crate::text::describe_parts(&self.graph, op, operands, &attrs);
            diagnostic.at(self.location.clone()).node(node)
        })?;
        let id = NodeId(self.graph.nodes.len() as u32);
        let results: Results = (0u32..)
            .zip(inferred.types)
            .map(|(index, ty)| {
                let name = names.get(index as usize).copied();
                self.define(name, ty, Def::Node { node: id, index })
            })
            .collect();
        for guard in inferred.guards {
            self.guard(guard);
        }
        self.written.record(op, operands);
        self.graph.nodes.push(Node {
            op,
            operands: operands.into(),
            attrs,
            results: results.clone(),
            location: self.location.clone(),
        });
        Ok(results)
    }

    fn check(
        &self,
        op: Op,
        operands: &[ValueId],
        attrs: &Attrs,
    ) -> Result<(Attrs, Inferred), Diagnostic> {
        let attrs = complete(op, attrs)?;
        let mut types: SmallVec<[&Type; 3]> = SmallVec::new();
        for operand in operands {
            let value = self.graph.values.get(*operand).ok_or_else(|| {
                Diagnostic::new(Code::Reference, "an operand is no value of this graph")
                    .expected(format!("one of {} values", self.graph.values.len()))
                    .got(format!("value {}", operand.0))
            })?;
            types.push(&value.ty);
        }
        self.written.check(&self.graph, op, operands)?;
        let inferred = infer(
            op,
            &types,
            &attrs,
            self.graph.groups.as_slice(),
            &self.graph.symbols,
        )?;
        Ok((attrs, inferred))
    }

    /// The place that nodes pushed from now on come from.
    pub fn set_location(&mut self, location: Option<Location>) {
        self.location = location;
    }

    /// The type of a value.
    ///
    /// # Panics
    /// When the value belongs to another graph.
    pub fn ty(&self, value: ValueId) -> &Type {
        self.graph.ty(value)
    }

    /// The graph so far, without outputs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The value of this name.
    pub fn value_named(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// Renames a value; a name that is taken gets a suffix.
    ///
    /// # Panics
    /// When the value belongs to another graph.
    pub fn rename(&mut self, value: ValueId, name: &str) {
        let name = free_name(name, |name| {
            self.names.get(name).is_some_and(|&owner| owner != value)
        });
        let slot = self
            .graph
            .values
            .get_mut(value)
            .expect("the value belongs to this graph");
        self.names.remove(&slot.name);
        slot.name.clone_from(&name);
        if let Def::Input(index) = slot.def {
            self.graph.inputs[index as usize].name.clone_from(&name);
        }
        self.names.insert(name, value);
    }

    /// Completes the graph with the values it returns and their names. Reports everything that is
    /// wrong with the whole.
    pub fn finish(mut self, outputs: Vec<(String, ValueId)>) -> Result<Graph, Diagnostics> {
        (self.graph.output_names, self.graph.outputs) = outputs.into_iter().unzip();
        self.graph.order_values();
        self.graph.validate()?;
        Ok(self.graph)
    }

    fn define(&mut self, name: Option<&str>, ty: Type, def: Def) -> ValueId {
        let value = ValueId(self.graph.values.len() as u32);
        let taken = |name: &str| self.names.contains_key(name);
        let name = match name {
            Some(name) => free_name(name, taken),
            None => free_name(&value.0.to_string(), taken),
        };
        self.names.insert(name.clone(), value);
        for guard in ty.shape.dims().iter().filter_map(Dim::guard) {
            self.guard(guard);
        }
        self.graph.values.push(Value { ty, name, def })
    }
}

/// `name` with the characters that a name in text cannot hold replaced by `_`.
fn clean(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let clean: String = name
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect();
    if clean.is_empty() {
        "_".to_owned()
    } else {
        clean
    }
}

/// The clean form of `name`, or the first of `name.1`, `name.2`, … that is free.
fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let clean = clean(name);
    if !taken(&clean) {
        return clean;
    }
    let mut suffix = 1u64;
    loop {
        let candidate = format!("{clean}.{suffix}");
        if !taken(&candidate) {
            return candidate;
        }
        suffix += 1;
    }
}
