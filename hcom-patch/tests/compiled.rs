//! What compiled functions keep, write, break on and share.

mod support;

use hcom_patch::{Break, Config, DType, Error, ReduceOp, Tensor, compile, dist, patch_for_hcom};
use hcom_runtime::{Runtime, Settings};
use hcom_test::Kind;
use std::cell::Cell;
use std::time::{Duration, Instant};
use support::{assert_close, cut, f32s, one, ranks, read, recorded};

#[test]
fn the_callers_tensor_is_written() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank() as f32;
        let f = |x: &Tensor| {
            let mut x = x.clone();
            dist::all_reduce(&mut x, ReduceOp::Sum, &dist::world()?)?;
            &x * 2.0
        };
        for compiled in [one(f, recorded()), one(f, cut())] {
            // Twice: recorded, then launched.
            for _ in 0..2 {
                let x = f32s(&[r + 1.0, 10.0], &[2]);
                let y = compiled.call(std::slice::from_ref(&x)).unwrap();
                assert_eq!(read(&y[0]), [6.0, 40.0]);
                assert_eq!(read(&x), [3.0, 20.0]);
            }
        }
        let x = f32s(&[r + 1.0, 10.0], &[2]);
        assert_eq!(read(&f(&x).unwrap()), [6.0, 40.0]);
        assert_eq!(read(&x), [3.0, 20.0]);
    });
}

#[test]
fn a_collectives_buffer_is_not_reused_under_its_readers() {
    ranks(2, Kind::Threads, |_| {
        let f = |a: &Tensor| {
            let mut s = a.cast(DType::F32)?;
            dist::all_reduce(&mut s, ReduceOp::Sum, &dist::world()?)?;
            let c = a.relu()?;
            &c.matmul(&c)? + &s
        };
        let compiled = one(f, recorded());
        for _ in 0..3 {
            let a = f32s(&[1.0, -1.0, 0.0, 2.0], &[2, 2]);
            let y = compiled.call(std::slice::from_ref(&a)).unwrap();
            assert_eq!(read(&y[0]), [3.0, -2.0, 0.0, 8.0]);
            assert_eq!(read(&a), [1.0, -1.0, 0.0, 2.0]);
        }
    });
}

#[test]
fn equal_guards_launch_without_running_the_function() {
    ranks(1, Kind::Threads, |_| {
        let runs = Cell::new(0);
        let w = f32s(&[1.0, 2.0], &[2]).named("w");
        let f = |inputs: &[Tensor]| {
            runs.set(runs.get() + 1);
            Ok(vec![(&inputs[0] * &w)?, inputs[1].clone()])
        };
        let compiled = compile(f, recorded());
        let call = |x: &Tensor, other: &Tensor| {
            let y = compiled.call(&[x.clone(), other.clone()]).unwrap();
            assert!(y[1].is_same(other));
            read(&y[0])
        };
        let (x, z) = (f32s(&[3.0, 4.0], &[2]), f32s(&[5.0, 6.0], &[2]));
        assert_eq!(call(&x, &z), [3.0, 8.0]);
        assert_eq!(call(&z, &x), [5.0, 12.0]);
        assert_eq!(runs.get(), 1);
        // A captured tensor is a parameter: its present value counts.
        w.clone().copy_(&f32s(&[10.0, 20.0], &[2])).unwrap();
        assert_eq!(call(&x, &z), [30.0, 80.0]);
        assert_eq!(runs.get(), 1);
        // Another shape, the same tensor twice, and a captured tensor as argument are other graphs.
        assert_eq!(
            call(&f32s(&[1.0; 4], &[2, 2]), &z),
            [10.0, 20.0, 10.0, 20.0]
        );
        assert_eq!(runs.get(), 2);
        assert_eq!(call(&x, &x), [30.0, 80.0]);
        assert_eq!(runs.get(), 3);
        assert_eq!(call(&w, &z), [100.0, 400.0]);
        assert_eq!(runs.get(), 4);
        for (x, expected) in [(&x, [30.0, 80.0]), (&w, [100.0, 400.0])] {
            assert_eq!(call(x, &z), expected);
        }
        assert_eq!(runs.get(), 4);
        let report = compiled.report();
        assert_eq!((report.recordings, report.replays), (4, 4));
    });
}

