//! The engine's operators for operations without communication.

use hcom_ir::{Attr, DType, Dim, Literal, Node, Op, Shape, Type, axis};

use super::draft::{Draft, Edge, boolean, dims, dtype, float, int, ints, string};

/// Why an operation has no form in the engine's vocabulary.
type Reason = String;

/// Adds the operators for `node`.
pub(super) fn lower(draft: &mut Draft<'_>, node: &Node) -> Result<(), Reason> {
    let operands: Vec<Edge> = node
        .operands
        .iter()
        .map(|&value| draft.value(value))
        .collect();
    if node.op == Op::CopyToInput {
        draft.write(&operands[0], &operands[1]);
        return Ok(());
    }
    if node.op == Op::Split {
        return split(draft, node, &operands[0]);
    }
    let result = *node.results.first().ok_or("it has no result")?;
    let name = &draft.graph.value(result).name;
    let ty = draft.graph.ty(result).clone();
    let site = Site {
        draft,
        node,
        operands: &operands,
        name,
        ty,
    };
    let edge = match node.op {
        Op::Constant => {
            let literal = node.attrs.literal("value");
            site.draft.constant(site.name, literal)
        }
        Op::Arange | Op::Fill => site.source()?,
        Op::Cast => {
            let to = node.attrs.dtype("to");
            site.unary("Cast", vec![("dst_type", dtype(to))])
        }
        Op::Matmul => site.matmul(),
        Op::LayerNorm | Op::RmsNorm => site.norm(),
        Op::Reshape => reshaped(site.draft, site.name, &operands[0], site.ty)?,
        Op::Expand => site.expanded()?,
        Op::Slice => site.slice()?,
        Op::Concat => site.concat(),
        Op::Sum | Op::Mean | Op::Max | Op::Argmax => site.reduction(),
        Op::Embedding => {
            let axis = site.draft.list("axis", &[0]);
            let attrs = vec![
                ("batch_dims", int(0)),
                ("is_preprocessed", boolean(false)),
                ("negative_index_support", boolean(false)),
            ];
            let operands = [
                ("x", &operands[0]),
                ("indices", &operands[1]),
                ("axis", &axis),
            ];
            site.draft
                .one("GatherV2", site.name, &operands, attrs, site.ty)
        }
        Op::Transpose => {
            let perm = site.draft.list("perm", node.attrs.ints("perm"));
            let operands = [("x", &operands[0]), ("perm", &perm)];
            site.draft
                .one("Transpose", site.name, &operands, Vec::new(), site.ty)
        }
        Op::Where => {
            let names = ["condition", "then", "else"];
            let operands: Vec<(&str, &Edge)> = names.into_iter().zip(&operands).collect();
            let results = vec![("result", site.ty)];
            site.draft
                .add("SelectV2", site.name, &operands, Vec::new(), results)
                .swap_remove(0)
        }
        Op::Attention => site.attention()?,
        _ => site.pointwise()?,
    };
    draft.bind(result, edge);
    Ok(())
}

/// An operation with one result.
struct Site<'s, 'g> {
    draft: &'s mut Draft<'g>,
    node: &'s Node,
    operands: &'s [Edge],
    name: &'s str,
    ty: Type,
}

impl Site<'_, '_> {
    fn unary(self, kind: &str, attrs: Vec<(&str, super::proto::AttrDef)>) -> Edge {
        let operands = [("x", &self.operands[0])];
        self.draft.one(kind, self.name, &operands, attrs, self.ty)
    }

    fn binary(self, kind: &str) -> Edge {
        let operands = pair(&self.operands[0], &self.operands[1]);
        self.draft
            .one(kind, self.name, &operands, Vec::new(), self.ty)
    }

