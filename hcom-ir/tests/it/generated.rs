//! Properties over generated graphs and over damaged text.

use hcom_ir::{
    Attrs, Bindings, Builder, DType, Dim, Graph, Group, Id as _, Literal, Op, ReduceOp, Shape,
    SymbolId, Type, ValueId, interpret, parse, planner_digest,
};
use proptest::prelude::*;

use crate::fuzzed;

/// A graph made by applying choices; operations that are not `allowed` and those that do not
/// fit are left out.
fn build(choices: &[(u8, u8, u8, u8)], allowed: fn(Op) -> bool) -> Graph {
    let mut builder = Builder::new("generated");
    let symbol = Dim::symbol(builder.symbol("s"));
    let groups = [
        builder.group(Group::new("a", [0, 1])),
        builder.group(Group::new("b", [1, 0])),
    ];
    let dtypes = [DType::F32, DType::BF16, DType::I64, DType::Bool, DType::C64];
    let mut values: Vec<ValueId> = Vec::new();
    for (index, dtype) in dtypes.into_iter().enumerate() {
        let shape = Shape::new([symbol.clone(), Dim::fixed(4)]);
        values.push(builder.input(&format!("x{index}"), Type::new(dtype, shape), index == 0));
        values.push(builder.input("y", Type::fixed(dtype, &[2, 4]), false));
    }
    for &(op, a, b, c) in choices {
        let op = Op::ALL[usize::from(op) % Op::ALL.len()];
        if !allowed(op) {
            continue;
        }
        let pick = |at: u8| values[usize::from(at) % values.len()];
        let (x, rank) = (pick(a), builder.ty(pick(a)).shape.rank());
        let group = groups[usize::from(c) % 2];
        let reduce = ReduceOp::ALL[usize::from(b) % 8];
        let dtype = DType::ALL[usize::from(b) % 15];
        let dim = if rank == 0 {
            0
        } else {
            i64::from(c) % rank as i64
        };
        let dims = || builder.ty(x).shape.clone();
        let attrs = Attrs::new();
        let (operands, attrs): (Vec<ValueId>, Attrs) = match op {
            Op::Constant => {
                let bytes = (0..u64::from(b % 80) * dtype.bytes()).map(|i| {
                    (i as u8).wrapping_mul(c) % if dtype == DType::Bool { 2 } else { 255 }
                });
                let literal = Literal::new(dtype, vec![u64::from(b % 80)], bytes.collect())
                    .expect("a literal");
                (vec![], attrs.with("value", literal))
            }
            Op::CopyToInput => (vec![pick(b), values[0]], attrs),
            Op::Cast => (vec![x], attrs.with("to", dtype)),
            Op::Where => (vec![pick(a), pick(b), pick(c)], attrs),
            Op::Softmax | Op::Argmax => (vec![x], attrs.with("dim", dim)),
            Op::Gather => (vec![x, pick(b)], attrs.with("dim", dim)),
            Op::Reshape | Op::Expand => (vec![x], attrs.with("shape", dims())),
            Op::Transpose => (
                vec![x],
                attrs.with("perm", (0..rank as i64).rev().collect::<Vec<i64>>()),
            ),
            Op::Slice => (
                vec![x],
                attrs.with("dim", dim).with("start", 1).with("end", 2),
            ),
            Op::Concat => (vec![x, pick(b)], attrs.with("dim", dim)),
            Op::Split => (
                vec![x],
                attrs.with("dim", dim).with("sizes", vec![symbol.clone()]),
            ),
            Op::Pad => (
                vec![x],
                attrs
                    .with("low", vec![1u64; rank])
                    .with("high", vec![0u64; rank])
                    .with("value", i32::from(b % 2)),
            ),
            Op::Sum | Op::Mean | Op::Max => (
                vec![x],
                attrs.with("dims", vec![dim]).with("keepdim", c % 2 == 0),
            ),
            Op::Arange => (
                vec![],
                attrs
                    .with("start", 0)
                    .with("end", symbol.clone())
                    .with("step", 1)
                    .with("dtype", dtype),
            ),
            Op::Fill => (
                vec![],
                attrs
                    .with("shape", dims())
                    .with("value", f64::from(c) / 8.0)
                    .with("dtype", DType::F16),
            ),
            Op::Attention => (
                vec![x, x, pick(b)],
                attrs.with("scale", 0.125).with("causal", true),
            ),
            Op::AllReduce => (vec![x], attrs.with("op", reduce).with("group", group)),
            Op::ReduceScatter => (
                vec![x],
                attrs
                    .with("op", reduce)
                    .with("group", group)
                    .with("dim", dim),
            ),
            Op::AllGather => (vec![x], attrs.with("group", group).with("dim", dim)),
            Op::AllToAll | Op::Barrier => (
                if op == Op::Barrier { vec![] } else { vec![x] },
                attrs.with("group", group),
            ),
            Op::Broadcast | Op::Scatter | Op::GatherTo => {
                (vec![x], attrs.with("root", 1).with("group", group))
            }
            Op::Reduce => (
                vec![x],
                attrs
                    .with("op", reduce)
                    .with("root", 0)
                    .with("group", group),
            ),
            Op::Send => (
                vec![x],
                attrs
                    .with("peer", 1)
                    .with("tag", i32::from(c))
                    .with("group", group),
            ),
            Op::Recv => (
                vec![],
                attrs
                    .with("peer", 0)
                    .with("group", group)
                    .with("type", builder.ty(x).clone()),
            ),
            Op::Custom => {
                let types = vec![builder.ty(x).clone(); usize::from(c % 3)];
                (
                    vec![x],
                    attrs
                        .with("name", "odd \"name\"\n")
                        .with("types", types)
                        .with("rate", f64::from(b))
                        .with("sizes", dims()),
                )
            }
            Op::Matmul => (vec![x, pick(b)], attrs.with("transpose_b", true)),
            _ => {
                let operands = [x, pick(b), pick(c)];
                (
                    operands[..hcom_ir::info(op).operands.required].to_vec(),
                    attrs,
                )
            }
        };
        if let Ok(results) = builder.push(op, &operands, attrs) {
            values.extend(results);
        }
    }
    let readable = |value: &ValueId| *value != values[0];
    let outputs = values.iter().rev().copied().filter(readable).take(3);
    let outputs = outputs
        .enumerate()
        .map(|(index, value)| (format!("out {index}"), value))
        .collect();
    builder.finish(outputs).expect("a valid graph")
}

