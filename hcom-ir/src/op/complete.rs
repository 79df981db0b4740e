//! Completing the attributes of an operation: kinds, defaults, one canonical form.

use crate::arena::Id as _;
use crate::diag::{Code, Diagnostic, closest};
use crate::op::attr::{Attr, Attrs};
use crate::op::{AttrKind, AttrSpec, Fallback, Op, info};
use crate::shape::Dim;

/// The attributes of `op` with defaults filled in and each value in the form its kind asks for.
///
/// Fails when a required one is missing, one is unknown, or one is of another kind.
pub fn complete(op: Op, attrs: &Attrs) -> Result<Attrs, Diagnostic> {
    let info = info(op);
    let mut out = Attrs::new();
    for (name, value) in attrs.iter() {
        let spec = info.attr(name);
        if spec.is_none() && op != Op::Custom {
            return Err(unknown_attribute(op, name));
        }
        if !is_identifier(name) {
            return Err(Diagnostic::new(
                Code::Attribute,
                format!("`{name}` is no name of an attribute"),
            )
            .expected("a letter or `_`, then letters, digits and `_`"));
        }
        let value = match spec {
            Some(spec) => convert(spec, value.clone()).map_err(|value| {
                Diagnostic::new(
                    Code::Attribute,
                    format!("attribute `{}` of `{op}` is of the wrong kind", spec.name),
                )
                .expected(kind_name(spec.kind))
                .got(describe(&value))
            })?,
            None => free_form(value.clone()),
        };
        out.set(name.to_owned(), value);
    }
    for spec in info.attrs {
        if out.get(spec.name).is_none() {
            match fallback(spec) {
                Some(value) => out.set(spec.name, value),
                None if spec.fallback == Fallback::Absent => {}
                None => {
                    return Err(Diagnostic::new(
                        Code::Attribute,
                        format!("`{op}` needs the attribute `{}`", spec.name),
                    )
                    .expected(format!(
                        "{} = {}",
                        spec.name,
                        kind_name(spec.kind)
                    )));
                }
            }
        }
    }
    Ok(out)
}

fn unknown_attribute(op: Op, name: &str) -> Diagnostic {
    let known: Vec<&str> = info(op).attrs.iter().map(|spec| spec.name).collect();
    let diagnostic = Diagnostic::new(Code::Attribute, format!("`{op}` has no attribute `{name}`"));
    let diagnostic = if known.is_empty() {
        diagnostic.expected("no attributes")
    } else {
        diagnostic.expected(format!("attributes among {}", known.join(", ")))
    };
    match closest(name, known) {
        Some(meant) => diagnostic.help(format!("did you mean `{meant}`?")),
        None => diagnostic,
    }
}

/// Whether the text form can hold `name` as the name of a symbol or attribute.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The value a missing attribute has.
pub(crate) fn fallback(spec: &AttrSpec) -> Option<Attr> {
    match spec.fallback {
        Fallback::Required | Fallback::Absent => None,
        Fallback::Bool(value) => Some(Attr::Bool(value)),
        Fallback::Int(value) => Some(Attr::Int(value)),
        Fallback::Float(value) => Some(Attr::Float(value)),
        Fallback::Text(value) => Some(Attr::Text(value.into())),
    }
}

