//! What a reader sees for each kind of mistake: the rule, the place, the node, both sides, and what to do.

use expect_test::{Expect, expect};
use hcom_ir::capabilities::Chip;
use hcom_ir::order::differences;
use hcom_ir::{Bindings, Code, Diagnostics, Graph, Id as _, SymbolId, parse};

/// The report about `body` in a graph of ranks 0 and 1 with inputs of several types.
fn report(body: &str) -> (Code, String) {
    let text = format!(
        "hcom 1\ngroup @g = ranks(0, 1)\ngraph @f[s](%x: f32[4, 2], %i: i32[4], %m: mut f32[4, 2], %d: f32[s]) {{\n  {body}\n}}\n"
    );
    let found = parse(&text, "f.hcom").expect_err(body);
    (found.0[0].code, found.render(Some(&text)))
}

#[track_caller]
fn check(body: &str, code: Code, expected: Expect) {
    let (found, text) = report(body);
    assert_eq!(found, code, "{text}");
    expected.assert_eq(&text);
}

#[test]
fn mistakes_in_the_text() {
    check(
        "%y = exp %x,",
        Code::Syntax,
        expect![[r#"
        error[syntax]: expected an operand or an attribute, found `}`
         --> f.hcom:5:1
          |
        5 | }
          | ^
    "#]],
    );
    check(
        "%y = exp %z",
        Code::Unknown,
        expect![[r#"
        error[unknown]: `%z` is not defined
         --> f.hcom:4:12
          |
        4 |   %y = exp %z
          |            ^^
          = help: did you mean `%d`?
    "#]],
    );
    check(
        "%y = all_reduce %x, op = sum, group = @h",
        Code::Unknown,
        expect![[r#"
            error[unknown]: group `@h` is not declared
             --> f.hcom:4:41
              |
            4 |   %y = all_reduce %x, op = sum, group = @h
              |                                         ^^
              = help: did you mean `@g`?
        "#]],
    );
    check(
        "%y = all_reduse %x, op = sum, group = @g",
        Code::UnknownOp,
        expect![[r#"
            error[unknown-op]: there is no operation `all_reduse`
             --> f.hcom:4:8
              |
            4 |   %y = all_reduse %x, op = sum, group = @g
              |        ^^^^^^^^^^
              = help: did you mean `all_reduce`?
        "#]],
    );
    check(
        "%x = exp %x",
        Code::Duplicate,
        expect![[r#"
        error[duplicate]: `%x` is defined twice
         --> f.hcom:4:3
          |
        4 |   %x = exp %x
          |   ^^
          = help: a value is assigned once; choose another name
    "#]],
    );
}

#[test]
fn mistakes_in_a_node() {
    check(
        "%y = add %x",
        Code::Arity,
        expect![[r#"
        error[arity]: `add` has the wrong number of operands
         --> f.hcom:4:3
          |
        4 |   %y = add %x
          |   ^^
          = expected: 2 operands: a, b
          = got: 1
    "#]],
    );
    check(
        "%y = all_reduce %x, group = @g",
        Code::Attribute,
        expect![[r#"
            error[attribute]: `all_reduce` needs the attribute `op`
             --> f.hcom:4:3
              |
            4 |   %y = all_reduce %x, group = @g
              |   ^^
              = expected: op = a reduction
        "#]],
    );
    check(
        "%y = broadcast %x, root = 2, group = @g",
        Code::Group,
        expect![[r#"
            error[group]: `broadcast`: `root` is no rank of group `@g`
             --> f.hcom:4:3
              |
            4 |   %y = broadcast %x, root = 2, group = @g
              |   ^^
              = expected: a rank within the group, 0..2
              = got: 2
        "#]],
    );
    check(
        "send %x, peer = 5, group = @g",
        Code::Group,
        expect![[r#"
        error[group]: `send`: `peer` is no rank of group `@g`
         --> f.hcom:4:3
          |
        4 |   send %x, peer = 5, group = @g
          |   ^^^^
          = expected: a rank within the group, 0..2
          = got: 5
    "#]],
    );
    check(
        "%y = all_reduce %i, op = premul_sum, factor = 0.5, group = @g",
        Code::DType,
        expect![[r#"
            error[dtype]: `all_reduce`: reduction `premul_sum` is not defined for i32
             --> f.hcom:4:3
              |
            4 |   %y = all_reduce %i, op = premul_sum, factor = 0.5, group = @g
              |   ^^
              = expected: one of sum, prod, min, max, avg, band, bor, bxor
              = got: premul_sum
        "#]],
    );
    check(
        "%y = add %x, %i",
        Code::DType,
        expect![[r#"
        error[dtype]: `add`: the operands have different element types
         --> f.hcom:4:3
          |
        4 |   %y = add %x, %i
          |   ^^
          = expected: one element type
          = got: f32[4, 2], i32[4]
          = help: convert one of them with `cast`
    "#]],
    );
    check(
        "%y = matmul %x, %x",
        Code::Shape,
        expect![[r#"
        error[shape]: `matmul`: the inner sizes differ
         --> f.hcom:4:3
          |
        4 |   %y = matmul %x, %x
          |   ^^
          = expected: `[..., m, k] x [..., k, n]`; k is 2 and 4
          = got: f32[4, 2], f32[4, 2]
    "#]],
    );
    check(
        "%a = slice %x, dim = 0, start = 0, end = 3\n  %y = reduce_scatter %a, op = sum, group = @g",
        Code::Shape,
        expect![[r#"
            error[shape]: `reduce_scatter`: 3 rows are not divisible by the 2 ranks of `@g`
             --> f.hcom:5:3
              |
            5 |   %y = reduce_scatter %a, op = sum, group = @g
              |   ^^
              = expected: a multiple of 2 in dimension 0
              = got: f32[3, 2]
        "#]],
    );
    check(
        "%y = expand %x, shape = [9223372036854775807, 4, 2]",
        Code::TooLarge,
        expect![[r#"
            error[too-large]: a result of `expand` is too large
             --> f.hcom:4:3
              |
            4 |   %y = expand %x, shape = [9223372036854775807, 4, 2]
              |   ^^
              = expected: less than 2^64 bytes
              = got: f32[9223372036854775807, 4, 2]
        "#]],
    );
    check(
        "%y = exp %x\n  copy_to_input %y, %m\n  %z = exp %m",
        Code::Order,
        expect![[r#"
            error[order]: input `%m` is read after it was written
             --> f.hcom:6:3
              |
            6 |   %z = exp %m
              |   ^^
              = help: read the value that was written, or write the input at the end
        "#]],
    );
}

#[test]
fn mistakes_in_a_group() {
    let text = "hcom 1\ngroup @g = ranks(0, 1, 0)\ngraph @f() {\n}\n";
    let found = parse(text, "f.hcom").expect_err("a rank twice");
    assert_eq!(found.0[0].code, Code::Group);
    expect![[r#"
        error[group]: rank 0 is in group `@g` twice
         --> f.hcom:2:7
          |
        2 | group @g = ranks(0, 1, 0)
          |       ^^
          = expected: each rank once
          = got: @g = ranks(0, 1, 0)
    "#]]
    .assert_eq(&found.render(Some(text)));
}

/// The graph of a text that is right.
fn graph(text: &str) -> Graph {
    parse(text, "f.hcom").unwrap_or_else(|found| panic!("{}", found.render(Some(text))))
}

#[test]
fn sizes_that_do_not_fit_and_chips_that_lack_an_operation() {
    let text = "hcom 1\ngroup @g = ranks(0, 1)\ngraph @f[s](%x: f64[s]) -> f64[s/2] where s % 2 == 0 {\n  %y = reduce_scatter %x, op = min, group = @g\n  return %y\n}\n";
    let show = |found: Result<Graph, Diagnostics>, code: Code| {
        let found = found.expect_err("it does not fit");
        assert_eq!(found.0[0].code, code);
        found.render(Some(text))
    };
    let symbolic = graph(text);
    expect![[r#"
        error[binding]: symbol `s` has no value
          = expected: a value for each of s
    "#]]
    .assert_eq(&show(symbolic.bind(&Bindings::new()), Code::Binding));
    let odd = Bindings::new().with(SymbolId::from_index(0), 3);
    expect![[r#"
        error[binding]: a guard does not hold for these sizes
          = expected: s % 2 == 0
          = got: s = 3
    "#]]
    .assert_eq(&show(symbolic.bind(&odd), Code::Binding));
    let even = Bindings::new().with(SymbolId::from_index(0), 4);
    let fixed = symbolic.bind(&even).expect("4 is even");
    let refused = Chip::A3.check(&fixed).map(|()| fixed);
    expect![[r#"
        error[unsupported]: A3 does not support reduce_scatter of f64 with op = min
         --> f.hcom:4:3
          |
        4 |   %y = reduce_scatter %x, op = min, group = @g
          |   ^^
          = expected: one of bool, i8, i16, i32, i64, f16, bf16, f32
          = got: f64
    "#]]
    .assert_eq(&show(refused, Code::Unsupported));
}

/// What the check across ranks says about two programs, one of which stands in each list.
#[track_caller]
fn across(ranks: [&str; 2], expected: Expect) {
    let graphs: Vec<Graph> = (0..)
        .zip(ranks)
        .map(|(rank, body)| {
            let text = format!(
                "hcom 1\ngroup @g = ranks(0, 1)\ngraph @f(%x: f32[4, 2], %i: i32[4, 2], %t: f32[3, 2]) {{\n  {body}\n}}\n"
            );
            parse(&text, &format!("r{rank}.hcom")).unwrap_or_else(|found| panic!("{}", found.render(Some(&text))))
        })
        .collect();
    let found: Vec<String> = differences(&graphs)
        .iter()
        .map(ToString::to_string)
        .collect();
    expected.assert_eq(&found.join("\n"));
}

#[test]
fn differences_between_ranks() {
    across(
        [
            "%y = all_reduce %x, op = sum, group = @g",
            "%y = broadcast %x, root = 0, group = @g",
        ],
        expect![
            "group @g = ranks(0, 1): operation 1 of the group: the operations differ, all_reduce and broadcast: rank 0 has `all_reduce f32, op = sum, count = 8` (r0.hcom:4:3), rank 1 has `broadcast f32, root = 0, count = 8` (r1.hcom:4:3); all members of a group must run the same sequence of collectives"
        ],
    );
    across(
        [
            "%y = all_reduce %x, op = sum, group = @g",
            "%y = all_reduce %i, op = sum, group = @g",
        ],
        expect![
            "group @g = ranks(0, 1): operation 1 of the group: the element types differ: rank 0 has `all_reduce f32, op = sum, count = 8` (r0.hcom:4:3), rank 1 has `all_reduce i32, op = sum, count = 8` (r1.hcom:4:3); all members of a group must run the same sequence of collectives"
        ],
    );
    across(
        [
            "%y = all_reduce %x, op = sum, group = @g",
            "%y = all_reduce %x, op = max, group = @g",
        ],
        expect![
            "group @g = ranks(0, 1): operation 1 of the group: the reductions differ: rank 0 has `all_reduce f32, op = sum, count = 8` (r0.hcom:4:3), rank 1 has `all_reduce f32, op = max, count = 8` (r1.hcom:4:3); all members of a group must run the same sequence of collectives"
        ],
    );
    across(
        [
            "%y = broadcast %x, root = 0, group = @g",
            "%y = broadcast %x, root = 1, group = @g",
        ],
        expect![
            "group @g = ranks(0, 1): operation 1 of the group: the roots differ: rank 0 has `broadcast f32, root = 0, count = 8` (r0.hcom:4:3), rank 1 has `broadcast f32, root = 1, count = 8` (r1.hcom:4:3); all members of a group must run the same sequence of collectives"
        ],
    );
    across(
        [
            "%y = all_reduce %x, op = sum, group = @g",
            "%y = all_reduce %t, op = sum, group = @g",
        ],
        expect![
            "group @g = ranks(0, 1): operation 1 of the group: the element counts differ, 8 and 6: rank 0 has `all_reduce f32, op = sum, count = 8` (r0.hcom:4:3), rank 1 has `all_reduce f32, op = sum, count = 6` (r1.hcom:4:3); all members of a group must run the same sequence of collectives"
        ],
    );
    across(
        [
            "%y = all_reduce %x, op = sum, group = @g\n  barrier group = @g",
            "%y = all_reduce %x, op = sum, group = @g",
        ],
        expect![
            "group @g = ranks(0, 1): operation 2 of the group: the sequences have different lengths: rank 0 has `barrier` (r0.hcom:5:3), rank 1 has no further operation; all members of a group must run the same sequence of collectives"
        ],
    );
    across(
        [
            "%y = all_gather_uneven %x, counts = [4, 3], group = @g",
            "%y = all_gather_uneven %x, counts = [4, 4], group = @g",
        ],
        expect![
            "group @g = ranks(0, 1): operation 1 of the group: the lists of counts differ: rank 0 has `all_gather_uneven f32, counts = [4, 3], own rows = 4` (r0.hcom:4:3), rank 1 has `all_gather_uneven f32, counts = [4, 4], own rows = 4` (r1.hcom:4:3); all members of a group must run the same sequence of collectives"
        ],
    );
    across(
        [
            "%y = all_to_all %x, send_counts = [4, 0], recv_counts = [4, 2], group = @g",
            "%y = all_to_all %x, send_counts = [1, 3], recv_counts = [5, 3], group = @g",
        ],
        expect![
            "group @g = ranks(0, 1): operation 1 of the group: group rank 0 to 1: sends 0 elements, expects 10: rank 0 has `all_to_all f32, sends [8, 0], receives [8, 4]` (r0.hcom:4:3), rank 1 has `all_to_all f32, sends [2, 6], receives [10, 6]` (r1.hcom:4:3); all members of a group must run the same sequence of collectives"
        ],
    );
    across(
        [
            "send %x, peer = 1, tag = 3, group = @g",
            "%y = recv f32[4], peer = 0, tag = 3, group = @g",
        ],
        expect![
            "transfer 1 from rank 0 to rank 1 with tag 3: rank 0 sends 8 elements of f32, rank 1 receives 4 elements of f32; sends and receives must match in order, element count and element type"
        ],
    );
    across(
        [
            "send %x, peer = 1, tag = 3, group = @g",
            "%y = recv f32[4, 2], peer = 0, tag = 4, group = @g",
        ],
        expect![[r#"
            transfer 1 from rank 0 to rank 1 with tag 3: rank 0 sends 8 elements of f32, rank 1 receives nothing; sends and receives must match in order, element count and element type
            transfer 1 from rank 0 to rank 1 with tag 4: rank 0 sends nothing, rank 1 receives 8 elements of f32; sends and receives must match in order, element count and element type"#]],
    );
}

#[test]
fn a_world_with_missing_ranks_and_strangers() {
    let text = |ranks: &str| {
        format!("hcom 1\ngroup @g = ranks({ranks})\ngraph @f() {{\n  barrier group = @g\n}}\n")
    };
    let graphs = [graph(&text("0, 2")), graph(&text("0, 2"))];
    let found: Vec<String> = differences(&graphs)
        .iter()
        .map(ToString::to_string)
        .collect();
    expect![[r#"
        rank 1 runs `barrier group = @g` (f.hcom:4:3), but is not in group @g = ranks(0, 2); only members may run it
        group @g = ranks(0, 2): there is no rank 2 in a world of 2; give a graph for every rank"#]].assert_eq(&found.join("\n"));
}
