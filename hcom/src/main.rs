//! The `hcom` command.
fn main() {}