    /// Operations that are one operator of the same operands.
    fn pointwise(self) -> Result<Edge, Reason> {
        let of = self.operands.first().map(|x| x.ty.dtype);
        let logical = of == Some(DType::Bool);
        let exponential = || {
            vec![
                ("base", float(-1.0)),
                ("scale", float(1.0)),
                ("shift", float(0.0)),
            ]
        };
        Ok(match self.node.op {
            Op::Add | Op::Mul if logical => {
                return Err("the engine adds and multiplies numbers; cast to i8 first".to_owned());
            }
            Op::Div if of.is_some_and(DType::is_integer) => {
                return Err("the engine divides floats; cast to f32 and back".to_owned());
            }
            Op::Add | Op::BiasAdd => self.binary("Add"),
            Op::Sub => self.binary("Sub"),
            Op::Mul => self.binary("Mul"),
            Op::Div => self.binary("RealDiv"),
            Op::Maximum => self.binary("Maximum"),
            Op::Minimum => self.binary("Minimum"),
            Op::Pow => self.binary("Pow"),
            Op::Equal => self.binary("Equal"),
            Op::Less => self.binary("Less"),
            Op::Greater => self.binary("Greater"),
            Op::Copy => self.unary("TensorMove", Vec::new()),
            Op::Neg => self.unary("Neg", Vec::new()),
            Op::Abs => self.unary("Abs", Vec::new()),
            Op::Exp => self.unary("Exp", exponential()),
            Op::Log => self.unary("Log", exponential()),
            Op::Sqrt => self.unary("Sqrt", Vec::new()),
            Op::Rsqrt => self.unary("Rsqrt", Vec::new()),
            Op::Tanh => self.unary("Tanh", Vec::new()),
            Op::Sigmoid => self.unary("Sigmoid", Vec::new()),
            Op::Relu => self.unary("Relu", Vec::new()),
            Op::Gelu => {
                let approximate = string(self.node.attrs.text("approximate"));
                self.unary("GeluV2", vec![("approximate", approximate)])
            }
            Op::Silu => self.unary("Swish", vec![("scale", float(1.0))]),
            Op::Softmax => {
                let axes = ints(vec![self.node.attrs.int("dim")]);
                let attrs = vec![("axes", axes), ("half_to_float", boolean(false))];
                self.unary("SoftmaxV2", attrs)
            }
            Op::Tril | Op::Triu => {
                let kind = if self.node.op == Op::Tril {
                    "Tril"
                } else {
                    "Triu"
                };
                let diagonal = int(self.node.attrs.int("diagonal"));
                self.unary(kind, vec![("diagonal", diagonal)])
            }
            Op::Custom => return Err("it is opaque; only its own library knows it".to_owned()),
            op => return Err(format!("no operator does what {op} does")),
        })
    }

    fn matmul(self) -> Edge {
        let flags = ["transpose_a", "transpose_b"].map(|name| boolean(self.node.attrs.bool(name)));
        let [a, b] = flags;
        let plain = self.operands.iter().all(|x| x.ty.shape.rank() == 2);
        let (kind, names) = match plain {
            true => ("MatMulV2", ["transpose_x1", "transpose_x2"]),
            false => ("BatchMatMulV2", ["adj_x1", "adj_x2"]),
        };
        let attrs = vec![(names[0], a), (names[1], b), ("offset_x", int(0))];
        let operands = pair(&self.operands[0], &self.operands[1]);
        self.draft.one(kind, self.name, &operands, attrs, self.ty)
    }

    /// Norms over the last dimension.
    fn norm(self) -> Edge {
        let epsilon = float(self.node.attrs.float("eps"));
        let rank = self.ty.shape.rank();
        let statistics = || {
            let shape = self.ty.shape.clone().with_dim(rank - 1, Dim::fixed(1));
            Type::new(DType::F32, shape)
        };
        let names = ["x", "gamma", "beta"];
        let operands: Vec<(&str, &Edge)> = names.into_iter().zip(self.operands).collect();
        let (kind, attrs, results) = match self.node.op {
            Op::LayerNorm => (
                "LayerNormV3",
                vec![
                    ("begin_norm_axis", int(rank as i64 - 1)),
                    ("begin_params_axis", int(-1)),
                    ("epsilon", epsilon),
                ],
                vec![("mean", statistics()), ("rstd", statistics())],
            ),
            _ => (
                "RmsNorm",
                vec![("epsilon", epsilon)],
                vec![("rstd", statistics())],
            ),
        };
        let mut all = vec![("y", self.ty.clone())];
        all.extend(results);
        self.draft
            .add(kind, self.name, &operands, attrs, all)
            .swap_remove(0)
    }

