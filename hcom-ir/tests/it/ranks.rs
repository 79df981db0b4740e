//! What collectives and transfers do on several ranks.

use super::{graph, literal, show};
use hcom_ir::{Literal, interpret};

/// Runs one text per rank, or the same on all, with the inputs of each rank, and compares the outputs
/// of each rank, separated by `;`, or the message.
#[track_caller]
fn check(texts: &[&str], inputs: &[&[&str]], expected: &[&str]) {
    let texts: Vec<String> = texts.iter().map(|text| format!("hcom 1\n{text}")).collect();
    let graphs: Vec<_> = (0..inputs.len())
        .map(|rank| graph(&texts[rank.min(texts.len() - 1)]))
        .collect();
    let inputs: Vec<Vec<Literal>> = inputs
        .iter()
        .map(|inputs| inputs.iter().map(|text| literal(text)).collect())
        .collect();
    match interpret(&graphs, &inputs) {
        Err(error) => assert_eq!(&[error.to_string().as_str()][..], expected),
        Ok(ranks) => {
            let got: Vec<String> = ranks
                .iter()
                .map(|rank| rank.outputs.iter().map(show).collect::<Vec<_>>().join("; "))
                .collect();
            assert_eq!(got, expected);
        }
    }
}

fn unary(ty: &str, result: &str, statement: &str, ranks: &str) -> String {
    format!(
        "group @g = ranks({ranks})\ngraph @t(%x: {ty}) -> {result} {{\n  %y = {statement}\n  return %y\n}}"
    )
}

#[test]
fn all_reduce_of_every_kind() {
    let reduce = |dtype: &str, op: &str, inputs: [&str; 3], expected: &str| {
        let ty = format!("{dtype}[]");
        let text = unary(
            &ty,
            &ty,
            &format!("all_reduce %x, op = {op}, group = @g"),
            "0, 1, 2",
        );
        let inputs: Vec<String> = inputs
            .iter()
            .map(|value| format!("{dtype}[] {value}"))
            .collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let expected = format!("{dtype}[] {expected}");
        check(
            &[&text],
            &[&inputs[0..1], &inputs[1..2], &inputs[2..3]],
            &[&expected, &expected, &expected],
        );
    };
    reduce("i32", "sum", ["1", "20", "300"], "321");
    reduce("u8", "sum", ["200", "50", "10"], "4");
    reduce("i32", "prod", ["2", "3", "-7"], "-42");
    reduce(
        "i64",
        "min",
        ["2", "-9223372036854775808", "7"],
        "-9223372036854775808",
    );
    reduce("i32", "max", ["2", "3", "-7"], "3");
    reduce("i32", "avg", ["-3", "0", "-1"], "-1");
    // The mean of the sum itself, though the sum does not fit.
    reduce("i8", "avg", ["100", "100", "103"], "101");
    reduce("u8", "band", ["7", "6", "12"], "4");
    reduce("u8", "bor", ["1", "2", "8"], "11");
    reduce("u8", "bxor", ["1", "3", "8"], "10");
    reduce("f32", "premul_sum, factor = 0.5", ["1", "2", "4"], "3.5");
    // Accumulation in f32, one rounding.
    reduce("bf16", "sum", ["256", "1", "1"], "258");
    reduce("f16", "sum", ["2048", "1", "1"], "2050");
    reduce("f16", "avg", ["40000", "40000", "40000"], "40000");
    reduce("f32", "min", ["1", "nan", "3"], "nan");
    reduce("f32", "max", ["nan", "1", "3"], "nan");
    reduce("bool", "sum", ["true", "true", "false"], "true");
    reduce("bool", "prod", ["true", "true", "false"], "false");
    reduce("bool", "min", ["true", "true", "true"], "true");
    reduce("bool", "max", ["false", "false", "false"], "false");
    reduce("c64", "sum", ["(1, 2)", "(3, 4)", "(0, -1)"], "(4, 5)");
    reduce("c64", "prod", ["(0, 1)", "(0, 1)", "(2, 0)"], "(-2, 0)");
}

