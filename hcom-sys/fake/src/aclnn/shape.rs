//! Operators that move elements: the output is a view of the input, or is put together from views.

use super::create::{copy, copying, expect_convertible, fill};
use super::dtype::{ALL, CONVERTIBLE};
use super::executor::{Arg, Operand, Plan, bad};
use super::in_words;
use super::layout::{Dims, Layout, MAX_RANK, Strides};
use super::object::{Number, Scalar, Tensor};
use crate::error::Outcome;
use crate::span::Element;
use crate::span::strided::Elements;

/// A plan that copies the view `view` of `x` to `out`, which has the view's shape and the type of `x`.
fn view_copy(mut x: Operand, view: Layout, out: Operand) -> Outcome<Plan> {
    out.expect_types(&[x.dtype])?;
    out.expect_dims(&view.dims)?;
    x.layout = view;
    Ok(copying(x, out))
}

/// aclnnPermute: dimension `d` of `out` is dimension `dims[d]` of `x`. All types.
pub(crate) fn permute(x: Arg<Tensor>, dims: Arg<Vec<i64>>, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, order, out) = (x.input()?, dims.get()?, out.output()?);
    let rank = x.rank();
    let refuse = || {
        bad(
            dims.name,
            format_args!("each of {rank} dimensions once"),
            format_args!("{order:?}"),
        )
    };
    let axes: Dims = if rank == 0 {
        Dims::new()
    } else {
        order
            .iter()
            .map(|&dim| x.axis(dims.name, dim))
            .collect::<Outcome<_>>()?
    };
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    if order.len() != rank || !sorted.iter().copied().eq(0..rank) {
        return Err(refuse());
    }
    let view = x.layout.permute(&axes);
    view_copy(x, view, out)
}

/// aclnnExpand: `x` repeated to `size` by broadcasting; -1 keeps a dimension. All types.
pub(crate) fn expand(x: Arg<Tensor>, size: Arg<Vec<i64>>, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, sizes, out) = (x.input()?, size.get()?, out.output()?);
    let wrong = || {
        let expected = format!("a shape that {:?} broadcasts to", x.dims());
        bad(size.name, expected, format_args!("{sizes:?}"))
    };
    let added = sizes.len().checked_sub(x.rank()).ok_or_else(wrong)?;
    let dims = sizes.iter().enumerate().map(|(d, &size)| match size {
        -1 => d.checked_sub(added).map(|d| x.dims()[d]),
        size => usize::try_from(size).ok(),
    });
    let dims = dims.collect::<Option<Dims>>().ok_or_else(wrong)?;
    let view = x.layout.broadcast_to(&dims).ok_or_else(wrong)?;
    view_copy(x, view, out)
}

/// aclnnSliceV2: along each of `axes`, the elements `start, start + step, …` below `end`; negative bounds count from
/// the end, bounds outside are clamped. All types.
pub(crate) fn slice_v2(
    x: Arg<Tensor>,
    starts: Arg<Vec<i64>>,
    ends: Arg<Vec<i64>>,
    axes: Arg<Vec<i64>>,
    steps: Arg<Vec<i64>>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    let count = starts.get()?.len();
    for array in [&ends, &axes, &steps] {
        if array.get()?.len() != count {
            return Err(bad(
                array.name,
                format_args!("{count} entries, as in {}", starts.name),
                array.get()?.len(),
            ));
        }
    }
    let mut view = x.layout.clone();
    let mut seen = Dims::new();
    for i in 0..count {
        let axis = x.axis(axes.name, axes.get()?[i])?;
        if x.rank() == 0 || seen.contains(&axis) {
            return Err(bad(
                axes.name,
                "different dimensions of the tensor",
                format_args!("{:?}", axes.get()?),
            ));
        }
        seen.push(axis);
        let step = steps.get()?[i];
        if step < 1 {
            return Err(bad(steps.name, "steps of at least 1", step));
        }
        let size = x.dims()[axis] as i64;
        let clamp = |bound: i64| {
            (if bound < 0 {
                bound.saturating_add(size)
            } else {
                bound
            })
            .clamp(0, size)
        };
        let (start, end) = (clamp(starts.get()?[i]), clamp(ends.get()?[i]));
        let len = (end - start).max(0) as u64;
        let len = len.div_ceil(step as u64) as usize;
        view = view.narrow(axis, start as usize, len, step as usize);
    }
    view_copy(x, view, out)
}