    /// `expand`, whose shape is an operand of the engine's operator.
    fn expanded(self) -> Result<Edge, Reason> {
        let shape = shape(self.draft, &self.ty.shape)?;
        if self.ty.shape.as_fixed().is_none() {
            return Err("the engine expands to sizes that are known".to_owned());
        }
        let operands = [("x", &self.operands[0]), ("shape", &shape)];
        Ok(self
            .draft
            .one("BroadcastTo", self.name, &operands, Vec::new(), self.ty))
    }

    fn slice(self) -> Result<Edge, Reason> {
        let attrs = &self.node.attrs;
        let x = &self.operands[0];
        let dim = position(attrs.int("dim"), x.ty.shape.rank());
        let [start, end] = ["start", "end"].map(|name| attrs.dim(name));
        let fixed = |dim: &Dim| {
            let reason = || "the engine cuts at positions that are known".to_owned();
            dim.as_fixed().map(|size| size as i64).ok_or_else(reason)
        };
        let end = match *end == x.ty.shape.dims()[dim] {
            true => None,
            false => Some(fixed(end)?),
        };
        let piece = Piece {
            dim,
            start: fixed(start)?,
            end,
            step: attrs.int("step"),
        };
        Ok(cut(self.draft, self.name, x, piece, self.ty))
    }

    fn concat(self) -> Edge {
        let dim = position(self.node.attrs.int("dim"), self.ty.shape.rank());
        join(self.draft, self.name, self.operands, dim, self.ty)
    }

    fn reduction(self) -> Edge {
        let attrs = &self.node.attrs;
        let keep = attrs.bool("keepdim");
        let x = &self.operands[0];
        if self.node.op == Op::Argmax {
            let dim = position(attrs.int("dim"), x.ty.shape.rank());
            let dimension = self.draft.list("dimension", &[dim as i64]);
            let kept = x.ty.shape.dims().iter().enumerate();
            let kept = kept
                .filter(|(at, _)| *at != dim)
                .map(|(_, size)| size.clone());
            let reduced = Type::new(DType::I64, Shape::new(kept));
            let operands = [("x", x), ("dimension", &dimension)];
            let of = vec![("dtype", dtype(DType::I64))];
            let edge = self
                .draft
                .one("ArgMaxV2", self.name, &operands, of, reduced);
            if !keep {
                return edge;
            }
            let axes = vec![("axes", ints(vec![dim as i64]))];
            return self
                .draft
                .one("Unsqueeze", self.name, &[("x", &edge)], axes, self.ty);
        }
        let axes = self.draft.list("axes", attrs.ints("dims"));
        let operands = [("x", x), ("axes", &axes)];
        let keep = ("keep_dims", boolean(keep));
        let (kind, attrs) = match self.node.op {
            Op::Sum => ("ReduceSum", vec![keep]),
            Op::Mean => (
                "ReduceMean",
                vec![keep, ("noop_with_empty_axes", boolean(true))],
            ),
            _ => ("ReduceMax", vec![keep]),
        };
        self.draft.one(kind, self.name, &operands, attrs, self.ty)
    }

    fn source(self) -> Result<Edge, Reason> {
        let attrs = &self.node.attrs;
        let scalar = |name: &str| {
            let value = match attrs.get(name) {
                Some(Attr::Int(value)) => Ok(*value),
                Some(Attr::Float(value)) => Err(*value),
                Some(Attr::Dim(dim)) => match dim.as_fixed() {
                    Some(size) => Ok(size as i64),
                    None => return Err("the engine counts to numbers that are known".to_owned()),
                },
                _ => return Err(format!("`{name}` is no number")),
            };
            Ok(number(value, self.ty.dtype))
        };
        if self.node.op == Op::Fill {
            let value = self.draft.constant("value", &scalar("value")?);
            let dims = shape(self.draft, &self.ty.shape)?;
            if self.ty.shape.as_fixed().is_none() {
                return Err("the engine fills sizes that are known".to_owned());
            }
            let operands = [("dims", &dims), ("value", &value)];
            return Ok(self
                .draft
                .one("Fill", self.name, &operands, Vec::new(), self.ty));
        }
        let [start, limit, delta] = ["start", "end", "step"].map(scalar);
        let [start, limit, delta] = [
            self.draft.constant("start", &start?),
            self.draft.constant("limit", &limit?),
            self.draft.constant("delta", &delta?),
        ];
        let operands = [("start", &start), ("limit", &limit), ("delta", &delta)];
        Ok(self
            .draft
            .one("Range", self.name, &operands, Vec::new(), self.ty))
    }

