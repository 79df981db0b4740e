//! Type rules of operations that make or move data.

use smallvec::SmallVec;

use super::{Inferred, Site, guarded, one};
use crate::diag::{Code, Diagnostic};
use crate::op::attr::Attr;
use crate::op::attr::Attrs;
use crate::shape::{Dim, Shape, same_product};
use crate::types::{DType, Type};

type Rule = Result<Inferred, Diagnostic>;

pub(in crate::op) fn constant(site: &Site<'_>) -> Rule {
    let literal = site.attrs.literal("value");
    literal.check()?;
    Ok(one(literal.ty()))
}

pub(in crate::op) fn same(site: &Site<'_>) -> Rule {
    Ok(one(site.operands[0].clone()))
}

pub(in crate::op) fn copy_to_input(site: &Site<'_>) -> Rule {
    if site.operands[0] != site.operands[1] {
        return Err(site
            .error(Code::Type, "the value and the input have different types")
            .expected(site.show(site.operands[1]))
            .got(site.show(site.operands[0])));
    }
    Ok(Inferred::default())
}

pub(in crate::op) fn embedding(site: &Site<'_>) -> Rule {
    indices(site)?;
    site.rank_at_least(0, 1)?;
    let [table, indices] = [0, 1].map(|index| site.operands[index]);
    let dims = indices
        .shape
        .dims()
        .iter()
        .chain(&table.shape.dims()[1..])
        .cloned();
    Ok(one(Type::new(table.dtype, Shape::new(dims))))
}

fn indices(site: &Site<'_>) -> Result<DType, Diagnostic> {
    site.dtype(1, "i32 or i64", |dtype| {
        matches!(dtype, DType::I32 | DType::I64)
    })
}

pub(in crate::op) fn gather(site: &Site<'_>) -> Rule {
    indices(site)?;
    let [x, indices] = [0, 1].map(|index| site.operands[index]);
    let axis = site.axis("dim", x.shape.rank())?;
    if x.shape.rank() != indices.shape.rank() {
        return Err(site
            .error(Code::Shape, "the operands have different ranks")
            .expected(format!("indices of rank {}", x.shape.rank()))
            .got(site.operand_types()));
    }
    let mut guards = SmallVec::new();
    for (position, (size, index)) in x.shape.dims().iter().zip(indices.shape.dims()).enumerate() {
        if position != axis {
            site.at_least(
                size,
                index,
                "the indices are larger than the operand",
                &mut guards,
            )?;
        }
    }
    Ok(guarded(Type::new(x.dtype, indices.shape.clone()), guards))
}

fn shape_attr(site: &Site<'_>) -> Shape {
    Shape::new(site.attrs.dims("shape").iter().cloned())
}

pub(in crate::op) fn reshape(site: &Site<'_>) -> Rule {
    let x = site.operands[0];
    let shape = shape_attr(site);
    match same_product(x.shape.dims(), shape.dims()) {
        Some(true) => Ok(one(Type::new(x.dtype, shape))),
        Some(false) => {
            let count = |shape: &Shape| match shape.elements() {
                Some(count) => format!("{count} elements"),
                None => format!("the elements of {}", shape.display(site.symbols)),
            };
            Err(site
                .error(Code::Shape, "the shapes hold different numbers of elements")
                .expected(format!("a shape of {}", count(&x.shape)))
                .got(format!(
                    "{} of {}",
                    count(&shape),
                    shape.display(site.symbols)
                )))
        }
        None => Err(site.error(
            Code::TooLarge,
            "the number of elements does not fit in 64 bits",
        )),
    }
}

pub(in crate::op) fn as_real(site: &Site<'_>) -> Rule {
    let dtype = site.dtype(0, "a complex type", DType::is_complex)?;
    let part = dtype.part().expect("the type is complex");
    let dims = site.operands[0].shape.dims().iter().cloned();
    Ok(one(Type::new(
        part,
        Shape::new(dims.chain([Dim::fixed(2)])),
    )))
}

pub(in crate::op) fn as_complex(site: &Site<'_>) -> Rule {
    let complex = |dtype| DType::ALL.into_iter().find(|of| of.part() == Some(dtype));
    let dtype = site.dtype(0, "f32 or f64", |dtype| complex(dtype).is_some())?;
    let dims = site.operands[0].shape.dims();
    match dims.split_last() {
        Some((last, dims)) if *last == Dim::fixed(2) => Ok(one(Type::new(
            complex(dtype).expect("the type was checked"),
            Shape::new(dims.iter().cloned()),
        ))),
        _ => Err(site
            .error(Code::Shape, "the last dimension holds no pairs")
            .expected("a last dimension of size 2")
            .got(site.operand_types())),
    }
}

