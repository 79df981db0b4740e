//! Waiting in slices for what was issued, and memory that the host shares with the device.

mod common;

use std::time::{Duration, Instant};

use common::*;
use hcom_ir::{Attrs, DType, Group, Op, ReduceOp};
use hcom_test::{Kind, ranks};

/// Rank 1 comes only after rank 0 has seen that its own call is not done.
#[test]
fn a_fence_is_reached_when_the_work_before_it_is_done() {
    for kind in Kind::ALL {
        ranks(2, kind, TIMEOUT, |rank| {
            let runtime = runtime(&rank);
            let both = Group::new("both", [0, 1]);
            let attrs = Attrs::new().with("op", ReduceOp::Sum);
            let input = runtime.empty(DType::I32, &[2]).unwrap();
            let mine = [rank.rank() as i32 + 1, 10].map(i32::to_le_bytes).concat();
            input.write(&mine).unwrap();
            let reduce = || {
                runtime
                    .eager(Op::AllReduce, &attrs, Some(&both), &[&input])
                    .unwrap()
            };
            // The communicator exists afterwards, so that issuing does not wait.
            reduce()[0].to_host().unwrap();

            let deadline = Instant::now() + TIMEOUT;
            let meet = |key| {
                runtime
                    .control()
                    .all_gather(&[0, 1], key, &[], deadline)
                    .unwrap()
            };
            if rank.rank() == 1 {
                meet("seen");
            }
            let sum = reduce().remove(0);
            let fence = runtime.fence().unwrap();
            if rank.rank() == 0 {
                assert!(!fence.wait(Duration::from_millis(30)).unwrap());
                assert!(!fence.reached().unwrap());
                meet("seen");
            }
            while !fence.wait(Duration::from_millis(20)).unwrap() {}
            assert!(fence.reached().unwrap());
            assert_eq!(
                sum.to_host().unwrap(),
                [3, 20].map(i32::to_le_bytes).concat()
            );

            fence.set().unwrap();
            while !fence.wait(Duration::from_millis(20)).unwrap() {}
            meet("end");
        });
    }
}

#[test]
fn a_write_of_another_size_is_refused() {
    let runtime = {
        hcom_sys::register_fallback(hcom_fake::table());
        let control =
            hcom_runtime::connect(&hcom_runtime::World::alone(), &Default::default()).unwrap();
        hcom_runtime::Runtime::with_control(control, 0, &Default::default()).unwrap()
    };
    let array = runtime.array(DType::F32, &[2], &[0; 8]).unwrap();
    let error = array.write(&[0; 4]).unwrap_err();
    assert_eq!(error.to_string(), "f32[2] holds 8 bytes, got 4");
    assert!(array.host_pointer().is_some());
}
