//! Every reduction of every element type, by every call that reduces, against the interpreter's own
//! reduction.

mod support;

use hcom_convert::support::{Support, table};
use hcom_ir::{Builder, Group, Literal, Op, ReduceOp, Type, interpret};
use hcom_patch::{DType, Error, Reduction, Root, Tensor, dist};
use hcom_test::Kind;
use support::{one, ranks, recorded, world};

const WORLD: u32 = 3;
const ROWS: u64 = 6;

/// `ROWS` rows of two small numbers, different on every rank; a cast makes them any type.
fn contribution(rank: u32, dtype: DType) -> Literal {
    let number =
        |i: u32| f64::from((i * 7 + rank * 5) % 11) - if dtype.is_signed() { 4.0 } else { 0.0 };
    let count = 2 * ROWS as u32;
    let shape = [ROWS, 2];
    if dtype.is_complex() {
        let pairs: Vec<[f64; 2]> = (0..count).map(|i| [number(i), number(i + 3)]).collect();
        return cast(Literal::from_slice(&shape, &pairs).unwrap(), dtype);
    }
    let numbers: Vec<f64> = (0..count).map(number).collect();
    cast(Literal::from_slice(&shape, &numbers).unwrap(), dtype)
}

/// One operation, run by the interpreter on one rank.
fn cast(x: Literal, dtype: DType) -> Literal {
    let mut builder = Builder::new("cast");
    let input = builder.input("x", x.ty(), false);
    let attrs = hcom_ir::Attrs::new().with("to", dtype);
    let y = builder.one(Op::Cast, &[input], attrs).unwrap();
    let graph = builder.finish(vec![("y".into(), y)]).unwrap();
    interpret(&[graph], &[vec![x]]).unwrap()[0].outputs[0].clone()
}

/// What the interpreter makes of the reduction of all ranks' contributions.
fn reference(reduction: Reduction, dtype: DType) -> Literal {
    let mut builder = Builder::new("reference");
    let group = builder.group(Group::new("world", (0..WORLD).collect::<Vec<u32>>()));
    let input = builder.input("x", Type::fixed(dtype, &[ROWS, 2]), false);
    let mut attrs = hcom_ir::Attrs::new()
        .with("op", reduction.op)
        .with("group", group);
    if let Some(factor) = reduction.factor {
        attrs = attrs.with("factor", factor);
    }
    let y = builder.one(Op::AllReduce, &[input], attrs).unwrap();
    let graph = builder.finish(vec![("y".into(), y)]).unwrap();
    let graphs = vec![graph; WORLD as usize];
    let inputs: Vec<Vec<Literal>> = (0..WORLD)
        .map(|rank| vec![contribution(rank, dtype)])
        .collect();
    interpret(&graphs, &inputs).unwrap()[0].outputs[0].clone()
}

/// Rows `from..to` of `all`.
fn rows(all: &Literal, from: u64, to: u64) -> Literal {
    let row = all.bytes.len() / ROWS as usize;
    Literal {
        dtype: all.dtype,
        shape: vec![to - from, 2],
        bytes: all.bytes[from as usize * row..to as usize * row].to_vec(),
    }
}

/// A call under test: its name in the table, what it computes, and the rows that a rank then has;
/// none for its own contribution.
struct Case {
    call: &'static str,
    run: fn(&Tensor, Reduction, u32) -> Result<Tensor, Error>,
    kept: fn(u32) -> Option<(u64, u64)>,
}

const UNEVEN: [u64; 3] = [3, 0, 3];

fn uneven(rank: u32) -> Option<(u64, u64)> {
    let start = UNEVEN[..rank as usize].iter().sum();
    Some((start, start + UNEVEN[rank as usize]))
}

const CASES: [Case; 5] = [
    Case {
        call: "all_reduce",
        run: |x, reduction, _| {
            let mut y = x.reshape(x.shape())?;
            dist::all_reduce(&mut y, reduction, &dist::world()?)?;
            Ok(y)
        },
        kept: |_| Some((0, ROWS)),
    },
    Case {
        call: "reduce",
        run: |x, reduction, _| {
            let mut y = x.reshape(x.shape())?;
            dist::reduce(&mut y, reduction, Root::Group(1), &dist::world()?)?;
            Ok(y)
        },
        kept: |rank| (rank == 1).then_some((0, ROWS)),
    },
    Case {
        call: "reduce_scatter_tensor",
        run: |x, reduction, _| {
            let mut y = x.slice(0, 0, 2)?;
            dist::reduce_scatter_tensor(&mut y, x, reduction, &dist::world()?)?;
            Ok(y)
        },
        kept: |rank| Some((2 * u64::from(rank), 2 * u64::from(rank) + 2)),
    },
    Case {
        call: "reduce_scatter (unequal sizes)",
        run: |x, reduction, rank| {
            let parts = x.split(&UNEVEN, 0)?;
            let mut y = x.slice(0, 0, UNEVEN[rank as usize])?;
            dist::reduce_scatter(&mut y, &parts, reduction, &dist::world()?)?;
            Ok(y)
        },
        kept: uneven,
    },
    Case {
        call: "reduce_scatter_tensor_uneven",
        run: |x, reduction, rank| {
            let mut y = x.slice(0, 0, UNEVEN[rank as usize])?;
            let splits = Some(&UNEVEN[..]);
            dist::reduce_scatter_tensor_uneven(&mut y, x, splits, reduction, &dist::world()?)?;
            Ok(y)
        },
        kept: uneven,
    },
];

