//! Products of matrices, softmax, norms and attention. All accumulate in `f64`.

use super::data::{Data, decode, encode, floats};
use super::movement::{expand, transpose};
use crate::literal::Literal;

/// The operand with the last two dimensions swapped when `swap` says so.
fn oriented(x: &Literal, swap: bool) -> Literal {
    if !swap {
        return x.clone();
    }
    let rank = x.shape.len();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 2, rank - 1);
    transpose(x, &perm)
}

pub(super) fn matmul(
    a: &Literal,
    b: &Literal,
    transpose_a: bool,
    transpose_b: bool,
    shape: &[u64],
) -> Literal {
    let (a, b) = (oriented(a, transpose_a), oriented(b, transpose_b));
    let leading = &shape[..shape.len() - 2];
    let batched = |x: &Literal| {
        let matrix = &x.shape[x.shape.len() - 2..];
        let shape: Vec<u64> = leading.iter().chain(matrix).copied().collect();
        expand(x, &shape)
    };
    let (a, b) = (batched(&a), batched(&b));
    let [m, n] = [shape[shape.len() - 2], shape[shape.len() - 1]].map(|size| size as usize);
    let k = a.shape[a.shape.len() - 1] as usize;
    let batch = leading.iter().product::<u64>() as usize;
    let data = match (decode(&a), decode(&b)) {
        (Data::Int(a), Data::Int(b)) => {
            Data::Int(product(&a, &b, [batch, m, k, n], 0, |sum, a, b| {
                sum.wrapping_add(a.wrapping_mul(b))
            }))
        }
        (Data::Float(a), Data::Float(b)) => {
            Data::Float(product(&a, &b, [batch, m, k, n], 0.0, |sum, a, b| {
                sum + a * b
            }))
        }
        (Data::Complex(a), Data::Complex(b)) => {
            let step = |[re, im]: [f64; 2], a: [f64; 2], b: [f64; 2]| {
                [
                    re + a[0] * b[0] - a[1] * b[1],
                    im + a[0] * b[1] + a[1] * b[0],
                ]
            };
            Data::Complex(product(&a, &b, [batch, m, k, n], [0.0, 0.0], step))
        }
        _ => unreachable!("the operands have one element type"),
    };
    encode(a.dtype, shape, &data)
}

/// `batch` products of `[m, k]` and `[k, n]`, summed over `k` in order.
fn product<T: Copy>(
    a: &[T],
    b: &[T],
    [batch, m, k, n]: [usize; 4],
    zero: T,
    step: impl Fn(T, T, T) -> T,
) -> Vec<T> {
    let mut out = vec![zero; batch * m * n];
    if n == 0 || k == 0 {
        return out;
    }
    for (at, row) in out.chunks_exact_mut(n).enumerate() {
        let left = &a[at * k..(at + 1) * k];
        let right = &b[at / m * k * n..(at / m + 1) * k * n];
        for (&scale, right) in left.iter().zip(right.chunks_exact(n)) {
            for (sum, &value) in row.iter_mut().zip(right) {
                *sum = step(*sum, scale, value);
            }
        }
    }
    out
}

/// Makes positive numbers of sum 1 of a row; NaN when all are minus infinity.
fn softmax_row(row: &mut [f64]) {
    let largest =
        row.iter().copied().fold(
            f64::NEG_INFINITY,
            |a, b| if a.is_nan() || a > b { a } else { b },
        );
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = (*value - largest).exp();
        sum += *value;
    }
    for value in row {
        *value /= sum;
    }
}

pub(super) fn softmax(x: &Literal, dim: usize) -> Literal {
    let mut values = floats(x);
    let (length, inner) = (
        x.shape[dim] as usize,
        x.shape[dim + 1..].iter().product::<u64>() as usize,
    );
    if !values.is_empty() {
        for block in values.chunks_exact_mut(length * inner) {
            for offset in 0..inner {
                let mut row: Vec<f64> = block[offset..].iter().step_by(inner).copied().collect();
                softmax_row(&mut row);
                for (at, value) in row.into_iter().enumerate() {
                    block[at * inner + offset] = value;
                }
            }
        }
    }
    encode(x.dtype, &x.shape, &Data::Float(values))
}

/// Applies `normalise` to each row along the last dimension.
fn by_row(x: &Literal, normalise: impl Fn(&mut [f64])) -> Literal {
    let mut values = floats(x);
    let length = x.shape[x.shape.len() - 1] as usize;
    if length > 0 {
        values.chunks_exact_mut(length).for_each(normalise);
    }
    encode(x.dtype, &x.shape, &Data::Float(values))
}

pub(super) fn layer_norm(x: &Literal, weight: &Literal, bias: &Literal, eps: f64) -> Literal {
    let (weight, bias) = (floats(weight), floats(bias));
    by_row(x, |row| {
        let count = row.len() as f64;
        let mean = row.iter().sum::<f64>() / count;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
        let scale = 1.0 / (variance + eps).sqrt();
        for ((x, w), b) in row.iter_mut().zip(&weight).zip(&bias) {
            *x = (*x - mean) * scale * w + b;
        }
    })
}

pub(super) fn rms_norm(x: &Literal, weight: &Literal, eps: f64) -> Literal {
    let weight = floats(weight);
    by_row(x, |row| {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean + eps).sqrt();
        for (x, w) in row.iter_mut().zip(&weight) {
            *x = *x * scale * w;
        }
    })
}

pub(super) fn attention(operands: &[&Literal], scale: f64, causal: bool, shape: &[u64]) -> Literal {
    let (q, k, v) = (operands[0], operands[1], operands[2]);
    let rank = q.shape.len();
    let batch = q.shape[..rank - 2].iter().product::<u64>() as usize;
    let [m, d, n, e] = [
        q.shape[rank - 2],
        q.shape[rank - 1],
        k.shape[rank - 2],
        v.shape[rank - 1],
    ]
    .map(|size| size as usize);
    let keys = floats(&oriented(k, true));
    let mut scores = product(&floats(q), &keys, [batch, m, d, n], 0.0, |sum, a, b| {
        sum + a * b
    });
    scores.iter_mut().for_each(|score| *score *= scale);
    if let Some(mask) = operands.get(3) {
        let mut full = q.shape.clone();
        full[rank - 1] = n as u64;
        for (score, mask) in scores.iter_mut().zip(floats(&expand(mask, &full))) {
            *score += mask;
        }
    }
    if n > 0 {
        for (at, row) in scores.chunks_exact_mut(n).enumerate() {
            if causal {
                row.iter_mut()
                    .skip(at % m + 1)
                    .for_each(|score| *score = f64::NEG_INFINITY);
            }
            softmax_row(row);
        }
    }
    let data = product(&scores, &floats(v), [batch, m, n, e], 0.0, |sum, a, b| {
        sum + a * b
    });
    encode(q.dtype, shape, &Data::Float(data))
}
