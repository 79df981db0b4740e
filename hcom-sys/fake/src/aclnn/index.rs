//! Operators that pick elements by indices.

use super::compute::{BLOCK, Compute};
use super::dtype::{ALL, INDICES, Type};
use super::elementwise::{blocks, common_dims};
use super::executor::{Arg, DEVICE_EXCEPTION, Plan, bad};
use super::in_words;
use super::layout::{Dims, broadcast};
use super::object::{TENSORS, Tensor};
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
    let matrix = weight.input()?;
    if matrix.rank() != 2 {
        let got = format!("{:?}", matrix.dims());
        return Err(bad(&matrix.name, "two dimensions", got));
    }
    gather_v2(weight, 0, indices, out)
}

/// aclnnIndexSelect: aclnnGatherV2 with a list of indices.
pub(crate) fn index_select(
    x: Arg<Tensor>,
    dim: i64,
    index: Arg<Tensor>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let list = index.input()?;
    if list.rank() > 1 {
        let got = format!("{:?}", list.dims());
        return Err(bad(&list.name, "at most one dimension", got));
    }
    gather_v2(x, dim, index, out)
}

/// aclnnGatherV2: `out[a…, i…, b…] = x[a…, index[i…], b…]` with the index in dimension `dim`. All types; indices are
/// INT32 or INT64, and one outside the dimension stops the device.
pub(crate) fn gather_v2(
    x: Arg<Tensor>,
    dim: i64,
    index: Arg<Tensor>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, index, out) = (x.input()?, index.input()?, out.output()?);
    x.expect_types(ALL)?;
    index.expect_types(INDICES)?;
    out.expect_types(&[x.dtype])?;
    let axis = x.axis("dim", dim)?;
    let (outer, rest) = x.dims().split_at(axis.min(x.rank()));
    let (size, inner) = rest
        .split_first()
        .map_or((1, rest), |(&size, inner)| (size, inner));
    let dims: Dims = outer
        .iter()
        .chain(index.dims())
        .chain(inner)
        .copied()
        .collect();
    out.expect_dims(&dims)?;
    let [outer, width] = [outer, inner].map(|dims| dims.iter().product());
    let layouts = [&x, &index, &out].map(|operand| operand.layout.clone());
    Ok(Plan::fallible([x, index, out], move |storages| {
        let [x, index, out] = std::array::from_fn(|i| storages[i].elements(&layouts[i]));
        let rows = read_indices(&index)
            .map(|index| checked(index, size))
            .collect::<Outcome<Vec<usize>>>()?;
        in_words!(x.dtype(), S => copy_rows::<S>(&x, [outer, size, width], &rows, &out));
        Ok(())
    }))
}

fn read_indices(at: &Elements<'_>) -> impl Iterator<Item = i64> + use<> {
    let mut indices = vec![0i64; at.len()];
    i64::read(at, 0, &mut indices);
    indices.into_iter()
}

/// For each of `outer` matrices of `size` rows, copies the rows with these numbers.
fn copy_rows<S: Element>(
    x: &Elements<'_>,
    [outer, size, width]: [usize; 3],
    rows: &[usize],
    out: &Elements<'_>,
) {
    let mut values = vec![S::default(); width];
    for matrix in 0..outer {
        for (i, row) in rows.iter().enumerate() {
            x.gather((matrix * size + row) * width, &mut values);
            out.scatter((matrix * rows.len() + i) * width, &values);
        }
    }
}

