//! Everything a developer runs: `cargo xtask …`.
fn main() {}
