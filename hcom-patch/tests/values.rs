//! What the collective calls compute, eagerly and compiled.

mod support;

use hcom_patch::{DType, Error, ReduceOp, Reduction, Root, Tensor, dist};
use hcom_runtime::{Runtime, Settings};
use hcom_test::Kind;
use std::time::Duration;
use support::{f32s, one, ranks, read, recorded, world};

#[test]
fn roots_are_named_in_either_numbering_and_others_skip() {
    ranks(4, Kind::Threads, |rank| {
        let group = dist::new_group(&[1, 3]).unwrap();
        let r = rank.rank();
        for root in [Root::Global(3), Root::Group(1)] {
            let f = |x: &Tensor| {
                let mut x = x.clone();
                if group.rank_of(r).is_some() {
                    dist::broadcast(&mut x, root, &group)?;
                }
                Ok(x)
            };
            let expected = if r % 2 == 1 { 30.0 } else { 10.0 * r as f32 };
            let x = f32s(&[10.0 * r as f32], &[1]);
            assert_eq!(read(&f(&x).unwrap()), [expected]);
            let x = f32s(&[10.0 * r as f32], &[1]);
            one(f, recorded()).call(std::slice::from_ref(&x)).unwrap();
            assert_eq!(read(&x), [expected]);
        }
        let mut x = f32s(&[1.0], &[1]);
        let member = group.rank_of(r).is_some();
        let error = dist::broadcast(&mut x, Root::Global(0), &group)
            .unwrap_err()
            .to_string();
        let expected = if member {
            "root 0 is not in group"
        } else {
            "is not in group"
        };
        assert!(error.contains(expected), "{error}");
    });
}

#[test]
fn whatever_reads_data_waits_for_it() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank() as f32;
        let f = |x: &Tensor| {
            let mut y = Tensor::zeros(&[2], DType::F32)?;
            dist::all_gather_into_tensor(&mut y, x, &dist::world()?)?;
            assert_eq!(
                y.cast(DType::BF16)?.cast(DType::F32)?.to_vec::<f32>()?,
                [1.0, 2.0]
            );
            assert_eq!(y.to_string(), "f32[2] [1, 2]");
            let tail = y.slice(0, 1, 2)?.sum(&[0], false)?;
            assert_eq!(tail.item::<f32>()?, 2.0);
            &y + &tail
        };
        for _ in 0..20 {
            assert_eq!(read(&f(&f32s(&[r + 1.0], &[1])).unwrap()), [3.0, 4.0]);
        }
        let compiled = one(f, recorded());
        for _ in 0..3 {
            let y = compiled.call(&[f32s(&[r + 1.0], &[1])]).unwrap();
            assert_eq!(read(&y[0]), [3.0, 4.0]);
        }
    });
}

#[test]
fn tensors_without_elements_take_part() {
    ranks(4, Kind::Threads, |_| {
        let f = |x: &Tensor| {
            let world = dist::world()?;
            let mut x = x.clone();
            dist::all_reduce(&mut x, ReduceOp::Sum, &world)?;
            dist::broadcast(&mut x, Root::Global(2), &world)?;
            let mut gathered = Tensor::zeros(&[4, 1, 0, 2], DType::F32)?;
            dist::all_gather_into_tensor(&mut gathered, &x, &world)?;
            let flat = gathered.reshape(&[4, 0, 2])?;
            let mut scattered = Tensor::zeros(&[1, 0, 2], DType::F32)?;
            dist::reduce_scatter_tensor(&mut scattered, &flat, ReduceOp::Sum, &world)?;
            Ok(scattered)
        };
        let x = || f32s(&[], &[1, 0, 2]);
        let compiled = one(f, recorded());
        for y in [f(&x()).unwrap(), compiled.call(&[x()]).unwrap().remove(0)] {
            assert_eq!(y.shape(), [1, 0, 2]);
            assert!(read(&y).is_empty());
        }
        assert_eq!(compiled.report().collectives, 4);
    });
}

/// Reduces a tensor eagerly and compiled, and returns the two results, which agree.
fn reduced(x: &Tensor, op: impl Into<Reduction>) -> Tensor {
    let op = op.into();
    let f = |x: &Tensor| {
        let mut y = x.reshape(x.shape())?;
        dist::all_reduce(&mut y, op, &dist::world()?)?;
        Ok(y)
    };
    let eager = f(x).unwrap();
    let compiled = one(f, recorded())
        .call(std::slice::from_ref(x))
        .unwrap()
        .remove(0);
    assert_eq!(eager.to_literal().unwrap(), compiled.to_literal().unwrap());
    compiled
}

