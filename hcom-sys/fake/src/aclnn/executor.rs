//! The two phases of an operator: a checked plan, then its launch on a stream.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use hcom_sys::bindings::{HCCL_REDUCE_SUM, HcclDataType};

use super::dtype::Type;
use super::layout::{Layout, MAX_RANK};
use super::object::{Registry, Scalar, TENSORS, Tensor};
use crate::comm::{self, Call, Kind};
use crate::error::{self, Failure, Outcome};
use crate::span::strided::Storage;
use crate::stream;

/// `ACLNN_ERR_PARAM_NULLPTR`: a required argument is null.
pub(crate) const NULL_ARGUMENT: i32 = 161_001;
/// `ACLNN_ERR_PARAM_INVALID`: an argument's type, shape or value does not fit.
pub(crate) const BAD_ARGUMENT: i32 = 161_002;
/// `ACLNN_ERR_INNER_NULLPTR`: the second phase got no usable executor.
pub(crate) const NO_EXECUTOR: i32 = 561_103;
/// `ACLNN_ERR_INNER`: what an operator is made of failed.
pub(crate) const INNER: i32 = 561_000;
/// `ACL_ERROR_RT_AICORE_EXCEPTION`: an operator failed on the device.
pub(crate) const DEVICE_EXCEPTION: i32 = 507_015;

/// Refuses `parameter`.
pub(crate) fn bad(
    parameter: impl fmt::Display,
    expected: impl fmt::Display,
    got: impl fmt::Display,
) -> Failure {
    Failure::new(
        BAD_ARGUMENT,
        format!("parameter {parameter}: expected {expected}, got {got}"),
    )
}

/// An argument that names an object, with the name of its parameter.
pub(crate) struct Arg<T> {
    pub(crate) name: &'static str,
    handle: usize,
    object: Option<Arc<T>>,
}

impl<T> Arg<T> {
    /// Looks the handle up; 0 is an absent argument.
    pub(crate) fn find(
        name: &'static str,
        handle: usize,
        registry: &Registry<T>,
    ) -> Outcome<Arg<T>> {
        let object = match handle {
            0 => None,
            _ => match registry.get(handle) {
                Some(object) => Some(object),
                None => {
                    let expected = format!("a live {}", registry.kind);
                    return Err(bad(name, expected, "a destroyed or foreign handle"));
                }
            },
        };
        Ok(Arg {
            name,
            handle,
            object,
        })
    }

    /// The object of a required parameter.
    pub(crate) fn get(&self) -> Result<&T, Failure> {
        self.object.as_deref().ok_or_else(|| {
            let text = format!(
                "parameter {}: expected an object, got a null pointer",
                self.name
            );
            Failure::new(NULL_ARGUMENT, text)
        })
    }

    /// The handle that was passed; 0 for an absent argument.
    pub(crate) fn handle(&self) -> usize {
        self.handle
    }

    /// The same argument once more, for an operator that reads and writes it.
    pub(crate) fn again(&self) -> Arg<T> {
        Arg {
            name: self.name,
            handle: self.handle,
            object: self.object.clone(),
        }
    }

    /// An argument that the operator sets itself.
    pub(crate) fn fixed(name: &'static str, object: T) -> Arg<T> {
        Arg {
            name,
            handle: 0,
            object: Some(Arc::new(object)),
        }
    }

    /// The object of an optional parameter.
    pub(crate) fn optional(&self) -> Option<&T> {
        self.object.as_deref()
    }
}

impl Arg<Tensor> {
    /// A tensor that the operator reads.
    pub(crate) fn input(&self) -> Outcome<Operand> {
        Operand::new(self.name.into(), self.get()?, Role::Input)
    }

    /// A tensor that the operator may read.
    pub(crate) fn optional_input(&self) -> Outcome<Option<Operand>> {
        self.optional()
            .map(|t| Operand::new(self.name.into(), t, Role::Input))
            .transpose()
    }

    /// A tensor that the operator writes.
    pub(crate) fn output(&self) -> Outcome<Operand> {
        Operand::new(self.name.into(), self.get()?, Role::Output)
    }

    /// A tensor that the operator writes if it is there.
    pub(crate) fn optional_output(&self) -> Outcome<Option<Operand>> {
        self.optional()
            .map(|t| Operand::new(self.name.into(), t, Role::Output))
            .transpose()
    }
}

impl Arg<Scalar> {
    /// A real number.
    pub(crate) fn real(&self) -> Outcome<f64> {
        let scalar = self.get()?;
        if scalar.dtype.is_complex() {
            return Err(bad(self.name, "a real number", scalar.dtype));
        }
        Ok(scalar.to_f64())
    }
}

