//! What a reduction means for an element type, and how it becomes one the device library has.
//!
//! The library of the common chips reduces signed integers, 16-bit and 32-bit floats by sum,
//! product, minimum and maximum. Lowered onto those:
//!
//! | reduction | element type | nodes |
//! |---|---|---|
//! | any of the four | unsigned integers | in a wider signed type, cast back, which wraps; u64 in i64, for min and max with 2⁶³ added before and after |
//! | prod | i16, bf16 | in i32, f32 |
//! | any of the four | f64 | exchanged, then folded |
//! | prod, any of i64 | by unequal blocks | exchanged, then folded |
//! | avg | f16, bf16 | cast to f32, sum, divide by the group's size, cast back: the sum of values near the type's largest does not overflow, and is rounded once |
//! | avg | f32, f64 | sum, divide |
//! | avg | integers | sum in a type that holds that of any group (of 64 bits it wraps), divide in i64, which truncates toward zero |
//! | sum, max, bor | bool | maximum over 0/1: logical or |
//! | prod, min, band | bool | minimum over 0/1: logical and |
//! | bxor | bool | sum over 0/1, of which the lowest bit is kept |
//! | band, bor, bxor | integers | exchanged, then folded |
//! | premul_sum | floats | multiply by the factor, sum; 16-bit floats in f32 as above |
//! | sum, avg, premul_sum | complex | of the parts, as floats |
//! | prod | complex | exchanged, then folded by the parts |
//!
//! *Exchanged, then folded*: every rank gets all contributions to what it keeps (`all_gather`,
//! `gather_to` the root, `all_to_all` for blocks) and combines them in rank order, so that all
//! ranks hold the same bits. What is refused, and why, is in [`support`](crate::support), which is
//! made from the decisions taken here.

use crate::{Context, ConvertError};
use hcom_ir::{Attrs, DType, Dim, GroupId, Op, ReduceOp, Shape, Type, ValueId};

/// A reduction operator with the factor that [`ReduceOp::PremulSum`] needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// The operator.
    pub op: ReduceOp,
    /// Multiplies every rank's elements before they are summed.
    pub factor: Option<f64>,
}

impl Reduction {
    /// The sum of every rank's elements times `factor`.
    pub fn premul_sum(factor: f64) -> Reduction {
        Reduction {
            op: ReduceOp::PremulSum,
            factor: Some(factor),
        }
    }
}

impl From<ReduceOp> for Reduction {
    fn from(op: ReduceOp) -> Reduction {
        Reduction { op, factor: None }
    }
}

/// What each rank keeps of the reduction.
#[derive(Clone, Debug)]
pub(crate) enum Keep {
    /// All of it.
    All,
    /// All of it on this group rank, nothing on the others.
    Root(u32),
    /// Its block of a dimension that the group's size divides.
    Block(u32),
    /// Its rows of dimension 0, as many as its entry says.
    Rows(Vec<Dim>),
}

impl Keep {
    /// The collective that reduces so.
    fn op(&self) -> Op {
        match self {
            Keep::All => Op::AllReduce,
            Keep::Root(_) => Op::Reduce,
            Keep::Block(_) => Op::ReduceScatter,
            Keep::Rows(_) => Op::ReduceScatterUneven,
        }
    }
}

/// The exchange that brings a rank all contributions to what `collective` leaves it.
pub(crate) fn exchange(collective: Op) -> Op {
    match collective {
        Op::AllReduce => Op::AllGather,
        Op::Reduce => Op::GatherTo,
        _ => Op::AllToAll,
    }
}

/// Fails if `reduction` is refused for elements of `dtype`, before anything is added.
///
/// # Errors
/// [`ConvertError::Reduction`].
pub(crate) fn check(
    call: &'static str,
    reduction: Reduction,
    dtype: DType,
) -> Result<(), ConvertError> {
    checked_plan(call, reduction, dtype, Op::AllReduce).map(drop)
}

fn checked_plan(
    call: &'static str,
    reduction: Reduction,
    dtype: DType,
    collective: Op,
) -> Result<Plan, ConvertError> {
    plan(reduction, dtype, collective).map_err(|reason| ConvertError::Reduction {
        call,
        op: reduction.op,
        dtype,
        reason,
    })
}

