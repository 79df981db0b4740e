//! Attention: `softmax(scale·Q·Kᵀ) · V` per head, with masks.

mod kernel;

use self::kernel::{Attention, EVERYTHING, Memory, Shift, window};
use super::compute::Compute;
use super::dtype::{HALF_AND_SINGLE, Type};
use super::executor::{Arg, Operand, Plan, bad};
use super::layout::{Dims, Layout};
use super::object::Tensor;
use crate::error::Outcome;
use crate::span::strided::Storage;

/// Types of a mask.
const MASKS: &[Type] = &[Type::Bool, Type::I8, Type::U8];

/// A tensor as batches, heads, positions and elements of a head.
fn heads(operand: &Operand, order: &str, count: usize) -> Outcome<Layout> {
    let mut at = operand.layout.clone();
    let wrong = |expected: String| {
        bad(
            &operand.name,
            expected,
            format_args!("{:?}", operand.dims()),
        )
    };
    if at.rank() != order.len() {
        return Err(wrong(format!("the {} dimensions of {order}", order.len())));
    }
    let find = |letter: char| order.find(letter);
    let order: [usize; 4] = match (find('H'), find('B'), find('S')) {
        (Some(hidden), Some(batch), Some(position)) => {
            let size = at.dims[hidden];
            if count == 0 || !size.is_multiple_of(count) {
                return Err(wrong(format!("a hidden size that {count} heads share")));
            }
            at = at.split_dim(hidden, count);
            [batch, hidden, position, hidden + 1]
        }
        (None, Some(batch), Some(position)) => {
            let (head, element) = (find('N').unwrap_or(0), find('D').unwrap_or(0));
            if at.dims[head] != count {
                return Err(wrong(format!("{count} heads in dimension {head}")));
            }
            [batch, head, position, element]
        }
        _ => unreachable!("layouts have batches and positions"),
    };
    Ok(at.permute(&order))
}

/// Numbers of heads of query and key.
fn head_counts(heads: i64, key_heads: i64) -> Outcome<[usize; 2]> {
    let query = usize::try_from(heads).ok().filter(|&heads| heads > 0);
    let query = query.ok_or_else(|| bad("numHeads", "at least 1", heads))?;
    let key = match key_heads {
        0 => Some(query),
        _ => usize::try_from(key_heads).ok(),
    };
    match key.filter(|&key| key > 0 && query.is_multiple_of(key)) {
        Some(key) => Ok([query, key]),
        None => {
            let expected = format!("a divisor of the {query} heads of the query, or 0");
            Err(bad("numKeyValueHeads", expected, key_heads))
        }
    }
}

/// One length per batch, each at most `most`; all of `most` if there is none.
fn lengths(array: &Arg<Vec<i64>>, batches: usize, most: usize) -> Outcome<Vec<usize>> {
    let list = match array.optional() {
        None => return Ok(vec![most; batches]),
        Some(list) if list.is_empty() => return Ok(vec![most; batches]),
        Some(list) => list,
    };
    let known: Option<Vec<usize>> = list
        .iter()
        .map(|&len| usize::try_from(len).ok().filter(|&len| len <= most))
        .collect();
    match known {
        Some(known) if known.len() == batches => Ok(known),
        Some(known) if known.len() == 1 => Ok(vec![known[0]; batches]),
        _ => {
            let expected = format!("{batches} lengths from 0 to {most}");
            Err(bad(array.name, expected, format_args!("{list:?}")))
        }
    }
}

/// A tensor over batches, heads, queries and keys, whose missing dimensions are those in front (a mask of three
/// dimensions has no heads). It may be larger than what is looked at in the last two.
fn over_scores(operand: &Operand, dims: [usize; 4]) -> Outcome<Layout> {
    let mut at = operand.layout.clone();
    if at.rank() == 3 {
        at = at.insert_dim(1);
    }
    let larger = |d: usize, at: &Layout| at.dims[d] >= dims[d + 4 - at.rank()];
    if at.rank() >= 2 && at.rank() <= 4 {
        for d in at.rank() - 2..at.rank() {
            if at.dims[d] != 1 && larger(d, &at) {
                at = at.narrow(d, 0, dims[d + 4 - at.rank()], 1);
            }
        }
        if let Some(at) = at.broadcast_to(&dims) {
            return Ok(at);
        }
    }
    let expected = format!("a shape that broadcasts to {dims:?}");
    Err(bad(
        &operand.name,
        expected,
        format_args!("{:?}", operand.dims()),
    ))
}

/// Optional tensors without elements count as absent.
fn present(operand: Option<Operand>) -> Option<Operand> {
    operand.filter(|operand| operand.layout.len() > 0)
}

