//! Operators that put tensors together and take them apart.

use super::*;
use crate::aclnn::dtype::{ALL, HALF_AND_SINGLE};

/// A list of the tensors themselves, for outputs.
fn outputs(tensors: &[&Dev]) -> *mut aclTensorList {
    list(tensors).cast_mut()
}

#[test]
fn stacking_along_each_dimension() {
    for &dtype in ALL {
        for form in FORMS {
            let all = values(dtype, 12);
            let x = Dev::of(dtype, &[2, 3], &all[..6], form);
            let y = Dev::of(dtype, &[2, 3], &all[6..], Form::Gapped);
            let (a, b) = (&all[..6], &all[6..]);
            let out = Dev::new(dtype, &[2, 2, 3], form);
            run!(aclnnStack aclnnStackGetWorkspaceSize(list(&[&x, &y]), 0i64, out));
            assert_eq!(out.values(), all, "{dtype}");
            run!(aclnnStack aclnnStackGetWorkspaceSize(list(&[&x, &y]), 1i64, out));
            assert_eq!(
                out.values(),
                [&a[..3], &b[..3], &a[3..], &b[3..]].concat(),
                "{dtype}"
            );
            let out = Dev::new(dtype, &[2, 3, 2], form);
            run!(aclnnStack aclnnStackGetWorkspaceSize(list(&[&x, &y]), -1i64, out));
            let pairs: Vec<f64> = (0..6).flat_map(|i| [a[i], b[i]]).collect();
            assert_eq!(out.values(), pairs, "{dtype}");
        }
    }
    let x = Dev::of(Type::F32, &[2], &[1.0, 2.0], Form::Plain);
    let y = Dev::of(Type::F32, &[1], &[1.0], Form::Plain);
    let out = Dev::new(Type::F32, &[2, 2], Form::Plain);
    assert_refused(
        first!(aclnnStackGetWorkspaceSize(list(&[&x, &y]), 0i64, out)),
        "parameter tensors[1]: expected shape [2], got [1]",
    );
}

#[test]
fn splitting_evenly_and_by_sizes() {
    for &dtype in ALL {
        for form in FORMS {
            let all = values(dtype, 10);
            let x = Dev::of(dtype, &[2, 5], &all, form);
            let a = Dev::new(dtype, &[2, 2], form);
            let b = Dev::new(dtype, &[2, 2], Form::Gapped);
            let c = Dev::new(dtype, &[2, 1], form);
            run!(aclnnSplitTensor aclnnSplitTensorGetWorkspaceSize(x, 2u64, 1i64, outputs(&[&a, &b, &c])));
            assert_eq!(a.values(), [all[0], all[1], all[5], all[6]], "{dtype}");
            assert_eq!(b.values(), [all[2], all[3], all[7], all[8]], "{dtype}");
            assert_eq!(c.values(), [all[4], all[9]], "{dtype}");
            run!(aclnnSplitWithSize aclnnSplitWithSizeGetWorkspaceSize(x, ints(&[1, 2, 2]), -1i64, outputs(&[&c, &a, &b])));
            assert_eq!(c.values(), [all[0], all[5]], "{dtype}");
            assert_eq!(a.values(), [all[1], all[2], all[6], all[7]], "{dtype}");
            assert_eq!(b.values(), [all[3], all[4], all[8], all[9]], "{dtype}");
        }
    }
    let x = Dev::of(Type::F32, &[3], &[1.0, 2.0, 3.0], Form::Plain);
    let [a, b] = [1, 2].map(|n| Dev::new(Type::F32, &[n], Form::Plain));
    assert_refused(
        first!(aclnnSplitWithSizeGetWorkspaceSize(
            x,
            ints(&[1, 1]),
            0i64,
            outputs(&[&a, &b])
        )),
        "parameter splitSize: expected sizes that sum to the 3 of dimension 0, got [1, 1]",
    );
    assert_refused(
        first!(aclnnSplitTensorGetWorkspaceSize(
            x,
            1u64,
            0i64,
            outputs(&[&a, &b])
        )),
        "parameter out: expected 3 tensors, got 2",
    );
}

