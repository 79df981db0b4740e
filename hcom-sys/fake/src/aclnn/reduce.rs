//! Operators that combine elements along dimensions.

use super::compute::{BLOCK, Compute};
use super::dtype::{Class, FLOATS, INDICES, NUMBERS, REALS, Type};
use super::elementwise::blocks;
use super::executor::{Arg, Operand, Plan, bad};
use super::in_class;
use super::layout::{Dims, Layout};
use super::math::{Binary, Math};
use super::object::Tensor;
use crate::error::Outcome;
use crate::span::strided::Elements;

/// The dimensions of `x` that `dims` names, in ascending order; all of them if it names none.
fn axes(x: &Operand, dims: &Arg<Vec<i64>>) -> Outcome<Dims> {
    let list = dims.get()?;
    if list.is_empty() {
        return Ok((0..x.rank()).collect());
    }
    let mut axes = list
        .iter()
        .map(|&dim| x.axis(dims.name, dim))
        .collect::<Outcome<Dims>>()?;
    axes.sort_unstable();
    if axes.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(bad(
            dims.name,
            "each dimension once",
            format_args!("{list:?}"),
        ));
    }
    axes.retain(|&mut axis| axis < x.rank());
    Ok(axes)
}

/// Shape of the result of reducing `axes`.
fn reduced_dims(x: &Operand, axes: &[usize], keep: bool) -> Dims {
    let sizes = x.dims().iter().enumerate();
    sizes
        .filter(|(d, _)| keep || !axes.contains(d))
        .map(|(d, &size)| if axes.contains(&d) { 1 } else { size })
        .collect()
}

/// How the elements that fall together are read.
struct Fold {
    /// Kept dimensions before reduced ones if the reduced elements lie closer together, else behind.
    at: Layout,
    along: bool,
    /// Elements per result.
    count: usize,
}

impl Fold {
    fn new(x: &Layout, axes: &[usize]) -> Fold {
        let kept: Dims = (0..x.rank()).filter(|d| !axes.contains(d)).collect();
        let nearest = |axes: &[usize]| {
            let strides = axes
                .iter()
                .filter(|&&d| x.dims[d] > 1)
                .map(|&d| x.strides[d].unsigned_abs());
            strides.min().unwrap_or(usize::MAX)
        };
        let along = nearest(axes) <= nearest(&kept);
        let order: Dims = if along {
            kept.iter().chain(axes).copied().collect()
        } else {
            axes.iter().chain(&kept).copied().collect()
        };
        Fold {
            at: x.permute(&order),
            along,
            count: axes.iter().map(|&d| x.dims[d]).product(),
        }
    }

    /// Combines the elements of each result with `f`, which is associative, finishes it and writes it to `out`.
    fn run<C: Math>(
        &self,
        f: Binary,
        x: &Elements<'_>,
        out: &Elements<'_>,
        finish: impl Fn(C) -> C,
    ) {
        let (mut sums, mut values) = ([C::ZERO; BLOCK], [C::ZERO; BLOCK]);
        if !self.along {
            return blocks(out.len(), |start, len| {
                let (sums, values) = (&mut sums[..len], &mut values[..len]);
                sums.fill(C::ZERO);
                for i in 0..self.count {
                    C::read(x, i * out.len() + start, if i == 0 { sums } else { values });
                    if i > 0 {
                        C::binary(f, sums, values);
                    }
                }
                for sum in sums.iter_mut() {
                    *sum = finish(*sum);
                }
                C::write(out, start, sums);
            });
        }
        for result in 0..out.len() {
            let mut width = 0;
            blocks(self.count, |start, len| {
                let first = result * self.count + start;
                if start == 0 {
                    width = len;
                    C::read(x, first, &mut sums[..len]);
                } else {
                    C::read(x, first, &mut values[..len]);
                    C::binary(f, &mut sums[..len], &values[..len]);
                }
            });
            // Halving keeps the error of a sum logarithmic in its length.
            while width > 1 {
                let (low, high) = sums[..width].split_at_mut(width.div_ceil(2));
                C::binary(f, &mut low[..high.len()], high);
                width = low.len();
            }
            let combined = if self.count == 0 { C::ZERO } else { sums[0] };
            C::write(out, result, &[finish(combined)]);
        }
    }
}

/// The type that an operator's `dtype` asks for, which is that of its output.
fn asked_type(dtype: i32, out: &Operand) -> Outcome<Type> {
    if dtype != out.dtype.acl() {
        let expected = format!("the data type of {}, {}", out.name, out.dtype);
        return Err(bad("dtype", expected, format_args!("aclDataType {dtype}")));
    }
    Ok(out.dtype)
}

/// aclnnReduceSum: the sum over `dims` (all if empty), in `dtype`, which is the type of `out`. Real numbers; floats
/// add up in DOUBLE and round once, integers wrap. The sum of nothing is 0.
pub(crate) fn sum(
    x: Arg<Tensor>,
    dims: Arg<Vec<i64>>,
    keep: bool,
    dtype: i32,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    x.expect_types(REALS)?;
    out.expect_types(REALS)?;
    let dtype = asked_type(dtype, &out)?;
    let axes = axes(&x, &dims)?;
    out.expect_dims(&reduced_dims(&x, &axes, keep))?;
    let (fold, out_at) = (Fold::new(&x.layout, &axes), out.layout.clone());
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&fold.at), out.elements(&out_at));
        if dtype.is_float() {
            fold.run::<f64>(Binary::Add, &x, &out, |sum| sum);
        } else {
            fold.run::<i64>(Binary::Add, &x, &out, |sum| sum);
        }
    }))
}

