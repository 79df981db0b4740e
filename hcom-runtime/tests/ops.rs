//! Every operation, compiled and eager, against the oracle.

mod common;

use common::*;
use hcom_ir::{Attrs, DType, Graph, Group, Literal, Op, interpret};
use hcom_runtime::{Error, Runtime};
use hcom_test::{Kind, ranks};

/// Declared inputs and the operation on them.
const OPS: &[(&str, &str)] = &[
    ("%a: f32[3, 4]", "copy %a"),
    ("%a: f32[3, 4]", "cast %a, to = bf16"),
    ("%a: f32[3, 4]", "cast %a, to = i32"),
    ("%a: i64[5]", "cast %a, to = f32"),
    ("%a: f32[3, 4], %b: f32[4]", "add %a, %b"),
    ("%a: i32[3, 4], %b: i32[3, 1]", "add %a, %b"),
    ("%a: bool[9], %b: bool[9]", "add %a, %b"),
    ("%a: f16[3, 4], %b: f16[3, 4]", "sub %a, %b"),
    ("%a: bf16[3, 4], %b: bf16[4]", "mul %a, %b"),
    ("%a: bool[9], %b: bool[9]", "mul %a, %b"),
    ("%a: f32[3, 4], %b: f32[3, 4]", "div %a, %b"),
    ("%a: f32[2, 1, 4], %b: f32[3, 1]", "maximum %a, %b"),
    ("%a: i32[6], %b: i32[6]", "minimum %a, %b"),
    ("%a: f32[3, 4]", "neg %a"),
    ("%a: f32[3, 4]", "abs %a"),
    ("%a: f32[3, 4]", "exp %a"),
    ("%a: f32[3, 4]", "tanh %a"),
    ("%a: f32[3, 4]", "sigmoid %a"),
    ("%a: f32[3, 4]", "relu %a"),
    ("%a: f32[3, 4]", "gelu %a"),
    ("%a: f32[3, 4]", "gelu %a, approximate = tanh"),
    ("%a: f32[3, 4]", "silu %a"),
    (
        "%c: bool[3, 4], %a: f32[4], %b: f32[3, 1]",
        "where %c, %a, %b",
    ),
    ("%a: f32[3, 4], %b: f32[3, 4]", "equal %a, %b"),
    ("%a: f32[3, 4], %b: f32[4]", "less %a, %b"),
    ("%a: i32[3, 4], %b: i32[4]", "greater %a, %b"),
    ("%a: f32[3, 4], %b: f32[4, 5]", "matmul %a, %b"),
    (
        "%a: f32[4, 3], %b: f32[5, 4]",
        "matmul %a, %b, transpose_a = true, transpose_b = true",
    ),
    ("%a: f32[2, 3, 4], %b: f32[4, 5]", "matmul %a, %b"),
    (
        "%a: f32[2, 1, 3, 4], %b: f32[3, 5, 4]",
        "matmul %a, %b, transpose_b = true",
    ),
    ("%a: bf16[3, 4], %b: bf16[4, 5]", "matmul %a, %b"),
    ("%a: f32[3, 0], %b: f32[0, 5]", "matmul %a, %b"),
    ("%a: f32[3, 4], %b: f32[4]", "bias_add %a, %b"),
    ("%a: f32[3, 4]", "softmax %a"),
    ("%a: f32[3, 4]", "softmax %a, dim = 0"),
    (
        "%a: f32[3, 4], %w: f32[4], %b: f32[4]",
        "layer_norm %a, %w, %b, eps = 0.001",
    ),
    ("%a: f32[3, 4], %w: f32[4]", "rms_norm %a, %w"),
    ("%a: f32[7, 4], %i: i64[2, 3]", "embedding %a, %i"),
    ("%a: f32[3, 4]", "reshape %a, shape = [2, 6]"),
    ("%a: f32[2, 3, 4]", "transpose %a, perm = [2, 0, 1]"),
    (
        "%a: f32[3, 8]",
        "slice %a, dim = 1, start = 1, end = 8, step = 3",
    ),
    (
        "%a: f32[3, 2], %b: f32[3, 0], %c: f32[3, 3]",
        "concat %a, %b, %c, dim = 1",
    ),
    ("%a: f32[1, 4]", "expand %a, shape = [2, 3, 4]"),
    (
        "%a: f32[2, 3]",
        "pad %a, low = [1, 0], high = [0, 2], value = 0.5",
    ),
    ("%a: f32[2, 3, 4]", "sum %a, dims = [0, 2]"),
    ("%a: i32[2, 3]", "sum %a, dims = [1], keepdim = true"),
    ("%a: f32[2, 0]", "sum %a, dims = [1]"),
    ("%a: f32[2, 3]", "mean %a, dims = [1]"),
    ("%a: f32[2, 0]", "mean %a, dims = [1]"),
    ("%a: f32[2, 3]", "max %a, dims = [0]"),
    ("%a: bool[4, 3]", "sum %a, dims = [1]"),
    ("%a: f32[2, 3]", "argmax %a, dim = 1, keepdim = true"),
    ("", "arange start = 2, end = 9, step = 3, dtype = i64"),
    ("", "arange start = 0.5, end = 2.5, step = 0.5, dtype = f32"),
    ("", "fill shape = [2, 3], value = 7, dtype = i32"),
    ("%a: f32[4, 5]", "tril %a, diagonal = 1"),
    ("%a: f32[4, 5]", "triu %a, diagonal = -1"),
    (
        "%q: f32[2, 3, 4], %k: f32[2, 5, 4], %v: f32[2, 5, 6]",
        "attention %q, %k, %v, scale = 0.5",
    ),
    (
        "%q: f32[2, 3, 4], %k: f32[2, 5, 4], %v: f32[2, 5, 6], %m: f32[3, 5]",
        "attention %q, %k, %v, %m, scale = 0.5, causal = true",
    ),
    (
        "%q: f32[2, 3, 4], %k: f32[2, 5, 4], %v: f32[2, 5, 6]",
        "attention %q, %k, %v, scale = 0.5, causal = true",
    ),
    (
        "%q: f32[2, 3, 4], %k: f32[2, 5, 4], %v: f32[2, 5, 6], %m: f32[3, 5]",
        "attention %q, %k, %v, %m, scale = 0.5",
    ),
    ("%a: f32[0, 4]", "exp %a"),
    ("%a: f32[]", "exp %a"),
];

