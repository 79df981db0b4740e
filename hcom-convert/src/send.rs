//! `send(tensor, peer, tag, group)`: the peer's matching `recv` gets this tensor.
//!
//! Sends and receives between two ranks match in order, per tag; number and type of their elements
//! must be equal, which is checked across ranks before a graph first runs. A send waits for its
//! receive: two ranks that both send first wait for each other; they need a
//! [batch](mod@crate::batch).

use crate::batch::{self, Direction, Peer, Transfer};
use crate::{Context, ConvertError};
use hcom_ir::{GroupId, ValueId};

const CALL: &str = "send";

/// Adds a send of `tensor`.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::RankNotInGroup`] for the peer;
/// [`ConvertError::OwnPeer`].
pub fn convert(
    context: &mut Context<'_>,
    tensor: ValueId,
    peer: Peer,
    tag: u32,
    group: GroupId,
) -> Result<(), ConvertError> {
    let transfer = Transfer {
        peer,
        tag,
        direction: Direction::Send,
    };
    batch::lower(CALL, context, &[transfer], &[tensor], group).map(drop)
}

#[cfg(test)]
mod tests {
    use crate::context::tests::{check, fixed};
    use crate::{Call, Peer};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::F32;

    fn send(peer: Peer, expected: Expect) {
        let call = Call::Send { peer, tag: 7 };
        check([fixed(F32, &[2])], &[1, 2, 3], 3, &call, expected);
    }

    #[test]
    fn the_group_is_the_two_ranks() {
        send(
            Peer::Global(1),
            expect![[r#"
            hcom 1
            group @g = ranks(1, 2, 3)
            group @ranks_1_3 = ranks(1, 3)
            graph @f(%x: f32[2]) {
              send %x, peer = 0, tag = 7, group = @ranks_1_3
            }
        "#]],
        );
    }

    #[test]
    fn peers_that_cannot_receive_are_refused() {
        send(
            Peer::Group(2),
            expect!["send: rank 3 is its own peer; copy the tensor instead"],
        );
        send(
            Peer::Global(0),
            expect!["send: peer 0 is not in group g (ranks [1, 2, 3])"],
        );
    }
}