/// aclnnMean: the sum over `dim` (all if empty) divided by the number of elements, in `dtype`, a float, which is the
/// type of `out`. Real numbers; computed in DOUBLE and rounded once. The mean of nothing is not a number.
pub(crate) fn mean(
    x: Arg<Tensor>,
    dims: Arg<Vec<i64>>,
    keep: bool,
    dtype: i32,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    x.expect_types(REALS)?;
    out.expect_types(FLOATS)?;
    asked_type(dtype, &out)?;
    let axes = axes(&x, &dims)?;
    out.expect_dims(&reduced_dims(&x, &axes, keep))?;
    let (fold, out_at) = (Fold::new(&x.layout, &axes), out.layout.clone());
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&fold.at), out.elements(&out_at));
        let count = fold.count as f64;
        fold.run::<f64>(Binary::Add, &x, &out, |sum| sum / count);
    }))
}

/// aclnnAmax: the largest element over `dim` (all if empty); not a number if one is not. Real numbers.
pub(crate) fn amax(
    x: Arg<Tensor>,
    dims: Arg<Vec<i64>>,
    keep: bool,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    let axes = axes(&x, &dims)?;
    out.expect_dims(&reduced_dims(&x, &axes, keep))?;
    largest(x, &axes, out)
}

/// aclnnMax: the largest of all elements, as for aclnnAmax.
pub(crate) fn max(x: Arg<Tensor>, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    out.expect_single()?;
    let axes: Dims = (0..x.rank()).collect();
    largest(x, &axes, out)
}

fn largest(x: Operand, axes: &[usize], out: Operand) -> Outcome<Plan> {
    x.expect_types(REALS)?;
    out.expect_types(REALS)?;
    out.expect_holds(x.dtype)?;
    let (fold, out_at) = (Fold::new(&x.layout, axes), out.layout.clone());
    if fold.count == 0 {
        return Err(bad(
            &x.name,
            "at least one element to compare",
            format_args!("shape {:?}", x.dims()),
        ));
    }
    let class = x.dtype.class();
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&fold.at), out.elements(&out_at));
        in_class!(class, C => fold.run::<C>(Binary::Maximum, &x, &out, |largest| largest));
    }))
}

/// aclnnCumsum: `out[…, i, …] = Σ x[…, 0..=i, …]` along `dim`, in `dtype`, which is the type of `out`. Real numbers;
/// floats add up in DOUBLE and each sum rounds once, integers wrap.
pub(crate) fn cumsum(x: Arg<Tensor>, dim: i64, dtype: i32, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    x.expect_types(REALS)?;
    out.expect_types(REALS)?;
    out.expect_dims(x.dims())?;
    let dtype = asked_type(dtype, &out)?;
    let (x_at, out_at) = (x.row_last("dim", dim)?, out.row_last("dim", dim)?);
    let count = x_at.dims[x_at.rank() - 1];
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&x_at), out.elements(&out_at));
        if dtype.is_float() {
            running_sums::<f64>(&x, &out, count, |sum, x| sum + x);
        } else {
            running_sums::<i64>(&x, &out, count, i64::wrapping_add);
        }
    }))
}

fn running_sums<C: Compute>(
    x: &Elements<'_>,
    out: &Elements<'_>,
    count: usize,
    add: impl Fn(C, C) -> C,
) {
    let mut row = vec![C::ZERO; count];
    for start in (0..out.len()).step_by(count.max(1)) {
        C::read(x, start, &mut row);
        let mut sum = C::ZERO;
        for x in &mut row {
            sum = add(sum, *x);
            *x = sum;
        }
        C::write(out, start, &row);
    }
}

/// aclnnArgMax: the first index along `dim` of the largest element, or of the first that is not a number. Real numbers
/// except BOOL; the output is INT32 or INT64.
pub(crate) fn argmax(x: Arg<Tensor>, dim: i64, keep: bool, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    x.expect_types(NUMBERS)?;
    out.expect_types(INDICES)?;
    let axis = x.axis("dim", dim)?;
    let view = x.row_last("dim", dim)?;
    let axes: &[usize] = if x.rank() == 0 { &[] } else { &[axis] };
    out.expect_dims(&reduced_dims(&x, axes, keep))?;
    let count = view.dims[view.rank() - 1];
    if count == 0 {
        return Err(bad(
            &x.name,
            "at least one element to compare",
            format_args!("shape {:?}", x.dims()),
        ));
    }
    let (class, out_at) = (x.dtype.class(), out.layout.clone());
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&view), out.elements(&out_at));
        in_class!(class, C => {
            let mut values = vec![C::ZERO; count];
            for result in 0..out.len() {
                C::read(&x, result * count, &mut values);
                let (mut best, mut index) = (values[0], 0);
                for (i, &value) in values.iter().enumerate() {
                    if !best.is_nan() && (value.is_nan() || value > best) {
                        (best, index) = (value, i);
                    }
                }
                i64::write(&out, result, &[index as i64]);
            }
        });
    }))
}
