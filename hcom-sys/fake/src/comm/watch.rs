//! How a rank notices that a peer is gone: a thread that waits for the end of the sockets to the peers.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread;

use hcom_sys::bindings as sys;
use rustix::event::{PollFd, PollFlags, poll};

use super::{Communicator, wire};
use crate::code;
use crate::error::Failure;

/// What a rank says to its peers before it stops taking part, followed by the reason as text. Without a word, the end of
/// the socket is its death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Word {
    /// It destroyed its communicator; with a reason, because of a failure it had heard of.
    Left = 1,
    /// It ran into an error of its own.
    GaveUp = 2,
}

/// Starts the watch; it ends when a message comes through `stopped` or that socket ends.
pub(super) fn start(communicator: &Arc<Communicator>, stopped: OwnedFd) -> io::Result<()> {
    let mut sockets: Vec<(usize, OwnedFd)> = Vec::new();
    for (rank, peer) in communicator.peers.iter().enumerate() {
        if let Some(peer) = peer {
            sockets.push((rank, peer.socket.try_clone()?));
        }
    }
    let communicator = Arc::downgrade(communicator);
    thread::Builder::new()
        .name("hcom-watch".to_owned())
        .spawn(move || watch(&communicator, sockets, &stopped))
        .map(|_| ())
}

fn watch(communicator: &Weak<Communicator>, mut sockets: Vec<(usize, OwnedFd)>, stopped: &OwnedFd) {
    loop {
        let all = std::iter::once(stopped).chain(sockets.iter().map(|(_, socket)| socket));
        let mut waiting: Vec<_> = all
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        if poll(&mut waiting, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        let ready: Vec<bool> = waiting
            .iter()
            .map(|one| !one.revents().is_empty())
            .collect();
        drop(waiting);
        if ready[0] {
            return;
        }
        for index in (0..sockets.len()).rev().filter(|&index| ready[index + 1]) {
            let (rank, socket) = sockets.swap_remove(index);
            let said = match wire::receive(&socket) {
                Ok(said) => said.map(|(bytes, _)| bytes),
                Err(_) => None,
            };
            let Some(communicator) = communicator.upgrade() else {
                return;
            };
            report(&communicator, rank, said.as_deref());
        }
    }
}

/// Takes note of what a peer said before its socket ended; `None` if it said nothing, which breaks the communicator.
fn report(communicator: &Communicator, rank: usize, said: Option<&[u8]>) {
    let who = format!(
        "{} of communicator {}",
        communicator.who(rank),
        communicator.name
    );
    let (word, why) = match said {
        Some([word, why @ ..]) => (Some(*word), String::from_utf8_lossy(why)),
        _ => (None, "".into()),
    };
    let text = if word == Some(Word::Left as u8) && why.is_empty() {
        let text = format!("{who} destroyed its communicator");
        return communicator.depart(rank, Failure::new(code::REMOTE, text));
    } else if word == Some(Word::Left as u8) {
        // It left because of somebody else, who is to be named.
        why.into_owned()
    } else if word == Some(Word::GaveUp as u8) {
        format!("{who} stopped after an error of its own: {why}")
    } else {
        format!("{who} is gone")
    };
    communicator.fail(Failure::new(code::REMOTE, text), sys::HCCL_E_REMOTE);
}
