//! A collective call: what is checked at the call, what is queued, and how it runs.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hcom_sys::bindings::{self as sys, HcclDataType, HcclReduceOp, HcclResult};

use super::control::{Descriptor, SLOT};
use super::{Communicator, algorithms, find, reduce, sync};
use crate::clock;
use crate::code;
use crate::config;
use crate::error::{Failure, Outcome, refuse};
use crate::link;
use crate::memory;
use crate::soc;
use crate::span::Span;
use crate::stream::{self, Stream, Work};

/// The largest element count of a call.
const MOST: u64 = 0x7_ffff_ffff;

/// Which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Everybody gets the reduction of all.
    AllReduce = 1,
    /// Everybody gets everything, in rank order.
    AllGather,
    /// Rank r gets block r of the reduction.
    ReduceScatter,
    /// Everybody gets the root's buffer.
    Broadcast,
    /// Nobody goes on before all have come.
    Barrier,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Barrier => "barrier",
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        [
            Self::AllReduce,
            Self::AllGather,
            Self::ReduceScatter,
            Self::Broadcast,
            Self::Barrier,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
    }
}

/// The arguments of a call. `count` is per rank: for all_gather what each sends, for reduce_scatter what each gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Which collective.
    pub kind: Kind,
    /// Null for a barrier.
    pub send: *mut c_void,
    /// Null for a barrier; the same as `send` for a broadcast.
    pub recv: *mut c_void,
    /// Elements.
    pub count: u64,
    /// Of the elements.
    pub dtype: HcclDataType,
    /// For reductions.
    pub op: Option<HcclReduceOp>,
    /// For a broadcast, else 0.
    pub root: u32,
}

/// A call whose buffers are known to be allocations of the communicator's device.
pub(super) struct Collective {
    comm: Arc<Communicator>,
    pub(super) kind: Kind,
    pub(super) dtype: HcclDataType,
    pub(super) op: HcclReduceOp,
    pub(super) root: u32,
    pub(super) count: u64,
    /// Bytes of `count` elements.
    pub(super) unit: usize,
    send: Buffer,
    recv: Buffer,
}

/// A device range by address, looked up again when it is used: it may have been freed in between.
#[derive(Clone, Copy)]
struct Buffer {
    address: usize,
    bytes: usize,
}

fn hccl<T>(code: HcclResult, text: impl Into<String>) -> Outcome<T> {
    refuse(code.0 as i32, text)
}

/// Checks a call in the order the library documents, and queues it.
///
/// # Errors
/// `HCCL_E_PTR`, `HCCL_E_PARA`, `HCCL_E_NOT_SUPPORT` as documented; `HCCL_E_SUSPENDING`; `HCCL_E_REMOTE` on a broken
/// communicator; `HCCL_E_RUNTIME` when the stream takes no work.
pub(crate) fn submit(comm: *const c_void, stream: *const c_void, call: Call) -> Outcome {
    let name = call.kind.name();
    if call.kind != Kind::Barrier && call.count == 0 {
        return Ok(());
    }
    if stream.is_null() {
        return hccl(
            sys::HCCL_E_PTR,
            format!("{name}: the stream is null; collectives have no default stream"),
        );
    }
    let comm = find(comm)?;
    if call.kind != Kind::Barrier && (call.send.is_null() || call.recv.is_null()) {
        return hccl(sys::HCCL_E_PTR, format!("{name}: a buffer is null"));
    }
    if call.count > MOST {
        return hccl(
            sys::HCCL_E_PARA,
            format!("{name}: {} elements; at most {MOST}", call.count),
        );
    }
    let soc = &config::or_default().soc;
    let chip = soc.name.to_string_lossy();
    let dtype = soc::dtype_name(call.dtype);
    if let Some(op) = call.op {
        if !soc.reduces(call.dtype, op) || !reduce::knows(call.dtype) {
            return hccl(
                sys::HCCL_E_NOT_SUPPORT,
                format!(
                    "{name}: {} of {dtype} is not supported on {chip}",
                    soc::op_name(op)
                ),
            );
        }
    } else if !soc.moves(call.dtype) {
        return hccl(
            sys::HCCL_E_NOT_SUPPORT,
            format!("{name}: {dtype} is not supported on {chip}"),
        );
    }
    if call.root >= comm.size {
        return hccl(
            sys::HCCL_E_PARA,
            format!("{name}: root {} of {} ranks", call.root, comm.size),
        );
    }
    if comm.suspended.load(Ordering::SeqCst) {
        return hccl(
            sys::HCCL_E_SUSPENDING,
            format!("{name}: communicator {} is suspended", comm.name),
        );
    }
    if let Some(failure) = comm.failure() {
        return hccl(sys::HCCL_E_REMOTE, format!("{name}: {}", failure.text));
    }
    let collective = Collective::new(comm, &call)?;
    let runtime = |failure: Failure| Failure::new(sys::HCCL_E_RUNTIME.0 as i32, failure.text);
    let stream = stream::find(stream).map_err(runtime)?;
    if stream.device.id != collective.comm.device.id {
        return hccl(
            sys::HCCL_E_PARA,
            format!(
                "{name}: the stream is on device {}, the communicator on device {}",
                stream.device.id, collective.comm.device.id
            ),
        );
    }
    stream
        .enqueue(Arc::new(collective))
        .map(|_| ())
        .map_err(runtime)
}

