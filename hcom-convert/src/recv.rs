//! `recv(tensor, peer, tag, group)`: the tensor becomes what the peer's matching `send` sends.
//!
//! The tensor's type is what the send must have; see [`send`](crate::send) for how they match.

use crate::batch::{self, Direction, Peer, Transfer};
use crate::{Context, ConvertError};
use hcom_ir::{GroupId, Type, ValueId};

const CALL: &str = "recv";

/// Adds a receive of a tensor of type `output` and returns it.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::RankNotInGroup`] for the peer;
/// [`ConvertError::OwnPeer`].
pub fn convert(
    context: &mut Context<'_>,
    output: &Type,
    peer: Peer,
    tag: u32,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let transfer = Transfer {
        peer,
        tag,
        direction: Direction::Recv(output.clone()),
    };
    let received = batch::lower(CALL, context, &[transfer], &[], group)?;
    Ok(received[0])
}

#[cfg(test)]
mod tests {
    use crate::context::tests::{check, fixed};
    use crate::{Call, Peer};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::F32;

    fn recv(peer: Peer, expected: Expect) {
        let call = Call::Recv {
            output: fixed(F32, &[2]),
            peer,
            tag: 0,
        };
        check([], &[3, 1], 3, &call, expected);
    }

    #[test]
    fn the_peer_is_a_rank_of_the_group() {
        recv(
            Peer::Global(1),
            expect![[r#"
            hcom 1
            group @g = ranks(3, 1)
            graph @f() -> f32[2] {
              %0 = recv f32[2], peer = 1, group = @g
              return y = %0
            }
        "#]],
        );
        recv(
            Peer::Group(1),
            expect![[r#"
            hcom 1
            group @g = ranks(3, 1)
            graph @f() -> f32[2] {
              %0 = recv f32[2], peer = 1, group = @g
              return y = %0
            }
        "#]],
        );
    }

    #[test]
    fn peers_that_cannot_send_are_refused() {
        recv(
            Peer::Global(3),
            expect!["recv: rank 3 is its own peer; copy the tensor instead"],
        );
        recv(
            Peer::Group(2),
            expect!["recv: peer 2 (group rank) is not in group g (ranks [3, 1])"],
        );
    }
}
