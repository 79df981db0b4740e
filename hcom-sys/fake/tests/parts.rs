//! Parts of a communicator, and memory that a communicator is told of.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::{CString, c_void};
use std::ptr;

use hcom_sys::bindings::{self as sys, HcclResult};
use support::api::{Buffer, acl, hccl, last_error, prepared, split};
use support::communicator::{adds_up, name_of};
use support::{KINDS, Kind, equip, ranks};

#[test]
fn parts_of_a_communicator_work_beside_it() {
    for kind in KINDS {
        ranks(kind, 4, "parts_of_a_communicator_work_beside_it", |rank| {
            let (comm, stream) = equip(&rank);
            for round in 0..20 {
                // Two halves under one identity, in reverse order of ranks.
                let low = rank.rank < 2;
                let members = if low { [1, 0] } else { [3, 2] };
                let own = u32::from(rank.rank == members[1]);
                let half = split(&comm, &members, round, own).unwrap();
                assert_eq!(name_of(&half), format!("{}_sub_{round}", name_of(&comm)));
                adds_up(&half, &stream);
                adds_up(&comm, &stream);
                let (code, text) = split(&half, &[0], 5, 0).unwrap_err();
                assert_eq!(code, sys::HCCL_E_NOT_SUPPORT.0, "{text}");
                let (code, text) = split(&comm, &members, round, own).unwrap_err();
                assert_eq!(code, sys::HCCL_E_PARA.0);
                assert!(text.contains("exists already"), "{text}");
            }
            let refused = |members: &[u32], own: u32, what: &str| {
                let (code, text) = split(&comm, members, 77, own).unwrap_err();
                assert_eq!(code, sys::HCCL_E_PARA.0);
                assert!(text.contains(what), "{text}");
            };
            refused(&[rank.rank, rank.rank], 0, "appears twice");
            refused(&[rank.rank, 4], 0, "rank 4 of 4 ranks");
            refused(&[(rank.rank + 1) % 4], 0, "is not this rank");
            refused(&[rank.rank], 1, "rank 1 of 1");
            // Whoever does not belong to a part says so in two arguments.
            let (mut parent, mut config) = (comm.0, prepared(2248, 11));
            let mut sub = ptr::null_mut();
            let mut outside = |list: *mut u32, id| {
                c!(HcclCreateSubCommConfig(
                    &mut parent,
                    2,
                    list,
                    id,
                    0,
                    &mut config,
                    &mut sub
                ))
            };
            assert_eq!(outside(ptr::null_mut(), 0xffff_ffff), sys::HCCL_SUCCESS);
            assert_eq!(outside(ptr::null_mut(), 1), sys::HCCL_E_PARA);
            assert_eq!(
                outside([0u32, 1].as_mut_ptr(), 0xffff_ffff),
                sys::HCCL_E_PARA
            );
            assert!(sub.is_null());
        });
    }
}

/// Making a part waits for nobody; the first operation does.
#[test]
fn a_part_is_made_without_its_other_members() {
    for kind in KINDS {
        ranks(
            kind,
            3,
            "a_part_is_made_without_its_other_members",
            |rank| {
                let (comm, stream) = equip(&rank);
                for round in 0..10 {
                    if rank.rank == 2 {
                        // No member: it makes no call, and the others do not wait for one.
                        adds_up(&comm, &stream);
                        continue;
                    }
                    // Rank 0 has the part before it meets the others, rank 1 afterwards.
                    if rank.rank == 1 {
                        adds_up(&comm, &stream);
                    }
                    let part = split(&comm, &[1, 0], round, 1 - rank.rank).unwrap();
                    let (mut own, mut size) = (9, 9);
                    hccl(c!(HcclGetRankId(part.0, &mut own))).unwrap();
                    hccl(c!(HcclGetRankSize(part.0, &mut size))).unwrap();
                    assert_eq!((own, size), (1 - rank.rank, 2));
                    assert_eq!(name_of(&part), format!("{}_sub_{round}", name_of(&comm)));
                    assert_eq!(part.async_error(), 0);
                    let (name, mut found) =
                        (CString::new(name_of(&part)).unwrap(), ptr::null_mut());
                    hccl(c!(HcclCommGetHandleWithName(name.as_ptr(), &mut found))).unwrap();
                    assert_eq!(found, part.0);
                    if rank.rank == 0 {
                        adds_up(&comm, &stream);
                    }
                    adds_up(&part, &stream);
                }
            },
        );
    }
}