impl Collective {
    fn new(comm: Arc<Communicator>, call: &Call) -> Outcome<Self> {
        let name = call.kind.name();
        let element = soc::element_bytes(call.dtype).expect("supported types have a size");
        let unit = call.count as usize * element;
        let all = unit.saturating_mul(comm.size as usize);
        let (send_bytes, recv_bytes) = match call.kind {
            Kind::AllReduce | Kind::Broadcast => (unit, unit),
            Kind::AllGather => (unit, all),
            Kind::ReduceScatter => (all, unit),
            Kind::Barrier => (0, 0),
        };
        for (pointer, bytes, what) in [
            (call.send, send_bytes, "send"),
            (call.recv, recv_bytes, "receive"),
        ] {
            if bytes == 0 {
                continue;
            }
            if let Err(text) = comm.device.arena.offset(pointer.addr(), bytes) {
                return hccl(sys::HCCL_E_PARA, format!("{name}: {what} buffer: {text}"));
            }
            if !pointer.addr().is_multiple_of(element) {
                return hccl(
                    sys::HCCL_E_PARA,
                    format!(
                        "{name}: {what} buffer {:#x} is not aligned to its elements",
                        pointer.addr()
                    ),
                );
            }
        }
        let collective = Self {
            kind: call.kind,
            dtype: call.dtype,
            op: call.op.unwrap_or(sys::HCCL_REDUCE_RESERVED),
            root: call.root,
            count: call.count,
            unit,
            send: Buffer {
                address: call.send.addr(),
                bytes: send_bytes,
            },
            recv: Buffer {
                address: call.recv.addr(),
                bytes: recv_bytes,
            },
            comm,
        };
        collective.check_overlap()?;
        Ok(collective)
    }

    /// Buffers may be the same, or not touch; all_gather also in place at its own block, and reduce_scatter may write
    /// anywhere into its own input. Other overlaps have no meaning.
    fn check_overlap(&self) -> Outcome {
        let (send, recv) = (self.send, self.recv);
        let apart =
            send.address + send.bytes <= recv.address || recv.address + recv.bytes <= send.address;
        let fine = match self.kind {
            Kind::AllReduce | Kind::Broadcast => send.address == recv.address,
            Kind::AllGather => send.address == recv.address + self.comm.rank as usize * self.unit,
            Kind::ReduceScatter => true,
            Kind::Barrier => true,
        };
        if apart || fine {
            return Ok(());
        }
        hccl(
            sys::HCCL_E_PARA,
            format!(
                "{}: the send and the receive buffer overlap without being the same",
                self.kind.name()
            ),
        )
    }

