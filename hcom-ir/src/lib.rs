//! The graph in which collectives are nodes.
//!
//! A [`Graph`] is a program of one rank over tensors: values are assigned once, operations have
//! exact types, and communication (`all_reduce`, `all_gather`, `send`, `barrier`, …) stands among the
//! computation instead of cutting the program into pieces. Graphs are built by a [`Builder`] or read
//! from text, checked, compared across ranks, rewritten by passes, costed, and given a meaning by an
//! interpreter that serves as the oracle for everything that runs them faster.
//!
//! ```
//! use hcom_ir::{Literal, interpret, parse};
//!
//! let graph = parse(
//!     "hcom 1
//! group @tp = ranks(0, 1)
//! graph @mlp(%x: f32[1, 2], %w: f32[2, 2]) -> f32[1, 2] {
//!   %h = matmul %x, %w
//!   %a = relu %h
//!   %y = all_reduce %a, op = sum, group = @tp
//!   return %y
//! }
//! ",
//!     "mlp.hcom",
//! )?;
//!
//! // Each rank holds a piece of the weights; the sum over the ranks is the whole product.
//! let x = Literal::from_slice(&[1, 2], &[1.0f32, 2.0])?;
//! let w0 = Literal::from_slice(&[2, 2], &[1.0f32, 0.0, 0.0, 1.0])?;
//! let w1 = Literal::from_slice(&[2, 2], &[10.0f32, 0.0, 0.0, -10.0])?;
//! let ranks = interpret(&[&graph, &graph], &[vec![x.clone(), w0], vec![x, w1]])?;
//! assert_eq!(ranks[0].outputs[0].to_vec::<f32>(), Some(vec![11.0, 2.0]));
//! assert_eq!(ranks[0].outputs, ranks[1].outputs);
//!
//! // A mistake is reported with its place, what was expected and what was found.
//! let found = parse(&graph.to_string().replace("f32[2, 2]", "f32[3, 2]"), "mlp.hcom").unwrap_err();
//! assert_eq!(found.0[0].location.as_ref().map(|place| place.line), Some(4));
//! assert_eq!(found.0[0].got.as_deref(), Some("f32[1, 2], f32[3, 2]"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//!
//! | what | where |
//! |---|---|
//! | element types, sizes, shapes, symbols and guards | [`DType`], [`Dim`], [`Shape`], [`Type`], [`Guard`], [`Bindings`] |
//! | the one table of operations, with type rules and work | [`Op`], [`info`], [`OpInfo`], [`infer`](fn@infer), [`Work`] |
//! | attributes and constant data | [`Attrs`], [`Attr`], [`Literal`] |
//! | building and reading graphs | [`Builder`], [`Graph`], [`Node`], [`Value`], [`Group`] |
//! | text and pictures | [`text`], [`parse`], `Display` of [`Graph`], [`dot`](fn@dot) |
//! | messages | [`Diagnostic`], [`Diagnostics`], [`Code`] |
//! | what ranks must agree on | [`order`] |
//! | orders in which nodes may be listed | [`topology`] |
//! | what a program means | [`interpret`](fn@interpret) |
//! | rewrites | [`pass`] |
//! | estimates, lifetimes, what a chip takes | [`CostModel`], [`liveness`], [`capabilities`] |
//!
//! # Invariants
//!
//! - A [`Graph`] is valid: only [`Builder::finish`] and what rests on it make one.
//! - Operands are defined before their use; the order of nodes is the order of the program, and that
//!   of a group's collectives is part of the meaning.
//! - A shape is exact. Sizes that depend on symbols are affine, and every condition they rest on is
//!   among [`Graph::guards`].
//! - `parse(&graph.to_string())` gives an equal graph.
//! - Input names mean values at the start; `copy_to_input` takes effect for the caller when the graph
//!   ends, at most once per input, and nothing reads the input after it.
//!
//! # What this crate does not do
//!
//! It runs nothing on a device, plans nothing, and does no input or output: no files, threads, clock,
//! environment or foreign functions. Counts of uneven collectives are sizes of the graph, not data
//! computed by it. The interpreter is written to be read, not to be fast.

mod arena;
mod builder;
pub mod capabilities;
pub mod cost;
mod diag;
mod dot;
mod graph;
mod group;
mod interpret;
mod literal;
pub mod liveness;
mod op;
pub mod order;
pub mod pass;
mod shape;
pub mod text;
pub mod topology;
mod types;
mod valid;

pub use arena::{Arena, GroupId, Id, NodeId, SymbolId, ValueId};
pub use builder::{Builder, Results};
pub use cost::CostModel;
pub use diag::{Code, Diagnostic, Diagnostics, Location};
pub use dot::dot;
pub use graph::{Def, Graph, Input, Node, Value};
pub use group::Group;
pub use interpret::{InterpretError, RankResult, Waiting, interpret};
pub use literal::{Element, Literal};
pub use op::attr::{Attr, Attrs, ReduceOp, UnknownReduceOp};
pub use op::infer::{Inferred, Site, axis, infer};
pub use op::work::{Job, Work};
pub use op::{
    AttrKind, AttrSpec, Class, Fallback, Op, OpInfo, Operands, UnknownOp, complete, info,
};
pub use order::{Mismatch, Row, planner_digest, rows, rows_hash};
pub use shape::{Bindings, Dim, DimError, Guard, Shape};
pub use text::parse;
pub use topology::TopologyOrder;
pub use types::{DType, Type, UnknownDType};