fn program(inputs: &str, op: &str) -> Graph {
    // The result's type comes from the oracle's side of the table, through an untyped probe.
    graph(&format!(
        "hcom 1\ngraph @one({inputs}) {{\n  %y = {op}\n  return %y\n}}\n"
    ))
}

fn eager(
    runtime: &Runtime,
    graph: &Graph,
    inputs: &[Literal],
    group: Option<&Group>,
) -> Vec<Literal> {
    let (_, node) = graph.nodes().next().expect("the program has one node");
    let arrays = upload(runtime, inputs);
    let operands: Vec<_> = arrays.iter().collect();
    let outputs = runtime
        .eager(node.op, &node.attrs, group, &operands)
        .unwrap_or_else(|error| panic!("{graph}: {error}"));
    outputs.iter().map(download).collect()
}

#[test]
fn every_operation_agrees_with_the_oracle() {
    ranks(1, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let mut failures = Vec::new();
        for (declared, op) in OPS {
            let graph = program(declared, op);
            let inputs = inputs(&graph, 0);
            let expected =
                &interpret(&[&graph], std::slice::from_ref(&inputs)).expect("the oracle runs")[0];
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let got = eager(&runtime, &graph, &inputs, None);
                assert_close(&got[0], &expected.outputs[0], op);
                let executable = runtime
                    .compile(&graph, &Default::default())
                    .unwrap_or_else(|error| panic!("{error}"));
                let outputs = executable.run(&upload(&runtime, &inputs)).expect("it runs");
                assert_eq!(download(&outputs[0]), got[0], "compiled and eager differ");
            }));
            if found.is_err() {
                failures.push(format!("{op} of ({declared})"));
            }
        }
        assert!(failures.is_empty(), "{failures:#?}");
    });
}

