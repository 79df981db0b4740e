//! A CPU implementation of the Ascend ACL, HCCL and aclnn C ABI: real ranks, real data, real failures.
//!
//! [`table`] has every function under its C name, for `hcom_sys::Library::from_table`. Ranks are processes or threads
//! of one host; both meet, exchange and fail through the same code.
//!
//! | module | what it holds |
//! |---|---|
//! | `ffi` | the exported functions: pointers in, codes out |
//! | [`abi`] | how much of what real programs use is here |
//! | `device`, `memory`, `span`, `shm` | devices and contexts; allocations; the bytes; mappings |
//! | `reserved`, `share` | reserved addresses and what is mapped there; exports to other processes |
//! | `stream`, `event`, `copy`, `report` | queues with a thread each, and what runs on them |
//! | `arithmetic`, `random` | reductions and random numbers as tasks |
//! | `capture`, `model`, `group` | graphs: recording, replay, and tasks that are replaced later |
//! | `comm` | communicators: rendezvous, meeting, watching, collectives |
//! | `link` | modelled transfer times |
//! | [`regime`], [`bound`] | how the cores of this machine lie; how fast collectives could be on them |
//! | `aclnn`, `simd` | the operators |
//! | `fault` | failures on demand: of calls, and of a rank's n-th operation or a stream's n-th kernel (`HCOM_FAKE_FAULT`, `hcomExtPlanFaults`) |
//! | `config`, `soc` | the environment; which chip this is |
//!
//! ```
//! let library = hcom_sys::Library::from_table(hcom_fake::table());
//! let mut devices = 0;
//! // SAFETY: the signature is that of the headers, and `devices` is a place for the answer.
//! let code = unsafe { library.aclrtGetDeviceCount().unwrap()(&mut devices) };
//! assert_eq!((code, devices), (0, 16));
//! ```
//!
//! # What holds
//! - No value is invented: a collective delivers the data of all its ranks, or an error to all that live.
//! - Device memory is one sealed memory file per device and process. Nothing has a name in any file system, and
//!   everything is gone with the last process, however that ends.
//! - Reductions combine ranks in rank order, so every rank gets the same bits, run after run.
//! - No panic leaves an exported function, and no thread of this library keeps a process alive.
//!
//! # Faults on demand
//! `HCOM_FAKE_FAULT`, or `hcomExtPlanFaults` with the same text, plans what befalls operations and kernels: faults separated by `;`,
//! each of fields separated by `,`. A mistake in the text is an error of the first call that names fault and field.
//!
//! ```text
//! rank=1,op=5,do=kill ; kind=broadcast,op=2,do=delay:200ms
//! ```
//!
//! | field | meaning | without it |
//! |---|---|---|
//! | `op=N` | the N-th operation, from 1, of those that the other fields let through; each communicator counts for itself | must be there |
//! | `do=ACTION` | `kill` and `stop` (SIGKILL, SIGSTOP to the process), `delay:TIME` (`us`, `ms`, `s`), `drop` (it does nothing and succeeds), `error:CODE` (it fails with this code of the runtime) | must be there |
//! | `rank=R` | on this rank of the communicator only | on every rank |
//! | `kind=NAME` | operations of this name only, as messages spell it: `all_reduce`, `batch_send_recv`, … | all |
//! | `comm=NAME` | on communicators of this name only, as `HcclGetCommName` answers it | on all |
//! | `kernel=NAME` | kernels of this operator in place of operations, such as `aclnnRelu`; each stream counts for itself | operations |
//! | `device=D` | with `kernel=`: on this device only | on every device |
//!
//! An operation or a kernel counts when it runs, in the order in which its communicator or stream runs them, replays included.
//! `hcomExtInjectFault` makes the n-th call of a function fail, and `hcomExtClearFaults` forgets all that is planned.
//!
//! # What it does not do
//! Several hosts; offline models; kernels; overflow and saturation modes, which it only remembers.

pub mod abi;
mod aclnn;
mod arithmetic;
pub mod bound;
mod capture;
mod clock;
mod code;
mod comm;
mod config;
mod copy;
mod device;
mod error;
mod event;
mod fault;
#[doc(hidden)]
pub mod ffi;
mod futex;
mod group;
mod handle;
mod link;
mod memory;
mod model;
mod random;
pub mod regime;
mod report;
mod reserved;
mod share;
mod shm;
mod simd;
mod soc;
mod span;
mod stream;

use std::sync::LazyLock;

use hcom_sys::{Symbol, Table, entry};

/// Hands every function except the aclnn operators to the macro `$callback`, in several calls of it, each with rows
/// `fn name(parameter: type, …) -> type;`. The types are those of `hcom_sys::bindings` and `std::ffi`; the functions
/// lie in `hcom_fake::ffi::all`. For the operators there is `for_each_operator!`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_symbol {
    ($callback:ident) => {
        $crate::for_each_device_symbol!($callback);
        $crate::for_each_stream_symbol!($callback);
        $crate::for_each_memory_symbol!($callback);
        $crate::for_each_copy_symbol!($callback);
        $crate::for_each_capture_symbol!($callback);
        $crate::for_each_hccl_symbol!($callback);
        $crate::for_each_tensor_function!($callback);
        $crate::for_each_address_symbol!($callback);
        $crate::for_each_graph_symbol!($callback);
        $crate::for_each_task_symbol!($callback);
        $crate::for_each_value_symbol!($callback);
        $crate::for_each_setting_symbol!($callback);
        $crate::for_each_allocator_symbol!($callback);
        $crate::for_each_tool_symbol!($callback);
        $crate::for_each_refused_symbol!($callback);
        $crate::for_each_ext_symbol!($callback);
    };
}

/// Every function of this library under its C name.
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let mut symbols: Vec<(&'static str, Symbol)> = Vec::new();
        macro_rules! functions {
            ($(fn $name:ident($($parameter:ident: $ty:ty),*) -> $answer:ty;)*) => {
                symbols.extend([$(entry::$name(ffi::all::$name)),*]);
            };
        }
        macro_rules! operators {
            ($($second:ident $first:ident($($parameter:ident: $ty:ty),*) = $plan:expr;)*) => {
                symbols.extend([$(entry::$first(ffi::all::$first), entry::$second(ffi::all::$second)),*]);
            };
        }
        for_each_symbol!(functions);
        symbols.push(Table::app_log(ffi::all::aclAppLog));
        for_each_operator!(operators);
        Table {
            name: "hcom-fake",
            version: env!("CARGO_PKG_VERSION"),
            symbols: symbols.leak(),
        }
    });
    &TABLE
}
