//! Reductions, softmax and the layer norms.

use super::*;
use crate::aclnn::dtype::{FLOATS, HALF_AND_SINGLE, NUMBERS, REALS};

const DIMS: [usize; 3] = [3, 4, 5];

/// Values of `x` (shape [`DIMS`]) that fall together when `axes` are reduced, by result in row-major order.
fn groups(x: &[f64], axes: &[usize]) -> Vec<Vec<f64>> {
    let index = |n: usize| [n / 20, n / 5 % 4, n % 5];
    let kept: Vec<usize> = (0..3).filter(|d| !axes.contains(d)).collect();
    let count = kept.iter().map(|&d| DIMS[d]).product();
    let mut groups = vec![Vec::new(); count];
    for (n, &value) in x.iter().enumerate() {
        let group = kept
            .iter()
            .fold(0, |group, &d| group * DIMS[d] + index(n)[d]);
        groups[group].push(value);
    }
    groups
}

fn out_dims(axes: &[usize], keep: bool) -> Vec<usize> {
    (0..3)
        .filter(|d| keep || !axes.contains(d))
        .map(|d| if axes.contains(&d) { 1 } else { DIMS[d] })
        .collect()
}

const AXES: [&[i64]; 6] = [&[2], &[0], &[1, -1], &[-3, 2], &[0, 1, 2], &[]];

fn axes_of(dims: &[i64]) -> Vec<usize> {
    if dims.is_empty() {
        return vec![0, 1, 2];
    }
    dims.iter().map(|d| d.rem_euclid(3) as usize).collect()
}

#[test]
fn sums_means_and_maxima() {
    for &dtype in REALS {
        let values = match dtype {
            Type::Bool => (0..60).map(|i| f64::from(u8::from(i % 7 == 0))).collect(),
            Type::U8 => count_from(0, 1, 60),
            dtype if dtype.is_float() => spread(60, 0.25),
            _ => count_from(-31, 1, 60),
        };
        for (i, dims) in AXES.into_iter().enumerate() {
            let (axes, keep, form) = (axes_of(dims), i % 2 == 0, FORMS[i % 4]);
            let x = Dev::of(dtype, &DIMS, &values, form);
            let groups = groups(&x.values(), &axes);
            let sums: Vec<f64> = groups.iter().map(|group| group.iter().sum()).collect();
            let sum_type = if dtype.is_float() { dtype } else { Type::I64 };
            let out = Dev::new(sum_type, &out_dims(&axes, keep), form);
            run!(aclnnReduceSum aclnnReduceSumGetWorkspaceSize(x, ints(dims), keep, aclDataType(sum_type.acl()), out));
            assert_close("sum", &out, &sums);
            let mean_type = dtype.to_float();
            let out = Dev::new(mean_type, &out_dims(&axes, keep), form);
            run!(aclnnMean aclnnMeanGetWorkspaceSize(x, ints(dims), keep, aclDataType(mean_type.acl()), out));
            let means: Vec<f64> = groups
                .iter()
                .zip(&sums)
                .map(|(group, sum)| sum / group.len() as f64)
                .collect();
            assert_close("mean", &out, &means);
            let out = Dev::new(dtype, &out_dims(&axes, keep), form);
            run!(aclnnAmax aclnnAmaxGetWorkspaceSize(x, ints(dims), keep, out));
            let maxima: Vec<f64> = groups
                .iter()
                .map(|group| group.iter().copied().fold(f64::MIN, f64::max))
                .collect();
            assert_close("amax", &out, &maxima);
        }
    }
}

#[test]
fn long_sums_stay_accurate_and_integers_wrap() {
    let n = 100_000;
    let x = Dev::of(Type::F32, &[n, 1], &vec![0.1f32.into(); n], Form::Plain);
    let out = Dev::new(Type::F32, &[1], Form::Plain);
    run!(aclnnReduceSum aclnnReduceSumGetWorkspaceSize(x, ints(&[0]), false, aclDataType(0), out));
    assert_close("sum", &out, &[f64::from(0.1f32) * n as f64]);
    let x = Dev::of(Type::I8, &[3], &[100.0, 100.0, 100.0], Form::Plain);
    let out = Dev::new(Type::I8, &[], Form::Plain);
    run!(aclnnReduceSum aclnnReduceSumGetWorkspaceSize(x, ints(&[]), false, aclDataType(2), out));
    assert_eq!(out.values(), [44.0]);
}

