//! The workspace's folders and the programs that the tasks call.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A program that the machine lacks, with what to install.
#[derive(Debug)]
pub(crate) struct Missing {
    program: &'static str,
    install: &'static str,
}

impl Missing {
    /// A program, and how to install it.
    pub(crate) fn new(program: &'static str, install: &'static str) -> Missing {
        Missing { program, install }
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is not installed: {}", self.program, self.install)
    }
}

impl std::error::Error for Missing {}

/// A program that answers `--version`, and what to install.
type Tool = (&'static str, &'static str);

const PYTHON: Tool = (
    "python3",
    "install it with your package manager (Debian, Ubuntu: apt install python3 python3-pip; Fedora, openEuler: dnf install python3 python3-pip)",
);
const CXX: Tool = (
    "c++",
    "install it with your package manager (Debian, Ubuntu: apt install g++; Fedora, openEuler: dnf install gcc-c++)",
);
/// Programs the gate calls.
const TOOLS: [Tool; 6] = [
    (
        "gcc",
        "install it with your package manager (Debian, Ubuntu: apt install gcc libc6-dev; Fedora, openEuler: dnf install gcc)",
    ),
    (
        "git",
        "install it with your package manager (apt install git, dnf install git)",
    ),
    CXX,
    PYTHON,
    ("cargo-fmt", "run: rustup component add rustfmt"),
    ("cargo-clippy", "run: rustup component add clippy"),
];

/// Fails with [`Missing`] for the first program of the gate that does not start.
pub(crate) fn require_all() -> Result<()> {
    TOOLS.into_iter().try_for_each(require)
}

/// Fails with [`Missing`] without Python 3.
pub(crate) fn require_python() -> Result<()> {
    require(PYTHON)
}

/// Fails with [`Missing`] unless the C++ compiler starts.
pub(crate) fn require_cxx() -> Result<()> {
    require(CXX)
}

fn require((program, install): Tool) -> Result<()> {
    match answers(program, &["--version"]) {
        true => Ok(()),
        false => Err(Missing { program, install }.into()),
    }
}

/// Whether the program starts and succeeds with these arguments.
pub(crate) fn answers(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies one folder below the root")
        .to_owned()
}

/// The folder that cargo builds into: `CARGO_TARGET_DIR`, else `target` in the root.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The cargo that runs this task, at the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// `python3 -m pip`, from a virtual environment under `target` where the system's Python has none.
pub(crate) fn pip() -> Result<Command> {
    let python = match answers("python3", &["-m", "pip", "--version"]) {
        true => PathBuf::from("python3"),
        false => venv(&target().join("tools/venv"))?,
    };
    Ok(pip_of(&python))
}

/// `python -m pip`.
pub(crate) fn pip_of(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "--disable-pip-version-check"]);
    command
}

/// The Python of a virtual environment with pip; made unless the folder is one.
pub(crate) fn venv(folder: &Path) -> Result<PathBuf> {
    require_python()?;
    let python = folder.join("bin/python3");
    if !python.exists() {
        let made = Command::new("python3")
            .args(["-m", "venv"])
            .arg(folder)
            .stdout(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            let install = "install it with your package manager (apt install python3-venv python3-pip, dnf install python3-pip)";
            return Err(Missing {
                program: "pip",
                install,
            }
            .into());
        }
    }
    Ok(python)
}

/// Runs the command to its end, its output going where ours goes; an error names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    ensure!(status.success(), "`{shown}` failed ({status})");
    Ok(())
}

/// Runs the command and returns what it printed; an error carries its error output.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    ensure!(
        output.status.success(),
        "`{shown}` failed ({}):\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed no UTF-8"))
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)))
        .map(|(name, value)| format!("{}={:?}", name.display(), value.display().to_string()));
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let arguments = command.get_args().map(|a| a.display().to_string());
    variables
        .chain([program.display().to_string()])
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_what_to_install() {
        let error = anyhow::Error::from(Missing {
            program: "gcc",
            install: "apt install gcc",
        });
        assert!(error.is::<Missing>());
        assert_eq!(error.to_string(), "gcc is not installed: apt install gcc");
        assert!(!answers("no-such-program-anywhere", &[]));
    }

    #[test]
    fn a_failing_command_is_shown_with_its_status() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c exit 3` failed (exit status: 3)");
    }
}
