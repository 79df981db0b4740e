//! Memory from the program's own allocator, by stream. Operators here need no workspace, so the functions are kept and
//! handed out again, but not called.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Arc, Mutex};

use hcom_sys::bindings::{
    aclError, aclrtAllocator, aclrtAllocatorAllocAdviseFunc, aclrtAllocatorAllocFunc,
    aclrtAllocatorDesc, aclrtAllocatorFreeFunc, aclrtAllocatorGetAddrFromBlockFunc, aclrtStream,
};

use super::{acl, put};
use crate::code;
use crate::error::{Outcome, refuse};
use crate::handle::{self, Table, to_pointer};
use crate::memory::lock;
use crate::stream;

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_allocator_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclrtAllocatorCreateDesc() -> aclrtAllocatorDesc;
            fn aclrtAllocatorDestroyDesc(allocatorDesc: aclrtAllocatorDesc) -> aclError;
            fn aclrtAllocatorSetObjToDesc(allocatorDesc: aclrtAllocatorDesc, allocator: aclrtAllocator) -> aclError;
            fn aclrtAllocatorSetAllocFuncToDesc(allocatorDesc: aclrtAllocatorDesc, func: aclrtAllocatorAllocFunc) -> aclError;
            fn aclrtAllocatorSetFreeFuncToDesc(allocatorDesc: aclrtAllocatorDesc, func: aclrtAllocatorFreeFunc) -> aclError;
            fn aclrtAllocatorSetAllocAdviseFuncToDesc(allocatorDesc: aclrtAllocatorDesc, func: aclrtAllocatorAllocAdviseFunc) -> aclError;
            fn aclrtAllocatorSetGetAddrFromBlockFuncToDesc(allocatorDesc: aclrtAllocatorDesc, func: aclrtAllocatorGetAddrFromBlockFunc) -> aclError;
            fn aclrtAllocatorRegister(stream: aclrtStream, allocatorDesc: aclrtAllocatorDesc) -> aclError;
            fn aclrtAllocatorUnregister(stream: aclrtStream) -> aclError;
            fn aclrtAllocatorGetByStream(stream: aclrtStream, allocatorDesc: *mut aclrtAllocatorDesc, allocator: *mut aclrtAllocator, allocFunc: *mut aclrtAllocatorAllocFunc, freeFunc: *mut aclrtAllocatorFreeFunc, allocAdviseFunc: *mut aclrtAllocatorAllocAdviseFunc, getAddrFromBlockFunc: *mut aclrtAllocatorGetAddrFromBlockFunc) -> aclError;
        }
    };
}

/// What the program said about its allocator.
#[derive(Clone, Copy, Default)]
struct Description {
    object: usize,
    allocate: aclrtAllocatorAllocFunc,
    free: aclrtAllocatorFreeFunc,
    advise: aclrtAllocatorAllocAdviseFunc,
    address: aclrtAllocatorGetAddrFromBlockFunc,
}

static DESCRIPTIONS: Table<Mutex<Description>> = Table::new();
/// Streams with an allocator: by handle, the handle of the description and what it said then.
static REGISTERED: Mutex<BTreeMap<usize, (usize, Description)>> = Mutex::new(BTreeMap::new());

fn find(handle: aclrtAllocatorDesc) -> Outcome<Arc<Mutex<Description>>> {
    match DESCRIPTIONS.get(handle) {
        Some(description) => Ok(description),
        None => refuse(
            code::INVALID_PARAM,
            format!(
                "{:#x} names no living description of an allocator",
                handle.addr()
            ),
        ),
    }
}

/// `aclrtAllocatorCreateDesc`
pub unsafe extern "C" fn aclrtAllocatorCreateDesc() -> aclrtAllocatorDesc {
    let handle = handle::fresh();
    DESCRIPTIONS.insert(handle, Arc::default());
    to_pointer(handle)
}

/// `aclrtAllocatorDestroyDesc`
pub unsafe extern "C" fn aclrtAllocatorDestroyDesc(handle: aclrtAllocatorDesc) -> aclError {
    acl("aclrtAllocatorDestroyDesc", || {
        find(handle)?;
        DESCRIPTIONS.remove(handle);
        Ok(())
    })
}