/// Runs every reduction of `dtype` by every call, eagerly and compiled.
fn check(rank: u32, dtype: DType) {
    let table = table();
    let own = contribution(rank, dtype);
    let x = Tensor::from_literal(own.clone()).unwrap();
    for op in ReduceOp::ALL {
        let reduction = match op {
            ReduceOp::PremulSum => Reduction::premul_sum(0.5),
            op => op.into(),
        };
        for case in &CASES {
            let place = format!("{} {op} of {dtype}", case.call);
            let same = |entry: &&hcom_convert::support::Entry| {
                (entry.call, entry.reduction, entry.dtype) == (case.call, Some(op), dtype)
            };
            let entry = table.iter().find(same).unwrap();
            let eager = (case.run)(&x, reduction, rank);
            if let Support::Refused(reason) = entry.support {
                let error = eager.unwrap_err().to_string();
                assert!(error.ends_with(reason), "{place}: {error}");
                continue;
            }
            let expected = match (case.kept)(rank) {
                Some((from, to)) => rows(&reference(reduction, dtype), from, to),
                None => own.clone(),
            };
            let eager = eager.unwrap_or_else(|error| panic!("{place}: {}", support::chain(&error)));
            assert_eq!(eager.to_literal().unwrap(), expected, "{place}");
            let compiled = one(|x: &Tensor| (case.run)(x, reduction, rank), recorded());
            let y = compiled.call(std::slice::from_ref(&x)).unwrap().remove(0);
            assert_eq!(y.to_literal().unwrap(), expected, "{place}, compiled");
        }
    }
}

#[test]
fn integers_and_booleans() {
    ranks(WORLD, Kind::Threads, |rank| {
        for dtype in DType::ALL {
            if dtype.is_integer() || dtype == DType::Bool {
                check(rank.rank(), dtype);
            }
        }
    });
}

#[test]
fn floats_and_complex_numbers() {
    ranks(WORLD, Kind::Threads, |rank| {
        for dtype in DType::ALL {
            if dtype.is_float() || dtype.is_complex() {
                check(rank.rank(), dtype);
            }
        }
    });
}

#[test]
fn nan_wins_in_every_float_type_on_whichever_rank_it_is() {
    ranks(WORLD, Kind::Threads, |rank| {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            for holder in 0..WORLD {
                let value = if rank.rank() == holder { f32::NAN } else { 1.0 };
                let x = Tensor::from_slice(&[value, 2.0], &[2]).unwrap();
                for op in [ReduceOp::Min, ReduceOp::Max] {
                    let mut y = x.cast(dtype).unwrap();
                    dist::all_reduce(&mut y, op, &world()).unwrap();
                    let y: Vec<f32> = y.cast(DType::F32).unwrap().to_vec().unwrap();
                    assert!(y[0].is_nan() && y[1] == 2.0, "{op} of {dtype}: {y:?}");
                }
            }
        }
    });
}

#[test]
fn means_of_integers_hold_the_sums_of_extremes() {
    /// All ranks contribute `value`, which is then the mean.
    fn mean<T: hcom_patch::Element + PartialEq + std::fmt::Debug>(value: T) {
        let mut x = Tensor::from_slice(&[value], &[1]).unwrap();
        dist::all_reduce(&mut x, ReduceOp::Avg, &world()).unwrap();
        assert_eq!(x.to_vec::<T>().unwrap(), [value]);
    }
    ranks(WORLD, Kind::Threads, |_| {
        mean(i8::MIN);
        mean(u8::MAX);
        mean(i16::MIN);
        mean(u16::MAX);
        mean(i32::MIN);
        mean(u32::MAX);
        // No wider integer sums these; they are exact as long as their sum fits.
        mean(i64::MAX / 3);
        mean(-1i64 << 61);
    });
}
