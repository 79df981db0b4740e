//! Faults of operations on demand: what is planned happens, at the planned operation, on the planned rank.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::CString;
use std::time::{Duration, Instant};

use hcom_sys::bindings as sys;
use support::api::{Buffer, Comm, Stream, acl, last_error};
use support::communicator::name_of;
use support::{KINDS, Kind, Rank, equip, processes, ranks};

const F32: sys::HcclDataType = sys::HCCL_DATA_TYPE_FP32;
const SUM: sys::HcclReduceOp = sys::HCCL_REDUCE_SUM;
const COUNT: usize = 5;
/// What a peer's failure is on a stream, and at a call.
const REMOTE: [i32; 2] = [507_057, sys::HCCL_E_REMOTE.0 as i32];

/// Adds up `rank + index + round` over the ranks and checks every element.
fn reduce(rank: &Rank, comm: &Comm, stream: &Stream, round: u32) -> Result<(), (i32, String)> {
    let value = |rank: u32, index: usize| (rank as usize * 100 + index * 10) as f32 + round as f32;
    let row: Vec<f32> = (0..COUNT).map(|index| value(rank.rank, index)).collect();
    let (send, recv) = (Buffer::of(&row), Buffer::of(&[-1f32; COUNT]));
    comm.all_reduce(&send, &recv, COUNT as u64, F32, SUM, stream)
        .map_err(|(code, text)| (code as i32, text))?;
    let outcome = stream.synchronize();
    let got = recv.read::<f32>(COUNT);
    let sum = |index| (0..rank.size).map(|rank| value(rank, index)).sum::<f32>();
    match outcome {
        Ok(()) if got == [-1f32; COUNT] => Err((0, "nothing came".to_owned())),
        Ok(()) => {
            assert_eq!(got, (0..COUNT).map(sum).collect::<Vec<f32>>());
            Ok(())
        }
        Err(error) => {
            assert_eq!(got, [-1f32; COUNT], "no data comes with an error");
            Err(error)
        }
    }
}

/// Operations until one fails: how many succeeded, and its error.
fn until_failure(rank: &Rank, comm: &Comm, stream: &Stream) -> (u32, i32, String) {
    for round in 0..20 {
        if let Err((code, text)) = reduce(rank, comm, stream, round) {
            return (round, code, text);
        }
    }
    panic!("nothing failed");
}

#[test]
fn a_rank_is_killed_at_the_planned_operation() {
    let fault = [("HCOM_FAKE_FAULT", "rank=1,op=5,do=kill")];
    let test = "a_rank_is_killed_at_the_planned_operation";
    let ends = processes(3, test, &fault, |rank| {
        let (comm, stream) = equip(&rank);
        let (good, code, text) = until_failure(&rank, &comm, &stream);
        // Who hears of it between two operations is refused the next one.
        assert!(good == 4 && REMOTE.contains(&code), "{good} {code}: {text}");
        assert!(text.contains("rank 1 (process "), "{text}");
    });
    let succeeded: Vec<bool> = ends.iter().map(|end| end.success()).collect();
    assert_eq!(succeeded, [true, false, true]);
}

#[test]
fn a_stopped_rank_is_named_and_hears_of_it_when_it_goes_on() {
    let variables = [
        ("HCOM_FAKE_FAULT", "rank=1,op=3,do=stop"),
        ("HCCL_EXEC_TIMEOUT", "1"),
    ];
    let test = "a_stopped_rank_is_named_and_hears_of_it_when_it_goes_on";
    let ends = processes(2, test, &variables, |rank| {
        let (comm, stream) = equip(&rank);
        let (good, code, text) = until_failure(&rank, &comm, &stream);
        if rank.rank == 1 {
            // Rank 0 had published its few numbers before it gave up, so this rank may still complete the operation.
            assert!((2..4).contains(&good), "{good}: {text}");
            assert!(
                text.contains("rank 0 (process ") && text.contains("timed out after 1 s"),
                "{text}"
            );
            return;
        }
        assert_eq!((good, code), (2, 507_017), "{text}");
        assert!(text.contains("rank 1 (process "), "{text}");
        assert!(text.contains("has not come"), "{text}");
        assert!(
            text.contains("rank 0 last entered all_reduce (its operation 3)"),
            "{text}"
        );
        let process = text.split("rank 1 (process ").nth(1).unwrap();
        let process: i32 = process.split(')').next().unwrap().parse().unwrap();
        let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        assert!(state.contains(") T "), "{state}");
        let process = rustix::process::Pid::from_raw(process).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    });
    assert!(ends.iter().all(|end| end.success()), "{ends:?}");
}