#[test]
fn flattening_into_a_matrix() {
    for &dtype in ALL {
        for form in FORMS {
            let all = values(dtype, 24);
            let x = Dev::of(dtype, &[2, 3, 4], &all, form);
            for (axis, dims) in [(0, [1, 24]), (1, [2, 12]), (-1, [6, 4]), (3, [24, 1])] {
                let out = Dev::new(dtype, &dims, Form::Transposed);
                run!(aclnnFlatten aclnnFlattenGetWorkspaceSize(x, axis as i64, out));
                assert_eq!(out.values(), all, "{dtype}");
            }
        }
    }
    let x = Dev::new(Type::F32, &[2, 3], Form::Plain);
    assert_refused(
        first!(aclnnFlattenGetWorkspaceSize(x, 4i64, x)),
        "parameter axis: expected a dimension from -2 to 1, got 4",
    );
}

#[test]
fn repeating_along_old_and_new_dimensions() {
    for &dtype in ALL {
        for form in FORMS {
            let all = values(dtype, 6);
            let x = Dev::of(dtype, &[2, 3], &all, form);
            let out = Dev::new(dtype, &[2, 2, 9], form);
            run!(aclnnRepeat aclnnRepeatGetWorkspaceSize(x, ints(&[2, 1, 3]), out));
            let expected: Vec<f64> = (0..36).map(|n| all[n / 9 % 2 * 3 + n % 3]).collect();
            assert_eq!(out.values(), expected, "{dtype}");
        }
    }
    // Every dimension in two, none of which merge.
    let x = Dev::of(Type::F32, &[2; 8], &count_from(0, 1, 256), Form::Transposed);
    let out = Dev::new(Type::F32, &[4; 8], Form::Plain);
    run!(aclnnRepeat aclnnRepeatGetWorkspaceSize(x, ints(&[2; 8]), out));
    let source = |n: usize| (0..8).fold(0, |at, d| at * 2 + (n >> (2 * (7 - d))) % 2);
    for n in [0, 1, 2, 5, 4096, 12_345, 65_535] {
        assert_eq!(out.get(n), source(n) as f64, "{n}");
    }
    assert_refused(
        first!(aclnnRepeatGetWorkspaceSize(x, ints(&[2]), out)),
        "parameter repeats: expected 8 to 8 numbers of at least 0, got [2]",
    );
}

#[test]
fn gated_halves() {
    for &dtype in HALF_AND_SINGLE {
        for (form, dim) in FORMS.into_iter().zip([1i64, -1, 1, -1]) {
            let x = Dev::of(dtype, &[3, 8], &spread(24, 0.25), form);
            let out = Dev::new(dtype, &[3, 4], form);
            run!(aclnnSwiGlu aclnnSwiGluGetWorkspaceSize(x, dim, out));
            let expected: Vec<f64> = (0..12)
                .map(|n| {
                    let (gate, value) = (x.get(n / 4 * 8 + n % 4), x.get(n / 4 * 8 + n % 4 + 4));
                    gate / (1.0 + (-gate).exp()) * value
                })
                .collect();
            assert_close("swiglu", &out, &expected);
        }
        let x = Dev::of(dtype, &[4, 3], &spread(12, 0.5), Form::Plain);
        let out = Dev::new(dtype, &[2, 3], Form::Plain);
        run!(aclnnSwiGlu aclnnSwiGluGetWorkspaceSize(x, 0i64, out));
        let gate = x.get(1);
        assert!((out.get(1) - gate / (1.0 + (-gate).exp()) * x.get(7)).abs() < 0.01);
    }
    let x = Dev::of(Type::F32, &[2, 3], &spread(6, 1.0), Form::Plain);
    assert_refused(
        first!(aclnnSwiGluGetWorkspaceSize(x, -1i64, x)),
        "parameter x: expected an even size of dimension 1, got shape [2, 3]",
    );
}
