//! Collective communication inside the compute graph, for Ascend NPUs and for any Linux machine without one.
pub mod launch;
