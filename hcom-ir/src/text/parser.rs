//! Text to graphs.

mod value;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::is_reserved;
use super::lexer::{Spanned, Token, tokens};
use crate::arena::{GroupId, ValueId};
use crate::builder::Builder;
use crate::diag::{Code, Diagnostic, Diagnostics, Location, closest};
use crate::graph::Graph;
use crate::group::Group;
use crate::op::attr::Attrs;
use crate::op::{Op, info};
use crate::types::Type;

/// Reads a graph in text form; `file` is its name in messages and locations.
///
/// Reports every mistake it can tell apart, each with line and column. Never panics.
///
/// ```
/// let text = "hcom 1\ngraph @twice(%x: f32[2]) -> f32[2] {\n  %y = add %x, %x\n  return %y\n}\n";
/// let graph = hcom_ir::parse(text, "twice.hcom")?;
/// assert_eq!(graph.to_string(), text);
/// # Ok::<(), hcom_ir::Diagnostics>(())
/// ```
pub fn parse(source: &str, file: &str) -> Result<Graph, Diagnostics> {
    let mut parser = Parser {
        tokens: tokens(source),
        at: 0,
        file: file.into(),
        builder: Builder::new(""),
        groups: FxHashMap::default(),
        values: FxHashMap::default(),
        found: Diagnostics::default(),
    };
    parser.graph()
}

type Parsed<T> = Result<T, Diagnostic>;

