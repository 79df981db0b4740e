//! Collectives, sends and receives.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "names and contracts are those of the C interface"
)]

use std::ffi::c_void;

use hcom_sys::bindings::{
    self as sys, HcclComm, HcclDataType, HcclReduceOp, HcclResult, HcclSendRecvItem, aclrtStream,
};

use super::{PARA, PTR, hccl};
use crate::comm::{self, Blocks, Call, Kind};
use crate::error::{Outcome, refuse};

/// Reads `count` numbers of a list in host memory.
///
/// # Safety
/// `list` is null or points to `count` `uint64_t`.
unsafe fn numbers(list: *const c_void, count: usize) -> Outcome<Vec<u64>> {
    if list.is_null() {
        return refuse(PTR, "a list of counts or displacements is null");
    }
    let list = list.cast::<u64>();
    // SAFETY: not null, so the caller promises as many numbers; they may be misaligned.
    Ok((0..count)
        .map(|index| unsafe { list.add(index).read_unaligned() })
        .collect())
}

/// Reads the counts and displacements of one buffer, one per rank.
///
/// # Safety
/// Both lists are null or have one `uint64_t` per rank of `comm`.
unsafe fn blocks(comm: HcclComm, counts: *const c_void, displs: *const c_void) -> Outcome<Blocks> {
    let ranks = comm::find(comm)?.size as usize;
    // SAFETY: as the caller promises.
    let (counts, displs) = unsafe { (numbers(counts, ranks)?, numbers(displs, ranks)?) };
    Ok(Blocks { counts, displs })
}

/// Refuses a conversion on the way, which no chip does.
fn same_type(send: HcclDataType, recv: HcclDataType) -> Outcome {
    if send == recv {
        return Ok(());
    }
    refuse(
        PARA,
        format!(
            "the send type {} and the receive type {} differ",
            send.0, recv.0
        ),
    )
}

fn no_stream(stream: aclrtStream) -> Outcome {
    if stream.is_null() {
        return refuse(
            PTR,
            "the stream is null; collectives have no default stream",
        );
    }
    Ok(())
}

/// `HcclAllReduce`
pub unsafe extern "C" fn HcclAllReduce(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: HcclDataType,
    op: HcclReduceOp,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    let call = Call {
        send,
        recv,
        op: Some(op),
        ..Call::new(Kind::AllReduce, count, dtype)
    };
    hccl("HcclAllReduce", || comm::submit(comm, stream, &call))
}

/// `HcclReduce`
pub unsafe extern "C" fn HcclReduce(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: HcclDataType,
    op: HcclReduceOp,
    root: u32,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    let call = Call {
        send,
        recv,
        op: Some(op),
        root,
        ..Call::new(Kind::Reduce, count, dtype)
    };
    hccl("HcclReduce", || comm::submit(comm, stream, &call))
}

/// `HcclBroadcast`
pub unsafe extern "C" fn HcclBroadcast(
    buffer: *mut c_void,
    count: u64,
    dtype: HcclDataType,
    root: u32,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    let call = Call {
        send: buffer,
        recv: buffer,
        root,
        ..Call::new(Kind::Broadcast, count, dtype)
    };
    hccl("HcclBroadcast", || comm::submit(comm, stream, &call))
}

/// `HcclReduceScatter`
pub unsafe extern "C" fn HcclReduceScatter(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: HcclDataType,
    op: HcclReduceOp,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    let call = Call {
        send,
        recv,
        op: Some(op),
        ..Call::new(Kind::ReduceScatter, count, dtype)
    };
    hccl("HcclReduceScatter", || comm::submit(comm, stream, &call))
}

