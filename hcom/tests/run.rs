//! `hcom run` against values computed by hand.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{Folder, finish, hcom};
use serde_json::{Value, json};

const MODES: [&str; 4] = ["eager", "launch", "replay", "split"];

/// Runs with `--json` in one mode and returns the ranks' objects.
#[track_caller]
fn ranks(mode: &str, arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["run", "--json", "--timeout", "30", "--mode", mode];
    all.extend(arguments);
    let done = finish(&mut hcom(&all));
    assert_eq!(done.code, Some(0), "{mode}: {}\n{}", done.out, done.err);
    let object: Value = serde_json::from_str(&done.out).expect("one JSON object");
    let ranks = object["ranks"].as_array().expect("ranks").clone();
    for (rank, object) in ranks.iter().enumerate() {
        assert_eq!(object["rank"], rank);
    }
    ranks
}

/// Runs in every mode with these inputs; the ranks' outputs must be `expected`.
#[track_caller]
fn check(files: &[&str], inputs: Value, expected: &[Value]) {
    let folder = Folder::new();
    let inputs = folder.file("inputs.json", &inputs.to_string());
    for mode in MODES {
        let mut arguments = files.to_vec();
        arguments.extend(["--inputs", &inputs]);
        let outputs: Vec<Value> = ranks(mode, &arguments)
            .iter()
            .map(|rank| rank["outputs"].clone())
            .collect();
        assert_eq!(outputs, expected, "{mode}");
    }
}

#[test]
fn all_reduce_then_square() {
    // 1 + 10 = 11, 2 + 20 = 22; squares 121 and 484.
    let y = json!({"y": [121.0, 484.0]});
    check(
        &["examples/all_reduce.hcom"],
        json!({"0": {"x": [1, 2]}, "1": {"x": [10, 20]}}),
        &[y.clone(), y],
    );
}

#[test]
fn broadcast_of_exact_integers() {
    let y = json!({"y": [9_007_199_254_740_993_i64, -1, 30]});
    check(
        &["examples/broadcast.hcom"],
        json!({"all": {"x": [0, 0, 0]}, "2": {"x": [9_007_199_254_740_993_i64, -1, 30]}}),
        &[y.clone(), y.clone(), y.clone(), y],
    );
}

#[test]
fn all_gather_matmul_reduce_scatter() {
    // With the identity as w on rank 0 and twice the identity on rank 1, the sum of the products is three times the
    // gathered rows; rank r keeps rows 2r and 2r + 1.
    let inputs = json!({
        "0": {"x": [[1, 2, 3], [4, 5, 6]], "w": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]},
        "1": {"x": [[7, 8, 9], [10, 11, 12]], "w": [[2, 0, 0], [0, 2, 0], [0, 0, 2]]},
    });
    let whole = json!([
        [1.0, 2.0, 3.0],
        [4.0, 5.0, 6.0],
        [7.0, 8.0, 9.0],
        [10.0, 11.0, 12.0]
    ]);
    check(
        &["examples/shard.hcom"],
        inputs,
        &[
            json!({"whole": whole, "own": [[3.0, 6.0, 9.0], [12.0, 15.0, 18.0]]}),
            json!({"whole": whole, "own": [[21.0, 24.0, 27.0], [30.0, 33.0, 36.0]]}),
        ],
    );
}

#[test]
fn a_program_of_its_own_for_each_rank() {
    check(
        &["examples/pair.r0.hcom", "examples/pair.r1.hcom"],
        json!({"0": {"x": [1, 2]}, "1": {"x": [10, 20]}}),
        &[json!({"y": [11.0, 22.0]}), json!({"y": [-10.0, -20.0]})],
    );
}

