//! A C program against the CPU library, linked as programs for real devices are.

mod common;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The CPU library as a file: the one in `HCOM_LIBRARY_PATH`, else built here.
fn library() -> PathBuf {
    if let Some(path) = std::env::var_os("HCOM_LIBRARY_PATH") {
        return PathBuf::from(path);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a workspace");
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(root);
    build.args([
        "build",
        "--package",
        "hcom-fake-so",
        "--message-format",
        "json",
    ]);
    let messages = common::run(&mut build);
    let file = messages
        .split('"')
        .find(|word| word.ends_with("/libhcom_fake_so.so"))
        .expect("cargo names the library");
    PathBuf::from(file)
}

/// Every name of a CANN release that the program links, in a folder of their own.
fn toolkit(dir: &Path) -> PathBuf {
    let lib64 = dir.join("lib64");
    std::fs::create_dir(&lib64).expect("a scratch folder");
    let library = library();
    for soname in ["libacl_rt.so", "libhccl.so"] {
        symlink(&library, lib64.join(soname)).expect("a link");
    }
    lib64
}

fn client(dir: &Path, lib64: &Path) -> PathBuf {
    let folder = lib64.display();
    common::compile(
        dir,
        "client",
        include_str!("c_client/client.c"),
        &[
            &format!("-L{folder}"),
            "-lhccl",
            "-lacl_rt",
            "-pthread",
            &format!("-Wl,-rpath,{folder}"),
            "-Wl,-z,now",
        ],
    )
}

/// Runs the client; a hang ends after a minute.
fn ranks(kind: &str, ranks: u32) {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let program = client(dir.path(), &toolkit(dir.path()));
    let mut command = Command::new("timeout");
    command
        .arg("60")
        .arg(program)
        .arg(kind)
        .arg(ranks.to_string());
    let mut lines: Vec<String> = common::run(&mut command)
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    let expected: Vec<String> = (0..ranks)
        .map(|r| format!("rank {r} of {ranks}: ok"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn thread_ranks_of_a_c_program_exchange_their_values() {
    ranks("threads", 2);
}

#[test]
fn process_ranks_of_a_c_program_exchange_their_values() {
    ranks("processes", 2);
    ranks("processes", 4);
}

#[test]
fn the_library_has_no_soname_and_needs_no_other_of_a_release() {
    let dynamic = common::run(Command::new("readelf").arg("--dynamic").arg(library()));
    assert!(dynamic.contains("NEEDED"), "{dynamic}");
    assert!(!dynamic.contains("SONAME"), "{dynamic}");
    for name in ["libascendcl", "libacl_rt", "libhccl", "libopapi"] {
        assert!(!dynamic.contains(name), "{dynamic}");
    }
}

#[test]
fn the_library_opens_by_path_and_has_a_function_of_every_part() {
    let library = hcom_sys::Library::open(library()).expect("it opens");
    for name in [
        "aclrtMalloc",
        "HcclCommInitRootInfo",
        "HcclAllReduce",
        "aclCreateTensor",
        "aclnnMatmulGetWorkspaceSize",
        "aclnnMatmul",
        "hcomExtGetLink",
    ] {
        assert!(library.has(name), "{name}");
    }
    let error = library
        .aclrtLaunchKernel()
        .expect_err("there are no kernels");
    assert_eq!(error.symbol, "aclrtLaunchKernel");
    assert_eq!(error.tried.len(), 1, "{error}");
}
