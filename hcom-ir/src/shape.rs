//! Sizes that are numbers or affine expressions of symbols, shapes, guards and bindings.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::arena::{Id, SymbolId};

/// One size: a number, or `(constant + Σ coefficient × symbol) / divisor`.
///
/// Expressions are kept in lowest terms with symbols in order, so equal expressions compare equal
/// and expressions that differ are different functions of their symbols. The division is exact: whoever creates it
/// with [`Dim::div`] also gets the [`Guard`] that makes it so.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim(Repr);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Fixed(u64),
    Affine(Arc<Affine>),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Affine {
    /// Non-empty, sorted by symbol, no zero coefficient.
    terms: SmallVec<[(SymbolId, i64); 1]>,
    constant: i64,
    /// At least 1; no common factor with the constant and all coefficients.
    divisor: i64,
}

/// Arithmetic on sizes that has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DimError {
    /// A coefficient or a value leaves the range of 64 bits.
    #[error("the size does not fit in 64 bits")]
    Overflow,
    /// A size would be below zero.
    #[error("the size would be negative ({value})")]
    Negative {
        /// The value found.
        value: i128,
    },
    /// A fixed size is not a multiple of the divisor.
    #[error("{value} is not divisible by {by}")]
    NotDivisible {
        /// The size.
        value: i128,
        /// The divisor.
        by: u64,
    },
    /// The product of two expressions of symbols is not affine.
    #[error(
        "the product of two symbolic sizes is no affine expression; bind it to a symbol of its own"
    )]
    NotAffine,
    /// A symbol has no value in the bindings.
    #[error("a symbol has no value")]
    Unbound {
        /// The symbol.
        symbol: SymbolId,
    },
}

impl Dim {
    /// A known size.
    pub const fn fixed(value: u64) -> Self {
        Dim(Repr::Fixed(value))
    }

    /// The size that `symbol` stands for.
    pub fn symbol(symbol: SymbolId) -> Self {
        Dim(Repr::Affine(Arc::new(Affine {
            terms: SmallVec::from_elem((symbol, 1), 1),
            constant: 0,
            divisor: 1,
        })))
    }

    /// The number, when no symbol is involved.
    pub fn as_fixed(&self) -> Option<u64> {
        match self.0 {
            Repr::Fixed(value) => Some(value),
            Repr::Affine(_) => None,
        }
    }

    /// Symbols with their coefficients, in order of the symbols. The expression is
    /// `(constant + Σ coefficient × symbol) / divisor`.
    pub fn terms(&self) -> &[(SymbolId, i64)] {
        match &self.0 {
            Repr::Fixed(_) => &[],
            Repr::Affine(affine) => &affine.terms,
        }
    }

    /// The constant of the numerator.
    pub fn constant(&self) -> i128 {
        match &self.0 {
            Repr::Fixed(value) => i128::from(*value),
            Repr::Affine(affine) => i128::from(affine.constant),
        }
    }

    /// The divisor, at least 1.
    pub fn divisor(&self) -> u64 {
        match &self.0 {
            Repr::Fixed(_) => 1,
            Repr::Affine(affine) => affine.divisor.unsigned_abs(),
        }
    }

    fn from_parts(
        mut terms: SmallVec<[(SymbolId, i128); 2]>,
        constant: i128,
        divisor: i128,
    ) -> Result<Self, DimError> {
        terms.retain(|(_, coefficient)| *coefficient != 0);
        if terms.is_empty() {
            if constant % divisor != 0 {
                let by = u64::try_from(divisor).map_err(|_| DimError::Overflow)?;
                return Err(DimError::NotDivisible {
                    value: constant,
                    by,
                });
            }
            let value = constant / divisor;
            if value < 0 {
                return Err(DimError::Negative { value });
            }
            return u64::try_from(value)
                .map(Dim::fixed)
                .map_err(|_| DimError::Overflow);
        }
        let factor = terms
            .iter()
            .fold(gcd(constant, divisor), |factor, (_, coefficient)| {
                gcd(factor, *coefficient)
            });
        let narrow = |value: i128| i64::try_from(value / factor).map_err(|_| DimError::Overflow);
        let terms = terms
            .iter()
            .map(|&(symbol, coefficient)| Ok((symbol, narrow(coefficient)?)))
            .collect::<Result<_, DimError>>()?;
        Ok(Dim(Repr::Affine(Arc::new(Affine {
            terms,
            constant: narrow(constant)?,
            divisor: narrow(divisor)?,
        }))))
    }

