//! Graphs built stream by stream, labels, task groups, and what can be asked about a graph.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use hcom_sys::bindings::{
    self as sys, aclError, aclmdlRI, aclrtLabel, aclrtLabelList, aclrtStream, aclrtTaskGrp,
};

use super::runtime::{limit, not_null};
use super::{acl, put};
use crate::capture::{self, Capture};
use crate::error::{Failure, Outcome, refuse};
use crate::handle::{self, Table, to_pointer};
use crate::model::{self, Step};
use crate::{code, device, group, memory, stream};

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_graph_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclmdlRIBuildBegin(modelRI: *mut aclmdlRI, flag: u32) -> aclError;
            fn aclmdlRIBindStream(modelRI: aclmdlRI, stream: aclrtStream, flag: u32) -> aclError;
            fn aclmdlRIEndTask(modelRI: aclmdlRI, stream: aclrtStream) -> aclError;
            fn aclmdlRIBuildEnd(modelRI: aclmdlRI, reserve: *mut c_void) -> aclError;
            fn aclmdlRIUnbindStream(modelRI: aclmdlRI, stream: aclrtStream) -> aclError;
            fn aclmdlRIExecute(modelRI: aclmdlRI, timeout: i32) -> aclError;
            fn aclmdlRICaptureTaskGrpBegin(stream: aclrtStream) -> aclError;
            fn aclmdlRICaptureTaskGrpEnd(stream: aclrtStream, handle: *mut aclrtTaskGrp) -> aclError;
            fn aclmdlRICaptureTaskUpdateBegin(stream: aclrtStream, handle: aclrtTaskGrp) -> aclError;
            fn aclmdlRICaptureTaskUpdateEnd(stream: aclrtStream) -> aclError;
            fn aclmdlRIDebugPrint(modelRI: aclmdlRI) -> aclError;
            fn aclmdlRIDebugJsonPrint(modelRI: aclmdlRI, path: *const c_char, flags: u32) -> aclError;
            fn aclmdlRIGetId(modelRI: aclmdlRI, modelRIId: *mut u32) -> aclError;
            fn aclmdlRISetName(modelRI: aclmdlRI, name: *const c_char) -> aclError;
            fn aclmdlRIGetName(modelRI: aclmdlRI, maxLen: u32, name: *mut c_char) -> aclError;
            fn aclrtCreateLabel(label: *mut aclrtLabel) -> aclError;
            fn aclrtDestroyLabel(label: aclrtLabel) -> aclError;
            fn aclrtSetLabel(label: aclrtLabel, stream: aclrtStream) -> aclError;
            fn aclrtCreateLabelList(labels: *mut aclrtLabel, num: usize, labelList: *mut aclrtLabelList) -> aclError;
            fn aclrtDestroyLabelList(labelList: aclrtLabelList) -> aclError;
            fn aclrtSwitchLabelByIndex(ptr: *mut c_void, maxValue: u32, labelList: aclrtLabelList, stream: aclrtStream) -> aclError;
        }
    };
}

/// Graphs that are built, and finished ones until their streams are taken out.
static BUILDS: Table<Capture> = Table::new();

fn built(model: aclmdlRI) -> Outcome<Arc<Capture>> {
    not_null(model)?;
    match BUILDS.get(model) {
        Some(build) => Ok(build),
        None => refuse(
            code::HANDLE,
            format!("{:#x} names no graph that is built", model.addr()),
        ),
    }
}

/// `aclmdlRIBuildBegin`
pub unsafe extern "C" fn aclmdlRIBuildBegin(place: *mut aclmdlRI, flag: u32) -> aclError {
    acl("aclmdlRIBuildBegin", || {
        device::current()?;
        if flag != 0 {
            return refuse(code::INVALID_PARAM, format!("flag {flag}, expected 0"));
        }
        let build = capture::build();
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, to_pointer(build.model))? };
        BUILDS.insert(build.model, build);
        Ok(())
    })
}

/// `aclmdlRIBindStream`
pub unsafe extern "C" fn aclmdlRIBindStream(
    model: aclmdlRI,
    stream: aclrtStream,
    flag: u32,
) -> aclError {
    acl("aclmdlRIBindStream", || {
        let build = built(model)?;
        not_null(stream)?;
        let stream = stream::find(stream)?;
        if flag != sys::ACL_MODEL_STREAM_FLAG_HEAD && flag != sys::ACL_MODEL_STREAM_FLAG_DEFAULT {
            return refuse(code::INVALID_PARAM, format!("flag {flag:#x}"));
        }
        if stream.flags & sys::ACL_STREAM_PERSISTENT == 0 {
            return refuse(
                code::RT_PARAM,
                format!(
                    "stream {} was created without ACL_STREAM_PERSISTENT",
                    stream.id
                ),
            );
        }
        build.bind(&stream)
    })
}

