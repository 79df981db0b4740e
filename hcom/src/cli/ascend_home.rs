//! `hcom ascend-home`: an Ascend toolkit folder around the CPU library, for programs that expect one.
//!
//! `include/` has our headers and `lib64/` every name that a CANN release ships, all links to one library without
//! SONAME, so that a program linked against `lib64/libhccl.so` asks for that name. `opp/`, `runtime/` and `compiler/`
//! are empty: programs ask whether they exist.

mod library;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;

use super::{BadInput, print, print_json};
use library::LIBRARY;

/// Lay out an Ascend toolkit folder (include/, lib64/) around the CPU library.
///
/// Programs for Ascend NPUs are compiled and linked against it and run on it, unmodified.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom ascend-home ~/ascend\n  source ~/ascend/set_env.sh\n  g++ -I ~/ascend/include prog.cpp -L ~/ascend/lib64 -lhccl -lascendcl -o prog\n  hcom launch --fake -n 4 -- ./prog\n\nAn existing folder of this command is brought up to date.\nThe library is libhcom_fake_so.so: from HCOM_LIBRARY_PATH (the file or its folder), else beside this program, else in\n../lib from there, else built once by cargo and kept under ~/.cache/hcom."
)]
pub(super) struct Arguments {
    /// Folder to create.
    dir: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// Names of the shared objects of CANN, of old and new layouts, and those that torch_npu needs.
const SONAMES: [&str; 26] = [
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
    "libge_runner.so",
    "libgraph.so",
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

/// Folders of a toolkit in which there is nothing here.
const EMPTY: [&str; 3] = ["compiler", "opp", "runtime"];

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let dir = std::path::absolute(&arguments.dir)?;
    refuse_searched_folder(&dir)?;
    let home = Home::lay_out(dir, &library::find()?, Keep::Copy)?;
    let script = home.dir.join(SCRIPT);
    if arguments.json {
        let variables = home.variables().map(|(name, value)| {
            let value = value.to_string_lossy().into_owned();
            (name.to_owned(), value.into())
        });
        print_json(&json!({
            "home": home.dir.display().to_string(),
            "set_env": script.display().to_string(),
            "variables": variables.into_iter().collect::<serde_json::Map<_, _>>(),
        }))?;
    } else {
        print(&format!("source {}\n", script.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails for a folder that cargo puts on the path of the programs it runs: the names would be taken for the real ones.
fn refuse_searched_folder(dir: &Path) -> anyhow::Result<()> {
    let cargo_made = |folder: &Path| folder.join(".cargo-lock").exists();
    match dir.ancestors().find(|folder| cargo_made(folder)) {
        None => Ok(()),
        Some(folder) => Err(BadInput::new(format!(
            "{} lies in cargo's output {}",
            dir.display(),
            folder.display()
        ))
        .help("name a folder elsewhere")
        .into()),
    }
}

/// Whether a folder has the library itself or a link to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Copy,
    Link,
}

/// Sets the variables of [`Home::variables`] in a shell.
const SCRIPT: &str = "set_env.sh";

/// A folder that is laid out.
pub(super) struct Home {
    dir: PathBuf,
}

impl Home {
    /// The folder that `hcom launch --fake` uses, below the user's cache; brought up to date.
    ///
    /// # Errors
    /// No library and no way to build one, no cache folder, or one that cannot be written.
    pub(super) fn cached() -> anyhow::Result<Home> {
        let library = library::find()?;
        let dir = library::cache()?.join("ascend").join(key(&library));
        Self::lay_out(dir, &library, Keep::Link)
    }

    /// Lays out `dir`. Files are replaced, not rewritten, and only where they differ: a running program keeps those
    /// that it mapped.
    fn lay_out(dir: PathBuf, library: &Path, keep: Keep) -> anyhow::Result<Home> {
        let lib64 = dir.join("lib64");
        let at = lib64.join(LIBRARY);
        let ours = fs::symlink_metadata(&at).is_ok();
        let is_empty = |dir: &Path| fs::read_dir(dir).is_ok_and(|mut all| all.next().is_none());
        if !ours && dir.exists() && !is_empty(&dir) {
            let message = format!("{} holds something else", dir.display());
            return Err(BadInput::new(message)
                .expected("a new or empty folder, or one that this command made")
                .into());
        }
        for folder in [&lib64]
            .into_iter()
            .cloned()
            .chain(EMPTY.map(|name| dir.join(name)))
        {
            create(&folder)?;
        }
        match keep {
            Keep::Link => link(library, &at)?,
            Keep::Copy => {
                let bytes = fs::read(library)
                    .with_context(|| format!("cannot read {}", library.display()))?;
                put(&at, &bytes)?;
            }
        }
        for soname in SONAMES {
            link(Path::new(LIBRARY), &lib64.join(soname))?;
        }
        for (path, text) in hcom_sys::headers() {
            let path = dir.join("include").join(path);
            create(path.parent().expect("below the folder"))?;
            put(&path, text)?;
        }
        let home = Home { dir };
        put(&home.dir.join(SCRIPT), home.script().as_bytes())?;
        Ok(home)
    }

    /// What a program needs in its environment to run on the folder.
    pub(super) fn variables(&self) -> [(&'static str, OsString); 5] {
        let lib64 = self.dir.join("lib64");
        let mut search = lib64.clone().into_os_string();
        if let Some(before) = std::env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty()) {
            search.push(":");
            search.push(before);
        }
        [
            ("ASCEND_HOME_PATH", self.dir.clone().into()),
            ("ASCEND_TOOLKIT_HOME", self.dir.clone().into()),
            ("ASCEND_OPP_PATH", self.dir.join("opp").into()),
            ("LD_LIBRARY_PATH", search),
            // Programs of hcom look here first.
            ("HCOM_LIBRARY_PATH", lib64.join(LIBRARY).into()),
        ]
    }

    fn script(&self) -> String {
        let mut text = "# Source this to compile against and run on the CPU library.\n".to_owned();
        for (name, value) in self.variables() {
            let value = match name {
                "LD_LIBRARY_PATH" => {
                    let lib64 = quoted(self.dir.join("lib64").as_os_str());
                    format!("{lib64}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}")
                }
                _ => quoted(&value),
            };
            text += &format!("export {name}={value}\n");
        }
        // Device addresses are none of the host's: a program that reads through one fails here as on a card.
        text + "export HCOM_FAKE_STRICT=${HCOM_FAKE_STRICT:-1}\n"
    }
}

/// Text as one word of a shell.
fn quoted(text: &OsStr) -> String {
    format!("'{}'", text.to_string_lossy().replace('\'', r"'\''"))
}

/// One name per library, so that two of them never share a folder.
fn key(library: &Path) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn create(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// Makes `at` a link to `to`.
fn link(to: &Path, at: &Path) -> anyhow::Result<()> {
    if fs::read_link(at).is_ok_and(|now| now == to) {
        return Ok(());
    }
    replace(at, |fresh| symlink(to, fresh))
}

/// Makes `at` a file of these bytes.
fn put(at: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let is_file = fs::symlink_metadata(at).is_ok_and(|now| now.is_file());
    if is_file && fs::read(at).is_ok_and(|now| now == bytes) {
        return Ok(());
    }
    replace(at, |fresh| fs::write(fresh, bytes))
}

/// Makes something beside `at` and moves it there.
fn replace(at: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> anyhow::Result<()> {
    let mut fresh = at.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    make(&fresh)
        .and_then(|()| fs::rename(&fresh, at))
        .with_context(|| format!("cannot write {}", at.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_holds_headers_and_one_library_under_every_name() {
        let scratch = tempfile::tempdir().unwrap();
        let library = scratch.path().join("built.so");
        for keep in [Keep::Copy, Keep::Link] {
            let dir = scratch.path().join(format!("it's {}", keep == Keep::Copy));
            fs::write(&library, "one").unwrap();
            Home::lay_out(dir.clone(), &library, keep).unwrap();
            fs::write(&library, "two").unwrap();
            let home = Home::lay_out(dir.clone(), &library, keep).unwrap();
            for soname in SONAMES {
                let at = dir.join("lib64").join(soname);
                assert_eq!(fs::read_to_string(&at).unwrap(), "two");
            }
            assert!(dir.join("include/hccl/hccl.h").is_file());
            assert!(EMPTY.iter().all(|name| dir.join(name).is_dir()));
            let mut shell = std::process::Command::new("sh");
            shell.args([
                "-c",
                r#". "$0"; echo "$ASCEND_OPP_PATH"; echo "$LD_LIBRARY_PATH""#,
            ]);
            shell
                .arg(dir.join(SCRIPT))
                .env("LD_LIBRARY_PATH", "/before");
            let said = String::from_utf8(shell.output().unwrap().stdout).unwrap();
            let [opp, search] = ["opp", "lib64"].map(|name| home.dir.join(name));
            let expected = format!("{}\n{}:/before\n", opp.display(), search.display());
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().join("lib64/libhccl.so");
        fs::create_dir_all(real.parent().unwrap()).unwrap();
        fs::write(&real, "real").unwrap();
        let error = Home::lay_out(scratch.path().into(), Path::new("built.so"), Keep::Link)
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("holds something else"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&real).unwrap(), "real");
    }

    #[test]
    fn a_folder_of_cargo_s_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("target/debug");
        fs::create_dir_all(&target).unwrap();
        fs::write(target.join(".cargo-lock"), "").unwrap();
        assert!(refuse_searched_folder(&target.join("deps/x")).is_err());
        assert!(refuse_searched_folder(&scratch.path().join("target/ascend")).is_ok());
    }
}