    fn combine(&self, other: &Dim, sign: i128) -> Result<Dim, DimError> {
        let (left, right) = (i128::from(self.divisor()), i128::from(other.divisor()));
        let divisor = left / gcd(left, right) * right;
        let (left, right) = (divisor / left, divisor / right * sign);
        let overflow = || DimError::Overflow;
        let mut terms: SmallVec<[(SymbolId, i128); 2]> = SmallVec::new();
        for &(symbol, coefficient) in self.terms() {
            terms.push((
                symbol,
                i128::from(coefficient)
                    .checked_mul(left)
                    .ok_or_else(overflow)?,
            ));
        }
        for &(symbol, coefficient) in other.terms() {
            let value = i128::from(coefficient)
                .checked_mul(right)
                .ok_or_else(overflow)?;
            match terms.binary_search_by_key(&symbol, |term| term.0) {
                Ok(at) => terms[at].1 = terms[at].1.checked_add(value).ok_or_else(overflow)?,
                Err(at) => terms.insert(at, (symbol, value)),
            }
        }
        let constant = self
            .constant()
            .checked_mul(left)
            .and_then(|value| value.checked_add(other.constant().checked_mul(right)?))
            .ok_or_else(overflow)?;
        Dim::from_parts(terms, constant, divisor)
    }

    /// The sum. Fails on overflow.
    pub fn add(&self, other: &Dim) -> Result<Dim, DimError> {
        self.combine(other, 1)
    }

    /// The difference. Fails on overflow, and when both are fixed and the result is negative; with
    /// symbols the caller adds [`Guard::at_least`].
    pub fn sub(&self, other: &Dim) -> Result<Dim, DimError> {
        self.combine(other, -1)
    }

    /// The product with a number. Fails on overflow.
    pub fn mul(&self, factor: u64) -> Result<Dim, DimError> {
        let scale = |value: i128| {
            value
                .checked_mul(i128::from(factor))
                .ok_or(DimError::Overflow)
        };
        let terms = self
            .terms()
            .iter()
            .map(|&(symbol, coefficient)| Ok((symbol, scale(i128::from(coefficient))?)))
            .collect::<Result<_, DimError>>()?;
        Dim::from_parts(terms, scale(self.constant())?, i128::from(self.divisor()))
    }

    /// The product. Fails on overflow and when both contain symbols.
    pub fn product(&self, other: &Dim) -> Result<Dim, DimError> {
        match (self.as_fixed(), other.as_fixed()) {
            (_, Some(factor)) => self.mul(factor),
            (Some(factor), None) => other.mul(factor),
            (None, None) => Err(DimError::NotAffine),
        }
    }

    /// The exact quotient, and the guard that makes it exact unless it always is. Fails when a
    /// fixed size is no multiple of `by`, when `by` is 0, and on overflow.
    pub fn div(&self, by: u64) -> Result<(Dim, Option<Guard>), DimError> {
        if by == 0 {
            return Err(DimError::NotDivisible {
                value: self.constant(),
                by,
            });
        }
        let divisor = i128::from(self.divisor()) * i128::from(by);
        let terms = self
            .terms()
            .iter()
            .map(|&(symbol, value)| (symbol, i128::from(value)));
        let quotient = Dim::from_parts(terms.collect(), self.constant(), divisor)?;
        let guard = if quotient.divisor() == self.divisor() {
            None
        } else {
            quotient.guard()
        };
        Ok((quotient, guard))
    }

    /// The condition that makes the division of this expression exact; `None` without a division.
    pub fn guard(&self) -> Option<Guard> {
        let by = self.divisor();
        let dim = self.mul(by).ok().filter(|_| by != 1)?;
        Some(Guard::Divisible { dim, by })
    }

    /// Integer content and the primitive rest: the expression is
    /// `content / divisor × rest`. A fixed size has no rest.
    fn factor(&self) -> (i128, Option<Affine>) {
        let Repr::Affine(affine) = &self.0 else {
            return (self.constant(), None);
        };
        let content = affine
            .terms
            .iter()
            .fold(i128::from(affine.constant), |content, term| {
                gcd(content, i128::from(term.1))
            })
            * i128::from(affine.terms[0].1.signum());
        // The content divides every coefficient, so the quotients fit.
        let divide = |value: i64| (i128::from(value) / content) as i64;
        let terms = affine
            .terms
            .iter()
            .map(|&(symbol, value)| (symbol, divide(value)))
            .collect();
        (
            content,
            Some(Affine {
                terms,
                constant: divide(affine.constant),
                divisor: 1,
            }),
        )
    }

