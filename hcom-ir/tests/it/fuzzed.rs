//! What must hold for any bytes: the functions that the fuzz targets under `fuzz/` drive.

use hcom_ir::{Bindings, Builder, Graph, Id as _, SymbolId, parse};

/// Text reads or is refused with a report, and what reads prints and reads back the same.
pub(crate) fn text(data: &[u8]) {
    let source = String::from_utf8_lossy(data);
    match parse(&source, "fuzzed") {
        Ok(graph) => {
            let printed = graph.to_string();
            let again = parse(&printed, "printed");
            let again = again.unwrap_or_else(|found| panic!("{}", found.render(Some(&printed))));
            assert_eq!(again, graph, "{printed}");
        }
        Err(found) => {
            assert!(!found.0.is_empty(), "a refusal has a reason");
            assert!(!found.render(Some(&source)).is_empty());
        }
    }
}

/// A graph that reads is valid, stays valid when its sizes are fixed, and when a builder is given its
/// nodes with other operands, each is taken or refused without leaving a graph that is not valid.
pub(crate) fn valid(data: &[u8]) {
    // The graph, then a zero, then choices.
    let end = data
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(data.len());
    let (source, choices) = data.split_at(end);
    let Ok(graph) = parse(&String::from_utf8_lossy(source), "fuzzed") else {
        return;
    };
    graph.validate().expect("what reads is valid");
    let mut choices = choices.iter().skip(1).copied().cycle();
    let mut choose = || u64::from(choices.next().unwrap_or(1));
    let mut bindings = Bindings::new();
    for index in 0..graph.symbols().len() {
        bindings.set(SymbolId::from_index(index), choose() % 9);
    }
    if let Ok(fixed) = graph.bind(&bindings) {
        fixed.validate().expect("fixing sizes keeps a graph valid");
    }
    shuffled(&graph, choose)
        .validate()
        .expect("a builder makes valid graphs only");
}

/// The nodes of `graph` with operands as `choose` says, where they fit.
fn shuffled(graph: &Graph, mut choose: impl FnMut() -> u64) -> Graph {
    let mut builder = Builder::new("shuffled");
    for (_, group) in graph.groups() {
        builder.group(group.clone());
    }
    for symbol in graph.symbols() {
        builder.symbol(symbol);
    }
    let mut values = Vec::new();
    for input in graph.inputs() {
        values.push(builder.input(&input.name, graph.ty(input.value).clone(), false));
    }
    for (_, node) in graph.nodes() {
        if values.is_empty() && !node.operands.is_empty() {
            continue;
        }
        let operands: Vec<_> = node
            .operands
            .iter()
            .map(|_| values[choose() as usize % values.len()])
            .collect();
        if let Ok(results) = builder.push(node.op, &operands, node.attrs.clone()) {
            values.extend(results);
        }
    }
    let outputs = values.last().map(|&value| ("y".to_owned(), value));
    builder
        .finish(outputs.into_iter().collect())
        .expect("nothing is written")
}