/// Adds the collective that reduces `tensor`, and around it what `reduction` needs. Returns what
/// this rank keeps, which for a rank that keeps nothing is `tensor` itself.
///
/// # Errors
/// [`ConvertError::NotInGroup`], [`ConvertError::Reduction`], [`ConvertError::Graph`].
pub(crate) fn lower(
    call: &'static str,
    context: &mut Context<'_>,
    tensor: ValueId,
    reduction: Reduction,
    group: GroupId,
    keep: &Keep,
) -> Result<ValueId, ConvertError> {
    let dtype = context.builder.ty(tensor).dtype;
    let own = context.own_rank(call, group)?;
    let group_size = context.member_of(call, group)?.group_size();
    let plan = checked_plan(call, reduction, dtype, keep.op())?;

    let mut value = tensor;
    if dtype.is_complex() {
        value = context.push(Op::AsReal, &[value], Attrs::new())?;
    }
    value = context.cast(value, plan.wide)?;
    if let Some(factor) = plan.scale {
        let factor = context.scalar(factor, plan.wide)?;
        value = context.push(Op::Mul, &[value, factor], Attrs::new())?;
    }
    if plan.flip {
        value = flipped(context, value)?;
    }
    value = match plan.how {
        How::Library(op) => by_library(context, value, op, group, keep, own)?,
        How::Fold(step) => {
            let kept = kept(call, context.builder.ty(value), keep, own, group_size)?;
            let pieces = exchanged(context, value, group, keep, own, &kept, group_size)?;
            if pieces.is_empty() {
                return Ok(tensor);
            }
            let folded = step.fold(context, &pieces)?;
            context.reshape(folded, &kept)?
        }
    };
    if matches!(keep, Keep::Root(root) if *root != own) {
        return Ok(tensor);
    }
    if plan.flip {
        value = flipped(context, value)?;
    }
    if let Some(quotient) = plan.mean {
        value = context.cast(value, quotient)?;
        let size = match quotient.is_integer() {
            true => context.scalar(i64::from(group_size), quotient)?,
            false => context.scalar(f64::from(group_size), quotient)?,
        };
        value = context.push(Op::Div, &[value, size], Attrs::new())?;
    }
    if plan.parity {
        let one = context.scalar(1i64, plan.wide)?;
        value = context.push(Op::BitAnd, &[value, one], Attrs::new())?;
    }
    match dtype.part() {
        Some(part) => {
            value = context.cast(value, part)?;
            context.push(Op::AsComplex, &[value], Attrs::new())
        }
        None => context.cast(value, dtype),
    }
}

fn by_library(
    context: &mut Context<'_>,
    value: ValueId,
    op: ReduceOp,
    group: GroupId,
    keep: &Keep,
    own: u32,
) -> Result<ValueId, ConvertError> {
    let attrs = Attrs::new().with("op", op).with("group", group);
    let attrs = match keep {
        Keep::All => attrs,
        Keep::Root(root) => attrs.with("root", *root),
        Keep::Block(dim) => attrs.with("dim", *dim),
        Keep::Rows(counts) => attrs
            .with("rows", counts[own as usize].clone())
            .with("counts", counts.clone()),
    };
    context.push(keep.op(), &[value], attrs)
}

/// The type of what this rank keeps of a reduction of tensors of type `ty`.
fn kept(
    call: &'static str,
    ty: &Type,
    keep: &Keep,
    own: u32,
    group_size: u32,
) -> Result<Type, ConvertError> {
    let (dim, rows) = match keep {
        Keep::All | Keep::Root(_) => return Ok(ty.clone()),
        Keep::Rows(counts) => (0, counts[own as usize].clone()),
        Keep::Block(dim) => {
            let dim = *dim as usize;
            let size = &ty.shape.dims()[dim];
            let divided = size.div(u64::from(group_size));
            let (rows, _) = divided.map_err(|source| ConvertError::Size { call, source })?;
            (dim, rows)
        }
    };
    Ok(Type::new(ty.dtype, ty.shape.clone().with_dim(dim, rows)))
}

/// All ranks' contributions to what this rank keeps, in rank order: of type `kept`, or that with a
/// first dimension of 1. None on a rank that keeps nothing.
fn exchanged(
    context: &mut Context<'_>,
    value: ValueId,
    group: GroupId,
    keep: &Keep,
    own: u32,
    kept: &Type,
    group_size: u32,
) -> Result<Vec<ValueId>, ConvertError> {
    let attrs = Attrs::new().with("group", group);
    let of_each = |size: &Dim| vec![size.clone(); group_size as usize];
    let one = Dim::fixed(1);
    let (operand, attrs, piece) = match keep {
        Keep::All => (stacked(context, value)?, attrs, one),
        Keep::Root(root) => (stacked(context, value)?, attrs.with("root", *root), one),
        Keep::Block(0) => (value, attrs, kept.shape.dims()[0].clone()),
        Keep::Block(dim) => {
            let sizes = of_each(&kept.shape.dims()[*dim as usize]);
            let mut blocks = context.split(value, *dim, sizes)?;
            for block in &mut blocks {
                *block = stacked(context, *block)?;
            }
            let all = context.push(Op::Concat, &blocks, Attrs::new().with("dim", 0))?;
            (all, attrs, one)
        }
        Keep::Rows(counts) => {
            let rows = kept.shape.dims()[0].clone();
            let attrs = attrs
                .with("send_counts", counts.clone())
                .with("recv_counts", of_each(&rows));
            (value, attrs, rows)
        }
    };
    let all = context.push(exchange(keep.op()), &[operand], attrs)?;
    if matches!(keep, Keep::Root(root) if *root != own) {
        return Ok(Vec::new());
    }
    context.split(all, 0, of_each(&piece))
}