fn choices() -> impl Strategy<Value = Vec<(u8, u8, u8, u8)>> {
    prop::collection::vec(any::<(u8, u8, u8, u8)>(), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn text_reads_back_to_the_same_graph(choices in choices()) {
        let graph = build(&choices, |_| true);
        let text = graph.to_string();
        let again = parse(&text, "t").map_err(|found| TestCaseError::fail(found.render(Some(&text))))?;
        prop_assert_eq!(&again, &graph);
        prop_assert_eq!(again.to_string(), text);
        prop_assert_eq!(planner_digest(&again, b""), planner_digest(&graph, b""));
        prop_assert!(again.validate().is_ok());
        let _ = hcom_ir::dot(&graph);
    }

    #[test]
    fn binding_keeps_the_graph_valid(choices in choices(), size in 0u64..7) {
        let graph = build(&choices, |_| true);
        let bindings = Bindings::new().with(SymbolId::from_index(0), size);
        match graph.bind(&bindings) {
            Ok(fixed) => {
                prop_assert!(fixed.is_fixed() && fixed.validate().is_ok());
                for (value, bound) in graph.values().zip(fixed.values()) {
                    prop_assert_eq!(value.1.ty.shape.bind(&bindings).ok(), Some(bound.1.ty.shape.clone()));
                }
            }
            Err(found) => prop_assert!(graph.guards().iter().any(|guard| guard.holds(&bindings) != Ok(true)), "{}", found),
        }
    }

    #[test]
    fn the_oracle_always_answers(choices in choices(), size in 0u64..5) {
        let graph = build(&choices, |op| !matches!(op, Op::Custom | Op::Send | Op::Recv));
        if let Ok(fixed) = graph.bind(&Bindings::new().with(SymbolId::from_index(0), size)) {
            let inputs = |seed: u8| -> Vec<Literal> {
                fixed.inputs().iter().map(|input| {
                    let ty = fixed.ty(input.value);
                    let count = ty.bytes().unwrap_or(0);
                    let bytes = (0..count).map(|i| if ty.dtype == DType::Bool { (i as u8 + seed) % 2 } else { (i as u8).wrapping_mul(37).wrapping_add(seed) });
                    Literal::new(ty.dtype, ty.shape.as_fixed().unwrap_or_default(), bytes.collect()).expect("a literal")
                }).collect()
            };
            if let Ok(ranks) = interpret(&[&fixed, &fixed], &[inputs(1), inputs(2)]) {
                for rank in ranks {
                    for (output, &value) in rank.outputs.iter().zip(fixed.outputs()) {
                        prop_assert_eq!(&output.ty(), fixed.ty(value));
                        prop_assert_eq!(Some(output.bytes.len() as u64), output.ty().bytes());
                    }
                }
            }
        }
    }

    #[test]
    fn damaged_text_never_panics(choices in choices(), damage in prop::collection::vec(any::<(u16, u8, u8)>(), 1..8)) {
        let mut text: Vec<char> = build(&choices, |_| true).to_string().chars().collect();
        let pieces = ["%", "@", "[", "]", "(", ")", "{", "}", ",", "=", "->", "-", "\"", "*", "/", "0", "18446744073709551616", "s", "f32[", "nan", "hex", "\n", "é", "return", "1e999", "#"];
        for (at, action, which) in damage {
            let at = usize::from(at) % (text.len() + 1);
            match action % 3 {
                0 => { text.splice(at..at, pieces[usize::from(which) % pieces.len()].chars()); }
                1 => { text.drain(at..(at + usize::from(which) % 12).min(text.len())); }
                _ => text.truncate(at.max(20)),
            }
        }
        let text: String = text.into_iter().collect();
        fuzzed::text(text.as_bytes());
        fuzzed::valid(text.as_bytes());
    }

    #[test]
    fn shuffled_graphs_are_valid_or_refused(choices in choices(), shuffle in prop::collection::vec(1u8.., 1..60)) {
        let mut data = build(&choices, |_| true).to_string().into_bytes();
        data.push(0);
        data.extend(shuffle);
        fuzzed::valid(&data);
    }

    #[test]
    fn sizes_compute_like_numbers(a in 0u64..50, b in 0u64..50, x in 0u64..9, y in 1u64..9, s in 0u64..100, n in 0u64..100) {
        let bindings = Bindings::new().with(SymbolId::from_index(0), s).with(SymbolId::from_index(1), n);
        let [ds, dn] = [0, 1].map(|index| Dim::symbol(SymbolId::from_index(index)));
        let left = ds.mul(a).and_then(|dim| dim.add(&Dim::fixed(x))).expect("a size");
        let right = dn.mul(b).and_then(|dim| dim.add(&ds)).expect("a size");
        let (l, r) = (a * s + x, b * n + s);
        prop_assert_eq!(left.bind(&bindings), Ok(l));
        prop_assert_eq!(left.add(&right).and_then(|dim| dim.bind(&bindings)), Ok(l + r));
        prop_assert_eq!(left.add(&right).and_then(|dim| dim.sub(&left)), Ok(right.clone()));
        prop_assert_eq!(right.mul(y).and_then(|dim| dim.div(y)), Ok((right.clone(), None)));
        if let Ok((quotient, guard)) = right.div(y) {
            let exact = guard.is_none_or(|guard| guard.holds(&bindings) == Ok(true));
            prop_assert_eq!(exact, r % y == 0);
            prop_assert_eq!(quotient.bind(&bindings).ok(), exact.then(|| r / y));
        }
    }
}
