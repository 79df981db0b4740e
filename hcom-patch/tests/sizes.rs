//! Functions compiled for several sizes, and collectives that are started and waited for.

mod support;

use hcom_patch::{Config, DType, Error, ReduceOp, Shape, Shapes, Tensor, compile, dist};
use hcom_test::Kind;
use support::{f32s, one, ranks, read, recorded, world};

/// `n` rows of two numbers, different on every rank.
fn rows(rank: u32, n: u64) -> Tensor {
    let values: Vec<f32> = (0..2 * n)
        .map(|i| (i + 10 * u64::from(rank)) as f32)
        .collect();
    f32s(&values, &[n, 2])
}

/// The sum over two ranks of [`rows`].
fn sums(n: u64) -> Vec<f32> {
    (0..2 * n).map(|i| (2 * i + 10) as f32).collect()
}

#[test]
fn one_graph_serves_all_sizes() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank();
        let f = |x: &Tensor| {
            let mut y = (x * 1.0)?;
            dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
            y.relu()
        };
        let compiled = one(f, recorded());
        // The second size makes it a symbol, later ones find the graph.
        for (n, recordings) in [(4, 1), (6, 2), (9, 2), (4, 2), (1000, 2), (6, 2)] {
            let y = compiled.call(&[rows(r, n)]).unwrap();
            assert_eq!(y[0].shape(), [n, 2]);
            assert_eq!(read(&y[0]), sums(n));
            assert_eq!(compiled.report().recordings, recordings, "{n} rows");
        }
        assert!(compiled.report().text[0].contains("graph @main[s0](%x0: f32[s0, 2])"));
        // A size of one is a case of its own.
        assert_eq!(read(&compiled.call(&[rows(r, 1)]).unwrap()[0]), sums(1));
        assert_eq!(compiled.report().recordings, 3);
        assert_eq!(compiled.report().graphs, 1);

        let compiled = one(
            f,
            Config {
                shapes: Shapes::Static,
                ..recorded()
            },
        );
        for (n, recordings) in [(4, 1), (6, 2), (9, 3), (4, 3)] {
            assert_eq!(read(&compiled.call(&[rows(r, n)]).unwrap()[0]), sums(n));
            assert_eq!(compiled.report().recordings, recordings, "{n} rows");
        }
    });
}

#[test]
fn sizes_that_must_be_numbers_are_fixed_and_the_rest_stays_open() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank();
        // The rows are read, the columns are not.
        let f = |x: &Tensor| {
            let n = x.shape()[0];
            let mut y = x.sum(&[1], false)?;
            dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
            y.reshape(&[n, 1])
        };
        let shapes = Shapes::Dynamic(vec![(0, 0), (0, 1)]);
        let compiled = one(
            f,
            Config {
                shapes,
                ..recorded()
            },
        );
        let x = |n: u64, m: u64| f32s(&vec![(r + 1) as f32; (n * m) as usize], &[n, m]);
        // Reading a shape reads all its sizes, so both are fixed.
        for (n, m, recordings) in [(2, 3, 2), (2, 3, 2), (2, 5, 3), (3, 5, 4)] {
            let y = compiled.call(&[x(n, m)]).unwrap();
            assert_eq!(read(&y[0]), vec![3.0 * m as f32; n as usize]);
            assert_eq!(compiled.report().recordings, recordings);
        }
        // A product with a fixed matrix fixes the columns by its type alone.
        let w = f32s(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
        let compiled = compile(
            |x: &[Tensor]| {
                let mut y = x[0].matmul(&w)?;
                dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
                Ok(vec![y])
            },
            recorded(),
        );
        for (n, recordings) in [(2, 1), (3, 2), (4, 2)] {
            let y = compiled.call(&[x(n, 2)]).unwrap();
            assert_eq!(read(&y[0]), [12.0, 18.0].repeat(n as usize));
            assert_eq!(compiled.report().recordings, recordings);
        }
    });
}

