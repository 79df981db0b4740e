//! The text form of graphs: `parse(&graph.to_string())` gives the graph back, and printing a parsed
//! text gives its canonical form.
//!
//! ```text
//! hcom 1
//! group @tp = ranks(0, 1)
//! graph @g[s](%x: f32[s, 4], %state: mut f32[4]) -> (f32[2*s, 4], f32[4]) where s >= 2 {
//!   %c = constant value = f32[4] [1, -0, nan, inf]
//!   %y = all_gather %x, group = @tp
//!   %a, %b = split %state, dim = 0, sizes = [1, 3]
//!   %r = recv f32[4], peer = 1, group = @tp
//!   send %r, peer = 1, tag = 7, group = @tp
//!   %k = custom "kernel"(%r, %c, pure = true, steps = 3) -> f32[4]
//!   copy_to_input %k, %state
//!   return %y, last = %k
//! }
//! ```
//!
//! A `#` starts a comment. An output is named after its value unless a name is written. Groups are
//! explicit; sizes are sums of integer multiples of symbols, divided exactly by a number.

mod lexer;
mod literal;
mod parser;
mod printer;

pub use parser::parse;
pub(crate) use printer::describe_parts;

/// Dimensions a type may have; deeper nesting than any device supports, and a bound for recursion.
pub(crate) const MAX_RANK: usize = 32;

/// Words with a meaning of their own where a symbol may stand.
pub(crate) fn is_reserved(name: &str) -> bool {
    matches!(name, "true" | "false" | "nan" | "inf" | "hex")
        || name.parse::<crate::types::DType>().is_ok()
        || name.parse::<crate::op::attr::ReduceOp>().is_ok()
}
