//! The steps of a program, taken by all ranks together.

use std::sync::LazyLock;

use hcom_convert::support::{self, Entry, Support};
use hcom_convert::{Call, Reduction, Root};
use hcom_ir::capabilities::Chip;
use hcom_ir::{Attrs, DType, Group, Op, ReduceOp, Type};

use super::draft::{Draft, Value};
use super::random::{Grain, Random};

/// Sizes that an operation's blocks have, over and over, so that values are used again.
const SHAPES: [&[u64]; 9] = [
    &[],
    &[1],
    &[2],
    &[4],
    &[2, 3],
    &[4, 2],
    &[2, 2, 2],
    &[0, 3],
    &[6, 1],
];

/// What follows the first dimension.
const ROWS: [&[u64]; 5] = [&[], &[2], &[3], &[2, 2], &[0]];

/// Collectives that reduce; the last one has other sizes on each rank.
const REDUCTIONS: [Op; 4] = [
    Op::AllReduce,
    Op::Reduce,
    Op::ReduceScatter,
    Op::ReduceScatterUneven,
];

/// Collectives that move data; the last one has other sizes on each rank.
const MOVES: [Op; 6] = [
    Op::AllGather,
    Op::AllToAll,
    Op::Broadcast,
    Op::Scatter,
    Op::GatherTo,
    Op::AllGatherUneven,
];

/// What holds for a whole program.
pub(super) struct Style {
    seed: u64,
    /// Whether all ranks have the same graph.
    uniform: bool,
    /// Whether reductions are what recording a call makes of them, rather than single operations.
    calls: bool,
    groups: Vec<Group>,
}

impl Style {
    pub(super) fn new(random: &mut Random, seed: u64, world_size: u32) -> Style {
        let uniform = random.one_in(2);
        let calls = random.one_in(2);
        let world: Vec<u32> = (0..world_size).collect();
        let mut groups = vec![Group::new("world", world.clone())];
        for name in ["a", "b", "c"] {
            let mut ranks = world.clone();
            random.shuffle(&mut ranks);
            if !uniform {
                ranks.truncate(random.below(world_size.into()) as usize + 1);
            }
            if groups.iter().all(|group| group.ranks != ranks) {
                groups.push(Group::new(name, ranks));
            }
        }
        Style {
            seed,
            uniform,
            calls,
            groups,
        }
    }

    /// Adds step `number`.
    pub(super) fn step(&self, number: u64, drafts: &mut [Draft]) {
        let mut random = Random::of(&[self.seed, 3, number]);
        match random.below(16) {
            0..6 => self.local(number, drafts, &mut random),
            6..9 => self.reduce(number, drafts, &mut random),
            9..13 => self.exchange(number, drafts, &mut random),
            13 => {
                let group = random.pick(&self.groups).clone();
                for &rank in &group.ranks {
                    drafts[rank as usize].communicate(Op::Barrier, &[], Attrs::new(), &group);
                }
            }
            _ if self.uniform => self.local(number, drafts, &mut random),
            _ => self.transfer(number, drafts, &mut random),
        }
    }

    /// Ends the program on every rank.
    pub(super) fn end(&self, drafts: &mut [Draft]) {
        for (rank, draft) in drafts.iter_mut().enumerate() {
            draft.end(&mut self.own(u64::MAX, rank as u32));
        }
    }

    /// The source of a rank's own choices in a step.
    fn own(&self, step: u64, rank: u32) -> Random {
        let rank = if self.uniform { 0 } else { rank };
        Random::of(&[self.seed, 4, step, rank.into()])
    }

    /// Every rank, or most of them, computes something.
    fn local(&self, step: u64, drafts: &mut [Draft], random: &mut Random) {
        let alike = self.uniform || random.one_in(2);
        for (rank, draft) in drafts.iter_mut().enumerate() {
            let mut own = self.own(step, if alike { 0 } else { rank as u32 });
            if !alike && own.one_in(4) {
                continue;
            }
            for _ in 0..own.below(3) + 1 {
                // What does not fit the values that are there is left out.
                let _ = compute(draft, &mut own);
            }
        }
    }

