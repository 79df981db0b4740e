//! `hcom demo`: a tensor-parallel transformer whose collectives are inside one graph, on real ranks.
//!
//! The launcher starts the job twice, without and with a modelled link. Each rank runs the same model function
//! eagerly, split at every collective, in one graph on one stream, and in one graph with communication under
//! computation. The ranks' reports become one table and one timeline.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result};
use hcom_runtime::timeline::Trace;
use serde::{Deserialize, Serialize};

use super::bad_input::BadInput;
use super::{Ranks, exit_code, is_rank, launch_error, print, print_json, progress_bar, settings};
use crate::launch::{Event, Launch, Outcome, Role};

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

/// What one rank says at the end.
#[derive(Debug, Serialize, Deserialize)]
struct RankReport {
    graphs: usize,
    collectives: usize,
    max_abs_diff: f64,
    /// `uniform`, or `pinned` with the reason.
    order: String,
    row: Row,
    /// The timeline of all ranks, from rank 0.
    trace: Option<Trace>,
}

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
struct Summary {
    ranks: u32,
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
        rank::run(arguments.steps, arguments.seed)?;
        return Ok(ExitCode::SUCCESS);
    }

    let mut rows = Vec::new();
    let mut reports = Vec::new();
    for link in [None, Some(LINK)] {
        let (outcome, of_link) = launch(ranks, arguments.steps, link)?;
        if outcome.exit_code() != 0 {
            return Ok(exit_code(&outcome));
        }
        rows.push(slowest(&of_link).context("a job without ranks")?);
        reports = of_link;
    }

    let order = reports[0].order.clone();
    let (graphs, collectives) = (reports[0].graphs, reports[0].collectives);
    let max_abs_diff = reports
        .iter()
        .map(|report| report.max_abs_diff)
        .fold(0.0, f64::max);
    let trace = reports
        .into_iter()
        .find_map(|report| report.trace)
        .context("rank 0 reports no timeline")?;
    let (timeline, picture) = write_timeline(&arguments.timeline, &trace)?;
    let summary = Summary {
        ranks,
        graphs,
        collectives,
        max_abs_diff,
        timeline: timeline.display().to_string(),
        rows,
    };
    if arguments.json {
        print_json(&serde_json::to_value(&summary)?)?;
    } else {
        print(&table(&summary, &order, &picture))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the job once. The ranks' reports are complete when the outcome is good.
fn launch(ranks: u32, steps: u64, link: Option<&str>) -> Result<(Outcome, Vec<RankReport>)> {
    let what = match link {
        None => "no link",
        Some(_) => "modelled link",
    };
    // Three ways of running, and the steps before them that do not count.
    let bar = progress_bar(rank::progress(steps), what);
    let shown = bar.clone();
    let reports = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&reports);
    let launch = Launch::this(ranks)
        .timeout(settings(None)?.timeout)
        .env("HCOM_FAKE_LINK", link.unwrap_or_default())
        .collect_with(move |event| match event {
            Event::Report { rank: 0, json } if json.parse::<u64>().is_ok() => {
                shown.set_position(json.parse().unwrap_or_default());
            }
            Event::Report { json, .. } => kept.borrow_mut().push(json.to_owned()),
            Event::Line(line) => shown.suspend(|| eprintln!("{line}")),
            Event::Progress { .. } => {}
        });
    let outcome = launch.run().map_err(launch_error)?;
    bar.finish_and_clear();
    let reports = reports
        .borrow()
        .iter()
        .map(|json| serde_json::from_str(json).context("a rank's report"))
        .collect::<Result<_>>()?;
    Ok((outcome, reports))
}

/// The row of the job: of each figure that of the slowest rank.
fn slowest(reports: &[RankReport]) -> Option<Row> {
    let of = |figure: fn(&Row) -> f64| {
        reports
            .iter()
            .map(|report| figure(&report.row))
            .fold(0.0, f64::max)
    };
    Some(Row {
        link: reports.first()?.row.link.clone(),
        split_us: of(|row| row.split_us),
        single_stream_us: of(|row| row.single_stream_us),
        overlapped_us: of(|row| row.overlapped_us),
        bound_us: of(|row| row.bound_us),
    })
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
