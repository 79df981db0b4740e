//! Operators that move, convert, make or pick elements.

use super::*;
use crate::aclnn::dtype::{ALL, CONVERTIBLE, NUMBERS};

#[test]
fn permuting() {
    for &dtype in ALL {
        for (i, form) in FORMS.into_iter().enumerate() {
            let x = Dev::of(dtype, &[2, 3, 4], &values(dtype, 24), form);
            let out = Dev::new(dtype, &[4, 2, 3], FORMS[(i + 1) % 4]);
            run!(aclnnPermute aclnnPermuteGetWorkspaceSize(x, ints(&[-1, 0, 1]), out));
            let expected: Vec<f64> = (0..24).map(|n| x.get(n % 6 * 4 + n / 6)).collect();
            assert_eq!(out.values(), expected, "{dtype}");
        }
    }
    let x = Dev::of(Type::F32, &[], &[7.0], Form::Plain);
    let out = Dev::new(Type::F32, &[], Form::Plain);
    run!(aclnnPermute aclnnPermuteGetWorkspaceSize(x, ints(&[]), out));
    assert_eq!(out.values(), [7.0]);
}

#[test]
fn expanding() {
    for &dtype in ALL {
        for form in FORMS {
            let x = Dev::of(dtype, &[3, 1], &values(dtype, 3), form);
            let out = Dev::new(dtype, &[2, 3, 4], form);
            run!(aclnnExpand aclnnExpandGetWorkspaceSize(x, ints(&[2, -1, 4]), out));
            let expected: Vec<f64> = (0..24).map(|n| x.get(n / 4 % 3)).collect();
            assert_eq!(out.values(), expected, "{dtype}");
        }
    }
}

#[test]
fn slicing() {
    for &dtype in ALL {
        for form in FORMS {
            let x = Dev::of(dtype, &[5, 7], &values(dtype, 35), form);
            let out = Dev::new(dtype, &[1, 2], form);
            run!(aclnnSliceV2 aclnnSliceV2GetWorkspaceSize(
                x, ints(&[-6, 1]), ints(&[99, -3]), ints(&[1, 0]), ints(&[3, 1]), out
            ));
            assert_eq!(out.values(), [x.get(8), x.get(11)], "{dtype}");
            let out = Dev::new(dtype, &[2, 3], form);
            run!(aclnnSliceV2 aclnnSliceV2GetWorkspaceSize(
                x, ints(&[1, 1]), ints(&[4, 99]), ints(&[-2, 1]), ints(&[2, 2]), out
            ));
            let expected: Vec<f64> = (0..6)
                .map(|n| x.get((1 + n / 3 * 2) * 7 + 1 + n % 3 * 2))
                .collect();
            assert_eq!(out.values(), expected, "{dtype}");
        }
    }
    let x = Dev::of(Type::F32, &[4], &count_from(0, 1, 4), Form::Plain);
    let nothing = Dev::new(Type::F32, &[0], Form::Plain);
    run!(aclnnSliceV2 aclnnSliceV2GetWorkspaceSize(x, ints(&[3]), ints(&[1]), ints(&[0]), ints(&[1]), nothing));
}

#[test]
fn concatenating() {
    for &dtype in ALL {
        for form in FORMS {
            let x = Dev::of(dtype, &[2, 3], &values(dtype, 6), form);
            let y = Dev::of(dtype, &[2, 1], &[1.0, 0.0], form);
            let z = Dev::of(dtype, &[2, 0], &[], form);
            let empty = Dev::of(dtype, &[0], &[], form);
            let out = Dev::new(dtype, &[2, 7], form);
            run!(aclnnCat aclnnCatGetWorkspaceSize(list(&[&x, &empty, &y, &z, &x]), -1i64, out));
            let (a, b) = (x.values(), y.values());
            let expected = [&a[..3], &b[..1], &a[..3], &a[3..], &b[1..], &a[3..]].concat();
            assert_eq!(out.values(), expected, "{dtype}");
        }
    }
    let x = Dev::of(Type::I32, &[2], &[1.0, 2.0], Form::Plain);
    let y = Dev::of(Type::F16, &[1], &[0.5], Form::Plain);
    let out = Dev::new(Type::F32, &[3], Form::Plain);
    run!(aclnnCat aclnnCatGetWorkspaceSize(list(&[&x, &y]), 0i64, out));
    assert_eq!(out.values(), [1.0, 2.0, 0.5]);
}

