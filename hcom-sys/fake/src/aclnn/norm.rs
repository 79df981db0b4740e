//! Operators that normalise rows: softmax and the layer norms.

use std::ops::{Add, Div, Mul, Sub};

use super::compute::Compute;
use super::dtype::{Class, FLOATS, HALF_AND_SINGLE, Type};
use super::executor::{Arg, Operand, Plan, bad};
use super::layout::Dims;
use super::math::{Binary, Math, Unary, larger};
use super::object::Tensor;
use crate::error::Outcome;
use crate::simd::wide;
use crate::span::strided::Elements;

/// Independent partial sums, so that a sum over a row uses wide vectors.
const LANES: usize = 16;

/// A float that rows are normalised in.
pub(crate) trait Real:
    Math + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
}
impl Real for f32 {}
impl Real for f64 {}

/// `Σ f(row[i])`.
#[inline(always)]
fn sum<C: Real>(row: &[C], f: impl Fn(C) -> C) -> C {
    wide(
        #[inline(always)]
        || {
            let mut lanes = [C::ZERO; LANES];
            let chunks = row.chunks_exact(LANES);
            let rest = chunks.remainder();
            for chunk in chunks {
                for (lane, &x) in lanes.iter_mut().zip(chunk) {
                    *lane = *lane + f(x);
                }
            }
            for (lane, &x) in lanes.iter_mut().zip(rest) {
                *lane = *lane + f(x);
            }
            let mut width = LANES / 2;
            while width > 0 {
                for i in 0..width {
                    lanes[i] = lanes[i] + lanes[i + width];
                }
                width /= 2;
            }
            lanes[0]
        },
    )
}

/// Whether softmax gives the shares or their logarithms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Softmax {
    Share,
    Logarithm,
}

/// aclnnSoftmax: `out = e^(x - m) / Σ e^(x - m)` along `dim`, `m` the largest element there; aclnnLogSoftmax:
/// `out = x - m - ln Σ e^(x - m)`. FLOAT, FLOAT16, BF16, DOUBLE.
pub(crate) fn softmax(form: Softmax, x: Arg<Tensor>, dim: i64, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    x.expect_types(FLOATS)?;
    out.expect_types(FLOATS)?;
    out.expect_dims(x.dims())?;
    let (x_at, out_at) = (x.row_last("dim", dim)?, out.row_last("dim", dim)?);
    let class = x.dtype.class();
    let len = x_at.dims[x_at.rank() - 1];
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&x_at), out.elements(&out_at));
        match class {
            Class::F64 => softmax_rows::<f64>(form, &x, &out, len),
            _ => softmax_rows::<f32>(form, &x, &out, len),
        }
    }))
}

/// Turns a row of at least one element into `e^(x - m)`, `m` its largest element; gives `m` and the sum of the powers.
pub(crate) fn powers<C: Real>(row: &mut [C]) -> (C, C) {
    let largest = row.iter().copied().fold(row[0], larger);
    for x in row.iter_mut() {
        *x = *x - largest;
    }
    C::unary(Unary::Exp, row);
    (largest, sum(row, |x| x))
}

fn softmax_rows<C: Real>(form: Softmax, x: &Elements<'_>, out: &Elements<'_>, len: usize) {
    let mut row = vec![C::ZERO; len];
    let mut scratch = Vec::new();
    for start in (0..out.len()).step_by(len.max(1)) {
        C::read(x, start, &mut row);
        match form {
            Softmax::Share => {
                let (_, total) = powers(&mut row);
                for x in &mut row {
                    *x = *x / total;
                }
            }
            Softmax::Logarithm => {
                scratch.clone_from(&row);
                let (largest, total) = powers(&mut scratch);
                let mut logarithm = [total];
                C::unary(Unary::Log, &mut logarithm);
                for x in &mut row {
                    *x = *x - largest - logarithm[0];
                }
            }
        }
        C::write(out, start, &row);
    }
}

/// Refuses a tensor whose last dimensions are not `shape`; gives the shape of one number per row.
fn row_dims(x: &Operand, parameter: &str, shape: &[usize]) -> Outcome<Dims> {
    let Some(leading) = x.dims().strip_suffix(shape).filter(|_| !shape.is_empty()) else {
        let expected = format!("the last dimensions of {:?}", x.dims());
        return Err(bad(parameter, expected, format_args!("{shape:?}")));
    };
    Ok(leading
        .iter()
        .copied()
        .chain(shape.iter().map(|_| 1))
        .collect())
}

