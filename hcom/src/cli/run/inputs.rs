//! The inputs of a run: from a JSON or safetensors file, the rest seeded random.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hcom_ir::{DType, Element, Graph, Id, Literal, Op, ValueId};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value};

use super::super::bad_input::BadInput;
use super::values;
use crate::seeded::Seeded;

/// What a file says about inputs: for all ranks, and for single ranks.
pub(super) struct Inputs {
    path: Option<PathBuf>,
    all: BTreeMap<String, Given>,
    ranks: BTreeMap<u32, BTreeMap<String, Given>>,
}

/// One value as its file holds it.
enum Given {
    Json(Value),
    Tensor(Literal),
}

/// One input of one rank.
pub(super) struct Input {
    pub(super) value: Literal,
    /// It came from the file; else it is random.
    pub(super) given: bool,
}

const SHAPE_OF_FILE: &str =
    r#"a JSON object such as {"all": {"x": [1, 2]}} or {"0": {"x": [1, 2]}, "1": {"x": [3, 4]}}"#;

impl Inputs {
    /// No file: every input is random.
    pub(super) fn none() -> Inputs {
        Inputs {
            path: None,
            all: BTreeMap::new(),
            ranks: BTreeMap::new(),
        }
    }

    /// Reads a file for `ranks` ranks; its name decides the format.
    pub(super) fn read(path: &Path, ranks: u32) -> Result<Inputs, BadInput> {
        let bytes = std::fs::read(path).map_err(|error| {
            BadInput::new(format!(
                "cannot read the inputs {}: {error}",
                path.display()
            ))
            .expected("a .json or .safetensors file")
        })?;
        let mut inputs = Inputs {
            path: Some(path.to_owned()),
            ..Inputs::none()
        };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("safetensors") => inputs.take_safetensors(&bytes, ranks)?,
            _ => inputs.take_json(&bytes, ranks)?,
        }
        Ok(inputs)
    }

    fn take_json(&mut self, bytes: &[u8], ranks: u32) -> Result<(), BadInput> {
        let place = self.place();
        let value: Value = serde_json::from_slice(bytes).map_err(|error| {
            BadInput::new("the inputs are no JSON")
                .at(format!("{place}:{}:{}", error.line(), error.column()))
                .expected(SHAPE_OF_FILE)
                .got(error.to_string())
                .help("NaN and infinities are the strings \"NaN\", \"Infinity\", \"-Infinity\"")
        })?;
        let wrong = |got: String| {
            BadInput::new("the inputs have the wrong form")
                .at(place.clone())
                .expected(SHAPE_OF_FILE)
                .got(got)
        };
        let Value::Object(sections) = value else {
            return Err(wrong(kind(&value).into()));
        };
        for (section, values) in sections {
            let Value::Object(values) = values else {
                return Err(wrong(format!("{} under {section:?}", kind(&values))));
            };
            let target = self.section(&section, ranks)?;
            target.extend(given(values));
        }
        Ok(())
    }

    /// The values for `all` or for the rank that `name` is.
    fn section(
        &mut self,
        name: &str,
        ranks: u32,
    ) -> Result<&mut BTreeMap<String, Given>, BadInput> {
        if name == "all" {
            return Ok(&mut self.all);
        }
        match name.parse::<u32>() {
            Ok(rank) if rank < ranks => Ok(self.ranks.entry(rank).or_default()),
            _ => Err(BadInput::new("the inputs name no rank of this job")
                .at(self.place())
                .expected(format!("\"all\", or a rank from 0 to {}", ranks - 1))
                .got(format!("{name:?}"))),
        }
    }

    fn take_safetensors(&mut self, bytes: &[u8], ranks: u32) -> Result<(), BadInput> {
        let place = self.place();
        let file = SafeTensors::deserialize(bytes).map_err(|error| {
            BadInput::new("the inputs are no safetensors file")
                .at(place.clone())
                .got(error.to_string())
        })?;
        for (key, tensor) in file.iter() {
            let (section, name) = key.split_once('/').unwrap_or(("all", key));
            let dtype = dtype(tensor.dtype()).ok_or_else(|| {
                BadInput::new(format!(
                    "tensor {key:?} has an element type that no graph has"
                ))
                .at(place.clone())
                .expected(DType::ALL.map(DType::name).join(", "))
                .got(format!("{:?}", tensor.dtype()))
            })?;
            let literal = Literal {
                dtype,
                shape: tensor.shape().iter().map(|&size| size as u64).collect(),
                bytes: tensor.data().to_vec(),
            };
            self.section(section, ranks)?
                .insert(name.to_owned(), Given::Tensor(literal));
        }
        Ok(())
    }

    fn place(&self) -> String {
        self.path
            .as_ref()
            .map_or_else(|| "the inputs".into(), |path| path.display().to_string())
    }

    /// The inputs of `graph`, whose sizes are known, on `rank`, in the order of its parameters.
    pub(super) fn of_rank(
        &self,
        graph: &Graph,
        rank: u32,
        seed: u64,
    ) -> Result<Vec<Input>, BadInput> {
        let own = self.ranks.get(&rank);
        let names = || {
            let names: Vec<&str> = graph.inputs().iter().map(|input| &*input.name).collect();
            match names.is_empty() {
                true => "no inputs: the graph has none".to_owned(),
                false => names.join(", "),
            }
        };
        for name in self
            .all
            .keys()
            .chain(own.into_iter().flat_map(BTreeMap::keys))
        {
            if !graph.inputs().iter().any(|input| input.name == *name) {
                return Err(BadInput::new(format!(
                    "graph @{} has no input {name:?}",
                    graph.name()
                ))
                .at(format!("{}, rank {rank}", self.place()))
                .expected(names())
                .got(format!("{name:?}")));
            }
        }
        graph
            .inputs()
            .iter()
            .map(|input| {
                let given = own
                    .and_then(|own| own.get(&input.name))
                    .or_else(|| self.all.get(&input.name));
                Ok(match given {
                    Some(given) => Input {
                        value: self.fit(given, graph, input.value, rank)?,
                        given: true,
                    },
                    None => Input {
                        value: random(graph, input.value, rank, seed),
                        given: false,
                    },
                })
            })
            .collect()
    }

    fn fit(
        &self,
        given: &Given,
        graph: &Graph,
        value: ValueId,
        rank: u32,
    ) -> Result<Literal, BadInput> {
        let ty = graph.ty(value);
        let name = &graph.value(value).name;
        let shape = ty.shape.as_fixed().unwrap_or_default();
        match given {
            Given::Json(json) => values::parse(json, ty.dtype, &shape).map_err(|mistake| {
                BadInput::new(format!("input {name:?} is not {ty}"))
                    .at(format!(
                        "{}, rank {rank}, {name}{}",
                        self.place(),
                        mistake.place
                    ))
                    .expected(mistake.expected)
                    .got(mistake.got)
            }),
            Given::Tensor(literal) if literal.ty() == *ty => Ok(literal.clone()),
            Given::Tensor(literal) => Err(BadInput::new(format!("input {name:?} is not {ty}"))
                .at(format!("{}, rank {rank}", self.place()))
                .expected(ty.to_string())
                .got(literal.ty().to_string())),
        }
    }
}

