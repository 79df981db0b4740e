//! What a rank knows about the collectives of one communicator.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use hcom_ir::{DType, Graph, Group, NodeId};

use crate::{
    control::{Position, Run},
    raw::Event,
};

/// What is said about a collective when it goes wrong.
#[derive(Debug)]
pub(crate) struct Row {
    /// Mnemonic of the operation.
    pub(crate) op: &'static str,
    /// The node, printed, with its place in the source.
    pub(crate) node: String,
    /// The place in the source alone.
    pub(crate) location: Option<String>,
    /// Element type; `None` for a barrier.
    pub(crate) dtype: Option<DType>,
    /// Elements of this rank's operand, or of its result where there is no operand.
    pub(crate) count: u64,
}

impl Row {
    pub(crate) fn new(graph: &Graph, id: NodeId) -> Arc<Row> {
        let node = graph.node(id);
        let location = node.location.as_ref().map(ToString::to_string);
        let place = location
            .as_ref()
            .map_or_else(String::new, |place| format!(" at {place}"));
        let ty = node.operands.iter().chain(&node.results).next();
        let ty = ty.map(|&value| graph.ty(value));
        Arc::new(Row {
            op: node.op.name(),
            node: format!("{}{place}", graph.print_node(id)),
            location,
            dtype: ty.map(|ty| ty.dtype),
            count: ty.map_or(0, |ty| ty.bytes().unwrap_or(0) / ty.dtype.bytes()),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.count * self.dtype.map_or(0, DType::bytes)
    }
}

/// A collective on its way.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) seq: u64,
    pub(super) row: Arc<Row>,
    pub(super) run: Option<Arc<Run>>,
    /// Its entry in the record.
    pub(super) entry: u64,
    /// Stand in for the words.
    pub(super) marks: Option<[Event; 2]>,
}

/// One communicator, or what a capture does on one.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) group: Arc<Group>,
    pub(super) issued: VecDeque<Issued>,
    pub(super) entered: u64,
    pub(super) completed: u64,
    /// When the collective that the device is in was first seen there.
    pub(super) since: Option<(u64, Instant)>,
    /// When one of the members that the device waits for was first seen dead.
    pub(super) bereft: Option<Instant>,
}

impl Line {
    pub(super) fn new(group: &Group) -> Line {
        Line {
            group: Arc::new(group.clone()),
            issued: VecDeque::with_capacity(64),
            entered: 0,
            completed: 0,
            since: None,
            bereft: None,
        }
    }

    /// The collective that the device is inside of.
    pub(super) fn current(&self) -> Option<&Issued> {
        self.issued
            .front()
            .filter(|issued| self.entered >= issued.seq)
    }

    pub(super) fn position(&self, issued: &Issued) -> Position {
        Position {
            op: issued.row.op.to_owned(),
            group: self.group.name.clone(),
            ranks: self.group.ranks.clone(),
            seq: issued.seq,
            run: issued.run.as_deref().cloned(),
        }
    }
}

fn is_transfer(op: &str) -> bool {
    matches!(op, "send" | "recv")
}

/// Whether both count in the sequence of one group, or of the transfers of one pair.
pub(super) fn same_sequence(a: &Position, b: &Position) -> bool {
    a.ranks == b.ranks && is_transfer(&a.op) == is_transfer(&b.op)
}

/// What two ranks do at the same place of a sequence cannot meet: different collectives, two sends
/// or two receives, or different captures.
pub(super) fn disagree(a: &Position, b: &Position) -> bool {
    if (a.op == b.op) == is_transfer(&a.op) {
        return true;
    }
    let number = |run: &Option<Run>| run.as_ref().map(|run| (run.program, run.number));
    let replayed = |run: &Option<Run>| run.as_ref().is_some_and(|run| run.replayed);
    (replayed(&a.run) || replayed(&b.run)) && number(&a.run) != number(&b.run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(op: &str, run: Option<(u64, u64, bool)>) -> Position {
        Position {
            op: op.to_owned(),
            group: "g".to_owned(),
            ranks: vec![0, 1],
            seq: 3,
            run: run.map(|(program, number, replayed)| Run {
                graph: "f".to_owned(),
                program,
                number,
                replayed,
            }),
        }
    }

    #[test]
    fn what_can_meet() {
        let at = |op, run| position(op, run);
        assert!(!disagree(&at("all_reduce", None), &at("all_reduce", None)));
        assert!(disagree(&at("all_reduce", None), &at("all_gather", None)));
        assert!(!disagree(&at("send", None), &at("recv", None)));
        assert!(disagree(&at("send", None), &at("send", None)));
        assert!(same_sequence(&at("send", None), &at("recv", None)));
        assert!(!same_sequence(&at("send", None), &at("all_reduce", None)));
        let replay = |program, number| at("all_reduce", Some((program, number, true)));
        let launched = |program, number| at("all_reduce", Some((program, number, false)));
        assert!(!disagree(&replay(1, 6), &replay(1, 6)));
        assert!(disagree(&replay(1, 6), &replay(2, 6)));
        assert!(disagree(&replay(1, 6), &at("all_reduce", None)));
        assert!(!disagree(&replay(1, 6), &launched(1, 6)));
        assert!(!disagree(&launched(2, 1), &launched(1, 6)));
    }
}
