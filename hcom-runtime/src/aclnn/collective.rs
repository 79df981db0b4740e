//! Collectives, point-to-point and barriers.
//!
//! The library exchanges contiguous blocks of the outermost dimension and knows four reductions.
//! What lies beyond is composed: a permutation before or after for other dimensions, wider types
//! for averages, bytes for booleans.

use hcom_ir::{DType, Op, ReduceOp};

use super::{Arg, Call, Kernel, Lowered, Member, Place, Scalar, Site, View, bytes};
use crate::error::Error;

/// A reduction of the communication library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    Sum,
    Prod,
    Max,
    Min,
}

/// What a collective does. Counts are elements, ranks are group ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CollectiveKind {
    AllReduce(Combine),
    /// `count` elements from each rank.
    AllGather,
    /// `count` elements to each rank.
    ReduceScatter(Combine),
    AllGatherUneven {
        counts: Vec<u64>,
    },
    ReduceScatterUneven {
        counts: Vec<u64>,
        combine: Combine,
    },
    /// `count` elements to each rank.
    AllToAll,
    AllToAllUneven {
        send: Vec<u64>,
        recv: Vec<u64>,
    },
    /// From `to` of the root to `to` of the others; `from` is not used.
    Broadcast {
        root: u32,
    },
    Reduce {
        combine: Combine,
        root: u32,
    },
    /// `count` elements to each rank.
    Scatter {
        root: u32,
    },
    Send {
        peer: u32,
    },
    Recv {
        peer: u32,
    },
    Barrier,
}

/// One call of the communication library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collective {
    pub(crate) kind: CollectiveKind,
    /// Where the own contribution lies; ignored where there is none.
    pub(crate) from: Place,
    /// Where the result goes; ignored where there is none.
    pub(crate) to: Place,
    /// Elements, as each kind defines them.
    pub(crate) count: u64,
    pub(crate) dtype: DType,
}

pub(super) fn lower(site: &Site<'_>, to: &mut Lowered) -> Result<(), Error> {
    let member = site.member.expect("communication has a group");
    if member.group_size == 1 {
        return alone(site, to);
    }
    match site.op {
        Op::AllReduce => {
            to.in_place = true;
            reduction(
                site,
                to,
                site.operand(0),
                site.result(0),
                member,
                CollectiveKind::AllReduce,
            )?;
        }
        Op::ReduceScatter => reduce_scatter(site, to, member)?,
        Op::AllGather => all_gather(site, to, member),
        Op::Broadcast => {
            to.in_place = true;
            let root = root(site);
            if member.rank == root {
                copy(
                    to,
                    Place::Operand(0),
                    Place::Result(0),
                    site.operand_bytes(),
                );
            }
            let kind = CollectiveKind::Broadcast { root };
            exchange(
                to,
                kind,
                Place::Operand(0),
                Place::Result(0),
                &site.operand(0),
            );
        }
        Op::Reduce => {
            let root = root(site);
            reduction(
                site,
                to,
                site.operand(0),
                site.result(0),
                member,
                |combine| CollectiveKind::Reduce { combine, root },
            )?;
            if member.rank != root {
                copy(
                    to,
                    Place::Operand(0),
                    Place::Result(0),
                    site.operand_bytes(),
                );
            }
        }
        Op::Scatter => {
            let kind = CollectiveKind::Scatter { root: root(site) };
            exchange(
                to,
                kind,
                Place::Operand(0),
                Place::Result(0),
                &site.result(0),
            );
        }
        Op::GatherTo => {
            exchange(
                to,
                CollectiveKind::AllGather,
                Place::Operand(0),
                Place::Result(0),
                &site.operand(0),
            );
            if member.rank != root(site) && bytes(site.results[0]) > 0 {
                to.fill(site.result(0), 0.0);
            }
        }
        Op::AllToAll => all_to_all(site, to, member),
        Op::AllGatherUneven => {
            let counts = rows_to_elements(&site.attrs.sizes("counts"), &site.operand(0));
            let kind = CollectiveKind::AllGatherUneven { counts };
            exchange(
                to,
                kind,
                Place::Operand(0),
                Place::Result(0),
                &site.operand(0),
            );
        }
        Op::ReduceScatterUneven => {
            let [x, y] = [site.operand(0), site.result(0)];
            let counts = rows_to_elements(&site.attrs.sizes("counts"), &x.clone().parts());
            let kind = |combine| CollectiveKind::ReduceScatterUneven {
                counts: counts.clone(),
                combine,
            };
            reduction(site, to, x, y, member, kind)?;
        }
        Op::Send => {
            let kind = CollectiveKind::Send {
                peer: rank_attr(site, "peer"),
            };
            exchange(
                to,
                kind,
                Place::Operand(0),
                Place::Operand(0),
                &site.operand(0),
            );
        }
        Op::Recv => {
            let kind = CollectiveKind::Recv {
                peer: rank_attr(site, "peer"),
            };
            exchange(
                to,
                kind,
                Place::Result(0),
                Place::Result(0),
                &site.result(0),
            );
        }
        Op::Barrier => to.calls.push(Call::Collective(Collective {
            kind: CollectiveKind::Barrier,
            from: Place::Operand(0),
            to: Place::Result(0),
            count: 0,
            dtype: DType::U8,
        })),
        op => unreachable!("{op} is no communication"),
    }
    Ok(())
}

