//! The `hcom` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    hcom::cli::main()
}
