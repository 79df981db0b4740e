//! Traces of real executions.

mod common;

use std::time::{Duration, Instant};

use common::*;
use hcom_runtime::{CompileOptions, Mode, Trace, timeline::Kind as Work};
use hcom_test::{Kind, ranks};

#[test]
fn a_trace_shows_every_stream_and_who_waited() {
    ranks(2, Kind::Threads, TIMEOUT, |rank| {
        let runtime = runtime(&rank);
        let graph = graph(
            "hcom 1
group @tp = ranks(0, 1)
graph @f(%x: f32[64, 64]) -> f32[64, 64] {
  %a = matmul %x, %x
  %b = all_reduce %a, op = sum, group = @tp
  %c = relu %b
  return %c
}
",
        );
        let options = CompileOptions {
            mode: Mode::Overlapped,
            name: "demo".into(),
            cost: None,
        };
        let executable = runtime.compile(&graph, &options).unwrap();
        let arrays = upload(&runtime, &inputs(&graph, rank.rank()));
        executable.run(&arrays).unwrap();
        runtime.synchronize().unwrap();
        assert!(!executable.bound().measured);
        if rank.rank() == 1 {
            std::thread::sleep(Duration::from_millis(60));
        }
        let (outputs, trace) = executable.run_traced(&arrays).unwrap();
        assert_eq!(
            download(&outputs[0]),
            download(&executable.run(&arrays).unwrap()[0])
        );

        let bytes = serde_json::to_vec(&trace).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let all = runtime
            .control()
            .all_gather(&[0, 1], "traces", &bytes, deadline)
            .unwrap();
        let merged = Trace::merge(all.iter().map(|t| serde_json::from_slice(t).unwrap()));
        assert_eq!(merged.ranks(), [0, 1]);
        assert_eq!(merged.streams, ["compute", "tp"]);
        assert_eq!(merged.spans.len(), 6);
        let waits: Vec<f64> = merged
            .spans
            .iter()
            .filter(|span| span.kind == Work::Communication)
            .map(|span| span.wait_us.expect("both members are there"))
            .collect();
        assert!(waits[0] > 20_000.0 && waits[1] == 0.0, "{waits:?}");
        for span in &merged.spans {
            assert!(
                span.duration_us() >= 0.0 && span.begin_us >= 0.0,
                "{span:?}"
            );
        }
        executable.observe(&merged);
        let bound = executable.bound();
        assert!(
            bound.measured && bound.us() > 0.0 && bound.us() < 20_000.0,
            "{bound:?}"
        );
        assert!(merged.to_svg().contains("demo (overlapped)"));
        assert!(merged.to_chrome_json().contains("\"wait for peers\""));
    });
}
