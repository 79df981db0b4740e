//! Unary, binary, comparison and selection.

use super::*;
use crate::aclnn::dtype::{FLOATS, HALF_AND_SINGLE, NUMBERS, REALS, SIGNED};
use crate::ffi::all::*;

/// A first phase of an operator with one input and one output.
type One = unsafe extern "C" fn(
    *const aclTensor,
    *mut aclTensor,
    *mut u64,
    *mut *mut aclOpExecutor,
) -> i32;
/// A first phase of an operator with two inputs and one output.
type Two = unsafe extern "C" fn(
    *const aclTensor,
    *const aclTensor,
    *mut aclTensor,
    *mut u64,
    *mut *mut aclOpExecutor,
) -> i32;

fn run_one(first: One, second: Second, x: &Dev, out: &Dev) {
    let (mut size, mut executor) = (0, ptr::null_mut());
    // SAFETY: both answers may be written.
    let status = unsafe { first(x.handle, out.handle, &mut size, &mut executor) };
    assert_eq!(status, 0, "{:?}", crate::error::last());
    finish(second, executor).unwrap();
}

fn run_two(first: Two, second: Second, x: &Dev, y: &Dev, out: &Dev) {
    let (mut size, mut executor) = (0, ptr::null_mut());
    // SAFETY: both answers may be written.
    let status = unsafe { first(x.handle, y.handle, out.handle, &mut size, &mut executor) };
    assert_eq!(status, 0, "{:?}", crate::error::last());
    finish(second, executor).unwrap();
}

