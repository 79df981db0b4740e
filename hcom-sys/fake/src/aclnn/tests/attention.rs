//! Attention, against sums written out in `f64`.

use std::ffi::CStr;

use super::*;
use crate::aclnn::dtype::HALF_AND_SINGLE;

/// Number of a tensor's element from batch, head, position and place in the head.
type Index = fn([usize; 4], [usize; 4]) -> usize;

/// Dimensions of a tensor of so many batches, heads, positions and elements.
type Dims = fn([usize; 4]) -> Vec<usize>;

/// `[B, N, S, D]` of a layout's dimensions, and where an element lies.
fn order(layout: &str) -> (Dims, Index) {
    match layout {
        "BSH" => (
            |[b, n, s, d]| vec![b, s, n * d],
            |[_, n, s, d], [i, j, k, l]| ((i * s + k) * n + j) * d + l,
        ),
        "SBH" => (
            |[b, n, s, d]| vec![s, b, n * d],
            |[b, n, _, d], [i, j, k, l]| ((k * b + i) * n + j) * d + l,
        ),
        "BSND" => (
            |[b, n, s, d]| vec![b, s, n, d],
            |[_, n, s, d], [i, j, k, l]| ((i * s + k) * n + j) * d + l,
        ),
        _ => (
            |[b, n, s, d]| vec![b, n, s, d],
            |[_, n, s, d], [i, j, k, l]| ((i * n + j) * s + k) * d + l,
        ),
    }
}

/// Query, key, value and output of `[B, N, Sq, Sk, D]` with so many heads for the keys.
struct Case {
    layout: &'static str,
    query: Dev,
    key: Dev,
    value: Dev,
    out: Dev,
    sizes: [usize; 5],
    key_heads: usize,
}

impl Case {
    fn new(
        dtype: Type,
        layout: &'static str,
        out_layout: &str,
        sizes: [usize; 5],
        key_heads: usize,
        form: Form,
    ) -> Case {
        let [b, n, rows, keys, d] = sizes;
        let (dims, _) = order(layout);
        let make = |sizes: [usize; 4], step| {
            Dev::of(
                dtype,
                &dims(sizes),
                &spread(sizes.iter().product(), step),
                form,
            )
        };
        Case {
            layout,
            query: make([b, n, rows, d], 0.0625),
            key: make([b, key_heads, keys, d], 0.125),
            value: make([b, key_heads, keys, d], 0.25),
            out: Dev::new(dtype, &order(out_layout).0([b, n, rows, d]), form),
            sizes,
            key_heads,
        }
    }

    /// The output in the order of `out_layout`, and largest score and sum per batch, head and query. `score` changes
    /// that of batch, head, query and key; minus infinity hides the key.
    fn expected(
        &self,
        out_layout: &str,
        score: impl Fn([usize; 4], f64) -> f64,
    ) -> (Vec<f64>, Vec<[f64; 2]>) {
        let [b, n, rows, keys, d] = self.sizes;
        let (at, to) = (order(self.layout).1, order(out_layout).1);
        let mut out = vec![0.0; b * n * rows * d];
        let mut statistics = Vec::new();
        for i in 0..b {
            for j in 0..n {
                let shared = j / (n / self.key_heads);
                let of_key = |k, l| at([b, self.key_heads, keys, d], [i, shared, k, l]);
                for row in 0..rows {
                    let query = |l| self.query.get(at([b, n, rows, d], [i, j, row, l]));
                    let scores: Vec<f64> = (0..keys)
                        .map(|k| {
                            let dot = (0..d).map(|l| query(l) * self.key.get(of_key(k, l))).sum();
                            score([i, j, row, k], dot)
                        })
                        .collect();
                    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let powers: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
                    let total: f64 = powers.iter().filter(|p| !p.is_nan()).sum();
                    statistics.push([largest, total]);
                    for l in 0..d {
                        let value = |k| self.value.get(of_key(k, l));
                        let sum: f64 = (0..keys).map(|k| powers[k] / total * value(k)).sum();
                        out[to([b, n, rows, d], [i, j, row, l])] =
                            if total > 0.0 { sum } else { 0.0 };
                    }
                }
            }
        }
        (out, statistics)
    }
}

#[track_caller]
fn close(what: &str, tensor: &Dev, expected: &[f64]) {
    let values = tensor.values();
    assert_eq!(values.len(), expected.len(), "{what}");
    for (i, (got, expected)) in values.iter().zip(expected).enumerate() {
        let fits =
            (got - expected).abs() <= 8.0 * tolerance(tensor.dtype) * expected.abs().max(1.0);
        assert!(
            fits,
            "{what}, {}: element {i}: {got} for {expected}",
            tensor.dtype
        );
    }
}

fn name(layout: &CStr) -> *mut std::ffi::c_char {
    layout.as_ptr().cast_mut()
}

const NONE: *const aclTensor = ptr::null();
const NO_LENGTHS: *const aclIntArray = ptr::null();

