//! The rules of a whole graph. Each part collects everything it finds; later parts rely on the
//! references that [`ids`] has checked.

pub(crate) mod groups;
pub(crate) mod ids;
pub(crate) mod order;
pub(crate) mod types;

use crate::arena::NodeId;
use crate::diag::{Diagnostic, Diagnostics};
use crate::graph::Graph;

pub(crate) fn validate(graph: &Graph) -> Result<(), Diagnostics> {
    let mut found = Diagnostics::default();
    ids::validate(graph, &mut found.0);
    groups::validate(graph, &mut found.0);
    if found.0.is_empty() {
        types::validate(graph, &mut found.0);
        order::validate(graph, &mut found.0);
    }
    found.into_result(())
}

/// Adds the place and the text of `node` to a diagnostic about it.
fn about(graph: &Graph, node: NodeId, diagnostic: Diagnostic) -> Diagnostic {
    diagnostic
        .at(graph.node(node).location.clone())
        .node(graph.print_node(node))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use crate::arena::{GroupId, NodeId, ValueId};
    use crate::graph::Graph;
    use crate::types::{DType, Type};

    /// Damages a valid graph and compares the report.
    fn check(damage: impl FnOnce(&mut Graph), expected: Expect) {
        let text = "hcom 1
group @g = ranks(0, 1)
graph @t[s](%x: f32[s], %m: mut f32[s]) -> f32[s] {
  %a = neg %x
  %y = all_reduce %a, op = sum, group = @g
  copy_to_input %y, %m
  return %y
}
";
        let mut graph = crate::parse(text, "t").expect("a valid graph");
        damage(&mut graph);
        let found = graph.validate().expect_err("a report");
        expected.assert_eq(&found.to_string());
    }

    #[test]
    fn references() {
        check(
            |graph| graph.nodes.get_mut(NodeId(0)).unwrap().operands[0] = ValueId(3),
            expect![[r#"
                error[reference]: operand 0 is not defined before its use
                 --> t:4:3
                  | %a = neg %y"#]],
        );
        check(
            |graph| graph.nodes.get_mut(NodeId(1)).unwrap().results[0] = ValueId(2),
            expect![[r#"
                error[reference]: result 0 is not defined by this node alone
                 --> t:5:3
                  | %a = all_reduce %a, op = sum, group = @g

                error[reference]: operand 0 is not defined before its use
                 --> t:6:3
                  | copy_to_input %y, %m

                error[reference]: output `y` is not defined"#]],
        );
        check(
            |graph| graph.outputs[0] = ValueId(9),
            expect!["error[reference]: output `y` is not defined"],
        );
        check(
            |graph| graph.inputs[1].value = ValueId(0),
            expect![[r#"
            error[reference]: input 1 `%m` is not the definition of its value

            error[reference]: operand 1 is not defined before its use
             --> t:6:3
              | copy_to_input %y, %m"#]],
        );
    }

    #[test]
    fn names() {
        check(
            |graph| graph.values.get_mut(ValueId(3)).unwrap().name = "a".to_owned(),
            expect!["error[duplicate]: value `a` appears twice"],
        );
        check(
            |graph| graph.symbols[0] = "f32".to_owned(),
            expect![[r#"
            error[syntax]: `f32` cannot be the name of a symbol
              = expected: a letter or `_`, then letters, digits and `_`, and no word of the text form"#]],
        );
    }

    #[test]
    fn types() {
        check(
            |graph| graph.values.get_mut(ValueId(2)).unwrap().ty = Type::fixed(DType::F32, &[4]),
            expect![[r#"
                error[type]: `neg`: the results have other types
                 --> t:4:3
                  | %a = neg %x
                  = expected: f32[s]
                  = got: f32[4]

                error[type]: `all_reduce`: the results have other types
                 --> t:5:3
                  | %y = all_reduce %a, op = sum, group = @g
                  = expected: f32[4]
                  = got: f32[s]"#]],
        );
        check(
            |graph| {
                let node = graph.nodes.get_mut(NodeId(1)).unwrap();
                node.attrs.set("group", GroupId(7));
            },
            expect![[r#"
                error[reference]: `all_reduce`: the group is not one of this graph
                 --> t:5:3
                  | %y = all_reduce %a, op = sum, group = @?
                  = expected: one of 1 groups
                  = got: group 7"#]],
        );
        check(
            |graph| graph.nodes.get_mut(NodeId(1)).unwrap().attrs.set("root", 1),
            expect![[r#"
                error[attribute]: `all_reduce` has no attribute `root`
                 --> t:5:3
                  | %y = all_reduce %a, op = sum, group = @g, root = 1
                  = expected: attributes among op, factor, group"#]],
        );
    }

    #[test]
    fn groups_and_order() {
        check(
            |graph| graph.groups.get_mut(GroupId(0)).unwrap().ranks = vec![1, 1],
            expect![[r#"
                error[group]: rank 1 is in group `@g` twice
                  = expected: each rank once
                  = got: @g = ranks(1, 1)"#]],
        );
        check(
            |graph| graph.inputs[1].mutable = false,
            expect![[r#"
            error[order]: input `%m` is not mutable
             --> t:6:3
              | copy_to_input %y, %m
              = expected: %m: mut f32[s]
              = got: %m: f32[s]"#]],
        );
        check(
            |graph| graph.outputs[0] = ValueId(1),
            expect![[r#"
            error[order]: output `y` is an input that was written
              = help: return the value that was written"#]],
        );
    }
}
