//! Errors as Python exceptions.

use std::fmt;

use hcom_runtime::{Error, FailureKind};
use pyo3::{
    PyErr, create_exception,
    exceptions::{PyRuntimeError, PyValueError},
};

create_exception!(
    hcom_torch,
    CollectiveError,
    PyRuntimeError,
    "A collective failed on some rank of its group. Every later collective of the group fails alike."
);

/// A call that cannot be right.
pub(crate) fn invalid(reason: impl fmt::Display) -> PyErr {
    PyValueError::new_err(reason.to_string())
}

/// An error of the runtime, met in the call at the Python line `at`.
pub(crate) fn raise(error: &Error, at: &str) -> PyErr {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    let failure = match error {
        Error::Failure(failure) => Some(failure),
        _ => None,
    };
    if let Some(help) = failure.and_then(|failure| failure.help.as_deref()) {
        text = format!("{text}; {help}");
    }
    if !at.is_empty() {
        text = format!("{text}\n  this rank was at {at}");
    }
    match failure {
        None if error.is_bad_input() => PyValueError::new_err(text),
        Some(failure) if failure.kind == FailureKind::Usage => PyValueError::new_err(text),
        _ => CollectiveError::new_err(text),
    }
}
