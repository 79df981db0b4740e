//! `hcom launch`: output, failures, signals, and that no process is left.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Folder, LIMIT, finish, hcom, wait};

/// `hcom launch` of a shell script.
fn script(ranks: &str, options: &[&str], script: &str) -> Command {
    let mut arguments = vec!["launch", "-n", ranks];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", script]);
    hcom(&arguments)
}

/// Waits for a process to be gone, or to be dead and not yet collected by whoever inherited it.
#[track_caller]
fn assert_ends(pid: &str) {
    let stat = format!("/proc/{pid}/stat");
    let end = Instant::now() + LIMIT;
    while let Ok(text) = std::fs::read_to_string(&stat) {
        let state = text
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().next());
        if matches!(state, Some("Z" | "X")) {
            return;
        }
        assert!(Instant::now() < end, "process {pid} is left: {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn wait_for(path: &Path) -> String {
    let end = Instant::now() + LIMIT;
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(Instant::now() < end, "{} does not appear", path.display()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_rank_gets_its_place_and_its_lines_their_prefix() {
    let done = finish(&mut script(
        "3",
        &[],
        "echo $RANK/$LOCAL_RANK of $WORLD_SIZE/$LOCAL_WORLD_SIZE; echo to stderr >&2; printf 'no end'",
    ));
    assert_eq!(done.code, Some(0), "{}", done.err);
    for rank in 0..3 {
        assert!(
            done.out
                .contains(&format!("[rank {rank}] {rank}/{rank} of 3/3\n")),
            "{}",
            done.out
        );
        assert!(
            done.out.contains(&format!("[rank {rank}] no end\n")),
            "{}",
            done.out
        );
        assert!(
            done.err.contains(&format!("[rank {rank}] to stderr\n")),
            "{}",
            done.err
        );
    }
    assert!(!done.out.contains('\x1b'), "colours belong on a terminal");
}

#[test]
fn lines_of_ranks_that_print_at_once_are_whole() {
    let line = "x".repeat(3000);
    let done = finish(&mut script(
        "4",
        &[],
        &format!("i=0; while [ $i -lt 200 ]; do echo $RANK-$i-{line}; i=$((i+1)); done"),
    ));
    assert_eq!(done.code, Some(0));
    let mut seen = [0; 4];
    for text in done.out.lines() {
        let (prefix, rest) = text.split_at("[rank 0] ".len());
        let rank: usize = prefix[6..7].parse().unwrap();
        assert_eq!(rest, format!("{rank}-{}-{line}", seen[rank]));
        seen[rank] += 1;
    }
    assert_eq!(seen, [200; 4]);
}

#[test]
fn ranks_of_one_job_share_a_port_on_which_rank_0_can_listen() {
    let program = "import os, socket\n\
        s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
        address = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n\
        if os.environ['RANK'] == '0':\n    s.bind(address); s.listen(); print('listening', address[1])\n\
        else:\n    print('port', address[1])\n";
    let done = finish(&mut hcom(&[
        "launch", "--ranks", "2", "--", "python3", "-c", program,
    ]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    let port = |rank: &str| {
        let line = done
            .out
            .lines()
            .find(|line| line.starts_with(rank))
            .expect("a line");
        line.rsplit(' ').next().map(str::to_owned)
    };
    assert_eq!(port("[rank 0]"), port("[rank 1]"));
    assert!(done.out.contains("listening"));
}

#[test]
fn after_a_failure_the_others_may_report_and_then_get_sigterm() {
    let start = Instant::now();
    let done = finish(&mut script(
        "3",
        &["--timeout", "0.5"],
        "if [ $RANK = 1 ]; then exit 7; fi\n\
         trap 'echo ended politely; exit 0' TERM\n\
         while :; do sleep 0.05; done",
    ));
    assert_eq!(done.code, Some(7));
    assert!(
        done.err.contains(
            "hcom: rank 1 ended with exit code 7; the 2 other ranks have 2.5 s to report"
        ),
        "{}",
        done.err
    );
    assert!(start.elapsed() >= Duration::from_millis(2500));
    assert_eq!(done.out.matches("ended politely").count(), 2);
}

#[test]
fn a_rank_that_ignores_sigterm_is_killed() {
    let done = finish(&mut script(
        "2",
        &["--timeout", "0.1"],
        "trap '' TERM; if [ $RANK = 0 ]; then kill -SEGV $$; fi; while :; do sleep 0.05; done",
    ));
    assert_eq!(done.code, Some(128 + 11));
    assert!(
        done.err.contains("rank 0 was ended by SIGSEGV"),
        "{}",
        done.err
    );
}

#[test]
fn the_first_failure_gives_the_exit_code_and_json_tells_it() {
    let done = finish(&mut script(
        "2",
        &["--json"],
        "if [ $RANK = 1 ]; then exit 9; fi; sleep 0.5; echo late; exit 4",
    ));
    assert_eq!(done.code, Some(9));
    let object: serde_json::Value = serde_json::from_str(&done.out).expect("one JSON object");
    assert_eq!(
        object["failure"],
        serde_json::json!({"rank": 1, "code": 9, "signal": null})
    );
    assert_eq!(object["exit_code"], 9);
    assert!(done.err.contains("[rank 0] late"));
}

#[test]
fn a_signal_to_the_launcher_ends_the_ranks_and_what_they_started() {
    let folder = Folder::new();
    let mut command = script(
        "2",
        &[],
        "sleep 1000 & echo $! > child.$RANK; echo $$ > rank.$RANK; wait",
    );
    let launcher = command.current_dir(folder.path("")).spawn().unwrap();
    let pids = ["child.0", "child.1", "rank.0", "rank.1"].map(|name| wait_for(&folder.path(name)));
    let sent = Command::new("kill")
        .args(["-TERM", &launcher.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    let done = wait(launcher);
    assert_eq!(done.code, Some(128 + 15), "{}", done.err);
    pids.iter().for_each(|pid| assert_ends(pid));
}

#[test]
fn ranks_die_with_a_launcher_that_is_killed() {
    let folder = Folder::new();
    let mut command = script(
        "2",
        &[],
        "echo $$ > rank.$RANK; while :; do sleep 0.05; done",
    );
    let mut launcher = command.current_dir(folder.path("")).spawn().unwrap();
    let pids = ["rank.0", "rank.1"].map(|name| wait_for(&folder.path(name)));
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    pids.iter().for_each(|pid| assert_ends(pid));
}

#[test]
fn what_a_rank_leaves_behind_ends_with_it() {
    let folder = Folder::new();
    let mut command = script("1", &[], "sleep 1000 & echo $! > child");
    let done = finish(command.current_dir(folder.path("")));
    assert_eq!(done.code, Some(0));
    assert_ends(&wait_for(&folder.path("child")));
}

#[test]
fn wrong_arguments_are_exit_code_2_and_one_message() {
    for (arguments, part) in [
        (
            &["launch", "-n", "2", "--", "no-such-program"][..],
            "there is no program no-such-program",
        ),
        (
            &["launch", "-n", "0", "--", "true"][..],
            "0 is not in 1..=4096",
        ),
        (
            &["launch", "-n", "2", "--timeout", "-1", "--", "true"][..],
            "expected a positive number of seconds",
        ),
        (&["launch", "-n", "2"][..], "PROGRAM"),
    ] {
        let done = finish(&mut hcom(arguments));
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(
            done.err.contains(part),
            "{part:?} is missing in\n{}",
            done.err
        );
        assert!(!done.err.contains("panicked"), "{}", done.err);
    }
    let done = finish(hcom(&["launch", "--", "true"]).env("HCOM_TIMEOUT", "soon"));
    assert_eq!(done.code, Some(2));
    assert!(
        done.err
            .contains("HCOM_TIMEOUT is \"soon\"\n  = expected: a positive number"),
        "{}",
        done.err
    );
}