/// aclnnLayerNorm: with mean `μ` and variance `σ²` over the last dimensions, whose shape is `shape`,
/// `out = (x - μ) / √(σ² + eps) · weight + bias`; optional outputs are `μ` and `1/√(σ² + eps)` per row. FLOAT, FLOAT16,
/// BF16; computed in FLOAT.
#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn layer_norm(
    x: Arg<Tensor>,
    shape: Arg<Vec<i64>>,
    weight: Arg<Tensor>,
    bias: Arg<Tensor>,
    eps: f64,
    out: Arg<Tensor>,
    mean_out: Arg<Tensor>,
    rstd_out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    x.expect_types(HALF_AND_SINGLE)?;
    out.expect_types(HALF_AND_SINGLE)?;
    out.expect_dims(x.dims())?;
    let sizes = shape
        .get()?
        .iter()
        .map(|&size| usize::try_from(size).ok())
        .collect::<Option<Dims>>();
    let sizes = sizes.ok_or_else(|| {
        bad(
            shape.name,
            "sizes of at least 0",
            format_args!("{:?}", shape.get().ok()),
        )
    })?;
    let rows = row_dims(&x, shape.name, &sizes)?;
    let len = sizes.iter().product();
    let inputs = [weight.optional_input()?, bias.optional_input()?];
    for input in inputs.iter().flatten() {
        input.expect_types(HALF_AND_SINGLE)?;
        input.expect_dims(&sizes)?;
    }
    let outputs = [mean_out.optional_output()?, rstd_out.optional_output()?];
    for output in outputs.iter().flatten() {
        output.expect_types(HALF_AND_SINGLE)?;
        output.expect_dims(&rows)?;
    }
    let present: Vec<bool> = inputs.iter().chain(&outputs).map(Option::is_some).collect();
    let mut operands = vec![x];
    operands.extend(inputs.into_iter().flatten());
    operands.push(out);
    operands.extend(outputs.into_iter().flatten());
    let layouts: Vec<_> = operands
        .iter()
        .map(|operand| operand.layout.clone())
        .collect();
    Ok(Plan::many(operands, move |storages| {
        let mut elements = storages
            .iter()
            .zip(&layouts)
            .map(|(storage, at)| storage.elements(at));
        let mut next = |present: bool| if present { elements.next() } else { None };
        let x = next(true).expect("the input is there");
        let [weight, bias] = [next(present[0]), next(present[1])];
        let out = next(true).expect("the output is there");
        let [mean_out, rstd_out] = [next(present[2]), next(present[3])];
        let weight = weight.map(|weight| read_all(&weight));
        let bias = bias.map(|bias| read_all(&bias));
        let mut row = vec![0f32; len];
        for (number, start) in (0..out.len()).step_by(len.max(1)).enumerate() {
            f32::read(&x, start, &mut row);
            let mean = sum(&row, |x| x) / len as f32;
            let variance = sum(&row, |x| (x - mean) * (x - mean)) / len as f32;
            let rstd = 1.0 / (variance + eps as f32).sqrt();
            scale(&mut row, weight.as_deref(), bias.as_deref(), |x| {
                (x - mean) * rstd
            });
            f32::write(&out, start, &row);
            for (output, value) in [(&mean_out, mean), (&rstd_out, rstd)] {
                if let Some(output) = output {
                    f32::write(output, number, &[value]);
                }
            }
        }
        Ok(())
    }))
}

/// aclnnLayerNormWithImplMode: aclnnLayerNorm with a choice between precision (0), speed (1) and 16-bit sums (2), all of
/// which are computed in FLOAT here.
#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn layer_norm_with_mode(
    x: Arg<Tensor>,
    shape: Arg<Vec<i64>>,
    weight: Arg<Tensor>,
    bias: Arg<Tensor>,
    eps: f64,
    out: Arg<Tensor>,
    mean_out: Arg<Tensor>,
    rstd_out: Arg<Tensor>,
    mode: i32,
) -> Outcome<Plan> {
    if !(0..=2).contains(&mode) {
        return Err(bad("implMode", "0, 1 or 2", mode));
    }
    layer_norm(x, shape, weight, bias, eps, out, mean_out, rstd_out)
}