#[test]
fn a_late_rank_is_waited_for() {
    let fault = [(
        "HCOM_FAKE_FAULT",
        "rank=0,op=2,do=delay:150ms; rank=2,op=2,do=delay:300000us",
    )];
    let ends = processes(3, "a_late_rank_is_waited_for", &fault, |rank| {
        let (comm, stream) = equip(&rank);
        reduce(&rank, &comm, &stream, 0).unwrap();
        comm.barrier(&stream).unwrap();
        let begun = Instant::now();
        stream.synchronize().unwrap();
        reduce(&rank, &comm, &stream, 1).unwrap();
        // Rank 2 begins its part no earlier than that.
        if rank.rank == 2 {
            assert!(begun.elapsed() >= Duration::from_millis(300));
        }
        for round in 2..5 {
            reduce(&rank, &comm, &stream, round).unwrap();
        }
    });
    assert!(ends.iter().all(|end| end.success()), "{ends:?}");
}

#[test]
fn an_operation_that_one_rank_dropped_never_meets_a_later_one() {
    let fault = [("HCOM_FAKE_FAULT", "rank=1,op=2,do=drop")];
    let test = "an_operation_that_one_rank_dropped_never_meets_a_later_one";
    let ends = processes(3, test, &fault, |rank| {
        let (comm, stream) = equip(&rank);
        let (good, code, text) = until_failure(&rank, &comm, &stream);
        assert_eq!(good, 1);
        if rank.rank == 1 {
            assert_eq!((code, text.as_str()), (0, "nothing came"));
            let (code, text) = reduce(&rank, &comm, &stream, 2).unwrap_err();
            assert_eq!(code, 507_018, "{text}");
            return;
        }
        assert_eq!(code, 507_018, "{text}");
        let both = "rank 0: all_reduce of 5 f32, sum (its collective 2, its operation 2); \
                    rank 1: all_reduce of 5 f32, sum (its collective 3, its operation 3)";
        assert!(text.contains(both), "{text}");
    });
    assert!(ends.iter().all(|end| end.success()), "{ends:?}");
}

#[test]
fn an_error_of_one_rank_is_an_error_of_all() {
    for kind in KINDS {
        ranks(kind, 3, "an_error_of_one_rank_is_an_error_of_all", |rank| {
            let (comm, stream) = equip(&rank);
            // The name keeps the fault away from the tests that run beside this one in the same process.
            let name = name_of(&comm);
            let fault = format!("comm={name},kind=all_reduce,rank=2,op=3,do=error:507899");
            let fault = CString::new(fault).unwrap();
            if rank.rank == 2 {
                acl(c!(hcomExtPlanFaults(fault.as_ptr()))).unwrap();
            }
            comm.barrier(&stream).unwrap();
            let (good, code, text) = until_failure(&rank, &comm, &stream);
            assert_eq!(good, 2, "{text}");
            if rank.rank == 2 {
                assert_eq!(code, 507_899, "{text}");
                assert!(text.contains("injected fault on rank 2"), "{text}");
            } else {
                assert!(REMOTE.contains(&code), "{code}: {text}");
                assert!(text.contains("rank 2 (process "), "{text}");
                assert!(text.contains("injected fault on rank 2"), "{text}");
            }
        });
    }
}

#[test]
fn a_mistake_in_the_plan_is_an_error_that_shows_it() {
    let planned = |text: &str| {
        let text = CString::new(text).unwrap();
        (c!(hcomExtPlanFaults(text.as_ptr())), last_error())
    };
    let (code, text) = planned("op=1,do=drop; rank=1,op=5,do=explode");
    assert_eq!(code, 100_000);
    let sentence = "fault `rank=1,op=5,do=explode`: do=explode: expected kill, stop, delay:TIME";
    assert!(text.contains(sentence), "{text}");
    assert_eq!(c!(hcomExtPlanFaults(std::ptr::null())), 100_000);
    assert_eq!(planned("").0, 0);
    // Of a text with a mistake nothing is planned, so this operation is not dropped.
    ranks(Kind::Threads, 1, "", |rank| {
        let (comm, stream) = equip(&rank);
        reduce(&rank, &comm, &stream, 0).unwrap();
    });
}

#[test]
fn faults_that_are_cleared_do_not_strike() {
    let fault = [("HCOM_FAKE_FAULT", "op=1,do=kill")];
    let test = "faults_that_are_cleared_do_not_strike";
    let ends = processes(2, test, &fault, |rank| {
        acl(c!(hcomExtClearFaults())).unwrap();
        let (comm, stream) = equip(&rank);
        reduce(&rank, &comm, &stream, 0).unwrap();
    });
    assert!(ends.iter().all(|end| end.success()), "{ends:?}");
}