    /// Whether the data goes through the slots of the control block.
    fn is_small(&self) -> bool {
        match self.kind {
            Kind::AllReduce | Kind::AllGather | Kind::Broadcast => self.unit <= SLOT,
            Kind::ReduceScatter => self.send.bytes <= SLOT,
            Kind::Barrier => true,
        }
    }

    fn span(&self, buffer: Buffer) -> Outcome<Span> {
        let arena = &self.comm.device.arena;
        if buffer.bytes == 0 {
            return Ok(Span::inside(arena.region(), 0, 0).expect("empty"));
        }
        match arena.offset(buffer.address, buffer.bytes) {
            Ok(offset) => {
                Ok(Span::inside(arena.region(), offset, buffer.bytes)
                    .expect("allocations lie inside"))
            }
            Err(text) => refuse(
                code::DEVICE_MEMORY,
                format!(
                    "{}: a buffer was freed before the collective ran: {text}",
                    self.kind.name()
                ),
            ),
        }
    }

    fn describe(&self, send: &Span, recv: &Span) -> Descriptor {
        let base = self.comm.device.arena.region().base().addr();
        let link = link::model();
        Descriptor {
            kind: self.kind as u8,
            dtype: self.dtype.0 as u8,
            op: self.op.0 as u8,
            root: self.root,
            count: self.count,
            send: (send.address() - base) as u64,
            recv: (recv.address() - base) as u64,
            ready: clock::now(),
            link: link.map_or([0; 2], |link| [link.alpha_ns, link.bytes_per_ns.to_bits()]),
        }
    }

    fn execute(&self, stream: &Stream) -> Outcome {
        let comm = &*self.comm;
        let rank = comm.rank as usize;
        let (collective, phase) = {
            let mut order = memory::lock(&comm.order);
            order.collectives += 1;
            (order.collectives, order.phase)
        };
        let (send, recv) = (self.span(self.send)?, self.span(self.recv)?);
        let mine = self.describe(&send, &recv);
        let small = self.is_small();
        if small
            && self.kind != Kind::Barrier
            && (self.kind != Kind::Broadcast || self.root == comm.rank)
        {
            comm.control
                .slot(rank, collective, send.bytes())
                .copy_from(&send);
        }
        comm.control.describe(rank, collective, mine);
        self.meet(stream, collective, phase + 1)?;
        memory::lock(&comm.order).phase = phase + 1;
        let all: Vec<Descriptor> = (0..comm.size as usize)
            .map(|rank| comm.control.described(rank, collective))
            .collect();
        self.compare(&all)?;
        let data = algorithms::Data {
            comm,
            collective,
            all: &all,
            send,
            recv,
        };
        if small {
            data.through_slots(self);
        }
        let kept = if small { None } else { data.direct(self) };
        if small && mine.link == [0; 2] {
            return Ok(());
        }
        self.model_transfer(stream, &all)?;
        self.meet(stream, collective, phase + 2)?;
        memory::lock(&comm.order).phase = phase + 2;
        if let Some(kept) = kept {
            data.recv.copy_from(&kept);
        }
        Ok(())
    }

    /// Arrives at a meeting and waits for the others.
    fn meet(&self, stream: &Stream, collective: u64, phase: u64) -> Outcome {
        let comm = &*self.comm;
        sync::arrive(&comm.control, comm.rank as usize, phase);
        let deadline = comm.exec_timeout.map(|limit| Instant::now() + limit);
        let limit = comm
            .exec_timeout
            .map(|limit| limit.min(Duration::from_secs(1)));
        sync::wait(&comm.control, phase, comm.patience, limit, || {
            let failure = if stream.aborted() {
                Some(stream.abort_failure())
            } else {
                comm.failure()
            };
            failure.or_else(|| {
                deadline
                    .filter(|deadline| Instant::now() >= *deadline)
                    .map(|_| {
                        let missing = sync::missing(&comm.control, phase)
                            .map_or_else(String::new, |rank| format!(": rank {rank} has not come"));
                        Failure::new(
                            code::TASK_TIMEOUT,
                            format!(
                                "collective {collective} timed out (HCCL_EXEC_TIMEOUT){missing}"
                            ),
                        )
                    })
            })
        })
    }