/// `value` with a new first dimension of 1.
fn stacked(context: &mut Context<'_>, value: ValueId) -> Result<ValueId, ConvertError> {
    let ty = context.builder.ty(value);
    let dims = ty.shape.dims().iter().cloned();
    let shape = Shape::new([Dim::fixed(1)].into_iter().chain(dims));
    let ty = Type::new(ty.dtype, shape);
    context.reshape(value, &ty)
}

/// How two contributions are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// By this operation.
    Op(Op),
    /// As complex numbers, pairs of floats in the last dimension, are multiplied.
    ComplexProduct,
}

impl Step {
    /// The combination of `pieces`, from the first to the last.
    fn fold(self, context: &mut Context<'_>, pieces: &[ValueId]) -> Result<ValueId, ConvertError> {
        let mut op = |op, a, b| context.push(op, &[a, b], Attrs::new());
        let (first, rest) = pieces.split_first().expect("a group has a member");
        match self {
            Step::Op(step) => rest
                .iter()
                .try_fold(*first, |total, next| op(step, total, *next)),
            Step::ComplexProduct => {
                let [mut re, mut im] = parts(context, *first)?;
                for next in rest {
                    let [c, d] = parts(context, *next)?;
                    let mut op = |op, a, b| context.push(op, &[a, b], Attrs::new());
                    let (ac, bd) = (op(Op::Mul, re, c)?, op(Op::Mul, im, d)?);
                    let (ad, bc) = (op(Op::Mul, re, d)?, op(Op::Mul, im, c)?);
                    (re, im) = (op(Op::Sub, ac, bd)?, op(Op::Add, ad, bc)?);
                }
                context.push(Op::Concat, &[re, im], Attrs::new().with("dim", -1))
            }
        }
    }
}

/// Real and imaginary part of pairs of floats.
fn parts(context: &mut Context<'_>, value: ValueId) -> Result<[ValueId; 2], ConvertError> {
    let attrs = Attrs::new().with("dim", -1).with("sizes", vec![1u64, 1]);
    let parts = context.builder.push(Op::Split, &[value], attrs)?;
    Ok([parts[0], parts[1]])
}

/// `value` of i64 plus half the range, which maps the order of unsigned integers to that of signed
/// ones and back.
fn flipped(context: &mut Context<'_>, value: ValueId) -> Result<ValueId, ConvertError> {
    let half = context.scalar(i64::MIN, DType::I64)?;
    context.push(Op::Add, &[value, half], Attrs::new())
}

/// Who combines the ranks' elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The library, by this operator.
    Library(ReduceOp),
    /// Each rank what it keeps, after an exchange.
    Fold(Step),
}

/// How one reduction is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Element type during the collective.
    pub(crate) wide: DType,
    /// Who combines, and how.
    pub(crate) how: How,
    /// Whether half the range is added before and after, so that signed integers order as unsigned
    /// ones.
    flip: bool,
    /// Factor before the collective.
    scale: Option<f64>,
    /// The type in which the group's size divides the result, if it does.
    mean: Option<DType>,
    /// Whether only the lowest bit of the result is kept.
    parity: bool,
}