/// aclnnSlice: the elements `start, start + step, …` below `end` along `dim`; bounds as for aclnnSliceV2.
pub(crate) fn slice(
    x: Arg<Tensor>,
    dim: i64,
    start: i64,
    end: i64,
    step: i64,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let one = |name, value| Arg::fixed(name, vec![value]);
    slice_v2(
        x,
        one("start", start),
        one("end", end),
        one("dim", dim),
        one("step", step),
        out,
    )
}

/// aclnnCat: the tensors behind each other along `dim`; converted to the output's type. Tensors of shape `[0]` are
/// left out. All types; different ones only if real.
pub(crate) fn cat(tensors: Arg<Vec<usize>>, dim: i64, out: Arg<Tensor>) -> Outcome<Plan> {
    let (mut inputs, out) = (tensors.inputs()?, out.output()?);
    if inputs.is_empty() {
        return Err(bad(tensors.name, "at least one tensor", "none"));
    }
    inputs.retain(|x| x.dims() != [0] || out.rank() == 1);
    let Some(first) = inputs.first() else {
        out.expect_dims(&[0])?;
        return Ok(Plan::new([out], |_| {}));
    };
    if first.rank() == 0 {
        return Err(bad(&first.name, "at least one dimension", "rank 0"));
    }
    let axis = first.axis("dim", dim)?;
    let mut dims = first.layout.dims.clone();
    dims[axis] = 0;
    let mut common = first.dtype;
    for x in &inputs {
        let mut expected = dims.clone();
        if x.rank() == expected.len() {
            expected[axis] = x.dims()[axis];
        }
        x.expect_dims(&expected)?;
        dims[axis] += expected[axis];
        common = common.promote(x.dtype).ok_or_else(|| {
            bad(
                &x.name,
                format_args!("a data type that promotes with {common}"),
                x.dtype,
            )
        })?;
    }
    if inputs.iter().any(|x| x.dtype != out.dtype) {
        for operand in inputs.iter().chain([&out]) {
            operand.expect_types(CONVERTIBLE)?;
        }
        out.expect_holds(common)?;
    }
    out.expect_dims(&dims)?;
    Ok(join(inputs, axis, out))
}

/// A plan that copies the inputs behind each other along `axis` of the output.
fn join(mut inputs: Vec<Operand>, axis: usize, out: Operand) -> Plan {
    let sizes: Vec<usize> = inputs.iter().map(|x| x.dims()[axis]).collect();
    let from: Vec<Layout> = inputs.iter().map(|x| x.layout.clone()).collect();
    let to = pieces(&out.layout, axis, &sizes);
    inputs.push(out);
    Plan::many(inputs, move |storages| {
        let (out, inputs) = storages.split_last().expect("the output is there");
        for ((x, from), to) in inputs.iter().zip(&from).zip(&to) {
            copy(&x.elements(from), &out.elements(to));
        }
        Ok(())
    })
}

/// Views of these sizes along `axis`, one behind the other.
fn pieces(whole: &Layout, axis: usize, sizes: &[usize]) -> Vec<Layout> {
    let mut start = 0;
    let piece = |&size: &usize| {
        start += size;
        whole.narrow(axis, start - size, size, 1)
    };
    sizes.iter().map(piece).collect()
}

/// aclnnStack: the tensors, all of one shape, as the slices of a new dimension `dim`. All types; different ones only if
/// real.
pub(crate) fn stack(tensors: Arg<Vec<usize>>, dim: i64, out: Arg<Tensor>) -> Outcome<Plan> {
    let (mut inputs, out) = (tensors.inputs()?, out.output()?);
    let Some(first) = inputs.first() else {
        return Err(bad(tensors.name, "at least one tensor", "none"));
    };
    let mut dims = first.layout.dims.clone();
    let axis = out.axis("dim", dim)?;
    if out.rank() != dims.len() + 1 {
        let expected = format!("{} dimensions", dims.len() + 1);
        return Err(bad(
            &out.name,
            expected,
            format_args!("shape {:?}", out.dims()),
        ));
    }
    for x in &inputs {
        x.expect_dims(&dims)?;
        expect_convertible(x, &out)?;
        out.expect_holds(x.dtype)?;
    }
    dims.insert(axis, inputs.len());
    out.expect_dims(&dims)?;
    for x in &mut inputs {
        x.layout = x.layout.insert_dim(axis);
    }
    Ok(join(inputs, axis, out))
}