/// The graph of a bound stream.
fn of_stream(stream: &stream::Stream) -> Outcome<Arc<Capture>> {
    let build = stream.capture().filter(|bound| {
        let handle = to_pointer(bound.model);
        BUILDS.get(handle).is_some()
    });
    build.ok_or_else(|| {
        Failure::new(
            code::STREAM_MODEL,
            format!("stream {} is bound to no graph", stream.id),
        )
    })
}

/// `aclmdlRIEndTask`
pub unsafe extern "C" fn aclmdlRIEndTask(model: aclmdlRI, stream: aclrtStream) -> aclError {
    acl("aclmdlRIEndTask", || {
        let build = built(model)?;
        let stream = stream::find(stream)?;
        if of_stream(&stream)?.model != build.model {
            return refuse(code::STREAM_MODEL, "the stream is bound to another graph");
        }
        build.take_step(&stream, Step::End);
        Ok(())
    })
}

/// `aclmdlRIBuildEnd`
pub unsafe extern "C" fn aclmdlRIBuildEnd(model: aclmdlRI, _reserve: *mut c_void) -> aclError {
    acl("aclmdlRIBuildEnd", || built(model)?.finish())
}

/// `aclmdlRIUnbindStream`: in a finished graph the stream is free already.
pub unsafe extern "C" fn aclmdlRIUnbindStream(model: aclmdlRI, stream: aclrtStream) -> aclError {
    acl("aclmdlRIUnbindStream", || {
        let build = built(model)?;
        let stream = stream::find(stream)?;
        if model::find(model).is_ok() {
            return Ok(());
        }
        build.unbind(&stream)
    })
}

/// Forgets that a graph was built.
pub(super) fn forget(model: aclmdlRI) {
    BUILDS.remove(model);
}

/// `aclmdlRIExecute`: on a stream of its own; milliseconds, -1 for ever.
pub unsafe extern "C" fn aclmdlRIExecute(model: aclmdlRI, timeout: i32) -> aclError {
    acl("aclmdlRIExecute", || {
        let limit: Option<Duration> = limit(timeout)?;
        let stream = stream::Stream::create(device::current()?.device.clone(), 0, 0);
        let outcome = model::execute(model, &stream).and_then(|()| stream.synchronize(limit));
        stream.close();
        outcome
    })
}

/// `aclmdlRICaptureTaskGrpBegin`
pub unsafe extern "C" fn aclmdlRICaptureTaskGrpBegin(stream: aclrtStream) -> aclError {
    acl("aclmdlRICaptureTaskGrpBegin", || {
        capture::begin_group(&*stream::find(stream)?)
    })
}

/// `aclmdlRICaptureTaskGrpEnd`
pub unsafe extern "C" fn aclmdlRICaptureTaskGrpEnd(
    stream: aclrtStream,
    place: *mut aclrtTaskGrp,
) -> aclError {
    acl("aclmdlRICaptureTaskGrpEnd", || {
        let stream = stream::find(stream)?;
        if place.is_null() {
            return refuse(code::INVALID_PARAM, "a place for the group is null");
        }
        let group = capture::end_group(&stream)?;
        // SAFETY: not null, so the caller passes a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, to_pointer(group)) }
    })
}

/// `aclmdlRICaptureTaskUpdateBegin`
pub unsafe extern "C" fn aclmdlRICaptureTaskUpdateBegin(
    stream: aclrtStream,
    group: aclrtTaskGrp,
) -> aclError {
    acl("aclmdlRICaptureTaskUpdateBegin", || {
        group::begin_update(&*stream::find(stream)?, group)
    })
}

/// `aclmdlRICaptureTaskUpdateEnd`
pub unsafe extern "C" fn aclmdlRICaptureTaskUpdateEnd(stream: aclrtStream) -> aclError {
    acl("aclmdlRICaptureTaskUpdateEnd", || {
        group::end_update(&stream::find(stream)?)
    })
}

/// `aclmdlRIDebugPrint`: to the error stream.
pub unsafe extern "C" fn aclmdlRIDebugPrint(model: aclmdlRI) -> aclError {
    acl("aclmdlRIDebugPrint", || {
        eprint!("{}", model::find(model)?.to_json(model.addr(), true));
        Ok(())
    })
}

/// `aclmdlRIDebugJsonPrint`
pub unsafe extern "C" fn aclmdlRIDebugJsonPrint(
    model: aclmdlRI,
    path: *const c_char,
    flags: u32,
) -> aclError {
    acl("aclmdlRIDebugJsonPrint", || {
        let found = model::find(model)?;
        if path.is_null() || flags > sys::ACL_MDLRI_DEBUG_JSON_PRINT_VERBOSE {
            return refuse(
                code::INVALID_PARAM,
                format!("a null path, or flags {flags}, expected 0 or 1"),
            );
        }
        // SAFETY: not null, so the caller passes text that ends with a zero.
        let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
        let verbose = flags == sys::ACL_MDLRI_DEBUG_JSON_PRINT_VERBOSE;
        let written = std::fs::write(&*path, found.to_json(model.addr(), verbose));
        written.map_err(|error| Failure::new(code::FILE_WRITE, format!("{path}: {error}")))
    })
}

