//! Captured graphs: replays with new data, agreement between ranks, limits, and failures inside.

mod common;

use std::time::{Duration, Instant};

use common::*;
use hcom_ir::{Attrs, DType, Graph, Group, Literal, Op, ReduceOp};
use hcom_runtime::{
    CompileOptions, Error, Executable, Failure, FailureKind, Mode, Runtime, Settings,
};
use hcom_sys::Table;
use hcom_test::{Job, Kind, Rank, ranks};

fn f32s(values: &[f32]) -> Literal {
    Literal::from_slice(&[values.len() as u64], values).unwrap()
}

/// `y = all_reduce(x)`, `z = relu(y) max over ranks`.
fn chain(name: &str, size: u64) -> Graph {
    graph(&format!(
        "hcom 1
group @g = ranks(0, 1)
graph @{name}(%x: f32[{size}]) -> f32[{size}] {{
  %y = all_reduce %x, op = sum, group = @g
  %r = relu %y
  %z = all_reduce %r, op = max, group = @g
  return %z
}}
"
    ))
}

fn replayed(runtime: &Runtime, graph: &Graph) -> Executable {
    let options = CompileOptions {
        mode: Mode::Replay,
        ..CompileOptions::default()
    };
    runtime.compile(graph, &options).unwrap()
}

#[track_caller]
fn failure(error: Error) -> Failure {
    match error {
        Error::Failure(failure) => failure,
        other => panic!("{other} is no failure of the job"),
    }
}

fn impatient(rank: &Rank, milliseconds: u64) -> Runtime {
    let settings = Settings {
        timeout: Duration::from_millis(milliseconds),
        ..Settings::from_env().unwrap()
    };
    with_settings(rank, settings)
}

