//! The engine's operators for communication.
//!
//! Attributes and element types are those of the engine's public `hcom_ops.h`; what is missing there is
//! composed: averages of a sum and a division, `bf16` and `bool` through wider types, other dimensions
//! by cutting and joining, `scatter` of a broadcast, `barrier` of an all_reduce that nothing reads.
//! Which operators stand for a collective never depends on this rank's data or splits.

use hcom_ir::{DType, Dim, GroupId, Literal, Node, Op, ReduceOp, Type};

use super::compute::{Piece, cut, cut_all, join, number, position, reshaped};
use super::draft::{Draft, Edge, dtype, int, ints, string};
use super::proto::AttrDef;

/// Types that move.
const MOVED: [DType; 12] = [
    DType::F32,
    DType::F16,
    DType::F64,
    DType::BF16,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
];

/// Types that are reduced.
const REDUCED: [DType; 6] = [
    DType::F32,
    DType::F16,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
];

/// Adds the operators for `node`.
pub(super) fn lower(draft: &mut Draft<'_>, node: &Node) -> Result<(), String> {
    let group = node.group().ok_or("it has no group")?;
    let ranks = draft.graph.group(group).ranks.clone();
    let own = ranks.iter().position(|&rank| rank == draft.options.rank);
    let own = own.ok_or_else(|| format!("rank {} is not in its group", draft.options.rank))?;
    let operand = node.operands.first().map(|&value| draft.value(value));
    let result = node.results.first().copied();
    let name = match result {
        Some(value) => draft.graph.value(value).name.clone(),
        None => node.op.to_string(),
    };
    let ty = result.map(|value| draft.graph.ty(value).clone());
    let mut call = Call {
        draft,
        node,
        group,
        size: ranks.len(),
        own,
        name: &name,
    };
    let edge = match (node.op, operand, ty) {
        (Op::Barrier, ..) => {
            call.barrier();
            return Ok(());
        }
        (Op::Send, Some(x), _) => return call.send(&x),
        (Op::Recv, _, Some(ty)) => call.recv(ty)?,
        (_, Some(x), Some(ty)) => call.collective(&x, ty)?,
        _ => return Err("it has no operand".to_owned()),
    };
    if let Some(value) = result {
        draft.bind(value, edge);
    }
    Ok(())
}

struct Call<'s, 'g> {
    draft: &'s mut Draft<'g>,
    node: &'s Node,
    group: GroupId,
    /// Ranks in the group.
    size: usize,
    /// This rank's rank in it.
    own: usize,
    name: &'s str,
}

impl Call<'_, '_> {
    /// A collective: the operand as a type that the engine takes, and back.
    fn collective(&mut self, x: &Edge, ty: Type) -> Result<Edge, String> {
        let carried = match self.node.attrs.get("op") {
            Some(_) => self.reduced(x.ty.dtype)?,
            None => moved(x.ty.dtype)?,
        };
        let operand = self.cast(x, carried);
        let carried_ty = Type::new(carried, ty.shape.clone());
        let edge = match self.node.op {
            Op::AllReduce | Op::Reduce | Op::ReduceScatter | Op::ReduceScatterUneven => {
                self.reduction(&operand, carried_ty)?
            }
            Op::AllGather => self.gather(&operand, carried_ty, self.dim())?,
            Op::GatherTo => self.gather_to(&operand, carried_ty)?,
            Op::AllGatherUneven => self.gather_uneven(&operand, carried_ty)?,
            Op::AllToAll => self.all_to_all(&operand, carried_ty)?,
            Op::Broadcast => self.broadcast(&operand),
            Op::Scatter => {
                let all = self.broadcast(&operand);
                let rows = *carried_ty
                    .shape
                    .as_fixed()
                    .and_then(|s| s.first().copied())
                    .as_ref()
                    .ok_or("the engine cuts at positions that are known")?
                    as i64;
                let piece = Piece {
                    dim: 0,
                    start: rows * self.own as i64,
                    end: Some(rows * (self.own as i64 + 1)),
                    step: 1,
                };
                cut(self.draft, self.name, &all, piece, carried_ty)
            }
            op => return Err(format!("no operator does what {op} does")),
        };
        // What a reduction leaves on other ranks than its root is not defined; ours is what they had.
        if self.node.op == Op::Reduce && self.root() != self.own {
            return Ok(x.clone());
        }
        Ok(self.cast(&edge, ty.dtype))
    }

