//! Random programs on ranks that stay up, run every way there is, against the oracle.
//!
//! `HCOM_FUZZ_SEED` is the first seed and `HCOM_FUZZ_PROGRAMS` the number of programs of each test;
//! `cargo xtask fuzz` sets them. A failure prints the program; on thread ranks, made as small as it
//! still fails.

mod common;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use common::*;
use hcom_ir::{Class, DType, Graph, Op};
use hcom_runtime::Settings;
use hcom_test::{Kind, Program, Rank, Way, compare, ranks};

/// A number from the environment.
fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is {text:?}, expected a number")),
        Err(_) => otherwise,
    }
}

/// Long enough for a busy machine, short enough that a hang shows.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs programs on one rank. The first that fails ends the job, and is kept in `failed`.
fn run(rank: &Rank, programs: impl Iterator<Item = Program>, failed: &Mutex<Option<Program>>) {
    let mut settings = Settings::from_env().expect("the environment of the tests is right");
    settings.timeout = PATIENCE;
    let runtime = with_settings(rank, settings);
    let ways = Way::all();
    for program in programs {
        if let Err(what) = compare(&runtime, &program, &ways) {
            let text = format!("{what}\n{program}");
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert(program);
            panic!("{text}");
        }
    }
}

/// Runs programs on `world` ranks of this kind; `job` tells the tests' seeds apart.
fn fuzz(job: u64, world: u32, kind: Kind, programs: u64) {
    let first = number("HCOM_FUZZ_SEED", job * 1_000_000);
    let count = number("HCOM_FUZZ_PROGRAMS", programs);
    let time = PATIENCE * 2 + Duration::from_secs(count);
    let failed = Arc::new(Mutex::new(None));
    let result = catch_unwind(AssertUnwindSafe(|| {
        let failed = failed.clone();
        ranks(world, kind, time, move |rank| {
            let programs = (first..first + count).map(|seed| Program::generate(seed, world));
            run(&rank, programs, &failed);
        });
    }));
    let Err(panic) = result else { return };
    let failed = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(program) = failed {
        let smallest = program.minimised(|program| {
            let program = program.clone();
            let job = || {
                ranks(world, Kind::Threads, PATIENCE * 2, move |rank| {
                    run(&rank, [program.clone()].into_iter(), &Mutex::default());
                });
            };
            catch_unwind(AssertUnwindSafe(job)).is_err()
        });
        eprintln!("the smallest program that fails:\n{smallest}");
    }
    std::panic::resume_unwind(panic);
}

/// What the programs of a few hundred seeds hold: a generator that makes nothing would prove nothing.
#[test]
fn programs_hold_every_kind_of_communication() {
    let programs: Vec<Program> = (0..400).map(|seed| Program::generate(seed, 3)).collect();
    let mut dtypes = BTreeSet::new();
    let mut ops = BTreeSet::new();
    for (_, node) in programs
        .iter()
        .flat_map(|program| program.meaning.iter().flat_map(Graph::nodes))
    {
        ops.insert(node.op);
    }
    for graph in programs.iter().flat_map(|program| &program.meaning) {
        dtypes.extend(graph.values().map(|(_, value)| value.ty.dtype));
    }
    let missing: Vec<&Op> = Op::ALL
        .iter()
        .filter(|op| op.is_communication() || op.class() == Class::Write)
        .filter(|op| !ops.contains(op))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(dtypes.len(), DType::ALL.len(), "{dtypes:?}");
    let alike = programs
        .iter()
        .filter(|program| {
            program
                .graphs
                .iter()
                .all(|graph| *graph == program.graphs[0])
        })
        .count();
    assert!(
        (100..300).contains(&alike),
        "{alike} of 400 programs are uniform"
    );
}

/// A program is made as small as it still fails, and is the same wherever it is made.
#[test]
fn programs_are_made_smaller() {
    let program = Program::generate(11, 2);
    assert_eq!(program.to_string(), Program::generate(11, 2).to_string());
    let sends = |program: &Program| {
        let nodes = program.graphs.iter().flat_map(Graph::nodes);
        nodes.filter(|(_, node)| node.op.is_communication()).count()
    };
    assert!(
        sends(&program) > 2,
        "the seed is a program with communication"
    );
    let smallest = program.minimised(|program| sends(program) > 0);
    assert_eq!(
        sends(&smallest),
        2,
        "one operation on both ranks is left:\n{smallest}"
    );
}

#[test]
fn two_threads() {
    fuzz(1, 2, Kind::Threads, 900);
}

#[test]
fn three_threads() {
    fuzz(2, 3, Kind::Threads, 500);
}

#[test]
fn four_threads() {
    fuzz(3, 4, Kind::Threads, 300);
}

#[test]
fn two_processes() {
    fuzz(4, 2, Kind::Processes, 200);
}

#[test]
fn three_processes() {
    fuzz(5, 3, Kind::Processes, 100);
}