#[test]
fn padding_and_cutting() {
    for &dtype in ALL {
        for form in FORMS {
            let x = Dev::of(dtype, &[2, 3], &values(dtype, 6), form);
            let out = Dev::new(dtype, &[3, 5], form);
            let value = if dtype.is_complex() {
                double(0.0)
            } else {
                int(1)
            };
            run!(aclnnConstantPadNd aclnnConstantPadNdGetWorkspaceSize(x, ints(&[1, 1, 1, 0]), value, out));
            let fill = if dtype.is_complex() { 0.0 } else { 1.0 };
            let expected: Vec<f64> = (0..15)
                .map(|n| match (n / 5, n % 5) {
                    (0, _) | (_, 0 | 4) => fill,
                    (i, j) => x.get((i - 1) * 3 + j - 1),
                })
                .collect();
            assert_eq!(out.values(), expected, "{dtype}");
            let cut = Dev::new(dtype, &[2, 2], form);
            run!(aclnnConstantPadNd aclnnConstantPadNdGetWorkspaceSize(x, ints(&[-2, 1]), value, cut));
            assert_eq!(cut.values(), [x.get(2), fill, x.get(5), fill], "{dtype}");
        }
    }
    let x = Dev::of(Type::F32, &[2, 3], &count_from(0, 1, 6), Form::Plain);
    let out = Dev::new(Type::F32, &[2, 3], Form::Plain);
    let (code, text) = first!(aclnnConstantPadNdGetWorkspaceSize(
        x,
        ints(&[-4, 4]),
        int(0),
        out
    ))
    .unwrap_err();
    assert_eq!(code, 161_002);
    assert_eq!(
        text,
        "aclnnConstantPadNdGetWorkspaceSize: parameter pad: expected no more than 3 cut from dimension 1, got [-4, 4]"
    );
}

#[test]
fn triangles() {
    for &dtype in ALL {
        for diagonal in [-5i64, -1, 0, 2, 9] {
            let x = Dev::of(dtype, &[2, 3, 4], &values(dtype, 24), Form::Transposed);
            let out = Dev::new(dtype, &[2, 3, 4], Form::Gapped);
            let place = |n: usize| (n % 4) as i64 - (n / 4 % 3) as i64;
            run!(aclnnTril aclnnTrilGetWorkspaceSize(x, diagonal, out));
            let lower = |n| if place(n) <= diagonal { x.get(n) } else { 0.0 };
            assert_eq!(
                out.values(),
                (0..24).map(lower).collect::<Vec<_>>(),
                "{dtype}"
            );
            run!(aclnnTriu aclnnTriuGetWorkspaceSize(x, diagonal, out));
            let upper = |n| if place(n) >= diagonal { x.get(n) } else { 0.0 };
            assert_eq!(
                out.values(),
                (0..24).map(upper).collect::<Vec<_>>(),
                "{dtype}"
            );
        }
    }
}

#[test]
fn casting_between_all_real_types() {
    for &from in CONVERTIBLE {
        for &to in CONVERTIBLE {
            let x = Dev::of(from, &[2, 3], &values(from, 6), Form::Gapped);
            let out = Dev::new(to, &[2, 3], Form::Reversed);
            run!(aclnnCast aclnnCastGetWorkspaceSize(x, aclDataType(to.acl()), out));
            let truth = |x: f64| {
                if to == Type::Bool {
                    f64::from(u8::from(x != 0.0))
                } else {
                    x
                }
            };
            assert_eq!(
                out.values(),
                x.values().into_iter().map(truth).collect::<Vec<_>>(),
                "{from} {to}"
            );
        }
    }
}

#[test]
fn casts_at_the_limits() {
    let x = Dev::of(
        Type::F32,
        &[5],
        &[-1.9, 300.0, f64::NAN, 1e20, 0.3],
        Form::Plain,
    );
    let out = Dev::new(Type::I8, &[5], Form::Plain);
    run!(aclnnCast aclnnCastGetWorkspaceSize(x, aclDataType(2), out));
    assert_eq!(out.values(), [-1.0, 127.0, 0.0, 127.0, 0.0]);
    let truth = Dev::new(Type::Bool, &[5], Form::Plain);
    run!(aclnnCast aclnnCastGetWorkspaceSize(x, aclDataType(12), truth));
    assert_eq!(truth.values(), [1.0, 1.0, 1.0, 1.0, 1.0]);
    let wide = Dev::of(Type::I32, &[2], &[300.0, -200.0], Form::Plain);
    let narrow = Dev::new(Type::I8, &[2], Form::Plain);
    run!(aclnnCast aclnnCastGetWorkspaceSize(wide, aclDataType(2), narrow));
    assert_eq!(narrow.values(), [44.0, 56.0]);
    let huge = Dev::of(Type::U64, &[1], &[2f64.powi(63)], Form::Plain);
    let float = Dev::new(Type::F32, &[1], Form::Plain);
    run!(aclnnCast aclnnCastGetWorkspaceSize(huge, aclDataType(0), float));
    assert_eq!(float.values(), [2f64.powi(63)]);
}