    fn reduce(&self, step: u64, drafts: &mut [Draft], random: &mut Random) {
        let group = random.pick(&self.groups).clone();
        let size = u64::from(group.group_size());
        let op = *random.pick(&REDUCTIONS[..REDUCTIONS.len() - usize::from(self.uniform)]);
        let dtype = *random.pick(&DType::ALL);
        let reduce = *random.pick(&ReduceOp::ALL);
        let factor = (reduce == ReduceOp::PremulSum).then_some(0.5);
        let root = random.below(size);
        let counts: Vec<u64> = (0..size).map(|_| random.below(3)).collect();
        let row = random.pick(&ROWS).to_vec();
        let shape = match op {
            Op::ReduceScatter => with_rows(size * random.below(3), &row),
            Op::ReduceScatterUneven => with_rows(counts.iter().sum(), &row),
            _ => random.pick(&SHAPES).to_vec(),
        };
        if !self.offers(op, dtype, reduce) {
            return;
        }
        for (rank, &global) in group.ranks.iter().enumerate() {
            let draft = &mut drafts[global as usize];
            let mut own = self.own(step, global);
            let operand = draft.obtain(dtype, &shape, &mut own);
            let mut attrs = Attrs::new().with("op", reduce);
            if let Some(factor) = factor {
                attrs.set("factor", factor);
            }
            let reduction = Reduction { op: reduce, factor };
            let call = match op {
                Op::AllReduce => Call::AllReduce { reduction },
                Op::Reduce => {
                    attrs.set("root", root as i64);
                    let root = Root::Group(root as u32);
                    Call::Reduce { reduction, root }
                }
                Op::ReduceScatter => Call::ReduceScatter {
                    reduction,
                    output: Type::fixed(dtype, &with_rows(shape[0] / size, &row)),
                },
                _ => {
                    attrs.set("counts", counts.clone());
                    attrs.set("rows", hcom_ir::Dim::fixed(counts[rank]));
                    Call::ReduceScatterUneven {
                        reduction,
                        output: Type::fixed(dtype, &with_rows(counts[rank], &row)),
                        input_splits: Some(
                            counts.iter().copied().map(hcom_ir::Dim::fixed).collect(),
                        ),
                    }
                }
            };
            if self.calls {
                draft.reduce(op, operand, attrs, &call, &group);
            } else {
                draft.communicate(op, &[operand], attrs, &group);
            }
        }
    }

    /// Whether the reduction can be had: converted calls have a table of their own.
    fn offers(&self, op: Op, dtype: DType, reduce: ReduceOp) -> bool {
        static CALLS: LazyLock<Vec<Entry>> = LazyLock::new(support::table);
        let chip = Chip::default();
        if !self.calls {
            return reduce.accepts(dtype)
                && chip.supports(op, Some(dtype), Some(reduce))
                && (reduce != ReduceOp::Avg || !dtype.is_integer());
        }
        let name = match op {
            Op::AllReduce => "all_reduce",
            Op::Reduce => "reduce",
            Op::ReduceScatter => "reduce_scatter_tensor",
            _ => "reduce_scatter_tensor_uneven",
        };
        CALLS
            .iter()
            .find(|entry| (entry.call, entry.reduction, entry.dtype) == (name, Some(reduce), dtype))
            .is_some_and(|entry| {
                !matches!(entry.support, Support::Refused(_)) && !entry.absent.contains(&chip)
            })
    }

