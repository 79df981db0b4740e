//! Attribute values, types, sizes and literals.

use std::sync::Arc;

use super::{Parsed, Parser};
use crate::arena::SymbolId;
use crate::diag::{Code, Diagnostic, closest};
use crate::literal::Literal;
use crate::op::attr::{Attr, ReduceOp};
use crate::op::{AttrKind, kind_name};
use crate::shape::{Dim, DimError, Guard, Shape};
use crate::text::lexer::{Spanned, Token, unescape};
use crate::text::{MAX_RANK, literal};
use crate::types::{DType, Type};

impl<'a> Parser<'a> {
    pub(super) fn result_types(&mut self) -> Parsed<Vec<Type>> {
        if self.accept("(") {
            self.list(")", Self::ty)
        } else {
            Ok(vec![self.ty()?])
        }
    }

    pub(super) fn guard(&mut self) -> Parsed<Guard> {
        let dim = self.dim(0)?;
        if self.accept(">=") {
            return Ok(Guard::AtLeast {
                dim,
                bound: self.dim(0)?,
            });
        }
        // Without a space the lexer takes `%2` for the name of a value.
        let by = match self.peek() {
            Token::Value(digits) => {
                let by = digits
                    .parse::<u64>()
                    .map_err(|_| self.unexpected("`% number == 0`"))?;
                self.at += 1;
                by
            }
            _ => {
                if !self.accept("%") {
                    return Err(self.unexpected("`% number == 0` or `>=`"));
                }
                self.unsigned::<u64>("a divisor")?
            }
        };
        if by == 0 {
            return Err(self.error(Code::Range, "a divisor is 0"));
        }
        self.expect("==")?;
        match self.peek() {
            Token::Int("0") => {
                self.at += 1;
                Ok(Guard::Divisible { dim, by })
            }
            _ => Err(self.unexpected("`0`")),
        }
    }

