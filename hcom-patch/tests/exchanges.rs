//! Rooted collectives, lists and all_to_all: eagerly, compiled and by the oracle.

mod support;

use hcom_patch::{DType, Error, ReduceOp, Root, Tensor, dist};
use hcom_test::{Kind, Rank};
use support::{f32s, ranks, read, same_everywhere, world};

/// Checks `f` on every rank against `expected`, by all three executions.
#[track_caller]
fn check(
    rank: &Rank,
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>, Error>,
    x: &[Tensor],
    expected: &[&[f32]],
) {
    let results = same_everywhere(f, x);
    let results: Vec<Vec<f32>> = results.iter().map(read).collect();
    assert_eq!(results, expected, "rank {}", rank.rank());
}

fn zeros(shape: &[u64]) -> Tensor {
    Tensor::zeros(shape, DType::F32).unwrap()
}

#[test]
fn the_root_reduces_and_the_others_keep_theirs() {
    ranks(4, Kind::Threads, |rank| {
        let r = rank.rank();
        let group = dist::new_group(&[3, 1, 0]).unwrap();
        // Only a root at the same place in world and group would hide a mix-up.
        let own = [2.0, 5.0, 0.0, 8.0][r as usize];
        for root in [Root::Global(0), Root::Group(2)] {
            for (op, reduced) in [
                (ReduceOp::Sum, [15.0, 3.0]),
                (ReduceOp::Prod, [80.0, 1.0]),
                (ReduceOp::Max, [8.0, 1.0]),
                (ReduceOp::Avg, [5.0, 1.0]),
            ] {
                let f = |x: &[Tensor]| {
                    let mut x = x[0].reshape(&[2])?;
                    if group.rank_of(r).is_some() {
                        dist::reduce(&mut x, op, root, &group)?;
                    }
                    Ok(vec![x])
                };
                let expected = if r == 0 { reduced } else { [own, 1.0] };
                check(&rank, f, &[f32s(&[own, 1.0], &[2])], &[&expected]);
            }
        }
    });
}

#[test]
fn the_root_scatters_and_gathers_lists() {
    ranks(4, Kind::Threads, |rank| {
        let group = dist::new_group(&[3, 1, 0]).unwrap();
        let Some(own) = group.rank_of(rank.rank()) else {
            for _ in 0..2 {
                check(&rank, |_| Ok(Vec::new()), &[], &[]);
            }
            return;
        };
        let (base, root) = (10.0 * own as f32, Root::Global(1));
        // Rank 1 sends to group rank i what begins with 100 + 10 i, in various shapes.
        let inputs: Vec<Tensor> = [[2, 1], [1, 2], [2, 1]]
            .iter()
            .zip([100.0, 110.0, 120.0])
            .filter(|_| own == 1)
            .map(|(shape, first)| f32s(&[first, first + 1.0], shape))
            .collect();
        let f = |x: &[Tensor]| {
            let mut y = zeros(&[2]);
            dist::scatter(&mut y, x, root, &group)?;
            Ok(vec![y])
        };
        check(&rank, f, &inputs, &[&[100.0 + base, 101.0 + base]]);

        let f = |x: &[Tensor]| {
            let count = if own == 1 { 3 } else { 0 };
            let mut list: Vec<Tensor> = (0..count).map(|_| zeros(&[2, 1])).collect();
            dist::gather(&mut list, &x[0], root, &group)?;
            Ok(list)
        };
        let expected: &[&[f32]] = match own {
            1 => &[&[1.0, 2.0], &[11.0, 12.0], &[21.0, 22.0]],
            _ => &[],
        };
        check(&rank, f, &[f32s(&[base + 1.0, base + 2.0], &[2])], expected);
    });
}

#[test]
fn scalars_and_empty_tensors_are_scattered_and_gathered() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank();
        for (shape, n) in [(&[][..], 1), (&[0, 3][..], 0)] {
            let f = |x: &[Tensor]| {
                let mut y = zeros(shape);
                let list = if r == 1 { x } else { &[] };
                dist::scatter(&mut y, list, Root::Global(1), &world())?;
                let mut list: Vec<Tensor> = (0..2 * (1 - r)).map(|_| zeros(shape)).collect();
                dist::gather(&mut list, &y, Root::Global(0), &world())?;
                list.push(y);
                Ok(list)
            };
            let inputs = [f32s(&[7.0][..n], shape), f32s(&[8.0][..n], shape)];
            let (a, b) = (&[7.0f32][..n], &[8.0f32][..n]);
            let expected: &[&[f32]] = if r == 0 { &[a, b, a] } else { &[b] };
            check(&rank, f, &inputs, expected);
        }
    });
}