/// Stays alive and does nothing until the others have given up.
fn idle(runtime: &Runtime) -> Failure {
    let begin = Instant::now();
    loop {
        if let Some(failure) = runtime.control().failure() {
            return failure;
        }
        assert!(begin.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_hundred_replays_take_new_data_each_and_mix_with_other_work() {
    for kind in Kind::ALL {
        ranks(2, kind, TIMEOUT, |rank| {
            let runtime = runtime(&rank);
            let executable = replayed(&runtime, &chain("f", 3));
            assert_eq!(executable.fallback(), None);
            let group = Group::new("g", vec![0, 1]);
            let attrs = Attrs::new().with("op", ReduceOp::Sum);
            let mut kept = Vec::new();
            for round in 0..100u16 {
                let own = f32::from(round) + 100.0 * rank.rank() as f32;
                let x = upload(&runtime, &[f32s(&[own, -own, 1.0])]).remove(0);
                let y = executable.run(std::slice::from_ref(&x)).unwrap().remove(0);
                let sum = 2.0 * f32::from(round) + 100.0;
                if round % 7 == 0 {
                    let eager = runtime
                        .eager(Op::AllReduce, &attrs, Some(&group), &[&x])
                        .unwrap();
                    assert_eq!(download(&eager[0]), f32s(&[sum, -sum, 2.0]));
                }
                kept.push((y, f32s(&[sum, 0.0, 2.0])));
            }
            for (round, (y, expected)) in kept.iter().enumerate() {
                assert_eq!(download(y), *expected, "round {round}");
            }
        });
    }
}

/// Earlier eager work and the watchdog must not disturb a capture.
#[test]
fn captures_follow_eager_work_at_once() {
    ranks(2, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let group = Group::new("g", vec![0, 1]);
        let attrs = Attrs::new().with("op", ReduceOp::Sum);
        let x = upload(&runtime, &[f32s(&[1.0, rank.rank() as f32])]);
        for _ in 0..100 {
            for _ in 0..30 {
                runtime
                    .eager(Op::AllReduce, &attrs, Some(&group), &[&x[0]])
                    .unwrap();
            }
            let executable = replayed(&runtime, &chain("f", 2));
            assert_eq!(executable.fallback(), None);
            let y = executable.run(&x).unwrap();
            assert_eq!(download(&y[0]), f32s(&[2.0, 1.0]));
        }
    });
}

#[test]
fn captured_inputs_are_used_in_place() {
    ranks(2, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let graph = graph(
            "hcom 1
group @g = ranks(0, 1)
graph @f(%a: mut f32[1], %b: f32[1]) -> f32[1] {
  %s = all_reduce %a, op = sum, group = @g
  %d = sub %s, %b
  copy_to_input %s, %a
  return %d
}
",
        );
        let executable = replayed(&runtime, &graph);
        let own = executable.captured_inputs().unwrap().to_vec();
        let fill = |index: usize, value: f32| {
            let from = upload(&runtime, &[f32s(&[value])]).remove(0);
            runtime
                .eager(Op::CopyToInput, &Attrs::new(), None, &[&from, &own[index]])
                .unwrap();
        };
        fill(0, 1.0 + rank.rank() as f32);
        fill(1, 10.0);
        let y = executable.run(&own).unwrap();
        assert_eq!(download(&y[0]), f32s(&[-7.0]));
        assert_eq!(download(&own[0]), f32s(&[3.0]), "written in place");
        // Each in the place of the other: a is 10 and b is 3.
        let swapped = [own[1].clone(), own[0].clone()];
        let y = executable.run(&swapped).unwrap();
        assert_eq!(download(&y[0]), f32s(&[17.0]));
        assert_eq!(download(&swapped[0]), f32s(&[20.0]));
    });
}

/// Both sides are named, whichever notices.
#[test]
fn different_captures_on_two_ranks_are_an_error_that_names_both() {
    for kind in Kind::ALL {
        ranks(2, kind, TIMEOUT, |rank| {
            let runtime = runtime(&rank);
            let graphs = [chain("small", 4), chain("large", 8)];
            let executables = [
                replayed(&runtime, &graphs[0]),
                replayed(&runtime, &graphs[1]),
            ];
            for (graph, executable) in graphs.iter().zip(&executables) {
                let x = upload(&runtime, &inputs(graph, rank.rank()));
                for _ in 0..3 {
                    executable.run(&x).unwrap();
                }
            }
            runtime.synchronize().unwrap();
            let own = rank.rank() as usize;
            let x = upload(&runtime, &inputs(&graphs[own], rank.rank()));
            let outcome = executables[own].run(&x).and_then(|y| y[0].to_host());
            let error = failure(outcome.unwrap_err());
            assert_eq!(error.kind, FailureKind::Mismatch, "{error}");
            let text = error.to_string();
            assert!(
                text.contains("replay 4 of graph small #1")
                    && text.contains("replay 4 of graph large #2"),
                "{text}"
            );
            assert_eq!((error.seq, error.replay), (Some(13), Some(4)), "{text}");
        });
    }
}

#[test]
fn a_replay_that_meets_a_single_operation_is_an_error() {
    ranks(2, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let graph = chain("f", 4);
        let executable = replayed(&runtime, &graph);
        let x = upload(&runtime, &inputs(&graph, rank.rank())).remove(0);
        let group = Group::new("g", vec![0, 1]);
        let attrs = Attrs::new().with("op", ReduceOp::Sum);
        runtime
            .eager(Op::AllReduce, &attrs, Some(&group), &[&x])
            .unwrap();
        let begin = Instant::now();
        let outcome = if rank.rank() == 0 {
            executable.run(&[x])
        } else {
            runtime.eager(Op::AllReduce, &attrs, Some(&group), &[&x])
        };
        let error = failure(outcome.and_then(|y| y[0].to_host()).unwrap_err());
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "no wait for the limit"
        );
        assert_eq!(error.kind, FailureKind::Mismatch, "{error}");
        assert!(
            error.to_string().contains("replay 1 of graph f #1"),
            "{error}"
        );
    });
}

#[test]
fn a_rank_that_stays_away_is_named_with_the_replay_and_the_operation() {
    for kind in Kind::ALL {
        ranks(2, kind, TIMEOUT, |rank| {
            let runtime = impatient(&rank, 700);
            let graph = chain("f", 4);
            let executable = replayed(&runtime, &graph);
            let x = upload(&runtime, &inputs(&graph, rank.rank()));
            for _ in 0..5 {
                executable.run(&x).unwrap();
            }
            runtime.synchronize().unwrap();
            let error = if rank.rank() == 1 {
                idle(&runtime)
            } else {
                failure(executable.run(&x).and_then(|y| y[0].to_host()).unwrap_err())
            };
            assert_eq!(error.kind, FailureKind::Timeout, "{error}");
            assert_eq!(error.ranks, [1], "{error}");
            assert_eq!(
                (error.seq, error.replay, error.graph.as_deref()),
                (Some(11), Some(6), Some("f")),
                "{error}"
            );
            assert!(
                error
                    .to_string()
                    .starts_with("all_reduce 11 of group g in replay 6 of graph f: timed out"),
                "{error}"
            );
            assert!(error.node.unwrap().contains("%y = all_reduce %x"));
            // A group that has failed cannot be captured, and says so at once.
            let begin = Instant::now();
            let options = CompileOptions {
                mode: Mode::Replay,
                ..CompileOptions::default()
            };
            let again = runtime.compile(&graph, &options).err().unwrap();
            assert_eq!(failure(again).kind, FailureKind::Timeout);
            assert!(begin.elapsed() < Duration::from_millis(300));
        });
    }
}

