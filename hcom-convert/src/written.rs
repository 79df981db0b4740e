//! Graphs that were written rather than recorded: their reductions, carried out as those of calls.
//!
//! The graph's `all_reduce` and its siblings take every reduction of every element type; the device
//! library does not. A recorded call is lowered when it is recorded, a graph from text here.

use crate::reduction::{self, Keep, Reduction};
use crate::{Context, ConvertError};
use hcom_ir::{Attr, Builder, Graph, Node, Op, ReduceOp, ValueId, axis};
use rustc_hash::FxHashMap;

/// The graph that rank `rank` of `world_size` runs in place of `graph`: its reductions are ones
/// that the device library has, by [`reduction`]'s rules.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::Reduction`] for one that is refused;
/// [`ConvertError::Invalid`] for a graph that was not valid before.
pub fn lower(graph: &Graph, rank: u32, world_size: u32) -> Result<Graph, ConvertError> {
    let mut builder = Builder::new(graph.name());
    for symbol in graph.symbols() {
        builder.symbol(symbol);
    }
    for guard in graph.guards() {
        builder.guard(guard.clone());
    }
    for (_, group) in graph.groups() {
        builder.group(group.clone());
    }
    let mut values: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for input in graph.inputs() {
        let ty = graph.ty(input.value).clone();
        let value = builder.input(&input.name, ty, input.mutable);
        values.insert(input.value, value);
    }
    for (_, node) in graph.nodes() {
        let operands: Vec<ValueId> = node.operands.iter().map(|value| values[value]).collect();
        builder.set_location(node.location.clone());
        let names = node.results.iter().map(|&value| &*graph.value(value).name);
        let names: Vec<&str> = names.collect();
        match (keep(graph, node), node.group()) {
            (Some(keep), Some(group)) => {
                let mut context = Context {
                    builder: &mut builder,
                    rank,
                    world_size,
                };
                let (name, operand) = (node.op.name(), operands[0]);
                let group = context.builder.group(graph.group(group).clone());
                let asked = reduction_of(node);
                let value = reduction::lower(name, &mut context, operand, asked, group, &keep)?;
                if value != operand {
                    builder.rename(value, names[0]);
                }
                values.insert(node.results[0], value);
            }
            _ => {
                let results = builder.push_named(node.op, &operands, node.attrs.clone(), &names)?;
                values.extend(node.results.iter().copied().zip(results));
            }
        }
    }
    let outputs = graph.output_names().iter().zip(graph.outputs());
    let outputs = outputs.map(|(name, value)| (name.clone(), values[value]));
    Ok(builder.finish(outputs.collect())?)
}

fn reduction_of(node: &Node) -> Reduction {
    let op = node.attrs.reduce("op");
    let factor = match node.attrs.get("factor") {
        Some(Attr::Float(factor)) if op == ReduceOp::PremulSum => Some(*factor),
        _ => None,
    };
    Reduction { op, factor }
}

/// What a rank keeps of the reduction that `node` is, if it is one.
fn keep(graph: &Graph, node: &Node) -> Option<Keep> {
    let number = |name| u32::try_from(node.attrs.int(name)).expect("the type rules checked it");
    match node.op {
        Op::AllReduce => Some(Keep::All),
        Op::Reduce => Some(Keep::Root(number("root"))),
        Op::ReduceScatter => {
            let rank = graph.ty(node.operands[0]).shape.rank();
            let dim = axis(node.attrs.int("dim"), rank).expect("the type rules checked it");
            Some(Keep::Block(dim as u32))
        }
        Op::ReduceScatterUneven => Some(Keep::Rows(node.attrs.dims("counts").to_vec())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::lower;
    use expect_test::{Expect, expect};
    use hcom_ir::parse;

    fn check(node: &str, result: &str, rank: u32, expected: Expect) {
        let text = format!(
            "hcom 1
group @g = ranks(0, 1)
graph @f(%x: i32[2]) -> {result} {{
  %y = {node}, group = @g
  return %y
}}
"
        );
        let graph = parse(&text, "t").unwrap();
        expected.assert_eq(&match lower(&graph, rank, 2) {
            Ok(graph) => graph.to_string(),
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn what_the_library_reduces_stays_as_it_is() {
        check(
            "all_reduce %x, op = max",
            "i32[2]",
            0,
            expect![[r#"
                hcom 1
                group @g = ranks(0, 1)
                graph @f(%x: i32[2]) -> i32[2] {
                  %y = all_reduce %x, op = max, group = @g
                  return %y
                }
            "#]],
        );
    }

    #[test]
    fn what_it_lacks_is_lowered_as_in_a_call() {
        for dim in ["", ", dim = -1"] {
            check(
                &format!("reduce_scatter %x, op = bxor{dim}"),
                "i32[1]",
                0,
                expect![[r#"
                    hcom 1
                    group @g = ranks(0, 1)
                    graph @f(%x: i32[2]) -> i32[1] {
                      %1 = all_to_all %x, group = @g
                      %2, %3 = split %1, dim = 0, sizes = [1, 1]
                      %y = bit_xor %2, %3
                      return %y
                    }
                "#]],
            );
        }
    }

    #[test]
    fn a_rank_that_gets_no_result_keeps_its_own() {
        check(
            "reduce %x, op = band, root = 0",
            "i32[2]",
            1,
            expect![[r#"
                hcom 1
                group @g = ranks(0, 1)
                graph @f(%x: i32[2]) -> i32[2] {
                  %1 = reshape %x, shape = [1, 2]
                  %2 = gather_to %1, root = 0, group = @g
                  return y = %x
                }
            "#]],
        );
    }
}
