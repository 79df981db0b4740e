//! `hcom check` and `hcom export`.

mod common;

use common::{Folder, finish, hcom};
use hcom_convert::ge::Air;

const HEAD: &str = "hcom 1\ngroup @tp = ranks(0, 1)\n";

#[test]
fn graphs_that_fit_are_said_to() {
    let files = ["examples/pair.r0.hcom", "examples/pair.r1.hcom"];
    let done = finish(&mut hcom(&["check", files[0], files[1]]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(done.out, "the graphs of 2 ranks fit each other\n");
    let one = finish(&mut hcom(&[
        "check",
        "examples/batch.hcom",
        "--dim",
        "s0=4",
        "--json",
    ]));
    assert_eq!(one.out, "{\"ranks\":2,\"differences\":[]}\n");
}

#[test]
fn every_difference_is_printed_with_both_sides() {
    let folder = Folder::new();
    let graph = |name: &str, ty: &str, body: &str| {
        let text = format!("{HEAD}graph @f(%x: {ty}) -> {ty} {{\n  {body}\n  return %x\n}}\n");
        folder.file(name, &text)
    };
    let r0 = graph(
        "r0.hcom",
        "f32[4]",
        "%a = all_reduce %x, op = sum, group = @tp\n  %b = broadcast %x, root = 0, group = @tp\n  send %x, peer = 1, group = @tp\n  barrier group = @tp",
    );
    let r1 = graph(
        "r1.hcom",
        "i32[4]",
        "%a = all_reduce %x, op = max, group = @tp\n  %b = broadcast %x, root = 1, group = @tp",
    );
    let done = finish(&mut hcom(&["check", &r0, &r1, "--json"]));
    assert_eq!(done.code, Some(2), "{}", done.err);
    let object: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let differences = object["differences"].as_array().unwrap();
    let brief: Vec<_> = differences
        .iter()
        .map(|one| {
            (
                one["kind"].as_str().unwrap(),
                one["mismatch"]["seq"].as_u64(),
            )
        })
        .collect();
    assert_eq!(
        brief,
        [
            ("sequence", Some(1)),
            ("sequence", Some(2)),
            ("sequence", Some(3)),
            ("transfer", None),
        ]
    );
    let text = finish(&mut hcom(&["check", &r0, &r1]));
    assert_eq!(text.code, Some(2));
    let lines: Vec<&str> = text.out.lines().collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(
        lines[0],
        format!(
            "group @tp = ranks(0, 1): operation 1 of the group: the element types differ: rank 0 has \
             `all_reduce f32, op = sum, count = 4` ({r0}:4:3), rank 1 has `all_reduce i32, op = max, \
             count = 4` ({r1}:4:3); all members of a group must run the same sequence of collectives"
        )
    );
    assert!(
        lines[2].contains("rank 1 has no further operation"),
        "{}",
        lines[2]
    );
    assert!(
        lines[3].contains("rank 0 sends 4 elements of f32, rank 1 receives nothing"),
        "{}",
        lines[3]
    );
    assert_eq!(lines[4], "4 differences between the graphs of 2 ranks");
}

#[test]
fn a_missing_graph_or_size_is_named() {
    let done = finish(&mut hcom(&["check", "examples/batch.hcom"]));
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("s0"), "{}", done.err);
    let done = finish(&mut hcom(&["check", "no.hcom"]));
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("cannot read no.hcom"), "{}", done.err);
}

#[test]
fn exported_models_read_back() {
    let folder = Folder::new();
    let dir = folder.file("models", "") + ".out";
    let done = finish(&mut hcom(&[
        "export",
        "examples/mlp.hcom",
        &dir,
        "--name",
        "mlp",
        "--json",
    ]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    let object: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(object["ranks"], 2);
    assert_eq!(object["written"].as_array().unwrap().len(), 8);
    for rank in 0..2 {
        let air = std::fs::read(format!("{dir}/mlp{rank}.air")).unwrap();
        let text = std::fs::read_to_string(format!("{dir}/rank_{rank}/graph.hcom")).unwrap();
        assert_eq!(Air::read(&air).unwrap().graph.to_string(), text);
        let pbtxt = std::fs::read_to_string(format!("{dir}/rank_{rank}/dynamo.pbtxt")).unwrap();
        assert_eq!(pbtxt.matches("op: \"HcomAllReduce\"").count(), 1);
    }
    let relations = std::fs::read_to_string(format!("{dir}/model_relation_config.json")).unwrap();
    assert_eq!(relations.matches("mlp0.air").count(), 2);
    assert_eq!(relations.matches("\"[0, 1]\"").count(), 1);
}

#[test]
fn an_operation_without_a_form_is_named() {
    let folder = Folder::new();
    let text = format!(
        "{HEAD}graph @f(%x: i32[4]) -> i32[4] {{\n  %y = all_reduce %x, op = bxor, group = @tp\n  return %y\n}}\n"
    );
    let file = folder.file("bxor.hcom", &text);
    let dir = format!("{file}.out");
    let done = finish(&mut hcom(&["export", &file, &dir]));
    assert_eq!(done.code, Some(2));
    assert!(
        done.err
            .contains("`%y = all_reduce %x, op = bxor, group = @tp` (")
            && done
                .err
                .contains("has no form in the Graph Engine's vocabulary"),
        "{}",
        done.err
    );
}
