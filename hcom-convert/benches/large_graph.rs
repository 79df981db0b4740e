//! What it takes to convert, validate and print a graph of 10,000 nodes with 1,000 collectives.
//!
//! `cargo bench -p hcom-convert --bench large_graph` prints the median of several rounds and the
//! process's peak memory.

use std::time::{Duration, Instant};

use hcom_convert::{Call, Context, convert};
use hcom_ir::{Attrs, Builder, DType, Graph, Group, Op, ReduceOp, Type};

const COLLECTIVES: usize = 1_000;
const NODES: usize = 10_000;
const ROUNDS: usize = 15;

/// Layers of nine local operations and one all_reduce call each.
fn build() -> Graph {
    let mut builder = Builder::new("large");
    let group = builder.group(Group::new("tp", [0, 1, 2, 3]));
    let ty = Type::fixed(DType::F32, &[64, 64]);
    let w = builder.input("w", ty.clone(), false);
    let mut x = builder.input("x", ty, false);
    let call = Call::AllReduce {
        reduction: ReduceOp::Sum.into(),
    };
    let transposed = || Attrs::new().with("perm", vec![1i64, 0]);
    for _ in 0..COLLECTIVES {
        let residual = x;
        let steps: [(Op, bool, Attrs); 8] = [
            (Op::Matmul, true, Attrs::new()),
            (Op::Gelu, false, Attrs::new()),
            (Op::Transpose, false, transposed()),
            (Op::Mul, true, Attrs::new()),
            (Op::Tanh, false, Attrs::new()),
            (Op::Matmul, true, Attrs::new()),
            (Op::Relu, false, Attrs::new()),
            (Op::Softmax, false, Attrs::new()),
        ];
        for (op, binary, attrs) in steps {
            let operands = if binary { vec![x, w] } else { vec![x] };
            x = builder.one(op, &operands, attrs).expect("it fits");
        }
        let mut context = Context {
            builder: &mut builder,
            rank: 0,
            world_size: 4,
        };
        x = convert(&mut context, &call, &[x], group).expect("it is offered")[0];
        x = builder
            .one(Op::Add, &[x, residual], Attrs::new())
            .expect("it fits");
    }
    builder
        .finish(vec![("y".to_owned(), x)])
        .expect("it is valid")
}

fn main() {
    let mut times: Vec<[Duration; 3]> = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let graph = build();
        let converted = begin.elapsed();
        graph.validate().expect("it is valid");
        let validated = begin.elapsed();
        let text = graph.to_string();
        let printed = begin.elapsed();
        assert_eq!(graph.nodes().len(), NODES);
        assert_eq!(text.matches("all_reduce").count(), COLLECTIVES);
        times.push([converted, validated - converted, printed - validated]);
    }
    times.sort_by_key(|parts| parts.iter().sum::<Duration>());
    let [convert, validate, print] = times[ROUNDS / 2];
    println!("{NODES} nodes, {COLLECTIVES} collectives, median of {ROUNDS}:");
    println!(
        "convert {convert:.1?}, validate {validate:.1?}, print {print:.1?}, all {:.1?}",
        convert + validate + print
    );
    if let Some(peak) = peak_memory() {
        println!("peak memory {peak}");
    }
}

/// The most memory the process has had, as Linux counts it.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().to_owned())
}
