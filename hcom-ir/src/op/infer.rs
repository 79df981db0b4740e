//! Type rules: result types from operand types and attributes.

mod comm;
mod compute;
mod movement;

use smallvec::{SmallVec, smallvec};

use crate::diag::{Code, Diagnostic};
use crate::group::Group;
use crate::op::attr::Attrs;
use crate::op::{Op, info};
use crate::shape::{Dim, DimError, Guard, Shape};
use crate::types::{DType, Type};

pub(super) use comm::*;
pub(super) use compute::*;
pub(super) use movement::*;

/// One use of an operation, to be typed.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The operation.
    pub op: Op,
    /// Types of the operands; their number is right.
    pub operands: &'a [&'a Type],
    /// Complete attributes of the right kinds.
    pub attrs: &'a Attrs,
    /// The groups of the graph, by id.
    pub groups: &'a [Group],
    /// The names of the symbols, by id.
    pub symbols: &'a [String],
}

/// Result types, and conditions on the symbols under which they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inferred {
    /// One type per result.
    pub types: SmallVec<[Type; 1]>,
    /// Conditions that the types rest on.
    pub guards: SmallVec<[Guard; 1]>,
}

/// The result types of `op` for operands of these types. `attrs` must be complete, as
/// [`complete`](crate::complete) makes them. Fails when the operands or attributes do not fit, and
/// when a result of known size exceeds 2^64 bytes.
pub fn infer(
    op: Op,
    operands: &[&Type],
    attrs: &Attrs,
    groups: &[Group],
    symbols: &[String],
) -> Result<Inferred, Diagnostic> {
    let info = info(op);
    if !info.operands.accepts(operands.len()) {
        let names = info.operands.names;
        let expected = match (names.len(), info.operands.variadic) {
            (count, false) if count == info.operands.required => plural(count, "operand"),
            (count, false) => format!("{} to {count} operands", info.operands.required),
            (_, true) => format!("at least {}", plural(info.operands.required, "operand")),
        };
        let names = if names.is_empty() {
            String::new()
        } else {
            format!(": {}", names.join(", "))
        };
        return Err(Diagnostic::new(
            Code::Arity,
            format!("`{op}` has the wrong number of operands"),
        )
        .expected(expected + &names)
        .got(operands.len()));
    }
    let site = Site {
        op,
        operands,
        attrs,
        groups,
        symbols,
    };
    let inferred = (info.infer)(&site)?;
    for ty in &inferred.types {
        if ty.shape.as_fixed().is_some() && ty.bytes().is_none() {
            return Err(Diagnostic::new(
                Code::TooLarge,
                format!("a result of `{op}` is too large"),
            )
            .expected("less than 2^64 bytes")
            .got(site.show(ty)));
        }
    }
    Ok(inferred)
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

fn one(ty: Type) -> Inferred {
    Inferred {
        types: smallvec![ty],
        guards: SmallVec::new(),
    }
}

fn guarded(ty: Type, guards: SmallVec<[Guard; 1]>) -> Inferred {
    Inferred {
        types: smallvec![ty],
        guards,
    }
}

impl Site<'_> {
    fn show(&self, ty: &Type) -> String {
        ty.display(self.symbols).to_string()
    }

    fn show_dim(&self, dim: &Dim) -> String {
        dim.display(self.symbols).to_string()
    }

    fn operand_types(&self) -> String {
        let types: Vec<String> = self.operands.iter().map(|ty| self.show(ty)).collect();
        types.join(", ")
    }

    fn error(&self, code: Code, message: impl std::fmt::Display) -> Diagnostic {
        Diagnostic::new(code, format!("`{}`: {message}", self.op))
    }

    fn dim_error(&self, error: DimError) -> Diagnostic {
        let code = if error == DimError::Overflow {
            Code::TooLarge
        } else {
            Code::Shape
        };
        self.error(code, error).got(self.operand_types())
    }

    /// Fails unless operand `index` has an element type for which `accepts` holds.
    fn dtype(
        &self,
        index: usize,
        expected: &str,
        accepts: impl Fn(DType) -> bool,
    ) -> Result<DType, Diagnostic> {
        let dtype = self.operands[index].dtype;
        if accepts(dtype) {
            return Ok(dtype);
        }
        let name = info(self.op).operands.names[index.min(info(self.op).operands.names.len() - 1)];
        Err(self
            .error(
                Code::DType,
                format_args!("operand `{name}` cannot be {dtype}"),
            )
            .expected(expected)
            .got(self.show(self.operands[index])))
    }

    /// Fails unless the operands from `first` on have one element type.
    fn same_dtype(&self, first: usize) -> Result<DType, Diagnostic> {
        let dtype = self.operands[first].dtype;
        if self.operands[first..].iter().all(|ty| ty.dtype == dtype) {
            return Ok(dtype);
        }
        Err(self
            .error(Code::DType, "the operands have different element types")
            .expected("one element type")
            .got(self.operand_types())
            .help("convert one of them with `cast`"))
    }

    /// Fails unless operand `index` has at least `rank` dimensions.
    fn rank_at_least(&self, index: usize, rank: usize) -> Result<(), Diagnostic> {
        let ty = self.operands[index];
        if ty.shape.rank() >= rank {
            return Ok(());
        }
        let name = info(self.op).operands.names[index];
        Err(self
            .error(
                Code::Shape,
                format_args!("operand `{name}` has too few dimensions"),
            )
            .expected(format!("rank {rank} or more"))
            .got(self.show(ty)))
    }

    /// The attribute `name` as a dimension of a value of rank `rank`; negative ones count from the
    /// end.
    fn axis(&self, name: &str, rank: usize) -> Result<usize, Diagnostic> {
        self.axis_of(name, self.attrs.int(name), rank)
    }

    fn axis_of(&self, name: &str, dim: i64, rank: usize) -> Result<usize, Diagnostic> {
        axis(dim, rank).ok_or_else(|| {
            let expected = match rank {
                0 => "an operand of rank 1 or more".to_owned(),
                rank => format!("{}..={} for rank {rank}", -(rank as i64), rank - 1),
            };
            self.error(
                Code::Range,
                format_args!("`{name}` is no dimension of the operand"),
            )
            .expected(expected)
            .got(format!("{dim} for {}", self.operand_types()))
        })
    }

    /// The shape that results from NumPy broadcasting.
    fn broadcast(&self, shapes: &[&[Dim]]) -> Result<Shape, Diagnostic> {
        let rank = shapes.iter().map(|dims| dims.len()).max().unwrap_or(0);
        let mut out = Vec::with_capacity(rank);
        for position in 0..rank {
            let mut size: Option<&Dim> = None;
            for dims in shapes {
                let Some(index) = (position + dims.len()).checked_sub(rank) else {
                    continue;
                };
                let dim = &dims[index];
                match size {
                    Some(known) if known == dim || dim.as_fixed() == Some(1) => {}
                    Some(known) if known.as_fixed() != Some(1) => {
                        let (known, dim) = (self.show_dim(known), self.show_dim(dim));
                        return Err(self
                            .error(Code::Shape, "the shapes do not broadcast")
                            .expected(format!(
                                "equal sizes, or 1, in dimension {} from the end; {known} and {dim} differ",
                                rank - position
                            ))
                            .got(self.operand_types()));
                    }
                    _ => size = Some(dim),
                }
            }
            out.extend(size.cloned());
        }
        Ok(Shape::new(out))
    }

    /// Fails when `dim < bound` for certain; adds a guard when it depends on the symbols.
    fn at_least(
        &self,
        dim: &Dim,
        bound: &Dim,
        what: &str,
        guards: &mut SmallVec<[Guard; 1]>,
    ) -> Result<(), Diagnostic> {
        if let (Some(value), Some(limit)) = (dim.as_fixed(), bound.as_fixed()) {
            if value < limit {
                return Err(self
                    .error(Code::Range, what)
                    .expected(format!("at least {limit}"))
                    .got(format!("{value} for {}", self.operand_types())));
            }
            return Ok(());
        }
        guards.extend(Guard::at_least(dim, bound));
        Ok(())
    }

    fn sum(&self, dims: &[Dim]) -> Result<Dim, Diagnostic> {
        dims.iter()
            .try_fold(Dim::fixed(0), |sum, dim| sum.add(dim))
            .map_err(|error| self.dim_error(error))
    }
}

/// `dim` as an index below `rank`; negative ones count from the end.
pub fn axis(dim: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let index = if dim < 0 { dim.checked_add(rank)? } else { dim };
    (0..rank).contains(&index).then_some(index as usize)
}
