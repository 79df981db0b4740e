//! Models split over ranks against the whole model.

mod common;
mod support;

use common::{Layer, Mlp, Model, WIDTH, values};
use hcom_ir::interpret;
use hcom_patch::{Config, DType, Literal, Tensor, dist, export};
use hcom_runtime::{Mode, Uniformity};
use hcom_test::Kind;
use std::cell::RefCell;
use std::collections::HashMap;
use support::{assert_close, cut, f32s, one, ranks, read, recorded};

/// The whole model, by the interpreter of graphs.
fn oracle<M: Model>(x: &[f32], shape: &[u64]) -> Vec<f32> {
    let weights = RefCell::new(HashMap::new());
    let make = |name: &str, values: &[f32], shape: &[u64]| {
        let literal = Literal::from_slice(shape, values).unwrap();
        weights.borrow_mut().insert(name.to_owned(), literal);
        Tensor::placeholder(DType::F32, shape).named(name)
    };
    dist::init_abstract(0, 1).unwrap();
    let model = M::new(&make, (0, 1));
    make("x", x, shape);
    let argument = Tensor::placeholder(DType::F32, shape).named("x");
    let forward = |x: &[Tensor]| Ok(vec![model.forward(&x[0])?]);
    let graph = export("whole", forward, &[argument]).unwrap();
    let weights = weights.into_inner();
    let inputs = graph
        .inputs()
        .iter()
        .map(|input| weights[&input.name].clone());
    let inputs: Vec<Literal> = inputs.collect();
    let mut results = interpret(&[graph], &[inputs]).unwrap();
    results.remove(0).outputs[0].to_vec().unwrap()
}

/// A model split over `n` ranks computes what the whole one does: eager, as one graph in every
/// mode, and cut at every collective.
fn model_agrees<M: Model + 'static>(n: u32, kind: Kind, collectives: usize) {
    let (data, shape) = (values(3 * WIDTH, 1), [3, WIDTH]);
    let expected = oracle::<M>(&data, &shape);
    ranks(n, kind, move |rank| {
        let with_data = |name: &str, values: &[f32], shape: &[u64]| f32s(values, shape).named(name);
        let model = M::new(&with_data, (rank.rank(), n));
        let x = f32s(&data, &shape);
        let eager = read(&model.forward(&x).unwrap());
        assert_close(&eager, &expected);
        for mode in [Mode::Overlapped, Mode::SingleStream, Mode::Split] {
            let compiled = one(|x| model.forward(x), Config { mode, ..recorded() });
            for _ in 0..2 {
                let y = compiled.call(std::slice::from_ref(&x)).unwrap();
                assert_close(&read(&y[0]), &expected);
            }
            let report = compiled.report();
            assert_eq!((report.graphs, report.collectives), (1, collectives));
            assert_eq!(
                (report.recordings, report.replays, report.compiles),
                (1, 1, 1)
            );
            assert_eq!(report.uniformity, Uniformity::Uniform);
        }
        let pieces = one(|x| model.forward(x), cut());
        for _ in 0..2 {
            let y = pieces.call(std::slice::from_ref(&x)).unwrap();
            assert_close(&read(&y[0]), &expected);
        }
        let report = pieces.report();
        assert_eq!((report.graphs, report.collectives), (collectives + 1, 0));
        // The function runs each time, its pieces are compiled once.
        assert_eq!((report.recordings, report.replays), (2, 0));
        assert_eq!(report.compiles, collectives as u64 + 1);
    });
}

#[test]
fn a_perceptron_agrees_on_threads() {
    for n in [1, 2, 4] {
        model_agrees::<Mlp>(n, Kind::Threads, 1);
    }
}

#[test]
fn a_perceptron_agrees_on_processes() {
    model_agrees::<Mlp>(2, Kind::Processes, 1);
}

#[test]
fn a_transformer_layer_agrees_on_threads() {
    for n in [1, 2, 4] {
        model_agrees::<Layer>(n, Kind::Threads, 2);
    }
}

#[test]
fn a_transformer_layer_agrees_on_processes() {
    model_agrees::<Layer>(4, Kind::Processes, 2);
}
