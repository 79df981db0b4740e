//! How rank processes find each other.
//!
//! Rank 0 listens at the address everyone knows. The others join there and say where they listen
//! themselves. When all have joined, rank 0 sends every one the list of addresses and a random token;
//! each rank then connects to the ranks below it and accepts those above it, which prove by the token
//! that they belong here. After that no rank is special and nobody listens any more.
//!
//! Whatever else connects, and says something else or nothing, is dropped without a trace.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use super::{
    Control,
    lobby::{Event, Guest, Lobby},
    mesh::{self, Link},
    refusal::Refusal,
    wire::{Broken, Reader, VERSION, frame, wait},
};
use crate::startup::StartError;

/// The first message on a connection, by the side that connects.
#[derive(Serialize, Deserialize)]
enum Hello {
    /// To rank 0: take me in.
    Join {
        job: String,
        rank: u32,
        world_size: u32,
        listen: SocketAddr,
    },
    /// To another rank: this is our connection.
    Greet { token: Token, rank: u32 },
}

/// What rank 0 answers to `Join`.
#[derive(Serialize, Deserialize)]
enum Reply {
    /// Not all are here yet.
    Waiting { missing: Vec<u32> },
    /// All are here; the addresses are by rank, with rank 0's own first.
    Start {
        token: Token,
        addresses: Vec<SocketAddr>,
    },
    /// The job cannot start.
    Refuse(Refusal),
}

/// What a rank knows about the job it wants to be part of.
pub(crate) struct Meeting<'a> {
    pub(crate) job: &'a str,
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// The socket at that address, if rank 0 has inherited it.
    pub(crate) listener: Option<TcpListener>,
    pub(crate) timeout: Duration,
}

/// Drawn by rank 0 for one job; whoever shows it belongs to the job.
type Token = [u8; 16];

/// How long a rank waits beyond the time limit for rank 0 to say who is missing.
const VERDICT: Duration = Duration::from_secs(2);
/// How often rank 0 tells the ranks that have joined who is missing.
const REPORT: Duration = Duration::from_millis(200);
/// How long to wait before connecting again.
const RETRY: Duration = Duration::from_millis(30);
/// The longest single attempt to connect.
const ATTEMPT: Duration = Duration::from_secs(2);

