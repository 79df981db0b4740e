//! What one rank of the demo does.

use std::time::Instant;

use anyhow::Result;
use hcom_patch::{Compiled, Config, Error, Tensor, compile, dist, patch_for_hcom};
use hcom_runtime::{Mode, Runtime, Trace, Uniformity};

use super::super::settings;
use super::model::{self, Model};
use super::{RankReport, Row};
use crate::launch;

/// Steps before the timed ones of each way of running.
const WARM_UP: u64 = 2;

/// Steps with timestamps, after the timed ones.
const TRACED: u64 = 5;

/// Steps of a rank that runs `steps` timed ones each way.
pub(super) fn progress(steps: u64) -> u64 {
    3 * (WARM_UP + steps)
}

/// Runs the model every way and reports to the launcher.
///
/// # Errors
/// What the runtime reports: a missing or dead peer, a timeout, a difference between the ranks.
pub(super) fn run(steps: u64, seed: u64) -> Result<()> {
    let runtime = dist::init(&settings(None)?)?;
    let _patch = patch_for_hcom();
    let model = Model::new(seed, dist::world()?)?;
    let inputs = model::inputs(seed)?;
    let eager = model.forward(&inputs)?;

    let mut step = 0;
    let mut timed = |mode| -> Result<_> {
        let config = Config {
            mode,
            name: "demo".to_owned(),
            ..Config::default()
        };
        let compiled = compile(|inputs: &[Tensor]| model.forward(inputs), config);
        let mut durations = Vec::new();
        for index in 0..WARM_UP + steps {
            let begin = Instant::now();
            compiled.call(&inputs)?;
            runtime.synchronize()?;
            if index >= WARM_UP {
                durations.push(begin.elapsed().as_secs_f64() * 1e6);
            }
            step += 1;
            if runtime.rank() == 0 {
                launch::report(&step.to_string())?;
            }
        }
        Ok((compiled, median(durations)))
    };
    let (_, split_us) = timed(Mode::Split)?;
    let (_, single_stream_us) = timed(Mode::SingleStream)?;
    let (compiled, overlapped_us) = timed(Mode::Overlapped)?;

    let (outputs, trace) = trace(&runtime, &compiled, &inputs)?;
    let report = compiled.report();
    let report = RankReport {
        graphs: report.graphs,
        collectives: report.collectives,
        max_abs_diff: difference(&eager, &outputs)?,
        order: match report.uniformity {
            Uniformity::Uniform => "uniform: all ranks have the same graph".to_owned(),
            Uniformity::Pinned { reason } => format!("pinned: {reason}"),
        },
        row: Row {
            link: runtime
                .link()
                .map_or_else(|| "none".to_owned(), |link| link.to_string()),
            split_us,
            single_stream_us,
            overlapped_us,
            bound_us: compiled
                .executables()
                .iter()
                .map(|executable| executable.bound_us())
                .sum(),
        },
        trace: (runtime.rank() == 0).then_some(trace),
    };
    launch::report(&serde_json::to_string(&report)?)?;
    Ok(())
}

/// Runs a few steps with timestamps, tells every rank all times, so that the bound counts what the work itself takes
/// rather than the waiting for peers, and returns the outputs and the timeline of all ranks in the last step.
fn trace<F>(
    runtime: &Runtime,
    compiled: &Compiled<F>,
    inputs: &[Tensor],
) -> Result<(Vec<Tensor>, Trace)>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>, Error>,
{
    let world: Vec<u32> = (0..runtime.world_size()).collect();
    let mut last = Vec::new();
    let mut merged = Trace::default();
    for step in 0..TRACED {
        let (outputs, own) = compiled.traced(inputs)?;
        let deadline = Instant::now() + runtime.settings().timeout;
        let key = format!("demo/trace {step}");
        let traces =
            runtime
                .control()
                .all_gather(&world, &key, &serde_json::to_vec(&own)?, deadline)?;
        let traces = traces.iter().map(|trace| serde_json::from_slice(trace));
        merged = Trace::merge(traces.collect::<Result<Vec<Trace>, _>>()?);
        for executable in compiled.executables() {
            executable.observe(&merged);
        }
        last = outputs;
    }
    Ok((last, merged))
}

fn median(mut durations: Vec<f64>) -> f64 {
    durations.sort_by(f64::total_cmp);
    durations[durations.len() / 2]
}

/// The largest absolute difference of two lists of f32 tensors.
fn difference(a: &[Tensor], b: &[Tensor]) -> Result<f64> {
    let mut largest = 0.0f64;
    for (a, b) in a.iter().zip(b) {
        let pairs = a.to_vec::<f32>()?.into_iter().zip(b.to_vec::<f32>()?);
        largest = pairs
            .map(|(a, b)| f64::from((a - b).abs()))
            .fold(largest, f64::max);
    }
    Ok(largest)
}
