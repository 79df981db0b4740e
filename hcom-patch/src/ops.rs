//! The operators of a tensor.
//!
//! Every operator returns a new tensor. Element types of the operands must be equal; shapes
//! broadcast as in NumPy where an operator works element by element. The exact rules are those of
//! the operation of the same name in [`hcom_ir::Op`]. Dimensions count from 0; a negative one
//! counts from the end.
//!
//! # Errors
//! All operators: [`Error::Operation`] if element types or shapes do not fit, with what was
//! expected and what was got; [`Error::StaleHandle`] for a tensor of a capture that is over;
//! [`Error::Runtime`] if running fails; [`Error::NotInitialized`] if this thread is no rank.

use crate::tensor::{DType, Tensor};
use crate::{Error, eager, scope};
use hcom_ir::{Attr, Attrs, Op, Shape};
use std::panic::Location;

/// Runs or records an operator.
#[track_caller]
fn apply(op: Op, operands: &[&Tensor], attrs: Attrs) -> Result<Vec<Tensor>, Error> {
    let location = Location::caller();
    scope::with_active(|recorder| match recorder {
        Some(recorder) => recorder.operator(op, operands, attrs, location),
        None => eager::operator(op, operands, &attrs),
    })
}

/// Runs or records an operator with one result.
#[track_caller]
fn one(op: Op, operands: &[&Tensor], attrs: Attrs) -> Result<Tensor, Error> {
    let mut results = apply(op, operands, attrs)?;
    Ok(results.swap_remove(0))
}

/// Declares operators without attributes.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident($($operand:ident),*) = $op:ident;)*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                #[track_caller]
                pub fn $name(&self $(, $operand: &Tensor)*) -> Result<Tensor, Error> {
                    one(Op::$op, &[self $(, $operand)*], Attrs::new())
                }
            )*
        }
    };
}

plain! {
    /// Element-wise sum; logical or of booleans.
    add(other) = Add;
    /// Element-wise difference.
    sub(other) = Sub;
    /// Element-wise product; logical and of booleans.
    mul(other) = Mul;
    /// Element-wise quotient; integers truncate toward zero.
    div(other) = Div;
    /// Element-wise maximum, NaN if either is.
    maximum(other) = Maximum;
    /// Element-wise minimum, NaN if either is.
    minimum(other) = Minimum;
    /// Element-wise power.
    pow(exponent) = Pow;
    /// Conjunction of the bits of integers or booleans.
    bit_and(other) = BitAnd;
    /// Disjunction of the bits of integers or booleans.
    bit_or(other) = BitOr;
    /// Exclusive disjunction of the bits of integers or booleans.
    bit_xor(other) = BitXor;
    /// The negated elements.
    neg() = Neg;
    /// The absolute values.
    abs() = Abs;
    /// The exponential function.
    exp() = Exp;
    /// The natural logarithm.
    log() = Log;
    /// The square root.
    sqrt() = Sqrt;
    /// The reciprocal of the square root.
    rsqrt() = Rsqrt;
    /// The hyperbolic tangent.
    tanh() = Tanh;
    /// `1 / (1 + exp(-x))`.
    sigmoid() = Sigmoid;
    /// `max(x, 0)`.
    relu() = Relu;
    /// `x · sigmoid(x)`.
    silu() = Silu;
    /// Complex numbers as pairs of real and imaginary part, a new last dimension of 2.
    as_real() = AsReal;
    /// Pairs of floats, the last dimension of 2, as complex numbers.
    as_complex() = AsComplex;
    /// Whether elements are equal, as booleans.
    equal(other) = Equal;
    /// Whether elements are less than those of `other`, as booleans.
    less(other) = Less;
    /// Whether elements are greater than those of `other`, as booleans.
    greater(other) = Greater;
    /// Elements of `a` where these booleans are true, of `b` elsewhere.
    where_(a, b) = Where;
    /// Adds `bias`, of the size of the last dimension, to every row.
    bias_add(bias) = BiasAdd;
    /// Rows of this table, `[rows, …]`, at `indices` (i32 or i64, any shape).
    embedding(indices) = Embedding;
}

