//! What one process exports and another opens: device memory and events, named by a number or a text.
//!
//! Every exporting process has one memory file with a slot per export. Its name is process, file descriptor and slot;
//! whoever may look into the process (`/proc/PID/fd`: the same user) opens the file there. A random token in slot and
//! name tells a reused slot or process number from the export that was meant. Nothing has a name in a file system.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};

use crate::code;
use crate::error::{Failure, Outcome, refuse};
use crate::memory::lock;
use crate::shm::Region;

/// Bytes of a slot.
const SLOT: usize = 256;
/// Slots of a process.
const SLOTS: usize = 4096;
/// Processes that may be allowed by number.
const MOST_PIDS: usize = 25;

/// What a slot holds, as the word that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Device memory.
    Memory = 1,
    /// An event.
    Event = 2,
}

/// The words of a slot.
#[derive(Clone, Copy)]
enum Word {
    Kind = 0,
    Token = 1,
    /// Memory: the file descriptor; an event: records queued.
    First = 2,
    /// Memory: offset in the file; an event: records reached.
    Second = 3,
    Bytes = 4,
    Device = 5,
    /// How many processes are named, or all when every bit is set.
    Pids = 6,
    FirstPid = 7,
}

/// The file of this process, and which slots are taken.
struct Exports {
    region: Arc<Region>,
    taken: Vec<bool>,
}

static EXPORTS: Mutex<Option<Exports>> = Mutex::new(None);

/// One export, of this process or another.
#[derive(Clone, Debug)]
pub(crate) struct Export {
    region: Arc<Region>,
    slot: usize,
}

/// Memory as an export describes it.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// The memory file, mapped.
    pub region: Arc<Region>,
    /// Where it starts there.
    pub offset: usize,
    /// How long it is.
    pub bytes: usize,
    /// The device it belongs to.
    pub device: u32,
}

impl Export {
    /// A fresh export.
    ///
    /// # Errors
    /// 207005 when there is no file or slot left.
    pub(crate) fn create(kind: Kind) -> Outcome<Self> {
        let resource = |text: String| Failure::new(code::RESOURCE, text);
        let mut exports = lock(&EXPORTS);
        if exports.is_none() {
            let region = Region::create("hcom-fake-exports", SLOT * SLOTS)
                .map_err(|error| resource(format!("no memory file for exports: {error}")))?;
            let taken = vec![false; SLOTS];
            *exports = Some(Exports { region, taken });
        }
        let exports = exports.as_mut().expect("made above");
        let Some(slot) = exports.taken.iter().position(|taken| !taken) else {
            return Err(resource(format!("all {SLOTS} exports are in use")));
        };
        let mut token = [0; 8];
        getrandom::fill(&mut token)
            .map_err(|error| resource(format!("no random numbers: {error}")))?;
        exports.taken[slot] = true;
        let export = Self {
            region: exports.region.clone(),
            slot,
        };
        for word in 2..SLOT / 8 {
            export.at(word).store(0, Ordering::Relaxed);
        }
        export.set(Word::Token, u64::from_ne_bytes(token) | 1);
        export.at(0).store(kind as u64, Ordering::Release);
        Ok(export)
    }

    fn at(&self, word: usize) -> &AtomicU64 {
        self.region.word64(self.slot * SLOT + word * 8)
    }

    fn get(&self, word: Word) -> u64 {
        self.at(word as usize).load(Ordering::Acquire)
    }

    fn set(&self, word: Word, value: u64) {
        self.at(word as usize).store(value, Ordering::Release);
    }

    /// Describes the memory that is exported, and whether any process may open it.
    pub(crate) fn describe(&self, memory: &Memory, everybody: bool) {
        let file = memory.region.file().expect("device memory is a file");
        self.set(Word::First, file.as_raw_fd() as u64);
        self.set(Word::Second, memory.offset as u64);
        self.set(Word::Bytes, memory.bytes as u64);
        self.set(Word::Device, u64::from(memory.device));
        self.set(Word::Pids, if everybody { u64::MAX } else { 0 });
    }

    /// Lets these processes open it as well.
    ///
    /// # Errors
    /// 207012 when there are too many.
    pub(crate) fn allow(&self, pids: &[i32]) -> Outcome {
        let count = self.get(Word::Pids);
        if count == u64::MAX {
            return Ok(());
        }
        if count as usize + pids.len() > MOST_PIDS {
            return refuse(
                code::OVER_LIMIT,
                format!("at most {MOST_PIDS} processes can be named"),
            );
        }
        for (index, &pid) in pids.iter().enumerate() {
            let word = Word::FirstPid as usize + count as usize + index;
            self.at(word).store(pid as u64, Ordering::Release);
        }
        self.set(Word::Pids, count + pids.len() as u64);
        Ok(())
    }

    /// The records of an exported event: queued, reached.
    pub(crate) fn records(&self) -> [&AtomicU64; 2] {
        [Word::First, Word::Second].map(|word| self.at(word as usize))
    }

    /// The number that names it.
    pub(crate) fn number(&self) -> u64 {
        let file = self.region.file().expect("exports are a file");
        u64::from(std::process::id()) << 32 | (file.as_raw_fd() as u64) << 12 | self.slot as u64
    }

