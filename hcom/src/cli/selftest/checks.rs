//! The programs that are tried: one operation each, between casts, since all inputs and outputs are f32.

use hcom_ir::{Graph, Literal, parse};

/// One program, the same on all ranks.
pub(super) struct Check {
    pub(super) name: String,
    pub(super) graph: Graph,
}

impl Check {
    fn new(name: String, ranks: u32, inputs: &str, body: &[String]) -> Check {
        let world: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
        let text = format!(
            "hcom 1\ngroup @g = ranks({})\ngraph @check({inputs}) {{\n  {}\n  return %y\n}}\n",
            world.join(", "),
            body.join("\n  ")
        );
        let graph = parse(&text, &name)
            .unwrap_or_else(|mistakes| panic!("a built-in program is wrong: {mistakes}\n{text}"));
        Check { name, graph }
    }

    /// Small whole numbers, exact in every type; another for each rank, input and element.
    pub(super) fn inputs(&self, rank: u32) -> Vec<Literal> {
        let literal = |(index, input): (usize, &hcom_ir::Input)| {
            let ty = self.graph.ty(input.value);
            let shape = ty.shape.as_fixed().expect("sizes are fixed");
            let count = shape.iter().product::<u64>() as usize;
            let value = |at: usize| ((at * 3 + index * 5 + rank as usize * 7) % 11) as f32 - 3.0;
            let values: Vec<f32> = (0..count).map(value).collect();
            Literal::from_slice(&shape, &values).expect("the data has the size of its type")
        };
        self.graph
            .inputs()
            .iter()
            .enumerate()
            .map(literal)
            .collect()
    }
}

/// Types that collectives move; the chips reduce all but the last two.
const TYPES: [&str; 9] = ["f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "f64"];

/// Collectives that reduce; each rank gives two elements for each.
const REDUCTIONS: [&str; 5] = [
    "all_reduce %x, op = sum, group = @g",
    "all_reduce %x, op = max, group = @g",
    "all_reduce %x, op = min, group = @g",
    "reduce_scatter %x, op = sum, group = @g",
    "reduce %x, op = sum, root = 0, group = @g",
];

/// Collectives that only move data.
const MOVES: [&str; 4] = [
    "all_gather %x, group = @g",
    "all_to_all %x, group = @g",
    "broadcast %x, root = 0, group = @g",
    "scatter %x, root = 0, group = @g",
];

/// Operations of one rank, and the inputs they take.
const OPERATIONS: [(&str, &str); 38] = [
    ("%a: f32[3, 4]", "copy %a"),
    ("%a: f32[3, 4], %b: f32[4]", "add %a, %b"),
    ("%a: f32[3, 4], %b: f32[3, 1]", "sub %a, %b"),
    ("%a: f32[3, 4], %b: f32[3, 4]", "mul %a, %b"),
    ("%a: f32[3, 4], %b: f32[3, 4]", "div %a, %b"),
    ("%a: f32[3, 4], %b: f32[4]", "maximum %a, %b"),
    ("%a: f32[3, 4], %b: f32[4]", "minimum %a, %b"),
    ("%a: f32[3, 4]", "neg %a"),
    ("%a: f32[3, 4]", "abs %a"),
    ("%a: f32[3, 4]", "exp %a"),
    ("%a: f32[3, 4]", "tanh %a"),
    ("%a: f32[3, 4]", "sigmoid %a"),
    ("%a: f32[3, 4]", "relu %a"),
    ("%a: f32[3, 4]", "gelu %a"),
    ("%a: f32[3, 4]", "silu %a"),
    ("%a: f32[3, 4], %b: f32[4, 5]", "matmul %a, %b"),
    (
        "%a: f32[4, 3], %b: f32[5, 4]",
        "matmul %a, %b, transpose_a = true, transpose_b = true",
    ),
    ("%a: f32[2, 3, 4], %b: f32[4, 5]", "matmul %a, %b"),
    ("%a: f32[3, 4], %b: f32[4]", "bias_add %a, %b"),
    ("%a: f32[3, 4]", "softmax %a"),
    (
        "%a: f32[3, 4], %w: f32[4], %b: f32[4]",
        "layer_norm %a, %w, %b, eps = 0.001",
    ),
    ("%a: f32[3, 4], %w: f32[4]", "rms_norm %a, %w"),
    ("%a: f32[3, 4]", "reshape %a, shape = [2, 6]"),
    ("%a: f32[2, 3, 4]", "transpose %a, perm = [2, 0, 1]"),
    (
        "%a: f32[3, 8]",
        "slice %a, dim = 1, start = 1, end = 8, step = 3",
    ),
    ("%a: f32[3, 2], %b: f32[3, 3]", "concat %a, %b, dim = 1"),
    ("%a: f32[1, 4]", "expand %a, shape = [2, 3, 4]"),
    (
        "%a: f32[2, 3]",
        "pad %a, low = [1, 0], high = [0, 2], value = 0.5",
    ),
    ("%a: f32[2, 3, 4]", "sum %a, dims = [0, 2]"),
    ("%a: f32[2, 3]", "mean %a, dims = [1]"),
    ("%a: f32[2, 3]", "max %a, dims = [0]"),
    ("", "arange start = 0.5, end = 2.5, step = 0.5, dtype = f32"),
    ("", "fill shape = [2, 3], value = 7, dtype = f32"),
    ("%a: f32[4, 5]", "tril %a, diagonal = 1"),
    ("%a: f32[4, 5]", "triu %a, diagonal = -1"),
    (
        "%q: f32[2, 3, 4], %k: f32[2, 5, 4], %v: f32[2, 5, 6]",
        "attention %q, %k, %v, scale = 0.5",
    ),
    (
        "%q: f32[2, 3, 4], %k: f32[2, 5, 4], %v: f32[2, 5, 6]",
        "attention %q, %k, %v, scale = 0.5, causal = true",
    ),
    ("%a: f32[0, 4]", "exp %a"),
];

/// All checks of a job of so many ranks.
pub(super) fn all(ranks: u32) -> Vec<Check> {
    let operation = |(inputs, call): &(&str, &str)| {
        Check::new((*call).to_owned(), ranks, inputs, &[format!("%y = {call}")])
    };
    let count = 2 * ranks;
    let collective = |(call, dtype): (&str, &str)| {
        let body = [
            format!("%x = cast %a, to = {dtype}"),
            format!("%r = {call}"),
            "%y = cast %r, to = f32".to_owned(),
        ];
        let inputs = format!("%a: f32[{count}]");
        Check::new(format!("{call}, {dtype}"), ranks, &inputs, &body)
    };
    let barrier = [
        "%b = neg %a".to_owned(),
        "barrier group = @g".to_owned(),
        "%y = neg %b".to_owned(),
    ];
    let mut checks: Vec<Check> = OPERATIONS.iter().map(operation).collect();
    checks.push(Check::new(
        "barrier".to_owned(),
        ranks,
        "%a: f32[3]",
        &barrier,
    ));
    let of = |calls: &'static [&'static str], types: &'static [&'static str]| {
        let pairs = calls
            .iter()
            .flat_map(move |call| types.iter().map(move |dtype| (*call, *dtype)));
        pairs.map(collective)
    };
    checks.extend(of(&REDUCTIONS, &TYPES[..TYPES.len() - 2]));
    checks.extend(of(&MOVES, &TYPES));
    checks
}