impl Tensor {
    /// `x/2 · (1 + erf(x/√2))`.
    #[track_caller]
    pub fn gelu(&self) -> Result<Tensor, Error> {
        one(Op::Gelu, &[self], Attrs::new())
    }

    /// The approximation of [`Tensor::gelu`] by the hyperbolic tangent.
    #[track_caller]
    pub fn gelu_tanh(&self) -> Result<Tensor, Error> {
        one(Op::Gelu, &[self], Attrs::new().with("approximate", "tanh"))
    }

    /// The elements as `dtype`: floats to the nearest, float to integer truncating and saturating.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Result<Tensor, Error> {
        one(Op::Cast, &[self], Attrs::new().with("to", dtype))
    }

    /// `[…, m, k] × […, k, n] → […, m, n]`, leading dimensions broadcast.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor, Error> {
        self.matmul_with(other, false, false)
    }

    /// [`Tensor::matmul`] with the last two dimensions of this tensor, of `other`, or of both
    /// swapped first.
    #[track_caller]
    pub fn matmul_with(
        &self,
        other: &Tensor,
        transpose_self: bool,
        transpose_other: bool,
    ) -> Result<Tensor, Error> {
        let attrs = Attrs::new()
            .with("transpose_a", transpose_self)
            .with("transpose_b", transpose_other);
        one(Op::Matmul, &[self, other], attrs)
    }

    /// `exp(x) / Σ exp(x)` along `dim`.
    #[track_caller]
    pub fn softmax(&self, dim: i64) -> Result<Tensor, Error> {
        one(Op::Softmax, &[self], Attrs::new().with("dim", dim))
    }

    /// Normalises the last dimension to mean 0 and variance 1, then scales by `weight` and adds
    /// `bias`.
    #[track_caller]
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor, Error> {
        let attrs = Attrs::new().with("eps", eps);
        one(Op::LayerNorm, &[self, weight, bias], attrs)
    }

    /// Divides the last dimension by its root mean square, then scales by `weight`.
    #[track_caller]
    pub fn rms_norm(&self, weight: &Tensor, eps: f64) -> Result<Tensor, Error> {
        one(Op::RmsNorm, &[self, weight], Attrs::new().with("eps", eps))
    }

    /// Scaled dot-product attention `softmax(q kᵀ · scale + mask) v` with this tensor as `q`;
    /// `q: […, m, d]`, `k: […, n, d]`, `v: […, n, e]`. `causal` hides later positions.
    #[track_caller]
    pub fn attention(
        &self,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        scale: f64,
        causal: bool,
    ) -> Result<Tensor, Error> {
        let attrs = Attrs::new().with("scale", scale).with("causal", causal);
        let mut operands = vec![self, k, v];
        operands.extend(mask);
        one(Op::Attention, &operands, attrs)
    }

    /// Elements along `dim` chosen by `indices` (i32 or i64, as many dimensions as this tensor).
    #[track_caller]
    pub fn gather(&self, indices: &Tensor, dim: i64) -> Result<Tensor, Error> {
        let attrs = Attrs::new().with("dim", self.dim("gather", dim)?);
        one(Op::Gather, &[self, indices], attrs)
    }

    /// The same elements in the same order, in another shape.
    #[track_caller]
    pub fn reshape(&self, shape: &[u64]) -> Result<Tensor, Error> {
        one(Op::Reshape, &[self], Attrs::new().with("shape", shape))
    }

    /// Reorders dimensions: dimension `i` of the result is dimension `order[i]`.
    #[track_caller]
    pub fn permute(&self, order: &[i64]) -> Result<Tensor, Error> {
        let order = order
            .iter()
            .map(|dim| self.dim("permute", *dim))
            .collect::<Result<Vec<_>, _>>()?;
        one(Op::Transpose, &[self], Attrs::new().with("perm", order))
    }

    /// Swaps two dimensions.
    #[track_caller]
    pub fn transpose(&self, a: i64, b: i64) -> Result<Tensor, Error> {
        let (a, b) = (self.dim("transpose", a)?, self.dim("transpose", b)?);
        let mut order: Vec<i64> = (0..).take(self.rank()).collect();
        order.swap(a as usize, b as usize);
        one(Op::Transpose, &[self], Attrs::new().with("perm", order))
    }

    /// The elements `start..end` of `dim`.
    #[track_caller]
    pub fn slice(&self, dim: i64, start: u64, end: u64) -> Result<Tensor, Error> {
        self.slice_step(dim, start, end, 1)
    }

    /// Every `step`-th element of `start..end` of `dim`.
    #[track_caller]
    pub fn slice_step(&self, dim: i64, start: u64, end: u64, step: u64) -> Result<Tensor, Error> {
        let attrs = Attrs::new()
            .with("dim", self.dim("slice", dim)?)
            .with("start", hcom_ir::Dim::fixed(start))
            .with("end", hcom_ir::Dim::fixed(end))
            .with("step", i64::try_from(step).unwrap_or(i64::MAX));
        one(Op::Slice, &[self], attrs)
    }

    /// The tensors, at least one, one after the other along `dim`.
    #[track_caller]
    pub fn concat(tensors: &[&Tensor], dim: i64) -> Result<Tensor, Error> {
        let Some(first) = tensors.first() else {
            return Err(Error::Argument {
                operation: "concat",
                message: "expected at least one tensor, got none".to_owned(),
            });
        };
        let attrs = Attrs::new().with("dim", first.dim("concat", dim)?);
        one(Op::Concat, tensors, attrs)
    }

    /// Consecutive pieces of these sizes along `dim`; they sum to its size.
    #[track_caller]
    pub fn split(&self, sizes: &[u64], dim: i64) -> Result<Vec<Tensor>, Error> {
        let attrs = Attrs::new()
            .with("dim", self.dim("split", dim)?)
            .with("sizes", sizes);
        apply(Op::Split, &[self], attrs)
    }

    /// The same elements in another shape, whose sizes may be [those of tensors](Tensor::dims).
    #[track_caller]
    pub fn reshape_to(&self, shape: &Shape) -> Result<Tensor, Error> {
        one(
            Op::Reshape,
            &[self],
            Attrs::new().with("shape", shape.clone()),
        )
    }

    /// A tensor whose elements are all `value`, with sizes that may be [those of
    /// tensors](Tensor::dims).
    #[track_caller]
    pub fn full_to(shape: &Shape, value: f64, dtype: DType) -> Result<Tensor, Error> {
        let attrs = Attrs::new()
            .with("shape", shape.clone())
            .with("value", number(value, dtype))
            .with("dtype", dtype);
        one(Op::Fill, &[], attrs)
    }

    /// Repeats dimensions of size 1, and adds leading ones, up to `shape`.
    #[track_caller]
    pub fn expand(&self, shape: &[u64]) -> Result<Tensor, Error> {
        one(Op::Expand, &[self], Attrs::new().with("shape", shape))
    }

    /// Adds `low[i]` elements before and `high[i]` after dimension `i`, all of them `value`.
    #[track_caller]
    pub fn pad(&self, low: &[u64], high: &[u64], value: f64) -> Result<Tensor, Error> {
        let attrs = Attrs::new()
            .with("low", low)
            .with("high", high)
            .with("value", number(value, self.dtype()));
        one(Op::Pad, &[self], attrs)
    }

    /// The sum over `dims`, which stay as size 1 if `keepdim`.
    #[track_caller]
    pub fn sum(&self, dims: &[i64], keepdim: bool) -> Result<Tensor, Error> {
        self.reduce(Op::Sum, dims, keepdim)
    }

    /// The mean over `dims`, which stay as size 1 if `keepdim`.
    #[track_caller]
    pub fn mean(&self, dims: &[i64], keepdim: bool) -> Result<Tensor, Error> {
        self.reduce(Op::Mean, dims, keepdim)
    }

    /// The maximum over `dims`, which stay as size 1 if `keepdim`.
    #[track_caller]
    pub fn max(&self, dims: &[i64], keepdim: bool) -> Result<Tensor, Error> {
        self.reduce(Op::Max, dims, keepdim)
    }

    /// The index (i64) of the largest element along `dim`, which stays as size 1 if `keepdim`.
    #[track_caller]
    pub fn argmax(&self, dim: i64, keepdim: bool) -> Result<Tensor, Error> {
        let attrs = Attrs::new()
            .with("dim", self.dim("argmax", dim)?)
            .with("keepdim", keepdim);
        one(Op::Argmax, &[self], attrs)
    }

    /// The last two dimensions with the elements above the diagonal set to 0.
    #[track_caller]
    pub fn tril(&self, diagonal: i64) -> Result<Tensor, Error> {
        one(Op::Tril, &[self], Attrs::new().with("diagonal", diagonal))
    }

    /// The last two dimensions with the elements below the diagonal set to 0.
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Result<Tensor, Error> {
        one(Op::Triu, &[self], Attrs::new().with("diagonal", diagonal))
    }

    /// `start + i · step` for all `i ≥ 0` that stay before `end`.
    #[track_caller]
    pub fn arange(start: f64, end: f64, step: f64, dtype: DType) -> Result<Tensor, Error> {
        let attrs = Attrs::new()
            .with("start", number(start, dtype))
            .with("end", number(end, dtype))
            .with("step", number(step, dtype))
            .with("dtype", dtype);
        one(Op::Arange, &[], attrs)
    }

    /// A tensor whose elements are all `value`.
    #[track_caller]
    pub fn full(shape: &[u64], value: f64, dtype: DType) -> Result<Tensor, Error> {
        Tensor::full_to(&Shape::fixed(shape), value, dtype)
    }

    /// A tensor whose elements are all 0.
    #[track_caller]
    pub fn zeros(shape: &[u64], dtype: DType) -> Result<Tensor, Error> {
        Tensor::full(shape, 0.0, dtype)
    }

    #[track_caller]
    fn reduce(&self, op: Op, dims: &[i64], keepdim: bool) -> Result<Tensor, Error> {
        let dims = dims
            .iter()
            .map(|dim| self.dim(op.name(), *dim))
            .collect::<Result<Vec<_>, _>>()?;
        let attrs = Attrs::new().with("dims", dims).with("keepdim", keepdim);
        one(op, &[self], attrs)
    }

    /// `dim` counted from 0.
    fn dim(&self, operation: &'static str, dim: i64) -> Result<i64, Error> {
        let rank = i64::try_from(self.rank()).unwrap_or(i64::MAX);
        if (-rank..rank).contains(&dim) {
            return Ok(dim.rem_euclid(rank));
        }
        Err(Error::Argument {
            operation,
            message: format!("expected a dimension of {}, got {dim}", self.ty()),
        })
    }
}

