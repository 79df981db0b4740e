//! Collectives on the operands of all ranks of a group.

use super::data::{Data, complexes, decode, encode, floats, ints};
use super::movement::{concat, slice};
use crate::graph::Node;
use crate::literal::Literal;
use crate::op::Op;
use crate::op::attr::{Attr, ReduceOp};
use crate::op::infer::axis;
use crate::types::DType;

/// The results on each rank. `nodes[r]` and `operands[r]` are those of group rank `r`; the nodes
/// agree in their equal columns, and a barrier has no operands.
pub(super) fn run(nodes: &[&Node], operands: &[&Literal]) -> Vec<Vec<Literal>> {
    let node = nodes[0];
    let size = nodes.len();
    let root = || node.attrs.int("root") as usize;
    let everywhere = |data: Literal| vec![data; size];
    let results = match node.op {
        Op::AllReduce => {
            let total = reduce(node, operands);
            own_shapes(everywhere(total), operands)
        }
        Op::Reduce => {
            let mut results: Vec<Literal> = operands.iter().map(|&data| data.clone()).collect();
            let shape = results[root()].shape.clone();
            results[root()] = Literal {
                shape,
                ..reduce(node, operands)
            };
            results
        }
        Op::Broadcast => own_shapes(everywhere(operands[root()].clone()), operands),
        Op::AllGather => nodes
            .iter()
            .zip(operands)
            .map(|(node, own)| gather(node, own, operands))
            .collect(),
        Op::AllGatherUneven => {
            let bytes = operands
                .iter()
                .flat_map(|data| &data.bytes)
                .copied()
                .collect();
            let rows = node.attrs.sizes("counts").iter().sum();
            let all = Literal {
                dtype: operands[0].dtype,
                shape: Vec::new(),
                bytes,
            };
            operands
                .iter()
                .map(|own| Literal {
                    shape: with_rows(own, rows),
                    ..all.clone()
                })
                .collect()
        }
        Op::GatherTo => {
            let gathered = |rank: usize| {
                let all = gather(node, operands[rank], operands);
                if rank == root() {
                    all
                } else {
                    Literal {
                        bytes: vec![0; all.bytes.len()],
                        ..all
                    }
                }
            };
            (0..size).map(gathered).collect()
        }
        Op::ReduceScatter => {
            let total = reduce(node, operands);
            let piece = |(rank, (node, own)): (usize, (&&Node, &&Literal))| {
                let dim = dim(node, own);
                let total = Literal {
                    shape: own.shape.clone(),
                    ..total.clone()
                };
                even_piece(&total, dim, rank, size)
            };
            nodes.iter().zip(operands).enumerate().map(piece).collect()
        }
        Op::ReduceScatterUneven => {
            let pieces = pieces(&reduce(node, operands), &node.attrs.sizes("counts"));
            let own = |(piece, own): (Literal, &&Literal)| Literal {
                shape: with_rows(own, piece.shape[0]),
                ..piece
            };
            pieces.into_iter().zip(operands).map(own).collect()
        }
        Op::Scatter => (0..size)
            .map(|rank| {
                let all = Literal {
                    shape: operands[rank].shape.clone(),
                    ..operands[root()].clone()
                };
                even_piece(&all, 0, rank, size)
            })
            .collect(),
        Op::AllToAll => all_to_all(nodes, operands),
        Op::Barrier => return vec![Vec::new(); size],
        op => unreachable!("{op} is no collective"),
    };
    results.into_iter().map(|result| vec![result]).collect()
}

/// Ranks agree in the number of elements, not in the shape.
fn own_shapes(results: Vec<Literal>, operands: &[&Literal]) -> Vec<Literal> {
    let pairs = results.into_iter().zip(operands);
    pairs
        .map(|(result, own)| Literal {
            shape: own.shape.clone(),
            ..result
        })
        .collect()
}

/// The shape of `data` with another size of dimension 0.
fn with_rows(data: &Literal, rows: u64) -> Vec<u64> {
    let mut shape = data.shape.clone();
    shape[0] = rows;
    shape
}

fn dim(node: &Node, operand: &Literal) -> usize {
    let dim = match node.attrs.get("dim") {
        Some(Attr::Int(dim)) => *dim,
        _ => 0,
    };
    axis(dim, operand.shape.len()).expect("the type rule checks the dimension")
}

/// The operands of all ranks, seen in the shape of this one, concatenated.
fn gather(node: &Node, own: &Literal, operands: &[&Literal]) -> Literal {
    let all: Vec<Literal> = operands
        .iter()
        .map(|&data| Literal {
            shape: own.shape.clone(),
            ..data.clone()
        })
        .collect();
    let all: Vec<&Literal> = all.iter().collect();
    concat(&all, dim(node, own))
}

fn even_piece(data: &Literal, dim: usize, rank: usize, size: usize) -> Literal {
    let rows = data.shape[dim] / size as u64;
    slice(data, dim, rows * rank as u64, rows * (rank as u64 + 1), 1)
}

/// Consecutive pieces along dimension 0.
fn pieces(data: &Literal, counts: &[u64]) -> Vec<Literal> {
    let mut start = 0;
    let mut next = |&count: &u64| {
        let piece = slice(data, 0, start, start + count, 1);
        start += count;
        piece
    };
    counts.iter().map(&mut next).collect()
}