    /// The text that names it.
    pub(crate) fn key(&self) -> String {
        format!("{:016x}{:016x}", self.number(), self.get(Word::Token))
    }

    /// Opens the export with this number; `token` is 0 where the name has none.
    ///
    /// # Errors
    /// 107017 when there is no such export of this kind; 207006 when this process is not among those allowed.
    pub(crate) fn open(number: u64, token: u64, kind: Kind) -> Outcome<Self> {
        let unknown = |why: String| Failure::new(code::HANDLE, why);
        let (pid, file, slot) = (
            number >> 32,
            number >> 12 & 0xfffff,
            number as usize & 0xfff,
        );
        let region = adopt(pid, file).map_err(unknown)?;
        if region.bytes() != SLOT * SLOTS {
            return Err(unknown(format!(
                "{number:#x} names no export of process {pid}"
            )));
        }
        let export = Self { region, slot };
        let found = export.get(Word::Kind) == kind as u64;
        if !found || (token != 0 && export.get(Word::Token) != token) {
            return Err(unknown(format!("the export of process {pid} is over")));
        }
        if kind == Kind::Memory {
            export.permit(pid)?;
        }
        Ok(export)
    }

    /// Opens the export that a text names.
    ///
    /// # Errors
    /// As [`Export::open`].
    pub(crate) fn open_key(key: &str, kind: Kind) -> Outcome<Self> {
        let part = |range| u64::from_str_radix(key.get(range)?, 16).ok();
        match (part(0..16), part(16..32)) {
            (Some(number), Some(token)) if key.len() == 32 => Self::open(number, token, kind),
            _ => refuse(code::HANDLE, format!("{key:?} is no key of an export")),
        }
    }

    fn permit(&self, exporter: u64) -> Outcome {
        let (own, count) = (u64::from(std::process::id()), self.get(Word::Pids));
        let named = |index| {
            self.at(Word::FirstPid as usize + index)
                .load(Ordering::Acquire)
                == own
        };
        if own == exporter || count == u64::MAX || (0..(count as usize).min(MOST_PIDS)).any(named) {
            return Ok(());
        }
        refuse(
            code::NO_PERMISSION,
            format!("process {exporter} did not name process {own} among those that may open this"),
        )
    }

    /// The memory behind it.
    ///
    /// # Errors
    /// 107017 when the exporter's memory cannot be opened any more.
    pub(crate) fn memory(&self, number: u64) -> Outcome<Memory> {
        let region = adopt(number >> 32, self.get(Word::First))
            .map_err(|why| Failure::new(code::HANDLE, why))?;
        Ok(Memory {
            region,
            offset: self.get(Word::Second) as usize,
            bytes: self.get(Word::Bytes) as usize,
            device: self.get(Word::Device) as u32,
        })
    }

    /// Ends an export of this process; elsewhere it does nothing.
    pub(crate) fn close(&self) {
        let mut exports = lock(&EXPORTS);
        if let Some(exports) = exports.as_mut()
            && Arc::ptr_eq(&exports.region, &self.region)
        {
            self.set(Word::Kind, 0);
            exports.taken[self.slot] = false;
        }
    }
}

/// Maps a memory file of a process.
fn adopt(pid: u64, file: u64) -> Result<Arc<Region>, String> {
    let path = format!("/proc/{pid}/fd/{file}");
    let open: OwnedFd = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("process {pid} has no such export ({path}: {error})"))?;
    Region::adopt(open).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_found_by_number_and_by_key_until_it_is_closed() {
        let export = Export::create(Kind::Event).unwrap();
        export.records()[0].store(5, Ordering::Relaxed);
        for found in [
            Export::open(export.number(), 0, Kind::Event).unwrap(),
            Export::open_key(&export.key(), Kind::Event).unwrap(),
        ] {
            assert_eq!(found.records()[0].load(Ordering::Relaxed), 5);
        }
        assert_eq!(
            Export::open(export.number(), 0, Kind::Memory)
                .unwrap_err()
                .code,
            code::HANDLE
        );
        let key = export.key();
        export.close();
        assert_eq!(
            Export::open_key(&key, Kind::Event).unwrap_err().code,
            code::HANDLE
        );
        assert!(Export::open_key("no key", Kind::Event).is_err());
    }

    #[test]
    fn memory_is_opened_by_those_that_were_named() {
        let region = Region::create("test", 8192).unwrap();
        region.word64(4096).store(9, Ordering::Relaxed);
        let export = Export::create(Kind::Memory).unwrap();
        let memory = Memory {
            region,
            offset: 4096,
            bytes: 8,
            device: 3,
        };
        export.describe(&memory, false);
        assert_eq!(export.permit(1).unwrap_err().code, code::NO_PERMISSION);
        export.allow(&[std::process::id() as i32]).unwrap();
        export.permit(1).unwrap();
        let found = export.memory(export.number()).unwrap();
        assert_eq!((found.offset, found.bytes, found.device), (4096, 8, 3));
        assert_eq!(found.region.word64(4096).load(Ordering::Relaxed), 9);
        assert!(export.allow(&[1; MOST_PIDS]).is_err());
        export.close();
    }
}
