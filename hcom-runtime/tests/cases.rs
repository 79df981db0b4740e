//! Programs that other systems got wrong.

mod common;

use common::*;
use hcom_ir::{Attrs, DType, Graph, Group, Literal, Op, ReduceOp};
use hcom_runtime::{CompileOptions, Error, Mode};
use hcom_test::{Kind, ranks};

fn f32s(shape: &[u64], values: &[f32]) -> Literal {
    Literal::from_slice(shape, values).unwrap()
}

/// A collective's input and output must not be reused while another operation needs them.
#[test]
fn a_result_that_is_read_twice_is_not_overwritten() {
    ranks(2, Kind::Processes, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let graph = graph(
            "hcom 1
group @g = ranks(0, 1)
graph @f(%a: f32[2, 2]) -> f32[2, 2] {
  %s = all_reduce %a, op = sum, group = @g
  %c = relu %s
  %p = matmul %c, %c
  %y = add %p, %s
  return %y
}
",
        );
        let a = f32s(&[2, 2], &[1.0, -1.0, 0.0, 2.0]);
        for mode in Mode::ALL {
            let options = CompileOptions {
                mode,
                ..Default::default()
            };
            let executable = runtime.compile(&graph, &options).unwrap();
            let arrays = upload(&runtime, std::slice::from_ref(&a));
            for _ in 0..20 {
                let outputs = executable.run(&arrays).unwrap();
                // s = [[2, -2], [0, 4]], c = [[2, 0], [0, 4]], c c + s.
                assert_eq!(
                    download(&outputs[0]),
                    f32s(&[2, 2], &[6.0, -2.0, 0.0, 20.0])
                );
            }
            assert_eq!(download(&arrays[0]), a, "the input stays what it was");
        }
    });
}

/// An in-place collective inside of a compiled function reaches the caller's array.
#[test]
fn a_written_input_is_written_and_read_correctly() {
    ranks(2, Kind::Processes, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let graph = graph(
            "hcom 1
group @g = ranks(0, 1)
graph @f(%x: mut f32[2]) -> f32[2] {
  %s = all_reduce %x, op = sum, group = @g
  %two = constant value = f32[] 2.0
  %y = mul %s, %two
  copy_to_input %s, %x
  return %y
}
",
        );
        for mode in Mode::ALL {
            let options = CompileOptions {
                mode,
                ..Default::default()
            };
            let executable = runtime.compile(&graph, &options).unwrap();
            let x = f32s(&[2], &[rank.rank() as f32 + 1.0, 10.0]);
            let arrays = upload(&runtime, &[x]);
            let outputs = executable.run(&arrays).unwrap();
            assert_eq!(download(&outputs[0]), f32s(&[2], &[6.0, 40.0]));
            assert_eq!(download(&arrays[0]), f32s(&[2], &[3.0, 20.0]));
        }
    });
}

/// The caller overwrites its input as soon as the collective was issued; peers must not see that.
#[test]
fn overwriting_an_input_after_the_call_harms_nobody() {
    ranks(4, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let group = Group::new("g", vec![0, 1, 2, 3]);
        let graph = graph(
            "hcom 1
group @g = ranks(0, 1, 2, 3)
graph @f(%x: f32[64]) -> f32[64] {
  %y = all_reduce %x, op = sum, group = @g
  return %y
}
",
        );
        let executable = runtime.compile(&graph, &Default::default()).unwrap();
        let nan = upload(&runtime, &[f32s(&[64], &[f32::NAN; 64])]).remove(0);
        let attrs = Attrs::new().with("op", ReduceOp::Sum);
        for round in 0..150 {
            let value = (rank.rank() + 1) as f32 + round as f32;
            let x = upload(&runtime, &[f32s(&[64], &[value; 64])]).remove(0);
            let y = if round % 2 == 0 {
                executable.run(std::slice::from_ref(&x)).unwrap().remove(0)
            } else {
                runtime
                    .eager(Op::AllReduce, &attrs, Some(&group), &[&x])
                    .unwrap()
                    .remove(0)
            };
            runtime
                .eager(Op::CopyToInput, &Attrs::new(), None, &[&nan, &x])
                .unwrap();
            let expected = 10.0 + 4.0 * round as f32;
            assert_eq!(download(&y), f32s(&[64], &[expected; 64]), "round {round}");
        }
    });
}

