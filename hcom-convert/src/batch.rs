//! `batch_isend_irecv(transfers, group)`: sends and receives that are under way together.
//!
//! A transfer needs both ranks, and the device library's send waits for its receive. So a batch is
//! put in an order that all ranks share, by the two ranks of each transfer: whatever the order in
//! which each rank lists them, the first transfer not yet done is the next one of both its ranks.
//! Transfers from one rank to another keep the order of the list.
//!
//! Each transfer becomes a `send` or `recv` in the group of its two ranks, which are then the only
//! ones that have to take part.

use crate::{Context, ConvertError, Root};
use hcom_ir::{Attrs, Group, GroupId, Op, Type, ValueId};

/// The other rank of a transfer, in either of the two numberings.
pub type Peer = Root;

/// One transfer of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// The other rank.
    pub peer: Peer,
    /// Distinguishes transfers between the same two ranks.
    pub tag: u32,
    /// Which way.
    pub direction: Direction,
}

/// Which way a transfer goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Direction {
    /// To the peer; the tensor is an operand of the call.
    Send,
    /// From the peer, into a tensor of this type.
    Recv(Type),
}

const CALL: &str = "batch_isend_irecv";

/// Adds the transfers and returns the tensors received, in the order of the list. `operands` are
/// the tensors sent, in that order too.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::RankNotInGroup`] for a peer;
/// [`ConvertError::OwnPeer`]; [`ConvertError::Operand`] unless there is one operand per send.
pub fn convert(
    context: &mut Context<'_>,
    transfers: &[Transfer],
    operands: &[ValueId],
    group: GroupId,
) -> Result<Vec<ValueId>, ConvertError> {
    lower(CALL, context, transfers, operands, group)
}

/// As [`convert`], for the call of this name.
pub(crate) fn lower(
    call: &'static str,
    context: &mut Context<'_>,
    transfers: &[Transfer],
    operands: &[ValueId],
    group: GroupId,
) -> Result<Vec<ValueId>, ConvertError> {
    let own = context.rank;
    let members = context.member_of(call, group)?.clone();
    let mut sends = operands.iter();
    let mut receives = 0;
    let mut steps = Vec::with_capacity(transfers.len());
    for transfer in transfers {
        let peer = context.group_rank(call, "peer", transfer.peer, group)?;
        let peer = members.ranks[peer as usize];
        if peer == own {
            return Err(ConvertError::OwnPeer { call, rank: own });
        }
        let (source, what) = match &transfer.direction {
            Direction::Send => {
                let value = sends.next().ok_or(ConvertError::Operand { call })?;
                (own, Step::Send(*value))
            }
            Direction::Recv(ty) => {
                receives += 1;
                (peer, Step::Recv(receives - 1, ty))
            }
        };
        let key = (own.min(peer), own.max(peer), source);
        steps.push((key, peer, transfer.tag, what));
    }
    if sends.next().is_some() {
        return Err(ConvertError::Operand { call });
    }
    steps.sort_by_key(|(key, ..)| *key);
    let mut received = vec![None; receives];
    for (_, peer, tag, what) in steps {
        let pair = pair(context, &members, peer, group);
        let rank = context.group_rank(call, "peer", Root::Global(peer), pair)?;
        let attrs = Attrs::new()
            .with("peer", rank)
            .with("tag", tag)
            .with("group", pair);
        match what {
            Step::Send(value) => {
                context.builder.push(Op::Send, &[value], attrs)?;
            }
            Step::Recv(index, ty) => {
                let attrs = attrs.with("type", ty.clone());
                received[index] = Some(context.push(Op::Recv, &[], attrs)?);
            }
        }
    }
    Ok(received.into_iter().flatten().collect())
}

enum Step<'a> {
    Send(ValueId),
    /// The index among the receives, and the type.
    Recv(usize, &'a Type),
}

/// The group of the recording rank and `peer`, in the order of `members`.
fn pair(context: &mut Context<'_>, members: &Group, peer: u32, group: GroupId) -> GroupId {
    if members.group_size() == 2 {
        return group;
    }
    let ranks: Vec<u32> = members
        .ranks
        .iter()
        .copied()
        .filter(|rank| *rank == context.rank || *rank == peer)
        .collect();
    let name = format!("ranks_{}_{}", ranks[0], ranks[1]);
    context.builder.group(Group::new(name, ranks))
}

#[cfg(test)]
mod tests {
    use super::{Direction, Peer, Transfer};
    use crate::Call;
    use crate::context::tests::{check, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::F32;

    fn batch(ranks: &[u32], rank: u32, peers: &[(u32, bool)], operands: usize, expected: Expect) {
        let transfers = (0..).zip(peers).map(|(tag, (peer, send))| Transfer {
            peer: Peer::Global(*peer),
            tag,
            direction: match send {
                true => Direction::Send,
                false => Direction::Recv(fixed(F32, &[2])),
            },
        });
        let call = Call::Batch {
            transfers: transfers.collect(),
        };
        let operands = vec![fixed(F32, &[2]); operands];
        check(operands, ranks, rank, &call, expected);
    }

    #[test]
    fn both_ends_order_an_exchange_alike() {
        for (rank, peer) in [(0, 1), (1, 0)] {
            let expected = match rank {
                0 => expect![[r#"
                    hcom 1
                    group @g = ranks(0, 1)
                    graph @f(%x: f32[2]) -> f32[2] {
                      send %x, peer = 1, group = @g
                      %1 = recv f32[2], peer = 1, tag = 1, group = @g
                      return y = %1
                    }
                "#]],
                _ => expect![[r#"
                    hcom 1
                    group @g = ranks(0, 1)
                    graph @f(%x: f32[2]) -> f32[2] {
                      %1 = recv f32[2], peer = 0, tag = 1, group = @g
                      send %x, peer = 0, group = @g
                      return y = %1
                    }
                "#]],
            };
            batch(&[0, 1], rank, &[(peer, true), (peer, false)], 1, expected);
        }
    }

    #[test]
    fn each_pair_of_ranks_is_a_group() {
        let ring = [(3, false), (1, true), (1, true)];
        batch(
            &[0, 1, 2, 3],
            2,
            &ring,
            2,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1, 2, 3)
            group @ranks_1_2 = ranks(1, 2)
            group @ranks_2_3 = ranks(2, 3)
            graph @f(%x0: f32[2], %x1: f32[2]) -> f32[2] {
              send %x0, peer = 0, tag = 1, group = @ranks_1_2
              send %x1, peer = 0, tag = 2, group = @ranks_1_2
              %2 = recv f32[2], peer = 1, group = @ranks_2_3
              return y = %2
            }
        "#]],
        );
    }

    #[test]
    fn what_cannot_be_paired_is_refused() {
        batch(
            &[1, 3],
            3,
            &[(3, true)],
            1,
            expect!["batch_isend_irecv: rank 3 is its own peer; copy the tensor instead"],
        );
        batch(
            &[1, 3],
            3,
            &[(0, true)],
            1,
            expect!["batch_isend_irecv: peer 0 is not in group g (ranks [1, 3])"],
        );
        batch(
            &[1, 3],
            3,
            &[(1, true)],
            0,
            expect!["batch_isend_irecv: wrong number of tensors"],
        );
        batch(
            &[1, 3],
            0,
            &[(1, true)],
            1,
            expect!["batch_isend_irecv: rank 0 is not in group g (ranks [1, 3])"],
        );
    }
}
