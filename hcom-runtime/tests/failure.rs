//! Ranks that die, leave, hang or disagree while others wait.

mod common;

use std::time::{Duration, Instant};

use common::*;
use hcom_ir::{Attrs, DType, Graph, Group, Op, ReduceOp};
use hcom_runtime::{Array, CompileOptions, Error, Failure, FailureKind, Mode, Runtime, Settings};
use hcom_test::{Kind, ranks};

fn chain() -> Graph {
    graph(
        "hcom 1
group @tp = ranks(0, 1, 2)
graph @f(%x: f32[256]) -> f32[256] {
  %a = all_reduce %x, op = sum, group = @tp
  %b = relu %a
  %c = all_reduce %b, op = max, group = @tp
  return %c
}
",
    )
}

#[track_caller]
fn failure(error: Error) -> Failure {
    match error {
        Error::Failure(failure) => failure,
        other => panic!("{other} is no failure of the job"),
    }
}

/// The acceptance of a killed rank: quick, and the error names the rank and the collective.
#[test]
fn a_killed_rank_ends_the_others_within_five_seconds() {
    ranks(3, Kind::Processes, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let executable = runtime
            .compile(&chain(), &CompileOptions::default())
            .unwrap();
        let arrays = upload(&runtime, &inputs(&chain(), rank.rank()));
        for _ in 0..10 {
            executable.run(&arrays).unwrap();
        }
        runtime.synchronize().unwrap();
        if rank.rank() == 1 {
            rank.kill_self();
        }
        let begin = Instant::now();
        let error = loop {
            let outcome = executable
                .run(&arrays)
                .and_then(|outputs| outputs[0].to_host());
            if let Err(error) = outcome {
                break failure(error);
            }
        };
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{:?}",
            begin.elapsed()
        );
        assert_eq!(error.kind, FailureKind::PeerDied, "{error}");
        assert_eq!(error.ranks, [1], "{error}");
        assert_eq!(error.op.as_deref(), Some("all_reduce"), "{error}");
        assert_eq!(error.group.as_deref(), Some("tp"), "{error}");
        assert_eq!(error.seq, Some(21), "{error}");
        let node = error.node.clone().unwrap();
        assert!(
            node.contains("%a = all_reduce %x") && node.contains("test.hcom:4"),
            "{node}"
        );
        // Every later call says the same, at once.
        let begin = Instant::now();
        assert_eq!(failure(executable.run(&arrays).unwrap_err()), error);
        assert_eq!(failure(runtime.synchronize().unwrap_err()), error);
        assert_eq!(failure(arrays[0].to_host().unwrap_err()), error);
        assert!(begin.elapsed() < Duration::from_millis(500));
    });
}