#[test]
fn reading_data_in_the_middle_makes_two_graphs() {
    ranks(2, Kind::Threads, |rank| {
        let line = Cell::new(0);
        let f = |x: &Tensor| {
            let mut y = x.neg()?;
            dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
            line.set(line!() + 1);
            let sum = y.sum(&[0], false)?.item::<f32>()?;
            if sum < -10.0 { y.abs() } else { y.exp() }
        };
        let compiled = one(f, recorded());
        let r = rank.rank() as f32;
        let call = |value: f32| {
            let y = compiled.call(&[f32s(&[value + r, 0.0], &[2])]).unwrap();
            read(&y[0])
        };
        // The path depends on what was read, on every call.
        assert_eq!(call(10.0), [21.0, 0.0]);
        let report = compiled.report();
        assert_eq!(
            (report.graphs, report.collectives, report.compiles),
            (2, 1, 2)
        );
        let [
            Break {
                reason, location, ..
            },
        ] = &report.breaks[..]
        else {
            panic!("{:?}", report.breaks);
        };
        assert_eq!(*reason, "data is read");
        assert!(
            location.contains(&format!("compiled.rs:{}:", line.get())),
            "{location}"
        );
        assert_close(&call(0.0), &[(-1f32).exp(), 1.0]);
        assert_eq!(call(20.0), [41.0, 0.0]);
        // Three pieces are known: the common one, and one per path.
        assert_eq!(compiled.report().compiles, 3);
    });
}

#[test]
fn the_patch_decides_unless_the_configuration_does() {
    ranks(2, Kind::Threads, |rank| {
        let f = |x: &Tensor| {
            let mut y = (x * 2.0)?;
            dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
            &y + 1.0
        };
        let x = f32s(&[1.0 + rank.rank() as f32], &[1]);
        let compiled = one(f, Config::default());
        let graphs = || {
            let y = compiled.call(std::slice::from_ref(&x)).unwrap();
            assert_eq!(read(&y[0]), [7.0]);
            compiled.report().graphs
        };
        assert_eq!(graphs(), 2);
        let outer = patch_for_hcom();
        {
            let _inner = patch_for_hcom();
            assert_eq!(graphs(), 1);
        }
        assert_eq!(graphs(), 1);
        drop(outer);
        assert_eq!(graphs(), 2);
        let _patch = patch_for_hcom();
        let compiled = one(f, cut());
        compiled.call(std::slice::from_ref(&x)).unwrap();
        assert_eq!(compiled.report().graphs, 2);
    });
}

#[test]
fn compiled_functions_nest() {
    ranks(2, Kind::Threads, |_| {
        let inner = one(
            |x| {
                let mut y = x.neg()?;
                dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
                Ok(y)
            },
            recorded(),
        );
        let outer = one(
            |x| {
                let y = inner.call(std::slice::from_ref(x))?.remove(0);
                Ok(inner.call(&[y])?.remove(0))
            },
            recorded(),
        );
        let y = outer.call(&[f32s(&[3.0], &[1])]).unwrap();
        assert_eq!(read(&y[0]), [12.0]);
        let report = outer.report();
        assert_eq!((report.graphs, report.collectives), (1, 2));
        assert_eq!(inner.report().graphs, 0);
    });
}

#[test]
fn a_traced_call_tells_when_its_work_ran() {
    ranks(2, Kind::Threads, |_| {
        let f = |x: &Tensor| {
            let mut y = x.neg()?;
            dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
            y.relu()
        };
        let x = [f32s(&[-3.0], &[1])];
        let compiled = one(f, recorded());
        assert!(matches!(compiled.traced(&x), Err(Error::NoGraph)));
        compiled.call(&x).unwrap();
        let (y, trace) = compiled.traced(&x).unwrap();
        assert_eq!(read(&y[0]), [6.0]);
        assert!(trace.spans.len() >= 3, "{trace:?}");
        let bounds: Vec<f64> = compiled
            .executables()
            .iter()
            .map(|executable| executable.bound_us())
            .collect();
        assert!(bounds.len() == 1 && bounds[0] > 0.0, "{bounds:?}");
    });
}

#[test]
fn results_share_no_memory_with_anything() {
    ranks(1, Kind::Threads, |_| {
        let f = |inputs: &[Tensor]| {
            let y = inputs[0].neg()?;
            Ok(vec![y.reshape(&[2, 1])?, inputs[0].reshape(&[1, 2])?, y])
        };
        let x = f32s(&[1.0, 2.0], &[2]);
        let compiled = compile(f, recorded());
        for mut results in [
            f(std::slice::from_ref(&x)).unwrap(),
            compiled.call(std::slice::from_ref(&x)).unwrap(),
        ] {
            let zeros = Tensor::zeros(&[2], DType::F32).unwrap();
            results[2].copy_(&zeros).unwrap();
            assert_eq!(read(&results[0]), [-1.0, -2.0]);
            x.clone().copy_(&f32s(&[5.0, 6.0], &[2])).unwrap();
            assert_eq!(read(&results[1]), [1.0, 2.0]);
            x.clone().copy_(&f32s(&[1.0, 2.0], &[2])).unwrap();
            // A later call does not write what an earlier one returned.
            compiled.call(&[f32s(&[7.0, 8.0], &[2])]).unwrap();
            assert_eq!(read(&results[0]), [-1.0, -2.0]);
        }
    });
}

