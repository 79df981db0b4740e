//! Random jobs against a plainly written oracle.
//!
//! A job has 2 to 4 ranks, processes or threads. They run random operations of random sizes and types on random parts
//! of each other's buffers, on communicators of all and of some, alone, queued and replayed, in place and not, and then
//! compare every byte of every buffer. A job follows from its seed alone; the seeds of a run follow each other.
//!
//! `HCOM_STRESS_SECONDS` says how long to go on (2), `HCOM_STRESS_SEED` with which seed to begin (else the clock says),
//! `HCOM_STRESS_JOBS` after how many jobs to end at the latest, `HCOM_STRESS_RANKS` the ranks of every job. Every line
//! `STRESS {…}` on the standard output is the state of the run as JSON.

#![expect(unsafe_code, reason = "calls the C interface")]

mod oracle;
mod perform;
mod program;
#[path = "../support/mod.rs"]
mod support;

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::time::{Duration, Instant, SystemTime};

use perform::{Held, Report, Trouble};
use program::Settings;
use serde_json::{Value, json};
use support::Processes;

const TEST: &str = "random_operations_match_the_oracle";
/// For a process of a job: its seed, the ranks as the user wants them, and its rank.
const PART: &str = "HCOM_STRESS_PART";
/// Which run a process belongs to.
const RUN: &str = "HCOM_STRESS_RUN";
const LIMIT: Duration = Duration::from_secs(120);
/// A run ends after so many jobs that went wrong.
const ENOUGH: usize = 3;

#[test]
fn random_operations_match_the_oracle() {
    if let Ok(part) = env::var(PART) {
        take_part(&part);
    }
    let number = |name: &str| {
        env::var(name).ok().map(|text| {
            let parsed = text.parse::<u64>();
            parsed.unwrap_or_else(|_| panic!("{name}={text}: expected a whole number"))
        })
    };
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let first = number("HCOM_STRESS_SEED").unwrap_or(clock.unwrap_or_default().as_millis() as u64);
    let ranks = number("HCOM_STRESS_RANKS").map(|ranks| ranks as u32);
    let jobs = number("HCOM_STRESS_JOBS").unwrap_or(u64::MAX);
    let seconds = number("HCOM_STRESS_SECONDS").unwrap_or(2);
    let mut run = Run::new(first, ranks);
    while run.jobs < jobs && run.troubles.len() < ENOUGH {
        run.job(first + run.jobs);
        run.print();
        if run.begun.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
    }
    run.check_growth();
    run.check_processes();
    run.print();
    assert!(run.troubles.is_empty(), "{:#?}", run.troubles);
}

/// What happened so far.
struct Run {
    begun: Instant,
    first: u64,
    ranks: Option<u32>,
    id: String,
    jobs: u64,
    operations: u64,
    compared: u64,
    wrong: u64,
    hung: u64,
    failed: u64,
    troubles: Vec<Value>,
    /// Shared memory of the host in KiB after each job.
    shared: Vec<u64>,
}

impl Run {
    fn new(first: u64, ranks: Option<u32>) -> Self {
        Self {
            begun: Instant::now(),
            first,
            ranks,
            id: format!("{}-{first}", std::process::id()),
            jobs: 0,
            operations: 0,
            compared: 0,
            wrong: 0,
            hung: 0,
            failed: 0,
            troubles: Vec::new(),
            shared: Vec::new(),
        }
    }

    fn print(&self) {
        let state = json!({
            "seconds": self.begun.elapsed().as_secs_f64(),
            "first_seed": self.first,
            "jobs": self.jobs,
            "operations": self.operations,
            "bytes_compared": self.compared,
            "wrong": self.wrong,
            "hung": self.hung,
            "failed": self.failed,
            "shared_kib": [self.shared.first(), self.shared.last()],
            "troubles": self.troubles,
        });
        println!("\nSTRESS {state}");
    }

    fn job(&mut self, seed: u64) {
        let settings = Settings::of(seed, self.ranks);
        let processes = if settings.threads { 1 } else { settings.size };
        let ranks = self
            .ranks
            .map_or_else(String::new, |ranks| ranks.to_string());
        let part = format!("{seed},{ranks}");
        let mut variables = vec![
            (PART, part.as_str()),
            (RUN, self.id.as_str()),
            ("HCCL_EXEC_TIMEOUT", "30"),
        ];
        if settings.strict {
            variables.push(("HCOM_FAKE_STRICT", "1"));
        }
        if settings.link {
            variables.push(("HCOM_FAKE_LINK", "20,20"));
        }
        let ended = Processes::spawn(processes, TEST, &variables).wait(LIMIT);
        self.jobs += 1;
        self.shared.push(shared_memory());
        let mut worst: Option<(&mut u64, String)> = None;
        match ended {
            Err(hang) => worst = Some((&mut self.hung, hang)),
            Ok(ends) => {
                for (rank, (status, lines)) in ends.iter().enumerate() {
                    let result = lines.iter().find_map(|line| line.strip_prefix("RESULT "));
                    let result = result.and_then(|text| serde_json::from_str::<Value>(text).ok());
                    match result {
                        Some(result) if status.success() => {
                            self.operations += result["operations"].as_u64().unwrap_or(0);
                            self.compared += result["compared"].as_u64().unwrap_or(0);
                        }
                        Some(result) if !result["wrong"].is_null() => {
                            worst = Some((&mut self.wrong, result["wrong"].to_string()));
                            break;
                        }
                        Some(result) => {
                            let text = result["failed"].to_string();
                            let hung = text.contains("timed out");
                            // Of several ranks that failed, the one that timed out or came first says most.
                            if hung {
                                worst = Some((&mut self.hung, text));
                            } else if worst.is_none() {
                                worst = Some((&mut self.failed, text));
                            }
                        }
                        None if worst.is_none() => {
                            let text = format!("rank {rank} ended with {status}: {lines:?}");
                            worst = Some((&mut self.failed, text));
                        }
                        None => {}
                    }
                }
            }
        }
        if let Some((counter, text)) = worst {
            *counter += 1;
            self.troubles
                .push(json!({"seed": seed, "settings": format!("{settings:?}"), "what": text}));
        }
    }

