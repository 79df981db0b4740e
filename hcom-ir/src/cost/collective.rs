//! Latency and bandwidth of collectives.
//!
//! One level follows the formulas of HCCL's guide to its algorithms, with `a` the latency of a step,
//! `b` the time per byte of one link, `g` the time to reduce a byte, `p` ranks and `n` bytes.
//! Several levels are composed as HCCL does it: reduce-scatter from outside in, all-gather from
//! inside out, all-reduce as inner reduce-scatter, outer all-reduce and inner all-gather, broadcast
//! as inner scatter, outer broadcast and inner all-gather.

use super::{Algorithm, Level};
use crate::group::Group;
use crate::op::Op;

/// How many ranks of a group share each level: `parts[i]` members of level `i` per unit above.
fn placement(levels: &[Level], group: &Group) -> Vec<f64> {
    let mut units: Vec<u64> = group.ranks.iter().map(|&rank| u64::from(rank)).collect();
    let mut parts = Vec::with_capacity(levels.len());
    for (index, level) in levels.iter().enumerate() {
        let size = u64::from(level.size.max(1));
        let outermost = index + 1 == levels.len();
        let mut above: Vec<u64> = units
            .iter()
            .map(|unit| if outermost { 0 } else { unit / size })
            .collect();
        above.sort_unstable();
        let fullest = above.chunk_by(|a, b| a == b).map(<[u64]>::len).max();
        parts.push(fullest.unwrap_or(1) as f64);
        above.dedup();
        units = above;
    }
    parts
}

pub(super) fn time(levels: &[Level], op: Op, bytes: f64, group: &Group) -> f64 {
    let parts = placement(levels, group);
    if matches!(op, Op::Send | Op::Recv) {
        // The peer is not known here: the outermost level that the group spans.
        let level = levels
            .iter()
            .zip(&parts)
            .rev()
            .find(|(_, parts)| **parts > 1.0);
        return level.map_or(0.0, |(level, _)| {
            level.alpha_us + bytes / level.bytes_per_us
        });
    }
    nested(levels, &parts, op, bytes)
}

fn nested(levels: &[Level], parts: &[f64], op: Op, bytes: f64) -> f64 {
    let (Some((level, outer)), Some((&p, outer_parts))) =
        (levels.split_first(), parts.split_first())
    else {
        return 0.0;
    };
    let rest = |op: Op, bytes: f64| nested(outer, outer_parts, op, bytes);
    let is_flat = outer_parts.iter().all(|&parts| parts <= 1.0);
    let one = |op: Op, bytes: f64| flat(level, op, p, bytes);
    if is_flat {
        return one(op, bytes);
    }
    if p <= 1.0 {
        return rest(op, bytes);
    }
    let outside: f64 = outer_parts.iter().product();
    match op {
        Op::AllReduce | Op::Reduce => {
            one(Op::ReduceScatter, bytes) + rest(op, bytes / p) + one(Op::AllGather, bytes)
        }
        Op::ReduceScatter | Op::ReduceScatterUneven | Op::Scatter => {
            rest(op, bytes) + one(op, bytes / outside)
        }
        Op::AllGather | Op::AllGatherUneven | Op::GatherTo => {
            one(op, bytes / outside) + rest(op, bytes)
        }
        Op::Broadcast => one(Op::Scatter, bytes) + rest(op, bytes / p) + one(Op::AllGather, bytes),
        _ => one(op, bytes / outside) + rest(op, bytes),
    }
}

/// One level alone.
fn flat(level: &Level, op: Op, p: f64, n: f64) -> f64 {
    if p <= 1.0 {
        return 0.0;
    }
    let (a, b, g) = (
        level.alpha_us,
        1.0 / level.bytes_per_us,
        1.0 / level.reduced_bytes_per_us,
    );
    let (others, share) = (p - 1.0, (p - 1.0) / p);
    let steps = p.log2().ceil();
    match (level.algorithm, op) {
        (Algorithm::Mesh, Op::AllReduce | Op::Reduce) => 2.0 * a + 2.0 * n * b / p + share * n * g,
        (Algorithm::Mesh, Op::ReduceScatter | Op::ReduceScatterUneven) => {
            a + n * b / p + share * n * g
        }
        (Algorithm::Mesh, Op::Broadcast) => 2.0 * a + 2.0 * n * b / p,
        (Algorithm::Mesh, Op::Barrier) => 2.0 * a,
        (Algorithm::Mesh, _) => a + n * b / p,

        (Algorithm::Ring, Op::AllReduce) => 2.0 * others * a + 2.0 * share * n * b + share * n * g,
        (Algorithm::Ring, Op::ReduceScatter | Op::ReduceScatterUneven) => {
            others * a + share * n * (b + g)
        }
        (Algorithm::Ring, Op::Reduce) => others * (a + n * (b + g)),
        (Algorithm::Ring, Op::Broadcast) => others * (a + n * b),
        (Algorithm::Ring, Op::Barrier) => 2.0 * others * a,
        (Algorithm::Ring, _) => others * a + share * n * b,

        (Algorithm::Nhr, Op::AllReduce | Op::Reduce) => {
            2.0 * steps * a + 2.0 * share * n * b + share * n * g
        }
        (Algorithm::Nhr, Op::ReduceScatter | Op::ReduceScatterUneven) => {
            steps * a + share * n * (b + g)
        }
        (Algorithm::Nhr, Op::Broadcast) => 2.0 * steps * a + 2.0 * share * n * b,
        (Algorithm::Nhr, Op::Barrier) => 2.0 * steps * a,
        // Pairwise exchange.
        (Algorithm::Nhr, Op::AllToAll) => others * a + share * n * b,
        (Algorithm::Nhr, _) => steps * a + share * n * b,

        // Each rank reads what it needs of every rank, itself included.
        (Algorithm::Direct, Op::AllReduce | Op::Reduce) => a + p * n * (b + g),
        (Algorithm::Direct, Op::ReduceScatter | Op::ReduceScatterUneven) => a + n * (b + g),
        (Algorithm::Direct, Op::Barrier) => a,
        (Algorithm::Direct, _) => a + n * b,
    }
}
