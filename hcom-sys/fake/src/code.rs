//! The `aclError` codes this crate answers with, under short names.

use hcom_sys::bindings as sys;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $c_name:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) const $name: i32 = sys::$c_name as i32;
    )*};
}

codes! {
    /// A null pointer, a zero size, a number outside its enumeration.
    INVALID_PARAM = ACL_ERROR_INVALID_PARAM;
    /// `aclInit` again.
    REPEAT_INIT = ACL_ERROR_REPEAT_INITIALIZE;
    /// `aclFinalize` without a counted `aclInit`.
    REPEAT_FINALIZE = ACL_ERROR_REPEAT_FINALIZE;
    /// A call before `aclInit`.
    UNINITIALISED = ACL_ERROR_UNINITIALIZE;
    /// A file that cannot be read.
    INVALID_FILE = ACL_ERROR_INVALID_FILE;
    /// A file that is not what it should be.
    PARSE_FILE = ACL_ERROR_PARSE_FILE;
    /// A profiling session is open already.
    PROF_ALREADY_RUN = ACL_ERROR_PROF_ALREADY_RUN;
    /// No profiling session is open.
    PROF_NOT_RUN = ACL_ERROR_PROF_NOT_RUN;
    /// The dump service is open already.
    DUMP_ALREADY_RUN = ACL_ERROR_DUMP_ALREADY_RUN;
    /// The dump service is not open.
    DUMP_NOT_RUN = ACL_ERROR_DUMP_NOT_RUN;
    /// A function that this library only has to say no.
    API_NOT_SUPPORTED = ACL_ERROR_API_NOT_SUPPORT;
    /// A panic of this crate that was caught at the boundary.
    INTERNAL = ACL_ERROR_INTERNAL_ERROR;
    /// A parameter the runtime refuses.
    RT_PARAM = ACL_ERROR_RT_PARAM_INVALID;
    /// No such device.
    RT_DEVICE = ACL_ERROR_RT_INVALID_DEVICEID;
    /// The thread has no current context.
    CONTEXT_NULL = ACL_ERROR_RT_CONTEXT_NULL;
    /// A stream or event of another device.
    STREAM_CONTEXT = ACL_ERROR_RT_STREAM_CONTEXT;
    /// An event without a usable time.
    EVENT_TIMESTAMP = ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID;
    /// The end of a measurement lies before its start.
    EVENT_REVERSED = ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL;
    /// A handle that names nothing.
    HANDLE = ACL_ERROR_RT_INVALID_HANDLE;
    /// The stream was aborted.
    STREAM_ABORT = ACL_ERROR_RT_STREAM_ABORT;
    /// A system parameter that was never set.
    SYSPARAM_UNSET = ACL_ERROR_RT_SYSPARAMOPT_NOT_SET;
    /// The stream is being captured, which the call does not allow.
    STREAM_CAPTURED = ACL_ERROR_RT_STREAM_CAPTURED;
    /// The event was recorded in a capture.
    EVENT_CAPTURED = ACL_ERROR_RT_EVENT_CAPTURED;
    /// A captured event that was never recorded.
    CAPTURE_DEPENDENCY = ACL_ERROR_RT_CAPTURE_DEPENDENCY;
    /// Work on the default stream while a capture forbids it.
    CAPTURE_IMPLICIT = ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT;
    /// A task group is open, or none is.
    TASK_GROUP = ACL_ERROR_STREAM_TASK_GROUP_STATUS;
    /// An update does not fit the tasks it replaces.
    UPDATE_FAILED = ACL_ERROR_RT_MODEL_UPDATE_FAILED;
    /// A stream that is no part of the graph.
    STREAM_MODEL = ACL_ERROR_RT_STREAM_MODEL;
    /// A file that cannot be written.
    FILE_WRITE = ACL_ERROR_WRITE_FILE;
    /// The stream is not being captured.
    NOT_CAPTURED = ACL_ERROR_RT_STREAM_NOT_CAPTURED;
    /// A forked stream was not joined back.
    CAPTURE_UNJOINED = ACL_ERROR_RT_STREAM_UNJOINED;
    /// Not the stream the capture began on.
    CAPTURE_UNMATCHED = ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED;
    /// Not the thread the capture began on.
    CAPTURE_WRONG_THREAD = ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD;
    /// Two captures would be joined.
    CAPTURE_CONFLICT = ACL_ERROR_STREAM_CAPTURE_CONFLICT;
    /// A call that the capture mode forbids.
    CAPTURE_FORBIDS = ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT;
    /// A call that would wait, inside a capture.
    CAPTURE_BLOCKS = ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC;
    /// The capture broke.
    CAPTURE_INVALIDATED = ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED;
    /// The graph is being executed.
    MODEL_RUNNING = ACL_ERROR_RT_MODEL_RUNNING;
    /// The call is not supported here.
    NOT_SUPPORTED = ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
    /// Device memory is exhausted.
    OUT_OF_MEMORY = ACL_ERROR_RT_MEMORY_ALLOCATION;
    /// More than there may be.
    OVER_LIMIT = ACL_ERROR_RT_OVER_LIMIT;
    /// This process may not.
    NO_PERMISSION = ACL_ERROR_RT_NO_PERMISSION;
    /// The stream has a thread for its callbacks, or none.
    STREAM_SUBSCRIBE = ACL_ERROR_RT_STREAM_SUBSCRIBE;
    /// The thread does not run the stream's callbacks.
    THREAD_SUBSCRIBE = ACL_ERROR_RT_THREAD_SUBSCRIBE;
    /// The stream has no thread for its callbacks.
    NO_CALLBACK_THREAD = ACL_ERROR_RT_STREAM_NO_CB_REG;
    /// Nothing came in time.
    WAIT_TIMEOUT = ACL_ERROR_RT_WAIT_TIMEOUT;
    /// All events of the device are in use.
    NO_EVENT = ACL_ERROR_RT_NO_EVENT_RESOURCE;
    /// All streams of the device are in use.
    NO_STREAM = ACL_ERROR_RT_NO_STREAM_RESOURCE;
    /// A host resource (thread, mapping) is exhausted.
    RESOURCE = ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
    /// Not both events are complete.
    EVENT_NOT_COMPLETE = ACL_ERROR_RT_EVENT_NOT_COMPLETE;
    /// A task waited longer than allowed.
    TASK_TIMEOUT = ACL_ERROR_RT_AICPU_TIMEOUT;
    /// A task failed.
    TASK_FAILED = ACL_ERROR_RT_AICPU_EXCEPTION;
    /// A task touched memory that is not allocated.
    DEVICE_MEMORY = ACL_ERROR_RT_DEVICE_MEM_ERROR;
    /// A peer of a collective is gone.
    REMOTE = ACL_ERROR_RT_SUSPECT_REMOTE_ERROR;
    /// The communicator was closed.
    SOCKET_CLOSED = ACL_ERROR_RT_SOCKET_CLOSE;
    /// Waiting for a stream took longer than asked.
    SYNC_TIMEOUT = ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
    /// Waiting for an event took longer than asked.
    EVENT_SYNC_TIMEOUT = ACL_ERROR_RT_EVENT_SYNC_TIMEOUT;
    /// Host memory that was never registered.
    HOST_UNREGISTERED = ACL_ERROR_HOST_MEMORY_NOT_REGISTERED;
    /// Host memory that is registered already.
    HOST_REGISTERED = ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
