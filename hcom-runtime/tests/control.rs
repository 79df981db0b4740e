//! The control plane with real ranks: exchanges, deaths, departures, failures.

use std::time::{Duration, Instant};

use hcom_runtime::{
    Control, ControlError, Failure, FailureKind, InProcess, Life, Position, RankState,
};
use hcom_test::{Job, Kind, ranks};

const LIMIT: Duration = Duration::from_secs(30);

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn numbers(parts: Vec<Vec<u8>>) -> Vec<u64> {
    let number = |part: Vec<u8>| u64::from_le_bytes(part.try_into().expect("eight bytes"));
    parts.into_iter().map(number).collect()
}

fn exchange(control: &dyn Control, group: &[u32], key: &str, value: u64) -> Vec<u64> {
    let parts = control.all_gather(group, key, &value.to_le_bytes(), soon());
    numbers(parts.expect("all members take part"))
}

/// Waits until `condition` holds for what `control` knows.
fn eventually(control: &dyn Control, condition: impl Fn(&dyn Control) -> bool) {
    let deadline = soon();
    while !condition(control) {
        assert!(Instant::now() < deadline, "{:?}", control.peers());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn position(op: &str, seq: u64) -> Option<Position> {
    Some(Position {
        op: op.into(),
        group: "world".into(),
        seq,
        ranks: Vec::new(),
        run: None,
    })
}

#[test]
fn parts_come_back_in_the_order_of_the_group() {
    for kind in Kind::ALL {
        ranks(4, kind, LIMIT, |rank| {
            let control = rank.control();
            let me = u64::from(rank.rank());
            for turn in 0..20 {
                let world = exchange(&*control, &[0, 1, 2, 3], "turn", 100 * turn + me);
                assert_eq!(world, [0, 1, 2, 3].map(|rank| 100 * turn + rank));
                let pair: &[u32] = if rank.rank() % 2 == 0 {
                    &[2, 0]
                } else {
                    &[1, 3]
                };
                let got = exchange(&*control, pair, "turn", 100 * turn + me);
                assert_eq!(got, [pair[0], pair[1]].map(|r| 100 * turn + u64::from(r)));
            }
            assert_eq!(exchange(&*control, &[rank.rank()], "alone", me), [me]);
        });
    }
}

#[test]
fn several_exchanges_are_outstanding_in_any_order() {
    for kind in Kind::ALL {
        ranks(2, kind, LIMIT, |rank| {
            let control = rank.control();
            let me = u64::from(rank.rank());
            std::thread::scope(|scope| {
                for key in 0..4_u64 {
                    // The ranks start the exchanges in opposite orders.
                    let key = if me == 0 { key } else { 3 - key };
                    let control = control.clone();
                    scope.spawn(move || {
                        let got =
                            exchange(&*control, &[0, 1], &format!("key {key}"), 10 * key + me);
                        assert_eq!(got, [10 * key, 10 * key + 1]);
                    });
                }
            });
        });
    }
}

#[test]
fn a_long_part_arrives_whole() {
    ranks(3, Kind::Processes, LIMIT, |rank| {
        let control = rank.control();
        let long: Vec<u8> = (0..5_000_000_u32)
            .map(|i| (i % 251) as u8 ^ rank.rank() as u8)
            .collect();
        let parts = control
            .all_gather(&[0, 1, 2], "record", &long, soon())
            .unwrap();
        for (from, part) in parts.iter().enumerate() {
            assert_eq!(part.len(), 5_000_000);
            assert!(
                part.iter()
                    .enumerate()
                    .all(|(i, b)| *b == (i % 251) as u8 ^ from as u8)
            );
        }
    });
}

#[test]
fn a_group_must_hold_distinct_ranks_and_the_own_one() {
    let control = InProcess::new(3).remove(1);
    for group in [&[0, 2][..], &[1, 1], &[1, 3], &[]] {
        let error = control.all_gather(group, "key", &[], soon()).unwrap_err();
        assert!(matches!(error, ControlError::BadGroup { .. }), "{error}");
    }
}

#[test]
fn a_late_rank_is_named_with_what_it_published_last() {
    for kind in Kind::ALL {
        ranks(3, kind, LIMIT, |rank| {
            let control = rank.control();
            if rank.rank() == 1 {
                control.publish(&RankState {
                    entered: position("all_reduce", 5),
                    completed: position("all_reduce", 4),
                    waiting: None,
                });
                exchange(&*control, &[0, 1, 2], "published", 0);
            } else {
                exchange(&*control, &[0, 1, 2], "published", 0);
                let deadline = Instant::now() + Duration::from_millis(300);
                let error = control
                    .all_gather(&[0, 1, 2], "check", &[], deadline)
                    .unwrap_err();
                let late = Instant::now() - deadline;
                assert!(late < Duration::from_secs(2), "{late:?} late");
                let ControlError::Timeout { missing, .. } = &error else {
                    panic!("{error}");
                };
                assert_eq!(missing, &[1]);
                let text = error.to_string();
                let start = "check: timed out after ";
                let seen = "waiting for rank 1 (rank 1 is inside all_reduce 5 of group world, last \
                            completed all_reduce 4 of group world";
                assert!(text.starts_with(start) && text.contains(seen), "{text}");
                let failure = error.into_failure(rank.rank());
                assert_eq!(
                    (failure.kind, failure.rank),
                    (FailureKind::Timeout, rank.rank())
                );
                assert_eq!(failure.ranks, [1]);
            }
            // Nothing is broken by it: the next exchange works.
            let again = exchange(&*control, &[0, 1, 2], "again", u64::from(rank.rank()));
            assert_eq!(again, [0, 1, 2]);
        });
    }
}

#[test]
fn a_rank_that_waits_in_an_exchange_says_so() {
    for kind in Kind::ALL {
        ranks(2, kind, LIMIT, |rank| {
            let control = rank.control();
            if rank.rank() == 0 {
                eventually(&*control, |control| {
                    control.peers()[1].state.waiting.as_deref() == Some("graph mlp for rank 0")
                });
                exchange(&*control, &[0, 1], "graph mlp", 0);
                eventually(&*control, |control| {
                    control.peers()[1].state.waiting.is_none()
                });
            } else {
                exchange(&*control, &[0, 1], "graph mlp", 1);
            }
            exchange(&*control, &[0, 1], "end", 0);
        });
    }
}

/// Rank 0 waits for rank 1, which waits for rank 2.
#[test]
fn whoever_waits_for_a_waiting_rank_learns_the_cause() {
    for kind in Kind::ALL {
        ranks(3, kind, LIMIT, |rank| {
            let control = rank.control();
            match rank.rank() {
                0 => {
                    eventually(&*control, |control| {
                        control.peers()[1].state.waiting.is_some()
                    });
                    let deadline = Instant::now() + Duration::from_millis(100);
                    let error = control
                        .all_gather(&[0, 1], "upper", &[], deadline)
                        .unwrap_err();
                    let text = error.to_string();
                    assert!(text.contains("waits in lower for rank 2"), "{text}");
                }
                1 => {
                    let error = control
                        .all_gather(&[1, 2], "lower", &[], soon())
                        .unwrap_err();
                    assert!(
                        matches!(error, ControlError::PeerLeft { rank: 2, .. }),
                        "{error}"
                    );
                }
                _ => eventually(&*control, |control| control.peers()[0].life == Life::Left),
            }
        });
    }
}

#[test]
fn a_killed_rank_ends_the_exchange_at_once() {
    ranks(4, Kind::Processes, LIMIT, |rank| {
        let control = rank.control();
        exchange(&*control, &[0, 1, 2, 3], "start", 0);
        if rank.rank() == 2 {
            // The others wait for this rank when it dies.
            eventually(&*control, |control| {
                let waits = |rank: usize| control.peers()[rank].state.waiting.is_some();
                waits(0) && waits(1) && waits(3)
            });
            rank.kill_self();
        }
        let started = Instant::now();
        let error = control
            .all_gather(
                &[0, 1, 2, 3],
                "work",
                &[],
                Instant::now() + Duration::from_secs(20),
            )
            .unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(10));
        // A rank that sees it second may find that the first one has left already.
        let failure = error.clone().into_failure(rank.rank());
        assert_eq!(failure.kind, FailureKind::PeerDied, "{error}");
        assert_eq!(failure.ranks, [2]);
        assert!(matches!(control.peers()[2].life, Life::Dead { .. }));
        // What does not need the dead rank still works.
        assert_eq!(
            exchange(&*control, &[0, 1, 3], "rest", u64::from(rank.rank())),
            [0, 1, 3]
        );
    });
}

#[test]
fn a_rank_that_has_left_is_no_failure_until_it_is_needed() {
    for kind in Kind::ALL {
        ranks(3, kind, LIMIT, |rank| {
            let control = rank.control();
            exchange(&*control, &[0, 1, 2], "work", 0);
            if rank.rank() == 1 {
                return;
            }
            drop(rank);
            eventually(&*control, |control| control.peers()[1].life == Life::Left);
            assert_eq!(control.failure(), None);
            let me = u64::from(control.rank());
            assert_eq!(exchange(&*control, &[0, 2], "more work", me), [0, 2]);
            let started = Instant::now();
            let error = control
                .all_gather(&[0, 1, 2], "work", &[], soon())
                .unwrap_err();
            assert!(started.elapsed() < Duration::from_secs(5));
            assert_eq!(
                error.to_string(),
                "work: rank 1 has left; it has entered no collective"
            );
            exchange(&*control, &[0, 2], "end", 0);
        });
    }
}

#[test]
fn a_rank_that_leaves_after_its_part_is_not_missed() {
    ranks(2, Kind::Processes, LIMIT, |rank| {
        let control = rank.control();
        if rank.rank() == 1 {
            // Sends its part, cannot wait for the other one, and ends.
            let _ = control.all_gather(&[0, 1], "last", &[7; 100_000], Instant::now());
            return;
        }
        eventually(&*control, |control| control.peers()[1].life == Life::Left);
        let parts = control.all_gather(&[0, 1], "last", &[], soon()).unwrap();
        assert_eq!(parts, [vec![], vec![7; 100_000]]);
    });
}

#[test]
fn the_first_failure_reaches_everyone_and_stays() {
    for kind in Kind::ALL {
        ranks(4, kind, LIMIT, |rank| {
            let control = rank.control();
            exchange(&*control, &[0, 1, 2, 3], "start", 0);
            let failure = |rank| Failure {
                op: Some("all_reduce".into()),
                seq: Some(3),
                ..Failure::new(FailureKind::Library, rank)
            };
            if rank.rank() == 3 {
                eventually(&*control, |control| {
                    control.peers()[0].state.waiting.is_some()
                });
                control.fail(&failure(3));
                control.fail(&failure(0));
            }
            let started = Instant::now();
            for _ in 0..2 {
                let error = control
                    .all_gather(&[0, 1, 2, 3], "work", &[], soon())
                    .unwrap_err();
                assert_eq!(error, ControlError::Failed(Box::new(failure(3))));
            }
            assert!(started.elapsed() < Duration::from_secs(5));
            control.fail(&failure(rank.rank()));
            assert_eq!(control.failure(), Some(failure(3)));
        });
    }
}

#[test]
fn a_panic_is_a_death_not_a_departure() {
    let mut controls = InProcess::new(2);
    let (one, zero) = (controls.pop().unwrap(), controls.pop().unwrap());
    let died = std::thread::spawn(move || {
        let _control = one;
        std::panic::resume_unwind(Box::new("no message on the terminal"));
    });
    let error = zero.all_gather(&[0, 1], "work", &[], soon()).unwrap_err();
    assert_eq!(error.to_string(), "work: rank 1 died (it panicked)");
    assert!(died.join().is_err());
}

/// A rank that is stopped reads nothing. Reporting to it must neither block nor grow.
#[test]
fn a_stopped_rank_holds_nobody_up() {
    ranks(2, Kind::Processes, LIMIT, |rank| {
        let control = rank.control();
        let me = std::process::id();
        let ids = exchange(&*control, &[0, 1], "process", u64::from(me));
        if rank.rank() == 1 {
            exchange(&*control, &[0, 1], "continued", 0);
            return;
        }
        let stopped = rustix::process::Pid::from_raw(ids[1] as i32).unwrap();
        rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
        let state = RankState {
            entered: position(&"x".repeat(4000), 1),
            ..RankState::default()
        };
        let started = Instant::now();
        for _ in 0..3_000 {
            control.publish(&state);
        }
        let error = control
            .all_gather(
                &[0, 1],
                "stopped",
                &[1; 1_000_000],
                Instant::now() + Duration::from_millis(100),
            )
            .unwrap_err();
        assert!(matches!(error, ControlError::Timeout { .. }), "{error}");
        assert!(
            started.elapsed() < Duration::from_secs(8),
            "{:?}",
            started.elapsed()
        );
        rustix::process::kill_process(stopped, rustix::process::Signal::CONT).unwrap();
        exchange(&*control, &[0, 1], "continued", 0);
    });
}

/// A question shows which ranks do not run; a rank that is only busy answers.
#[test]
fn a_stopped_rank_is_silent_and_a_busy_one_is_not() {
    ranks(3, Kind::Processes, LIMIT, |rank| {
        let control = rank.control();
        let me = u64::from(std::process::id());
        let ids = exchange(&*control, &[0, 1, 2], "process", me);
        if rank.rank() == 0 {
            let patience = Duration::from_secs(1);
            let process = rustix::process::Pid::from_raw(ids[1] as i32).unwrap();
            let signal = |signal| rustix::process::kill_process(process, signal).unwrap();
            signal(rustix::process::Signal::STOP);
            eventually(&*control, |control| {
                let silent = control.silent(&[0, 1, 2], patience);
                assert!(!silent.contains(&2), "rank 2 runs");
                silent == [1]
            });
            signal(rustix::process::Signal::CONT);
            eventually(&*control, |control| {
                control.silent(&[1], patience).is_empty()
            });
        }
        exchange(&*control, &[0, 1, 2], "over", 0);
    });
}

/// Many jobs at a time on one host, none with a fixed port.
#[test]
fn jobs_side_by_side_do_not_meet() {
    Job::new(4, Kind::Processes, LIMIT).copies(50).run(|rank| {
        let control = rank.control();
        let mine = |of: u32| u64::from(10 * rank.job() + of);
        let got = exchange(&*control, &[0, 1, 2, 3], "job", mine(rank.rank()));
        assert_eq!(got, [0, 1, 2, 3].map(mine));
    });
}