#[test]
fn prompts_in_every_layout() {
    let layouts = [
        (c"BSH", "BSH", "BSH"),
        (c"BSND", "BSND", "BSND"),
        (c"BNSD", "BNSD", "BNSD"),
        (c"BNSD_BSND", "BNSD", "BSND"),
    ];
    for &dtype in HALF_AND_SINGLE {
        for (form, (code, layout, out_layout)) in FORMS.into_iter().zip(layouts) {
            // Four heads of the query share two of the keys.
            let case = Case::new(dtype, layout, out_layout, [2, 4, 3, 5, 2], 2, form);
            run!(aclnnPromptFlashAttention aclnnPromptFlashAttentionGetWorkspaceSize(
                case.query, case.key, case.value, NONE, NONE, NO_LENGTHS, 4i64, 0.5f64, 0i64, 0i64, name(code), 2i64, case.out
            ));
            let (expected, _) = case.expected(out_layout, |_, dot| 0.5 * dot);
            close(layout, &case.out, &expected);
        }
    }
}

#[test]
fn prompts_with_masks_lengths_windows_and_shifts() {
    for &dtype in HALF_AND_SINGLE {
        // More queries than a tile holds.
        let case = Case::new(dtype, "BNSD", "BNSD", [2, 2, 70, 70, 3], 2, Form::Plain);
        // The mask of each batch hides every seventh key, and all from query 5 of batch 1; it is wider than the keys.
        let hidden = |b: usize, row: usize, k: usize| (k + b) % 7 == 3 || (b == 1 && row == 5);
        let bits: Vec<f64> = (0..2 * 70 * 96)
            .map(|i| f64::from(u8::from(hidden(i / (70 * 96), i / 96 % 70, i % 96))))
            .collect();
        let mask = Dev::of(Type::Bool, &[2, 1, 70, 96], &bits, Form::Plain);
        let shift = Dev::of(dtype, &[1, 2, 70, 70], &spread(9800, 0.0001), Form::Plain);
        run!(aclnnPromptFlashAttention aclnnPromptFlashAttentionGetWorkspaceSize(
            case.query, case.key, case.value, shift, mask, ints(&[70, 66]), 2i64, 0.25f64, 9i64, 2i64, name(c"BNSD"), 0i64, case.out
        ));
        let (expected, _) = case.expected("BNSD", |[b, n, row, k], dot| {
            let outside = k + 9 < row || k > row + 2 || hidden(b, row, k) || (b == 1 && row >= 66);
            let shifted = 0.25 * dot + shift.get((n * 70 + row) * 70 + k);
            if outside { f64::NEG_INFINITY } else { shifted }
        });
        close("masked", &case.out, &expected);
    }
    let case = Case::new(Type::F16, "BSH", "BSH", [1, 2, 3, 3, 2], 2, Form::Plain);
    let refused = |heads: i64, layout: &CStr, key_heads: i64| {
        first!(aclnnPromptFlashAttentionGetWorkspaceSize(
            case.query,
            case.key,
            case.value,
            NONE,
            NONE,
            NO_LENGTHS,
            heads,
            1f64,
            0i64,
            0i64,
            name(layout),
            key_heads,
            case.out
        ))
        .unwrap_err()
    };
    let (code, text) = refused(3, c"BSH", 0);
    assert_eq!(code, 161_002);
    assert!(
        text.contains("parameter query: expected a hidden size that 3 heads share"),
        "{text}"
    );
    let (code, text) = refused(2, c"TND", 0);
    assert_eq!(code, 161_002);
    assert!(
        text.contains("parameter inputLayout: expected BSH, BSND, BNSD, BNSD_BSND"),
        "{text}"
    );
    let (code, text) = refused(2, c"BSH", 3);
    assert_eq!(code, 161_002);
    assert!(
        text.contains("parameter numKeyValueHeads: expected a divisor of the 2 heads"),
        "{text}"
    );
}

