//! `hcom env`: what this machine offers and which settings are in effect.

use std::process::ExitCode;

use hcom_runtime::{InProcess, Runtime, Settings};
use hcom_sys::{FUNCTIONS, Library};
use serde_json::{Value, json};

use super::{print, print_json, settings};

/// Show the library found and where, its version, the devices, and the timeouts in effect.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom env\n  HCOM_LIBRARY_PATH=/opt/ascend/lib64 hcom env --json\n\nThe library is looked for in HCOM_LIBRARY_PATH (a file or a folder), then $ASCEND_HOME_PATH/lib64; where neither is\nset, the CPU implementation inside this program serves."
)]
pub(super) struct Arguments {
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// Variables that the command and the libraries read.
const VARIABLES: [&str; 12] = [
    "HCOM_LIBRARY_PATH",
    "ASCEND_HOME_PATH",
    "HCOM_TIMEOUT",
    "HCOM_CONNECT_TIMEOUT",
    "HCOM_FAKE_SOC",
    "HCOM_FAKE_LINK",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK_TABLE_FILE",
];

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let settings = settings(None)?;
    let library = Library::search(settings.library.as_deref()).map_err(|error| {
        super::BadInput::new(error.to_string())
            .help("set HCOM_LIBRARY_PATH to the library or its folder, or unset it to use the CPU implementation")
    })?;
    let found = match library.path() {
        Some(path) => path.display().to_string(),
        None => "inside this program".to_owned(),
    };
    let table = library.table();
    let present = FUNCTIONS
        .iter()
        .filter(|function| library.has(function.name))
        .count();
    let device = device(&settings);
    let variables: Vec<(&str, String)> = VARIABLES
        .iter()
        .filter_map(|name| {
            Some((
                *name,
                std::env::var_os(name)?.to_string_lossy().into_owned(),
            ))
        })
        .collect();
    let skipped: Vec<String> = library.skipped().iter().map(ToString::to_string).collect();
    if arguments.json {
        print_json(&json!({
            "hcom": env!("CARGO_PKG_VERSION"),
            "library": {
                "path": library.path().map(|path| path.display().to_string()),
                "name": table.map(|table| table.name),
                "version": table.map(|table| table.version),
                "found_by": library.origin().to_string(),
                "skipped": skipped,
                "functions": {"present": present, "known": FUNCTIONS.len()},
            },
            "device": match &device {
                Ok(chip) => json!({"index": 0, "chip": chip, "error": null}),
                Err(error) => json!({"index": 0, "chip": null, "error": error}),
            },
            "timeouts": {
                "connect_s": settings.connect_timeout.as_secs_f64(),
                "collective_s": settings.timeout.as_secs_f64(),
            },
            "variables": variables.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect::<serde_json::Map<_, _>>(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("hcom {}\n\nlibrary    {found}\n", env!("CARGO_PKG_VERSION"));
    if let Some(table) = table {
        text += &format!("           {} {}\n", table.name, table.version);
    }
    text += &format!(
        "           found by {}; {present} of {} functions\n",
        library.origin(),
        FUNCTIONS.len()
    );
    for place in skipped {
        text += &format!("           passed over {place}\n");
    }
    text += &match device {
        Ok(Some(chip)) => format!("\ndevice 0   {chip}\n"),
        Ok(None) => "\ndevice 0   of a chip that the library does not name\n".to_owned(),
        Err(error) => format!("\ndevice 0   does not open: {error}\n"),
    };
    text += &format!(
        "\ntimeouts   {} s to come together, {} s in a collective\n",
        settings.connect_timeout.as_secs_f64(),
        settings.timeout.as_secs_f64()
    );
    for (index, (name, value)) in variables.iter().enumerate() {
        let title = if index == 0 {
            "\nvariables "
        } else {
            "          "
        };
        text += &format!("{title} {name}={value}\n");
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Opens device 0 as a job of one rank and returns the name of its chip.
fn device(settings: &Settings) -> Result<Option<String>, String> {
    let alone = InProcess::new(1).remove(0);
    match Runtime::with_control(alone, 0, settings) {
        Ok(runtime) => Ok(runtime.chip()),
        Err(error) => Err(error.to_string()),
    }
}