    /// The type in which elements of `dtype` are reduced.
    fn reduced(&self, dtype: DType) -> Result<DType, String> {
        let reduce = self.node.attrs.reduce("op");
        match (dtype, reduce) {
            (_, ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor) if dtype != DType::Bool => {
                Err("the engine reduces by sum, prod, min and max".to_owned())
            }
            (DType::Bool, ReduceOp::Bxor) => {
                Err("the engine reduces by sum, prod, min and max".to_owned())
            }
            (DType::Bool, _) => Ok(DType::I8),
            (DType::BF16, _) => Ok(DType::F32),
            (DType::F16, ReduceOp::Avg | ReduceOp::PremulSum) => Ok(DType::F32),
            (integer, ReduceOp::Avg) if integer.is_integer() => {
                Err("the engine divides floats; cast to f32 and back".to_owned())
            }
            (known, _) if REDUCED.contains(&known) => Ok(known),
            (other, _) => Err(format!(
                "the engine reduces {}, not {other}",
                REDUCED.map(DType::name).join(", ")
            )),
        }
    }

    /// `x` as `dtype`.
    fn cast(&mut self, x: &Edge, to: DType) -> Edge {
        if x.ty.dtype == to {
            return x.clone();
        }
        let ty = Type::new(to, x.ty.shape.clone());
        let name = format!("{}_cast", self.name);
        let attrs = vec![("dst_type", dtype(to))];
        self.draft.one("Cast", &name, &[("x", x)], attrs, ty)
    }

    fn dim(&self) -> usize {
        let rank = self.draft.graph.ty(self.node.operands[0]).shape.rank();
        position(self.node.attrs.int("dim"), rank)
    }

    fn reduction(&mut self, x: &Edge, ty: Type) -> Result<Edge, String> {
        let reduce = self.node.attrs.reduce("op");
        let logical = self.draft.graph.ty(self.node.operands[0]).dtype == DType::Bool;
        let word = match reduce {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor if logical => "max",
            ReduceOp::Prod | ReduceOp::Min | ReduceOp::Band if logical => "min",
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            other => return Err(format!("the engine has no reduction {other}")),
        };
        let mut x = x.clone();
        if reduce == ReduceOp::PremulSum {
            let factor = number(Err(self.node.attrs.float("factor")), x.ty.dtype);
            let factor = self.draft.constant("factor", &factor);
            let operands = [("x1", &x), ("x2", &factor)];
            let name = format!("{}_scaled", self.name);
            x = self
                .draft
                .one("Mul", &name, &operands, Vec::new(), x.ty.clone());
        }
        let reduction = ("reduction", string(word));
        let size = ("rank_size", int(self.size as i64));
        let sum = match self.node.op {
            Op::AllReduce => self.one("HcomAllReduce", &x, fused(vec![reduction]), ty.clone()),
            Op::Reduce => {
                let attrs = fused(vec![("root_rank", int(self.root() as i64)), reduction]);
                self.one("HcomReduce", &x, attrs, ty.clone())
            }
            Op::ReduceScatter => {
                let x = self.rows_first(&x)?;
                self.one(
                    "HcomReduceScatter",
                    &x,
                    fused(vec![reduction, size]),
                    ty.clone(),
                )
            }
            _ => {
                if reduce == ReduceOp::Prod {
                    return Err("an uneven reduce_scatter has no product".to_owned());
                }
                let counts = rows(self.node.attrs.dims("counts"))?;
                let own = self.draft.list("recv_count", &[counts[self.own]]);
                let counts = self.draft.list("send_counts", &counts);
                let none = self.draft.list("send_displacements", &[]);
                let operands = [
                    ("x", &x),
                    ("recv_count", &own),
                    ("send_counts", &counts),
                    ("send_displacements", &none),
                ];
                self.call(
                    "HcomReduceScatterV",
                    &operands,
                    vec![reduction],
                    ("y", ty.clone()),
                )
            }
        };
        if reduce != ReduceOp::Avg {
            return Ok(sum);
        }
        let ranks = self
            .draft
            .constant("ranks", &number(Ok(self.size as i64), ty.dtype));
        let operands = [("x1", &sum), ("x2", &ranks)];
        Ok(self
            .draft
            .one("RealDiv", self.name, &operands, Vec::new(), ty))
    }