    /// The value of an attribute of this kind; of any kind when it is `None`.
    pub(super) fn value(&mut self, kind: Option<AttrKind>) -> Parsed<Attr> {
        let place = self.here();
        if let (Some(AttrKind::Choice(words)), Token::Ident(word)) = (kind, self.peek()) {
            if !words.contains(&word) {
                let diagnostic = self.unexpected(&kind_name(AttrKind::Choice(words)));
                return Err(match closest(word, words.iter().copied()) {
                    Some(meant) => diagnostic.help(format!("did you mean `{meant}`?")),
                    None => diagnostic,
                });
            }
            self.at += 1;
            return Ok(Attr::Text(word.into()));
        }
        match self.peek() {
            Token::Text(_) => Ok(Attr::Text(self.quoted()?.into())),
            Token::Group(name) => {
                self.at += 1;
                let group = self.groups.get(name).copied().ok_or_else(|| {
                    let diagnostic = self.error_at(
                        place,
                        Code::Unknown,
                        format!("group `@{name}` is not declared"),
                    );
                    match closest(name, self.groups.keys().copied()) {
                        Some(meant) => diagnostic.help(format!("did you mean `@{meant}`?")),
                        None => {
                            diagnostic.help(format!("declare it: `group @{name} = ranks(0, 1)`"))
                        }
                    }
                })?;
                Ok(Attr::Group(group))
            }
            Token::Punct("[") => {
                self.at += 1;
                self.value_list(kind)
            }
            Token::Ident(word) => self.word(word, kind),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &'a str, kind: Option<AttrKind>) -> Parsed<Attr> {
        if self.symbol_named(word).is_some() {
            return self.number();
        }
        let simple = match word {
            "true" | "false" => Some(Attr::Bool(word == "true")),
            "nan" => Some(Attr::Float(f64::NAN)),
            "inf" => Some(Attr::Float(f64::INFINITY)),
            _ => word.parse::<ReduceOp>().ok().map(Attr::Reduce),
        };
        if let Some(attr) = simple {
            self.at += 1;
            return Ok(attr);
        }
        if word.parse::<DType>().is_ok() {
            if self.peek_at(1) != Token::Punct("[") {
                self.at += 1;
                return Ok(Attr::DType(
                    word.parse()
                        .map_err(|_| self.unexpected("an element type"))?,
                ));
            }
            let ty = self.ty()?;
            let data = matches!(
                self.peek(),
                Token::Punct("[" | "(" | "-") | Token::Int(_) | Token::Float(_)
            ) || matches!(
                self.peek(),
                Token::Ident("hex" | "nan" | "inf" | "true" | "false")
            );
            return if data || kind == Some(AttrKind::Literal) {
                Ok(Attr::Literal(Arc::new(self.literal(ty)?)))
            } else {
                Ok(Attr::Type(Box::new(ty)))
            };
        }
        let expected = kind.map_or_else(|| "a value".to_owned(), kind_name);
        let mut diagnostic = self.unexpected(&expected);
        let meant = match kind {
            Some(AttrKind::Reduce) => closest(word, ReduceOp::ALL.iter().map(|op| op.name())),
            Some(AttrKind::DType | AttrKind::Type | AttrKind::Literal) => {
                closest(word, DType::ALL.iter().map(|dtype| dtype.name()))
            }
            Some(AttrKind::Dim | AttrKind::Dims | AttrKind::Number) => closest(
                word,
                self.builder.graph().symbols().iter().map(String::as_str),
            ),
            _ => None,
        };
        if let Some(meant) = meant {
            diagnostic = diagnostic.help(format!("did you mean `{meant}`?"));
        }
        Err(diagnostic)
    }

    /// An integer, a float or a size with symbols.
    fn number(&mut self) -> Parsed<Attr> {
        let place = self.here();
        let negative = self.is("-");
        let sign = if negative { "-" } else { "" };
        match self.peek_at(usize::from(negative)) {
            Token::Float(digits) => {
                self.at += usize::from(negative) + 1;
                let value = format!("{sign}{digits}").parse::<f64>();
                value
                    .map(Attr::Float)
                    .map_err(|_| self.error_at(place, Code::Syntax, "this is no number"))
            }
            Token::Ident("inf") if negative => {
                self.at += 2;
                Ok(Attr::Float(f64::NEG_INFINITY))
            }
            Token::Int(digits) => {
                let next = self.peek_at(usize::from(negative) + 1);
                if matches!(next, Token::Punct("*" | "+" | "-" | "/")) {
                    return self.dim(0).map(Attr::Dim);
                }
                self.at += usize::from(negative) + 1;
                if let Ok(value) = format!("{sign}{digits}").parse::<i64>() {
                    return Ok(Attr::Int(value));
                }
                match digits.parse::<u64>() {
                    Ok(value) if !negative => Ok(Attr::Dim(Dim::fixed(value))),
                    _ => Err(self.error_at(
                        place,
                        Code::Range,
                        "the integer does not fit in 64 bits",
                    )),
                }
            }
            Token::Ident(name) if self.symbol_named(name).is_some() => self.dim(0).map(Attr::Dim),
            Token::Punct("(") => self.dim(0).map(Attr::Dim),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn value_list(&mut self, kind: Option<AttrKind>) -> Parsed<Attr> {
        let is_type = matches!(self.peek(), Token::Ident(word) if word.parse::<DType>().is_ok());
        if is_type {
            return self.list("]", Self::ty).map(Attr::Types);
        }
        let place = self.here();
        let items = self.list("]", |parser| {
            let item = parser.here();
            let value = match parser.peek() {
                Token::Ident(word) => parser.word(word, kind),
                _ => parser.number(),
            };
            match value? {
                value @ (Attr::Int(_) | Attr::Dim(_)) => Ok(value),
                _ => Err(parser.error_at(
                    item,
                    Code::Attribute,
                    "a list holds integers or sizes only",
                )),
            }
        })?;
        let ints = |item: &Attr| {
            if let Attr::Int(value) = item {
                Some(*value)
            } else {
                None
            }
        };
        if let Some(ints) = items.iter().map(ints).collect::<Option<Vec<i64>>>() {
            return Ok(Attr::Ints(ints));
        }
        let dims = items.into_iter().map(|item| match item {
            Attr::Dim(dim) => Some(dim),
            Attr::Int(value) => u64::try_from(value).ok().map(Dim::fixed),
            _ => None,
        });
        let dims: Option<Vec<Dim>> = dims.collect();
        let dims = dims
            .ok_or_else(|| self.error_at(place, Code::Range, "a size in the list is negative"))?;
        Ok(Attr::Dims(dims))
    }

    pub(super) fn quoted(&mut self) -> Parsed<String> {
        let Token::Text(text) = self.peek() else {
            return Err(self.unexpected("quoted text"));
        };
        let text = unescape(text)
            .ok_or_else(|| self.error(Code::Syntax, "the text has an unknown escape"))?;
        self.at += 1;
        Ok(text)
    }

    pub(super) fn unsigned<T: std::str::FromStr>(&mut self, expected: &str) -> Parsed<T> {
        let Token::Int(digits) = self.peek() else {
            return Err(self.unexpected(expected));
        };
        let value = digits.parse().map_err(|_| {
            self.error(Code::Range, format!("{digits} is too large for {expected}"))
        })?;
        self.at += 1;
        Ok(value)
    }

    pub(super) fn ty(&mut self) -> Parsed<Type> {
        let place = self.here();
        let word = self.ident("a type such as `f32[2, 3]`")?;
        let dtype = word.parse::<DType>().map_err(|error| {
            let diagnostic = self.error_at(place, Code::Syntax, error.to_string());
            match closest(word, DType::ALL.iter().map(|dtype| dtype.name())) {
                Some(meant) => diagnostic.help(format!("did you mean `{meant}`?")),
                None => diagnostic,
            }
        })?;
        self.expect("[")?;
        let dims = self.list("]", |parser| parser.dim(0))?;
        if dims.len() > MAX_RANK {
            return Err(self
                .error_at(place, Code::TooLarge, "a type has too many dimensions")
                .expected(format!("at most {MAX_RANK}"))
                .got(dims.len()));
        }
        let ty = Type::new(dtype, Shape::new(dims));
        if ty.shape.as_fixed().is_some() && ty.bytes().is_none() {
            return Err(self
                .error_at(place, Code::TooLarge, "a type is too large")
                .expected("less than 2^64 bytes"));
        }
        Ok(ty)
    }

    fn symbol_named(&self, name: &str) -> Option<SymbolId> {
        self.builder.graph().symbol(name)
    }

    /// A sum of products, with exact division by a number.
    fn dim(&mut self, depth: usize) -> Parsed<Dim> {
        let place = self.here();
        let mut sum = Dim::fixed(0);
        let mut negative = self.accept("-");
        loop {
            let term = self.dim_product(depth)?;
            let next = if negative {
                sum.sub(&term)
            } else {
                sum.add(&term)
            };
            sum = next.map_err(|error| self.dim_error(place, error))?;
            negative = match self.peek() {
                Token::Punct("+") => false,
                Token::Punct("-") => true,
                _ => return Ok(sum),
            };
            self.at += 1;
        }
    }

    fn dim_product(&mut self, depth: usize) -> Parsed<Dim> {
        let place = self.here();
        let mut product = self.dim_factor(depth)?;
        loop {
            if self.accept("*") {
                let factor = self.dim_factor(depth)?;
                product = product
                    .product(&factor)
                    .map_err(|error| self.dim_error(place, error))?;
            } else if self.accept("/") {
                let by = self.unsigned::<u64>("a divisor")?;
                product = product
                    .div(by)
                    .map_err(|error| self.dim_error(place, error))?
                    .0;
            } else {
                return Ok(product);
            }
        }
    }

    fn dim_factor(&mut self, depth: usize) -> Parsed<Dim> {
        match self.peek() {
            Token::Int(_) => self.unsigned::<u64>("a size").map(Dim::fixed),
            Token::Ident(name) => {
                let Some(symbol) = self.symbol_named(name) else {
                    let diagnostic =
                        self.error(Code::Unknown, format!("symbol `{name}` is not declared"));
                    let symbols = self.builder.graph().symbols().iter().map(String::as_str);
                    return Err(match closest(name, symbols) {
                        Some(meant) => diagnostic.help(format!("did you mean `{meant}`?")),
                        None => diagnostic.help(format!(
                            "declare it after the name of the graph: `graph @name[{name}](…)`"
                        )),
                    });
                };
                self.at += 1;
                Ok(Dim::symbol(symbol))
            }
            Token::Punct("(") if depth < MAX_RANK => {
                self.at += 1;
                let dim = self.dim(depth + 1)?;
                self.expect(")")?;
                Ok(dim)
            }
            _ => Err(self.unexpected("a size")),
        }
    }

    fn literal(&mut self, ty: Type) -> Parsed<Literal> {
        let place = self.here();
        let Some(shape) = ty.shape.as_fixed() else {
            return Err(self.error(Code::Attribute, "the type of a literal has a symbol"));
        };
        let mut bytes = Vec::new();
        if self.peek() == Token::Ident("hex") {
            self.at += 1;
            let Token::Text(text) = self.peek() else {
                return Err(self.unexpected("bytes in hexadecimal, such as `hex \"0000803f\"`"));
            };
            bytes = literal::read_hex(text).ok_or_else(|| {
                self.error(Code::Syntax, "the text is not pairs of hexadecimal digits")
            })?;
            self.at += 1;
        } else {
            self.nested(ty.dtype, &shape, &mut bytes)?;
        }
        Literal::new(ty.dtype, shape, bytes)
            .map_err(|diagnostic| diagnostic.at(Some(self.location(place))))
    }

    fn nested(&mut self, dtype: DType, shape: &[u64], bytes: &mut Vec<u8>) -> Parsed<()> {
        let Some((&size, inner)) = shape.split_first() else {
            return self.element(dtype, bytes);
        };
        let place = self.here();
        self.expect("[")?;
        let items = self.list("]", |parser| parser.nested(dtype, inner, bytes))?;
        if items.len() as u64 == size {
            return Ok(());
        }
        Err(self
            .error_at(
                place,
                Code::Attribute,
                "a list of the literal does not fit its type",
            )
            .expected(format!("{size} entries"))
            .got(format!("{} entries", items.len())))
    }

    fn element(&mut self, dtype: DType, bytes: &mut Vec<u8>) -> Parsed<()> {
        if dtype.is_complex() {
            self.expect("(")?;
            self.part(dtype, bytes)?;
            self.expect(",")?;
            self.part(dtype, bytes)?;
            return self.expect(")");
        }
        self.part(dtype, bytes)
    }

    fn part(&mut self, dtype: DType, bytes: &mut Vec<u8>) -> Parsed<()> {
        let place = self.here();
        let sign = if self.accept("-") { "-" } else { "" };
        let digits = match self.peek() {
            Token::Int(digits) | Token::Float(digits) => digits,
            Token::Ident(word @ ("nan" | "inf" | "true" | "false")) => word,
            _ => return Err(self.unexpected(&format!("a value of {dtype}"))),
        };
        self.at += 1;
        literal::read_element(dtype, &format!("{sign}{digits}"), bytes).ok_or_else(|| {
            self.error_at(
                place,
                Code::Range,
                format!("{sign}{digits} is no value of {dtype}"),
            )
        })
    }

    fn dim_error(&self, place: Spanned<'a>, error: DimError) -> Diagnostic {
        let code = if error == DimError::Overflow {
            Code::TooLarge
        } else {
            Code::Shape
        };
        self.error_at(place, code, format!("a size: {error}"))
    }
}
