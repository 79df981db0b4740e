//! Operators that order the elements of a dimension.

use std::cmp::Ordering;

use super::compute::Compute;
use super::dtype::{Class, NUMBERS, Type};
use super::executor::{Arg, Operand, Plan, bad};
use super::in_class;
use super::object::Tensor;
use crate::error::Outcome;
use crate::span::strided::Elements;

/// aclnnSort: the elements along `dim` in ascending or descending order, and the index that each had. Equal elements
/// keep their order, whether or not `stable` is asked for; what is not a number counts as the largest. Real numbers
/// except BOOL; indices are INT64.
pub(crate) fn sort(
    x: Arg<Tensor>,
    _stable: bool,
    dim: i64,
    descending: bool,
    values: Arg<Tensor>,
    indices: Arg<Tensor>,
) -> Outcome<Plan> {
    let x = x.input()?;
    let axis = x.axis("dim", dim)?;
    let count = x.dims().get(axis).copied().unwrap_or(1);
    first(x, count, dim, descending, &values, &indices)
}

/// aclnnTopk: the `k` largest or smallest elements along `dim`, from the outermost on, and the index that each had; of
/// equal elements those with the lowest index. The result is in order whether or not `sorted` is asked for. Types as for
/// aclnnSort.
pub(crate) fn topk(
    x: Arg<Tensor>,
    k: i64,
    dim: i64,
    largest: bool,
    _sorted: bool,
    values: Arg<Tensor>,
    indices: Arg<Tensor>,
) -> Outcome<Plan> {
    let x = x.input()?;
    let axis = x.axis("dim", dim)?;
    let size = x.dims().get(axis).copied().unwrap_or(1);
    match usize::try_from(k).ok().filter(|&k| k <= size) {
        Some(k) => first(x, k, dim, largest, &values, &indices),
        None => Err(bad(
            "k",
            format_args!("0 to {size}, the size of dimension {axis}"),
            k,
        )),
    }
}

/// A plan for the first `count` elements along `dim` in descending or ascending order.
fn first(
    x: Operand,
    count: usize,
    dim: i64,
    descending: bool,
    values: &Arg<Tensor>,
    indices: &Arg<Tensor>,
) -> Outcome<Plan> {
    let (values, indices) = (values.output()?, indices.output()?);
    x.expect_types(NUMBERS)?;
    values.expect_types(&[x.dtype])?;
    indices.expect_types(&[Type::I64])?;
    let mut dims = x.layout.dims.clone();
    if let Some(size) = dims.get_mut(x.axis("dim", dim)?) {
        *size = count;
    }
    values.expect_dims(&dims)?;
    indices.expect_dims(&dims)?;
    let x_at = x.row_last("dim", dim)?;
    let [values_at, indices_at] = [values.row_last("dim", dim)?, indices.row_last("dim", dim)?];
    let (size, class) = (x_at.dims[x_at.rank() - 1], x.dtype.class());
    Ok(Plan::new(
        [x, values, indices],
        move |[x, values, indices]| {
            let x = x.elements(&x_at);
            let out = [values.elements(&values_at), indices.elements(&indices_at)];
            in_class!(class, C => order_rows::<C>(&x, size, count, descending, &out));
        },
    ))
}

fn order_rows<C: Compute>(
    x: &Elements<'_>,
    size: usize,
    count: usize,
    descending: bool,
    [values, indices]: &[Elements<'_>; 2],
) {
    let order = |a: &(C, i64), b: &(C, i64)| {
        let ascending = (a.0.is_nan().cmp(&b.0.is_nan()))
            .then_with(|| a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal));
        let by_value = if descending {
            ascending.reverse()
        } else {
            ascending
        };
        by_value.then(a.1.cmp(&b.1))
    };
    let rows = values.len() / count.max(1);
    let (mut row, mut pairs) = (vec![C::ZERO; size], Vec::with_capacity(size));
    let mut places = vec![0i64; count];
    for number in 0..rows {
        C::read(x, number * size, &mut row);
        pairs.clear();
        pairs.extend(row.iter().copied().zip(0..));
        if count < size {
            pairs.select_nth_unstable_by(count, order);
        }
        pairs[..count].sort_unstable_by(order);
        for ((value, place), pair) in row.iter_mut().zip(&mut places).zip(&pairs) {
            (*value, *place) = *pair;
        }
        C::write(values, number * count, &row[..count]);
        i64::write(indices, number * count, &places);
    }
}
