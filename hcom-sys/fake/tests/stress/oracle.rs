//! What a job must compute, written as plainly as possible: all buffers of all ranks as bytes, and one step after the
//! other.

use half::{bf16, f16};
use hcom_sys::bindings::{self as sys, HcclDataType, HcclReduceOp};

use super::program::{BUFFERS, Collective, Kind, Place, Random, Segment, Step, What, element};

/// The buffers of all ranks.
pub(crate) type Memory = Vec<Vec<Vec<u8>>>;

/// Takes as many elements of a member, from so many behind a place.
type Read<'a> = dyn Fn(usize, Place, usize, usize) -> Vec<u8> + 'a;
/// Puts bytes into a member's buffer, so many elements behind a place.
type Write<'a> = dyn FnMut(usize, Place, usize, &[u8]) + 'a;

/// What all buffers hold at the start of a segment. Numbers to be added and multiplied are at least 1, so that no sum
/// is a difference of infinities.
pub(crate) fn fill(segment: &Segment, ranks: u32, bytes: usize) -> Memory {
    let size = element(segment.dtype);
    let buffer = |rank: u32, buffer: usize| {
        let mut random = Random::new(segment.fill, u64::from(rank) * 16 + buffer as u64);
        let mut all = Vec::with_capacity(bytes);
        for _ in 0..bytes / size {
            let bits = random.next();
            let number = 1.0 + (bits % 64) as f32 / 16.0;
            match segment.dtype {
                sys::HCCL_DATA_TYPE_FP16 => all.extend(f16::from_f32(number).to_le_bytes()),
                sys::HCCL_DATA_TYPE_BFP16 => all.extend(bf16::from_f32(number).to_le_bytes()),
                sys::HCCL_DATA_TYPE_FP32 => {
                    all.extend((number + (bits >> 40) as f32 * 1e-7).to_le_bytes());
                }
                _ => all.extend(&bits.to_le_bytes()[..size]),
            }
        }
        all
    };
    (0..ranks)
        .map(|rank| (0..BUFFERS).map(|index| buffer(rank, index)).collect())
        .collect()
}

/// Runs one step for the members of its group.
pub(crate) fn apply(memory: &mut Memory, members: &[u32], dtype: HcclDataType, step: &Step) {
    let size = element(dtype);
    let before = memory.clone();
    let read = |member: usize, place: Place, skip: usize, count: usize| {
        let buffer = &before[members[member] as usize][place.buffer];
        buffer[(place.at + skip) * size..][..count * size].to_vec()
    };
    let mut write = |member: usize, place: Place, skip: usize, data: &[u8]| {
        let buffer = &mut memory[members[member] as usize][place.buffer];
        buffer[(place.at + skip) * size..][..data.len()].copy_from_slice(data);
    };
    match &step.what {
        What::Collective(what) => collective(what, members.len(), dtype, &read, &mut write),
        What::Transfers(_, list) => {
            for one in list {
                write(
                    one.to,
                    one.target,
                    0,
                    &read(one.from, one.source, 0, one.count),
                );
            }
        }
    }
}

