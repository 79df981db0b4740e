//! What can go wrong when a program runs, records or compiles.

use hcom_convert::ConvertError;
use hcom_ir::{DType, Diagnostic, Diagnostics, Type};

/// The error of every operation of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This thread is no rank yet.
    #[error("this thread is no rank yet; call `dist::init` first")]
    NotInitialized,
    /// The rank records for export only: it has no device.
    #[error("{operation} needs a device, and this rank was set up by `dist::init_abstract`")]
    NoDevice {
        /// What was asked for.
        operation: &'static str,
    },
    /// The tensor is a placeholder: it has a type, but no data.
    #[error("the placeholder {ty} has no data")]
    Placeholder {
        /// The tensor's type.
        ty: Box<Type>,
    },
    /// The tensor was recorded by a capture that is over, or by that of another thread.
    #[error(
        "the tensor {ty} belongs to a capture that has ended; return it from the compiled function to keep it"
    )]
    StaleHandle {
        /// The tensor's type.
        ty: Box<Type>,
    },
    /// A function that is being exported needs a value that exists only when the graph runs.
    #[error("a graph to be exported cannot break: {reason} at {location}")]
    Break {
        /// What needs the value.
        reason: &'static str,
        /// `file:line:column` of the call.
        location: String,
    },
    /// Calls were started, to be waited for later, in a recording that does not allow it.
    #[error(
        "the calls started at {location} cannot be recorded; make them without `dist::start`, as the graph overlaps them by itself, or set `Config::async_collectives`"
    )]
    Asynchronous {
        /// `file:line:column` of the call of `dist::start`.
        location: String,
    },
    /// A tensor is used while a started call may still write it.
    #[error("the tensor {ty} is in flight: {call}, started at {location}, writes it; `wait` first")]
    InFlight {
        /// The tensor's type.
        ty: Box<Type>,
        /// The call that writes it.
        call: &'static str,
        /// `file:line:column` of the call of `dist::start`.
        location: String,
    },
    /// `export` was called while a graph is being recorded.
    #[error("a graph is being recorded already")]
    Recording,
    /// A timeline was asked for of a function that has no graph for these arguments.
    #[error(
        "no graph to trace: the function must be one graph, and called with such arguments before"
    )]
    NoGraph,
    /// Data was asked for with another element type than the tensor has.
    #[error("the tensor holds {dtype}, not {asked}")]
    ElementType {
        /// The tensor's element type.
        dtype: DType,
        /// The type asked for.
        asked: DType,
    },
    /// One value was asked for from a tensor with another number of elements.
    #[error("{ty} holds {elements} elements, not one")]
    NotOneElement {
        /// The tensor's type.
        ty: Box<Type>,
        /// Its number of elements.
        elements: u64,
    },
    /// A tensor is written with a value of another type.
    #[error("cannot copy {source_type} into {target}")]
    CopyType {
        /// Type of the tensor to be written.
        target: Box<Type>,
        /// Type of the value.
        source_type: Box<Type>,
    },
    /// An argument of an operator is out of range.
    #[error("{operation}: {message}")]
    Argument {
        /// The operator.
        operation: &'static str,
        /// What was expected and what was got.
        message: String,
    },
    /// The ranks given do not form a group of this world.
    #[error("ranks {ranks:?} form no group of a world of {world_size}: {reason}")]
    Group {
        /// The ranks, as given.
        ranks: Vec<u32>,
        /// Number of ranks in the world.
        world_size: u32,
        /// What is wrong with them.
        reason: &'static str,
    },
    /// A foreign tensor cannot take part.
    #[error("foreign tensor of shape {shape:?} and strides {strides:?}: {reason}")]
    Foreign {
        /// Its sizes in elements.
        shape: Vec<u64>,
        /// Its strides in elements.
        strides: Vec<i64>,
        /// Why not.
        reason: &'static str,
    },
    /// A collective call cannot be right.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// The graph refused an operation.
    #[error(transparent)]
    Operation(Box<Diagnostic>),
    /// An operation has no form in what is exported.
    #[error(transparent)]
    Export(#[from] hcom_convert::ge::ExportError),
    /// A file cannot be written or read.
    #[error("{}", path.display())]
    File {
        /// Where it is.
        path: std::path::PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A recorded graph is not valid.
    #[error(transparent)]
    Graph(#[from] Diagnostics),
    /// Compiling or running failed.
    #[error(transparent)]
    Runtime(#[from] hcom_runtime::Error),
}

impl Error {
    /// Whether the caller's input or surroundings are wrong (a command's exit code 2), rather than
    /// the job having failed.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Error::Runtime(error) => error.is_bad_input(),
            _ => true,
        }
    }
}

impl From<hcom_runtime::SettingsError> for Error {
    fn from(error: hcom_runtime::SettingsError) -> Self {
        Error::Runtime(error.into())
    }
}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Self {
        Error::Operation(Box::new(diagnostic))
    }
}
