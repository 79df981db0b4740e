//! Matrix multiplication.

use super::compute::Compute;
use super::dtype::{HALF_AND_SINGLE, Type};
use super::executor::{Arg, Operand, Plan, bad};
use super::layout::{Dims, Layout, broadcast};
use super::object::{Scalar, Tensor};
use crate::error::Outcome;
use crate::simd::{Matrix, multiply};
use crate::span::strided::Storage;

/// `cubeMathType` that asks for inputs rounded to FLOAT16.
const USE_FLOAT16: i8 = 2;

/// aclnnMatmul: `out = x · y` as PyTorch's matmul: matrices of the last two dimensions, broadcast over the others; a
/// vector is a row on the left, a column on the right. FLOAT, FLOAT16, BF16, accumulated in FLOAT and rounded once.
///
/// `cube_math_type` 0, 1, 3 and 4 compute in full precision (1 and 3 would allow less); 2 rounds the inputs to FLOAT16.
pub(crate) fn matmul(
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    out: Arg<Tensor>,
    cube_math_type: i8,
) -> Outcome<Plan> {
    let (x, y, out) = (x.input()?, y.input()?, out.output()?);
    for operand in [&x, &y] {
        if operand.rank() == 0 {
            return Err(bad(&operand.name, "at least one dimension", "rank 0"));
        }
    }
    plan(x, y, out, cube_math_type)
}

/// aclnnMm: `out = x · y` for two dimensions each. Types and `cube_math_type` as for aclnnMatmul.
pub(crate) fn mm(
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    out: Arg<Tensor>,
    cube_math_type: i8,
) -> Outcome<Plan> {
    let (x, y, out) = (x.input()?, y.input()?, out.output()?);
    for operand in [&x, &y, &out] {
        if operand.rank() != 2 {
            let got = format!("{:?}", operand.dims());
            return Err(bad(&operand.name, "two dimensions", got));
        }
    }
    plan(x, y, out, cube_math_type)
}

/// aclnnBatchMatMul: `out[b] = x[b] · y[b]` for three dimensions each; a batch of 1 repeats. Types and
/// `cube_math_type` as for aclnnMatmul.
pub(crate) fn batch_matmul(
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    out: Arg<Tensor>,
    cube_math_type: i8,
) -> Outcome<Plan> {
    let (x, y, out) = (x.input()?, y.input()?, out.output()?);
    for operand in [&x, &y, &out] {
        if operand.rank() != 3 {
            return Err(bad(
                &operand.name,
                "three dimensions",
                format_args!("{:?}", operand.dims()),
            ));
        }
    }
    plan(x, y, out, cube_math_type)
}

fn plan(x: Operand, y: Operand, out: Operand, cube_math_type: i8) -> Outcome<Plan> {
    let product = Product::new(&x, &y, &out, cube_math_type)?;
    Ok(Plan::new([x, y, out], move |[x, y, out]| {
        product.run(x, y, &[], out)
    }))
}

/// aclnnAddmm: `out = beta·addend + alpha·(x · y)` for matrices; the addend broadcasts, and is not read where `beta` is
/// 0. Types and `cube_math_type` as for aclnnMatmul.
pub(crate) fn addmm(
    addend: Arg<Tensor>,
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    factors: [Arg<Scalar>; 2],
    out: Arg<Tensor>,
    cube_math_type: i8,
) -> Outcome<Plan> {
    scaled_plan(2, addend, x, y, factors, out, cube_math_type)
}

/// aclnnBaddbmm: aclnnAddmm for each matrix of a batch, three dimensions each.
pub(crate) fn baddbmm(
    addend: Arg<Tensor>,
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    factors: [Arg<Scalar>; 2],
    out: Arg<Tensor>,
    cube_math_type: i8,
) -> Outcome<Plan> {
    scaled_plan(3, addend, x, y, factors, out, cube_math_type)
}