#[test]
fn a_rank_that_dies_is_named_with_the_replay() {
    ranks(2, Kind::Processes, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let graph = chain("f", 4);
        let executable = replayed(&runtime, &graph);
        let x = upload(&runtime, &inputs(&graph, rank.rank()));
        for _ in 0..4 {
            executable.run(&x).unwrap();
        }
        runtime.synchronize().unwrap();
        if rank.rank() == 1 {
            rank.kill_self();
        }
        let outcome = executable.run(&x).and_then(|y| y[0].to_host());
        let error = failure(outcome.unwrap_err());
        assert_eq!(error.kind, FailureKind::PeerDied, "{error}");
        assert_eq!(error.ranks, [1]);
        assert_eq!((error.seq, error.replay), (Some(9), Some(5)), "{error}");
    });
}

#[test]
fn beyond_the_limit_graphs_are_launched_step_by_step() {
    ranks(2, Kind::Threads, TIMEOUT, |rank| {
        let settings = Settings {
            // Only one rank has the low limit: both must do the same.
            captures: if rank.rank() == 0 { 1 } else { 64 },
            ..Settings::from_env().unwrap()
        };
        let runtime = with_settings(&rank, settings);
        let x = upload(&runtime, &[f32s(&[1.0, rank.rank() as f32])]);
        let right = |executable: &Executable| {
            for _ in 0..3 {
                let y = executable.run(&x).unwrap();
                assert_eq!(download(&y[0]), f32s(&[2.0, 1.0]));
            }
        };
        let first = replayed(&runtime, &chain("first", 2));
        assert_eq!(first.fallback(), None);
        let second = replayed(&runtime, &chain("second", 2));
        let reason = second.fallback().unwrap();
        assert!(
            reason.contains("graph second needs a capture")
                && reason.contains("1 of at most 1")
                && reason.contains("HCOM_CAPTURES"),
            "{reason}"
        );
        assert_eq!(reason.starts_with("rank 0: "), rank.rank() == 1, "{reason}");
        assert!(second.captured_inputs().is_none());
        right(&second);
        right(&first);
        drop(first);
        let third = replayed(&runtime, &chain("third", 2));
        assert_eq!(third.fallback(), None, "the first one made room");
        right(&third);
        right(&second);
    });
}

/// A device whose streams are used up: the message says what is needed, what there is and which
/// setting decides, and every graph goes on.
#[test]
fn captures_that_use_up_the_streams_fall_back() {
    if std::env::var_os("HCOM_LIBRARY_PATH").is_some() {
        return;
    }
    let job = Job::new(2, Kind::Processes, TIMEOUT).env("HCOM_FAKE_STREAMS", "16");
    job.run(|rank| {
        let runtime = runtime(&rank);
        let x = upload(&runtime, &[f32s(&[1.0, rank.rank() as f32])]);
        let executables: Vec<Executable> = (0..20)
            .map(|number| replayed(&runtime, &chain(&format!("f{number}"), 2)))
            .collect();
        let captured = executables.iter().filter(|e| e.fallback().is_none());
        let captured = captured.count();
        assert!((1..20).contains(&captured), "{captured} captures");
        for executable in &executables[captured..] {
            let reason = executable.fallback().expect("the later ones have none");
            for part in ["1 needed", "16 of 16 in use", "HCOM_FAKE_STREAMS"] {
                assert!(reason.contains(part), "{reason}");
            }
        }
        for _ in 0..3 {
            for executable in &executables {
                let y = executable.run(&x).unwrap();
                assert_eq!(download(&y[0]), f32s(&[2.0, 1.0]));
            }
        }
    });
}

#[test]
fn a_library_without_captures_launches_step_by_step() {
    if std::env::var_os("HCOM_LIBRARY_PATH").is_some() {
        return;
    }
    ranks(2, Kind::Processes, TIMEOUT, |rank| {
        let symbols: Vec<_> = hcom_fake::table()
            .symbols
            .iter()
            .copied()
            .filter(|(name, _)| *name != "aclmdlRICaptureBegin")
            .collect();
        let old = Table {
            name: "old",
            version: "8.0",
            symbols: symbols.leak(),
        };
        hcom_sys::register_fallback(Box::leak(Box::new(old)));
        let settings = Settings::from_env().unwrap();
        let runtime = Runtime::with_control(rank.control(), rank.rank(), &settings).unwrap();
        let executable = replayed(&runtime, &chain("f", 2));
        let reason = executable.fallback().unwrap();
        assert!(reason.contains("aclmdlRICaptureBegin"), "{reason}");
        let x = runtime
            .array(DType::F32, &[2], &f32s(&[1.0, rank.rank() as f32]).bytes)
            .unwrap();
        let y = executable.run(&[x]).unwrap();
        assert_eq!(download(&y[0]), f32s(&[2.0, 1.0]));
    });
}
