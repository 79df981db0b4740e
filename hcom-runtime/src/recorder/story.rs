//! What the records of all ranks tell together: which groups are stuck, in what, and for whom.

use std::{collections::BTreeMap, fmt, fs, io, path::Path};

use serde::Serialize;

use super::{Entry, Record, file_name};
use crate::{
    control::{Life, PeerStatus, RankState},
    failure::{Failure, RankList},
};

/// The records of one job, put together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Story {
    /// Number of ranks in the job.
    pub world_size: u32,
    /// Global ranks that left no record.
    pub unrecorded: Vec<u32>,
    /// The failure of the job, as the first record that was written with one tells it.
    pub failure: Option<Failure>,
    /// The groups with a collective that was issued and not completed; the one that was issued first
    /// comes first.
    pub stuck: Vec<Stuck>,
}

/// A group with a collective that was issued and not completed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stuck {
    /// Name of the group on the lowest rank that issued the collective.
    pub group: String,
    /// Global ranks of the group, in its order.
    pub ranks: Vec<u32>,
    /// Number of the collective in the group's sequence, counted from 1.
    pub seq: u64,
    /// The collective as the lowest rank that issued it recorded it.
    pub entry: Entry,
    /// Where each member stands, in the order of the group.
    pub members: Vec<Member>,
    /// All of it as one sentence.
    pub sentence: String,
}

/// A member of a stuck group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Member {
    /// Global rank.
    pub rank: u32,
    /// Where it stands.
    pub stand: Stand,
    /// The same in words, for a member that is not inside the collective.
    pub why: Option<String>,
}

/// Where a member stands as seen from the collective that its group waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stand {
    /// Its device is inside.
    Inside,
    /// Its host issued it and its device has not reached it.
    Issued,
    /// It is done with it.
    Completed,
    /// It is at another collective in this place of the sequence.
    Elsewhere,
    /// It has not issued it.
    Absent,
    /// It left no record.
    Unrecorded,
}

/// Reads the records in `folder`, by rank.
///
/// # Errors
/// What the file system says; a file that is no record, or one of a job of another size.
pub fn read_all(folder: &Path) -> io::Result<Vec<Record>> {
    let mut records = BTreeMap::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if !name.starts_with("hcom-record-") || !name.ends_with(".json") {
            continue;
        }
        let wrong = |what: String| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {what}", path.display()),
            )
        };
        let record = Record::read(&path).map_err(|error| wrong(error.to_string()))?;
        if file_name(record.rank) != name {
            return Err(wrong(format!("this is the record of rank {}", record.rank)));
        }
        records.insert(record.rank, record);
    }
    let records: Vec<Record> = records.into_values().collect();
    if let Some(first) = records.first()
        && let Some(other) = records.iter().find(|r| r.world_size != first.world_size)
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the records of ranks {} and {} are of jobs of {} and of {} ranks",
                first.rank, other.rank, first.world_size, other.world_size
            ),
        ));
    }
    Ok(records)
}

impl Story {
    /// Puts the records of one job together. Their order does not matter.
    pub fn of(records: &[Record]) -> Story {
        let by_rank: BTreeMap<u32, &Record> = records.iter().map(|r| (r.rank, r)).collect();
        let world_size = records.iter().map(|r| r.world_size).max().unwrap_or(0);
        let failure = records
            .iter()
            .filter(|record| record.failure.is_some())
            .min_by_key(|record| record.written_us)
            .and_then(|record| record.failure.clone());
        let mut groups: BTreeMap<&[u32], (u64, u64)> = BTreeMap::new();
        for entry in by_rank.values().flat_map(|record| &record.entries) {
            if entry.completed_us.is_none() {
                let first = (entry.seq, entry.issued_us);
                let known = groups.entry(&entry.ranks).or_insert(first);
                *known = (*known).min(first);
            }
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, (_, issued))| *issued);
        Story {
            world_size,
            unrecorded: (0..world_size)
                .filter(|rank| !by_rank.contains_key(rank))
                .collect(),
            failure,
            stuck: groups
                .into_iter()
                .filter_map(|(ranks, (seq, _))| stuck(&by_rank, ranks, seq))
                .collect(),
        }
    }
}

impl fmt::Display for Story {
    /// The failure and one sentence per stuck group, a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(failure) = &self.failure {
            writeln!(f, "{failure}")?;
        }
        for group in &self.stuck {
            writeln!(f, "{}", group.sentence)?;
        }
        if self.stuck.is_empty() {
            writeln!(
                f,
                "no group has a collective that was issued and not completed"
            )?;
        }
        Ok(())
    }
}