fn given(values: Map<String, Value>) -> impl Iterator<Item = (String, Given)> {
    values
        .into_iter()
        .map(|(name, value)| (name, Given::Json(value)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::C64 => DType::C64,
        _ => return None,
    })
}

/// A generator for one input: seed, rank and name alone decide its values.
fn generator(seed: u64, rank: u32, name: &str) -> Seeded {
    // FNV-1a keeps names apart; a step of the generator keeps neighbouring ranks and seeds apart.
    let name = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let rank = Seeded::new(u64::from(rank)).bits();
    Seeded::new(Seeded::new(seed).bits() ^ name ^ rank)
}

/// Floats lie in [-1, 1), integers in [0, 10), and an input that indexes a table stays inside the table.
fn random(graph: &Graph, value: ValueId, rank: u32, seed: u64) -> Literal {
    let ty = graph.ty(value);
    let shape = ty.shape.as_fixed().unwrap_or_default();
    let count: u64 = shape.iter().product();
    let mut random = generator(seed, rank, &graph.value(value).name);
    let below = table_rows(graph, value).unwrap_or(10).clamp(1, 127);
    let mut bytes = Vec::new();
    for _ in 0..count {
        match ty.dtype {
            DType::Bool => (random.bits() >> 63 == 1).write_le(&mut bytes),
            DType::F16 => half::f16::from_f32(random.unit()).write_le(&mut bytes),
            DType::BF16 => half::bf16::from_f32(random.unit()).write_le(&mut bytes),
            DType::F32 => random.unit().write_le(&mut bytes),
            DType::F64 => f64::from(random.unit()).write_le(&mut bytes),
            DType::C64 => [random.unit(), random.unit()].write_le(&mut bytes),
            DType::C128 => [random.unit(), random.unit()]
                .map(f64::from)
                .write_le(&mut bytes),
            // Below 128: the same little-endian bytes in every integer type.
            _ => {
                let number = (random.bits() % below).to_le_bytes();
                bytes.extend_from_slice(&number[..ty.dtype.bytes() as usize]);
            }
        }
    }
    Literal {
        dtype: ty.dtype,
        shape,
        bytes,
    }
}

