//! Exports models of several ranks and decodes them with Python's protobuf, from the table of fields alone.

use std::process::Command;

use anyhow::{Context, Result};

use crate::tools;

/// Operators that must be among those exported.
const OPERATORS: [&str; 7] = [
    "HcomAllReduce",
    "HcomAllGather",
    "HcomReduceScatter",
    "HcomAllToAllV",
    "HcomBroadcast",
    "HcomSend",
    "HcomReceive",
];

/// The `exported-models` step.
pub(crate) fn run() -> Result<()> {
    let python = protobuf()?;
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let facts = tools::root().join("hcom-convert/tests/ge");
    let [mlp, collectives] = ["mlp", "collectives"].map(|name| folder.path().join(name));
    let export = |files: &[&str], into: &std::path::Path| {
        let mut command = tools::cargo();
        command.args(["run", "--quiet", "--locked", "--package", "hcom", "--"]);
        tools::run(command.arg("export").args(files).arg(into))
    };
    export(&["examples/mlp.hcom"], &mlp)?;
    let ranks = [
        "hcom-convert/tests/ge/collectives.r0.hcom",
        "hcom-convert/tests/ge/collectives.r1.hcom",
    ];
    export(&ranks, &collectives)?;
    for (dir, operators) in [(mlp, &OPERATORS[..1]), (collectives, &OPERATORS[..])] {
        let mut decode = Command::new("python3");
        decode
            .env("PYTHONPATH", &python)
            .arg(facts.join("decode.py"))
            .arg(facts.join("fields.tsv"))
            .arg(dir)
            .args(operators);
        tools::run(&mut decode)?;
    }
    Ok(())
}

/// The folder that holds Python's protobuf, fetched from PyPI on first use.
fn protobuf() -> Result<std::path::PathBuf> {
    let folder = tools::target().join("tools/protobuf");
    if !folder.join("google/protobuf").is_dir() {
        let mut pip = tools::pip()?;
        pip.args(["install", "--quiet", "--no-deps", "--target"])
            .arg(&folder)
            .arg("protobuf==6.33.0");
        tools::run(&mut pip)?;
    }
    Ok(folder)
}
