//! Copies, fills, and words written and awaited on streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::code;
use crate::error::{Outcome, refuse};
use crate::memory;
use crate::span::Span;
use crate::stream::{Stream, Work};

/// What is known about memory named by a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Device memory, checked again when it is used: it may have been freed in between.
    Device,
    /// Host memory that stays put.
    Pinned,
    /// Other host memory: only safe to use before the call returns.
    Pageable,
}

/// One side of a copy.
#[derive(Clone)]
pub(crate) struct Side {
    /// The address the program used.
    pub pointer: *mut std::ffi::c_void,
    /// Where the bytes are.
    pub span: Span,
    /// Whose they are.
    pub owner: Owner,
}

/// A [`Side`] on its way to the stream's thread.
struct Bytes {
    address: usize,
    span: Span,
    owner: Owner,
}

impl Bytes {
    fn new(side: Side) -> Self {
        Self {
            address: side.pointer.addr(),
            span: side.span,
            owner: side.owner,
        }
    }

    fn get(&self) -> Outcome<Span> {
        if self.owner != Owner::Device {
            return Ok(self.span.clone());
        }
        let pointer = std::ptr::without_provenance(self.address);
        memory::span(pointer, self.span.bytes()).or_else(|failure| {
            refuse(
                code::DEVICE_MEMORY,
                format!(
                    "memory was freed while work on it was queued: {}",
                    failure.text
                ),
            )
        })
    }
}

struct Copying {
    to: Bytes,
    from: Bytes,
}

impl Work for Copying {
    fn name(&self) -> &str {
        "a copy"
    }
    fn run(&self, _: u64, _: &Stream) -> Outcome {
        self.to.get()?.copy_from(&self.from.get()?);
        Ok(())
    }
}

/// Queues a copy. Pageable host memory is not touched after this returns, so the call then waits for the copy.
///
/// # Errors
/// 207000 from host to host; those of [`Stream::enqueue`].
pub(crate) fn enqueue(to: Side, from: Side, stream: &Arc<Stream>) -> Outcome {
    if to.owner != Owner::Device && from.owner != Owner::Device {
        return refuse(
            code::NOT_SUPPORTED,
            "an asynchronous copy from host to host",
        );
    }
    let waits = to.owner == Owner::Pageable || from.owner == Owner::Pageable;
    if waits {
        not_captured(stream)?;
    }
    let position = stream.enqueue(Arc::new(Copying {
        to: Bytes::new(to),
        from: Bytes::new(from),
    }))?;
    if waits {
        stream.wait_for(position);
    }
    Ok(())
}

/// Queues copies, one behind the other.
///
/// # Errors
/// As [`enqueue`].
pub(crate) fn enqueue_all(copies: Vec<(Side, Side)>, stream: &Arc<Stream>) -> Outcome {
    copies
        .into_iter()
        .try_for_each(|(to, from)| enqueue(to, from, stream))
}

/// Refuses what would have to wait for a stream that only records.
fn not_captured(stream: &Stream) -> Outcome {
    match stream.capture() {
        None => Ok(()),
        Some(capture) => {
            capture.break_off();
            refuse(code::CAPTURE_BLOCKS, "pageable host memory in a capture")
        }
    }
}

struct Filling {
    to: Bytes,
    byte: u8,
}

impl Work for Filling {
    fn name(&self) -> &str {
        "a fill"
    }
    fn run(&self, _: u64, _: &Stream) -> Outcome {
        self.to.get()?.fill(self.byte);
        Ok(())
    }
}

/// Queues setting every byte.
///
/// # Errors
/// Those of [`Stream::enqueue`].
pub(crate) fn fill(to: Side, byte: u8, stream: &Arc<Stream>) -> Outcome {
    let waits = to.owner == Owner::Pageable;
    if waits {
        not_captured(stream)?;
    }
    let position = stream.enqueue(Arc::new(Filling {
        to: Bytes::new(to),
        byte,
    }))?;
    if waits {
        stream.wait_for(position);
    }
    Ok(())
}

/// How `aclrtValueWait` compares the word in memory with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The word is at least the value.
    AtLeast,
    /// The word is the value.
    Equal,
    /// They share a bit.
    And,
    /// Some bit is in neither.
    Nor,
}

impl Until {
    /// The comparison with this number in the C interface.
    pub(crate) fn from_flag(flag: u32) -> Option<Self> {
        [Self::AtLeast, Self::Equal, Self::And, Self::Nor]
            .get(flag as usize)
            .copied()
    }

    fn holds(self, word: u64, value: u64) -> bool {
        match self {
            Self::AtLeast => word >= value,
            Self::Equal => word == value,
            Self::And => word & value != 0,
            Self::Nor => !(word | value) != 0,
        }
    }
}

struct WordWork {
    at: Bytes,
    value: u64,
    /// `None` writes the value.
    until: Option<Until>,
}

impl Work for WordWork {
    fn name(&self) -> &str {
        if self.until.is_some() {
            "a wait for a value"
        } else {
            "a value write"
        }
    }

    fn run(&self, _: u64, stream: &Stream) -> Outcome {
        let span = self.at.get()?;
        let Some(word) = span.word64() else {
            return refuse(code::TASK_FAILED, "a word that is not aligned");
        };
        let Some(until) = self.until else {
            // Release: whoever sees the value sees what this stream did before.
            word.store(self.value, Ordering::Release);
            return Ok(());
        };
        let mut nap = Duration::from_micros(2);
        while !until.holds(word.load(Ordering::Acquire), self.value) {
            if stream.aborted() {
                return Err(stream.abort_failure());
            }
            // Whoever writes the word may be another process or plain host code that wakes nobody.
            thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Queues writing (`until` is `None`) or awaiting an aligned 64-bit word in device or pinned memory.
///
/// # Errors
/// 107000 for a misaligned or pageable word; those of [`Stream::enqueue`].
pub(crate) fn word(at: Side, value: u64, until: Option<Until>, stream: &Arc<Stream>) -> Outcome {
    if at.owner == Owner::Pageable || at.span.word64().is_none() {
        return refuse(
            code::RT_PARAM,
            format!(
                "{:#x}: expected eight aligned bytes of device or pinned memory",
                at.pointer.addr()
            ),
        );
    }
    stream
        .enqueue(Arc::new(WordWork {
            at: Bytes::new(at),
            value,
            until,
        }))
        .map(|_| ())
}
