//! A graph of the engine in the making.

use std::collections::BTreeMap;

use hcom_ir::{DType, Dim, Graph, GroupId, Id as _, Literal, Shape, Type, ValueId};
use rustc_hash::FxHashSet;

use super::proto::{
    AttrDef, DataType, GraphDef, ListValue, ListValueType, ModelDef, OpDef, ShapeDef, TensorDef,
    TensorDescriptor, Value,
};
use super::{Options, Weight, group_name};

/// A result of an operator.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    name: String,
    index: usize,
    pub(super) ty: Type,
}

impl Edge {
    /// The sizes, when all are known.
    pub(super) fn sizes(&self) -> Result<Vec<u64>, String> {
        self.ty
            .shape
            .as_fixed()
            .ok_or_else(|| format!("the sizes of {} must be known", self.ty))
    }
}

/// What an operator reads: the name of the operand and the value.
pub(super) type Operands<'a> = &'a [(&'a str, &'a Edge)];

pub(super) struct Draft<'a> {
    pub(super) graph: &'a Graph,
    pub(super) options: &'a Options,
    ops: Vec<OpDef>,
    names: FxHashSet<String>,
    values: Vec<Option<Edge>>,
    /// The last communication of each group, by its ranks.
    latest: BTreeMap<Vec<u32>, String>,
    /// Operators that must stay although nothing reads them.
    pinned: Vec<String>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(graph: &'a Graph, options: &'a Options) -> Draft<'a> {
        Draft {
            graph,
            options,
            ops: Vec::new(),
            names: FxHashSet::default(),
            values: vec![None; graph.values().len()],
            latest: BTreeMap::new(),
            pinned: Vec::new(),
        }
    }

    /// Adds the inputs: data of each call, or weights.
    pub(super) fn inputs(&mut self) {
        let mut index = 0;
        for (position, input) in self.graph.inputs().iter().enumerate() {
            let ty = self.graph.ty(input.value).clone();
            let (kind, attrs) = match self.options.weights.get(&position) {
                None => {
                    index += 1;
                    ("Data", vec![("index", int(index - 1))])
                }
                Some(Weight::Inside(literal)) => ("Const", vec![("value", tensor(literal))]),
                Some(Weight::Beside(path)) => (
                    "FileConstant",
                    vec![
                        ("shape", ints(dims(&ty.shape))),
                        ("dtype", dtype(ty.dtype)),
                        ("file_path", string(path)),
                    ],
                ),
            };
            let edge = self.one(kind, &input.name, &[], attrs, ty);
            self.bind(input.value, edge);
        }
    }

    /// The operand of an operation.
    pub(super) fn value(&self, value: ValueId) -> Edge {
        let edge = self.values[value.index()].clone();
        edge.expect("operands are defined before their use")
    }

    /// Says that `edge` is the value of the graph.
    pub(super) fn bind(&mut self, value: ValueId, edge: Edge) {
        let name = &self.graph.value(value).name;
        if let Some(op) = self.ops.iter_mut().rev().find(|op| op.name == edge.name) {
            let attrs = &mut op.output_desc[edge.index].attr;
            attrs
                .entry("_hcom_value".to_owned())
                .or_insert_with(|| string(name));
        }
        self.values[value.index()] = Some(edge);
    }

    /// Adds an operator and returns its results.
    pub(super) fn add(
        &mut self,
        kind: &str,
        name: &str,
        operands: Operands<'_>,
        attrs: Vec<(&str, AttrDef)>,
        results: Vec<(&str, Type)>,
    ) -> Vec<Edge> {
        let name = self.unique(name);
        let describe = |name: &str, ty: &Type| descriptor(name, ty, self.graph.symbols());
        self.ops.push(OpDef {
            name: name.clone(),
            r#type: kind.to_owned(),
            input: operands
                .iter()
                .map(|(_, edge)| format!("{}:{}", edge.name, edge.index))
                .collect(),
            attr: attrs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            id: self.ops.len() as i64,
            input_desc: operands
                .iter()
                .map(|(name, edge)| describe(name, &edge.ty))
                .collect(),
            output_desc: results
                .iter()
                .map(|(name, ty)| describe(name, ty))
                .collect(),
        });
        results
            .into_iter()
            .enumerate()
            .map(|(index, (_, ty))| Edge {
                name: name.clone(),
                index,
                ty,
            })
            .collect()
    }

    /// Adds an operator with the result `y`.
    pub(super) fn one(
        &mut self,
        kind: &str,
        name: &str,
        operands: Operands<'_>,
        attrs: Vec<(&str, AttrDef)>,
        ty: Type,
    ) -> Edge {
        self.add(kind, name, operands, attrs, vec![("y", ty)])
            .swap_remove(0)
    }

    /// Adds an operator that communicates in `group`: after everything before it in that group, and
    /// not to be pruned.
    pub(super) fn communicate(
        &mut self,
        kind: &str,
        group: GroupId,
        operands: Operands<'_>,
        mut attrs: Vec<(&str, AttrDef)>,
        results: Vec<(&str, Type)>,
    ) -> Vec<Edge> {
        let ranks = self.graph.group(group).ranks.clone();
        let name = group_name(&ranks, self.options.world_size);
        attrs.push(("group", string(&name)));
        let results = self.add(kind, kind, operands, attrs, results);
        let op = self.ops.last_mut().expect("one was added");
        if let Some(before) = self.latest.insert(ranks, op.name.clone()) {
            op.input.push(control(&before));
        }
        results
    }

    /// Adds an operator that writes an input: after everything that reads it.
    pub(super) fn write(&mut self, value: &Edge, input: &Edge) {
        let data = format!("{}:{}", input.name, input.index);
        let mut after: Vec<String> = self
            .ops
            .iter()
            .filter(|op| op.input.contains(&data))
            .map(|op| control(&op.name))
            .collect();
        let name = format!("assign_{}", input.name);
        let attrs = vec![
            ("validate_shape", boolean(true)),
            ("use_locking", boolean(false)),
        ];
        let operands = [("ref", input), ("value", value)];
        let ty = input.ty.clone();
        self.add("Assign", &name, &operands, attrs, vec![("ref", ty)]);
        let op = self.ops.last_mut().expect("one was added");
        op.input.append(&mut after);
        self.pinned.push(op.name.clone());
    }

    /// A list of 64-bit integers as a constant.
    pub(super) fn list(&mut self, name: &str, values: &[i64]) -> Edge {
        let shape = [values.len() as u64];
        let literal = Literal::from_slice(&shape, values).expect("the list has this many elements");
        self.constant(name, &literal)
    }

    /// A constant.
    pub(super) fn constant(&mut self, name: &str, literal: &Literal) -> Edge {
        let attrs = vec![("value", tensor(literal))];
        self.one("Const", name, &[], attrs, literal.ty())
    }

    fn unique(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        let mut number = 0;
        while !self.names.insert(unique.clone()) {
            number += 1;
            unique = format!("{name}_{number}");
        }
        unique
    }

    /// Adds the end of the graph.
    pub(super) fn finish(mut self) -> ModelDef {
        let outputs: Vec<Edge> = self
            .graph
            .outputs()
            .iter()
            .map(|&value| self.value(value))
            .collect();
        let names: Vec<String> = (0..outputs.len()).map(|n| format!("input{n}")).collect();
        let operands: Vec<(&str, &Edge)> = names.iter().map(String::as_str).zip(&outputs).collect();
        self.add("NetOutput", "NetOutput", &operands, Vec::new(), Vec::new());
        let end = self.ops.last_mut().expect("one was added");
        let output = end.input.clone();
        let kept = self.latest.values().chain(&self.pinned);
        end.input.extend(kept.map(|name| control(name)));

        // Everything of our text but the data of constants, which their operators hold.
        let text = self.graph.to_string();
        let mut lines: Vec<&str> = text.lines().collect();
        let start = lines.iter().position(|line| line.ends_with('{'));
        let body = start.map_or(lines.len(), |start| start + 1);
        let constants: Vec<String> = self
            .graph
            .nodes()
            .map(|(_, node)| match (node.op, node.results.first()) {
                (hcom_ir::Op::Constant, Some(&value)) => {
                    format!("%{} = constant", self.graph.value(value).name)
                }
                _ => String::new(),
            })
            .collect();
        for (line, constant) in lines[body..].iter_mut().zip(&constants) {
            if !constant.is_empty() {
                *line = constant;
            }
        }
        let attr = [("_hcom_text".to_owned(), strings(lines))];
        ModelDef {
            name: self.graph.name().to_owned(),
            version: 1,
            graph: vec![GraphDef {
                name: self.graph.name().to_owned(),
                input: self
                    .ops
                    .iter()
                    .filter(|op| op.r#type == "Data")
                    .map(|op| format!("{}:0", op.name))
                    .collect(),
                output,
                op: self.ops,
                attr: attr.into_iter().collect(),
            }],
        }
    }
}

