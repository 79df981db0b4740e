//! Ranks that execute graphs, and the oracle they are compared with.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::time::Duration;

use hcom_ir::{DType, Graph, Literal, interpret, parse};
use hcom_runtime::{Array, CompileOptions, Mode, Runtime, Settings};
use hcom_test::Rank;

pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The runtime of a rank, on the CPU library that is part of this program.
pub fn runtime(rank: &Rank) -> Runtime {
    with_settings(
        rank,
        Settings::from_env().expect("the environment of the tests is right"),
    )
}

pub fn with_settings(rank: &Rank, settings: Settings) -> Runtime {
    hcom_sys::register_fallback(hcom_fake::table());
    Runtime::with_control(rank.control(), rank.rank(), &settings).expect("the runtime starts")
}

pub fn graph(text: &str) -> Graph {
    parse(text, "test.hcom").unwrap_or_else(|found| panic!("{found}\n{text}"))
}

/// Deterministic data that differs for each element, input and rank.
pub fn data(dtype: DType, shape: &[u64], rank: u32, input: usize) -> Literal {
    let elements: u64 = shape.iter().product();
    let value = |index: u64| {
        let mixed = (index + 1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .wrapping_add(u64::from(rank) * 7_919 + input as u64 * 104_729);
        (mixed >> 40) as f64 / f64::from(1 << 24)
    };
    let mut bytes = Vec::new();
    for index in 0..elements {
        let unit = value(index);
        let real = unit * 2.0 - 1.0;
        let whole = (unit * 7.0) as i64;
        match dtype {
            DType::F32 => bytes.extend((real as f32).to_le_bytes()),
            DType::F64 => bytes.extend(real.to_le_bytes()),
            DType::F16 => bytes.extend(half::f16::from_f64(real).to_le_bytes()),
            DType::BF16 => bytes.extend(half::bf16::from_f64(real).to_le_bytes()),
            DType::Bool => bytes.push(u8::from(unit > 0.5)),
            DType::I8 => bytes.extend((whole as i8 - 3).to_le_bytes()),
            DType::U8 => bytes.push(whole as u8),
            DType::I16 => bytes.extend((whole as i16 - 3).to_le_bytes()),
            DType::U16 => bytes.extend((whole as u16).to_le_bytes()),
            DType::I32 => bytes.extend((whole as i32 - 3).to_le_bytes()),
            DType::U32 => bytes.extend((whole as u32).to_le_bytes()),
            // Usable as indices.
            DType::I64 => bytes.extend(whole.to_le_bytes()),
            DType::U64 => bytes.extend((whole as u64).to_le_bytes()),
            DType::C64 => {
                bytes.extend((real as f32).to_le_bytes());
                bytes.extend((unit as f32).to_le_bytes());
            }
            DType::C128 => {
                bytes.extend(real.to_le_bytes());
                bytes.extend(unit.to_le_bytes());
            }
        }
    }
    Literal::new(dtype, shape.to_vec(), bytes).expect("the data has the size of its type")
}

/// Data for every input of a graph.
pub fn inputs(graph: &Graph, rank: u32) -> Vec<Literal> {
    graph
        .inputs()
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let ty = graph.ty(input.value);
            data(
                ty.dtype,
                &ty.shape.as_fixed().expect("sizes are fixed"),
                rank,
                index,
            )
        })
        .collect()
}

pub fn upload(runtime: &Runtime, literals: &[Literal]) -> Vec<Array> {
    literals
        .iter()
        .map(|l| {
            runtime
                .array(l.dtype, &l.shape, &l.bytes)
                .expect("there is memory")
        })
        .collect()
}

pub fn download(array: &Array) -> Literal {
    let bytes = array.to_host().expect("the array can be read");
    Literal::new(array.dtype(), array.shape().to_vec(), bytes).expect("sizes fit")
}

