//! BERT as all-MiniLM-L6-v2 has it, tensor-parallel: every rank holds its share of the attention
//! heads and of the MLP, and each half of a layer ends in one `all_reduce`.

use anyhow::{Context, Result, bail, ensure};
use hcom::prelude::*;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

/// The part of the model's `config.json` that the forward pass reads.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    /// Width of the residual stream, elements.
    pub(crate) hidden_size: u64,
    /// Width of the MLP, elements.
    pub(crate) intermediate_size: u64,
    /// Attention heads; the number of ranks must divide it.
    pub(crate) num_attention_heads: u64,
    /// Layers.
    pub(crate) num_hidden_layers: usize,
    /// Added to the variance by every layer norm.
    pub(crate) layer_norm_eps: f64,
    /// The longest input, tokens.
    pub(crate) max_position_embeddings: u64,
}

/// A weight and its bias.
struct Linear {
    weight: Tensor,
    bias: Tensor,
}

/// One rank's share of a layer.
struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attention_output: Linear,
    attention_norm: Linear,
    up: Linear,
    down: Linear,
    output_norm: Linear,
}

/// One rank's share of the model.
pub(crate) struct Model {
    config: Config,
    words: Tensor,
    positions: Tensor,
    token_type: Tensor,
    norm: Linear,
    layers: Vec<Layer>,
    heads: u64,
    group: Group,
}

/// Reads tensors of a safetensors file, whole or in shares.
struct Weights<'a> {
    file: SafeTensors<'a>,
    rank: usize,
    ranks: usize,
}

impl Weights<'_> {
    fn read(&self, name: &str) -> Result<(Vec<f32>, Vec<u64>)> {
        let view = self
            .file
            .tensor(name)
            .with_context(|| format!("the weights have no tensor {name:?}"))?;
        ensure!(
            view.dtype() == Dtype::F32,
            "{name}: expected F32, got {:?}",
            view.dtype()
        );
        let values = view
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap_or_default()));
        let shape = view.shape().iter().map(|&size| size as u64).collect();
        Ok((values.collect(), shape))
    }

    fn whole(&self, name: &str) -> Result<Tensor> {
        let (values, shape) = self.read(name)?;
        Ok(Tensor::from_slice(&values, &shape)?)
    }

    /// The rank's share of the first dimension.
    fn rows(&self, name: &str) -> Result<Tensor> {
        let (values, mut shape) = self.read(name)?;
        let share = values.len() / self.ranks;
        shape[0] /= self.ranks as u64;
        Ok(Tensor::from_slice(
            &values[self.rank * share..(self.rank + 1) * share],
            &shape,
        )?)
    }

    /// The rank's share of the second dimension.
    fn columns(&self, name: &str) -> Result<Tensor> {
        let (values, shape) = self.read(name)?;
        let (width, share) = (shape[1] as usize, shape[1] as usize / self.ranks);
        let start = self.rank * share;
        let kept: Vec<f32> = values
            .chunks_exact(width)
            .flat_map(|row| &row[start..start + share])
            .copied()
            .collect();
        Ok(Tensor::from_slice(&kept, &[shape[0], share as u64])?)
    }

    /// Output features split over the ranks.
    fn split_outputs(&self, name: &str) -> Result<Linear> {
        Ok(Linear {
            weight: self.rows(&format!("{name}.weight"))?,
            bias: self.rows(&format!("{name}.bias"))?,
        })
    }

    /// Input features split over the ranks; the bias is added once, after the sum.
    fn split_inputs(&self, name: &str) -> Result<Linear> {
        Ok(Linear {
            weight: self.columns(&format!("{name}.weight"))?,
            bias: self.whole(&format!("{name}.bias"))?,
        })
    }

    fn norm(&self, name: &str) -> Result<Linear> {
        Ok(Linear {
            weight: self.whole(&format!("{name}.weight"))?,
            bias: self.whole(&format!("{name}.bias"))?,
        })
    }
}

impl Config {
    /// Refuses a number of ranks that heads or MLP cannot be split over.
    pub(crate) fn check_ranks(&self, ranks: u32) -> Result<()> {
        for (what, size) in [
            ("attention heads", self.num_attention_heads),
            ("MLP columns", self.intermediate_size),
        ] {
            if ranks == 0 || !size.is_multiple_of(u64::from(ranks)) {
                bail!(
                    "--ranks: expected a divisor of the model's {size} {what}, got {ranks}; \
                     try 1, 2, 3, 4, 6 or 12"
                );
            }
        }
        Ok(())
    }
}

