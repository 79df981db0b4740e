//! Programs run every way there is, against what the oracle says, on the library that
//! `HCOM_LIBRARY_PATH` names or the test registers.
//!
//! ```no_run
//! # // The ranks of a doctest would be this very program.
//! use hcom_runtime::{Runtime, Settings};
//! use hcom_test::{Kind, Program, Way, check, ranks};
//!
//! ranks(2, Kind::Threads, std::time::Duration::from_secs(60), |rank| {
//!     let runtime = Runtime::with_control(rank.control(), rank.rank(), &Settings::default()).unwrap();
//!     for seed in 0..100 {
//!         check(&runtime, &Program::generate(seed, 2), &Way::all());
//!     }
//! });
//! ```

use std::fmt;

use hcom_ir::{DType, Graph, Literal, Op, RankResult, ValueId};
use hcom_runtime::{Array, CompileOptions, Error, Mode, Runtime};

use crate::program::Program;

/// How a program is run.
#[derive(Clone, Debug)]
pub enum Way {
    /// One operation after the other, as it is called.
    Eager,
    /// Compiled with these options.
    Compiled(Box<CompileOptions>),
}

impl Way {
    /// Compiled in this mode with the other options as they are by default.
    pub fn mode(mode: Mode) -> Way {
        Way::Compiled(Box::new(CompileOptions {
            mode,
            ..CompileOptions::default()
        }))
    }

    /// Eager, and compiled in every mode.
    pub fn all() -> Vec<Way> {
        let mut ways = vec![Way::Eager];
        ways.extend(Mode::ALL.map(Way::mode));
        ways
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Eager => f.write_str("eager"),
            Way::Compiled(options) => f.write_str(options.mode.name()),
        }
    }
}

/// Runs this rank's part of `program` in each of these ways, twice each, and compares every output
/// and every input afterwards with the oracle, bit for bit; all NaN count as equal, and both zeros.
///
/// All ranks of the program's world call this together.
///
/// # Errors
/// The first difference or failure, on this rank. Other ranks may wait for this one then: end the
/// job.
pub fn compare(runtime: &Runtime, program: &Program, ways: &[Way]) -> Result<(), String> {
    let rank = runtime.rank() as usize;
    let expected = program
        .expected()
        .map_err(|error| format!("the program has no meaning: {error}"))?;
    for way in ways {
        run(
            runtime,
            &program.graphs[rank],
            &program.inputs[rank],
            way,
            &expected[rank],
        )
        .map_err(|what| format!("rank {rank}, {way}: {what}"))?;
    }
    Ok(())
}

/// [`compare`], with the whole program in the message.
///
/// # Panics
/// When there is a difference or a failure.
#[track_caller]
pub fn check(runtime: &Runtime, program: &Program, ways: &[Way]) {
    if let Err(what) = compare(runtime, program, ways) {
        panic!("{what}\n{program}");
    }
}

fn run(
    runtime: &Runtime,
    graph: &Graph,
    inputs: &[Literal],
    way: &Way,
    expected: &RankResult,
) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let executable = match way {
        Way::Eager => None,
        Way::Compiled(options) => Some(runtime.compile(graph, options).map_err(text)?),
    };
    for round in 0..2 {
        let upload = |data: &Literal| runtime.array(data.dtype, &data.shape, &data.bytes);
        let arrays: Vec<Array> = inputs
            .iter()
            .map(upload)
            .collect::<Result<_, _>>()
            .map_err(text)?;
        let outputs = match &executable {
            None => eager(runtime, graph, &arrays),
            Some(executable) => executable.run(&arrays),
        }
        .map_err(text)?;
        let names = graph.output_names().iter().map(String::as_str);
        let named = names.zip(&outputs).zip(&expected.outputs);
        let written = graph.inputs().iter().map(|input| &*input.name);
        let named = named.chain(written.zip(&arrays).zip(&expected.inputs_after));
        for ((name, got), expected) in named {
            let bytes = got.to_host().map_err(text)?;
            let got = Literal::new(got.dtype(), got.shape().to_vec(), bytes)
                .map_err(|error| error.to_string())?;
            if bits(&got) != bits(expected) || got.ty() != expected.ty() {
                return Err(format!(
                    "run {round}: %{name} is {} {:02x?}, expected {} {:02x?}",
                    got.ty(),
                    got.bytes,
                    expected.ty(),
                    expected.bytes
                ));
            }
        }
    }
    Ok(())
}

/// Runs every node by itself.
fn eager(runtime: &Runtime, graph: &Graph, inputs: &[Array]) -> Result<Vec<Array>, Error> {
    let mut values: Vec<Option<Array>> = vec![None; graph.values().len()];
    let slot = |value: ValueId| hcom_ir::Id::index(value);
    for (input, array) in graph.inputs().iter().zip(inputs) {
        values[slot(input.value)] = Some(array.clone());
    }
    for (_, node) in graph.nodes() {
        let operands: Vec<Array> = node
            .operands
            .iter()
            .map(|&value| values[slot(value)].clone().expect("defined before use"))
            .collect();
        let operands: Vec<&Array> = operands.iter().collect();
        let group = node.group().map(|group| graph.group(group));
        let results = runtime.eager(node.op, &node.attrs, group, &operands)?;
        for (&value, array) in node.results.iter().zip(results) {
            values[slot(value)] = Some(array);
        }
        debug_assert!(node.op != Op::Custom, "programs hold no opaque work");
    }
    let outputs = graph.outputs().iter();
    Ok(outputs
        .map(|&value| values[slot(value)].clone().expect("defined before use"))
        .collect())
}

/// The bytes, with one NaN for all and one zero: libraries choose which of two zeros is the smaller.
fn bits(literal: &Literal) -> Vec<u8> {
    fn unified<const N: usize>(bytes: &[u8], number: fn([u8; N]) -> f64) -> Vec<u8> {
        let (parts, _) = bytes.as_chunks::<N>();
        let unify = |part: &[u8; N]| match number(*part) {
            nan if nan.is_nan() => [0xff; N],
            0.0 => [0; N],
            _ => *part,
        };
        parts.iter().flat_map(unify).collect()
    }
    let bytes = &literal.bytes;
    match literal.dtype {
        DType::F16 => unified(bytes, |part| half::f16::from_le_bytes(part).to_f64()),
        DType::BF16 => unified(bytes, |part| half::bf16::from_le_bytes(part).to_f64()),
        DType::F32 | DType::C64 => unified(bytes, |part| f32::from_le_bytes(part).into()),
        DType::F64 | DType::C128 => unified(bytes, f64::from_le_bytes),
        _ => bytes.clone(),
    }
}
