//! Operations that place elements without looking at them.

use super::Fault;
use super::data::{Data, encode, ints};
use crate::literal::Literal;
use crate::op::attr::Attr;
use crate::types::DType;

/// Elements between neighbours along each dimension, row-major.
pub(super) fn strides(shape: &[u64]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for dim in (1..shape.len()).rev() {
        // Saturation needs sizes that only a value without elements can have.
        strides[dim - 1] = strides[dim].saturating_mul(shape[dim].max(1) as usize);
    }
    strides
}

/// Calls `visit` with every index of `shape` in row-major order.
pub(super) fn indices(shape: &[u64], mut visit: impl FnMut(&[u64])) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    loop {
        visit(&index);
        let mut dim = shape.len();
        loop {
            if dim == 0 {
                return;
            }
            dim -= 1;
            index[dim] += 1;
            if index[dim] < shape[dim] {
                break;
            }
            index[dim] = 0;
        }
    }
}

/// A literal of `shape` whose elements are those of `x` at the positions that `source` names, or
/// `fill`.
pub(super) fn pick(
    x: &Literal,
    shape: &[u64],
    fill: &[u8],
    mut source: impl FnMut(&[u64]) -> Option<usize>,
) -> Literal {
    let size = x.dtype.bytes() as usize;
    let mut bytes = Vec::new();
    indices(shape, |index| match source(index) {
        Some(at) => bytes.extend_from_slice(&x.bytes[at * size..(at + 1) * size]),
        None => bytes.extend_from_slice(fill),
    });
    Literal {
        dtype: x.dtype,
        shape: shape.to_vec(),
        bytes,
    }
}

fn position(index: impl IntoIterator<Item = u64>, strides: &[usize]) -> usize {
    index
        .into_iter()
        .zip(strides)
        .map(|(index, stride)| index as usize * stride)
        .sum()
}

/// Sizes of 1 and missing leading dimensions repeated.
pub(super) fn expand(x: &Literal, shape: &[u64]) -> Literal {
    if x.shape == shape {
        return x.clone();
    }
    let missing = shape.len() - x.shape.len();
    let mut strides = strides(&x.shape);
    for (stride, &size) in strides.iter_mut().zip(&x.shape) {
        if size == 1 {
            *stride = 0;
        }
    }
    pick(x, shape, &[], |index| {
        Some(position(index[missing..].iter().copied(), &strides))
    })
}

pub(super) fn transpose(x: &Literal, perm: &[usize]) -> Literal {
    let strides = strides(&x.shape);
    let shape: Vec<u64> = perm.iter().map(|&dim| x.shape[dim]).collect();
    let strides: Vec<usize> = perm.iter().map(|&dim| strides[dim]).collect();
    pick(x, &shape, &[], |index| {
        Some(position(index.iter().copied(), &strides))
    })
}

/// Every `step`-th row from `start` to before `end` along `dim`.
pub(super) fn slice(x: &Literal, dim: usize, start: u64, end: u64, step: u64) -> Literal {
    let mut shape = x.shape.clone();
    shape[dim] = (end - start).div_ceil(step);
    if x.bytes.is_empty() {
        return Literal {
            dtype: x.dtype,
            shape,
            bytes: Vec::new(),
        };
    }
    // The elements of one row along the dimension lie together.
    let row = x.shape[dim + 1..].iter().product::<u64>() * x.dtype.bytes();
    let outer = x.shape[..dim].iter().product::<u64>();
    let mut bytes = Vec::new();
    for block in 0..outer {
        for index in 0..shape[dim] {
            let from = ((block * x.shape[dim] + start + index * step) * row) as usize;
            bytes.extend_from_slice(&x.bytes[from..from + row as usize]);
        }
    }
    Literal {
        dtype: x.dtype,
        shape,
        bytes,
    }
}