    /// The value under `bindings`.
    pub fn bind(&self, bindings: &Bindings) -> Result<u64, DimError> {
        let mut value = self.constant();
        for &(symbol, coefficient) in self.terms() {
            let bound = bindings.get(symbol).ok_or(DimError::Unbound { symbol })?;
            let product = i128::from(coefficient) * i128::from(bound);
            value = value.checked_add(product).ok_or(DimError::Overflow)?;
        }
        let by = self.divisor();
        if value < 0 {
            return Err(DimError::Negative { value });
        }
        if value % i128::from(by) != 0 {
            return Err(DimError::NotDivisible { value, by });
        }
        u64::try_from(value / i128::from(by)).map_err(|_| DimError::Overflow)
    }

    /// This size in text, with `symbols` as the names of the symbols.
    pub fn display<'a>(&'a self, symbols: &'a [String]) -> impl fmt::Display + 'a {
        FromFn(move |f: &mut fmt::Formatter<'_>| self.write(f, symbols))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, symbols: &[String]) -> fmt::Result {
        let affine = match &self.0 {
            Repr::Fixed(value) => return write!(f, "{value}"),
            Repr::Affine(affine) => affine,
        };
        let parenthesised =
            affine.divisor != 1 && affine.terms.len() + usize::from(affine.constant != 0) > 1;
        if parenthesised {
            f.write_str("(")?;
        }
        for (index, &(symbol, coefficient)) in affine.terms.iter().enumerate() {
            match (index, coefficient < 0) {
                (0, false) => {}
                (0, true) => f.write_str("-")?,
                (_, false) => f.write_str(" + ")?,
                (_, true) => f.write_str(" - ")?,
            }
            if coefficient.unsigned_abs() != 1 {
                write!(f, "{}*", coefficient.unsigned_abs())?;
            }
            match symbols.get(symbol.index()) {
                Some(name) => f.write_str(name)?,
                None => write!(f, "s{}", symbol.index())?,
            }
        }
        if affine.constant != 0 {
            let sign = if affine.constant < 0 { '-' } else { '+' };
            write!(f, " {sign} {}", affine.constant.unsigned_abs())?;
        }
        if parenthesised {
            f.write_str(")")?;
        }
        if affine.divisor != 1 {
            write!(f, "/{}", affine.divisor)?;
        }
        Ok(())
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl From<u64> for Dim {
    fn from(value: u64) -> Self {
        Dim::fixed(value)
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &[])
    }
}

impl fmt::Display for Dim {
    /// Symbols appear as `s0`, `s1`, …; [`Dim::display`] uses their names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &[])
    }
}

/// Whether two lists of sizes have the same product for all values of the symbols; `None` when the
/// fixed part exceeds 128 bits. Linear expressions are irreducible and factorisation is unique, so the
/// products are equal exactly when the primitive factors and the fixed parts are.
pub(crate) fn same_product(left: &[Dim], right: &[Dim]) -> Option<bool> {
    let zero = |dims: &[Dim]| dims.iter().any(|dim| dim.as_fixed() == Some(0));
    if zero(left) || zero(right) {
        return Some(zero(left) && zero(right));
    }
    let split = |dims: &[Dim]| -> Option<(i128, i128, Vec<Affine>)> {
        let (mut content, mut divisor, mut rests) = (1i128, 1i128, Vec::new());
        for dim in dims {
            let (factor, rest) = dim.factor();
            content = content.checked_mul(factor)?;
            divisor = divisor.checked_mul(i128::from(dim.divisor()))?;
            let common = gcd(content, divisor);
            (content, divisor) = (content / common, divisor / common);
            rests.extend(rest);
        }
        rests.sort_unstable();
        Some((content, divisor, rests))
    };
    Some(split(left)? == split(right)?)
}

/// A condition on the symbols of a graph, checked when they are bound.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// `dim % by == 0`.
    Divisible {
        /// The size.
        dim: Dim,
        /// The divisor, at least 1.
        by: u64,
    },
    /// `dim >= bound`.
    AtLeast {
        /// The larger size.
        dim: Dim,
        /// The smaller size.
        bound: Dim,
    },
}

impl Guard {
    /// The condition `dim >= bound`, or `None` when it holds for all values of the symbols
    /// because their difference has no negative part.
    pub fn at_least(dim: &Dim, bound: &Dim) -> Option<Guard> {
        let certain = dim.sub(bound).is_ok_and(|difference| {
            difference.constant() >= 0 && difference.terms().iter().all(|term| term.1 > 0)
        });
        (!certain).then(|| Guard::AtLeast {
            dim: dim.clone(),
            bound: bound.clone(),
        })
    }