/// `value` as an attribute of a tensor of `dtype`: an integer where the type has no fractions and
/// the value none either.
fn number(value: f64, dtype: DType) -> Attr {
    let integral = value.fract() == 0.0 && value.abs() < 2f64.powi(63);
    if integral && !(dtype.is_float() || dtype.is_complex()) {
        Attr::Int(value as i64)
    } else {
        Attr::Float(value)
    }
}

/// Implements an operator of the language for references, and for a number on the right.
macro_rules! operator {
    ($($trait:ident, $method:ident;)*) => {$(
        impl std::ops::$trait for &Tensor {
            type Output = Result<Tensor, Error>;

            #[track_caller]
            fn $method(self, other: &Tensor) -> Result<Tensor, Error> {
                Tensor::$method(self, other)
            }
        }

        impl std::ops::$trait<f64> for &Tensor {
            type Output = Result<Tensor, Error>;

            #[track_caller]
            fn $method(self, number: f64) -> Result<Tensor, Error> {
                Tensor::$method(self, &Tensor::full(&[], number, self.dtype())?)
            }
        }
    )*};
}

operator! {
    Add, add;
    Sub, sub;
    Mul, mul;
    Div, div;
}

impl std::ops::Neg for &Tensor {
    type Output = Result<Tensor, Error>;

    #[track_caller]
    fn neg(self) -> Result<Tensor, Error> {
        Tensor::neg(self)
    }
}