/// Parts that nobody uses end at once, and do not meet those that come after them under the same identity.
#[test]
fn a_part_that_is_not_used_can_be_destroyed_and_made_again() {
    for kind in KINDS {
        let test = "a_part_that_is_not_used_can_be_destroyed_and_made_again";
        ranks(kind, 2, test, |rank| {
            let (comm, stream) = equip(&rank);
            for _ in 0..10 {
                let part = split(&comm, &[0, 1], 5, rank.rank).unwrap();
                part.destroy().unwrap();
                let (code, text) = part.destroy().unwrap_err();
                assert_eq!(code, sys::HCCL_E_PARA.0, "{text}");
                assert_eq!(part.barrier(&stream).unwrap_err().0, sys::HCCL_E_PARA.0);
            }
            adds_up(&split(&comm, &[0, 1], 5, rank.rank).unwrap(), &stream);
        });
    }
}

/// Two huge pages of address space with memory in the first one.
struct Reserved {
    base: *mut c_void,
    memory: *mut c_void,
}

const PAGE: usize = 2 << 20;

impl Reserved {
    fn new() -> Self {
        let (mut base, mut memory) = (ptr::null_mut(), ptr::null_mut());
        let property = sys::aclrtPhysicalMemProp {
            memAttr: sys::ACL_HBM_MEM_HUGE,
            location: sys::aclrtMemLocation {
                id: 0,
                type_: sys::ACL_MEM_LOCATION_TYPE_DEVICE,
            },
            ..Default::default()
        };
        let reserve = c!(aclrtReserveMemAddress(
            &mut base,
            2 * PAGE,
            0,
            ptr::null_mut(),
            1
        ));
        acl(reserve).unwrap();
        acl(c!(aclrtMallocPhysical(&mut memory, PAGE, &property, 0))).unwrap();
        acl(c!(aclrtMapMem(base, PAGE, 0, memory, 0))).unwrap();
        Self { base, memory }
    }

    fn at(&self, bytes: usize) -> *mut c_void {
        self.base.wrapping_byte_add(bytes)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        acl(c!(aclrtUnmapMem(self.base))).unwrap();
        acl(c!(aclrtFreePhysical(self.memory))).unwrap();
        acl(c!(aclrtReleaseMemAddress(self.base))).unwrap();
    }
}

#[track_caller]
fn refused(code: HcclResult, expected: HcclResult, what: &str) {
    assert_eq!(code, expected);
    let text = last_error();
    assert!(text.contains(what), "{text}");
}

