//! Operators that pick elements: by index, by mask, by order.

use super::*;
use crate::aclnn::dtype::{ALL, NUMBERS};

#[test]
fn slices_by_number() {
    for &dtype in ALL {
        for form in FORMS {
            let all = values(dtype, 24);
            let x = Dev::of(dtype, &[2, 4, 3], &all, form);
            let picks = [3.0, 0.0, 2.0, 3.0];
            let index = Dev::of(Type::I64, &[2, 2], &picks, form);
            let out = Dev::new(dtype, &[2, 2, 2, 3], form);
            run!(aclnnGatherV2 aclnnGatherV2GetWorkspaceSize(x, 1i64, index, out));
            let expected: Vec<f64> = (0..24)
                .map(|n| all[n / 12 * 12 + picks[n / 3 % 4] as usize * 3 + n % 3])
                .collect();
            assert_eq!(out.values(), expected, "{dtype}");
            let list = Dev::of(Type::I32, &[2], &[2.0, 1.0], Form::Gapped);
            let out = Dev::new(dtype, &[2, 4, 2], form);
            run!(aclnnIndexSelect aclnnIndexSelectGetWorkspaceSize(x, -1i64, list, out));
            let expected: Vec<f64> = (0..16).map(|n| all[n / 2 * 3 + 2 - n % 2]).collect();
            assert_eq!(out.values(), expected, "{dtype}");
        }
    }
    let x = Dev::of(Type::F16, &[3], &[1.0, 2.0, 3.0], Form::Plain);
    let index = Dev::of(Type::I32, &[1, 1], &[0.0], Form::Plain);
    assert_refused(
        first!(aclnnIndexSelectGetWorkspaceSize(x, 0i64, index, x)),
        "parameter index: expected at most one dimension, got [1, 1]",
    );
    let outside = Dev::of(Type::I32, &[1], &[3.0], Form::Plain);
    let out = Dev::new(Type::F16, &[1], Form::Plain);
    let executor = first!(aclnnGatherV2GetWorkspaceSize(x, 0i64, outside, out)).unwrap();
    let (code, text) = finish(crate::ffi::all::aclnnGatherV2, executor).unwrap_err();
    assert_eq!(code, 507_015);
    assert!(
        text.contains("expected an index from 0 to below 3, got 3"),
        "{text}"
    );
}

#[test]
fn arrays_of_indices() {
    for &dtype in ALL {
        for form in FORMS {
            let all = values(dtype, 24);
            let x = Dev::of(dtype, &[2, 3, 4], &all, form);
            let none = Dev::of(Type::I64, &[0], &[], Form::Plain);
            let rows = Dev::of(Type::I64, &[2, 1], &[-1.0, 0.0], form);
            let columns = Dev::of(Type::I64, &[3], &[3.0, 0.0, -2.0], Form::Gapped);
            // Neighbouring dimensions: the picked shape stands in their place.
            let out = Dev::new(dtype, &[2, 2, 3], form);
            run!(aclnnIndex aclnnIndexGetWorkspaceSize(x, list(&[&none, &rows, &columns]), out));
            let (row, column) = ([2, 0], [3, 0, 2]);
            let expected: Vec<f64> = (0..12)
                .map(|n| all[n / 6 * 12 + row[n / 3 % 2] * 4 + column[n % 3]])
                .collect();
            assert_eq!(out.values(), expected, "{dtype}");
            // Apart: it stands in front.
            let first = Dev::of(Type::I64, &[3], &[1.0, 0.0, 1.0], form);
            let out = Dev::new(dtype, &[3, 3], form);
            run!(aclnnIndex aclnnIndexGetWorkspaceSize(x, list(&[&first, &none, &columns]), out));
            let outer = [1, 0, 1];
            let expected: Vec<f64> = (0..9)
                .map(|n| all[outer[n / 3] * 12 + n % 3 * 4 + column[n / 3]])
                .collect();
            assert_eq!(out.values(), expected, "{dtype}");
            // Only the first.
            let out = Dev::new(dtype, &[3, 3, 4], form);
            run!(aclnnIndex aclnnIndexGetWorkspaceSize(x, list(&[&first]), out));
            assert_eq!(
                out.values(),
                [&all[12..], &all[..12], &all[12..]].concat(),
                "{dtype}"
            );
        }
    }
    let x = Dev::of(Type::F32, &[3], &[1.0, 2.0, 3.0], Form::Plain);
    let out = Dev::new(Type::F32, &[1], Form::Plain);
    let outside = Dev::of(Type::I64, &[1], &[-4.0], Form::Plain);
    let executor = first!(aclnnIndexGetWorkspaceSize(x, list(&[&outside]), out)).unwrap();
    let (code, text) = finish(crate::ffi::all::aclnnIndex, executor).unwrap_err();
    assert_eq!(code, 507_015);
    assert!(
        text.contains("expected an index from -3 to below 3, got -4"),
        "{text}"
    );
    assert_refused(
        first!(aclnnIndexGetWorkspaceSize(
            x,
            list(&[&outside, &outside]),
            out
        )),
        "parameter indices: expected at most 1 tensors, got 2",
    );
}

