//! Ranks that are threads of the test process.

use std::{
    any::Any,
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use crate::{Job, Kind, Rank, Shared};

/// How long the other ranks may still run once one has panicked.
const GRACE: Duration = Duration::from_secs(5);

/// Runs `f` on a thread per rank; an error is a report for the user.
pub(crate) fn run(
    number: u32,
    job: &Job,
    test: &str,
    f: Arc<impl Fn(Rank) + Send + Sync + 'static>,
) -> Result<(), String> {
    let shared = Shared::default();
    let (sender, ends) = mpsc::channel();
    for rank in 0..job.ranks {
        let (f, sender) = (f.clone(), sender.clone());
        let rank_of_job = Rank::new(number, rank, job.ranks, Kind::Threads, shared.clone());
        std::thread::Builder::new()
            .name(format!("{test}, rank {rank}"))
            .spawn(move || {
                let end = catch_unwind(AssertUnwindSafe(|| f(rank_of_job)));
                drop(f);
                // The receiver is gone once the test has failed.
                let _ = sender.send((rank, end.map_err(message)));
            })
            .map_err(|error| format!("cannot start a thread for rank {rank}: {error}"))?;
    }
    let mut running: Vec<u32> = (0..job.ranks).collect();
    let mut panics = Vec::new();
    let mut deadline = Instant::now() + job.timeout;
    while !running.is_empty() {
        let Ok((rank, end)) = ends.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        else {
            break;
        };
        running.retain(|&other| other != rank);
        if let Err(panic) = end {
            panics.push((rank, panic));
            deadline = deadline.min(Instant::now() + GRACE);
        }
    }
    let mut report = String::new();
    for (rank, panic) in &panics {
        let _ = writeln!(report, "rank {rank} panicked: {panic}");
    }
    if !running.is_empty() {
        let _ = writeln!(report, "ranks {running:?} of {} did not end", job.ranks);
    }
    if report.is_empty() {
        Ok(())
    } else {
        Err(report)
    }
}

fn message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&'static str>() {
            Ok(text) => (*text).to_string(),
            Err(_) => "(no message)".to_string(),
        },
    }
}
