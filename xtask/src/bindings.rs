//! The C ABI bindings, generated from our headers.

/// Writes the bindings, or compares them with the committed file.
pub(crate) fn run(_check: bool) -> anyhow::Result<()> {
    anyhow::bail!("the bindings are not generated yet")
}
