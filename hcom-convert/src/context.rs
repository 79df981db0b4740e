//! Where a conversion puts its nodes, and why it may refuse.

use hcom_ir::{
    Attr, Attrs, Builder, DType, Diagnostic, DimError, Group, GroupId, Op, ReduceOp, Shape, Type,
    ValueId,
};

/// The graph being recorded and the rank that records it.
#[derive(Debug)]
pub struct Context<'a> {
    /// Receives the nodes.
    pub builder: &'a mut Builder,
    /// The recording rank, within the world.
    pub rank: u32,
    /// Number of ranks in the world.
    pub world_size: u32,
}

impl Context<'_> {
    /// The group behind `id`, if the recording rank is in it.
    ///
    /// # Errors
    /// [`ConvertError::NotInGroup`] if it is not.
    pub fn member_of(&self, call: &'static str, id: GroupId) -> Result<&Group, ConvertError> {
        let group = self.builder.graph().group(id);
        if group.rank_of(self.rank).is_some() {
            return Ok(group);
        }
        Err(ConvertError::NotInGroup {
            call,
            rank: self.rank,
            group: group.name.clone(),
            ranks: group.ranks.clone(),
        })
    }

    /// Adds a node with exactly one result.
    pub(crate) fn push(
        &mut self,
        op: Op,
        operands: &[ValueId],
        attrs: Attrs,
    ) -> Result<ValueId, ConvertError> {
        Ok(self.builder.one(op, operands, attrs)?)
    }

    /// `value` as `dtype`; itself when it has that type already.
    pub(crate) fn cast(&mut self, value: ValueId, dtype: DType) -> Result<ValueId, ConvertError> {
        if self.builder.ty(value).dtype == dtype {
            return Ok(value);
        }
        self.push(Op::Cast, &[value], Attrs::new().with("to", dtype))
    }

    /// A rank-0 value that broadcasts against any shape.
    pub(crate) fn scalar(
        &mut self,
        value: impl Into<Attr>,
        dtype: DType,
    ) -> Result<ValueId, ConvertError> {
        let attrs = Attrs::new()
            .with("shape", Shape::scalar())
            .with("value", value)
            .with("dtype", dtype);
        self.push(Op::Fill, &[], attrs)
    }

    /// `value` in the shape of `ty`; itself when it has that shape already.
    pub(crate) fn reshape(&mut self, value: ValueId, ty: &Type) -> Result<ValueId, ConvertError> {
        if self.builder.ty(value).shape == ty.shape {
            return Ok(value);
        }
        let attrs = Attrs::new().with("shape", ty.shape.clone());
        self.push(Op::Reshape, &[value], attrs)
    }
}

/// Why a call cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The recording rank is no member of the group.
    #[error("{call}: rank {rank} is not in group {group} (ranks {ranks:?})")]
    NotInGroup {
        /// The call.
        call: &'static str,
        /// The recording rank, within the world.
        rank: u32,
        /// The group's name.
        group: String,
        /// The group's ranks, within the world.
        ranks: Vec<u32>,
    },
    /// The root is no member of the group.
    #[error("broadcast: root {root} is not in group {group} (ranks {ranks:?})")]
    RootNotInGroup {
        /// The root as the caller gave it.
        root: crate::Root,
        /// The group's name.
        group: String,
        /// The group's ranks, within the world.
        ranks: Vec<u32>,
    },
    /// The reduction is not defined, or not available, for the element type.
    #[error("{call}: {op} of {dtype}: {reason}")]
    Reduction {
        /// The call.
        call: &'static str,
        /// The reduction.
        op: ReduceOp,
        /// The element type of the tensor.
        dtype: DType,
        /// Why not.
        reason: &'static str,
    },
    /// A dimension cannot be cut into one equal block per rank.
    #[error(
        "{call}: dimension {dim} has size {size}, not divisible by the group size {group_size}"
    )]
    NotDivisible {
        /// The call.
        call: &'static str,
        /// The dimension.
        dim: u32,
        /// Its size in elements, as the graph knows it.
        size: String,
        /// Number of ranks in the group.
        group_size: u32,
    },
    /// The tensor has too few dimensions.
    #[error("{call}: the input has {rank} dimensions, none with index {dim}")]
    NoDimension {
        /// The call.
        call: &'static str,
        /// The dimension asked for.
        dim: u32,
        /// Number of dimensions of the input.
        rank: usize,
    },
    /// The output tensor does not fit what the call produces.
    #[error(
        "{call}: the output is {got}, expected {expected} (input {input}, group size {group_size})"
    )]
    Output {
        /// The call.
        call: &'static str,
        /// The type the result has before it is viewed as the output.
        expected: Box<Type>,
        /// The output's type.
        got: Box<Type>,
        /// The input's type.
        input: Box<Type>,
        /// Number of ranks in the group.
        group_size: u32,
    },
    /// The call was given no tensor, or one that it does not take.
    #[error("{call}: wrong number of tensors")]
    Operand {
        /// The call.
        call: &'static str,
    },
    /// A size of the result has no value.
    #[error("{call}: a size of the result has no value")]
    Size {
        /// The call.
        call: &'static str,
        /// Why not.
        source: DimError,
    },
    /// The graph refused a node.
    #[error(transparent)]
    Graph(Box<Diagnostic>),
}

impl From<Diagnostic> for ConvertError {
    fn from(diagnostic: Diagnostic) -> Self {
        ConvertError::Graph(Box::new(diagnostic))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::{Call, Context, convert};
    use expect_test::Expect;
    use hcom_ir::{Builder, DType, Group, Type};

    /// A type whose shape is known.
    pub(crate) fn fixed(dtype: DType, shape: &[u64]) -> Type {
        Type::fixed(dtype, shape)
    }

    /// Converts `call` on rank `rank` of a world of four and compares the graph, or the error, as
    /// text.
    #[track_caller]
    pub(crate) fn check(
        operand: Option<Type>,
        ranks: &[u32],
        rank: u32,
        call: &Call,
        expected: Expect,
    ) {
        let mut builder = Builder::new("f");
        let group = builder.group(Group {
            name: "g".into(),
            ranks: ranks.to_vec(),
        });
        let operand = operand.map(|ty| builder.input("x", ty, false));
        let mut context = Context {
            builder: &mut builder,
            rank,
            world_size: 4,
        };
        let actual = match convert(&mut context, call, operand, group) {
            Ok(value) => builder
                .finish(
                    value
                        .map(|value| ("y".to_owned(), value))
                        .into_iter()
                        .collect(),
                )
                .expect("a converted graph is valid")
                .to_string(),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&actual);
    }
}