/// The operands, equal in all other dimensions, one after the other along `dim`.
pub(super) fn concat(all: &[&Literal], dim: usize) -> Literal {
    let mut shape = all[0].shape.clone();
    shape[dim] = all.iter().map(|x| x.shape[dim]).sum();
    if all.iter().all(|x| x.bytes.is_empty()) {
        return Literal {
            dtype: all[0].dtype,
            shape,
            bytes: Vec::new(),
        };
    }
    let outer = shape[..dim].iter().product::<u64>() as usize;
    let mut bytes = Vec::new();
    for block in 0..outer {
        for x in all {
            let size = x.bytes.len() / outer;
            bytes.extend_from_slice(&x.bytes[block * size..(block + 1) * size]);
        }
    }
    Literal {
        dtype: all[0].dtype,
        shape,
        bytes,
    }
}

/// Consecutive pieces of these sizes along `dim`.
pub(super) fn split(x: &Literal, dim: usize, sizes: &[u64]) -> Vec<Literal> {
    let ends = sizes.iter().scan(0, |end, &size| {
        *end += size;
        Some((*end - size, *end))
    });
    ends.map(|(start, end)| slice(x, dim, start, end, 1))
        .collect()
}

pub(super) fn pad(x: &Literal, low: &[u64], high: &[u64], value: &Literal) -> Literal {
    let strides = strides(&x.shape);
    let sizes = x.shape.iter().zip(low).zip(high);
    let shape: Vec<u64> = sizes.map(|((size, low), high)| size + low + high).collect();
    pick(x, &shape, &value.bytes, |index| {
        let inside = index
            .iter()
            .zip(low)
            .map(|(index, low)| index.checked_sub(*low));
        let inside: Option<Vec<u64>> = inside.collect();
        let inside =
            inside.filter(|index| index.iter().zip(&x.shape).all(|(index, size)| index < size))?;
        Some(position(inside, &strides))
    })
}

/// Zeros where `row` and `column`, the last two indices, do not satisfy `keep`.
pub(super) fn triangle(x: &Literal, keep: impl Fn(i128, i128) -> bool) -> Literal {
    let strides = strides(&x.shape);
    let zero = vec![0; x.dtype.bytes() as usize];
    pick(x, &x.shape, &zero, |index| {
        let [.., row, column] = index else {
            return None;
        };
        keep(i128::from(*row), i128::from(*column))
            .then(|| position(index.iter().copied(), &strides))
    })
}

fn checked(index: i128, size: u64) -> Result<u64, Fault> {
    let inside = u64::try_from(index).ok().filter(|&index| index < size);
    inside.ok_or(Fault::Index {
        index: index as i64,
        size,
    })
}

pub(super) fn embedding(table: &Literal, which: &Literal) -> Result<Literal, Fault> {
    let row = table.shape[1..].iter().product::<u64>() * table.dtype.bytes();
    let mut bytes = Vec::new();
    for index in ints(which) {
        let from = (checked(index, table.shape[0])? * row) as usize;
        bytes.extend_from_slice(&table.bytes[from..from + row as usize]);
    }
    let shape = which
        .shape
        .iter()
        .chain(&table.shape[1..])
        .copied()
        .collect();
    Ok(Literal {
        dtype: table.dtype,
        shape,
        bytes,
    })
}

pub(super) fn gather(x: &Literal, which: &Literal, dim: usize) -> Result<Literal, Fault> {
    let strides = strides(&x.shape);
    let rows = ints(which)
        .into_iter()
        .map(|index| checked(index, x.shape[dim]));
    let mut rows = rows.collect::<Result<Vec<u64>, Fault>>()?.into_iter();
    Ok(pick(x, &which.shape, &[], |index| {
        let row = rows.next()?;
        let index = index
            .iter()
            .enumerate()
            .map(|(at, &index)| if at == dim { row } else { index });
        Some(position(index, &strides))
    }))
}

/// A number of an attribute as an element of `dtype`.
pub(super) fn number(dtype: DType, value: Option<&Attr>) -> Literal {
    let (int, float) = match value {
        Some(Attr::Int(value)) => (i128::from(*value), *value as f64),
        Some(Attr::Float(value)) => (0, *value),
        _ => unreachable!("the type rule admits numbers only"),
    };
    let data = if dtype.is_float() {
        Data::Float(vec![float])
    } else if dtype.is_complex() {
        Data::Complex(vec![[float, 0.0]])
    } else {
        Data::Int(vec![int])
    };
    encode(dtype, &[], &data)
}
