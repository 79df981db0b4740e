//! The picture.

use std::fmt::Write;

use super::{Kind, Span, Trace};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 84.0;
const ROW: f64 = 26.0;
const GAP: f64 = 4.0;
const RANK_GAP: f64 = 14.0;
/// Average advance of a character of the label font, in pixels.
const CHARACTER: f64 = 6.2;

fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Matrix => "#3b6fb6",
        Kind::Vector => "#3f9b8b",
        Kind::Movement => "#8d99ae",
        Kind::Communication => "#e07a3f",
    }
}

impl Trace {
    /// The trace as a picture: one row per stream per rank, coloured by what the work does, with an
    /// axis in microseconds and a legend. Waiting for peers is hatched. Every span shows its node,
    /// time and bytes when the pointer rests on it.
    pub fn to_svg(&self) -> String {
        let ranks = self.ranks();
        let length = self.length_us().max(1e-3);
        let origin = self
            .spans
            .iter()
            .map(|s| s.begin_us)
            .fold(f64::INFINITY, f64::min);
        let scale = (WIDTH - LEFT - RIGHT) / length;
        let x = |time: f64| LEFT + (time - origin) * scale;
        let rank_height = self.streams.len() as f64 * (ROW + GAP) + RANK_GAP;
        let bottom = TOP + rank_height * ranks.len() as f64;
        let height = bottom + 44.0;

        let mut svg = String::new();
        let mut out = Out(&mut svg);
        out.line(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" height="{height:.0}" font-family="system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif" font-size="12">"#
        ));
        out.line(format_args!(
            r##"<defs><pattern id="wait" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#f8e3d6"/><rect width="2" height="6" fill="#e9b595"/></pattern></defs>"##
        ));
        out.line(format_args!(
            r##"<rect width="100%" height="100%" fill="#ffffff"/>"##
        ));
        out.line(format_args!(
            r##"<text x="24" y="30" font-size="18" font-weight="600" fill="#1f2933">{}</text>"##,
            escape(&self.title)
        ));
        let mut subtitle = format!("{} ranks · {}", ranks.len(), time(length));
        for note in &self.notes {
            write!(subtitle, " · {note}").expect("writing to a string succeeds");
        }
        out.line(format_args!(
            r##"<text x="24" y="50" fill="#616e7c">{}</text>"##,
            escape(&subtitle)
        ));
        self.legend(&mut out);
        axis(&mut out, length, bottom, |offset| x(origin + offset));

        for (index, &rank) in ranks.iter().enumerate() {
            let top = TOP + rank_height * index as f64;
            let middle = top + (rank_height - RANK_GAP - GAP) / 2.0 + 4.0;
            out.line(format_args!(
                r##"<text x="24" y="{middle:.1}" font-weight="600" fill="#1f2933">rank {rank}</text>"##
            ));
            for (stream, name) in self.streams.iter().enumerate() {
                let y = top + stream as f64 * (ROW + GAP);
                out.line(format_args!(
                    r##"<text x="{:.1}" y="{:.1}" text-anchor="end" fill="#616e7c">{}</text>"##,
                    LEFT - 10.0,
                    y + ROW / 2.0 + 4.0,
                    escape(&shorten(name, 8))
                ));
                out.line(format_args!(
                    r##"<rect x="{LEFT}" y="{y:.1}" width="{:.1}" height="{ROW}" rx="3" fill="#f3f5f7"/>"##,
                    WIDTH - LEFT - RIGHT
                ));
            }
        }
        for span in &self.spans {
            let place = ranks
                .iter()
                .position(|&rank| rank == span.rank)
                .unwrap_or(0);
            let y = TOP + rank_height * place as f64 + span.stream as f64 * (ROW + GAP);
            draw(&mut out, span, x(span.begin_us), y, scale, origin);
        }
        out.line(format_args!("</svg>"));
        svg
    }

    fn legend(&self, out: &mut Out<'_>) {
        let mut entries: Vec<(&str, &str)> = Kind::ALL
            .into_iter()
            .filter(|kind| self.spans.iter().any(|span| span.kind == *kind))
            .map(|kind| (kind.name(), colour(kind)))
            .collect();
        if self
            .spans
            .iter()
            .any(|span| span.wait_us.is_some_and(|wait| wait > 0.0))
        {
            entries.push(("wait for peers", "url(#wait)"));
        }
        let mut x = WIDTH - RIGHT;
        for (name, fill) in entries.into_iter().rev() {
            x -= name.len() as f64 * CHARACTER + 42.0;
            out.line(format_args!(
                r##"<rect x="{x:.1}" y="20" width="12" height="12" rx="2" fill="{fill}"/><text x="{:.1}" y="30" fill="#3e4c59">{name}</text>"##,
                x + 17.0
            ));
        }
    }
}

