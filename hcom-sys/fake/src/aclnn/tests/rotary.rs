//! Rotary position embedding.

use super::*;
use crate::aclnn::dtype::HALF_AND_SINGLE;

/// What the documentation calls `rotate(x)`, and `x` in the order of the result, by place.
fn rotated(mode: i64, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (n, half, quarter) = (x.len(), x.len() / 2, x.len() / 4);
    let negated = |part: &[f64]| part.iter().map(|x| -x).collect::<Vec<f64>>();
    let swapped = |part: &[f64]| {
        let middle = part.len() / 2;
        [negated(&part[middle..]), part[..middle].to_vec()].concat()
    };
    match mode {
        0 => (x.to_vec(), swapped(x)),
        1 => (
            x.to_vec(),
            (0..n)
                .map(|i| if i % 2 == 0 { -x[i + 1] } else { x[i - 1] })
                .collect(),
        ),
        2 => (
            x.to_vec(),
            [swapped(&x[..2 * quarter]), swapped(&x[half..])].concat(),
        ),
        _ => {
            let even: Vec<f64> = x.iter().step_by(2).copied().collect();
            let odd: Vec<f64> = x.iter().skip(1).step_by(2).copied().collect();
            (
                [even.clone(), odd.clone()].concat(),
                [negated(&odd), even].concat(),
            )
        }
    }
}

/// `x·cos + rotate(x)·sin`, with the row of angles that `angle(row)` names.
fn expected(mode: i64, x: &Dev, cos: &Dev, sin: &Dev, angle: impl Fn(usize) -> usize) -> Vec<f64> {
    let size = x.dims[3];
    let rows = x.values();
    let rows = rows.chunks(size).enumerate();
    rows.flat_map(|(row, x)| {
        let (same, turned) = rotated(mode, x);
        let at = angle(row) * size;
        (0..size)
            .map(|i| same[i] * cos.get(at + i) + turned[i] * sin.get(at + i))
            .collect::<Vec<f64>>()
    })
    .collect()
}

fn close(what: &str, tensor: &Dev, expected: &[f64]) {
    let values = tensor.values();
    assert_eq!(values.len(), expected.len(), "{what}");
    for (i, (got, expected)) in values.iter().zip(expected).enumerate() {
        let error = (got - expected).abs();
        assert!(
            error <= 2.0 * tolerance(tensor.dtype) * expected.abs().max(1.0),
            "{what}: {i}: {got} for {expected}"
        );
    }
}

#[test]
fn every_mode_turns_its_pairs() {
    for &dtype in HALF_AND_SINGLE {
        for (form, mode) in FORMS.into_iter().zip(0i64..) {
            // Batches, positions, heads, elements; the angles repeat over batches and heads.
            let x = Dev::of(dtype, &[2, 3, 2, 8], &spread(96, 0.0625), form);
            let cos = Dev::of(dtype, &[1, 3, 1, 8], &spread(24, 0.0625), Form::Gapped);
            let sin = Dev::of(dtype, &[1, 3, 1, 8], &spread(24, 0.03125), form);
            let out = Dev::new(dtype, &[2, 3, 2, 8], FORMS[(mode as usize + 1) % 4]);
            run!(aclnnRotaryPositionEmbedding aclnnRotaryPositionEmbeddingGetWorkspaceSize(x, cos, sin, mode, out));
            close(
                "rotary",
                &out,
                &expected(mode, &x, &cos, &sin, |row| row / 2 % 3),
            );
        }
    }
    let x = Dev::of(Type::F32, &[1, 1, 1, 6], &spread(6, 1.0), Form::Plain);
    let (code, text) = first!(aclnnRotaryPositionEmbeddingGetWorkspaceSize(
        x, x, x, 2i64, x
    ))
    .unwrap_err();
    assert_eq!(code, 161_002);
    assert!(
        text.contains("parameter x: expected a last dimension of a multiple of 4"),
        "{text}"
    );
    assert_refused(
        first!(aclnnRotaryPositionEmbeddingGetWorkspaceSize(
            x, x, x, 4i64, x
        )),
        "parameter mode: expected a number from 0 to 3, got 4",
    );
}

#[test]
fn query_and_key_turn_in_place() {
    for &dtype in HALF_AND_SINGLE {
        for (form, mode) in FORMS
            .into_iter()
            .zip([c"half", c"interleave", c"quarter", c"half"])
        {
            let code = [0, 1, 2, 0][FORMS.iter().position(|&f| f == form).unwrap()];
            // BNSD with three heads for the query and one for the key.
            let query = Dev::of(dtype, &[2, 3, 2, 4], &spread(48, 0.125), form);
            let key = Dev::of(dtype, &[2, 1, 2, 4], &spread(16, 0.25), Form::Transposed);
            let cos = Dev::of(dtype, &[2, 1, 2, 4], &spread(16, 0.125), form);
            let sin = Dev::of(dtype, &[2, 1, 2, 4], &spread(16, 0.0625), Form::Gapped);
            let turned = expected(code, &query, &cos, &sin, |row| row / 6 * 2 + row % 2);
            let turned_key = expected(code, &key, &cos, &sin, |row| row);
            let mode = mode.as_ptr().cast_mut();
            run!(aclnnApplyRotaryPosEmbV2 aclnnApplyRotaryPosEmbV2GetWorkspaceSize(query, key, cos, sin, 3i64, mode));
            close("query", &query, &turned);
            close("key", &key, &turned_key);
        }
        let query = Dev::of(dtype, &[1, 2, 3, 4], &spread(24, 0.125), Form::Plain);
        let key = Dev::of(dtype, &[1, 2, 1, 4], &spread(8, 0.25), Form::Plain);
        let angles = Dev::of(dtype, &[1, 2, 1, 4], &spread(8, 0.125), Form::Plain);
        let turned = expected(0, &query, &angles, &angles, |row| row / 3);
        run!(aclnnApplyRotaryPosEmb aclnnApplyRotaryPosEmbGetWorkspaceSize(query, key, angles, angles, 1i64));
        close("query in BSND", &query, &turned);
    }
    let x = Dev::of(Type::F32, &[1, 1, 1, 2], &[1.0, 2.0], Form::Plain);
    let (code, text) =
        first!(aclnnApplyRotaryPosEmbGetWorkspaceSize(x, x, x, x, 4i64)).unwrap_err();
    assert_eq!(code, 161_002);
    assert!(
        text.contains("parameter layout: expected 1 (BSND), 2 (SBND) or 3 (BNSD), got 4"),
        "{text}"
    );
    let mode = c"full".as_ptr().cast_mut();
    assert_refused(
        first!(aclnnApplyRotaryPosEmbV2GetWorkspaceSize(
            x, x, x, x, 1i64, mode
        )),
        "expected half, interleave or quarter, got full",
    );
}