#[test]
fn copying_in_place_broadcasts_and_converts() {
    for form in FORMS {
        let x = Dev::of(Type::I32, &[1, 3], &[1.0, 2.0, 3.0], form);
        let out = Dev::new(Type::F16, &[2, 3], form);
        run!(aclnnInplaceCopy aclnnInplaceCopyGetWorkspaceSize(out, x));
        assert_eq!(out.values(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    }
}

#[test]
fn filling() {
    for &dtype in ALL {
        for form in FORMS {
            let out = Dev::new(dtype, &[2, 3], form);
            run!(aclnnInplaceFillScalar aclnnInplaceFillScalarGetWorkspaceSize(out, int(0)));
            assert_eq!(out.values(), [0.0; 6], "{dtype}");
            if !dtype.is_complex() {
                run!(aclnnInplaceFillScalar aclnnInplaceFillScalarGetWorkspaceSize(out, float(1.0)));
                assert_eq!(out.values(), [1.0; 6], "{dtype}");
            }
        }
    }
    let largest = Dev::new(Type::I64, &[1], Form::Plain);
    run!(aclnnInplaceFillScalar aclnnInplaceFillScalarGetWorkspaceSize(largest, int(i64::MAX - 1)));
    assert_eq!(largest.place(0).to_vec::<i64>(), [i64::MAX - 1]);
}

#[test]
fn counting() {
    for &dtype in NUMBERS {
        let out = Dev::new(dtype, &[4], Form::Gapped);
        run!(aclnnArange aclnnArangeGetWorkspaceSize(int(2), int(12), int(3), out));
        assert_eq!(out.values(), [2.0, 5.0, 8.0, 11.0], "{dtype}");
    }
    let out = Dev::new(Type::F32, &[3], Form::Plain);
    run!(aclnnArange aclnnArangeGetWorkspaceSize(double(1.0), double(0.25), double(-0.25), out));
    assert_eq!(out.values(), [1.0, 0.75, 0.5]);
    let nothing = Dev::new(Type::I64, &[0], Form::Plain);
    run!(aclnnArange aclnnArangeGetWorkspaceSize(int(5), int(5), int(1), nothing));
    let (code, text) =
        first!(aclnnArangeGetWorkspaceSize(int(0), int(5), int(-1), out)).unwrap_err();
    assert_eq!(
        (code, &*text),
        (
            161_002,
            "aclnnArangeGetWorkspaceSize: parameter step: expected a step from 0 towards 5, got -1"
        )
    );
}

#[test]
fn embedding_rows() {
    for &dtype in ALL {
        for form in FORMS {
            let weight = Dev::of(dtype, &[4, 3], &values(dtype, 12), form);
            let indices = Dev::of(Type::I32, &[2, 2], &[3.0, 0.0, 1.0, 3.0], form);
            let out = Dev::new(dtype, &[2, 2, 3], form);
            run!(aclnnEmbedding aclnnEmbeddingGetWorkspaceSize(weight, indices, out));
            let rows = weight.values();
            let expected = [&rows[9..], &rows[..3], &rows[3..6], &rows[9..]].concat();
            assert_eq!(out.values(), expected, "{dtype}");
        }
    }
}

#[test]
fn gathering_along_each_dimension() {
    for &dtype in ALL {
        for form in FORMS {
            let x = Dev::of(dtype, &[3, 4], &values(dtype, 12), form);
            let index = Dev::of(Type::I64, &[2, 3], &[2.0, 0.0, 1.0, 1.0, 2.0, 0.0], form);
            let out = Dev::new(dtype, &[2, 3], form);
            let indices = index.values();
            run!(aclnnGather aclnnGatherGetWorkspaceSize(x, 0i64, index, out));
            let expected: Vec<f64> = (0..6)
                .map(|n| x.get(indices[n] as usize * 4 + n % 3))
                .collect();
            assert_eq!(out.values(), expected, "{dtype}");
            run!(aclnnGather aclnnGatherGetWorkspaceSize(x, -1i64, index, out));
            let expected: Vec<f64> = (0..6)
                .map(|n| x.get(n / 3 * 4 + indices[n] as usize))
                .collect();
            assert_eq!(out.values(), expected, "{dtype}");
        }
    }
}

#[test]
fn an_index_outside_stops_the_device() {
    for wrong in [-1.0, 4.0] {
        let weight = Dev::of(Type::F32, &[4, 3], &values(Type::F32, 12), Form::Plain);
        let indices = Dev::of(Type::I64, &[2], &[1.0, wrong], Form::Plain);
        let out = Dev::new(Type::F32, &[2, 3], Form::Plain);
        let executor = first!(aclnnEmbeddingGetWorkspaceSize(weight, indices, out)).unwrap();
        let (code, text) = finish(crate::ffi::all::aclnnEmbedding, executor).unwrap_err();
        assert_eq!(code, 507_015);
        let expected = format!("aclnnEmbedding: expected an index from 0 to below 4, got {wrong}");
        assert!(text.contains(&expected), "{text}");
    }
}