#[test]
fn one_position_over_a_cache() {
    for &dtype in HALF_AND_SINGLE {
        for (form, (code, layout)) in FORMS.into_iter().zip([
            (c"BSH", "BSH"),
            (c"BSND", "BSND"),
            (c"BNSD", "BNSD"),
            (c"BSH", "BSH"),
        ]) {
            let case = Case::new(dtype, layout, layout, [3, 4, 1, 6, 2], 2, form);
            let bits: Vec<f64> = (0..18).map(|i| f64::from(u8::from(i % 6 == 1))).collect();
            let mask = Dev::of(Type::I8, &[3, 6], &bits, Form::Gapped);
            let lengths = [6, 4, 1];
            run!(aclnnIncreFlashAttention aclnnIncreFlashAttentionGetWorkspaceSize(
                case.query, list(&[&case.key]), list(&[&case.value]), NONE, mask, ints(&lengths), 4i64, 0.7f64, name(code), 2i64, case.out
            ));
            let (expected, _) = case.expected(layout, |[b, _, _, k], dot| {
                if k == 1 || k as i64 >= lengths[b] {
                    f64::NEG_INFINITY
                } else {
                    0.7 * dot
                }
            });
            close(layout, &case.out, &expected);
        }
    }
    // A tensor per batch, of different lengths.
    let query = Dev::of(Type::F32, &[2, 1, 2], &[1.0, 0.5, -1.0, 2.0], Form::Plain);
    let short = Dev::of(Type::F32, &[1, 1, 2], &[3.0, 4.0], Form::Plain);
    let long = Dev::of(Type::F32, &[1, 2, 2], &[0.0, 0.0, 0.0, 0.0], Form::Plain);
    let values = Dev::of(Type::F32, &[1, 2, 2], &[1.0, 2.0, 3.0, 6.0], Form::Plain);
    let out = Dev::new(Type::F32, &[2, 1, 2], Form::Plain);
    let (keys, cached) = (list(&[&short, &long]), list(&[&short, &values]));
    run!(aclnnIncreFlashAttention aclnnIncreFlashAttentionGetWorkspaceSize(
        query, keys, cached, NONE, NONE, NO_LENGTHS, 1i64, 1f64, name(c"BSH"), 0i64, out
    ));
    assert_eq!(out.values(), [3.0, 4.0, 2.0, 4.0]);
    let prompt = Dev::of(Type::F32, &[1, 2, 2], &spread(4, 1.0), Form::Plain);
    assert_refused(
        first!(aclnnIncreFlashAttentionGetWorkspaceSize(
            prompt,
            list(&[&long]),
            list(&[&values]),
            NONE,
            NONE,
            NO_LENGTHS,
            1i64,
            1f64,
            name(c"BSH"),
            0i64,
            prompt
        )),
        "parameter query: expected one position, got 2",
    );
}

#[test]
fn training_scores_in_every_layout_and_mode() {
    let layouts = [
        (c"BSH", "BSH"),
        (c"SBH", "SBH"),
        (c"BSND", "BSND"),
        (c"BNSD", "BNSD"),
        (c"BSH", "BSH"),
    ];
    for &dtype in HALF_AND_SINGLE {
        for (mode, (code, layout)) in (0i64..).zip(layouts) {
            let case = Case::new(dtype, layout, layout, [2, 2, 4, 6, 2], 1, Form::Gapped);
            let bits: Vec<f64> = (0..24).map(|i| f64::from(u8::from(i % 5 == 0))).collect();
            let mask = Dev::of(Type::U8, &[4, 6], &bits, Form::Plain);
            let shift = Dev::of(dtype, &[2, 2, 4, 6], &spread(96, 0.03125), Form::Plain);
            let [largest, total] = [0; 2].map(|_| Dev::new(Type::F32, &[2, 2, 4, 8], Form::Plain));
            let empty = Dev::new(dtype, &[0], Form::Plain);
            run!(aclnnFlashAttentionScore aclnnFlashAttentionScoreGetWorkspaceSize(
                case.query, case.key, case.value, shift, NONE, NONE, mask, NO_LENGTHS, 0.5f64, 1f64, 1i64, 2i64, 2i64,
                name(code), 0i64, mode, largest, total, empty, case.out
            ));
            let (expected, statistics) = case.expected(layout, |[b, n, row, k], dot| {
                let masked = (row * 6 + k) % 5 == 0;
                let visible = match mode {
                    0 => !masked && k + 1 >= row && k <= row + 2,
                    1 => !masked,
                    2 => k <= row,
                    3 => k <= row + 2,
                    _ => k + 1 >= row + 2 && k <= row + 4,
                };
                let score = 0.5 * (dot + shift.get(((b * 2 + n) * 4 + row) * 6 + k));
                if visible { score } else { f64::NEG_INFINITY }
            });
            close(layout, &case.out, &expected);
            for (row, [max, sum]) in statistics.into_iter().enumerate() {
                for i in row * 8..row * 8 + 8 {
                    assert!((largest.get(i) - max).abs() < 1e-5, "{layout} {mode}");
                    assert!((total.get(i) - sum).abs() < 1e-5, "{layout} {mode}");
                }
            }
        }
    }
    let case = Case::new(Type::F32, "BSH", "BSH", [1, 1, 2, 2, 2], 1, Form::Plain);
    let rows = Dev::new(Type::F32, &[1, 1, 2, 8], Form::Plain);
    let refused = |keep: f64, mode: i64| {
        first!(aclnnFlashAttentionScoreGetWorkspaceSize(
            case.query,
            case.key,
            case.value,
            NONE,
            NONE,
            NONE,
            NONE,
            NO_LENGTHS,
            1f64,
            keep,
            0i64,
            0i64,
            1i64,
            name(c"BSH"),
            0i64,
            mode,
            rows,
            rows,
            NONE,
            case.out
        ))
        .unwrap_err()
    };
    let (code, text) = refused(0.9, 0);
    assert_eq!(code, 161_002);
    assert!(
        text.ends_with("parameter keepProb: expected 1, as here is no dropout, got 0.9"),
        "{text}"
    );
    let (code, text) = refused(1.0, 6);
    assert_eq!(code, 161_002);
    assert!(
        text.ends_with("parameter sparseMode: expected a number from 0 to 4, got 6"),
        "{text}"
    );
}
