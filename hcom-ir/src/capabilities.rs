//! Which element types and reductions the devices' libraries take.
//!
//! The tables are HCCL's documented ones: the dtype lists of each call, and the reduction limits of
//! the library's own check.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::{Graph, Node};
use crate::op::Op;
use crate::op::attr::ReduceOp;
use crate::types::DType;

/// A family of Ascend chips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Chip {
    /// Ascend 950.
    Ascend950,
    /// Ascend 910_93, the two-die package of Atlas A3.
    #[default]
    A3,
    /// Ascend 910B, Atlas A2.
    A2,
    /// Ascend 910A, Atlas training series.
    Ascend910A,
    /// Atlas 300I Duo.
    Atlas300IDuo,
}

impl Chip {
    /// Every chip known.
    pub const ALL: [Chip; 5] = [
        Chip::Ascend950,
        Chip::A3,
        Chip::A2,
        Chip::Ascend910A,
        Chip::Atlas300IDuo,
    ];

    /// The name, for example `A3`.
    pub const fn name(self) -> &'static str {
        match self {
            Chip::Ascend950 => "Ascend950",
            Chip::A3 => "A3",
            Chip::A2 => "A2",
            Chip::Ascend910A => "Ascend910A",
            Chip::Atlas300IDuo => "Atlas300IDuo",
        }
    }

    /// Whether the chip's library takes `op` on elements of `dtype`, and for a reduction `reduce`.
    /// Operations that do not communicate are always supported here; their limits are those of
    /// the operator library. `avg` and `premul_sum` count as `sum`, since they are lowered to
    /// a sum and a multiplication.
    pub fn supports(self, op: Op, dtype: Option<DType>, reduce: Option<ReduceOp>) -> bool {
        let carries = dtype.is_none_or(|dtype| self.transfers(dtype));
        match op {
            Op::AllReduce | Op::Reduce | Op::ReduceScatter | Op::ReduceScatterUneven => {
                let missing = (op == Op::Reduce && self == Chip::Atlas300IDuo)
                    || (op == Op::ReduceScatterUneven && self == Chip::Ascend910A);
                !missing
                    && dtype
                        .zip(reduce)
                        .is_none_or(|(dtype, reduce)| self.reduces(op, dtype, reduce))
            }
            Op::AllGatherUneven => self != Chip::Ascend910A && carries,
            Op::Barrier => self != Chip::Atlas300IDuo,
            op if op.is_communication() => carries,
            _ => true,
        }
    }

    /// Element types of the calls that only move data. `bool` moves as bytes and complex numbers as
    /// pairs of floats.
    fn transfers(self, dtype: DType) -> bool {
        match self {
            Chip::Ascend950 | Chip::A3 | Chip::A2 => true,
            Chip::Ascend910A => dtype != DType::BF16,
            Chip::Atlas300IDuo => {
                matches!(
                    dtype,
                    DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::F16 | DType::F32
                )
            }
        }
    }

    fn reduces(self, op: Op, dtype: DType, reduce: ReduceOp) -> bool {
        let reduce = match reduce {
            ReduceOp::Avg | ReduceOp::PremulSum => ReduceOp::Sum,
            ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor if dtype != DType::Bool => {
                return false;
            }
            ReduceOp::Bxor => return false,
            reduce => reduce,
        };
        let (dtype, reduce) = match (dtype, reduce) {
            // Logical or and and are the maximum and minimum of bytes that are 0 or 1.
            (DType::Bool, _) => (DType::I8, ReduceOp::Max),
            // The sum of complex numbers is that of their parts; a product is not.
            (DType::C64, ReduceOp::Sum) => (DType::F32, ReduceOp::Sum),
            (DType::C128, ReduceOp::Sum) => (DType::F64, ReduceOp::Sum),
            pair => pair,
        };
        if op == Op::ReduceScatterUneven {
            return self.reduces_uneven(dtype, reduce);
        }
        let types: &[DType] = match self {
            Chip::Ascend950 => &[
                DType::I8,
                DType::I16,
                DType::I32,
                DType::I64,
                DType::U64,
                DType::F16,
                DType::F32,
                DType::F64,
                DType::BF16,
            ],
            Chip::A3 | Chip::A2 => &[
                DType::I8,
                DType::I16,
                DType::I32,
                DType::I64,
                DType::F16,
                DType::F32,
                DType::BF16,
            ],
            Chip::Ascend910A => &[DType::I8, DType::I32, DType::I64, DType::F16, DType::F32],
            Chip::Atlas300IDuo => &[DType::I8, DType::I16, DType::I32, DType::F16, DType::F32],
        };
        let limited = match self {
            Chip::Ascend950 | Chip::A3 | Chip::A2 => {
                reduce == ReduceOp::Prod && matches!(dtype, DType::I16 | DType::BF16)
            }
            Chip::Ascend910A => false,
            Chip::Atlas300IDuo => dtype == DType::I16 && reduce != ReduceOp::Sum,
        };
        types.contains(&dtype) && !limited
    }

    fn reduces_uneven(self, dtype: DType, reduce: ReduceOp) -> bool {
        use DType::{BF16, F16, F32, I8, I16, I32, I64};
        let types: &[DType] = match self {
            Chip::Ascend950 | Chip::A3 => &[I8, I16, I32, I64, F16, F32, BF16],
            Chip::A2 => &[I8, I16, I32, F16, F32, BF16],
            Chip::Ascend910A => &[],
            Chip::Atlas300IDuo => &[I16, F16, F32],
        };
        let limited = match self {
            Chip::A3 | Chip::A2 => reduce == ReduceOp::Prod,
            Chip::Ascend950 => reduce == ReduceOp::Prod && matches!(dtype, I16 | BF16),
            Chip::Ascend910A | Chip::Atlas300IDuo => reduce != ReduceOp::Sum,
        };
        types.contains(&dtype) && !limited
    }

    /// Reports every communication node that the chip does not support.
    pub fn check(self, graph: &Graph) -> Result<(), Diagnostics> {
        let mut found = Diagnostics::default();
        for (id, node) in graph.nodes() {
            let dtype = data_type(graph, node);
            let reduce = node.attrs.get("op").map(|_| node.attrs.reduce("op"));
            if !node.op.is_communication() || self.supports(node.op, dtype, reduce) {
                continue;
            }
            let with = |reduce: Option<ReduceOp>, dtype: Option<DType>| {
                let reduce = reduce.map_or(String::new(), |reduce| format!(" with op = {reduce}"));
                let dtype = dtype.map_or(String::new(), |dtype| format!(" of {dtype}"));
                format!("{}{dtype}{reduce}", node.op)
            };
            let types: Vec<&str> = DType::ALL
                .into_iter()
                .filter(|&dtype| self.supports(node.op, Some(dtype), reduce))
                .map(DType::name)
                .collect();
            let expected = match types[..] {
                [] => format!("an operation that {self} has"),
                _ => format!("one of {}", types.join(", ")),
            };
            found.0.push(
                Diagnostic::new(
                    Code::Unsupported,
                    format!("{self} does not support {}", with(reduce, dtype)),
                )
                .at(node.location.clone())
                .node(graph.print_node(id))
                .expected(expected)
                .got(dtype.map_or_else(|| node.op.to_string(), |dtype| dtype.to_string())),
            );
        }
        found.into_result(())
    }
}