#[test]
fn reductions_of_nothing() {
    let x = Dev::of(Type::F32, &[2, 0], &[], Form::Plain);
    let out = Dev::new(Type::F32, &[2], Form::Plain);
    run!(aclnnReduceSum aclnnReduceSumGetWorkspaceSize(x, ints(&[1]), false, aclDataType(0), out));
    assert_eq!(out.values(), [0.0, 0.0]);
    run!(aclnnMean aclnnMeanGetWorkspaceSize(x, ints(&[1]), false, aclDataType(0), out));
    assert!(out.values().iter().all(|mean| mean.is_nan()));
    let (code, text) = first!(aclnnAmaxGetWorkspaceSize(x, ints(&[1]), false, out)).unwrap_err();
    assert_eq!(code, 161_002);
    assert_eq!(
        text,
        "aclnnAmaxGetWorkspaceSize: parameter self: expected at least one element to compare, got shape [2, 0]"
    );
    let one = Dev::of(Type::F32, &[], &[2.5], Form::Plain);
    let out = Dev::new(Type::F32, &[], Form::Plain);
    run!(aclnnMean aclnnMeanGetWorkspaceSize(one, ints(&[]), true, aclDataType(0), out));
    assert_eq!(out.values(), [2.5]);
}

#[test]
fn the_index_of_the_first_largest_element() {
    for &dtype in NUMBERS {
        for (axis, form) in [
            (0i64, Form::Plain),
            (-1, Form::Transposed),
            (1, Form::Gapped),
        ] {
            let values: Vec<f64> = (0..60).map(|i| f64::from(i * 37 % 29)).collect();
            let x = Dev::of(dtype, &DIMS, &values, form);
            let axes = axes_of(&[axis]);
            for (keep, index) in [(false, Type::I64), (true, Type::I32)] {
                let out = Dev::new(index, &out_dims(&axes, keep), form);
                run!(aclnnArgMax aclnnArgMaxGetWorkspaceSize(x, axis, keep, out));
                let first = |group: &Vec<f64>| {
                    let largest = group.iter().copied().fold(f64::MIN, f64::max);
                    group.iter().position(|&x| x == largest).unwrap() as f64
                };
                assert_eq!(
                    out.values(),
                    groups(&values, &axes).iter().map(first).collect::<Vec<_>>()
                );
            }
        }
    }
    let x = Dev::of(
        Type::F32,
        &[4],
        &[1.0, f64::NAN, 9.0, f64::NAN],
        Form::Plain,
    );
    let out = Dev::new(Type::I64, &[], Form::Plain);
    run!(aclnnArgMax aclnnArgMaxGetWorkspaceSize(x, 0i64, false, out));
    assert_eq!(out.values(), [1.0]);
    let largest = Dev::new(Type::F32, &[], Form::Plain);
    run!(aclnnAmax aclnnAmaxGetWorkspaceSize(x, ints(&[0]), false, largest));
    assert!(largest.values()[0].is_nan());
}

#[test]
fn softmax_along_each_dimension() {
    for &dtype in FLOATS {
        for (axis, form) in [
            (0i64, Form::Gapped),
            (1, Form::Plain),
            (-1, Form::Transposed),
            (2, Form::Plain),
        ] {
            let x = Dev::of(dtype, &DIMS, &spread(60, 0.125), form);
            let out = Dev::new(dtype, &DIMS, form);
            run!(aclnnSoftmax aclnnSoftmaxGetWorkspaceSize(x, axis, out));
            let (values, axes) = (x.values(), axes_of(&[axis]));
            let totals: Vec<f64> = groups(&values, &axes)
                .iter()
                .map(|group| group.iter().map(|x| x.exp()).sum())
                .collect();
            let numbers = groups(&count_from(0, 1, 60), &axes);
            let mut expected = vec![0.0; 60];
            for (total, numbers) in totals.iter().zip(&numbers) {
                for &n in numbers {
                    expected[n as usize] = values[n as usize].exp() / total;
                }
            }
            assert_close("softmax", &out, &expected);
        }
    }
}