#[test]
fn lists_of_any_sizes_are_gathered() {
    ranks(3, Kind::Threads, |rank| {
        let r = rank.rank() as usize;
        let group = dist::new_group(&[2, 0, 1]).unwrap();
        // By group rank; a rank may contribute nothing, or a scalar.
        let shapes: [[&[u64]; 3]; 3] = [
            [&[2, 2], &[4], &[4, 1]],
            [&[1, 2], &[0, 2], &[3, 1]],
            [&[], &[2], &[5]],
        ];
        for shapes in shapes {
            let size = |shape: &[u64]| shape.iter().product::<u64>() as usize;
            let values = |i: usize| -> Vec<f32> {
                (0..size(shapes[i])).map(|k| (100 * i + k) as f32).collect()
            };
            let own = group.rank_of(r as u32).unwrap() as usize;
            let f = |x: &[Tensor]| {
                let mut list: Vec<Tensor> = shapes.iter().map(|shape| zeros(shape)).collect();
                dist::all_gather(&mut list, &x[0], &group)?;
                Ok(list)
            };
            let expected: Vec<Vec<f32>> = (0..3).map(values).collect();
            let expected: Vec<&[f32]> = expected.iter().map(Vec::as_slice).collect();
            check(&rank, f, &[f32s(&values(own), shapes[own])], &expected);
        }
    });
}

#[test]
fn lists_of_any_sizes_are_reduced_and_scattered() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank() as usize;
        let scale = [1.0, 10.0][r];
        let list = [
            f32s(&[scale, 2.0 * scale], &[2]),
            f32s(&[3.0 * scale], &[1]),
        ];
        for (op, expected) in [
            (ReduceOp::Sum, [&[11.0, 22.0][..], &[33.0]]),
            (ReduceOp::Avg, [&[5.5, 11.0], &[16.5]]),
            (ReduceOp::Min, [&[1.0, 2.0], &[3.0]]),
            (ReduceOp::Prod, [&[10.0, 40.0], &[90.0]]),
        ] {
            let f = |x: &[Tensor]| {
                let mut y = zeros(&[2 - r as u64]);
                dist::reduce_scatter(&mut y, x, op, &world())?;
                Ok(vec![y])
            };
            check(&rank, f, &list, &[expected[r]]);
        }
        let list = [
            f32s(&[scale, 2.0], &[2]),
            f32s(&[3.0, 4.0 * scale], &[2, 1]),
        ];
        let f = |x: &[Tensor]| {
            let mut y = zeros(&[1, 2]);
            dist::reduce_scatter(&mut y, x, ReduceOp::Sum, &world())?;
            Ok(vec![y])
        };
        check(&rank, f, &list, &[[&[11.0, 4.0], &[6.0, 44.0]][r]]);
    });
}

#[test]
fn an_even_exchange_may_have_pieces_of_several_rows() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank() as f32;
        let f = |x: &[Tensor]| {
            let mut y = zeros(&[4]);
            dist::all_to_all_single(&mut y, &x[0], None, None, &world())?;
            Ok(vec![y])
        };
        let x = [f32s(&[r; 4], &[4])];
        check(&rank, f, &x, &[&[0.0, 0.0, 1.0, 1.0]]);
        let x = [f32s(&[r, r + 10.0, r + 20.0, r + 30.0], &[2, 2])];
        let expected: &[f32] = match rank.rank() {
            0 => &[0.0, 10.0, 1.0, 11.0],
            _ => &[20.0, 30.0, 21.0, 31.0],
        };
        check(&rank, f, &x, &[expected]);
    });
}

#[test]
fn splits_may_be_zero_on_some_ranks_or_all() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank() as usize;
        let exchange = |rows: [&'static [u64]; 2], width: u64| {
            move |x: &[Tensor]| {
                let mut y = zeros(&[rows[0].iter().sum(), width]);
                dist::all_to_all_single(&mut y, &x[0], Some(rows[0]), Some(rows[1]), &world())?;
                Ok(vec![y])
            }
        };
        let rows = [[&[0, 1][..], &[0, 0]], [&[0, 2], &[1, 2]]][r];
        let x = [f32s(&[], &[0, 1]), f32s(&[10.0, 20.0, 30.0], &[3, 1])][r].clone();
        let expected: [&[f32]; 2] = [&[10.0], &[20.0, 30.0]];
        check(&rank, exchange(rows, 1), &[x], &[expected[r]]);
        // Rows of two elements.
        let x: [&[f32]; 2] = [&[], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]];
        let x = f32s(x[r], &[3 * r as u64, 2]);
        let expected: [&[f32]; 2] = [&[1.0, 2.0], &[3.0, 4.0, 5.0, 6.0]];
        check(&rank, exchange(rows, 2), &[x], &[expected[r]]);
        // Nothing at all.
        let none = [&[0, 0][..], &[0, 0]];
        check(&rank, exchange(none, 2), &[f32s(&[], &[0, 2])], &[&[]]);
    });
}

