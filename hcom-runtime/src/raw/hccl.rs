//! Communicators and collectives.

#![expect(unsafe_code, reason = "calls into the device library")]

use std::{
    ptr::null_mut,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hcom_ir::DType;
use hcom_sys::bindings as c;

use super::{Driver, Handle, Place, Stream};
use crate::{
    aclnn::{Collective, CollectiveKind, Combine},
    error::Error,
};

/// Size of the ticket that makes a communicator, in bytes.
pub(crate) const ROOT_INFO_BYTES: usize = size_of::<c::HcclRootInfo>();

/// A communicator of the library.
#[derive(Debug)]
pub(crate) struct Communicator {
    driver: Arc<Driver>,
    handle: Handle,
    destroyed: AtomicBool,
}

impl Communicator {
    /// A ticket for a new communicator, made on one rank for all of them.
    pub(crate) fn root_info(driver: &Driver) -> Result<Vec<u8>, Error> {
        let get = driver.library.HcclGetRootInfo()?;
        let mut info = c::HcclRootInfo::default();
        // SAFETY: `info` is a valid place for the answer.
        driver.check_hccl("HcclGetRootInfo", unsafe { get(&mut info) })?;
        Ok(info.internal.iter().map(|&byte| byte as u8).collect())
    }

    /// Joins the communicator of the ticket `info` as `rank` of `size`. Blocks until all have
    /// joined or the library gives up.
    pub(crate) fn join(
        driver: &Arc<Driver>,
        info: &[u8; ROOT_INFO_BYTES],
        size: u32,
        rank: u32,
    ) -> Result<Communicator, Error> {
        let init = driver.library.HcclCommInitRootInfo()?;
        let mut ticket = c::HcclRootInfo::default();
        for (to, from) in ticket.internal.iter_mut().zip(info) {
            *to = *from as _;
        }
        let mut handle = null_mut();
        // SAFETY: the ticket and the place for the answer are valid during the call.
        let code = unsafe { init(size, &ticket, rank, &mut handle) };
        driver.check_hccl("HcclCommInitRootInfo", code)?;
        Ok(Communicator {
            driver: driver.clone(),
            handle: Handle(handle),
            destroyed: AtomicBool::new(false),
        })
    }

    /// Says whether the library has the function for a kind of collective.
    pub(crate) fn offers(driver: &Driver, kind: &CollectiveKind) -> Result<(), Error> {
        use CollectiveKind as K;
        let l = &driver.library;
        match kind {
            K::AllReduce(_) => l.HcclAllReduce().map(drop),
            K::AllGather => l.HcclAllGather().map(drop),
            K::ReduceScatter(_) => l.HcclReduceScatter().map(drop),
            K::AllGatherUneven { .. } => l.HcclAllGatherV().map(drop),
            K::ReduceScatterUneven { .. } => l.HcclReduceScatterV().map(drop),
            K::AllToAll => l.HcclAlltoAll().map(drop),
            K::AllToAllUneven { .. } => l.HcclAlltoAllV().map(drop),
            K::Broadcast { .. } => l.HcclBroadcast().map(drop),
            K::Reduce { .. } => l.HcclReduce().map(drop),
            K::Scatter { .. } => l.HcclScatter().map(drop),
            K::Send { .. } => l.HcclSend().map(drop),
            K::Recv { .. } => l.HcclRecv().map(drop),
            K::Barrier => l.HcclBarrier().map(drop),
        }
        .map_err(Error::from)
    }

    /// Queues a collective on `stream`. `from` and `to` hold what the kind asks for.
    ///
    /// # Panics
    /// When a place is shorter than the collective needs: the plan is wrong.
    pub(crate) fn launch(
        &self,
        collective: &Collective,
        from: Option<&Place>,
        to: Option<&Place>,
        size: u32,
        stream: &Stream,
    ) -> Result<(), Error> {
        use CollectiveKind as K;
        let Collective {
            kind, count, dtype, ..
        } = collective;
        let (dtype, size) = (*dtype, u64::from(size));
        let (wire, factor) = wire(dtype);
        let count = count * factor;
        let bytes = count * (dtype.bytes() / factor);
        let all = bytes * size;
        let sum = |counts: &[u64]| counts.iter().sum::<u64>() * dtype.bytes();
        let (send_bytes, recv_bytes) = match kind {
            K::AllReduce(_) | K::Reduce { .. } => (bytes, bytes),
            K::AllGather => (bytes, all),
            K::ReduceScatter(_) => (all, bytes),
            K::AllToAll => (all, all),
            K::Scatter { .. } => (all, bytes),
            K::AllGatherUneven { counts } => (bytes, sum(counts)),
            K::ReduceScatterUneven { counts, .. } => (sum(counts), bytes),
            K::AllToAllUneven { send, recv } => (sum(send), sum(recv)),
            K::Broadcast { .. } | K::Recv { .. } => (0, bytes),
            K::Send { .. } => (bytes, 0),
            K::Barrier => (0, 0),
        };
        let address = |place: Option<&Place>, bytes: u64| match place {
            Some(place) => {
                assert!(
                    place.bytes() >= bytes,
                    "collectives stay inside their places"
                );
                place.address()
            }
            None => {
                assert_eq!(bytes, 0, "a collective that moves data has places");
                null_mut()
            }
        };
        let (send, recv) = (address(from, send_bytes), address(to, recv_bytes));
        let (comm, stream) = (self.handle.0, stream.raw());
        let l = &self.driver.library;
        let scaled = |counts: &[u64]| -> (Vec<u64>, Vec<u64>) {
            let counts: Vec<u64> = counts.iter().map(|count| count * factor).collect();
            let starts = counts
                .iter()
                .scan(0, |next, count| {
                    let start = *next;
                    *next += count;
                    Some(start)
                })
                .collect();
            (counts, starts)
        };
        // SAFETY (all calls below): the communicator and the stream are alive as long as `self` and
        // the caller's reference; `send` and `recv` were checked against the sizes that the call
        // reads and writes, in memory that is freed only when the device is idle; count arrays are
        // read before the call returns.
        match kind {
            K::AllReduce(combine) => {
                let call = l.HcclAllReduce()?;
                // SAFETY: see above.
                let code = unsafe { call(send, recv, count, wire, reduce(*combine), comm, stream) };
                self.driver.check_hccl("HcclAllReduce", code)
            }
            K::Reduce { combine, root } => {
                let call = l.HcclReduce()?;
                let op = reduce(*combine);
                // SAFETY: see above.
                let code = unsafe { call(send, recv, count, wire, op, *root, comm, stream) };
                self.driver.check_hccl("HcclReduce", code)
            }
            K::ReduceScatter(combine) => {
                let call = l.HcclReduceScatter()?;
                // SAFETY: see above.
                let code = unsafe { call(send, recv, count, wire, reduce(*combine), comm, stream) };
                self.driver.check_hccl("HcclReduceScatter", code)
            }
            K::ReduceScatterUneven { counts, combine } => {
                let call = l.HcclReduceScatterV()?;
                let (counts, starts) = scaled(counts);
                let op = reduce(*combine);
                // SAFETY: see above.
                let code = unsafe {
                    let (counts, starts) = (counts.as_ptr().cast(), starts.as_ptr().cast());
                    call(send, counts, starts, recv, count, wire, op, comm, stream)
                };
                self.driver.check_hccl("HcclReduceScatterV", code)
            }
            K::AllGather => {
                let call = l.HcclAllGather()?;
                // SAFETY: see above.
                let code = unsafe { call(send, recv, count, wire, comm, stream) };
                self.driver.check_hccl("HcclAllGather", code)
            }
            K::AllGatherUneven { counts } => {
                let call = l.HcclAllGatherV()?;
                let (counts, starts) = scaled(counts);
                // SAFETY: see above.
                let code = unsafe {
                    let (counts, starts) = (counts.as_ptr().cast(), starts.as_ptr().cast());
                    call(send, count, recv, counts, starts, wire, comm, stream)
                };
                self.driver.check_hccl("HcclAllGatherV", code)
            }
            K::AllToAll => {
                let call = l.HcclAlltoAll()?;
                // SAFETY: see above.
                let code = unsafe { call(send, count, wire, recv, count, wire, comm, stream) };
                self.driver.check_hccl("HcclAlltoAll", code)
            }
            K::AllToAllUneven {
                send: out,
                recv: back,
            } => {
                let call = l.HcclAlltoAllV()?;
                let (out, out_starts) = scaled(out);
                let (back, back_starts) = scaled(back);
                // Memory of no bytes may begin where the other side's does, which the library takes
                // for an exchange in place; it asks for no address where nothing is moved.
                let or_null = |address, bytes| if bytes == 0 { null_mut() } else { address };
                let (send, recv) = (or_null(send, send_bytes), or_null(recv, recv_bytes));
                // SAFETY: see above.
                let code = unsafe {
                    let (out, out_starts) = (out.as_ptr().cast(), out_starts.as_ptr().cast());
                    let (back, back_starts) = (back.as_ptr().cast(), back_starts.as_ptr().cast());
                    call(
                        send,
                        out,
                        out_starts,
                        wire,
                        recv,
                        back,
                        back_starts,
                        wire,
                        comm,
                        stream,
                    )
                };
                self.driver.check_hccl("HcclAlltoAllV", code)
            }
            K::Broadcast { root } => {
                let call = l.HcclBroadcast()?;
                // SAFETY: see above.
                let code = unsafe { call(recv, count, wire, *root, comm, stream) };
                self.driver.check_hccl("HcclBroadcast", code)
            }
            K::Scatter { root } => {
                let call = l.HcclScatter()?;
                // SAFETY: see above.
                let code = unsafe { call(send, recv, count, wire, *root, comm, stream) };
                self.driver.check_hccl("HcclScatter", code)
            }
            K::Send { peer } => {
                let call = l.HcclSend()?;
                // SAFETY: see above.
                let code = unsafe { call(send, count, wire, *peer, comm, stream) };
                self.driver.check_hccl("HcclSend", code)
            }
            K::Recv { peer } => {
                let call = l.HcclRecv()?;
                // SAFETY: see above.
                let code = unsafe { call(recv, count, wire, *peer, comm, stream) };
                self.driver.check_hccl("HcclRecv", code)
            }
            K::Barrier => {
                let call = l.HcclBarrier()?;
                // SAFETY: see above.
                let code = unsafe { call(comm, stream) };
                self.driver.check_hccl("HcclBarrier", code)
            }
        }
    }

    /// Ends the communicator; pending collectives fail. Twice is the same as once.
    pub(crate) fn destroy(&self) -> Result<(), Error> {
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let destroy = self.driver.library.HcclCommDestroy()?;
        // SAFETY: the handle comes from `HcclCommInitRootInfo` and is destroyed once, which the
        // flag guarantees.
        let code = unsafe { destroy(self.handle.0) };
        self.driver.check_hccl("HcclCommDestroy", code)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let attached = self.driver.attach();
        self.driver.note(attached);
        self.driver.note(self.destroy());
    }
}

/// The element type that carries `dtype`, and how many of its elements make one.
fn wire(dtype: DType) -> (c::HcclDataType, u64) {
    match dtype {
        DType::Bool | DType::I8 => (c::HCCL_DATA_TYPE_INT8, 1),
        DType::I16 => (c::HCCL_DATA_TYPE_INT16, 1),
        DType::I32 => (c::HCCL_DATA_TYPE_INT32, 1),
        DType::I64 => (c::HCCL_DATA_TYPE_INT64, 1),
        DType::U8 => (c::HCCL_DATA_TYPE_UINT8, 1),
        DType::U16 => (c::HCCL_DATA_TYPE_UINT16, 1),
        DType::U32 => (c::HCCL_DATA_TYPE_UINT32, 1),
        DType::U64 => (c::HCCL_DATA_TYPE_UINT64, 1),
        DType::F16 => (c::HCCL_DATA_TYPE_FP16, 1),
        DType::BF16 => (c::HCCL_DATA_TYPE_BFP16, 1),
        DType::F32 => (c::HCCL_DATA_TYPE_FP32, 1),
        DType::F64 => (c::HCCL_DATA_TYPE_FP64, 1),
        // Real and imaginary part, which also add up separately.
        DType::C64 => (c::HCCL_DATA_TYPE_FP32, 2),
        DType::C128 => (c::HCCL_DATA_TYPE_FP64, 2),
    }
}

fn reduce(combine: Combine) -> c::HcclReduceOp {
    match combine {
        Combine::Sum => c::HCCL_REDUCE_SUM,
        Combine::Prod => c::HCCL_REDUCE_PROD,
        Combine::Max => c::HCCL_REDUCE_MAX,
        Combine::Min => c::HCCL_REDUCE_MIN,
    }
}
