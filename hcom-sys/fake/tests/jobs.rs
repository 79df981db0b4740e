//! Whole jobs: killed and started again, many at once, as large as may be, and with counts beyond 32 bits.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::env;
use std::time::Duration;

use hcom_sys::bindings as sys;
use support::api::{Buffer, Comm, Stream, acl, hccl, last_error};
use support::{KINDS, Kind, Processes, Rank, equip, ranks};

const F32: sys::HcclDataType = sys::HCCL_DATA_TYPE_FP32;
const U8: sys::HcclDataType = sys::HCCL_DATA_TYPE_UINT8;
const SUM: sys::HcclReduceOp = sys::HCCL_REDUCE_SUM;
const LIMIT: Duration = Duration::from_secs(60);
/// What a rank process is to do, and what it says when it has done it.
const TASK: &str = "HCOM_FAKE_TEST_TASK";
const DONE: &str = "DONE";

fn adds_up(rank: &Rank, comm: &Comm, stream: &Stream, round: u32) {
    let own = (rank.rank * 1000 + round) as f32;
    let buffer = Buffer::of(&[own, 1.0, own]);
    comm.all_reduce(&buffer, &buffer, 3, F32, SUM, stream)
        .unwrap();
    stream.synchronize().unwrap();
    let sum = (0..rank.size)
        .map(|rank| (rank * 1000 + round) as f32)
        .sum();
    assert_eq!(buffer.read::<f32>(3), [sum, rank.size as f32, sum]);
}

/// The process of a rank that was started for `task`, if this is one.
fn as_rank(size: u32, task: &str) -> Option<Rank> {
    (env::var(TASK).as_deref() == Ok(task)).then(|| {
        let rank = Rank::of_process(size);
        support::api::set_device(rank.rank);
        rank
    })
}

/// All ranks of a job are killed in the middle of an operation, and a new job of the same size starts at once, on the
/// same devices: what the dead held is gone with them.
#[test]
fn a_killed_job_can_be_started_again_at_once() {
    let test = "a_killed_job_can_be_started_again_at_once";
    if let Some(rank) = as_rank(2, "dies") {
        let (comm, stream) = equip(&rank);
        for round in 0.. {
            adds_up(&rank, &comm, &stream, round);
            if round == 5 {
                // Rank 0 kills itself here, rank 1 inside the operation that rank 0 never comes to.
                if rank.rank == 1 {
                    let fault = c"op=1,do=kill";
                    acl(c!(hcomExtPlanFaults(fault.as_ptr()))).unwrap();
                    let _ = comm.barrier(&stream);
                    let _ = stream.synchronize();
                }
                rank.die();
            }
        }
    }
    if let Some(rank) = as_rank(2, "lives") {
        let (comm, stream) = equip(&rank);
        // As much of the device as there is: nothing of it is held by the dead.
        let (mut free, mut total) = (0, 0);
        acl(c!(aclrtGetMemInfo(sys::ACL_HBM_MEM, &mut free, &mut total))).unwrap();
        assert!(total - free < 4096, "{free} of {total} bytes are free");
        drop(Buffer::new(free - 4096));
        adds_up(&rank, &comm, &stream, 7);
        println!("\n{DONE}");
        std::process::exit(0);
    }
    for round in 0..20 {
        let dead = Processes::spawn(2, test, &[(TASK, "dies")])
            .wait(LIMIT)
            .unwrap();
        assert!(
            dead.iter().all(|(end, _)| !end.success()),
            "{round}: {dead:?}"
        );
        let alive = Processes::spawn(2, test, &[(TASK, "lives")])
            .wait(LIMIT)
            .unwrap();
        assert!(
            alive.iter().all(|(end, _)| end.success()),
            "{round}: {alive:?}"
        );
    }
}

#[test]
fn fifty_jobs_of_four_ranks_run_side_by_side() {
    let test = "fifty_jobs_of_four_ranks_run_side_by_side";
    if let Some(rank) = as_rank(4, "job") {
        let (comm, stream) = equip(&rank);
        for round in 0..20 {
            adds_up(&rank, &comm, &stream, round);
        }
        println!("\n{DONE}");
        std::process::exit(0);
    }
    let jobs: Vec<Processes> = (0..50)
        .map(|_| Processes::spawn(4, test, &[(TASK, "job")]))
        .collect();
    for (number, job) in jobs.into_iter().enumerate() {
        let ends = job
            .wait(LIMIT)
            .unwrap_or_else(|hang| panic!("job {number}: {hang}"));
        for (end, lines) in &ends {
            let done = lines.iter().any(|line| line == DONE);
            assert!(end.success() && done, "job {number}: {ends:?}");
        }
    }
}

