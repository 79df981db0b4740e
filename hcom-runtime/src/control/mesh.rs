//! The control plane of ranks that are processes: a socket to every other rank.
//!
//! One thread per rank reads all sockets and writes what they would not take at once. The end of a
//! connection is the death of the rank behind it, unless it has said goodbye. A goodbye is answered by
//! ending the connection, so that the leaving rank knows when its last words have been read.

use std::{
    io,
    net::TcpStream,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use super::{
    Control,
    board::{Boards, Endpoint, Message, Transport},
    wire::{Broken, MESH_FRAME, Reader, START_FRAME, Writer, frame, wait},
};

/// One established connection to another rank.
pub(super) struct Link {
    pub(super) rank: u32,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

impl Link {
    /// A fresh connection, to be set up in the limits of the start-up.
    pub(super) fn new(rank: u32, stream: TcpStream) -> io::Result<Link> {
        prepare(&stream)?;
        let stream = Arc::new(stream);
        Ok(Link {
            rank,
            reader: Reader::new(stream.clone(), START_FRAME),
            writer: Writer::new(stream),
        })
    }
}

/// How long a rank that ends waits for the others to read what it has sent. Only a rank that is
/// stopped needs longer; it then misses the goodbye.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The control plane of `rank` over `links`, one to every other rank, in the job that `token` was
/// drawn for.
pub(super) fn control(
    rank: u32,
    world_size: u32,
    token: &[u8; 16],
    links: Vec<Link>,
) -> io::Result<Arc<dyn Control>> {
    // The token lets ranks in; its hash only names the job.
    let job = &blake3::hash(token).to_hex()[..12];
    let boards = Boards::new(rank, world_size, job);
    let mut writers: Vec<Option<Mutex<Writer>>> = (0..world_size).map(|_| None).collect();
    let mut readers = Vec::new();
    for mut link in links {
        link.reader.allow(MESH_FRAME);
        writers[link.rank as usize] = Some(Mutex::new(link.writer));
        readers.push((link.rank, link.reader));
    }
    let outgoing = Arc::new(Outgoing {
        writers,
        wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        closing: AtomicBool::new(false),
    });
    let worker = Worker {
        boards: boards.clone(),
        outgoing: outgoing.clone(),
        readers,
    };
    let thread = std::thread::Builder::new()
        .name("hcom control".into())
        .spawn(move || worker.run())?;
    let transport = Mesh {
        outgoing,
        thread: Some(thread),
    };
    Ok(Arc::new(Endpoint::new(boards, transport)))
}

/// What callers and the worker share.
struct Outgoing {
    /// By global rank; none for the own one.
    writers: Vec<Option<Mutex<Writer>>>,
    /// Interrupts the worker's wait.
    wake: OwnedFd,
    closing: AtomicBool,
}

impl Outgoing {
    fn writer(&self, rank: u32) -> Option<MutexGuard<'_, Writer>> {
        let writer = self.writers[rank as usize].as_ref()?;
        Some(writer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wake(&self) {
        // It fails only when the counter is full, and then the worker is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

struct Mesh {
    outgoing: Arc<Outgoing>,
    thread: Option<JoinHandle<()>>,
}

impl Transport for Mesh {
    fn send(&self, to: &[u32], era: u32, message: &Message) {
        let frame = frame(&(era, message));
        let mut left = false;
        for &rank in to {
            if let Some(mut writer) = self.outgoing.writer(rank) {
                left |= match message {
                    Message::State(_) => writer.send_latest(frame.clone()),
                    _ => writer.send(&frame),
                };
            }
        }
        if left {
            self.outgoing.wake();
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.outgoing.closing.store(true, Ordering::Release);
        self.outgoing.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the worker has been printed; there is nothing to add to it here.
            let _ = thread.join();
        }
    }
}

/// The thread of a rank's control plane.
struct Worker {
    boards: Arc<Boards>,
    outgoing: Arc<Outgoing>,
    /// The connections that have not ended.
    readers: Vec<(u32, Reader)>,
}

impl Worker {
    fn run(mut self) {
        let mut stop_at = None;
        // Messages may have arrived together with the last one of the start-up.
        let mut ready: Vec<usize> = (0..self.readers.len()).collect();
        loop {
            self.receive(&ready);
            if stop_at.is_none() && self.outgoing.closing.load(Ordering::Acquire) {
                stop_at = Some(Instant::now() + LAST_WORDS);
            }
            // The goodbye has been sent; whoever has read it ends its connection.
            if stop_at.is_some_and(|at| self.readers.is_empty() || Instant::now() >= at) {
                return;
            }
            let waiting = self.flush();
            ready = match self.wait(&waiting, stop_at) {
                Ok(ready) => ready,
                Err(error) => {
                    // Without poll nothing can be received any more.
                    for (rank, _) in self.readers.drain(..) {
                        self.boards
                            .lost(rank, &format!("its connection cannot be watched: {error}"));
                    }
                    return;
                }
            };
        }
    }

    /// Takes in what has arrived on the connections at these indices.
    fn receive(&mut self, ready: &[usize]) {
        // From the back, since a connection that has ended is removed.
        for &index in ready.iter().rev() {
            let (rank, reader) = &mut self.readers[index];
            let rank = *rank;
            let ended = reader.fill().err();
            let broken = loop {
                match reader.take::<(u32, Message)>() {
                    Ok(Some((era, message))) => {
                        if let Message::Goodbye { .. } = message
                            && let Some(mut writer) = self.outgoing.writer(rank)
                        {
                            writer.finish();
                        }
                        if message == Message::Ping
                            && let Some(mut writer) = self.outgoing.writer(rank)
                        {
                            writer.send(&frame(&(era, Message::Pong)));
                        }
                        self.boards.deliver(rank, era, message);
                    }
                    Ok(None) => break ended.map(Broken::Ended),
                    Err(broken) => break Some(broken),
                }
            };
            if let Some(broken) = broken {
                self.readers.remove(index);
                self.boards.lost(rank, &reason(&broken));
            }
        }
    }

    /// Writes what is queued; which connections (by index) have something left.
    fn flush(&self) -> Vec<bool> {
        self.readers
            .iter()
            .map(|(rank, _)| self.outgoing.writer(*rank).is_some_and(|mut w| w.flush()))
            .collect()
    }

    /// Waits for an event; the indices of the connections to read from.
    fn wait(&self, waiting: &[bool], stop_at: Option<Instant>) -> io::Result<Vec<usize>> {
        let mut events = vec![PollFd::new(&self.outgoing.wake, PollFlags::IN)];
        events.extend(
            self.readers
                .iter()
                .zip(waiting)
                .map(|((_, reader), &waiting)| {
                    let flags = if waiting {
                        PollFlags::IN | PollFlags::OUT
                    } else {
                        PollFlags::IN
                    };
                    PollFd::new(reader, flags)
                }),
        );
        wait(&mut events, stop_at)?;
        let (wake, connections) = events.split_first().expect("the first one is the wake-up");
        if wake.revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.outgoing.wake, &mut [0_u8; 8]);
        }
        let readable = |event: &PollFd<'_>| !(event.revents() - PollFlags::OUT).is_empty();
        Ok((0..connections.len())
            .filter(|&index| readable(&connections[index]))
            .collect())
    }
}

fn reason(broken: &Broken) -> String {
    match broken {
        Broken::Ended(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "its connection was closed".into()
        }
        Broken::Ended(error) => format!("its connection broke: {error}"),
        Broken::Stranger | Broken::Version(_) => "it sent something unreadable".into(),
    }
}

/// Prepares a connection between two ranks: no blocking, no delay, and a host that vanished without
/// closing it is noticed within a minute.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(15))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    Ok(())
}
