//! A call before it becomes work: what is checked, and in which order.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hcom_sys::bindings::{self as sys, HcclDataType, HcclReduceOp, HcclResult};

use super::collective::Collective;
use super::exchange::{Exchange, Item};
use super::operation::{Blocks, Cut, InPlace, Kind, Layout, Who};
use super::{Communicator, find, group, runtime};
use crate::code;
use crate::config;
use crate::error::{Outcome, refuse};
use crate::soc;
use crate::span::Span;
use crate::stream::{self, Stream};

/// The largest element count of a call.
const MOST: u64 = 0x7_ffff_ffff;

/// The arguments of a call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Which operation.
    pub kind: Kind,
    /// Null where there is none; the same as `recv` for a broadcast.
    pub send: *mut c_void,
    /// Null where there is none.
    pub recv: *mut c_void,
    /// Elements of a block (whole and even buffers).
    pub count: u64,
    /// Of the elements.
    pub dtype: HcclDataType,
    /// For reductions.
    pub op: Option<HcclReduceOp>,
    /// The root, or the other rank of a transfer; else 0.
    pub root: u32,
    /// Of an uneven send buffer.
    pub send_blocks: Blocks,
    /// Of an uneven receive buffer.
    pub recv_blocks: Blocks,
}

impl Call {
    /// A call without buffers, reduction and root.
    pub(crate) fn new(kind: Kind, count: u64, dtype: HcclDataType) -> Self {
        Self {
            kind,
            send: std::ptr::null_mut(),
            recv: std::ptr::null_mut(),
            count,
            dtype,
            op: None,
            root: 0,
            send_blocks: Blocks::default(),
            recv_blocks: Blocks::default(),
        }
    }
}

/// A device range by address, looked up again when it is used: it may have been freed in between.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Buffer {
    pub(super) address: usize,
    pub(super) bytes: usize,
}

impl Buffer {
    /// A buffer of `bytes` whose elements have `element` bytes each.
    ///
    /// # Errors
    /// `HCCL_E_PARA` when it is no allocation of the communicator's device, or misaligned.
    fn check(
        comm: &Communicator,
        name: &str,
        pointer: *const c_void,
        bytes: usize,
        element: usize,
    ) -> Outcome<Self> {
        if bytes > 0 {
            if let Err(text) = comm.device.arena.offset(pointer.addr(), bytes) {
                return hccl(sys::HCCL_E_PARA, format!("{name}: {text}"));
            }
            if !pointer.addr().is_multiple_of(element) {
                return hccl(
                    sys::HCCL_E_PARA,
                    format!(
                        "{name} {:#x} is not aligned to its elements",
                        pointer.addr()
                    ),
                );
            }
        }
        Ok(Self {
            address: pointer.addr(),
            bytes,
        })
    }

    /// The bytes, if they still are an allocation.
    ///
    /// # Errors
    /// A device memory error when they were freed.
    pub(super) fn span(self, comm: &Communicator) -> Outcome<Span> {
        let arena = &comm.device.arena;
        if self.bytes == 0 {
            return Ok(Span::inside(arena.region(), 0, 0).expect("empty"));
        }
        match arena.offset(self.address, self.bytes) {
            Ok(offset) => {
                Ok(Span::inside(arena.region(), offset, self.bytes)
                    .expect("allocations lie inside"))
            }
            Err(text) => refuse(
                code::DEVICE_MEMORY,
                format!("a buffer was freed before the operation ran: {text}"),
            ),
        }
    }
}

fn hccl<T>(code: HcclResult, text: impl Into<String>) -> Outcome<T> {
    refuse(code.0 as i32, text)
}

