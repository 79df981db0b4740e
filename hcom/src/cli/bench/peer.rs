//! The same collective by an MPI library: a small program, compiled with that library's compiler and started by its
//! launcher.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hcom_ir::DType;
use serde::Deserialize;

use super::collective::{Mode, Operation};
use super::machine;
use crate::cli::bad_input::BadInput;

/// How long one size may take before the library counts as stuck.
const LIMIT: Duration = Duration::from_secs(120);

/// An MPI library with the compiled program.
struct Mpi {
    name: &'static str,
    launcher: PathBuf,
    program: PathBuf,
    /// Where it is installed, when that is no folder of the system.
    root: Option<PathBuf>,
}

/// The MPI libraries of this machine.
pub(super) struct Peers {
    found: Vec<Mpi>,
    /// The compiled programs; removed at the end.
    folder: PathBuf,
}

/// The fastest of the libraries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fastest {
    pub(super) name: &'static str,
    pub(super) us: f64,
}

/// What is measured.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) operation: Operation,
    pub(super) mode: Mode,
    pub(super) ranks: u32,
    pub(super) bytes: u64,
    pub(super) dtype: DType,
    pub(super) warmup: u64,
    pub(super) iterations: u64,
    pub(super) in_place: bool,
}

/// What the program prints.
#[derive(Deserialize)]
struct Printed {
    us: f64,
    wrong: u64,
}

impl Peers {
    /// Finds the MPI libraries and compiles the program for each.
    ///
    /// # Errors
    /// Bad input when there is none; what the compiler says.
    pub(super) fn find() -> Result<Peers> {
        let folder = std::env::temp_dir().join(format!("hcom-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let source = folder.join("peer.c");
        let mut peers = Peers {
            found: Vec::new(),
            folder,
        };
        fs::write(&source, include_str!("peer.c"))
            .with_context(|| format!("cannot write {}", source.display()))?;
        if let (Some(compiler), Some(launcher)) =
            (in_path("mpicc.openmpi"), in_path("mpirun.openmpi"))
        {
            peers.add("openmpi", &compiler, launcher, None)?;
        }
        if let Some(root) = intel_mpi() {
            let (compiler, launcher) = (root.join("bin/mpicc"), root.join("bin/mpirun"));
            peers.add("intel-mpi", &compiler, launcher, Some(root))?;
        }
        if peers.found.is_empty() {
            return Err(BadInput::new("no MPI library was found")
                .at("--peer mpi")
                .expected("mpicc.openmpi and mpirun.openmpi in PATH, or Intel MPI in target/peers/intel-mpi or $HCOM_PEERS/intel-mpi")
                .help("run: cargo xtask peers")
                .into());
        }
        Ok(peers)
    }

    fn add(
        &mut self,
        name: &'static str,
        compiler: &Path,
        launcher: PathBuf,
        root: Option<PathBuf>,
    ) -> Result<()> {
        let program = self.folder.join(name);
        let mut command = Command::new(compiler);
        surround(&mut command, root.as_deref());
        let output = command
            .args(["-O3", "-o"])
            .arg(&program)
            .arg(self.folder.join("peer.c"))
            .output()
            .with_context(|| format!("cannot start {}", compiler.display()))?;
        if !output.status.success() {
            bail!(
                "{} does not compile the program of {name}: {}",
                compiler.display(),
                String::from_utf8_lossy(&output.stderr).trim_end()
            );
        }
        self.found.push(Mpi {
            name,
            launcher,
            program,
            root,
        });
        Ok(())
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.found.iter().map(|mpi| mpi.name).collect()
    }

    /// Measures all and answers the fastest; `None` for a type that MPI does not have.
    ///
    /// # Errors
    /// A library that fails, takes too long, or computes something else.
    pub(super) fn fastest(&self, case: &Case) -> Result<Option<Fastest>> {
        if matches!(case.dtype, DType::F16 | DType::BF16) {
            return Ok(None);
        }
        let mut fastest: Option<Fastest> = None;
        for mpi in &self.found {
            let us = mpi.measure(case)?;
            if fastest.is_none_or(|best| us < best.us) {
                fastest = Some(Fastest { name: mpi.name, us });
            }
        }
        Ok(fastest)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // Left behind in the temporary folder at worst.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Mpi {
    fn measure(&self, case: &Case) -> Result<f64> {
        let mut command = Command::new(&self.launcher);
        surround(&mut command, self.root.as_deref());
        command.args(["-n", &case.ranks.to_string()]);
        let crowded = case.ranks as usize > machine::cores().len();
        if self.root.is_some() {
            command.env("I_MPI_PIN", "0");
            if crowded {
                command.env("I_MPI_THREAD_YIELD", "3");
            }
        } else {
            command
                .args(["--oversubscribe", "--bind-to", "none"])
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        }
        let child = command
            .arg(&self.program)
            .args([case.operation.name(), case.mode.name()])
            .arg(case.bytes.to_string())
            .arg(case.dtype.name())
            .args([case.warmup, case.iterations, u64::from(case.in_place)].map(|n| n.to_string()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.launcher.display()))?;
        let printed = self.finish(child)?;
        let line = printed.lines().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("{} printed {printed:?}", self.name))?;
        let printed: Printed = serde_json::from_str(line)?;
        if printed.wrong > 0 {
            bail!("{} computed {} wrong elements", self.name, printed.wrong);
        }
        Ok(printed.us)
    }

    fn finish(&self, mut child: Child) -> Result<String> {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begin.elapsed() > LIMIT {
                child.kill()?;
                child.wait()?;
                bail!("{} took longer than {} s", self.name, LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut out, mut errors) = (String::new(), String::new());
        if let Some(pipe) = &mut child.stdout {
            pipe.read_to_string(&mut out)?;
        }
        if let Some(pipe) = &mut child.stderr {
            pipe.read_to_string(&mut errors)?;
        }
        if !status.success() {
            bail!("{} failed ({status}): {}", self.name, errors.trim_end());
        }
        Ok(out)
    }
}

/// Lets an MPI outside the system's folders find its own parts.
fn surround(command: &mut Command, root: Option<&Path>) {
    let Some(root) = root else {
        return;
    };
    let mut path = vec![root.join("bin")];
    path.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    if let Ok(path) = std::env::join_paths(path) {
        command.env("PATH", path);
    }
    command
        .env("I_MPI_ROOT", root)
        .env("LD_LIBRARY_PATH", root.join("lib"));
}

fn in_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Where `cargo xtask peers` puts Intel MPI; `HCOM_PEERS` names another folder.
fn intel_mpi() -> Option<PathBuf> {
    let folders = match std::env::var_os("HCOM_PEERS") {
        Some(named) => vec![named.into()],
        // The command lies in target/release, its peers in target/peers.
        None => std::env::current_exe()
            .ok()
            .and_then(|exe| Some(exe.parent()?.parent()?.join("peers")))
            .into_iter()
            .chain([PathBuf::from("target/peers")])
            .collect(),
    };
    folders
        .into_iter()
        .map(|folder: PathBuf| folder.join("intel-mpi"))
        .find(|folder| folder.join("bin/mpicc").is_file())
}