#[test]
fn sums_run_in_rank_order() {
    let text = unary(
        "f32[1]",
        "f32[1]",
        "all_reduce %x, op = sum, group = @g",
        "0, 1, 2, 3",
    );
    let inputs: [&[&str]; 4] = [
        &["f32[1] [1e8]"],
        &["f32[1] [1]"],
        &["f32[1] [-1e8]"],
        &["f32[1] [1]"],
    ];
    check(&[&text], &inputs, &["f32[1] [1]"; 4]);
}

#[test]
fn nan_reaches_every_rank_from_every_rank() {
    let text = unary(
        "f32[]",
        "f32[]",
        "all_reduce %x, op = min, group = @g",
        "0, 1, 2, 3",
    );
    for at in 0..4 {
        let mut values = ["f32[] 1", "f32[] 2", "f32[] 3", "f32[] 4"];
        values[at] = "f32[] nan";
        let inputs: Vec<&[&str]> = values.iter().map(std::slice::from_ref).collect();
        check(&[&text], &inputs, &["f32[] nan"; 4]);
    }
}

#[test]
fn gathers_and_scatters_along_any_dimension() {
    check(
        &[&unary(
            "i32[2, 2]",
            "i32[2, 4]",
            "all_gather %x, dim = 1, group = @g",
            "0, 1",
        )],
        &[
            &["i32[2, 2] [[1, 2], [3, 4]]"],
            &["i32[2, 2] [[5, 6], [7, 8]]"],
        ],
        &["i32[2, 4] [[1, 2, 5, 6], [3, 4, 7, 8]]"; 2],
    );
    check(
        &[&unary(
            "i32[2, 4]",
            "i32[2, 2]",
            "reduce_scatter %x, op = sum, dim = 1, group = @g",
            "0, 1",
        )],
        &[
            &["i32[2, 4] [[0, 1, 2, 3], [4, 5, 6, 7]]"],
            &["i32[2, 4] [[0, 1, 2, 3], [4, 5, 6, 7]]"],
        ],
        &[
            "i32[2, 2] [[0, 2], [8, 10]]",
            "i32[2, 2] [[4, 6], [12, 14]]",
        ],
    );
    check(
        &[&unary(
            "i64[4]",
            "i64[2]",
            "reduce_scatter %x, op = sum, group = @g",
            "0, 1",
        )],
        &[&["i64[4] [1, 2, 3, 4]"], &["i64[4] [3, 4, 5, 6]"]],
        &["i64[2] [4, 6]", "i64[2] [8, 10]"],
    );
    check(
        &[&unary(
            "f32[1, 0, 2]",
            "f32[2, 0, 2]",
            "all_gather %x, group = @g",
            "0, 1",
        )],
        &[&["f32[1, 0, 2] [[]]"], &["f32[1, 0, 2] [[]]"]],
        &["f32[2, 0, 2] [[], []]"; 2],
    );
}

#[test]
fn roots_are_group_ranks_in_group_order() {
    let text = "group @g = ranks(3, 1)\ngraph @t(%x: i32[1]) -> i32[1] {\n  %y = broadcast %x, root = 0, group = @g\n  return %y\n}";
    let idle = "graph @idle(%x: i32[1]) {\n}";
    let inputs: [&[&str]; 4] = [
        &["i32[1] [0]"],
        &["i32[1] [10]"],
        &["i32[1] [20]"],
        &["i32[1] [30]"],
    ];
    check(
        &[idle, text, idle, text],
        &inputs,
        &["", "i32[1] [30]", "", "i32[1] [30]"],
    );
}

#[test]
fn reduce_scatter_and_gather_to_a_root() {
    let inputs: [&[&str]; 2] = [&["i32[2] [1, 2]"], &["i32[2] [10, 20]"]];
    check(
        &[&unary(
            "i32[2]",
            "i32[2]",
            "reduce %x, op = sum, root = 1, group = @g",
            "0, 1",
        )],
        &inputs,
        &["i32[2] [1, 2]", "i32[2] [11, 22]"],
    );
    check(
        &[&unary(
            "i32[2]",
            "i32[1]",
            "scatter %x, root = 1, group = @g",
            "0, 1",
        )],
        &inputs,
        &["i32[1] [10]", "i32[1] [20]"],
    );
    check(
        &[&unary(
            "i32[2]",
            "i32[4]",
            "gather_to %x, root = 0, group = @g",
            "0, 1",
        )],
        &inputs,
        &["i32[4] [1, 2, 10, 20]", "i32[4] [0, 0, 0, 0]"],
    );
}