#[test]
fn more_ranks_than_a_host_has_devices_are_refused() {
    ranks(
        Kind::Threads,
        1,
        "more_ranks_than_a_host_has_devices_are_refused",
        |rank| {
            let ticket = rank.ticket();
            let (code, text) = support::api::init(65, &ticket, 64).unwrap_err();
            assert_eq!(code, sys::HCCL_E_PARA.0);
            assert!(text.contains("65 ranks; at most 64 on one host"), "{text}");
            let mut comm = std::ptr::null_mut();
            let code = c!(HcclCommInitAll(
                17,
                (0..17).collect::<Vec<i32>>().as_mut_ptr(),
                &mut comm
            ));
            assert_eq!(code, sys::HCCL_E_PARA, "{}", last_error());
        },
    );
}

/// Blocks lie beyond 2^31 elements of buffers that are mostly holes, so no memory is needed for them.
#[test]
fn displacements_beyond_31_bits_are_exact() {
    const FAR: u64 = (1 << 31) + 8;
    for kind in KINDS {
        ranks(kind, 2, "displacements_beyond_31_bits_are_exact", |rank| {
            let (comm, stream) = equip(&rank);
            let bytes = FAR as usize + 16;
            let (send, recv) = (Buffer::new(bytes), Buffer::new(bytes));
            let write = |buffer: &Buffer, at: u64, values: &[u8]| {
                let (to, from) = (buffer.at(at as usize), values.as_ptr().cast());
                let kind = sys::ACL_MEMCPY_HOST_TO_DEVICE;
                acl(c!(aclrtMemcpy(to, values.len(), from, values.len(), kind))).unwrap();
            };
            let read = |buffer: &Buffer, at: u64| {
                let mut values = [0u8; 4];
                let (to, from) = (values.as_mut_ptr().cast(), buffer.at(at as usize));
                let kind = sys::ACL_MEMCPY_DEVICE_TO_HOST;
                acl(c!(aclrtMemcpy(to, 4, from, 4, kind))).unwrap();
                values
            };
            let own = 10 * rank.rank as u8;
            // For rank 0 from the start, for rank 1 from far behind; what the other sends arrives far behind, too.
            write(&send, 0, &[own + 1, own + 2, own + 3, own + 4]);
            write(&send, FAR, &[own + 5, own + 6, own + 7, own + 8]);
            write(&recv, FAR + 4, &[99; 4]);
            let (counts, from, to) = ([4u64, 4], [0, FAR], [FAR, 0]);
            hccl(c!(HcclAlltoAllV(
                send.0,
                counts.as_ptr().cast(),
                from.as_ptr().cast(),
                U8,
                recv.0,
                counts.as_ptr().cast(),
                to.as_ptr().cast(),
                U8,
                comm.0,
                stream.0
            )))
            .unwrap();
            stream.synchronize().unwrap();
            let block =
                |from: u8| [1, 2, 3, 4].map(|index| 10 * from + 4 * rank.rank as u8 + index);
            assert_eq!(read(&recv, FAR), block(0));
            assert_eq!(read(&recv, 0), block(1));
            assert_eq!(read(&recv, FAR + 4), [99; 4], "nothing behind");
            assert_eq!(read(&recv, FAR - 4), [0; 4], "nor before");
        });
    }
}

/// One more than 2^31 bytes really move. Needs 5 GB for a moment; with less the machine would swap, so that it only
/// runs where there is more.
#[test]
fn counts_beyond_31_bits_arrive_to_the_last_byte() {
    const COUNT: u64 = (1 << 31) + 8;
    let available = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available = available
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = available
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    if kib < 7 << 20 {
        eprintln!("not run: only {kib} KiB of memory are available");
        return;
    }
    ranks(
        Kind::Threads,
        2,
        "counts_beyond_31_bits_arrive_to_the_last_byte",
        |rank| {
            let (comm, stream) = equip(&rank);
            let buffer = Buffer::new(COUNT as usize + 8);
            let last = buffer.at(COUNT as usize - 8);
            let kind = sys::ACL_MEMCPY_HOST_TO_DEVICE;
            let own = [rank.rank as u8 + 1, 2, 3, 4, 5, 6, 7, 8, 99, 99, 99, 99];
            acl(c!(aclrtMemcpy(last, 12, own.as_ptr().cast(), 12, kind))).unwrap();
            hccl(c!(HcclBroadcast(buffer.0, COUNT, U8, 0, comm.0, stream.0))).unwrap();
            stream.synchronize().unwrap();
            let mut got = [0u8; 12];
            let kind = sys::ACL_MEMCPY_DEVICE_TO_HOST;
            acl(c!(aclrtMemcpy(got.as_mut_ptr().cast(), 12, last, 12, kind))).unwrap();
            assert_eq!(got, [1, 2, 3, 4, 5, 6, 7, 8, 99, 99, 99, 99]);
        },
    );
}
