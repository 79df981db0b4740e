//! Compiling C next to the tests, with the headers of this crate.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the headers.
pub(crate) fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// The C compiler with the headers in its path and all warnings fatal.
pub(crate) fn compiler() -> Command {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = cc::Build::new()
        .target(&target)
        .host(&target)
        .opt_level(0)
        .cargo_metadata(false)
        .get_compiler()
        .to_command();
    command.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]);
    command.arg("-I").arg(include());
    command
}

/// Writes and compiles a source file; `arguments` come after it.
pub(crate) fn compile(dir: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let file = dir.join(name).with_extension("c");
    std::fs::write(&file, source).expect("the scratch folder is writable");
    let output = dir.join(name);
    let mut command = compiler();
    command.arg("-o").arg(&output).arg(&file).args(arguments);
    run(&mut command);
    output
}

/// Runs to the end and returns what was printed; anything but success fails the test.
pub(crate) fn run(command: &mut Command) -> String {
    let done = command.output().expect("the program starts");
    assert!(
        done.status.success(),
        "{command:?}: {}\n{}{}",
        done.status,
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).expect("the program prints UTF-8")
}
