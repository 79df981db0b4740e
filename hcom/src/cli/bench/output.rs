//! Rows as a table, as comma-separated values and as a plot.

use std::fmt::Write as _;

use super::collective::Row;

/// A table for people.
pub(super) fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let mut text = format!(
        "{} of {} on {} ranks, {}{}\n\n{:>12} {:>8} {:>12} {:>10} {:>10} {:>8} {:>11} {:>8} {:>11} {:>8} {:>10}\n",
        first.op,
        first.dtype,
        first.ranks,
        first.mode,
        if first.in_place { ", in place" } else { "" },
        "bytes",
        "regime",
        "µs",
        "algbw GB/s",
        "busbw GB/s",
        "wrong",
        "bound µs",
        "/ bound",
        "peer µs",
        "/ peer",
        "peer",
    );
    let figure =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    for row in rows {
        let _ = writeln!(
            text,
            "{:>12} {:>8} {:>12.2} {:>10.3} {:>10.3} {:>8} {:>11} {:>8} {:>11} {:>8} {:>10}",
            row.bytes,
            row.regime,
            row.us,
            row.algbw_gbs,
            row.busbw_gbs,
            row.wrong,
            figure(row.bound_us),
            figure(row.ratio_bound),
            figure(row.peer_us),
            figure(row.ratio),
            row.peer.unwrap_or("-"),
        );
    }
    text
}

/// Comma-separated values with a head line.
pub(super) fn csv(rows: &[Row]) -> String {
    let mut text =
        "op,ranks,mode,dtype,in_place,regime,bytes,us,algbw_gbs,busbw_gbs,wrong,iterations,peer,peer_us,bound_us,ratio,ratio_bound\n"
            .to_owned();
    let figure = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
    for row in rows {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{:.3},{:.4},{:.4},{},{},{},{},{},{},{}",
            row.op,
            row.ranks,
            row.mode,
            row.dtype,
            row.in_place,
            row.regime,
            row.bytes,
            row.us,
            row.algbw_gbs,
            row.busbw_gbs,
            row.wrong,
            row.iterations,
            row.peer.unwrap_or_default(),
            figure(row.peer_us),
            figure(row.bound_us),
            figure(row.ratio),
            figure(row.ratio_bound)
        );
    }
    text
}

/// Width and height of the plot and of the margin around it.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const MARGIN: f64 = 70.0;

/// Bus bandwidth over size, both axes logarithmic.
pub(super) fn svg(rows: &[Row]) -> String {
    let range = |of: fn(&Row) -> f64| {
        let logs = rows.iter().map(|row| of(row).max(1e-6).log2());
        let low = logs.clone().fold(f64::INFINITY, f64::min).floor();
        let high = logs.fold(f64::NEG_INFINITY, f64::max).ceil();
        if low < high {
            (low, high)
        } else {
            (low - 1.0, low + 1.0)
        }
    };
    let (bytes, speed) = (range(|row| row.bytes as f64), range(|row| row.busbw_gbs));
    let along = |(low, high): (f64, f64), log: f64| (log - low) / (high - low);
    let x = |log: f64| MARGIN + along(bytes, log) * (WIDTH - 2.0 * MARGIN);
    let y = |log: f64| HEIGHT - MARGIN - along(speed, log) * (HEIGHT - 2.0 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    if let Some(row) = rows.first() {
        let _ = writeln!(
            text,
            "<text x=\"{MARGIN}\" y=\"30\" font-size=\"15\">{} of {} on {} ranks, {}: bus bandwidth, GB/s</text>",
            row.op, row.dtype, row.ranks, row.mode
        );
    }
    let mut log = bytes.0;
    while log <= bytes.1 {
        let at = x(log);
        let _ = writeln!(
            text,
            "<line x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            MARGIN,
            HEIGHT - MARGIN,
            HEIGHT - MARGIN + 18.0,
            size(log.exp2() as u64)
        );
        log += ((bytes.1 - bytes.0) / 8.0).ceil();
    }
    let mut log = speed.0;
    while log <= speed.1 {
        let at = y(log);
        let _ = writeln!(
            text,
            "<line x1=\"{:.1}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            MARGIN,
            WIDTH - MARGIN,
            MARGIN - 6.0,
            at + 4.0,
            log.exp2()
        );
        log += ((speed.1 - speed.0) / 8.0).ceil();
    }
    let points: Vec<String> = rows
        .iter()
        .map(|row| {
            let (x, y) = (
                x((row.bytes as f64).log2()),
                y(row.busbw_gbs.max(1e-6).log2()),
            );
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#0a6ebd\" stroke-width=\"2\"/>",
        points.join(" ")
    );
    for (point, row) in points.iter().zip(rows) {
        let (x, y) = point.split_once(',').unwrap_or_default();
        let _ = writeln!(
            text,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"#0a6ebd\"><title>{} B: {:.2} µs, {:.3} GB/s</title></circle>",
            row.bytes, row.us, row.busbw_gbs
        );
    }
    text += "</svg>\n";
    text
}

/// A power of two of bytes, for people.
fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{}G", b >> 30),
        b if b >= 1 << 20 => format!("{}M", b >> 20),
        b if b >= 1 << 10 => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}
