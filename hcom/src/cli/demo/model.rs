//! The demo's model: a tensor-parallel transformer over two micro-batches.
//!
//! Every block splits its attention heads and its MLP over the ranks and ends each half in one
//! `all_reduce`. The two micro-batches do not depend on each other, so while the sum of one is on
//! its way the other computes.

use hcom_patch::{Error, Group, ReduceOp, Tensor, dist};

use crate::seeded::Seeded;

/// Blocks of the model.
pub(super) const LAYERS: usize = 4;
/// Attention heads over all ranks; the number of ranks must divide it.
pub(super) const HEADS: u64 = 8;
/// Micro-batches of a step.
pub(super) const MICRO_BATCHES: usize = 2;

/// Width of the residual stream, elements.
const HIDDEN: u64 = 256;
/// Width of the MLP over all ranks, elements.
const INNER: u64 = 4 * HIDDEN;
/// Sequences of one micro-batch.
const BATCH: u64 = 2;
/// Tokens of a sequence.
const SEQUENCE: u64 = 64;
const HEAD_DIM: u64 = HIDDEN / HEADS;

/// One rank's share of a block.
struct Block {
    attention_norm: Norm,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    mlp_norm: Norm,
    up: Tensor,
    down: Tensor,
}

struct Norm {
    weight: Tensor,
    bias: Tensor,
}

/// One rank's share of the model.
pub(super) struct Model {
    blocks: Vec<Block>,
    heads: u64,
    group: Group,
}

/// The inputs of a step: [`MICRO_BATCHES`] tensors `f32[BATCH, SEQUENCE, HIDDEN]`, equal on all ranks.
///
/// # Errors
/// When device memory cannot be had.
pub(super) fn inputs(seed: u64) -> Result<Vec<Tensor>, Error> {
    let mut random = Seeded::new(seed.wrapping_add(1));
    let shape = [BATCH, SEQUENCE, HIDDEN];
    (0..MICRO_BATCHES)
        .map(|_| Tensor::from_slice(&random.uniform(shape.iter().product(), 1.0), &shape))
        .collect()
}

impl Model {
    /// Draws the whole model from `seed`, as every rank does, and keeps this rank's share.
    ///
    /// # Errors
    /// When device memory cannot be had.
    pub(super) fn new(seed: u64, group: Group) -> Result<Self, Error> {
        let mut draw = Draw {
            random: Seeded::new(seed),
            rank: u64::from(dist::rank()?),
            ranks: u64::from(group.group_size()),
        };
        let blocks = (0..LAYERS)
            .map(|_| {
                Ok(Block {
                    attention_norm: Norm::identity()?,
                    query: draw.columns(HIDDEN, HIDDEN)?,
                    key: draw.columns(HIDDEN, HIDDEN)?,
                    value: draw.columns(HIDDEN, HIDDEN)?,
                    output: draw.rows(HIDDEN, HIDDEN)?,
                    mlp_norm: Norm::identity()?,
                    up: draw.columns(HIDDEN, INNER)?,
                    down: draw.rows(INNER, HIDDEN)?,
                })
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self {
            blocks,
            heads: HEADS / draw.ranks,
            group,
        })
    }

    /// Runs all micro-batches through all blocks; the same function eagerly and compiled.
    ///
    /// # Errors
    /// What the tensors and the collectives report.
    pub(super) fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let mut batches = inputs.to_vec();
        for block in &self.blocks {
            for x in &mut batches {
                *x = x.add(&self.attention(block, x)?)?;
            }
            for x in &mut batches {
                *x = x.add(&self.mlp(block, x)?)?;
            }
        }
        Ok(batches)
    }

    fn attention(&self, block: &Block, x: &Tensor) -> Result<Tensor, Error> {
        let x = block.attention_norm.apply(x)?;
        let heads = |weight: &Tensor| {
            x.matmul(weight)?
                .reshape(&[BATCH, SEQUENCE, self.heads, HEAD_DIM])?
                .transpose(1, 2)
        };
        let scale = (HEAD_DIM as f64).sqrt().recip();
        let mixed = heads(&block.query)?.attention(
            &heads(&block.key)?,
            &heads(&block.value)?,
            None,
            scale,
            true,
        )?;
        let joined = mixed
            .transpose(1, 2)?
            .reshape(&[BATCH, SEQUENCE, self.heads * HEAD_DIM])?;
        self.sum(joined.matmul(&block.output)?)
    }

    fn mlp(&self, block: &Block, x: &Tensor) -> Result<Tensor, Error> {
        let x = block.mlp_norm.apply(x)?;
        self.sum(x.matmul(&block.up)?.gelu()?.matmul(&block.down)?)
    }

    /// Adds the ranks' partial products.
    fn sum(&self, mut partial: Tensor) -> Result<Tensor, Error> {
        dist::all_reduce(&mut partial, ReduceOp::Sum, &self.group)?;
        Ok(partial)
    }
}

impl Norm {
    fn identity() -> Result<Self, Error> {
        Ok(Self {
            weight: Tensor::from_slice(&[1.0f32; HIDDEN as usize], &[HIDDEN])?,
            bias: Tensor::from_slice(&[0.0f32; HIDDEN as usize], &[HIDDEN])?,
        })
    }

    fn apply(&self, x: &Tensor) -> Result<Tensor, Error> {
        x.layer_norm(&self.weight, &self.bias, 1e-5)
    }
}

/// Draws weights that are the same on every rank, and keeps one rank's share.
struct Draw {
    random: Seeded,
    rank: u64,
    ranks: u64,
}

impl Draw {
    /// The rank's share of the columns of a matrix `rows × columns`.
    fn columns(&mut self, rows: u64, columns: u64) -> Result<Tensor, Error> {
        let whole = self.matrix(rows, columns);
        let share = (columns / self.ranks) as usize;
        let start = self.rank as usize * share;
        let kept: Vec<f32> = whole
            .chunks_exact(columns as usize)
            .flat_map(|row| &row[start..start + share])
            .copied()
            .collect();
        Tensor::from_slice(&kept, &[rows, share as u64])
    }

    /// The rank's share of the rows of a matrix `rows × columns`.
    fn rows(&mut self, rows: u64, columns: u64) -> Result<Tensor, Error> {
        let whole = self.matrix(rows, columns);
        let share = whole.len() / self.ranks as usize;
        let start = self.rank as usize * share;
        Tensor::from_slice(&whole[start..start + share], &[rows / self.ranks, columns])
    }

    /// Elements of variance about `1 / rows`, so that activations keep their size.
    fn matrix(&mut self, rows: u64, columns: u64) -> Vec<f32> {
        let bound = (3.0 / rows as f32).sqrt();
        self.random.uniform(rows * columns, bound)
    }
}
