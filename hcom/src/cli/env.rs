//! `hcom env`: what this machine offers and which settings are in effect.

#[cfg(feature = "fake")]
mod abi;

use std::process::ExitCode;

use hcom_runtime::{InProcess, Runtime, Settings};
use hcom_sys::{FUNCTIONS, Library};
use serde_json::{Value, json};

use super::{print, print_json, settings};

/// Show the library found and where, its version, the devices, and the timeouts in effect.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom env\n  HCOM_LIBRARY_PATH=/opt/ascend/lib64 hcom env --json\n  hcom env --abi\n\nThe library is looked for in HCOM_LIBRARY_PATH (a file or a folder), then $ASCEND_HOME_PATH/lib64; where neither is\nset, the CPU implementation inside this program serves."
)]
pub(super) struct Arguments {
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
    /// Print how many of the functions that real programs use the library has, and list the rest.
    #[cfg(feature = "fake")]
    #[arg(long)]
    pub(super) abi: bool,
}

/// Variables that the command and the libraries read.
const VARIABLES: [&str; 24] = [
    "HCOM_LIBRARY_PATH",
    "ASCEND_HOME_PATH",
    "HCOM_TIMEOUT",
    "HCOM_CONNECT_TIMEOUT",
    "HCOM_CAPTURES",
    "HCOM_RECORD_DIR",
    "HCOM_RECORD_ENTRIES",
    "HCOM_FAKE_SOC",
    "HCOM_FAKE_DEVICES",
    "HCOM_FAKE_MEMORY",
    "HCOM_FAKE_STREAMS",
    "HCOM_FAKE_EVENTS",
    "HCOM_FAKE_STRICT",
    "HCOM_FAKE_PORTABLE",
    "HCOM_FAKE_LINK",
    "HCOM_FAKE_FAULT",
    "HCCL_CONNECT_TIMEOUT",
    "HCCL_EXEC_TIMEOUT",
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
    #[cfg(feature = "fake")]
    if arguments.abi {
        let report = abi::report(&library);
        if arguments.json {
            print_json(&report.json())?;
        } else {
            print(&report.text())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let found = match library.path() {
        Some(path) => path.display().to_string(),
        None => "inside this program".to_owned(),
    };
    let table = library.table();
    let present = FUNCTIONS
        .iter()
        .filter(|function| library.has(function.name))
        .count();
    let device = Device::open(&settings);
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
            "devices": match &device {
                Ok(device) => json!({"count": device.count, "chip": device.chip, "interface": device.interface, "error": null}),
                Err(error) => json!({"count": null, "chip": null, "interface": null, "error": error}),
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
        Ok(device) => format!(
            "           interface {}\n\ndevices    {} of {}\n",
            device
                .interface
                .as_deref()
                .unwrap_or("of a version that the library does not name"),
            device.count,
            device
                .chip
                .as_deref()
                .unwrap_or("a chip that the library does not name"),
        ),
        Err(error) => format!("\ndevices    device 0 does not open: {error}\n"),
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

/// What the library says about its devices.
struct Device {
    count: u32,
    chip: Option<String>,
    interface: Option<String>,
}

impl Device {
    /// Opens device 0 as a job of one rank.
    fn open(settings: &Settings) -> Result<Device, String> {
        let text = |error: hcom_runtime::Error| error.to_string();
        let alone = InProcess::new(1).remove(0);
        let runtime = Runtime::with_control(alone, 0, settings).map_err(text)?;
        Ok(Device {
            count: runtime.device_count().map_err(text)?,
            chip: runtime.chip(),
            interface: runtime
                .interface_version()
                .map(|[major, minor, patch]| format!("{major}.{minor}.{patch}")),
        })
    }
}