/// Φ(x)·x by a series that converges for small arguments, in f64.
fn gelu(x: f64) -> f64 {
    let z = x / 2f64.sqrt();
    let (mut term, mut sum) = (z, z);
    for n in 1..200 {
        term *= -z * z / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    0.5 * x * (1.0 + 2.0 / std::f64::consts::PI.sqrt() * sum)
}

#[test]
fn functions_of_one_number() {
    let relu: One = {
        // The prototype of Relu has a const output; the rest is the same.
        // SAFETY: pointers to const and mut are passed alike.
        unsafe { std::mem::transmute(aclnnReluGetWorkspaceSize as *const ()) }
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    type Case = (
        &'static str,
        One,
        Second,
        fn(f64) -> f64,
        &'static [Type],
        bool,
    );
    let cases: [Case; 11] = [
        (
            "neg",
            aclnnNegGetWorkspaceSize,
            aclnnNeg,
            |x| -x,
            SIGNED,
            true,
        ),
        (
            "abs",
            aclnnAbsGetWorkspaceSize,
            aclnnAbs,
            f64::abs,
            SIGNED,
            true,
        ),
        (
            "exp",
            aclnnExpGetWorkspaceSize,
            aclnnExp,
            f64::exp,
            FLOATS,
            true,
        ),
        (
            "log",
            aclnnLogGetWorkspaceSize,
            aclnnLog,
            f64::ln,
            FLOATS,
            false,
        ),
        (
            "sqrt",
            aclnnSqrtGetWorkspaceSize,
            aclnnSqrt,
            f64::sqrt,
            FLOATS,
            false,
        ),
        (
            "rsqrt",
            aclnnRsqrtGetWorkspaceSize,
            aclnnRsqrt,
            |x| 1.0 / x.sqrt(),
            FLOATS,
            false,
        ),
        (
            "tanh",
            aclnnTanhGetWorkspaceSize,
            aclnnTanh,
            f64::tanh,
            FLOATS,
            true,
        ),
        (
            "sigmoid",
            aclnnSigmoidGetWorkspaceSize,
            aclnnSigmoid,
            sigmoid,
            FLOATS,
            true,
        ),
        ("relu", relu, aclnnRelu, |x| x.max(0.0), SIGNED, true),
        (
            "gelu",
            aclnnGeluGetWorkspaceSize,
            aclnnGelu,
            gelu,
            HALF_AND_SINGLE,
            true,
        ),
        (
            "silu",
            aclnnSiluGetWorkspaceSize,
            aclnnSilu,
            |x| x / (1.0 + (-x).exp()),
            HALF_AND_SINGLE,
            true,
        ),
    ];
    for (name, first, second, f, types, signed) in cases {
        for (i, &dtype) in types.iter().enumerate() {
            let values = if dtype.is_float() {
                spread(12, 0.5)
            } else {
                count_from(-60, 11, 12)
            };
            let values: Vec<f64> = if signed {
                values
            } else {
                values.iter().map(|x| x.abs()).collect()
            };
            for (j, form) in FORMS.into_iter().enumerate() {
                let x = Dev::of(dtype, &[3, 4], &values, form);
                let out = Dev::new(dtype, &[3, 4], FORMS[(i + j) % 4]);
                run_one(first, second, &x, &out);
                let expected: Vec<f64> = x.values().into_iter().map(f).collect();
                assert_close(name, &out, &expected);
            }
        }
    }
}

#[test]
fn gelu_has_a_tanh_form() {
    let values = spread(9, 0.7);
    let x = Dev::of(Type::F32, &[9], &values, Form::Plain);
    let out = Dev::new(Type::F32, &[9], Form::Plain);
    run!(aclnnGeluV2 aclnnGeluV2GetWorkspaceSize(x, 1i64, out));
    let expected: Vec<f64> = (x.values().into_iter())
        .map(|x| {
            0.5 * x
                * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        })
        .collect();
    assert_close("gelu by tanh", &out, &expected);
    run!(aclnnGeluV2 aclnnGeluV2GetWorkspaceSize(x, 0i64, out));
    assert_close(
        "gelu by erf",
        &out,
        &x.values().into_iter().map(gelu).collect::<Vec<_>>(),
    );
    let (code, text) = first!(aclnnGeluV2GetWorkspaceSize(x, 2i64, out)).unwrap_err();
    assert_eq!(code, 161_002);
    assert_eq!(
        text,
        "aclnnGeluV2GetWorkspaceSize: parameter approximate: expected 0 (erf) or 1 (tanh), got 2"
    );
}

#[test]
fn integers_become_floats_where_the_result_has_a_fraction() {
    let x = Dev::of(Type::I32, &[4], &[1.0, 2.0, 3.0, 4.0], Form::Plain);
    let out = Dev::new(Type::F32, &[4], Form::Plain);
    run_one(aclnnExpGetWorkspaceSize, aclnnExp, &x, &out);
    assert_close(
        "exp",
        &out,
        &[1f64.exp(), 2f64.exp(), 3f64.exp(), 4f64.exp()],
    );
    let y = Dev::of(Type::I32, &[4], &[2.0, -4.0, 5.0, 0.0], Form::Plain);
    run_two(aclnnDivGetWorkspaceSize, aclnnDiv, &x, &y, &out);
    assert_close("div", &out, &[0.5, -0.5, 0.6, f64::INFINITY]);
}

#[test]
fn functions_of_two_numbers_broadcast() {
    fn pow(x: f64, y: f64) -> f64 {
        x.powf(y)
    }
    type Case = (
        &'static str,
        Two,
        Second,
        fn(f64, f64) -> f64,
        &'static [Type],
    );
    let cases: [Case; 5] = [
        (
            "mul",
            aclnnMulGetWorkspaceSize,
            aclnnMul,
            |x, y| x * y,
            NUMBERS,
        ),
        (
            "div",
            aclnnDivGetWorkspaceSize,
            aclnnDiv,
            |x, y| x / y,
            FLOATS,
        ),
        (
            "maximum",
            aclnnMaximumGetWorkspaceSize,
            aclnnMaximum,
            f64::max,
            NUMBERS,
        ),
        (
            "minimum",
            aclnnMinimumGetWorkspaceSize,
            aclnnMinimum,
            f64::min,
            NUMBERS,
        ),
        (
            "pow",
            aclnnPowTensorTensorGetWorkspaceSize,
            aclnnPowTensorTensor,
            pow,
            FLOATS,
        ),
    ];
    for (name, first, second, f, types) in cases {
        for (i, &dtype) in types.iter().enumerate() {
            let positive = name == "pow" || dtype == Type::U8;
            let adapt = |values: Vec<f64>| -> Vec<f64> {
                let whole = |x: f64| if dtype.is_float() { x } else { x.trunc() };
                values
                    .into_iter()
                    .map(|x| whole(if positive { x.abs() } else { x }))
                    .collect()
            };
            for (j, form) in FORMS.into_iter().enumerate() {
                let x = Dev::of(dtype, &[2, 1, 4], &adapt(spread(8, 0.75)), form);
                let y = Dev::of(
                    dtype,
                    &[3, 1],
                    &adapt(vec![1.5, -2.25, 3.0]),
                    FORMS[(j + 1) % 4],
                );
                let out = Dev::new(dtype, &[2, 3, 4], FORMS[(i + j) % 4]);
                run_two(first, second, &x, &y, &out);
                let (xs, ys) = (x.values(), y.values());
                let expected: Vec<f64> = (0..24)
                    .map(|n| f(xs[n / 12 * 4 + n % 4], ys[n / 4 % 3]))
                    .collect();
                assert_close(name, &out, &expected);
            }
        }
    }
}

#[test]
fn sums_and_differences_scale_their_second_operand() {
    for &dtype in NUMBERS {
        let values: Vec<f64> = count_from(1, 3, 6);
        for form in FORMS {
            let x = Dev::of(dtype, &[2, 3], &values, form);
            let y = Dev::of(dtype, &[3], &[10.0, 20.0, 30.0], form);
            let out = Dev::new(dtype, &[2, 3], form);
            let row = [10.0, 20.0, 30.0];
            run!(aclnnAdd aclnnAddGetWorkspaceSize(x, y, int(3), out));
            let expected: Vec<f64> = (0..6).map(|i| values[i] + 3.0 * row[i % 3]).collect();
            assert_close("add", &out, &expected);
            // UINT8 would go below 0 and wraps.
            let wrap = |x: f64| {
                if dtype == Type::U8 {
                    x.rem_euclid(256.0)
                } else {
                    x
                }
            };
            run!(aclnnSub aclnnSubGetWorkspaceSize(x, y, int(1), out));
            let expected: Vec<f64> = (0..6).map(|i| wrap(values[i] - row[i % 3])).collect();
            assert_close("sub", &out, &expected);
            run!(aclnnAdds aclnnAddsGetWorkspaceSize(x, int(7), int(2), out));
            assert_close(
                "adds",
                &out,
                &values.iter().map(|x| x + 14.0).collect::<Vec<_>>(),
            );
            run!(aclnnMuls aclnnMulsGetWorkspaceSize(x, int(5), out));
            assert_close(
                "muls",
                &out,
                &values.iter().map(|x| x * 5.0).collect::<Vec<_>>(),
            );
        }
    }
}

#[test]
fn types_promote_and_integers_wrap() {
    let x = Dev::of(Type::I8, &[3], &[100.0, -128.0, 7.0], Form::Plain);
    let y = Dev::of(Type::I8, &[3], &[100.0, -1.0, 6.0], Form::Plain);
    let out = Dev::new(Type::I8, &[3], Form::Plain);
    run!(aclnnAdd aclnnAddGetWorkspaceSize(x, y, int(1), out));
    assert_eq!(out.values(), [-56.0, 127.0, 13.0]);
    run_two(aclnnMulGetWorkspaceSize, aclnnMul, &x, &y, &out);
    assert_eq!(out.values(), [16.0, -128.0, 42.0]);
    run_one(aclnnNegGetWorkspaceSize, aclnnNeg, &x, &out);
    assert_eq!(out.values(), [-100.0, -128.0, -7.0]);
    let half = Dev::of(Type::F16, &[3], &[0.5, 0.25, 2048.0], Form::Plain);
    let wide = Dev::new(Type::F32, &[3], Form::Plain);
    run!(aclnnAdd aclnnAddGetWorkspaceSize(half, x, double(0.5), wide));
    assert_eq!(wide.values(), [50.5, -63.75, 2051.5]);
    let bool_ = Dev::of(Type::Bool, &[3], &[1.0, 0.0, 1.0], Form::Plain);
    let sum = Dev::new(Type::Bool, &[3], Form::Plain);
    run!(aclnnAdd aclnnAddGetWorkspaceSize(bool_, bool_, int(1), sum));
    assert_eq!(sum.values(), [1.0, 0.0, 1.0]);
    let base = Dev::of(Type::I64, &[4], &[3.0, -2.0, 2.0, 1.0], Form::Plain);
    let exponent = Dev::of(Type::I64, &[4], &[4.0, 3.0, -1.0, -7.0], Form::Plain);
    let power = Dev::new(Type::I64, &[4], Form::Plain);
    run_two(
        aclnnPowTensorTensorGetWorkspaceSize,
        aclnnPowTensorTensor,
        &base,
        &exponent,
        &power,
    );
    assert_eq!(power.values(), [81.0, -8.0, 0.0, 1.0]);
}

#[test]
fn bits_combine_and_integers_divide() {
    type Row = (&'static str, Two, Second, [f64; 3]);
    let rows: [Row; 3] = [
        (
            "and",
            aclnnBitwiseAndTensorGetWorkspaceSize,
            aclnnBitwiseAndTensor,
            [8.0, 1.0, 2.0],
        ),
        (
            "or",
            aclnnBitwiseOrTensorGetWorkspaceSize,
            aclnnBitwiseOrTensor,
            [14.0, 127.0, 3.0],
        ),
        (
            "xor",
            aclnnBitwiseXorTensorGetWorkspaceSize,
            aclnnBitwiseXorTensor,
            [6.0, 126.0, 1.0],
        ),
    ];
    for (name, first, second, expected) in rows {
        for &dtype in &[Type::I8, Type::I16, Type::I32, Type::I64, Type::U8] {
            let x = Dev::of(dtype, &[3], &[12.0, 127.0, 3.0], Form::Plain);
            let y = Dev::of(dtype, &[3], &[10.0, 1.0, 2.0], Form::Plain);
            let out = Dev::new(dtype, &[3], Form::Plain);
            run_two(first, second, &x, &y, &out);
            assert_close(name, &out, &expected);
        }
        let float = Dev::of(Type::F32, &[3], &[1.0, 2.0, 3.0], Form::Plain);
        let (mut size, mut executor) = (0, ptr::null_mut());
        // SAFETY: both answers may be written.
        let status = unsafe {
            first(
                float.handle,
                float.handle,
                float.handle,
                &mut size,
                &mut executor,
            )
        };
        assert_ne!(status, 0, "{name} of floats");
    }
    let large = 1i64 << 62;
    let x = Dev::of(
        Type::I64,
        &[4],
        &[-7.0, 7.0, large as f64, 5.0],
        Form::Plain,
    );
    let y = Dev::of(Type::I64, &[4], &[2.0, -2.0, 3.0, 0.0], Form::Plain);
    let out = Dev::new(Type::I64, &[4], Form::Plain);
    run!(aclnnDivMod aclnnDivModGetWorkspaceSize(x, y, 1, out));
    assert_eq!(out.values(), [-3.0, -3.0, (large / 3) as f64, 0.0]);
    run!(aclnnDivMod aclnnDivModGetWorkspaceSize(x, y, 2, out));
    assert_eq!(out.values(), [-4.0, -4.0, (large / 3) as f64, 0.0]);
    let float = Dev::new(Type::F32, &[4], Form::Plain);
    run!(aclnnDivMod aclnnDivModGetWorkspaceSize(x, y, 0, float));
    assert_close(
        "exact quotient",
        &float,
        &[-3.5, -3.5, large as f64 / 3.0, f64::INFINITY],
    );
}

#[test]
fn sixteen_bit_sums_round_once() {
    let out = Dev::new(Type::F16, &[2], Form::Plain);
    let x = Dev::of(Type::F16, &[2], &[1.0, 2048.0], Form::Plain);
    let y = Dev::of(Type::F16, &[2], &[2f64.powi(-11), 1.0], Form::Plain);
    // 3 · 2^-11 is a tie that goes to even; rounding the product first would not change it, adding twice would.
    run!(aclnnAdd aclnnAddGetWorkspaceSize(x, y, float(3.0), out));
    assert_eq!(out.values(), [1.0 + 2f64.powi(-9), 2052.0]);
}

#[test]
fn what_is_not_a_number_spreads_through_extremes_and_fails_comparisons() {
    let x = Dev::of(Type::F32, &[4], &[f64::NAN, 1.0, 2.0, -0.0], Form::Plain);
    let y = Dev::of(Type::F32, &[4], &[1.0, f64::NAN, 3.0, 0.0], Form::Plain);
    let out = Dev::new(Type::F32, &[4], Form::Plain);
    run_two(aclnnMaximumGetWorkspaceSize, aclnnMaximum, &x, &y, &out);
    assert_close("maximum", &out, &[f64::NAN, f64::NAN, 3.0, 0.0]);
    run_two(aclnnMinimumGetWorkspaceSize, aclnnMinimum, &x, &y, &out);
    assert_close("minimum", &out, &[f64::NAN, f64::NAN, 2.0, 0.0]);
    let truth = Dev::new(Type::Bool, &[4], Form::Plain);
    for (first, second, expected) in [
        (
            aclnnEqTensorGetWorkspaceSize as Two,
            aclnnEqTensor as Second,
            [0.0, 0.0, 0.0, 1.0],
        ),
        (
            aclnnLtTensorGetWorkspaceSize,
            aclnnLtTensor,
            [0.0, 0.0, 1.0, 0.0],
        ),
        (
            aclnnGtTensorGetWorkspaceSize,
            aclnnGtTensor,
            [0.0, 0.0, 0.0, 0.0],
        ),
    ] {
        run_two(first, second, &x, &y, &truth);
        assert_eq!(truth.values(), expected);
    }
    run_one(aclnnExpGetWorkspaceSize, aclnnExp, &x, &out);
    assert!(out.values()[0].is_nan());
}

#[test]
fn comparisons_broadcast_over_every_type() {
    for &dtype in REALS {
        for form in FORMS {
            let xs = if dtype == Type::Bool {
                vec![0.0, 1.0, 1.0]
            } else {
                vec![1.0, 2.0, 3.0]
            };
            let ys = if dtype == Type::Bool {
                vec![1.0, 0.0]
            } else {
                vec![2.0, 3.0]
            };
            let x = Dev::of(dtype, &[3], &xs, form);
            let y = Dev::of(dtype, &[2, 1], &ys, form);
            let out = Dev::new(Type::Bool, &[2, 3], form);
            let expect = |f: fn(f64, f64) -> bool| -> Vec<f64> {
                (0..6)
                    .map(|n| f64::from(u8::from(f(xs[n % 3], ys[n / 3]))))
                    .collect()
            };
            run_two(aclnnEqTensorGetWorkspaceSize, aclnnEqTensor, &x, &y, &out);
            assert_eq!(out.values(), expect(|x, y| x == y), "{dtype}");
            run_two(aclnnLtTensorGetWorkspaceSize, aclnnLtTensor, &x, &y, &out);
            assert_eq!(out.values(), expect(|x, y| x < y), "{dtype}");
            run_two(aclnnGtTensorGetWorkspaceSize, aclnnGtTensor, &x, &y, &out);
            assert_eq!(out.values(), expect(|x, y| x > y), "{dtype}");
        }
    }
}

#[test]
fn selection_broadcasts_its_condition() {
    for &dtype in NUMBERS {
        for form in FORMS {
            let condition = Dev::of(Type::Bool, &[2, 1], &[1.0, 0.0], form);
            let x = Dev::of(dtype, &[2, 3], &count_from(1, 1, 6), form);
            let y = Dev::of(dtype, &[3], &[50.0, 60.0, 70.0], form);
            let out = Dev::new(dtype, &[2, 3], form);
            run!(aclnnSWhere aclnnSWhereGetWorkspaceSize(condition, x, y, out));
            assert_eq!(out.values(), [1.0, 2.0, 3.0, 50.0, 60.0, 70.0], "{dtype}");
        }
    }
}

#[test]
fn large_tensors_go_through_many_blocks() {
    let n = 5000;
    let x = Dev::of(Type::F32, &[n], &count_from(0, 1, n), Form::Plain);
    let y = Dev::of(Type::F32, &[], &[0.5], Form::Plain);
    let condition: Vec<f64> = (0..n)
        .map(|i| (i % 3 == 0).into())
        .map(|b: u8| b.into())
        .collect();
    let condition = Dev::of(Type::Bool, &[n], &condition, Form::Plain);
    run!(aclnnSWhere aclnnSWhereGetWorkspaceSize(condition, x, y, x));
    let expected: Vec<f64> = (0..n)
        .map(|i| if i % 3 == 0 { i as f64 } else { 0.5 })
        .collect();
    assert_close("in place", &x, &expected);
}

#[test]
fn empty_and_scalar_tensors() {
    let x = Dev::of(Type::F32, &[0, 3], &[], Form::Plain);
    let y = Dev::of(Type::F32, &[3], &[1.0, 2.0, 3.0], Form::Plain);
    let out = Dev::new(Type::F32, &[0, 3], Form::Plain);
    run_two(aclnnMulGetWorkspaceSize, aclnnMul, &x, &y, &out);
    let one = Dev::of(Type::F32, &[], &[1.5], Form::Plain);
    let out = Dev::new(Type::F32, &[], Form::Plain);
    run_two(aclnnMulGetWorkspaceSize, aclnnMul, &one, &one, &out);
    assert_eq!(out.values(), [2.25]);
}
