//! `hcom graph` and `hcom env`, and graphs that are refused.

mod common;

use common::{Folder, finish, hcom, root};

const HEAD: &str = "hcom 1\ngroup @tp = ranks(0, 1)\n";

#[test]
fn canonical_text_is_its_own_canonical_text() {
    for file in std::fs::read_dir(root().join("examples")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "hcom") {
            continue;
        }
        let path = path.display().to_string();
        let first = finish(&mut hcom(&["graph", &path]));
        assert_eq!(first.code, Some(0), "{path}: {}", first.err);
        let folder = Folder::new();
        let again = finish(&mut hcom(&[
            "graph",
            &folder.file("again.hcom", &first.out),
        ]));
        assert_eq!(again.out, first.out);
    }
}

#[test]
fn a_graph_is_shown_in_each_form() {
    let dot = finish(&mut hcom(&["graph", "examples/mlp.hcom", "--dot"]));
    assert!(dot.out.starts_with("digraph"), "{}", dot.out);
    let svg = finish(&mut hcom(&["graph", "examples/mlp.hcom", "--svg"]));
    assert!(svg.out.starts_with("<svg ") && svg.out.ends_with("</svg>\n"));
    let json = finish(&mut hcom(&["graph", "examples/mlp.hcom", "--json"]));
    let object: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(object["collectives"], 1);
    assert_eq!(object["world_size"], 2);
    assert_eq!(
        object["inputs"][1],
        serde_json::json!({"name": "w1", "type": "f32[1024, 2048]", "mutable": false})
    );
    assert_eq!(object["outputs"][0]["type"], "f32[8, 1024]");
}

/// The command refuses the graph with exit code 2, the place and what was expected, and does not hang or panic.
#[track_caller]
fn refused(body: &str, parts: &[&str]) {
    let folder = Folder::new();
    let file = folder.file("bad.hcom", &format!("{HEAD}{body}"));
    for arguments in [&["graph", &file][..], &["run", &file, "--ranks", "2"][..]] {
        let done = finish(&mut hcom(arguments));
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(done.out.is_empty(), "{}", done.out);
        for part in parts {
            assert!(
                done.err.contains(part),
                "{part:?} is missing in\n{}",
                done.err
            );
        }
        assert!(!done.err.contains("panicked"), "{}", done.err);
    }
}

#[test]
fn a_type_error() {
    refused(
        "graph @g(%x: f32[2, 3], %w: f32[4, 5]) -> f32[2, 5] {\n  %y = matmul %x, %w\n  return %y\n}\n",
        &[
            "error[shape]",
            "bad.hcom:4:",
            "%y = matmul %x, %w",
            "expected",
            "got",
        ],
    );
}

#[test]
fn an_unknown_operation() {
    refused(
        "graph @g(%x: f32[2]) -> f32[2] {\n  %y = al_reduce %x, op = sum, group = @tp\n  return %y\n}\n",
        &[
            "error[unknown-op]",
            "bad.hcom:4:8",
            "al_reduce",
            "all_reduce",
        ],
    );
}

#[test]
fn an_unknown_group() {
    refused(
        "graph @g(%x: f32[2]) -> f32[2] {\n  %y = all_reduce %x, op = sum, group = @dp\n  return %y\n}\n",
        &["error[unknown]", "bad.hcom:4:", "@dp"],
    );
}

#[test]
fn every_mistake_is_shown_and_json_has_them_too() {
    let folder = Folder::new();
    let body = "graph @g(%x: f32[2], %i: i64[2]) -> f32[2] {\n  %a = add %x, %i\n  %b = nonsense %x\n  return %a\n}\n";
    let file = folder.file("bad.hcom", &format!("{HEAD}{body}"));
    let done = finish(&mut hcom(&["graph", &file, "--json"]));
    assert_eq!(done.code, Some(2));
    let object: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let found = object["error"]["diagnostics"].as_array().unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(object["error"]["kind"], "bad_input");
}

#[test]
fn a_file_that_is_missing() {
    let done = finish(&mut hcom(&["graph", "no/such.hcom"]));
    assert_eq!(done.code, Some(2));
    assert!(
        done.err.starts_with("error: cannot read no/such.hcom: "),
        "{}",
        done.err
    );
}

#[test]
fn the_environment_names_the_library_and_the_timeouts() {
    let done = finish(
        hcom(&["env", "--json"])
            .env("HCOM_TIMEOUT", "2.5")
            .env_remove("HCOM_LIBRARY_PATH"),
    );
    assert_eq!(done.code, Some(0), "{}", done.err);
    let object: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(object["timeouts"]["collective_s"], 2.5);
    assert!(object["library"]["functions"]["present"].as_u64() > Some(50));
    assert_eq!(object["variables"]["HCOM_TIMEOUT"], "2.5");
}

#[test]
fn a_library_that_does_not_open_is_named_with_the_reason() {
    let done = finish(hcom(&["env"]).env("HCOM_LIBRARY_PATH", "/no/such/library.so"));
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("/no/such/library.so"), "{}", done.err);
}

#[test]
fn help_of_every_command_has_examples() {
    for command in ["demo", "run", "launch", "graph", "env"] {
        let done = finish(&mut hcom(&[command, "--help"]));
        assert_eq!(done.code, Some(0));
        assert!(done.out.contains("Examples:"), "{command}");
    }
}