#[test]
fn one_side_may_be_even() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank() as usize;
        // Rank 0 sends 1 and 3, rank 1 sends 1 and 1: rank 0 receives evenly, rank 1 sends evenly.
        let splits: [[Option<&[u64]>; 2]; 2] = [[None, Some(&[1, 3])], [Some(&[3, 1]), None]];
        let [output, input] = splits[r];
        let f = |x: &[Tensor]| {
            let mut y = zeros(&[[2, 4][r]]);
            dist::all_to_all_single(&mut y, &x[0], output, input, &world())?;
            Ok(vec![y])
        };
        let x = [f32s(&[1.0, 2.0, 3.0, 4.0], &[4]), f32s(&[5.0, 6.0], &[2])][r].clone();
        let expected: [&[f32]; 2] = [&[1.0, 5.0], &[2.0, 3.0, 4.0, 6.0]];
        check(&rank, f, &[x], &[expected[r]]);
    });
}

#[test]
fn splits_that_do_not_fit_each_other_are_an_error_on_every_rank() {
    ranks(3, Kind::Threads, |rank| {
        let r = rank.rank() as usize;
        let input: &[u64] = [&[1, 0, 1][..], &[1, 1, 1], &[1, 1, 1]][r];
        let output: &[u64] = [&[1, 5, 1][..], &[5, 1, 1], &[1, 1, 1]][r];
        let f = |x: &[Tensor]| {
            let mut y = zeros(&[output.iter().sum()]);
            dist::all_to_all_single(&mut y, &x[0], Some(output), Some(input), &world())?;
            Ok(vec![y])
        };
        let x = zeros(&[input.iter().sum()]);
        let compiled = hcom_patch::compile(f, support::recorded());
        let error = compiled.call(&[x]).unwrap_err();
        let Error::Runtime(hcom_runtime::Error::Failure(failure)) = error else {
            panic!("rank {r}: {error}");
        };
        let help = failure.help.as_deref().unwrap_or_default();
        let expected = "group rank 0 to 1: sends 0 elements, expects 5";
        assert!(help.contains(expected), "rank {r}: {help}");
        let text = failure.to_string();
        assert!(
            text.contains("sends [1, 0, 1], receives [1, 5, 1]"),
            "{text}"
        );
        assert!(
            text.contains("sends [1, 1, 1], receives [5, 1, 1]"),
            "{text}"
        );
    });
}

#[test]
fn lists_are_exchanged() {
    ranks(3, Kind::Threads, |rank| {
        let r = rank.rank() as usize;
        // From rank i to rank j go (i + 2 j) % 4 elements.
        let count = |i: usize, j: usize| (i + 2 * j) % 4;
        let values = |i: usize, j: usize| -> Vec<f32> {
            (0..count(i, j))
                .map(|k| (100 * i + 10 * j + k) as f32)
                .collect()
        };
        let inputs: Vec<Tensor> = (0..3)
            .map(|j| f32s(&values(r, j), &[1, count(r, j) as u64]))
            .collect();
        let f = |x: &[Tensor]| {
            let mut list: Vec<Tensor> = (0..3).map(|i| zeros(&[count(i, r) as u64])).collect();
            dist::all_to_all(&mut list, x, &world())?;
            Ok(list)
        };
        let expected: Vec<Vec<f32>> = (0..3).map(|i| values(i, r)).collect();
        let expected: Vec<&[f32]> = expected.iter().map(Vec::as_slice).collect();
        check(&rank, f, &inputs, &expected);
    });
}

