//! Operators that answer yes or no, or act where the answer is yes.

use super::*;
use crate::aclnn::dtype::{INTEGERS, REALS};

#[test]
fn one_answer_for_two_tensors() {
    for &dtype in REALS {
        for form in FORMS {
            let values = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0];
            let x = Dev::of(dtype, &[2, 3], &values, form);
            let same = Dev::of(Type::F32, &[2, 3], &values, Form::Gapped);
            let mut changed = values;
            changed[5] = 1.0;
            let other = Dev::of(dtype, &[2, 3], &changed, form);
            let flat = Dev::of(dtype, &[6], &values, Form::Plain);
            for (y, expected) in [(&same, 1.0), (&other, 0.0), (&flat, 0.0)] {
                for dims in [&[][..], &[1]] {
                    let out = Dev::new(Type::Bool, dims, Form::Plain);
                    run!(aclnnEqual aclnnEqualGetWorkspaceSize(x, *y, out));
                    assert_eq!(out.values(), [expected], "{dtype}");
                }
            }
        }
    }
    let many = Dev::of(Type::I32, &[3000], &count_from(0, 1, 3000), Form::Plain);
    let last = Dev::of(Type::I32, &[3000], &count_from(0, 1, 3000), Form::Plain);
    last.set(2999, 1.0);
    let out = Dev::new(Type::Bool, &[1], Form::Plain);
    run!(aclnnEqual aclnnEqualGetWorkspaceSize(many, last, out));
    assert_eq!(out.values(), [0.0]);
    assert_refused(
        first!(aclnnEqualGetWorkspaceSize(many, last, many)),
        "parameter out: expected data type BOOL, got INT32",
    );
}

#[test]
fn finite_or_zero_or_not() {
    let odd = [0.0, f64::NAN, f64::INFINITY, -1.5, f64::NEG_INFINITY, -0.0];
    for dtype in [Type::F32, Type::F16, Type::BF16, Type::F64] {
        for form in FORMS {
            let x = Dev::of(dtype, &[3, 2], &odd, form);
            let out = Dev::new(Type::Bool, &[3, 2], form);
            run!(aclnnIsFinite aclnnIsFiniteGetWorkspaceSize(x, out));
            assert_eq!(out.values(), [1.0, 0.0, 0.0, 1.0, 0.0, 1.0], "{dtype}");
            run!(aclnnLogicalNot aclnnLogicalNotGetWorkspaceSize(x, out));
            assert_eq!(out.values(), [1.0, 0.0, 0.0, 0.0, 0.0, 1.0], "{dtype}");
        }
    }
    for &dtype in INTEGERS {
        let x = Dev::of(dtype, &[3], &[1.0, 0.0, 1.0], Form::Reversed);
        let out = Dev::new(Type::Bool, &[3], Form::Plain);
        run!(aclnnIsFinite aclnnIsFiniteGetWorkspaceSize(x, out));
        assert_eq!(out.values(), [1.0; 3]);
        run!(aclnnLogicalNot aclnnLogicalNotGetWorkspaceSize(x, out));
        assert_eq!(out.values(), [0.0, 1.0, 0.0]);
    }
    let x = Dev::of(Type::F32, &[1], &[1.0], Form::Plain);
    let wide = Dev::new(Type::I32, &[1], Form::Plain);
    assert_eq!(
        first!(aclnnIsFiniteGetWorkspaceSize(x, wide))
            .unwrap_err()
            .0,
        161_002
    );
}

#[test]
fn common_bits_with_a_number() {
    for &dtype in INTEGERS {
        for form in FORMS {
            let values: &[f64] = match dtype {
                Type::Bool => &[0.0, 1.0, 1.0, 0.0],
                _ => &[1.0, 6.0, 13.0, 127.0],
            };
            let x = Dev::of(dtype, &[2, 2], values, form);
            let (out, number) = match dtype {
                Type::Bool => (Dev::new(Type::I64, &[2, 2], form), 1),
                _ => (Dev::new(dtype, &[2, 2], form), 12),
            };
            run!(aclnnBitwiseAndScalar aclnnBitwiseAndScalarGetWorkspaceSize(x, int(number), out));
            let expected: Vec<f64> = values.iter().map(|&x| (x as i64 & number) as f64).collect();
            assert_eq!(out.values(), expected, "{dtype}");
        }
    }
    let x = Dev::of(Type::I32, &[1], &[3.0], Form::Plain);
    assert_refused(
        first!(aclnnBitwiseAndScalarGetWorkspaceSize(x, float(1.0), x)),
        "parameter other: expected an integer, got FLOAT",
    );
    let x = Dev::of(Type::F32, &[1], &[3.0], Form::Plain);
    assert_eq!(
        first!(aclnnBitwiseAndScalarGetWorkspaceSize(x, int(1), x))
            .unwrap_err()
            .0,
        161_002
    );
}

#[test]
fn filling_under_a_mask() {
    for &dtype in REALS {
        for form in FORMS {
            let values = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0];
            let x = Dev::of(dtype, &[2, 3], &values, form);
            // The mask broadcasts along the rows.
            let mask = Dev::of(Type::Bool, &[3], &[0.0, 1.0, 1.0], Form::Gapped);
            run!(aclnnInplaceMaskedFillScalar aclnnInplaceMaskedFillScalarGetWorkspaceSize(x, mask, int(1)));
            assert_eq!(x.values(), [1.0, 1.0, 1.0, 0.0, 1.0, 1.0], "{dtype}");
        }
    }
    let scores = Dev::of(Type::F16, &[3], &[0.5, -2.0, 3.0], Form::Plain);
    let mask = Dev::of(Type::Bool, &[3], &[1.0, 0.0, 1.0], Form::Plain);
    let value = float(f32::NEG_INFINITY);
    run!(aclnnInplaceMaskedFillScalar aclnnInplaceMaskedFillScalarGetWorkspaceSize(scores, mask, value));
    assert_eq!(
        scores.values(),
        [f64::NEG_INFINITY, -2.0, f64::NEG_INFINITY]
    );
    let wide = Dev::of(Type::Bool, &[2], &[1.0, 0.0], Form::Plain);
    assert_refused(
        first!(aclnnInplaceMaskedFillScalarGetWorkspaceSize(
            scores, wide, value
        )),
        "parameter mask: expected a shape that broadcasts to [3], got [2]",
    );
}

#[test]
fn filling_with_the_element_of_a_tensor() {
    for &dtype in REALS {
        for form in FORMS {
            let out = Dev::new(dtype, &[2, 2], form);
            let value = Dev::of(Type::F16, &[1], &[1.0], Form::Plain);
            run!(aclnnInplaceFillTensor aclnnInplaceFillTensorGetWorkspaceSize(out, value));
            assert_eq!(out.values(), [1.0; 4], "{dtype}");
        }
    }
    let out = Dev::new(Type::F32, &[2], Form::Plain);
    let two = Dev::of(Type::F32, &[2], &[1.0, 2.0], Form::Plain);
    assert_refused(
        first!(aclnnInplaceFillTensorGetWorkspaceSize(out, two)),
        "parameter value: expected a scalar or one element, got shape [2]",
    );
}