#[test]
fn elements_under_a_mask() {
    for &dtype in ALL {
        for form in FORMS {
            let all = values(dtype, 6);
            let x = Dev::of(dtype, &[2, 3], &all, form);
            let mask = Dev::of(Type::Bool, &[3], &[1.0, 0.0, 1.0], Form::Gapped);
            let out = Dev::new(dtype, &[6], Form::Plain);
            run!(aclnnMaskedSelect aclnnMaskedSelectGetWorkspaceSize(x, mask, out));
            let (mut dims, mut rank) = (ptr::null_mut(), 0);
            // SAFETY: both answers may be written; the array has as many numbers as said and came from malloc.
            let size = unsafe {
                assert_eq!(
                    crate::ffi::all::aclGetViewShape(out.handle, &mut dims, &mut rank),
                    0
                );
                let size = dims.read();
                std::alloc::GlobalAlloc::dealloc(
                    &std::alloc::System,
                    dims.cast(),
                    std::alloc::Layout::new::<i64>(),
                );
                size
            };
            assert_eq!((rank, size), (1, 4), "{dtype}");
            let kept = [0, 1, 2, 3].map(|n| out.get(n));
            assert_eq!(kept, [all[0], all[2], all[3], all[5]], "{dtype}");
        }
    }
    let x = Dev::of(Type::F32, &[3000], &count_from(0, 1, 3000), Form::Plain);
    let odd: Vec<f64> = (0..3000).map(|i| f64::from(i % 2)).collect();
    let mask = Dev::of(Type::Bool, &[3000], &odd, Form::Plain);
    let out = Dev::new(Type::F32, &[3000], Form::Plain);
    run!(aclnnMaskedSelect aclnnMaskedSelectGetWorkspaceSize(x, mask, out));
    assert_eq!(out.values()[..1500], count_from(1, 2, 1500));
    assert_refused(
        first!(aclnnMaskedSelectGetWorkspaceSize(x, x, out)),
        "parameter mask: expected data type BOOL, UINT8, got FLOAT",
    );
}

#[test]
fn elements_in_order() {
    for &dtype in NUMBERS {
        for form in FORMS {
            // Columns (5, 1, 5, 3), (2, 9, 4, 7), (8, 8, 0, 6).
            let all = [5.0, 2.0, 8.0, 1.0, 9.0, 8.0, 5.0, 4.0, 0.0, 3.0, 7.0, 6.0];
            let x = Dev::of(dtype, &[4, 3], &all, form);
            let values = Dev::new(dtype, &[4, 3], form);
            let indices = Dev::new(Type::I64, &[4, 3], Form::Gapped);
            run!(aclnnSort aclnnSortGetWorkspaceSize(x, true, 0i64, false, values, indices));
            assert_eq!(
                values.values(),
                [1.0, 2.0, 0.0, 3.0, 4.0, 6.0, 5.0, 7.0, 8.0, 5.0, 9.0, 8.0],
                "{dtype}"
            );
            assert_eq!(
                indices.values(),
                [1.0, 0.0, 2.0, 3.0, 2.0, 3.0, 0.0, 3.0, 0.0, 2.0, 1.0, 1.0],
                "{dtype}"
            );
            run!(aclnnSort aclnnSortGetWorkspaceSize(x, true, 0i64, true, values, indices));
            assert_eq!(values.values()[..3], [5.0, 9.0, 8.0], "{dtype}");
            assert_eq!(
                indices.values()[..6],
                [0.0, 1.0, 0.0, 2.0, 3.0, 1.0],
                "{dtype}"
            );
            let values = Dev::new(dtype, &[4, 2], form);
            let indices = Dev::new(Type::I64, &[4, 2], form);
            run!(aclnnTopk aclnnTopkGetWorkspaceSize(x, 2i64, -1i64, true, true, values, indices));
            assert_eq!(
                values.values(),
                [8.0, 5.0, 9.0, 8.0, 5.0, 4.0, 7.0, 6.0],
                "{dtype}"
            );
            assert_eq!(
                indices.values(),
                [2.0, 0.0, 1.0, 2.0, 0.0, 1.0, 1.0, 2.0],
                "{dtype}"
            );
            run!(aclnnTopk aclnnTopkGetWorkspaceSize(x, 2i64, 1i64, false, true, values, indices));
            assert_eq!(
                values.values(),
                [2.0, 5.0, 1.0, 8.0, 0.0, 4.0, 3.0, 6.0],
                "{dtype}"
            );
            assert_eq!(
                indices.values(),
                [1.0, 0.0, 0.0, 2.0, 2.0, 1.0, 0.0, 2.0],
                "{dtype}"
            );
        }
    }
    let x = Dev::of(
        Type::F16,
        &[4],
        &[1.0, f64::NAN, f64::INFINITY, -1.0],
        Form::Plain,
    );
    let values = Dev::new(Type::F16, &[2], Form::Plain);
    let indices = Dev::new(Type::I64, &[2], Form::Plain);
    run!(aclnnTopk aclnnTopkGetWorkspaceSize(x, 2i64, 0i64, true, true, values, indices));
    assert_eq!(indices.values(), [1.0, 2.0], "not a number is the largest");
    run!(aclnnTopk aclnnTopkGetWorkspaceSize(x, 2i64, 0i64, false, true, values, indices));
    assert_eq!(
        (values.values(), indices.values()),
        (vec![-1.0, 1.0], vec![3.0, 0.0])
    );
    assert_refused(
        first!(aclnnTopkGetWorkspaceSize(
            x, 5i64, 0i64, true, true, values, indices
        )),
        "parameter k: expected 0 to 4, the size of dimension 0, got 5",
    );
    let narrow = Dev::new(Type::I32, &[4], Form::Plain);
    let (code, _) = first!(aclnnSortGetWorkspaceSize(x, true, 0i64, true, x, narrow)).unwrap_err();
    assert_eq!(code, 161_002);
}
