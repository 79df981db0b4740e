//! A collective as work of a stream: how it meets, compares, and lets the data move.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hcom_sys::bindings::{self as sys, HcclDataType, HcclReduceOp};
use smallvec::SmallVec;

use super::call::Buffer;
use super::control::{Descriptor, FAR, IN_PLACE, Published, slot_limit};
use super::operation::{Cut, Kind, Layout, Who};
use super::sync::Point;
use super::{Communicator, Stage, algorithms, sync};
use crate::clock;
use crate::code;
use crate::config;
use crate::error::{Failure, Outcome, refuse};
use crate::fault;
use crate::link;
use crate::memory;
use crate::regime;
use crate::soc;
use crate::span::Span;
use crate::stream::{Stream, Work};

/// A call whose buffers are known to be allocations of the communicator's device.
pub(super) struct Collective {
    pub(super) comm: Arc<Communicator>,
    pub(super) kind: Kind,
    pub(super) dtype: HcclDataType,
    pub(super) op: HcclReduceOp,
    pub(super) root: u32,
    pub(super) count: u64,
    pub(super) send: Buffer,
    pub(super) recv: Buffer,
    pub(super) send_layout: Layout,
    pub(super) recv_layout: Layout,
    /// The capture that recorded it.
    pub(super) capture: Option<Arc<Captured>>,
}

/// What one capture recorded of one communicator.
#[derive(Debug)]
pub(super) struct Captured {
    /// The how-manieth of this communicator on this rank.
    pub(super) number: u32,
    /// A number made of all its collectives in their order, not 0: ranks may only replay equal ones together.
    pub(super) shape: AtomicU32,
}

impl Collective {
    /// Notes that a capture recorded this collective.
    pub(super) fn record(&mut self, capture: Arc<Captured>) {
        let uneven = self.kind.rules().is_uneven();
        let mut hasher = DefaultHasher::new();
        capture.shape.load(Ordering::Relaxed).hash(&mut hasher);
        (self.kind as u8, self.dtype.0, self.op.0, self.root).hash(&mut hasher);
        (if uneven { 0 } else { self.count }).hash(&mut hasher);
        let shape = hasher.finish() as u32 | 1;
        capture.shape.store(shape, Ordering::Relaxed);
        self.capture = Some(capture);
    }

    /// Bytes of one element.
    pub(super) fn element(&self) -> usize {
        soc::element_bytes(self.dtype).expect("checked at the call")
    }

    /// Whether the data goes through the slots of the control block; the same on all ranks that call the same.
    fn is_small(&self) -> bool {
        let sent = match &self.send_layout {
            Layout::Whole(bytes) => *bytes,
            Layout::Even(unit) => unit * self.comm.size as usize,
            Layout::Uneven { .. } => return false,
        };
        sent <= slot_limit(self.comm.size as usize) && self.kind.rules().recv != Cut::Uneven
    }

    fn describe(&self, number: u32, operation: u32, send: &Span, recv: &Span) -> Descriptor {
        let base = self.comm.device.arena.region().base().addr();
        let link = link::model();
        let uneven = self.kind.rules().is_uneven();
        Descriptor {
            number,
            operation,
            shape: self
                .capture
                .as_ref()
                .map_or(0, |capture| capture.shape.load(Ordering::Relaxed)),
            capture: self.capture.as_ref().map_or(0, |capture| capture.number),
            kind: self.kind as u8,
            dtype: self.dtype.0 as u8,
            op: self.op.0 as u8,
            hints: self.hints(send, recv),
            root: self.root as u8,
            // Ranks may differ in it; the lists say it all.
            count: if uneven { 0 } else { self.count },
            send: (send.address() - base) as u64,
            recv: (recv.address() - base) as u64,
            // Only a modelled transfer asks for it.
            ready: if link.is_some() { clock::now() } else { 0 },
            link: link.map_or((0, 0), |link| {
                (link.alpha_ns as u32, link.bytes_per_ns.to_bits())
            }),
        }
    }

    /// What the others may take into account when the data is read where it lies.
    fn hints(&self, send: &Span, recv: &Span) -> u8 {
        if self.is_small() {
            return 0;
        }
        let in_place = if send.overlaps(recv) { IN_PLACE } else { 0 };
        let far = if regime::is_far() { FAR } else { 0 };
        in_place | far
    }

    /// Lets the others see the lengths of this rank's blocks.
    fn publish_blocks(&self, collective: u64) {
        for rank in 0..self.comm.size as usize {
            let (sends, start) = self.send_layout.elements(rank, self.count);
            let (expects, _) = self.recv_layout.elements(rank, self.count);
            let what = Published {
                sends,
                start,
                expects,
            };
            let own = self.comm.rank as usize;
            self.comm.control.publish(own, collective, rank, what);
        }
    }

