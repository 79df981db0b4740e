//! Local operations.

use std::cmp::Ordering;

use super::Fault;
use super::collective::{maximum, minimum};
use super::data::{Data, decode, encode, float_to_int, floats, int_to_float, ints};
use super::linear;
use super::movement as place;
use crate::arena::NodeId;
use crate::graph::Graph;
use crate::literal::Literal;
use crate::op::Op;
use crate::op::attr::{Attr, Attrs};
use crate::op::infer::axis;
use crate::types::{DType, Type};

/// The results of a node that does not communicate.
pub(super) fn run(graph: &Graph, id: NodeId, operands: &[&Literal]) -> Result<Vec<Literal>, Fault> {
    let node = graph.node(id);
    let attrs = &node.attrs;
    let result = |index: usize| graph.ty(node.results[index]);
    // Without elements there is nothing to compute, and sizes may be beyond any product.
    let empty = |ty: &Type| Literal {
        dtype: ty.dtype,
        shape: sizes(ty),
        bytes: Vec::new(),
    };
    let types = || node.results.iter().map(|&value| graph.ty(value));
    if node.op != Op::Custom && types().all(|ty| ty.elements() == Some(0)) {
        return Ok(types().map(empty).collect());
    }
    let shape = || sizes(result(0));
    let dim = || {
        axis(attrs.int("dim"), operands[0].shape.len()).expect("the type rule checks the dimension")
    };
    let value = match node.op {
        Op::Constant => (**attrs.literal("value")).clone(),
        Op::Copy => operands[0].clone(),
        Op::Cast => cast(operands[0], attrs.dtype("to")),
        Op::Add
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Maximum
        | Op::Minimum
        | Op::Pow
        | Op::BitAnd
        | Op::BitOr
        | Op::BitXor => {
            let [a, b] = [0, 1].map(|index| place::expand(operands[index], &shape()));
            binary(node.op, &a, &b)
        }
        Op::BiasAdd => binary(Op::Add, operands[0], &place::expand(operands[1], &shape())),
        Op::Equal | Op::Less | Op::Greater => {
            let [a, b] = [0, 1].map(|index| place::expand(operands[index], &shape()));
            compare(node.op, &a, &b)
        }
        Op::Neg | Op::Abs | Op::Relu => simple(node.op, operands[0]),
        Op::Exp | Op::Log | Op::Sqrt | Op::Rsqrt | Op::Tanh | Op::Sigmoid | Op::Gelu | Op::Silu => {
            let values = floats(operands[0])
                .into_iter()
                .map(function(node.op, attrs))
                .collect();
            encode(operands[0].dtype, &operands[0].shape, &Data::Float(values))
        }
        Op::Where => {
            let [c, a, b] = [0, 1, 2].map(|index| place::expand(operands[index], &shape()));
            let size = a.dtype.bytes() as usize;
            let pairs = a.bytes.chunks_exact(size).zip(b.bytes.chunks_exact(size));
            let chosen = c
                .bytes
                .iter()
                .zip(pairs)
                .flat_map(|(&c, (a, b))| if c != 0 { a } else { b });
            Literal {
                bytes: chosen.copied().collect(),
                ..a.clone()
            }
        }
        Op::Matmul => linear::matmul(
            operands[0],
            operands[1],
            attrs.bool("transpose_a"),
            attrs.bool("transpose_b"),
            &shape(),
        ),
        Op::Softmax => linear::softmax(operands[0], dim()),
        Op::LayerNorm => {
            linear::layer_norm(operands[0], operands[1], operands[2], attrs.float("eps"))
        }
        Op::RmsNorm => linear::rms_norm(operands[0], operands[1], attrs.float("eps")),
        Op::Attention => linear::attention(
            operands,
            attrs.float("scale"),
            attrs.bool("causal"),
            &shape(),
        ),
        Op::Embedding => place::embedding(operands[0], operands[1])?,
        Op::Gather => place::gather(operands[0], operands[1], dim())?,
        Op::Reshape => Literal {
            shape: shape(),
            ..operands[0].clone()
        },
        Op::AsReal | Op::AsComplex => Literal {
            dtype: graph.ty(node.results[0]).dtype,
            shape: shape(),
            bytes: operands[0].bytes.clone(),
        },
        Op::Transpose => {
            let perm: Vec<usize> = attrs.ints("perm").iter().map(|&dim| dim as usize).collect();
            place::transpose(operands[0], &perm)
        }
        Op::Slice => place::slice(
            operands[0],
            dim(),
            attrs.size("start"),
            attrs.size("end"),
            attrs.int("step") as u64,
        ),
        Op::Concat => place::concat(operands, dim()),
        Op::Split => return Ok(place::split(operands[0], dim(), &attrs.sizes("sizes"))),
        Op::Expand => place::expand(operands[0], &shape()),
        Op::Pad => {
            let value = place::number(operands[0].dtype, attrs.get("value"));
            place::pad(
                operands[0],
                &attrs.sizes("low"),
                &attrs.sizes("high"),
                &value,
            )
        }
        Op::Sum | Op::Mean | Op::Max => reduce(node.op, operands[0], attrs.ints("dims"), &shape()),
        Op::Argmax => argmax(operands[0], dim(), &shape()),
        Op::Arange => arange(attrs, attrs.dtype("dtype"), shape()[0]),
        Op::Fill => {
            let value = place::number(attrs.dtype("dtype"), attrs.get("value"));
            place::expand(&value, &shape())
        }
        Op::Tril => {
            let diagonal = i128::from(attrs.int("diagonal"));
            place::triangle(operands[0], |row, column| column - row <= diagonal)
        }
        Op::Triu => {
            let diagonal = i128::from(attrs.int("diagonal"));
            place::triangle(operands[0], |row, column| column - row >= diagonal)
        }
        Op::Custom => return Err(Fault::Custom),
        op => unreachable!("{op} is no local operation with results"),
    };
    Ok(vec![value])
}