fn scaled_plan(
    rank: usize,
    addend: Arg<Tensor>,
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    [beta, alpha]: [Arg<Scalar>; 2],
    out: Arg<Tensor>,
    cube_math_type: i8,
) -> Outcome<Plan> {
    let (addend, x, y) = (addend.input()?, x.input()?, y.input()?);
    let [beta, alpha] = [beta.real()?, alpha.real()?];
    let out = out.output()?;
    for operand in [&x, &y, &out] {
        if operand.rank() != rank {
            let (expected, got) = (format!("{rank} dimensions"), operand.dims());
            return Err(bad(&operand.name, expected, format_args!("{got:?}")));
        }
    }
    let mut product = Product::new(&x, &y, &out, cube_math_type)?;
    product.alpha = alpha as f32;
    if beta != 0.0 {
        product.add(&addend, &out, beta as f32)?;
    }
    Ok(Plan::new(
        [addend, x, y, out],
        move |[addend, x, y, out]| {
            product.run(x, y, &[addend][..product.addends.len()], out);
        },
    ))
}

/// A checked product `out = alpha·(x · y) + Σ beta·addend`.
pub(crate) struct Product {
    x: Layout,
    y: Layout,
    out: Layout,
    alpha: f32,
    /// Layouts over `out`, and factors.
    addends: Vec<(Layout, f32)>,
    /// Whether the inputs are rounded to FLOAT16.
    half: bool,
}

impl Product {
    /// The product of two tensors as PyTorch's matmul has it.
    pub(crate) fn new(
        x: &Operand,
        y: &Operand,
        out: &Operand,
        cube_math_type: i8,
    ) -> Outcome<Product> {
        if !(0..=4).contains(&cube_math_type) {
            return Err(bad("cubeMathType", "a number from 0 to 4", cube_math_type));
        }
        for operand in [x, y, out] {
            operand.expect_types(HALF_AND_SINGLE)?;
        }
        let column = y.rank() == 1;
        let row = x.rank() == 1;
        let mut a = if row {
            x.layout.insert_dim(0)
        } else {
            x.layout.clone()
        };
        let mut b = if column {
            y.layout.insert_dim(1)
        } else {
            y.layout.clone()
        };
        let (a_batch, [m, k]) = split(&a);
        let (b_batch, [inner, n]) = split(&b);
        if inner != k {
            let expected = format!("{k} rows, as many as {} has columns", x.name);
            return Err(bad(&y.name, expected, format_args!("shape {:?}", y.dims())));
        }
        let batch = broadcast(&a_batch, &b_batch).ok_or_else(|| {
            let expected = format!(
                "batch dimensions that broadcast with {a_batch:?} of {}",
                x.name
            );
            bad(&y.name, expected, format_args!("{b_batch:?}"))
        })?;
        let extended = |last: &[usize]| -> Dims { batch.iter().chain(last).copied().collect() };
        let mut result = extended(&[]);
        if !row {
            result.push(m);
        }
        if !column {
            result.push(n);
        }
        out.expect_dims(&result)?;
        a = x.broadcast_batch(a, &extended(&[m, k]))?;
        b = y.broadcast_batch(b, &extended(&[k, n]))?;
        let mut c = out.layout.clone();
        if column {
            c = c.insert_dim(c.rank());
        }
        if row {
            c = c.insert_dim(c.rank() - 1);
        }
        Ok(Product {
            x: a,
            y: b,
            out: c,
            alpha: 1.0,
            addends: Vec::new(),
            half: cube_math_type == USE_FLOAT16,
        })
    }

    /// Adds `beta·addend`, which broadcasts to the shape of the result. The result has at least two dimensions.
    pub(crate) fn add(&mut self, addend: &Operand, out: &Operand, beta: f32) -> Outcome {
        addend.expect_types(HALF_AND_SINGLE)?;
        let at = addend.broadcast_to(out.dims())?;
        self.addends.push((at, beta));
        Ok(())
    }

