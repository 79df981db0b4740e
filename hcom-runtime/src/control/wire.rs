//! Frames on a socket: what both the start-up and the mesh read and write.
//!
//! Each side of a connection first sends a preamble (a mark and the version of the protocol), then
//! frames: the length of the body as a 32-bit little-endian number, then a message in postcard form.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, Timespec, poll};
use serde::{Serialize, de::DeserializeOwned};

/// Version of everything that is said on a connection.
pub(super) const VERSION: u32 = 1;
/// What every connection starts with.
pub(super) const PREAMBLE: [u8; 8] = {
    let version = VERSION.to_le_bytes();
    [
        b'h', b'c', b'o', b'm', version[0], version[1], version[2], version[3],
    ]
};
/// The longest frame at start-up, for worlds of thousands of ranks.
pub(super) const START_FRAME: usize = 1 << 20;
/// The longest frame of a running job.
pub(super) const MESH_FRAME: usize = 1 << 30;

/// `message` as a frame.
pub(super) fn frame(message: &impl Serialize) -> Vec<u8> {
    let length = postcard::experimental::serialized_size(message)
        .expect("messages hold only sized sequences");
    let mut frame = Vec::with_capacity(4 + length);
    frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    postcard::to_extend(message, frame).expect("messages hold only sized sequences")
}

/// Why nothing more can be read from a connection.
#[derive(Debug)]
pub(super) enum Broken {
    /// The other side does not speak this protocol.
    Stranger,
    /// The other side speaks another version of it.
    Version(u32),
    /// End of file or an error of the socket.
    Ended(io::Error),
}

/// The receiving half of a connection.
pub(super) struct Reader {
    stream: Arc<TcpStream>,
    received: Vec<u8>,
    greeted: bool,
    longest: usize,
}

impl Reader {
    /// Reads from `stream`, which must be non-blocking, frames of at most `longest` bytes.
    pub(super) fn new(stream: Arc<TcpStream>, longest: usize) -> Reader {
        Reader {
            stream,
            received: Vec::new(),
            greeted: false,
            longest,
        }
    }

    /// Accepts frames of at most `longest` bytes from now on.
    pub(super) fn allow(&mut self, longest: usize) {
        self.longest = longest;
    }

    /// Takes in what has arrived. After an error, the messages that came before it can still be
    /// taken.
    pub(super) fn fill(&mut self) -> Result<(), io::Error> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match (&*self.stream).read(&mut chunk) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.received.len() > self.longest {
                return Ok(());
            }
        }
    }

    /// The next whole message that has arrived.
    pub(super) fn take<M: DeserializeOwned>(&mut self) -> Result<Option<M>, Broken> {
        if !self.greeted {
            let known = self.received.len().min(4);
            if self.received[..known] != PREAMBLE[..known] {
                return Err(Broken::Stranger);
            }
            let Some(preamble) = self.received.first_chunk::<8>() else {
                return Ok(None);
            };
            if *preamble != PREAMBLE {
                let [_, _, _, _, version @ ..] = *preamble;
                return Err(Broken::Version(u32::from_le_bytes(version)));
            }
            self.received.drain(..8);
            self.greeted = true;
        }
        let Some(length) = self.received.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.longest {
            return Err(Broken::Stranger);
        }
        let Some(body) = self.received.get(4..4 + length) else {
            return Ok(None);
        };
        let message = postcard::from_bytes(body).map_err(|_| Broken::Stranger)?;
        self.received.drain(..4 + length);
        Ok(Some(message))
    }
}

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The sending half of a connection. Never blocks: what the socket does not take at once is kept.
pub(super) struct Writer {
    stream: Arc<TcpStream>,
    queue: VecDeque<u8>,
    /// A frame that only its successor or an empty queue can push out; see [`Writer::send_latest`].
    latest: Option<Vec<u8>>,
    broken: bool,
}

impl Writer {
    /// Writes to `stream`, which must be non-blocking, beginning with the preamble.
    pub(super) fn new(stream: Arc<TcpStream>) -> Writer {
        let mut writer = Writer {
            stream,
            queue: VecDeque::new(),
            latest: None,
            broken: false,
        };
        writer.send(&PREAMBLE);
        writer
    }

