//! Faults on demand: the n-th call of a function fails, at the call or later in its task.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Failure, Outcome};
use crate::memory::lock;
use crate::stream::{Stream, Work};

/// A planned fault.
#[derive(Clone, Copy, Debug)]
struct Fault {
    /// Calls until it strikes, counting the one that it strikes.
    left: u64,
    code: i32,
    in_task: bool,
}

static PLANNED: Mutex<Option<HashMap<String, Vec<Fault>>>> = Mutex::new(None);
/// How many faults are planned, so that calls need no lock while there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

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
        .push(Fault {
            left: nth,
            code,
            in_task,
        });
    COUNT.fetch_add(1, Ordering::SeqCst);
}

/// Forgets all planned faults.
pub(crate) fn clear() {
    *lock(&PLANNED) = None;
    COUNT.store(0, Ordering::SeqCst);
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