fn stuck(records: &BTreeMap<u32, &Record>, ranks: &[u32], seq: u64) -> Option<Stuck> {
    let entry = |rank: u32| {
        let entries = &records.get(&rank)?.entries;
        entries.iter().find(|e| e.ranks == ranks && e.seq == seq)
    };
    let first = ranks.iter().copied().filter_map(entry).next()?;
    let members: Vec<Member> = ranks
        .iter()
        .map(|&rank| member(records, rank, entry(rank), first))
        .collect();
    let sentence = sentence(first, &members);
    Some(Stuck {
        group: first.group.clone(),
        ranks: ranks.to_vec(),
        seq,
        entry: first.clone(),
        members,
        sentence,
    })
}

fn member(
    records: &BTreeMap<u32, &Record>,
    rank: u32,
    own: Option<&Entry>,
    first: &Entry,
) -> Member {
    let (stand, why) = match (records.get(&rank), own) {
        (None, _) => (Stand::Unrecorded, Some(last_seen(records, rank))),
        (Some(record), None) => (Stand::Absent, Some(record.state.to_string())),
        (Some(_), Some(own)) if own.op != first.op || own.dtype != first.dtype => {
            (Stand::Elsewhere, Some(format!("is at {}", what(own))))
        }
        (Some(_), Some(own)) if own.completed_us.is_some() => (Stand::Completed, None),
        (Some(_), Some(own)) if own.entered_us.is_some() => (Stand::Inside, None),
        (Some(record), Some(_)) => (
            Stand::Issued,
            Some(format!(
                "has issued it, but its device {}",
                device(&record.state)
            )),
        ),
    };
    Member { rank, stand, why }
}

/// Where the device stands, after `its device`.
fn device(state: &RankState) -> String {
    match (&state.entered, &state.completed) {
        (None, None) => "has reached no collective".to_owned(),
        _ => state.to_string(),
    }
}

/// What the others knew of a rank that left no record.
fn last_seen(records: &BTreeMap<u32, &Record>, rank: u32) -> String {
    let reach = |status: &&PeerStatus| {
        let seq = status.state.entered.as_ref().map_or(0, |p| p.seq);
        (status.life != Life::Alive, seq)
    };
    let seen = records
        .values()
        .filter_map(|record| record.peers.iter().find(|peer| peer.rank == rank))
        .max_by_key(reach);
    match seen {
        None => "left no record".to_owned(),
        Some(status) => {
            let life = match &status.life {
                Life::Alive => "left no record".to_owned(),
                Life::Left => "had left".to_owned(),
                Life::Dead { reason } => format!("died ({reason})"),
            };
            format!("{life}; the others saw that it {}", status.state)
        }
    }
}

/// The collective in words.
fn what(entry: &Entry) -> String {
    let mut text = format!("{} {}", entry.op, entry.seq);
    let mut notes = Vec::new();
    if let Some(dtype) = &entry.dtype {
        notes.push(format!("{dtype}, {} elements", entry.count));
    }
    notes.extend(entry.location.as_ref().map(|place| format!("at {place}")));
    notes.extend(entry.run.as_ref().map(ToString::to_string));
    if !notes.is_empty() {
        text += &format!(" ({})", notes.join("; "));
    }
    text
}

