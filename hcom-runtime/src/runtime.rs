//! The runtime of one rank.

use std::sync::Arc;

use hcom_ir::{Attrs, DType, Graph, Group, Op};

use crate::{Array, CompileOptions, Control, Error, Executable, Settings};

/// The runtime of one rank: a process, or a thread. Clones share it.
#[derive(Clone)]
pub struct Runtime {
    control: Arc<dyn Control>,
    settings: Settings,
}

impl Runtime {
    /// Takes the place in the job that the environment names, see [`World`](crate::World), on
    /// device `local_rank`. Without `RANK` the process is a world of one.
    pub fn start(settings: &Settings) -> Result<Runtime, Error> {
        let world = crate::World::from_env()?;
        let control = crate::connect(&world, settings)?;
        Runtime::with_control(control, world.local_rank, settings)
    }

    /// Takes a place whose control plane exists, on device `local_rank`.
    pub fn with_control(
        control: Arc<dyn Control>,
        local_rank: u32,
        settings: &Settings,
    ) -> Result<Runtime, Error> {
        let _ = local_rank;
        Ok(Runtime {
            control,
            settings: settings.clone(),
        })
    }

    /// The own global rank.
    pub fn rank(&self) -> u32 {
        self.control.rank()
    }

    /// Number of ranks in the job.
    pub fn world_size(&self) -> u32 {
        self.control.world_size()
    }

    /// Where the device library comes from: a path, or the name of a table inside the program.
    pub fn library(&self) -> &str {
        ""
    }

    /// The control plane.
    pub fn control(&self) -> &Arc<dyn Control> {
        &self.control
    }

    /// The settings it was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// An array with this content: little endian, row-major.
    pub fn array(&self, dtype: DType, shape: &[u64], bytes: &[u8]) -> Result<Array, Error> {
        let _ = (dtype, shape, bytes);
        Err(skeleton())
    }

    /// An array of unspecified content.
    pub fn empty(&self, dtype: DType, shape: &[u64]) -> Result<Array, Error> {
        let _ = (dtype, shape);
        Err(skeleton())
    }

    /// Makes a graph whose dimensions are all known ready to run. Every member of every group that
    /// the graph communicates in calls this at the same time.
    pub fn compile(&self, graph: &Graph, options: &CompileOptions) -> Result<Executable, Error> {
        let _ = (graph, options);
        Err(skeleton())
    }

    /// Executes one operation now; `group` is the one of a collective.
    pub fn eager(
        &self,
        op: Op,
        attrs: &Attrs,
        group: Option<&Group>,
        operands: &[&Array],
    ) -> Result<Vec<Array>, Error> {
        let _ = (op, attrs, group, operands);
        Err(skeleton())
    }

    /// Waits until everything that was issued has been executed.
    pub fn synchronize(&self) -> Result<(), Error> {
        Err(skeleton())
    }
}

fn skeleton() -> Error {
    Error::Unsupported {
        op: "runtime",
        types: String::new(),
        reason: "not there yet".into(),
    }
}