struct Parser<'a> {
    tokens: Vec<Spanned<'a>>,
    at: usize,
    file: Arc<str>,
    builder: Builder,
    /// Declared groups. Those of equal ranks share an id.
    groups: FxHashMap<&'a str, GroupId>,
    /// Names defined so far; `None` when the definition is wrong and reported already.
    values: FxHashMap<&'a str, Option<ValueId>>,
    found: Diagnostics,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Token<'a> {
        self.tokens
            .get(self.at + ahead)
            .map_or(Token::End, |spanned| spanned.token)
    }

    /// The token to be read next; the last one is [`Token::End`] and never passed.
    fn here(&self) -> Spanned<'a> {
        self.tokens[self.at]
    }

    fn advance(&mut self) -> Token<'a> {
        let token = self.peek();
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    fn location(&self, place: Spanned<'a>) -> Location {
        Location {
            file: self.file.clone(),
            line: place.line,
            column: place.column,
        }
    }

    fn error_at(&self, place: Spanned<'a>, code: Code, message: impl Into<Box<str>>) -> Diagnostic {
        Diagnostic::new(code, message).at(Some(self.location(place)))
    }

    fn error(&self, code: Code, message: impl Into<Box<str>>) -> Diagnostic {
        self.error_at(self.here(), code, message)
    }

    fn unexpected(&self, expected: &str) -> Diagnostic {
        let token = self.peek();
        let diagnostic = self.error(Code::Syntax, format!("expected {expected}, found {token}"));
        match token {
            Token::Bad(text) if text.starts_with('"') => {
                diagnostic.help("the quotation does not end on its line")
            }
            _ => diagnostic,
        }
    }

    fn is(&self, punct: &str) -> bool {
        matches!(self.peek(), Token::Punct(found) if found == punct)
    }

    fn accept(&mut self, punct: &str) -> bool {
        let found = self.is(punct);
        if found {
            self.at += 1;
        }
        found
    }

    fn expect(&mut self, punct: &str) -> Parsed<()> {
        if self.accept(punct) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("`{punct}`")))
        }
    }

    fn ident(&mut self, expected: &str) -> Parsed<&'a str> {
        match self.peek() {
            Token::Ident(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    fn keyword(&mut self, word: &str) -> Parsed<()> {
        if self.peek() == Token::Ident(word) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected(&format!("`{word}`")))
    }

    /// Items separated by commas up to `close`, which is read too.
    fn list<T>(
        &mut self,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.accept(close) {
            if !items.is_empty() {
                if !self.accept(",") {
                    return Err(self.unexpected(&format!("`,` or `{close}`")));
                }
                if self.accept(close) {
                    break;
                }
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn graph(&mut self) -> Result<Graph, Diagnostics> {
        let header = self.header();
        let outputs = match header {
            Ok(declared) => self.body(declared),
            Err(diagnostic) => {
                self.found.0.push(diagnostic);
                Vec::new()
            }
        };
        let found = std::mem::take(&mut self.found);
        if !found.0.is_empty() {
            return Err(found);
        }
        let builder = std::mem::replace(&mut self.builder, Builder::new(""));
        builder.finish(outputs)
    }

    /// Everything up to the opening brace. Returns the declared result types.
    fn header(&mut self) -> Parsed<Option<Vec<Type>>> {
        let start = self.here();
        if self.keyword("hcom").is_err() {
            return Err(self
                .error_at(
                    start,
                    Code::Syntax,
                    format!("expected the version line, found {}", start.token),
                )
                .expected("hcom 1")
                .help("start the text with `hcom 1`"));
        }
        let version = self.here();
        match self.advance() {
            Token::Int("1") => {}
            token => {
                return Err(self
                    .error_at(
                        version,
                        Code::Syntax,
                        format!("version {token} is not supported"),
                    )
                    .expected("hcom 1"));
            }
        }
        while self.peek() == Token::Ident("group") {
            self.declare_group()?;
        }
        if self.peek() != Token::Ident("graph") {
            return Err(self.unexpected("`group` or `graph`"));
        }
        self.at += 1;
        let name = match self.peek() {
            Token::Group(name) => name,
            _ => return Err(self.unexpected("the name of the graph, such as `@main`")),
        };
        self.at += 1;
        self.builder.set_name(name);
        if self.accept("[") {
            self.list("]", Self::declare_symbol)?;
        }
        self.expect("(")?;
        self.list(")", Self::declare_input)?;
        let declared = if self.accept("->") {
            Some(self.result_types()?)
        } else {
            None
        };
        if self.peek() == Token::Ident("where") {
            self.at += 1;
            loop {
                let guard = self.guard()?;
                self.builder.guard(guard);
                if !self.accept(",") {
                    break;
                }
            }
        }
        self.expect("{")?;
        Ok(declared)
    }

    fn declare_group(&mut self) -> Parsed<()> {
        self.keyword("group")?;
        let place = self.here();
        let Token::Group(name) = self.advance() else {
            return Err(self.error_at(
                place,
                Code::Syntax,
                format!("expected a group such as `@tp`, found {}", place.token),
            ));
        };
        self.expect("=")?;
        self.keyword("ranks")?;
        self.expect("(")?;
        let ranks = self.list(")", |parser| parser.unsigned::<u32>("a rank"))?;
        if self.groups.contains_key(name) {
            return Err(self.error_at(
                place,
                Code::Duplicate,
                format!("group `@{name}` is declared twice"),
            ));
        }
        let group = Group::new(name, ranks);
        let rules = crate::valid::groups::check(&group);
        rules.map_err(|diagnostic| diagnostic.at(Some(self.location(place))))?;
        let id = self.builder.group(group);
        self.groups.insert(name, id);
        Ok(())
    }

    fn declare_symbol(&mut self) -> Parsed<()> {
        let place = self.here();
        let name = self.ident("the name of a symbol")?;
        if is_reserved(name) {
            return Err(self.error_at(
                place,
                Code::Syntax,
                format!("`{name}` cannot be the name of a symbol"),
            ));
        }
        if self.builder.graph().symbol(name).is_some() {
            return Err(self.error_at(
                place,
                Code::Duplicate,
                format!("symbol `{name}` is declared twice"),
            ));
        }
        self.builder.symbol(name);
        Ok(())
    }

    fn declare_input(&mut self) -> Parsed<()> {
        let place = self.here();
        let Token::Value(name) = self.advance() else {
            return Err(self.error_at(
                place,
                Code::Syntax,
                format!(
                    "expected an input such as `%x: f32[2]`, found {}",
                    place.token
                ),
            ));
        };
        if self.values.contains_key(name) {
            return Err(self.error_at(
                place,
                Code::Duplicate,
                format!("input `%{name}` is declared twice"),
            ));
        }
        self.expect(":")?;
        let mutable = self.peek() == Token::Ident("mut");
        self.at += usize::from(mutable);
        let ty = self.ty()?;
        let value = self.builder.input(name, ty, mutable);
        self.values.insert(name, Some(value));
        Ok(())
    }

    /// Statements up to the closing brace, and the check of what is returned.
    fn body(&mut self, declared: Option<Vec<Type>>) -> Vec<(String, ValueId)> {
        let mut outputs = Vec::new();
        let mut closed = false;
        while self.peek() != Token::End {
            if self.accept("}") {
                closed = true;
                break;
            }
            let (start, line) = (self.at, self.here().line);
            let result = if self.peek() == Token::Ident("return") {
                self.outputs().map(|found| outputs = found)
            } else {
                self.statement()
            };
            if let Err(diagnostic) = result {
                self.found.0.push(diagnostic);
                self.skip_statement(start, line);
            }
        }
        if !closed {
            let diagnostic = self.unexpected("`}`");
            self.found.0.push(diagnostic);
        } else if self.peek() != Token::End {
            let diagnostic = self.unexpected("the end of the text");
            self.found.0.push(diagnostic);
        }
        if self.found.0.is_empty() {
            self.check_declared(declared, &outputs);
        }
        outputs
    }

    fn check_declared(&mut self, declared: Option<Vec<Type>>, outputs: &[(String, ValueId)]) {
        let Some(declared) = declared else { return };
        let symbols = self.builder.graph().symbols();
        let show = |types: &mut dyn Iterator<Item = &Type>| {
            let types: Vec<String> = types.map(|ty| ty.display(symbols).to_string()).collect();
            format!("({})", types.join(", "))
        };
        if !declared
            .iter()
            .eq(outputs.iter().map(|(_, value)| self.builder.ty(*value)))
        {
            let diagnostic =
                Diagnostic::new(Code::Type, "the graph does not return what it declares")
                    .at(Some(Location {
                        file: self.file.clone(),
                        line: self.tokens[self.at.saturating_sub(1)].line,
                        column: 1,
                    }))
                    .expected(show(&mut declared.iter()))
                    .got(show(
                        &mut outputs.iter().map(|(_, value)| self.builder.ty(*value)),
                    ));
            self.found.0.push(diagnostic);
        }
    }

    /// Continues at the first token on a later line than the faulty statement began. The results of
    /// the statement count as defined, so that their uses are not reported too.
    fn skip_statement(&mut self, start: usize, line: u32) {
        let mut at = start;
        while let Some(Spanned {
            token: Token::Value(name),
            ..
        }) = self.tokens.get(at)
        {
            self.values.entry(name).or_insert(None);
            at += 1;
            if self.tokens.get(at).map(|spanned| spanned.token) != Some(Token::Punct(",")) {
                break;
            }
            at += 1;
        }
        self.at = self.at.max(start + 1).min(self.tokens.len() - 1);
        while self.peek() != Token::End && self.here().line == line && !self.is("}") {
            self.at += 1;
        }
    }

    fn outputs(&mut self) -> Parsed<Vec<(String, ValueId)>> {
        self.keyword("return")?;
        let mut outputs = Vec::new();
        let mut wrong = false;
        loop {
            let name = match self.peek() {
                Token::Ident(name) => {
                    self.at += 1;
                    Some(name.to_owned())
                }
                Token::Text(_) => Some(self.quoted()?),
                _ => None,
            };
            if name.is_some() {
                self.expect("=")?;
            }
            let place = self.here();
            let Token::Value(value_name) = self.peek() else {
                return Err(self.unexpected("a value to return"));
            };
            self.at += 1;
            match self.lookup(value_name, place)? {
                Some(value) => outputs.push((name.unwrap_or_else(|| value_name.to_owned()), value)),
                None => wrong = true,
            }
            if !self.accept(",") {
                break;
            }
        }
        debug_assert!(
            !wrong || !self.found.0.is_empty(),
            "a value is unusable only after a report"
        );
        if !self.is("}") {
            return Err(self.unexpected("`}` after `return`"));
        }
        Ok(outputs)
    }

    /// The value of this name; `None` when its definition is wrong.
    fn lookup(&self, name: &str, place: Spanned<'a>) -> Parsed<Option<ValueId>> {
        self.values.get(name).copied().ok_or_else(|| {
            let diagnostic =
                self.error_at(place, Code::Unknown, format!("`%{name}` is not defined"));
            match closest(name, self.values.keys().copied()) {
                Some(meant) => diagnostic.help(format!("did you mean `%{meant}`?")),
                None => diagnostic.help("a value is defined before its first use"),
            }
        })
    }

    fn statement(&mut self) -> Parsed<()> {
        let start = self.here();
        let mut names: Vec<(&'a str, Spanned<'a>)> = Vec::new();
        while let Token::Value(name) = self.peek() {
            names.push((name, self.here()));
            self.at += 1;
            if !self.accept(",") {
                break;
            }
        }
        if !names.is_empty() {
            self.expect("=")?;
        }
        let place = self.here();
        let mnemonic = self.ident("an operation")?;
        let op = mnemonic.parse::<Op>().map_err(|_| {
            let diagnostic = self.error_at(
                place,
                Code::UnknownOp,
                format!("there is no operation `{mnemonic}`"),
            );
            match closest(mnemonic, Op::ALL.iter().map(|op| op.name())) {
                Some(meant) => diagnostic.help(format!("did you mean `{meant}`?")),
                None => diagnostic.help("opaque work is written `custom \"name\"(…)`"),
            }
        })?;
        let mut operands = Vec::new();
        let mut attrs = Attrs::new();
        if op == Op::Custom {
            self.custom(&mut operands, &mut attrs)?;
        } else {
            self.arguments(op, &mut operands, &mut attrs)?;
        }
        for (index, &(name, place)) in names.iter().enumerate() {
            let earlier = names[..index].iter().any(|(other, _)| *other == name);
            if earlier || self.values.contains_key(name) {
                return Err(self
                    .error_at(
                        place,
                        Code::Duplicate,
                        format!("`%{name}` is defined twice"),
                    )
                    .help("a value is assigned once; choose another name"));
            }
        }
        // An operand whose definition is wrong makes the results unusable without another report.
        let usable: Option<Vec<ValueId>> = operands.into_iter().collect();
        let Some(operands) = usable else {
            self.values
                .extend(names.iter().map(|(name, _)| (*name, None)));
            return Ok(());
        };
        self.builder.set_location(Some(self.location(start)));
        let texts: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        let results = self.builder.push_named(op, &operands, attrs, &texts)?;
        self.values
            .extend(texts.iter().copied().zip(results.iter().copied().map(Some)));
        if results.len() != names.len() {
            self.values
                .extend(texts.iter().skip(results.len()).map(|name| (*name, None)));
            let diagnostic = self
                .error_at(
                    start,
                    Code::Arity,
                    format!("`{op}` has another number of results than are named"),
                )
                .expected(format!("{} names", results.len()))
                .got(format!("{} names", names.len()));
            self.found.0.push(diagnostic);
        }
        Ok(())
    }

    /// `type, %a, %b, attr = value` in any order that is sensible.
    fn arguments(
        &mut self,
        op: Op,
        operands: &mut Vec<Option<ValueId>>,
        attrs: &mut Attrs,
    ) -> Parsed<()> {
        let mut more = matches!(self.peek(), Token::Value(_)) && !self.starts_statement()
            || matches!(self.peek(), Token::Ident(_)) && self.peek_at(1) == Token::Punct("=");
        if info(op).attr("type").is_some() {
            attrs.set("type", self.ty()?);
            more = self.accept(",");
        }
        while more {
            self.argument(Some(op), operands, attrs)?;
            more = self.accept(",");
        }
        Ok(())
    }

    /// Whether the value here is the result of a next statement rather than an operand.
    fn starts_statement(&self) -> bool {
        self.peek_at(1) == Token::Punct("=")
    }

    fn custom(&mut self, operands: &mut Vec<Option<ValueId>>, attrs: &mut Attrs) -> Parsed<()> {
        attrs.set("name", self.quoted()?);
        self.expect("(")?;
        self.list(")", |parser| parser.argument(None, operands, attrs))?;
        let types = if self.accept("->") {
            self.result_types()?
        } else {
            Vec::new()
        };
        attrs.set("types", types);
        Ok(())
    }

    fn argument(
        &mut self,
        op: Option<Op>,
        operands: &mut Vec<Option<ValueId>>,
        attrs: &mut Attrs,
    ) -> Parsed<()> {
        let place = self.here();
        match self.peek() {
            Token::Value(name) => {
                self.at += 1;
                operands.push(self.lookup(name, place)?);
                Ok(())
            }
            Token::Ident(name) => {
                self.at += 1;
                if attrs.get(name).is_some() {
                    return Err(self.error_at(
                        place,
                        Code::Duplicate,
                        format!("attribute `{name}` is written twice"),
                    ));
                }
                self.expect("=")?;
                let kind = op.and_then(|op| info(op).attr(name)).map(|spec| spec.kind);
                let value = self.value(kind)?;
                attrs.set(name.to_owned(), value);
                Ok(())
            }
            _ => Err(self.unexpected("an operand or an attribute")),
        }
    }
}
