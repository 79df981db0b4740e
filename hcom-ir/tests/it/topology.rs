//! Orders of nodes: what moves, and what never does.

use hcom_ir::{Graph, Literal, TopologyOrder, interpret, order, parse, topology};

/// Two branches; the collectives of one group stand in both.
fn graph(rank: u32) -> Graph {
    let own = if rank == 0 {
        "%m = neg %c"
    } else {
        "%m = abs %c"
    };
    let text = format!(
        "hcom 1
group @w = ranks(0, 1)
graph @f(%x: mut f32[2], %w: f32[2]) -> (f32[2], f32[2]) {{
  %a = exp %x
  %b = all_reduce %a, op = sum, group = @w
  %c = neg %w
  {own}
  %d = all_reduce %m, op = max, group = @w
  %e = add %b, %d
  %g = sqrt %a
  barrier group = @w
  copy_to_input %d, %x
  return %e, %g
}}
"
    );
    parse(&text, "t").expect("the text is a graph")
}

/// The names of the nodes' first results, or their operations.
fn listed(graph: &Graph) -> String {
    let name = |node: &hcom_ir::Node| match node.results.first() {
        Some(&value) => graph.value(value).name.clone(),
        None => node.op.to_string(),
    };
    let names: Vec<String> = graph.nodes().map(|(_, node)| name(node)).collect();
    names.join(" ")
}

#[test]
fn each_order_lists_differently() {
    let sorted = |order| listed(&topology::sort(&graph(0), order).expect("it stays valid"));
    let program = "a b c m d e g barrier copy_to_input";
    assert_eq!(sorted(TopologyOrder::StableRdfs), program);
    assert_eq!(
        sorted(TopologyOrder::Dfs),
        "a b g c m d e barrier copy_to_input"
    );
    assert_eq!(
        sorted(TopologyOrder::Bfs),
        "a c b g m d e barrier copy_to_input"
    );
    assert_eq!(
        sorted(TopologyOrder::Rdfs),
        "a b c m d e g barrier copy_to_input"
    );
}

#[test]
fn the_sequence_of_a_group_is_the_same_in_every_order_on_every_rank() {
    let inputs: Vec<Vec<Literal>> = [[1.0f32, -2.0], [0.5, 4.0]]
        .iter()
        .map(|x| {
            let literal = |values: &[f32]| Literal::from_slice(&[2], values).expect("two numbers");
            vec![literal(x), literal(&[3.0, x[1]])]
        })
        .collect();
    let program = [graph(0), graph(1)];
    let expected = interpret(&program, &inputs).expect("the ranks agree");
    for first in TopologyOrder::ALL {
        for second in TopologyOrder::ALL {
            let sorted = [(0, first), (1, second)]
                .map(|(rank, order)| topology::sort(&graph(rank), order).expect("it stays valid"));
            for graph in &sorted {
                let (group, _) = graph.groups().next().expect("there is a group");
                let kinds: Vec<String> = order::rows(graph, group)
                    .into_iter()
                    .map(|(_, row)| row.to_string())
                    .collect();
                assert!(
                    kinds[0].contains("sum") && kinds[1].contains("max"),
                    "{kinds:?}"
                );
            }
            let results = interpret(&sorted, &inputs).expect("the ranks agree");
            for (result, expected) in results.iter().zip(&expected) {
                assert_eq!(result.outputs, expected.outputs, "{first} and {second}");
                assert_eq!(
                    result.inputs_after, expected.inputs_after,
                    "{first} and {second}"
                );
            }
        }
    }
}

#[test]
fn graphs_with_several_transfers_keep_the_order_of_the_program() {
    let text = "hcom 1
group @w = ranks(0, 1)
graph @f(%x: f32[2]) -> f32[2] {
  %a = neg %x
  send %x, peer = 1, group = @w
  %y = recv f32[2], peer = 1, group = @w
  %z = add %y, %a
  return %z
}
";
    let graph = parse(text, "t").expect("the text is a graph");
    for order in TopologyOrder::ALL {
        let sorted = topology::sort(&graph, order).expect("it stays valid");
        assert_eq!(sorted, graph, "{order}");
        assert_eq!(order.name().parse(), Ok(order));
    }
    assert!("depth".parse::<TopologyOrder>().is_err());
}