impl Meeting<'_> {
    /// Meets the other ranks.
    pub(crate) fn attend(mut self) -> Result<Arc<dyn Control>, StartError> {
        let deadline = Instant::now() + self.timeout;
        let (links, token) = match self.rank {
            0 => {
                let listener = match self.listener.take() {
                    Some(listener) => listener,
                    None => self.listen()?,
                };
                self.receive(listener, deadline)?
            }
            _ => self.join(deadline)?,
        };
        Ok(mesh::control(self.rank, self.world_size, &token, links)?)
    }

    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    fn resolve(&self) -> Result<Vec<SocketAddr>, StartError> {
        match (self.host, self.port).to_socket_addrs() {
            Ok(addresses) => Ok(addresses.collect()),
            Err(source) => Err(StartError::Resolve {
                host: self.host.to_string(),
                source,
            }),
        }
    }

    fn missing(&self, missing: Vec<u32>) -> Refusal {
        Refusal::Missing {
            missing,
            world_size: self.world_size,
            seconds: self.timeout.as_secs_f64(),
        }
    }

    /// The ranks above 0 that `here` does not accept.
    fn absent(&self, here: impl Fn(u32) -> bool) -> Vec<u32> {
        (1..self.world_size).filter(|&rank| !here(rank)).collect()
    }

    // Rank 0.

    fn listen(&self) -> Result<TcpListener, StartError> {
        match TcpListener::bind(&*places(self.host, self.resolve()?)) {
            Ok(listener) => Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(self.occupied()),
            Err(source) => Err(StartError::Listen {
                address: self.address(),
                source,
            }),
        }
    }

    /// Rank 0 found its port in use: by another rank 0 of this job, which then learns about it too,
    /// or by something else.
    fn occupied(&self) -> StartError {
        let deadline = Instant::now() + (ATTEMPT / 2).min(self.timeout);
        match self.ask(deadline) {
            Ok(Answer::Refused(refusal)) => refusal.into(),
            _ => StartError::PortInUse {
                address: self.address(),
            },
        }
    }

    /// Takes in all other ranks and starts them.
    fn receive(
        &self,
        listener: TcpListener,
        deadline: Instant,
    ) -> Result<(Vec<Link>, Token), StartError> {
        let own_address = listener.local_addr()?;
        let mut lobby = Lobby::new(listener)?;
        let mut joined: Vec<Joined> = Vec::new();
        match self.collect(&mut lobby, &mut joined, deadline) {
            Ok(()) => {}
            Err(error) => {
                if let StartError::Refused(refusal) = &error {
                    joined
                        .iter_mut()
                        .for_each(|guest| guest.link.refuse(refusal));
                }
                return Err(error);
            }
        }
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(io::Error::other)?;
        let mut addresses = vec![own_address; self.world_size as usize];
        for guest in &joined {
            addresses[guest.link.rank as usize] = guest.listen;
        }
        let start = frame(&Reply::Start { token, addresses });
        let start_link = |guest: Joined| {
            let mut link = guest.link;
            link.writer.send(&start);
            link
        };
        Ok((joined.into_iter().map(start_link).collect(), token))
    }

    fn collect(
        &self,
        lobby: &mut Lobby,
        joined: &mut Vec<Joined>,
        deadline: Instant,
    ) -> Result<(), StartError> {
        let mut report_at = Instant::now();
        let mut reported = 0;
        loop {
            let missing = self.absent(|rank| joined.iter().any(|guest| guest.link.rank == rank));
            if missing.is_empty() {
                return Ok(());
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(self.missing(missing).into());
            }
            if now >= report_at && reported != joined.len() {
                reported = joined.len();
                report_at = now + REPORT;
                let report = frame(&Reply::Waiting {
                    missing: missing.clone(),
                });
                for guest in joined.iter_mut() {
                    guest.link.writer.send(&report);
                }
            }
            let until = if reported == joined.len() {
                deadline
            } else {
                deadline.min(report_at)
            };
            let watched: Vec<&Reader> = joined.iter().map(|guest| &guest.link.reader).collect();
            match lobby.next(&watched, until)? {
                Event::Time => {}
                Event::Watched(index) => {
                    // A rank that has joined says nothing more before the start.
                    let guest = &mut joined[index];
                    if guest.link.reader.fill().is_err() {
                        let rank = guest.link.rank;
                        joined.remove(index);
                        return Err(Refusal::Gone { rank, missing }.into());
                    }
                }
                Event::OtherVersion { address, version } => {
                    return Err(StartError::Version {
                        address: address.to_string(),
                        expected: VERSION,
                        got: version,
                    });
                }
                Event::Hello(guest, hello) => {
                    if let Hello::Join {
                        job,
                        rank,
                        world_size,
                        listen,
                    } = hello
                    {
                        self.admit(joined, guest, (job, rank, world_size, listen))?;
                    }
                }
            }
        }
    }

    /// Takes in one guest that asks for it, unless it belongs elsewhere.
    fn admit(
        &self,
        joined: &mut Vec<Joined>,
        guest: Guest,
        (job, rank, world_size, listen): (String, u32, u32, SocketAddr),
    ) -> Result<(), StartError> {
        let address = guest.address.ip();
        let mut link = guest.into_link(rank);
        if job != self.job {
            link.refuse(&Refusal::OtherJob {
                theirs: self.job.to_string(),
                ours: job,
            });
            return Ok(());
        }
        let first = match joined.iter().find(|guest| guest.link.rank == rank) {
            Some(guest) => Some(guest.address),
            None if rank == 0 => Some(address),
            None => None,
        };
        let refusal = if world_size != self.world_size || rank >= world_size {
            Refusal::WorldSize {
                rank,
                got: world_size,
                expected: self.world_size,
            }
        } else if let Some(first) = first {
            Refusal::DuplicateRank {
                rank,
                first,
                second: address,
                last: world_size - 1,
            }
        } else {
            joined.push(Joined {
                link,
                address,
                listen,
            });
            return Ok(());
        };
        link.refuse(&refusal);
        Err(refusal.into())
    }

    // The other ranks.

    /// Joins at rank 0 and connects to the rest.
    fn join(&self, deadline: Instant) -> Result<(Vec<Link>, Token), StartError> {
        let (link, listener, token, addresses) = match self.ask(deadline)? {
            Answer::Refused(refusal) => return Err(refusal.into()),
            Answer::Started {
                link,
                listener,
                token,
                addresses,
            } => (link, listener, token, addresses),
        };
        let deadline = deadline + VERDICT;
        let mut links = vec![link];
        for below in 1..self.rank {
            let address = addresses[below as usize];
            let left = deadline.saturating_duration_since(Instant::now());
            let connected = TcpStream::connect_timeout(&address, left.max(RETRY));
            let stream = connected.map_err(|source| StartError::Connect {
                rank: below,
                address: address.to_string(),
                source,
            })?;
            let mut link = Link::new(below, stream)?;
            link.writer.send(&frame(&Hello::Greet {
                token,
                rank: self.rank,
            }));
            links.push(link);
        }
        let mut lobby = Lobby::new(listener)?;
        loop {
            let missing =
                self.absent(|rank| rank <= self.rank || links.iter().any(|link| link.rank == rank));
            if missing.is_empty() {
                return Ok((links, token));
            }
            if Instant::now() >= deadline {
                return Err(self.missing(missing).into());
            }
            if let Event::Hello(guest, Hello::Greet { token: shown, rank }) =
                lobby.next(&[], deadline)?
                && shown == token
                && missing.contains(&rank)
            {
                links.push(guest.into_link(rank));
            }
        }
    }

    /// Asks rank 0 to be taken in and waits for its decision.
    fn ask(&self, deadline: Instant) -> Result<Answer, StartError> {
        let mut last = "nothing answered".to_string();
        while Instant::now() < deadline {
            match self.reach(deadline) {
                Ok(stream) => match self.ask_on(stream, deadline)? {
                    Ok(answer) => return Ok(answer),
                    Err(reason) => last = reason,
                },
                Err(StartError::Resolve { host, source }) => {
                    return Err(StartError::Resolve { host, source });
                }
                Err(error) => last = error.to_string(),
            }
            std::thread::sleep(RETRY.min(deadline.saturating_duration_since(Instant::now())));
        }
        Err(StartError::Unreachable {
            address: self.address(),
            seconds: self.timeout.as_secs_f64(),
            last,
        })
    }

    fn reach(&self, deadline: Instant) -> Result<TcpStream, StartError> {
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in self.resolve()? {
            let left = deadline.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(&address, left.clamp(RETRY, ATTEMPT)) {
                // On one host, connecting to a free port can connect a socket to itself.
                Ok(stream) if stream.local_addr()? != stream.peer_addr()? => return Ok(stream),
                Ok(_) => failure = io::Error::from(io::ErrorKind::ConnectionRefused),
                Err(error) => failure = error,
            }
        }
        Err(failure.into())
    }

    /// The inner error says why what answered is not rank 0; it may come later.
    fn ask_on(
        &self,
        stream: TcpStream,
        deadline: Instant,
    ) -> Result<Result<Answer, String>, StartError> {
        let listener = TcpListener::bind((stream.local_addr()?.ip(), 0))?;
        let mut link = Link::new(0, stream)?;
        link.writer.send(&frame(&Hello::Join {
            job: self.job.to_string(),
            rank: self.rank,
            world_size: self.world_size,
            listen: listener.local_addr()?,
        }));
        let mut absent = None;
        loop {
            let ended = link.reader.fill().err();
            loop {
                match link.reader.take::<Reply>() {
                    Ok(None) => break,
                    Ok(Some(Reply::Waiting { missing })) => absent = Some(missing),
                    Ok(Some(Reply::Refuse(refusal))) => return Ok(Ok(Answer::Refused(refusal))),
                    Ok(Some(Reply::Start { token, addresses })) => {
                        return Ok(Ok(Answer::Started {
                            link,
                            listener,
                            token,
                            addresses,
                        }));
                    }
                    Err(Broken::Version(version)) => {
                        return Err(StartError::Version {
                            address: self.address(),
                            expected: VERSION,
                            got: version,
                        });
                    }
                    Err(_) => return Ok(Err("what answered there is not rank 0 of hcom".into())),
                }
            }
            match (ended, &absent) {
                (None, _) => {}
                (Some(_), Some(missing)) => {
                    let missing = missing.clone();
                    return Err(Refusal::Gone { rank: 0, missing }.into());
                }
                (Some(error), None) => {
                    return Ok(Err(format!("what answered there hung up: {error}")));
                }
            }
            // Rank 0, which knows best who is missing, may have started a little later.
            let limit = if absent.is_some() {
                deadline + VERDICT
            } else {
                deadline
            };
            if Instant::now() >= limit {
                return match absent {
                    Some(missing) => Err(self.missing(missing).into()),
                    None => Ok(Err("what answered there says nothing".into())),
                };
            }
            wait(&mut [PollFd::new(&link.reader, PollFlags::IN)], Some(limit))?;
        }
    }
}