/// aclnnSplitTensor: pieces of `size` elements along `dim`, the last of what is left. All types.
pub(crate) fn split_tensor(
    x: Arg<Tensor>,
    size: u64,
    dim: i64,
    out: Arg<Vec<usize>>,
) -> Outcome<Plan> {
    let whole = x.input()?;
    let axis = whole.axis("dim", dim)?;
    let total = whole.dims().get(axis).copied().unwrap_or(1);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size == 0 && total != 0 {
        return Err(bad("splitSections", "at least 1", size));
    }
    let count = if total == 0 { 1 } else { total.div_ceil(size) };
    let sizes: Vec<usize> = (0..count)
        .map(|piece| size.min(total - piece * size))
        .collect();
    split(whole, axis, &sizes, &out)
}

/// aclnnSplitWithSize: pieces of the given sizes along `dim`. All types.
pub(crate) fn split_with_size(
    x: Arg<Tensor>,
    sizes: Arg<Vec<i64>>,
    dim: i64,
    out: Arg<Vec<usize>>,
) -> Outcome<Plan> {
    let (whole, list) = (x.input()?, sizes.get()?);
    let axis = whole.axis("dim", dim)?;
    let total = whole.dims().get(axis).copied().unwrap_or(1);
    let known: Option<Vec<usize>> = list
        .iter()
        .map(|&size| usize::try_from(size).ok())
        .collect();
    match known {
        Some(known) if known.iter().sum::<usize>() == total => split(whole, axis, &known, &out),
        _ => {
            let expected = format!("sizes that sum to the {total} of dimension {axis}");
            Err(bad(sizes.name, expected, format_args!("{list:?}")))
        }
    }
}

fn split(x: Operand, axis: usize, sizes: &[usize], out: &Arg<Vec<usize>>) -> Outcome<Plan> {
    let outputs = out.outputs()?;
    if x.rank() == 0 {
        return Err(bad(&x.name, "at least one dimension", "rank 0"));
    }
    if outputs.len() != sizes.len() {
        return Err(bad(
            out.name,
            format_args!("{} tensors", sizes.len()),
            outputs.len(),
        ));
    }
    let from = pieces(&x.layout, axis, sizes);
    for (out, from) in outputs.iter().zip(&from) {
        out.expect_types(&[x.dtype])?;
        out.expect_dims(&from.dims)?;
    }
    let to: Vec<Layout> = outputs.iter().map(|out| out.layout.clone()).collect();
    let operands = [x].into_iter().chain(outputs).collect();
    Ok(Plan::many(operands, move |storages| {
        let (x, outputs) = storages.split_first().expect("the input is there");
        for ((out, from), to) in outputs.iter().zip(&from).zip(&to) {
            copy(&x.elements(from), &out.elements(to));
        }
        Ok(())
    }))
}

/// aclnnFlatten: a matrix whose rows run over the dimensions in front of `axis`, and whose columns over the others. All
/// types.
pub(crate) fn flatten(x: Arg<Tensor>, axis: i64, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    // The axis behind the last is one, too.
    let at = match usize::try_from(axis) {
        Ok(axis) if axis == x.rank() => axis,
        _ => x.axis("axis", axis)?,
    };
    let (rows, columns) = x.dims().split_at(at.min(x.rank()));
    out.expect_types(&[x.dtype])?;
    out.expect_dims(&[rows.iter().product(), columns.iter().product()])?;
    Ok(copying(x, out))
}

/// aclnnRepeat: `x`, with dimensions of size 1 in front as needed, `repeats[d]` times along each dimension `d`. All
/// types.
pub(crate) fn repeat(x: Arg<Tensor>, repeats: Arg<Vec<i64>>, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, list, out) = (x.input()?, repeats.get()?, out.output()?);
    let times: Option<Dims> = list.iter().map(|&n| usize::try_from(n).ok()).collect();
    let fits = times.filter(|times| (x.rank()..=MAX_RANK).contains(&times.len()));
    let Some(times) = fits else {
        let expected = format!("{} to {MAX_RANK} numbers of at least 0", x.rank());
        return Err(bad(repeats.name, expected, format_args!("{list:?}")));
    };
    let added = times.len() - x.rank();
    let mut view = Layout {
        dims: Dims::new(),
        strides: Strides::new(),
        offset: x.layout.offset,
    };
    let mut dims = Dims::new();
    for (d, &n) in times.iter().enumerate() {
        let (size, stride) = match d.checked_sub(added) {
            Some(d) => (x.dims()[d], x.layout.strides[d]),
            None => (1, 0),
        };
        dims.push(n * size);
        view.dims.extend([n, size]);
        view.strides.extend([0, stride]);
    }
    out.expect_types(&[x.dtype])?;
    out.expect_dims(&dims)?;
    let to = out.layout.clone();
    Ok(Plan::new([x, out], move |[x, out]| {
        copy(&x.elements(&view), &out.elements(&to));
    }))
}