    fn exchange(&self, step: u64, drafts: &mut [Draft], random: &mut Random) {
        let group = random.pick(&self.groups).clone();
        let size = u64::from(group.group_size());
        let op = *random.pick(&MOVES[..MOVES.len() - usize::from(self.uniform)]);
        let dtype = *random.pick(&DType::ALL);
        let row = random.pick(&ROWS).to_vec();
        let mut shape = random.pick(&SHAPES).to_vec();
        if shape.is_empty() && op != Op::Broadcast {
            shape.push(2);
        }
        let dim = random.below(shape.len().max(1) as u64) as i64;
        let root = random.below(size);
        let rows = size * random.below(3);
        let uneven = !self.uniform && random.one_in(2);
        let splits: Vec<Vec<u64>> = (0..size)
            .map(|_| (0..size).map(|_| random.below(3)).collect())
            .collect();
        for (rank, &global) in group.ranks.iter().enumerate() {
            let received: Vec<u64> = splits.iter().map(|of| of[rank]).collect();
            let attrs = Attrs::new();
            let (own_shape, attrs) = match op {
                Op::AllGather => (shape.clone(), attrs.with("dim", dim)),
                Op::AllGatherUneven => (
                    with_rows(splits[0][rank], &row),
                    attrs.with("counts", splits[0].clone()),
                ),
                Op::AllToAll if uneven => (
                    with_rows(splits[rank].iter().sum(), &row),
                    attrs
                        .with("send_counts", splits[rank].clone())
                        .with("recv_counts", received),
                ),
                Op::AllToAll => (with_rows(rows, &row), attrs),
                Op::Scatter => (with_rows(rows, &row), attrs.with("root", root as i64)),
                _ => (shape.clone(), attrs.with("root", root as i64)),
            };
            let draft = &mut drafts[global as usize];
            let operand = draft.obtain(dtype, &own_shape, &mut self.own(step, global));
            draft.communicate(op, &[operand], attrs, &group);
        }
    }

    /// One rank sends to another.
    fn transfer(&self, step: u64, drafts: &mut [Draft], random: &mut Random) {
        let groups: Vec<&Group> = self.groups.iter().filter(|g| g.ranks.len() > 1).collect();
        let group = (*random.pick(&groups)).clone();
        let size = u64::from(group.group_size());
        let from = random.below(size);
        let to = (from + 1 + random.below(size - 1)) % size;
        let dtype = *random.pick(&DType::ALL);
        let shape = random.pick(&SHAPES).to_vec();
        let attrs = Attrs::new().with("tag", random.below(3) as i64);

        let global = group.ranks[from as usize];
        let sender = &mut drafts[global as usize];
        let value = sender.obtain(dtype, &shape, &mut self.own(step, global));
        let send = attrs.clone().with("peer", to as i64);
        sender.communicate(Op::Send, &[value], send, &group);

        let receive = attrs
            .with("peer", from as i64)
            .with("type", Type::fixed(dtype, &shape));
        let receiver = &mut drafts[group.ranks[to as usize] as usize];
        receiver.communicate(Op::Recv, &[], receive, &group);
    }
}

fn with_rows(rows: u64, row: &[u64]) -> Vec<u64> {
    let mut shape = vec![rows];
    shape.extend(row);
    shape
}

/// Whether the device's operator library computes `op` on elements of this type. It moves all
/// types, computes with few unsigned ones and not with complex ones.
fn computes(op: Op, dtype: DType) -> bool {
    let signed = dtype.is_float() || (dtype.is_integer() && dtype.is_signed());
    let number = signed || dtype == DType::U8;
    match op {
        Op::Neg => signed,
        Op::Sub | Op::Maximum | Op::Minimum | Op::Abs | Op::Relu | Op::Max => number,
        Op::Add | Op::Mul | Op::Equal | Op::Less | Op::Greater | Op::Where => {
            number || dtype == DType::Bool
        }
        Op::Cast | Op::Fill | Op::Pad => !dtype.is_complex(),
        _ => true,
    }
}

