//! Communicators.

mod sync;
