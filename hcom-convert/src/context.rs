//! Where a conversion puts its nodes, and why it may refuse.

use crate::Root;
use hcom_ir::{
    Attr, Attrs, Builder, DType, Diagnostic, Diagnostics, Dim, DimError, Group, GroupId, Op,
    ReduceOp, Shape, Type, ValueId,
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

    /// The group rank behind `named`, which plays `role` in `call`.
    pub(crate) fn group_rank(
        &self,
        call: &'static str,
        role: &'static str,
        named: Root,
        id: GroupId,
    ) -> Result<u32, ConvertError> {
        let group = self.member_of(call, id)?;
        let rank = match named {
            Root::Global(rank) => group.rank_of(rank),
            Root::Group(rank) => (rank < group.group_size()).then_some(rank),
        };
        rank.ok_or_else(|| ConvertError::RankNotInGroup {
            call,
            role,
            rank: named,
            group: group.name.clone(),
            ranks: group.ranks.clone(),
        })
    }

    /// The recording rank's rank in the group.
    pub(crate) fn own_rank(&self, call: &'static str, id: GroupId) -> Result<u32, ConvertError> {
        self.group_rank(call, "this rank", Root::Global(self.rank), id)
    }

    /// `values` one after the other, as one dimension.
    pub(crate) fn packed(
        &mut self,
        call: &'static str,
        values: &[ValueId],
    ) -> Result<ValueId, ConvertError> {
        let mut flat = Vec::with_capacity(values.len());
        for &value in values {
            let ty = self.builder.ty(value).clone();
            let ty = Type::new(ty.dtype, Shape::new([elements(call, &ty)?]));
            flat.push(self.reshape(value, &ty)?);
        }
        self.joined(&flat, 0)
    }

    /// `values` joined along `dim`; itself if there is only one.
    pub(crate) fn joined(&mut self, values: &[ValueId], dim: u32) -> Result<ValueId, ConvertError> {
        match values {
            [only] => Ok(*only),
            _ => self.push(Op::Concat, values, Attrs::new().with("dim", dim)),
        }
    }

    /// `value` cut along `dim` into pieces of these sizes; itself if there is only one.
    pub(crate) fn split(
        &mut self,
        value: ValueId,
        dim: u32,
        sizes: Vec<Dim>,
    ) -> Result<Vec<ValueId>, ConvertError> {
        if sizes.len() == 1 {
            return Ok(vec![value]);
        }
        let attrs = Attrs::new().with("dim", dim).with("sizes", sizes);
        Ok(self.builder.push(Op::Split, &[value], attrs)?.to_vec())
    }

    /// Cuts the one dimension of `value` into pieces of these types.
    pub(crate) fn unpacked(
        &mut self,
        call: &'static str,
        value: ValueId,
        types: &[Type],
    ) -> Result<Vec<ValueId>, ConvertError> {
        let sizes = all_elements(call, types)?;
        self.split(value, 0, sizes)?
            .into_iter()
            .zip(types)
            .map(|(piece, ty)| self.reshape(piece, ty))
            .collect()
    }

    /// Fails unless `list` has one tensor of type `dtype` per rank of the group.
    pub(crate) fn one_per_rank(
        &self,
        call: &'static str,
        list: &[Type],
        dtype: DType,
        id: GroupId,
    ) -> Result<(), ConvertError> {
        let group_size = self.member_of(call, id)?.group_size();
        if list.len() != group_size as usize {
            return Err(ConvertError::ListLength {
                call,
                got: list.len(),
                group_size,
            });
        }
        match list.iter().position(|ty| ty.dtype != dtype) {
            None => Ok(()),
            Some(index) => Err(ConvertError::ListElement {
                call,
                index,
                got: Box::new(list[index].clone()),
                expected: format!("elements of {dtype}"),
            }),
        }
    }

    /// The types of `values`.
    pub(crate) fn types(&self, values: &[ValueId]) -> Vec<Type> {
        values
            .iter()
            .map(|value| self.builder.ty(*value).clone())
            .collect()
    }
}

/// The number of elements, which may hold one symbol.
pub(crate) fn elements(call: &'static str, ty: &Type) -> Result<Dim, ConvertError> {
    let product = |count: Dim, size: &Dim| count.product(size);
    let dims = ty.shape.dims();
    let refuse = |source| match source {
        DimError::Overflow => ConvertError::Size { call, source },
        _ => ConvertError::Symbolic {
            call,
            ty: Box::new(ty.clone()),
        },
    };
    dims.iter().try_fold(Dim::fixed(1), product).map_err(refuse)
}

