//! PyTorch with Huawei's torch_npu, both unmodified from PyPI, on the CPU library: collectives through
//! `init_process_group("hccl")` on 2 and 4 ranks, every value checked (`hcom-sys/fake-so/tests/collectives.py`).
//!
//! PyPI's torch for x86-64 is built for CUDA. Its libraries want some gigabytes of others, which are never called here
//! but must resolve: one small library stands in for all of them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{ascend_home, tools};

/// What is installed, without dependencies. The versions of torch and torch_npu belong together.
const PACKAGES: [&str; 12] = [
    "torch==2.9.0",
    "torch_npu==2.9.0.post9",
    "filelock>=3.20",
    "fsspec>=2025.9",
    "jinja2>=3.1",
    "markupsafe>=3.0",
    "mpmath==1.3.0",
    "networkx>=3.4",
    "numpy>=2.2,<3",
    "pyyaml>=6.0",
    "sympy>=1.14",
    "typing-extensions>=4.15",
];
/// The two CUDA libraries that torch calls when it looks for GPUs; without one they say that there is none.
const CUDA: [&str; 2] = [
    "nvidia-cuda-runtime-cu12==12.8.90",
    "nvidia-cuda-cupti-cu12==12.8.90",
];
/// Seconds that a rank waits for the others; they import torch one after the other on a small machine.
const TIMEOUT: &str = "300";

/// The `torch-npu` step.
pub(crate) fn run() -> Result<()> {
    let python = environment()?;
    let library = ascend_home::library()?;
    for ranks in ["2", "4"] {
        let mut launch = tools::cargo();
        launch
            .args(["run", "--quiet", "--package", "hcom", "--", "launch"])
            .args(["--fake", "--timeout", TIMEOUT, "--ranks", ranks, "--"])
            .arg(&python)
            .arg(tools::root().join("hcom-sys/fake-so/tests/collectives.py"))
            .env("HCOM_LIBRARY_PATH", &library);
        tools::run(&mut launch)?;
    }
    Ok(())
}

/// A Python with torch and torch_npu, under `target`; what is complete is kept.
fn environment() -> Result<PathBuf> {
    let folder = tools::target().join("torch-npu");
    let python = folder.join("bin/python3");
    let installed = folder.join("installed");
    let cuda: &[&str] = if cfg!(target_arch = "x86_64") {
        &CUDA
    } else {
        &[]
    };
    let packages: Vec<&str> = [&PACKAGES[..], cuda].concat();
    let wanted = packages.join("\n");
    if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return Ok(python);
    }
    tools::venv(&folder)?;
    let mut install = tools::pip_of(&python);
    install
        .args(["install", "--quiet", "--no-deps"])
        .args(&packages);
    tools::run(&mut install)?;
    let torch = tools::capture(Command::new(&python).args([
        "-c",
        "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])",
    ]))?;
    stand_in(&Path::new(torch.trim_end()).join("lib"))?;
    fs::write(&installed, wanted)?;
    Ok(python)
}

