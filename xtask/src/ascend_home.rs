//! An Ascend toolkit folder around the CPU library.

/// Lays the folder out.
pub(crate) fn run(_dir: &std::path::Path) -> anyhow::Result<()> {
    anyhow::bail!("the toolkit folder is not laid out yet")
}