    /// The least of the last quarter of the jobs against the least of the first: other programs come and go.
    fn check_growth(&mut self) {
        let quarter = self.shared.len() / 4;
        let least = |samples: &[u64]| samples.iter().min().copied().unwrap_or(0);
        let before = least(&self.shared[..quarter]);
        let after = least(&self.shared[self.shared.len() - quarter..]);
        if quarter >= 2 && after > before + (16 << 10) {
            let what = format!("the host's shared memory grew from {before} to {after} KiB");
            self.troubles.push(json!({ "what": what }));
        }
    }

    fn check_processes(&mut self) {
        let mark = format!("{RUN}={}", self.id);
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let left: Vec<String> = all
            .filter(|entry| {
                let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
                let mut variables = environment.split(|&byte| byte == 0);
                variables.any(|variable| variable == mark.as_bytes())
            })
            .map(|entry| entry.file_name().display().to_string())
            .collect();
        if !left.is_empty() {
            let what = format!("processes are left: {}", left.join(", "));
            self.troubles.push(json!({ "what": what }));
        }
    }
}

/// Shared memory of the host in KiB.
fn shared_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Shmem:"));
    let digits = line.and_then(|rest| rest.split_whitespace().next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// A process of a job.
fn take_part(part: &str) -> ! {
    let (seed, ranks) = part.split_once(',').expect("a seed and ranks");
    let seed = seed.parse().expect("a seed");
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .expect("this kernel can send a signal when the parent ends");
    let settings = Settings::of(seed, ranks.parse().ok());
    if settings.one_core {
        let mut core = rustix::thread::CpuSet::new();
        let allowed = rustix::thread::sched_getaffinity(None).expect("this process has cores");
        core.set(
            (0..rustix::thread::CpuSet::MAX_CPU)
                .find(|&cpu| allowed.is_set(cpu))
                .expect("one"),
        );
        rustix::thread::sched_setaffinity(None, &core).expect("a core of its own");
    }
    let finish = |report: &Report| {
        let result = json!({"operations": report.operations, "compared": report.compared});
        println!("\nRESULT {result}");
    };
    let run = |rank: &support::Rank, barrier: &Barrier| {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            perform::run(rank, seed, &settings, barrier)
        }));
        let trouble = match outcome {
            Ok(Ok(report)) => match grown(&report.held) {
                None => return report,
                Some(what) => json!({ "failed": what }),
            },
            Ok(Err(Trouble::Wrong(what))) => json!({ "wrong": what }),
            Ok(Err(Trouble::Failed(what))) => json!({ "failed": what }),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .map_or("a panic", String::as_str);
                json!({ "failed": format!("rank {} panicked: {text}", rank.rank) })
            }
        };
        println!("\nRESULT {trouble}");
        std::process::exit(1);
    };
    if settings.threads {
        let barrier = Barrier::new(settings.size as usize);
        let reports = std::sync::Mutex::new(Report::default());
        support::threads(settings.size, |rank| {
            let report = run(&rank, &barrier);
            let mut all = reports.lock().expect("no rank panics here");
            all.operations += report.operations;
            all.compared += report.compared;
        });
        finish(&reports.lock().expect("no rank panics here"));
    } else {
        let rank = support::Rank::of_process(settings.size);
        support::api::set_device(rank.rank);
        finish(&run(&rank, &Barrier::new(1)));
    }
    std::process::exit(0);
}

/// What a process holds more of after its last epochs than after its first ones, if anything.
fn grown(held: &[Held]) -> Option<String> {
    let third = held.len() / 3;
    let check = |name: &str, of: fn(&Held) -> usize, slack: usize| {
        let least = |some: &[Held]| some.iter().map(of).min().unwrap_or(0);
        let (before, after) = (least(&held[..third]), least(&held[held.len() - third..]));
        (after > before + slack).then(|| format!("{name} grew from {before} to {after}: {held:?}"))
    };
    None.or_else(|| check("descriptors", |held| held.descriptors, 2))
        .or_else(|| check("mappings", |held| held.mappings, 2))
        .or_else(|| check("threads", |held| held.threads, 3))
        .or_else(|| check("shared memory in KiB", |held| held.shared, 1024))
}
