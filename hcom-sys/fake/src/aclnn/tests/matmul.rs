//! Matrix multiplication.

use super::*;
use crate::aclnn::dtype::HALF_AND_SINGLE;

/// Σ x[i, k] · y[k, j] for matrices given by element functions.
fn product(
    [m, k, n]: [usize; 3],
    x: impl Fn(usize, usize) -> f64,
    y: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let dot = |i, j| (0..k).map(|l| x(i, l) * y(l, j)).sum();
    (0..m * n).map(|ij| dot(ij / n, ij % n)).collect()
}

#[test]
fn matrices_of_every_form_and_type() {
    let [m, k, n] = [5, 7, 6];
    for &dtype in HALF_AND_SINGLE {
        for (i, form) in FORMS.into_iter().enumerate() {
            let x = Dev::of(dtype, &[m, k], &spread(m * k, 0.125), form);
            let y = Dev::of(dtype, &[k, n], &spread(k * n, 0.25), FORMS[(i + 1) % 4]);
            let out = Dev::new(dtype, &[m, n], FORMS[(i + 2) % 4]);
            run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(x, y, out, 0i8));
            let expected = product([m, k, n], |i, l| x.get(i * k + l), |l, j| y.get(l * n + j));
            assert_close("matmul", &out, &expected);
        }
    }
}

#[test]
fn types_may_differ_and_sums_are_kept_in_single_precision() {
    // 4096 products of 1: a FLOAT16 sum would stop at 2048.
    let x = Dev::of(Type::F16, &[1, 4096], &[1.0; 4096], Form::Plain);
    let y = Dev::of(Type::BF16, &[4096, 1], &[1.0; 4096], Form::Plain);
    let out = Dev::new(Type::F16, &[1, 1], Form::Plain);
    run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(x, y, out, 0i8));
    assert_eq!(out.values(), [4096.0]);
}

#[test]
fn batches_broadcast() {
    let [m, k, n] = [2, 3, 4];
    for form in FORMS {
        let x = Dev::of(Type::F32, &[2, 1, m, k], &spread(2 * m * k, 0.5), form);
        let y = Dev::of(Type::F32, &[5, k, n], &spread(5 * k * n, 0.25), form);
        let out = Dev::new(Type::F32, &[2, 5, m, n], form);
        run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(x, y, out, 0i8));
        let mut expected = Vec::new();
        for b in 0..10 {
            let (bx, by) = (b / 5 * m * k, b % 5 * k * n);
            expected.extend(product(
                [m, k, n],
                |i, l| x.get(bx + i * k + l),
                |l, j| y.get(by + l * n + j),
            ));
        }
        assert_close("batched", &out, &expected);
        // One right matrix for all batches, which folds into a tall product when rows follow each other.
        let shared = Dev::of(Type::F32, &[k, n], &spread(k * n, 0.75), form);
        let out = Dev::new(Type::F32, &[2, 1, m, n], form);
        run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(x, shared, out, 0i8));
        let expected = product(
            [2 * m, k, n],
            |i, l| x.get(i * k + l),
            |l, j| shared.get(l * n + j),
        );
        assert_close("shared", &out, &expected);
    }
    let x = Dev::of(Type::F32, &[3, m, k], &spread(3 * m * k, 0.5), Form::Plain);
    let y = Dev::of(
        Type::F32,
        &[1, k, n],
        &spread(k * n, 0.25),
        Form::Transposed,
    );
    let out = Dev::new(Type::F32, &[3, m, n], Form::Plain);
    run!(aclnnBatchMatMul aclnnBatchMatMulGetWorkspaceSize(x, y, out, 1i8));
    let expected = product(
        [3 * m, k, n],
        |i, l| x.get(i * k + l),
        |l, j| y.get(l * n + j),
    );
    assert_close("batch matmul", &out, &expected);
}

#[test]
fn vectors_are_rows_and_columns() {
    let (row, column) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]);
    let x = Dev::of(Type::F32, &[3], &row, Form::Plain);
    let y = Dev::of(Type::F32, &[3], &column, Form::Reversed);
    let matrix = Dev::of(Type::F32, &[2, 3], &count_from(1, 1, 6), Form::Plain);
    let out = Dev::new(Type::F32, &[], Form::Plain);
    run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(x, y, out, 0i8));
    assert_eq!(out.values(), [32.0]);
    let out = Dev::new(Type::F32, &[2], Form::Gapped);
    run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(matrix, y, out, 0i8));
    assert_eq!(out.values(), [32.0, 77.0]);
    let tall = Dev::of(Type::F32, &[2, 3, 2], &count_from(1, 1, 12), Form::Plain);
    let out = Dev::new(Type::F32, &[2, 2], Form::Plain);
    run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(x, tall, out, 0i8));
    assert_eq!(out.values(), [22.0, 28.0, 58.0, 64.0]);
}

#[test]
fn half_precision_inputs_on_request() {
    let x = Dev::of(Type::F32, &[1, 1], &[1.0 + 2f64.powi(-20)], Form::Plain);
    let y = Dev::of(Type::F32, &[1, 1], &[3.0], Form::Plain);
    let out = Dev::new(Type::F32, &[1, 1], Form::Plain);
    run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(x, y, out, 2i8));
    assert_eq!(out.values(), [3.0]);
    run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(x, y, out, 1i8));
    assert_ne!(out.values(), [3.0]);
}