fn draw(out: &mut Out<'_>, span: &Span, x: f64, y: f64, scale: f64, origin: f64) {
    let width = (span.duration_us() * scale).max(0.75);
    let wait = span.wait_us.unwrap_or(0.0) * scale;
    let mut tip = format!(
        "{}\n{} from {}, {} bytes",
        span.detail,
        time(span.duration_us()),
        time(span.begin_us - origin),
        span.bytes
    );
    if let Some((group, seq)) = &span.collective {
        write!(tip, "\ncollective {seq} of group {group}").expect("writing to a string succeeds");
    }
    if let Some(wait) = span.wait_us {
        write!(tip, "\nwaited {} for peers", time(wait)).expect("writing to a string succeeds");
    }
    out.line(format_args!("<g><title>{}</title>", escape(&tip)));
    if wait > 0.0 {
        out.line(format_args!(
            r##"<rect x="{x:.2}" y="{y:.1}" width="{wait:.2}" height="{ROW}" fill="url(#wait)"/>"##
        ));
    }
    let (work_x, work_width) = (x + wait, (width - wait).max(0.75));
    out.line(format_args!(
        r##"<rect x="{work_x:.2}" y="{y:.1}" width="{work_width:.2}" height="{ROW}" rx="2" fill="{}" stroke="#ffffff" stroke-width="0.5"/>"##,
        colour(span.kind)
    ));
    let room = ((work_width - 8.0) / CHARACTER).max(0.0) as usize;
    if room >= 3 {
        out.line(format_args!(
            r##"<text x="{:.2}" y="{:.1}" text-anchor="middle" font-size="11" fill="#ffffff">{}</text>"##,
            work_x + work_width / 2.0,
            y + ROW / 2.0 + 4.0,
            escape(&shorten(&span.name, room))
        ));
    }
    out.line(format_args!("</g>"));
}

fn axis(out: &mut Out<'_>, length: f64, bottom: f64, x: impl Fn(f64) -> f64) {
    let step = tick(length);
    let mut at = 0.0;
    while at <= length * (1.0 + 1e-9) {
        let x = x(at);
        out.line(format_args!(
            r##"<line x1="{x:.1}" y1="{:.1}" x2="{x:.1}" y2="{bottom:.1}" stroke="#d9dee4"/><text x="{x:.1}" y="{:.1}" text-anchor="middle" fill="#616e7c">{}</text>"##,
            TOP - 8.0,
            bottom + 16.0,
            number(at)
        ));
        at += step;
    }
    out.line(format_args!(
        r##"<text x="{:.1}" y="{:.1}" text-anchor="end" fill="#616e7c">µs</text>"##,
        WIDTH - RIGHT,
        bottom + 34.0
    ));
}

/// A step of 1, 2 or 5 times a power of ten that gives 5 to 12 ticks.
fn tick(length: f64) -> f64 {
    let rough = length / 10.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(rough)
}

fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 1e4 => format!("{:.2} ms", us / 1e3),
        us => format!("{us:.1} µs"),
    }
}

fn shorten(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_string();
    }
    let mut short: String = text.chars().take(room.saturating_sub(1)).collect();
    short.push('…');
    short
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

struct Out<'a>(&'a mut String);

impl Out<'_> {
    fn line(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.0
            .write_fmt(arguments)
            .expect("writing to a string succeeds");
        self.0.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::example, *};

    #[test]
    fn the_picture_holds_every_span_the_legend_and_the_axis() {
        let svg = example().to_svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<title>").count(), 6);
        for text in [
            "rank 0",
            "rank 1",
            "wait for peers",
            ">matmul<",
            ">180<",
            "190.0 µs",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.contains("gelu&lt;&amp;&gt;") && !svg.contains("gelu<"));
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(tick(190.0), 20.0);
        assert_eq!(tick(1000.0), 100.0);
        assert_eq!(tick(0.7), 0.1);
        assert_eq!(number(0.30000000000000004), "0.3");
    }
}
