//! `hcom record`: what the ranks of a job left behind.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use hcom_runtime::Record;
use hcom_runtime::recorder::{Story, read_all};
use serde_json::json;

use super::bad_input::BadInput;
use super::{print, print_json};

/// Read the flight records that the ranks of a job wrote into HCOM_RECORD_DIR.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Show(Show),
}

/// Put the records of all ranks together: which groups are stuck, in what, and for whom.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  HCOM_RECORD_DIR=/tmp/records hcom run graph.hcom --ranks 4\n  hcom record show /tmp/records\n  hcom record show /tmp/records --json | jq '.stuck[].sentence'\n\nA rank writes its record when the job fails or the rank ends; one that was killed or stopped leaves none."
)]
struct Show {
    /// The folder with the records, hcom-record-0.json and so on.
    folder: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(super) fn json(&self) -> bool {
        let Command::Show(show) = &self.command;
        show.json
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Command::Show(show) = &arguments.command;
    let place = show.folder.display();
    let records = read_all(&show.folder).map_err(|error| {
        BadInput::new(format!("cannot read the records in {place}: {error}"))
            .expected("a folder that HCOM_RECORD_DIR named when one job ran")
    })?;
    if records.is_empty() {
        return Err(BadInput::new(format!("there is no record in {place}"))
            .expected("files named hcom-record-RANK.json")
            .help("run the job with HCOM_RECORD_DIR set to this folder")
            .into());
    }
    let story = Story::of(&records);
    if show.json {
        print_json(&json!({
            "failure": story.failure,
            "stuck": story.stuck,
            "unrecorded": story.unrecorded,
            "ranks": records.iter().map(|record| json!({"rank": record.rank, "pid": record.pid, "state": record.state, "entries": record.entries.len(), "dropped": record.dropped})).collect::<Vec<_>>(),
        }))?;
    } else {
        print(&format!("{story}\n{}", table(&records, story.world_size)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One line per rank of the job.
fn table(records: &[Record], world_size: u32) -> String {
    (0..world_size)
        .map(|rank| match records.iter().find(|r| r.rank == rank) {
            None => format!("rank {rank:<4} left no record\n"),
            Some(record) => format!(
                "rank {rank:<4} pid {:<8} {:>6} collectives  {}\n",
                record.pid,
                record.entries.len() as u64 + record.dropped,
                record.state
            ),
        })
        .collect()
}