fn control(name: &str) -> String {
    format!("{name}:-1")
}

/// Sizes; symbolic ones are -1.
pub(super) fn dims(shape: &Shape) -> Vec<i64> {
    let dim = |dim: &Dim| dim.as_fixed().map_or(-1, |size| size as i64);
    shape.dims().iter().map(dim).collect()
}

fn descriptor(name: &str, ty: &Type, symbols: &[String]) -> TensorDescriptor {
    let mut attr = BTreeMap::new();
    if ty.shape.as_fixed().is_none() {
        let names = ty.shape.dims().iter();
        let names: Vec<String> = names.map(|dim| dim.display(symbols).to_string()).collect();
        let names = strings(names.iter().map(String::as_str));
        attr.insert("_hcom_dims".to_owned(), names);
    }
    TensorDescriptor {
        name: name.to_owned(),
        dtype: data_type(ty.dtype).into(),
        shape: Some(ShapeDef {
            dim: dims(&ty.shape),
        }),
        layout: "ND".to_owned(),
        attr,
        device_type: "NPU".to_owned(),
    }
}

/// The engine's name of an element type.
pub(super) fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::Bool => DataType::Bool,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bf16,
        DType::F32 => DataType::Float,
        DType::F64 => DataType::Double,
        DType::C64 => DataType::Complex64,
        DType::C128 => DataType::Complex128,
    }
}

