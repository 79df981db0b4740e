//! What ranks leave behind when a job fails.

mod common;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use common::*;
use hcom_runtime::{
    CompileOptions, Error, FailureKind, Life, Mode, Record, Settings, recorder::file_name,
};
use hcom_test::{Kind, Rank, ranks};

const PROGRAM: &str = "hcom 1
group @tp = ranks(0, 1, 2)
graph @f(%x: f32[6]) -> f32[6] {
  %a = all_reduce %x, op = sum, group = @tp
  %b = all_reduce %a, op = max, group = @tp
  return %b
}
";

/// The same folder on every rank of a test, empty before the ranks start.
fn folder(test: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(test)
}

fn settings(folder: &Path) -> Settings {
    Settings {
        timeout: Duration::from_millis(800),
        record_dir: Some(folder.to_owned()),
        ..Settings::from_env().unwrap()
    }
}

/// Waits until this rank's record tells of a failure, as rank 0 must before it reads.
fn record(folder: &Path, rank: u32) -> Record {
    let begin = Instant::now();
    loop {
        match Record::read(&folder.join(file_name(rank))) {
            Ok(record) if record.failure.is_some() => return record,
            other => assert!(begin.elapsed() < Duration::from_secs(20), "{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn clean(rank: &Rank, folder: &Path) {
    let _ = std::fs::remove_file(folder.join(file_name(rank.rank())));
}

/// The rank that stays away is busy elsewhere and never calls the runtime again.
#[test]
fn every_rank_writes_its_record_on_a_timeout_in_a_replay() {
    for kind in Kind::ALL {
        let folder = folder(&format!("timeout-{kind:?}"));
        ranks(3, kind, TIMEOUT, move |rank| {
            clean(&rank, &folder);
            let runtime = with_settings(&rank, settings(&folder));
            let graph = graph(PROGRAM);
            let options = CompileOptions {
                mode: Mode::Replay,
                ..CompileOptions::default()
            };
            let executable = runtime.compile(&graph, &options).unwrap();
            let x = upload(&runtime, &inputs(&graph, rank.rank()));
            for _ in 0..2 {
                executable.run(&x).unwrap();
            }
            runtime.synchronize().unwrap();
            if rank.rank() != 2 {
                let outcome = executable.run(&x).and_then(|y| y[0].to_host());
                assert!(matches!(outcome, Err(Error::Failure(_))), "{outcome:?}");
                assert!(
                    folder.join(file_name(rank.rank())).exists(),
                    "the record is there before the error"
                );
            }
            let own = record(&folder, rank.rank());
            let failure = own.failure.unwrap();
            assert_eq!(
                (failure.kind, failure.ranks, failure.replay),
                (FailureKind::Timeout, vec![2], Some(3))
            );
            assert_eq!((own.rank, own.world_size, own.dropped), (rank.rank(), 3, 0));
            let seqs: Vec<u64> = own.entries.iter().map(|entry| entry.seq).collect();
            let all = if rank.rank() == 2 { 4 } else { 6 };
            assert_eq!(seqs, (1..=all).collect::<Vec<u64>>());
            for entry in &own.entries {
                let run = entry.run.as_ref().unwrap();
                assert_eq!((run.graph.as_str(), run.replayed), ("f", true));
                assert_eq!(run.number, entry.seq.div_ceil(2));
                assert_eq!(
                    (entry.op.as_str(), entry.group.as_str()),
                    ("all_reduce", "tp")
                );
                assert_eq!(entry.ranks, [0, 1, 2]);
                assert_eq!(entry.dtype.as_deref(), Some("f32"));
                assert_eq!((entry.count, entry.bytes), (6, 24));
                let line = if entry.seq % 2 == 1 { 4 } else { 5 };
                let place = format!("test.hcom:{line}:");
                assert!(
                    entry.location.as_ref().unwrap().starts_with(&place),
                    "{entry:?}"
                );
                assert_eq!(entry.entered_us.is_some(), entry.seq <= 5, "{entry:?}");
                assert_eq!(entry.completed_us.is_some(), entry.seq <= 4, "{entry:?}");
                assert!(entry.issued_us <= entry.completed_us.unwrap_or(u64::MAX));
            }
            if rank.rank() != 2 {
                assert_eq!(own.state.entered.unwrap().seq, 5);
            }
            assert_eq!(own.state.completed.unwrap().seq, 4);
        });
    }
}

/// A rank that gives up by itself leaves its record too, and so does the one that waits for it.
#[test]
fn a_rank_that_ends_early_and_the_one_that_waits_for_it_both_write() {
    let folder = folder("early");
    ranks(2, Kind::Processes, TIMEOUT, move |rank| {
        clean(&rank, &folder);
        let runtime = with_settings(&rank, settings(&folder));
        let graph = graph(&PROGRAM.replace("0, 1, 2", "0, 1"));
        let executable = runtime.compile(&graph, &CompileOptions::default()).unwrap();
        let x = upload(&runtime, &inputs(&graph, rank.rank()));
        executable.run(&x).unwrap();
        runtime.synchronize().unwrap();
        if rank.rank() == 0 {
            drop((executable, x, runtime));
            let own = Record::read(&folder.join(file_name(0))).unwrap();
            assert_eq!((own.failure, own.entries.len()), (None, 2));
            assert_eq!(own.state.completed.unwrap().seq, 2);
        } else {
            let outcome = executable.run(&x).and_then(|y| y[0].to_host());
            assert!(matches!(outcome, Err(Error::Failure(_))), "{outcome:?}");
            let own = record(&folder, 1);
            assert_eq!(own.failure.unwrap().ranks, [0]);
            // The second collective may not have been issued any more.
            assert!(matches!(own.entries.len(), 3 | 4), "{:?}", own.entries);
            assert!(matches!(own.peers[0].life, Life::Left | Life::Dead { .. }));
        }
    });
}

#[test]
fn without_a_folder_or_entries_nothing_is_written() {
    let folder = folder("none");
    ranks(2, Kind::Threads, TIMEOUT, move |rank| {
        let settings = Settings {
            record_entries: 0,
            ..settings(&folder)
        };
        let runtime = with_settings(&rank, settings);
        let graph = graph(&PROGRAM.replace("0, 1, 2", "0, 1"));
        let executable = runtime.compile(&graph, &CompileOptions::default()).unwrap();
        let x = upload(&runtime, &inputs(&graph, rank.rank()));
        executable.run(&x).unwrap()[0].to_host().unwrap();
        drop((executable, x, runtime));
        assert!(!folder.join(file_name(rank.rank())).exists());
    });
}
