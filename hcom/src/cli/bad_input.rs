//! Input that is wrong: one message that says what, where, what was expected, what was found and what to do.

use std::fmt;

use serde_json::{Value, json};

/// A mistake in what the user gave; ends the command with exit code 2.
#[derive(Debug)]
pub(super) struct BadInput(Box<Parts>);

#[derive(Debug, Default)]
struct Parts {
    message: String,
    place: Option<String>,
    expected: Option<String>,
    got: Option<String>,
    help: Option<String>,
    /// Diagnostics of a graph, rendered with the lines they point at; stand for all other fields.
    rendered: Option<String>,
    details: Value,
}

impl BadInput {
    pub(super) fn new(message: impl Into<String>) -> BadInput {
        BadInput(Box::new(Parts {
            message: message.into(),
            ..Parts::default()
        }))
    }

    /// The mistakes of the graph in `file`, whose text is `source`.
    pub(super) fn graph(file: &str, source: &str, diagnostics: &hcom_ir::Diagnostics) -> BadInput {
        let count = diagnostics.0.len();
        let first = diagnostics.iter().next();
        let text = |field: Option<&Box<str>>| field.map(|text| text.to_string());
        BadInput(Box::new(Parts {
            message: match count {
                1 => format!("{file} is no valid graph"),
                _ => format!("{file} is no valid graph: {count} mistakes"),
            },
            place: first.and_then(|first| Some(first.location.as_ref()?.to_string())),
            expected: text(first.and_then(|first| first.expected.as_ref())),
            got: text(first.and_then(|first| first.got.as_ref())),
            help: text(first.and_then(|first| first.help.as_ref())),
            rendered: Some(diagnostics.render(Some(source))),
            details: serde_json::to_value(diagnostics).unwrap_or_default(),
        }))
    }

    /// Where the mistake is: a file, a field, a line.
    pub(super) fn at(mut self, place: impl Into<String>) -> BadInput {
        self.0.place = Some(place.into());
        self
    }

    pub(super) fn expected(mut self, expected: impl Into<String>) -> BadInput {
        self.0.expected = Some(expected.into());
        self
    }

    pub(super) fn got(mut self, got: impl Into<String>) -> BadInput {
        self.0.got = Some(got.into());
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> BadInput {
        self.0.help = Some(help.into());
        self
    }

    pub(super) fn to_json(&self) -> Value {
        let parts = &self.0;
        let mut object = json!({
            "kind": "bad_input",
            "message": parts.message,
            "place": parts.place,
            "expected": parts.expected,
            "got": parts.got,
            "help": parts.help,
        });
        if !parts.details.is_null() {
            object["diagnostics"] = parts.details.clone();
        }
        object
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &self.0;
        f.write_str(&parts.message)?;
        if let Some(rendered) = &parts.rendered {
            return write!(f, "\n\n{}", rendered.trim_end());
        }
        if let Some(place) = &parts.place {
            write!(f, "\n --> {place}")?;
        }
        let notes = [
            ("expected", &parts.expected),
            ("got", &parts.got),
            ("help", &parts.help),
        ];
        for (label, note) in notes {
            if let Some(note) = note {
                write!(f, "\n  = {label}: {note}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for BadInput {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_its_line() {
        let bad = BadInput::new("input `x` has the wrong shape")
            .at("in.json, rank 0")
            .expected("f32[2]")
            .got("3 elements")
            .help("give 2");
        assert_eq!(
            bad.to_string(),
            "input `x` has the wrong shape\n --> in.json, rank 0\n  = expected: f32[2]\n  = got: 3 elements\n  = help: give 2"
        );
        assert_eq!(bad.to_json()["place"], "in.json, rank 0");
    }
}