impl Plan {
    /// The steps for elements of `dtype` by `collective`; `None` when the collective alone does it.
    pub(crate) fn steps(&self, dtype: DType, asked: ReduceOp, collective: Op) -> Option<String> {
        let mut steps = Vec::new();
        let narrow = dtype.part().unwrap_or(dtype);
        if narrow != dtype {
            steps.push(format!("view as {narrow}"));
        }
        if self.wide != narrow {
            steps.push(format!("cast to {}", self.wide));
        }
        if self.scale.is_some() {
            steps.push("multiply by the factor".to_owned());
        }
        let flip = || self.flip.then(|| "add 2^63".to_owned());
        steps.extend(flip());
        let alone = self.how == How::Library(asked);
        steps.push(match self.how {
            How::Library(op) => op.to_string(),
            How::Fold(step) => {
                let by = match step {
                    Step::Op(op) => op.name(),
                    Step::ComplexProduct => "the complex product",
                };
                format!("{}, fold by {by}", exchange(collective))
            }
        });
        steps.extend(flip());
        let mut now = self.wide;
        let mut cast = |steps: &mut Vec<String>, to| {
            if to != now {
                steps.push(format!("cast to {to}"));
                now = to;
            }
        };
        if let Some(quotient) = self.mean {
            cast(&mut steps, quotient);
            steps.push("divide by the group's size".to_owned());
        }
        if self.parity {
            steps.push("keep the lowest bit".to_owned());
        }
        cast(&mut steps, narrow);
        if narrow != dtype {
            steps.push(format!("view as {dtype}"));
        }
        (steps.len() > 1 || !alone).then(|| steps.join(", "))
    }
}

/// How `collective` carries out `reduction` on elements of `dtype`, or why it is refused.
pub(crate) fn plan(
    reduction: Reduction,
    dtype: DType,
    collective: Op,
) -> Result<Plan, &'static str> {
    use ReduceOp::{Avg, Band, Bor, Bxor, Max, Min, PremulSum, Prod, Sum};
    let op = reduction.op;
    let logical = dtype == DType::Bool;
    // Complex numbers are reduced by their parts.
    let element = dtype.part().unwrap_or(dtype);
    let plain = |wide, op| Plan {
        wide,
        how: combine(collective, wide, op),
        flip: false,
        scale: None,
        mean: None,
        parity: false,
    };
    match op {
        Min | Max if dtype.is_complex() => Err("complex numbers have no order"),
        Prod if dtype.is_complex() => Ok(Plan {
            how: How::Fold(Step::ComplexProduct),
            ..plain(element, Prod)
        }),
        PremulSum => {
            let factor = reduction.factor.ok_or("no factor was given")?;
            if !element.is_float() {
                return Err("the factor is a real number; cast the tensor to a float first");
            }
            Ok(Plan {
                scale: Some(factor),
                ..plain(wide(element), Sum)
            })
        }
        Avg if logical => {
            Err("a mean of booleans is no boolean; cast the tensor to a number first")
        }
        Avg if dtype == DType::U64 => Err(
            "the device library has no unsigned division of 64 bits; cast the tensor to i64 or f64 first",
        ),
        Avg => Ok(Plan {
            mean: Some(match element.is_integer() {
                true => DType::I64,
                false => wide(element),
            }),
            ..plain(wide(element), Sum)
        }),
        Sum | Max | Bor if logical => Ok(plain(DType::I8, Max)),
        Prod | Min | Band if logical => Ok(plain(DType::I8, Min)),
        Bxor if logical => Ok(Plan {
            parity: true,
            ..plain(DType::I32, Sum)
        }),
        Band | Bor | Bxor if !dtype.is_integer() => {
            Err("only integers and booleans have bits to combine")
        }
        Band | Bor | Bxor => Ok(plain(dtype, op)),
        Sum | Prod if dtype == DType::U64 => Ok(plain(DType::I64, op)),
        Min | Max if dtype == DType::U64 => Ok(Plan {
            flip: true,
            ..plain(DType::I64, op)
        }),
        op if dtype.is_integer() && !dtype.is_signed() => Ok(plain(wide(dtype), op)),
        Prod if matches!(dtype, DType::I16 | DType::BF16) => Ok(plain(wide(dtype), op)),
        op => Ok(plain(element, op)),
    }
}

/// Who combines elements of `dtype`: the library where those of all common chips can.
fn combine(collective: Op, dtype: DType, op: ReduceOp) -> How {
    let uneven = collective == Op::ReduceScatterUneven;
    let step = match op {
        ReduceOp::Band => Op::BitAnd,
        ReduceOp::Bor => Op::BitOr,
        ReduceOp::Bxor => Op::BitXor,
        _ if dtype != DType::F64 && !(uneven && (op == ReduceOp::Prod || dtype == DType::I64)) => {
            return How::Library(op);
        }
        ReduceOp::Prod => Op::Mul,
        ReduceOp::Min => Op::Minimum,
        ReduceOp::Max => Op::Maximum,
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum => Op::Add,
    };
    How::Fold(Step::Op(step))
}

/// A type in which the sum over a group of up to 2¹⁵ ranks is exact or rounded once, where there
/// is one.
fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I8 | DType::I16 | DType::U8 | DType::U16 => DType::I32,
        DType::I32 | DType::U32 => DType::I64,
        other => other,
    }
}
