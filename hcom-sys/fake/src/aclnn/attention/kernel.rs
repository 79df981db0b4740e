//! The computation of attention, head by head in tiles of queries.

use super::super::compute::Compute;
use super::super::layout::Layout;
use super::super::matmul::{Panel, matrix};
use super::super::norm::powers;
use crate::simd::{Matrix, multiply};
use crate::span::strided::Storage;

/// Query rows whose scores are computed at once.
const TILE: usize = 64;

/// Which keys a query sees, apart from what a mask hides. Key `j` is seen by query `i` if
/// `i + shift - before ≤ j ≤ i + shift + after`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    shift: i64,
    before: i64,
    after: i64,
}

/// All keys.
pub(super) const EVERYTHING: Window = Window {
    shift: 0,
    before: i64::MAX / 4,
    after: i64::MAX / 4,
};

/// What follows the product of queries and keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shift {
    /// `scale·(scores + shift)`.
    BeforeScale,
    /// `scale·scores + shift`.
    AfterScale,
}

/// A checked attention over batches, heads, positions and elements.
pub(super) struct Attention {
    pub(super) query: Layout,
    pub(super) out: Layout,
    /// Key and value: one layout for all batches, or one per batch with a batch of 1.
    pub(super) keys: Vec<[Layout; 2]>,
    pub(super) scale: f32,
    pub(super) window: Window,
    pub(super) shift: Shift,
    /// Keys, or queries, of each batch that count.
    pub(super) key_lengths: Vec<usize>,
    pub(super) query_lengths: Vec<usize>,
    pub(super) pse: Option<Layout>,
    pub(super) mask: Option<Layout>,
}

/// The memory of an [`Attention`].
pub(super) struct Memory<'a> {
    pub(super) query: &'a Storage,
    /// As the layouts.
    pub(super) keys: Vec<[&'a Storage; 2]>,
    pub(super) pse: Option<&'a Storage>,
    pub(super) mask: Option<&'a Storage>,
    pub(super) out: &'a Storage,
}

/// Largest scores and sums of powers per batch, head and query.
pub(super) type RowStatistics<'a> = dyn FnMut(usize, f32, f32) + 'a;

impl Attention {
    /// Computes it, and tells `statistics` the largest score and the sum of powers of each row that counts.
    pub(super) fn run(&self, memory: &Memory<'_>, statistics: &mut RowStatistics<'_>) {
        let &[batches, heads, rows, _] = self.query.dims.as_slice() else {
            unreachable!("four dimensions")
        };
        let first_keys = &self.keys[0][0];
        let group = heads / first_keys.dims[1].max(1);
        let (mut scores, mut extra, mut result) = (Vec::new(), Vec::new(), Vec::new());
        for batch in 0..batches {
            let list = batch % self.keys.len();
            let inner = if self.keys.len() == 1 { batch } else { 0 };
            let used = self.key_lengths[batch];
            // Neighbouring heads of a group share their keys, which a panel keeps.
            let mut panels = [(); 3].map(|()| Panel::new(false));
            for head in 0..heads {
                let [key_at, value_at] = &self.keys[list];
                let at = |at: &Layout| matrix_of(at, inner, head / group).narrow(0, 0, used, 1);
                let value_width = value_at.dims[3];
                for first in (0..rows).step_by(TILE) {
                    let count = TILE.min(rows - first);
                    let tile =
                        |at: &Layout, count| matrix_of(at, batch, head).narrow(0, first, count, 1);
                    result.clear();
                    result.resize(count * value_width, 0.0);
                    let live = self.query_lengths[batch].saturating_sub(first).min(count);
                    if live > 0 && used > 0 {
                        let [queries, keys, values] = &mut panels;
                        scores.resize(live * used, 0.0);
                        multiply(
                            &queries.matrix(memory.query, tile(&self.query, live)),
                            &keys.matrix(memory.keys[list][0], at(key_at)).transposed(),
                            &mut Matrix::local(&mut scores, live, used),
                        );
                        self.adjust(memory, [batch, head, first], used, &mut scores, &mut extra);
                        for (row, scores) in scores.chunks_exact_mut(used).enumerate() {
                            let (largest, total) = shares(scores);
                            statistics((batch * heads + head) * rows + first + row, largest, total);
                        }
                        multiply(
                            &Matrix::local(&mut scores, live, used),
                            &values.matrix(memory.keys[list][1], at(value_at)),
                            &mut Matrix::local(&mut result, live, value_width),
                        );
                    }
                    f32::write(&memory.out.elements(&tile(&self.out, count)), 0, &result);
                }
            }
        }
    }

    /// Scales the scores of a tile, shifts them, and sets those of hidden keys to minus infinity.
    fn adjust(
        &self,
        memory: &Memory<'_>,
        [batch, head, first]: [usize; 3],
        used: usize,
        scores: &mut [f32],
        extra: &mut Vec<f32>,
    ) {
        let count = scores.len() / used;
        let part = |at: &Layout| {
            matrix_of(at, batch, head)
                .narrow(0, first, count, 1)
                .narrow(1, 0, used, 1)
        };
        match (&self.pse, memory.pse) {
            (Some(at), Some(pse)) => {
                read_matrix(pse, &part(at), extra);
                for (score, pse) in scores.iter_mut().zip(extra.iter()) {
                    *score = match self.shift {
                        Shift::BeforeScale => self.scale * (*score + pse),
                        Shift::AfterScale => self.scale * *score + pse,
                    };
                }
            }
            _ => scores.iter_mut().for_each(|score| *score *= self.scale),
        }
        if let (Some(at), Some(mask)) = (&self.mask, memory.mask) {
            read_matrix(mask, &part(at), extra);
            for (score, &hidden) in scores.iter_mut().zip(extra.iter()) {
                if hidden != 0.0 {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
        let Window {
            shift,
            before,
            after,
        } = self.window;
        for (row, scores) in scores.chunks_exact_mut(used).enumerate() {
            let centre = (first + row) as i64 + shift;
            let low = (centre - before).clamp(0, used as i64) as usize;
            let high = (centre + after + 1).clamp(low as i64, used as i64) as usize;
            scores[..low].fill(f32::NEG_INFINITY);
            scores[high..].fill(f32::NEG_INFINITY);
        }
    }
}

/// Turns scores into their shares of the sum of their powers; gives the largest score and that sum. A row without a
/// visible key gets zeros.
fn shares(scores: &mut [f32]) -> (f32, f32) {
    let (largest, total) = powers(scores);
    if largest == f32::NEG_INFINITY {
        scores.fill(0.0);
        return (largest, 0.0);
    }
    scores.iter_mut().for_each(|score| *score /= total);
    (largest, total)
}

/// The matrix of positions and elements of a head.
fn matrix_of(at: &Layout, batch: usize, head: usize) -> Layout {
    matrix(at, batch * at.dims[1] + head)
}

fn read_matrix(storage: &Storage, at: &Layout, into: &mut Vec<f32>) {
    into.resize(at.len(), 0.0);
    f32::read(&storage.elements(at), 0, into);
}

/// A window around query `i + shift`.
pub(super) fn window(shift: i64, before: i64, after: i64) -> Window {
    let bound = |tokens: i64| tokens.clamp(-EVERYTHING.before, EVERYTHING.before);
    Window {
        shift,
        before: bound(before),
        after: bound(after),
    }
}