#[test]
fn operations_with_ranges_of_their_own() {
    ranks(1, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let positive = Literal::from_slice(&[4], &[0.25f32, 1.0, 4.0, 9.0]).unwrap();
        for op in ["log", "sqrt", "rsqrt"] {
            let graph = program("%a: f32[4]", &format!("{op} %a"));
            let expected = &interpret(&[&graph], &[vec![positive.clone()]]).unwrap()[0];
            let got = eager(&runtime, &graph, std::slice::from_ref(&positive), None);
            assert_close(&got[0], &expected.outputs[0], op);
        }
        let graph = program("%a: f32[4], %b: f32[4]", "pow %a, %b");
        let inputs = vec![positive.clone(), positive];
        let expected = &interpret(&[&graph], std::slice::from_ref(&inputs)).unwrap()[0];
        assert_close(
            &eager(&runtime, &graph, &inputs, None)[0],
            &expected.outputs[0],
            "pow",
        );

        let graph = program("%a: f32[3, 4], %i: i64[2, 4]", "gather %a, %i, dim = 0");
        let index = Literal::from_slice(&[2, 4], &[0i64, 2, 1, 0, 2, 2, 0, 1]).unwrap();
        let inputs = vec![data(DType::F32, &[3, 4], 0, 0), index];
        let expected = &interpret(&[&graph], std::slice::from_ref(&inputs)).unwrap()[0];
        assert_close(
            &eager(&runtime, &graph, &inputs, None)[0],
            &expected.outputs[0],
            "gather",
        );
    });
}

/// Collectives on two ranks.
const COLLECTIVES: &[(&str, &str)] = &[
    ("%a: f32[6]", "all_reduce %a, op = sum, group = @g"),
    ("%a: bf16[6]", "all_reduce %a, op = sum, group = @g"),
    ("%a: i64[6]", "all_reduce %a, op = max, group = @g"),
    ("%a: f32[6]", "all_reduce %a, op = avg, group = @g"),
    ("%a: f16[6]", "all_reduce %a, op = avg, group = @g"),
    (
        "%a: f32[6]",
        "all_reduce %a, op = premul_sum, factor = 0.5, group = @g",
    ),
    ("%a: bool[6]", "all_reduce %a, op = sum, group = @g"),
    ("%a: bool[6]", "all_reduce %a, op = prod, group = @g"),
    ("%a: f32[0]", "all_reduce %a, op = sum, group = @g"),
    ("%a: f32[2, 3]", "all_gather %a, group = @g"),
    ("%a: i32[2, 3]", "all_gather %a, dim = 1, group = @g"),
    ("%a: f32[4, 3]", "reduce_scatter %a, op = sum, group = @g"),
    (
        "%a: f32[2, 4]",
        "reduce_scatter %a, op = sum, dim = 1, group = @g",
    ),
    ("%a: f32[2, 3]", "broadcast %a, root = 1, group = @g"),
];

#[test]
fn collectives_agree_with_the_oracle() {
    for kind in Kind::ALL {
        ranks(2, kind, TIMEOUT, |rank| {
            let runtime = runtime(&rank);
            let group = Group::new("g", vec![0, 1]);
            for (declared, op) in COLLECTIVES {
                let text = format!(
                    "hcom 1\ngroup @g = ranks(0, 1)\ngraph @one({declared}) {{\n  %y = {op}\n  return %y\n}}\n"
                );
                let graph = graph(&text);
                let all = [inputs(&graph, 0), inputs(&graph, 1)];
                let expected = interpret(&[&graph, &graph], &all).expect("the oracle runs");
                let own = rank.rank() as usize;
                let got = eager(&runtime, &graph, &all[own], Some(&group));
                assert_close(&got[0], &expected[own].outputs[0], op);
                let executable = runtime
                    .compile(&graph, &Default::default())
                    .unwrap_or_else(|e| panic!("{op}: {e}"));
                let outputs = executable
                    .run(&upload(&runtime, &all[own]))
                    .expect("it runs");
                assert_eq!(
                    download(&outputs[0]),
                    got[0],
                    "{op}: compiled and eager differ"
                );
            }
        });
    }
}

#[test]
fn what_cannot_be_executed_is_a_clear_error() {
    ranks(1, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let graph = program("%a: u64[4], %b: u64[4]", "div %a, %b");
        let error = runtime
            .compile(&graph, &Default::default())
            .err()
            .expect("it is refused");
        assert!(
            matches!(error, Error::Unsupported { op: "div", .. }),
            "{error}"
        );
        let graph = program("%a: i32[4, 4], %b: i32[4, 4]", "matmul %a, %b");
        let error = runtime
            .compile(&graph, &Default::default())
            .err()
            .expect("it is refused");
        assert!(error.to_string().contains("matmul %a, %b"), "{error}");
        let wrong = runtime
            .eager(Op::Exp, &Attrs::new(), None, &[])
            .expect_err("an operand misses");
        assert!(matches!(wrong, Error::Graph(_)), "{wrong}");
    });
}