    /// The pieces of `x` along the dimension of a reduce_scatter, below each other.
    fn rows_first(&mut self, x: &Edge) -> Result<Edge, String> {
        let dim = self.dim();
        if dim == 0 {
            return Ok(x.clone());
        }
        let sizes = x.sizes()?;
        let piece = sizes[dim] / self.size as u64;
        let pieces = vec![Dim::fixed(piece); self.size];
        let mut of_piece = sizes.clone();
        of_piece[dim] = piece;
        let types = vec![Type::fixed(x.ty.dtype, &of_piece); self.size];
        let name = format!("{}_pieces", self.name);
        let pieces = cut_all(self.draft, &name, x, dim, &pieces, types)?;
        of_piece[0] *= self.size as u64;
        let ty = Type::fixed(x.ty.dtype, &of_piece);
        Ok(join(
            self.draft,
            &format!("{}_rows", self.name),
            &pieces,
            0,
            ty,
        ))
    }

    /// All ranks' `x` along `dim`.
    fn gather(&mut self, x: &Edge, ty: Type, dim: usize) -> Result<Edge, String> {
        let attrs = fused(vec![("rank_size", int(self.size as i64))]);
        if dim == 0 {
            return Ok(self.one("HcomAllGather", x, attrs, ty));
        }
        let mut rows = x.sizes()?;
        let types = vec![x.ty.clone(); self.size];
        let sizes = vec![Dim::fixed(rows[0]); self.size];
        rows[0] *= self.size as u64;
        let below = self.one("HcomAllGather", x, attrs, Type::fixed(ty.dtype, &rows));
        let name = format!("{}_pieces", self.name);
        let pieces = cut_all(self.draft, &name, &below, 0, &sizes, types)?;
        Ok(join(self.draft, self.name, &pieces, dim, ty))
    }

    /// All ranks' `x` on the root, zeros elsewhere.
    fn gather_to(&mut self, x: &Edge, ty: Type) -> Result<Edge, String> {
        let gathered = self.gather(x, ty.clone(), 0)?;
        if self.root() == self.own {
            return Ok(gathered);
        }
        Ok(self
            .draft
            .one("ZerosLike", self.name, &[("x", &gathered)], Vec::new(), ty))
    }

    fn gather_uneven(&mut self, x: &Edge, ty: Type) -> Result<Edge, String> {
        let counts = rows(self.node.attrs.dims("counts"))?;
        let own = self.draft.list("send_count", &[counts[self.own]]);
        let counts = self.draft.list("recv_counts", &counts);
        let none = self.draft.list("recv_displacements", &[]);
        let operands = [
            ("x", x),
            ("send_count", &own),
            ("recv_counts", &counts),
            ("recv_displacements", &none),
        ];
        Ok(self.call("HcomAllGatherV", &operands, Vec::new(), ("y", ty)))
    }

    /// The uneven operator counts elements, and its result has one dimension.
    fn all_to_all(&mut self, x: &Edge, ty: Type) -> Result<Edge, String> {
        let uneven = self.node.attrs.get("send_counts").is_some();
        if !uneven && x.ty.shape.as_fixed().is_none() {
            return Ok(self.one("HcomAllToAll", x, Vec::new(), ty));
        }
        let sizes = x.sizes()?;
        let row: i64 = sizes[1..].iter().product::<u64>() as i64;
        let counts = |name| -> Result<Vec<i64>, String> {
            let rows = match uneven {
                true => rows(self.node.attrs.dims(name))?,
                false => vec![sizes[0] as i64 / self.size as i64; self.size],
            };
            Ok(rows.into_iter().map(|rows| rows * row).collect())
        };
        let [sent, received] = [counts("send_counts")?, counts("recv_counts")?];
        let flat = Type::fixed(ty.dtype, &[received.iter().sum::<i64>() as u64]);
        let displacements = |counts: &[i64]| -> Vec<i64> {
            let start = |at: usize| counts[..at].iter().sum();
            (0..counts.len()).map(start).collect()
        };
        let [send_at, receive_at] = [displacements(&sent), displacements(&received)];
        let lists = [
            self.draft.list("send_counts", &sent),
            self.draft.list("send_displacements", &send_at),
            self.draft.list("recv_counts", &received),
            self.draft.list("recv_displacements", &receive_at),
        ];
        let operands = [
            ("send_data", x),
            ("send_counts", &lists[0]),
            ("send_displacements", &lists[1]),
            ("recv_counts", &lists[2]),
            ("recv_displacements", &lists[3]),
        ];
        let edge = self.call("HcomAllToAllV", &operands, Vec::new(), ("recv_data", flat));
        reshaped(self.draft, self.name, &edge, ty)
    }