pub(in crate::op) fn transpose(site: &Site<'_>) -> Rule {
    let x = site.operands[0];
    let rank = x.shape.rank();
    let perm = site.attrs.ints("perm");
    let mut seen = vec![false; rank];
    let mut dims = Vec::with_capacity(rank);
    for &dim in perm {
        let position = usize::try_from(dim)
            .ok()
            .filter(|&dim| dim < rank && !seen[dim]);
        let Some(position) = position else { break };
        seen[position] = true;
        dims.push(x.shape.dims()[position].clone());
    }
    if perm.len() != rank || dims.len() != rank {
        return Err(site
            .error(Code::Range, "`perm` is no permutation of the dimensions")
            .expected(format!("each of 0..{rank} once"))
            .got(format!("{perm:?}")));
    }
    Ok(one(Type::new(x.dtype, Shape::new(dims))))
}

pub(in crate::op) fn slice(site: &Site<'_>) -> Rule {
    let x = site.operands[0];
    let axis = site.axis("dim", x.shape.rank())?;
    let (start, end, step) = (
        site.attrs.dim("start"),
        site.attrs.dim("end"),
        site.attrs.int("step"),
    );
    let step = u64::try_from(step)
        .ok()
        .filter(|&step| step > 0)
        .ok_or_else(|| {
            site.error(Code::Range, "`step` is out of range")
                .expected("1 or more")
                .got(step)
        })?;
    let mut guards = SmallVec::new();
    site.at_least(end, start, "`end` is before `start`", &mut guards)?;
    site.at_least(
        &x.shape.dims()[axis],
        end,
        "`end` is beyond the size of the dimension",
        &mut guards,
    )?;
    let length = end.sub(start).map_err(|error| site.dim_error(error))?;
    let length = match length.as_fixed() {
        Some(length) => Dim::fixed(length.div_ceil(step)),
        None => {
            let (quotient, guard) = length.div(step).map_err(|error| site.dim_error(error))?;
            guards.extend(guard);
            quotient
        }
    };
    Ok(guarded(
        Type::new(x.dtype, x.shape.clone().with_dim(axis, length)),
        guards,
    ))
}

pub(in crate::op) fn concat(site: &Site<'_>) -> Rule {
    let dtype = site.same_dtype(0)?;
    let first = &site.operands[0].shape;
    let axis = site.axis("dim", first.rank())?;
    let fits = |shape: &Shape| {
        shape.rank() == first.rank()
            && shape
                .dims()
                .iter()
                .zip(first.dims())
                .enumerate()
                .all(|(index, (a, b))| index == axis || a == b)
    };
    if !site.operands.iter().all(|ty| fits(&ty.shape)) {
        return Err(site
            .error(
                Code::Shape,
                format_args!("the shapes differ outside dimension {axis}"),
            )
            .expected("equal sizes in all other dimensions")
            .got(site.operand_types()));
    }
    let sizes: Vec<Dim> = site
        .operands
        .iter()
        .map(|ty| ty.shape.dims()[axis].clone())
        .collect();
    Ok(one(Type::new(
        dtype,
        first.clone().with_dim(axis, site.sum(&sizes)?),
    )))
}

pub(in crate::op) fn split(site: &Site<'_>) -> Rule {
    let x = site.operands[0];
    let axis = site.axis("dim", x.shape.rank())?;
    let sizes = site.attrs.dims("sizes");
    let total = site.sum(sizes)?;
    if total != x.shape.dims()[axis] || sizes.is_empty() {
        return Err(site
            .error(Code::Shape, "the sizes do not sum to that of the dimension")
            .expected(site.show_dim(&x.shape.dims()[axis]))
            .got(site.show_dim(&total)));
    }
    let types = sizes
        .iter()
        .map(|size| Type::new(x.dtype, x.shape.clone().with_dim(axis, size.clone())));
    Ok(Inferred {
        types: types.collect(),
        guards: SmallVec::new(),
    })
}

pub(in crate::op) fn expand(site: &Site<'_>) -> Rule {
    let x = site.operands[0];
    let shape = shape_attr(site);
    let fits = x.shape.rank() <= shape.rank() && {
        let missing = shape.rank() - x.shape.rank();
        let pairs = x.shape.dims().iter().zip(&shape.dims()[missing..]);
        pairs
            .into_iter()
            .all(|(from, to)| from == to || from.as_fixed() == Some(1))
    };
    if !fits {
        return Err(site
            .error(Code::Shape, "the operand does not repeat to the shape")
            .expected(format!(
                "sizes of 1, or those of {} from the end",
                shape.display(site.symbols)
            ))
            .got(site.show(x)));
    }
    Ok(one(Type::new(x.dtype, shape)))
}

pub(in crate::op) fn pad(site: &Site<'_>) -> Rule {
    let x = site.operands[0];
    number_fits(site, "value", x.dtype)?;
    let (low, high) = (site.attrs.dims("low"), site.attrs.dims("high"));
    if low.len() != x.shape.rank() || high.len() != x.shape.rank() {
        return Err(site
            .error(Code::Shape, "`low` and `high` do not match the rank")
            .expected(format!(
                "{} entries each for {}",
                x.shape.rank(),
                site.show(x)
            ))
            .got(format!("{} and {}", low.len(), high.len())));
    }
    let sizes = x.shape.dims().iter().zip(low).zip(high);
    let dims: Vec<Dim> = sizes
        .map(|((size, low), high)| size.add(low)?.add(high))
        .collect::<Result<_, _>>()
        .map_err(|error| site.dim_error(error))?;
    Ok(one(Type::new(x.dtype, Shape::new(dims))))
}

