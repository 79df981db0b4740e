//! What the converted graphs compute, by the interpreter.

use half::{bf16, f16};
use hcom_convert::{Call, Context, Reduction, Root, all_gather, convert, reduce_scatter};
use hcom_ir::{
    Builder, Element, Graph, Group, GroupId, Literal, ReduceOp, Type, ValueId, interpret,
};

/// Records the same call on every rank of a world and returns every rank's result.
fn run<T: Element>(
    inputs: &[(&[u64], &[T])],
    record: impl Fn(&mut Context<'_>, ValueId, GroupId) -> ValueId,
) -> Vec<Vec<T>> {
    let world_size = u32::try_from(inputs.len()).unwrap();
    let ranks: Vec<u32> = (0..world_size).collect();
    let graphs: Vec<Graph> = ranks
        .iter()
        .zip(inputs)
        .map(|(rank, (shape, _))| {
            let mut builder = Builder::new("f");
            let group = builder.group(Group::new("world", ranks.clone()));
            let x = builder.input("x", Type::fixed(T::DTYPE, shape), false);
            let mut context = Context {
                builder: &mut builder,
                rank: *rank,
                world_size,
            };
            let y = record(&mut context, x, group);
            builder.finish(vec![("y".to_owned(), y)]).unwrap()
        })
        .collect();
    let inputs: Vec<Vec<Literal>> = inputs
        .iter()
        .map(|(shape, values)| vec![Literal::from_slice(shape, values).unwrap()])
        .collect();
    let results = interpret(&graphs, &inputs).unwrap();
    results
        .iter()
        .map(|result| result.outputs[0].to_vec().unwrap())
        .collect()
}

/// Reduces one element per rank; all ranks get the same.
fn all_reduce<T: Element + PartialEq + std::fmt::Debug>(
    values: &[T],
    reduction: impl Into<Reduction>,
) -> T {
    let reduction = reduction.into();
    let inputs: Vec<(&[u64], &[T])> = values
        .iter()
        .map(|value| (&[1u64][..], std::slice::from_ref(value)))
        .collect();
    let results = run(&inputs, |context, x, group| {
        let call = Call::AllReduce { reduction };
        convert(context, &call, &[x], group).unwrap()[0]
    });
    assert!(results.iter().all(|result| *result == results[0]));
    results[0][0]
}

#[test]
fn means() {
    let large = f16::from_f32(40000.0);
    assert_eq!(all_reduce(&[large, large], ReduceOp::Avg), large);
    assert_eq!(all_reduce(&[-3i32, 0], ReduceOp::Avg), -1);
    assert_eq!(
        all_reduce(&[i32::MIN, i32::MIN + 2], ReduceOp::Avg),
        i32::MIN + 1
    );
    assert_eq!(all_reduce(&[200u8, 100, 201], ReduceOp::Avg), 167);
    assert_eq!(all_reduce(&[1.0f64, 2.0, 4.5], ReduceOp::Avg), 2.5);
}

#[test]
fn unsigned_integers_wrap_and_order_as_such() {
    assert_eq!(all_reduce(&[200u8, 100], ReduceOp::Sum), 44);
    assert_eq!(all_reduce(&[200u8, 3], ReduceOp::Prod), 88);
    assert_eq!(all_reduce(&[u32::MAX, 1], ReduceOp::Min), 1);
    assert_eq!(all_reduce(&[u16::MAX, 1], ReduceOp::Max), u16::MAX);
    assert_eq!(all_reduce(&[u64::MAX, 3], ReduceOp::Sum), 2);
    assert_eq!(all_reduce(&[u64::MAX, 3], ReduceOp::Prod), u64::MAX - 2);
    assert_eq!(all_reduce(&[u64::MAX, 3], ReduceOp::Max), u64::MAX);
    assert_eq!(all_reduce(&[i16::MAX, 3], ReduceOp::Prod), 32765);
}

#[test]
fn booleans() {
    for (ranks, any, all) in [
        ([true, false, false], true, false),
        ([true, true, true], true, true),
        ([false, false, false], false, false),
    ] {
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Bor] {
            assert_eq!(all_reduce(&ranks, op), any);
        }
        for op in [ReduceOp::Prod, ReduceOp::Min, ReduceOp::Band] {
            assert_eq!(all_reduce(&ranks, op), all);
        }
    }
}

#[test]
fn scaled_sums() {
    assert_eq!(all_reduce(&[4.0f32], Reduction::premul_sum(0.5)), 2.0);
    assert_eq!(
        all_reduce(&[1.0f32, 3.0, 5.0], Reduction::premul_sum(2.0)),
        18.0
    );
    // Scaled in f32: no element is rounded before the sum.
    let values = [1.0, 257.0].map(bf16::from_f32);
    let expected = bf16::from_f32((values[0].to_f32() + values[1].to_f32()) * 3.0);
    assert_eq!(all_reduce(&values, Reduction::premul_sum(3.0)), expected);
}

#[test]
fn gathers_along_any_dimension() {
    let shape: &[u64] = &[2, 2];
    let inputs: [(&[u64], &[i32]); 2] = [(shape, &[1, 2, 3, 4]), (shape, &[5, 6, 7, 8])];
    let gathered = run(&inputs, |context, x, group| {
        all_gather::along(context, x, 1, group).unwrap()
    });
    assert_eq!(gathered, vec![vec![1, 2, 5, 6, 3, 4, 7, 8]; 2]);
}

#[test]
fn scatters_along_any_dimension() {
    let x: (&[u64], &[i64]) = (&[2, 4], &[0, 1, 2, 3, 4, 5, 6, 7]);
    let scattered = run(&[x, x], |context, x, group| {
        reduce_scatter::along(context, x, 1, ReduceOp::Sum.into(), group).unwrap()
    });
    assert_eq!(scattered, [[0, 2, 8, 10], [4, 6, 12, 14]]);
    let odd: (&[u64], &[i64]) = (&[1, 5], &[0; 5]);
    run(&[odd, odd], |context, x, group| {
        let error = reduce_scatter::along(context, x, 1, ReduceOp::Sum.into(), group).unwrap_err();
        let expected = "dimension 1 has size 5, not divisible by the group size 2";
        assert!(error.to_string().contains(expected), "{error}");
        x
    });
}

#[test]
fn the_root_is_a_rank_of_the_group() {
    let inputs: [(&[u64], &[i32]); 2] = [(&[1], &[10]), (&[1], &[30])];
    for root in [Root::Global(1), Root::Group(1)] {
        let results = run(&inputs, |context, x, group| {
            let call = Call::Broadcast { root };
            convert(context, &call, &[x], group).unwrap()[0]
        });
        assert_eq!(results, [[30], [30]]);
    }
}