#[test]
fn outputs_lists_and_splits_take_open_sizes() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank();
        let f = |x: &[Tensor]| {
            let rows = &x[0].dims()[0];
            let all = rows.mul(2).expect("few rows");
            let mut gathered =
                Tensor::full_to(&Shape::new([all.clone(), 2.into()]), 0.0, DType::F32)?;
            dist::all_gather_into_tensor(&mut gathered, &x[0], &world())?;
            let mut mine = Tensor::full_to(&Shape::new([rows.clone(), 2.into()]), 0.0, DType::F32)?;
            dist::reduce_scatter_tensor(&mut mine, &gathered, ReduceOp::Sum, &world())?;
            // All rows of this rank and as many zeros go to rank 0 and 1.
            let mut exchanged =
                Tensor::full_to(&Shape::new([all.clone(), 2.into()]), 0.0, DType::F32)?;
            let splits = [rows.clone(), rows.clone()];
            dist::all_to_all_single_dims(
                &mut exchanged,
                &gathered,
                Some(&splits),
                Some(&splits),
                &world(),
            )?;
            let mut list = vec![(&x[0] * 0.0)?, (&x[0] * 0.0)?];
            dist::all_gather(&mut list, &x[0], &world())?;
            list.extend([gathered, mine, exchanged]);
            Ok(list)
        };
        let compiled = compile(
            f,
            Config {
                shapes: Shapes::Dynamic(vec![(0, 0)]),
                ..recorded()
            },
        );
        for n in [3, 2, 7] {
            let y = compiled.call(&[rows(r, n)]).unwrap();
            let [first, second] = [0, 1].map(|rank| read(&rows(rank, n)));
            let both = [first.clone(), second.clone()].concat();
            let own = if r == 0 { &first } else { &second };
            assert_eq!(read(&y[0]), first);
            assert_eq!(read(&y[1]), second);
            assert_eq!(read(&y[2]), both);
            assert_eq!(read(&y[3]), own.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
            assert_eq!(read(&y[4]), [own.clone(), own.clone()].concat());
            assert_eq!(
                compiled.report().recordings,
                1,
                "{:?}",
                compiled.report().text
            );
        }
    });
}

#[test]
fn an_argument_of_open_size_is_written() {
    ranks(2, Kind::Threads, |rank| {
        let f = |x: &Tensor| {
            let mut x = x.clone();
            dist::all_reduce(&mut x, ReduceOp::Sum, &dist::world()?)?;
            &x * 2.0
        };
        let compiled = one(f, recorded());
        for n in [4, 6, 8] {
            let x = rows(rank.rank(), n);
            let y = compiled.call(std::slice::from_ref(&x)).unwrap();
            assert_eq!(read(&x), sums(n));
            assert_eq!(
                read(&y[0]),
                sums(n).iter().map(|x| 2.0 * x).collect::<Vec<_>>()
            );
        }
        assert_eq!(compiled.report().recordings, 2);
    });
}

fn asynchronous() -> Config {
    Config {
        async_collectives: true,
        ..recorded()
    }
}

#[test]
fn started_collectives_are_complete_when_they_were_waited_for() {
    ranks(2, Kind::Threads, |rank| {
        let f = |x: &Tensor| {
            let mut y = (x + 0.0)?;
            let work = dist::start(|| dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?))?;
            let z = (x * 2.0)?;
            work.wait();
            &y + &z
        };
        let r = rank.rank() as f32;
        let x = f32s(&[r + 1.0, 10.0], &[2]);
        let expected = [3.0 + 2.0 * (r + 1.0), 40.0];
        assert_eq!(read(&f(&x).unwrap()), expected);
        let compiled = one(f, asynchronous());
        for _ in 0..3 {
            let y = compiled.call(std::slice::from_ref(&x)).unwrap();
            assert_eq!(read(&y[0]), expected);
        }
        assert_eq!(compiled.report().graphs, 1);
        assert!(compiled.report().unwaited.is_empty());

        let error = one(f, recorded()).call(&[x]).unwrap_err().to_string();
        assert!(error.contains("set `Config::async_collectives`"), "{error}");
        assert!(error.contains("tests/sizes.rs:"), "{error}");
    });
}

#[test]
fn what_a_started_collective_writes_is_in_flight() {
    ranks(2, Kind::Threads, |rank| {
        let used_early = |x: &Tensor| {
            let mut y = (x + 0.0)?;
            let work = dist::start(|| dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?))?;
            let early = &y + 1.0;
            work.wait();
            early
        };
        let x = f32s(&[rank.rank() as f32], &[1]);
        let error = one(used_early, asynchronous())
            .call(std::slice::from_ref(&x))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("is in flight: all_reduce, started at"),
            "{error}"
        );

        // Started in one graph and waited for in the next.
        let across = |x: &Tensor| {
            let mut y = (x + 0.0)?;
            let work = dist::start(|| dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?))?;
            assert_eq!(x.to_vec::<f32>()?.len(), 1);
            work.wait();
            &y + 1.0
        };
        let compiled = one(across, asynchronous());
        for _ in 0..2 {
            let y = compiled.call(std::slice::from_ref(&x)).unwrap();
            assert_eq!(read(&y[0]), [2.0]);
            assert_eq!(compiled.report().graphs, 2);
        }
    });
}

