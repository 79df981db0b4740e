//! `hcom collectives`: the table in both forms.

mod common;

use common::{hcom, root};

#[test]
fn it_prints_the_committed_table() {
    let output = hcom(&["collectives"]).output().unwrap();
    assert!(output.status.success());
    let committed = std::fs::read_to_string(root().join("docs/collectives.md")).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), committed);
}

#[test]
fn it_answers_programs() {
    let output = hcom(&["collectives", "--json"]).output().unwrap();
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let find = |call: &str, reduction: &str, dtype: &str| {
        let entries = table["entries"].as_array().unwrap();
        let fits = |entry: &&serde_json::Value| {
            entry["call"] == call && entry["reduction"] == reduction && entry["dtype"] == dtype
        };
        entries.iter().find(fits).unwrap().clone()
    };
    assert_eq!(find("all_reduce", "sum", "f32")["support"], "native");
    let mean = find("reduce", "avg", "f16");
    assert_eq!(mean["support"], "lowered");
    assert_eq!(
        mean["how"],
        "cast to f32, sum, divide by the group's size, cast to f16"
    );
    let product = find("reduce_scatter_tensor_uneven", "prod", "f32");
    assert_eq!(product["support"], "refused");
}
