//! Type rules of operations that compute.

use smallvec::SmallVec;

use super::{Inferred, Site, guarded, one};
use crate::diag::{Code, Diagnostic};
use crate::shape::{Dim, Shape};
use crate::types::{DType, Type};

type Rule = Result<Inferred, Diagnostic>;

fn elementwise(site: &Site<'_>, expected: &str, accepts: impl Fn(DType) -> bool) -> Rule {
    let dtype = site.dtype(0, expected, accepts)?;
    site.same_dtype(0)?;
    let shapes: SmallVec<[&[Dim]; 3]> = site.operands.iter().map(|ty| ty.shape.dims()).collect();
    Ok(one(Type::new(dtype, site.broadcast(&shapes)?)))
}

pub(in crate::op) fn arithmetic(site: &Site<'_>) -> Rule {
    elementwise(site, "any element type", |_| true)
}

pub(in crate::op) fn signed_arithmetic(site: &Site<'_>) -> Rule {
    numeric(site)
}

pub(in crate::op) fn numeric(site: &Site<'_>) -> Rule {
    elementwise(site, "an integer, float or complex type", |dtype| {
        dtype != DType::Bool
    })
}

pub(in crate::op) fn ordered(site: &Site<'_>) -> Rule {
    elementwise(site, "a type that is not complex", |dtype| {
        !dtype.is_complex()
    })
}

pub(in crate::op) fn bitwise(site: &Site<'_>) -> Rule {
    elementwise(site, "bool or an integer type", |dtype| {
        dtype == DType::Bool || dtype.is_integer()
    })
}

pub(in crate::op) fn power(site: &Site<'_>) -> Rule {
    real(site)
}

pub(in crate::op) fn real(site: &Site<'_>) -> Rule {
    elementwise(site, "an integer or float type", |dtype| {
        dtype.is_integer() || dtype.is_float()
    })
}

pub(in crate::op) fn floating(site: &Site<'_>) -> Rule {
    elementwise(site, "a float type", DType::is_float)
}

pub(in crate::op) fn compare_equal(site: &Site<'_>) -> Rule {
    compare(arithmetic(site)?)
}

pub(in crate::op) fn compare_ordered(site: &Site<'_>) -> Rule {
    compare(ordered(site)?)
}

fn compare(mut inferred: Inferred) -> Rule {
    for ty in &mut inferred.types {
        ty.dtype = DType::Bool;
    }
    Ok(inferred)
}

pub(in crate::op) fn select(site: &Site<'_>) -> Rule {
    site.dtype(0, "bool", |dtype| dtype == DType::Bool)?;
    let dtype = site.same_dtype(1)?;
    let [c, a, b] = [0, 1, 2].map(|index| site.operands[index].shape.dims());
    Ok(one(Type::new(dtype, site.broadcast(&[c, a, b])?)))
}

pub(in crate::op) fn cast(site: &Site<'_>) -> Rule {
    Ok(one(Type::new(
        site.attrs.dtype("to"),
        site.operands[0].shape.clone(),
    )))
}

/// The last two dimensions, swapped when the attribute `flag` says so, and the leading ones.
fn matrix<'a>(site: &Site<'a>, index: usize, flag: &str) -> (&'a Dim, &'a Dim, &'a [Dim]) {
    let dims = site.operands[index].shape.dims();
    let (leading, last) = dims.split_at(dims.len() - 2);
    if site.attrs.bool(flag) {
        (&last[1], &last[0], leading)
    } else {
        (&last[0], &last[1], leading)
    }
}

pub(in crate::op) fn matmul(site: &Site<'_>) -> Rule {
    let dtype = site.dtype(0, "an integer, float or complex type", |dtype| {
        dtype != DType::Bool
    })?;
    site.same_dtype(0)?;
    site.rank_at_least(0, 2)?;
    site.rank_at_least(1, 2)?;
    let (m, k, a) = matrix(site, 0, "transpose_a");
    let (inner, n, b) = matrix(site, 1, "transpose_b");
    if k != inner {
        let transposed = site.attrs.bool("transpose_a") || site.attrs.bool("transpose_b");
        return Err(site
            .error(Code::Shape, "the inner sizes differ")
            .expected(format!(
                "`[..., m, k] x [..., k, n]`{}; k is {} and {}",
                if transposed { " after transposing" } else { "" },
                site.show_dim(k),
                site.show_dim(inner)
            ))
            .got(site.operand_types()));
    }
    let leading = site.broadcast(&[a, b])?;
    let dims = leading.dims().iter().cloned().chain([m.clone(), n.clone()]);
    Ok(one(Type::new(dtype, Shape::new(dims))))
}

/// Fails unless operand `index` is a vector as long as the last dimension of the first.
fn vector(site: &Site<'_>, index: usize) -> Result<(), Diagnostic> {
    let last = &site.operands[0].shape.dims()[site.operands[0].shape.rank() - 1];
    if site.operands[index].shape.dims() == std::slice::from_ref(last) {
        return Ok(());
    }
    Err(site
        .error(
            Code::Shape,
            "a vector does not fit the last dimension of the first operand",
        )
        .expected(format!(
            "{}[{}]",
            site.operands[0].dtype,
            site.show_dim(last)
        ))
        .got(site.show(site.operands[index])))
}