    /// `softmax(q kᵀ · scale + mask) v`.
    fn attention(self) -> Result<Edge, Reason> {
        let Site {
            draft,
            node,
            operands,
            name,
            ty,
        } = self;
        if node.attrs.bool("causal") {
            return Err("the engine has no causal mask; add it as the operand `mask`".to_owned());
        }
        let [q, k, v] = [&operands[0], &operands[1], &operands[2]];
        let rank = q.ty.shape.rank();
        let columns = k.ty.shape.dims()[rank - 2].clone();
        let weights = Type::new(ty.dtype, q.ty.shape.clone().with_dim(rank - 1, columns));
        let product = |turned: bool| {
            vec![
                ("adj_x1", boolean(false)),
                ("adj_x2", boolean(turned)),
                ("offset_x", int(0)),
            ]
        };
        let scale = draft.constant("scale", &number(Err(node.attrs.float("scale")), ty.dtype));
        let step = |of: &str| format!("{name}_{of}");
        let scores = draft.one(
            "BatchMatMulV2",
            &step("scores"),
            &pair(q, k),
            product(true),
            weights.clone(),
        );
        let mut scores = draft.one(
            "Mul",
            &step("scaled"),
            &pair(&scores, &scale),
            Vec::new(),
            weights.clone(),
        );
        if let Some(mask) = operands.get(3) {
            scores = draft.one(
                "Add",
                &step("masked"),
                &pair(&scores, mask),
                Vec::new(),
                weights.clone(),
            );
        }
        let attrs = vec![("axes", ints(vec![-1])), ("half_to_float", boolean(false))];
        let weights = draft.one(
            "SoftmaxV2",
            &step("weights"),
            &[("x", &scores)],
            attrs,
            weights,
        );
        Ok(draft.one(
            "BatchMatMulV2",
            name,
            &pair(&weights, v),
            product(false),
            ty,
        ))
    }
}

fn pair<'e>(x1: &'e Edge, x2: &'e Edge) -> [(&'static str, &'e Edge); 2] {
    [("x1", x1), ("x2", x2)]
}

fn split(draft: &mut Draft<'_>, node: &Node, x: &Edge) -> Result<(), Reason> {
    let dim = position(node.attrs.int("dim"), x.ty.shape.rank());
    let sizes = node.attrs.dims("sizes");
    let types = node
        .results
        .iter()
        .map(|&value| draft.graph.ty(value).clone())
        .collect();
    let name = draft.graph.value(node.results[0]).name.clone();
    let pieces = cut_all(draft, &name, x, dim, sizes, types)?;
    for (&value, piece) in node.results.iter().zip(pieces) {
        draft.bind(value, piece);
    }
    Ok(())
}

/// Cuts `x` along `dim` into pieces of these sizes.
pub(super) fn cut_all(
    draft: &mut Draft<'_>,
    name: &str,
    x: &Edge,
    dim: usize,
    sizes: &[Dim],
    types: Vec<Type>,
) -> Result<Vec<Edge>, Reason> {
    let sizes = one_unknown(sizes)?;
    let sizes = draft.list("size_splits", &sizes);
    let at = draft.list("split_dim", &[dim as i64]);
    let operands = [("x", x), ("size_splits", &sizes), ("split_dim", &at)];
    let names: Vec<String> = (0..types.len()).map(|index| format!("y{index}")).collect();
    let attrs = vec![("num_split", int(types.len() as i64))];
    let results = names.iter().map(String::as_str).zip(types).collect();
    Ok(draft.add("SplitV", name, &operands, attrs, results))
}

/// Joins `parts` along `dim`.
pub(super) fn join(
    draft: &mut Draft<'_>,
    name: &str,
    parts: &[Edge],
    dim: usize,
    ty: Type,
) -> Edge {
    let names: Vec<String> = (0..parts.len()).map(|index| format!("x{index}")).collect();
    let operands: Vec<(&str, &Edge)> = names.iter().map(String::as_str).zip(parts).collect();
    let attrs = vec![
        ("concat_dim", int(dim as i64)),
        ("N", int(parts.len() as i64)),
    ];
    draft.one("ConcatD", name, &operands, attrs, ty)
}