#[test]
fn uneven_rows_are_gathered_and_scattered() {
    ranks(3, Kind::Threads, |rank| {
        let r = rank.rank() as usize;
        let rows: [u64; 3] = [2, 0, 1];
        let x = [
            f32s(&[1.0, 2.0, 3.0, 4.0], &[2, 2]),
            f32s(&[], &[0, 2]),
            f32s(&[5.0, 6.0], &[1, 2]),
        ];
        let f = |x: &[Tensor]| {
            let mut y = zeros(&[3, 2]);
            dist::all_gather_into_tensor_uneven(&mut y, &x[0], Some(&rows), &world())?;
            Ok(vec![y])
        };
        check(
            &rank,
            f,
            &[x[r].clone()],
            &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]],
        );

        let scale = [1.0, 10.0, 100.0][r];
        let x = [f32s(&[1.0, 2.0, 3.0].map(|x| x * scale), &[3])];
        for (op, expected) in [
            (ReduceOp::Sum, [&[111.0, 222.0][..], &[], &[333.0]]),
            (ReduceOp::Avg, [&[37.0, 74.0], &[], &[111.0]]),
            (ReduceOp::Max, [&[100.0, 200.0], &[], &[300.0]]),
        ] {
            let f = |x: &[Tensor]| {
                let mut y = zeros(&[rows[r]]);
                dist::reduce_scatter_tensor_uneven(&mut y, &x[0], Some(&rows), op, &world())?;
                Ok(vec![y])
            };
            check(&rank, f, &x, &[expected[r]]);
        }
    });
}

#[test]
fn groups_of_one_copy() {
    ranks(2, Kind::Threads, |rank| {
        let own = dist::new_group(&[rank.rank()]).unwrap();
        let root = Root::Group(0);
        let f = |x: &[Tensor]| {
            let mut y: Vec<Tensor> = (0..9).map(|_| zeros(&[2])).collect();
            dist::scatter(&mut y[0], &x[..1], root, &own)?;
            dist::gather(&mut y[1..2], &x[0], root, &own)?;
            dist::all_gather(&mut y[2..3], &x[0], &own)?;
            dist::reduce_scatter(&mut y[3], &x[..1], ReduceOp::Avg, &own)?;
            dist::all_to_all_single(&mut y[4], &x[0], None, None, &own)?;
            dist::all_to_all(&mut y[5..6], &x[..1], &own)?;
            dist::all_gather_into_tensor_uneven(&mut y[6], &x[0], Some(&[2]), &own)?;
            dist::reduce_scatter_tensor_uneven(&mut y[7], &x[0], None, ReduceOp::Sum, &own)?;
            y[8].copy_(&x[0])?;
            dist::reduce(&mut y[8], ReduceOp::Avg, root, &own)?;
            Ok(y)
        };
        check(&rank, f, &[f32s(&[4.0, 5.0], &[2])], &[&[4.0, 5.0][..]; 9]);
    });
}

#[test]
fn types_that_the_library_does_not_reduce_are_reduced_in_wider_ones() {
    /// Reduces one element per rank and checks it against `expected`.
    fn all_reduce<T>(r: u32, op: ReduceOp, values: [T; 2], expected: T)
    where
        T: hcom_patch::Element + PartialEq + std::fmt::Debug,
    {
        let f = |x: &[Tensor]| {
            let mut y = x[0].reshape(&[1])?;
            dist::all_reduce(&mut y, op, &world())?;
            Ok(vec![y])
        };
        let x = Tensor::from_slice(&[values[r as usize]], &[1]).unwrap();
        let results = same_everywhere(f, &[x]);
        assert_eq!(results[0].to_vec::<T>().unwrap(), [expected], "{op}");
    }
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank();
        all_reduce(r, ReduceOp::Sum, [200u8, 100], 44);
        all_reduce(r, ReduceOp::Prod, [200u8, 3], 88);
        all_reduce(r, ReduceOp::Max, [u16::MAX, 1], u16::MAX);
        all_reduce(r, ReduceOp::Min, [u32::MAX, 1], 1);
        all_reduce(r, ReduceOp::Sum, [u64::MAX, 3], 2);
        all_reduce(r, ReduceOp::Prod, [u64::MAX, 3], u64::MAX - 2);
        all_reduce(r, ReduceOp::Max, [u64::MAX, 3], u64::MAX);
        all_reduce(r, ReduceOp::Prod, [i16::MAX, 3], 32765);
        all_reduce(r, ReduceOp::Sum, [[1.0f32, -2.0], [0.5, 4.0]], [1.5, 2.0]);
        let mut complex = Tensor::from_slice(&[[1.0f64, 2.0]], &[1]).unwrap();
        let error = dist::all_reduce(&mut complex, ReduceOp::Max, &world()).unwrap_err();
        assert!(error.to_string().contains("max of c128"), "{error}");
    });
}