/// The size of the dimension that `value` indexes, the smallest if it indexes several.
fn table_rows(graph: &Graph, value: ValueId) -> Option<u64> {
    let users = graph.users();
    let rows = users[value.index()].iter().filter_map(|&user| {
        let node = graph.node(user);
        let indexes = node.operands.get(1) == Some(&value);
        let table = graph.ty(*node.operands.first()?).shape.as_fixed()?;
        match node.op {
            Op::Embedding if indexes => table.first().copied(),
            Op::Gather if indexes => {
                let dim = node.attrs.int("dim");
                table.get(usize::try_from(dim).ok()?).copied()
            }
            _ => None,
        }
    });
    rows.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const SOURCE: &str =
        "hcom 1\ngraph @g(%x: f32[2], %i: i64[3]) -> f32[2] {\n  %y = add %x, %x\n  return %y\n}\n";

    fn graph() -> Graph {
        hcom_ir::parse(SOURCE, "g.hcom").unwrap()
    }

    fn inputs(name: &str, content: &[u8], ranks: u32) -> Result<Inputs, BadInput> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        Inputs::read(&path, ranks)
    }

    #[track_caller]
    fn refused(json: &str, parts: &[&str]) {
        let text = match inputs("in.json", json.as_bytes(), 2)
            .and_then(|inputs| inputs.of_rank(&graph(), 1, 0))
        {
            Ok(_) => panic!("{json} was accepted"),
            Err(error) => error.to_string(),
        };
        for part in parts {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
    }

    #[test]
    fn a_rank_takes_its_own_values_before_those_for_all() {
        let json = br#"{"all": {"x": [1, 2], "i": [1, 2, 3]}, "1": {"x": [5, 6]}}"#;
        let inputs = inputs("in.json", json, 2).unwrap();
        let x = |rank| {
            inputs.of_rank(&graph(), rank, 0).unwrap()[0]
                .value
                .to_vec::<f32>()
                .unwrap()
        };
        assert_eq!(x(0), [1.0, 2.0]);
        assert_eq!(x(1), [5.0, 6.0]);
    }

    #[test]
    fn missing_inputs_are_random_by_seed_rank_and_name_and_say_so() {
        let all = |rank, seed| Inputs::none().of_rank(&graph(), rank, seed).unwrap();
        assert!(!all(0, 0)[0].given);
        assert_eq!(all(0, 0)[0].value, all(0, 0)[0].value);
        assert_ne!(all(0, 0)[0].value, all(1, 0)[0].value);
        assert_ne!(all(0, 0)[0].value, all(0, 1)[0].value);
        assert!(
            all(0, 0)[1]
                .value
                .to_vec::<i64>()
                .unwrap()
                .iter()
                .all(|i| (0..10).contains(i))
        );
    }

    #[test]
    fn indices_stay_inside_the_table_they_index() {
        let source = "hcom 1\ngraph @g(%t: f32[3, 2], %i: i64[100]) -> f32[100, 2] {\n  %y = embedding %t, %i\n  return %y\n}\n";
        let graph = hcom_ir::parse(source, "g.hcom").unwrap();
        let inputs = Inputs::none().of_rank(&graph, 0, 0).unwrap();
        let seen = inputs[1].value.to_vec::<i64>().unwrap();
        assert_eq!(seen.iter().copied().max(), Some(2));
        assert_eq!(seen.iter().copied().min(), Some(0));
    }

    #[test]
    fn safetensors_hold_values_for_all_ranks_or_for_one() {
        let tensor = |values: [f32; 2]| {
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let (all, own) = (tensor([1.0, 2.0]), tensor([3.0, 4.0]));
        let view = |data| safetensors::tensor::TensorView::new(Dtype::F32, vec![2], data).unwrap();
        let file = safetensors::serialize([("x", view(&all)), ("1/x", view(&own))], None).unwrap();
        let inputs = inputs("in.safetensors", &file, 2).unwrap();
        let x = |rank| {
            inputs.of_rank(&graph(), rank, 0).unwrap()[0]
                .value
                .to_vec::<f32>()
                .unwrap()
        };
        assert_eq!(x(0), [1.0, 2.0]);
        assert_eq!(x(1), [3.0, 4.0]);
    }

    #[test]
    fn mistakes_say_what_where_expected_and_got() {
        refused("{", &["the inputs are no JSON", "in.json:1:1"]);
        refused("[1]", &["the inputs have the wrong form", "a list"]);
        refused(
            r#"{"2": {}}"#,
            &[
                "name no rank of this job",
                "a rank from 0 to 1",
                "got: \"2\"",
            ],
        );
        refused(
            r#"{"all": {"z": 1}}"#,
            &["graph @g has no input \"z\"", "expected: x, i"],
        );
        refused(
            r#"{"all": {"x": [1, "a"]}}"#,
            &[
                "input \"x\" is not f32[2]",
                "rank 1, x[1]",
                "expected: a number",
                "got: \"a\"",
            ],
        );
    }
}
