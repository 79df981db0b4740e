//! `broadcast(tensor, root, group)`: every rank's tensor becomes the root's.
//!
//! A caller may name the root by its rank in the world or by its rank in the group; the graph
//! holds the rank in the group, which is what the device library takes.

use crate::{Context, ConvertError};
use hcom_ir::{Attrs, GroupId, Op, ValueId};
use std::fmt;

const CALL: &str = "broadcast";

/// The one rank that a call singles out (the root, the peer of a transfer), in either of the two
/// numberings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// Rank within the world.
    Global(u32),
    /// Rank within the group.
    Group(u32),
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Root::Global(rank) => write!(f, "{rank}"),
            Root::Group(rank) => write!(f, "{rank} (group rank)"),
        }
    }
}

/// Adds a broadcast of `tensor` and returns the value it has afterwards.
///
/// # Errors
/// [`ConvertError::NotInGroup`] for the recording rank, [`ConvertError::RankNotInGroup`] for the
/// root.
pub fn convert(
    context: &mut Context<'_>,
    tensor: ValueId,
    root: Root,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let group_rank = context.group_rank(CALL, "root", root, group)?;
    let attrs = Attrs::new().with("root", group_rank).with("group", group);
    context.push(Op::Broadcast, &[tensor], attrs)
}

#[cfg(test)]
mod tests {
    use super::Root;
    use crate::Call;
    use crate::context::tests::{check, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::F32;

    fn broadcast(root: Root, ranks: &[u32], rank: u32, expected: Expect) {
        check(
            [fixed(F32, &[1])],
            ranks,
            rank,
            &Call::Broadcast { root },
            expected,
        );
    }

    #[test]
    fn a_global_root_becomes_a_group_rank() {
        broadcast(
            Root::Global(3),
            &[1, 3],
            1,
            expect![[r#"
            hcom 1
            group @g = ranks(1, 3)
            graph @f(%x: f32[1]) -> f32[1] {
              %1 = broadcast %x, root = 1, group = @g
              return y = %1
            }
        "#]],
        );
    }

    #[test]
    fn a_group_root_stays() {
        broadcast(
            Root::Group(0),
            &[1, 3],
            3,
            expect![[r#"
            hcom 1
            group @g = ranks(1, 3)
            graph @f(%x: f32[1]) -> f32[1] {
              %1 = broadcast %x, root = 0, group = @g
              return y = %1
            }
        "#]],
        );
    }

    #[test]
    fn a_root_outside_the_group_is_refused() {
        broadcast(
            Root::Global(0),
            &[1, 3],
            1,
            expect!["broadcast: root 0 is not in group g (ranks [1, 3])"],
        );
        broadcast(
            Root::Group(2),
            &[1, 3],
            1,
            expect!["broadcast: root 2 (group rank) is not in group g (ranks [1, 3])"],
        );
    }

    #[test]
    fn an_outsider_is_refused() {
        broadcast(
            Root::Global(3),
            &[1, 3],
            2,
            expect!["broadcast: rank 2 is not in group g (ranks [1, 3])"],
        );
    }
}