/// aclnnIndex: NumPy's indexing with arrays. Each of `indices` picks in the dimension with its number; one that is null
/// or has no elements, or is not there, leaves its dimension whole. The indices broadcast against each other; their
/// dimensions stand where the first indexed one was if the indexed ones are neighbours, else in front. All types;
/// indices are INT32 or INT64, negative ones count from the end, and one outside stops the device.
pub(crate) fn index(x: Arg<Tensor>, indices: Arg<Vec<usize>>, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    x.expect_types(ALL)?;
    out.expect_types(&[x.dtype])?;
    let list = indices.optional_inputs()?;
    if list.len() > x.rank() {
        let expected = format!("at most {} tensors", x.rank());
        return Err(bad(indices.name, expected, list.len()));
    }
    let (mut axes, mut picks, mut shape) = (Dims::new(), Vec::new(), Dims::new());
    for (axis, pick) in list.into_iter().enumerate() {
        let Some(pick) = pick.filter(|pick| pick.layout.len() > 0) else {
            continue;
        };
        pick.expect_types(INDICES)?;
        shape = broadcast(&shape, pick.dims()).ok_or_else(|| {
            let expected = format!("a shape that broadcasts with {shape:?}");
            bad(&pick.name, expected, format_args!("{:?}", pick.dims()))
        })?;
        axes.push(axis);
        picks.push(pick);
    }
    let (Some(&first), Some(&last)) = (axes.first(), axes.last()) else {
        return Err(bad(
            indices.name,
            "at least one tensor with elements",
            "none",
        ));
    };
    let rest: Dims = (0..x.rank()).filter(|axis| !axes.contains(axis)).collect();
    // Position of the picked dimensions among those of the result.
    let front = if last - first + 1 == axes.len() {
        first
    } else {
        0
    };
    let mut dims: Dims = rest.iter().map(|&axis| x.dims()[axis]).collect();
    dims.insert_many(front, shape.iter().copied());
    out.expect_dims(&dims)?;
    let order: Dims = axes.iter().chain(&rest).copied().collect();
    let x_at = x.layout.permute(&order);
    let picked = front..front + shape.len();
    let others = (0..dims.len()).filter(|d| !picked.contains(d));
    let out_at = out
        .layout
        .permute(&picked.clone().chain(others).collect::<Dims>());
    let sizes: Dims = axes.iter().map(|&axis| x.dims()[axis]).collect();
    let width = rest.iter().map(|&axis| x.dims()[axis]).product();
    let picks_at = picks
        .iter()
        .map(|pick| pick.broadcast_to(&shape))
        .collect::<Outcome<Vec<_>>>()?;
    let operands = [x].into_iter().chain(picks).chain([out]).collect();
    Ok(Plan::many(operands, move |storages| {
        let [x, picks @ .., out] = storages else {
            unreachable!("input and output are there");
        };
        let mut rows = vec![0; shape.iter().product()];
        for ((pick, at), &size) in picks.iter().zip(&picks_at).zip(&sizes) {
            for (row, index) in rows.iter_mut().zip(read_indices(&pick.elements(at))) {
                let from_start = if index < 0 {
                    index + size as i64
                } else {
                    index
                };
                let place = checked(from_start, size).map_err(|_| {
                    let text =
                        format!("expected an index from -{size} to below {size}, got {index}");
                    Failure::new(DEVICE_EXCEPTION, text)
                })?;
                *row = *row * size + place;
            }
        }
        let (x, out) = (x.elements(&x_at), out.elements(&out_at));
        in_words!(x.dtype(), S => copy_rows::<S>(&x, [1, 0, width], &rows, &out));
        Ok(())
    }))
}

/// aclnnMaskedSelect: the elements of `x` where `mask` is set, in row-major order of the shape that both broadcast to.
/// `out` has one dimension and room for all of them; the operator sets its size to the number of those it wrote, which
/// `aclGetViewShape` tells once the stream has run it. All types; the mask is BOOL or UINT8.
pub(crate) fn masked_select(x: Arg<Tensor>, mask: Arg<Tensor>, out: Arg<Tensor>) -> Outcome<Plan> {
    let handle = out.handle();
    let (x, mask, out) = (x.input()?, mask.input()?, out.output()?);
    x.expect_types(ALL)?;
    mask.expect_types(&[Type::Bool, Type::U8])?;
    out.expect_types(&[x.dtype])?;
    let dims = common_dims(&x, &mask)?;
    let (x_at, mask_at) = (x.broadcast_to(&dims)?, mask.broadcast_to(&dims)?);
    out.expect_dims(&[dims.iter().product()])?;
    let out_at = out.layout.clone();
    Ok(Plan::new([x, mask, out], move |[x, mask, out]| {
        let (x, mask, out) = (
            x.elements(&x_at),
            mask.elements(&mask_at),
            out.elements(&out_at),
        );
        let count = in_words!(x.dtype(), S => compress::<S>(&x, &mask, &out));
        // The caller may have destroyed the description by now.
        TENSORS.update(handle, |tensor| tensor.dims = vec![count as i64]);
    }))
}

/// Copies the elements under the mask to the front; gives their number.
fn compress<S: Element>(x: &Elements<'_>, mask: &Elements<'_>, out: &Elements<'_>) -> usize {
    let (mut values, mut set) = ([S::default(); BLOCK], [0u8; BLOCK]);
    let mut written = 0;
    blocks(x.len(), |start, len| {
        x.gather(start, &mut values[..len]);
        mask.gather(start, &mut set[..len]);
        let mut kept = 0;
        for i in 0..len {
            values[kept] = values[i];
            kept += usize::from(set[i] != 0);
        }
        out.scatter(written, &values[..kept]);
        written += kept;
    });
    written
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