#[test]
fn softmax_of_extremes() {
    let x = Dev::of(
        Type::F32,
        &[3, 2],
        &[1000.0, 999.0, f64::NEG_INFINITY, 0.0, f64::NAN, 1.0],
        Form::Plain,
    );
    run!(aclnnSoftmax aclnnSoftmaxGetWorkspaceSize(x, -1i64, x));
    let e = 1f64.exp();
    assert_close(
        "softmax",
        &x,
        &[e / (1.0 + e), 1.0 / (1.0 + e), 0.0, 1.0, f64::NAN, f64::NAN],
    );
    let one = Dev::of(Type::F32, &[], &[3.0], Form::Plain);
    run!(aclnnSoftmax aclnnSoftmaxGetWorkspaceSize(one, 0i64, one));
    assert_eq!(one.values(), [1.0]);
    let nothing = Dev::of(Type::F32, &[2, 0], &[], Form::Plain);
    run!(aclnnSoftmax aclnnSoftmaxGetWorkspaceSize(nothing, 1i64, nothing));
}

/// Mean and 1/√(variance + eps) of a row.
fn moments(row: &[f64], eps: f64) -> (f64, f64) {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
    (mean, 1.0 / (variance + eps).sqrt())
}

#[test]
fn layer_norm_with_and_without_its_options() {
    for &dtype in HALF_AND_SINGLE {
        for (form, shape) in [
            (Form::Plain, &[5i64][..]),
            (Form::Transposed, &[5]),
            (Form::Gapped, &[4, 5]),
        ] {
            let len = shape.iter().product::<i64>() as usize;
            let sizes: Vec<usize> = shape.iter().map(|&size| size as usize).collect();
            let x = Dev::of(dtype, &DIMS, &spread(60, 0.25), form);
            let weight = Dev::of(dtype, &sizes, &spread(len, 0.5), form);
            let bias = Dev::of(dtype, &sizes, &count_from(1, 1, len), form);
            let out = Dev::new(dtype, &DIMS, form);
            let rows: Vec<usize> = DIMS
                .iter()
                .enumerate()
                .map(|(d, &n)| if d < 3 - sizes.len() { n } else { 1 })
                .collect();
            let mean = Dev::new(Type::F32, &rows, form);
            let rstd = Dev::new(Type::F32, &rows, form);
            let values = x.values();
            let moments: Vec<_> = values.chunks(len).map(|row| moments(row, 0.5)).collect();
            let normal: Vec<f64> = (0..60)
                .map(|i| (values[i] - moments[i / len].0) * moments[i / len].1)
                .collect();

            run!(aclnnLayerNorm aclnnLayerNormGetWorkspaceSize(x, ints(shape), weight, bias, 0.5f64, out, mean, rstd));
            let (w, b) = (weight.values(), bias.values());
            let expected: Vec<f64> = (0..60)
                .map(|i| normal[i] * w[i % len] + b[i % len])
                .collect();
            assert_close("layer norm", &out, &expected);
            assert_close(
                "mean",
                &mean,
                &moments.iter().map(|m| m.0).collect::<Vec<_>>(),
            );
            assert_close(
                "rstd",
                &rstd,
                &moments.iter().map(|m| m.1).collect::<Vec<_>>(),
            );

            let none = ptr::null::<aclTensor>();
            let no_output = ptr::null_mut::<aclTensor>();
            run!(aclnnLayerNorm aclnnLayerNormGetWorkspaceSize(x, ints(shape), none, none, 0.5f64, out, no_output, no_output));
            assert_close("bare layer norm", &out, &normal);
            run!(aclnnLayerNorm aclnnLayerNormGetWorkspaceSize(x, ints(shape), none, bias, 0.5f64, out, no_output, rstd));
            let expected: Vec<f64> = (0..60).map(|i| normal[i] + b[i % len]).collect();
            assert_close("layer norm with bias", &out, &expected);
        }
    }
}

#[test]
fn rms_norm_gives_its_scale() {
    for &dtype in HALF_AND_SINGLE {
        for form in FORMS {
            let x = Dev::of(dtype, &DIMS, &spread(60, 0.25), form);
            let gamma = Dev::of(dtype, &[5], &[1.0, -2.0, 3.0, 0.5, 4.0], form);
            let out = Dev::new(dtype, &DIMS, form);
            let rstd = Dev::new(Type::F32, &[3, 4, 1], form);
            run!(aclnnRmsNorm aclnnRmsNormGetWorkspaceSize(x, gamma, 0.25f64, out, rstd));
            let (values, weights) = (x.values(), gamma.values());
            let scales: Vec<f64> = values
                .chunks(5)
                .map(|row| 1.0 / (row.iter().map(|x| x * x).sum::<f64>() / 5.0 + 0.25).sqrt())
                .collect();
            assert_close("rstd", &rstd, &scales);
            let expected: Vec<f64> = (0..60)
                .map(|i| values[i] * scales[i / 5] * weights[i % 5])
                .collect();
            assert_close("rms norm", &out, &expected);
        }
    }
}

