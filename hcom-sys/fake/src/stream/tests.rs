//! Who runs the work of a stream.

use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;

/// Brief work that has to wait a few times, and notes who ran it.
#[derive(Default)]
struct Pausing {
    pauses: AtomicUsize,
    announced: AtomicUsize,
    skipped: AtomicUsize,
    ran: Mutex<Vec<ThreadId>>,
}

impl Pausing {
    fn new(pauses: usize) -> Arc<Self> {
        let work = Self::default();
        work.pauses.store(pauses, Ordering::SeqCst);
        Arc::new(work)
    }

    fn runners(&self) -> Vec<ThreadId> {
        lock(&self.ran).clone()
    }
}

impl Work for Pausing {
    fn name(&self) -> &str {
        "pausing work"
    }
    fn run(&self, _: u64, _: &Stream) -> Outcome {
        lock(&self.ran).push(thread::current().id());
        Ok(())
    }
    fn skip(&self, _: u64, _: &Failure) {
        self.skipped.fetch_add(1, Ordering::SeqCst);
    }
    fn is_brief(&self) -> bool {
        true
    }
    fn announce(&self, _: u64, _: &Stream) {
        self.announced.fetch_add(1, Ordering::SeqCst);
    }
    fn attempt(&self, admission: u64, stream: &Stream) -> Option<Outcome> {
        lock(&self.ran).push(thread::current().id());
        let left = self.pauses.load(Ordering::SeqCst);
        if left == 0 {
            return Some(self.run(admission, stream));
        }
        self.pauses.store(left - 1, Ordering::SeqCst);
        None
    }
}

fn stream() -> Arc<Stream> {
    Stream::create(device::of(0).unwrap(), 0, 0)
}

/// Lets the worker give the queue away: it has nothing to do, and somebody has waited for brief work.
fn served() -> Arc<Stream> {
    let stream = stream();
    loop {
        stream.enqueue(Pausing::new(0)).unwrap();
        stream.synchronize(None).unwrap();
        let state = lock(&stream.state);
        if state.is_served && state.keeper != Keeper::Worker {
            drop(state);
            return stream;
        }
        drop(state);
        thread::yield_now();
    }
}

#[test]
fn a_waiting_thread_runs_brief_work_itself() {
    let own = thread::current().id();
    // The worker may look in at the very moment; not every time.
    let helped = (0..20).any(|_| {
        let (stream, work) = (served(), Pausing::new(0));
        stream.enqueue(work.clone()).unwrap();
        assert_eq!(work.announced.load(Ordering::SeqCst), 1);
        stream.synchronize(None).unwrap();
        stream.close();
        work.runners() == [own, own]
    });
    assert!(helped);
}

#[test]
fn work_that_pauses_goes_on_in_the_worker() {
    let (stream, work) = (served(), Pausing::new(1));
    let others: Vec<_> = (0..5).map(|_| Pausing::new(0)).collect();
    stream.enqueue(work.clone()).unwrap();
    for other in &others {
        stream.enqueue(other.clone()).unwrap();
    }
    stream.synchronize(None).unwrap();
    assert_ne!(work.runners().last(), Some(&thread::current().id()));
    assert!(others.iter().all(|other| !other.runners().is_empty()));
    stream.close();
}

#[test]
fn nobody_has_to_wait_for_brief_work_to_run() {
    let (stream, work) = (served(), Pausing::new(0));
    stream.enqueue(work.clone()).unwrap();
    while work.runners().is_empty() {
        thread::yield_now();
    }
    assert_ne!(work.runners(), [thread::current().id()]);
    stream.close();
}

#[test]
fn other_work_behind_brief_work_is_run_by_the_worker() {
    for _ in 0..5 {
        let (stream, work) = (served(), Pausing::new(0));
        let ran = Arc::new(Mutex::new(None));
        let noted = ran.clone();
        stream.enqueue(work.clone()).unwrap();
        let function = move || {
            *lock(&noted) = Some(thread::current().id());
            Ok(())
        };
        stream.enqueue_function("a function", function).unwrap();
        stream.synchronize(None).unwrap();
        assert!(!work.runners().is_empty());
        assert_ne!(*lock(&ran), Some(thread::current().id()));
        assert!(lock(&ran).is_some());
        stream.close();
    }
}

#[test]
fn several_threads_that_wait_share_the_work() {
    let stream = served();
    let works: Vec<_> = (0..400).map(|_| Pausing::new(0)).collect();
    for work in &works {
        stream.enqueue(work.clone()).unwrap();
    }
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| stream.synchronize(None).unwrap());
        }
    });
    for work in &works {
        let runners = work.runners();
        assert!(runners.len() <= 2, "run once: {runners:?}");
        assert!(!runners.is_empty());
    }
    stream.close();
}

#[test]
fn an_abort_drops_what_is_queued_and_what_paused() {
    let (stream, work) = (served(), Pausing::new(usize::MAX));
    let behind = Pausing::new(0);
    stream.enqueue(work.clone()).unwrap();
    stream.enqueue(behind.clone()).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| stream.synchronize(None));
        stream.abort();
        // The work may have been finished by the worker before.
        let _ = waiting.join().unwrap();
    });
    let ended = |work: &Pausing| work.skipped.load(Ordering::SeqCst) + work.runners().len();
    assert!(ended(&work) > 0 && ended(&behind) > 0);
    assert_eq!(stream.enqueue(behind).unwrap_err().code, code::STREAM_ABORT);
    stream.close();
}
