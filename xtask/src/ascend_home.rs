//! An Ascend toolkit folder around the CPU library, for programs that expect one: `include/` with our
//! headers, `lib64/` with every name a CANN release ships, all links to one library.
//!
//! The library has no SONAME, so a program linked against `lib64/libhccl.so` asks for that name. The
//! names exist nowhere but in such a folder: cargo puts its own output folders on the loader's path,
//! where a `libhccl.so` would be taken for the real one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::tools;

/// What `cargo build -p hcom-fake-so` makes.
pub(crate) const LIBRARY: &str = "libhcom_fake_so.so";

/// Names of the shared objects of CANN, of old and new layouts.
const SONAMES: [&str; 24] = [
    "libacl_mdl.so",
    "libacl_op_compiler.so",
    "libacl_op_executor.so",
    "libacl_rt.so",
    "libacl_tdt_channel.so",
    "libaclnn_fft.so",
    "libaclnn_math.so",
    "libaclnn_ops_infer.so",
    "libaclnn_ops_train.so",
    "libaclnn_rand.so",
    "libaclnn_sparse.so",
    "libascendcl.so",
    "libcust_opapi.so",
    "libhccl.so",
    "libhcomm.so",
    "libmsprofiler.so",
    "libnnopbase.so",
    "libopapi.so",
    "libopapi_cv.so",
    "libopapi_math.so",
    "libopapi_nn.so",
    "libopapi_transformer.so",
    "libprofapi.so",
    "libruntime.so",
];

/// Builds the library and lays the folder out; an existing one is brought up to date.
pub(crate) fn run(dir: &Path) -> Result<()> {
    let dir = std::path::absolute(dir)?;
    refuse_output_folders(&dir, &tools::target())?;
    let mut build = tools::cargo();
    build.args(["build", "--release", "--package", "hcom-fake-so"]);
    tools::run(&mut build)?;
    let library = tools::target().join("release").join(LIBRARY);
    lay_out(&dir, &tools::root().join("hcom-sys/include"), &library)?;
    println!("export ASCEND_HOME_PATH={}", dir.display());
    println!(
        "export LD_LIBRARY_PATH={}:$LD_LIBRARY_PATH",
        dir.join("lib64").display()
    );
    Ok(())
}

/// Puts headers, `library` and the list of names into `dir`, for a package that lays the folder out on
/// the user's machine.
pub(crate) fn pack(dir: &Path, library: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    let lib64 = dir.join("lib64");
    fs::create_dir_all(&lib64).with_context(|| format!("cannot create {}", lib64.display()))?;
    copy_tree(
        &tools::root().join("hcom-sys/include"),
        &dir.join("include"),
    )?;
    fs::copy(library, lib64.join(LIBRARY))
        .with_context(|| format!("cannot copy {}", library.display()))?;
    fs::write(dir.join("sonames.txt"), SONAMES.join("\n") + "\n")?;
    Ok(())
}

/// Fails for a folder that cargo or the loader would search.
fn refuse_output_folders(dir: &Path, target: &Path) -> Result<()> {
    let Ok(inside) = dir.strip_prefix(target) else {
        return Ok(());
    };
    let name = match inside.components().next() {
        Some(Component::Normal(name)) => name.to_string_lossy().into_owned(),
        _ => bail!(
            "{} is cargo's target folder; name a folder below it or elsewhere",
            dir.display()
        ),
    };
    ensure!(
        !["debug", "release", "deps", "build"].contains(&name.as_str())
            && !name.contains("-linux-"),
        "{} lies in cargo's output; name a folder elsewhere, for example {}",
        dir.display(),
        target.join("ascend").display()
    );
    Ok(())
}

fn lay_out(dir: &Path, include: &Path, library: &Path) -> Result<()> {
    let lib64 = dir.join("lib64");
    let ours = lib64.join(LIBRARY).exists();
    let empty = !dir.exists() || fs::read_dir(dir)?.next().is_none();
    ensure!(
        ours || empty,
        "{} holds something else; name a new folder",
        dir.display()
    );
    fs::create_dir_all(&lib64).with_context(|| format!("cannot create {}", lib64.display()))?;
    copy_tree(include, &dir.join("include"))?;
    // Replaced, not rewritten: a running program keeps the file that it mapped.
    let copy = lib64.join(LIBRARY);
    let fresh = lib64.join(format!("{LIBRARY}.new"));
    fs::copy(library, &fresh).with_context(|| format!("cannot copy {}", library.display()))?;
    fs::rename(&fresh, &copy)?;
    for soname in SONAMES {
        link(&copy, &lib64.join(soname))?;
    }
    Ok(())
}

/// Makes `at` a link to `to`.
fn link(to: &Path, at: &Path) -> Result<()> {
    if fs::symlink_metadata(at).is_ok() {
        fs::remove_file(at)?;
    }
    symlink(to, at).with_context(|| format!("cannot link {}", at.display()))
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let target: PathBuf = to.join(path.file_name().context("an entry has a name")?);
        if path.is_dir() {
            copy_tree(&path, &target)?;
        } else {
            fs::copy(&path, &target)
                .with_context(|| format!("cannot copy to {}", target.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_s_own_folders_are_refused() {
        let target = Path::new("/src/target");
        for bad in [
            "",
            "debug",
            "release/deps",
            "debug/ascend",
            "aarch64-unknown-linux-gnu/x",
        ] {
            assert!(
                refuse_output_folders(&target.join(bad), target).is_err(),
                "{bad}"
            );
        }
        for good in ["/src/target/ascend", "/opt/ascend", "/src/targets"] {
            assert!(
                refuse_output_folders(Path::new(good), target).is_ok(),
                "{good}"
            );
        }
    }

    #[test]
    fn a_folder_holds_headers_and_one_library_under_every_name() {
        let scratch = tempfile::tempdir().unwrap();
        let (include, library) = (
            scratch.path().join("headers"),
            scratch.path().join("built.so"),
        );
        fs::create_dir_all(include.join("acl")).unwrap();
        fs::write(include.join("acl/acl.h"), "/* acl */").unwrap();
        fs::write(&library, "one").unwrap();
        let dir = scratch.path().join("ascend");
        lay_out(&dir, &include, &library).unwrap();
        fs::write(&library, "two").unwrap();
        lay_out(&dir, &include, &library).unwrap();
        assert_eq!(
            fs::read_to_string(dir.join("include/acl/acl.h")).unwrap(),
            "/* acl */"
        );
        for soname in SONAMES {
            let at = dir.join("lib64").join(soname);
            assert_eq!(fs::read_link(&at).unwrap(), dir.join("lib64").join(LIBRARY));
            assert_eq!(fs::read_to_string(&at).unwrap(), "two");
        }
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().join("lib64/libhccl.so");
        fs::create_dir_all(real.parent().unwrap()).unwrap();
        fs::write(&real, "real").unwrap();
        let error =
            lay_out(scratch.path(), Path::new("include"), Path::new("built.so")).unwrap_err();
        assert!(
            error.to_string().contains("holds something else"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&real).unwrap(), "real");
    }
}