#[test]
fn logarithms_of_shares() {
    for &dtype in FLOATS {
        for (form, axis) in FORMS.into_iter().zip([0usize, 1, 2, 1]) {
            let x = Dev::of(dtype, &DIMS, &spread(60, 0.25), form);
            let out = Dev::new(dtype, &DIMS, form);
            run!(aclnnLogSoftmax aclnnLogSoftmaxGetWorkspaceSize(x, axis as i64, out));
            let all = x.values();
            let totals: Vec<f64> = groups(&all, &[axis])
                .iter()
                .map(|group| group.iter().map(|x| x.exp()).sum::<f64>().ln())
                .collect();
            let index = |n: usize| [n / 20, n / 5 % 4, n % 5];
            let expected: Vec<f64> = (0..60)
                .map(|n| {
                    let kept = (0..3).filter(|&d| d != axis);
                    all[n] - totals[kept.fold(0, |at, d| at * DIMS[d] + index(n)[d])]
                })
                .collect();
            for (n, expected) in expected.into_iter().enumerate() {
                // Logarithms near 0 come from numbers near 1, so the error is relative to 1.
                let error = (out.get(n) - expected).abs();
                assert!(
                    error <= tolerance(dtype) * expected.abs().max(1.0),
                    "{dtype}: {n}"
                );
            }
        }
    }
    let x = Dev::of(Type::F32, &[2], &[1000.0, 0.0], Form::Plain);
    let out = Dev::new(Type::F32, &[2], Form::Plain);
    run!(aclnnLogSoftmax aclnnLogSoftmaxGetWorkspaceSize(x, 0i64, out));
    assert_eq!(out.values(), [0.0, -1000.0]);
    assert_eq!(
        first!(aclnnLogSoftmaxGetWorkspaceSize(x, 1i64, out))
            .unwrap_err()
            .0,
        161_002
    );
}

#[test]
fn sums_that_are_normalised_at_once() {
    for &dtype in HALF_AND_SINGLE {
        for form in FORMS {
            let x = Dev::of(dtype, &[3, 8], &spread(24, 0.37), form);
            let y = Dev::of(dtype, &[3, 8], &count_from(1, 1, 24), Form::Gapped);
            let gamma = Dev::of(dtype, &[8], &spread(8, 0.5), form);
            let [out, sum, alone] = [0; 3].map(|_| Dev::new(dtype, &[3, 8], form));
            let [rstd, rstd_alone] = [0; 2].map(|_| Dev::new(Type::F32, &[3, 1], Form::Plain));
            run!(aclnnAddRmsNorm aclnnAddRmsNormGetWorkspaceSize(x, y, gamma, 1e-6f64, out, rstd, sum));
            let expected: Vec<f64> = (0..24).map(|n| x.get(n) + y.get(n)).collect();
            assert_close("sum", &sum, &expected);
            let sums = sum.values();
            let expected: Vec<f64> = (0..24)
                .map(|n| {
                    let row = &sums[n / 8 * 8..][..8];
                    let square = row.iter().map(|x| x * x).sum::<f64>() / 8.0 + 1e-6;
                    sums[n] / square.sqrt() * gamma.get(n % 8)
                })
                .collect();
            assert_close("add rms norm", &out, &expected);
            run!(aclnnRmsNorm aclnnRmsNormGetWorkspaceSize(sum, gamma, 1e-6f64, alone, rstd_alone));
            assert_eq!(
                (out.values(), rstd.values()),
                (alone.values(), rstd_alone.values())
            );
        }
    }
    let x = Dev::of(Type::F32, &[2, 2], &spread(4, 1.0), Form::Plain);
    let half = Dev::new(Type::F16, &[2, 2], Form::Plain);
    let gamma = Dev::of(Type::F32, &[2], &[1.0, 2.0], Form::Plain);
    let rstd = Dev::new(Type::F32, &[2, 1], Form::Plain);
    assert_refused(
        first!(aclnnAddRmsNormGetWorkspaceSize(
            x, half, gamma, 0f64, x, rstd, x
        )),
        "parameter x2: expected data type FLOAT, got FLOAT16",
    );
}

