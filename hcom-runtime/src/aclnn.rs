//! Lowering: what the device executes for one operation of the graph.
//!
//! [`lower`] turns an operation with fixed types into a short list of [`Call`]s: operators of the
//! device library, plain copies, and collectives. It is pure; addresses are filled in later, so
//! that the plan and a single eager operation share it. Everything it yields is contiguous;
//! operands are read through strided views where that saves a copy.

use hcom_ir::{Attrs, DType, Op, Type};

use crate::error::Error;

mod collective;
mod matrix;
mod movement;
mod pointwise;
mod reduce;

pub(crate) use collective::{Collective, CollectiveKind, Combine};

/// Memory an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The memory of operand `n`.
    Operand(usize),
    /// The memory of result `n`.
    Result(usize),
    /// Temporary memory `n` of this operation; see [`Lowered::scratch`].
    Scratch(usize),
}

/// A strided view of a place. Sizes, strides and the offset count elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) place: Place,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) offset: i64,
}

impl View {
    /// A contiguous view from the beginning of `place`.
    pub(crate) fn contiguous(place: Place, dtype: DType, shape: impl Into<Vec<i64>>) -> View {
        let shape = shape.into();
        View {
            place,
            dtype,
            strides: strides(&shape),
            shape,
            offset: 0,
        }
    }

    pub(crate) fn elements(&self) -> i64 {
        self.shape.iter().product()
    }

    /// The same contiguous memory with another shape of as many elements.
    pub(crate) fn reshaped(&self, shape: impl Into<Vec<i64>>) -> View {
        debug_assert_eq!(
            self.strides,
            strides(&self.shape),
            "only contiguous views reshape"
        );
        let shape = shape.into();
        debug_assert_eq!(self.elements(), shape.iter().product::<i64>());
        View {
            strides: strides(&shape),
            shape,
            ..self.clone()
        }
    }

    /// The same memory read as another type of the same size.
    pub(crate) fn reread(&self, dtype: DType) -> View {
        debug_assert_eq!(self.dtype.bytes(), dtype.bytes());
        View {
            dtype,
            ..self.clone()
        }
    }

    /// Complex numbers as pairs of floats, along a dimension of their own; others as they are.
    pub(crate) fn parts(self) -> View {
        let part = match self.dtype {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            _ => return self,
        };
        debug_assert_eq!(self.offset, 0, "parts are counted from the beginning");
        let mut shape = self.shape;
        shape.push(2);
        View::contiguous(self.place, part, shape)
    }

    /// With the last two dimensions swapped.
    pub(crate) fn transposed(mut self) -> View {
        let rank = self.shape.len();
        self.shape.swap(rank - 2, rank - 1);
        self.strides.swap(rank - 2, rank - 1);
        self
    }

    /// Elements `start..start + size` of dimension `dim`.
    pub(crate) fn narrowed(mut self, dim: usize, start: i64, size: i64) -> View {
        self.offset += start * self.strides[dim];
        self.shape[dim] = size;
        self
    }
}

/// Row-major strides of `shape`, in elements.
pub(crate) fn strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim].max(1);
    }
    strides
}

/// A number for the device library, with the type it is stored as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    F32(f32),
    F64(f64),
    I64(i64),
    Bool(bool),
}

impl Scalar {
    /// `value` in the form that suits tensors of `dtype`.
    pub(crate) fn of(value: f64, dtype: DType) -> Scalar {
        match dtype {
            DType::F64 | DType::C128 => Scalar::F64(value),
            DType::Bool => Scalar::Bool(value != 0.0),
            dtype if dtype.is_integer() => Scalar::I64(value as i64),
            _ => Scalar::F32(value as f32),
        }
    }
}

/// An argument of an operator of the device library.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arg {
    Tensor(View),
    /// An optional tensor that is left out.
    NoTensor,
    Tensors(Vec<View>),
    Scalar(Scalar),
    Ints(Vec<i64>),
    Int(i64),
    /// A small code, such as the precision of a matrix multiplication.
    Code(i8),
    /// A code of 32 bits, such as the rounding of a quotient.
    Mode(i32),
    Flag(bool),
    Float(f64),
    DType(DType),
}

impl From<View> for Arg {
    fn from(view: View) -> Arg {
        Arg::Tensor(view)
    }
}

/// An operator of the device library, named without its `aclnn` prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kernel {
    Abs,
    Add,
    Amax,
    Arange,
    ArgMax,
    BitwiseAndTensor,
    BitwiseOrTensor,
    BitwiseXorTensor,
    Cast,
    Cat,
    ConstantPadNd,
    Div,
    DivMod,
    Embedding,
    EqTensor,
    Exp,
    Expand,
    Gather,
    GeluV2,
    GtTensor,
    InplaceCopy,
    InplaceFillScalar,
    LayerNorm,
    Log,
    LtTensor,
    Matmul,
    Maximum,
    Mean,
    Minimum,
    Mul,
    Muls,
    Neg,
    Permute,
    PowTensorTensor,
    ReduceSum,
    Relu,
    RmsNorm,
    Rsqrt,
    SWhere,
    Sigmoid,
    Silu,
    SliceV2,
    Softmax,
    Sqrt,
    Sub,
    Tanh,
    Tril,
    Triu,
}

