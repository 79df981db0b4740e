//! Text to tokens.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Ident(&'a str),
    /// `%name`, without the sign.
    Value(&'a str),
    /// `@name`, without the sign.
    Group(&'a str),
    /// Digits.
    Int(&'a str),
    /// Digits with a point or an exponent.
    Float(&'a str),
    /// Quoted text, escapes not yet resolved.
    Text(&'a str),
    Punct(&'static str),
    /// A character or a quotation that starts no token.
    Bad(&'a str),
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Ident(text) | Token::Int(text) | Token::Float(text) => write!(f, "`{text}`"),
            Token::Value(text) => write!(f, "`%{text}`"),
            Token::Group(text) => write!(f, "`@{text}`"),
            Token::Text(text) => write!(f, "\"{text}\""),
            Token::Punct(text) => write!(f, "`{text}`"),
            Token::Bad(text) => write!(f, "`{}`", text.escape_debug()),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

/// A token and where it starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spanned<'a> {
    pub(super) token: Token<'a>,
    pub(super) line: u32,
    pub(super) column: u32,
}

const PUNCTUATION: [&str; 19] = [
    "->", "==", ">=", "(", ")", "[", "]", "{", "}", ",", "=", ":", "*", "+", "-", "/", "%", "@",
    ";",
];

/// All tokens of `source`, the last one being [`Token::End`].
pub(super) fn tokens(source: &str) -> Vec<Spanned<'_>> {
    let mut out = Vec::new();
    let mut end = (1, 1);
    for (line, text) in (1u32..).zip(source.lines()) {
        let mut rest = text;
        let mut column = 1u32;
        loop {
            let trimmed = rest.trim_start();
            column = column.saturating_add(count(&rest[..rest.len() - trimmed.len()]));
            rest = trimmed;
            end = (line, column);
            if rest.is_empty() || rest.starts_with('#') {
                break;
            }
            let (token, length) = next(rest);
            out.push(Spanned {
                token,
                line,
                column,
            });
            column = column.saturating_add(count(&rest[..length]));
            rest = &rest[length..];
        }
    }
    out.push(Spanned {
        token: Token::End,
        line: end.0,
        column: end.1,
    });
    out
}

fn count(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

fn prefix(text: &str, accept: impl Fn(char) -> bool) -> usize {
    text.find(|c| !accept(c)).unwrap_or(text.len())
}

/// The first token of a text that starts with none of space, end and comment, and its length in
/// bytes, at least 1.
fn next(text: &str) -> (Token<'_>, usize) {
    let first = text.chars().next().unwrap_or(' ');
    if matches!(first, '%' | '@') {
        let length = 1 + prefix(&text[1..], is_name);
        if length > 1 {
            let name = &text[1..length];
            return (
                if first == '%' {
                    Token::Value(name)
                } else {
                    Token::Group(name)
                },
                length,
            );
        }
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let length = prefix(text, |c| c.is_ascii_alphanumeric() || c == '_');
        return (Token::Ident(&text[..length]), length);
    }
    if first.is_ascii_digit() {
        return number(text);
    }
    if first == '"' {
        return quoted(text);
    }
    for punct in PUNCTUATION {
        if text.starts_with(punct) {
            return (Token::Punct(punct), punct.len());
        }
    }
    (Token::Bad(&text[..first.len_utf8()]), first.len_utf8())
}

fn number(text: &str) -> (Token<'_>, usize) {
    let digits = |from: usize| from + prefix(&text[from..], |c| c.is_ascii_digit());
    let whole = digits(0);
    let mut length = whole;
    if text[length..].starts_with('.') {
        length = digits(length + 1);
    }
    if text[length..].starts_with(['e', 'E']) {
        let sign = usize::from(text[length + 1..].starts_with(['+', '-']));
        let exponent = digits(length + 1 + sign);
        if exponent > length + 1 + sign {
            length = exponent;
        }
    }
    let number = &text[..length];
    (
        if length == whole {
            Token::Int(number)
        } else {
            Token::Float(number)
        },
        length,
    )
}

fn quoted(text: &str) -> (Token<'_>, usize) {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return (Token::Text(&text[1..at]), at + 1),
            _ => {}
        }
    }
    (Token::Bad(text), text.len())
}

/// Resolves the escapes of quoted text; `None` when one is unknown.
pub(super) fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next()? {
            '\\' => '\\',
            '"' => '"',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let rest = chars.as_str().strip_prefix('{')?;
                let (digits, rest) = rest.split_once('}')?;
                chars = rest.chars();
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            _ => return None,
        });
    }
    Some(out)
}

/// Quotes text so that it stays on one line and [`unescape`] gives it back.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
