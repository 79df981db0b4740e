//! How another process asks a running job where it stands.
//!
//! Each rank listens on an abstract Unix socket, whose name says user, job, rank and process. Such a
//! socket is no file: nothing is left behind however the rank ends, and whoever looks for jobs finds
//! them in `/proc/net/unix`. It serves processes of the same network namespace, and answers those
//! of the same user and of root only. The thread that answers takes no lock for long and calls no
//! device: it tells what the watchdog saw last, at most a quarter of a second ago. So a rank answers
//! while its collectives hang; one that is stopped does not. A job of one rank waits for nobody and
//! is not asked.
//!
//! The asker sends one [`Request`] as a line of JSON and gets one [`Answer`] as JSON.

use std::{
    collections::BTreeMap,
    fs, io,
    io::{BufRead, BufReader, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    recorder::{Record, file_name},
    watchdog::Watchdog,
};

/// How long either side waits for the other's next bytes.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest request in bytes.
const LONGEST_REQUEST: u64 = 16 << 10;

/// What is asked of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// Say where you stand.
    Status,
    /// Write your record into this folder, an absolute path.
    Dump(PathBuf),
}

/// What a rank answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// How long the rank waits in a collective, in seconds.
    pub timeout_s: f64,
    /// Its record as of now.
    pub record: Record,
    /// The file that was asked for, or why it could not be written.
    pub dumped: Option<Result<PathBuf, String>>,
}

/// A rank that listens on this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Listener {
    /// Name of the job.
    pub job: String,
    /// Global rank.
    pub rank: u32,
    /// Process.
    pub pid: u32,
}

impl Listener {
    fn prefix() -> String {
        format!("hcom/{}/", rustix::process::geteuid().as_raw())
    }

    fn name(&self) -> String {
        let Listener { job, rank, pid } = self;
        format!("{}{job}/{rank}/{pid}", Listener::prefix())
    }

    fn parse(name: &str) -> Option<Listener> {
        let mut parts = name.strip_prefix(&Listener::prefix())?.split('/');
        let listener = Listener {
            job: parts.next()?.to_owned(),
            rank: parts.next()?.parse().ok()?,
            pid: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(listener)
    }

    fn address(&self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(self.name())
    }

    /// Asks the rank.
    ///
    /// # Errors
    /// It has ended, or does not answer within a second because it is stopped.
    pub fn ask(&self, request: &Request) -> io::Result<Answer> {
        let mut stream = UnixStream::connect_addr(&self.address()?)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        serde_json::to_writer(&stream, request)?;
        stream.write_all(b"\n")?;
        Ok(serde_json::from_reader(BufReader::new(stream))?)
    }
}

/// The ranks of this user that listen on this host, by job: each job's in the order of rank.
///
/// # Errors
/// The system does not list its sockets.
pub fn listeners() -> io::Result<BTreeMap<String, Vec<Listener>>> {
    let mut jobs: BTreeMap<String, Vec<Listener>> = BTreeMap::new();
    for line in fs::read_to_string("/proc/net/unix")?.lines() {
        let name = line
            .rsplit(' ')
            .next()
            .and_then(|name| name.strip_prefix('@'));
        if let Some(listener) = name.and_then(Listener::parse) {
            jobs.entry(listener.job.clone()).or_default().push(listener);
        }
    }
    for ranks in jobs.values_mut() {
        ranks.sort();
        // An accepted connection is listed under the name of its listener.
        ranks.dedup();
    }
    Ok(jobs)
}

/// Answers for one rank until it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to answer for the rank that `watchdog` watches.
    pub(crate) fn start(watchdog: &Arc<Watchdog>) -> io::Result<Server> {
        let control = watchdog.control();
        let address = Listener {
            job: control.job().to_owned(),
            rank: control.rank(),
            pid: std::process::id(),
        }
        .address()?;
        let socket = UnixListener::bind_addr(&address)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let (watchdog, stop) = (watchdog.clone(), stopped.clone());
        let thread = std::thread::Builder::new()
            .name(format!("hcom-status-{}", control.rank()))
            .spawn(move || {
                while let Ok((stream, _)) = socket.accept() {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    // An asker that is gone or sends nonsense gets no answer.
                    let _ = answer(&watchdog, stream);
                }
            })?;
        Ok(Server {
            address,
            stopped,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // The connection wakes the thread; without it, the thread is left to the end of the process.
        if UnixStream::connect_addr(&self.address).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn answer(watchdog: &Watchdog, stream: UnixStream) -> io::Result<()> {
    let asker = rustix::net::sockopt::socket_peercred(&stream)?;
    if !asker.uid.is_root() && asker.uid != rustix::process::geteuid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LONGEST_REQUEST)).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let record = watchdog.snapshot(watchdog.control().failure().as_ref());
    let dumped = match request {
        Request::Status => None,
        Request::Dump(folder) => Some(
            record
                .write(&folder)
                .map(|()| folder.join(file_name(record.rank)))
                .map_err(|error| error.to_string()),
        ),
    };
    let answer = Answer {
        timeout_s: watchdog.settings().timeout.as_secs_f64(),
        record,
        dumped,
    };
    let mut stream = io::BufWriter::new(stream);
    serde_json::to_writer(&mut stream, &answer)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_who_listens_and_no_other_name_does() {
        let listener = Listener {
            job: "p12-0".to_owned(),
            rank: 3,
            pid: 77,
        };
        assert_eq!(Listener::parse(&listener.name()), Some(listener.clone()));
        assert_eq!(Listener::parse(&(listener.name() + "/x")), None);
        assert_eq!(Listener::parse("hcom/x/p12-0/3/77"), None);
    }
}