/// Part of a tensor along one dimension.
pub(super) struct Piece {
    pub(super) dim: usize,
    pub(super) start: i64,
    /// `None` for the end of the dimension.
    pub(super) end: Option<i64>,
    pub(super) step: i64,
}

/// That part of `x`.
pub(super) fn cut(draft: &mut Draft<'_>, name: &str, x: &Edge, piece: Piece, ty: Type) -> Edge {
    let rank = x.ty.shape.rank();
    let along = |value: i64, otherwise: i64| -> Vec<i64> {
        let at = |dim| if dim == piece.dim { value } else { otherwise };
        (0..rank).map(at).collect()
    };
    let begin = draft.list("begin", &along(piece.start, 0));
    let end = draft.list("end", &along(piece.end.unwrap_or(0), 0));
    let strides = draft.list("strides", &along(piece.step, 1));
    // A bit that is set means the whole of that dimension, on that side.
    let others = ((1i64 << rank) - 1) & !(1 << piece.dim);
    let to_end = if piece.end.is_none() {
        1 << piece.dim
    } else {
        0
    };
    let attrs = vec![
        ("begin_mask", int(others)),
        ("end_mask", int(others | to_end)),
        ("ellipsis_mask", int(0)),
        ("new_axis_mask", int(0)),
        ("shrink_axis_mask", int(0)),
    ];
    let operands = [
        ("x", x),
        ("begin", &begin),
        ("end", &end),
        ("strides", &strides),
    ];
    draft.one("StridedSlice", name, &operands, attrs, ty)
}

/// `edge` in another shape of as many elements.
pub(super) fn reshaped(
    draft: &mut Draft<'_>,
    name: &str,
    edge: &Edge,
    ty: Type,
) -> Result<Edge, Reason> {
    let shape = shape(draft, &ty.shape)?;
    let attrs = vec![("axis", int(0)), ("num_axes", int(-1))];
    Ok(draft.one(
        "Reshape",
        name,
        &[("x", edge), ("shape", &shape)],
        attrs,
        ty,
    ))
}

/// A shape as an operand.
fn shape(draft: &mut Draft<'_>, shape: &Shape) -> Result<Edge, Reason> {
    let sizes = match shape.as_fixed() {
        Some(_) => dims(shape),
        None => one_unknown(shape.dims())?,
    };
    Ok(draft.list("shape", &sizes))
}

/// Sizes of which the engine can infer one, written as -1.
fn one_unknown(sizes: &[Dim]) -> Result<Vec<i64>, Reason> {
    let sizes: Vec<Option<u64>> = sizes.iter().map(Dim::as_fixed).collect();
    if sizes.iter().filter(|size| size.is_none()).count() > 1 {
        return Err("the engine infers one size of a shape, no more".to_owned());
    }
    Ok(sizes
        .iter()
        .map(|size| size.map_or(-1, |size| size as i64))
        .collect())
}

/// The dimension that `dim`, counted from the end when negative, means.
pub(super) fn position(dim: i64, rank: usize) -> usize {
    axis(dim, rank).expect("the type rules checked it")
}

/// A number as a constant of rank 0: an integer, or a float.
pub(super) fn number(value: Result<i64, f64>, dtype: DType) -> Literal {
    let as_float = match value {
        Ok(integer) => integer as f64,
        Err(float) => float,
    };
    let as_integer = match value {
        Ok(integer) => integer,
        Err(float) => float as i64,
    };
    let bytes = match dtype {
        DType::F16 => half::f16::from_f64(as_float).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(as_float).to_le_bytes().to_vec(),
        DType::F32 => (as_float as f32).to_le_bytes().to_vec(),
        DType::F64 => as_float.to_le_bytes().to_vec(),
        DType::C64 => [(as_float as f32).to_le_bytes(), [0; 4]].concat(),
        DType::C128 => [as_float.to_le_bytes(), [0; 8]].concat(),
        DType::Bool => vec![u8::from(as_float != 0.0)],
        integer => as_integer.to_le_bytes()[..integer.bytes() as usize].to_vec(),
    };
    Literal::new(dtype, Vec::new(), bytes).expect("the data has the size of its type")
}