fn collective(
    what: &Collective,
    members: usize,
    dtype: HcclDataType,
    read: &Read<'_>,
    write: &mut Write<'_>,
) {
    let (count, root, parts) = (what.count, what.root, &what.parts);
    let reduced = |skip: &dyn Fn(usize) -> usize, count: usize| {
        let rows: Vec<Vec<u8>> = (0..members)
            .map(|from| read(from, parts[from].send, skip(from), count))
            .collect();
        reduce(dtype, what.op, &rows)
    };
    for own in 0..members {
        let recv = parts[own].recv;
        match what.kind {
            Kind::Barrier => {}
            Kind::AllReduce => write(own, recv, 0, &reduced(&|_| 0, count)),
            Kind::Reduce if own == root => write(own, recv, 0, &reduced(&|_| 0, count)),
            Kind::Reduce => {}
            Kind::ReduceScatter => write(own, recv, 0, &reduced(&|_| own * count, count)),
            Kind::ReduceScatterV => {
                let skip = |from: usize| parts[from].send_displs[own];
                write(own, recv, 0, &reduced(&skip, what.matrix[own][own]));
            }
            Kind::Broadcast => write(own, recv, 0, &read(root, parts[root].send, 0, count)),
            Kind::Scatter => {
                let data = read(root, parts[root].send, own * count, count);
                write(own, recv, 0, &data);
            }
            Kind::AllGather => {
                for (from, part) in parts.iter().enumerate() {
                    let data = read(from, part.send, 0, count);
                    write(own, recv, from * count, &data);
                }
            }
            Kind::AllGatherV => {
                for (from, part) in parts.iter().enumerate() {
                    let data = read(from, part.send, 0, what.matrix[from][own]);
                    write(own, recv, parts[own].recv_displs[from], &data);
                }
            }
            Kind::AllToAll => {
                for (from, part) in parts.iter().enumerate() {
                    let data = read(from, part.send, own * count, count);
                    write(own, recv, from * count, &data);
                }
            }
            Kind::AllToAllV | Kind::AllToAllVC => {
                for (from, part) in parts.iter().enumerate() {
                    let skip = part.send_displs[own];
                    let data = read(from, part.send, skip, what.matrix[from][own]);
                    write(own, recv, parts[own].recv_displs[from], &data);
                }
            }
        }
    }
}

/// Combines rows element by element, in the order of the rows.
fn reduce(dtype: HcclDataType, op: HcclReduceOp, rows: &[Vec<u8>]) -> Vec<u8> {
    let size = element(dtype);
    let elements = rows[0].len() / size;
    let column = |index: usize| rows.iter().map(move |row| &row[index * size..][..size]);
    let integers = |index: usize| column(index).map(integer).reduce(|a, b| whole(op, a, b));
    // 16-bit numbers are added as 32-bit ones and rounded once.
    let numbers = |index: usize, read: fn(&[u8]) -> f32| {
        let total = column(index).map(read).reduce(|a, b| number(op, a, b));
        total.expect("a member")
    };
    let half = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
    let brain = |bytes: &[u8]| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
    let single = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("4 bytes"));
    let mut all = Vec::with_capacity(rows[0].len());
    for index in 0..elements {
        match dtype {
            sys::HCCL_DATA_TYPE_FP16 => {
                all.extend(f16::from_f32(numbers(index, half)).to_le_bytes());
            }
            sys::HCCL_DATA_TYPE_BFP16 => {
                all.extend(bf16::from_f32(numbers(index, brain)).to_le_bytes());
            }
            sys::HCCL_DATA_TYPE_FP32 => all.extend(numbers(index, single).to_le_bytes()),
            _ => {
                let total = integers(index).expect("a member");
                all.extend(&total.to_le_bytes()[..size]);
            }
        }
    }
    all
}

/// A signed integer of 1 to 8 bytes.
fn integer(bytes: &[u8]) -> i64 {
    let negative = bytes[bytes.len() - 1] & 0x80 != 0;
    let mut all = [if negative { 255 } else { 0 }; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(all)
}

fn whole(op: HcclReduceOp, a: i64, b: i64) -> i64 {
    match op {
        sys::HCCL_REDUCE_SUM => a.wrapping_add(b),
        sys::HCCL_REDUCE_PROD => a.wrapping_mul(b),
        sys::HCCL_REDUCE_MAX => a.max(b),
        _ => a.min(b),
    }
}

fn number(op: HcclReduceOp, a: f32, b: f32) -> f32 {
    match op {
        sys::HCCL_REDUCE_SUM => a + b,
        sys::HCCL_REDUCE_PROD => a * b,
        sys::HCCL_REDUCE_MAX => a.max(b),
        _ => a.min(b),
    }
}