fn data_type(graph: &Graph, node: &Node) -> Option<DType> {
    node.operands
        .first()
        .or(node.results.first())
        .map(|&value| graph.ty(value).dtype)
}

impl fmt::Display for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is not the name of a chip.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown chip `{0}`; one of Ascend950 (950), A3 (Ascend910_93…), A2 (Ascend910B…), Ascend910A, Atlas300IDuo (Ascend310P…)"
)]
pub struct UnknownChip(pub String);

impl FromStr for Chip {
    type Err = UnknownChip;

    /// Accepts the names of [`Chip::name`] and the runtime's names of processors, such as
    /// `Ascend910_9382` and `Ascend910B1`.
    fn from_str(text: &str) -> Result<Self, UnknownChip> {
        if let Some(chip) = Chip::ALL.into_iter().find(|chip| chip.name() == text) {
            return Ok(chip);
        }
        // Longer prefixes first: every 910 name begins with `Ascend910`.
        let prefixes = [
            ("Ascend950", Chip::Ascend950),
            ("Ascend910_95", Chip::Ascend950),
            ("Ascend910_93", Chip::A3),
            ("Ascend910B", Chip::A2),
            ("Ascend910", Chip::Ascend910A),
            ("Ascend310P", Chip::Atlas300IDuo),
        ];
        let found = prefixes
            .into_iter()
            .find(|(prefix, _)| text.starts_with(prefix));
        found
            .map(|(_, chip)| chip)
            .ok_or_else(|| UnknownChip(text.to_owned()))
    }
}
