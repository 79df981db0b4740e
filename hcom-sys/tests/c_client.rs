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

/// A folder as a CANN release lays it out: the headers, and every name that programs link.
fn toolkit(dir: &Path) -> PathBuf {
    let lib64 = dir.join("lib64");
    std::fs::create_dir(&lib64).expect("a scratch folder");
    symlink(common::include(), dir.join("include")).expect("a link");
    let library = library();
    for soname in ["libacl_rt.so", "libascendcl.so", "libhccl.so"] {
        symlink(&library, lib64.join(soname)).expect("a link");
    }
    dir.to_owned()
}

/// The client in a language, linked with the names of a release.
fn client(toolkit: &Path, language: &str, names: &[&str]) -> PathBuf {
    let source = toolkit.join(if language == "c11" {
        "client.c"
    } else {
        "client.cpp"
    });
    std::fs::write(&source, include_str!("c_client/client.c")).expect("the folder is writable");
    let lib64 = toolkit.join("lib64");
    let program = toolkit.join("client");
    let mut compiler = Command::new(if language == "c11" { "cc" } else { "c++" });
    compiler.args(["-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread"]);
    compiler.arg(format!("-std={language}"));
    compiler.arg("-I").arg(toolkit.join("include"));
    compiler.arg(source).arg("-o").arg(&program);
    compiler.arg("-L").arg(&lib64).args(names);
    compiler.arg(format!("-Wl,-rpath,{},-z,now", lib64.display()));
    common::run(&mut compiler);
    program
}

/// Runs the client; a hang ends after a minute.
fn ranks(kind: &str, ranks: u32) {
    let programs: [(&str, &[&str]); 2] = [
        ("c11", &["-lhccl", "-lacl_rt"]),
        ("c++11", &["-lascendcl", "-lhccl"]),
    ];
    for (language, names) in programs {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let program = client(&toolkit(dir.path()), language, names);
        check(&program, kind, ranks);
    }
}

fn check(program: &Path, kind: &str, ranks: u32) {
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
fn a_program_that_asks_for_a_missing_operator_is_told_its_name() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let toolkit = toolkit(dir.path());
    symlink(library(), toolkit.join("lib64/libopapi.so")).expect("a link");
    let source = "#include <stdio.h>\n#include \"acl/acl.h\"\n\
        int aclnnConvolutionGetWorkspaceSize(void *input, long stride);\n\
        int main(void) {\n\
            int code = aclnnConvolutionGetWorkspaceSize(NULL, 1);\n\
            printf(\"%d %s\", code, aclGetRecentErrMsg());\n\
            return 0;\n}\n";
    let folder = toolkit.join("lib64");
    let program = common::compile(
        dir.path(),
        "asks",
        source,
        &[
            &format!("-L{}", folder.display()),
            "-lopapi",
            "-lascendcl",
            &format!("-Wl,-rpath,{}", folder.display()),
        ],
    );
    let said = common::run(&mut Command::new(program));
    assert_eq!(
        said,
        "561003 aclnnConvolutionGetWorkspaceSize: this CPU library has no operator aclnnConvolution"
    );
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
