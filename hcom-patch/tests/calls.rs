//! Calls at their edges: uneven sizes, sub-groups, dropped results, transfers without data.

mod support;

use hcom_patch::{DType, Error, Group, Peer, ReduceOp, Root, Tensor, compile, dist};
use hcom_test::Kind;
use support::{chain, f32s, one, ranks, read, recorded, same_everywhere, world};

fn zeros(shape: &[u64]) -> Tensor {
    Tensor::zeros(shape, DType::F32).unwrap()
}

/// `n` rows of `[2, 2]`, different on every rank.
fn blocks(rank: usize, n: u64) -> Tensor {
    let values: Vec<f32> = (0..4 * n).map(|i| (100 * rank) as f32 + i as f32).collect();
    f32s(&values, &[n, 2, 2])
}

#[test]
fn splits_that_are_equal_on_one_rank_only_choose_no_other_exchange() {
    // Entry [i][j]: blocks from rank i to rank j. Rank 0 sends and receives evenly.
    const SENT: [[u64; 3]; 3] = [[1, 1, 1], [1, 2, 0], [1, 0, 3]];
    ranks(3, Kind::Threads, |rank| {
        let r = rank.rank() as usize;
        let received = SENT.map(|row| row[r]);
        let f = |x: &[Tensor]| {
            let mut y = zeros(&[received.iter().sum(), 2, 2]);
            dist::all_to_all_single(&mut y, &x[0], Some(&received), Some(&SENT[r]), &world())?;
            Ok(vec![y])
        };
        let y = same_everywhere(f, &[blocks(r, SENT[r].iter().sum())]);
        let from = |source: usize| {
            let start = 4 * SENT[source][..r].iter().sum::<u64>() as usize;
            let all = read(&blocks(source, SENT[source].iter().sum()));
            all[start..start + 4 * SENT[source][r] as usize].to_vec()
        };
        let expected: Vec<f32> = (0..3).flat_map(from).collect();
        assert_eq!(read(&y[0]), expected);
        assert_eq!(y[0].shape()[1..], [2, 2]);
    });
}

#[test]
fn rows_without_elements_are_exchanged() {
    ranks(2, Kind::Threads, |_| {
        for splits in [None, Some(&[2u64, 2][..])] {
            let f = |x: &[Tensor]| {
                let mut y = zeros(&[4, 0]);
                dist::all_to_all_single(&mut y, &x[0], splits, splits, &world())?;
                Ok(vec![y])
            };
            let y = same_everywhere(f, &[f32s(&[], &[4, 0])]);
            assert_eq!(y[0].shape(), [4, 0]);
        }
    });
}

#[test]
fn unequal_lists_are_gathered_in_sub_groups() {
    ranks(4, Kind::Threads, |rank| {
        let r = rank.rank();
        let group = dist::new_group(&[3, 1]).unwrap();
        let Some(own) = group.rank_of(r) else {
            return;
        };
        let f = |x: &Tensor| {
            let mut list = [zeros(&[2]), zeros(&[1, 3])];
            dist::all_gather(&mut list, x, &group)?;
            Tensor::concat(&[&list[0], &list[1].reshape(&[3])?], 0)
        };
        let x = match own {
            0 => f32s(&[1.0, 2.0], &[2]),
            _ => f32s(&[3.0, 4.0, 5.0], &[3]),
        };
        let expected = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(read(&f(&x).unwrap()), expected);
        let compiled = one(f, recorded());
        for _ in 0..2 {
            let y = compiled.call(std::slice::from_ref(&x)).unwrap();
            assert_eq!(read(&y[0]), expected);
        }
    });
}

#[test]
fn what_a_call_reads_stays_as_it_was() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank();
        let f = |x: &[Tensor]| {
            let world = world();
            let x = &x[0];
            let mut y: Vec<Tensor> = (0..3).map(|_| zeros(&[2])).collect();
            y.push(x.reshape(&[2])?);
            dist::broadcast(&mut y[3], Root::Group(1), &world)?;
            let mut gathered = zeros(&[4]);
            dist::all_gather_into_tensor(&mut gathered, x, &world)?;
            dist::all_gather(&mut y[..2], x, &world)?;
            dist::all_to_all_single(&mut y[2], x, None, None, &world)?;
            y.push(gathered);
            y.push(x.reshape(&[2])?);
            Ok(y)
        };
        let own = [10.0 * r as f32 + 1.0, 10.0 * r as f32 + 2.0];
        let x = f32s(&own, &[2]);
        let y: Vec<Vec<f32>> = same_everywhere(f, std::slice::from_ref(&x))
            .iter()
            .map(read)
            .collect();
        let exchanged = if r == 0 {
            vec![1.0, 11.0]
        } else {
            vec![2.0, 12.0]
        };
        assert_eq!(y[0], [1.0, 2.0]);
        assert_eq!(y[1], [11.0, 12.0]);
        assert_eq!(y[2], exchanged);
        assert_eq!(y[3], [11.0, 12.0]);
        assert_eq!(y[4], [1.0, 2.0, 11.0, 12.0]);
        assert_eq!(y[5], own);
        assert_eq!(read(&x), own);
    });
}

