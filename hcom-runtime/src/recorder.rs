//! The flight recorder: what a rank did last, kept in a ring and written when the job fails.
//!
//! Every collective takes an entry when the host issues it, and the watchdog adds when it saw the
//! device enter and complete it. When the job fails, or the rank ends, a rank whose
//! [`Settings::record_dir`](crate::Settings::record_dir) is set writes the ring with its own state
//! and what it knows of its peers, as [`Record`] in JSON, to the file [`file_name`] in that folder:
//! first under another name, then renamed, so that a reader finds a whole record or none. A record
//! that tells of a failure is not written again. The size is bounded by
//! [`Settings::record_entries`](crate::Settings::record_entries), about 500 bytes each.
//!
//! [`read_all`] takes the records of all ranks and [`Story::of`] puts them together: one sentence per
//! group that is stuck.

use std::{
    collections::VecDeque,
    fs, io,
    path::Path,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use hcom_ir::Group;
use serde::{Deserialize, Serialize};

use crate::{
    control::{PeerStatus, RankState, Run},
    failure::Failure,
    watchdog::Row,
};

mod progress;
mod story;

pub use progress::{Progress, Reached};
pub use story::{Member, Stand, Story, Stuck, read_all};

/// The longest text of a node in a record, in bytes.
const NODE_BYTES: usize = 240;

/// What one rank leaves behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Global rank.
    pub rank: u32,
    /// Number of ranks in the job.
    pub world_size: u32,
    /// Process.
    pub pid: u32,
    /// When it was written, in microseconds since 1970.
    pub written_us: u64,
    /// The failure of the job; `None` when the rank ended without one.
    pub failure: Option<Failure>,
    /// Where the rank stands.
    pub state: RankState,
    /// What it knew of all ranks, by global rank.
    pub peers: Vec<PeerStatus>,
    /// How many older collectives the ring has dropped.
    pub dropped: u64,
    /// The latest collectives in the order they were issued.
    pub entries: Vec<Entry>,
}

/// One collective, send, receive or barrier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Mnemonic of the operation.
    pub op: String,
    /// Name of the group.
    pub group: String,
    /// Global ranks of the group, in its order.
    pub ranks: Vec<u32>,
    /// Sequence number within the group, counted from 1.
    pub seq: u64,
    /// Element type; `None` for a barrier.
    pub dtype: Option<String>,
    /// Elements of this rank's operand.
    pub count: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The node as in the graph text, shortened when it is long.
    pub node: String,
    /// Its place in the source.
    pub location: Option<String>,
    /// The execution of a compiled graph that it is part of.
    pub run: Option<Run>,
    /// When the host issued it, in microseconds since 1970.
    pub issued_us: u64,
    /// When the watchdog saw that the device had entered it.
    pub entered_us: Option<u64>,
    /// When the watchdog saw that the device had completed it.
    pub completed_us: Option<u64>,
}

/// Name of the file with the record of global rank `rank`.
pub fn file_name(rank: u32) -> String {
    format!("hcom-record-{rank}.json")
}

impl Record {
    /// Writes the record into `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let name = file_name(self.rank);
        let draft = folder.join(format!(".{name}.{}", self.pid));
        let text = serde_json::to_vec(self)?;
        let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, folder.join(name)));
        if written.is_err() {
            // Nothing more can be done about the draft when even that fails.
            let _ = fs::remove_file(&draft);
        }
        written
    }

    /// Reads what [`Record::write`] wrote.
    ///
    /// # Errors
    /// What the file system says; a file that is no record.
    pub fn read(file: &Path) -> io::Result<Record> {
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }
}

/// An entry as it is kept.
#[derive(Debug)]
struct Kept {
    group: Arc<Group>,
    seq: u64,
    row: Arc<Row>,
    run: Option<Arc<Run>>,
    issued: Instant,
    entered: Option<Instant>,
    completed: Option<Instant>,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Recorder {
    limit: usize,
    /// Number of the first entry in the ring.
    first: u64,
    ring: VecDeque<Kept>,
}

impl Recorder {
    pub(crate) fn new(limit: usize) -> Recorder {
        Recorder {
            limit,
            first: 0,
            ring: VecDeque::with_capacity(limit),
        }
    }