fn sizes(ty: &Type) -> Vec<u64> {
    ty.shape.as_fixed().expect("the graph is fixed")
}

fn cast(x: &Literal, to: DType) -> Literal {
    let to_float = |values: Vec<f64>| {
        if to.is_complex() {
            Data::Complex(values.into_iter().map(|value| [value, 0.0]).collect())
        } else if to.is_float() {
            Data::Float(values)
        } else {
            Data::Int(
                values
                    .into_iter()
                    .map(|value| float_to_int(to, value))
                    .collect(),
            )
        }
    };
    let data = match decode(x) {
        Data::Int(values) if !to.is_float() && !to.is_complex() => Data::Int(values),
        Data::Int(values) => {
            // The parts of c64 are f32, those of c128 are f64.
            let part = match to {
                DType::C128 => DType::F64,
                to => to,
            };
            to_float(
                values
                    .into_iter()
                    .map(|value| int_to_float(part, value))
                    .collect(),
            )
        }
        Data::Float(values) => to_float(values),
        Data::Complex(values) if to.is_complex() => Data::Complex(values),
        Data::Complex(values) if to == DType::Bool => Data::Int(
            values
                .into_iter()
                .map(|[re, im]| i128::from(re != 0.0 || im != 0.0))
                .collect(),
        ),
        Data::Complex(values) => to_float(values.into_iter().map(|[re, _]| re).collect()),
    };
    encode(to, &x.shape, &data)
}

fn binary(op: Op, a: &Literal, b: &Literal) -> Literal {
    fn zip<T: Copy>(a: Vec<T>, b: Vec<T>, f: impl Fn(T, T) -> T) -> Vec<T> {
        a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect()
    }
    let data = match (decode(a), decode(b)) {
        (Data::Int(a), Data::Int(b)) => Data::Int(zip(a, b, |a, b| int(op, a, b))),
        (Data::Float(a), Data::Float(b)) => Data::Float(zip(a, b, |a, b| float(op, a, b))),
        (Data::Complex(a), Data::Complex(b)) => Data::Complex(zip(a, b, |a, b| complex(op, a, b))),
        _ => unreachable!("the operands have one element type"),
    };
    encode(a.dtype, &a.shape, &data)
}

fn int(op: Op, a: i128, b: i128) -> i128 {
    match op {
        Op::Add => a.wrapping_add(b),
        Op::Sub => a.wrapping_sub(b),
        Op::Mul => a.wrapping_mul(b),
        Op::Div => a.checked_div(b).unwrap_or(0),
        Op::Maximum => a.max(b),
        Op::Minimum => a.min(b),
        Op::Pow => int_pow(a, b),
        Op::BitAnd => a & b,
        Op::BitOr => a | b,
        Op::BitXor => a ^ b,
        op => unreachable!("{op} is not a binary operation on integers"),
    }
}

