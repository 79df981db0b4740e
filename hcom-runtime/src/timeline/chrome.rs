//! The JSON that `chrome://tracing` and Perfetto read.

use serde_json::{Value, json};

use super::Trace;

impl Trace {
    /// The trace in Chrome's trace event format: one process per rank, one thread per stream,
    /// times in microseconds. A collective whose wait for peers is known appears as two nested
    /// slices: the whole, and `wait for peers` at its beginning.
    pub fn to_chrome_json(&self) -> String {
        let mut events: Vec<Value> = Vec::new();
        for rank in self.ranks() {
            events.push(json!({
                "ph": "M", "name": "process_name", "pid": rank,
                "args": {"name": format!("rank {rank}")},
            }));
            events.push(json!({
                "ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank},
            }));
            for (stream, name) in self.streams.iter().enumerate() {
                events.push(json!({
                    "ph": "M", "name": "thread_name", "pid": rank, "tid": stream,
                    "args": {"name": name},
                }));
            }
        }
        for span in &self.spans {
            let mut args = json!({"node": span.detail, "bytes": span.bytes});
            if let Some((group, seq)) = &span.collective {
                args["group"] = json!(group);
                args["seq"] = json!(seq);
            }
            if let Some(wait) = span.wait_us {
                args["wait_for_peers_us"] = json!(wait);
                args["in_collective_us"] = json!(span.work_us());
            }
            events.push(json!({
                "ph": "X", "name": span.name, "cat": span.kind.name(),
                "pid": span.rank, "tid": span.stream,
                "ts": span.begin_us, "dur": span.duration_us(), "args": args,
            }));
            if let Some(wait) = span.wait_us.filter(|wait| *wait > 0.0) {
                events.push(json!({
                    "ph": "X", "name": "wait for peers", "cat": "wait",
                    "pid": span.rank, "tid": span.stream,
                    "ts": span.begin_us, "dur": wait, "args": {},
                }));
            }
        }
        json!({
            "displayTimeUnit": "ns",
            "otherData": {"title": self.title, "notes": self.notes},
            "traceEvents": events,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;

    #[test]
    fn one_row_per_stream_per_rank_with_times_in_microseconds() {
        let json: serde_json::Value = serde_json::from_str(&example().to_chrome_json()).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let threads: Vec<(u64, u64, &str)> = events
            .iter()
            .filter(|event| event["name"] == "thread_name")
            .map(|event| {
                let name = event["args"]["name"].as_str().unwrap();
                (
                    event["pid"].as_u64().unwrap(),
                    event["tid"].as_u64().unwrap(),
                    name,
                )
            })
            .collect();
        assert_eq!(
            threads,
            [
                (0, 0, "compute"),
                (0, 1, "tp"),
                (1, 0, "compute"),
                (1, 1, "tp")
            ]
        );
        let collective = events
            .iter()
            .find(|event| event["name"] == "all_reduce")
            .unwrap();
        assert_eq!(
            (
                &collective["ts"],
                &collective["dur"],
                &collective["args"]["wait_for_peers_us"]
            ),
            (&100.0.into(), &90.0.into(), &30.0.into())
        );
        assert_eq!(
            events
                .iter()
                .filter(|event| event["name"] == "wait for peers")
                .count(),
            1
        );
    }
}