/// The elements as numbers; complex ones as two.
pub fn numbers(literal: &Literal) -> Vec<f64> {
    fn all<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes
            .chunks_exact(N)
            .map(|chunk| f(chunk.try_into().unwrap()))
            .collect()
    }
    let bytes = &literal.bytes;
    match literal.dtype {
        DType::Bool | DType::U8 => all(bytes, |[b]| f64::from(b)),
        DType::I8 => all(bytes, |b| f64::from(i8::from_le_bytes(b))),
        DType::I16 => all(bytes, |b| f64::from(i16::from_le_bytes(b))),
        DType::U16 => all(bytes, |b| f64::from(u16::from_le_bytes(b))),
        DType::I32 => all(bytes, |b| f64::from(i32::from_le_bytes(b))),
        DType::U32 => all(bytes, |b| f64::from(u32::from_le_bytes(b))),
        DType::I64 => all(bytes, |b| i64::from_le_bytes(b) as f64),
        DType::U64 => all(bytes, |b| u64::from_le_bytes(b) as f64),
        DType::F16 => all(bytes, |b| half::f16::from_le_bytes(b).to_f64()),
        DType::BF16 => all(bytes, |b| half::bf16::from_le_bytes(b).to_f64()),
        DType::F32 | DType::C64 => all(bytes, |b| f64::from(f32::from_le_bytes(b))),
        DType::F64 | DType::C128 => all(bytes, f64::from_le_bytes),
    }
}

/// Asserts that two values agree as far as their type can.
#[track_caller]
pub fn assert_close(got: &Literal, expected: &Literal, what: &str) {
    assert_eq!(got.ty(), expected.ty(), "{what}");
    let tolerance = match got.dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        DType::F32 | DType::C64 => 2e-5,
        DType::F64 | DType::C128 => 1e-12,
        _ => 0.0,
    };
    for (index, (got, expected)) in numbers(got).into_iter().zip(numbers(expected)).enumerate() {
        let close = got == expected
            || (got.is_nan() && expected.is_nan())
            || (got - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(
            close,
            "{what}: element {index} is {got}, expected {expected}"
        );
    }
}

/// Compiles and runs `graphs[rank]` in every mode on the data of [`inputs`], compares with the
/// oracle, and asserts that the modes agree bit by bit.
pub fn check_against_oracle(rank: &Rank, graphs: &[Graph]) {
    let all: Vec<Vec<Literal>> = (0..)
        .zip(graphs)
        .map(|(rank, graph)| inputs(graph, rank))
        .collect();
    let expected = interpret(graphs, &all).unwrap_or_else(|error| panic!("{error}"));
    let own = &graphs[rank.rank() as usize];
    let expected = &expected[rank.rank() as usize];
    let runtime = runtime(rank);
    let mut first: Option<Vec<Literal>> = None;
    for mode in Mode::ALL {
        let options = CompileOptions {
            mode,
            ..CompileOptions::default()
        };
        let executable = runtime
            .compile(own, &options)
            .unwrap_or_else(|e| panic!("{mode:?}: {e}"));
        for round in 0..2 {
            let arrays = upload(&runtime, &all[rank.rank() as usize]);
            let outputs = executable
                .run(&arrays)
                .unwrap_or_else(|e| panic!("{mode:?}: {e}"));
            let what = format!("rank {} {mode:?} round {round}", rank.rank());
            let mut values = Vec::new();
            for (index, (got, expected)) in outputs.iter().zip(&expected.outputs).enumerate() {
                let got = download(got);
                assert_close(&got, expected, &format!("{what} output {index}"));
                values.push(got);
            }
            for (index, (array, expected)) in arrays.iter().zip(&expected.inputs_after).enumerate()
            {
                let got = download(array);
                assert_close(&got, expected, &format!("{what} input {index} afterwards"));
                values.push(got);
            }
            match &first {
                Some(first) => assert_eq!(*first, values, "{what}: bits differ between modes"),
                None => first = Some(values),
            }
        }
    }
}
