//! `hcom collectives`: which calls take which element types and reductions, and how.

use std::process::ExitCode;

use hcom_convert::support::{self, Support};
use serde_json::{Value, json};

use super::{print, print_json};

/// Show which element types and reductions each collective call takes, and how it is carried out.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom collectives                                      the table, as Markdown\n  hcom collectives --json | jq '.entries[] | select(.call == \"all_reduce\" and .dtype == \"u8\")'"
)]
pub(super) struct Arguments {
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.json {
        let entries: Vec<Value> = support::table().iter().map(describe).collect();
        print_json(&json!({ "entries": entries }))?;
    } else {
        print(&support::markdown())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(entry: &support::Entry) -> Value {
    let (support, how) = match &entry.support {
        Support::Native => ("native", None),
        Support::Lowered(steps) => ("lowered", Some(steps.as_str())),
        Support::Refused(reason) => ("refused", Some(*reason)),
    };
    let absent: Vec<&str> = entry.absent.iter().map(|chip| chip.name()).collect();
    json!({
        "call": entry.call,
        "reduction": entry.reduction.map(|op| op.name()),
        "dtype": entry.dtype.name(),
        "support": support,
        "how": how,
        "not_on": absent,
    })
}