fn int_pow(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => 1 - 2 * (exponent & 1),
            _ => 0,
        };
    }
    let (mut result, mut power, mut rest) = (1i128, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(power);
        }
        power = power.wrapping_mul(power);
        rest >>= 1;
    }
    result
}

fn float(op: Op, a: f64, b: f64) -> f64 {
    match op {
        Op::Add => a + b,
        Op::Sub => a - b,
        Op::Mul => a * b,
        Op::Div => a / b,
        Op::Maximum => maximum(a, b),
        Op::Minimum => minimum(a, b),
        Op::Pow => a.powf(b),
        op => unreachable!("{op} is not a binary operation on floats"),
    }
}

fn complex(op: Op, [a, b]: [f64; 2], [c, d]: [f64; 2]) -> [f64; 2] {
    match op {
        Op::Add => [a + c, b + d],
        Op::Sub => [a - c, b - d],
        Op::Mul => [a * c - b * d, a * d + b * c],
        Op::Div => {
            let norm = c * c + d * d;
            [(a * c + b * d) / norm, (b * c - a * d) / norm]
        }
        op => unreachable!("{op} is not a binary operation on complex numbers"),
    }
}

fn compare(op: Op, a: &Literal, b: &Literal) -> Literal {
    fn zip<T>(a: Vec<T>, b: Vec<T>, f: impl Fn(T, T) -> bool) -> Vec<i128> {
        a.into_iter()
            .zip(b)
            .map(|(a, b)| i128::from(f(a, b)))
            .collect()
    }
    let wanted = match op {
        Op::Less => Ordering::Less,
        Op::Greater => Ordering::Greater,
        _ => Ordering::Equal,
    };
    let truth = match (decode(a), decode(b)) {
        (Data::Int(a), Data::Int(b)) => zip(a, b, |a, b| a.cmp(&b) == wanted),
        (Data::Float(a), Data::Float(b)) => zip(a, b, |a, b| a.partial_cmp(&b) == Some(wanted)),
        (Data::Complex(a), Data::Complex(b)) => zip(a, b, |a, b| a == b),
        _ => unreachable!("the operands have one element type"),
    };
    encode(DType::Bool, &a.shape, &Data::Int(truth))
}

fn simple(op: Op, x: &Literal) -> Literal {
    let data = match decode(x) {
        Data::Int(values) => Data::Int(
            values
                .into_iter()
                .map(|x| match op {
                    Op::Neg => -x,
                    Op::Abs => x.abs(),
                    _ => x.max(0),
                })
                .collect(),
        ),
        Data::Float(values) => Data::Float(
            values
                .into_iter()
                .map(|x| match op {
                    Op::Neg => -x,
                    Op::Abs => x.abs(),
                    _ => maximum(x, 0.0),
                })
                .collect(),
        ),
        Data::Complex(values) => {
            Data::Complex(values.into_iter().map(|[re, im]| [-re, -im]).collect())
        }
    };
    encode(x.dtype, &x.shape, &data)
}

fn function(op: Op, attrs: &Attrs) -> fn(f64) -> f64 {
    match op {
        Op::Exp => f64::exp,
        Op::Log => f64::ln,
        Op::Sqrt => f64::sqrt,
        Op::Rsqrt => |x| 1.0 / x.sqrt(),
        Op::Tanh => f64::tanh,
        Op::Sigmoid => sigmoid,
        Op::Silu => silu,
        Op::Gelu if attrs.text("approximate") == "tanh" => |x| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        },
        Op::Gelu => |x| {
            if x == f64::NEG_INFINITY {
                -0.0
            } else {
                0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))
            }
        },
        op => unreachable!("{op} is not a function of one float"),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        -0.0
    } else {
        x * sigmoid(x)
    }
}

