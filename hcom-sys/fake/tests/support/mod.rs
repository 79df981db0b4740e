//! Ranks for the tests of this crate: threads, or processes made by starting the test binary again for one test.
//!
//! Unlike the ranks of other crates' tests these have no control plane: the root's ticket travels through pipes, and a
//! rank may be expected to die.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod api;
pub(crate) mod communicator;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use std::{env, thread};

use api::{Comm, Stream};

const RANK: &str = "HCOM_FAKE_TEST_RANK";
const LIMIT: Duration = Duration::from_secs(60);

/// What ranks are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Threads,
    Processes,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Threads, Kind::Processes];

/// One rank, with its device set.
#[derive(Clone)]
pub(crate) struct Rank {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    tickets: Tickets,
}

#[derive(Clone)]
enum Tickets {
    Shared(Arc<(Mutex<Vec<Vec<u8>>>, Condvar)>),
    Piped,
}

impl Rank {
    /// Joins a new communicator of all ranks.
    pub(crate) fn join(&self) -> Comm {
        self.try_join()
            .unwrap_or_else(|(code, text)| panic!("init failed with {code}: {text}"))
    }

    pub(crate) fn try_join(&self) -> Result<Comm, (u32, String)> {
        let ticket = self.ticket();
        api::init(self.size, &ticket, self.rank)
    }

    /// This process as a rank of [`Processes`].
    pub(crate) fn of_process(size: u32) -> Self {
        Self {
            rank: env::var(RANK).unwrap().parse().unwrap(),
            size,
            tickets: Tickets::Piped,
        }
    }

    /// A new ticket from rank 0.
    pub(crate) fn ticket(&self) -> Vec<u8> {
        match &self.tickets {
            Tickets::Shared(shared) => {
                let (all, news) = &**shared;
                let mut all = all.lock().unwrap();
                if self.rank == 0 {
                    let ticket = api::root_info();
                    // One copy for each of the other ranks.
                    all.extend((1..self.size).map(|_| ticket.clone()));
                    news.notify_all();
                    return ticket;
                }
                loop {
                    if let Some(ticket) = all.pop() {
                        return ticket;
                    }
                    all = news.wait(all).unwrap();
                }
            }
            Tickets::Piped if self.rank == 0 => {
                let ticket = api::root_info();
                let text: String = ticket.iter().map(|byte| format!("{byte:02x}")).collect();
                // The harness of the test prints on the same stream, perhaps in the middle of a line.
                println!("\nTICKET {text}");
                ticket
            }
            Tickets::Piped => {
                let mut line = String::new();
                std::io::stdin().lock().read_line(&mut line).unwrap();
                let digits = line.trim().as_bytes();
                assert!(
                    !digits.is_empty(),
                    "rank 0 ended before it gave out a ticket"
                );
                digits
                    .chunks(2)
                    .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                    .collect()
            }
        }
    }

    /// Ends this process as if by the out-of-memory killer.
    pub(crate) fn die(&self) -> ! {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        unreachable!("killed")
    }
}

/// Runs `body` on `size` ranks of a kind; all must succeed.
pub(crate) fn ranks(kind: Kind, size: u32, test: &str, body: impl Fn(Rank) + Send + Sync) {
    match kind {
        Kind::Threads if env::var_os(RANK).is_some() => {}
        Kind::Threads => threads(size, body),
        Kind::Processes => {
            for (rank, status) in processes(size, test, &[], body).into_iter().enumerate() {
                assert!(status.success(), "rank {rank} ended with {status}");
            }
        }
    }
}

/// Runs `body` on `size` threads; a hang ends this process.
pub(crate) fn threads(size: u32, body: impl Fn(Rank) + Send + Sync) {
    let tickets = Tickets::Shared(Arc::default());
    let (done, ended) = std::sync::mpsc::channel::<()>();
    // A thread cannot be killed, so a hang ends the whole test binary.
    thread::spawn(move || {
        if ended.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("rank threads hang");
            std::process::abort();
        }
    });
    thread::scope(|scope| {
        for rank in 0..size {
            let rank = Rank {
                rank,
                size,
                tickets: tickets.clone(),
            };
            let body = &body;
            scope.spawn(move || {
                api::set_device(rank.rank);
                body(rank.clone());
                api::reset_device(rank.rank);
            });
        }
    });
    drop(done);
}

