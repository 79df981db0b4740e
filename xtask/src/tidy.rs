//! The rules of the source tree that no compiler checks.
//!
//! Every rule is a function from text (or cargo's metadata) to findings, and each has a test that makes it fail.

use std::fmt;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tools;

mod arrows;
mod text;
mod unsafety;

/// One broken rule.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    /// Path from the root, with `:line` where there is one.
    place: String,
    /// What is wrong and what to do.
    message: String,
}

impl Finding {
    fn file(file: &File, message: impl Into<String>) -> Finding {
        Finding {
            place: file.path.clone(),
            message: message.into(),
        }
    }

    /// `line` counts from 1.
    fn line(file: &File, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            place: format!("{}:{line}", file.path),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A text file of the repository.
pub(crate) struct File {
    /// Path from the root, with forward slashes.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_generated(&self) -> bool {
        self.path == "hcom-sys/src/bindings.rs"
    }
}

/// Checks the whole tree and prints every finding.
pub(crate) fn run() -> Result<()> {
    let files = files()?;
    let mut findings: Vec<Finding> = files
        .iter()
        .flat_map(|file| text::check(file).into_iter().chain(unsafety::check(file)))
        .collect();
    findings.extend(text::readme(&files));
    let metadata = tools::capture(tools::cargo().args([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    let metadata = serde_json::from_str(&metadata).context("cargo metadata printed no JSON")?;
    findings.extend(arrows::check(&metadata));
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("tidy: {count} finding(s) in {} files", files.len()),
    }
}

/// Every text file that is committed or would be: tracked, or new and not ignored.
fn files() -> Result<Vec<File>> {
    let listed = tools::capture(
        Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(tools::root()),
    )?;
    let mut files = Vec::new();
    for path in listed.split_terminator('\0') {
        // A file deleted but not yet committed is listed and absent; a binary file is no text.
        let Ok(bytes) = std::fs::read(tools::root().join(path)) else {
            continue;
        };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(files)
}
