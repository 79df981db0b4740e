//! `hcom demo`: a tensor-parallel transformer whose collectives are inside one graph, on real ranks.
//!
//! The launcher starts the job twice, without and with a modelled link. Each rank runs the same model function
//! eagerly, split at every collective, in one graph on one stream, and in one graph with communication under
//! computation. The ranks' reports become one table and one timeline.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use hcom_runtime::timeline::Trace;
use serde::{Deserialize, Serialize};

use super::bad_input::BadInput;
use super::{
    Ranks, exit_code, is_rank, launch_error, print, print_json, progress_bar, report_of_rank_0,
    settings,
};
use crate::launch::{self, Event, Launch, Outcome, Role};

mod model;
mod rank;

/// Run a tensor-parallel model whose collectives are part of one graph, and show what that gains.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom demo                       4 ranks, 20 steps\n  hcom demo --ranks 2 --json\n  hcom demo --timeline target/demo"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    ranks: Ranks,
    /// Steps to measure, each way of running.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Seed of the weights and inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder for the timeline, as Chrome trace JSON and as SVG.
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    timeline: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// The modelled link of the second row, as `HCOM_FAKE_LINK` takes it: α in µs, β in GB/s. A CPU computes about a
/// thousand times slower than a card; a link as much slower keeps the balance of the two.
const LINK: &str = "100,0.2";

/// One row of the table: microseconds per step, the median over the steps on the slowest rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    /// `none`, or the modelled link.
    link: String,
    /// A graph between any two collectives, and the host waits at each.
    split_us: f64,
    /// One graph on one stream.
    single_stream_us: f64,
    /// One graph, communication under computation.
    overlapped_us: f64,
    /// No schedule of the measured work is faster, were there a core for every rank.
    bound_us: f64,
}

/// What a job found, from its rank 0.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    graphs: usize,
    collectives: usize,
    max_abs_diff: f64,
    /// `uniform`, or `pinned` with the reason.
    order: String,
    row: Row,
    trace: Trace,
}

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
struct Summary {
    ranks: usize,
    graphs: usize,
    collectives: usize,
    max_abs_diff: f64,
    timeline: String,
    rows: Vec<Row>,
}

pub(super) fn run(arguments: Arguments, role: Role) -> Result<ExitCode> {
    let ranks = arguments.ranks.ranks.unwrap_or(4);
    if !model::HEADS.is_multiple_of(u64::from(ranks)) {
        return Err(
            BadInput::new("the demo's model does not split over this number of ranks")
                .at("--ranks")
                .expected(format!(
                    "a divisor of its {} attention heads: 1, 2, 4 or 8",
                    model::HEADS
                ))
                .got(ranks.to_string())
                .into(),
        );
    }
    if is_rank(role) {
        let job = rank::run(arguments.steps, arguments.seed)?;
        match job {
            Some(job) if launch::is_collected() => launch::report(&serde_json::to_string(&job)?)?,
            Some(job) => show(&arguments, vec![job])?,
            None => {}
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut jobs = Vec::new();
    for link in [None, Some(LINK)] {
        let outcome = start(ranks, link)?;
        if outcome.exit_code() != 0 {
            return Ok(exit_code(&outcome));
        }
        jobs.push(report_of_rank_0(&outcome)?);
    }
    show(&arguments, jobs)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs one job; rank 0 reports its progress, and last what it found.
fn start(ranks: u32, link: Option<&str>) -> Result<Outcome> {
    let what = match link {
        None => "no link",
        Some(_) => "modelled link",
    };
    let bar = progress_bar(0, what);
    let shown = bar.clone();
    let outcome = Launch::this(ranks)
        .timeout(settings(None)?.timeout)
        .env("HCOM_FAKE_LINK", link.unwrap_or_default())
        .collect_with(move |event| match event {
            Event::Progress {
                rank: 0,
                done,
                total,
            } => {
                shown.set_length(total);
                shown.set_position(done);
            }
            Event::Line(line) => shown.suspend(|| eprintln!("{line}")),
            _ => {}
        })
        .run()
        .map_err(launch_error)?;
    bar.finish_and_clear();
    Ok(outcome)
}

/// Writes the timeline of the last job and prints a row for each.
fn show(arguments: &Arguments, jobs: Vec<Job>) -> Result<()> {
    let last = jobs.last().context("no job")?;
    let (timeline, picture) = write_timeline(&arguments.timeline, &last.trace)?;
    let summary = Summary {
        ranks: last.trace.ranks().len(),
        graphs: last.graphs,
        collectives: last.collectives,
        max_abs_diff: jobs.iter().map(|job| job.max_abs_diff).fold(0.0, f64::max),
        timeline: timeline.display().to_string(),
        rows: jobs.iter().map(|job| job.row.clone()).collect(),
    };
    if arguments.json {
        print_json(&serde_json::to_value(&summary)?)
    } else {
        print(&table(&summary, &last.order, &picture))
    }
}

/// Writes `timeline.json` and `timeline.svg` into `folder` and returns their paths.
fn write_timeline(folder: &Path, trace: &Trace) -> Result<(PathBuf, PathBuf)> {
    let place = || format!("the timeline in {}", folder.display());
    fs::create_dir_all(folder).with_context(place)?;
    let (json, svg) = (folder.join("timeline.json"), folder.join("timeline.svg"));
    fs::write(&json, trace.to_chrome_json()).with_context(place)?;
    fs::write(&svg, trace.to_svg()).with_context(place)?;
    Ok((json, svg))
}

fn table(summary: &Summary, order: &str, picture: &Path) -> String {
    let mut text = format!(
        "A tensor-parallel transformer: {} blocks, {} micro-batches, collectives inside the graph\n\n\
         ranks                {}\n\
         graphs per rank      {}\n\
         collectives          {}\n\
         order                {order}\n\
         difference to eager  {:e} at most\n\n\
         {:<43} {:>9} {:>11} {:>11} {:>9} {:>17}\n",
        model::LAYERS,
        model::MICRO_BATCHES,
        summary.ranks,
        summary.graphs,
        summary.collectives,
        summary.max_abs_diff,
        "µs per step",
        "split",
        "one stream",
        "overlapped",
        "bound",
        "split/overlapped",
    );
    for row in &summary.rows {
        text += &format!(
            "{:<43} {:>9.0} {:>11.0} {:>11.0} {:>9.0} {:>17.2}\n",
            match row.link.as_str() {
                "none" => "no modelled link",
                link => link,
            },
            row.split_us,
            row.single_stream_us,
            row.overlapped_us,
            row.bound_us,
            row.split_us / row.overlapped_us,
        );
    }
    text += "bound: no schedule of the same measured work is faster, were there a core for every rank\n";
    text += &format!(
        "\ntimeline             {} (open in ui.perfetto.dev)\n\
         as a picture         {}\n",
        summary.timeline,
        picture.display()
    );
    text
}