    /// Computes it; `addends` in the order in which they were added.
    pub(crate) fn run(&self, x: &Storage, y: &Storage, addends: &[&Storage], out: &Storage) {
        let plain = self.addends.is_empty() && self.alpha == 1.0;
        let folded = fold_batch(&self.x, &self.y, &self.out).filter(|_| self.addends.is_empty());
        let [a, b, c] = folded.unwrap_or_else(|| [&self.x, &self.y, &self.out].map(Layout::clone));
        let products: usize = c.dims[..c.rank() - 2].iter().product();
        let mut panels = [Panel::new(self.half), Panel::new(self.half)];
        let (mut result, mut added) = (Vec::new(), Vec::new());
        for number in 0..products {
            let [a_panel, b_panel] = &mut panels;
            let a = a_panel.matrix(x, matrix(&a, number));
            let b = b_panel.matrix(y, matrix(&b, number));
            let at = matrix(&c, number);
            if plain && let Some(mut c) = Matrix::device(out, &at) {
                multiply(&a, &b, &mut c);
                continue;
            }
            result.resize(at.len(), 0.0);
            multiply(
                &a,
                &b,
                &mut Matrix::local(&mut result, at.dims[0], at.dims[1]),
            );
            if self.alpha != 1.0 {
                result.iter_mut().for_each(|x| *x *= self.alpha);
            }
            for ((addend_at, beta), addend) in self.addends.iter().zip(addends) {
                added.resize(at.len(), 0.0);
                f32::read(&addend.elements(&matrix(addend_at, number)), 0, &mut added);
                for (x, y) in result.iter_mut().zip(&added) {
                    *x += beta * y;
                }
            }
            f32::write(&out.elements(&at), 0, &result);
        }
    }
}

impl Operand {
    fn broadcast_batch(&self, at: Layout, dims: &[usize]) -> Outcome<Layout> {
        at.broadcast_to(dims).ok_or_else(|| {
            bad(
                &self.name,
                format_args!("a shape that broadcasts to {dims:?}"),
                format_args!("{:?}", self.dims()),
            )
        })
    }
}

/// Batch dimensions and the last two.
fn split(at: &Layout) -> (Dims, [usize; 2]) {
    let (batch, last) = at.dims.split_at(at.rank() - 2);
    (batch.into(), [last[0], last[1]])
}

/// Matrix number `number` of the last two dimensions.
pub(crate) fn matrix(at: &Layout, mut number: usize) -> Layout {
    let batch = at.rank() - 2;
    let mut offset = at.offset;
    for d in (0..batch).rev() {
        offset += (number % at.dims[d]) as isize * at.strides[d];
        number /= at.dims[d];
    }
    Layout {
        dims: at.dims[batch..].into(),
        strides: at.strides[batch..].into(),
        offset,
    }
}

/// One product of a tall matrix instead of one per batch, where all batches share the right matrix and the rows of
/// all batches follow each other evenly.
fn fold_batch(a: &Layout, b: &Layout, c: &Layout) -> Option<[Layout; 3]> {
    let batch = a.rank() - 2;
    let shared = b.dims[..batch]
        .iter()
        .zip(&b.strides)
        .all(|(&dim, &stride)| dim == 1 || stride == 0);
    let fold = |at: &Layout| {
        let last = at.rank() - 1;
        let rows = Layout {
            dims: at.dims[..last].into(),
            strides: at.strides[..last].into(),
            offset: at.offset,
        };
        let rows = rows.coalesced();
        (rows.rank() == 1).then(|| Layout {
            dims: [rows.dims[0], at.dims[last]].as_slice().into(),
            strides: [rows.strides[0], at.strides[last]].as_slice().into(),
            offset: at.offset,
        })
    };
    (batch > 0 && shared && c.len() > 0)
        .then(|| Some([fold(a)?, matrix(b, 0), fold(c)?]))
        .flatten()
}

/// An input as `f32`: in place where it lies, or in a local copy that is kept while the same matrix is asked for.
pub(crate) struct Panel {
    half: bool,
    copied: Option<Layout>,
    values: Vec<f32>,
}

impl Panel {
    /// With `half`, values are rounded to FLOAT16 first.
    pub(crate) fn new(half: bool) -> Panel {
        Panel {
            half,
            copied: None,
            values: Vec::new(),
        }
    }

    /// The matrix that `at` names in `storage`, which is the same at each call.
    pub(crate) fn matrix<'a>(&'a mut self, storage: &'a Storage, at: Layout) -> Matrix<'a> {
        if !self.half
            && let Some(matrix) = Matrix::device(storage, &at)
        {
            return matrix;
        }
        let [rows, cols] = [at.dims[0], at.dims[1]];
        if self.copied.as_ref() != Some(&at) {
            let elements = storage.elements(&at);
            self.values.resize(elements.len(), 0.0);
            f32::read(&elements, 0, &mut self.values);
            if self.half && elements.dtype() != Type::F16 {
                for value in &mut self.values {
                    *value = half::f16::from_f32(*value).to_f32();
                }
            }
            self.copied = Some(at);
        }
        Matrix::local(&mut self.values, rows, cols)
    }
}
