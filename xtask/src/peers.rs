//! `cargo xtask peers`: the MPI libraries that `hcom bench --peer mpi` compares with.
//!
//! Open MPI comes from the system's packages, Intel MPI from PyPI into `target/peers/intel-mpi`. What is there already
//! is kept.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::tools::{self, Missing};

/// Installs what is missing, and says what is there.
pub(crate) fn run() -> Result<()> {
    if !tools::answers("mpirun.openmpi", &["--version"])
        || !tools::answers("mpicc.openmpi", &["--version"])
    {
        open_mpi()?;
    }
    let version = tools::capture(Command::new("mpirun.openmpi").arg("--version"))?;
    let version = version.lines().next().unwrap_or_default();
    println!("openmpi    {version} (system packages)");

    let folder = tools::target().join("peers/intel-mpi");
    if !folder.join("bin/mpicc").is_file() {
        intel_mpi(&folder)?;
    }
    let mut pip = tools::pip_of(&folder.join("bin/python3"));
    let listed = tools::capture(pip.args(["list", "--format=freeze"]))?;
    let package = listed
        .lines()
        .find(|line| line.starts_with("impi-rt") || line.starts_with("impi_rt"))
        .unwrap_or("impi of unknown version");
    println!("intel-mpi  {package} (PyPI, in {})", folder.display());
    Ok(())
}

fn open_mpi() -> Result<()> {
    if !tools::answers("apt-get", &["--version"]) {
        return Err(Missing::new(
            "mpirun.openmpi",
            "install Open MPI with its compiler wrapper (Debian, Ubuntu: apt install openmpi-bin libopenmpi-dev; elsewhere, \
             link mpirun and mpicc of Open MPI under the names mpirun.openmpi and mpicc.openmpi)",
        )
        .into());
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(arguments);
        tools::run(&mut command)
    };
    apt(&["update", "-q"])?;
    apt(&[
        "install",
        "-y",
        "-q",
        "--no-install-recommends",
        "openmpi-bin",
        "libopenmpi-dev",
    ])
}

fn intel_mpi(folder: &Path) -> Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let python = tools::venv(folder)?;
    tools::run(tools::pip_of(&python).args(["install", "--quiet", "impi-devel"]))
}
