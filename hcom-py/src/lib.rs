//! The native half of `hcom_torch`, the `torch.compile` backend: the members of each process group meet
//! here, their collectives are checked, converted and issued, and results are lent to torch without a copy.
//!
//! The Python half, under `python/hcom_torch`, replaces the calls of `torch.distributed`, captures them
//! as operators, and schedules their start and their wait in the graph that Inductor compiles.
//!
//! | module | what it holds |
//! |---|---|
//! | `world` | the members of a group; starting a collective and waiting for it |
//! | `call` | a collective as the Python side writes it down |
//! | `torch` | memory of torch's tensors |
//! | `error` | errors as Python exceptions |
//!
//! Invariants: no thread of this crate ever needs the interpreter's lock; whoever waits gives it up and
//! looks after signals; memory that the device may still use is never written by the host.

use pyo3::prelude::*;

mod call;
mod error;
mod torch;
mod world;

/// The native module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<world::World>()?;
    module.add_class::<world::Listener>()?;
    module.add(
        "CollectiveError",
        module.py().get_type::<error::CollectiveError>(),
    )?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