/// In a group of one every collective is a copy, and nothing travels.
fn alone(site: &Site<'_>, to: &mut Lowered) -> Result<(), Error> {
    if matches!(site.op, Op::Send | Op::Recv) {
        return Err(site.refuse("a rank cannot send to itself"));
    }
    let reduce = site.attrs.get("op").map(|_| site.attrs.reduce("op"));
    if site.op == Op::Barrier || site.operand_bytes() == 0 {
        return Ok(());
    }
    if reduce == Some(ReduceOp::PremulSum) {
        multiply(site, to, site.operand(0).parts(), site.result(0).parts());
    } else {
        copy(
            to,
            Place::Operand(0),
            Place::Result(0),
            site.operand_bytes(),
        );
    }
    Ok(())
}

fn root(site: &Site<'_>) -> u32 {
    rank_attr(site, "root")
}

fn rank_attr(site: &Site<'_>, name: &str) -> u32 {
    u32::try_from(site.attrs.int(name)).expect("the graph's type rules keep ranks in range")
}

fn copy(to: &mut Lowered, from: Place, place: Place, bytes: u64) {
    if bytes > 0 {
        to.calls.push(Call::Copy {
            from,
            to: place,
            bytes,
        });
    }
}

/// Adds the call that moves as many elements of the type of `counted` as it holds.
fn exchange(to: &mut Lowered, kind: CollectiveKind, from: Place, place: Place, counted: &View) {
    to.calls.push(Call::Collective(Collective {
        kind,
        from,
        to: place,
        count: counted.elements() as u64,
        dtype: counted.dtype,
    }));
}

/// The library's reduction for the site's, and the type to reduce in; for reductions that need
/// neither preparation nor completion.
fn direct(site: &Site<'_>) -> Result<(Combine, DType), Error> {
    let dtype = site.operand(0).parts().dtype;
    let reduce = site.attrs.reduce("op");
    // Bytes of 0 and 1: the smallest is the logical and, the largest the or.
    let of_bool = (dtype == DType::Bool).then_some(DType::I8);
    match (reduce, of_bool) {
        (ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor, Some(bytes)) => Ok((Combine::Max, bytes)),
        (ReduceOp::Prod | ReduceOp::Min | ReduceOp::Band, Some(bytes)) => Ok((Combine::Min, bytes)),
        (ReduceOp::Sum, None) => Ok((Combine::Sum, dtype)),
        // The library multiplies real and imaginary parts each for itself.
        (ReduceOp::Prod, None) if !site.operands[0].dtype.is_complex() => {
            Ok((Combine::Prod, dtype))
        }
        (ReduceOp::Max, None) => Ok((Combine::Max, dtype)),
        (ReduceOp::Min, None) => Ok((Combine::Min, dtype)),
        (reduce, _) => Err(site.refuse(format!(
            "the communication library has no reduction `{reduce}` for this collective"
        ))),
    }
}

