//! Every way to make a communicator, what is configured, parts, groups of calls, suspension, and many lives in a row.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::CString;
use std::ptr;
use std::thread;
use std::time::Duration;

use hcom_sys::bindings::{self as sys, HcclCommConfig, HcclRootInfo};
use support::api::{Buffer, Comm, Stream, acl, hccl, last_error, prepared, set_device};
use support::communicator::{I32, adds_up, name_of};
use support::{KINDS, Kind, Rank, equip, processes, ranks};

fn named(mut config: HcclCommConfig, name: &str) -> HcclCommConfig {
    for (to, from) in config.hcclCommName.iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    config
}

fn init_with(rank: &Rank, config: &HcclCommConfig) -> Result<Comm, (u32, String)> {
    let mut info = HcclRootInfo::default();
    for (to, from) in info.internal.iter_mut().zip(rank.ticket()) {
        *to = from as _;
    }
    init_from(rank, &info, config)
}

fn init_from(
    rank: &Rank,
    info: &HcclRootInfo,
    config: &HcclCommConfig,
) -> Result<Comm, (u32, String)> {
    let mut comm = ptr::null_mut();
    hccl(c!(HcclCommInitRootInfoConfig(
        rank.size, info, rank.rank, config, &mut comm
    )))?;
    Ok(Comm(comm))
}

#[test]
fn every_version_of_the_configuration_is_understood() {
    for kind in KINDS {
        ranks(
            kind,
            2,
            "every_version_of_the_configuration_is_understood",
            |rank| {
                let stream = Stream::create();
                for (size, version) in [(160, 2), (2232, 10), (2240, 10), (2248, 11), (4096, 99)] {
                    // A larger structure is read as far as it is known; the memory behind it must exist.
                    let mut memory = vec![0u8; 4096];
                    let name = format!("of {size}");
                    let config = named(prepared(size, version), &name);
                    assert!(size_of_val(&config) <= memory.len());
                    // SAFETY: as many bytes on both sides, and plain data.
                    unsafe {
                        ptr::copy_nonoverlapping(
                            ptr::from_ref(&config).cast(),
                            memory.as_mut_ptr(),
                            size_of_val(&config).min(size),
                        );
                        let config: HcclCommConfig =
                            memory.as_ptr().cast::<HcclCommConfig>().read_unaligned();
                        let comm = init_with(&rank, &config).unwrap();
                        assert_eq!(name_of(&comm), name);
                        adds_up(&comm, &stream);
                    }
                }
                let wrong = |config: HcclCommConfig, what: &str| {
                    // Before anything else is looked at.
                    let info = HcclRootInfo::default();
                    let (code, text) = init_from(&rank, &info, &config).unwrap_err();
                    assert_eq!(code, sys::HCCL_E_PARA.0);
                    assert!(text.contains(what), "{text}");
                };
                wrong(HcclCommConfig::default(), "HcclCommConfigInit");
                let no_buffer = HcclCommConfig {
                    hcclBufferSize: 0,
                    ..prepared(2248, 11)
                };
                wrong(no_buffer, "hcclBufferSize is 0");
                let own = HcclCommConfig {
                    hcclBufferSize: 100 + rank.rank,
                    ..prepared(2248, 11)
                };
                let (code, text) = init_with(&rank, &own).unwrap_err();
                assert_eq!(code, sys::HCCL_E_PARA.0);
                assert!(text.contains("configured differently: rank"), "{text}");
                assert!(last_error().is_empty());
                assert_eq!(
                    c!(HcclGetCommConfigCapability()),
                    sys::HCCL_COMM_CONFIG_RESERVED.0
                );
            },
        );
    }
}

