//! Operators that pick elements by indices.

use super::compute::{BLOCK, Compute};
use super::dtype::{ALL, INDICES};
use super::elementwise::blocks;
use super::executor::{Arg, DEVICE_EXCEPTION, Plan, bad};
use super::in_words;
use super::layout::Dims;
use super::object::Tensor;
use crate::error::{Failure, Outcome};
use crate::span::Element;
use crate::span::strided::Elements;

/// An index within `0..size`; the device stops at others.
fn checked(index: i64, size: usize) -> Outcome<usize> {
    usize::try_from(index)
        .ok()
        .filter(|&index| index < size)
        .ok_or_else(|| {
            Failure::new(
                DEVICE_EXCEPTION,
                format!("expected an index from 0 to below {size}, got {index}"),
            )
        })
}

/// aclnnEmbedding: `out[i…] = weight[indices[i…]]`, rows of a matrix. All types; indices are INT32 or INT64, and one
/// outside the matrix stops the device.
pub(crate) fn embedding(
    weight: Arg<Tensor>,
    indices: Arg<Tensor>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (weight, indices, out) = (weight.input()?, indices.input()?, out.output()?);
    let &[rows, width] = weight.dims() else {
        return Err(bad(
            &weight.name,
            "two dimensions",
            format_args!("{:?}", weight.dims()),
        ));
    };
    weight.expect_types(ALL)?;
    indices.expect_types(INDICES)?;
    out.expect_types(&[weight.dtype])?;
    let dims: Dims = indices.dims().iter().copied().chain([width]).collect();
    out.expect_dims(&dims)?;
    let (weight_at, indices_at, out_at) = (
        weight.layout.clone(),
        indices.layout.clone(),
        out.layout.clone(),
    );
    Ok(Plan::fallible(
        [weight, indices, out],
        move |[weight, indices, out]| {
            let (weight, indices, out) = (
                weight.elements(&weight_at),
                indices.elements(&indices_at),
                out.elements(&out_at),
            );
            in_words!(weight.dtype(), S => copy_rows::<S>(&weight, rows, width, &indices, &out))
        },
    ))
}

fn copy_rows<S: Element>(
    weight: &Elements<'_>,
    rows: usize,
    width: usize,
    indices: &Elements<'_>,
    out: &Elements<'_>,
) -> Outcome {
    let mut row = vec![S::default(); width];
    let mut index = [0i64];
    for i in 0..indices.len() {
        i64::read(indices, i, &mut index);
        weight.gather(checked(index[0], rows)? * width, &mut row);
        out.scatter(i * width, &row);
    }
    Ok(())
}

/// aclnnGather: `out[i…, k, j…] = x[i…, index[i…, k, j…], j…]` along dimension `dim`. `index` has the rank of `x` and
/// is no larger in the other dimensions; `out` has its shape. All types; indices are INT32 or INT64, and one outside
/// the dimension stops the device.
pub(crate) fn gather(
    x: Arg<Tensor>,
    dim: i64,
    index: Arg<Tensor>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, index, out) = (x.input()?, index.input()?, out.output()?);
    x.expect_types(ALL)?;
    index.expect_types(INDICES)?;
    out.expect_types(&[x.dtype])?;
    out.expect_dims(index.dims())?;
    let axis = x.axis("dim", dim)?;
    let fits = x.rank() == index.rank()
        && (0..x.rank()).all(|d| d == axis || index.dims()[d] <= x.dims()[d]);
    if !fits {
        let expected = format!(
            "{} dimensions no larger than those of {:?} except {axis}",
            x.rank(),
            x.dims()
        );
        return Err(bad(
            &index.name,
            expected,
            format_args!("{:?}", index.dims()),
        ));
    }
    let (mut x_at, mut index_at, mut out_at) =
        (x.layout.clone(), index.layout.clone(), out.layout.clone());
    if x.rank() == 0 {
        x_at = x_at.insert_dim(0);
        index_at = index_at.insert_dim(0);
        out_at = out_at.insert_dim(0);
    }
    for d in (0..x.rank()).filter(|&d| d != axis) {
        x_at = x_at.narrow(d, 0, index.dims()[d], 1);
    }
    for at in [&mut x_at, &mut index_at, &mut out_at] {
        *at = at.move_to_end(axis);
    }
    let (size, count) = (
        x_at.dims[x_at.rank() - 1],
        index_at.dims[index_at.rank() - 1],
    );
    Ok(Plan::fallible([x, index, out], move |[x, index, out]| {
        let (x, index, out) = (
            x.elements(&x_at),
            index.elements(&index_at),
            out.elements(&out_at),
        );
        in_words!(x.dtype(), S => pick::<S>(&x, size, &index, count, &out))
    }))
}

/// Each row of `count` results picks from the row of `size` elements with the same number.
fn pick<S: Element>(
    x: &Elements<'_>,
    size: usize,
    index: &Elements<'_>,
    count: usize,
    out: &Elements<'_>,
) -> Outcome {
    let (mut indices, mut values) = ([0i64; BLOCK], [S::default(); BLOCK]);
    let mut outcome = Ok(());
    blocks(out.len(), |start, len| {
        let (indices, values) = (&mut indices[..len], &mut values[..len]);
        i64::read(index, start, indices);
        for (i, (index, value)) in indices.iter().zip(values.iter_mut()).enumerate() {
            match checked(*index, size) {
                Ok(index) => {
                    let row = (start + i) / count;
                    x.gather(row * size + index, std::slice::from_mut(value));
                }
                Err(failure) => outcome = Err(failure),
            }
        }
        if outcome.is_ok() {
            out.scatter(start, values);
        }
    });
    outcome
}
