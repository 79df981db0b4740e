//! `hcom selftest`: right on the CPU implementation.

#![cfg(feature = "fake")]

mod common;

use common::{finish, hcom};
use serde_json::Value;

fn report(folder: &std::path::Path) -> (Option<i32>, Value) {
    let file = folder.join("report.json");
    let path = file.display().to_string();
    let mut command = hcom(&["selftest", "--report", &path]);
    command.env("HCOM_TIMEOUT", "20");
    let done = finish(&mut command);
    let text = std::fs::read(&file).unwrap_or_else(|error| panic!("{error}: {}", done.err));
    (done.code, serde_json::from_slice(&text).unwrap())
}

fn outcomes<'a>(report: &'a Value, outcome: &str) -> Vec<&'a Value> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks.filter(|check| check["outcome"] == outcome).collect()
}

#[test]
fn the_cpu_implementation_does_everything_right() {
    let folder = tempfile::tempdir().unwrap();
    let (code, report) = report(folder.path());
    let right = outcomes(&report, "right").len();
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(
        right,
        report["checks"].as_array().unwrap().len(),
        "{report:#}"
    );
    assert!(right >= 220, "{right} checks");
    assert_eq!(report["ranks"], 2);
}
