//! What ranks compare: rows, transfers, digests; and what passes keep.

use std::collections::BTreeSet;

use hcom_ir::capabilities::Chip;
use hcom_ir::order::{check_rows, check_transfers, transfers};
use hcom_ir::pass::{self, DeadCode, Pass, Rewrite};
use hcom_ir::{DType, Graph, GroupId, Id as _, Op, ReduceOp, Row, planner_digest, rows, rows_hash};

use super::graph;

fn sequence(body: &str) -> Vec<Row> {
    let text =
        format!("hcom 1\ngroup @g = ranks(2, 5)\ngraph @t(%x: f32[4], %i: i32[4]) {{\n{body}\n}}");
    rows(&graph(&text), GroupId::from_index(0))
        .into_iter()
        .map(|(_, row)| row)
        .collect()
}

#[test]
fn rows_hold_what_members_compare() {
    let rows = sequence(
        "%a = all_reduce %x, op = max, group = @g\n%b = neg %a\nbarrier group = @g\n%c = broadcast %i, root = 1, group = @g\nsend %x, peer = 0, group = @g\ncustom \"sync\"(group = @g)",
    );
    let shown: Vec<String> = rows.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "all_reduce f32, op = max, count = 4",
            "barrier",
            "broadcast i32, root = 1, count = 4",
            "custom \"sync\""
        ]
    );
    assert_eq!(rows[0].node, "%a = all_reduce %x, op = max, group = @g");
    assert_eq!(rows[0].location.as_deref(), Some("test.hcom:4:1"));
}

#[test]
fn the_first_difference_is_found_in_every_column() {
    let base = "%a = all_reduce %x, op = sum, group = @g\n%b = broadcast %i, root = 1, group = @g";
    let left = sequence(base);
    let differs = |from: &str, to: &str| {
        let right = sequence(&base.replace(from, to));
        assert_ne!(rows_hash(&left), rows_hash(&right), "{to}");
        let found = check_rows(&[0, 1], &[&left, &right]).expect_err("a difference");
        (found.seq - 1, found.what)
    };
    assert_eq!(
        differs("op = sum", "op = prod"),
        (0, "the reductions differ".to_owned())
    );
    assert_eq!(
        differs("root = 1", "root = 0"),
        (1, "the roots differ".to_owned())
    );
    assert_eq!(
        differs("broadcast %i", "broadcast %x"),
        (1, "the element types differ".to_owned())
    );
    assert_eq!(
        differs("%b = broadcast %i, root = 1, ", "barrier "),
        (1, "the operations differ, broadcast and barrier".to_owned())
    );
    assert_eq!(
        differs("%b = broadcast %i, root = 1, group = @g", ""),
        (1, "the sequences have different lengths".to_owned())
    );
    assert_eq!(rows_hash(&left), rows_hash(&sequence(base)));
    let error = check_rows(&[2, 5], &[left.clone(), left[..1].to_vec()]).expect_err("a mismatch");
    assert_eq!((error.seq, error.ranks), (2, [2, 5]));
    assert!(error.right.is_none());
    assert_eq!(check_rows(&[2, 5], &[left.clone(), left]), Ok(()));
}

#[test]
fn transfers_pair_per_channel_and_tag() {
    let text = |body: &str| {
        graph(&format!(
            "hcom 1\ngroup @g = ranks(0, 2)\ngraph @t(%x: f32[4], %i: i32[2]) {{\n{body}\n}}"
        ))
    };
    let of = |body: &str, rank: u32| {
        transfers(&text(body), rank)
            .into_iter()
            .map(|(_, transfer)| transfer)
    };
    let sender = of(
        "send %x, peer = 1, tag = 1, group = @g\nsend %i, peer = 1, group = @g",
        0,
    );
    let receives = [
        "%b = recv f32[2, 2], peer = 0, tag = 1, group = @g",
        "%a = recv i32[2], peer = 0, group = @g",
    ];
    let receiver = of(&receives.join("\n"), 2);
    let sender: Vec<_> = sender.collect();
    let mut all: Vec<_> = sender.iter().cloned().chain(receiver).collect();
    assert_eq!(check_transfers(&all), Ok(()));
    let error = |all: &[_]| check_transfers(all).expect_err("no pairs").to_string();
    assert_eq!(
        error(&all[1..]),
        "transfer 1 from rank 0 to rank 2 with tag 1: rank 0 sends nothing, rank 2 receives 4 elements of f32"
    );
    // Each tag has its receive, but the first send waits for the second receive.
    all.swap(2, 3);
    assert_eq!(
        error(&all),
        "transfer 1 from rank 0 to rank 2 with tag 1: rank 0 sends 4 elements of f32, rank 2 receives 2 elements of i32 with tag 0"
    );
}

