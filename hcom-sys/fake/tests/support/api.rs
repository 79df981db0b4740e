//! The C interface as the tests call it: through the table, with codes turned into results.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::LazyLock;

use hcom_sys::Library;
use hcom_sys::bindings::{
    self as sys, HcclCommConfig, HcclDataType, HcclReduceOp, HcclResult, HcclRootInfo,
};

pub(crate) static LIBRARY: LazyLock<Library> =
    LazyLock::new(|| Library::from_table(hcom_fake::table()));

/// Calls a function of the library; the arguments are those of the C interface.
#[macro_export]
macro_rules! c {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let function = $crate::support::api::LIBRARY.$name().unwrap();
        #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe, reason = "arguments may be calls themselves")]
        // SAFETY: the tests pass valid pointers, or wrong ones where the library promises to refuse them.
        unsafe { function($($argument),*) }
    }};
}

/// The text of this thread's last error.
pub(crate) fn last_error() -> String {
    let text = c!(aclGetRecentErrMsg());
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, so it is a C string until the next call.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Passes a code of the runtime on, with its text.
pub(crate) fn acl(code: i32) -> Result<(), (i32, String)> {
    if code == 0 {
        Ok(())
    } else {
        Err((code, last_error()))
    }
}

/// Passes a code of the collective library on, with its text.
pub(crate) fn hccl(code: HcclResult) -> Result<(), (u32, String)> {
    if code == sys::HCCL_SUCCESS {
        Ok(())
    } else {
        Err((code.0, last_error()))
    }
}

pub(crate) fn set_device(device: u32) {
    acl(c!(aclrtSetDevice(device as i32))).unwrap();
}

pub(crate) fn reset_device(device: u32) {
    acl(c!(aclrtResetDevice(device as i32))).unwrap();
}

pub(crate) fn root_info() -> Vec<u8> {
    let mut info = HcclRootInfo::default();
    hccl(c!(HcclGetRootInfo(&mut info))).unwrap();
    info.internal.iter().map(|&byte| byte as u8).collect()
}

pub(crate) fn init(size: u32, ticket: &[u8], rank: u32) -> Result<Comm, (u32, String)> {
    let mut info = HcclRootInfo::default();
    for (to, &from) in info.internal.iter_mut().zip(ticket) {
        *to = from as _;
    }
    let mut comm = ptr::null_mut();
    hccl(c!(HcclCommInitRootInfo(size, &info, rank, &mut comm)))?;
    Ok(Comm(comm))
}

/// A configuration as `HcclCommConfigInit` of headers of that size and version leaves it.
pub(crate) fn prepared(size: usize, version: u32) -> HcclCommConfig {
    let mut config = HcclCommConfig {
        hcclBufferSize: sys::HCCL_COMM_DEFAULT,
        hcclDeterministic: sys::HCCL_COMM_DEFAULT,
        hcclRdmaTrafficClass: sys::HCCL_COMM_DEFAULT,
        hcclRdmaServiceLevel: sys::HCCL_COMM_DEFAULT,
        hcclExecTimeOut: -1,
        hcclQos: sys::HCCL_COMM_DEFAULT,
        hcclSymWinMaxMemSizePerRank: 16,
        hcclChannelSqDepth: sys::HCCL_COMM_DEFAULT,
        ..HcclCommConfig::default()
    };
    let head = [size.to_le_bytes(), {
        let [a, b] = [sys::HCCL_COMM_CONFIG_MAGIC_WORD, version].map(u32::to_le_bytes);
        std::array::from_fn(|index| if index < 4 { a[index] } else { b[index - 4] })
    }];
    for (to, from) in config.reserved.iter_mut().zip(head.concat()) {
        *to = from as _;
    }
    config
}

/// Joins the part of `parent` with these members as its rank `rank`.
pub(crate) fn split(
    parent: &Comm,
    members: &[u32],
    id: u64,
    rank: u32,
) -> Result<Comm, (u32, String)> {
    let (mut parent, mut members) = (parent.0, members.to_vec());
    let (mut config, mut sub) = (prepared(2248, 11), ptr::null_mut());
    let count = members.len() as u32;
    hccl(c!(HcclCreateSubCommConfig(
        &mut parent,
        count,
        members.as_mut_ptr(),
        id,
        rank,
        &mut config,
        &mut sub
    )))?;
    Ok(Comm(sub))
}

/// A communicator; destroyed when dropped.
#[derive(Debug)]
pub(crate) struct Comm(pub(crate) *mut c_void);

// SAFETY: a handle is a number; the library takes it from any thread.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

impl Comm {
    pub(crate) fn destroy(&self) -> Result<(), (u32, String)> {
        hccl(c!(HcclCommDestroy(self.0)))
    }

    pub(crate) fn async_error(&self) -> u32 {
        let mut error = sys::HCCL_SUCCESS;
        hccl(c!(HcclGetCommAsyncError(self.0, &mut error))).unwrap();
        error.0
    }

    pub(crate) fn all_reduce(
        &self,
        send: &Buffer,
        recv: &Buffer,
        count: u64,
        dtype: HcclDataType,
        op: HcclReduceOp,
        stream: &Stream,
    ) -> Result<(), (u32, String)> {
        hccl(c!(HcclAllReduce(
            send.0, recv.0, count, dtype, op, self.0, stream.0
        )))
    }

    pub(crate) fn barrier(&self, stream: &Stream) -> Result<(), (u32, String)> {
        hccl(c!(HcclBarrier(self.0, stream.0)))
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        // A test may have destroyed it already.
        let _ = self.destroy();
    }
}

/// A stream; destroyed when dropped.
#[derive(Debug)]
pub(crate) struct Stream(pub(crate) *mut c_void);

// SAFETY: a handle is a number; the library takes it from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn create() -> Self {
        let mut stream = ptr::null_mut();
        acl(c!(aclrtCreateStream(&mut stream))).unwrap();
        Self(stream)
    }

    pub(crate) fn synchronize(&self) -> Result<(), (i32, String)> {
        acl(c!(aclrtSynchronizeStream(self.0)))
    }

    pub(crate) fn synchronize_within(&self, milliseconds: i32) -> Result<(), (i32, String)> {
        acl(c!(aclrtSynchronizeStreamWithTimeout(self.0, milliseconds)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        c!(aclrtDestroyStreamForce(self.0));
    }
}

/// Device memory; freed when dropped.
#[derive(Debug)]
pub(crate) struct Buffer(pub(crate) *mut c_void);

// SAFETY: a device address is a number; the library takes it from any thread.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut pointer = ptr::null_mut();
        acl(c!(aclrtMalloc(
            &mut pointer,
            bytes,
            sys::ACL_MEM_MALLOC_HUGE_FIRST
        )))
        .unwrap();
        Self(pointer)
    }

    /// New memory with these values.
    pub(crate) fn of<T: Copy>(values: &[T]) -> Self {
        let buffer = Self::new(size_of_val(values).max(1));
        buffer.write(values);
        buffer
    }

    pub(crate) fn at(&self, bytes: usize) -> *mut c_void {
        self.0.wrapping_byte_add(bytes)
    }

    pub(crate) fn write<T: Copy>(&self, values: &[T]) {
        let bytes = size_of_val(values);
        let kind = sys::ACL_MEMCPY_HOST_TO_DEVICE;
        acl(c!(aclrtMemcpy(
            self.0,
            bytes,
            values.as_ptr().cast(),
            bytes,
            kind
        )))
        .unwrap();
    }

    pub(crate) fn read<T: Copy>(&self, count: usize) -> Vec<T> {
        let mut values: Vec<MaybeUninit<T>> = vec![MaybeUninit::uninit(); count];
        let bytes = size_of_val(&values[..]);
        let kind = sys::ACL_MEMCPY_DEVICE_TO_HOST;
        acl(c!(aclrtMemcpy(
            values.as_mut_ptr().cast(),
            bytes,
            self.0,
            bytes,
            kind
        )))
        .unwrap();
        // SAFETY: all of them were just copied from device memory; the tests only use plain numbers.
        values
            .into_iter()
            .map(|value| unsafe { value.assume_init() })
            .collect()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        c!(aclrtFree(self.0));
    }
}

/// The counter behind a host function's argument.
pub(crate) fn counter(argument: *mut c_void) -> &'static std::sync::atomic::AtomicU64 {
    // SAFETY: the tests pass a counter that outlives the stream's work.
    unsafe { &*argument.cast() }
}

/// Reads a number directly, as a program must not do with a device address.
pub(crate) fn peek(pointer: *mut c_void) -> u32 {
    // SAFETY: readable memory, or the test expects this process to die here.
    unsafe { pointer.cast::<u32>().read_volatile() }
}
