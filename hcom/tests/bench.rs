//! `hcom bench`: what it measures is right, and its output can be read by people and programs.

mod common;

use common::{finish, hcom};
use serde_json::Value;

/// A short run of one operation: its rows.
fn rows(operation: &str, more: &[&str]) -> Vec<Value> {
    let mut arguments = vec![
        "bench",
        operation,
        "--ranks",
        "2",
        "--min-bytes",
        "8",
        "--max-bytes",
        "64K",
        "--factor",
        "90",
        "--iterations",
        "3",
        "--warmup",
        "1",
        "--json",
    ];
    arguments.extend(more);
    let done = finish(&mut hcom(&arguments));
    assert_eq!(done.code, Some(0), "{}", done.err);
    let object: Value = serde_json::from_str(&done.out).unwrap();
    object["rows"].as_array().unwrap().clone()
}

#[test]
fn every_operation_delivers_right_values_in_every_mode() {
    for (operation, more) in [
        ("all_reduce", &["--mode", "owned"][..]),
        (
            "all_reduce",
            &["--in-place", "--synchronize", "--dtype", "bf16"],
        ),
        ("all_gather", &["--mode", "whole", "--in-place"]),
        ("reduce_scatter", &["--mode", "owned", "--dtype", "f16"]),
        ("reduce_scatter", &["--in-place"]),
        ("all_to_all", &["--mode", "reused", "--dtype", "i64"]),
        ("broadcast", &["--mode", "owned", "--dtype", "i8"]),
    ] {
        let rows = rows(operation, more);
        assert_eq!(rows.len(), 3, "{rows:?}");
        for (row, about) in rows.iter().zip([8, 720, 64_800]) {
            assert_eq!(row["op"], operation);
            assert_eq!(row["ranks"], 2);
            assert_eq!(row["wrong"], 0, "{row}");
            let bytes = row["bytes"].as_u64().unwrap();
            assert!((about..about + 16).contains(&bytes), "{row}");
            let us = row["us"].as_f64().unwrap();
            let algbw = row["algbw_gbs"].as_f64().unwrap();
            assert!((algbw * us * 1e3 - bytes as f64).abs() < 1e-6 * bytes as f64);
            assert!(row["bound_us"].as_f64().unwrap() > 0.0);
            assert!(row["ratio_bound"].as_f64().unwrap() > 0.0);
            assert!(row["peer"].is_null() && row["ratio"].is_null());
        }
    }
}

#[test]
fn bus_bandwidth_has_the_factor_of_the_operation() {
    for (operation, factor) in [("all_reduce", 1.0), ("all_gather", 0.5), ("broadcast", 1.0)] {
        let row = &rows(operation, &[])[0];
        let ratio = row["busbw_gbs"].as_f64().unwrap() / row["algbw_gbs"].as_f64().unwrap();
        assert!((ratio - factor).abs() < 1e-9, "{row}");
    }
}

#[test]
fn a_table_values_and_a_plot_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let short = [
        "bench",
        "all_reduce",
        "--max-bytes",
        "32",
        "--iterations",
        "2",
    ];
    let table = finish(hcom(&short).args(["--svg"]).arg(&plot));
    assert_eq!(table.code, Some(0), "{}", table.err);
    assert!(
        table
            .out
            .starts_with("all_reduce of f32 on 2 ranks, reused"),
        "{}",
        table.out
    );
    assert!(table.out.contains("busbw GB/s"));
    let plot = std::fs::read_to_string(plot).unwrap();
    assert!(plot.starts_with("<svg") && plot.ends_with("</svg>\n"));
    assert_eq!(plot.matches("<circle").count(), 2);
    let values = finish(hcom(&short).arg("--csv"));
    let lines: Vec<&str> = values.out.lines().collect();
    assert_eq!(lines.len(), 3);
    let fields = |line: &str| line.split(',').count();
    assert!(lines.iter().all(|line| fields(line) == fields(lines[0])));
}

#[test]
fn wrong_input_is_said_with_code_2() {
    for (arguments, what) in [
        (
            &["all_reduce", "--min-bytes", "8K", "--max-bytes", "8"][..],
            "smallest",
        ),
        (&["all_to_all", "--in-place"], "in place"),
        (&["all_reduce", "--dtype", "c64"], "f32"),
        (&["all_reduce", "--min-bytes", "7q"], "number of bytes"),
        (&["all_mend"], "all_mend"),
    ] {
        let done = finish(hcom(&["bench"]).args(arguments));
        assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.err);
        assert!(done.err.contains(what), "{}", done.err);
    }
}

#[test]
fn a_missing_mpi_is_said_with_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = hcom(&["bench", "all_reduce", "--peer", "mpi", "--max-bytes", "8"]);
    command
        .env("PATH", empty.path())
        .env("HCOM_PEERS", empty.path());
    command.current_dir(empty.path());
    let done = finish(&mut command);
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(done.err.contains("cargo xtask peers"), "{}", done.err);
}