fn layout_name(name: Option<String>, known: &[&'static str]) -> Outcome<&'static str> {
    let name = name.unwrap_or_default();
    let found = known.iter().find(|&&layout| layout == name);
    found
        .copied()
        .ok_or_else(|| bad("inputLayout", known.join(", "), format_args!("{name:?}")))
}

/// What the attention operators have in common.
struct Parts {
    query: Operand,
    /// As many as [`Attention::keys`].
    keys: Vec<Operand>,
    values: Vec<Operand>,
    pse: Option<Operand>,
    mask: Option<Operand>,
    out: Operand,
}

impl Parts {
    /// The attention of these operands, before lengths and windows are set.
    fn attention(
        &self,
        [order, out_order]: [&str; 2],
        [query_heads, key_heads]: [usize; 2],
        scale: f64,
        shift: Shift,
    ) -> Outcome<Attention> {
        self.query.expect_types(HALF_AND_SINGLE)?;
        let rest = self.keys.iter().chain(&self.values);
        for operand in rest.chain([&self.out]) {
            operand.expect_types(&[self.query.dtype])?;
        }
        let query = heads(&self.query, order, query_heads)?;
        let batches = query.dims[0];
        let mut keys = Vec::new();
        for (key, value) in self.keys.iter().zip(&self.values) {
            let [key_at, value_at] = [
                heads(key, order, key_heads)?,
                heads(value, order, key_heads)?,
            ];
            let positions = key_at.dims[2];
            let mut expected = query.dims.clone();
            expected[0] = if self.keys.len() == 1 { batches } else { 1 };
            (expected[1], expected[2]) = (key_heads, positions);
            if key_at.dims != expected {
                let expected = format!("batches, heads, positions and elements {expected:?}");
                return Err(bad(&key.name, expected, format_args!("{:?}", key_at.dims)));
            }
            if value_at.dims[..3] != key_at.dims[..3] {
                let expected = format!("the shape {:?} of {}", key.dims(), key.name);
                return Err(bad(
                    &value.name,
                    expected,
                    format_args!("{:?}", value.dims()),
                ));
            }
            keys.push([key_at, value_at]);
        }
        let out = heads(&self.out, out_order, query_heads)?;
        let mut expected = query.dims.clone();
        expected[3] = keys[0][1].dims[3];
        if out.dims != expected {
            let expected = format!("batches, heads, positions and elements {expected:?}");
            return Err(bad(
                &self.out.name,
                expected,
                format_args!("{:?}", out.dims),
            ));
        }
        let most = keys.iter().map(|[key, _]| key.dims[2]).max().unwrap_or(0);
        let dims = [batches, query_heads, query.dims[2], most];
        if let Some(mask) = &self.mask {
            mask.expect_types(MASKS)?;
        }
        if let Some(pse) = &self.pse {
            pse.expect_types(HALF_AND_SINGLE)?;
        }
        let over = |operand: &Option<Operand>| {
            operand
                .as_ref()
                .map(|operand| over_scores(operand, dims))
                .transpose()
        };
        Ok(Attention {
            scale: scale as f32,
            window: EVERYTHING,
            shift,
            key_lengths: (0..batches)
                .map(|b| keys[b % keys.len()][0].dims[2])
                .collect(),
            query_lengths: vec![query.dims[2]; batches],
            pse: over(&self.pse)?,
            mask: over(&self.mask)?,
            query,
            out,
            keys,
        })
    }

    /// Operands in the order of the parameters; further outputs before the last one.
    fn plan(
        self,
        attention: Attention,
        between: Vec<Operand>,
        statistics: impl Fn(&[Storage], usize, f32, f32) + Send + Sync + 'static,
    ) -> Plan {
        let count = self.keys.len();
        let [with_pse, with_mask] = [self.pse.is_some(), self.mask.is_some()];
        let mut operands = vec![self.query];
        operands.extend(self.keys.into_iter().chain(self.values));
        operands.extend([self.pse, self.mask].into_iter().flatten());
        operands.extend(between);
        operands.push(self.out);
        Plan::many(operands, move |storages| {
            let (query, rest) = storages.split_first().expect("the query is there");
            let (out, rest) = rest.split_last().expect("the output is there");
            let (keys, rest) = rest.split_at(count);
            let (values, mut rest) = rest.split_at(count);
            let mut next = |present: bool| {
                let (first, others) = rest.split_first().filter(|_| present)?;
                rest = others;
                Some(first)
            };
            let memory = Memory {
                query,
                keys: keys
                    .iter()
                    .zip(values)
                    .map(|(key, value)| [key, value])
                    .collect(),
                pse: next(with_pse),
                mask: next(with_mask),
                out,
            };
            attention.run(&memory, &mut |row, largest, total| {
                statistics(rest, row, largest, total);
            });
            Ok(())
        })
    }
}

/// aclnnPromptFlashAttention: attention of whole sequences. Layouts BSH, BSND, BNSD and BNSD_BSND; groups of query heads
/// share a head of key and value. With a mask (set where a key is hidden), the keys from `before` in front of a query to
/// `after` behind it count. Queries behind the length of their batch, and those without a key, give 0. FLOAT, FLOAT16,
/// BF16, computed in FLOAT.
#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn prompt(
    query: Arg<Tensor>,
    key: Arg<Tensor>,
    value: Arg<Tensor>,
    pse: Arg<Tensor>,
    mask: Arg<Tensor>,
    query_lengths: Arg<Vec<i64>>,
    heads: i64,
    scale: f64,
    [before, after]: [i64; 2],
    layout: Option<String>,
    key_heads: i64,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let layouts = match layout_name(layout, &["BSH", "BSND", "BNSD", "BNSD_BSND"])? {
        "BNSD_BSND" => ["BNSD", "BSND"],
        layout => [layout; 2],
    };
    let parts = Parts {
        query: query.input()?,
        keys: vec![key.input()?],
        values: vec![value.input()?],
        pse: present(pse.optional_input()?),
        mask: present(mask.optional_input()?),
        out: out.output()?,
    };
    let counts = head_counts(heads, key_heads)?;
    let mut attention = parts.attention(layouts, counts, scale, Shift::AfterScale)?;
    let &[batches, _, rows, _] = attention.query.dims.as_slice() else {
        unreachable!("four dimensions")
    };
    attention.query_lengths = lengths(&query_lengths, batches, rows)?;
    if parts.mask.is_some() {
        attention.window = window(0, before, after);
    }
    Ok(parts.plan(attention, Vec::new(), |_, _, _, _| {}))
}

/// aclnnIncreFlashAttention: attention of one query per batch over a cache of keys and values, of which the first
/// `key_lengths[b]` count. The lists hold one tensor for all batches, or one per batch. Layouts BSH, BSND, BNSD. Masks,
/// heads and types as for aclnnPromptFlashAttention; a mask of two dimensions runs over batches and keys.
#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn incremental(
    query: Arg<Tensor>,
    keys: Arg<Vec<usize>>,
    values: Arg<Vec<usize>>,
    pse: Arg<Tensor>,
    mask: Arg<Tensor>,
    key_lengths: Arg<Vec<i64>>,
    heads: i64,
    scale: f64,
    layout: Option<String>,
    key_heads: i64,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let layout = layout_name(layout, &["BSH", "BSND", "BNSD"])?;
    let mut mask = present(mask.optional_input()?);
    if let Some(mask) = mask.as_mut().filter(|mask| mask.rank() == 2) {
        mask.layout = mask.layout.insert_dim(1);
    }
    let parts = Parts {
        query: query.input()?,
        keys: keys.inputs()?,
        values: values.inputs()?,
        pse: present(pse.optional_input()?),
        mask,
        out: out.output()?,
    };
    for (name, list) in [(keys.name, &parts.keys), (values.name, &parts.values)] {
        if list.is_empty() || list.len() != parts.keys.len() {
            let expected = format!("{} tensors", parts.keys.len().max(1));
            return Err(bad(name, expected, list.len()));
        }
    }
    let counts = head_counts(heads, key_heads)?;
    let mut attention = parts.attention([layout; 2], counts, scale, Shift::AfterScale)?;
    let &[batches, _, rows, _] = attention.query.dims.as_slice() else {
        unreachable!("four dimensions")
    };
    if rows != 1 {
        return Err(bad(&parts.query.name, "one position", rows));
    }
    if parts.keys.len() != 1 && parts.keys.len() != batches {
        let expected = format!("1 tensor, or {batches}, one per batch");
        return Err(bad(keys.name, expected, parts.keys.len()));
    }
    let whole = attention.key_lengths.clone();
    let most = whole.iter().copied().max().unwrap_or(0);
    let asked = lengths(&key_lengths, batches, most)?;
    attention.key_lengths = whole
        .into_iter()
        .zip(asked)
        .map(|(a, b)| a.min(b))
        .collect();
    Ok(parts.plan(attention, Vec::new(), |_, _, _, _| {}))
}