    /// All ranks must mean the same collective.
    fn compare(&self, all: &[Descriptor]) -> Outcome {
        let common = |what: &Descriptor| Descriptor {
            send: 0,
            recv: 0,
            ready: 0,
            ..*what
        };
        let Some(other) = all
            .iter()
            .position(|other| common(other) != common(&all[0]))
        else {
            return Ok(());
        };
        refuse(
            code::TASK_FAILED,
            format!(
                "ranks of communicator {} called different collectives: rank 0: {}; rank {other}: {}",
                self.comm.name,
                spell(&all[0]),
                spell(&all[other])
            ),
        )
    }

    fn model_transfer(&self, stream: &Stream, all: &[Descriptor]) -> Outcome {
        let [alpha_ns, beta] = all[0].link;
        if all[0].link == [0; 2] {
            return Ok(());
        }
        let model = config::LinkModel {
            alpha_ns,
            bytes_per_ns: f64::from_bits(beta),
        };
        let ready = all.iter().map(|one| one.ready).max().unwrap_or(0);
        let ranks = f64::from(self.comm.size);
        let (bytes, factor) = match self.kind {
            Kind::AllReduce => (self.unit as f64, 2.0 * (ranks - 1.0) / ranks),
            Kind::AllGather | Kind::ReduceScatter => {
                (self.unit as f64 * ranks, (ranks - 1.0) / ranks)
            }
            Kind::Broadcast => (self.unit as f64, if ranks > 1.0 { 1.0 } else { 0.0 }),
            Kind::Barrier => (0.0, 0.0),
        };
        self.comm
            .device
            .link
            .transfer(model, ready, bytes * factor, || {
                if stream.aborted() {
                    Some(stream.abort_failure())
                } else {
                    self.comm.failure()
                }
            })
    }
}

/// A descriptor for people.
fn spell(what: &Descriptor) -> String {
    let Some(kind) = Kind::from_number(what.kind) else {
        return format!("collective {}", what.kind);
    };
    let mut text = kind.name().to_owned();
    if kind != Kind::Barrier {
        text += &format!(
            " of {} {}",
            what.count,
            soc::dtype_name(HcclDataType(what.dtype.into()))
        );
    }
    if what.op != sys::HCCL_REDUCE_RESERVED.0 as u8 {
        text += &format!(", {}", soc::op_name(HcclReduceOp(what.op.into())));
    }
    if kind == Kind::Broadcast {
        text += &format!(", root {}", what.root);
    }
    if what.link != [0; 2] {
        let beta = f64::from_bits(what.link[1]);
        text += &format!(
            ", modelled link {} us {beta} GB/s",
            what.link[0] as f64 / 1e3
        );
    }
    text
}

impl Work for Collective {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn admit(&self) -> u64 {
        self.comm.take_number()
    }

    fn run(&self, admission: u64, stream: &Stream) -> Outcome {
        let give_up = || {
            if stream.aborted() {
                Some(stream.abort_failure())
            } else {
                self.comm.failure()
            }
        };
        let outcome = match self.comm.wait_turn(admission, give_up) {
            Ok(_turn) => self.execute(stream),
            Err(failure) => Err(failure),
        };
        outcome.map_err(|failure| {
            let answer = match failure.code {
                code::TASK_FAILED => sys::HCCL_E_PARA,
                code::TASK_TIMEOUT => sys::HCCL_E_TIMEOUT,
                _ => sys::HCCL_E_REMOTE,
            };
            self.comm.give_up(failure.clone(), answer);
            let text = format!(
                "{} on communicator {}: {}",
                self.kind.name(),
                self.comm.name,
                failure.text
            );
            Failure::new(failure.code, text)
        })
    }

    fn skip(&self, _: u64, cause: &Failure) {
        // The peers count on this call; without it no later one can match.
        let text = format!("{} was dropped: {}", self.kind.name(), cause.text);
        self.comm
            .give_up(Failure::new(cause.code, text), sys::HCCL_E_REMOTE);
    }

    fn interrupt(&self) {
        self.comm.poke();
    }
}
