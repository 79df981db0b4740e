//! Attributes: the constants of a node.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::arena::GroupId;
use crate::literal::Literal;
use crate::shape::{Dim, Shape};
use crate::types::{DType, Type};

/// How values of several ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceOp {
    /// The sum; for `bool` the logical or.
    Sum,
    /// The product; for `bool` the logical and.
    Prod,
    /// The minimum, NaN if any value is NaN; for `bool` the logical and.
    Min,
    /// The maximum, NaN if any value is NaN; for `bool` the logical or.
    Max,
    /// The sum divided by the group size; integers truncate towards zero. Not for `bool`.
    Avg,
    /// Bitwise and of integers, logical and of `bool`.
    Band,
    /// Bitwise or of integers, logical or of `bool`.
    Bor,
    /// Bitwise exclusive or of integers, logical exclusive or of `bool`.
    Bxor,
    /// The sum of the values, each multiplied by the attribute `factor` first. Floats and complex
    /// numbers only.
    PremulSum,
}

impl ReduceOp {
    /// Every reduction, in declaration order.
    pub const ALL: [ReduceOp; 9] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Avg,
        ReduceOp::Band,
        ReduceOp::Bor,
        ReduceOp::Bxor,
        ReduceOp::PremulSum,
    ];

    /// The name in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Avg => "avg",
            ReduceOp::Band => "band",
            ReduceOp::Bor => "bor",
            ReduceOp::Bxor => "bxor",
            ReduceOp::PremulSum => "premul_sum",
        }
    }

    /// Whether the reduction is defined for elements of `dtype`.
    pub const fn accepts(self, dtype: DType) -> bool {
        match self {
            ReduceOp::Sum | ReduceOp::Prod => true,
            ReduceOp::Min | ReduceOp::Max => !dtype.is_complex(),
            ReduceOp::Avg => !matches!(dtype, DType::Bool),
            ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {
                dtype.is_integer() || matches!(dtype, DType::Bool)
            }
            ReduceOp::PremulSum => dtype.is_float() || dtype.is_complex(),
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is not the name of a reduction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown reduction `{0}`; one of sum prod min max avg band bor bxor premul_sum")]
pub struct UnknownReduceOp(pub String);

impl FromStr for ReduceOp {
    type Err = UnknownReduceOp;

    fn from_str(text: &str) -> Result<Self, UnknownReduceOp> {
        Self::ALL
            .into_iter()
            .find(|op| op.name() == text)
            .ok_or_else(|| UnknownReduceOp(text.to_owned()))
    }
}

/// The value of an attribute.
///
/// Equality and hash compare floats by their bits, so that an attribute equals itself.
#[derive(Clone, Debug)]
pub enum Attr {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Quoted text, or the word chosen from a fixed list.
    Text(Box<str>),
    /// An element type.
    DType(DType),
    /// A size.
    Dim(Dim),
    /// A list of sizes.
    Dims(Vec<Dim>),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A reduction.
    Reduce(ReduceOp),
    /// A group of the graph.
    Group(GroupId),
    /// Constant data.
    Literal(Arc<Literal>),
    /// The type of a result that does not follow from the operands.
    Type(Box<Type>),
    /// The types of several results that do not follow from the operands.
    Types(Vec<Type>),
}

impl PartialEq for Attr {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Attr::Bool(a), Attr::Bool(b)) => a == b,
            (Attr::Int(a), Attr::Int(b)) => a == b,
            (Attr::Float(a), Attr::Float(b)) => a.to_bits() == b.to_bits(),
            (Attr::Text(a), Attr::Text(b)) => a == b,
            (Attr::DType(a), Attr::DType(b)) => a == b,
            (Attr::Dim(a), Attr::Dim(b)) => a == b,
            (Attr::Dims(a), Attr::Dims(b)) => a == b,
            (Attr::Ints(a), Attr::Ints(b)) => a == b,
            (Attr::Reduce(a), Attr::Reduce(b)) => a == b,
            (Attr::Group(a), Attr::Group(b)) => a == b,
            (Attr::Literal(a), Attr::Literal(b)) => a == b,
            (Attr::Type(a), Attr::Type(b)) => a == b,
            (Attr::Types(a), Attr::Types(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Attr {}

impl Hash for Attr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Attr::Bool(value) => value.hash(state),
            Attr::Int(value) => value.hash(state),
            Attr::Float(value) => value.to_bits().hash(state),
            Attr::Text(value) => value.hash(state),
            Attr::DType(value) => value.hash(state),
            Attr::Dim(value) => value.hash(state),
            Attr::Dims(value) => value.hash(state),
            Attr::Ints(value) => value.hash(state),
            Attr::Reduce(value) => value.hash(state),
            Attr::Group(value) => value.hash(state),
            Attr::Literal(value) => value.hash(state),
            Attr::Type(value) => value.hash(state),
            Attr::Types(value) => value.hash(state),
        }
    }
}

macro_rules! from {
    ($($type:ty => |$value:ident| $attr:expr,)*) => {$(
        impl From<$type> for Attr {
            fn from($value: $type) -> Self {
                $attr
            }
        }
    )*};
}

from! {
    bool => |value| Attr::Bool(value),
    i64 => |value| Attr::Int(value),
    i32 => |value| Attr::Int(i64::from(value)),
    u32 => |value| Attr::Int(i64::from(value)),
    f64 => |value| Attr::Float(value),
    &str => |value| Attr::Text(value.into()),
    String => |value| Attr::Text(value.into()),
    DType => |value| Attr::DType(value),
    Dim => |value| Attr::Dim(value),
    Vec<Dim> => |value| Attr::Dims(value),
    Shape => |value| Attr::Dims(value.dims().to_vec()),
    Vec<u64> => |value| Attr::Dims(value.into_iter().map(Dim::fixed).collect()),
    &[u64] => |value| Attr::Dims(value.iter().copied().map(Dim::fixed).collect()),
    Vec<i64> => |value| Attr::Ints(value),
    &[i64] => |value| Attr::Ints(value.to_vec()),
    ReduceOp => |value| Attr::Reduce(value),
    GroupId => |value| Attr::Group(value),
    Literal => |value| Attr::Literal(Arc::new(value)),
    Arc<Literal> => |value| Attr::Literal(value),
    Type => |value| Attr::Type(Box::new(value)),
    Vec<Type> => |value| Attr::Types(value),
}

/// The attributes of a node: a small map from names to values, sorted by name.
///
/// The typed getters panic when the attribute is absent or of another kind. That cannot happen for
/// a required or defaulted attribute of a node of a [`Graph`](crate::Graph), whose builder
/// completes and checks attributes; for optional ones and for attributes of unchecked origin use
/// [`Attrs::get`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attrs(SmallVec<[(Cow<'static, str>, Attr); 4]>);

impl Attrs {
    /// No attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same attributes with `name` set to `value`; an earlier value is replaced.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Attr>) -> Self {
        self.set(name, value);
        self
    }

    /// Sets `name` to `value`; an earlier value is replaced.
    pub fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Attr>) {
        let (name, value) = (name.into(), value.into());
        match self.0.binary_search_by(|(key, _)| key.cmp(&name)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (name, value)),
        }
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&Attr> {
        let at = self
            .0
            .binary_search_by(|(key, _)| key.as_ref().cmp(name))
            .ok()?;
        Some(&self.0[at].1)
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attr)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// Whether there is no attribute.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Attr> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    #[track_caller]
    fn expect<'a, T>(&'a self, name: &str, kind: &str, read: impl Fn(&'a Attr) -> Option<T>) -> T {
        match self.get(name).map(|attr| (attr, read(attr))) {
            Some((_, Some(value))) => value,
            Some((attr, None)) => panic!("attribute `{name}` is no {kind} but {attr:?}"),
            None => panic!("attribute `{name}` is absent"),
        }
    }

    /// A boolean. See [`Attrs`] for the panics of all getters.
    #[track_caller]
    pub fn bool(&self, name: &str) -> bool {
        self.expect(name, "bool", |attr| match attr {
            Attr::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// An integer, also one written as a fixed size.
    #[track_caller]
    pub fn int(&self, name: &str) -> i64 {
        self.expect(name, "integer", |attr| match attr {
            Attr::Int(value) => Some(*value),
            Attr::Dim(dim) => dim.as_fixed().and_then(|value| i64::try_from(value).ok()),
            _ => None,
        })
    }

    /// A float, also one written as an integer.
    #[track_caller]
    pub fn float(&self, name: &str) -> f64 {
        self.expect(name, "float", |attr| match attr {
            Attr::Float(value) => Some(*value),
            Attr::Int(value) => Some(*value as f64),
            _ => None,
        })
    }

    /// Text.
    #[track_caller]
    pub fn text(&self, name: &str) -> &str {
        self.expect(name, "text", |attr| match attr {
            Attr::Text(value) => Some(&**value),
            _ => None,
        })
    }

    /// An element type.
    #[track_caller]
    pub fn dtype(&self, name: &str) -> DType {
        self.expect(name, "element type", |attr| match attr {
            Attr::DType(value) => Some(*value),
            _ => None,
        })
    }

    /// A size.
    #[track_caller]
    pub fn dim(&self, name: &str) -> &Dim {
        self.expect(name, "size", |attr| match attr {
            Attr::Dim(value) => Some(value),
            _ => None,
        })
    }

    /// A fixed size.
    #[track_caller]
    pub fn size(&self, name: &str) -> u64 {
        self.expect(name, "fixed size", |attr| match attr {
            Attr::Dim(value) => value.as_fixed(),
            _ => None,
        })
    }

    /// A list of sizes.
    #[track_caller]
    pub fn dims(&self, name: &str) -> &[Dim] {
        self.expect(name, "list of sizes", |attr| match attr {
            Attr::Dims(value) => Some(&value[..]),
            _ => None,
        })
    }

    /// A list of fixed sizes.
    #[track_caller]
    pub fn sizes(&self, name: &str) -> Vec<u64> {
        self.expect(name, "list of fixed sizes", |attr| match attr {
            Attr::Dims(value) => value.iter().map(Dim::as_fixed).collect(),
            _ => None,
        })
    }

    /// A list of integers.
    #[track_caller]
    pub fn ints(&self, name: &str) -> &[i64] {
        self.expect(name, "list of integers", |attr| match attr {
            Attr::Ints(value) => Some(&value[..]),
            _ => None,
        })
    }

    /// A reduction.
    #[track_caller]
    pub fn reduce(&self, name: &str) -> ReduceOp {
        self.expect(name, "reduction", |attr| match attr {
            Attr::Reduce(value) => Some(*value),
            _ => None,
        })
    }

    /// A group.
    #[track_caller]
    pub fn group(&self, name: &str) -> GroupId {
        self.expect(name, "group", |attr| match attr {
            Attr::Group(value) => Some(*value),
            _ => None,
        })
    }

    /// Constant data.
    #[track_caller]
    pub fn literal(&self, name: &str) -> &Arc<Literal> {
        self.expect(name, "literal", |attr| match attr {
            Attr::Literal(value) => Some(value),
            _ => None,
        })
    }

    /// The type of a result.
    #[track_caller]
    pub fn ty(&self, name: &str) -> &Type {
        self.expect(name, "type", |attr| match attr {
            Attr::Type(value) => Some(&**value),
            _ => None,
        })
    }

    /// The types of several results.
    #[track_caller]
    pub fn types(&self, name: &str) -> &[Type] {
        self.expect(name, "list of types", |attr| match attr {
            Attr::Types(value) => Some(&value[..]),
            _ => None,
        })
    }
}