fn convert(spec: &AttrSpec, value: Attr) -> Result<Attr, Attr> {
    let size = |value: i64| u64::try_from(value).ok().map(Dim::fixed);
    match (spec.kind, value) {
        (AttrKind::Bool, value @ Attr::Bool(_))
        | (AttrKind::Int, value @ Attr::Int(_))
        | (AttrKind::Number, value @ Attr::Int(_))
        | (AttrKind::Text, value @ Attr::Text(_))
        | (AttrKind::DType, value @ Attr::DType(_))
        | (AttrKind::Dim, value @ Attr::Dim(_))
        | (AttrKind::Dims, value @ Attr::Dims(_))
        | (AttrKind::Ints, value @ Attr::Ints(_))
        | (AttrKind::Reduce, value @ Attr::Reduce(_))
        | (AttrKind::Group, value @ Attr::Group(_))
        | (AttrKind::Literal, value @ Attr::Literal(_))
        | (AttrKind::Type, value @ Attr::Type(_))
        | (AttrKind::Types, value @ Attr::Types(_)) => Ok(value),
        (AttrKind::Float | AttrKind::Number, Attr::Float(value)) => {
            Ok(Attr::Float(canonical(value)))
        }
        (AttrKind::Float, Attr::Int(value)) => Ok(Attr::Float(value as f64)),
        (AttrKind::Number, Attr::Dim(dim)) => Ok(dim_as_int(&dim).unwrap_or(Attr::Dim(dim))),
        (AttrKind::Int, Attr::Dim(dim)) => dim_as_int(&dim).ok_or(Attr::Dim(dim)),
        (AttrKind::Dim, Attr::Int(value)) => size(value).map(Attr::Dim).ok_or(Attr::Int(value)),
        (AttrKind::Dims, Attr::Ints(values)) => {
            let dims: Option<Vec<Dim>> = values.iter().map(|&value| size(value)).collect();
            dims.map(Attr::Dims).ok_or(Attr::Ints(values))
        }
        (AttrKind::Ints, Attr::Dims(dims)) => {
            let ints: Option<Vec<i64>> = dims
                .iter()
                .map(|dim| dim.as_fixed()?.try_into().ok())
                .collect();
            ints.map(Attr::Ints).ok_or(Attr::Dims(dims))
        }
        (AttrKind::Choice(words), Attr::Text(word)) if words.contains(&&*word) => {
            Ok(Attr::Text(word))
        }
        (_, value) => Err(value),
    }
}

/// Attributes of custom operations have no specification: what text could not tell apart is brought
/// into one form.
fn free_form(value: Attr) -> Attr {
    match value {
        Attr::Dim(dim) => dim_as_int(&dim).unwrap_or(Attr::Dim(dim)),
        Attr::Dims(dims) => {
            let ints: Option<Vec<i64>> = dims
                .iter()
                .map(|dim| dim.as_fixed()?.try_into().ok())
                .collect();
            ints.map_or(Attr::Dims(dims), Attr::Ints)
        }
        Attr::Types(types) if types.is_empty() => Attr::Ints(Vec::new()),
        Attr::Float(value) => Attr::Float(canonical(value)),
        value => value,
    }
}

fn dim_as_int(dim: &Dim) -> Option<Attr> {
    i64::try_from(dim.as_fixed()?).ok().map(Attr::Int)
}

/// Text knows one NaN.
fn canonical(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// What a value of this kind is, for messages.
pub(crate) fn kind_name(kind: AttrKind) -> String {
    match kind {
        AttrKind::Bool => "true or false".to_owned(),
        AttrKind::Int => "an integer".to_owned(),
        AttrKind::Float => "a float".to_owned(),
        AttrKind::Number => "a number".to_owned(),
        AttrKind::Text => "quoted text".to_owned(),
        AttrKind::Choice(words) => format!("one of {}", words.join(", ")),
        AttrKind::DType => "an element type".to_owned(),
        AttrKind::Dim => "a size".to_owned(),
        AttrKind::Dims => "a list of sizes".to_owned(),
        AttrKind::Ints => "a list of integers".to_owned(),
        AttrKind::Reduce => "a reduction".to_owned(),
        AttrKind::Group => "a group".to_owned(),
        AttrKind::Literal => "a literal".to_owned(),
        AttrKind::Type => "a type".to_owned(),
        AttrKind::Types => "a list of types".to_owned(),
    }
}

fn describe(value: &Attr) -> String {
    match value {
        Attr::Bool(value) => value.to_string(),
        Attr::Int(value) => value.to_string(),
        Attr::Float(value) => format!("{value:?}"),
        Attr::Text(value) => format!("\"{value}\""),
        Attr::DType(value) => value.to_string(),
        Attr::Dim(value) => value.to_string(),
        Attr::Dims(value) => format!("{value:?}"),
        Attr::Ints(value) => format!("{value:?}"),
        Attr::Reduce(value) => value.to_string(),
        Attr::Group(value) => format!("group {}", value.index()),
        Attr::Literal(value) => format!("a literal of type {}", value.ty()),
        Attr::Type(value) => value.to_string(),
        Attr::Types(value) => format!("{} types", value.len()),
    }
}