/// The numbers of elements of `types`.
pub(crate) fn all_elements(call: &'static str, types: &[Type]) -> Result<Vec<Dim>, ConvertError> {
    types.iter().map(|ty| elements(call, ty)).collect()
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
    /// The root or the peer is no member of the group.
    #[error("{call}: {role} {rank} is not in group {group} (ranks {ranks:?})")]
    RankNotInGroup {
        /// The call.
        call: &'static str,
        /// What the rank is to the call: `root` or `peer`.
        role: &'static str,
        /// The rank as the caller gave it.
        rank: Root,
        /// The group's name.
        group: String,
        /// The group's ranks, within the world.
        ranks: Vec<u32>,
    },
    /// A rank is asked to send to itself or to receive from itself.
    #[error("{call}: rank {rank} is its own peer; copy the tensor instead")]
    OwnPeer {
        /// The call.
        call: &'static str,
        /// The recording rank, within the world.
        rank: u32,
    },
    /// A list does not have one tensor per rank.
    #[error("{call}: the list has {got} tensors, expected {group_size}, one per rank of the group")]
    ListLength {
        /// The call.
        call: &'static str,
        /// Number of tensors given.
        got: usize,
        /// Number of ranks in the group.
        group_size: u32,
    },
    /// A tensor of a list does not fit.
    #[error("{call}: tensor {index} of the list is {got}, expected {expected}")]
    ListElement {
        /// The call.
        call: &'static str,
        /// Position in the list.
        index: usize,
        /// Its type.
        got: Box<Type>,
        /// What would fit.
        expected: String,
    },
    /// A list of splits does not fit.
    #[error("{call}: {side} splits [{}]: {reason}", list(splits))]
    Splits {
        /// The call.
        call: &'static str,
        /// Which list: `input` or `output`.
        side: &'static str,
        /// Rows per rank, as given.
        splits: Vec<Dim>,
        /// What is wrong with them.
        reason: String,
    },
    /// The call needs the number of elements of a tensor with more than one symbolic dimension.
    #[error(
        "{call}: the number of elements of {ty} is no multiple of one symbol; fix one of its sizes"
    )]
    Symbolic {
        /// The call.
        call: &'static str,
        /// The type.
        ty: Box<Type>,
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
    /// The graph as a whole is not valid.
    #[error(transparent)]
    Invalid(#[from] Diagnostics),
}

fn list(splits: &[Dim]) -> String {
    let splits: Vec<String> = splits.iter().map(Dim::to_string).collect();
    splits.join(", ")
}

impl From<Diagnostic> for ConvertError {
    fn from(diagnostic: Diagnostic) -> Self {
        ConvertError::Graph(Box::new(diagnostic))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::{Call, Context, ConvertError, convert};
    use expect_test::Expect;
    use hcom_ir::{Builder, DType, Dim, Graph, Group, Type, ValueId};

    /// A type whose shape is known.
    pub(crate) fn fixed(dtype: DType, shape: &[u64]) -> Type {
        Type::fixed(dtype, shape)
    }

    /// Known sizes as splits.
    pub(crate) fn dims(sizes: &[u64]) -> Vec<Dim> {
        sizes.iter().copied().map(Dim::fixed).collect()
    }

    /// The graph of `call` on rank `rank` of a world of four.
    pub(crate) fn convert_on(
        operands: impl IntoIterator<Item = Type>,
        ranks: &[u32],
        rank: u32,
        call: &Call,
    ) -> Result<Graph, ConvertError> {
        let mut builder = Builder::new("f");
        let group = builder.group(Group {
            name: "g".into(),
            ranks: ranks.to_vec(),
        });
        let operands: Vec<Type> = operands.into_iter().collect();
        let operands: Vec<ValueId> = match operands.len() {
            1 => vec![builder.input("x", operands[0].clone(), false)],
            _ => (0..)
                .zip(operands)
                .map(|(index, ty)| builder.input(&format!("x{index}"), ty, false))
                .collect(),
        };
        let mut context = Context {
            builder: &mut builder,
            rank,
            world_size: 4,
        };
        let name = |(index, value): (u32, ValueId), of| match of {
            1 => ("y".to_owned(), value),
            _ => (format!("y{index}"), value),
        };
        let values = convert(&mut context, call, &operands, group)?;
        let of = values.len();
        let outputs = (0..).zip(values).map(|pair| name(pair, of)).collect();
        Ok(builder.finish(outputs).expect("a converted graph is valid"))
    }

    /// Converts `call` on rank `rank` of a world of four and compares the graph, or the error, as
    /// text.
    #[track_caller]
    pub(crate) fn check(
        operands: impl IntoIterator<Item = Type>,
        ranks: &[u32],
        rank: u32,
        call: &Call,
        expected: Expect,
    ) {
        expected.assert_eq(&match convert_on(operands, ranks, rank, call) {
            Ok(graph) => graph.to_string(),
            Err(error) => error.to_string(),
        });
    }
}