/// Puts a library beside torch's own that stands in for those that are missing there.
fn stand_in(libraries: &Path) -> Result<()> {
    let needs = Needs::of(libraries)?;
    let missing: Vec<&String> = needs
        .missing
        .iter()
        // The driver's library is opened by whoever wants a GPU, and its absence is what must be seen.
        .filter(|name| !name.starts_with("libcuda.so"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
    let (source, versions) = (scratch.path().join("all.c"), scratch.path().join("all.map"));
    fs::write(&source, needs.source())?;
    fs::write(&versions, needs.versions())?;
    let library = libraries.join("libnot_here.so");
    let mut compile = Command::new("gcc");
    compile
        .args(["-shared", "-fPIC", "-w", "-fno-builtin"])
        .arg("-Wl,-soname,libnot_here.so")
        .arg(format!("-Wl,--version-script,{}", versions.display()))
        .arg("-o")
        .arg(&library)
        .arg(&source);
    tools::run(&mut compile)?;
    for name in missing {
        let at = libraries.join(name);
        if fs::symlink_metadata(&at).is_ok() {
            fs::remove_file(&at)?;
        }
        symlink("libnot_here.so", at)?;
    }
    Ok(())
}

/// What a folder of libraries needs and this machine has not.
#[derive(Default)]
struct Needs {
    /// Files.
    missing: BTreeSet<String>,
    /// Functions, each with the version that is asked for, or an empty text.
    functions: BTreeSet<(String, String)>,
}

impl Needs {
    fn of(folder: &Path) -> Result<Needs> {
        let mut needs = Needs::default();
        let mut ours = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let is_library = path.extension().is_some_and(|extension| extension == "so");
            // A link is a stand-in of before.
            if is_library && !path.is_symlink() && !path.ends_with("libnot_here.so") {
                ours.push(path);
            }
        }
        let mut found: BTreeSet<PathBuf> = ours.iter().cloned().collect();
        for library in &ours {
            // The exit code only says whether something is missing.
            let listed = Command::new("ldd")
                .arg(library)
                .output()
                .context("cannot start ldd")?;
            for line in String::from_utf8_lossy(&listed.stdout).lines() {
                match line.trim().split_once(" => ") {
                    Some((name, "not found")) => _ = needs.missing.insert(name.to_owned()),
                    Some((_, place)) => {
                        found.extend(place.split_whitespace().next().map(PathBuf::from));
                    }
                    None => {}
                }
            }
        }
        found.retain(|path| path.is_file() && !path.ends_with("libnot_here.so"));
        let mut list = Command::new("nm");
        let here = tools::capture(list.args(["-D", "--defined-only"]).args(&found))?;
        let here: BTreeSet<&str> = here
            .lines()
            .filter_map(symbol)
            .map(|(_, name, _)| name)
            .collect();
        let mut list = Command::new("nm");
        let wanted = tools::capture(list.args(["-D", "--undefined-only"]).args(&ours))?;
        for (kind, name, version) in wanted.lines().filter_map(symbol) {
            // What the interpreter and the C library have is not listed.
            let others =
                name.trim_start_matches('_').starts_with("Py") || version.starts_with("GLIBC");
            if kind == "U" && !others && !here.contains(name) {
                needs
                    .functions
                    .insert((name.to_owned(), version.to_owned()));
            }
        }
        ensure!(
            needs.missing.is_empty() || !needs.functions.is_empty(),
            "nm lists no function of {:?}",
            needs.missing
        );
        Ok(needs)
    }

    /// Each function answers 1, which is an error code wherever one is expected; the one variable has some bytes.
    fn source(&self) -> String {
        let names: BTreeSet<&str> = self.functions.iter().map(|(name, _)| &**name).collect();
        names.iter().fold(String::new(), |mut text, name| {
            let _ = match *name {
                "nvshmem_selected_device_transport" => writeln!(text, "char {name}[64];"),
                _ => writeln!(text, "int {name}(void) {{ return 1; }}"),
            };
            text
        })
    }

    fn versions(&self) -> String {
        let versions: BTreeSet<&str> = self
            .functions
            .iter()
            .map(|(_, version)| &**version)
            .collect();
        let mut text = String::new();
        for version in versions.into_iter().filter(|version| !version.is_empty()) {
            let of_it = self.functions.iter().filter(|(_, other)| other == version);
            let names: Vec<&str> = of_it.map(|(name, _)| &**name).collect();
            let _ = writeln!(text, "{version} {{ global: {}; }};", names.join("; "));
        }
        text
    }
}

/// Kind, name and version of a symbol in a line of `nm -D`: `[address] kind name[@version]`.
fn symbol(line: &str) -> Option<(&str, &str, &str)> {
    let mut words = line.split_whitespace().rev();
    let (name, kind) = (words.next()?, words.next()?);
    let (name, version) = name.split_once('@').unwrap_or((name, ""));
    Some((kind, name, version.trim_start_matches('@')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_has_kind_name_and_version() {
        assert_eq!(
            symbol("                 U cublasCreate_v2@libcublas.so.12"),
            Some(("U", "cublasCreate_v2", "libcublas.so.12"))
        );
        assert_eq!(
            symbol("0000000000001139 T ncclSend"),
            Some(("T", "ncclSend", ""))
        );
        assert_eq!(
            symbol("00001139 T exp@@GLIBC_2.29"),
            Some(("T", "exp", "GLIBC_2.29"))
        );
        assert_eq!(symbol("libtorch.so:"), None);
    }

    #[test]
    fn what_libraries_need_is_defined_with_its_version() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let compile = |source: &str, arguments: &[&str]| {
            fs::write(dir.join("x.c"), source).unwrap();
            let mut gcc = Command::new("gcc");
            tools::run(
                gcc.current_dir(dir)
                    .args(["-shared", "-fPIC", "x.c"])
                    .args(arguments),
            )
            .unwrap();
        };
        fs::write(dir.join("v.map"), "GONE_1 { global: gone; };").unwrap();
        compile(
            "int gone(void) { return 0; }",
            &[
                "-Wl,-soname,libgone.so.1,--version-script,v.map",
                "-o",
                "libgone.so",
            ],
        );
        compile(
            "int gone(void); int here(void) { return gone(); }",
            &["-L.", "-lgone", "-o", "libhere.so"],
        );
        fs::remove_file(dir.join("libgone.so")).unwrap();
        let needs = Needs::of(dir).unwrap();
        assert_eq!(needs.missing, BTreeSet::from(["libgone.so.1".to_owned()]));
        assert_eq!(needs.source(), "int gone(void) { return 1; }\n");
        assert_eq!(needs.versions(), "GONE_1 { global: gone; };\n");
        stand_in(dir).unwrap();
        let resolved = tools::capture(
            Command::new("ldd")
                .arg(dir.join("libhere.so"))
                .env("LD_LIBRARY_PATH", dir),
        )
        .unwrap();
        assert!(!resolved.contains("not found"), "{resolved}");
    }
}