#[test]
fn all_to_all_even_and_uneven() {
    check(
        &[&unary(
            "i64[4]",
            "i64[4]",
            "all_to_all %x, group = @g",
            "0, 1, 2, 3",
        )],
        &[
            &["i64[4] [0, 1, 2, 3]"],
            &["i64[4] [4, 5, 6, 7]"],
            &["i64[4] [8, 9, 10, 11]"],
            &["i64[4] [12, 13, 14, 15]"],
        ],
        &[
            "i64[4] [0, 4, 8, 12]",
            "i64[4] [1, 5, 9, 13]",
            "i64[4] [2, 6, 10, 14]",
            "i64[4] [3, 7, 11, 15]",
        ],
    );
    let splits = |rows: u64, result: u64, send: &str, recv: &str, ranks: &str| {
        unary(
            &format!("i64[{rows}]"),
            &format!("i64[{result}]"),
            &format!("all_to_all %x, send_counts = [{send}], recv_counts = [{recv}], group = @g"),
            ranks,
        )
    };
    let ranks = "0, 1, 2, 3";
    check(
        &[
            &splits(6, 9, "2, 2, 1, 1", "2, 3, 2, 2", ranks),
            &splits(9, 7, "3, 2, 2, 2", "2, 2, 1, 2", ranks),
            &splits(5, 6, "2, 1, 1, 1", "1, 2, 1, 2", ranks),
            &splits(7, 5, "2, 2, 2, 1", "1, 2, 1, 1", ranks),
        ],
        &[
            &["i64[6] [0, 1, 2, 3, 4, 5]"],
            &["i64[9] [10, 11, 12, 13, 14, 15, 16, 17, 18]"],
            &["i64[5] [20, 21, 22, 23, 24]"],
            &["i64[7] [30, 31, 32, 33, 34, 35, 36]"],
        ],
        &[
            "i64[9] [0, 1, 10, 11, 12, 20, 21, 30, 31]",
            "i64[7] [2, 3, 13, 14, 22, 32, 33]",
            "i64[6] [4, 15, 16, 23, 34, 35]",
            "i64[5] [5, 17, 18, 24, 36]",
        ],
    );
    // A rank that sends nothing.
    check(
        &[
            &splits(0, 1, "0, 0", "0, 1", "0, 1"),
            &splits(3, 2, "1, 2", "0, 2", "0, 1"),
        ],
        &[&["i64[0] []"], &["i64[3] [10, 20, 30]"]],
        &["i64[1] [10]", "i64[2] [20, 30]"],
    );
    check(
        &[
            &splits(1, 6, "1, 0", "1, 5", "0, 1"),
            &splits(0, 0, "0, 0", "0, 0", "0, 1"),
        ],
        &[&["i64[1] [1]"], &["i64[0] []"]],
        &[
            "group @g = ranks(0, 1): operation 1 of the group: group rank 1 to 0: sends 0 elements, expects 5: rank 1 has `all_to_all i64, sends [0, 0], receives [0, 0]` (test.hcom:4:3), rank 0 has `all_to_all i64, sends [1, 0], receives [1, 5]` (test.hcom:4:3)",
        ],
    );
}

