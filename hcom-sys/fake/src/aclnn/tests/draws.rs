//! Numbers from nowhere: sequences and random ones.

use super::*;
use crate::aclnn::dtype::{FLOATS, NUMBERS};

#[test]
fn sequences_that_reach_their_end() {
    for &dtype in NUMBERS {
        for form in FORMS {
            let out = Dev::new(dtype, &[4], form);
            run!(aclnnRange aclnnRangeGetWorkspaceSize(int(2), int(11), int(3), out));
            assert_eq!(out.values(), [2.0, 5.0, 8.0, 11.0], "{dtype}");
            run!(aclnnRange aclnnRangeGetWorkspaceSize(int(2), int(13), int(3), out));
            assert_eq!(out.values(), [2.0, 5.0, 8.0, 11.0], "{dtype}");
        }
    }
    let out = Dev::new(Type::BF16, &[4], Form::Plain);
    run!(aclnnRange aclnnRangeGetWorkspaceSize(double(1.0), double(0.25), double(-0.25), out));
    assert_eq!(out.values(), [1.0, 0.75, 0.5, 0.25]);
    assert_refused(
        first!(aclnnRangeGetWorkspaceSize(int(0), int(4), int(1), out)),
        "parameter out: expected shape [5], got [4]",
    );
}

#[test]
fn even_numbers_stay_in_their_range_and_follow_their_seed() {
    for &dtype in FLOATS {
        let [a, b, c] = [0; 3].map(|_| Dev::new(dtype, &[50, 40], Form::Transposed));
        run!(aclnnInplaceUniform aclnnInplaceUniformGetWorkspaceSize(a, -2.0f64, 6.0f64, 7u64, 0u64));
        run!(aclnnInplaceUniform aclnnInplaceUniformGetWorkspaceSize(b, -2.0f64, 6.0f64, 7u64, 0u64));
        run!(aclnnInplaceUniform aclnnInplaceUniformGetWorkspaceSize(c, -2.0f64, 6.0f64, 7u64, 1u64));
        let values = a.values();
        assert_eq!(values, b.values(), "{dtype}");
        assert_ne!(values, c.values(), "{dtype}");
        assert!(values.iter().all(|x| (-2.0..=6.0).contains(x)), "{dtype}");
        // Ten standard errors of the mean of 2000 numbers.
        let mean = values.iter().sum::<f64>() / 2000.0;
        assert!(
            (mean - 2.0).abs() < 10.0 * 8.0 / (12.0 * 2000f64).sqrt(),
            "{dtype}: {mean}"
        );
    }
    let whole = Dev::new(Type::I32, &[2000], Form::Gapped);
    run!(aclnnInplaceUniform aclnnInplaceUniformGetWorkspaceSize(whole, 0.0f64, 3.0f64, 1u64, 0u64));
    let values = whole.values();
    assert!([0.0, 1.0, 2.0].iter().all(|x| values.contains(x)));
    assert!(values.iter().all(|&x| x < 3.0));
    assert_refused(
        first!(aclnnInplaceUniformGetWorkspaceSize(
            whole, 1.0f64, 0.0f64, 1u64, 0u64
        )),
        "parameter to: expected a finite number of at least 1, got 0",
    );
}

#[test]
fn normal_numbers_have_their_mean_and_width() {
    for &dtype in FLOATS {
        let [a, b] = [0; 2].map(|_| Dev::new(dtype, &[4000], Form::Reversed));
        run!(aclnnInplaceNormal aclnnInplaceNormalGetWorkspaceSize(a, 3.0f32, 0.5f32, 11i64, 0i64));
        run!(aclnnInplaceNormal aclnnInplaceNormalGetWorkspaceSize(b, 3.0f32, 0.5f32, 12i64, 0i64));
        let values = a.values();
        assert_ne!(values, b.values());
        let mean = values.iter().sum::<f64>() / 4000.0;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4000.0;
        assert!((mean - 3.0).abs() < 0.08, "{dtype}: {mean}");
        assert!((variance - 0.25).abs() < 0.06, "{dtype}: {variance}");
    }
    let out = Dev::new(Type::F32, &[2], Form::Plain);
    run!(aclnnInplaceNormal aclnnInplaceNormalGetWorkspaceSize(out, 1.5f32, 0.0f32, 1i64, 0i64));
    assert_eq!(out.values(), [1.5; 2]);
    assert_eq!(
        first!(aclnnInplaceNormalGetWorkspaceSize(
            out, 0.0f32, -1.0f32, 1i64, 0i64
        ))
        .unwrap_err()
        .0,
        161_002
    );
}
