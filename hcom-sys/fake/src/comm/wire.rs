//! Messages between the processes of a communicator while it is set up: bytes with file descriptors beside them, one
//! message per packet.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
};
use rustix::time::Timespec;

/// The longest message in bytes.
pub(crate) const LONGEST: usize = 8192;
/// The most file descriptors in one message.
const MOST_FILES: usize = 2;

/// A new socket for packets between processes of this host.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Two connected sockets.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Sends one message; never raises SIGPIPE.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other(
            "too many file descriptors for one message",
        ));
    }
    let parts = [IoSlice::new(bytes)];
    loop {
        match sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return outcome.map(|_| ()).map_err(io::Error::from),
        }
    }
}

/// Receives one message; `None` at the end of the stream, which also is what a reset connection means here.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; LONGEST];
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            outcome => break outcome?,
        }
    };
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    bytes.truncate(received.bytes);
    Ok((received.bytes > 0).then_some((bytes, files)))
}

/// Waits until `socket` has something to receive (or has ended); false when the deadline passes first.
pub(crate) fn readable(socket: impl AsFd, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&limit)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) => return Ok(false),
            outcome => return outcome.map(|_| true).map_err(io::Error::from),
        }
    }
}

/// Builds a message.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// Appends a number.
    pub(crate) fn number(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends a text or other bytes.
    pub(crate) fn bytes(mut self, value: &[u8]) -> Self {
        // Texts are cut rather than refused: the longest come from error messages.
        let value = &value[..value.len().min(LONGEST / 2)];
        self.0.extend((value.len() as u64).to_le_bytes());
        self.0.extend(value);
        self
    }

    /// The message.
    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a message; `None` when it is shorter than what is asked for.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next number.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }

    /// The next bytes.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}
