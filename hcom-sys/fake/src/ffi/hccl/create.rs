//! The ways to make a communicator.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::{fs, ptr, thread};

use hcom_sys::bindings::{self as sys, HcclComm, HcclCommConfig, HcclResult, HcclRootInfo};

use super::{PARA, PTR, hccl, put};
use crate::comm::options::{self, Options};
use crate::comm::{self, Communicator};
use crate::device;
use crate::error::{Failure, Outcome, refuse};
use crate::handle::to_pointer;

/// Bytes of a rank table's path, with its end.
const LONGEST_PATH: usize = 4096;
/// What a rank passes as the identity of a part that it does not belong to.
const NO_MEMBER: u64 = 0xffff_ffff;

/// `HcclGetRootInfo`
pub unsafe extern "C" fn HcclGetRootInfo(root_info: *mut HcclRootInfo) -> HcclResult {
    hccl("HcclGetRootInfo", || {
        if root_info.is_null() {
            return refuse(PTR, "the root info is null");
        }
        let ticket = comm::root_info()?;
        // SAFETY: not null, so the caller passes a place for the ticket.
        unsafe { put(root_info, PTR, ticket) }
    })
}

/// Where the handle of a new communicator goes.
struct Place(*mut HcclComm);

// SAFETY: the program keeps the place until the call, or the group that the call is part of, has ended.
unsafe impl Send for Place {}

/// Creates a communicator now, or at the end of this thread's group, and answers with its handle.
///
/// # Safety
/// `comm` is null or a place for the answer, which stays until then.
unsafe fn create(
    comm: *mut HcclComm,
    setup: impl FnOnce() -> Outcome<usize> + Send + 'static,
) -> Outcome {
    if comm.is_null() {
        return refuse(PTR, "a place for the communicator is null");
    }
    let place = Place(comm);
    let run = move || {
        let Place(comm) = { place };
        let handle = to_pointer(setup()?);
        // SAFETY: not null, and still a place as the caller promises.
        unsafe { put(comm, PTR, handle) }
    };
    comm::group::create(Box::new(run))
}

/// # Safety
/// `root_info` is null or a ticket; `comm` as for [`create`].
unsafe fn init(
    ranks: u32,
    root_info: *const HcclRootInfo,
    rank: u32,
    options: Options,
    comm: *mut HcclComm,
) -> Outcome {
    if ranks == 0 || rank >= ranks {
        return refuse(PARA, format!("rank {rank} of {ranks}"));
    }
    // SAFETY: the caller passes null or a ticket.
    let Some(&info) = (unsafe { root_info.as_ref() }) else {
        return refuse(PTR, "the root info is null");
    };
    // SAFETY: as the caller promises.
    unsafe {
        create(comm, move || {
            Ok(comm::init(ranks, &info, rank, options)?.handle)
        })
    }
}

/// `HcclCommInitRootInfo`
pub unsafe extern "C" fn HcclCommInitRootInfo(
    ranks: u32,
    root_info: *const HcclRootInfo,
    rank: u32,
    comm: *mut HcclComm,
) -> HcclResult {
    // SAFETY: passed on as it came.
    hccl("HcclCommInitRootInfo", || unsafe {
        init(ranks, root_info, rank, Options::default(), comm)
    })
}

/// What a configuration says, whatever version of the structure it is.
///
/// # Safety
/// `config` is null or points to as many bytes as the size in its first eight says.
unsafe fn configured(config: *const HcclCommConfig) -> Outcome<Options> {
    if config.is_null() {
        return refuse(PTR, "the configuration is null");
    }
    let head = config.cast::<u8>();
    // SAFETY: every version of the structure has its 24 byte head.
    let size = unsafe { head.cast::<usize>().read_unaligned() };
    // SAFETY: as above.
    let [magic, version] = unsafe { head.add(8).cast::<[u32; 2]>().read_unaligned() };
    if magic != sys::HCCL_COMM_CONFIG_MAGIC_WORD || size < options::HEAD {
        return refuse(
            PARA,
            "the configuration was not prepared by HcclCommConfigInit",
        );
    }
    let mut known = HcclCommConfig::default();
    let bytes = size.min(size_of::<HcclCommConfig>());
    // SAFETY: the caller's structure has `size` bytes and ours has room for `bytes`; it is plain data.
    unsafe { ptr::copy_nonoverlapping(head, (&raw mut known).cast(), bytes) };
    let options = Options::read(&known, version)?;
    if let Some(name) = &options.name {
        comm::check_name(name)?;
    }
    Ok(options)
}

/// Reads a rank table and joins what it describes.
///
/// # Safety
/// `path` is null or a C string; `comm` as for [`create`].
unsafe fn init_from_table(
    path: *const c_char,
    rank: u32,
    options: Options,
    comm: *mut HcclComm,
) -> Outcome {
    if path.is_null() {
        return refuse(PTR, "the path of the rank table is null");
    }
    // SAFETY: not null, so the caller passes a C string.
    let path = unsafe { CStr::from_ptr(path) };
    if path.count_bytes() >= LONGEST_PATH {
        return refuse(PARA, format!("the path has more than {LONGEST_PATH} bytes"));
    }
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let text = fs::read_to_string(path).map_err(|error| {
        let code = sys::HCCL_E_OPEN_FILE_FAILURE.0 as i32;
        Failure::new(
            code,
            format!("the rank table {path:?} cannot be read: {error}"),
        )
    })?;
    // SAFETY: as the caller promises.
    unsafe {
        create(comm, move || {
            Ok(comm::init_from_table(&text, rank, options)?.handle)
        })
    }
}

