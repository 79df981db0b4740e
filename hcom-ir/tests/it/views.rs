//! Pictures and lifetimes.

use expect_test::expect;
use hcom_ir::liveness::{End, lifetimes};
use hcom_ir::{Id as _, NodeId};

use super::graph;

const TEXT: &str = "hcom 1
group @tp = ranks(0, 1)
graph @g(%x: f32[2], %w: mut f32[2]) -> f32[2] {
  %a = mul %x, %w
  %r = all_reduce %a, op = sum, group = @tp
  %unused = neg %a
  barrier group = @tp
  copy_to_input %r, %w
  return y = %r
}
";

#[test]
fn dot_shows_nodes_edges_and_the_order_of_groups() {
    expect![[r#"
        digraph "g" {
          rankdir = TB;
          node [shape = box, style = "rounded,filled", fillcolor = white, fontname = monospace];
          edge [fontname = monospace, fontsize = 10];
          i0 [label = "%x\nf32[2]", shape = ellipse];
          i1 [label = "%w\nmut f32[2]", shape = ellipse];
          n0 [label = "mul", tooltip = "%a = mul %x, %w"];
          i0 -> n0 [label = "f32[2]"];
          i1 -> n0 [label = "f32[2]"];
          n1 [label = "all_reduce\n@tp", tooltip = "%r = all_reduce %a, op = sum, group = @tp", fillcolor = lightsalmon];
          n0 -> n1 [label = "f32[2]"];
          n2 [label = "neg", tooltip = "%unused = neg %a"];
          n0 -> n2 [label = "f32[2]"];
          n3 [label = "barrier\n@tp", tooltip = "barrier group = @tp", fillcolor = lightsalmon];
          n4 [label = "copy_to_input", tooltip = "copy_to_input %r, %w"];
          n1 -> n4 [label = "f32[2]"];
          i1 -> n4 [label = "f32[2]"];
          n1 -> n3 [style = dashed, constraint = false];
          o0 [label = "y", shape = ellipse];
          n1 -> o0 [label = "f32[2]"];
        }
    "#]].assert_eq(&hcom_ir::dot(&graph(TEXT)));
}

#[test]
fn lifetimes_end_with_the_last_use() {
    let graph = graph(TEXT);
    let ends: Vec<_> = lifetimes(&graph)
        .into_iter()
        .map(|lifetime| (lifetime.start, lifetime.end))
        .collect();
    let node = NodeId::from_index;
    assert_eq!(
        ends,
        [
            (None, End::Node(node(0))),
            (None, End::Node(node(4))),
            (Some(node(0)), End::Node(node(2))),
            (Some(node(1)), End::Output),
            (Some(node(2)), End::Unused),
        ]
    );
    assert_eq!(hcom_ir::liveness::peak_bytes(&graph), Some(3 * 8));
}