#[test]
fn a_result_that_nobody_waits_for_is_reported_and_harms_nobody() {
    ranks(2, Kind::Threads, |rank| {
        let f = |x: &Tensor| -> Result<Tensor, Error> {
            let mut y = (x + 0.0)?;
            let _ = dist::start(|| dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?))?;
            let mut dropped = (x + 1.0)?;
            dist::all_reduce(&mut dropped, ReduceOp::Sum, &dist::world()?)?;
            dist::barrier(&dist::world()?)?;
            x * 3.0
        };
        let compiled = one(f, asynchronous());
        let x = f32s(&[rank.rank() as f32 + 1.0], &[1]);
        for _ in 0..3 {
            let y = compiled.call(std::slice::from_ref(&x)).unwrap();
            assert_eq!(read(&y[0]), [3.0 * (rank.rank() as f32 + 1.0)]);
        }
        let report = compiled.report();
        assert_eq!(report.collectives, 2);
        let [unwaited] = &report.unwaited[..] else {
            panic!("{:?}", report.unwaited);
        };
        assert!(unwaited.starts_with("all_reduce at "), "{unwaited}");
    });
}

/// Sends `counts[p]` rows of `x` to rank `p`, as many as are asked for anew at each call.
fn by_counts(x: &Tensor, counts: &Tensor) -> Result<Tensor, Error> {
    let mut asked = (counts * 1.0)?;
    dist::all_to_all_single(&mut asked, counts, None, None, &dist::world()?)?;
    let number = |x: &Tensor| -> Result<Vec<u64>, Error> {
        Ok(x.to_vec::<f32>()?.into_iter().map(|n| n as u64).collect())
    };
    let (send, receive) = (number(counts)?, number(&asked)?);
    let mut y = Tensor::zeros(&[receive.iter().sum(), 1], DType::F32)?;
    let x = x.slice(0, 0, send.iter().sum())?;
    dist::all_to_all_single(&mut y, &x, Some(&receive), Some(&send), &dist::world()?)?;
    Ok(y)
}

#[test]
fn splits_that_come_from_data_may_change_on_any_rank_at_each_call() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank() as usize;
        let compiled = compile(
            |x: &[Tensor]| Ok(vec![by_counts(&x[0], &x[1])?]),
            recorded(),
        );
        let x: Vec<f32> = (0..8).map(|i| (10 * r + i) as f32).collect();
        let x = f32s(&x, &[8, 1]);
        // Both ranks' counts; from line to line none, one, the other or both ranks change theirs.
        let lines: [[[u64; 2]; 2]; 7] = [
            [[1, 2], [3, 4]],
            [[1, 2], [3, 4]],
            [[1, 2], [0, 4]],
            [[2, 2], [0, 4]],
            [[1, 2], [3, 4]],
            [[2, 2], [3, 4]],
            [[0, 0], [0, 0]],
        ];
        for counts in lines {
            let own: Vec<f32> = counts[r].iter().map(|n| *n as f32).collect();
            let y = compiled.call(&[x.clone(), f32s(&own, &[2])]).unwrap();
            let from = |source: usize| {
                let start = if r == 0 { 0 } else { counts[source][0] };
                (start..start + counts[source][r]).map(move |i| (10 * source) as f32 + i as f32)
            };
            assert_eq!(read(&y[0]), from(0).chain(from(1)).collect::<Vec<_>>());
        }
    });
}

#[test]
fn every_order_of_nodes_gives_the_same() {
    use hcom_patch::TopologyOrder;
    use hcom_runtime::Mode;
    ranks(2, Kind::Threads, |rank| {
        let f = |x: &Tensor| {
            let (mut a, mut b) = (x.exp()?, x.abs()?);
            dist::all_reduce(&mut a, ReduceOp::Sum, &dist::world()?)?;
            dist::all_reduce(&mut b, ReduceOp::Max, &dist::world()?)?;
            &a.sqrt()? * &b
        };
        let x = f32s(&[rank.rank() as f32 + 0.5, -2.0], &[2]);
        let expected = read(&f(&x).unwrap());
        // Each rank asks for another order than the one before it, and than its peer.
        let turn = rank.rank() as usize;
        for index in 0..4 {
            for mode in [Mode::SingleStream, Mode::Overlapped] {
                let config = Config {
                    order: TopologyOrder::ALL[(index + turn) % 4],
                    mode,
                    ..recorded()
                };
                let y = one(f, config).call(std::slice::from_ref(&x)).unwrap();
                assert_eq!(read(&y[0]), expected);
            }
        }
    });
}