impl Arg<Vec<usize>> {
    /// The tensors of a list, all of which the operator reads.
    pub(crate) fn inputs(&self) -> Outcome<Vec<Operand>> {
        (0..self.get()?.len())
            .map(|i| self.member(i, Role::Input))
            .collect()
    }

    /// The tensors of a list whose members may be null.
    pub(crate) fn optional_inputs(&self) -> Outcome<Vec<Option<Operand>>> {
        let members = self.get()?.iter().enumerate();
        members
            .map(|(i, &handle)| {
                (handle != 0)
                    .then(|| self.member(i, Role::Input))
                    .transpose()
            })
            .collect()
    }

    /// The tensors of a list, all of which the operator writes.
    pub(crate) fn outputs(&self) -> Outcome<Vec<Operand>> {
        (0..self.get()?.len())
            .map(|i| self.member(i, Role::Output))
            .collect()
    }

    fn member(&self, i: usize, role: Role) -> Outcome<Operand> {
        let name = format!("{}[{i}]", self.name);
        match TENSORS.get(self.get()?[i]) {
            Some(tensor) => Operand::new(name, &tensor, role),
            None => Err(bad(name, "a live aclTensor", "a destroyed one")),
        }
    }
}

/// What the operator does with an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Input,
    Output,
    /// Memory between the steps of an operator, which no parameter names.
    Workspace,
}

/// A checked tensor of an operator.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    /// Name of the parameter.
    pub(crate) name: String,
    pub(crate) dtype: Type,
    pub(crate) layout: Layout,
    role: Role,
    address: usize,
}

impl Operand {
    fn new(name: String, tensor: &Tensor, role: Role) -> Outcome<Operand> {
        let Some(dtype) = Type::from_acl(tensor.dtype) else {
            return Err(bad(
                name,
                "a supported data type",
                format_args!("aclDataType {}", tensor.dtype),
            ));
        };
        // Private formats permute elements inside blocks; NCHW, NHWC, ND, HWCN, NDHWC, NCDHW, NC and NCL only name axes.
        if !matches!(tensor.format, -1 | 0 | 1 | 2 | 16 | 27 | 30 | 35 | 47) {
            return Err(bad(
                name,
                "a format that only names axes",
                format_args!("aclFormat {}", tensor.format),
            ));
        }
        if tensor.dims.len() > MAX_RANK {
            return Err(bad(name, "at most 8 dimensions", tensor.dims.len()));
        }
        let sizes = tensor
            .dims
            .iter()
            .map(|&dim| usize::try_from(dim).ok())
            .collect();
        let Some(dims) = sizes else {
            return Err(bad(
                name,
                "sizes of at least 0",
                format_args!("{:?}", tensor.dims),
            ));
        };
        let strides = tensor
            .strides
            .iter()
            .map(|&stride| stride as isize)
            .collect();
        let layout = Layout {
            dims,
            strides,
            offset: tensor.offset as isize,
        };
        if role == Role::Output && layout.overlaps_itself() {
            let got = format!("strides {:?} for sizes {:?}", tensor.strides, tensor.dims);
            return Err(bad(name, "an output whose elements lie apart", got));
        }
        Ok(Operand {
            name,
            dtype,
            layout,
            role,
            address: tensor.address,
        })
    }

    /// Memory of the workspace for elements without gaps; a plan has at most one, which comes last.
    pub(crate) fn workspace(dtype: Type, dims: &[usize]) -> Operand {
        Operand {
            name: "workspace".into(),
            dtype,
            layout: Layout::contiguous(dims),
            role: Role::Workspace,
            address: 0,
        }
    }