/// One thing the device does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    /// An operator of the device library.
    Kernel { kernel: Kernel, args: Vec<Arg> },
    /// A copy of `bytes` bytes between the beginnings of two places; nothing when both are the
    /// same memory.
    Copy { from: Place, to: Place, bytes: u64 },
    /// A collective.
    Collective(Collective),
}

impl Call {
    pub(crate) fn kernel(kernel: Kernel, args: impl Into<Vec<Arg>>) -> Call {
        Call::Kernel {
            kernel,
            args: args.into(),
        }
    }
}

/// What the device executes for one operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lowered {
    /// In this order, on one stream.
    pub(crate) calls: Vec<Call>,
    /// Bytes of each temporary buffer.
    pub(crate) scratch: Vec<u64>,
    /// Whether result 0 may lie in the memory of operand 0.
    pub(crate) in_place: bool,
}

impl Lowered {
    /// Contiguous temporary memory.
    fn scratch(&mut self, dtype: DType, shape: impl Into<Vec<i64>>) -> View {
        let view = View::contiguous(Place::Scratch(self.scratch.len()), dtype, shape);
        self.scratch.push(view.elements() as u64 * dtype.bytes());
        view
    }

    fn push(&mut self, kernel: Kernel, args: impl Into<Vec<Arg>>) {
        self.calls.push(Call::kernel(kernel, args));
    }

    /// Sets every element of `view`.
    fn fill(&mut self, view: View, value: f64) {
        let scalar = Scalar::of(value, view.dtype);
        self.push(
            Kernel::InplaceFillScalar,
            [view.into(), Arg::Scalar(scalar)],
        );
    }
}

/// The own place in the group of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Rank within the group.
    pub(crate) rank: u32,
    /// Number of members.
    pub(crate) group_size: u32,
}

/// An operation with fixed types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    pub(crate) op: Op,
    pub(crate) attrs: &'a Attrs,
    pub(crate) operands: &'a [&'a Type],
    pub(crate) results: &'a [&'a Type],
    /// Present for communication.
    pub(crate) member: Option<Member>,
}

impl Site<'_> {
    fn operand(&self, index: usize) -> View {
        view(Place::Operand(index), self.operands[index])
    }

    fn result(&self, index: usize) -> View {
        view(Place::Result(index), self.results[index])
    }

    /// The bytes of operand 0.
    fn operand_bytes(&self) -> u64 {
        bytes(self.operands[0])
    }

    /// Dimension attribute `name`, counted from the front of a tensor of `rank` dimensions.
    fn dim(&self, name: &str, rank: usize) -> usize {
        let dim = self.attrs.int(name);
        let counted = if dim < 0 { dim + rank as i64 } else { dim };
        usize::try_from(counted).expect("the graph's type rules keep dimensions in range")
    }

    fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::Unsupported {
            op: self.op.name(),
            types: self
                .operands
                .iter()
                .map(|ty| ty.to_string())
                .collect::<Vec<_>>()
                .join(", "),
            reason: reason.into(),
        }
    }
}

/// Sizes of a type whose dimensions are known, which is so wherever a plan is made.
pub(crate) fn sizes(ty: &Type) -> Vec<i64> {
    ty.shape
        .dims()
        .iter()
        .map(|dim| {
            dim.as_fixed()
                .expect("plans are made of graphs with fixed sizes") as i64
        })
        .collect()
}

/// Bytes of a type whose dimensions are known.
pub(crate) fn bytes(ty: &Type) -> u64 {
    ty.bytes()
        .expect("plans are made of graphs with fixed sizes")
}

fn view(place: Place, ty: &Type) -> View {
    View::contiguous(place, ty.dtype, sizes(ty))
}

/// What the device executes for `site`.
///
/// # Errors
/// [`Error::Unsupported`] for an operation that no supported library offers. Combinations that one
/// particular library refuses are found when the calls are prepared.
pub(crate) fn lower(site: &Site<'_>) -> Result<Lowered, Error> {
    use Op::*;
    let mut to = Lowered::default();
    if !site.op.is_communication()
        && !site.results.is_empty()
        && site.results.iter().all(|ty| ty.elements() == Some(0))
    {
        return Ok(to);
    }
    match site.op {
        Neg | Abs | Exp | Log | Sqrt | Rsqrt | Tanh | Sigmoid | Relu | Gelu | Silu | Cast | Add
        | Sub | Mul | Div | Maximum | Minimum | Pow | BitAnd | BitOr | BitXor | Where | Equal
        | Less | Greater | BiasAdd | Fill | Arange => pointwise::lower(site, &mut to)?,
        Matmul | Attention => matrix::lower(site, &mut to),
        Copy | CopyToInput | Reshape | AsReal | AsComplex | Transpose | Slice | Concat | Split
        | Expand | Pad | Tril | Triu | Embedding | Gather => movement::lower(site, &mut to),
        Softmax | LayerNorm | RmsNorm | Sum | Mean | Max | Argmax => reduce::lower(site, &mut to),
        AllReduce | AllGather | AllGatherUneven | ReduceScatter | ReduceScatterUneven
        | AllToAll | Broadcast | Reduce | Scatter | GatherTo | Send | Recv | Barrier => {
            collective::lower(site, &mut to)?
        }
        // Constants are uploaded when a plan is loaded.
        Constant => {}
        Custom => return Err(site.refuse("no custom operation is registered")),
    }
    Ok(to)
}