pub(super) fn int(value: i64) -> AttrDef {
    AttrDef {
        value: Some(Value::I(value)),
    }
}

pub(super) fn float(value: f64) -> AttrDef {
    AttrDef {
        value: Some(Value::F(value as f32)),
    }
}

pub(super) fn boolean(value: bool) -> AttrDef {
    AttrDef {
        value: Some(Value::B(value)),
    }
}

pub(super) fn string(value: &str) -> AttrDef {
    AttrDef {
        value: Some(Value::S(value.as_bytes().to_vec())),
    }
}

pub(super) fn ints(values: Vec<i64>) -> AttrDef {
    let list = ListValue {
        i: values,
        val_type: ListValueType::Int.into(),
        ..ListValue::default()
    };
    AttrDef {
        value: Some(Value::List(list)),
    }
}

fn strings<'s>(values: impl IntoIterator<Item = &'s str>) -> AttrDef {
    let list = ListValue {
        s: values.into_iter().map(|s| s.as_bytes().to_vec()).collect(),
        val_type: ListValueType::String.into(),
        ..ListValue::default()
    };
    AttrDef {
        value: Some(Value::List(list)),
    }
}

/// An element type as the value of an attribute.
pub(super) fn dtype(dtype: DType) -> AttrDef {
    int(i64::from(i32::from(data_type(dtype))))
}

fn tensor(literal: &Literal) -> AttrDef {
    let tensor = TensorDef {
        desc: Some(descriptor("", &literal.ty(), &[])),
        data: literal.bytes.clone(),
    };
    AttrDef {
        value: Some(Value::T(tensor)),
    }
}