    /// Whether it keeps anything.
    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Takes collective `seq` of `group`, issued at `now`. Returns the number of its entry.
    pub(crate) fn issue(
        &mut self,
        group: &Arc<Group>,
        seq: u64,
        row: &Arc<Row>,
        run: Option<&Arc<Run>>,
        now: Instant,
    ) -> u64 {
        if self.limit == 0 {
            return 0;
        }
        if self.ring.len() == self.limit {
            self.ring.pop_front();
            self.first += 1;
        }
        self.ring.push_back(Kept {
            group: group.clone(),
            seq,
            row: row.clone(),
            run: run.cloned(),
            issued: now,
            entered: None,
            completed: None,
        });
        self.first + self.ring.len() as u64 - 1
    }

    fn kept(&mut self, entry: u64) -> Option<&mut Kept> {
        let at = usize::try_from(entry.checked_sub(self.first)?).ok()?;
        self.ring.get_mut(at)
    }

    pub(crate) fn entered(&mut self, entry: u64, now: Instant) {
        if let Some(kept) = self.kept(entry) {
            kept.entered.get_or_insert(now);
        }
    }

    pub(crate) fn completed(&mut self, entry: u64, now: Instant) {
        if let Some(kept) = self.kept(entry) {
            kept.entered.get_or_insert(now);
            kept.completed.get_or_insert(now);
        }
    }

    /// The entries as they are written, and how many were dropped before them.
    pub(crate) fn entries(&self) -> (Vec<Entry>, u64) {
        let (now, clock) = (Instant::now(), since_1970_us());
        let us = |at: Instant| clock.saturating_sub(now.duration_since(at).as_micros() as u64);
        let entries = self.ring.iter().map(|kept| Entry {
            op: kept.row.op.to_owned(),
            group: kept.group.name.clone(),
            ranks: kept.group.ranks.clone(),
            seq: kept.seq,
            dtype: kept.row.dtype.map(|dtype| dtype.name().to_owned()),
            count: kept.row.count,
            bytes: kept.row.bytes(),
            node: shortened(&kept.row.node),
            location: kept.row.location.clone(),
            run: kept.run.as_deref().cloned(),
            issued_us: us(kept.issued),
            entered_us: kept.entered.map(us),
            completed_us: kept.completed.map(us),
        });
        (entries.collect(), self.first)
    }
}

/// The time in microseconds since 1970.
pub(crate) fn since_1970_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

fn shortened(node: &str) -> String {
    if node.len() <= NODE_BYTES {
        return node.to_owned();
    }
    let end = (0..=NODE_BYTES).rev().find(|&at| node.is_char_boundary(at));
    format!("{} …", &node[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(node: &str) -> Arc<Row> {
        Arc::new(Row {
            op: "all_reduce",
            node: node.to_owned(),
            location: None,
            dtype: Some(hcom_ir::DType::F32),
            count: 6,
        })
    }

    #[test]
    fn the_ring_keeps_the_latest_and_counts_the_rest() {
        let group = Arc::new(Group::new("tp", vec![0, 1]));
        let mut recorder = Recorder::new(3);
        let now = Instant::now();
        let numbers: Vec<u64> = (1..=5)
            .map(|seq| recorder.issue(&group, seq, &row(&"é".repeat(200)), None, now))
            .collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        recorder.completed(1, now);
        recorder.completed(2, now);
        recorder.entered(3, now);
        let (entries, dropped) = recorder.entries();
        assert_eq!(dropped, 2);
        assert_eq!(entries.iter().map(|e| e.seq).collect::<Vec<_>>(), [3, 4, 5]);
        let seen: Vec<[bool; 2]> = entries
            .iter()
            .map(|e| [e.entered_us.is_some(), e.completed_us.is_some()])
            .collect();
        assert_eq!(seen, [[true, true], [true, false], [false, false]]);
        assert_eq!((entries[0].count, entries[0].bytes), (6, 24));
        assert!(entries[0].node.len() < 250 && entries[0].node.ends_with("é …"));
    }

    #[test]
    fn a_ring_of_none_keeps_none() {
        let group = Arc::new(Group::new("tp", vec![0, 1]));
        let mut recorder = Recorder::new(0);
        let entry = recorder.issue(&group, 1, &row("x"), None, Instant::now());
        recorder.completed(entry, Instant::now());
        assert!(!recorder.is_on());
        assert_eq!(recorder.entries(), (Vec::new(), 0));
    }
}
