//! Programs of others on the CPU library: `hcom ascend-home` and `hcom launch --fake`.

#![cfg(feature = "fake")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{Folder, finish, hcom};

/// The CPU library as a file: the one in `HCOM_LIBRARY_PATH`, else built here.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("HCOM_LIBRARY_PATH") {
            return path.into();
        }
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(common::root());
        build.args([
            "build",
            "--quiet",
            "--package",
            "hcom-fake-so",
            "--message-format",
            "json",
        ]);
        let built = build.output().expect("cargo starts");
        let messages = String::from_utf8_lossy(&built.stdout).into_owned();
        let file = messages
            .split('"')
            .find(|word| word.ends_with("/libhcom_fake_so.so"));
        file.unwrap_or_else(|| panic!("cargo names no library: {built:?}"))
            .into()
    })
}

/// `hcom` with a cache of its own.
fn with_library(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = hcom(arguments);
    command
        .env("HCOM_LIBRARY_PATH", library())
        .env("XDG_CACHE_HOME", folder.path("cache"))
        .env_remove("HCOM_FAKE_STRICT")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("ASCEND_HOME_PATH");
    command
}

#[test]
fn a_laid_out_folder_compiles_links_and_runs_a_program() {
    let folder = Folder::new();
    let home = folder.path("ascend").display().to_string();
    let done = finish(&mut with_library(
        &folder,
        &["ascend-home", &home, "--json"],
    ));
    assert_eq!(done.code, Some(0), "{}", done.err);
    let told: serde_json::Value = serde_json::from_str(&done.out).expect("one object");
    assert_eq!(told["variables"]["ASCEND_HOME_PATH"], home);
    let source = folder.file(
        "devices.c",
        "#include <stdio.h>\n#include \"acl/acl.h\"\n#include \"hccl/hccl.h\"\n\
         int main(void) {\n    uint32_t devices = 0;\n    if (aclrtGetDeviceCount(&devices) != ACL_SUCCESS) return 1;\n\
         printf(\"%u devices, %s\\n\", devices, HcclGetErrorString(HCCL_SUCCESS) ? \"hccl\" : \"\");\n    return 0;\n}\n",
    );
    let program = folder.path("devices").display().to_string();
    let script = format!(
        ". {} && cc -Wall -Werror -I $ASCEND_HOME_PATH/include {source} -o {program} -L $ASCEND_HOME_PATH/lib64 -lhccl -lascendcl && {program} && echo strict $HCOM_FAKE_STRICT",
        told["set_env"].as_str().expect("a path")
    );
    let said = Command::new("sh")
        .args(["-c", &script])
        .env_remove("HCOM_FAKE_STRICT")
        .output();
    let said = said.expect("a shell");
    let text = String::from_utf8_lossy(&said.stdout);
    assert_eq!(
        text,
        "16 devices, hccl\nstrict 1\n",
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
}

#[test]
fn a_launched_program_finds_the_library_under_every_name() {
    let folder = Folder::new();
    let script = "test -d $ASCEND_OPP_PATH && test -f $ASCEND_HOME_PATH/include/acl/acl.h && \
                  ls ${LD_LIBRARY_PATH%%:*} | wc -l && echo strict $HCOM_FAKE_STRICT";
    let mut arguments = vec!["launch", "--fake", "-n", "2", "--", "sh", "-c", script];
    for _ in 0..2 {
        let done = finish(&mut with_library(&folder, &arguments));
        assert_eq!(done.code, Some(0), "{}", done.err);
        for rank in 0..2 {
            assert!(
                done.out.contains(&format!("[rank {rank}] 27\n")),
                "{}",
                done.out
            );
            assert!(
                done.out.contains(&format!("[rank {rank}] strict 1\n")),
                "{}",
                done.out
            );
        }
    }
    arguments.retain(|argument| *argument != "--fake");
    let done = finish(&mut with_library(&folder, &arguments));
    assert_ne!(
        done.code,
        Some(0),
        "nothing is set without --fake: {}",
        done.out
    );
}

#[test]
fn a_folder_of_something_else_ends_with_2() {
    let folder = Folder::new();
    folder.file("thesis.tex", "years of work");
    let path = folder.path("").display().to_string();
    let done = finish(&mut with_library(&folder, &["ascend-home", &path]));
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(done.err.contains("holds something else"), "{}", done.err);
}

/// A program of `programs/`, compiled as C11 or C++11 against a laid-out folder.
struct Programs {
    folder: Folder,
    home: PathBuf,
}

impl Programs {
    fn new() -> Self {
        let folder = Folder::new();
        let home = folder.path("ascend");
        let path = home.display().to_string();
        let done = finish(&mut with_library(&folder, &["ascend-home", &path]));
        assert_eq!(done.code, Some(0), "{}", done.err);
        Self { folder, home }
    }

    fn compile(&self, language: &str, name: &str, arguments: &[&str]) -> String {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let program = self.folder.path(name).display().to_string();
        let mut compiler = match language {
            "c11" => Command::new("cc"),
            _ => Command::new("c++"),
        };
        if language != "c11" {
            compiler.args(["-x", "c++"]);
        }
        compiler
            .arg(format!("-std={language}"))
            .args(["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .arg("-I")
            .arg(self.home.join("include"))
            .arg(source.join(name).with_extension("c"))
            .args(["-o", &program, "-L"])
            .arg(self.home.join("lib64"))
            .args(arguments);
        let done = compiler.output().expect("a compiler");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        program
    }

    /// Runs a program on some ranks; every one must say `says`.
    #[track_caller]
    fn run(&self, ranks: u32, program: &[&str], says: &str) {
        let count = ranks.to_string();
        let mut arguments = vec!["launch", "--fake", "-n", &count, "--"];
        arguments.extend(program);
        let done = finish(&mut with_library(&self.folder, &arguments));
        assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
        for rank in 0..ranks {
            let line = format!("[rank {rank}] {says}\n");
            assert!(done.out.contains(&line), "{}{}", done.out, done.err);
        }
    }
}

const LANGUAGES: [&str; 2] = ["c11", "c++11"];

#[test]
fn every_operation_takes_every_type_and_reduction_that_the_chip_documents() {
    let programs = Programs::new();
    for language in LANGUAGES {
        let sweep = programs.compile(language, "sweep", &["-lhccl", "-lascendcl"]);
        programs.run(2, &[&sweep], "295 checked, 317 refused");
        let by_name = programs.compile(language, "sweep", &["-DBY_NAME", "-lascendcl", "-ldl"]);
        programs.run(2, &[&by_name], "295 checked, 317 refused");
    }
    let sweep = programs.compile("c11", "sweep", &["-lhccl", "-lacl_rt"]);
    programs.run(4, &[&sweep], "395 checked, 421 refused");
}

#[test]
fn captured_operators_and_collectives_replay_over_new_data() {
    let programs = Programs::new();
    let libraries = ["-lhccl", "-lascendcl", "-lnnopbase", "-lopapi"];
    for (language, ranks) in LANGUAGES.into_iter().zip([2, 4]) {
        let capture = programs.compile(language, "capture", &libraries);
        let folder = programs.folder.path("").display().to_string();
        programs.run(ranks, &[&capture, &folder], "captured and replayed");
        for rank in 0..ranks {
            let graph = programs.folder.path(&format!("graph{rank}.json"));
            let text = std::fs::read_to_string(graph).expect("the graph as JSON");
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
            assert!(text.contains("all_reduce"), "{text}");
        }
    }
}

#[test]
fn ranks_may_be_threads_of_one_process() {
    let programs = Programs::new();
    for language in LANGUAGES {
        let threads = programs.compile(language, "threads", &["-lhccl", "-lascendcl"]);
        programs.run(1, &[&threads], "all threads are right");
    }
}
