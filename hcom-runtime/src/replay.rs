//! Plans that are recorded once and replayed as one launch.
//!
//! A graph compiled with [`Mode::Replay`](crate::Mode::Replay) is captured when it is compiled, when
//! all ranks are there: the steps of its plan are queued once into the library's recorder instead of
//! onto the device. A capture refers to memory by address, so it has arrays of its own for inputs
//! and outputs. An execution copies the inputs into them, starts the capture, and copies the outputs
//! into fresh arrays and written inputs back; an input that already lies in the capture's own array
//! ([`Executable::captured_inputs`](crate::Executable::captured_inputs)) is not copied.
//!
//! Ranks whose library cannot capture, or that hold as many captures as they may, say so to the
//! other members of each group; then all of them launch the plan step by step, with the same
//! results, and [`Executable::fallback`](crate::Executable::fallback) tells why.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{
    Array, Error,
    control::Run,
    load::{Outside, Tape},
    plan::Plan,
    raw::{Capture, Workspace},
    runtime::{Inner, Launch},
    watchdog::LineId,
};

/// The captures of a rank.
#[derive(Debug, Default)]
pub(crate) struct Captures(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    count: usize,
    /// Captures that nobody uses any more. Their last replays may go on.
    retired: Vec<Retired>,
}

#[derive(Debug)]
struct Retired {
    _capture: Option<Capture>,
    lines: Vec<LineId>,
    _workspaces: Vec<Workspace>,
}

impl Captures {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Destroys the captures that nobody uses. The device is idle.
    pub(crate) fn reap(&self, inner: &Inner) {
        let retired = std::mem::take(&mut self.held().retired);
        let count = retired.len();
        for line in retired.iter().flat_map(|retired| &retired.lines) {
            inner.watchdog.release(*line);
        }
        drop(retired);
        self.held().count -= count;
    }
}

/// A plan that was captured.
pub(crate) struct Replay {
    inner: Arc<Inner>,
    capture: Option<Capture>,
    inputs: Vec<Array>,
    outputs: Vec<Array>,
    tapes: Vec<Tape>,
    workspaces: Vec<Workspace>,
}

impl Replay {
    /// Makes what a capture of `plan` needs, and records what `queue` queues.
    pub(crate) fn record(
        inner: &Arc<Inner>,
        plan: &Plan,
        workspace_bytes: &[u64],
        name: &str,
        arrays: [Vec<Array>; 2],
        queue: impl FnOnce(&Outside<'_>, &mut [Tape], &mut [Workspace]) -> Result<(), Error>,
    ) -> Result<Replay, Error> {
        Capture::offered(&inner.driver)?;
        inner.watchdog.wait(&inner.compute)?;
        inner.captures.reap(inner);
        let limit = inner.settings().captures;
        {
            let mut held = inner.captures.held();
            if held.count >= limit {
                return Err(Error::Captures {
                    graph: name.to_owned(),
                    limit,
                });
            }
            held.count += 1;
        }
        let [inputs, outputs] = arrays;
        let mut replay = Replay {
            inner: inner.clone(),
            capture: None,
            inputs,
            outputs,
            tapes: Vec::new(),
            workspaces: Vec::new(),
        };
        for channel in &plan.tasks.channels {
            let line = inner.watchdog.line(&channel.group)?;
            replay.tapes.push(Tape::new(line));
        }
        for &bytes in workspace_bytes {
            let mut workspace = Workspace::new(&inner.driver);
            workspace.reserve(bytes)?;
            replay.workspaces.push(workspace);
        }
        let outside = Outside {
            inputs: &replay.inputs,
            outputs: &replay.outputs,
        };
        let (tapes, workspaces) = (&mut replay.tapes, &mut replay.workspaces);
        replay.capture = Some(Capture::record(&inner.driver, &inner.compute, || {
            queue(&outside, tapes, workspaces)
        })?);
        Ok(replay)
    }

    /// The arrays that the capture reads its inputs from.
    pub(crate) fn inputs(&self) -> &[Array] {
        &self.inputs
    }

    /// Queues one execution. `runs` has an entry for each channel of the plan, `written` are the
    /// inputs that the graph writes.
    pub(crate) fn run(
        &self,
        launch: &mut Launch,
        plan: &Plan,
        outside: &Outside<'_>,
        written: &[usize],
        runs: &[Arc<Run>],
    ) -> Result<(), Error> {
        let compute = &self.inner.compute;
        let copy =
            |from: &Array, to: &Array| from.place().copy_to(&to.place(), from.byte_len(), compute);
        // An array of the capture that comes as another input is saved before it is overwritten.
        let mut saved: Vec<Option<Array>> = vec![None; self.inputs.len()];
        for (index, input) in outside.inputs.iter().enumerate() {
            let own = self.inputs.iter().position(|own| own.same_memory(input));
            if own.is_some_and(|own| own != index) {
                let aside = self
                    .inner
                    .empty(input.dtype(), input.shape(), input.byte_len())?;
                copy(input, &aside)?;
                saved[index] = Some(aside);
            }
        }
        for ((input, saved), own) in outside.inputs.iter().zip(&saved).zip(&self.inputs) {
            copy(saved.as_ref().unwrap_or(input), own)?;
        }
        for ((tape, channel), run) in self.tapes.iter().zip(&plan.tasks.channels).zip(runs) {
            let count = tape.rows.len() as u64;
            let base = launch.take_seqs(&channel.group.ranks, channel.point_to_point, count);
            let watchdog = &self.inner.watchdog;
            watchdog.replay(tape.line, base, &tape.rows, run, compute)?;
        }
        let capture = self
            .capture
            .as_ref()
            .expect("a recorded plan has a capture");
        capture.replay(compute)?;
        for (own, output) in self.outputs.iter().zip(outside.outputs) {
            copy(own, output)?;
        }
        for &input in written {
            copy(&self.inputs[input], &outside.inputs[input])?;
        }
        Ok(())
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.inner.captures.held().retired.push(Retired {
            _capture: self.capture.take(),
            lines: self.tapes.iter().map(|tape| tape.line).collect(),
            _workspaces: std::mem::take(&mut self.workspaces),
        });
    }
}

/// Lets the members of each group of `plan` agree on whether they replay. `own` is why this rank
/// does not; returns why the members do not.
pub(crate) fn agree(
    inner: &Inner,
    plan: &Plan,
    mut reason: Option<String>,
) -> Result<Option<String>, Error> {
    let rank = inner.control.rank();
    let mut groups: Vec<&[u32]> = plan
        .tasks
        .channels
        .iter()
        .map(|channel| channel.group.ranks.as_slice())
        .collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let own = reason.as_deref().unwrap_or_default();
        let deadline = Instant::now() + inner.settings().timeout;
        let said = inner
            .control
            .all_gather(group, "capture", own.as_bytes(), deadline)
            .map_err(|error| inner.watchdog.fail(error.into_failure(rank)))?;
        let peer = group.iter().zip(said).find(|(_, said)| !said.is_empty());
        if let (None, Some((peer, said))) = (&reason, peer) {
            reason = Some(format!("rank {peer}: {}", String::from_utf8_lossy(&said)));
        }
    }
    Ok(reason)
}