    fn broadcast(&mut self, x: &Edge) -> Edge {
        let attrs = fused(vec![("root_rank", int(self.root() as i64))]);
        self.call("HcomBroadcast", &[("x0", x)], attrs, ("y0", x.ty.clone()))
    }

    /// A send of nothing is left out, as its receive is.
    fn send(&mut self, x: &Edge) -> Result<(), String> {
        let carried = moved(x.ty.dtype)?;
        if x.sizes()?.contains(&0) {
            return Ok(());
        }
        let x = self.cast(x, carried);
        let attrs = vec![
            ("sr_tag", int(self.node.attrs.int("tag"))),
            ("dest_rank", int(self.node.attrs.int("peer"))),
        ];
        self.draft
            .communicate("HcomSend", self.group, &[("x", &x)], attrs, Vec::new());
        Ok(())
    }

    fn recv(&mut self, ty: Type) -> Result<Edge, String> {
        let carried = moved(ty.dtype)?;
        let sizes = ty
            .shape
            .as_fixed()
            .ok_or("the size of what is received must be known")?;
        if sizes.contains(&0) {
            let empty =
                Literal::new(ty.dtype, sizes, Vec::new()).map_err(|error| error.to_string())?;
            return Ok(self.draft.constant(self.name, &empty));
        }
        let attrs = vec![
            ("sr_tag", int(self.node.attrs.int("tag"))),
            ("src_rank", int(self.node.attrs.int("peer"))),
            (
                "shape",
                ints(sizes.iter().map(|&size| size as i64).collect()),
            ),
            ("dtype", dtype(carried)),
        ];
        let edge = self.call(
            "HcomReceive",
            &[],
            attrs,
            ("y", Type::fixed(carried, &sizes)),
        );
        Ok(self.cast(&edge, ty.dtype))
    }

    /// A sum that nothing reads: no rank has it before all have arrived.
    fn barrier(&mut self) {
        let one = self.draft.constant("arrived", &number(Ok(1), DType::F32));
        let attrs = fused(vec![("reduction", string("sum"))]);
        self.one("HcomAllReduce", &one, attrs, Type::fixed(DType::F32, &[]));
    }

    fn root(&self) -> usize {
        self.node.attrs.int("root").max(0) as usize
    }

    /// An operator from `x` to `y`.
    fn one(&mut self, kind: &str, x: &Edge, attrs: Vec<(&str, AttrDef)>, ty: Type) -> Edge {
        self.call(kind, &[("x", x)], attrs, ("y", ty))
    }

    fn call(
        &mut self,
        kind: &str,
        operands: &[(&str, &Edge)],
        attrs: Vec<(&str, AttrDef)>,
        result: (&str, Type),
    ) -> Edge {
        let results = vec![result];
        self.draft
            .communicate(kind, self.group, operands, attrs, results)
            .swap_remove(0)
    }
}

/// The type in which elements of `dtype` travel.
fn moved(dtype: DType) -> Result<DType, String> {
    match dtype {
        DType::Bool => Ok(DType::I8),
        known if MOVED.contains(&known) => Ok(known),
        other => Err(format!(
            "the engine moves {}, not {other}",
            MOVED.map(DType::name).join(", ")
        )),
    }
}

/// No fusion with other collectives: their order is the program's.
fn fused(mut attrs: Vec<(&'static str, AttrDef)>) -> Vec<(&'static str, AttrDef)> {
    attrs.extend([("fusion", int(0)), ("fusion_id", int(-1))]);
    attrs
}

/// Numbers of rows, which must be known.
fn rows(counts: &[Dim]) -> Result<Vec<i64>, String> {
    let known = counts
        .iter()
        .map(|count| count.as_fixed().map(|count| count as i64));
    let known: Option<Vec<i64>> = known.collect();
    known.ok_or_else(|| "the counts must be known".to_owned())
}