#[test]
fn a_captured_tensor_is_written_on_every_call() {
    ranks(2, Kind::Threads, |rank| {
        let state = f32s(&[rank.rank() as f32 + 1.0], &[1]);
        let kept = state.clone();
        let step = move |x: &Tensor| {
            let mut kept = kept.clone();
            dist::all_reduce(&mut kept, ReduceOp::Sum, &dist::world()?)?;
            x + &kept
        };
        let compiled = one(step, recorded());
        for (call, sum) in [3.0, 6.0, 12.0].into_iter().enumerate() {
            let y = compiled.call(&[f32s(&[call as f32], &[1])]).unwrap();
            assert_eq!(read(&y[0]), [call as f32 + sum]);
            assert_eq!(read(&state), [sum]);
        }
        assert_eq!(compiled.report().recordings, 1);
    });
}

#[test]
fn a_panic_in_the_function_leaves_the_rank_usable() {
    ranks(1, Kind::Threads, |_| {
        let broken = Cell::new(true);
        let f = |x: &Tensor| {
            let mut y = x.clone();
            y.copy_(&x.neg()?)?;
            assert!(!broken.get(), "on purpose");
            Ok(y)
        };
        let compiled = one(f, recorded());
        let x = [f32s(&[1.0, 2.0], &[2])];
        let call = std::panic::AssertUnwindSafe(|| compiled.call(&x));
        assert!(std::panic::catch_unwind(call).is_err());
        // Nothing of the recording has happened.
        assert_eq!(read(&x[0]), [1.0, 2.0]);
        assert_eq!(read(&x[0].abs().unwrap()), [1.0, 2.0]);
        broken.set(false);
        let y = compiled.call(&x).unwrap();
        assert!(y[0].is_same(&x[0]));
        assert_eq!(read(&x[0]), [-1.0, -2.0]);
    });
}

#[test]
fn rank_threads_share_a_compiled_function() {
    fn step(x: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let mut y = x[0].neg()?;
        dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
        Ok(vec![y])
    }
    ranks(4, Kind::Threads, |rank| {
        let compiled = rank.shared(|| compile(step, recorded()));
        for _ in 0..3 {
            let y = compiled.call(&[f32s(&[rank.rank() as f32], &[1])]).unwrap();
            assert_eq!(read(&y[0]), [-6.0]);
        }
        let report = compiled.report();
        assert_eq!(
            (report.recordings, report.replays, report.compiles),
            (1, 2, 1)
        );
    });
}

#[test]
fn ranks_that_part_ways_fail_together() {
    let limit = Duration::from_secs(60);
    hcom_test::ranks(2, Kind::Threads, limit, |rank| {
        hcom_sys::register_fallback(hcom_fake::table());
        let settings = Settings {
            timeout: Duration::from_secs(1),
            ..Settings::from_env().unwrap()
        };
        let runtime = Runtime::with_control(rank.control(), rank.rank(), &settings).unwrap();
        dist::init_with(runtime);
        let f = |x: &Tensor| {
            let mut y = x.neg()?;
            dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
            Ok(y)
        };
        let compiled = one(f, recorded());
        let [short, long] = [4, 8].map(|n| f32s(&vec![1.0; n], &[n as u64]));
        let call = |x: &Tensor| compiled.call(std::slice::from_ref(x))?[0].to_vec::<f32>();
        assert_eq!(call(&short).unwrap(), [-2.0; 4]);
        // One rank has a graph for its tensor, the other has to record one.
        let (begin, own) = (Instant::now(), [&short, &long][rank.rank() as usize]);
        let error = call(own).unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(20));
        let Error::Runtime(hcom_runtime::Error::Failure(failure)) = error else {
            panic!("{error}");
        };
        assert_eq!(failure.op.as_deref(), Some("cross-rank check"));
        assert_eq!((failure.rank, &failure.ranks[..]), (1, &[0][..]));
        assert!(
            failure
                .got
                .unwrap()
                .contains("inside all_reduce 2 of group world")
        );
        assert!(call(&short).is_err());
        dist::finalize();
    });
}