#[test]
fn layer_norm_in_each_mode() {
    let x = Dev::of(Type::F16, &[2, 4], &spread(8, 0.5), Form::Transposed);
    let (none, nowhere) = (ptr::null::<aclTensor>(), ptr::null_mut::<aclTensor>());
    let out = Dev::new(Type::F16, &[2, 4], Form::Gapped);
    let expected: Vec<f64> = (0..8)
        .map(|n| {
            let row: Vec<f64> = (0..4).map(|i| x.get(n / 4 * 4 + i)).collect();
            let mean = row.iter().sum::<f64>() / 4.0;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4.0;
            (x.get(n) - mean) / (variance + 1e-5).sqrt()
        })
        .collect();
    for mode in 0..3i32 {
        run!(aclnnLayerNormWithImplMode aclnnLayerNormWithImplModeGetWorkspaceSize(
            x, ints(&[4]), none, none, 1e-5f64, out, nowhere, nowhere, mode
        ));
        assert_close("layer norm", &out, &expected);
    }
    let refused = first!(aclnnLayerNormWithImplModeGetWorkspaceSize(
        x,
        ints(&[4]),
        none,
        none,
        1e-5f64,
        out,
        nowhere,
        nowhere,
        3i32
    ));
    let (code, text) = refused.unwrap_err();
    assert_eq!(code, 161_002);
    assert!(
        text.ends_with("parameter implMode: expected 0, 1 or 2, got 3"),
        "{text}"
    );
}

#[test]
fn running_sums() {
    for &dtype in REALS {
        for form in FORMS {
            let whole: Vec<f64> = (0..12)
                .map(|i| {
                    if dtype == Type::Bool {
                        f64::from(i % 2)
                    } else {
                        f64::from(i)
                    }
                })
                .collect();
            let x = Dev::of(dtype, &[3, 4], &whole, form);
            let to = if dtype == Type::Bool {
                Type::I64
            } else {
                dtype
            };
            let out = Dev::new(to, &[3, 4], form);
            let asked = aclDataType(to.acl());
            run!(aclnnCumsum aclnnCumsumGetWorkspaceSize(x, 0i64, asked, out));
            let column = |n: usize| (0..=n / 4).map(|i| whole[i * 4 + n % 4]).sum();
            assert_eq!(
                out.values(),
                (0..12).map(column).collect::<Vec<f64>>(),
                "{dtype}"
            );
            run!(aclnnCumsum aclnnCumsumGetWorkspaceSize(x, -1i64, asked, out));
            let row = |n: usize| whole[n / 4 * 4..=n].iter().sum();
            assert_eq!(
                out.values(),
                (0..12).map(row).collect::<Vec<f64>>(),
                "{dtype}"
            );
        }
    }
    // Ones in FLOAT16 would stop at 2048 if the sum itself were kept so.
    let ones = Dev::of(Type::F16, &[4096], &[1.0; 4096], Form::Plain);
    let out = Dev::new(Type::F16, &[4096], Form::Plain);
    run!(aclnnCumsum aclnnCumsumGetWorkspaceSize(ones, 0i64, aclDataType(1), out));
    assert_eq!(out.get(4095), 4096.0);
    let (code, _) =
        first!(aclnnCumsumGetWorkspaceSize(ones, 0i64, aclDataType(0), out)).unwrap_err();
    assert_eq!(code, 161_002);
}

#[test]
fn the_largest_of_all() {
    for &dtype in NUMBERS {
        for form in FORMS {
            let x = Dev::of(dtype, &[2, 3], &[3.0, 1.0, 7.0, 2.0, 6.0, 5.0], form);
            for dims in [&[][..], &[1]] {
                let out = Dev::new(dtype, dims, Form::Plain);
                run!(aclnnMax aclnnMaxGetWorkspaceSize(x, out));
                assert_eq!(out.values(), [7.0], "{dtype}");
            }
        }
    }
    let x = Dev::of(Type::BF16, &[3], &[-1.0, f64::NAN, 4.0], Form::Plain);
    let out = Dev::new(Type::BF16, &[], Form::Plain);
    run!(aclnnMax aclnnMaxGetWorkspaceSize(x, out));
    assert!(out.get(0).is_nan());
    assert_refused(
        first!(aclnnMaxGetWorkspaceSize(x, x)),
        "parameter out: expected a scalar or one element, got shape [3]",
    );
}