#[test]
fn booleans_reduce_to_booleans() {
    ranks(4, Kind::Threads, |rank| {
        let r = rank.rank();
        let same = Tensor::from_slice(&[true, true, false], &[3]).unwrap();
        let first = Tensor::from_slice(&[r == 0], &[1]).unwrap();
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            assert_eq!(reduced(&same, op).to_literal().unwrap().bytes, [1, 1, 0]);
            assert_eq!(reduced(&first, op).to_literal().unwrap().bytes, [1]);
        }
        for op in [ReduceOp::Prod, ReduceOp::Min] {
            assert_eq!(reduced(&same, op).to_literal().unwrap().bytes, [1, 1, 0]);
            assert_eq!(reduced(&first, op).to_literal().unwrap().bytes, [0]);
        }
        assert!(dist::all_reduce(&mut first.clone(), ReduceOp::Avg, &world()).is_err());
    });
}

#[test]
fn means_neither_overflow_nor_round_up() {
    use half::f16;
    ranks(2, Kind::Threads, |rank| {
        let large = Tensor::from_slice(&[f16::from_f32(40000.0)], &[1]).unwrap();
        let mean: f16 = reduced(&large, ReduceOp::Avg).item().unwrap();
        assert_eq!(mean.to_f32(), 40000.0);
        let value = if rank.rank() == 0 { -3 } else { 0 };
        let negative = Tensor::from_slice(&[value], &[1]).unwrap();
        assert_eq!(reduced(&negative, ReduceOp::Avg).item::<i32>().unwrap(), -1);
        let large = Tensor::from_slice(&[i32::MAX - 1], &[1]).unwrap();
        assert_eq!(
            reduced(&large, ReduceOp::Avg).item::<i32>().unwrap(),
            i32::MAX - 1
        );
    });
}

#[test]
fn sixteen_bit_sums_are_rounded_once() {
    use half::{bf16, f16};
    ranks(3, Kind::Threads, |rank| {
        let first = rank.rank() == 0;
        let value = bf16::from_f32(if first { 256.0 } else { 1.0 });
        let sum = reduced(&Tensor::from_slice(&[value], &[1]).unwrap(), ReduceOp::Sum);
        assert_eq!(sum.item::<bf16>().unwrap().to_f32(), 258.0);
        let value = f16::from_f32(if first { 2048.0 } else { 1.0 });
        let sum = reduced(&Tensor::from_slice(&[value], &[1]).unwrap(), ReduceOp::Sum);
        assert_eq!(sum.item::<f16>().unwrap().to_f32(), 2050.0);
    });
}

#[test]
fn nan_wins_on_whichever_rank_it_is() {
    ranks(4, Kind::Threads, |rank| {
        let values = [1.0, f32::NAN, 3.0, 4.0];
        for turn in 0..4 {
            let x = f32s(&[values[(rank.rank() as usize + turn) % 4], 1.0], &[2]);
            for op in [ReduceOp::Min, ReduceOp::Max] {
                let mut y = x.reshape(&[2]).unwrap();
                dist::all_reduce(&mut y, op, &world()).unwrap();
                let y = read(&y);
                assert!(y[0].is_nan() && y[1] == 1.0, "{y:?}");
            }
        }
    });
}

#[test]
fn a_group_of_one_copies() {
    ranks(1, Kind::Threads, |_| {
        let x = f32s(&[4.0], &[1]);
        for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max] {
            assert_eq!(read(&reduced(&x, op)), [4.0]);
        }
        assert_eq!(read(&reduced(&x, Reduction::premul_sum(0.5))), [2.0]);
        let mut y = f32s(&[0.0], &[1]);
        dist::all_gather_into_tensor(&mut y, &x, &world()).unwrap();
        assert_eq!(read(&y), [4.0]);
        let mut y = f32s(&[0.0], &[1]);
        dist::reduce_scatter_tensor(&mut y, &x, ReduceOp::Sum, &world()).unwrap();
        dist::broadcast(&mut y, Root::Group(0), &world()).unwrap();
        dist::barrier(&world()).unwrap();
        assert_eq!(read(&y), [4.0]);
    });
}

/// `[rank 0's value; n], [rank 1's value; n]` with the values 2 and 4.
fn blocks(n: usize) -> Vec<i64> {
    [2, 4].iter().flat_map(|value| vec![*value; n]).collect()
}