/// `HcclReduceScatterV`
pub unsafe extern "C" fn HcclReduceScatterV(
    send: *mut c_void,
    counts: *const c_void,
    displs: *const c_void,
    recv: *mut c_void,
    count: u64,
    dtype: HcclDataType,
    op: HcclReduceOp,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    hccl("HcclReduceScatterV", || {
        no_stream(stream)?;
        // SAFETY: the caller passes null or one number per rank.
        let send_blocks = unsafe { blocks(comm, counts, displs)? };
        let rank = comm::find(comm)?.rank as usize;
        if send_blocks.counts[rank] != count {
            return refuse(
                PARA,
                format!(
                    "rank {rank} receives {count} elements, but its entry in the send counts is {}",
                    send_blocks.counts[rank]
                ),
            );
        }
        let call = Call {
            send,
            recv,
            op: Some(op),
            send_blocks,
            ..Call::new(Kind::ReduceScatterV, count, dtype)
        };
        comm::submit(comm, stream, &call)
    })
}

/// `HcclScatter`
pub unsafe extern "C" fn HcclScatter(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: HcclDataType,
    root: u32,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    let call = Call {
        send,
        recv,
        root,
        ..Call::new(Kind::Scatter, count, dtype)
    };
    hccl("HcclScatter", || comm::submit(comm, stream, &call))
}

/// `HcclAllGather`
pub unsafe extern "C" fn HcclAllGather(
    send: *mut c_void,
    recv: *mut c_void,
    count: u64,
    dtype: HcclDataType,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    let call = Call {
        send,
        recv,
        ..Call::new(Kind::AllGather, count, dtype)
    };
    hccl("HcclAllGather", || comm::submit(comm, stream, &call))
}

/// `HcclAllGatherV`
pub unsafe extern "C" fn HcclAllGatherV(
    send: *mut c_void,
    count: u64,
    recv: *mut c_void,
    counts: *const c_void,
    displs: *const c_void,
    dtype: HcclDataType,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    hccl("HcclAllGatherV", || {
        no_stream(stream)?;
        let call = Call {
            send,
            recv,
            // SAFETY: the caller passes null or one number per rank.
            recv_blocks: unsafe { blocks(comm, counts, displs)? },
            ..Call::new(Kind::AllGatherV, count, dtype)
        };
        comm::submit(comm, stream, &call)
    })
}

/// `HcclAlltoAll`
pub unsafe extern "C" fn HcclAlltoAll(
    send: *const c_void,
    send_count: u64,
    send_type: HcclDataType,
    recv: *const c_void,
    recv_count: u64,
    recv_type: HcclDataType,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    hccl("HcclAlltoAll", || {
        no_stream(stream)?;
        if send.is_null() || recv.is_null() {
            return refuse(PTR, "a buffer is null");
        }
        same_type(send_type, recv_type)?;
        if send_count != recv_count {
            return refuse(
                PARA,
                format!("sends {send_count} elements to each rank, but expects {recv_count}"),
            );
        }
        if send == recv {
            return refuse(PARA, "the buffers are the same; it does not work in place");
        }
        let call = Call {
            send: send.cast_mut(),
            recv: recv.cast_mut(),
            ..Call::new(Kind::AllToAll, send_count, send_type)
        };
        comm::submit(comm, stream, &call)
    })
}

/// `HcclAlltoAllV`
pub unsafe extern "C" fn HcclAlltoAllV(
    send: *const c_void,
    send_counts: *const c_void,
    send_displs: *const c_void,
    send_type: HcclDataType,
    recv: *const c_void,
    recv_counts: *const c_void,
    recv_displs: *const c_void,
    recv_type: HcclDataType,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    hccl("HcclAlltoAllV", || {
        no_stream(stream)?;
        // SAFETY: the caller passes null or one number per rank in each list.
        let (send_blocks, recv_blocks) = unsafe {
            (
                blocks(comm, send_counts, send_displs)?,
                blocks(comm, recv_counts, recv_displs)?,
            )
        };
        same_type(send_type, recv_type)?;
        uneven_all_to_all(
            Kind::AllToAllV,
            send,
            recv,
            send_type,
            send_blocks,
            recv_blocks,
            comm,
            stream,
        )
    })
}