/// aclnnAddRmsNorm: `sum = x + y`, rounded to its type, and aclnnRmsNorm of that: what the two operators one after the
/// other give. FLOAT, FLOAT16, BF16, all tensors but `rstd` of one type.
pub(crate) fn add_rms_norm(
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    gamma: Arg<Tensor>,
    eps: f64,
    out: Arg<Tensor>,
    rstd_out: Arg<Tensor>,
    sum_out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, y, gamma) = (x.input()?, y.input()?, gamma.input()?);
    let (out, rstd_out, sum_out) = (out.output()?, rstd_out.output()?, sum_out.output()?);
    x.expect_types(HALF_AND_SINGLE)?;
    for operand in [&y, &gamma, &out, &sum_out] {
        operand.expect_types(&[x.dtype])?;
    }
    for operand in [&y, &out, &sum_out] {
        operand.expect_dims(x.dims())?;
    }
    let norm = Rms::new(&x, &gamma, &rstd_out, eps)?;
    let layouts = [&x, &y, &gamma, &out, &rstd_out, &sum_out].map(|operand| operand.layout.clone());
    Ok(Plan::new(
        [x, y, gamma, out, rstd_out, sum_out],
        move |storages| {
            let [x, y, gamma, out, rstd_out, sum_out] =
                std::array::from_fn(|i| storages[i].elements(&layouts[i]));
            let mut other = vec![0f32; norm.len];
            norm.rows(&gamma, &out, &rstd_out, |start, row| {
                f32::read(&x, start, row);
                f32::read(&y, start, &mut other);
                f32::binary(Binary::Add, row, &other);
                f32::write(&sum_out, start, row);
                f32::read(&sum_out, start, row);
            });
        },
    ))
}

/// Root mean square over the last dimensions.
struct Rms {
    /// Elements of a row.
    len: usize,
    eps: f32,
}

impl Rms {
    fn new(x: &Operand, gamma: &Operand, rstd_out: &Operand, eps: f64) -> Outcome<Rms> {
        rstd_out.expect_types(&[Type::F32])?;
        rstd_out.expect_dims(&row_dims(x, &gamma.name, gamma.dims())?)?;
        let (len, eps) = (gamma.layout.len(), eps as f32);
        Ok(Rms { len, eps })
    }

    /// Normalises each row that `read(first element, row)` delivers.
    fn rows(
        &self,
        gamma: &Elements<'_>,
        out: &Elements<'_>,
        rstd_out: &Elements<'_>,
        mut read: impl FnMut(usize, &mut [f32]),
    ) {
        let gamma = read_all(gamma);
        let mut row = vec![0f32; self.len];
        for (number, start) in (0..out.len()).step_by(self.len.max(1)).enumerate() {
            read(start, &mut row);
            let square = sum(&row, |x| x * x) / self.len as f32;
            let rstd = 1.0 / (square + self.eps).sqrt();
            scale(&mut row, Some(&gamma), None, |x| x * rstd);
            f32::write(out, start, &row);
            f32::write(rstd_out, number, &[rstd]);
        }
    }
}

/// aclnnRmsNorm: over the last dimensions, whose shape is that of `gamma`, `rstd = 1/√(mean(x²) + eps)` and
/// `out = x · rstd · gamma`. FLOAT, FLOAT16, BF16, computed in FLOAT; `rstd` is FLOAT.
pub(crate) fn rms_norm(
    x: Arg<Tensor>,
    gamma: Arg<Tensor>,
    eps: f64,
    out: Arg<Tensor>,
    rstd_out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, gamma, out, rstd_out) = (
        x.input()?,
        gamma.input()?,
        out.output()?,
        rstd_out.output()?,
    );
    for operand in [&x, &gamma, &out] {
        operand.expect_types(HALF_AND_SINGLE)?;
    }
    out.expect_dims(x.dims())?;
    let norm = Rms::new(&x, &gamma, &rstd_out, eps)?;
    let layouts = [&x, &gamma, &out, &rstd_out].map(|operand| operand.layout.clone());
    Ok(Plan::new([x, gamma, out, rstd_out], move |storages| {
        let [x, gamma, out, rstd_out] = std::array::from_fn(|i| storages[i].elements(&layouts[i]));
        norm.rows(&gamma, &out, &rstd_out, |start, row| {
            f32::read(&x, start, row)
        });
    }))
}

fn read_all(elements: &Elements<'_>) -> Vec<f32> {
    let mut values = vec![0f32; elements.len()];
    f32::read(elements, 0, &mut values);
    values
}

/// `row = f(row) · weight + bias`.
#[inline(always)]
fn scale(row: &mut [f32], weight: Option<&[f32]>, bias: Option<&[f32]>, f: impl Fn(f32) -> f32) {
    wide(
        #[inline(always)]
        || {
            for x in row.iter_mut() {
                *x = f(*x);
            }
            for (x, w) in row.iter_mut().zip(weight.unwrap_or_default()) {
                *x *= w;
            }
            for (x, b) in row.iter_mut().zip(bias.unwrap_or_default()) {
                *x += b;
            }
        },
    );
}
