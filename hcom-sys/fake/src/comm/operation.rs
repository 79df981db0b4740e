//! The table of operations: what distinguishes one from the others, and how their buffers are cut into blocks.
//!
//! A collective that moves data gives block `me` of each source's send buffer to block `source` of the receive buffer of
//! `me`. One that reduces combines block `me` of all send buffers. Everything else is in [`Rules`].

use hcom_sys::bindings::{self as sys, HcclDataType, HcclReduceOp};

use super::reduce;
use crate::soc::{Family, Soc};

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Everybody gets the reduction of all.
    AllReduce = 1,
    /// The root gets the reduction of all.
    Reduce,
    /// Rank r gets block r of the reduction.
    ReduceScatter,
    /// The same with blocks of any length.
    ReduceScatterV,
    /// Everybody gets the root's buffer.
    Broadcast,
    /// Rank r gets the root's block r.
    Scatter,
    /// Everybody gets everything, in rank order.
    AllGather,
    /// The same with blocks of any length.
    AllGatherV,
    /// Rank r gets block r of everybody.
    AllToAll,
    /// The same with blocks of any length.
    AllToAllV,
    /// The same with the lengths of all ranks given to everybody.
    AllToAllVC,
    /// Nobody goes on before all have come.
    Barrier,
    /// One buffer to one rank.
    Send,
    /// One buffer from one rank.
    Recv,
    /// Several sends and receives that do not wait for each other.
    Batch,
}

/// How a buffer is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// There is no buffer.
    Nothing,
    /// `count` elements: one block, the same for every rank.
    Whole,
    /// `count` elements for each rank, in rank order.
    Even,
    /// A count and a displacement for each rank.
    Uneven,
}

/// Which ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Everybody,
    Root,
}

/// Which overlaps of the two buffers of one rank have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InPlace {
    /// None.
    Never,
    /// Both are the same.
    Same,
    /// The send buffer is its own block of the receive buffer.
    OwnBlock,
    /// Any: the result is written when the peers have read.
    Anywhere,
}

/// What distinguishes an operation.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    pub(super) reduces: bool,
    pub(super) send: Cut,
    pub(super) recv: Cut,
    /// Whose send buffer counts.
    pub(super) from: Who,
    /// Whose receive buffer is written.
    pub(super) to: Who,
    pub(super) in_place: InPlace,
    /// Whether a count of 0 ends the call before any other check.
    pub(super) zero_is_nothing: bool,
}

/// Rows as a table: one line per operation.
macro_rules! table {
    ($($kind:ident $name:literal $does:ident $send:ident -> $recv:ident, $from:ident to $to:ident, in place $place:ident, zero $zero:ident;)*) => {
        static TABLE: &[Rules] = &[$(Rules {
            kind: Kind::$kind,
            name: $name,
            reduces: table!($does),
            send: Cut::$send,
            recv: Cut::$recv,
            from: Who::$from,
            to: Who::$to,
            in_place: InPlace::$place,
            zero_is_nothing: table!($zero),
        }),*];
    };
    (reduces) => { true };
    (moves) => { false };
    (returns) => { true };
    (counts) => { false };
}

table! {
    AllReduce      "all_reduce"       reduces Whole   -> Whole,   Everybody to Everybody, in place Same,     zero returns;
    Reduce         "reduce"           reduces Whole   -> Whole,   Everybody to Root,      in place Same,     zero returns;
    ReduceScatter  "reduce_scatter"   reduces Even    -> Whole,   Everybody to Everybody, in place Anywhere, zero returns;
    ReduceScatterV "reduce_scatter_v" reduces Uneven  -> Whole,   Everybody to Everybody, in place Never,    zero counts;
    Broadcast      "broadcast"        moves   Whole   -> Whole,   Root      to Everybody, in place Same,     zero returns;
    Scatter        "scatter"          moves   Even    -> Whole,   Root      to Everybody, in place Anywhere, zero returns;
    AllGather      "all_gather"       moves   Whole   -> Even,    Everybody to Everybody, in place OwnBlock, zero returns;
    AllGatherV     "all_gather_v"     moves   Whole   -> Uneven,  Everybody to Everybody, in place Never,    zero counts;
    AllToAll       "all_to_all"       moves   Even    -> Even,    Everybody to Everybody, in place Never,    zero counts;
    AllToAllV      "all_to_all_v"     moves   Uneven  -> Uneven,  Everybody to Everybody, in place Never,    zero counts;
    AllToAllVC     "all_to_all_vc"    moves   Uneven  -> Uneven,  Everybody to Everybody, in place Never,    zero counts;
    Barrier        "barrier"          moves   Nothing -> Nothing, Everybody to Everybody, in place Never,    zero counts;
    Send           "send"             moves   Whole   -> Nothing, Everybody to Everybody, in place Never,    zero returns;
    Recv           "recv"             moves   Nothing -> Whole,   Everybody to Everybody, in place Never,    zero returns;
    Batch          "batch_send_recv"  moves   Nothing -> Nothing, Everybody to Everybody, in place Never,    zero counts;
}

