//! The ranks are real, their failures are seen, and nothing is left of them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
    time::{Duration, Instant},
};

use hcom_test::{Job, Kind, ranks};

const LIMIT: Duration = Duration::from_secs(20);

/// The message with which `job` fails.
fn failure(job: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(job)).expect_err("the job fails");
    *panic.downcast::<String>().expect("a formatted message")
}

#[test]
fn every_rank_runs_once_in_a_process_of_its_own() {
    let parent = std::process::id();
    let folder = std::env::temp_dir().join(format!("hcom-test-{parent}"));
    if std::env::var_os("RANK").is_none() {
        std::fs::create_dir(&folder).unwrap();
    }
    let path = folder.to_string_lossy().into_owned();
    Job::new(4, Kind::Processes, LIMIT)
        .env("RANKS_WRITE_TO", &path)
        .run(|rank| {
            assert_eq!(rank.world_size(), 4);
            assert_eq!(std::env::var("LOCAL_RANK"), Ok(rank.rank().to_string()));
            let folder = std::path::PathBuf::from(std::env::var_os("RANKS_WRITE_TO").unwrap());
            let file = folder.join(rank.rank().to_string());
            std::fs::write(file, std::process::id().to_string()).unwrap();
        });
    let mut ids: Vec<String> = (0..4)
        .map(|rank| std::fs::read_to_string(folder.join(rank.to_string())).unwrap())
        .collect();
    std::fs::remove_dir_all(&folder).unwrap();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    assert!(!ids.contains(&parent.to_string()));
}

#[test]
fn rank_threads_share_what_they_ask_for() {
    ranks(4, Kind::Threads, LIMIT, |rank| {
        let seen = rank.shared(|| Mutex::new(Vec::new()));
        let mut seen = seen.lock().unwrap();
        assert!(!seen.contains(&rank.rank()));
        seen.push(rank.rank());
    });
}

#[test]
fn calls_of_one_test_are_told_apart() {
    for kind in Kind::ALL {
        for n in 1..=2 {
            ranks(n, kind, LIMIT, move |rank| {
                assert_eq!((rank.world_size(), rank.kind()), (n, kind));
            });
        }
    }
}

#[test]
fn a_panic_fails_the_test_and_shows_what_was_printed() {
    let report = failure(|| {
        ranks(3, Kind::Processes, LIMIT, |rank| {
            println!("standard output of {}", rank.rank());
            assert_ne!(rank.rank(), 1, "one is wrong");
        })
    });
    assert!(
        report.starts_with("rank 1 of 3 ended with exit status: 101"),
        "{report}"
    );
    for text in [
        "one is wrong",
        "standard output of 1",
        "rank 2 of 3 ended well",
    ] {
        assert!(report.contains(text), "{report}");
    }
    let report = failure(|| {
        ranks(3, Kind::Threads, LIMIT, |rank| {
            assert_ne!(rank.rank(), 1, "one is wrong");
        })
    });
    assert!(report.starts_with("rank 1 panicked: "), "{report}");
}

#[test]
fn a_rank_that_hangs_is_stopped_and_named() {
    let started = Instant::now();
    let report = failure(|| {
        ranks(2, Kind::Processes, Duration::from_millis(1500), |rank| {
            println!("my process is {}", std::process::id());
            if rank.rank() == 1 {
                std::thread::park();
            }
        })
    });
    assert!(
        started.elapsed() < Duration::from_secs(6),
        "{:?}",
        started.elapsed()
    );
    assert!(
        report.contains("rank 1 of 2 did not end in time"),
        "{report}"
    );
    for line in report.lines() {
        if let Some(id) = line.trim().strip_prefix("my process is ") {
            assert!(
                !std::path::Path::new("/proc").join(id).exists(),
                "{id} is left"
            );
        }
    }
    let report = failure(|| {
        ranks(2, Kind::Threads, Duration::from_millis(200), |rank| {
            if rank.rank() == 1 {
                std::thread::park();
            }
        })
    });
    assert_eq!(report, "ranks [1] of 2 did not end\n");
}

#[test]
fn a_death_on_purpose_is_accepted() {
    ranks(2, Kind::Processes, LIMIT, |rank| {
        if rank.rank() == 1 {
            rank.kill_self();
        }
    });
}

#[test]
fn another_death_is_a_failure() {
    let report = failure(|| {
        ranks(2, Kind::Processes, LIMIT, |rank| {
            if rank.rank() == 1 {
                std::process::abort();
            }
        })
    });
    assert!(
        report.starts_with("rank 1 of 2 ended with signal: 6"),
        "{report}"
    );
}

#[test]
fn success_without_running_the_closure_is_a_failure() {
    let report = failure(|| {
        ranks(2, Kind::Processes, LIMIT, |rank| {
            if rank.rank() == 0 {
                std::process::exit(0);
            }
        })
    });
    assert!(
        report.starts_with("rank 0 of 2 ended without running the closure"),
        "{report}"
    );
}

/// Whether a process runs; one that has ended but was not asked for its status does not.
fn runs(id: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/stat"));
    status.is_ok_and(|text| {
        !text
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"))
    })
}

#[test]
fn ranks_die_with_the_test() {
    const FOLDER: &str = "RANKS_OF_A_KILLED_TEST";
    if std::env::var_os(FOLDER).is_some() {
        ranks(2, Kind::Processes, LIMIT, |rank| {
            let folder = std::path::PathBuf::from(std::env::var_os(FOLDER).unwrap());
            let id = std::process::id().to_string();
            std::fs::write(folder.join(rank.rank().to_string()), id).unwrap();
            std::thread::park();
        });
        return;
    }
    let folder = std::env::temp_dir().join(format!("hcom-test-killed-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mut test = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ranks_die_with_the_test", "--nocapture"])
        .env(FOLDER, &folder)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + LIMIT;
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let id = |rank: u32| {
        std::fs::read_to_string(folder.join(rank.to_string()))
            .ok()
            .filter(|id| !id.is_empty())
    };
    wait("the ranks start", &|| id(0).is_some() && id(1).is_some());
    let ids = [0, 1].map(|rank| id(rank).unwrap());
    assert!(ids.iter().all(|id| runs(id)));
    test.kill().unwrap();
    test.wait().unwrap();
    wait("the ranks end", &|| !ids.iter().any(|id| runs(id)));
    std::fs::remove_dir_all(&folder).unwrap();
}