#[test]
fn a_configured_time_limit_ends_a_collective() {
    ranks(
        Kind::Threads,
        2,
        "a_configured_time_limit_ends_a_collective",
        |rank| {
            let config = HcclCommConfig {
                hcclExecTimeOut: 1,
                ..prepared(2248, 11)
            };
            let comm = init_with(&rank, &config).unwrap();
            let stream = Stream::create();
            if rank.rank == 0 {
                comm.barrier(&stream).unwrap();
                let (_, text) = stream.synchronize().unwrap_err();
                assert!(
                    text.contains("after 1 s (HCCL_EXEC_TIMEOUT): rank 1 (process "),
                    "{text}"
                );
                assert!(
                    text.contains("rank 1 has entered no operation yet"),
                    "{text}"
                );
                assert_eq!(comm.async_error(), sys::HCCL_E_TIMEOUT.0);
            } else {
                while comm.async_error() != sys::HCCL_E_REMOTE.0 {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        },
    );
}

#[test]
fn one_thread_makes_communicators_for_all_devices() {
    let devices = [3, 1, 2];
    ranks(
        Kind::Threads,
        1,
        "one_thread_makes_communicators_for_all_devices",
        |_| {
            let mut devices_in = devices;
            let mut comms = [ptr::null_mut(); 3];
            hccl(c!(HcclCommInitAll(
                3,
                devices_in.as_mut_ptr(),
                comms.as_mut_ptr()
            )))
            .unwrap();
            let comms = comms.map(Comm);
            thread::scope(|scope| {
                for (rank, comm) in comms.iter().enumerate() {
                    scope.spawn(move || {
                        set_device(devices[rank] as u32);
                        let mut own = 9;
                        hccl(c!(HcclGetRankId(comm.0, &mut own))).unwrap();
                        assert_eq!(own as usize, rank);
                        for _ in 0..20 {
                            adds_up(comm, &Stream::create());
                        }
                        support::api::reset_device(devices[rank] as u32);
                    });
                }
            });
            let all = |count, devices: *mut i32, comms| c!(HcclCommInitAll(count, devices, comms));
            let (para, ptr) = (sys::HCCL_E_PARA, sys::HCCL_E_PTR);
            let mut places = [ptr::null_mut(); 2];
            assert_eq!(all(0, [0].as_mut_ptr(), places.as_mut_ptr()), para);
            assert_eq!(all(2, [4, 4].as_mut_ptr(), places.as_mut_ptr()), para);
            assert!(last_error().contains("device 4 appears twice"));
            assert_eq!(all(2, [0, 999].as_mut_ptr(), places.as_mut_ptr()), para);
            assert_eq!(all(1, ptr::null_mut(), places.as_mut_ptr()), ptr);
            assert_eq!(all(1, [0].as_mut_ptr(), ptr::null_mut()), ptr);
        },
    );
}

/// A rank table in a file of its own.
struct Table(std::path::PathBuf);

impl Table {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hcom-table-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn join(&self, rank: u32) -> Result<Comm, (u32, String)> {
        join_table(&self.0, rank)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn join_table(path: &std::path::Path, rank: u32) -> Result<Comm, (u32, String)> {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let mut comm = ptr::null_mut();
    hccl(c!(HcclCommInitClusterInfo(path.as_ptr(), rank, &mut comm)))?;
    Ok(Comm(comm))
}

fn table(server: &str, ranks: u32) -> String {
    let devices: Vec<String> = (0..ranks)
        .map(|rank| format!(r#"{{"device_id":"{rank}","rank_id":"{rank}"}}"#))
        .collect();
    format!(
        r#"{{"version":"1.0","status":"completed","server_count":"1","server_list":[{{"server_id":"{server}","device":[{}]}}]}}"#,
        devices.join(",")
    )
}

#[test]
fn ranks_of_a_table_find_each_other_again_and_again() {
    for kind in KINDS {
        ranks(
            kind,
            3,
            "ranks_of_a_table_find_each_other_again_and_again",
            |rank| {
                // What the ranks share is the ticket of a communicator, and with it a name nobody else has.
                let (common, stream) = equip(&rank);
                let text = table(&name_of(&common), rank.size);
                let file = Table::new(&format!("{}", rank.rank), &text);
                for _ in 0..20 {
                    let comm = file.join(rank.rank).unwrap();
                    adds_up(&comm, &stream);
                    let (code, text) = file.join(rank.rank).unwrap_err();
                    assert_eq!(code, sys::HCCL_E_PARA.0);
                    assert!(
                        text.contains("has a communicator of this rank table already"),
                        "{text}"
                    );
                    // All have tried before one destroys its end and may come back.
                    common.barrier(&stream).unwrap();
                    stream.synchronize().unwrap();
                    drop(comm);
                    common.barrier(&stream).unwrap();
                    stream.synchronize().unwrap();
                }
            },
        );
    }
}

/// Four ranks on two servers, which are both this host: each has devices 0 and 1.
#[test]
fn servers_of_a_table_may_have_the_same_devices() {
    let test = "servers_of_a_table_may_have_the_same_devices";
    ranks(Kind::Processes, 4, test, |rank| {
        let (common, stream) = equip(&rank);
        let name = name_of(&common);
        let device = |rank: u32| format!(r#"{{"device_id":"{}","rank_id":"{rank}"}}"#, rank % 2);
        let server = |first: u32| {
            let devices = [device(first), device(first + 1)].join(",");
            format!(r#"{{"server_id":"{name}{first}","device":[{devices}]}}"#)
        };
        let servers = [server(0), server(2)].join(",");
        let text = format!(
            r#"{{"version":"1.0","status":"completed","server_count":"2","server_list":[{servers}]}}"#
        );
        set_device(rank.rank % 2);
        let stream_here = Stream::create();
        let comm = Table::new(&format!("{}", rank.rank), &text)
            .join(rank.rank)
            .unwrap();
        adds_up(&comm, &stream_here);
        set_device(rank.rank);
        adds_up(&common, &stream);
    });
}

#[test]
fn a_wrong_table_is_refused_before_anybody_connects() {
    ranks(
        Kind::Threads,
        1,
        "a_wrong_table_is_refused_before_anybody_connects",
        |_| {
            let refused = |code: sys::HcclResult, text: &str, rank: u32, what: &str| {
                let (got, said) = Table::new("wrong", text).join(rank).unwrap_err();
                assert_eq!(got, code.0, "{said}");
                assert!(said.contains(what), "{said}");
            };
            let good = table("nobody", 2);
            refused(
                sys::HCCL_E_PARA,
                &good,
                2,
                "rank 2 is not in the rank table, which has ranks 0 to 1",
            );
            refused(
                sys::HCCL_E_PARA,
                &good,
                1,
                "device_id \"1\" for rank 1, but this thread works on device 0",
            );
            refused(sys::HCCL_E_PARA, "{", 0, "not JSON");
            let unready = good.replace("completed", "initializing");
            refused(
                sys::HCCL_E_UNAVAIL,
                &unready,
                0,
                "status is \"initializing\"",
            );
            let twice = good.replace("\"rank_id\":\"1\"", "\"rank_id\":\"0\"");
            refused(
                sys::HCCL_E_PARA,
                &twice,
                0,
                "server_list[0].device[1].rank_id is \"0\", as is server_list[0].device[0].rank_id",
            );
            let (code, text) = join_table("/nowhere/table.json".as_ref(), 0).unwrap_err();
            assert_eq!(code, sys::HCCL_E_OPEN_FILE_FAILURE.0);
            assert!(text.contains("/nowhere/table.json"), "{text}");
            let mut comm = ptr::null_mut();
            assert_eq!(
                c!(HcclCommInitClusterInfo(ptr::null(), 0, &mut comm)),
                sys::HCCL_E_PTR
            );
            let long = CString::new("x".repeat(4096)).unwrap();
            assert_eq!(
                c!(HcclCommInitClusterInfo(long.as_ptr(), 0, &mut comm)),
                sys::HCCL_E_PARA
            );
            let file = Table::new("null", &good);
            let path = CString::new(file.0.to_str().unwrap()).unwrap();
            assert_eq!(
                c!(HcclCommInitClusterInfo(path.as_ptr(), 0, ptr::null_mut())),
                sys::HCCL_E_PTR
            );
        },
    );
}

/// One thread, both ranks: only a group can set them up, and lets sends come before receives.
#[test]
fn a_group_takes_effect_at_its_end() {
    ranks(Kind::Threads, 1, "a_group_takes_effect_at_its_end", |_| {
        let mut info = HcclRootInfo::default();
        hccl(c!(HcclGetRootInfo(&mut info))).unwrap();
        let mut handles = [ptr::null_mut(); 2];
        let mut active = false;
        for _ in 0..2 {
            hccl(c!(HcclGroupStart())).unwrap();
        }
        for (rank, handle) in handles.iter_mut().enumerate() {
            set_device(rank as u32);
            hccl(c!(HcclCommInitRootInfo(2, &info, rank as u32, handle))).unwrap();
        }
        hccl(c!(HcclGroupEnd())).unwrap();
        hccl(c!(HcclGroupStatusGet(&mut active))).unwrap();
        assert!(active && handles.iter().all(|handle| handle.is_null()));
        hccl(c!(HcclGroupEnd())).unwrap();
        hccl(c!(HcclGroupStatusGet(&mut active))).unwrap();
        assert!(!active);
        assert_eq!(c!(HcclGroupEnd()), sys::HCCL_E_PARA);
        let comms = handles.map(Comm);
        let on = |rank: usize| set_device(rank as u32);
        let equipment = [0, 1].map(|rank| {
            on(rank);
            let own = Buffer::of(&[rank as i32 * 10, rank as i32 * 10 + 1]);
            (Stream::create(), own, Buffer::of(&[-1i32; 2]))
        });
        for (rank, (stream, own, other)) in equipment.iter().enumerate() {
            on(rank);
            let (comm, peer) = (comms[rank].0, 1 - rank as u32);
            hccl(c!(HcclGroupStart())).unwrap();
            hccl(c!(HcclSend(own.0, 2, I32, peer, comm, stream.0))).unwrap();
            hccl(c!(HcclRecv(other.0, 2, I32, peer, comm, stream.0))).unwrap();
            assert_eq!(
                c!(HcclBarrier(comm, stream.0)),
                sys::HCCL_E_PARA,
                "of another sort"
            );
            let mut items = [sys::HcclSendRecvItem {
                buf: own.0,
                count: 1,
                dataType: I32,
                remoteRank: peer,
                ..Default::default()
            }];
            assert_eq!(
                c!(HcclBatchSendRecv(items.as_mut_ptr(), 1, comm, stream.0)),
                sys::HCCL_E_PARA
            );
            hccl(c!(HcclGroupEnd())).unwrap();
        }
        for (rank, (stream, _, other)) in equipment.iter().enumerate() {
            on(rank);
            stream.synchronize().unwrap();
            let peer = 10 * (1 - rank as i32);
            assert_eq!(other.read::<i32>(2), [peer, peer + 1]);
        }
    });
}

#[test]
fn a_suspended_communicator_waits_for_better_times() {
    for kind in KINDS {
        ranks(
            kind,
            2,
            "a_suspended_communicator_waits_for_better_times",
            |rank| {
                let (comm, stream) = equip(&rank);
                let name = CString::new(name_of(&comm)).unwrap();
                let status = || {
                    let mut status = sys::HCCL_COMM_STATUS_INVALID;
                    hccl(c!(HcclCommGetStatus(name.as_ptr(), &mut status))).unwrap();
                    status
                };
                for _ in 0..20 {
                    adds_up(&comm, &stream);
                    hccl(c!(HcclCommSuspend(comm.0))).unwrap();
                    assert_eq!(status(), sys::HCCL_COMM_STATUS_SUSPENDING);
                    let (code, text) = comm.barrier(&stream).unwrap_err();
                    assert_eq!(code, sys::HCCL_E_SUSPENDING.0);
                    assert!(text.contains("is suspended"), "{text}");
                    let buffer = Buffer::new(4);
                    let send = c!(HcclSend(buffer.0, 1, I32, 1 - rank.rank, comm.0, stream.0));
                    assert_eq!(send, sys::HCCL_E_SUSPENDING);
                    hccl(c!(HcclCommResume(comm.0))).unwrap();
                    assert_eq!(status(), sys::HCCL_COMM_STATUS_READY);
                }
                adds_up(&comm, &stream);
                assert_eq!(c!(HcclCommSuspend(ptr::null_mut())), sys::HCCL_E_PTR);
            },
        );
    }
}

/// One of four dies. The others abort two communicators, in different orders, and go on as three.
#[test]
fn survivors_abort_and_go_on_without_the_dead() {
    let test = "survivors_abort_and_go_on_without_the_dead";
    let ends = processes(4, test, &[], |rank| {
        let (first, stream) = equip(&rank);
        let (second, other) = equip(&rank);
        let three = rank.ticket();
        if rank.rank == 2 {
            first.barrier(&stream).unwrap();
            stream.synchronize().unwrap();
            rank.die();
        }
        first.barrier(&stream).unwrap();
        stream.synchronize().unwrap();
        // Refused at the call or failed on the stream, as the death is noticed before or after.
        let refused = first.barrier(&stream).is_err();
        let _ = second.barrier(&other);
        assert_eq!(stream.synchronize().is_err(), !refused);
        let begun = std::time::Instant::now();
        let aborts = [(&first, &stream), (&second, &other)];
        for index in [rank.rank as usize % 2, 1 - rank.rank as usize % 2] {
            let (comm, stream) = aborts[index];
            acl(c!(aclrtStreamAbort(stream.0))).unwrap();
            comm.destroy().unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        let own = if rank.rank == 3 { 2 } else { rank.rank };
        let comm = support::api::init(3, &three, own).unwrap();
        adds_up(&comm, &Stream::create());
    });
    let succeeded: Vec<bool> = ends.iter().map(|end| end.success()).collect();
    assert_eq!(succeeded, [true, true, false, true]);
}