#[test]
fn a_result_that_one_rank_drops_is_still_computed() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank();
        let f = |x: &Tensor| {
            let mut y = (x * 1.0)?;
            dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
            dist::barrier(&dist::world()?)?;
            let mut got = zeros(&[1]);
            match r {
                0 => dist::send(x, Peer::Global(1), 0, &dist::world()?)?,
                _ => dist::recv(&mut got, Peer::Global(0), 0, &dist::world()?)?,
            }
            if r == 0 { Ok(y) } else { Ok(x.clone()) }
        };
        let compiled = one(f, recorded());
        let x = f32s(&[r as f32 + 1.0], &[1]);
        for _ in 0..3 {
            let y = compiled.call(std::slice::from_ref(&x)).unwrap();
            assert_eq!(read(&y[0]), [[3.0], [2.0]][r as usize]);
        }
    });
}

#[test]
fn transfers_without_elements_pair_like_others() {
    ranks(2, Kind::Threads, |rank| {
        let f = |x: &[Tensor]| {
            let mut y = vec![zeros(&[0, 3]), zeros(&[2])];
            for (index, tag) in [(0, 0), (1, 0), (0, 1)] {
                if rank.rank() == 0 {
                    dist::send(&x[index], Peer::Global(1), tag, &world())?;
                } else {
                    dist::recv(&mut y[index], Peer::Global(0), tag, &world())?;
                }
            }
            Ok(y)
        };
        let x = [f32s(&[], &[0, 3]), f32s(&[5.0, 6.0], &[2])];
        let y = same_everywhere(f, &x);
        let expected = if rank.rank() == 0 {
            [0.0, 0.0]
        } else {
            [5.0, 6.0]
        };
        assert_eq!(read(&y[1]), expected);
    });
}

#[test]
fn tags_that_come_in_another_order_deliver_no_wrong_value() {
    ranks(2, Kind::Threads, |rank| {
        let f = |x: &[Tensor]| {
            let mut y = vec![zeros(&[1]), zeros(&[1])];
            for (index, tag) in [(0, 7), (1, 8)] {
                if rank.rank() == 0 {
                    dist::send(&x[index], Peer::Global(1), tag, &world())?;
                } else {
                    // The tag of what is sent last is received first.
                    dist::recv(&mut y[1 - index], Peer::Global(0), 15 - tag, &world())?;
                }
            }
            Ok(y)
        };
        let x = [f32s(&[1.0], &[1]), f32s(&[2.0], &[1])];
        let error = chain(&compile(f, recorded()).call(&x).unwrap_err());
        assert!(error.contains("tag"), "{error}");
    });
}

#[test]
fn members_alone_make_groups_and_use_them_at_once() {
    ranks(4, Kind::Threads, |rank| {
        let r = rank.rank();
        if r == 0 {
            let mut x = f32s(&[4.0], &[1]);
            let alone = dist::new_group(&[0]).unwrap();
            dist::all_reduce(&mut x, ReduceOp::Sum, &alone).unwrap();
            assert_eq!(read(&x), [4.0]);
        }
        let half = r / 2 * 2;
        let pair = dist::new_group(&[half, half + 1]).unwrap();
        let f = |x: &Tensor| {
            let mut y = (x + 0.0)?;
            dist::all_reduce(&mut y, ReduceOp::Sum, &pair)?;
            Ok(y)
        };
        let x = f32s(&[r as f32], &[1]);
        let expected = [(2 * half + 1) as f32];
        assert_eq!(read(&f(&x).unwrap()), expected);
        let y = one(f, recorded()).call(&[x]).unwrap();
        assert_eq!(read(&y[0]), expected);
    });
}

#[test]
fn overlapping_groups_share_their_members() {
    ranks(3, Kind::Threads, |rank| {
        let r = rank.rank();
        let groups: Vec<Group> = [[0, 1], [1, 2], [2, 0]]
            .iter()
            .map(|ranks| dist::new_group(ranks).unwrap())
            .collect();
        let f = |x: &Tensor| {
            let mut y = (x + 0.0)?;
            for group in &groups {
                if group.rank_of(r).is_some() {
                    dist::all_reduce(&mut y, ReduceOp::Sum, group)?;
                }
            }
            Ok(y)
        };
        // 1, 2, 4: ranks 0 and 1 have 3, then ranks 1 and 2 have 7, then ranks 2 and 0 have 10.
        let x = f32s(&[[1.0, 2.0, 4.0][r as usize]], &[1]);
        let expected = [[10.0], [7.0], [10.0]][r as usize];
        assert_eq!(read(&f(&x).unwrap()), expected);
        let compiled = one(f, recorded());
        for _ in 0..3 {
            assert_eq!(
                read(&compiled.call(std::slice::from_ref(&x)).unwrap()[0]),
                expected
            );
        }
    });
}

