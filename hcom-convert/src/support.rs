//! Which call takes which element type and reduction, and how: the answer of the code that
//! decides, as a table.
//!
//! [`markdown`] is `docs/collectives.md`.

use crate::reduction::{self, How};
use crate::{Reduction, reduce_scatter_uneven};
use hcom_ir::capabilities::Chip;
use hcom_ir::{DType, Op, ReduceOp};
use std::fmt;

/// How a call is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// By one collective of the device library.
    Native,
    /// By these steps, in order.
    Lowered(String),
    /// Not at all: recording the call is an error with this reason.
    Refused(&'static str),
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Support::Native => f.write_str("native"),
            Support::Lowered(steps) => write!(f, "lowered: {steps}"),
            Support::Refused(reason) => write!(f, "refused: {reason}"),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The call, as a program writes it.
    pub call: &'static str,
    /// The reduction, for a call that has one.
    pub reduction: Option<ReduceOp>,
    /// The element type.
    pub dtype: DType,
    /// How it is carried out.
    pub support: Support,
    /// Chips whose library, by its documentation, does not have the collective that this needs.
    pub absent: Vec<Chip>,
}

/// Calls that reduce, with the collective that does it.
const REDUCING: [(&str, Op); 6] = [
    ("all_reduce", Op::AllReduce),
    ("reduce", Op::Reduce),
    ("reduce_scatter", Op::ReduceScatter),
    ("reduce_scatter_tensor", Op::ReduceScatter),
    ("reduce_scatter (unequal sizes)", Op::ReduceScatterUneven),
    (reduce_scatter_uneven::CALL, Op::ReduceScatterUneven),
];

/// Calls that move data of any type as it is, with the collective that does it.
const MOVING: [(&str, Op); 12] = [
    ("all_gather", Op::AllGather),
    ("all_gather (unequal sizes)", Op::AllGatherUneven),
    ("all_gather_into_tensor", Op::AllGather),
    ("all_gather_into_tensor_uneven", Op::AllGatherUneven),
    ("all_to_all", Op::AllToAll),
    ("all_to_all_single", Op::AllToAll),
    ("broadcast", Op::Broadcast),
    ("scatter", Op::Scatter),
    ("gather", Op::GatherTo),
    ("send", Op::Send),
    ("recv", Op::Recv),
    ("batch_isend_irecv", Op::Send),
];

/// How `asked` of elements of `dtype` is carried out by `call` through `collective`.
fn reducing(call: &'static str, collective: Op, asked: ReduceOp, dtype: DType) -> Entry {
    let reduction = Reduction {
        op: asked,
        // Any factor: whether it is accepted depends on the types only.
        factor: (asked == ReduceOp::PremulSum).then_some(1.0),
    };
    let refused = match call {
        reduce_scatter_uneven::CALL => reduce_scatter_uneven::refusal(asked),
        _ => None,
    };
    let plan = match refused {
        Some(reason) => Err(reason),
        None => reduction::plan(reduction, dtype, collective),
    };
    let mut absent = Vec::new();
    let support = match plan {
        Err(reason) => Support::Refused(reason),
        Ok(plan) => {
            let lacks = |chip: &Chip| match plan.how {
                How::Library(op) => !chip.supports(collective, Some(plan.wide), Some(op)),
                How::Fold(_) => {
                    !chip.supports(reduction::exchange(collective), Some(plan.wide), None)
                }
            };
            absent.extend(Chip::ALL.into_iter().filter(lacks));
            match plan.steps(dtype, asked, collective) {
                None => Support::Native,
                Some(steps) => Support::Lowered(steps),
            }
        }
    };
    Entry {
        call,
        reduction: Some(asked),
        dtype,
        support,
        absent,
    }
}

/// The whole table: calls that reduce, by call, reduction and element type, then calls that move.
pub fn table() -> Vec<Entry> {
    let mut entries = Vec::new();
    for (call, collective) in REDUCING {
        for reduction in ReduceOp::ALL {
            let of = |dtype| reducing(call, collective, reduction, dtype);
            entries.extend(DType::ALL.into_iter().map(of));
        }
    }
    for (call, op) in MOVING {
        entries.extend(DType::ALL.into_iter().map(|dtype| {
            Entry {
                call,
                reduction: None,
                dtype,
                support: Support::Native,
                absent: Chip::ALL
                    .into_iter()
                    .filter(|chip| !chip.supports(op, Some(dtype), None))
                    .collect(),
            }
        }));
    }
    entries
}