impl Kind {
    pub(super) fn rules(self) -> &'static Rules {
        let rules = &TABLE[self as usize - 1];
        debug_assert_eq!(rules.kind, self);
        rules
    }

    /// Every operation.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|rules| rules.kind)
    }

    /// What messages call it.
    pub(crate) fn name(self) -> &'static str {
        self.rules().name
    }

    /// Whether only some ranks take part: a send, a receive, or several of them.
    pub(super) fn is_transfer(self) -> bool {
        matches!(self, Self::Send | Self::Recv | Self::Batch)
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        let index = usize::from(number).checked_sub(1)?;
        TABLE.get(index).map(|rules| rules.kind)
    }

    /// Whether the chip has the operation for this type and reduction.
    pub(super) fn supported(
        self,
        soc: &Soc,
        dtype: HcclDataType,
        op: Option<HcclReduceOp>,
    ) -> bool {
        let family = soc.family;
        let exists = match self {
            Self::AllToAllVC => !matches!(family, Family::A1 | Family::Duo),
            Self::ReduceScatterV => family != Family::A1,
            Self::Reduce | Self::Barrier => family != Family::Duo,
            _ => true,
        };
        let uneven = || match family {
            Family::A950 => !wide(dtype),
            Family::A3 => op != Some(sys::HCCL_REDUCE_PROD),
            Family::A2 => op != Some(sys::HCCL_REDUCE_PROD) && dtype != sys::HCCL_DATA_TYPE_INT64,
            Family::Duo => {
                op == Some(sys::HCCL_REDUCE_SUM)
                    && matches!(
                        dtype,
                        sys::HCCL_DATA_TYPE_INT16
                            | sys::HCCL_DATA_TYPE_FP16
                            | sys::HCCL_DATA_TYPE_FP32
                    )
            }
            Family::A1 => false,
        };
        exists
            && match op {
                Some(op) => {
                    soc.reduces(dtype, op)
                        && reduce::knows(dtype)
                        && (self != Self::ReduceScatterV || uneven())
                }
                None => soc.moves(dtype),
            }
    }
}

/// Types that the newest chip reduces, but not in blocks of any length.
fn wide(dtype: HcclDataType) -> bool {
    matches!(dtype, sys::HCCL_DATA_TYPE_UINT64 | sys::HCCL_DATA_TYPE_FP64)
}

impl Rules {
    pub(super) fn has_root(&self) -> bool {
        self.from == Who::Root || self.to == Who::Root
    }

    /// Whether ranks may have blocks of different lengths.
    pub(super) fn is_uneven(&self) -> bool {
        self.send == Cut::Uneven || self.recv == Cut::Uneven
    }
}

/// Counts and displacements of an uneven buffer in elements, one per rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// Elements.
    pub counts: Vec<u64>,
    /// Where each block starts, in elements.
    pub displs: Vec<u64>,
}

impl Blocks {
    /// Blocks that follow each other without gaps.
    pub(crate) fn packed(counts: Vec<u64>) -> Self {
        let displs = counts
            .iter()
            .scan(0u64, |sum, count| {
                let start = *sum;
                *sum = sum.saturating_add(*count);
                Some(start)
            })
            .collect();
        Self { counts, displs }
    }