#[test]
fn ranges_and_what_is_active_in_them_are_checked() {
    let test = "ranges_and_what_is_active_in_them_are_checked";
    ranks(Kind::Threads, 1, test, |rank| {
        let (comm, stream) = equip(&rank);
        let reserved = Reserved::new();
        let (para, null) = (sys::HCCL_E_PARA, ptr::null_mut());
        let set = |at, bytes, alignment, flags| {
            c!(HcclCommSetMemoryRange(comm.0, at, bytes, alignment, flags))
        };
        let activate = |at, bytes, offset, memory, flags| {
            c!(HcclCommActivateCommMemory(
                comm.0, at, bytes, offset, memory, flags
            ))
        };
        let memory = reserved.memory;
        refused(
            activate(reserved.base, PAGE, 0, memory, 0),
            para,
            "lie in no range",
        );
        refused(set(null, PAGE, 0, 0), sys::HCCL_E_PTR, "the range is null");
        refused(set(reserved.base, 0, 0, 0), para, "the size is 0");
        refused(set(reserved.base, PAGE, 1, 0), para, "alignment is 1");
        refused(set(reserved.base, PAGE, 0, 2), para, "flags is 2");
        refused(
            set(reserved.base, 3 * PAGE, 0, 0),
            para,
            "lie in no reservation",
        );
        hccl(set(reserved.base, 2 * PAGE, 0, 0)).unwrap();
        refused(set(reserved.at(PAGE), PAGE, 0, 0), para, "overlap");
        refused(
            activate(reserved.base, PAGE, 1, memory, 0),
            para,
            "offset is 1",
        );
        refused(
            activate(reserved.base, PAGE, 0, memory, 1),
            para,
            "flags is 1",
        );
        refused(
            activate(reserved.base, PAGE, 0, comm.0, 0),
            para,
            "names no physical memory",
        );
        refused(
            activate(reserved.at(PAGE), PAGE, 0, memory, 0),
            para,
            "not all mapped",
        );
        hccl(activate(reserved.base, PAGE, 0, memory, 0)).unwrap();
        refused(activate(reserved.base, PAGE, 0, memory, 0), para, "overlap");
        // Memory that is active takes part in collectives.
        let values = Buffer::of(&[3i32, 4]);
        let copied = c!(HcclAllGather(
            values.0,
            reserved.base,
            2,
            sys::HCCL_DATA_TYPE_INT32,
            comm.0,
            stream.0
        ));
        hccl(copied).unwrap();
        stream.synchronize().unwrap();
        let mut host = [0i32; 2];
        let kind = sys::ACL_MEMCPY_DEVICE_TO_HOST;
        let back = c!(aclrtMemcpy(
            host.as_mut_ptr().cast(),
            8,
            reserved.base,
            8,
            kind
        ));
        acl(back).unwrap();
        assert_eq!(host, [3, 4]);
        let unset = |at| c!(HcclCommUnsetMemoryRange(comm.0, at));
        let deactivate = |at| c!(HcclCommDeactivateCommMemory(comm.0, at));
        refused(unset(reserved.base), para, "still active");
        refused(deactivate(reserved.at(8)), para, "nothing active starts");
        hccl(deactivate(reserved.base)).unwrap();
        refused(deactivate(reserved.base), para, "nothing active starts");
        refused(unset(reserved.at(8)), para, "no range");
        hccl(unset(reserved.base)).unwrap();
        hccl(set(reserved.base, PAGE, 0, 0)).unwrap();
    });
}

#[test]
fn a_window_is_found_by_the_addresses_in_it() {
    let test = "a_window_is_found_by_the_addresses_in_it";
    ranks(Kind::Threads, 2, test, |rank| {
        let (comm, _stream) = equip(&rank);
        let buffer = Buffer::new(1024);
        let (mut window, mut found, mut offset) = (ptr::null_mut(), ptr::null_mut(), 9);
        let mut register =
            |at, bytes, flag| c!(HcclCommSymWinRegister(comm.0, at, bytes, &mut window, flag));
        let (para, null) = (sys::HCCL_E_PARA, ptr::null_mut());
        refused(register(null, 8, 1), sys::HCCL_E_PTR, "the window is null");
        refused(register(buffer.0, 0, 1), para, "the size is 0");
        refused(register(buffer.0, 8, 0), para, "flag is 0");
        refused(register(null.wrapping_byte_add(64), 8, 1), para, "");
        hccl(register(buffer.0, 1000, 1)).unwrap();
        let mut get = |at, bytes| {
            c!(HcclCommSymWinGet(
                comm.0,
                at,
                bytes,
                &mut found,
                &mut offset
            ))
        };
        refused(get(buffer.at(996), 8), sys::HCCL_E_NOT_FOUND, "no window");
        hccl(get(buffer.at(992), 8)).unwrap();
        assert_eq!((found, offset), (window, 992));
        hccl(c!(HcclCommSymWinDeregister(window))).unwrap();
        refused(
            c!(HcclCommSymWinDeregister(window)),
            para,
            "names no window",
        );
        refused(c!(HcclCommSymWinDeregister(null)), sys::HCCL_E_PTR, "null");
    });
}
