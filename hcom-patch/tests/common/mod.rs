//! Models that the tests run eagerly and compiled, whole and split over ranks.

use hcom_patch::{Error, ReduceOp, Tensor, dist};

/// `n` reproducible values in -1..1, different for every seed.
pub(crate) fn values(n: u64, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// Makes tensors: with data, or as placeholders to be recorded only.
pub(crate) type Make<'a> = &'a dyn Fn(&str, &[f32], &[u64]) -> Tensor;

/// The part of a model that one rank has.
pub(crate) trait Model: Sized {
    /// The part of rank `at.0` of `at.1`.
    fn new(make: Make<'_>, at: (u32, u32)) -> Self;

    /// `x`: `[positions, WIDTH]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error>;
}

/// Size of the last dimension of inputs and outputs.
pub(crate) const WIDTH: u64 = 8;
const HEADS: u64 = 4;

/// Columns `rank · n/parts ..` of a row-major matrix `[rows, n]`.
fn columns(values: &[f32], rows: u64, rank: u32, parts: u32) -> Vec<f32> {
    let width = values.len() / rows as usize;
    let (piece, start) = (
        width / parts as usize,
        rank as usize * width / parts as usize,
    );
    values
        .chunks(width)
        .flat_map(|row| row[start..start + piece].to_vec())
        .collect()
}

/// Block `rank` of the rows.
fn rows(values: &[f32], rank: u32, parts: u32) -> Vec<f32> {
    let piece = values.len() / parts as usize;
    values[rank as usize * piece..][..piece].to_vec()
}

/// A matrix split by columns over the ranks.
fn by_columns(make: Make<'_>, name: &str, seed: u64, [m, n]: [u64; 2], at: (u32, u32)) -> Tensor {
    let part = columns(&values(m * n, seed), m, at.0, at.1);
    make(name, &part, &[m, n / u64::from(at.1)])
}

/// A matrix split by rows over the ranks.
fn by_rows(make: Make<'_>, name: &str, seed: u64, [m, n]: [u64; 2], at: (u32, u32)) -> Tensor {
    let part = rows(&values(m * n, seed), at.0, at.1);
    make(name, &part, &[m / u64::from(at.1), n])
}

/// Two linear layers, the first split by columns and the second by rows: one all_reduce.
pub(crate) struct Mlp {
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
}

impl Model for Mlp {
    fn new(make: Make<'_>, at: (u32, u32)) -> Mlp {
        let (width, hidden) = (WIDTH, 4 * WIDTH);
        let b1 = rows(&values(hidden, 12), at.0, at.1);
        Mlp {
            w1: by_columns(make, "w1", 11, [width, hidden], at),
            b1: make("b1", &b1, &[hidden / u64::from(at.1)]),
            w2: by_rows(make, "w2", 13, [hidden, width], at),
            b2: make("b2", &values(width, 14), &[width]),
        }
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let hidden = x.matmul(&self.w1)?.bias_add(&self.b1)?.gelu()?;
        let mut y = hidden.matmul(&self.w2)?;
        dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
        y.bias_add(&self.b2)
    }
}

/// One layer of a transformer, its heads and its MLP split over the ranks: two all_reduces.
pub(crate) struct Layer {
    heads: u64,
    norms: [(Tensor, Tensor); 2],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    mlp: Mlp,
}

impl Model for Layer {
    fn new(make: Make<'_>, at: (u32, u32)) -> Layer {
        let width = WIDTH;
        let square = [width, width];
        let norm = |name: &str, seed| {
            let weight = make(&format!("{name}.w"), &values(width, seed), &[width]);
            (
                weight,
                make(&format!("{name}.b"), &values(width, seed + 1), &[width]),
            )
        };
        Layer {
            heads: HEADS / u64::from(at.1),
            norms: [norm("norm1", 21), norm("norm2", 23)],
            q: by_columns(make, "q", 25, square, at),
            k: by_columns(make, "k", 26, square, at),
            v: by_columns(make, "v", 27, square, at),
            o: by_rows(make, "o", 28, square, at),
            mlp: Mlp::new(make, at),
        }
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let positions = x.shape()[0];
        let [(w1, b1), (w2, b2)] = &self.norms;
        let normed = x.layer_norm(w1, b1, 1e-5)?;
        let heads = |w: &Tensor| {
            let all = normed.matmul(w)?;
            let size = all.shape()[1] / self.heads;
            all.reshape(&[positions, self.heads, size])?
                .permute(&[1, 0, 2])
        };
        let (q, k, v) = (heads(&self.q)?, heads(&self.k)?, heads(&self.v)?);
        let scale = 1.0 / (q.shape()[2] as f64).sqrt();
        let mixed = q.attention(&k, &v, None, scale, true)?;
        let width = self.heads * mixed.shape()[2];
        let mixed = mixed.permute(&[1, 0, 2])?.reshape(&[positions, width])?;
        let mut y = mixed.matmul(&self.o)?;
        dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
        let x = (x + &y)?;
        &x + &self.mlp.forward(&x.layer_norm(w2, b2, 1e-5)?)?
    }
}