#[test]
fn the_digest_covers_what_a_planner_reads() {
    let base = "hcom 1\ngroup @g = ranks(0, 1)\ngraph @t(%x: f32[2]) -> f32[2] {\n  %c = constant value = f32[2] [1, 2]\n  %s = add %x, %c\n  %y = all_reduce %s, op = sum, group = @g\n  return %y\n}";
    let digest = |text: &str, config: &[u8]| planner_digest(&graph(text), config);
    let same = digest(base, b"1");
    assert_eq!(
        same,
        digest(&base.replace("[1, 2]\n", "[3, 4]\n"), b"1"),
        "data of constants"
    );
    assert_eq!(
        same,
        digest(&base.replace("%s", "%other"), b"1"),
        "names of values"
    );
    let different: BTreeSet<[u8; 32]> = [
        digest(base, b"1"),
        digest(base, b"2"),
        digest(&base.replace("op = sum", "op = max"), b"1"),
        digest(&base.replace("f32", "f16"), b"1"),
        digest(&base.replace("ranks(0, 1)", "ranks(1, 0)"), b"1"),
        digest(&base.replace("%x: f32", "%x: mut f32"), b"1"),
        digest(&base.replace("add %x, %c", "add %c, %x"), b"1"),
        digest(&base.replace("return %y", "return %s"), b"1"),
    ]
    .into();
    assert_eq!(different.len(), 8);
}

const DEAD: &str = "hcom 1
group @g = ranks(0, 1)
graph @t(%x: f32[2], %m: mut f32[2]) -> f32[2] {
  %a = neg %x
  %b = abs %a
  %r = all_reduce %a, op = sum, group = @g
  %p = custom \"pure\"(%x, pure = true) -> f32[2]
  %q = custom \"opaque\"(%x) -> f32[2]
  %v = recv f32[2], peer = 1, group = @g
  send %x, peer = 1, group = @g
  barrier group = @g
  %w = exp %x
  copy_to_input %w, %m
  %y = relu %x
  return %y
}
";

fn mnemonics(graph: &Graph) -> Vec<&'static str> {
    graph.nodes().map(|(_, node)| node.op.name()).collect()
}

#[test]
fn dead_code_keeps_what_other_ranks_may_need() {
    let graph = graph(DEAD);
    let kept = pass::run(&graph, &[&DeadCode::default()]).expect("a graph");
    assert_eq!(
        mnemonics(&kept),
        [
            "neg",
            "all_reduce",
            "custom",
            "recv",
            "send",
            "barrier",
            "exp",
            "copy_to_input",
            "relu"
        ]
    );
    let uniform = DeadCode {
        same_graph_on_all_ranks: true,
    };
    let kept = pass::run(&graph, &[&uniform]).expect("a graph");
    assert_eq!(
        mnemonics(&kept),
        [
            "custom",
            "recv",
            "send",
            "barrier",
            "exp",
            "copy_to_input",
            "relu"
        ]
    );
    assert_eq!(
        pass::run(&kept, &[&uniform, &DeadCode::default()]).as_ref(),
        Ok(&kept)
    );
}

#[test]
fn an_error_names_the_pass() {
    struct Broken;
    impl Pass for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }
        fn run(&self, graph: &Graph) -> Rewrite {
            let first = graph.nodes().next().map(|(id, _)| id);
            Rewrite {
                removed: first.into_iter().collect(),
                ..Rewrite::default()
            }
        }
    }
    let error = pass::run(&graph(DEAD), &[&Broken])
        .expect_err("a dangling operand")
        .to_string();
    assert!(
        error.starts_with("pass `broken` made an invalid graph:"),
        "{error}"
    );
    assert!(error.contains("`%a` is used but not defined"), "{error}");
}

#[test]
fn chips_refuse_what_their_libraries_refuse() {
    let takes = |chip: Chip, op, dtype, reduce| chip.supports(op, Some(dtype), reduce);
    let (sum, prod) = (Some(ReduceOp::Sum), Some(ReduceOp::Prod));
    assert!(takes(Chip::A3, Op::AllReduce, DType::BF16, sum));
    assert!(!takes(Chip::A3, Op::AllReduce, DType::BF16, prod));
    assert!(!takes(Chip::A3, Op::AllReduce, DType::F64, sum));
    assert!(takes(Chip::Ascend950, Op::AllReduce, DType::F64, sum));
    assert!(takes(Chip::A2, Op::AllGather, DType::F64, None));
    assert!(!takes(Chip::Ascend910A, Op::AllGather, DType::BF16, None));
    assert!(!takes(Chip::A2, Op::ReduceScatterUneven, DType::I64, sum));
    assert!(takes(Chip::A3, Op::AllReduce, DType::Bool, prod));
    assert!(!Chip::Atlas300IDuo.supports(Op::Barrier, None, None));
    assert_eq!("Ascend910_9382".parse(), Ok(Chip::A3));
    assert_eq!("Ascend910B4".parse(), Ok(Chip::A2));
    let text = "hcom 1\ngroup @g = ranks(0, 1)\ngraph @t(%x: f64[2]) {\n  %y = all_reduce %x, op = sum, group = @g\n}";
    let report = Chip::A3
        .check(&graph(text))
        .expect_err("unsupported")
        .to_string();
    assert_eq!(
        report,
        "error[unsupported]: A3 does not support all_reduce of f64 with op = sum\n --> test.hcom:4:3\n  | %y = all_reduce %x, op = sum, group = @g\n  = expected: one of bool, i8, i16, i32, i64, f16, bf16, f32, c64\n  = got: f64"
    );
}
