//! Sends and receives between two ranks.
//!
//! Those from one rank to another match in order, per tag, with equal numbers and types of
//! elements. In a compiled function that is checked before its graph first runs; both ends of a
//! transfer are compiled then. A send waits for its receive, so two ranks that both send first
//! wait for each other, whatever the size; [`batch_isend_irecv`] is for them.

use super::{Group, Peer, dispatch};
use crate::{Error, Tensor};
use hcom_convert::{Call, Direction};

/// A send or a receive that has been described and not yet been made.
#[derive(Debug)]
#[must_use = "a transfer is made by `batch_isend_irecv`"]
pub struct Transfer<'a> {
    tensor: &'a Tensor,
    transfer: hcom_convert::Transfer,
}

/// A send of `tensor` to `peer`, for a batch.
pub fn isend(tensor: &Tensor, peer: Peer, tag: u32) -> Transfer<'_> {
    Transfer {
        tensor,
        transfer: hcom_convert::Transfer {
            peer,
            tag,
            direction: Direction::Send,
        },
    }
}

/// A receive from `peer` into `tensor`, for a batch.
pub fn irecv(tensor: &mut Tensor, peer: Peer, tag: u32) -> Transfer<'_> {
    let direction = Direction::Recv(tensor.ty().clone());
    Transfer {
        tensor,
        transfer: hcom_convert::Transfer {
            peer,
            tag,
            direction,
        },
    }
}

/// Makes all `transfers`, in an order that does not depend on how each rank lists them: ranks that
/// both send and receive do not wait for each other. Tensors are read as they are before the batch.
///
/// The receives are complete for whatever uses the tensors next, so there is nothing to wait for.
///
/// # Errors
/// [`Error::Convert`] if this rank or a peer is not in the group, or is its own peer;
/// [`Error::Runtime`] if the ranks' transfers do not fit each other or one fails.
#[track_caller]
pub fn batch_isend_irecv<'a>(
    transfers: impl IntoIterator<Item = Transfer<'a>>,
    group: &Group,
) -> Result<(), Error> {
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let mut batch = Vec::new();
    for Transfer { tensor, transfer } in transfers {
        match transfer.direction {
            Direction::Send => sent.push(tensor),
            Direction::Recv(_) => received.push(tensor),
        }
        batch.push(transfer);
    }
    let call = Call::Batch { transfers: batch };
    dispatch(&call, &received, &sent, group)
}

/// Sends `tensor` to `peer`.
///
/// # Errors
/// [`Error::Convert`] if this rank or the peer is not in the group, or is its own peer;
/// [`Error::Runtime`] if the peer's receive does not fit or the transfer fails.
#[track_caller]
pub fn send(tensor: &Tensor, peer: Peer, tag: u32, group: &Group) -> Result<(), Error> {
    dispatch(&Call::Send { peer, tag }, &[], &[tensor], group)
}

/// Receives `tensor` from `peer`.
///
/// # Errors
/// [`Error::Convert`] if this rank or the peer is not in the group, or is its own peer;
/// [`Error::Runtime`] if the peer's send does not fit or the transfer fails.
#[track_caller]
pub fn recv(tensor: &mut Tensor, peer: Peer, tag: u32, group: &Group) -> Result<(), Error> {
    let output = tensor.ty().clone();
    dispatch(&Call::Recv { output, peer, tag }, &[tensor], &[], group)
}
