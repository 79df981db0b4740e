//! The Python package: its wheel, and its tests in an environment of their own.
//!
//! The environments lie outside of the checkout, under the user's cache folder, and are kept: torch is
//! large. Each is named after the torch that it holds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{ascend_home, tools};

/// The torch that every change is tested with.
const TORCH: &str = "2.15.0";
/// The oldest torch that works, tested by `ci --full`.
const OLDEST_TORCH: &str = "2.9.0";

/// Arguments of `wheel`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build without optimisation, as the gate does.
    #[arg(long)]
    debug: bool,
    /// Folder that receives the wheel; `wheels` in cargo's target folder without.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Builds the wheel and prints its path.
pub(crate) fn run(args: &Args) -> Result<()> {
    let out = match &args.out {
        Some(out) => std::path::absolute(out)?,
        None => tools::target().join("wheels"),
    };
    let wheel = build(&out, !args.debug)?;
    println!("{}", wheel.display());
    Ok(())
}

/// Builds the wheel into an empty folder of its own below `out`.
fn build(out: &Path, release: bool) -> Result<PathBuf> {
    let profile = if release { "release" } else { "debug" };
    let mut library = tools::cargo();
    library.args(["build", "--quiet", "--package", "hcom-fake-so", "--locked"]);
    if release {
        library.arg("--release");
    }
    tools::run(&mut library)?;
    let package = tools::root().join("hcom-py");
    ascend_home::pack(
        &package.join("python/hcom_torch/_ascend"),
        &tools::target().join(profile).join(ascend_home::LIBRARY),
    )?;
    let python = environment("build", |python| {
        tools::run(tools::pip_of(python).args(["install", "--quiet", "maturin>=1.9,<2"]))
    })?;
    let folder = out.join(profile);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut maturin = Command::new(python);
    maturin
        .args(["-m", "maturin", "build", "--quiet", "--locked", "--out"])
        .arg(&folder)
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .current_dir(tools::root());
    if release {
        maturin.arg("--release");
    }
    tools::run(&mut maturin)?;
    let built = fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "whl"));
    built.with_context(|| format!("maturin left no wheel in {}", folder.display()))
}

/// Installs the wheel beside torch and runs pytest on 2 ranks.
pub(crate) fn test() -> Result<()> {
    test_with(&for_tests()?, TORCH, &[])
}

/// The slow tests too, and all of it again beside the oldest torch.
pub(crate) fn test_full() -> Result<()> {
    let wheel = for_tests()?;
    test_with(&wheel, TORCH, &["--full"])?;
    test_with(&wheel, OLDEST_TORCH, &[])
}

fn for_tests() -> Result<PathBuf> {
    build(&tools::target().join("wheels"), false)
}

fn test_with(wheel: &Path, torch: &str, arguments: &[&str]) -> Result<()> {
    let package = tools::root().join("hcom-py");
    let python = environment(&format!("torch-{torch}"), |python| {
        let mut install = Command::new(python);
        install.arg(package.join("tools/torch_cpu.py")).arg(torch);
        tools::run(&mut install)?;
        tools::run(tools::pip_of(python).args(["install", "--quiet", "pytest>=8"]))
    })?;
    let mut install = tools::pip_of(&python);
    install.args(["install", "--quiet", "--no-deps", "--force-reinstall"]);
    tools::run(install.arg(wheel))?;
    let mut pytest = Command::new(&python);
    pytest
        .args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"])
        .args(arguments)
        .current_dir(&package)
        // Compiled code is kept too: most of the time goes into the C++ compiler.
        .env("TORCHINDUCTOR_CACHE_DIR", cache()?.join("inductor"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("HCOM_LIBRARY_PATH")
        .env_remove("ASCEND_HOME_PATH");
    tools::run(&mut pytest)
}

/// The Python of the environment `name`, which is made by `fill` when it is not there. One that was not
/// filled completely is made again.
fn environment(name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = cache()?.join(name);
    let (python, complete) = (folder.join("bin/python"), folder.join("complete"));
    if complete.exists() {
        return Ok(python);
    }
    tools::require_python()?;
    println!("making {} (once)", folder.display());
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    tools::run(&mut make)?;
    fill(&python)?;
    fs::write(&complete, "")?;
    Ok(python)
}

/// Where things lie that outlive a checkout: `HCOM_CACHE_DIR`, else `hcom` in the user's cache folder.
fn cache() -> Result<PathBuf> {
    let folder = std::env::var_os("HCOM_CACHE_DIR").map(PathBuf::from);
    let of_user = || {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        Some(cache.or_else(home)?.join("hcom"))
    };
    let folder = folder
        .or_else(of_user)
        .context("neither HCOM_CACHE_DIR nor HOME is set")?;
    ensure!(
        folder.is_absolute(),
        "{} is no absolute path",
        folder.display()
    );
    Ok(folder)
}