/// `HcclAlltoAllVC`
pub unsafe extern "C" fn HcclAlltoAllVC(
    send: *const c_void,
    matrix: *const c_void,
    send_type: HcclDataType,
    recv: *const c_void,
    recv_type: HcclDataType,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    hccl("HcclAlltoAllVC", || {
        no_stream(stream)?;
        let communicator = comm::find(comm)?;
        let (ranks, rank) = (communicator.size as usize, communicator.rank as usize);
        // SAFETY: the caller passes null or one number for each pair of ranks.
        let matrix = unsafe { numbers(matrix, ranks * ranks)? };
        same_type(send_type, recv_type)?;
        let row = matrix[rank * ranks..][..ranks].to_vec();
        let column = matrix.iter().skip(rank).step_by(ranks).copied().collect();
        uneven_all_to_all(
            Kind::AllToAllVC,
            send,
            recv,
            send_type,
            Blocks::packed(row),
            Blocks::packed(column),
            comm,
            stream,
        )
    })
}

fn uneven_all_to_all(
    kind: Kind,
    send: *const c_void,
    recv: *const c_void,
    dtype: HcclDataType,
    send_blocks: Blocks,
    recv_blocks: Blocks,
    comm: HcclComm,
    stream: aclrtStream,
) -> Outcome {
    if send == recv && !send.is_null() {
        return refuse(PARA, "the buffers are the same; it does not work in place");
    }
    let call = Call {
        send: send.cast_mut(),
        recv: recv.cast_mut(),
        send_blocks,
        recv_blocks,
        ..Call::new(kind, 0, dtype)
    };
    comm::submit(comm, stream, &call)
}

/// `HcclSend`
pub unsafe extern "C" fn HcclSend(
    send: *mut c_void,
    count: u64,
    dtype: HcclDataType,
    root: u32,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    let call = Call {
        send,
        root,
        ..Call::new(Kind::Send, count, dtype)
    };
    hccl("HcclSend", || transfer(call, comm, stream))
}

/// `HcclRecv`
pub unsafe extern "C" fn HcclRecv(
    recv: *mut c_void,
    count: u64,
    dtype: HcclDataType,
    root: u32,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    let call = Call {
        recv,
        root,
        ..Call::new(Kind::Recv, count, dtype)
    };
    hccl("HcclRecv", || transfer(call, comm, stream))
}

fn transfer(call: Call, comm: HcclComm, stream: aclrtStream) -> Outcome {
    if call.count == 0 {
        return Ok(());
    }
    comm::submit_transfers(comm, stream, call.kind, &[call])
}

/// `HcclBatchSendRecv`
pub unsafe extern "C" fn HcclBatchSendRecv(
    items: *mut HcclSendRecvItem,
    count: u32,
    comm: HcclComm,
    stream: aclrtStream,
) -> HcclResult {
    hccl("HcclBatchSendRecv", || {
        if count == 0 {
            return Ok(());
        }
        if items.is_null() {
            return refuse(PTR, "the list of items is null");
        }
        // SAFETY: not null, so the caller passes `count` items.
        let items = unsafe { std::slice::from_raw_parts(items, count as usize) };
        let call = |item: &HcclSendRecvItem| {
            let (kind, send, recv) = match item.sendRecvType {
                sys::HCCL_SEND => (Kind::Send, item.buf, std::ptr::null_mut()),
                sys::HCCL_RECV => (Kind::Recv, std::ptr::null_mut(), item.buf),
                other => {
                    return refuse(
                        PARA,
                        format!("an item neither sends nor receives: {}", other.0),
                    );
                }
            };
            Ok(Call {
                send,
                recv,
                root: item.remoteRank,
                ..Call::new(kind, item.count, item.dataType)
            })
        };
        let calls = items.iter().map(call).collect::<Outcome<Vec<_>>>()?;
        comm::submit_transfers(comm, stream, Kind::Batch, &calls)
    })
}

/// `HcclBarrier`
pub unsafe extern "C" fn HcclBarrier(comm: HcclComm, stream: aclrtStream) -> HcclResult {
    let call = Call::new(Kind::Barrier, 0, sys::HCCL_DATA_TYPE_INT8);
    hccl("HcclBarrier", || comm::submit(comm, stream, &call))
}
