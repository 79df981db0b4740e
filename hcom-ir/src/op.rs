//! The one table of operations: names, operands, attributes, type rules and work.
//!
//! Text, builder, validator, interpreter, lowering and cost model read the table through
//! [`info`]; nothing else lists operations. The type rules are in [`infer`](crate::infer), the
//! formulas of work in [`Work`].

pub(crate) mod attr;
mod complete;
pub(crate) mod infer;
pub(crate) mod work;

use std::fmt;
use std::str::FromStr;

use crate::diag::Diagnostic;
use crate::op::infer::{Inferred, Site};
use crate::op::work::{Job, Work};

pub use complete::complete;
pub(crate) use complete::{fallback, is_identifier, kind_name};

/// What kind of thing an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Makes a value out of attributes alone.
    Source,
    /// Computes new data.
    Compute,
    /// Yields the elements of its operand in the same order: no data need move.
    View,
    /// All ranks of a group take part, in the order of the group's sequence.
    Collective,
    /// Two ranks of a group take part.
    PointToPoint,
    /// All ranks of a group wait for each other; no data.
    Barrier,
    /// Opaque work.
    Custom,
    /// Writes an input of the graph.
    Write,
}

/// The operands an operation takes.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// Names for messages; the last one stands for all further operands of a variadic operation.
    pub names: &'static [&'static str],
    /// How many must be there.
    pub required: usize,
    /// Whether any number may follow.
    pub variadic: bool,
}

impl Operands {
    const fn exactly(names: &'static [&'static str]) -> Self {
        Self {
            names,
            required: names.len(),
            variadic: false,
        }
    }

    const fn optional_last(names: &'static [&'static str]) -> Self {
        Self {
            names,
            required: names.len() - 1,
            variadic: false,
        }
    }

    const fn variadic(names: &'static [&'static str], required: usize) -> Self {
        Self {
            names,
            required,
            variadic: true,
        }
    }

    /// Whether `count` operands are right.
    pub const fn accepts(&self, count: usize) -> bool {
        count >= self.required && (self.variadic || count <= self.names.len())
    }
}

/// The kind of value an attribute takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrKind {
    /// `true` or `false`.
    Bool,
    /// An integer.
    Int,
    /// A float; an integer is taken as one.
    Float,
    /// An integer, a float or a size.
    Number,
    /// Quoted text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An element type.
    DType,
    /// A size.
    Dim,
    /// A list of sizes.
    Dims,
    /// A list of integers.
    Ints,
    /// A reduction.
    Reduce,
    /// A group.
    Group,
    /// Constant data.
    Literal,
    /// A type, written after the mnemonic.
    Type,
    /// A list of types, written after the operands.
    Types,
}

/// What an attribute is when it is not written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fallback {
    /// It must be written.
    Required,
    /// It is absent, which means something of its own.
    Absent,
    /// This boolean.
    Bool(bool),
    /// This integer.
    Int(i64),
    /// This float.
    Float(f64),
    /// This word.
    Text(&'static str),
}

/// One attribute of an operation.
#[derive(Clone, Copy, Debug)]
pub struct AttrSpec {
    /// Name in text.
    pub name: &'static str,
    /// Kind of value.
    pub kind: AttrKind,
    /// Value when not written.
    pub fallback: Fallback,
}

const fn required(name: &'static str, kind: AttrKind) -> AttrSpec {
    AttrSpec {
        name,
        kind,
        fallback: Fallback::Required,
    }
}

const fn optional(name: &'static str, kind: AttrKind) -> AttrSpec {
    AttrSpec {
        name,
        kind,
        fallback: Fallback::Absent,
    }
}

const fn flag(name: &'static str) -> AttrSpec {
    AttrSpec {
        name,
        kind: AttrKind::Bool,
        fallback: Fallback::Bool(false),
    }
}

const fn int(name: &'static str, fallback: i64) -> AttrSpec {
    AttrSpec {
        name,
        kind: AttrKind::Int,
        fallback: Fallback::Int(fallback),
    }
}

const fn float(name: &'static str, fallback: f64) -> AttrSpec {
    AttrSpec {
        name,
        kind: AttrKind::Float,
        fallback: Fallback::Float(fallback),
    }
}