    /// The elements up to the end of the last block; `None` when they are more than a number can say.
    pub(super) fn extent(&self) -> Option<u64> {
        let mut end = 0;
        for (&count, &displ) in self.counts.iter().zip(&self.displs) {
            if count > 0 {
                end = end.max(displ.checked_add(count)?);
            }
        }
        Some(end)
    }
}

/// How one buffer is cut, in bytes.
#[derive(Clone, Debug)]
pub(super) enum Layout {
    Whole(usize),
    Even(usize),
    Uneven { blocks: Blocks, element: usize },
}

impl Layout {
    /// Where the block of `rank` starts, and how long it is.
    pub(super) fn block(&self, rank: usize) -> (usize, usize) {
        match self {
            Self::Whole(unit) => (0, *unit),
            Self::Even(unit) => (rank * unit, *unit),
            // Bounded: the extent was checked against an allocation.
            Self::Uneven { blocks, element } => match blocks.counts[rank] {
                0 => (0, 0),
                count => (
                    blocks.displs[rank] as usize * element,
                    count as usize * element,
                ),
            },
        }
    }

    /// The elements of the block of `rank`, and where they start.
    pub(super) fn elements(&self, rank: usize, count: u64) -> (u64, u64) {
        match self {
            Self::Uneven { blocks, .. } => (blocks.counts[rank], blocks.displs[rank]),
            Self::Whole(_) | Self::Even(_) => (count, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_rows_agree() {
        for (index, rules) in TABLE.iter().enumerate() {
            assert_eq!(rules.kind as usize, index + 1);
            assert_eq!(Kind::from_number(rules.kind as u8), Some(rules.kind));
        }
        assert_eq!(Kind::from_number(0), None);
        assert_eq!(Kind::from_number(TABLE.len() as u8 + 1), None);
    }

    #[test]
    fn an_extent_that_overflows_is_noticed() {
        let blocks = |counts: &[u64], displs: &[u64]| Blocks {
            counts: counts.to_vec(),
            displs: displs.to_vec(),
        };
        assert_eq!(blocks(&[2, 0, 3], &[5, u64::MAX, 0]).extent(), Some(7));
        assert_eq!(blocks(&[2], &[u64::MAX - 1]).extent(), None);
        assert_eq!(Blocks::packed(vec![3, 0, 4]).displs, [0, 3, 3]);
    }

    #[test]
    fn chips_differ_as_documented() {
        let soc = |name| Soc::parse(name).unwrap();
        let (a3, a2, a1, duo, newest) = (
            soc("Ascend910_9382"),
            soc("Ascend910B2"),
            soc("Ascend910A"),
            soc("Ascend310P3"),
            soc("Ascend950"),
        );
        let (i64s, f64s, i16s, f32s) = (
            sys::HCCL_DATA_TYPE_INT64,
            sys::HCCL_DATA_TYPE_FP64,
            sys::HCCL_DATA_TYPE_INT16,
            sys::HCCL_DATA_TYPE_FP32,
        );
        let (sum, prod) = (Some(sys::HCCL_REDUCE_SUM), Some(sys::HCCL_REDUCE_PROD));
        let v = Kind::ReduceScatterV;
        assert!(v.supported(&a3, i64s, sum) && !v.supported(&a2, i64s, sum));
        assert!(!v.supported(&a3, f32s, prod) && v.supported(&newest, f32s, prod));
        assert!(!v.supported(&newest, f64s, sum) && !v.supported(&a1, f32s, sum));
        assert!(v.supported(&duo, i16s, sum) && !v.supported(&duo, i64s, sum));
        assert!(Kind::AllReduce.supported(&newest, f64s, sum));
        assert!(!Kind::AllReduce.supported(&a3, f64s, sum));
        assert!(Kind::AllToAll.supported(&a3, f64s, None));
        assert!(!Kind::AllToAllVC.supported(&a1, f32s, None));
        assert!(!Kind::Reduce.supported(&duo, f32s, sum));
        let fp8 = sys::HCCL_DATA_TYPE_FP8E4M3;
        assert!(Kind::Send.supported(&newest, fp8, None) && !Kind::Send.supported(&a3, fp8, None));
        assert!(!Kind::Send.supported(&newest, sys::HCCL_DATA_TYPE_INT128, None));
    }
}
