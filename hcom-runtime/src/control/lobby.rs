//! A listening socket on which strangers may knock.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    time::Instant,
};

use rustix::event::{PollFd, PollFlags};
use serde::de::DeserializeOwned;

use super::{
    mesh::Link,
    wire::{Broken, Reader, wait},
};

/// A listening socket and the connections that have not said yet what they want.
pub(super) struct Lobby {
    listener: TcpListener,
    guests: Vec<Guest>,
}

/// A connection that somebody has made.
pub(super) struct Guest {
    link: Link,
    pub(super) address: SocketAddr,
}

impl Guest {
    /// The connection, now that it is known to be that of `rank`.
    pub(super) fn into_link(self, rank: u32) -> Link {
        Link { rank, ..self.link }
    }
}

/// What happened in the lobby.
pub(super) enum Event<M> {
    /// A connection has said what it wants.
    Hello(Guest, M),
    /// A connection speaks another version of the protocol.
    OtherVersion { address: SocketAddr, version: u32 },
    /// There is something to read on this one of the watched connections.
    Watched(usize),
    /// The time is over, or something happened that is of no interest.
    Time,
}

/// With more silent connections than this the oldest are dropped.
const SILENT: usize = 1024;

impl Lobby {
    pub(super) fn new(listener: TcpListener) -> io::Result<Lobby> {
        listener.set_nonblocking(true)?;
        Ok(Lobby {
            listener,
            guests: Vec::new(),
        })
    }

    /// Waits until something happens, or until `until`.
    pub(super) fn next<M: DeserializeOwned>(
        &mut self,
        watched: &[&Reader],
        until: Instant,
    ) -> io::Result<Event<M>> {
        let mut events = vec![PollFd::new(&self.listener, PollFlags::IN)];
        events.extend(
            watched
                .iter()
                .map(|&reader| PollFd::new(reader, PollFlags::IN)),
        );
        let readers = self.guests.iter().map(|guest| &guest.link.reader);
        events.extend(readers.map(|reader| PollFd::new(reader, PollFlags::IN)));
        wait(&mut events, Some(until))?;
        let ready: Vec<bool> = events
            .iter()
            .map(|event| !event.revents().is_empty())
            .collect();
        drop(events);
        if let Some(index) = (0..watched.len()).find(|index| ready[1 + index]) {
            return Ok(Event::Watched(index));
        }
        let first_guest = 1 + watched.len();
        for index in (0..ready.len() - first_guest).rev() {
            if !ready[first_guest + index] {
                continue;
            }
            let guest = &mut self.guests[index];
            let ended = guest.link.reader.fill().is_err();
            match guest.link.reader.take::<M>() {
                Ok(Some(hello)) => return Ok(Event::Hello(self.guests.remove(index), hello)),
                Ok(None) if !ended => {}
                Err(Broken::Version(version)) => {
                    let address = self.guests.remove(index).address;
                    return Ok(Event::OtherVersion { address, version });
                }
                Ok(None) | Err(_) => drop(self.guests.remove(index)),
            }
        }
        if ready[0] {
            self.accept()?;
        }
        Ok(Event::Time)
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => {
                    // A connection that ended at once is of no interest.
                    if let Ok(link) = Link::new(u32::MAX, stream) {
                        self.guests.push(Guest { link, address });
                    }
                    if self.guests.len() > SILENT {
                        self.guests.remove(0);
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
    }
}