#[test]
fn values_of_the_reference() {
    ranks(2, Kind::Threads, |rank| {
        let r = i64::from(rank.rank());
        let own = |shape: &[u64]| Tensor::full(shape, (2 + 2 * r) as f64, DType::I64).unwrap();
        let compiled = |f: &dyn Fn(&Tensor) -> Result<Tensor, Error>, x: &Tensor| {
            let eager: Vec<i64> = f(x).unwrap().to_vec().unwrap();
            let y = one(f, recorded())
                .call(std::slice::from_ref(x))
                .unwrap()
                .remove(0);
            assert_eq!(y.to_vec::<i64>().unwrap(), eager);
            (y.shape().to_vec(), eager)
        };
        // Gathered twice, concatenated then stacked; into a column; into a leading 1.
        for shape in [&[4, 2][..], &[2, 2, 2], &[8, 1]] {
            let gather = |x: &Tensor| {
                let mut out = Tensor::zeros(shape, DType::I64)?;
                dist::all_gather_into_tensor(&mut out, x, &dist::world()?)?;
                dist::all_gather_into_tensor(&mut out, x, &dist::world()?)?;
                Ok(out)
            };
            assert_eq!(
                compiled(&gather, &own(&[2, 2])),
                (shape.to_vec(), blocks(4))
            );
        }
        // As many elements on every rank, in other shapes.
        let shape: &[u64] = if r == 0 { &[2, 2] } else { &[1, 4] };
        let gather = |x: &Tensor| {
            let mut out = Tensor::zeros(&[8, 1], DType::I64)?;
            dist::all_gather_into_tensor(&mut out, x, &dist::world()?)?;
            Ok(out)
        };
        assert_eq!(compiled(&gather, &own(shape)), (vec![8, 1], blocks(4)));

        let input: Vec<i64> = (0..4).map(|i| i + 1 + 2 * r).collect();
        let input = Tensor::from_slice(&input, &[4]).unwrap();
        let scatter = |x: &Tensor| {
            let mut out = Tensor::zeros(&[2], DType::I64)?;
            dist::reduce_scatter_tensor(&mut out, x, ReduceOp::Sum, &dist::world()?)?;
            Ok(out)
        };
        let expected = if r == 0 { vec![4, 6] } else { vec![8, 10] };
        assert_eq!(compiled(&scatter, &input), (vec![2], expected));

        for source in 0..2 {
            for shape in [&[2, 2][..], &[1, 4]] {
                let broadcast = |x: &Tensor| {
                    let mut buffer = match rank.rank() {
                        here if here == source => x.reshape(shape)?,
                        _ => Tensor::zeros(shape, DType::I64)?,
                    };
                    dist::broadcast(&mut buffer, Root::Global(source), &dist::world()?)?;
                    Ok(buffer)
                };
                let expected = vec![2 + 2 * i64::from(source); 4];
                assert_eq!(
                    compiled(&broadcast, &own(shape)),
                    (shape.to_vec(), expected)
                );
            }
        }

        let sum = |x: &Tensor| {
            let mut z = (x + &Tensor::full(&[2, 2], 1.0, DType::I64)?)?;
            dist::all_reduce(&mut z, ReduceOp::Sum, &dist::world()?)?;
            Ok(z)
        };
        let ones = Tensor::full(&[2, 2], 1.0, DType::I64).unwrap();
        assert_eq!(compiled(&sum, &ones), (vec![2, 2], vec![4; 4]));
    });
}

#[test]
fn a_slow_link_delays_readers_and_changes_nothing() {
    let limit = Duration::from_secs(60);
    // Every transfer takes 200 ms and a little.
    let job = hcom_test::Job::new(2, Kind::Processes, limit).env("HCOM_FAKE_LINK", "200000,1");
    job.run(|rank| {
        hcom_sys::register_fallback(hcom_fake::table());
        let settings = Settings::from_env().unwrap();
        let runtime = Runtime::with_control(rank.control(), rank.rank(), &settings).unwrap();
        dist::init_with(runtime);
        let gather = |x: &Tensor| {
            let mut y = Tensor::zeros(&[2], DType::F32)?;
            dist::all_gather_into_tensor(&mut y, x, &dist::world()?)?;
            Ok(y)
        };
        let compiled = one(gather, recorded());
        let x = [f32s(&[rank.rank() as f32 + 1.0], &[1])];
        let begin = std::time::Instant::now();
        let y = gather(&x[0]).unwrap();
        assert_eq!(y.cast(DType::BF16).unwrap().to_string(), "bf16[2] [1, 2]");
        for _ in 0..2 {
            let y = compiled.call(&x).unwrap();
            let tail = y[0].slice(0, 1, 2).unwrap().sum(&[0], false).unwrap();
            assert_eq!(tail.item::<f32>().unwrap(), 2.0);
        }
        assert!(begin.elapsed() >= Duration::from_millis(600));
        dist::finalize();
    });
}
