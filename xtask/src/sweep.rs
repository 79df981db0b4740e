//! Every fault at every operation: what the other ranks of a job say when one fails.
//!
//! A job of three ranks runs `examples/eight.hcom`, eight operations of different kinds, twice. In its
//! second step one rank is killed, stopped or made to fail at one of the operations, or is late because
//! the kernel before it takes long: eager, launched and replayed. A run is right when every rank that still runs ends with an error that names that rank
//! and that operation, within the time limit and a second more of the fault, has written its flight
//! record, and nothing is left: no process, no shared memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tools;

const GRAPH: &str = "examples/eight.hcom";
const RANKS: u32 = 3;
/// The operations of the graph, as faults name them.
const OPERATIONS: [&str; 8] = [
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "reduce",
    "barrier",
    "scatter",
];
const FAULTS: [&str; 4] = ["kill", "stop", "error:507018", LATE];
/// Longer than the time limit.
const LATE: &str = "delay:4s";
/// The kernel that runs once before each operation.
const KERNEL: &str = "aclnnRelu";
const MODES: [&str; 3] = ["eager", "launch", "replay"];
/// The time limit of a collective, in seconds.
const LIMIT: f64 = 2.0;
/// From the end of the first rank's report to that of the launcher, which waits for a stopped rank.
const LAUNCHER: Duration = Duration::from_secs(20);

/// Arguments of `sweep`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// All runs instead of every third.
    #[arg(long)]
    all: bool,
    /// Runs at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
}

/// One run.
#[derive(Clone, Copy)]
struct Case {
    mode: &'static str,
    fault: &'static str,
    /// Index in [`OPERATIONS`].
    operation: usize,
    rank: u32,
}

/// Runs a third of the sweep, as the gate does.
pub(crate) fn third() -> Result<()> {
    run(&Args {
        all: false,
        jobs: 4,
    })
}

/// Runs the whole sweep, as the full gate does.
pub(crate) fn whole() -> Result<()> {
    run(&Args { all: true, jobs: 4 })
}

