//! The aclnn operators: checks in the first phase, kernels in the second.
//!
//! | file | what |
//! |---|---|
//! | `dtype`, `layout` | element types and their promotion; strides and views |
//! | `object`, `executor` | what the caller hands in; checked operands, plans, launch |
//! | `compute`, `math` | reading and writing blocks in a compute type; functions on slices |
//! | `missing` | the names of those that are not here |
//! | `elementwise`, `reduce`, `norm`, `matmul`, `mc2`, `attention`, `rotary`, `index`, `sort`, `shape`, `create` | the operators by family |
//!
//! A kernel is safe code: it reads blocks of elements in the order of their indices, computes, and writes blocks. It
//! never sees strides, storage types or addresses, so one kernel per family serves all of them. Results follow
//! PyTorch: broadcasting, promotion, wrapping integers, and what is not a number spreads. 16-bit floats are computed
//! as `f32` and rounded once.

pub(crate) mod attention;
pub(crate) mod compute;
pub(crate) mod create;
pub(crate) mod dtype;
pub(crate) mod elementwise;
pub(crate) mod executor;
pub(crate) mod index;
pub(crate) mod layout;
pub(crate) mod math;
pub(crate) mod matmul;
pub(crate) mod mc2;
mod missing;
pub(crate) mod norm;
pub(crate) mod object;
pub(crate) mod reduce;
pub(crate) mod rotary;
pub(crate) mod shape;
pub(crate) mod sort;
#[cfg(test)]
mod tests;

/// Evaluates an expression with `$C` the compute type of a class with arithmetic.
macro_rules! in_class {
    ($class:expr, $C:ident => $body:expr) => {
        match $class {
            Class::F32 => {
                type $C = f32;
                $body
            }
            Class::F64 => {
                type $C = f64;
                $body
            }
            Class::I64 => {
                type $C = i64;
                $body
            }
            Class::U64 => unreachable!("no operator computes in UINT64"),
        }
    };
}

/// Evaluates an expression with `$S` a type of as many bytes as the element type has, to move elements as they are.
macro_rules! in_words {
    ($dtype:expr, $S:ident => $body:expr) => {
        match $dtype.bytes() {
            1 => {
                type $S = u8;
                $body
            }
            2 => {
                type $S = u16;
                $body
            }
            4 => {
                type $S = u32;
                $body
            }
            8 => {
                type $S = u64;
                $body
            }
            _ => {
                type $S = [u64; 2];
                $body
            }
        }
    };
}

pub(crate) use {in_class, in_words};