/// Fails unless the number `name` is a value of `dtype`: integers in range, 0 and 1 for bool, any
/// number for floats and complex.
fn number_fits(site: &Site<'_>, name: &str, dtype: DType) -> Result<(), Diagnostic> {
    let value = match site.attrs.get(name) {
        Some(Attr::Int(value)) => {
            if int_range(dtype).is_none_or(|(low, high)| (low..=high).contains(&i128::from(*value)))
            {
                return Ok(());
            }
            value.to_string()
        }
        Some(Attr::Float(value)) => {
            if int_range(dtype).is_none() {
                return Ok(());
            }
            format!("{value:?}")
        }
        _ => "a symbolic size".to_owned(),
    };
    let expected = match int_range(dtype) {
        Some((low, high)) => format!("an integer in {low}..={high} for {dtype}"),
        None => "a number".to_owned(),
    };
    Err(site
        .error(Code::Range, format_args!("`{name}` is no value of {dtype}"))
        .expected(expected)
        .got(value))
}

/// Smallest and largest value of an integer type or bool.
fn int_range(dtype: DType) -> Option<(i128, i128)> {
    match dtype {
        DType::Bool => Some((0, 1)),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            Some((0, (1 << (8 * dtype.bytes())) - 1))
        }
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let half = 1i128 << (8 * dtype.bytes() - 1);
            Some((-half, half - 1))
        }
        _ => None,
    }
}

pub(in crate::op) fn fill(site: &Site<'_>) -> Rule {
    let dtype = site.attrs.dtype("dtype");
    number_fits(site, "value", dtype)?;
    Ok(one(Type::new(dtype, shape_attr(site))))
}

/// Number of elements of `arange` with fixed attributes; `None` when it does not fit in 64 bits.
fn arange_length(attrs: &Attrs) -> Option<u64> {
    match (attrs.get("start")?, attrs.get("end")?, attrs.get("step")?) {
        (Attr::Int(start), Attr::Int(end), Attr::Int(step)) => {
            let (distance, step) = (i128::from(*end) - i128::from(*start), i128::from(*step));
            let steps = distance.checked_div(step)? + i128::from(distance % step != 0);
            u64::try_from(if (distance < 0) == (step < 0) {
                steps.max(0)
            } else {
                0
            })
            .ok()
        }
        _ => {
            let steps = ((attrs.float("end") - attrs.float("start")) / attrs.float("step")).ceil();
            (steps.is_finite() && steps < 9.0e18).then_some(steps.max(0.0) as u64)
        }
    }
}

pub(in crate::op) fn arange(site: &Site<'_>) -> Rule {
    let dtype = site.attrs.dtype("dtype");
    if !dtype.is_integer() && !dtype.is_float() {
        return Err(site
            .error(Code::DType, format_args!("`dtype` cannot be {dtype}"))
            .expected("an integer or float type"));
    }
    if let Some(Attr::Dim(end)) = site.attrs.get("end") {
        let start = match (site.attrs.get("start"), site.attrs.get("step")) {
            (Some(Attr::Int(start)), Some(Attr::Int(1))) => u64::try_from(*start).ok(),
            _ => None,
        };
        let start = Dim::fixed(start.ok_or_else(|| {
            site.error(
                Code::Range,
                "a symbolic `end` needs a start of 0 or more and step 1",
            )
        })?);
        let mut guards = SmallVec::new();
        site.at_least(end, &start, "`end` is before `start`", &mut guards)?;
        let length = end.sub(&start).map_err(|error| site.dim_error(error))?;
        return Ok(guarded(Type::new(dtype, Shape::new([length])), guards));
    }
    for name in ["start", "step"] {
        number_fits(site, name, dtype)?;
    }
    let zero = match site.attrs.get("step") {
        Some(Attr::Int(step)) => *step == 0,
        _ => site.attrs.float("step") == 0.0,
    };
    if let (Some(_), Some(Attr::Float(end))) = (int_range(dtype), site.attrs.get("end")) {
        let expected = format!("an integer for {dtype}");
        return Err(site
            .error(Code::Range, "`end` is no integer")
            .expected(expected)
            .got(end));
    }
    let length = if zero {
        None
    } else {
        arange_length(site.attrs)
    };
    let length = length.ok_or_else(|| {
        site.error(Code::Range, "the number of elements is not defined")
            .expected("a finite range and a step other than 0")
    })?;
    if let (Some((low, high)), Some(last)) = (int_range(dtype), length.checked_sub(1)) {
        let last = i128::from(site.attrs.int("start"))
            + i128::from(last) * i128::from(site.attrs.int("step"));
        if !(low..=high).contains(&last) {
            return Err(site
                .error(
                    Code::Range,
                    format_args!("the last element is no value of {dtype}"),
                )
                .expected(format!("{low}..={high}"))
                .got(last));
        }
    }
    Ok(one(Type::fixed(dtype, &[length])))
}

pub(in crate::op) fn triangle(site: &Site<'_>) -> Rule {
    site.rank_at_least(0, 2)?;
    same(site)
}