/// Adds an operation without communication; `None` when there is no operand for it.
fn compute(draft: &mut Draft, random: &mut Random) -> Option<Vec<Value>> {
    const CHOICES: [Op; 24] = [
        Op::Copy,
        Op::Cast,
        Op::Add,
        Op::Sub,
        Op::Mul,
        Op::Maximum,
        Op::Minimum,
        Op::Neg,
        Op::Abs,
        Op::Relu,
        Op::Where,
        Op::Equal,
        Op::Less,
        Op::Greater,
        Op::Matmul,
        Op::Reshape,
        Op::Transpose,
        Op::Slice,
        Op::Concat,
        Op::Split,
        Op::Expand,
        Op::Pad,
        Op::Max,
        Op::Fill,
    ];
    let op = *random.pick(&CHOICES);
    let attrs = Attrs::new();
    if op == Op::Matmul {
        let dtype = *random.pick(&[DType::F32, DType::F16, DType::BF16]);
        let [a, b] = [[2, 3], [3, 2]].map(|shape| draft.coarse(dtype, &shape, &mut random.clone()));
        return draft.push(op, &[a, b], attrs);
    }
    let target = *random.pick(&DType::ALL);
    if matches!(op, Op::Fill | Op::Cast) && !computes(op, target) {
        return None;
    }
    if op == Op::Fill {
        let attrs = attrs
            .with("shape", *random.pick(&SHAPES))
            .with("value", random.below(2) as i64)
            .with("dtype", target);
        return draft.push(op, &[], attrs);
    }
    if draft.values().is_empty() {
        draft.input(DType::F32, &[2, 3], Grain::Fine, random);
    }
    let x = *random.pick(draft.values());
    let ty = draft.ty(x).clone();
    if !computes(op, ty.dtype) {
        return None;
    }
    let shape = draft.shape(x);
    let rank = shape.len() as u64;
    let dim = random.below(rank.max(1));
    let size = shape.get(dim as usize).copied();
    let dims = || attrs.clone().with("dim", dim as i64);
    match op {
        Op::Cast => draft.push(op, &[x], attrs.with("to", target)),
        Op::Add
        | Op::Sub
        | Op::Mul
        | Op::Maximum
        | Op::Minimum
        | Op::Equal
        | Op::Less
        | Op::Greater => {
            let others = draft.fitting(|other| other.dtype == ty.dtype);
            let y = *random.pick(&others);
            // Shapes that do not broadcast leave the value itself.
            draft
                .push(op, &[x, y], attrs.clone())
                .or_else(|| draft.push(op, &[x, x], attrs))
        }
        Op::Where => {
            let conditions = draft.fitting(|other| other.dtype == DType::Bool);
            let others = draft.fitting(|other| other.dtype == ty.dtype);
            if conditions.is_empty() {
                return None;
            }
            let (condition, y) = (*random.pick(&conditions), *random.pick(&others));
            draft.push(op, &[condition, x, y], attrs)
        }
        Op::Reshape => {
            let flat: u64 = shape.iter().product();
            draft.push(op, &[x], attrs.with("shape", vec![1, flat]))
        }
        Op::Transpose => {
            let mut perm: Vec<i64> = (0..rank as i64).collect();
            random.shuffle(&mut perm);
            draft.push(op, &[x], attrs.with("perm", perm))
        }
        Op::Slice => {
            let start = random.below(size? + 1);
            let end = start + random.below(size? - start + 1);
            let step = random.below(2) as i64 + 1;
            let attrs = dims()
                .with("start", start as i64)
                .with("end", end as i64)
                .with("step", step);
            draft.push(op, &[x], attrs)
        }
        Op::Concat => {
            let others = draft.fitting(|other| other.dtype == ty.dtype);
            let y = *random.pick(&others);
            draft
                .push(op, &[x, y, x], dims())
                .or_else(|| draft.push(op, &[x, x], dims()))
        }
        Op::Split => {
            let first = random.below(size? + 1);
            let sizes = vec![first, size? - first];
            draft.push(op, &[x], dims().with("sizes", sizes))
        }
        Op::Expand => {
            let mut wide = vec![2];
            wide.extend(&shape);
            draft.push(op, &[x], attrs.with("shape", wide))
        }
        Op::Pad => {
            let mut amount = || (0..rank).map(|_| random.below(2)).collect::<Vec<u64>>();
            let attrs = attrs.with("low", amount()).with("high", amount());
            draft.push(op, &[x], attrs.with("value", random.below(2) as i64))
        }
        Op::Max => {
            size?;
            draft.push(op, &[x], attrs.with("dims", vec![dim as i64]))
        }
        _ => draft.push(op, &[x], attrs),
    }
}