impl Model {
    /// Takes this rank's share out of the safetensors file `bytes`.
    pub(crate) fn load(config: Config, bytes: &[u8], group: Group) -> Result<Self> {
        let (rank, ranks) = (dist::rank()? as usize, group.group_size() as usize);
        let weights = Weights {
            file: SafeTensors::deserialize(bytes).context("model.safetensors")?,
            rank,
            ranks,
        };
        let layers = (0..config.num_hidden_layers)
            .map(|layer| {
                let name = |part: &str| format!("encoder.layer.{layer}.{part}");
                Ok(Layer {
                    query: weights.split_outputs(&name("attention.self.query"))?,
                    key: weights.split_outputs(&name("attention.self.key"))?,
                    value: weights.split_outputs(&name("attention.self.value"))?,
                    attention_output: weights.split_inputs(&name("attention.output.dense"))?,
                    attention_norm: weights.norm(&name("attention.output.LayerNorm"))?,
                    up: weights.split_outputs(&name("intermediate.dense"))?,
                    down: weights.split_inputs(&name("output.dense"))?,
                    output_norm: weights.norm(&name("output.LayerNorm"))?,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            words: weights.whole("embeddings.word_embeddings.weight")?,
            positions: weights.whole("embeddings.position_embeddings.weight")?,
            token_type: weights.whole("embeddings.token_type_embeddings.weight")?,
            norm: weights.norm("embeddings.LayerNorm")?,
            heads: config.num_attention_heads / ranks as u64,
            layers,
            group,
            config,
        })
    }

    /// Sentence vectors of unit length: `ids: i64[batch, tokens]` and `mask: f32[batch, tokens]`
    /// (1 for a token, 0 for padding) → `f32[batch, hidden]`.
    pub(crate) fn forward(&self, ids: &Tensor, mask: &Tensor) -> Result<Tensor, Error> {
        let (batch, tokens) = (ids.shape()[0], ids.shape()[1]);
        let positions = self.positions.slice(0, 0, tokens)?;
        let token_type = self.token_type.slice(0, 0, 1)?;
        let embedded = self
            .words
            .embedding(ids)?
            .add(&positions)?
            .add(&token_type)?;
        let mut x = self.normalise(&embedded, &self.norm)?;

        // 0 where a token may be attended to, a large negative score where it is padding.
        let open = mask.reshape(&[batch, 1, 1, tokens])?;
        let scores = open
            .sub(&Tensor::full(&[1], 1.0, DType::F32)?)?
            .mul(&Tensor::full(&[1], 1e9, DType::F32)?)?;
        for layer in &self.layers {
            let mixed = self.attention(layer, &x, &scores)?;
            x = self.normalise(&x.add(&mixed)?, &layer.attention_norm)?;
            let inner = x
                .matmul_with(&layer.up.weight, false, true)?
                .bias_add(&layer.up.bias)?
                .gelu()?;
            let outer = self
                .sum(inner.matmul_with(&layer.down.weight, false, true)?)?
                .bias_add(&layer.down.bias)?;
            x = self.normalise(&x.add(&outer)?, &layer.output_norm)?;
        }

        let weight = mask.reshape(&[batch, tokens, 1])?;
        let total = x.mul(&weight)?.sum(&[1], false)?;
        let mean = total.div(&mask.sum(&[1], true)?)?;
        mean.div(&mean.mul(&mean)?.sum(&[1], true)?.sqrt()?)
    }

    fn attention(&self, layer: &Layer, x: &Tensor, mask: &Tensor) -> Result<Tensor, Error> {
        let (batch, tokens) = (x.shape()[0], x.shape()[1]);
        let dim = self.config.hidden_size / self.config.num_attention_heads;
        let split = |part: &Linear| {
            x.matmul_with(&part.weight, false, true)?
                .bias_add(&part.bias)?
                .reshape(&[batch, tokens, self.heads, dim])?
                .transpose(1, 2)
        };
        let (query, key, value) = (
            split(&layer.query)?,
            split(&layer.key)?,
            split(&layer.value)?,
        );
        let mixed =
            query.attention(&key, &value, Some(mask), (dim as f64).sqrt().recip(), false)?;
        let joined = mixed
            .transpose(1, 2)?
            .reshape(&[batch, tokens, self.heads * dim])?;
        self.sum(joined.matmul_with(&layer.attention_output.weight, false, true)?)?
            .bias_add(&layer.attention_output.bias)
    }

    fn sum(&self, mut partial: Tensor) -> Result<Tensor, Error> {
        dist::all_reduce(&mut partial, ReduceOp::Sum, &self.group)?;
        Ok(partial)
    }

    fn normalise(&self, x: &Tensor, norm: &Linear) -> Result<Tensor, Error> {
        x.layer_norm(&norm.weight, &norm.bias, self.config.layer_norm_eps)
    }
}
