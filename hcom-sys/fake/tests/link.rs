//! The modelled link: transfers take their time, side by side with computation.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::time::{Duration, Instant};

use hcom_sys::bindings as sys;
use support::api::{Buffer, acl};
use support::{equip, processes};

#[test]
fn a_transfer_takes_its_modelled_time() {
    let test = "a_transfer_takes_its_modelled_time";
    // 2 ms and 100 MB/s: an all_reduce of 1 MB on two ranks carries 2 (p - 1) / p = 1 times its bytes.
    let ends = processes(2, test, &[("HCOM_FAKE_LINK", "2000,0.1")], |rank| {
        let (comm, stream) = equip(&rank);
        let mut link = sys::hcomExtLink::default();
        acl(c!(hcomExtGetLink(&mut link))).unwrap();
        assert_eq!((link.alphaUs, link.gbytesPerS), (2000.0, 0.1));
        let count = 250_000;
        let buffer = Buffer::of(&vec![rank.rank as f32 + 1.0; count]);
        let took = |count: u64| {
            comm.barrier(&stream).unwrap();
            stream.synchronize().unwrap();
            let begun = Instant::now();
            let (dtype, op) = (sys::HCCL_DATA_TYPE_FP32, sys::HCCL_REDUCE_SUM);
            comm.all_reduce(&buffer, &buffer, count, dtype, op, &stream)
                .unwrap();
            stream.synchronize().unwrap();
            begun.elapsed()
        };
        assert!(
            took(count as u64) >= Duration::from_millis(11),
            "2 ms and 10 ms"
        );
        assert!(
            took(1) >= Duration::from_micros(1900),
            "2 ms and next to nothing"
        );
        let all = buffer.read::<f32>(count);
        assert_eq!((all[0], all[1], all[count - 1]), (6.0, 3.0, 3.0));
        // Off again: set by call, on all ranks.
        comm.barrier(&stream).unwrap();
        stream.synchronize().unwrap();
        acl(c!(hcomExtSetLink(&sys::hcomExtLink {
            alphaUs: 0.0,
            gbytesPerS: 0.0
        })))
        .unwrap();
        assert_eq!(
            c!(hcomExtSetLink(&sys::hcomExtLink {
                alphaUs: 1.0,
                gbytesPerS: 0.0
            })),
            100_000
        );
        comm.barrier(&stream).unwrap();
        stream.synchronize().unwrap();
    });
    assert!(ends.iter().all(|end| end.success()));
}