#[test]
fn an_input_that_is_written_is_seen_afterwards() {
    let folder = Folder::new();
    let inputs = folder.file("in.json", r#"{"0": {"x": [1, 2]}, "1": {"x": [10, 20]}}"#);
    for mode in MODES {
        // The second step adds the sums of the first: 11 + 11 = 22.
        for (steps, sum) in [("1", [11.0, 22.0]), ("2", [22.0, 44.0])] {
            let arguments = [
                "examples/in_place.hcom",
                "--inputs",
                &inputs,
                "--steps",
                steps,
            ];
            for rank in ranks(mode, &arguments) {
                assert_eq!(
                    rank["inputs_after"],
                    json!({"x": sum}),
                    "{mode}, {steps} steps"
                );
                assert_eq!(
                    rank["outputs"],
                    json!({"y": [2.0 * sum[0], 2.0 * sum[1]]}),
                    "{mode}"
                );
            }
        }
    }
}

#[test]
fn a_size_that_is_given_on_the_command_line() {
    let folder = Folder::new();
    let inputs = folder.file("in.json", r#"{"0": {"x": [[1, 2]]}, "1": {"x": [[3, 4]]}}"#);
    for rank in ranks(
        "launch",
        &["examples/batch.hcom", "--dim", "s0=1", "--inputs", &inputs],
    ) {
        assert_eq!(rank["outputs"]["y"], json!([[1.0, 2.0], [3.0, 4.0]]));
    }
    // Without rows there is nothing to gather, and it still returns.
    for rank in ranks("launch", &["examples/batch.hcom", "--dim", "s0=0"]) {
        assert_eq!(rank["outputs"]["y"], json!([]));
    }
}

#[test]
fn missing_inputs_are_random_alike_in_every_mode() {
    let all: Vec<Vec<Value>> = MODES
        .iter()
        .map(|mode| ranks(mode, &["examples/all_reduce.hcom", "--seed", "7"]))
        .collect();
    assert_eq!(all[0][0]["outputs"], all[1][1]["outputs"]);
    assert_eq!(all[0][0]["outputs"], all[2][0]["outputs"]);
    let other = ranks("launch", &["examples/all_reduce.hcom", "--seed", "8"]);
    assert_ne!(all[0][0]["outputs"], other[0]["outputs"]);
}

#[test]
fn numbers_that_json_has_no_digits_for() {
    let folder = Folder::new();
    let inputs = folder.file(
        "in.json",
        r#"{"0": {"x": ["NaN", "Infinity"]}, "1": {"x": [1, 2]}}"#,
    );
    for rank in ranks("launch", &["examples/all_reduce.hcom", "--inputs", &inputs]) {
        assert_eq!(rank["outputs"]["y"], json!(["NaN", "Infinity"]));
    }
}

#[test]
fn the_model_of_the_examples_runs_on_two_ranks() {
    let ranks = ranks("launch", &["examples/mlp.hcom", "--ranks", "2"]);
    assert_eq!(ranks[0]["outputs"], ranks[1]["outputs"]);
    assert_eq!(ranks[0]["outputs"]["y"].as_array().map(Vec::len), Some(8));
}

#[test]
fn a_person_sees_outputs_and_time() {
    let done = finish(&mut hcom(&[
        "run",
        "examples/all_reduce.hcom",
        "--inputs",
        "examples/all_reduce.json",
    ]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(
        done.out.contains("rank 1\n  y = [121.0, 484.0]\n"),
        "{}",
        done.out
    );
    assert!(done.out.contains("2 ranks, 1 step, "), "{}", done.out);
}

/// The command refuses its input with exit code 2 and a message with these parts.
#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let mut all = vec!["run"];
    all.extend(arguments);
    let done = finish(&mut hcom(&all));
    assert_eq!(done.code, Some(2), "{}\n{}", done.out, done.err);
    for part in parts {
        assert!(
            done.err.contains(part),
            "{part:?} is missing in\n{}",
            done.err
        );
    }
    assert!(!done.err.contains("panicked"), "{}", done.err);
}

#[test]
fn bad_input_says_what_where_expected_and_got() {
    let folder = Folder::new();
    let inputs = |json: &str| folder.file("in.json", json);
    let graph = "examples/all_reduce.hcom";
    refused(
        &[graph, "--inputs", &inputs(r#"{"all": {"x": [1, 2, 3]}}"#)],
        &[
            "input \"x\" is not f32[2]",
            "rank 0, x",
            "expected: a list of 2",
            "got: a list of 3",
        ],
    );
    refused(
        &[graph, "--inputs", &inputs(r#"{"5": {}}"#)],
        &["expected: \"all\", or a rank from 0 to 1", "got: \"5\""],
    );
    refused(
        &[graph, "--inputs", &inputs("{")],
        &["the inputs are no JSON", "in.json:1:1"],
    );
    refused(
        &[graph, "--inputs", "no-such.json"],
        &["cannot read the inputs no-such.json"],
    );
    refused(
        &[graph, "--ranks", "1"],
        &[
            "group @all has rank 1, the job has 1 ranks",
            "help: run it with --ranks 2",
        ],
    );
    refused(
        &[
            "examples/pair.r0.hcom",
            "examples/pair.r1.hcom",
            "--ranks",
            "3",
        ],
        &["expected: 1 or 3 files for 3 ranks", "got: 2 files"],
    );
    refused(
        &["examples/batch.hcom"],
        &[
            "sizes of graph @batch are not known: s0",
            "help: --dim s0=8",
        ],
    );
    refused(&[graph, "--dim", "s0=8"], &["no graph has a symbol s0"]);
    refused(&[graph, "--dim", "s0"], &["expected SYMBOL=SIZE"]);
    refused(&[graph, "--mode", "fast"], &["eager", "launch", "split"]);
    refused(&[graph, "--steps", "0"], &["--steps"]);
}

#[test]
fn ranks_that_differ_are_told_both_sides() {
    let folder = Folder::new();
    let program = |count: u32| {
        let text = format!(
            "hcom 1\ngroup @pair = ranks(0, 1)\ngraph @g(%x: f32[{count}]) -> f32[{count}] {{\n  %y = all_reduce %x, op = sum, group = @pair\n  return %y\n}}\n"
        );
        folder.file(&format!("{count}.hcom"), &text)
    };
    let done = finish(&mut hcom(&[
        "run",
        &program(2),
        &program(3),
        "--json",
        "--timeout",
        "5",
    ]));
    assert_eq!(done.code, Some(1), "{}\n{}", done.out, done.err);
    let object: Value = serde_json::from_str(&done.out).expect("one JSON object");
    let ranks = object["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    for rank in ranks {
        let error = &rank["error"];
        assert_eq!(error["kind"], "mismatch", "{error}");
        assert_eq!(error["op"], "all_reduce", "{error}");
        assert_eq!(error["group"], "pair", "{error}");
        assert_eq!(error["seq"], 1, "{error}");
        let sides = format!("{} {}", error["expected"], error["got"]);
        assert!(sides.contains('2') && sides.contains('3'), "{error}");
        for key in ["rank", "ranks", "node", "help"] {
            assert!(error.get(key).is_some(), "{key} is missing in {error}");
        }
    }
}

#[test]
fn a_rank_started_twice_is_refused_with_exit_code_2() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    // The port is taken by someone who is no rank.
    let done = finish(
        hcom(&["run", "examples/all_reduce.hcom", "--timeout", "2"])
            .env("RANK", "0")
            .env("LOCAL_RANK", "0")
            .env("WORLD_SIZE", "2")
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", &port)
            .env("HCOM_CONNECT_TIMEOUT", "2"),
    );
    assert_eq!(done.code, Some(2), "{}\n{}", done.out, done.err);
    assert!(done.err.contains(&port), "{}", done.err);
    drop(listener);

    let ranks = [0, 0].map(|rank: u32| {
        hcom(&["run", "examples/all_reduce.hcom", "--timeout", "2"])
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", "0")
            .env("WORLD_SIZE", "2")
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", &port)
            .env("HCOM_CONNECT_TIMEOUT", "2")
            .spawn()
            .unwrap()
    });
    for done in ranks.map(common::wait) {
        assert_eq!(done.code, Some(2), "{}\n{}", done.out, done.err);
        assert!(!done.err.contains("panicked"), "{}", done.err);
    }
}

/// Processes whose parent is `parent`, and how many clock ticks each has used.
fn children(parent: u32) -> Vec<(u32, u64)> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // Behind the name: state, parent, …, user time (12th), system time (13th).
            let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
            let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
            (number(1)? == u64::from(parent)).then_some(())?;
            Some((pid, number(11)? + number(12)?))
        })
        .collect()
}

#[test]
fn a_killed_rank_is_named_by_the_others_within_seconds() {
    let job = hcom(&[
        "run",
        "examples/broadcast.hcom",
        "--steps",
        "1000000000",
        "--json",
    ])
    .spawn()
    .unwrap();
    // Half a second of work on every rank is far beyond its start.
    let end = Instant::now() + common::LIMIT;
    let ranks = loop {
        let ranks = children(job.id());
        if ranks.len() == 4 && ranks.iter().all(|(_, ticks)| *ticks >= 50) {
            break ranks;
        }
        assert!(
            Instant::now() < end,
            "the ranks do not get to work: {ranks:?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    };
    let start = Instant::now();
    let killed = Command::new("kill")
        .args(["-KILL", &ranks[2].0.to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let done = common::wait(job);
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "it took {:?}",
        start.elapsed()
    );
    assert_eq!(done.code, Some(128 + 9), "{}", done.err);

    let object: Value = serde_json::from_str(&done.out).expect("one JSON object");
    let reports = object["ranks"].as_array().unwrap();
    let dead = reports
        .iter()
        .position(|report| report["error"]["kind"] == "ended")
        .expect("the killed rank has no report of its own");
    for (rank, report) in reports.iter().enumerate().filter(|(rank, _)| *rank != dead) {
        let error = &report["error"];
        assert_eq!(error["kind"], "peer_died", "rank {rank}: {error}");
        assert_eq!(error["ranks"], json!([dead]), "rank {rank}: {error}");
        assert_eq!(error["op"], "broadcast", "rank {rank}: {error}");
        assert_eq!(error["group"], "all", "rank {rank}: {error}");
    }
    for (pid, _) in ranks {
        assert!(
            !std::path::Path::new(&format!("/proc/{pid}")).exists(),
            "process {pid} is left"
        );
    }
}
