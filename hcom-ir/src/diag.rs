//! Diagnostics: what is wrong, where, what was expected and what may help.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Location {
    /// The name of the file, as its user gave it.
    pub file: Arc<str>,
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The kind of a [`Diagnostic`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// The stable name, for example `shape`.
            pub const fn name(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// The text is not a graph.
    Syntax = "syntax",
    /// A name, a group or a symbol is not declared.
    Unknown = "unknown",
    /// An operation of this name does not exist.
    UnknownOp = "unknown-op",
    /// A name is declared twice, or a list holds an entry twice.
    Duplicate = "duplicate",
    /// A reference leads outside the graph or forwards.
    Reference = "reference",
    /// The number of operands or results is wrong.
    Arity = "arity",
    /// An attribute is missing, unknown or of another kind.
    Attribute = "attribute",
    /// The value of an attribute is outside its range.
    Range = "range",
    /// An operand has an element type the operation does not take.
    DType = "dtype",
    /// The shapes of the operands do not fit.
    Shape = "shape",
    /// A recorded type differs from what the operation yields.
    Type = "type",
    /// A size exceeds 64 bits.
    TooLarge = "too-large",
    /// A group is empty, holds a rank twice, or a rank is not in it.
    Group = "group",
    /// Reads and writes of an input are in an order without a meaning.
    Order = "order",
    /// A symbol has no value or a guard does not hold.
    Binding = "binding",
    /// The device does not support the operation for this element type.
    Unsupported = "unsupported",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One mistake in a graph or in its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The kind of mistake.
    pub code: Code,
    /// One sentence without a full stop.
    pub message: Box<str>,
    /// Where it is, when the graph came from a source that is known.
    pub location: Option<Location>,
    /// The node, in the text form.
    pub node: Option<Box<str>>,
    /// What would have been right.
    pub expected: Option<Box<str>>,
    /// What was found.
    pub got: Option<Box<str>>,
    /// What the reader may do about it.
    pub help: Option<Box<str>>,
}

impl Diagnostic {
    /// A diagnostic with a kind and a message only.
    pub fn new(code: Code, message: impl Into<Box<str>>) -> Self {
        Self {
            code,
            message: message.into(),
            location: None,
            node: None,
            expected: None,
            got: None,
            help: None,
        }
    }

    /// Adds the place.
    #[must_use]
    pub fn at(mut self, location: Option<Location>) -> Self {
        self.location = location;
        self
    }

    /// Adds the printed node.
    #[must_use]
    pub fn node(mut self, node: impl Into<Box<str>>) -> Self {
        self.node = Some(node.into());
        self
    }

    /// Adds what would have been right.
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display) -> Self {
        self.expected = Some(expected.to_string().into());
        self
    }

    /// Adds what was found.
    #[must_use]
    pub fn got(mut self, got: impl fmt::Display) -> Self {
        self.got = Some(got.to_string().into());
        self
    }

    /// Adds advice.
    #[must_use]
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        self.help = Some(help.to_string().into());
        self
    }

    /// The diagnostic as text of several lines, with the line it points at when `source` is the
    /// text of its file.
    pub fn render(&self, source: Option<&str>) -> String {
        let mut out = format!("error[{}]: {}\n", self.code, self.message);
        let snippet = self
            .location
            .as_ref()
            .zip(source)
            .and_then(|(location, source)| {
                let line = source.lines().nth(location.line.checked_sub(1)? as usize)?;
                Some((location, line))
            });
        let margin = snippet.map_or(1, |(location, _)| location.line.to_string().len());
        if let Some(location) = &self.location {
            let _ = writeln!(out, "{:margin$}--> {location}", "");
        }
        if let Some((location, line)) = snippet {
            let before = location.column.saturating_sub(1) as usize;
            let indent: String = line
                .chars()
                .take(before)
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect();
            let token = line
                .chars()
                .skip(before)
                .enumerate()
                .take_while(|&(index, c)| {
                    c.is_alphanumeric() || c == '_' || (index == 0 && "%@\"".contains(c))
                })
                .count()
                .max(1);
            let _ = writeln!(out, "{:margin$} |", "");
            let _ = writeln!(out, "{} | {line}", location.line);
            let _ = writeln!(out, "{:margin$} | {indent}{}", "", "^".repeat(token));
        } else if let Some(node) = &self.node {
            let _ = writeln!(out, "{:margin$} | {node}", "");
        }
        let notes = [
            ("expected", &self.expected),
            ("got", &self.got),
            ("help", &self.help),
        ];
        for (label, note) in notes {
            if let Some(note) = note {
                let _ = writeln!(out, "{:margin$} = {label}: {note}", "");
            }
        }
        out
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(None).trim_end())
    }
}

impl std::error::Error for Diagnostic {}

/// All mistakes found; never empty when returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// All diagnostics as text, each with the line it points at when `source` is the text of
    /// their file.
    pub fn render(&self, source: Option<&str>) -> String {
        let rendered: Vec<String> = self
            .0
            .iter()
            .map(|diagnostic| diagnostic.render(source))
            .collect();
        rendered.join("\n")
    }

    /// The diagnostics in the order they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// `Ok(value)` when nothing was found, the diagnostics otherwise.
    pub fn into_result<T>(self, value: T) -> Result<T, Diagnostics> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Diagnostics(vec![diagnostic])
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(None).trim_end())
    }
}

impl std::error::Error for Diagnostics {}

/// The candidate most like `name`, when it is like enough to be meant.
pub(crate) fn closest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|&(distance, _)| distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    // The names compared with are short; a long text is none of them.
    if from.len() > 64 || to.len() > 64 {
        return usize::MAX;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let substituted = above[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = substituted.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        (before, above) = (above, row);
    }
    above[to.len()]
}