/// `HcclCommInitClusterInfo`
pub unsafe extern "C" fn HcclCommInitClusterInfo(
    path: *const c_char,
    rank: u32,
    comm: *mut HcclComm,
) -> HcclResult {
    // SAFETY: passed on as it came.
    hccl("HcclCommInitClusterInfo", || unsafe {
        init_from_table(path, rank, Options::default(), comm)
    })
}

/// `HcclCommInitClusterInfoConfig`
pub unsafe extern "C" fn HcclCommInitClusterInfoConfig(
    path: *const c_char,
    rank: u32,
    config: *mut HcclCommConfig,
    comm: *mut HcclComm,
) -> HcclResult {
    // SAFETY: passed on as they came.
    hccl("HcclCommInitClusterInfoConfig", || unsafe {
        init_from_table(path, rank, configured(config)?, comm)
    })
}

/// `HcclCreateSubCommConfig`: ranks that are no members pass no list and 0xFFFFFFFF as the number of the part, and
/// get no communicator.
pub unsafe extern "C" fn HcclCreateSubCommConfig(
    comm: *mut HcclComm,
    count: u32,
    rank_ids: *mut u32,
    id: u64,
    rank: u32,
    config: *mut HcclCommConfig,
    sub: *mut HcclComm,
) -> HcclResult {
    hccl("HcclCreateSubCommConfig", || {
        if comm.is_null() || config.is_null() || sub.is_null() {
            return refuse(
                PTR,
                "the communicator, the configuration or the place for the new one is null",
            );
        }
        // SAFETY: not null, so the caller passes a place that holds a handle.
        let parent = comm::find(unsafe { comm.read() })?;
        match (rank_ids.is_null(), id == NO_MEMBER) {
            (true, true) => return Ok(()),
            (false, false) => {}
            _ => {
                return refuse(
                    PARA,
                    "a rank that is no member passes both: no list of ranks, and 0xFFFFFFFF as the identity",
                );
            }
        }
        if count == 0 || rank >= count {
            return refuse(PARA, format!("rank {rank} of {count}"));
        }
        // SAFETY: not null, so the caller passes `count` ranks.
        let members = unsafe { std::slice::from_raw_parts(rank_ids, count as usize) }.to_vec();
        // SAFETY: not null, so the caller passes a configuration.
        let options = unsafe { configured(config)? };
        // SAFETY: the caller passes a place for the answer.
        unsafe {
            create(sub, move || {
                comm::split(&parent, &members, id, rank, options)
            })
        }
    })
}

/// `HcclCommInitRootInfoConfig`
pub unsafe extern "C" fn HcclCommInitRootInfoConfig(
    ranks: u32,
    root_info: *const HcclRootInfo,
    rank: u32,
    config: *const HcclCommConfig,
    comm: *mut HcclComm,
) -> HcclResult {
    hccl("HcclCommInitRootInfoConfig", || {
        if ranks == 0 || rank >= ranks {
            return refuse(PARA, format!("rank {rank} of {ranks}"));
        }
        // SAFETY: passed on as they came.
        unsafe { init(ranks, root_info, rank, configured(config)?, comm) }
    })
}

/// `HcclCommInitAll`
pub unsafe extern "C" fn HcclCommInitAll(
    count: u32,
    devices: *mut i32,
    comms: *mut HcclComm,
) -> HcclResult {
    hccl("HcclCommInitAll", || {
        if count == 0 {
            return refuse(PARA, "0 devices");
        }
        if devices.is_null() || comms.is_null() {
            return refuse(PTR, "an array is null");
        }
        // SAFETY: not null, so the caller passes `count` devices.
        let devices = unsafe { std::slice::from_raw_parts(devices, count as usize) };
        for (index, id) in devices.iter().enumerate() {
            if devices[..index].contains(id) {
                return refuse(PARA, format!("device {id} appears twice"));
            }
            device::check(*id).map_err(|failure| Failure::new(PARA, failure.text))?;
        }
        let all = init_all(devices);
        for (index, one) in all.iter().enumerate() {
            let handle = match (&one, all.iter().all(Result::is_ok)) {
                (Ok(communicator), true) => to_pointer(communicator.handle),
                (Ok(communicator), false) => {
                    // It is known, since it was just made.
                    let _ = comm::destroy(to_pointer(communicator.handle));
                    ptr::null_mut()
                }
                (Err(_), _) => ptr::null_mut(),
            };
            // SAFETY: not null, so the caller passes `count` places.
            unsafe { comms.add(index).write(handle) };
        }
        all.into_iter().collect::<Outcome<Vec<_>>>().map(|_| ())
    })
}

fn init_all(devices: &[i32]) -> Vec<Outcome<Arc<Communicator>>> {
    let ticket = thread::scope(|scope| {
        let root = scope.spawn(|| comm::on_device(devices[0], comm::root_info));
        root.join()
            .unwrap_or_else(|_| refuse(sys::HCCL_E_INTERNAL.0 as i32, "the root panicked"))
    });
    let ticket = match ticket {
        Ok(ticket) => ticket,
        Err(failure) => return vec![Err(failure)],
    };
    let ranks = devices.len() as u32;
    let one = |(rank, &device): (usize, &i32)| {
        let ticket = &ticket;
        move || {
            comm::on_device(device, || {
                comm::init(ranks, ticket, rank as u32, Options::default())
            })
        }
    };
    comm::at_once(devices.iter().enumerate().map(one))
}