/// aclnnConstantPadNd: `pad` holds the elements to add before and behind the last dimension, then the last but one,
/// and so on; negative numbers cut off. Added elements are `value`. All types.
pub(crate) fn constant_pad(
    x: Arg<Tensor>,
    pad: Arg<Vec<i64>>,
    value: Arg<Scalar>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, pads, out) = (x.input()?, pad.get()?, out.output()?);
    let (value_name, value) = (value.name, *value.get()?);
    x.expect_types(ALL)?;
    out.expect_types(&[x.dtype])?;
    if matches!(value.value, Number::Complex(..)) && !x.dtype.is_complex() {
        return Err(bad(
            value_name,
            format_args!("a scalar that casts to {}", x.dtype),
            value.dtype,
        ));
    }
    if pads.len() % 2 != 0 || pads.len() > 2 * x.rank() {
        return Err(bad(
            pad.name,
            format_args!("pairs for at most {} dimensions", x.rank()),
            format_args!("{pads:?}"),
        ));
    }
    let mut dims = x.layout.dims.clone();
    let (mut from, mut inner) = (x.layout.clone(), Vec::new());
    for (axis, pair) in (0..x.rank()).rev().zip(pads.chunks(2)) {
        let size = dims[axis] as i64;
        let [low, high] = [pair[0], pair[1]];
        let cut = (-low).max(0) + (-high).max(0);
        let padded = size
            .checked_add(low)
            .and_then(|sum| sum.checked_add(high))
            .filter(|&sum| sum >= 0);
        let Some(padded) = padded.filter(|_| cut <= size) else {
            return Err(bad(
                pad.name,
                format_args!("no more than {size} cut from dimension {axis}"),
                format_args!("{pads:?}"),
            ));
        };
        from = from.narrow(axis, (-low).max(0) as usize, (size - cut) as usize, 1);
        inner.push((axis, low.max(0) as usize, (size - cut) as usize));
        dims[axis] = padded as usize;
    }
    out.expect_dims(&dims)?;
    let whole = out.layout.clone();
    let to = inner.iter().fold(whole.clone(), |to, &(axis, start, len)| {
        to.narrow(axis, start, len, 1)
    });
    Ok(Plan::new([x, out], move |[x, out]| {
        fill(&out.elements(&whole), value);
        copy(&x.elements(&from), &out.elements(&to));
    }))
}

/// Which side of a diagonal stays.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Triangle {
    Lower,
    Upper,
}

/// aclnnTril and aclnnTriu: element `(i, j)` of each matrix of the last two dimensions stays where
/// `j - i ≤ diagonal` (lower) or `j - i ≥ diagonal` (upper), else it becomes 0. All types.
pub(crate) fn triangle(
    side: Triangle,
    x: Arg<Tensor>,
    diagonal: i64,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    let &[.., rows, cols] = x.dims() else {
        return Err(bad(
            &x.name,
            "at least two dimensions",
            format_args!("{:?}", x.dims()),
        ));
    };
    out.expect_types(&[x.dtype])?;
    out.expect_dims(x.dims())?;
    let (x_at, out_at) = (x.layout.clone(), out.layout.clone());
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&x_at), out.elements(&out_at));
        in_words!(x.dtype(), S => triangle_words::<S>(side, diagonal, rows, cols, &x, &out));
    }))
}

fn triangle_words<S: Element>(
    side: Triangle,
    diagonal: i64,
    rows: usize,
    cols: usize,
    x: &Elements<'_>,
    out: &Elements<'_>,
) {
    let mut values = vec![S::default(); cols];
    for (line, start) in (0..out.len()).step_by(cols.max(1)).enumerate() {
        let first = diagonal.saturating_add((line % rows) as i64);
        x.gather(start, &mut values);
        match side {
            Triangle::Lower => {
                values[first.saturating_add(1).clamp(0, cols as i64) as usize..].fill(S::default());
            }
            Triangle::Upper => values[..first.clamp(0, cols as i64) as usize].fill(S::default()),
        }
        out.scatter(start, &values);
    }
}
