//! Ranks whose graphs do not fit are told so, all of them, before anything is launched.

use std::time::{Duration, Instant};

use hcom_ir::{Graph, parse};
use hcom_runtime::{Failure, FailureKind, Uniformity, crosscheck::check};
use hcom_test::{Kind, Rank, ranks};

const LIMIT: Duration = Duration::from_secs(20);
const TIMEOUT: Duration = Duration::from_secs(10);

fn graph(text: &str) -> Graph {
    parse(&format!("hcom 1\n{text}"), "test.hcom").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A graph of one operation `op` in the group of all `world_size` ranks, on an operand of type `ty`.
fn one(world_size: u32, ty: &str, op: &str) -> Graph {
    let all: Vec<String> = (0..world_size).map(|rank| rank.to_string()).collect();
    graph(&format!(
        "group @tp = ranks({})\ngraph @g(%x: {ty}) -> {ty} {{\n  %y = {op}, group = @tp\n  return %y\n}}",
        all.join(", ")
    ))
}

/// Checks the graph that `of_rank` gives to each rank, with ranks of both kinds; every rank must get
/// the same failure, but for who noticed it. `accept` looks at it.
fn all_fail(
    world_size: u32,
    of_rank: impl Fn(u32) -> Graph + Send + Sync + Copy + 'static,
    accept: impl Fn(&Failure) + Send + Sync + Copy + 'static,
) {
    for kind in Kind::ALL {
        ranks(world_size, kind, LIMIT, move |rank| {
            let control = rank.control();
            let started = Instant::now();
            let failure = check(&*control, &of_rank(rank.rank()), b"", TIMEOUT).unwrap_err();
            assert!(started.elapsed() < TIMEOUT / 2, "{failure}");
            assert_eq!(failure.kind, FailureKind::Mismatch, "{failure}");
            accept(&failure);
            // Nothing works any more.
            let later = control.all_gather(&[rank.rank()], "later", b"", Instant::now() + TIMEOUT);
            let kept = later.unwrap_err().into_failure(rank.rank());
            accept(&kept);
        });
    }
}

fn all_agree(
    world_size: u32,
    of_rank: impl Fn(u32) -> Graph + Send + Sync + Copy + 'static,
    expected: Uniformity,
) {
    for kind in Kind::ALL {
        let expected = expected.clone();
        ranks(world_size, kind, LIMIT, move |rank| {
            let control = rank.control();
            for _ in 0..2 {
                let uniformity = check(&*control, &of_rank(rank.rank()), b"", TIMEOUT);
                assert_eq!(uniformity, Ok(expected.clone()));
            }
        });
    }
}

fn pinned(reason: &str) -> Uniformity {
    Uniformity::Pinned {
        reason: reason.into(),
    }
}

fn sides(failure: &Failure) -> [&str; 2] {
    [&failure.expected, &failure.got].map(|side| side.as_deref().expect("both sides"))
}

#[test]
fn different_counts_name_both_counts() {
    let of_rank = |rank| {
        let rows = if rank == 0 { 100 } else { 200 };
        one(4, &format!("f32[{rows}, 2560]"), "all_reduce %x, op = sum")
    };
    all_fail(4, of_rank, |failure| {
        assert_eq!(failure.op.as_deref(), Some("all_reduce"));
        assert_eq!(failure.group.as_deref(), Some("tp"));
        assert_eq!(failure.seq, Some(1));
        assert_eq!(failure.ranks, [0, 1]);
        assert_eq!(
            failure.node.as_deref(),
            Some("%y = all_reduce %x, op = sum, group = @tp")
        );
        let [expected, got] = sides(failure);
        assert!(
            expected.starts_with("`all_reduce f32, op = sum, count = 256000` on rank 0"),
            "{expected}"
        );
        assert!(
            got.starts_with("`all_reduce f32, op = sum, count = 512000` on rank 1"),
            "{got}"
        );
    });
    let of_rank = |rank| {
        let count = if rank == 2 { 409_598 } else { 409_600 };
        one(4, &format!("f32[{count}]"), "all_reduce %x, op = sum")
    };
    all_fail(4, of_rank, |failure| {
        assert_eq!(failure.ranks, [0, 2]);
        let [expected, got] = sides(failure);
        assert!(expected.contains("count = 409600") && got.contains("count = 409598"));
    });
}

#[test]
fn different_element_types_are_caught_even_with_equal_bytes() {
    const PAIRS: [[&str; 2]; 3] = [["bf16", "f32"], ["f32", "i64"], ["i32", "f32"]];
    let of_rank = |rank: u32, pair: usize| {
        let dtype = PAIRS[pair][usize::from(rank != 0)];
        one(3, &format!("{dtype}[1]"), "all_reduce %x, op = sum")
    };
    let accept = |failure: &Failure, pair: usize| {
        let [expected, got] = sides(failure);
        let [zero, other] = PAIRS[pair];
        assert!(expected.starts_with(&format!(
            "`all_reduce {zero}, op = sum, count = 1` on rank 0"
        )));
        assert!(got.starts_with(&format!(
            "`all_reduce {other}, op = sum, count = 1` on rank 1"
        )));
    };
    all_fail(
        3,
        move |rank| of_rank(rank, 0),
        move |failure| accept(failure, 0),
    );
    all_fail(
        3,
        move |rank| of_rank(rank, 1),
        move |failure| accept(failure, 1),
    );
    all_fail(
        3,
        move |rank| of_rank(rank, 2),
        move |failure| accept(failure, 2),
    );
}

#[test]
fn different_reductions_and_roots_are_caught() {
    let reduction = |rank| {
        let op = if rank == 1 { "max" } else { "sum" };
        one(2, "f32[4]", &format!("all_reduce %x, op = {op}"))
    };
    all_fail(2, reduction, |failure| {
        let [expected, got] = sides(failure);
        assert!(expected.contains("op = sum") && got.contains("op = max"));
    });
    let root = |rank| one(2, "f32[4]", &format!("broadcast %x, root = {rank}"));
    all_fail(2, root, |failure| {
        let [expected, got] = sides(failure);
        assert!(expected.contains("root = 0") && got.contains("root = 1"));
    });
}

/// A graph of these operations on `%x: f32[4]` in the group of ranks 0 and 1, that returns `result`.
fn sequence(ops: &[&str], result: &str) -> Graph {
    let mut body = String::new();
    for (index, op) in ops.iter().enumerate() {
        body += &format!("  %v{index} = {op}, group = @tp\n");
    }
    graph(&format!(
        "group @tp = ranks(0, 1)\ngraph @g(%x: f32[4]) -> f32[4] {{\n{body}  return %{result}\n}}"
    ))
}

const SUM: &str = "all_reduce %x, op = sum";
const FROM_0: &str = "broadcast %x, root = 0";

#[test]
fn the_first_entry_that_differs_is_named() {
    let swapped = |rank| match rank {
        0 => sequence(&[SUM, SUM, FROM_0], "v1"),
        _ => sequence(&[SUM, FROM_0, SUM], "v1"),
    };
    all_fail(2, swapped, |failure| {
        assert_eq!(failure.seq, Some(2));
        let [expected, got] = sides(failure);
        assert!(expected.starts_with("`all_reduce") && got.starts_with("`broadcast"));
    });
    let longer = |rank| match rank {
        0 => sequence(&[SUM], "v0"),
        _ => sequence(&[SUM, FROM_0], "v0"),
    };
    all_fail(2, longer, |failure| {
        assert_eq!(
            (failure.seq, failure.op.as_deref()),
            (Some(2), Some("broadcast"))
        );
        assert_eq!(sides(failure)[0], "no further operation on rank 0");
    });
}

/// The result of a collective is used on one rank only. Both take part in it.
#[test]
fn a_rank_that_drops_a_result_pins_the_order() {
    let of_rank = |rank| sequence(&[SUM], if rank == 0 { "v0" } else { "x" });
    all_agree(2, of_rank, pinned("graph of rank 1 and of rank 0 differ"));
}

/// One rank does not communicate at all; the other one must not wait for it for ever.
#[test]
fn a_rank_without_the_collective_is_named_when_it_ends() {
    for kind in Kind::ALL {
        ranks(2, kind, LIMIT, |rank| {
            let control = rank.control();
            if rank.rank() == 1 {
                let nothing = sequence(&[], "x");
                assert_eq!(
                    check(&*control, &nothing, b"", TIMEOUT),
                    Ok(Uniformity::Uniform)
                );
                return;
            }
            let failure = check(&*control, &sequence(&[SUM], "v0"), b"", TIMEOUT).unwrap_err();
            assert_eq!(failure.kind, FailureKind::PeerLeft);
            assert_eq!(
                (failure.group.as_deref(), &failure.ranks[..]),
                (Some("tp"), &[1][..])
            );
        });
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_everywhere() {
    for kind in Kind::ALL {
        ranks(3, kind, LIMIT, |rank| {
            let control = rank.control();
            let timeout = Duration::from_millis(300);
            let graph = one(3, "f32[4]", SUM);
            let failure = if rank.rank() == 1 {
                // It learns what it did wrong.
                let deadline = Instant::now() + TIMEOUT;
                loop {
                    match control.failure() {
                        Some(failure) => break failure,
                        None => assert!(Instant::now() < deadline),
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            } else {
                check(&*control, &graph, b"", timeout).unwrap_err()
            };
            assert_eq!(failure.kind, FailureKind::Timeout);
            assert_eq!(failure.ranks, [1]);
            assert_eq!(failure.group.as_deref(), Some("tp"));
        });
    }
}

#[test]
fn equal_graphs_are_uniform_whatever_their_constants() {
    let shards = |rank: u32| {
        let weights = if rank == 0 { "[1, 2]" } else { "[3, 4]" };
        graph(&format!(
            "group @tp = ranks(0, 1)\ngraph @g(%x: f32[2]) -> f32[2] {{\n  %w = constant value = \
             f32[2] {weights}\n  %p = mul %x, %w\n  %y = all_reduce %p, op = sum, group = @tp\n  \
             return %y\n}}"
        ))
    };
    all_agree(2, shards, Uniformity::Uniform);
}

#[test]
fn different_settings_pin_the_order() {
    ranks(2, Kind::Threads, LIMIT, |rank: Rank| {
        let settings = [rank.rank() as u8];
        let uniformity = check(
            &*rank.control(),
            &sequence(&[SUM], "v0"),
            &settings,
            TIMEOUT,
        );
        let reason = "version or planner settings of rank 1 and of rank 0 differ";
        assert_eq!(uniformity, Ok(pinned(reason)));
    });
}

#[test]
fn several_groups_never_wait_for_each_other() {
    let of_rank = |rank: u32| {
        let (row, column) = (rank / 2, rank % 2);
        // Ranks name their two groups in different orders.
        let rows = format!("group @a = ranks({}, {})", 2 * row, 2 * row + 1);
        let columns = format!("group @b = ranks({}, {})", column, column + 2);
        let groups = if rank.is_multiple_of(3) {
            [rows, columns]
        } else {
            [columns, rows]
        };
        graph(&format!(
            "{}\ngraph @g(%x: f32[2]) -> f32[2] {{\n  %y = all_reduce %x, op = sum, group = @a\n  %z = \
             all_reduce %y, op = sum, group = @b\n  return %z\n}}",
            groups.join("\n")
        ))
    };
    for kind in Kind::ALL {
        ranks(4, kind, LIMIT, move |rank| {
            for _ in 0..10 {
                let uniformity = check(&*rank.control(), &of_rank(rank.rank()), b"", TIMEOUT);
                assert!(
                    matches!(uniformity, Ok(Uniformity::Pinned { .. })),
                    "{uniformity:?}"
                );
            }
        });
    }
}

/// Rank 0 sends `%x` of type `sent`, rank 1 receives type `received`.
fn transfer(rank: u32, sent: &str, received: &str) -> Graph {
    let body = match rank {
        0 => format!(
            "(%x: {sent}) -> {sent} {{\n  send %x, peer = 1, tag = 7, group = @pp\n  return %x\n}}"
        ),
        _ => format!(
            "() -> {received} {{\n  %x = recv {received}, peer = 0, tag = 7, group = @pp\n  return %x\n}}"
        ),
    };
    graph(&format!("group @pp = ranks(0, 1)\ngraph @g{body}"))
}

#[test]
fn sends_and_receives_must_pair() {
    all_agree(
        2,
        |rank| transfer(rank, "f32[4]", "f32[4]"),
        pinned("graph of rank 1 and of rank 0 differ"),
    );
    all_fail(
        2,
        |rank| transfer(rank, "f32[4]", "f32[3]"),
        |failure| {
            assert_eq!(
                (failure.op.as_deref(), failure.seq),
                (Some("send"), Some(1))
            );
            assert_eq!(failure.group.as_deref(), Some("pp"));
            assert_eq!(failure.ranks, [0, 1]);
            assert_eq!(
                sides(failure),
                [
                    "rank 0 sends 4 elements of f32",
                    "rank 1 receives 3 elements of f32"
                ]
            );
        },
    );
    all_fail(
        2,
        |rank| transfer(rank, "f32[4]", "i32[4]"),
        |failure| {
            assert_eq!(
                sides(failure),
                [
                    "rank 0 sends 4 elements of f32",
                    "rank 1 receives 4 elements of i32"
                ]
            );
        },
    );
}

/// Ranks 0 and 2 of three exchange a value in a group of all; rank 1 has nothing to do with it.
#[test]
fn members_that_neither_send_nor_receive_are_not_waited_for() {
    let of_rank = |rank: u32| {
        let body = match rank {
            0 => "(%x: f32[2]) {\n  send %x, peer = 2, group = @g\n}",
            1 => "(%x: f32[2]) -> f32[2] {\n  return %x\n}",
            _ => "() -> f32[2] {\n  %y = recv f32[2], peer = 0, group = @g\n  return %y\n}",
        };
        graph(&format!("group @g = ranks(0, 1, 2)\ngraph @g{body}"))
    };
    for kind in Kind::ALL {
        ranks(3, kind, LIMIT, move |rank| {
            let rank_of = rank.rank();
            let uniformity = check(&*rank.control(), &of_rank(rank_of), b"", TIMEOUT);
            let expected = match rank_of {
                1 => Uniformity::Uniform,
                _ => pinned("graph of rank 2 and of rank 0 differ"),
            };
            assert_eq!(uniformity, Ok(expected));
        });
    }
}
