//! Every interleaving of those who reach a record, wait for it and give up.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::error::Failure;

mod primitives {
    pub(super) use loom::sync::{Condvar, Mutex};
}
#[expect(
    clippy::duplicate_mod,
    reason = "the very code, with the locks of the model checker"
)]
#[path = "record.rs"]
mod record;
use record::{Reached, Record};

fn failure(text: &str) -> Failure {
    Failure::new(1, text)
}

/// Two who wait, and the one who reaches: nobody sleeps on (the model would report a deadlock).
#[test]
fn everyone_who_waits_is_woken() {
    loom::model(|| {
        let record = Arc::new(Record::default());
        let waiting = {
            let record = record.clone();
            thread::spawn(move || record.wait(None, 2, || None))
        };
        let reaching = {
            let record = record.clone();
            thread::spawn(move || record.set(Reached::now(None)))
        };
        assert_eq!(record.wait(None, 2, || None), Ok(()));
        assert_eq!(waiting.join().unwrap(), Ok(()));
        reaching.join().unwrap();
    });
}

/// A stream that waits is aborted: what is stored before the poke is never slept through.
#[test]
fn an_abort_reaches_a_stream_that_waits() {
    loom::model(|| {
        let record = Arc::new(Record::default());
        let aborted = Arc::new(AtomicBool::new(false));
        let abort = {
            let (record, aborted) = (record.clone(), aborted.clone());
            thread::spawn(move || {
                aborted.store(true, Ordering::SeqCst);
                record.poke();
            })
        };
        let give_up = || aborted.load(Ordering::SeqCst).then(|| failure("aborted"));
        assert_eq!(record.wait(None, 2, give_up), Err(failure("aborted")));
        abort.join().unwrap();
    });
}

/// A record is reached while a failure is to complete it: whoever saw it reached sees the same later.
#[test]
fn what_was_reached_stays_so() {
    loom::model(|| {
        let record = Arc::new(Record::default());
        let failing = {
            let record = record.clone();
            thread::spawn(move || {
                record.fail(&failure("an earlier step failed"));
                record.get().failure
            })
        };
        let waiting = {
            let record = record.clone();
            thread::spawn(move || {
                let seen = record.wait(None, 2, || None);
                (seen, record.get().failure)
            })
        };
        record.fail(&failure("another one failed"));
        let last = record.get().failure;
        assert_eq!(failing.join().unwrap(), last);
        let (seen, later) = waiting.join().unwrap();
        assert_eq!((seen.err(), later), (last.clone(), last));
    });
}
