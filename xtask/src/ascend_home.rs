//! An Ascend toolkit folder around the library of this source tree: `hcom ascend-home` with a library built now.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::tools;

/// What `cargo build -p hcom-fake-so` makes.
pub(crate) const LIBRARY: &str = "libhcom_fake_so.so";

/// Builds the library and lays the folder out; an existing one is brought up to date.
pub(crate) fn run(dir: &Path) -> Result<()> {
    lay_out(dir, &library()?)
}

/// The optimised library, brought up to date.
pub(crate) fn library() -> Result<PathBuf> {
    tools::run(tools::cargo().args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "hcom-fake-so",
    ]))?;
    Ok(tools::target().join("release").join(LIBRARY))
}

fn lay_out(dir: &Path, library: &Path) -> Result<()> {
    let mut command = tools::cargo();
    command
        .args(["run", "--quiet", "--package", "hcom", "--", "ascend-home"])
        .arg(std::path::absolute(dir)?)
        .env("HCOM_LIBRARY_PATH", library);
    tools::run(&mut command)
}

/// Puts headers, `library` and the list of names into `dir`, for a package that lays the folder out on the user's
/// machine: packages have no links, no empty folders, and no paths of the machine that made them.
pub(crate) fn pack(dir: &Path, library: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    lay_out(dir, library)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(dir.join("lib64"))? {
        let entry = entry?;
        if entry.file_type()?.is_symlink() {
            names.push(entry.file_name().to_string_lossy().into_owned());
            fs::remove_file(entry.path())?;
        }
    }
    names.sort();
    fs::write(dir.join("sonames.txt"), names.join("\n") + "\n")?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() && fs::read_dir(&path)?.next().is_none() {
            fs::remove_dir(&path)?;
        } else if path.ends_with("set_env.sh") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