#[test]
fn uneven_gather_and_scatter() {
    let gather = |rows: u64| {
        unary(
            &format!("i32[{rows}, 2]"),
            "i32[3, 2]",
            "all_gather_uneven %x, counts = [2, 1], group = @g",
            "0, 1",
        )
    };
    check(
        &[&gather(2), &gather(1)],
        &[&["i32[2, 2] [[1, 2], [3, 4]]"], &["i32[1, 2] [[5, 6]]"]],
        &["i32[3, 2] [[1, 2], [3, 4], [5, 6]]"; 2],
    );
    let scatter = |rows: u64| {
        unary(
            "i32[3]",
            &format!("i32[{rows}]"),
            &format!(
                "reduce_scatter_uneven %x, op = sum, counts = [2, 1], rows = {rows}, group = @g"
            ),
            "0, 1",
        )
    };
    check(
        &[&scatter(2), &scatter(1)],
        &[&["i32[3] [1, 2, 3]"], &["i32[3] [10, 20, 30]"]],
        &["i32[2] [11, 22]", "i32[1] [33]"],
    );
    check(
        &[&scatter(2), &scatter(2)],
        &[&["i32[3] [1, 2, 3]"], &["i32[3] [1, 2, 3]"]],
        &[
            "group @g = ranks(0, 1): operation 1 of the group: group rank 1 has 2 rows, its entry is 1: rank 0 has `reduce_scatter_uneven i32, op = sum, counts = [2, 1], own rows = 2` (test.hcom:4:3), rank 1 has `reduce_scatter_uneven i32, op = sum, counts = [2, 1], own rows = 2` (test.hcom:4:3)",
        ],
    );
}

#[test]
fn a_group_of_one_copies() {
    for (statement, expected) in [
        ("all_reduce %x, op = sum, group = @g", "f32[1] [4]"),
        ("all_reduce %x, op = avg, group = @g", "f32[1] [4]"),
        (
            "all_reduce %x, op = premul_sum, factor = 0.5, group = @g",
            "f32[1] [2]",
        ),
        ("all_gather %x, group = @g", "f32[1] [4]"),
        ("reduce_scatter %x, op = sum, group = @g", "f32[1] [4]"),
        ("all_to_all %x, group = @g", "f32[1] [4]"),
        ("broadcast %x, root = 0, group = @g", "f32[1] [4]"),
    ] {
        check(
            &[&unary("f32[1]", "f32[1]", statement, "0")],
            &[&["f32[1] [4]"]],
            &[expected],
        );
    }
}

#[test]
fn transfers_pair_in_order_and_do_not_buffer() {
    let send = "group @g = ranks(0, 1)\ngraph @s(%x: i32[2]) {\n  send %x, peer = 1, group = @g\n}";
    let recv = "group @g = ranks(0, 1)\ngraph @r() -> i32[2] {\n  %y = recv i32[2], peer = 0, group = @g\n  return %y\n}";
    check(
        &[send, recv],
        &[&["i32[2] [7, 8]"], &[]],
        &["", "i32[2] [7, 8]"],
    );
    let longer = recv.replace("i32[2]", "i32[3]");
    check(
        &[send, &longer],
        &[&["i32[2] [7, 8]"], &[]],
        &[
            "transfer 1 from rank 0 to rank 1 with tag 0: rank 0 sends 2 elements of i32, rank 1 receives 3 elements of i32",
        ],
    );
    let both = |peer: u32| {
        format!(
            "group @g = ranks(0, 1)\ngraph @b(%x: f32[6]) -> f32[6] {{\n  send %x, peer = {peer}, group = @g\n  %y = recv f32[6], peer = {peer}, group = @g\n  return %y\n}}"
        )
    };
    let x: &[&str] = &["f32[6] [1, 2, 3, 4, 5, 6]"];
    check(
        &[&both(1), &both(0)],
        &[x, x],
        &[
            "deadlock: rank 0 waits in `send %x, peer = 1, group = @g` for [1]; rank 1 waits in `send %x, peer = 0, group = @g` for [0]",
        ],
    );
}

