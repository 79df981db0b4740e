//! The arrows between the crates, as ARCHITECTURE.md draws them.

use serde_json::Value;

use super::Finding;

/// Which workspace crates a crate may name under `[dependencies]`. A new arrow is a change of architecture:
/// ARCHITECTURE.md changes with this table.
const ALLOWED: [(&str, &[&str]); 11] = [
    ("hcom-sys", &[]),
    ("hcom-fake", &["hcom-sys"]),
    ("hcom-fake-so", &["hcom-fake", "hcom-sys"]),
    ("hcom-ir", &[]),
    ("hcom-convert", &["hcom-ir"]),
    ("hcom-runtime", &["hcom-ir", "hcom-sys"]),
    ("hcom-patch", &["hcom-convert", "hcom-ir", "hcom-runtime"]),
    (
        "hcom",
        &[
            "hcom-convert",
            "hcom-fake",
            "hcom-ir",
            "hcom-patch",
            "hcom-runtime",
            "hcom-sys",
        ],
    ),
    ("hcom-torch", &["hcom-convert", "hcom-ir", "hcom-runtime"]),
    (
        "hcom-test",
        &[
            "hcom-convert",
            "hcom-fake",
            "hcom-ir",
            "hcom-runtime",
            "hcom-sys",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that tests of any other crate may use, beside those that the crate reaches anyway.
const FOR_TESTS: [&str; 2] = ["hcom-fake", "hcom-test"];

/// Checks `cargo metadata --no-deps`.
pub(super) fn check(metadata: &Value) -> Vec<Finding> {
    let packages = metadata["packages"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let mut broken = |message: String| {
            findings.push(Finding {
                place: name.to_owned(),
                message,
            });
        };
        let Some((_, allowed)) = ALLOWED.iter().find(|(crate_name, _)| *crate_name == name) else {
            broken(
                "the crate is missing from the table of allowed arrows (xtask/src/tidy/arrows.rs)"
                    .into(),
            );
            continue;
        };
        let dependencies = package["dependencies"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        for dependency in dependencies {
            let target = dependency["name"].as_str().unwrap_or_default();
            let in_workspace = ALLOWED.iter().any(|(crate_name, _)| *crate_name == target);
            let for_tests = dependency["kind"] == "dev";
            let fine = match for_tests {
                true => reaches(name, target) || FOR_TESTS.contains(&target),
                false => allowed.contains(&target),
            };
            if in_workspace && !fine {
                let table = match for_tests {
                    true => "dev-dependencies",
                    false => "dependencies",
                };
                broken(format!(
                    "must not name {target} under [{table}]: arrows between crates point down only"
                ));
            }
        }
    }
    findings
}

/// Whether arrows lead from one crate to another.
fn reaches(from: &str, to: &str) -> bool {
    ALLOWED
        .iter()
        .filter(|(crate_name, _)| *crate_name == from)
        .flat_map(|(_, allowed)| *allowed)
        .any(|next| *next == to || reaches(next, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(name: &str, target: &str, kind: Value) -> Vec<String> {
        let metadata =
            json!({"packages": [{"name": name, "dependencies": [{"name": target, "kind": kind}]}]});
        check(&metadata).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_that_points_up_is_found() {
        assert_eq!(
            messages("hcom-ir", "hcom-runtime", Value::Null),
            [
                "hcom-ir: must not name hcom-runtime under [dependencies]: arrows between crates point down only"
            ]
        );
        assert_eq!(messages("hcom-runtime", "hcom-fake", Value::Null).len(), 1);
        assert_eq!(messages("xtask", "hcom-ir", json!("build")).len(), 1);
        assert_eq!(messages("hcom-ir", "hcom-patch", json!("dev")).len(), 1);
    }

    #[test]
    fn allowed_arrows_pass() {
        assert!(messages("hcom-convert", "hcom-ir", Value::Null).is_empty());
        assert!(messages("hcom-runtime", "hcom-fake", json!("dev")).is_empty());
        assert!(messages("hcom-patch", "hcom-sys", json!("dev")).is_empty());
        assert!(messages("hcom-ir", "serde", Value::Null).is_empty());
    }

    #[test]
    fn a_crate_outside_the_table_is_found() {
        assert!(messages("hcom-new", "serde", Value::Null)[0].contains("missing from the table"));
    }
}