    /// Sizes of the dimensions.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.layout.dims
    }

    /// Number of dimensions.
    pub(crate) fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// Refuses other types than these.
    pub(crate) fn expect_types(&self, types: &[Type]) -> Outcome {
        if types.contains(&self.dtype) {
            return Ok(());
        }
        let names: Vec<_> = types.iter().map(|ty| ty.name()).collect();
        Err(bad(
            &self.name,
            format_args!("data type {}", names.join(", ")),
            self.dtype,
        ))
    }

    /// Refuses an output that cannot hold a result of type `computed`.
    pub(crate) fn expect_holds(&self, computed: Type) -> Outcome {
        if computed.can_cast(self.dtype) {
            return Ok(());
        }
        Err(bad(
            &self.name,
            format_args!("a data type that {computed} casts to"),
            self.dtype,
        ))
    }

    /// Refuses other sizes than these.
    pub(crate) fn expect_dims(&self, dims: &[usize]) -> Outcome {
        if self.dims() == dims {
            return Ok(());
        }
        Err(bad(
            &self.name,
            format_args!("shape {dims:?}"),
            format_args!("{:?}", self.dims()),
        ))
    }

    /// Refuses other than one element in at most one dimension.
    pub(crate) fn expect_single(&self) -> Outcome {
        if matches!(self.dims(), [] | [1]) {
            return Ok(());
        }
        let expected = "a scalar or one element";
        Err(bad(
            &self.name,
            expected,
            format_args!("shape {:?}", self.dims()),
        ))
    }

    /// The layout repeated to `dims`, for an input that broadcasts.
    pub(crate) fn broadcast_to(&self, dims: &[usize]) -> Outcome<Layout> {
        self.layout.broadcast_to(dims).ok_or_else(|| {
            let expected = format!("a shape that broadcasts to {dims:?}");
            bad(&self.name, expected, format_args!("{:?}", self.dims()))
        })
    }

    /// The elements with dimension `dim` innermost, so that its rows follow each other. A tensor of rank 0 is one row.
    pub(crate) fn row_last(&self, parameter: &str, dim: i64) -> Outcome<Layout> {
        let axis = self.axis(parameter, dim)?;
        Ok(match self.rank() {
            0 => self.layout.insert_dim(0),
            _ => self.layout.move_to_end(axis),
        })
    }

    /// The dimension that `dim` names; negative ones count from the end. A tensor of rank 0 counts as rank 1.
    pub(crate) fn axis(&self, parameter: &str, dim: i64) -> Outcome<usize> {
        let rank = self.rank().max(1) as i64;
        if dim < -rank || dim >= rank {
            return Err(bad(
                parameter,
                format_args!("a dimension from {} to {}", -rank, rank - 1),
                dim,
            ));
        }
        Ok(dim.rem_euclid(rank) as usize)
    }
}

/// The work of an operator, given its operands in the order of the plan.
type Kernel = Arc<dyn Fn(&[Storage]) -> Outcome + Send + Sync>;

/// A collective between two computations, in place in the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) kind: Kind,
    /// Handle of the communicator.
    pub(crate) comm: usize,
    /// Bytes from the start of the workspace to what this rank sends; what it receives lies at the start.
    pub(crate) send: usize,
    pub(crate) count: u64,
    pub(crate) dtype: HcclDataType,
    /// Whether the ranks' data are summed.
    pub(crate) sums: bool,
}

impl Transfer {
    fn submit(&self, workspace: usize, stream: *mut c_void) -> Outcome {
        let place = |bytes| ptr::without_provenance_mut(workspace + bytes);
        let call = Call {
            send: place(self.send),
            recv: place(0),
            op: self.sums.then_some(HCCL_REDUCE_SUM),
            ..Call::new(self.kind, self.count, self.dtype)
        };
        comm::submit(ptr::without_provenance(self.comm), stream, &call)
            .map_err(|failure| Failure::new(INNER, failure.text))
    }
}

/// One task on the stream.
#[derive(Clone)]
enum Step {
    Compute(Kernel),
    Communicate(Transfer),
}

/// An operator whose arguments are checked: steps that follow each other on the stream.
#[derive(Clone)]
pub(crate) struct Plan {
    operands: Vec<Operand>,
    steps: Vec<Step>,
}

impl Plan {
    /// Work that cannot fail once its operands are there.
    pub(crate) fn new<const N: usize>(
        operands: [Operand; N],
        kernel: impl Fn(&[Storage; N]) + Send + Sync + 'static,
    ) -> Plan {
        Plan::fallible(operands, move |storages| {
            kernel(storages);
            Ok(())
        })
    }

    /// Work that may meet bad data.
    pub(crate) fn fallible<const N: usize>(
        operands: [Operand; N],
        kernel: impl Fn(&[Storage; N]) -> Outcome + Send + Sync + 'static,
    ) -> Plan {
        Plan::many(operands.into(), move |storages| {
            kernel(storages.try_into().expect("one storage per operand"))
        })
    }

    /// Work on any number of operands.
    pub(crate) fn many(
        operands: Vec<Operand>,
        kernel: impl Fn(&[Storage]) -> Outcome + Send + Sync + 'static,
    ) -> Plan {
        Plan {
            operands,
            steps: vec![Step::Compute(Arc::new(kernel))],
        }
    }

    /// A collective behind the steps so far.
    pub(crate) fn then_transfer(mut self, transfer: Transfer) -> Plan {
        self.steps.push(Step::Communicate(transfer));
        self
    }