fn sentence(first: &Entry, members: &[Member]) -> String {
    let of = |stand| -> Vec<u32> {
        let those = members.iter().filter(|member| member.stand == stand);
        those.map(|member| member.rank).collect()
    };
    let mut parts = Vec::new();
    let late: Vec<String> = members
        .iter()
        .filter_map(|member| Some(format!("rank {} {}", member.rank, member.why.as_ref()?)))
        .collect();
    let (inside, completed) = (of(Stand::Inside), of(Stand::Completed));
    for (ranks, verb) in [(inside, "inside"), (completed, "done with it")] {
        if !ranks.is_empty() {
            let be = if ranks.len() == 1 { "is" } else { "are" };
            parts.push(format!("{} {be} {verb}", RankList(&ranks)));
        }
    }
    parts.extend(late);
    format!(
        "group {} ({}) waits in {}: {}",
        first.group,
        RankList(&first.ranks),
        what(first),
        parts.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{control::Position, recorder::Progress};

    /// An entry of the group of ranks 0 to 3: issued, and entered and completed if so.
    fn entry(op: &str, seq: u64, entered: bool, completed: bool) -> Entry {
        Entry {
            op: op.to_owned(),
            group: "world".to_owned(),
            ranks: vec![0, 1, 2, 3],
            seq,
            dtype: Some("f32".to_owned()),
            count: 6,
            bytes: 24,
            node: String::new(),
            location: Some(format!("mlp.hcom:{seq}:3")),
            run: None,
            issued_us: 100 * seq,
            entered_us: entered.then_some(100 * seq + 1),
            completed_us: completed.then_some(100 * seq + 2),
        }
    }

    fn position(op: &str, seq: u64) -> Option<Position> {
        Some(Position {
            op: op.to_owned(),
            group: "world".to_owned(),
            ranks: vec![0, 1, 2, 3],
            seq,
            run: None,
        })
    }

    fn record(rank: u32, entries: Vec<Entry>) -> Record {
        let last = |f: fn(&Entry) -> Option<u64>| {
            let last = entries.iter().rfind(|entry| f(entry).is_some());
            last.and_then(|entry| position(&entry.op, entry.seq))
        };
        Record {
            rank,
            world_size: 4,
            pid: 1,
            written_us: u64::from(rank),
            failure: None,
            state: RankState {
                entered: last(|entry| entry.entered_us),
                completed: last(|entry| entry.completed_us),
                waiting: None,
            },
            peers: (0..4)
                .map(|rank| PeerStatus {
                    rank,
                    life: match rank {
                        2 => Life::Dead {
                            reason: "connection closed".to_owned(),
                        },
                        _ => Life::Alive,
                    },
                    state: RankState {
                        entered: position("all_reduce", 4),
                        completed: position("all_reduce", 4),
                        waiting: None,
                    },
                })
                .collect(),
            dropped: 0,
            entries,
        }
    }

    #[test]
    fn a_sentence_names_who_is_inside_and_where_the_others_are() {
        let done = || entry("all_reduce", 4, true, true);
        let inside = || vec![done(), entry("all_reduce", 5, true, false)];
        let story = Story::of(&[
            record(3, vec![done(), entry("all_reduce", 5, false, false)]),
            record(1, vec![done()]),
            record(0, inside()),
        ]);
        assert_eq!(story.unrecorded, [2]);
        assert_eq!(story.stuck.len(), 1);
        assert_eq!(
            story.stuck[0].sentence,
            "group world (ranks 0, 1, 2, 3) waits in all_reduce 5 (f32, 6 elements; at \
             mlp.hcom:5:3): rank 0 is inside; rank 1 last completed all_reduce 4 of group world; \
             rank 2 died (connection closed); the others saw that it last completed all_reduce 4 \
             of group world; rank 3 has issued it, but its device last completed all_reduce 4 of \
             group world"
        );
    }

    #[test]
    fn ranks_that_are_at_different_collectives_are_told_apart() {
        let story = Story::of(&[
            record(0, vec![entry("all_reduce", 1, true, false)]),
            record(1, vec![entry("broadcast", 1, true, false)]),
            record(2, vec![entry("all_reduce", 1, true, true)]),
            record(3, vec![entry("all_reduce", 1, true, false)]),
        ]);
        let stands: Vec<Stand> = story.stuck[0].members.iter().map(|m| m.stand).collect();
        assert_eq!(
            stands,
            [
                Stand::Inside,
                Stand::Elsewhere,
                Stand::Completed,
                Stand::Inside
            ]
        );
        assert!(
            story.stuck[0].sentence.ends_with(
                "ranks 0, 3 are inside; rank 2 is done with it; rank 1 is at broadcast 1 (f32, 6 \
                 elements; at mlp.hcom:1:3)"
            ),
            "{}",
            story.stuck[0].sentence
        );
    }

    #[test]
    fn the_members_that_are_behind_are_named() {
        let reached = |record: &Record| {
            let groups = Progress::of(std::slice::from_ref(record));
            let member = groups[0].members[0];
            [member.issued, member.entered, member.completed]
        };
        let records = [
            record(0, vec![entry("all_reduce", 5, true, false)]),
            record(1, vec![entry("all_reduce", 4, true, true)]),
            record(3, Vec::new()),
        ];
        assert_eq!(reached(&records[0]), [5, 5, 0]);
        assert_eq!(reached(&records[1]), [4, 4, 4]);
        assert_eq!(Progress::of(&records)[0].behind, [1, 3]);
    }

    #[test]
    fn a_job_that_ended_well_is_stuck_nowhere() {
        let records: Vec<Record> = (0..4)
            .map(|rank| record(rank, vec![entry("barrier", 1, true, true)]))
            .collect();
        let story = Story::of(&records);
        assert_eq!((story.stuck.len(), story.unrecorded.len()), (0, 0));
    }
}