fn all_to_all(nodes: &[&Node], operands: &[&Literal]) -> Vec<Literal> {
    let size = nodes.len();
    let sent: Vec<Vec<Literal>> = nodes
        .iter()
        .zip(operands)
        .map(|(node, data)| match node.attrs.get("send_counts") {
            Some(_) => pieces(data, &node.attrs.sizes("send_counts")),
            None => (0..size)
                .map(|rank| even_piece(data, 0, rank, size))
                .collect(),
        })
        .collect();
    (0..size)
        .map(|rank| {
            let received: Vec<&[u8]> = sent.iter().map(|pieces| &pieces[rank].bytes[..]).collect();
            let own = operands[rank];
            let rows = match nodes[rank].attrs.get("recv_counts") {
                Some(_) => nodes[rank].attrs.sizes("recv_counts").iter().sum(),
                None => own.shape[0],
            };
            Literal {
                dtype: own.dtype,
                shape: with_rows(own, rows),
                bytes: received.concat(),
            }
        })
        .collect()
}

/// The reduction over the ranks in rank order.
fn reduce(node: &Node, operands: &[&Literal]) -> Literal {
    let op = node.attrs.reduce("op");
    let factor = match node.attrs.get("factor") {
        Some(Attr::Float(factor)) => *factor,
        _ => 1.0,
    };
    let first = operands[0];
    let dtype = first.dtype;
    let ranks = operands.len();
    let data = match decode(first) {
        Data::Int(values) => {
            let total = fold(values, operands, ints, |a, b| int(op, a, b));
            let scale = |value: i128| match op {
                ReduceOp::Avg => value / ranks as i128,
                _ => value,
            };
            Data::Int(total.into_iter().map(scale).collect())
        }
        Data::Float(_) => {
            let round = rounding(dtype);
            let scaled =
                |data: &Literal| premultiply(op, floats(data), |x| round(x * round(factor)));
            let total = fold(scaled(first), operands, scaled, |a, b| {
                round(float(op, a, b))
            });
            let scale = |value: f64| {
                if op == ReduceOp::Avg {
                    round(value / ranks as f64)
                } else {
                    value
                }
            };
            Data::Float(total.into_iter().map(scale).collect())
        }
        Data::Complex(_) => {
            let round = rounding(dtype);
            let both = |[re, im]: [f64; 2]| [round(re), round(im)];
            let factor = round(factor);
            let scaled = |data: &Literal| {
                premultiply(op, complexes(data), |[re, im]| {
                    both([re * factor, im * factor])
                })
            };
            let total = fold(scaled(first), operands, scaled, |a, b| {
                both(complex(op, a, b, round))
            });
            let count = ranks as f64;
            let scale = |[re, im]: [f64; 2]| {
                if op == ReduceOp::Avg {
                    both([re / count, im / count])
                } else {
                    [re, im]
                }
            };
            Data::Complex(total.into_iter().map(scale).collect())
        }
    };
    encode(dtype, &first.shape, &data)
}

fn premultiply<T>(op: ReduceOp, values: Vec<T>, multiply: impl Fn(T) -> T) -> Vec<T> {
    if op == ReduceOp::PremulSum {
        values.into_iter().map(multiply).collect()
    } else {
        values
    }
}

fn fold<T: Copy>(
    first: Vec<T>,
    operands: &[&Literal],
    read: impl Fn(&Literal) -> Vec<T>,
    combine: impl Fn(T, T) -> T,
) -> Vec<T> {
    operands[1..].iter().fold(first, |total, data| {
        total
            .into_iter()
            .zip(read(data))
            .map(|(a, b)| combine(a, b))
            .collect()
    })
}

/// Rounding of an accumulator: `f64` for 64-bit parts, `f32` for the others.
fn rounding(dtype: DType) -> fn(f64) -> f64 {
    match dtype {
        DType::F64 | DType::C128 => |x| x,
        _ => |x| f64::from(x as f32),
    }
}

fn int(op: ReduceOp, a: i128, b: i128) -> i128 {
    match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum => a.wrapping_add(b),
        ReduceOp::Prod => a.wrapping_mul(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::Band => a & b,
        ReduceOp::Bor => a | b,
        ReduceOp::Bxor => a ^ b,
    }
}

fn float(op: ReduceOp, a: f64, b: f64) -> f64 {
    match op {
        ReduceOp::Prod => a * b,
        ReduceOp::Min => minimum(a, b),
        ReduceOp::Max => maximum(a, b),
        _ => a + b,
    }
}

/// Of the parts, as a device does it that has floats only: each product is rounded.
fn complex(op: ReduceOp, a: [f64; 2], b: [f64; 2], round: fn(f64) -> f64) -> [f64; 2] {
    let times = |x: f64, y: f64| round(x * y);
    match op {
        ReduceOp::Prod => [
            times(a[0], b[0]) - times(a[1], b[1]),
            times(a[0], b[1]) + times(a[1], b[0]),
        ],
        _ => [a[0] + b[0], a[1] + b[1]],
    }
}

/// NaN if either is; -0 is below 0.
pub(super) fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}

/// NaN if either is; 0 is above -0.
pub(super) fn maximum(a: f64, b: f64) -> f64 {
    -minimum(-a, -b)
}
