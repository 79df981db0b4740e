//! Graphs in the form that Huawei's offline compiler `atc` reads.
//!
//! [`lower`] turns the graph of one rank into a [`Model`] of the Graph Engine's operators, which
//! prints as the bytes of a `.air` file ([`Model::to_air`]) and as text for people
//! ([`Model::to_pbtxt`]). [`Air::read`] reads such bytes back to an equal graph. [`relations`] and
//! [`numa`] are the two configuration files that a job of several ranks needs beside its models.
//!
//! | module | what is in it |
//! |---|---|
//! | `proto` | the messages |
//! | `draft` | a graph of the engine in the making: operators, edges, descriptors |
//! | `compute`, `comm` | which operators stand for which operation |
//! | `read` | from bytes to a graph |
//! | `text` | the text for people |
//! | `config` | the configuration files |
//!
//! What holds:
//! - The communication of a group is a chain of control edges in program order, and the end of each
//!   chain is a control input of the graph's end: nothing is reordered or pruned.
//! - Ranks of a group are group ranks. The name of a group follows from its ranks, so that it is the
//!   same on every rank and different for different groups.
//! - An operation without a form in the engine's vocabulary is an error that names it.
//! - What the engine has no words for (symbols, guards, names, groups) stands in attributes that
//!   begin with `_hcom_`.
//!
//! `atc` itself was never run on these models.

use std::collections::BTreeMap;

use hcom_ir::{Graph, Literal, Location};

mod comm;
mod compute;
mod config;
mod draft;
mod proto;
mod read;
mod text;

pub use config::{group_name, numa, relations};
pub use read::{Air, ReadError};

use draft::Draft;
use proto::ModelDef;

/// Where the data of a weight is.
#[derive(Clone, Debug, PartialEq)]
pub enum Weight {
    /// In the model.
    Inside(Literal),
    /// In a file of its own, by this path: dense, row-major, little endian.
    Beside(String),
}

/// How a graph is exported.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The rank whose graph it is, within the world.
    pub rank: u32,
    /// Number of ranks in the world.
    pub world_size: u32,
    /// Inputs, by position, that become part of the model.
    pub weights: BTreeMap<usize, Weight>,
}

/// A graph of the engine's operators.
#[derive(Clone, Debug, PartialEq)]
pub struct Model(ModelDef);

impl Model {
    /// The bytes of a `.air` file: one serialized `ModelDef`.
    pub fn to_air(&self) -> Vec<u8> {
        prost::Message::encode_to_vec(&self.0)
    }

    /// The model as text for people, one block per operator.
    pub fn to_pbtxt(&self) -> String {
        text::print(&self.0)
    }
}

/// Why a graph has no form in the engine's vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{node}`{} has no form in the Graph Engine's vocabulary: {reason}",
    .location.as_ref().map(|place| format!(" ({place})")).unwrap_or_default()
)]
pub struct ExportError {
    /// The node in text.
    pub node: String,
    /// Where the program calls it.
    pub location: Option<Location>,
    /// Why not, and what would do.
    pub reason: String,
}

/// Turns the graph of one rank into the engine's operators.
///
/// # Errors
/// The first operation that has no form there.
pub fn lower(graph: &Graph, options: &Options) -> Result<Model, ExportError> {
    let mut draft = Draft::new(graph, options);
    draft.inputs();
    for (id, node) in graph.nodes() {
        let lowered = if node.op.is_communication() {
            comm::lower(&mut draft, node)
        } else {
            compute::lower(&mut draft, node)
        };
        lowered.map_err(|reason| ExportError {
            node: graph.print_node(id),
            location: node.location.clone(),
            reason,
        })?;
    }
    Ok(Model(draft.finish()))
}

#[cfg(test)]
mod tests;
