//! What one rank of the demo does.

use std::time::{Duration, Instant};

use anyhow::Result;
use hcom_patch::{Compiled, Config, Error, Tensor, compile, dist, patch_for_hcom};
use hcom_runtime::{Mode, Runtime, Trace, Uniformity};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::settings;
use super::model::{self, Model};
use super::{Job, Row};
use crate::launch;

/// Steps before the timed ones of each way of running.
const WARM_UP: u64 = 2;

/// Steps with timestamps, after the timed ones.
const TRACED: u64 = 5;

/// Between two messages about progress.
const PROGRESS: Duration = Duration::from_millis(100);

/// Runs the model every way. Rank 0 returns what the job found.
///
/// # Errors
/// What the runtime reports: a missing or dead peer, a timeout, a difference between the ranks.
pub(super) fn run(steps: u64, seed: u64) -> Result<Option<Job>> {
    let runtime = dist::init(&settings(None)?)?;
    let _patch = patch_for_hcom();
    let model = Model::new(seed, dist::world()?)?;
    let inputs = model::inputs(seed)?;
    let eager = model.forward(&inputs)?;

    let (mut done, total) = (0, 3 * (WARM_UP + steps));
    let mut told = Instant::now();
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
            done += 1;
            if told.elapsed() > PROGRESS {
                launch::progress(done, total)?;
                told = Instant::now();
            }
        }
        Ok((compiled, median(durations)))
    };
    let (_, split_us) = timed(Mode::Split)?;
    let (_, single_stream_us) = timed(Mode::SingleStream)?;
    let (compiled, overlapped_us) = timed(Mode::Overlapped)?;

    let (outputs, trace) = trace(&runtime, &compiled, &inputs)?;
    let own = Figures {
        split_us,
        single_stream_us,
        overlapped_us,
        bound_us: compiled
            .executables()
            .iter()
            .map(|executable| executable.bound_us())
            .sum(),
        max_abs_diff: difference(&eager, &outputs)?,
    };
    let all: Vec<Figures> = gather(&runtime, "demo/figures", &own)?;
    let largest = |figure: fn(&Figures) -> f64| all.iter().map(figure).fold(0.0, f64::max);
    let report = compiled.report();
    let job = Job {
        graphs: report.graphs,
        collectives: report.collectives,
        max_abs_diff: largest(|rank| rank.max_abs_diff),
        order: match report.uniformity {
            Uniformity::Uniform => "uniform: all ranks have the same graph".to_owned(),
            Uniformity::Pinned { reason } => format!("pinned: {reason}"),
        },
        row: Row {
            link: runtime
                .link()
                .map_or_else(|| "none".to_owned(), |link| link.to_string()),
            split_us: largest(|rank| rank.split_us),
            single_stream_us: largest(|rank| rank.single_stream_us),
            overlapped_us: largest(|rank| rank.overlapped_us),
            bound_us: largest(|rank| rank.bound_us),
        },
        trace,
    };
    Ok((runtime.rank() == 0).then_some(job))
}

/// What one rank measured.
#[derive(Serialize, Deserialize)]
struct Figures {
    split_us: f64,
    single_stream_us: f64,
    overlapped_us: f64,
    bound_us: f64,
    max_abs_diff: f64,
}

/// What every rank of the world says under `key`, in the order of the ranks.
fn gather<T: Serialize + DeserializeOwned>(
    runtime: &Runtime,
    key: &str,
    own: &T,
) -> Result<Vec<T>> {
    let world: Vec<u32> = (0..runtime.world_size()).collect();
    let deadline = Instant::now() + runtime.settings().timeout;
    let said = runtime
        .control()
        .all_gather(&world, key, &serde_json::to_vec(own)?, deadline)?;
    Ok(said
        .iter()
        .map(|bytes| serde_json::from_slice(bytes))
        .collect::<Result<_, _>>()?)
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
    let mut last = Vec::new();
    let mut merged = Trace::default();
    for step in 0..TRACED {
        let (outputs, own) = compiled.traced(inputs)?;
        merged = Trace::merge(gather(runtime, &format!("demo/trace {step}"), &own)?);
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
