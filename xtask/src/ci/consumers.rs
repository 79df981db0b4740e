//! Packages every published crate and uses each from a project outside the workspace, as a stranger would.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tools;

/// A crate that would be published.
struct Package {
    name: String,
    version: String,
    /// Linked into Rust programs; a cdylib has no Rust consumer.
    is_library: bool,
}

/// The `packages` step.
pub(crate) fn run() -> Result<()> {
    let packages = published()?;
    let mut package = tools::cargo();
    // The consumers build what was packaged; cargo's own trial build would do the same once more.
    package.args([
        "package",
        "--quiet",
        "--locked",
        "--allow-dirty",
        "--no-verify",
    ]);
    for Package { name, .. } in &packages {
        package.args(["--package", name]);
    }
    tools::run(&mut package)?;

    let scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
    for Package { name, version, .. } in &packages {
        let archive = tools::target().join(format!("package/{name}-{version}.crate"));
        tools::run(
            std::process::Command::new("tar")
                .arg("xzf")
                .arg(&archive)
                .arg("-C")
                .arg(scratch.path()),
        )?;
    }
    for package in packages.iter().filter(|package| package.is_library) {
        consume(package, &packages, scratch.path())
            .with_context(|| format!("the consumer of {}", package.name))?;
        println!("{} serves a consumer", package.name);
    }
    command_alone(&packages, scratch.path())
        .context("the command without a shared object beside it")?;
    println!("hcom builds its shared object");
    Ok(())
}

/// What `cargo install hcom` leaves is a program without a shared object: it has one built from the packages.
fn command_alone(packages: &[Package], scratch: &Path) -> Result<()> {
    tools::run(tools::cargo().args(["build", "--quiet", "--locked", "--package", "hcom"]))?;
    let program = scratch.join("hcom");
    fs::copy(tools::target().join("debug/hcom"), &program)?;
    fs::create_dir_all(scratch.join(".cargo"))?;
    let patches = patches(packages.iter(), scratch);
    fs::write(scratch.join(".cargo/config.toml"), patches)?;
    let home = scratch.join("ascend");
    let mut lay_out = std::process::Command::new(program);
    lay_out
        .arg("ascend-home")
        .arg(&home)
        .env("XDG_CACHE_HOME", scratch.join("cache"))
        .env_remove("HCOM_LIBRARY_PATH");
    tools::run(&mut lay_out)?;
    let symbols = tools::capture(
        std::process::Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(home.join("lib64/libhccl.so")),
    )?;
    for name in ["aclrtMalloc", "HcclAllReduce", "aclnnMatmul", "aclAppLog"] {
        let exported = symbols
            .lines()
            .any(|line| line.ends_with(&format!(" T {name}")));
        ensure!(exported, "the library does not export {name}");
    }
    Ok(())
}

fn published() -> Result<Vec<Package>> {
    let metadata = tools::capture(tools::cargo().args([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    let metadata: Value =
        serde_json::from_str(&metadata).context("cargo metadata printed no JSON")?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    packages
        .iter()
        // `publish = false` is an empty list of registries.
        .filter(|package| package["publish"].is_null())
        .map(|package| {
            let text = |key: &str| Some(package[key].as_str()?.to_owned());
            let targets = package["targets"].as_array().context("no targets")?;
            Ok(Package {
                name: text("name").context("no name")?,
                version: text("version").context("no version")?,
                is_library: !targets
                    .iter()
                    .flat_map(|target| target["crate_types"].as_array().into_iter().flatten())
                    .any(|kind| kind == "cdylib"),
            })
        })
        .collect()
}

/// Builds and runs `xtask/consumers/NAME.rs` against the unpacked packages.
fn consume(package: &Package, packages: &[Package], unpacked: &Path) -> Result<()> {
    let source = tools::root().join(format!("xtask/consumers/{}.rs", package.name));
    let source = fs::read_to_string(&source).with_context(|| {
        format!(
            "{} must show a stranger's use of the crate",
            source.display()
        )
    })?;
    let project = unpacked.join(format!("consumer-{}", package.name));
    fs::create_dir_all(project.join("src"))?;
    fs::write(project.join("src/main.rs"), source)?;
    fs::write(
        project.join("Cargo.toml"),
        manifest(package, packages, unpacked),
    )?;
    // The versions that the gate has tested are the versions that the consumer gets.
    fs::copy(tools::root().join("Cargo.lock"), project.join("Cargo.lock"))?;
    let mut cargo = tools::cargo();
    cargo
        .current_dir(&project)
        .env("CARGO_TARGET_DIR", tools::target().join("consumers"))
        .args(["run", "--quiet"]);
    let printed = tools::capture(&mut cargo)?;
    ensure!(
        printed.trim_end().ends_with("ok"),
        "it printed {printed:?}, expected a last line `ok`"
    );
    Ok(())
}

fn manifest(package: &Package, packages: &[Package], unpacked: &Path) -> String {
    let siblings = packages
        .iter()
        .filter(|sibling| sibling.name != package.name);
    format!(
        "[package]\nname = \"consumer\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n{} = {{ path = {:?} }}\n\n{}",
        package.name,
        folder(package, unpacked),
        patches(siblings, unpacked)
    )
}

/// Puts packages in the place of those of the registry.
fn patches<'a>(packages: impl Iterator<Item = &'a Package>, unpacked: &Path) -> String {
    packages.fold("[patch.crates-io]\n".to_owned(), |text, package| {
        text + &format!(
            "{} = {{ path = {:?} }}\n",
            package.name,
            folder(package, unpacked)
        )
    })
}

fn folder(package: &Package, unpacked: &Path) -> PathBuf {
    unpacked.join(format!("{}-{}", package.name, package.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str) -> Package {
        Package {
            name: name.into(),
            version: "0.1.0".into(),
            is_library: true,
        }
    }

    #[test]
    fn the_consumer_takes_the_crate_and_its_siblings_from_the_packages() {
        let packages = [package("hcom-ir"), package("hcom-convert")];
        let text = manifest(&packages[1], &packages, Path::new("/p"));
        assert!(
            text.contains("[dependencies]\nhcom-convert = { path = \"/p/hcom-convert-0.1.0\" }\n")
        );
        assert!(text.ends_with("[patch.crates-io]\nhcom-ir = { path = \"/p/hcom-ir-0.1.0\" }\n"));
    }

    #[test]
    fn published_crates_are_found_and_the_others_left_out() {
        let names: Vec<String> = published().unwrap().into_iter().map(|p| p.name).collect();
        assert!(names.iter().any(|name| name == "hcom-ir"), "{names:?}");
        assert!(
            !names
                .iter()
                .any(|name| name == "xtask" || name == "hcom-test"),
            "{names:?}"
        );
    }
}