    /// Work behind the steps so far.
    pub(crate) fn then_compute(
        mut self,
        kernel: impl Fn(&[Storage]) -> Outcome + Send + Sync + 'static,
    ) -> Plan {
        self.steps.push(Step::Compute(Arc::new(kernel)));
        self
    }

    /// Bytes of workspace that the plan needs.
    pub(crate) fn workspace_bytes(&self) -> usize {
        let last = self.operands.last();
        last.filter(|operand| operand.role == Role::Workspace)
            .map_or(0, |operand| operand.layout.len() * operand.dtype.bytes())
    }

    /// Takes the caller's workspace.
    fn use_workspace(&mut self, address: usize, bytes: u64) -> Outcome {
        let needed = self.workspace_bytes();
        if needed == 0 {
            return Ok(());
        }
        if address == 0 {
            let text = format!("parameter workspace: expected {needed} bytes, got a null pointer");
            return Err(Failure::new(NULL_ARGUMENT, text));
        }
        if bytes < needed as u64 {
            return Err(bad(
                "workspaceSize",
                format_args!("at least {needed}"),
                bytes,
            ));
        }
        if let Some(operand) = self.operands.last_mut() {
            operand.address = address;
        }
        Ok(())
    }

    fn run(&self, kernel: &Kernel) -> Outcome {
        let storages = self.operands.iter().map(|operand| {
            Storage::resolve(operand.address, operand.dtype, &operand.layout).map_err(|_| {
                let text = format!(
                    "parameter {}: {} elements of {} at {:#x} lie outside the device's memory",
                    operand.name,
                    operand.layout.len(),
                    operand.dtype,
                    operand.address
                );
                Failure::new(DEVICE_EXCEPTION, text)
            })
        });
        kernel(&storages.collect::<Result<Vec<_>, _>>()?)
    }
}

/// What the first phase hands to the second.
#[derive(Clone)]
pub(crate) struct Executor {
    name: &'static str,
    plan: Plan,
    repeatable: bool,
}

pub(crate) static EXECUTORS: Registry<Executor> = Registry::new("aclOpExecutor");

/// Which operands an index counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Inputs,
    Outputs,
    All,
}

impl Executor {
    /// Bytes of workspace that the second phase needs.
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.plan.workspace_bytes()
    }

    /// A single-use executor of operator `name`.
    pub(crate) fn new(name: &'static str, plan: Plan) -> Executor {
        Executor {
            name,
            plan,
            repeatable: false,
        }
    }

    /// Lets the second phase be called any number of times; the caller destroys the executor.
    pub(crate) fn make_repeatable(&mut self) {
        self.repeatable = true;
    }

    /// Gives operand number `index` of those that `which` selects, in the order of the parameters, another storage.
    /// False if there is no such operand.
    pub(crate) fn rebind(&mut self, which: Which, index: usize, address: usize) -> bool {
        let selected = |operand: &&mut Operand| match which {
            Which::Inputs => operand.role == Role::Input,
            Which::Outputs => operand.role == Role::Output,
            Which::All => operand.role != Role::Workspace,
        };
        match self.plan.operands.iter_mut().filter(selected).nth(index) {
            Some(operand) => {
                operand.address = address;
                true
            }
            None => false,
        }
    }
}

/// Second phase: queues the plan of the executor on the stream, and consumes the executor unless it is repeatable.
/// `name` is the operator that was called.
pub(crate) fn launch(
    name: &'static str,
    handle: usize,
    workspace: *mut c_void,
    workspace_bytes: u64,
    stream: *mut c_void,
) -> Outcome {
    let refuse = |text: String| Failure::new(NO_EXECUTOR, text);
    let executor = EXECUTORS.get(handle).ok_or_else(|| {
        refuse("parameter executor: expected one from the first phase, got a null pointer or a used one".into())
    })?;
    if executor.name != name {
        return Err(refuse(format!(
            "parameter executor: expected one of {name}, got one of {}",
            executor.name
        )));
    }
    let mut plan = executor.plan.clone();
    plan.use_workspace(workspace.addr(), workspace_bytes)?;
    if !executor.repeatable {
        EXECUTORS.remove(handle);
    }
    let plan = Arc::new(plan);
    for step in &plan.steps {
        match step {
            Step::Compute(kernel) => {
                let (plan, kernel) = (plan.clone(), kernel.clone());
                let code = stream::submit(stream, name, move || {
                    plan.run(&kernel).map_err(|failure| {
                        error::fail(failure.code, format!("{name}: {}", failure.text))
                    })
                });
                if code != 0 {
                    return Err(Failure::new(code, error::last().unwrap_or_default()));
                }
            }
            Step::Communicate(transfer) => transfer.submit(workspace.addr(), stream)?,
        }
    }
    Ok(())
}