pub(in crate::op) fn bias_add(site: &Site<'_>) -> Rule {
    site.dtype(0, "an integer, float or complex type", |dtype| {
        dtype != DType::Bool
    })?;
    row_wise(site)
}

pub(in crate::op) fn norm(site: &Site<'_>) -> Rule {
    site.dtype(0, "a float type", DType::is_float)?;
    let eps = site.attrs.float("eps");
    if !(eps >= 0.0 && eps.is_finite()) {
        return Err(site
            .error(Code::Range, "`eps` is out of range")
            .expected("a finite number, 0 or more")
            .got(eps));
    }
    row_wise(site)
}

fn row_wise(site: &Site<'_>) -> Rule {
    site.same_dtype(0)?;
    site.rank_at_least(0, 1)?;
    for index in 1..site.operands.len() {
        vector(site, index)?;
    }
    Ok(one(site.operands[0].clone()))
}

pub(in crate::op) fn softmax(site: &Site<'_>) -> Rule {
    site.dtype(0, "a float type", DType::is_float)?;
    site.axis("dim", site.operands[0].shape.rank())?;
    Ok(one(site.operands[0].clone()))
}

/// The dimensions reduced and the shape left.
fn reduce_shape(
    site: &Site<'_>,
    name: &str,
    dims: &[i64],
) -> Result<(Vec<usize>, Shape), Diagnostic> {
    let shape = &site.operands[0].shape;
    if dims.is_empty() && shape.rank() > 0 {
        return Err(site
            .error(Code::Range, "`dims` is empty")
            .expected("the dimensions to reduce")
            .got(site.operand_types()));
    }
    let mut reduced = Vec::with_capacity(dims.len());
    for &dim in dims {
        let axis = site.axis_of(name, dim, shape.rank())?;
        if reduced.contains(&axis) {
            return Err(site
                .error(
                    Code::Duplicate,
                    format_args!("dimension {axis} is listed twice in `dims`"),
                )
                .got(format!("{dims:?}")));
        }
        reduced.push(axis);
    }
    let keep = site.attrs.bool("keepdim");
    let left = shape.dims().iter().enumerate().filter_map(|(index, dim)| {
        match (reduced.contains(&index), keep) {
            (false, _) => Some(dim.clone()),
            (true, true) => Some(Dim::fixed(1)),
            (true, false) => None,
        }
    });
    let left = Shape::new(left);
    Ok((reduced, left))
}

pub(in crate::op) fn sum(site: &Site<'_>) -> Rule {
    let (_, shape) = reduce_shape(site, "dims", site.attrs.ints("dims"))?;
    Ok(one(Type::new(site.operands[0].dtype, shape)))
}

pub(in crate::op) fn mean(site: &Site<'_>) -> Rule {
    site.dtype(0, "a float or complex type", |dtype| {
        dtype.is_float() || dtype.is_complex()
    })?;
    sum(site)
}

pub(in crate::op) fn max(site: &Site<'_>) -> Rule {
    extremum(
        site,
        "dims",
        site.attrs.ints("dims"),
        site.operands[0].dtype,
    )
}

pub(in crate::op) fn argmax(site: &Site<'_>) -> Rule {
    extremum(site, "dim", &[site.attrs.int("dim")], DType::I64)
}

fn extremum(site: &Site<'_>, name: &str, dims: &[i64], result: DType) -> Rule {
    site.dtype(0, "a type that is not complex", |dtype| !dtype.is_complex())?;
    let (reduced, shape) = reduce_shape(site, name, dims)?;
    let mut guards = SmallVec::new();
    for axis in reduced {
        let size = &site.operands[0].shape.dims()[axis];
        site.at_least(
            size,
            &Dim::fixed(1),
            "a reduced dimension has no element",
            &mut guards,
        )?;
    }
    Ok(guarded(Type::new(result, shape), guards))
}

pub(in crate::op) fn attention(site: &Site<'_>) -> Rule {
    let dtype = site.dtype(0, "a float type", DType::is_float)?;
    site.same_dtype(0)?;
    for index in 0..3 {
        site.rank_at_least(index, 2)?;
    }
    let split = |index: usize| {
        let dims = site.operands[index].shape.dims();
        dims.split_at(dims.len() - 2)
    };
    let ((batch, q), (batch_k, k), (batch_v, v)) = (split(0), split(1), split(2));
    if batch != batch_k || batch != batch_v || q[1] != k[1] || k[0] != v[0] {
        return Err(site
            .error(Code::Shape, "query, key and value do not fit")
            .expected("q: [..., m, d], k: [..., n, d], v: [..., n, e], equal leading dimensions")
            .got(site.operand_types()));
    }
    if let Some(mask) = site.operands.get(3) {
        let scores = Shape::new(batch.iter().chain([&q[0], &k[0]]).cloned());
        if site.broadcast(&[scores.dims(), mask.shape.dims()])? != scores {
            return Err(site
                .error(Code::Shape, "the mask does not broadcast to the scores")
                .expected(scores.display(site.symbols))
                .got(site.show(mask)));
        }
    }
    let dims = batch.iter().chain([&q[0], &v[1]]).cloned();
    Ok(one(Type::new(dtype, Shape::new(dims))))
}
