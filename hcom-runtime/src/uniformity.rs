//! stand-in
/// Whether all ranks have the same graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uniformity {
    /// They do.
    Uniform,
    /// They do not.
    Pinned {
        /// Why.
        reason: String,
    },
}