/// Checks a call in the order the library documents, and queues it.
///
/// # Errors
/// `HCCL_E_PTR`, `HCCL_E_PARA`, `HCCL_E_NOT_SUPPORT` as documented; `HCCL_E_SUSPENDING`; `HCCL_E_REMOTE` on a broken
/// communicator; `HCCL_E_RUNTIME` when the stream takes no work.
pub(crate) fn submit(comm: *const c_void, stream: *const c_void, call: &Call) -> Outcome {
    let rules = call.kind.rules();
    let name = rules.name;
    if rules.zero_is_nothing && call.count == 0 {
        return Ok(());
    }
    let comm = reach(comm, stream, name)?;
    let is_root = call.root == comm.rank;
    let needs = |cut: Cut, blocks: &Blocks| match cut {
        Cut::Nothing => false,
        Cut::Whole | Cut::Even => !rules.is_uneven() || call.count > 0,
        Cut::Uneven => blocks.counts.iter().any(|&count| count > 0),
    };
    // A scatter's send buffer counts on the root only; a reduction's receive buffer must be there on every rank.
    let sends = needs(rules.send, &call.send_blocks) && (rules.from == Who::Everybody || is_root);
    if (sends && call.send.is_null())
        || (needs(rules.recv, &call.recv_blocks) && call.recv.is_null())
    {
        return hccl(sys::HCCL_E_PTR, format!("{name}: a buffer is null"));
    }
    let lists = [&call.send_blocks, &call.recv_blocks];
    let counts = lists.into_iter().flat_map(|blocks| &blocks.counts);
    for &count in counts.chain([&call.count]) {
        check_count(name, count)?;
    }
    check_type(call.kind, call.dtype, call.op)?;
    if rules.has_root() && call.root >= comm.size {
        return hccl(
            sys::HCCL_E_PARA,
            format!("{name}: root {} of {} ranks", call.root, comm.size),
        );
    }
    comm.takes_work(name, |_| true)?;
    let mut work = collective(comm.clone(), call)?;
    let stream = stream_of(&comm, stream, name)?;
    if let Some(capture) = comm.capture_of(&stream) {
        work.record(capture);
    }
    group::run(group::Call::Collective(stream, Arc::new(work)))
}

/// Checks a batch of transfers in the order the library documents, and queues it. `kind` says what the batch is called.
///
/// # Errors
/// As [`submit`].
pub(crate) fn submit_transfers(
    comm: *const c_void,
    stream: *const c_void,
    kind: Kind,
    transfers: &[Call],
) -> Outcome {
    let name = kind.name();
    let comm = reach(comm, stream, name)?;
    let mut items = Vec::new();
    for call in transfers {
        let buffer = if call.kind == Kind::Send {
            call.send
        } else {
            call.recv
        };
        if buffer.is_null() {
            // In a batch such an item is left out, as on the chips.
            if kind == Kind::Batch {
                continue;
            }
            return hccl(sys::HCCL_E_PTR, format!("{name}: the buffer is null"));
        }
        check_count(name, call.count)?;
        check_type(call.kind, call.dtype, None)?;
        if call.root >= comm.size {
            return hccl(
                sys::HCCL_E_PARA,
                format!("{name}: rank {} of {} ranks", call.root, comm.size),
            );
        }
        let element = soc::element_bytes(call.dtype).expect("supported types have a size");
        let bytes = bytes_of(name, call.count, element)?;
        items.push(Item {
            sends: call.kind == Kind::Send,
            peer: call.root,
            dtype: call.dtype,
            count: call.count,
            buffer: Buffer::check(&comm, &format!("{name}: buffer"), buffer, bytes, element)?,
        });
    }
    if kind == Kind::Batch {
        check_own(&comm, &items)?;
    }
    comm.takes_work(name, |rank| items.iter().any(|item| item.peer == rank))?;
    let work = Exchange {
        comm: comm.clone(),
        kind,
        items,
    };
    let stream = stream_of(&comm, stream, name)?;
    group::run(group::Call::Transfers(stream, work))
}

/// What a rank sends to itself it must receive in the same batch.
fn check_own(comm: &Communicator, items: &[Item]) -> Outcome {
    let own = |sends: bool| {
        items
            .iter()
            .filter(move |item| item.peer == comm.rank && item.sends == sends)
            .map(|item| (item.count, item.dtype))
    };
    if own(true).eq(own(false)) {
        return Ok(());
    }
    hccl(
        sys::HCCL_E_PARA,
        format!(
            "batch_send_recv: rank {} does not send to itself what it receives from itself",
            comm.rank
        ),
    )
}

fn reach(comm: *const c_void, stream: *const c_void, name: &str) -> Outcome<Arc<Communicator>> {
    if stream.is_null() {
        return hccl(
            sys::HCCL_E_PTR,
            format!("{name}: the stream is null; collectives have no default stream"),
        );
    }
    find(comm)
}

fn check_count(name: &str, count: u64) -> Outcome {
    if count > MOST {
        return hccl(
            sys::HCCL_E_PARA,
            format!("{name}: {count} elements; at most {MOST}"),
        );
    }
    Ok(())
}