#[test]
fn empty_dimensions() {
    let x = Dev::of(Type::F32, &[2, 0], &[], Form::Plain);
    let y = Dev::of(Type::F32, &[0, 3], &[], Form::Plain);
    let out = Dev::new(Type::F32, &[2, 3], Form::Plain);
    run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(x, y, out, 0i8));
    assert_eq!(out.values(), [0.0; 6]);
    let wide = Dev::of(Type::F32, &[3, 4], &spread(12, 1.0), Form::Plain);
    let nothing = Dev::new(Type::F32, &[0, 4], Form::Plain);
    run!(aclnnMatmul aclnnMatmulGetWorkspaceSize(y, wide, nothing, 0i8));
}

#[test]
fn misfits_are_named() {
    let x = Dev::of(Type::F32, &[2, 3], &spread(6, 1.0), Form::Plain);
    let out = Dev::new(Type::F32, &[2, 2], Form::Plain);
    let refused = |got: Result<_, (i32, String)>, text: &str| {
        assert_eq!(got.unwrap_err(), (161_002, text.to_owned()));
    };
    refused(
        first!(aclnnMatmulGetWorkspaceSize(x, x, out, 0i8)),
        "aclnnMatmulGetWorkspaceSize: parameter mat2: expected 3 rows, as many as self has columns, got shape [2, 3]",
    );
    let y = Dev::of(Type::F32, &[3, 2], &spread(6, 1.0), Form::Plain);
    refused(
        first!(aclnnMatmulGetWorkspaceSize(x, y, out, 9i8)),
        "aclnnMatmulGetWorkspaceSize: parameter cubeMathType: expected a number from 0 to 4, got 9",
    );
    let wrong = Dev::new(Type::F32, &[2, 3], Form::Plain);
    refused(
        first!(aclnnMatmulGetWorkspaceSize(x, y, wrong, 0i8)),
        "aclnnMatmulGetWorkspaceSize: parameter out: expected shape [2, 2], got [2, 3]",
    );
    let double = Dev::of(Type::F64, &[3, 2], &spread(6, 1.0), Form::Plain);
    refused(
        first!(aclnnMatmulGetWorkspaceSize(x, double, out, 0i8)),
        "aclnnMatmulGetWorkspaceSize: parameter mat2: expected data type FLOAT, FLOAT16, BF16, got DOUBLE",
    );
    refused(
        first!(aclnnBatchMatMulGetWorkspaceSize(x, y, out, 0i8)),
        "aclnnBatchMatMulGetWorkspaceSize: parameter self: expected three dimensions, got [2, 3]",
    );
}

#[test]
fn scaled_products_on_top_of_an_addend() {
    let [m, k, n] = [3, 4, 5];
    for &dtype in HALF_AND_SINGLE {
        for (i, form) in FORMS.into_iter().enumerate() {
            let x = Dev::of(dtype, &[m, k], &spread(m * k, 0.125), form);
            let y = Dev::of(dtype, &[k, n], &spread(k * n, 0.25), FORMS[(i + 1) % 4]);
            // A bias that repeats for each row.
            let bias = Dev::of(dtype, &[n], &spread(n, 1.5), form);
            let out = Dev::new(dtype, &[m, n], FORMS[(i + 2) % 4]);
            let plain = product([m, k, n], |i, l| x.get(i * k + l), |l, j| y.get(l * n + j));
            run!(aclnnAddmm aclnnAddmmGetWorkspaceSize(bias, x, y, float(0.5), int(2), out, 0i8));
            let expected: Vec<f64> = (plain.iter().enumerate())
                .map(|(ij, p)| 2.0 * p + 0.5 * bias.get(ij % n))
                .collect();
            assert_close("addmm", &out, &expected);
        }
    }
    let x = Dev::of(Type::F32, &[2, 2, 3], &spread(12, 0.5), Form::Plain);
    let y = Dev::of(Type::F32, &[2, 3, 2], &spread(12, 0.25), Form::Transposed);
    let addend = Dev::of(
        Type::F32,
        &[2, 1, 2],
        &[1.0, 20.0, 300.0, 4000.0],
        Form::Gapped,
    );
    let out = Dev::new(Type::F32, &[2, 2, 2], Form::Reversed);
    run!(aclnnBaddbmm aclnnBaddbmmGetWorkspaceSize(addend, x, y, int(1), int(1), out, 0i8));
    let mut expected = Vec::new();
    for b in 0..2 {
        let plain = product(
            [2, 3, 2],
            |i, l| x.get(b * 6 + i * 3 + l),
            |l, j| y.get(b * 6 + l * 2 + j),
        );
        expected.extend(
            plain
                .iter()
                .enumerate()
                .map(|(ij, p)| p + addend.get(b * 2 + ij % 2)),
        );
    }
    assert_close("baddbmm", &out, &expected);
    // A factor of 0 hides what is not a number.
    let odd = Dev::of(Type::F32, &[1], &[f64::NAN], Form::Plain);
    run!(aclnnBaddbmm aclnnBaddbmmGetWorkspaceSize(odd, x, y, int(0), int(1), out, 0i8));
    assert!(out.values().iter().all(|x| x.is_finite()));
    let wide = Dev::of(Type::F32, &[3], &[1.0, 2.0, 3.0], Form::Plain);
    assert_refused(
        first!(aclnnBaddbmmGetWorkspaceSize(
            wide,
            x,
            y,
            int(1),
            int(1),
            out,
            0i8
        )),
        "parameter self: expected a shape that broadcasts to [2, 2, 2], got [3]",
    );
    assert_eq!(
        first!(aclnnAddmmGetWorkspaceSize(
            wide,
            x,
            y,
            int(1),
            int(1),
            out,
            0i8
        ))
        .unwrap_err()
        .0,
        161_002
    );
}
