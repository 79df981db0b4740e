//! Runs the real command, bounded in time.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test binary compiles this module and uses a part of it"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The command with a clean environment, at the repository's root.
pub fn hcom(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hcom"));
    command.current_dir(root()).args(arguments);
    for outer in [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK_TABLE_FILE",
        "RANK_ID",
        "HCOM_TIMEOUT",
        "HCOM_CONNECT_TIMEOUT",
    ] {
        command.env_remove(outer);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What a finished command left.
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs to the end; a command that hangs is killed and fails the test.
#[track_caller]
pub fn finish(command: &mut Command) -> Done {
    wait(command.spawn().expect("the command starts"))
}

#[track_caller]
pub fn wait(mut child: Child) -> Done {
    // The pipes are emptied by threads, so that a command which prints much is not held up.
    fn drain(pipe: Option<impl std::io::Read + Send + 'static>) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                pipe.read_to_end(&mut bytes).expect("a pipe can be read");
            }
            String::from_utf8(bytes).expect("the command prints UTF-8")
        })
    }
    let out = drain(child.stdout.take());
    let err = drain(child.stderr.take());
    let end = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().expect("the command can be waited for") {
            Some(status) => break Some(status),
            None if Instant::now() >= end => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let (out, err) = (out.join().expect("no panic"), err.join().expect("no panic"));
    let status = status.unwrap_or_else(|| panic!("the command hangs; it printed\n{out}\n{err}"));
    Done {
        code: status.code(),
        out,
        err,
    }
}

/// A file in a fresh folder that goes away with the value.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("the file can be written");
        path.display().to_string()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
