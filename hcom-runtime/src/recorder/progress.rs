//! How far each member of each group is.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Entry, Record};

/// How far the members of one group are in its sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Name of the group on the lowest rank that recorded it.
    pub group: String,
    /// Global ranks of the group, in its order.
    pub ranks: Vec<u32>,
    /// The members whose records were given, in the order of the group.
    pub members: Vec<Reached>,
    /// Global ranks of the members that have entered fewer collectives than another has.
    pub behind: Vec<u32>,
}

/// The numbers, counted from 1, of the collectives that a rank issued, entered and completed last; 0
/// where there is none in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reached {
    /// Global rank.
    pub rank: u32,
    /// Issued by the host.
    pub issued: u64,
    /// Entered by the device.
    pub entered: u64,
    /// Completed by the device.
    pub completed: u64,
}

impl Progress {
    /// The groups in which the records of one job, sorted by rank, have collectives.
    pub fn of(records: &[Record]) -> Vec<Progress> {
        let mut groups: BTreeMap<&[u32], (&str, Vec<Reached>)> = BTreeMap::new();
        for record in records {
            for entry in &record.entries {
                let (_, members) = groups
                    .entry(&entry.ranks)
                    .or_insert_with(|| (&entry.group, Vec::new()));
                let member = match members.iter().position(|m| m.rank == record.rank) {
                    Some(at) => &mut members[at],
                    None => {
                        members.push(Reached {
                            rank: record.rank,
                            issued: 0,
                            entered: 0,
                            completed: 0,
                        });
                        members.last_mut().expect("one was pushed")
                    }
                };
                member.take(entry);
            }
        }
        groups
            .into_iter()
            .map(|(ranks, (group, members))| {
                let most = members.iter().map(|m| m.entered).max().unwrap_or(0);
                let entered = |rank: &u32| members.iter().find(|m| m.rank == *rank);
                Progress {
                    group: group.to_owned(),
                    ranks: ranks.to_vec(),
                    behind: ranks
                        .iter()
                        .filter(|rank| records.iter().any(|record| record.rank == **rank))
                        .filter(|rank| entered(rank).is_none_or(|m| m.entered < most))
                        .copied()
                        .collect(),
                    members,
                }
            })
            .collect()
    }
}

impl Reached {
    fn take(&mut self, entry: &Entry) {
        self.issued = self.issued.max(entry.seq);
        if entry.entered_us.is_some() {
            self.entered = self.entered.max(entry.seq);
        }
        if entry.completed_us.is_some() {
            self.completed = self.completed.max(entry.seq);
        }
    }
}
