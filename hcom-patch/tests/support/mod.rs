//! Real ranks that compile and run functions.

#![allow(dead_code, reason = "each test crate uses a part")]

use hcom_ir::{Literal, Type, interpret, parse};
use hcom_patch::{Collectives, Compiled, Config, Error, Tensor, compile, dist, export};
use hcom_runtime::{Runtime, Settings};
use hcom_test::{Kind, Rank};
use std::time::{Duration, Instant};

/// Runs `f` on `n` ranks of either kind.
pub(crate) fn ranks(n: u32, kind: Kind, f: impl Fn(Rank) + Send + Sync + 'static) {
    hcom_test::ranks(n, kind, Duration::from_secs(100), move |rank| {
        hcom_sys::register_fallback(hcom_fake::table());
        let settings = Settings::from_env().unwrap();
        let runtime = Runtime::with_control(rank.control(), rank.rank(), &settings).unwrap();
        dist::init_with(runtime);
        f(rank);
        dist::finalize();
    });
}

pub(crate) fn recorded() -> Config {
    Config {
        collectives: Collectives::Recorded,
        ..Config::default()
    }
}

pub(crate) fn cut() -> Config {
    Config {
        collectives: Collectives::Cut,
        ..Config::default()
    }
}

pub(crate) fn f32s(values: &[f32], shape: &[u64]) -> Tensor {
    Tensor::from_slice(values, shape).unwrap()
}

pub(crate) fn read(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

pub(crate) fn world() -> dist::Group {
    dist::world().unwrap()
}

#[track_caller]
pub(crate) fn assert_close(actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len());
    for (index, (a, b)) in actual.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-4, "element {index}: {a} against {b}");
    }
}

/// Compiles a function of one tensor that gives one tensor.
pub(crate) fn one<F>(
    f: F,
    config: Config,
) -> Compiled<impl Fn(&[Tensor]) -> Result<Vec<Tensor>, Error>>
where
    F: Fn(&Tensor) -> Result<Tensor, Error>,
{
    compile(move |x: &[Tensor]| Ok(vec![f(&x[0])?]), config)
}

/// Runs `f` eagerly and compiled on all ranks of the world, and its graphs by the interpreter;
/// fails unless every rank gets the same from all three, to the bit, and returns it.
///
/// `f` must not write its arguments.
#[track_caller]
pub(crate) fn same_everywhere(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>, Error>,
    arguments: &[Tensor],
) -> Vec<Tensor> {
    let literals = |tensors: &[Tensor]| -> Vec<Literal> {
        tensors.iter().map(|x| x.to_literal().unwrap()).collect()
    };
    let eager = f(arguments).unwrap();
    let expected = literals(&eager);

    let placeholders: Vec<Tensor> = arguments
        .iter()
        .map(|x| Tensor::placeholder(x.dtype(), x.shape()))
        .collect();
    let text = export("f", &f, &placeholders).unwrap().to_string();
    let inputs: Vec<Vec<u8>> = literals(arguments).into_iter().map(|x| x.bytes).collect();
    let (mut graphs, mut data) = (Vec::new(), Vec::new());
    let bytes = inputs.concat();
    for (text, bytes) in gathered("graphs", text.as_bytes())
        .iter()
        .zip(gathered("inputs", &bytes))
    {
        let graph = parse(std::str::from_utf8(text).unwrap(), "f.hcom").unwrap();
        let mut rest = &bytes[..];
        let literal = |ty: &Type| {
            let shape = ty.shape.as_fixed().unwrap();
            let size = ty.dtype.bytes() * shape.iter().product::<u64>();
            let (own, after) = rest.split_at(size as usize);
            rest = after;
            Literal {
                dtype: ty.dtype,
                shape,
                bytes: own.to_vec(),
            }
        };
        let types = graph.inputs().iter().map(|input| graph.ty(input.value));
        data.push(types.map(literal).collect());
        graphs.push(graph);
    }
    let own = dist::rank().unwrap() as usize;
    assert_eq!(interpret(&graphs, &data).unwrap()[own].outputs, expected);

    let compiled = compile(&f, recorded());
    for _ in 0..2 {
        assert_eq!(literals(&compiled.call(arguments).unwrap()), expected);
    }
    eager
}

/// The `bytes` of every rank of the world.
fn gathered(key: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    let runtime = dist::runtime().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let control = runtime.control();
    control
        .all_gather(world().ranks(), key, bytes, deadline)
        .unwrap()
}

/// An error with its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
