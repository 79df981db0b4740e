//! Errors of this crate.

use hcom_ir::Diagnostics;
use hcom_sys::Code;
use thiserror::Error;

use crate::{control::ControlError, failure::Failure, settings::SettingsError};

/// What can go wrong on one rank.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The job has failed: on this rank or on another one. Every later operation returns the same
    /// failure.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// An exchange between the ranks did not succeed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The rank could not take its place in the job.
    #[error(transparent)]
    Start(#[from] crate::startup::StartError),
    /// A variable of the environment holds something unusable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No device library was found.
    #[error(transparent)]
    Load(#[from] hcom_sys::LoadError),
    /// The device library lacks a function.
    #[error(transparent)]
    Missing(#[from] hcom_sys::MissingSymbol),
    /// A call into the device library failed.
    #[error("{source}{}", within(.node))]
    Call {
        /// The call and what the library says about it.
        source: hcom_sys::CallError,
        /// The node that was being prepared or executed, as in the graph text.
        node: Option<String>,
    },
    /// The watchdog thread could not be started.
    #[error("cannot start the watchdog thread")]
    Thread {
        /// Why.
        source: std::io::Error,
    },
    /// An operation that cannot be executed for these types.
    #[error("{op} of ({types}): {reason}")]
    Unsupported {
        /// Mnemonic of the operation.
        op: &'static str,
        /// Types of its operands.
        types: String,
        /// Why.
        reason: String,
    },
    /// The graph is not valid.
    #[error("the graph is not valid\n{0}")]
    Graph(#[from] Diagnostics),
    /// The graph has dimensions that are not known yet.
    #[error("graph {graph} has unbound dimensions {symbols}; bind them before it is compiled")]
    Unbound {
        /// Name of the graph.
        graph: String,
        /// The symbols.
        symbols: String,
    },
    /// A node communicates in a group that this rank is no member of.
    #[error("rank {rank} is no member of group {group} {ranks:?}, in which it runs `{node}`")]
    NotMember {
        /// The own global rank.
        rank: u32,
        /// Name of the group.
        group: String,
        /// Its global ranks.
        ranks: Vec<u32>,
        /// The node, printed.
        node: String,
    },
    /// A graph was called with the wrong number of inputs.
    #[error("graph {graph} takes {expected} inputs, got {got}")]
    InputCount {
        /// Name of the graph.
        graph: String,
        /// Number of its inputs.
        expected: usize,
        /// Number of arrays.
        got: usize,
    },
    /// An input has another type than the graph declares.
    #[error("input %{input} is {expected}, got {got}")]
    InputType {
        /// Name of the input.
        input: String,
        /// Its declared type.
        expected: String,
        /// The type of the array.
        got: String,
    },
    /// An input that the graph writes shares its memory with another input.
    #[error("input %{written} is written and shares its memory with input %{other}")]
    InputAlias {
        /// The input that is written.
        written: String,
        /// The other one.
        other: String,
    },
    /// The data of an array does not have the size its type asks for.
    #[error("{ty} holds {expected} bytes, got {got}")]
    DataSize {
        /// The type.
        ty: String,
        /// Bytes it holds.
        expected: u64,
        /// Bytes given.
        got: u64,
    },
    /// An array belongs to another runtime.
    #[error("an array of rank {owner} was given to the runtime of rank {rank}")]
    ForeignArray {
        /// Global rank that owns the array.
        owner: u32,
        /// Global rank it was given to.
        rank: u32,
    },
    /// There are as many captures as there may be.
    #[error(
        "graph {graph} needs a capture, and this rank has {limit} of at most {limit}; HCOM_CAPTURES \
         sets the limit"
    )]
    Captures {
        /// Name of the graph.
        graph: String,
        /// The limit.
        limit: usize,
    },
    /// The plan that was made breaks one of its own rules: a defect of this crate, found before
    /// anything was launched.
    #[error("the plan of graph {graph} is wrong: {violation}")]
    Plan {
        /// Name of the graph.
        graph: String,
        /// The broken rule.
        violation: crate::plan::check::Violation,
    },
}

impl Error {
    /// Whether the caller's input or surroundings are wrong (a command's exit code 2), rather than
    /// the job having failed.
    pub fn is_bad_input(&self) -> bool {
        !matches!(
            self,
            Error::Failure(_)
                | Error::Control(_)
                | Error::Call { .. }
                | Error::Thread { .. }
                | Error::Plan { .. }
        )
    }
}

fn within(node: &Option<String>) -> String {
    node.as_ref()
        .map_or_else(String::new, |node| format!(" in `{node}`"))
}

impl From<hcom_sys::CallError> for Error {
    fn from(source: hcom_sys::CallError) -> Error {
        Error::Call { source, node: None }
    }
}

impl Error {
    /// Whether the library says that not this rank's device failed but a peer's.
    pub(crate) fn is_of_a_peer(&self) -> bool {
        use hcom_sys::bindings::{ACL_ERROR_RT_SUSPECT_REMOTE_ERROR, HCCL_E_REMOTE};
        match self {
            Error::Call { source, .. } => match source.code {
                Code::Acl(code) => code == ACL_ERROR_RT_SUSPECT_REMOTE_ERROR,

                Code::Hccl(code) => code == HCCL_E_REMOTE,
                _ => false,
            },
            _ => false,
        }
    }

    /// Names the node during which a call failed, unless one is named already.
    pub(crate) fn at(mut self, printed: impl FnOnce() -> String) -> Error {
        if let Error::Call { node, .. } = &mut self
            && node.is_none()
        {
            *node = Some(printed());
        }
        self
    }
}