#[test]
fn nan_wins_wherever_it_stands() {
    ranks(4, Kind::Threads, |rank| {
        let mut order = vec![vec![]];
        for value in [1.0, f32::NAN, 3.0, 4.0] {
            order = order
                .iter()
                .flat_map(|known: &Vec<f32>| {
                    (0..=known.len()).map(|at| {
                        let mut next = known.clone();
                        next.insert(at, value);
                        next
                    })
                })
                .collect();
        }
        assert_eq!(order.len(), 24);
        for values in order {
            let mut x = f32s(&[values[rank.rank() as usize]], &[1]);
            dist::all_reduce(&mut x, ReduceOp::Min, &world()).unwrap();
            assert!(read(&x)[0].is_nan());
        }
    });
}

#[test]
fn different_calls_are_never_merged() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank();
        let f = |x: &[Tensor]| {
            let world = world();
            let mut scattered = zeros(&[1, 2]);
            dist::reduce_scatter_tensor(&mut scattered, &x[0], ReduceOp::Sum, &world)?;
            let mut reduced = (&x[0] * 2.0)?;
            dist::all_reduce(&mut reduced, ReduceOp::Sum, &world)?;
            let mut largest = (&x[0] * 3.0)?;
            dist::all_reduce(&mut largest, ReduceOp::Max, &world)?;
            let mut narrow = x[0].cast(DType::BF16)?;
            dist::all_reduce(&mut narrow, ReduceOp::Sum, &world)?;
            // A gather whose input needs the result of another.
            let mut first = zeros(&[4, 2]);
            dist::all_gather_into_tensor(&mut first, &x[0], &world)?;
            let product = first.matmul(&x[0])?;
            let mut second = zeros(&[8, 2]);
            dist::all_gather_into_tensor(&mut second, &product, &world)?;
            Ok(vec![scattered, reduced, largest, narrow, second])
        };
        let x = f32s(&[1.0 + r as f32, 2.0, 3.0, 4.0 - r as f32], &[2, 2]);
        let y = same_everywhere(f, &[x]);
        let expected: &[f32] = if r == 0 { &[3.0, 4.0] } else { &[6.0, 7.0] };
        assert_eq!(read(&y[0]), expected);
        assert_eq!(read(&y[1]), [6.0, 8.0, 12.0, 14.0]);
        assert_eq!(read(&y[2]), [6.0, 6.0, 9.0, 12.0]);
        assert_eq!(y[3].dtype(), DType::BF16);
    });
}

#[test]
fn a_sum_has_the_same_bits_whatever_stands_beside_it() {
    ranks(4, Kind::Threads, |rank| {
        let own = [1e8f32, 1.0, -1e8, 1.0][rank.rank() as usize];
        let sum = |beside: usize| {
            let mut values = vec![0.25; beside + 1];
            values[0] = own;
            let mut x = f32s(&values, &[beside as u64 + 1]);
            dist::all_reduce(&mut x, ReduceOp::Sum, &world()).unwrap();
            read(&x)[0]
        };
        for beside in [0, 7, 1 << 20] {
            assert_eq!(sum(beside), 1.0, "beside {beside} others");
        }
    });
}

#[test]
fn complex_numbers_go_through_every_call() {
    ranks(2, Kind::Threads, |rank| {
        let r = f64::from(rank.rank());
        let complex =
            |values: &[[f64; 2]]| Tensor::from_slice(values, &[values.len() as u64]).unwrap();
        let x = complex(&[[r + 1.0, -r], [2.0, r]]);
        let f = |x: &[Tensor]| -> Result<Vec<Tensor>, Error> {
            let world = world();
            let zeros = |n| Tensor::zeros(&[n], DType::C128);
            let mut y = vec![
                x[0].reshape(&[2])?,
                x[0].reshape(&[2])?,
                zeros(4)?,
                zeros(1)?,
            ];
            dist::all_reduce(&mut y[0], ReduceOp::Avg, &world)?;
            dist::broadcast(&mut y[1], Root::Group(1), &world)?;
            dist::all_gather_into_tensor(&mut y[2], &x[0], &world)?;
            dist::reduce_scatter_tensor(&mut y[3], &x[0], ReduceOp::Sum, &world)?;
            Ok(y)
        };
        let eager = f(std::slice::from_ref(&x)).unwrap();
        let compiled = compile(f, recorded()).call(&[x]).unwrap();
        for y in [eager, compiled] {
            let y: Vec<Vec<[f64; 2]>> = y.iter().map(|y| y.to_vec().unwrap()).collect();
            assert_eq!(y[0], [[1.5, -0.5], [2.0, 0.5]]);
            assert_eq!(y[1], [[2.0, -1.0], [2.0, 1.0]]);
            assert_eq!(y[2], [[1.0, 0.0], [2.0, 0.0], [2.0, -1.0], [2.0, 1.0]]);
            assert_eq!(y[3], [[[3.0, -1.0]], [[4.0, 1.0]]][rank.rank() as usize]);
        }
    });
}