/// Two inputs swap their values: each write needs the other's old value.
#[test]
fn inputs_can_swap() {
    ranks(1, Kind::Threads, TIMEOUT, |rank| {
        let graph = graph(
            "hcom 1
graph @f(%a: mut f32[3], %b: mut f32[3]) -> (f32[3], f32[3, 1], f32[3]) {
  %s = add %a, %b
  %r = reshape %a, shape = [3, 1]
  %old = reshape %a, shape = [3]
  copy_to_input %b, %a
  copy_to_input %old, %b
  return %s, %r, %old
}
",
        );
        check_against_oracle(&rank, &[graph]);
    });
}

/// Outputs that are inputs, constants, reshapes and duplicates are arrays of their own.
#[test]
fn outputs_never_share_memory() {
    ranks(1, Kind::Threads, TIMEOUT, |rank| {
        let graph = graph(
            "hcom 1
graph @f(%a: f32[4]) -> (f32[4], f32[2, 2], i64[2], f32[4], f32[4]) {
  %r = reshape %a, shape = [2, 2]
  %c = constant value = i64[2] [3, 4]
  %e = exp %a
  %same = reshape %e, shape = [4]
  return %a, %r, %c, %e, %same
}
",
        );
        check_against_oracle(&rank, std::slice::from_ref(&graph));
        let runtime = runtime_of_one();
        let executable = runtime.compile(&graph, &Default::default()).unwrap();
        let arrays = upload(&runtime, &inputs(&graph, 0));
        let outputs = executable.run(&arrays).unwrap();
        for (index, one) in outputs.iter().enumerate() {
            assert!(!one.same_memory(&arrays[0]));
            assert!(outputs[..index].iter().all(|other| !other.same_memory(one)));
        }
    });
}

fn runtime_of_one() -> hcom_runtime::Runtime {
    let control = hcom_runtime::InProcess::new(1).remove(0);
    hcom_runtime::Runtime::with_control(control, 1, &Default::default()).unwrap()
}

/// Two micro-batches over two groups that overlap in one rank or more.
fn mesh(rank: u32) -> Graph {
    let row = if rank < 2 { "0, 1" } else { "2, 3" };
    let column = if rank.is_multiple_of(2) {
        "0, 2"
    } else {
        "1, 3"
    };
    graph(&format!(
        "hcom 1
group @row = ranks({row})
group @column = ranks({column})
group @all = ranks(0, 1, 2, 3)
graph @f(%x: f32[8, 8], %y: f32[8, 8]) -> (f32[8, 8], f32[8, 8]) {{
  %a = matmul %x, %y
  %b = all_reduce %a, op = sum, group = @row
  %c = matmul %y, %x
  %d = all_reduce %c, op = sum, group = @column
  %e = add %b, %d
  %f = all_reduce %e, op = max, group = @all
  %g = reduce_scatter %b, op = sum, group = @row
  %h = all_gather %g, group = @column
  %i = sub %f, %h
  return %f, %i
}}
"
    ))
}

#[test]
fn rows_and_columns_of_a_mesh() {
    ranks(4, Kind::Threads, TIMEOUT, |rank| {
        let graphs: Vec<Graph> = (0..4).map(mesh).collect();
        check_against_oracle(&rank, &graphs);
    });
}

#[test]
fn wrong_calls_are_clear_errors() {
    ranks(1, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let graph = graph(
            "hcom 1
graph @f(%x: mut f32[2], %y: f32[2]) -> f32[2] {
  %s = add %x, %y
  copy_to_input %s, %x
  return %s
}
",
        );
        let executable = runtime.compile(&graph, &Default::default()).unwrap();
        let x = runtime.array(DType::F32, &[2], &[0; 8]).unwrap();
        let long = runtime.empty(DType::F32, &[3]).unwrap();
        let error = executable.run(std::slice::from_ref(&x)).unwrap_err();
        assert_eq!(error.to_string(), "graph f takes 2 inputs, got 1");
        let error = executable.run(&[x.clone(), long]).unwrap_err();
        assert_eq!(error.to_string(), "input %y is f32[2], got f32[3]");
        let error = executable.run(&[x.clone(), x.clone()]).unwrap_err();
        assert!(matches!(error, Error::InputAlias { .. }), "{error}");
        let error = runtime.array(DType::F32, &[2], &[0; 7]).unwrap_err();
        assert_eq!(error.to_string(), "f32[2] holds 8 bytes, got 7");
    });
}
