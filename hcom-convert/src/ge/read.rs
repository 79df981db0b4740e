//! From the bytes of a `.air` file back to the graph.

use hcom_ir::{Attrs, Builder, DType, Diagnostics, Graph, Literal, Op, Type, parse};
use rustc_hash::FxHashMap;

use super::draft::{data_type, dims};
use super::proto::{AttrDef, ModelDef, OpDef, TensorDef, TensorDescriptor, Value};

/// A model that was read.
#[derive(Clone, Debug)]
pub struct Air {
    /// The graph that was exported.
    pub graph: Graph,
    /// Data of the inputs that are part of the model, by position.
    pub weights: Vec<(usize, Literal)>,
}

/// Why bytes are no model of ours.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// They are no `ModelDef`.
    #[error("the file is no serialized ModelDef")]
    Encoding(#[from] prost::DecodeError),
    /// The model does not hold the graph it was made from.
    #[error("the model was not exported by hcom: {missing} is missing")]
    Foreign {
        /// What is missing.
        missing: &'static str,
    },
    /// The text in the model is damaged.
    #[error("the model's graph does not read")]
    Text(#[from] Diagnostics),
    /// An operator does not have the type of the value it stands for.
    #[error("operator {operator} yields {got}, but its value %{value} is {expected}")]
    Differs {
        /// The operator.
        operator: String,
        /// The value, without `%`.
        value: String,
        /// The value's type.
        expected: String,
        /// The operator's.
        got: String,
    },
}

impl Air {
    /// Reads the bytes of a `.air` file that [`Model::to_air`](super::Model::to_air) wrote, and checks
    /// that its operators have the types of the values they stand for.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(bytes: &[u8]) -> Result<Air, ReadError> {
        let model: ModelDef = prost::Message::decode(bytes)?;
        let missing = |missing| ReadError::Foreign { missing };
        let engine = model.graph.first().ok_or(missing("the graph"))?;
        let lines = match engine
            .attr
            .get("_hcom_text")
            .and_then(|attr| attr.value.as_ref())
        {
            Some(Value::List(list)) => &list.s,
            _ => return Err(missing("the attribute _hcom_text")),
        };
        let by_value: FxHashMap<String, (&OpDef, &TensorDescriptor)> = engine
            .op
            .iter()
            .flat_map(|op| {
                op.output_desc
                    .iter()
                    .map(move |descriptor| (op, descriptor))
            })
            .filter_map(|(op, descriptor)| {
                let name = text(descriptor.attr.get("_hcom_value")?)?;
                Some((name, (op, descriptor)))
            })
            .collect();
        let mut source = String::new();
        for line in lines {
            let line = String::from_utf8_lossy(line);
            source.push_str(&line);
            let constant = line
                .strip_prefix('%')
                .and_then(|rest| rest.strip_suffix(" = constant"));
            if let Some(name) = constant {
                let literal = by_value.get(name).and_then(|(op, _)| data(op));
                let literal = literal.ok_or(missing("the data of a constant"))?;
                source.push_str(&format!(" value = {}", literal_text(&literal)?));
            }
            source.push('\n');
        }
        let graph = parse(&source, &model.name)?;
        for (_, value) in graph.values() {
            if let Some((op, descriptor)) = by_value.get(&value.name) {
                compare(&graph, &value.name, &value.ty, op, descriptor)?;
            }
        }
        let weight = |(position, input): (usize, &hcom_ir::Input)| {
            let (op, _) = by_value.get(&input.name)?;
            Some((position, data(op)?))
        };
        let weights = graph
            .inputs()
            .iter()
            .enumerate()
            .filter_map(weight)
            .collect();
        Ok(Air { graph, weights })
    }
}

fn compare(
    graph: &Graph,
    value: &str,
    ty: &Type,
    op: &OpDef,
    descriptor: &TensorDescriptor,
) -> Result<(), ReadError> {
    let got = descriptor
        .shape
        .as_ref()
        .map_or(&[][..], |shape| &shape.dim);
    let symbolic: Option<Vec<String>> = match descriptor.attr.get("_hcom_dims").map(|a| &a.value) {
        Some(Some(Value::List(list))) => Some(
            list.s
                .iter()
                .map(|dim| String::from_utf8_lossy(dim).into_owned())
                .collect(),
        ),
        _ => None,
    };
    let expected: Option<Vec<String>> = ty.shape.as_fixed().is_none().then(|| {
        let dims = ty.shape.dims().iter();
        dims.map(|dim| dim.display(graph.symbols()).to_string())
            .collect()
    });
    let equal = descriptor.dtype == i32::from(data_type(ty.dtype))
        && got == dims(&ty.shape)
        && symbolic == expected;
    if equal {
        return Ok(());
    }
    let dtype = DType::ALL
        .into_iter()
        .find(|&ty| i32::from(data_type(ty)) == descriptor.dtype);
    Err(ReadError::Differs {
        operator: op.name.clone(),
        value: value.to_owned(),
        expected: ty.display(graph.symbols()).to_string(),
        got: match symbolic {
            Some(dims) => format!("{}[{}]", dtype.map_or("?", DType::name), dims.join(", ")),
            None => format!("{}{got:?}", dtype.map_or("?", DType::name)),
        },
    })
}

fn text(attr: &AttrDef) -> Option<String> {
    match &attr.value {
        Some(Value::S(text)) => String::from_utf8(text.clone()).ok(),
        _ => None,
    }
}

/// The data of a constant of the engine.
fn data(op: &OpDef) -> Option<Literal> {
    let Some(Value::T(TensorDef { desc, data })) = &op.attr.get("value")?.value else {
        return None;
    };
    let desc = desc.as_ref()?;
    let dtype = DType::ALL
        .into_iter()
        .find(|&ty| i32::from(data_type(ty)) == desc.dtype)?;
    let sizes = desc.shape.as_ref().map_or(&[][..], |shape| &shape.dim);
    let shape = sizes
        .iter()
        .map(|&size| u64::try_from(size).ok())
        .collect::<Option<_>>()?;
    Literal::new(dtype, shape, data.clone()).ok()
}

/// Data as a graph writes it.
fn literal_text(literal: &Literal) -> Result<String, ReadError> {
    let mut builder = Builder::new("constant");
    let attrs = Attrs::new().with("value", literal.clone());
    let value = builder
        .one(Op::Constant, &[], attrs)
        .map_err(|error| Diagnostics(vec![error]))?;
    let graph = builder.finish(vec![("y".to_owned(), value)])?;
    let text = graph.to_string();
    let line = text.lines().find_map(|line| line.split_once("value = "));
    Ok(line
        .map(|(_, literal)| literal.to_owned())
        .unwrap_or_default())
}