/// Where rank 0 listens when `host` has these addresses. Many systems give their own host name a
/// loopback address, which other hosts do not reach; then it listens on all interfaces.
fn places(host: &str, addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let meant = host == "localhost" || host.parse::<IpAddr>().is_ok();
    match addresses.first() {
        Some(first) if !meant && addresses.iter().all(|address| address.ip().is_loopback()) => {
            vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, first.port()))]
        }
        _ => addresses,
    }
}

enum Answer {
    Refused(Refusal),
    Started {
        link: Link,
        listener: TcpListener,
        token: Token,
        addresses: Vec<SocketAddr>,
    },
}

/// A rank that rank 0 has taken in.
struct Joined {
    link: Link,
    address: IpAddr,
    listen: SocketAddr,
}

impl Link {
    fn refuse(&mut self, refusal: &Refusal) {
        self.writer.send(&frame(&Reply::Refuse(refusal.clone())));
        self.writer.finish();
        // Closing a socket with unread data would discard what was sent on it.
        let _ = self.reader.fill();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{super::wire::PREAMBLE, *};

    #[test]
    fn a_host_name_with_a_loopback_address_is_reachable_from_elsewhere() {
        let listens = |host: &str, addresses: &[&str]| -> Vec<String> {
            let addresses = addresses.iter().map(|text| text.parse().unwrap());
            let places = places(host, addresses.collect());
            places.iter().map(SocketAddr::to_string).collect()
        };
        assert_eq!(listens("node0", &["127.0.1.1:7"]), ["0.0.0.0:7"]);
        assert_eq!(listens("node0", &["10.0.0.1:7"]), ["10.0.0.1:7"]);
        assert_eq!(
            listens("localhost", &["[::1]:7", "127.0.0.1:7"]),
            ["[::1]:7", "127.0.0.1:7"]
        );
        assert_eq!(listens("127.0.0.1", &["127.0.0.1:7"]), ["127.0.0.1:7"]);
    }

    #[test]
    fn a_rank_that_ends_while_others_are_missing_is_named() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut one = TcpStream::connect(address).unwrap();
        one.write_all(&PREAMBLE).unwrap();
        let join = Hello::Join {
            job: String::new(),
            rank: 1,
            world_size: 3,
            listen: address,
        };
        one.write_all(&frame(&join)).unwrap();
        drop(one);
        let zero = Meeting {
            job: "",
            rank: 0,
            world_size: 3,
            host: "127.0.0.1",
            port: address.port(),
            listener: Some(listener),
            timeout: Duration::from_secs(20),
        };
        assert_eq!(
            zero.attend().err().unwrap().to_string(),
            "rank 1 ended while waiting for rank 2: look at its output"
        );
    }
}