/// The error function, by the series with positive terms
/// `2/√π · e^(-x²) · Σ 2ⁿ x^(2n+1) / (1·3·…·(2n+1))`; beyond 6 it is ±1 in `f64`.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-17 {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// For each element of the result its row of elements of `x`, in order of the reduced dimensions.
fn rows(x: &Literal, dims: &[i64], shape: &[u64]) -> Vec<Vec<usize>> {
    let reduced: Vec<usize> = dims
        .iter()
        .filter_map(|&dim| axis(dim, x.shape.len()))
        .collect();
    let kept: Vec<u64> = x
        .shape
        .iter()
        .enumerate()
        .map(|(dim, &size)| if reduced.contains(&dim) { 1 } else { size })
        .collect();
    let strides = place::strides(&kept);
    let count: u64 = shape.iter().product();
    let mut rows = vec![Vec::new(); count as usize];
    let mut position = 0;
    place::indices(&x.shape, |index| {
        let row: usize = index
            .iter()
            .zip(&strides)
            .enumerate()
            .filter(|(dim, _)| !reduced.contains(dim))
            .map(|(_, (&index, stride))| index as usize * stride)
            .sum();
        rows[row].push(position);
        position += 1;
    });
    rows
}

fn reduce(op: Op, x: &Literal, dims: &[i64], shape: &[u64]) -> Literal {
    let rows = rows(x, dims, shape);
    let data = match decode(x) {
        Data::Int(values) => {
            let row = |row: &Vec<usize>| {
                let elements = row.iter().map(|&at| values[at]);
                if op == Op::Max {
                    elements.max().unwrap_or(0)
                } else {
                    elements.fold(0, i128::wrapping_add)
                }
            };
            Data::Int(rows.iter().map(row).collect())
        }
        Data::Float(values) => {
            let row = |row: &Vec<usize>| {
                let elements = row.iter().map(|&at| values[at]);
                match op {
                    Op::Max => elements.fold(f64::NEG_INFINITY, maximum),
                    Op::Mean => elements.sum::<f64>() / row.len() as f64,
                    // The sum of no elements is +0, which `Iterator::sum` does not promise.
                    _ => elements.fold(0.0, |sum, value| sum + value),
                }
            };
            Data::Float(rows.iter().map(row).collect())
        }
        Data::Complex(values) => {
            let row = |row: &Vec<usize>| {
                let sum = row
                    .iter()
                    .fold([0.0, 0.0], |sum, &at| complex(Op::Add, sum, values[at]));
                let count = if op == Op::Mean {
                    row.len() as f64
                } else {
                    1.0
                };
                sum.map(|part| part / count)
            };
            Data::Complex(rows.iter().map(row).collect())
        }
    };
    encode(x.dtype, shape, &data)
}

fn argmax(x: &Literal, dim: usize, shape: &[u64]) -> Literal {
    let rows = rows(x, &[dim as i64], shape);
    let first = |row: &Vec<usize>, better: &dyn Fn(usize, usize) -> bool| {
        let best = (1..row.len()).fold(
            0,
            |best, at| if better(row[at], row[best]) { at } else { best },
        );
        best as i128
    };
    let found = match decode(x) {
        Data::Float(values) => {
            let better = |a: usize, b: usize| {
                !values[b].is_nan() && (values[a].is_nan() || values[a] > values[b])
            };
            rows.iter().map(|row| first(row, &better)).collect()
        }
        _ => {
            let values = ints(x);
            rows.iter()
                .map(|row| first(row, &|a, b| values[a] > values[b]))
                .collect()
        }
    };
    encode(DType::I64, shape, &Data::Int(found))
}

fn arange(attrs: &Attrs, dtype: DType, length: u64) -> Literal {
    let int = |name: &str| match attrs.get(name) {
        Some(Attr::Int(value)) => Some(i128::from(*value)),
        Some(Attr::Dim(dim)) => dim.as_fixed().map(i128::from),
        _ => None,
    };
    let data = match (int("start"), int("step")) {
        (Some(start), Some(step)) => {
            let values = (0..length).map(|at| start + i128::from(at) * step);
            if dtype.is_float() {
                Data::Float(values.map(|value| int_to_float(dtype, value)).collect())
            } else {
                Data::Int(values.collect())
            }
        }
        _ => {
            let (start, step) = (attrs.float("start"), attrs.float("step"));
            Data::Float((0..length).map(|at| start + at as f64 * step).collect())
        }
    };
    encode(dtype, &[length], &data)
}