fn check_type(kind: Kind, dtype: HcclDataType, op: Option<HcclReduceOp>) -> Outcome {
    let soc = &config::or_default().soc;
    if kind.supported(soc, dtype, op) {
        return Ok(());
    }
    let mut what = soc::dtype_name(dtype);
    if let Some(op) = op {
        what = format!("{} of {what}", soc::op_name(op));
    }
    hccl(
        sys::HCCL_E_NOT_SUPPORT,
        format!(
            "{}: {what} is not supported on {}",
            kind.name(),
            soc.name.to_string_lossy()
        ),
    )
}

fn bytes_of(name: &str, elements: u64, element: usize) -> Outcome<usize> {
    let bytes = usize::try_from(elements)
        .ok()
        .and_then(|elements| elements.checked_mul(element));
    match bytes {
        Some(bytes) => Ok(bytes),
        None => hccl(
            sys::HCCL_E_PARA,
            format!("{name}: {elements} elements are more than any memory has"),
        ),
    }
}

fn collective(comm: Arc<Communicator>, call: &Call) -> Outcome<Collective> {
    let rules = call.kind.rules();
    let name = rules.name;
    let ranks = comm.size as usize;
    let element = soc::element_bytes(call.dtype).expect("supported types have a size");
    let unit = bytes_of(name, call.count, element)?;
    let cut = |cut: Cut, blocks: &Blocks| -> Outcome<(Layout, usize)> {
        Ok(match cut {
            Cut::Nothing => (Layout::Whole(0), 0),
            Cut::Whole => (Layout::Whole(unit), unit),
            // At most 2^35 elements of 8 bytes for each of a host's ranks.
            Cut::Even => (Layout::Even(unit), unit * ranks),
            Cut::Uneven => {
                let bytes = bytes_of(name, blocks.extent().unwrap_or(u64::MAX), element)?;
                let blocks = blocks.clone();
                (Layout::Uneven { blocks, element }, bytes)
            }
        })
    };
    let (send_layout, send_bytes) = cut(rules.send, &call.send_blocks)?;
    let (recv_layout, recv_bytes) = cut(rules.recv, &call.recv_blocks)?;
    let takes_part = |who: Who| who == Who::Everybody || call.root == comm.rank;
    let buffer = |pointer: *mut c_void, bytes: usize, who: Who, what: &str| {
        let bytes = if takes_part(who) { bytes } else { 0 };
        let what = format!("{name}: {what} buffer");
        Buffer::check(&comm, &what, pointer, bytes, element)
    };
    let send = buffer(call.send, send_bytes, rules.from, "send")?;
    let recv = buffer(call.recv, recv_bytes, rules.to, "receive")?;
    let own_block = recv_layout.block(comm.rank as usize).0;
    let apart =
        send.address + send.bytes <= recv.address || recv.address + recv.bytes <= send.address;
    let fine = match rules.in_place {
        InPlace::Never => false,
        InPlace::Same => send.address == recv.address,
        InPlace::OwnBlock => send.address == recv.address + own_block,
        InPlace::Anywhere => true,
    };
    if send.bytes > 0 && recv.bytes > 0 && !apart && !fine {
        let rule = match rules.in_place {
            InPlace::Never => "it does not work in place",
            _ => "they may be the same or apart",
        };
        return hccl(
            sys::HCCL_E_PARA,
            format!("{name}: the send and the receive buffer overlap; {rule}"),
        );
    }
    Ok(Collective {
        kind: call.kind,
        dtype: call.dtype,
        op: call.op.unwrap_or(sys::HCCL_REDUCE_RESERVED),
        root: call.root,
        count: call.count,
        send,
        recv,
        send_layout,
        recv_layout,
        comm,
        capture: None,
    })
}

fn stream_of(comm: &Communicator, stream: *const c_void, name: &str) -> Outcome<Arc<Stream>> {
    let stream = stream::find(stream).map_err(runtime)?;
    if stream.device.id != comm.device.id {
        return hccl(
            sys::HCCL_E_PARA,
            format!(
                "{name}: the stream is on device {}, the communicator on device {}",
                stream.device.id, comm.device.id
            ),
        );
    }
    Ok(stream)
}

impl Communicator {
    /// Refuses new work while suspended, and for good when broken or without a rank that it needs.
    fn takes_work(&self, name: &str, needs: impl Fn(u32) -> bool) -> Outcome {
        if self.suspended.load(Ordering::SeqCst) {
            return hccl(
                sys::HCCL_E_SUSPENDING,
                format!("{name}: communicator {} is suspended", self.name),
            );
        }
        match self.failure_with(needs) {
            Some(failure) => hccl(sys::HCCL_E_REMOTE, format!("{name}: {}", failure.text)),
            None => Ok(()),
        }
    }
}