    /// Lets the others see what this rank does, and its data when that is small. Waits for nobody.
    fn publish(&self) -> Outcome {
        let comm = &*self.comm;
        let rank = comm.rank as usize;
        let (send, recv) = (self.send.span(comm)?, self.recv.span(comm)?);
        let collective = comm.order.collective() + 1;
        if self.is_small() && send.bytes() > 0 {
            comm.control
                .slot(rank, collective, send.bytes())
                .copy_from(&send);
        }
        if self.kind.rules().is_uneven() {
            self.publish_blocks(collective);
        }
        let operation = comm.enter(self.kind, None);
        comm.order.collectives.store(collective, Ordering::Relaxed);
        let mine = self.describe(comm.order.number(), operation, &send, &recv);
        comm.control.describe(rank, collective, mine);
        comm.order.reach(Stage::Published);
        sync::arrive(&comm.control, rank, Point::Ready(collective));
        Ok(())
    }

    /// Does what is left, from the stage that was reached on; false when it stopped because it may not sleep.
    fn execute(&self, stream: &Stream, may_sleep: bool) -> Outcome<bool> {
        let order = &self.comm.order;
        if order.stage() == Stage::Queued {
            self.publish()?;
        }
        let collective = order.collective();
        if order.stage() == Stage::Published {
            if !self.meet(stream, Point::Ready(collective), may_sleep)? {
                return Ok(false);
            }
            let complete = self.deliver(stream, collective)?;
            if complete {
                return Ok(true);
            }
            order.reach(Stage::Delivered);
            let rank = self.comm.rank as usize;
            sync::arrive(&self.comm.control, rank, Point::Done(collective));
        }
        if !self.meet(stream, Point::Done(collective), may_sleep)? {
            return Ok(false);
        }
        if let Some(kept) = memory::lock(&self.comm.kept).take() {
            self.recv.span(&self.comm)?.copy_from(&kept);
        }
        Ok(true)
    }

    /// Compares what the ranks published, and does this rank's part; true when no second meeting is needed.
    fn deliver(&self, stream: &Stream, collective: u64) -> Outcome<bool> {
        let comm = &*self.comm;
        let all: SmallVec<[Descriptor; 8]> = (0..comm.size as usize)
            .map(|rank| comm.control.described(rank, collective))
            .collect();
        self.compare(&all)?;
        if self.kind.rules().is_uneven() {
            self.compare_blocks(collective, comm.order.number())?;
        }
        let small = self.is_small();
        let data = algorithms::Data {
            comm,
            collective,
            all: &all,
            send: self.send.span(comm)?,
            recv: self.recv.span(comm)?,
            small,
        };
        let kept = data.deliver(self);
        if small && all[0].link == (0, 0) {
            return Ok(true);
        }
        *memory::lock(&comm.kept) = kept;
        self.model_transfer(stream, collective, &all)?;
        Ok(false)
    }

    /// Waits until all ranks have come to `point`; false when the thread may not sleep and they have not come soon.
    fn meet(&self, stream: &Stream, point: Point, may_sleep: bool) -> Outcome<bool> {
        let comm = &*self.comm;
        let met = || sync::met(&comm.control, point);
        if !may_sleep {
            return Ok(comm.try_wait(met));
        }
        comm.wait(
            stream,
            |_| true,
            met,
            || match sync::missing(&comm.control, point) {
                Some(rank) => format!("{} has not come", comm.who(rank)),
                None => "all ranks have come just now".to_owned(),
            },
        )?;
        Ok(true)
    }

    /// All ranks must mean the same collective.
    fn compare(&self, all: &[Descriptor]) -> Outcome {
        let common = |what: &Descriptor| Descriptor {
            operation: 0,
            capture: 0,
            send: 0,
            recv: 0,
            ready: 0,
            hints: 0,
            ..*what
        };
        let Some(other) = all
            .iter()
            .position(|other| common(other) != common(&all[0]))
        else {
            return Ok(());
        };
        let captured = all[0].shape != 0 || all[other].shape != 0;
        let spell = |what: &Descriptor| {
            let from = match what.capture {
                _ if !captured => String::new(),
                0 => ", called and not captured".to_owned(),
                capture => format!(
                    ", replayed from the rank's capture {capture} (contents {:08x})",
                    what.shape
                ),
            };
            format!(
                "{}{from} (its collective {}, its operation {})",
                spell(what),
                what.number,
                what.operation
            )
        };
        let differ = match all[0].shape == all[other].shape {
            true => "called different collectives",
            false => "replayed different captures",
        };
        refuse(
            code::TASK_FAILED,
            format!(
                "ranks of communicator {} {differ}: rank 0: {}; rank {other}: {}",
                self.comm.name,
                spell(&all[0]),
                spell(&all[other])
            ),
        )
    }

