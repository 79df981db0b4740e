//! Faults on demand: the n-th call of a function fails, at the call or later in its task; and the n-th operation of a
//! rank, or kernel of a stream, is late, lost, wrong or its end (see [`plan`]).

pub(crate) mod plan;

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

use plan::{Action, Target};
use rustix::process::Signal;

use crate::comm::Kind;
use crate::config;
use crate::error::{Failure, Outcome, refuse};
use crate::memory::lock;
use crate::stream::{Stream, Work};

/// A planned fault of a call.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Calls until it strikes, counting the one that it strikes.
    left: u64,
    code: i32,
    in_task: bool,
}

static PLANNED: Mutex<Option<HashMap<String, Vec<Call>>>> = Mutex::new(None);
/// How many faults of calls are planned, so that calls need no lock while there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A planned fault of operations or kernels, and how many that fit it each end of a communicator or each stream (by its
/// handle) has begun.
struct Operation {
    fault: plan::Fault,
    begun: HashMap<usize, u64>,
}

static OPERATIONS: Mutex<Vec<Operation>> = Mutex::new(Vec::new());
/// The length of `OPERATIONS`, so that operations need no lock while there are none.
static OPERATIONS_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The code that the next work queued by this thread shall fail with.
    static NEXT_TASK: Cell<i32> = const { Cell::new(0) };
}

/// Plans a fault for the `nth` following call of `symbol`.
pub(crate) fn plan(symbol: &str, nth: u64, code: i32, in_task: bool) {
    lock(&PLANNED)
        .get_or_insert_default()
        .entry(symbol.to_owned())
        .or_default()
        .push(Call {
            left: nth,
            code,
            in_task,
        });
    COUNT.fetch_add(1, Ordering::SeqCst);
}

/// Forgets all planned faults, those of the environment too.
pub(crate) fn clear() {
    plan_from_environment();
    *lock(&PLANNED) = None;
    COUNT.store(0, Ordering::SeqCst);
    lock(&OPERATIONS).clear();
    OPERATIONS_COUNT.store(0, Ordering::SeqCst);
}

/// Plans the faults that the environment asks for, once per process. Every communicator and every stream does so when it
/// is made.
pub(crate) fn plan_from_environment() {
    static PLANNED: Once = Once::new();
    PLANNED.call_once(|| plan_operations(config::or_default().faults.clone()));
}

/// Plans faults of operations and kernels that begin from now on.
pub(crate) fn plan_operations(faults: Vec<plan::Fault>) {
    let mut operations = lock(&OPERATIONS);
    operations.extend(faults.into_iter().map(|fault| Operation {
        fault,
        begun: HashMap::new(),
    }));
    OPERATIONS_COUNT.store(operations.len(), Ordering::SeqCst);
}

/// An operation that is about to begin.
pub(crate) struct Begun<'a> {
    /// The handle of this rank's end of the communicator.
    pub handle: usize,
    /// The communicator's name.
    pub comm: &'a str,
    /// This rank.
    pub rank: u32,
    /// What it is.
    pub kind: Kind,
}

/// Whether anything is planned for operations.
pub(crate) fn befalls_operations() -> bool {
    OPERATIONS_COUNT.load(Ordering::Relaxed) > 0
}

/// Counts an operation that is about to begin, and answers what shall befall it, in the order of the plan.
pub(crate) fn at_operation(what: &Begun<'_>) -> Vec<Action> {
    strike(what.handle, |target| match target {
        Target::Operation { rank, kind, comm } => {
            rank.is_none_or(|rank| rank == what.rank)
                && kind.is_none_or(|kind| kind == what.kind)
                && comm.as_deref().is_none_or(|comm| comm == what.comm)
        }
        Target::Kernel { .. } => false,
    })
}