#[test]
fn differences_and_absences_are_reported() {
    let reduce = |ty: &str| unary(ty, ty, "all_reduce %x, op = sum, group = @g", "0, 1");
    check(
        &[&reduce("f32[2]"), &reduce("f32[3]")],
        &[&["f32[2] [1, 2]"], &["f32[3] [1, 2, 3]"]],
        &[
            "group @g = ranks(0, 1): operation 1 of the group: the element counts differ, 2 and 3: rank 0 has `all_reduce f32, op = sum, count = 2` (test.hcom:4:3), rank 1 has `all_reduce f32, op = sum, count = 3` (test.hcom:4:3)",
        ],
    );
    check(
        &[&reduce("f32[1]"), &reduce("i32[1]")],
        &[&["f32[1] [1]"], &["i32[1] [1]"]],
        &[
            "group @g = ranks(0, 1): operation 1 of the group: the element types differ: rank 0 has `all_reduce f32, op = sum, count = 1` (test.hcom:4:3), rank 1 has `all_reduce i32, op = sum, count = 1` (test.hcom:4:3)",
        ],
    );
    check(
        &[&reduce("f32[1]"), "graph @idle() {\n}"],
        &[&["f32[1] [1]"], &[]],
        &["deadlock: rank 0 waits in `%y = all_reduce %x, op = sum, group = @g` for [1]"],
    );
    check(
        &[&reduce("f32[1]")],
        &[&["f32[1] [1]"]],
        &[
            "rank 0, world size 1: `%y = all_reduce %x, op = sum, group = @g` uses group @g = ranks(0, 1)",
        ],
    );
    check(
        &[&reduce("f32[1]")],
        &[&["f32[2] [1, 2]"], &["f32[1] [1]"]],
        &["input 0 of rank 0: expected %x: f32[1], got f32[2]"],
    );
}

#[test]
fn inputs_keep_their_value_until_the_end() {
    let text = "hcom 1\ngroup @g = ranks(0, 1)\ngraph @t(%x: mut f32[2]) -> f32[2] {\n  %s = all_reduce %x, op = sum, group = @g\n  %two = fill shape = [], value = 2, dtype = f32\n  %y = mul %s, %two\n  copy_to_input %s, %x\n  return %y\n}";
    let inputs = [
        vec![literal("f32[2] [1, 10]")],
        vec![literal("f32[2] [2, 10]")],
    ];
    let graph = graph(text);
    for rank in interpret(&[&graph, &graph], &inputs).expect("a result") {
        assert_eq!(show(&rank.outputs[0]), "f32[2] [6, 40]");
        assert_eq!(show(&rank.inputs_after[0]), "f32[2] [3, 20]");
    }
}

#[test]
fn an_unused_result_does_not_take_the_collective_away() {
    let drops = "group @g = ranks(0, 1)\ngraph @d(%x: i32[1]) -> i32[1] {\n  %y = all_reduce %x, op = sum, group = @g\n  return %x\n}";
    let uses = drops.replace("return %x", "return %y");
    check(
        &[&uses, drops],
        &[&["i32[1] [1]"], &["i32[1] [2]"]],
        &["i32[1] [3]", "i32[1] [2]"],
    );
}

#[test]
fn a_result_and_its_operand_are_apart() {
    let text = "group @g = ranks(0, 1)\ngraph @t(%a: f32[2, 2]) -> f32[2, 2] {\n  %s = all_reduce %a, op = sum, group = @g\n  %c = relu %a\n  %m = matmul %c, %c\n  %y = add %m, %s\n  return %y\n}";
    check(
        &[text],
        &[
            &["f32[2, 2] [[1, -1], [0, 2]]"],
            &["f32[2, 2] [[1, -1], [0, 2]]"],
        ],
        &["f32[2, 2] [[3, -2], [0, 8]]"; 2],
    );
}

#[test]
fn the_position_of_a_difference_counts_the_operations_of_its_group() {
    let text = |root: u32| {
        format!(
            "group @g = ranks(0, 1)\ngroup @h = ranks(1, 0)\ngraph @t(%x: i32[1]) {{\n  barrier group = @h\n  barrier group = @g\n  %y = broadcast %x, root = {root}, group = @g\n}}"
        )
    };
    check(
        &[&text(0), &text(1)],
        &[&["i32[1] [1]"], &["i32[1] [2]"]],
        &[
            "group @g = ranks(0, 1): operation 2 of the group: the roots differ: rank 0 has `broadcast i32, root = 0, count = 1` (test.hcom:7:3), rank 1 has `broadcast i32, root = 1, count = 1` (test.hcom:7:3)",
        ],
    );
}