const GROUP: AttrSpec = required("group", AttrKind::Group);
const REDUCE: AttrSpec = required("op", AttrKind::Reduce);
const FACTOR: AttrSpec = optional("factor", AttrKind::Float);
const ROOT: AttrSpec = required("root", AttrKind::Int);
const PEER: AttrSpec = required("peer", AttrKind::Int);
const TAG: AttrSpec = int("tag", 0);
const DIM: AttrSpec = required("dim", AttrKind::Int);
const DIM0: AttrSpec = int("dim", 0);
const DIMS: AttrSpec = required("dims", AttrKind::Ints);
const KEEPDIM: AttrSpec = flag("keepdim");
const SHAPE: AttrSpec = required("shape", AttrKind::Dims);
const DTYPE: AttrSpec = required("dtype", AttrKind::DType);
const COUNTS: AttrSpec = required("counts", AttrKind::Dims);
const GELU: AttrSpec = AttrSpec {
    name: "approximate",
    kind: AttrKind::Choice(&["none", "tanh"]),
    fallback: Fallback::Text("none"),
};

const NONE: Operands = Operands::exactly(&[]);
const UNARY: Operands = Operands::exactly(&["x"]);
const BINARY: Operands = Operands::exactly(&["a", "b"]);

/// Everything known about one operation.
#[derive(Debug)]
pub struct OpInfo {
    /// The operation.
    pub op: Op,
    /// The mnemonic in text.
    pub name: &'static str,
    /// What kind of thing it is.
    pub class: Class,
    /// Its operands.
    pub operands: Operands,
    /// Its attributes, in the order in which they are printed.
    pub attrs: &'static [AttrSpec],
    /// Result types from operand types and complete attributes.
    pub infer: fn(&Site<'_>) -> Result<Inferred, Diagnostic>,
    /// Arithmetic and traffic of one execution with fixed shapes.
    pub work: fn(&Job<'_>) -> Work,
}

impl OpInfo {
    /// The specification of the attribute `name`.
    pub fn attr(&self, name: &str) -> Option<&'static AttrSpec> {
        self.attrs.iter().find(|spec| spec.name == name)
    }
}

macro_rules! table {
    ($($(#[$doc:meta])* $op:ident = $name:literal, $class:ident, $operands:expr, [$($attr:expr),*], $infer:ident, $work:ident;)*) => {
        /// An operation. The variants are documented with their text form; attributes in
        /// parentheses have a default.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Op { $($(#[$doc])* $op,)* }

        impl Op {
            /// Every operation, in declaration order.
            pub const ALL: &'static [Op] = &[$(Op::$op,)*];
        }

        static TABLE: &[OpInfo] = &[$(OpInfo {
            op: Op::$op,
            name: $name,
            class: Class::$class,
            operands: $operands,
            attrs: &[$($attr),*],
            infer: infer::$infer,
            work: work::$work,
        },)*];
    };
}

table! {
    /// `constant value = f32[2] [1.0, 2.0]`.
    Constant = "constant", Source, NONE, [required("value", AttrKind::Literal)], constant, source;
    /// `copy %x`: the same value in memory of its own.
    Copy = "copy", Compute, UNARY, [], same, movement;
    /// `copy_to_input %value, %input`: the input of the caller becomes the value when the graph
    /// ends. The name `%input` keeps meaning the value at the start; nothing may read it later in
    /// the program, and an input is written at most once.
    CopyToInput = "copy_to_input", Write, Operands::exactly(&["value", "input"]), [], copy_to_input, movement;
    /// `cast %x, to = bf16`: to the nearest value, ties to even; float to integer truncates and
    /// saturates, NaN becomes 0; integer to integer wraps; to bool is `x != 0`; complex to real
    /// keeps the real part.
    Cast = "cast", Compute, UNARY, [required("to", AttrKind::DType)], cast, movement;
    /// `add %a, %b`, shapes broadcast, integers wrap; bool is logical or.
    Add = "add", Compute, BINARY, [], arithmetic, pointwise;
    /// `sub %a, %b`, shapes broadcast, integers wrap. Not for bool.
    Sub = "sub", Compute, BINARY, [], signed_arithmetic, pointwise;
    /// `mul %a, %b`, shapes broadcast, integers wrap; bool is logical and.
    Mul = "mul", Compute, BINARY, [], arithmetic, pointwise;
    /// `div %a, %b`, shapes broadcast. Integers truncate towards zero; division by zero yields 0
    /// and the smallest integer divided by -1 wraps. Not for bool.
    Div = "div", Compute, BINARY, [], signed_arithmetic, pointwise;
    /// `maximum %a, %b`, shapes broadcast, NaN if either is NaN. Not for complex.
    Maximum = "maximum", Compute, BINARY, [], ordered, pointwise;
    /// `minimum %a, %b`, shapes broadcast, NaN if either is NaN. Not for complex.
    Minimum = "minimum", Compute, BINARY, [], ordered, pointwise;
    /// `pow %a, %b`, shapes broadcast. Integers wrap; a negative integer exponent yields the
    /// truncated real power. Not for bool and complex.
    Pow = "pow", Compute, BINARY, [], power, transcendental;
    /// `bit_and %a, %b`, shapes broadcast: bit by bit, for bool and integers.
    BitAnd = "bit_and", Compute, BINARY, [], bitwise, pointwise;
    /// `bit_or %a, %b`, shapes broadcast: bit by bit, for bool and integers.
    BitOr = "bit_or", Compute, BINARY, [], bitwise, pointwise;
    /// `bit_xor %a, %b`, shapes broadcast: bit by bit, for bool and integers.
    BitXor = "bit_xor", Compute, BINARY, [], bitwise, pointwise;
    /// `neg %x`; unsigned integers wrap. Not for bool.
    Neg = "neg", Compute, UNARY, [], numeric, pointwise;
    /// `abs %x`; the smallest integer stays itself. Not for bool and complex.
    Abs = "abs", Compute, UNARY, [], real, pointwise;
    /// `exp %x`, floats.
    Exp = "exp", Compute, UNARY, [], floating, transcendental;
    /// `log %x`: natural logarithm, floats.
    Log = "log", Compute, UNARY, [], floating, transcendental;
    /// `sqrt %x`, floats.
    Sqrt = "sqrt", Compute, UNARY, [], floating, transcendental;
    /// `rsqrt %x`: `1 / sqrt(x)`, floats.
    Rsqrt = "rsqrt", Compute, UNARY, [], floating, transcendental;
    /// `tanh %x`, floats.
    Tanh = "tanh", Compute, UNARY, [], floating, transcendental;
    /// `sigmoid %x`: `1 / (1 + exp(-x))`, floats.
    Sigmoid = "sigmoid", Compute, UNARY, [], floating, transcendental;
    /// `relu %x`: `max(x, 0)`, NaN stays NaN. Not for bool and complex.
    Relu = "relu", Compute, UNARY, [], real, pointwise;
    /// `gelu %x, approximate (none)`, floats. `none`: `x/2 (1 + erf(x/√2))`; `tanh`:
    /// `x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    Gelu = "gelu", Compute, UNARY, [GELU], floating, transcendental;
    /// `silu %x`: `x · sigmoid(x)`, floats.
    Silu = "silu", Compute, UNARY, [], floating, transcendental;
    /// `where %c, %a, %b`: `a` where the bool `c` is true, else `b`; shapes broadcast.
    Where = "where", Compute, Operands::exactly(&["c", "a", "b"]), [], select, pointwise;
    /// `equal %a, %b` → bool, shapes broadcast, NaN equals nothing.
    Equal = "equal", Compute, BINARY, [], compare_equal, pointwise;
    /// `less %a, %b` → bool, shapes broadcast. Not for complex.
    Less = "less", Compute, BINARY, [], compare_ordered, pointwise;
    /// `greater %a, %b` → bool, shapes broadcast. Not for complex.
    Greater = "greater", Compute, BINARY, [], compare_ordered, pointwise;
    /// `matmul %a, %b, transpose_a (false), transpose_b (false)`: `[..., m, k] × [..., k, n] →
    /// [..., m, n]`; leading dimensions broadcast; the flags swap the last two dimensions of an
    /// operand first. Both of rank 2 or more; not for bool.
    Matmul = "matmul", Compute, BINARY, [flag("transpose_a"), flag("transpose_b")], matmul, matmul;
    /// `bias_add %x, %b`: `[..., n] + [n]`.
    BiasAdd = "bias_add", Compute, Operands::exactly(&["x", "b"]), [], bias_add, pointwise;
    /// `softmax %x, dim (-1)`, floats.
    Softmax = "softmax", Compute, UNARY, [int("dim", -1)], softmax, softmax;
    /// `layer_norm %x, %w, %b, eps (1e-5)` over the last dimension, biased variance, floats.
    LayerNorm = "layer_norm", Compute, Operands::exactly(&["x", "w", "b"]), [float("eps", 1e-5)], norm, norm;
    /// `rms_norm %x, %w, eps (1e-6)`: `x / √(mean(x²) + eps) · w` over the last dimension, floats.
    RmsNorm = "rms_norm", Compute, Operands::exactly(&["x", "w"]), [float("eps", 1e-6)], norm, norm;
    /// `embedding %table, %indices`: `[rows, ...] , [i...] → [i..., ...]`; indices i32 or i64,
    /// within the rows.
    Embedding = "embedding", Compute, Operands::exactly(&["table", "indices"]), [], embedding, gather;
    /// `gather %x, %indices, dim`: `y[i][j][k] = x[i][indices[i][j][k]][k]` for `dim = 1`; equal
    /// ranks, indices i32 or i64 and no larger than `x` in the other dimensions.
    Gather = "gather", Compute, Operands::exactly(&["x", "indices"]), [DIM], gather, gather;
    /// `reshape %x, shape = [..]`: the same elements in the same order.
    Reshape = "reshape", View, UNARY, [SHAPE], reshape, view;
    /// `as_real %x`: complex numbers as pairs of real and imaginary part, a new last dimension of 2.
    AsReal = "as_real", View, UNARY, [], as_real, view;
    /// `as_complex %x`: pairs of floats, the last dimension of 2, as complex numbers. f32 and f64.
    AsComplex = "as_complex", View, UNARY, [], as_complex, view;
    /// `transpose %x, perm = [..]`: dimension `i` of the result is dimension `perm[i]` of `x`.
    Transpose = "transpose", Compute, UNARY, [required("perm", AttrKind::Ints)], transpose, movement;
    /// `slice %x, dim, start, end, step (1)`: `start ≤ end ≤` size, step at least 1.
    Slice = "slice", Compute, UNARY, [DIM, required("start", AttrKind::Dim), required("end", AttrKind::Dim), int("step", 1)], slice, movement;
    /// `concat %a, %b, …, dim`.
    Concat = "concat", Compute, Operands::variadic(&["x"], 1), [DIM], concat, movement;
    /// `split %x, dim, sizes = [..]`: one result per size; the sizes sum to that of `x`.
    Split = "split", Compute, UNARY, [DIM, required("sizes", AttrKind::Dims)], split, movement;
    /// `expand %x, shape = [..]`: sizes of 1 and missing leading dimensions are repeated.
    Expand = "expand", Compute, UNARY, [SHAPE], expand, movement;
    /// `pad %x, low = [..], high = [..], value`: elements added before and after, per dimension.
    Pad = "pad", Compute, UNARY, [required("low", AttrKind::Dims), required("high", AttrKind::Dims), required("value", AttrKind::Number)], pad, movement;
    /// `sum %x, dims = [..], keepdim (false)`; integers wrap, bool is logical or; without elements 0.
    Sum = "sum", Compute, UNARY, [DIMS, KEEPDIM], sum, reduction;
    /// `mean %x, dims = [..], keepdim (false)`, floats and complex; without elements NaN.
    Mean = "mean", Compute, UNARY, [DIMS, KEEPDIM], mean, reduction;
    /// `max %x, dims = [..], keepdim (false)`, NaN if any is NaN; at least one element, not complex.
    Max = "max", Compute, UNARY, [DIMS, KEEPDIM], max, reduction;
    /// `argmax %x, dim, keepdim (false)` → i64: the first index of the largest element, of the
    /// first NaN if there is one; at least one element, not complex.
    Argmax = "argmax", Compute, UNARY, [DIM, KEEPDIM], argmax, reduction;
    /// `arange start, end, step, dtype`: `start + i · step` for all `i ≥ 0` that stay before `end`.
    /// Integers or floats; a symbolic `end` takes an integer start of at least 0 and step 1.
    Arange = "arange", Source, NONE, [required("start", AttrKind::Number), required("end", AttrKind::Number), required("step", AttrKind::Number), DTYPE], arange, source;
    /// `fill shape = [..], value, dtype`: every element the value; bool takes 0 and 1.
    Fill = "fill", Source, NONE, [SHAPE, required("value", AttrKind::Number), DTYPE], fill, source;
    /// `tril %x, diagonal (0)`: elements above the diagonal of the last two dimensions become 0.
    Tril = "tril", Compute, UNARY, [int("diagonal", 0)], triangle, movement;
    /// `triu %x, diagonal (0)`: elements below the diagonal of the last two dimensions become 0.
    Triu = "triu", Compute, UNARY, [int("diagonal", 0)], triangle, movement;
    /// `attention %q, %k, %v[, %mask], scale, causal (false)`: `softmax(q kᵀ · scale + mask) v`,
    /// with `q: [..., m, d]`, `k: [..., n, d]`, `v: [..., n, e]`, equal leading dimensions; the mask
    /// broadcasts to `[..., m, n]`; causal hides column `j` from row `i` when `j > i`. A row without a
    /// visible column yields NaN. Floats.
    Attention = "attention", Compute, Operands::optional_last(&["q", "k", "v", "mask"]), [required("scale", AttrKind::Float), flag("causal")], attention, attention;
    /// `all_reduce %x, op, group`: the reduction of `x` over the ranks, on every rank.
    /// `op = premul_sum` takes `factor` too.
    AllReduce = "all_reduce", Collective, UNARY, [REDUCE, FACTOR, GROUP], all_reduce, all_reduce;
    /// `all_gather %x, dim (0), group`: the `x` of all ranks concatenated along `dim`.
    AllGather = "all_gather", Collective, UNARY, [DIM0, GROUP], all_gather, exchange;
    /// `all_gather_uneven %x, counts = [..], group`: the `x` of all ranks concatenated along
    /// dimension 0; `counts[r]` is the number of rows of rank `r`.
    AllGatherUneven = "all_gather_uneven", Collective, UNARY, [COUNTS, GROUP], all_gather_uneven, exchange;
    /// `reduce_scatter %x, op, dim (0), group`: piece `r` along `dim` of the reduction, on rank `r`.
    ReduceScatter = "reduce_scatter", Collective, UNARY, [REDUCE, FACTOR, DIM0, GROUP], reduce_scatter, reduce_scatter;
    /// `reduce_scatter_uneven %x, op, counts = [..], rows, group`: `counts[r]` rows of the
    /// reduction on rank `r`; `rows` is the entry of this rank.
    ReduceScatterUneven = "reduce_scatter_uneven", Collective, UNARY, [REDUCE, FACTOR, COUNTS, required("rows", AttrKind::Dim), GROUP], reduce_scatter_uneven, reduce_scatter;
    /// `all_to_all %x, group`: piece `r` along dimension 0 goes to rank `r`; the pieces received
    /// are concatenated in rank order. With `send_counts = [..], recv_counts = [..]` (rows per rank)
    /// the pieces are uneven.
    AllToAll = "all_to_all", Collective, UNARY, [optional("send_counts", AttrKind::Dims), optional("recv_counts", AttrKind::Dims), GROUP], all_to_all, exchange;
    /// `broadcast %x, root, group`: the `x` of group rank `root`, on every rank.
    Broadcast = "broadcast", Collective, UNARY, [ROOT, GROUP], broadcast, exchange;
    /// `reduce %x, op, root, group`: the reduction on group rank `root`, the own `x` elsewhere.
    Reduce = "reduce", Collective, UNARY, [REDUCE, FACTOR, ROOT, GROUP], reduce, all_reduce;
    /// `scatter %x, root, group`: piece `r` along dimension 0 of the root's `x`, on rank `r`. The
    /// operand of the other ranks has the same type; its data is not used.
    Scatter = "scatter", Collective, UNARY, [ROOT, GROUP], scatter, exchange;
    /// `gather_to %x, root, group`: the `x` of all ranks concatenated along dimension 0 on group
    /// rank `root`; zeros of the same type elsewhere.
    GatherTo = "gather_to", Collective, UNARY, [ROOT, GROUP], gather_to, exchange;
    /// `send %x, peer, tag (0), group`: to group rank `peer`; no result.
    Send = "send", PointToPoint, UNARY, [PEER, TAG, GROUP], send, exchange;
    /// `recv f32[2], peer, tag (0), group`: a value of this type from group rank `peer`.
    Recv = "recv", PointToPoint, NONE, [required("type", AttrKind::Type), PEER, TAG, GROUP], recv, exchange;
    /// `barrier group`: no operand, no result.
    Barrier = "barrier", Barrier, NONE, [GROUP], barrier, nothing;
    /// `custom "name"(%a, %b, pure (false), any = attribute) -> (f32[2], f32[3])`: opaque work with
    /// any attributes. Unless `pure = true` it counts as communication.
    Custom = "custom", Custom, Operands::variadic(&["x"], 0), [required("name", AttrKind::Text), required("types", AttrKind::Types), flag("pure")], custom, movement;
}

/// The entry of `op` in the table.
pub fn info(op: Op) -> &'static OpInfo {
    &TABLE[op as usize]
}

impl Op {
    /// The mnemonic in text.
    pub fn name(self) -> &'static str {
        info(self).name
    }

    /// What kind of thing it is.
    pub fn class(self) -> Class {
        info(self).class
    }

    /// Whether ranks other than this one take part: a collective, point-to-point or a barrier.
    pub fn is_communication(self) -> bool {
        matches!(
            self.class(),
            Class::Collective | Class::PointToPoint | Class::Barrier
        )
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is not the name of an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown operation `{0}`")]
pub struct UnknownOp(pub String);

impl FromStr for Op {
    type Err = UnknownOp;

    fn from_str(text: &str) -> Result<Self, UnknownOp> {
        TABLE
            .iter()
            .find(|info| info.name == text)
            .map(|info| info.op)
            .ok_or_else(|| UnknownOp(text.to_owned()))
    }
}