/// Lets a kernel that is about to begin on a stream suffer what is planned for it; whether it goes on.
///
/// # Errors
/// A planned one, or the abort of the stream during a delay.
pub(crate) fn at_kernel(kernel: &str, stream: &Stream) -> Outcome<bool> {
    let actions = strike(stream.handle, |target| match target {
        Target::Kernel { name, device } => {
            name == kernel && device.is_none_or(|device| device == stream.device.id)
        }
        Target::Operation { .. } => false,
    });
    for action in actions {
        match action {
            Action::Kill => kill_process(),
            Action::Stop => stop_process(),
            Action::Delay(time) => {
                let end = Instant::now() + time;
                while !stream.aborted() {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    thread::sleep(left.min(Duration::from_millis(5)));
                }
                if stream.aborted() {
                    return Err(stream.abort_failure());
                }
            }
            Action::Drop => return Ok(false),
            Action::Error(code) => return refuse(code, format!("injected fault in {kernel}")),
        }
    }
    Ok(true)
}

/// Counts what begins on `handle` for each planned fault whose target fits; the actions of those that strike now.
fn strike(handle: usize, fits: impl Fn(&Target) -> bool) -> Vec<Action> {
    if !befalls_operations() {
        return Vec::new();
    }
    let mut operations = lock(&OPERATIONS);
    let strikes = |operation: &mut Operation| {
        let fault = &operation.fault;
        if !fits(&fault.target) {
            return None;
        }
        let begun = operation.begun.entry(handle).or_default();
        *begun += 1;
        (*begun == fault.op).then_some(fault.action)
    };
    operations.iter_mut().filter_map(strikes).collect()
}

/// Counts a call of `symbol`. Answers the code the call itself must fail with; a fault of its task is remembered for
/// the work that this thread queues next.
pub(crate) fn at_call(symbol: &str) -> Option<i32> {
    NEXT_TASK.set(0);
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut planned = lock(&PLANNED);
    let faults = planned.as_mut()?.get_mut(symbol)?;
    for fault in faults.iter_mut() {
        fault.left -= 1;
    }
    let at = faults.iter().position(|fault| fault.left == 0)?;
    let fault = faults.swap_remove(at);
    COUNT.fetch_sub(1, Ordering::SeqCst);
    if fault.in_task {
        NEXT_TASK.set(fault.code);
        return None;
    }
    Some(fault.code)
}

/// Ends this process as the out-of-memory killer does.
pub(crate) fn kill_process() -> ! {
    let _ = kill_process_with(Signal::KILL);
    loop {
        thread::park();
    }
}

/// Stops this process, every thread of it, as a debugger or `kill -STOP` does; returns when it goes on.
pub(crate) fn stop_process() {
    let sent = kill_process_with(Signal::STOP);
    // The signal may go through another thread. It is pending until that one stops all, this thread at the latest when
    // it returns from the system call that shows it no longer pending.
    while sent.is_ok() && is_pending(Signal::STOP) {
        thread::yield_now();
    }
}

fn kill_process_with(signal: Signal) -> rustix::io::Result<()> {
    rustix::process::kill_process(rustix::process::getpid(), signal)
}

/// Whether a signal was sent to this process and has not arrived.
fn is_pending(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let bits = pending.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    bits.is_some_and(|bits| bits & 1 << (signal.as_raw() - 1) != 0)
}

/// The work to queue: `work`, or one that fails in its place when a fault was planned for it.
pub(crate) fn in_task(work: Arc<dyn Work>) -> Arc<dyn Work> {
    match NEXT_TASK.take() {
        0 => work,
        code => Arc::new(Failing { work, code }),
    }
}

struct Failing {
    work: Arc<dyn Work>,
    code: i32,
}

impl Work for Failing {
    fn name(&self) -> &str {
        self.work.name()
    }
    fn admit(&self) -> u64 {
        self.work.admit()
    }
    fn run(&self, admission: u64, _: &Stream) -> Outcome {
        let failure = Failure::new(self.code, format!("injected fault in {}", self.work.name()));
        self.work.skip(admission, &failure);
        Err(failure)
    }
    fn skip(&self, admission: u64, cause: &Failure) {
        self.work.skip(admission, cause);
    }
}