    /// Whether the condition holds under `bindings`.
    pub fn holds(&self, bindings: &Bindings) -> Result<bool, DimError> {
        match self {
            Guard::Divisible { dim, by } => Ok(dim.bind(bindings)?.checked_rem(*by) == Some(0)),
            Guard::AtLeast { dim, bound } => Ok(dim.bind(bindings)? >= bound.bind(bindings)?),
        }
    }

    /// This condition in text, with `symbols` as the names of the symbols.
    pub fn display<'a>(&'a self, symbols: &'a [String]) -> impl fmt::Display + 'a {
        FromFn(move |f: &mut fmt::Formatter<'_>| match self {
            Guard::Divisible { dim, by } => write!(f, "{} % {by} == 0", dim.display(symbols)),
            Guard::AtLeast { dim, bound } => {
                write!(f, "{} >= {}", dim.display(symbols), bound.display(symbols))
            }
        })
    }
}

/// Values of symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bindings(Vec<Option<u64>>);

impl Bindings {
    /// No symbol has a value.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives `symbol` a value; an earlier one is replaced.
    pub fn set(&mut self, symbol: SymbolId, value: u64) {
        if self.0.len() <= symbol.index() {
            self.0.resize(symbol.index() + 1, None);
        }
        self.0[symbol.index()] = Some(value);
    }

    /// The same bindings with a value for `symbol`.
    #[must_use]
    pub fn with(mut self, symbol: SymbolId, value: u64) -> Self {
        self.set(symbol, value);
        self
    }

    /// The value of `symbol`.
    pub fn get(&self, symbol: SymbolId) -> Option<u64> {
        self.0.get(symbol.index()).copied().flatten()
    }
}

/// Sizes of a value, outermost first. Rank 0 is a scalar; a size may be 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape(SmallVec<[Dim; 4]>);

impl Shape {
    /// A shape of these sizes.
    pub fn new(dims: impl IntoIterator<Item = Dim>) -> Self {
        Self(dims.into_iter().collect())
    }

    /// A shape of known sizes.
    pub fn fixed(dims: &[u64]) -> Self {
        Self::new(dims.iter().copied().map(Dim::fixed))
    }

    /// The shape of rank 0, with one element.
    pub fn scalar() -> Self {
        Self(SmallVec::new())
    }

    /// The sizes, outermost first.
    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The sizes as numbers; `None` when one of them is a symbol.
    pub fn as_fixed(&self) -> Option<Vec<u64>> {
        self.0.iter().map(Dim::as_fixed).collect()
    }

    /// Number of elements; `None` when a size is a symbol or the product exceeds 64 bits.
    pub fn elements(&self) -> Option<u64> {
        let dims = self.as_fixed()?;
        if dims.contains(&0) {
            return Some(0);
        }
        dims.into_iter().try_fold(1u64, u64::checked_mul)
    }

    /// The sizes under `bindings`.
    pub fn bind(&self, bindings: &Bindings) -> Result<Shape, DimError> {
        self.0
            .iter()
            .map(|dim| dim.bind(bindings).map(Dim::fixed))
            .collect::<Result<_, _>>()
            .map(Shape)
    }

    /// The same shape with the size of dimension `dim` replaced.
    ///
    /// # Panics
    /// When `dim` is not below the rank.
    #[must_use]
    pub fn with_dim(mut self, dim: usize, size: Dim) -> Shape {
        self.0[dim] = size;
        self
    }

    /// This shape in text, with `symbols` as the names of the symbols.
    pub fn display<'a>(&'a self, symbols: &'a [String]) -> impl fmt::Display + 'a {
        FromFn(move |f: &mut fmt::Formatter<'_>| {
            f.write_str("[")?;
            for (index, dim) in self.0.iter().enumerate() {
                let separator = if index == 0 { "" } else { ", " };
                write!(f, "{separator}{}", dim.display(symbols))?;
            }
            f.write_str("]")
        })
    }
}

impl FromIterator<Dim> for Shape {
    fn from_iter<I: IntoIterator<Item = Dim>>(dims: I) -> Self {
        Self::new(dims)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Shape {
    /// Symbols appear as `s0`, `s1`, …; [`Shape::display`] uses their names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display(&[]).fmt(f)
    }
}

/// Displays by calling a function.
pub(crate) struct FromFn<F>(pub(crate) F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}