    /// Sends `bytes`. `true` when some of it is left for [`Writer::flush`].
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        if !self.broken {
            self.queue.extend(bytes);
        }
        self.flush()
    }

    /// Like [`Writer::send`], but while the socket takes nothing only the last such frame is kept,
    /// so that reporting to a rank that reads nothing needs no growing memory.
    pub(super) fn send_latest(&mut self, frame: Vec<u8>) -> bool {
        self.latest = Some(frame);
        self.flush()
    }

    /// Writes what the socket takes. `true` when something is left.
    pub(super) fn flush(&mut self) -> bool {
        while !self.broken {
            if self.queue.is_empty() {
                match self.latest.take() {
                    Some(frame) => self.queue.extend(frame),
                    None => return false,
                }
            }
            match (&*self.stream).write(self.queue.as_slices().0) {
                Ok(count) => drop(self.queue.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The reader notices the end of the connection and reports it.
                Err(_) => self.broken = true,
            }
        }
        self.queue.clear();
        self.latest = None;
        false
    }

    /// Tells the other side that nothing follows. What the socket has not taken yet is dropped.
    pub(super) fn finish(&mut self) {
        self.broken = true;
        self.queue.clear();
        self.latest = None;
        // It fails when the connection has ended, which is as good.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }
}

/// Waits for one of `events`, until `deadline` at most. The clock may have reached it or not when
/// nothing is ready.
pub(super) fn wait(events: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    let limit = deadline.map(|deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        // One more, since a limit of zero would mean a busy loop until the deadline has passed.
        let left = left + Duration::from_micros(1);
        Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        }
    });
    match poll(events, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (Arc<TcpStream>, Arc<TcpStream>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (there, _) = listener.accept().unwrap();
        for stream in [&here, &there] {
            stream.set_nonblocking(true).unwrap();
        }
        (Arc::new(here), Arc::new(there))
    }

    fn receive<M: DeserializeOwned>(reader: &mut Reader) -> Result<M, Broken> {
        loop {
            let ended = reader.fill().err();
            if let Some(message) = reader.take()? {
                return Ok(message);
            }
            if let Some(error) = ended {
                return Err(Broken::Ended(error));
            }
            let mut events = [PollFd::new(&*reader, rustix::event::PollFlags::IN)];
            wait(&mut events, None).unwrap();
        }
    }

    #[test]
    fn frames_arrive_whole_and_in_order() {
        let (here, there) = pair();
        let mut writer = Writer::new(here);
        let mut reader = Reader::new(there, MESH_FRAME);
        let long: Vec<u32> = (0..1_000_000).collect();
        writer.send(&frame(&"first"));
        let mut left = writer.send(&frame(&long));
        assert_eq!(receive::<String>(&mut reader).unwrap(), "first");
        let received: Vec<u32> = loop {
            if let Some(message) = reader.take().unwrap() {
                break message;
            }
            reader.fill().unwrap();
            left = left && writer.flush();
        };
        assert_eq!(received, long);
        assert!(!left);
    }

    #[test]
    fn only_the_latest_report_waits_for_a_rank_that_reads_nothing() {
        let (here, there) = pair();
        let mut writer = Writer::new(here);
        let filling = vec![7_u8; 1 << 16];
        let mut fillings = 0;
        while !writer.send(&frame(&filling)) {
            fillings += 1;
        }
        for report in 0..1000_u32 {
            assert!(writer.send_latest(frame(&report)));
        }
        let mut reader = Reader::new(there, MESH_FRAME);
        for _ in 0..=fillings {
            while reader.take::<Vec<u8>>().unwrap().is_none() {
                reader.fill().unwrap();
                writer.flush();
            }
        }
        assert_eq!(receive::<u32>(&mut reader).unwrap(), 999);
    }

    #[test]
    fn strangers_and_other_versions_are_told_apart() {
        let outcome = |bytes: &[u8]| {
            let (here, there) = pair();
            (&*here).write_all(bytes).unwrap();
            drop(here);
            receive::<String>(&mut Reader::new(there, START_FRAME)).unwrap_err()
        };
        assert!(matches!(outcome(b"GET / HTTP/1.1\r\n"), Broken::Stranger));
        assert!(matches!(outcome(b"hcom\x02\0\0\0"), Broken::Version(2)));
        assert!(matches!(
            outcome(b"hcom\x01\0\0\0\xff\xff\xff\xff"),
            Broken::Stranger
        ));
        assert!(matches!(outcome(b"hco"), Broken::Ended(_)));
    }
}
