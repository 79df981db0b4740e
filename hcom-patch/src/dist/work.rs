//! Collectives that are started here and waited for there.
//!
//! A graph overlaps communication with computation by itself, so a recorded function rarely needs
//! this. Where it is allowed ([`Config::async_collectives`](crate::Config::async_collectives)), the
//! tensors that a started call writes are in flight up to its [`Work::wait`]: using one before is
//! an error, since an eager run may or may not have written it by then.

use crate::Error;
use crate::scope::{self, CaptureId};
use std::panic::Location;

/// Started calls, to be waited for.
#[derive(Debug)]
#[must_use = "what was started is waited for by `wait`"]
pub struct Work {
    /// The capture that recorded the calls, and their number in it; none for calls that ran.
    recorded: Option<(CaptureId, usize)>,
}

/// Starts the calls that `calls` makes; what they write may be used after [`Work::wait`].
///
/// Outside recordings the calls run in the order of the device's stream, which waits for nothing on
/// the host.
///
/// # Errors
/// What `calls` returns; [`Error::Asynchronous`] in a recording that does not allow it.
///
/// ```
/// use hcom_patch::{Config, Error, ReduceOp, Tensor, compile, dist, patch_for_hcom};
///
/// hcom_sys::register_fallback(hcom_fake::table());
/// dist::init(&hcom_runtime::Settings::default())?;
///
/// let f = |inputs: &[Tensor]| {
///     let (x, mut y) = (&inputs[0], (&inputs[0] + 1.0)?);
///     let work = dist::start(|| dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?))?;
///     let z = (x * 2.0)?;
///     work.wait();
///     Ok(vec![(&y + &z)?])
/// };
/// let _patch = patch_for_hcom();
/// let config = Config { async_collectives: true, ..Config::default() };
/// let y = compile(f, config).call(&[Tensor::from_slice(&[1.0f32], &[1])?])?;
/// assert_eq!(y[0].to_vec::<f32>()?, [4.0]);
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn start(calls: impl FnOnce() -> Result<(), Error>) -> Result<Work, Error> {
    let location = Location::caller();
    let recorded = scope::with_active(|recorder| match recorder {
        Some(recorder) => recorder.start_work(location),
        None => Ok(None),
    })?;
    let made = calls();
    if let Some((capture, _)) = recorded {
        scope::with_active(|recorder| {
            if let Some(recorder) = recorder.filter(|recorder| recorder.capture() == capture) {
                recorder.end_start();
            }
        });
    }
    made.map(|()| Work { recorded })
}

impl Work {
    /// Lets everything after it see what the calls wrote. Nothing is left to wait for where the
    /// graph that recorded them has ended; a failed collective is the error of what reads it.
    pub fn wait(self) {
        scope::with_active(|recorder| {
            if let (Some(recorder), Some((capture, index))) = (recorder, self.recorded)
                && recorder.capture() == capture
            {
                recorder.finish_work(index);
            }
        });
    }
}