/// `aclmdlRIGetId`
pub unsafe extern "C" fn aclmdlRIGetId(model: aclmdlRI, place: *mut u32) -> aclError {
    acl("aclmdlRIGetId", || {
        model::find(model)?;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, (model.addr() >> 4) as u32) }
    })
}

/// `aclmdlRISetName`
pub unsafe extern "C" fn aclmdlRISetName(model: aclmdlRI, name: *const c_char) -> aclError {
    acl("aclmdlRISetName", || {
        let model = model::find(model)?;
        if name.is_null() {
            return refuse(code::INVALID_PARAM, "the name is null");
        }
        // SAFETY: not null, so the caller passes text that ends with a zero.
        model.set_name(
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned(),
        );
        Ok(())
    })
}

/// `aclmdlRIGetName`
pub unsafe extern "C" fn aclmdlRIGetName(
    model: aclmdlRI,
    room: u32,
    place: *mut c_char,
) -> aclError {
    acl("aclmdlRIGetName", || {
        let name = model::find(model)?.name();
        if place.is_null() || room as usize <= name.len() {
            return refuse(
                code::INVALID_PARAM,
                format!(
                    "the name needs {} bytes, the place has {room}",
                    name.len() + 1
                ),
            );
        }
        // SAFETY: not null, and the caller says that `room` bytes may be written, more than the name has.
        unsafe {
            std::ptr::copy_nonoverlapping(name.as_ptr(), place.cast(), name.len());
            place.add(name.len()).write(0);
        }
        Ok(())
    })
}

static LABELS: Table<()> = Table::new();
static LISTS: Table<Vec<usize>> = Table::new();

fn label(label: aclrtLabel) -> Outcome<usize> {
    match LABELS.get(label) {
        Some(_) => Ok(label.addr()),
        None => refuse(
            code::HANDLE,
            format!("{:#x} names no living label", label.addr()),
        ),
    }
}

/// `aclrtCreateLabel`
pub unsafe extern "C" fn aclrtCreateLabel(place: *mut aclrtLabel) -> aclError {
    acl("aclrtCreateLabel", || {
        device::current()?;
        let handle = handle::fresh();
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, to_pointer(handle))? };
        LABELS.insert(handle, ().into());
        Ok(())
    })
}

/// `aclrtDestroyLabel`
pub unsafe extern "C" fn aclrtDestroyLabel(handle: aclrtLabel) -> aclError {
    acl("aclrtDestroyLabel", || {
        label(handle)?;
        LABELS.remove(handle);
        Ok(())
    })
}

/// `aclrtSetLabel`: on a stream that is bound to a graph.
pub unsafe extern "C" fn aclrtSetLabel(handle: aclrtLabel, stream: aclrtStream) -> aclError {
    acl("aclrtSetLabel", || {
        let label = label(handle)?;
        let stream = stream::find(stream)?;
        of_stream(&stream)?.take_step(&stream, Step::Label(label));
        Ok(())
    })
}

/// `aclrtCreateLabelList`
pub unsafe extern "C" fn aclrtCreateLabelList(
    labels: *mut aclrtLabel,
    count: usize,
    place: *mut aclrtLabelList,
) -> aclError {
    acl("aclrtCreateLabelList", || {
        if labels.is_null() || count == 0 {
            return refuse(code::INVALID_PARAM, "expected at least one label");
        }
        // SAFETY: not null, so the caller passes `count` labels.
        let labels = unsafe { std::slice::from_raw_parts(labels, count) };
        let labels = labels
            .iter()
            .map(|&one| label(one))
            .collect::<Outcome<_>>()?;
        let handle = handle::fresh();
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, to_pointer(handle))? };
        LISTS.insert(handle, Arc::new(labels));
        Ok(())
    })
}

/// `aclrtDestroyLabelList`
pub unsafe extern "C" fn aclrtDestroyLabelList(list: aclrtLabelList) -> aclError {
    acl("aclrtDestroyLabelList", || match LISTS.remove(list) {
        Some(_) => Ok(()),
        None => refuse(
            code::HANDLE,
            format!("{:#x} names no living list of labels", list.addr()),
        ),
    })
}

/// `aclrtSwitchLabelByIndex`: an index past the end means the last label.
pub unsafe extern "C" fn aclrtSwitchLabelByIndex(
    index: *mut c_void,
    count: u32,
    list: aclrtLabelList,
    stream: aclrtStream,
) -> aclError {
    acl("aclrtSwitchLabelByIndex", || {
        let Some(labels) = LISTS.get(list) else {
            return refuse(
                code::HANDLE,
                format!("{:#x} names no living list of labels", list.addr()),
            );
        };
        if count as usize != labels.len() {
            return refuse(
                code::RT_PARAM,
                format!("{count} labels, the list has {}", labels.len()),
            );
        }
        memory::span(index, 4)?;
        let stream = stream::find(stream)?;
        let jump = Step::Jump {
            index: index.addr(),
            labels: labels.to_vec(),
        };
        of_stream(&stream)?.take_step(&stream, jump);
        Ok(())
    })
}
