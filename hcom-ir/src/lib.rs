//! The graph in which collectives are nodes: types, groups, ops, builder, validator, text, passes and cost model.

mod arena;
mod builder;
pub mod capabilities;
mod diag;
mod dot;
mod graph;
mod group;
mod interpret;
mod literal;
pub mod liveness;
mod op;
pub mod order;
mod shape;
mod text;
mod types;
mod valid;

pub use arena::{Arena, GroupId, Id, NodeId, SymbolId, ValueId};
pub use builder::{Builder, Results};
pub use diag::{Code, Diagnostic, Diagnostics, Location};
pub use dot::dot;
pub use graph::{Def, Graph, Input, Node, Value};
pub use group::Group;
pub use interpret::{InterpretError, RankResult, Waiting, interpret};
pub use literal::{Element, Literal};
pub use op::attr::{Attr, Attrs, ReduceOp, UnknownReduceOp};
pub use op::infer::{Inferred, Site, infer};
pub use op::work::{Job, Work};
pub use op::{
    AttrKind, AttrSpec, Class, Fallback, Op, OpInfo, Operands, UnknownOp, complete, info,
};
pub use order::{Mismatch, Row, planner_digest, rows, rows_hash};
pub use shape::{Bindings, Dim, DimError, Guard, Shape};
pub use text::parse;
pub use types::{DType, Type, UnknownDType};
