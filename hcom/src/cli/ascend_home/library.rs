//! Where the CPU library is as a shared object, and how it comes to be where it is not.
//!
//! `cargo install` installs programs only, so an installed command has no shared object beside it: it has cargo build
//! one, of the same version, and keeps it in the user's cache.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::{BadInput, create, put};

/// The file's name, wherever it is.
pub(super) const LIBRARY: &str = "libhcom_fake_so.so";

/// What the library is built from: it exports what its one dependency has.
const MANIFEST: &str = concat!(
    "[package]\nname = \"hcom-library\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n",
    "[lib]\npath = \"lib.rs\"\ncrate-type = [\"cdylib\"]\n\n",
    "[dependencies]\nhcom-fake-so = \"=",
    env!("CARGO_PKG_VERSION"),
    "\"\n\n[workspace]\n"
);
const SOURCE: &str = "extern crate hcom_fake_so;\n";
const BUILT: &str = "libhcom_library.so";

/// The library; built when it is nowhere.
///
/// # Errors
/// It is nowhere and cannot be built.
pub(super) fn find() -> anyhow::Result<PathBuf> {
    let kept = cache()?.join(env!("CARGO_PKG_VERSION")).join(LIBRARY);
    let mut places = Vec::new();
    if let Some(named) = env::var_os(hcom_sys::LIBRARY_PATH_VARIABLE).map(PathBuf::from) {
        places.extend([named.join(LIBRARY)]);
        places.extend(named.ends_with(LIBRARY).then_some(named));
    }
    // The file itself, where this program was started through a link.
    let program = env::current_exe().and_then(fs::canonicalize)?;
    for folder in ["", "../lib"] {
        places.extend(program.parent().map(|bin| bin.join(folder).join(LIBRARY)));
    }
    places.push(kept.clone());
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Ok(fs::canonicalize(found)?);
    }
    build(&kept).map(|()| kept)
}

/// Where this user's programs keep what can be made again.
///
/// # Errors
/// The environment names no folder.
pub(super) fn cache() -> anyhow::Result<PathBuf> {
    let folder = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    folder("XDG_CACHE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("hcom"))
        .ok_or_else(|| {
            BadInput::new("there is no folder for the CPU library")
                .expected("XDG_CACHE_HOME or HOME to be an absolute path")
                .into()
        })
}

/// Has cargo build the library from the packages of this version.
fn build(kept: &Path) -> anyhow::Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let folder = kept.with_file_name(format!("build-{}", std::process::id()));
    eprintln!(
        "building {} once, from hcom-fake-so {}",
        kept.display(),
        env!("CARGO_PKG_VERSION")
    );
    create(&folder)?;
    let built = build_in(&folder, cargo);
    let placed = built.and_then(|bytes| put(kept, &bytes));
    // What is left there helps nobody.
    let _ = fs::remove_dir_all(&folder);
    placed
}

fn build_in(folder: &Path, cargo: OsString) -> anyhow::Result<Vec<u8>> {
    put(&folder.join("Cargo.toml"), MANIFEST.as_bytes())?;
    put(&folder.join("lib.rs"), SOURCE.as_bytes())?;
    let target = folder.join("target");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--target-dir"])
        .arg(&target)
        .current_dir(folder);
    let status = command.status().map_err(|error| {
        BadInput::new(format!(
            "{LIBRARY} is not installed, and cargo, which can build it, does not start: {error}"
        ))
        .help("install Rust (https://rustup.rs), or set HCOM_LIBRARY_PATH to the library")
    })?;
    ensure!(
        status.success(),
        "cargo could not build {LIBRARY} ({status})"
    );
    let built = target.join("release").join(BUILT);
    fs::read(&built).with_context(|| format!("cargo left no {}", built.display()))
}