/// The table as text: one section per set of calls that behave alike, one line per reduction and
/// set of element types that do.
pub fn markdown() -> String {
    let entries = table();
    let mut sections: Vec<(Vec<&str>, String)> = Vec::new();
    for of_call in entries.chunk_by(|a, b| a.call == b.call) {
        let lines = lines(of_call);
        match sections.iter_mut().find(|(_, known)| *known == lines) {
            Some((calls, _)) => calls.push(of_call[0].call),
            None => sections.push((vec![of_call[0].call], lines)),
        }
    }
    let mut text = String::from(HEAD);
    for (calls, lines) in sections {
        let calls: Vec<String> = calls.iter().map(|call| format!("`{call}`")).collect();
        text += &format!("\n## {}\n\n{COLUMNS}{lines}", calls.join(", "));
    }
    text
}

const HEAD: &str = "\
# Collectives

What each call does with each element type and reduction. This file is printed by `hcom collectives`.

*native*: one collective of the device library. *lowered*: the steps named, in this order; a fold combines the exchanged contributions in rank order. *refused*: an error when the call is made or recorded, with this reason. The last column names the chips whose library, by its documentation, lacks the collective that is used: the call fails there with the library's error. The CPU implementation is one of these chips (`HCOM_FAKE_SOC`; A3 without it).
";

const COLUMNS: &str = "\
| reduction | element types | how | not on |
|---|---|---|---|
";

fn lines(entries: &[Entry]) -> String {
    let mut rows: Vec<(&Entry, Vec<&str>)> = Vec::new();
    for entry in entries {
        let same = |(known, _): &&mut (&Entry, Vec<&str>)| {
            known.reduction == entry.reduction
                && known.support == entry.support
                && known.absent == entry.absent
        };
        match rows.iter_mut().find(same) {
            Some((_, types)) => types.push(entry.dtype.name()),
            None => rows.push((entry, vec![entry.dtype.name()])),
        }
    }
    let line = |(entry, types): (&Entry, Vec<&str>)| {
        let reduction = entry.reduction.map_or("", ReduceOp::name);
        let absent: Vec<&str> = entry.absent.iter().map(|chip| chip.name()).collect();
        let cells = [types.join(" "), entry.support.to_string(), absent.join(" ")];
        let [types, how, absent] = cells;
        format!("| {reduction} | {types} | {how} | {absent} |\n")
    };
    rows.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{Support, markdown, table};
    use crate::{Call, Context, Reduction, convert};
    use expect_test::expect_file;
    use hcom_ir::{Builder, Group, ReduceOp, Type};

    #[test]
    fn the_committed_table_is_that_of_the_code() {
        expect_file!["../../docs/collectives.md"].assert_eq(&markdown());
    }

    #[test]
    fn the_table_says_what_all_reduce_does() {
        let entries = table();
        for entry in entries.iter().filter(|entry| entry.call == "all_reduce") {
            let op = entry.reduction.unwrap();
            let mut builder = Builder::new("f");
            let group = builder.group(Group::new("g", [0, 1]));
            let x = builder.input("x", Type::fixed(entry.dtype, &[2]), false);
            let mut context = Context {
                builder: &mut builder,
                rank: 0,
                world_size: 2,
            };
            let reduction = Reduction {
                op,
                factor: (op == ReduceOp::PremulSum).then_some(0.5),
            };
            let call = Call::AllReduce { reduction };
            let converted = convert(&mut context, &call, &[x], group);
            let nodes = builder.graph().nodes().count();
            match &entry.support {
                Support::Native => assert_eq!(nodes, 1),
                Support::Lowered(_) => assert!(converted.is_ok() && nodes > 1),
                Support::Refused(reason) => {
                    assert!(converted.unwrap_err().to_string().ends_with(reason));
                    assert_eq!(nodes, 0);
                }
            }
        }
    }
}