/// A reduction of `x` into `y`, with what `avg` and `premul_sum` need around it. The count of the
/// collective is that of `y`; complex numbers count as their parts.
fn reduction(
    site: &Site<'_>,
    to: &mut Lowered,
    x: View,
    y: View,
    member: Member,
    kind: impl Fn(Combine) -> CollectiveKind,
) -> Result<(), Error> {
    let [x, y] = [x, y].map(View::parts);
    match site.attrs.reduce("op") {
        ReduceOp::Avg if y.dtype.is_integer() => {
            Err(site.refuse("the device library does not divide integers; use sum, or cast to f32"))
        }
        ReduceOp::Avg => {
            to.in_place = false;
            // A half-precision sum of large values would overflow before the division.
            let wide = if y.dtype.bytes() == 2 {
                DType::F32
            } else {
                y.dtype
            };
            let x = if wide == x.dtype {
                x
            } else {
                cast(to, x, wide)
            };
            let sum = to.scratch(wide, y.shape.clone());
            exchange(to, kind(Combine::Sum), x.place, sum.place, &sum);
            if sum.elements() == 0 {
                return Ok(());
            }
            let size = to.scratch(wide, []);
            to.fill(size.clone(), f64::from(member.group_size));
            let mean = if wide == y.dtype {
                y.clone()
            } else {
                to.scratch(wide, y.shape.clone())
            };
            to.push(Kernel::Div, [sum.into(), size.into(), mean.clone().into()]);
            if wide != y.dtype {
                to.push(Kernel::Cast, [mean.into(), Arg::DType(y.dtype), y.into()]);
            }
            Ok(())
        }
        ReduceOp::PremulSum => {
            to.in_place = false;
            let scaled = to.scratch(x.dtype, x.shape.clone());
            if x.elements() > 0 {
                multiply(site, to, x, scaled.clone());
            }
            exchange(to, kind(Combine::Sum), scaled.place, y.place, &y);
            Ok(())
        }
        _ => {
            let (combine, dtype) = direct(site)?;
            exchange(to, kind(combine), x.place, y.place, &y.reread(dtype));
            Ok(())
        }
    }
}

fn cast(to: &mut Lowered, x: View, dtype: DType) -> View {
    let wide = to.scratch(dtype, x.shape.clone());
    if x.elements() > 0 {
        to.push(
            Kernel::Cast,
            [x.into(), Arg::DType(dtype), wide.clone().into()],
        );
    }
    wide
}

fn multiply(site: &Site<'_>, to: &mut Lowered, x: View, y: View) {
    let factor = Scalar::of(site.attrs.float("factor"), x.dtype);
    to.push(Kernel::Muls, [x.into(), Arg::Scalar(factor), y.into()]);
}

/// A tensor seen as blocks along `dim`: `[before, blocks, after]`, where `after` holds the rest of
/// the blocked dimension too.
fn blocks(view: &View, dim: usize, blocks: i64) -> [i64; 3] {
    let before: i64 = view.shape[..dim].iter().product();
    let after: i64 = view.shape[dim..].iter().product::<i64>() / blocks;
    [before, blocks, after]
}

fn all_gather(site: &Site<'_>, to: &mut Lowered, member: Member) {
    let [x, y] = [site.operand(0), site.result(0)];
    let dim = site.dim("dim", x.shape.len());
    let [before, members, after] = blocks(&y, dim, i64::from(member.group_size));
    if before == 1 || y.elements() == 0 {
        exchange(to, CollectiveKind::AllGather, x.place, y.place, &x);
        return;
    }
    let gathered = to.scratch(y.dtype, [members, before, after]);
    exchange(to, CollectiveKind::AllGather, x.place, gathered.place, &x);
    to.push(
        Kernel::Permute,
        [
            gathered.into(),
            Arg::Ints(vec![1, 0, 2]),
            y.reshaped([before, members, after]).into(),
        ],
    );
}

fn reduce_scatter(site: &Site<'_>, to: &mut Lowered, member: Member) -> Result<(), Error> {
    let [mut x, y] = [site.operand(0), site.result(0)];
    let dim = site.dim("dim", x.shape.len());
    let [before, members, after] = blocks(&x, dim, i64::from(member.group_size));
    if before > 1 && x.elements() > 0 {
        let arranged = to.scratch(x.dtype, [members, before, after]);
        to.push(
            Kernel::Permute,
            [
                x.reshaped([before, members, after]).into(),
                Arg::Ints(vec![1, 0, 2]),
                arranged.clone().into(),
            ],
        );
        x = arranged;
    }
    reduction(site, to, x, y, member, CollectiveKind::ReduceScatter)
}

fn all_to_all(site: &Site<'_>, to: &mut Lowered, member: Member) {
    let x = site.operand(0);
    if site.attrs.get("send_counts").is_some() {
        let [send, recv] = ["send_counts", "recv_counts"]
            .map(|name| rows_to_elements(&site.attrs.sizes(name), &x));
        let kind = CollectiveKind::AllToAllUneven { send, recv };
        exchange(to, kind, Place::Operand(0), Place::Result(0), &x);
    } else {
        let count = x.elements() as u64 / u64::from(member.group_size);
        to.calls.push(Call::Collective(Collective {
            kind: CollectiveKind::AllToAll,
            from: Place::Operand(0),
            to: Place::Result(0),
            count,
            dtype: x.dtype,
        }));
    }
}

/// Rows of dimension 0 as elements of tensors shaped like `like` otherwise.
fn rows_to_elements(rows: &[u64], like: &View) -> Vec<u64> {
    let width: i64 = like.shape[1..].iter().product();
    rows.iter().map(|rows| rows * width as u64).collect()
}
