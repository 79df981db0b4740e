//! What went wrong in a job, in one form for every rank.
//!
//! A [`Failure`] is made by the rank that notices first, reaches every other rank through
//! [`Control::fail`](crate::Control::fail), and is what each of them returns from then on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// Members of a group disagree about a collective or about the graph.
    Mismatch,
    /// A rank did not arrive within the time limit.
    Timeout,
    /// A rank ended without saying goodbye.
    PeerDied,
    /// A rank ended in order although it was still needed.
    PeerLeft,
    /// A call into the communication or device library failed.
    Library,
    /// A rank panicked.
    Panic,
    /// A rank asked for something that cannot be.
    Usage,
    /// The program of a rank ended the job.
    Aborted,
}

impl FailureKind {
    /// The name in JSON: `mismatch`, `timeout`, `peer_died`, `peer_left`, `library`, `panic`,
    /// `usage` or `aborted`.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Mismatch => "mismatch",
            FailureKind::Timeout => "timeout",
            FailureKind::PeerDied => "peer_died",
            FailureKind::PeerLeft => "peer_left",
            FailureKind::Library => "library",
            FailureKind::Panic => "panic",
            FailureKind::Usage => "usage",
            FailureKind::Aborted => "aborted",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The failure of a job.
///
/// As JSON every field is present; what is not known is `null`. [`Display`](fmt::Display) is one
/// sentence without the help, for example
/// `all_reduce 5 of group tp: timed out waiting for ranks 1, 3 (rank 1 last completed all_reduce 4
/// of group tp)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it is.
    pub kind: FailureKind,
    /// Name of the collective, as in the graph text (`all_reduce`), or of the failed call.
    pub op: Option<String>,
    /// Name of the group.
    pub group: Option<String>,
    /// Sequence number of the collective within its group, counted from 1.
    pub seq: Option<u64>,
    /// Name of the compiled graph that it is part of.
    pub graph: Option<String>,
    /// Which replay of the graph's capture it was, counted from 1, when it was one.
    pub replay: Option<u64>,
    /// Global rank that noticed the failure.
    pub rank: u32,
    /// Global ranks that are missing or at fault.
    pub ranks: Vec<u32>,
    /// The node, printed as in the graph text.
    pub node: Option<String>,
    /// What was expected, and of whom.
    pub expected: Option<String>,
    /// What was found instead.
    pub got: Option<String>,
    /// What the user can do about it.
    pub help: Option<String>,
}

impl Failure {
    /// A failure of which only the kind and the noticing global rank are known.
    pub fn new(kind: FailureKind, rank: u32) -> Failure {
        Failure {
            kind,
            op: None,
            group: None,
            seq: None,
            graph: None,
            replay: None,
            rank,
            ranks: Vec::new(),
            node: None,
            expected: None,
            got: None,
            help: None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(op) = &self.op {
            write!(f, "{op}")?;
            if let Some(seq) = self.seq {
                write!(f, " {seq}")?;
            }
            if let Some(group) = &self.group {
                write!(f, " of group {group}")?;
            }
            if let (Some(replay), Some(graph)) = (self.replay, &self.graph) {
                write!(f, " in replay {replay} of graph {graph}")?;
            }
            f.write_str(": ")?;
        }
        let ranks = RankList(&self.ranks);
        match (self.kind, self.ranks.is_empty()) {
            (FailureKind::Mismatch, true) => f.write_str("ranks disagree")?,
            (FailureKind::Mismatch, false) => write!(f, "{ranks} disagree")?,
            (FailureKind::Timeout, true) => f.write_str("timed out")?,
            (FailureKind::Timeout, false) => write!(f, "timed out waiting for {ranks}")?,
            (FailureKind::PeerDied, true) => f.write_str("a rank died")?,
            (FailureKind::PeerDied, false) => write!(f, "{ranks} died")?,
            (FailureKind::PeerLeft, true) => f.write_str("a rank has left")?,
            (FailureKind::PeerLeft, false) => write!(f, "{ranks} left while still needed")?,
            (FailureKind::Library, true) => f.write_str("the library reported an error")?,
            (FailureKind::Library, false) => write!(f, "the library reported an error on {ranks}")?,
            (FailureKind::Panic, true) => f.write_str("a rank panicked")?,
            (FailureKind::Panic, false) => write!(f, "{ranks} panicked")?,
            (FailureKind::Aborted, true) => f.write_str("the job was aborted")?,
            (FailureKind::Aborted, false) => write!(f, "{ranks} aborted the job")?,
            (FailureKind::Usage, true) => f.write_str("wrong use")?,
            (FailureKind::Usage, false) => write!(f, "wrong use on {ranks}")?,
        }
        match (&self.expected, &self.got) {
            (Some(expected), Some(got)) => write!(f, "; expected {expected}, got {got}")?,
            (Some(expected), None) => write!(f, "; expected {expected}")?,
            (None, Some(got)) => write!(f, " ({got})")?,
            (None, None) => {}
        }
        if let Some(node) = &self.node {
            write!(f, "; at `{node}`")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Prints `rank 3` or `ranks 0, 2, 3`.
pub(crate) struct RankList<'a>(pub(crate) &'a [u32]);

impl fmt::Display for RankList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "rank " } else { "ranks " })?;
        for (index, rank) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{rank}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sentence_names_the_collective_and_the_ranks() {
        let failure = Failure {
            op: Some("all_reduce".into()),
            group: Some("tp".into()),
            seq: Some(5),
            ranks: vec![1, 3],
            got: Some("rank 1 last completed all_reduce 4 of group tp".into()),
            ..Failure::new(FailureKind::Timeout, 0)
        };
        assert_eq!(
            failure.to_string(),
            "all_reduce 5 of group tp: timed out waiting for ranks 1, 3 (rank 1 last completed \
             all_reduce 4 of group tp)"
        );
        let failure = Failure {
            graph: Some("mlp".into()),
            replay: Some(6),
            got: None,
            ..failure
        };
        assert_eq!(
            failure.to_string(),
            "all_reduce 5 of group tp in replay 6 of graph mlp: timed out waiting for ranks 1, 3"
        );
        let failure = Failure {
            ranks: vec![2],
            ..Failure::new(FailureKind::PeerDied, 0)
        };
        assert_eq!(failure.to_string(), "rank 2 died");
    }

    #[test]
    fn json_has_every_key_and_reads_back() {
        let failure = Failure {
            ranks: vec![2],
            expected: Some("512000 elements on rank 1".into()),
            got: Some("256000 elements on rank 0".into()),
            ..Failure::new(FailureKind::Mismatch, 1)
        };
        let value = serde_json::to_value(&failure).unwrap();
        let keys: Vec<&str> = value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            keys,
            [
                "kind", "op", "group", "seq", "graph", "replay", "rank", "ranks", "node",
                "expected", "got", "help"
            ]
        );
        assert_eq!(value["kind"], "mismatch");
        assert_eq!(value["op"], serde_json::Value::Null);
        assert_eq!(serde_json::from_value::<Failure>(value).unwrap(), failure);
    }
}
