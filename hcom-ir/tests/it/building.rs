//! Building graphs by calls.

use hcom_ir::{
    Attrs, Builder, Code, DType, Group, Literal, Location, Op, ReduceOp, Type, ValueId, interpret,
    parse,
};

#[test]
fn inputs_may_come_late() {
    let mut builder = Builder::new("late");
    let ty = Type::fixed(DType::F32, &[2]);
    let x = builder.input("x", ty.clone(), false);
    let a = builder.one(Op::Neg, &[x], Attrs::new()).expect("a value");
    let w = builder.input("w", ty, false);
    builder.set_mutable(w, true);
    let y = builder
        .one(Op::Add, &[a, w], Attrs::new())
        .expect("a value");
    builder
        .push(Op::CopyToInput, &[a, w], Attrs::new())
        .expect("a write");
    let graph = builder.finish(vec![("y".to_owned(), y)]).expect("a graph");
    let text = "hcom 1\ngraph @late(%x: f32[2], %w: mut f32[2]) -> f32[2] {\n  %1 = neg %x\n  %3 = add %1, %w\n  copy_to_input %1, %w\n  return y = %3\n}\n";
    assert_eq!(graph.to_string(), text);
    assert_eq!(parse(text, "t").as_ref(), Ok(&graph));
    assert_eq!(graph.value(graph.inputs()[1].value).name, "w");
}

#[test]
fn names_are_made_fit_and_unique() {
    let mut builder = Builder::new("my graph");
    let ty = Type::fixed(DType::F32, &[]);
    let names: Vec<String> = ["layer/0.w", "layer/0.w", "", "λ"]
        .into_iter()
        .map(|name| {
            let value = builder.input(name, ty.clone(), false);
            builder.graph().value(value).name.clone()
        })
        .collect();
    assert_eq!(names, ["layer_0.w", "layer_0.w.1", "_", "_.1"]);
    let symbols: Vec<_> = ["n", "sum", "2d", "n"]
        .into_iter()
        .map(|name| builder.symbol(name))
        .collect();
    assert_eq!(symbols[0], symbols[3]);
    assert_eq!(builder.graph().symbols(), ["n", "sum_", "_2d"]);
    let group = builder.group(Group::new("tp", [0, 1]));
    assert_eq!(builder.group(Group::new("other", [0, 1])), group);
    assert_ne!(builder.group(Group::new("tp", [1, 0])), group);
    let outputs = vec![(
        "a result".to_owned(),
        builder.value_named("_").expect("a value"),
    )];
    let text = builder.finish(outputs).expect("a graph").to_string();
    assert!(
        text.contains("group @tp.1 = ranks(1, 0)\ngraph @my_graph[n, sum_, _2d]("),
        "{text}"
    );
    assert!(text.contains("return \"a result\" = %_\n"), "{text}");
    assert!(parse(&text, "t").is_ok());
}

#[test]
fn a_refused_node_is_reported_and_not_added() {
    let mut builder = Builder::new("g");
    let x = builder.input("x", Type::fixed(DType::F32, &[2, 3]), false);
    builder.set_location(Some(Location {
        file: "model.rs".into(),
        line: 7,
        column: 9,
    }));
    let error = builder
        .one(Op::Matmul, &[x, x], Attrs::new())
        .expect_err("a report");
    assert_eq!(error.code, Code::Shape);
    assert_eq!(
        error.to_string(),
        "error[shape]: `matmul`: the inner sizes differ\n --> model.rs:7:9\n  | matmul %x, %x\n  = expected: `[..., m, k] x [..., k, n]`; k is 3 and 2\n  = got: f32[2, 3], f32[2, 3]"
    );
    assert_eq!(builder.graph().nodes().len(), 0);
    let missing = builder.push(Op::AllReduce, &[x], Attrs::new().with("op", ReduceOp::Sum));
    assert_eq!(
        missing.expect_err("a report").expected.as_deref(),
        Some("group = a group")
    );
    let other = {
        let mut other = Builder::new("other");
        let ty = Type::fixed(DType::F32, &[]);
        (0..9)
            .map(|_| other.input("x", ty.clone(), false))
            .last()
            .expect("a value")
    };
    assert_eq!(
        builder
            .push(Op::Neg, &[other], Attrs::new())
            .expect_err("a report")
            .code,
        Code::Reference
    );
}

#[test]
fn messages_leave_out_large_data() {
    let mut builder = Builder::new("g");
    let literal = Literal::from_slice(&[1000], &[1.5f32; 1000]).expect("a literal");
    let value = Attrs::new().with("value", literal).with("extra", 1);
    let error = builder
        .push(Op::Constant, &[], value)
        .expect_err("a report");
    assert_eq!(
        error.node.as_deref(),
        Some("constant value = f32[1000] hex \"…\", extra = 1")
    );
}

#[test]
fn sizes_without_elements_may_be_beyond_any_product() {
    let text = "hcom 1\ngraph @g(%x: f32[0, 4294967296, 4294967296]) -> f32[0, 4294967296] {
  %a = slice %x, dim = 0, start = 0, end = 0
  %b = transpose %a, perm = [2, 1, 0]
  %c = concat %b, %b, dim = 0
  %d, %e = split %c, dim = 2, sizes = [0, 0]
  %f = reshape %e, shape = [0, 4294967296]
  %y = softmax %f
  return %y
}";
    let input = Literal::new(DType::F32, vec![0, 1 << 32, 1 << 32], Vec::new()).expect("a literal");
    let ranks = interpret(&[super::graph(text)], &[vec![input]]).expect("a result");
    assert_eq!(ranks[0].outputs[0].shape, [0, 1 << 32]);
}

#[test]
fn long_graphs_are_built_checked_and_read_in_linear_time() {
    let mut builder = Builder::new("long");
    let group = builder.group(Group::new("tp", [0, 1]));
    let mut x = builder.input("x", Type::fixed(DType::F32, &[4]), false);
    for _ in 0..10_000 {
        x = builder.one(Op::Relu, &[x], Attrs::new()).expect("a value");
        let attrs = Attrs::new().with("op", ReduceOp::Sum).with("group", group);
        x = builder.one(Op::AllReduce, &[x], attrs).expect("a value");
    }
    let graph = builder.finish(vec![("y".to_owned(), x)]).expect("a graph");
    let inputs = vec![Literal::from_slice(&[4], &[-1.0f32, 0.0, 1e-30, 2.0]).expect("a literal")];
    let ranks = interpret(&[&graph, &graph], &[inputs.clone(), inputs]).expect("a result");
    let inf = f32::INFINITY;
    assert_eq!(
        ranks[1].outputs[0].to_vec::<f32>(),
        Some(vec![0.0, 0.0, inf, inf])
    );
    assert_eq!(parse(&graph.to_string(), "t"), Ok(graph));
}

#[test]
fn users_are_listed_once_in_program_order() {
    let graph =
        super::graph("hcom 1\ngraph @g(%x: f32[]) {\n  %a = add %x, %x\n  %b = mul %a, %x\n}");
    let users: Vec<usize> = graph.users().iter().map(|users| users.len()).collect();
    assert_eq!(users, [2, 1, 0]);
    let x: ValueId = graph.inputs()[0].value;
    assert_eq!(graph.ty(x).to_string(), "f32[]");
}