/// Runs `body` in `size` processes with more environment variables; how each ended. Only returns in the parent.
pub(crate) fn processes(
    size: u32,
    test: &str,
    variables: &[(&str, &str)],
    body: impl Fn(Rank) + Send + Sync,
) -> Vec<ExitStatus> {
    if env::var_os(RANK).is_some() {
        let rank = Rank::of_process(size);
        api::set_device(rank.rank);
        body(rank);
        std::process::exit(0);
    }
    let ends = Processes::spawn(size, test, variables).wait(LIMIT);
    let ends = ends.unwrap_or_else(|hang| panic!("{hang}"));
    ends.into_iter().map(|(status, _)| status).collect()
}

/// Rank processes: this test binary, started again for one test. Rank 0's tickets reach the others.
pub(crate) struct Processes {
    children: Vec<Child>,
    /// What each printed besides tickets, by line.
    outputs: Vec<thread::JoinHandle<Vec<String>>>,
}

impl Processes {
    pub(crate) fn spawn(size: u32, test: &str, variables: &[(&str, &str)]) -> Self {
        let mut children: Vec<Child> = (0..size)
            .map(|rank| {
                Command::new(env::current_exe().unwrap())
                    .args(["--exact", test, "--nocapture", "--test-threads", "1"])
                    .env(RANK, rank.to_string())
                    .envs(variables.iter().copied())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut inputs: Vec<_> = children[1..]
            .iter_mut()
            .map(|child| child.stdin.take().unwrap())
            .collect();
        let collect = |child: &mut Child| {
            let output = child.stdout.take().unwrap();
            let mut inputs = std::mem::take(&mut inputs);
            thread::spawn(move || {
                let mut lines = Vec::new();
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    match line.strip_prefix("TICKET ") {
                        None => lines.push(line),
                        Some(ticket) => {
                            for input in &mut inputs {
                                // A rank that was killed reads no more.
                                let _ = writeln!(input, "{ticket}");
                            }
                        }
                    }
                }
                lines
            })
        };
        // Rank 0 comes first and takes the inputs of the others.
        let outputs = children.iter_mut().map(collect).collect();
        Self { children, outputs }
    }

    /// How each ended, and the lines that it printed; an error says which did not end within `limit`.
    pub(crate) fn wait(
        mut self,
        limit: Duration,
    ) -> Result<Vec<(ExitStatus, Vec<String>)>, String> {
        let deadline = Instant::now() + limit;
        let mut ended: Vec<Option<ExitStatus>> = vec![None; self.children.len()];
        while ended.iter().any(Option::is_none) {
            for (child, status) in self.children.iter_mut().zip(&mut ended) {
                if status.is_none() {
                    *status = child.try_wait().unwrap();
                }
            }
            if Instant::now() > deadline {
                for child in &mut self.children {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                return Err(format!("ranks hang: {ended:?}"));
            }
            thread::sleep(Duration::from_millis(2));
        }
        let outputs = self
            .outputs
            .into_iter()
            .map(|output| output.join().unwrap());
        Ok(ended.into_iter().flatten().zip(outputs).collect())
    }
}

/// Runs `body` on a device.
pub(crate) fn on_device(device: u32, body: impl FnOnce()) {
    api::set_device(device);
    body();
    api::reset_device(device);
}

/// Waits until all ranks have come here, on a communicator of its own.
pub(crate) fn wait_for_all(rank: &Rank) {
    let (comm, stream) = equip(rank);
    comm.barrier(&stream).unwrap();
    stream.synchronize().unwrap();
}

/// A stream and a communicator, as most tests want them.
pub(crate) fn equip(rank: &Rank) -> (Comm, Stream) {
    (rank.join(), Stream::create())
}
