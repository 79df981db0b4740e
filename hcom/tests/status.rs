//! `hcom status` and `hcom record show` on a job whose ranks wait for one that is stopped.

mod common;

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::{Folder, LIMIT, finish, hcom, wait};
use serde_json::Value;

/// A job that runs until it is told to end.
struct Endless(Option<Child>);

impl Endless {
    fn start() -> Endless {
        let mut command = hcom(&["demo", "--ranks", "4", "--steps", "1000000"]);
        let child = command.env("HCOM_TIMEOUT", "600").spawn();
        Endless(Some(child.expect("the command starts")))
    }

    /// The job as `hcom status --json` shows it, once `ready` holds.
    fn status(&self, ready: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        let own = |rank: &Value| {
            let pid = rank["pid"].as_u64().expect("a rank of this host");
            parent(pid) == self.0.as_ref().map(Child::id)
        };
        loop {
            let done = finish(&mut hcom(&["status", "--json"]));
            let object: Value = serde_json::from_str(&done.out).expect("one JSON object");
            let jobs = object["jobs"].as_array().expect("jobs");
            let job = jobs
                .iter()
                .find(|job| job["ranks"].as_array().is_some_and(|r| r.iter().any(own)));
            match job {
                Some(job) if ready(job) => return job.clone(),
                other => assert!(begin.elapsed() < LIMIT, "{other:?}"),
            }
        }
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The parent of a process, while it runs.
fn parent(pid: u64) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn signal(name: &str, pid: &Value) {
    let done = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(done.expect("kill runs").success());
}

#[test]
fn a_job_that_hangs_answers_and_its_records_name_the_rank_that_is_stopped() {
    let mut endless = Endless::start();
    let going = |job: &Value| {
        let groups = job["groups"].as_array().expect("groups");
        let ranks = groups
            .iter()
            .flat_map(|g| g["members"].as_array().expect("members"));
        ranks.filter(|m| m["completed"].as_u64() > Some(16)).count() == 4
    };
    let job = endless.status(going);
    assert_eq!(
        (&job["world_size"], &job["timeout_s"]),
        (&4.into(), &600.0.into())
    );
    assert_eq!(job["failure"], Value::Null);
    let stopped = job["ranks"][2]["pid"].clone();
    signal("-STOP", &stopped);

    let waiting = |job: &Value| {
        let silent = job["ranks"][2]["error"].is_string();
        let members = |group: &Value| {
            let members = group["members"].as_array().expect("members").clone();
            members.iter().filter(|m| m["stand"] == "inside").count()
        };
        let stuck = job["outstanding"].as_array().expect("groups");
        silent && stuck.iter().any(|group| members(group) == 3)
    };
    let job = endless.status(waiting);
    let seq = job["outstanding"][0]["seq"].clone();

    let folder = Folder::new();
    let records = folder.path("records");
    let dump = records.display().to_string();
    let done = finish(&mut hcom(&["status", "--dump", &dump]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(
        written(&records),
        [
            "hcom-record-0.json",
            "hcom-record-1.json",
            "hcom-record-3.json"
        ]
    );
    let done = finish(&mut hcom(&["record", "show", &dump]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    let sentence = done.out.lines().find(|line| line.starts_with("group "));
    let sentence = sentence.unwrap_or_else(|| panic!("{}", done.out));
    let begin = format!("group world (ranks 0, 1, 2, 3) waits in all_reduce {seq} (f32, ");
    assert!(sentence.starts_with(&begin), "{sentence}");
    assert!(
        sentence.contains("ranks 0, 1, 3 are inside; rank 2 left no record"),
        "{sentence}"
    );

    signal("-CONT", &stopped);
    let child = endless.0.take().expect("it runs");
    signal("-TERM", &child.id().into());
    assert_ne!(wait(child).code, Some(0));
    let gone = Instant::now();
    while parent(stopped.as_u64().expect("a process")).is_some() {
        assert!(gone.elapsed() < LIMIT, "rank 2 still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn written(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> = files
        .map(|file| {
            file.expect("a file")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn wrong_folders_and_jobs_are_exit_code_2() {
    let folder = Folder::new();
    let empty = folder.path("").display().to_string();
    let torn = Folder::new();
    torn.file("hcom-record-1.json", "{\"rank\": 1");
    let torn = torn.path("").display().to_string();
    for (arguments, said) in [
        (
            ["record", "show", "/nonexistent"],
            "cannot read the records in /nonexistent",
        ),
        (["record", "show", &empty], "there is no record in"),
        (
            ["record", "show", &torn],
            "hcom-record-1.json: EOF while parsing",
        ),
        (["status", "--job", "none"], "no job none runs here"),
    ] {
        let done = finish(&mut hcom(&arguments));
        assert_eq!(done.code, Some(2), "{arguments:?}");
        assert!(done.err.contains(said), "{}", done.err);
    }
}