/// `aclrtAllocatorSetObjToDesc`
pub unsafe extern "C" fn aclrtAllocatorSetObjToDesc(
    handle: aclrtAllocatorDesc,
    object: aclrtAllocator,
) -> aclError {
    acl("aclrtAllocatorSetObjToDesc", || {
        lock(&*find(handle)?).object = object.expose_provenance();
        Ok(())
    })
}

macro_rules! setters {
    ($($name:ident($field:ident: $ty:ty);)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        pub unsafe extern "C" fn $name(handle: aclrtAllocatorDesc, function: $ty) -> aclError {
            acl(stringify!($name), || {
                if function.is_none() {
                    return refuse(code::INVALID_PARAM, "the function is null");
                }
                lock(&*find(handle)?).$field = function;
                Ok(())
            })
        }
    )*};
}
setters! {
    aclrtAllocatorSetAllocFuncToDesc(allocate: aclrtAllocatorAllocFunc);
    aclrtAllocatorSetFreeFuncToDesc(free: aclrtAllocatorFreeFunc);
    aclrtAllocatorSetAllocAdviseFuncToDesc(advise: aclrtAllocatorAllocAdviseFunc);
    aclrtAllocatorSetGetAddrFromBlockFuncToDesc(address: aclrtAllocatorGetAddrFromBlockFunc);
}

/// `aclrtAllocatorRegister`: the description must be complete but for the advised allocation.
pub unsafe extern "C" fn aclrtAllocatorRegister(
    stream: aclrtStream,
    handle: aclrtAllocatorDesc,
) -> aclError {
    acl("aclrtAllocatorRegister", || {
        let description = *lock(&*find(handle)?);
        let stream = stream::find(stream)?;
        if description.object == 0
            || description.allocate.is_none()
            || description.free.is_none()
            || description.address.is_none()
        {
            return refuse(
                code::INVALID_PARAM,
                "the description lacks the object, or a function to allocate, free or address a block",
            );
        }
        lock(&REGISTERED).insert(stream.handle, (handle.addr(), description));
        Ok(())
    })
}

/// `aclrtAllocatorUnregister`
pub unsafe extern "C" fn aclrtAllocatorUnregister(stream: aclrtStream) -> aclError {
    acl("aclrtAllocatorUnregister", || {
        lock(&REGISTERED).remove(&stream::find(stream)?.handle);
        Ok(())
    })
}

/// `aclrtAllocatorGetByStream`
pub unsafe extern "C" fn aclrtAllocatorGetByStream(
    stream: aclrtStream,
    description: *mut aclrtAllocatorDesc,
    object: *mut aclrtAllocator,
    allocate: *mut aclrtAllocatorAllocFunc,
    free: *mut aclrtAllocatorFreeFunc,
    advise: *mut aclrtAllocatorAllocAdviseFunc,
    address: *mut aclrtAllocatorGetAddrFromBlockFunc,
) -> aclError {
    acl("aclrtAllocatorGetByStream", || {
        let stream = stream::find(stream)?;
        let Some((handle, found)) = lock(&REGISTERED).get(&stream.handle).copied() else {
            return refuse(
                code::INVALID_PARAM,
                format!("stream {} has no allocator", stream.id),
            );
        };
        // SAFETY: the caller passes null or places for the answers.
        unsafe {
            put(description, code::INVALID_PARAM, to_pointer(handle))?;
            put(
                object,
                code::INVALID_PARAM,
                ptr::with_exposed_provenance_mut(found.object),
            )?;
            put(allocate, code::INVALID_PARAM, found.allocate)?;
            put(free, code::INVALID_PARAM, found.free)?;
            // Older callers do not ask for the last two.
            if !advise.is_null() {
                put(advise, code::INVALID_PARAM, found.advise)?;
            }
            if !address.is_null() {
                put(address, code::INVALID_PARAM, found.address)?;
            }
            Ok(())
        }
    })
}