#[test]
fn coalesced_calls_do_to_each_tensor_what_the_call_does_to_one() {
    ranks(3, Kind::Threads, |rank| {
        let r = rank.rank();
        let x: Vec<Tensor> = [(3, 1), (6, 2), (3, 3)]
            .iter()
            .map(|&(rows, width)| {
                let values: Vec<f32> = (0..rows * width)
                    .map(|i| (i as f32 - 4.0) * (r + 1) as f32 / 3.0)
                    .collect();
                f32s(&values, &[rows, width])
            })
            .collect();
        let with_integers = |x: &[Tensor]| -> Result<Vec<Tensor>, Error> {
            let mut all: Vec<Tensor> = x.iter().map(|x| x * 1.0).collect::<Result<_, _>>()?;
            all.insert(1, x[1].cast(DType::I32)?);
            Ok(all)
        };
        let room = |x: &[Tensor], up: u64, down: u64| -> Result<Vec<Tensor>, Error> {
            x.iter()
                .map(|x| Tensor::zeros(&[x.shape()[0] * up / down, x.shape()[1]], x.dtype()))
                .collect()
        };
        let together = |x: &[Tensor]| {
            let world = world();
            let x = with_integers(x)?;
            let (mut gathered, mut scattered) = (room(&x, 3, 1)?, room(&x, 1, 3)?);
            dist::all_gather_into_tensor_coalesced(&mut gathered, &x, &world)?;
            dist::reduce_scatter_tensor_coalesced(&mut scattered, &x, ReduceOp::Sum, &world)?;
            let mut reduced = x;
            dist::all_reduce_coalesced(&mut reduced, ReduceOp::Avg, &world)?;
            Ok([gathered, scattered, reduced].concat())
        };
        let one_by_one = |x: &[Tensor]| {
            let world = world();
            let x = with_integers(x)?;
            let (mut gathered, mut scattered) = (room(&x, 3, 1)?, room(&x, 1, 3)?);
            for (index, x) in x.iter().enumerate() {
                dist::all_gather_into_tensor(&mut gathered[index], x, &world)?;
                dist::reduce_scatter_tensor(&mut scattered[index], x, ReduceOp::Sum, &world)?;
            }
            let mut reduced = x;
            for x in &mut reduced {
                dist::all_reduce(x, ReduceOp::Avg, &world)?;
            }
            Ok([gathered, scattered, reduced].concat())
        };
        let expected = same_everywhere(one_by_one, &x);
        let y = same_everywhere(together, &x);
        for (y, expected) in y.iter().zip(&expected) {
            assert_eq!(y.to_literal().unwrap(), expected.to_literal().unwrap());
        }
        let compiled = compile(together, recorded());
        compiled.call(&x).unwrap();
        // One per call and element type.
        assert_eq!(compiled.report().collectives, 6);
    });
}

#[test]
fn functions_of_equal_signature_keep_graphs_of_their_own() {
    ranks(2, Kind::Threads, |rank| {
        let x = f32s(&[rank.rank() as f32 + 1.0], &[1]);
        let by = |op: ReduceOp| {
            one(
                move |x: &Tensor| {
                    let mut y = (x + 0.0)?;
                    dist::all_reduce(&mut y, op, &dist::world()?)?;
                    Ok(y)
                },
                recorded(),
            )
        };
        let (sum, largest) = (by(ReduceOp::Sum), by(ReduceOp::Max));
        for _ in 0..2 {
            assert_eq!(read(&sum.call(std::slice::from_ref(&x)).unwrap()[0]), [3.0]);
            assert_eq!(
                read(&largest.call(std::slice::from_ref(&x)).unwrap()[0]),
                [2.0]
            );
        }
    });
}

#[test]
fn a_group_of_many_ranks_has_a_short_name() {
    dist::init_abstract(0, 256).unwrap();
    let scattered: Vec<u32> = (0..256).filter(|rank| rank % 3 != 1).collect();
    let others: Vec<u32> = (0..256).filter(|rank| rank % 3 != 2).collect();
    let names =
        [&scattered, &others].map(|ranks| dist::new_group(ranks).unwrap().name().to_owned());
    assert_ne!(names[0], names[1]);
    assert!(names.iter().all(|name| name.len() < 64), "{names:?}");
    dist::finalize();
}
