//! Tests of the crate through its public interface, most of them text to text.

mod agreement;
mod building;
mod cost;
mod fuzzed;
mod generated;
mod messages;
mod numbers;
mod ranks;
mod text;
mod topology;
mod typing;
mod views;

use hcom_ir::{Attrs, Builder, Graph, Literal, Op, interpret, parse};

/// A graph, or a failed test that shows the report.
fn graph(text: &str) -> Graph {
    parse(text, "test.hcom").unwrap_or_else(|found| panic!("{}", found.render(Some(text))))
}

/// A literal in text, such as `f32[2] [1, 2]`.
fn literal(text: &str) -> Literal {
    let text = format!("hcom 1\ngraph @l() {{\n %a = constant value = {text}\n return %a\n}}");
    let (_, node) = graph(&text)
        .nodes()
        .next()
        .map(|(id, node)| (id, node.clone()))
        .expect("one node");
    (**node.attrs.literal("value")).clone()
}

/// The text of a literal.
fn show(literal: &Literal) -> String {
    let mut builder = Builder::new("l");
    let attrs = Attrs::new().with("value", literal.clone());
    let value = builder
        .one(Op::Constant, &[], attrs)
        .expect("a valid literal");
    let graph = builder
        .finish(vec![("y".to_owned(), value)])
        .expect("a graph");
    let text = graph.to_string();
    let line = text.lines().find_map(|line| line.split_once("value = "));
    line.expect("a constant").1.to_owned()
}

/// Runs `statements` on one rank, with the constants named `%a`, `%b`, … before them, and shows what
/// `%y` is; or shows the first message.
fn calculate(constants: &[&str], statements: &str) -> String {
    let mut text = "hcom 1\ngroup @one = ranks(0)\ngraph @t() {\n".to_owned();
    for (name, constant) in ('a'..).zip(constants) {
        text += &format!("  %{name} = constant value = {constant}\n");
    }
    text += &format!("  {statements}\n  return %y\n}}\n");
    match parse(&text, "t") {
        Err(found) => found.0[0].message.to_string(),
        Ok(graph) => match interpret(&[graph], &[Vec::new()]) {
            Ok(ranks) => show(&ranks[0].outputs[0]),
            Err(error) => error.to_string(),
        },
    }
}