/// A rank that is alive but never comes: the time limit names it on every other rank.
#[test]
fn a_rank_that_never_comes_is_named_after_the_time_limit() {
    for kind in Kind::ALL {
        ranks(3, kind, TIMEOUT, |rank| {
            let settings = Settings {
                timeout: Duration::from_millis(800),
                ..Settings::from_env().unwrap()
            };
            let runtime = with_settings(&rank, settings);
            let options = CompileOptions {
                mode: Mode::SingleStream,
                ..Default::default()
            };
            let executable = runtime.compile(&chain(), &options).unwrap();
            let arrays = upload(&runtime, &inputs(&chain(), rank.rank()));
            executable.run(&arrays).unwrap();
            runtime.synchronize().unwrap();
            if rank.rank() == 2 {
                // Alive, but waiting for something else: until the others have given up.
                let begin = Instant::now();
                while runtime.control().failure().is_none() {
                    assert!(begin.elapsed() < Duration::from_secs(20));
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            let error = executable
                .run(&arrays)
                .and_then(|outputs| outputs[0].to_host());
            let error = failure(error.unwrap_err());
            assert_eq!(error.kind, FailureKind::Timeout, "{error}");
            assert_eq!(
                (error.ranks.clone(), error.seq),
                (vec![2], Some(3)),
                "{error}"
            );
            assert!(
                error.node.clone().unwrap().contains("%a = all_reduce %x"),
                "{error}"
            );
        });
    }
}

/// Two collectives at the same place of a group's sequence.
#[test]
fn different_collectives_at_the_same_place_are_an_error() {
    ranks(2, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let group = Group::new("g", vec![0, 1]);
        let x = runtime.array(DType::F32, &[2], &[0; 8]).unwrap();
        let attrs = Attrs::new().with("op", ReduceOp::Sum);
        runtime
            .eager(Op::AllReduce, &attrs, Some(&group), &[&x])
            .unwrap();
        runtime.synchronize().unwrap();
        let issued = if rank.rank() == 0 {
            runtime.eager(Op::AllReduce, &attrs, Some(&group), &[&x])
        } else {
            runtime.eager(Op::AllGather, &Attrs::new(), Some(&group), &[&x])
        };
        let error = issued.and_then(|outputs| outputs[0].to_host());
        let error = failure(error.unwrap_err());
        assert!(
            matches!(error.kind, FailureKind::Mismatch | FailureKind::Library),
            "{error}"
        );
        assert_eq!(error.seq, Some(2), "{error}");
        assert!(error.got.is_some(), "{error}");
    });
}

/// Graphs that disagree never reach the device.
#[test]
fn graphs_that_disagree_are_refused_before_the_launch() {
    ranks(2, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let size = 1000 + 24 * rank.rank();
        let own = graph(&format!(
            "hcom 1
group @g = ranks(0, 1)
graph @f(%x: f32[{size}]) -> f32[{size}] {{
  %y = all_reduce %x, op = sum, group = @g
  return %y
}}
"
        ));
        let error = failure(runtime.compile(&own, &Default::default()).err().unwrap());
        assert_eq!(error.kind, FailureKind::Mismatch);
        let text = error.to_string();
        assert!(text.contains("1000") && text.contains("1024"), "{text}");
    });
}

