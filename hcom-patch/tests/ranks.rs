//! The same function eagerly and compiled, on real ranks.

mod common;

use common::{Layer, Mlp, Model, WIDTH, values};
use hcom_ir::interpret;
use hcom_patch::{
    Break, Collectives, Compiled, Config, DType, Error, Literal, ReduceOp, Reduction, Root, Tensor,
    compile, dist, export, patch_for_hcom,
};
use hcom_runtime::{Mode, Runtime, Settings, Uniformity};
use hcom_test::{Kind, Rank};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

/// Runs `f` on `n` ranks of either kind.
fn ranks(n: u32, kind: Kind, f: impl Fn(Rank) + Send + Sync + 'static) {
    hcom_test::ranks(n, kind, Duration::from_secs(100), move |rank| {
        hcom_sys::register_fallback(hcom_fake::table());
        let settings = Settings::from_env().unwrap();
        let runtime = Runtime::with_control(rank.control(), rank.rank(), &settings).unwrap();
        dist::init_with(runtime);
        f(rank);
        dist::finalize();
    });
}

fn recorded() -> Config {
    Config {
        collectives: Collectives::Recorded,
        ..Config::default()
    }
}

fn cut() -> Config {
    Config {
        collectives: Collectives::Cut,
        ..Config::default()
    }
}

fn f32s(values: &[f32], shape: &[u64]) -> Tensor {
    Tensor::from_slice(values, shape).unwrap()
}

fn read(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

fn world() -> dist::Group {
    dist::world().unwrap()
}

#[track_caller]
fn assert_close(actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len());
    for (index, (a, b)) in actual.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-4, "element {index}: {a} against {b}");
    }
}

/// Compiles a function of one tensor that gives one tensor.
fn one<F>(f: F, config: Config) -> Compiled<impl Fn(&[Tensor]) -> Result<Vec<Tensor>, Error>>
where
    F: Fn(&Tensor) -> Result<Tensor, Error>,
{
    compile(move |x: &[Tensor]| Ok(vec![f(&x[0])?]), config)
}

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
            location.contains(&format!("ranks.rs:{}:", line.get())),
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
        assert!(compiled.bound_us() > 0.0);
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