    /// What a rank sends to another one, that one must expect; blocks that are combined must start at the same place.
    fn compare_blocks(&self, collective: u64, number: u32) -> Outcome {
        let control = &self.comm.control;
        let ranks = self.comm.size as usize;
        let reduces = self.kind.rules().reduces;
        for from in 0..ranks {
            for to in 0..ranks {
                let Published { sends, start, .. } = control.published(from, collective, to);
                let expects = control.published(to, collective, from).expects;
                let first = control.published(0, collective, to).start;
                let differ = if sends != expects {
                    format!("{from} to {to}: sends {sends}, expects {expects}")
                } else if reduces && sends > 0 && start != first {
                    format!("for {to}: starts at {first} on rank 0, at {start} on rank {from}")
                } else {
                    continue;
                };
                return refuse(
                    code::TASK_FAILED,
                    format!(
                        "ranks of communicator {} disagree about a block of {} (collective {number}), in elements: \
                         {differ}",
                        self.comm.name,
                        self.kind.name()
                    ),
                );
            }
        }
        Ok(())
    }

    fn model_transfer(&self, stream: &Stream, collective: u64, all: &[Descriptor]) -> Outcome {
        let (alpha_ns, beta) = all[0].link;
        if all[0].link == (0, 0) {
            return Ok(());
        }
        let model = config::LinkModel {
            alpha_ns: alpha_ns.into(),
            bytes_per_ns: f64::from_bits(beta),
        };
        let ready = all.iter().map(|one| one.ready).max().unwrap_or(0);
        let bytes = self.carried(collective);
        self.comm.device.link.transfer(model, ready, bytes, || {
            self.comm.interrupted(stream, |_| true)
        })
    }

    /// The bytes that each rank's link carries; see the table in [`crate::link`].
    fn carried(&self, collective: u64) -> f64 {
        let rules = self.kind.rules();
        let ranks = self.comm.size as usize;
        let unit = (self.count as usize * self.element()) as f64;
        let others = (ranks - 1) as f64;
        if rules.is_uneven() {
            let of = |rank: usize, peer: usize| {
                let block = self.comm.control.published(rank, collective, peer);
                let sends = if rules.send == Cut::Uneven {
                    block.sends
                } else {
                    0
                };
                let expects = if rules.recv == Cut::Uneven {
                    block.expects
                } else {
                    0
                };
                [sends, expects]
            };
            let most = (0..ranks)
                .flat_map(|rank| {
                    (0..ranks)
                        .filter(|&peer| peer != rank)
                        .map(|peer| of(rank, peer))
                        .fold([0; 2], |[a, b], [c, d]| [a + c, b + d])
                })
                .max();
            return most.unwrap_or(0) as f64 * self.element() as f64;
        }
        match (rules.reduces, rules.send, rules.recv) {
            (_, Cut::Nothing, _) => 0.0,
            (true, Cut::Whole, _) if rules.to == Who::Everybody => {
                unit * 2.0 * others / ranks as f64
            }
            (_, Cut::Whole, Cut::Whole) => unit * others.min(1.0),
            _ => unit * others,
        }
    }
}

/// A descriptor for people.
fn spell(what: &Descriptor) -> String {
    let Some(kind) = Kind::from_number(what.kind) else {
        return format!("collective {}", what.kind);
    };
    let rules = kind.rules();
    let mut text = kind.name().to_owned();
    let dtype = soc::dtype_name(HcclDataType(what.dtype.into()));
    if rules.is_uneven() {
        text += &format!(" of {dtype}");
    } else if rules.send != Cut::Nothing {
        text += &format!(" of {} {dtype}", what.count);
    }
    if what.op != sys::HCCL_REDUCE_RESERVED.0 as u8 {
        text += &format!(", {}", soc::op_name(HcclReduceOp(what.op.into())));
    }
    if rules.has_root() {
        text += &format!(", root {}", what.root);
    }
    if what.link != (0, 0) {
        let (alpha, beta) = (f64::from(what.link.0) / 1e3, f64::from_bits(what.link.1));
        text += &format!(", modelled link {alpha} us {beta} GB/s");
    }
    text
}

impl Collective {
    fn perform(&self, admission: u64, stream: &Stream, may_sleep: bool) -> Option<Outcome> {
        self.comm
            .perform(self.kind, admission, stream, may_sleep, || {
                self.execute(stream, may_sleep)
            })
    }
}

impl Work for Collective {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn admit(&self) -> u64 {
        self.comm.take_number()
    }

    fn run(&self, admission: u64, stream: &Stream) -> Outcome {
        self.perform(admission, stream, true).unwrap_or(Ok(()))
    }

    fn is_brief(&self) -> bool {
        // A modelled transfer sleeps, and so may a planned fault.
        link::model().is_none() && !fault::befalls_operations()
    }

    fn announce(&self, admission: u64, stream: &Stream) {
        let comm = &*self.comm;
        if comm.has_turn(admission) && comm.interrupted(stream, |_| true).is_none() {
            // Whoever runs it meets the same error and reports it.
            let _ = self.publish();
        }
    }

    fn attempt(&self, admission: u64, stream: &Stream) -> Option<Outcome> {
        self.perform(admission, stream, false)
    }

    fn skip(&self, _: u64, cause: &Failure) {
        self.comm.missed(self.kind, cause);
    }

    fn interrupt(&self) {
        self.comm.poke();
    }
}