/// Runs the sweep and prints how many runs were right.
pub(crate) fn run(args: &Args) -> Result<()> {
    tools::run(tools::cargo().args(["build", "--quiet", "--package", "hcom", "--locked"]))?;
    let cases: Vec<Case> = cases()
        .into_iter()
        .enumerate()
        // Another rank for each operation.
        .filter(|(index, _)| args.all || (index + index / 3) % 3 == 0)
        .map(|(_, case)| case)
        .collect();
    let scratch = tempfile::tempdir().context("no temporary folder")?;
    let shared = shared_memory();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { return };
                    let folder = scratch.path().join(index.to_string());
                    if let Err(error) = case.check(&folder) {
                        let mut wrong = wrong.lock().expect("no check panics");
                        wrong.insert(index, format!("{error:#}"));
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().expect("no check panics");
    if let Some(left) = shared_memory()
        .into_iter()
        .find(|file| !shared.contains(file))
    {
        wrong.insert(cases.len(), format!("{} is left", left.display()));
    }
    print(&cases, &wrong);
    ensure!(
        wrong.is_empty(),
        "{} of {} runs were wrong",
        wrong.len(),
        cases.len()
    );
    Ok(())
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in MODES {
        for fault in FAULTS {
            for operation in 0..OPERATIONS.len() {
                cases.extend((0..RANKS).map(|rank| Case {
                    mode,
                    fault,
                    operation,
                    rank,
                }));
            }
        }
    }
    cases
}

impl Case {
    /// The fault as `HCOM_FAKE_FAULT` has it: in the second step.
    fn plan(&self) -> String {
        let Case {
            fault,
            operation,
            rank,
            ..
        } = self;
        match *fault {
            LATE => format!(
                "device={rank},kernel={KERNEL},op={},do={fault}",
                OPERATIONS.len() + operation + 1
            ),
            _ => format!(
                "rank={rank},kind={},op=2,do={fault}",
                OPERATIONS[*operation]
            ),
        }
    }

    /// The command, for people too.
    fn arguments(&self) -> [String; 10] {
        let ranks = RANKS.to_string();
        let limit = LIMIT.to_string();
        [
            "run",
            GRAPH,
            "--json",
            "--steps",
            "2",
            "--mode",
            self.mode,
            "--ranks",
            &ranks,
            &format!("--timeout={limit}"),
        ]
        .map(str::to_owned)
    }

    fn check(&self, folder: &Path) -> Result<()> {
        let mark = format!("HCOM_RECORD_DIR={}\0", folder.display());
        let child = Command::new(tools::target().join("debug/hcom"))
            .args(self.arguments())
            .current_dir(tools::root())
            .env("HCOM_FAKE_FAULT", self.plan())
            .env("HCOM_RECORD_DIR", folder)
            .env_remove("HCOM_LIBRARY_PATH")
            .env_remove("ASCEND_HOME_PATH")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("hcom does not start")?;
        let output = limited(child)?;
        let report: Value = serde_json::from_slice(&output.stdout).with_context(|| {
            format!(
                "no JSON; it printed {}",
                String::from_utf8_lossy(&output.stderr)
            )
        })?;
        ensure!(
            output.status.code() != Some(0),
            "the job ended as if nothing had happened"
        );
        for rank in 0..RANKS {
            let gone = rank == self.rank && ["kill", "stop"].contains(&self.fault);
            if !gone {
                self.check_rank(&report["ranks"][rank as usize], rank)?;
                check_record(&folder.join(format!("hcom-record-{rank}.json")))
                    .with_context(|| format!("the record of rank {rank}"))?;
            }
        }
        let left = marked_processes(&mark);
        ensure!(left.is_empty(), "processes {left:?} are left");
        Ok(())
    }

    fn check_rank(&self, report: &Value, rank: u32) -> Result<()> {
        let error = &report["error"];
        ensure!(error.is_object(), "rank {rank} reports no error: {report}");
        ensure!(
            error["op"] == OPERATIONS[self.operation]
                && error["ranks"] == serde_json::json!([self.rank]),
            "rank {rank} says {}",
            error["message"]
        );
        Ok(())
    }
}

/// A record must tell of the failure, and was written within the time limit and a second more of the
/// last collective that was issued.
fn check_record(file: &Path) -> Result<()> {
    let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let record: Value = serde_json::from_slice(&text)?;
    ensure!(record["failure"].is_object(), "it tells of no failure");
    let written = record["written_us"].as_u64().context("no time")?;
    let entries = record["entries"].as_array().context("no entries")?;
    let waiting = entries.iter().find(|entry| entry["completed_us"].is_null());
    let since =
        waiting.and_then(|entry| entry["entered_us"].as_u64().or(entry["issued_us"].as_u64()));
    if let Some(since) = since {
        let waited = written.saturating_sub(since) as f64 / 1e6;
        ensure!(waited <= LIMIT + 1.0, "it was written after {waited:.1} s");
    }
    Ok(())
}

/// Waits for the command; kills it when it hangs.
fn limited(child: std::process::Child) -> Result<std::process::Output> {
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        // The receiver is gone when it has given up.
        let _ = sender.send(child.wait_with_output());
    });
    match receiver.recv_timeout(LAUNCHER + Duration::from_secs_f64(LIMIT)) {
        Ok(output) => Ok(output?),
        Err(_) => {
            let _ = Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .status();
            anyhow::bail!("the job hangs")
        }
    }
}

/// Processes whose environment has `mark`.
fn marked_processes(mark: &str) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter(|process| {
            fs::read(process.path().join("environ"))
                .is_ok_and(|text| text.windows(mark.len()).any(|part| part == mark.as_bytes()))
        })
        .map(|process| process.file_name().to_string_lossy().into_owned())
        .collect()
}

fn shared_memory() -> Vec<PathBuf> {
    fs::read_dir("/dev/shm").map_or_else(
        |_| Vec::new(),
        |files| files.flatten().map(|file| file.path()).collect(),
    )
}

fn print(cases: &[Case], wrong: &BTreeMap<usize, String>) {
    println!(
        "{:<10} {:<14} {:>5} {:>6} {:>6}",
        "mode", "fault", "runs", "right", "wrong"
    );
    for mode in MODES {
        for fault in FAULTS {
            let of = |index: &usize| {
                let case = cases.get(*index);
                case.is_some_and(|case| case.mode == mode && case.fault == fault)
            };
            let runs = (0..cases.len()).filter(of).count();
            let wrong = wrong.keys().filter(|index| of(index)).count();
            println!(
                "{mode:<10} {fault:<14} {runs:>5} {:>6} {wrong:>6}",
                runs - wrong
            );
        }
    }
    for (index, error) in wrong {
        match cases.get(*index) {
            Some(case) => println!(
                "wrong: {error}\n  HCOM_FAKE_FAULT='{}' hcom {}",
                case.plan(),
                case.arguments().join(" ")
            ),
            None => println!("wrong: {error}"),
        }
    }
}
