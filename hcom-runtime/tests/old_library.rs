//! A library that lacks functions: no writes of words, no abort of a single stream, no broadcast.

mod common;

use std::time::{Duration, Instant};

use common::{TIMEOUT, graph, inputs, upload};
use hcom_ir::interpret;
use hcom_runtime::{Error, FailureKind, Runtime, Settings};
use hcom_sys::Table;
use hcom_test::{Kind, Rank, ranks};

const MISSING: [&str; 4] = [
    "HcclBroadcast",
    "aclrtValueWrite",
    "aclrtStreamAbort",
    "aclrtSynchronizeDeviceWithTimeout",
];

fn runtime(rank: &Rank, timeout: Duration) -> Runtime {
    let whole = hcom_fake::table();
    let symbols: Vec<_> = whole
        .symbols
        .iter()
        .copied()
        .filter(|(name, _)| !MISSING.contains(name))
        .collect();
    let old = Table {
        name: "old",
        version: "8.0",
        symbols: symbols.leak(),
    };
    hcom_sys::register_fallback(Box::leak(Box::new(old)));
    let settings = Settings {
        timeout,
        ..Settings::from_env().unwrap()
    };
    Runtime::with_control(rank.control(), rank.rank(), &settings).unwrap()
}

const PROGRAM: &str = "hcom 1
group @g = ranks(0, 1)
graph @f(%x: f32[64]) -> f32[64] {
  %y = all_reduce %x, op = sum, group = @g
  %z = relu %y
  %w = all_reduce %z, op = max, group = @g
  return %w
}
";

const BROADCAST: &str = "hcom 1
group @g = ranks(0, 1)
graph @f(%x: f32[64]) -> f32[64] {
  %y = broadcast %x, root = 0, group = @g
  return %y
}
";

#[test]
fn events_take_the_place_of_written_words() {
    if std::env::var_os("HCOM_LIBRARY_PATH").is_some() {
        return;
    }
    ranks(2, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank, Duration::from_millis(600));
        let graph = graph(PROGRAM);
        let all = [inputs(&graph, 0), inputs(&graph, 1)];
        let expected = interpret(&[&graph, &graph], &all).unwrap();
        let executable = runtime.compile(&graph, &Default::default()).unwrap();
        let refused = runtime.compile(&common::graph(BROADCAST), &Default::default());
        let Err(Error::Missing(missing)) = refused else {
            panic!("the library has no broadcast");
        };
        assert_eq!(missing.symbol, "HcclBroadcast");
        let own = rank.rank() as usize;
        let arrays = upload(&runtime, &all[own]);
        for _ in 0..30 {
            let outputs = executable.run(&arrays).unwrap();
            assert_eq!(common::download(&outputs[0]), expected[own].outputs[0]);
        }
        if rank.rank() == 0 {
            let begin = Instant::now();
            while runtime.control().failure().is_none() {
                assert!(begin.elapsed() < Duration::from_secs(20));
                std::thread::sleep(Duration::from_millis(5));
            }
        } else {
            let error = executable
                .run(&arrays)
                .and_then(|outputs| outputs[0].to_host());
            let Err(Error::Failure(failure)) = error else {
                panic!("{error:?}")
            };
            assert_eq!(
                (failure.kind, failure.seq),
                (FailureKind::Timeout, Some(61)),
                "{failure}"
            );
            assert_eq!(failure.ranks, [0]);
        }
    });
}