/// Abandoned arrays and executables after a failure are dropped without a panic or a hang, and the
/// next job in the same process works.
#[test]
fn a_new_job_works_after_a_failure() {
    for _ in 0..2 {
        ranks(3, Kind::Threads, TIMEOUT, |rank| {
            let settings = Settings {
                timeout: Duration::from_millis(300),
                ..Settings::from_env().unwrap()
            };
            let runtime = with_settings(&rank, settings);
            let executable = runtime.compile(&chain(), &Default::default()).unwrap();
            let arrays = upload(&runtime, &inputs(&chain(), rank.rank()));
            if rank.rank() != 0 {
                let error = executable
                    .run(&arrays)
                    .and_then(|outputs| outputs[0].to_host());
                assert_eq!(failure(error.unwrap_err()).ranks, [0]);
            } else {
                let begin = Instant::now();
                while runtime.control().failure().is_none() {
                    assert!(begin.elapsed() < Duration::from_secs(20));
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
    }
}

fn all_reduce(runtime: &Runtime, group: &Group, x: &Array) -> Result<Vec<u8>, Error> {
    let attrs = Attrs::new().with("op", ReduceOp::Sum);
    runtime
        .eager(Op::AllReduce, &attrs, Some(group), &[x])
        .and_then(|y| y[0].to_host())
}

fn f32_array(runtime: &Runtime, value: f32) -> Array {
    runtime
        .array(DType::F32, &[1], &value.to_le_bytes())
        .unwrap()
}

/// While one thread waits in a collective, another ends the job: once, and then once more.
#[test]
fn another_thread_can_abort_and_abort_again() {
    for kind in Kind::ALL {
        ranks(2, kind, TIMEOUT, |rank| {
            let runtime = runtime(&rank);
            let group = Group::new("g", vec![0, 1]);
            let x = f32_array(&runtime, 1.0);
            all_reduce(&runtime, &group, &x).unwrap();
            let begin = Instant::now();
            let error = if rank.rank() == 0 {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let second = |runtime: &Runtime| {
                            let own = runtime.control().peers().remove(0).state.entered;
                            own.is_some_and(|entered| entered.seq == 2)
                        };
                        while !second(&runtime) {
                            assert!(begin.elapsed() < Duration::from_secs(20));
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        runtime.abort("the user pressed stop");
                        runtime.abort("again");
                    });
                    failure(all_reduce(&runtime, &group, &x).unwrap_err())
                })
            } else {
                loop {
                    if let Some(failure) = runtime.control().failure() {
                        break failure;
                    }
                    assert!(begin.elapsed() < Duration::from_secs(20));
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            assert_eq!(
                error.to_string(),
                "rank 0 aborted the job (the user pressed stop)"
            );
            assert_eq!(error.kind, FailureKind::Aborted);
            runtime.abort("and once more");
            assert_eq!(failure(runtime.synchronize().unwrap_err()), error);
            assert_eq!(failure(x.to_host().unwrap_err()), error);
        });
    }
}

/// Three of four ranks go on in a group of their own, with single operations, graphs and replays; what
/// was made before keeps refusing.
#[test]
fn survivors_go_on_in_a_new_group() {
    ranks(4, Kind::Processes, TIMEOUT, |rank| {
        let old = runtime(&rank);
        let all = Group::new("all", vec![0, 1, 2, 3]);
        let half = Group::new("half", vec![rank.rank() % 2, rank.rank() % 2 + 2]);
        let one = f32_array(&old, 1.0);
        all_reduce(&old, &half, &one).unwrap();
        all_reduce(&old, &all, &one).unwrap();
        if rank.rank() == 2 {
            rank.kill_self();
        }
        let error = failure(all_reduce(&old, &all, &one).unwrap_err());
        assert_eq!(
            (error.kind, &*error.ranks),
            (FailureKind::PeerDied, &[2][..])
        );

        let (new, survivors) = old.shrink(&[0, 1, 3]).unwrap();
        assert_eq!((new.rank(), new.world_size()), (rank.rank(), 4));
        assert_eq!(survivors.ranks, [0, 1, 3]);
        let one = f32_array(&new, 1.0);
        let three = 3f32.to_le_bytes();
        assert_eq!(all_reduce(&new, &survivors, &one).unwrap(), three);
        let graph = graph(
            "hcom 1
group @g = ranks(0, 1, 3)
graph @f(%x: f32[1]) -> f32[1] {
  %y = all_reduce %x, op = sum, group = @g
  return %y
}
",
        );
        for mode in Mode::ALL {
            let options = CompileOptions {
                mode,
                ..Default::default()
            };
            let executable = new.compile(&graph, &options).unwrap();
            assert_eq!(executable.fallback(), None);
            for _ in 0..3 {
                let y = executable.run(std::slice::from_ref(&one)).unwrap();
                assert_eq!(y[0].to_host().unwrap(), three, "{mode:?}");
            }
        }
        assert_eq!(failure(old.synchronize().unwrap_err()), error);
        drop(old);
        assert_eq!(all_reduce(&new, &survivors, &one).unwrap(), three);
    });
}

/// A rank that was only late is still there: all of them go on.
#[test]
fn a_late_rank_goes_on_with_the_others() {
    for kind in Kind::ALL {
        ranks(3, kind, TIMEOUT, |rank| {
            let settings = Settings {
                timeout: Duration::from_millis(1500),
                ..Settings::from_env().unwrap()
            };
            let mut runtime = with_settings(&rank, settings);
            let mut group = Group::new("g", vec![0, 1, 2]);
            for round in 0..2 {
                let x = f32_array(&runtime, 1.0);
                all_reduce(&runtime, &group, &x).unwrap();
                if rank.rank() == round {
                    let begin = Instant::now();
                    while runtime.control().failure().is_none() {
                        assert!(begin.elapsed() < Duration::from_secs(20));
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                let error = failure(all_reduce(&runtime, &group, &x).unwrap_err());
                assert_eq!(error.kind, FailureKind::Timeout, "{error}");
                assert_eq!(error.ranks, [round], "{error}");
                (runtime, group) = runtime.shrink(&[0, 1, 2]).unwrap();
            }
            let x = f32_array(&runtime, 1.0);
            let three = 3f32.to_le_bytes();
            assert_eq!(all_reduce(&runtime, &group, &x).unwrap(), three);
        });
    }
}