/// The parameters of aclnnFlashAttentionScore that are no tensors.
pub(crate) struct ScoreOptions {
    pub(crate) scale: f64,
    pub(crate) keep: f64,
    pub(crate) before: i64,
    pub(crate) after: i64,
    pub(crate) heads: i64,
    pub(crate) layout: Option<String>,
    pub(crate) sparse_mode: i64,
    pub(crate) precision: i64,
}

/// aclnnFlashAttentionScore: attention as training has it, `softmax(scale·(Q·Kᵀ + shift))·V`, and the largest score and
/// the sum of powers of each query, eight times, for the backward pass. Layouts BSH, SBH, BSND, BNSD. Sparse modes 0
/// (mask, and the window where there is one), 1 (mask), 2 and 3 (keys up to the query, counted from the start or the
/// end) and 4 (window counted from the end). Each `precision` computes in FLOAT. Dropout, prefixes and padding masks are refused. FLOAT, FLOAT16, BF16,
/// computed in FLOAT.
#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn score(
    query: Arg<Tensor>,
    key: Arg<Tensor>,
    value: Arg<Tensor>,
    shift: Arg<Tensor>,
    [drop, padding]: [Arg<Tensor>; 2],
    mask: Arg<Tensor>,
    prefix: Arg<Vec<i64>>,
    options: ScoreOptions,
    [max_out, sum_out, reserved]: [Arg<Tensor>; 3],
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let layout = layout_name(options.layout, &["BSH", "SBH", "BSND", "BNSD"])?;
    if !(0..=4).contains(&options.precision) {
        return Err(bad(
            "innerPrecise",
            "a number from 0 to 4",
            options.precision,
        ));
    }
    for absent in [drop, padding, reserved] {
        if present(absent.optional_input()?).is_some() {
            return Err(bad(absent.name, "no tensor, as here is none of it", "one"));
        }
    }
    if options.keep != 1.0 {
        return Err(bad("keepProb", "1, as here is no dropout", options.keep));
    }
    if prefix.optional().is_some_and(|prefix| !prefix.is_empty()) {
        return Err(bad(prefix.name, "no prefixes, as here are none", "some"));
    }
    let mut parts = Parts {
        query: query.input()?,
        keys: vec![key.input()?],
        values: vec![value.input()?],
        pse: present(shift.optional_input()?),
        mask: present(mask.optional_input()?),
        out: out.output()?,
    };
    let heads = usize::try_from(options.heads)
        .ok()
        .filter(|&heads| heads > 0);
    let heads = heads.ok_or_else(|| bad("headNum", "at least 1", options.heads))?;
    let key = &parts.keys[0];
    let key_heads = match layout.find('N') {
        Some(dim) => key.dims().get(dim).copied().unwrap_or(0),
        None => {
            let width = parts.query.dims().last().copied().unwrap_or(0) / heads;
            key.dims().last().copied().unwrap_or(0) / width.max(1)
        }
    };
    if key_heads == 0 || !heads.is_multiple_of(key_heads) {
        let expected = format!("heads of which {heads} is a multiple");
        return Err(bad(
            &key.name,
            expected,
            format_args!("shape {:?}", key.dims()),
        ));
    }
    let compressed = matches!(options.sparse_mode, 2..=4);
    let given = if compressed { parts.mask.take() } else { None };
    let mut attention = parts.attention(
        [layout; 2],
        [heads, key_heads],
        options.scale,
        Shift::BeforeScale,
    )?;
    let &[batches, _, rows, _] = attention.query.dims.as_slice() else {
        unreachable!("four dimensions")
    };
    let from_end = attention.keys[0][0].dims[2] as i64 - rows as i64;
    let (before, after) = (options.before, options.after);
    attention.window = match options.sparse_mode {
        0 if parts.mask.is_some() => window(0, before, after),
        0 | 1 => EVERYTHING,
        2 => window(0, i64::MAX, 0),
        3 => window(from_end, i64::MAX, 0),
        4 => window(from_end, before, after),
        mode => return Err(bad("sparseMode", "a number from 0 to 4", mode)),
    };
    let (max_out, sum_out) = (max_out.output()?, sum_out.output()?);
    let wanted: Dims = [batches, heads, rows, 8].as_slice().into();
    for output in [&max_out, &sum_out] {
        output.expect_types(&[Type::F32])?;
        output.expect_dims(&wanted)?;
    }
    let statistics_at = [max_out.layout.clone(), sum_out.layout.clone()];
    // The compressed mask says what the mode says; it keeps its place among the operands.
    let between = given.into_iter().chain([max_out, sum_out]).collect();
    Ok(
        parts.plan(attention, between, move |storages, row, largest, total| {
            let outputs = &storages[storages.len() - 2..];
            for ((output, at), value) in outputs.iter().zip(&statistics_at).zip([largest, total]) {
                f32::write(&output.elements(at), row * 8, &[value; 8]);
            }
        }),
    )
}
