//! Timelines: what each stream of each rank did, and when.
//!
//! A [`Trace`] comes from [`Executable::run_traced`](crate::Executable::run_traced). Its times are
//! those of events that the device recorded before and after each piece of work, so the work itself
//! is measured, not the host that issued it; the events cost a little and make a traced run slower
//! than an ordinary one. Traces of several ranks of one host share a clock and
//! [merge](Trace::merge) into one picture, in which the time a rank spends waiting for its peers
//! inside a collective is told apart from the transfer.

use serde::{Deserialize, Serialize};

mod chrome;
mod svg;

/// What a piece of work mostly does; decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Matrix multiplication and attention.
    Matrix,
    /// Elementwise work, reductions, normalisation.
    Vector,
    /// Copies and rearrangements.
    Movement,
    /// A collective, send or receive.
    Communication,
}

impl Kind {
    /// All kinds, in the order of the legend.
    pub const ALL: [Kind; 4] = [
        Kind::Matrix,
        Kind::Vector,
        Kind::Movement,
        Kind::Communication,
    ];

    /// The name in the legend and the category in Chrome's format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Matrix => "matrix",
            Kind::Vector => "vector",
            Kind::Movement => "copy",
            Kind::Communication => "communication",
        }
    }
}

/// One piece of work on one stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Global rank.
    pub rank: u32,
    /// Index of the piece of work in the plan.
    pub task: usize,
    /// Index into [`Trace::streams`].
    pub stream: usize,
    /// Mnemonic of the op.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// The node as in the graph text.
    pub detail: String,
    /// When the stream reached it, in microseconds on the clock of the host.
    pub begin_us: f64,
    /// When it was done, in microseconds on the same clock.
    pub end_us: f64,
    /// Bytes of its operands and results together.
    pub bytes: u64,
    /// Group and sequence number of a collective, equal on all members.
    pub collective: Option<(String, u64)>,
    /// Microseconds from `begin_us` until the last member arrived. Known after a merge that holds
    /// every member.
    pub wait_us: Option<f64>,
}

impl Span {
    /// `end_us - begin_us`.
    pub fn duration_us(&self) -> f64 {
        self.end_us - self.begin_us
    }

    /// The duration without the wait for peers, as far as that is known, in microseconds.
    pub fn work_us(&self) -> f64 {
        self.duration_us() - self.wait_us.unwrap_or(0.0)
    }
}

/// What the streams of one or several ranks did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// What was run.
    pub title: String,
    /// What the picture must say besides, such as that a link was modelled.
    pub notes: Vec<String>,
    /// Names of the streams, the compute stream first.
    pub streams: Vec<String>,
    /// Number of members of each group that appears, by name.
    pub groups: Vec<(String, u32)>,
    /// The work, in no particular order.
    pub spans: Vec<Span>,
}

impl Trace {
    /// Puts traces of several ranks into one, with a common clock that starts at 0 with the first
    /// span, and tells waiting from transfer in every collective of which all members are present.
    ///
    /// Clocks of different hosts are not aligned: merge traces of one host only.
    pub fn merge(traces: impl IntoIterator<Item = Trace>) -> Trace {
        let mut merged = Trace::default();
        for trace in traces {
            if merged.title.is_empty() {
                merged.title = trace.title;
            }
            for note in trace.notes {
                if !merged.notes.contains(&note) {
                    merged.notes.push(note);
                }
            }
            for group in trace.groups {
                if !merged.groups.contains(&group) {
                    merged.groups.push(group);
                }
            }
            let streams: Vec<usize> = trace
                .streams
                .into_iter()
                .map(|name| {
                    let known = merged.streams.iter().position(|stream| *stream == name);
                    known.unwrap_or_else(|| {
                        merged.streams.push(name);
                        merged.streams.len() - 1
                    })
                })
                .collect();
            merged
                .spans
                .extend(trace.spans.into_iter().map(|span| Span {
                    stream: streams[span.stream],
                    ..span
                }));
        }
        merged.align();
        merged.find_waits();
        merged
    }

    /// From the first begin to the last end, in microseconds.
    pub fn length_us(&self) -> f64 {
        let end = self.spans.iter().map(|s| s.end_us).fold(0.0, f64::max);
        let begin = self.spans.iter().map(|s| s.begin_us).fold(end, f64::min);
        end - begin
    }

    /// The ranks that appear, ascending.
    pub fn ranks(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.spans.iter().map(|span| span.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    fn align(&mut self) {
        let origin = self
            .spans
            .iter()
            .map(|span| span.begin_us)
            .fold(f64::INFINITY, f64::min);
        for span in &mut self.spans {
            span.begin_us -= origin;
            span.end_us -= origin;
        }
        self.spans.sort_by(|a, b| {
            (a.rank, a.stream)
                .cmp(&(b.rank, b.stream))
                .then(a.begin_us.total_cmp(&b.begin_us))
        });
    }

    fn find_waits(&mut self) {
        let mut arrivals: std::collections::BTreeMap<(String, u64), (u32, f64)> =
            Default::default();
        for span in &self.spans {
            if let Some(key) = &span.collective {
                let (count, last) = arrivals.entry(key.clone()).or_insert((0, 0.0));
                *count += 1;
                *last = last.max(span.begin_us);
            }
        }
        for span in &mut self.spans {
            let Some(key) = &span.collective else {
                continue;
            };
            let members = self
                .groups
                .iter()
                .find(|(name, _)| *name == key.0)
                .map(|g| g.1);
            let (count, last) = arrivals[key];
            if members == Some(count) {
                span.wait_us = Some((last - span.begin_us).clamp(0.0, span.duration_us()));
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> Trace {
        let span = |rank, stream, name: &str, kind, begin_us, end_us| Span {
            rank,
            task: stream,
            stream,
            name: name.into(),
            kind,
            detail: format!("%y = {name} %x"),
            begin_us,
            end_us,
            bytes: 4096,
            collective: (kind == Kind::Communication).then(|| ("tp".to_string(), 1)),
            wait_us: None,
        };
        let rank = |rank: u32, late: f64| Trace {
            title: "mlp".into(),
            notes: vec![],
            streams: vec!["compute".into(), "tp".into()],
            groups: vec![("tp".into(), 2)],
            spans: vec![
                span(rank, 0, "matmul", Kind::Matrix, 1000.0, 1100.0 + late),
                span(
                    rank,
                    1,
                    "all_reduce",
                    Kind::Communication,
                    1100.0 + late,
                    1190.0,
                ),
                span(rank, 0, "gelu<&>", Kind::Vector, 1100.0 + late, 1150.0),
            ],
        };
        Trace::merge([rank(0, 0.0), rank(1, 30.0)])
    }

    #[test]
    fn merging_aligns_clocks_and_finds_who_waited() {
        let trace = example();
        assert_eq!(trace.length_us(), 190.0);
        assert_eq!(trace.ranks(), [0, 1]);
        let waits: Vec<_> = trace
            .spans
            .iter()
            .filter(|span| span.kind == Kind::Communication)
            .map(|span| (span.rank, span.begin_us, span.wait_us, span.work_us()))
            .collect();
        assert_eq!(
            waits,
            [(0, 100.0, Some(30.0), 60.0), (1, 130.0, Some(0.0), 60.0)]
        );
    }

    #[test]
    fn a_missing_member_leaves_the_wait_unknown() {
        let mut trace = example();
        trace.spans.retain(|span| span.rank == 0);
        for span in &mut trace.spans {
            span.wait_us = None;
        }
        let alone = Trace::merge([trace]);
        assert!(alone.spans.iter().all(|span| span.wait_us.is_none()));
    }
}
