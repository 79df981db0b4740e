//! Operators that are made of others: in place, with a scalar, and of two dimensions.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::c_void;
use std::ptr;

use hcom_sys::bindings as sys;
use support::api::{Buffer, Stream, last_error, reset_device, set_device};

/// A tensor of floats on the device.
struct Tensor {
    memory: Buffer,
    handle: *mut sys::aclTensor,
    count: usize,
}

impl Tensor {
    fn of(dims: &[i64], values: &[f32]) -> Self {
        let memory = Buffer::of(values);
        let (rank, no_strides) = (dims.len() as u64, ptr::null());
        let (float, plain) = (sys::ACL_FLOAT, sys::ACL_FORMAT_ND);
        let sizes = dims.as_ptr();
        let handle = c!(aclCreateTensor(
            sizes, rank, float, no_strides, 0, plain, sizes, rank, memory.0
        ));
        Self {
            memory,
            handle,
            count: values.len(),
        }
    }

    fn values(&self) -> Vec<f32> {
        self.memory.read(self.count)
    }
}

fn scalar(value: f32) -> *const sys::aclScalar {
    let place: *const c_void = (&raw const value).cast();
    c!(aclCreateScalar(place.cast_mut(), sys::ACL_FLOAT))
}

/// Both phases of an operator.
macro_rules! run {
    ($stream:expr, $first:ident, $second:ident, $($argument:expr),*) => {{
        let (mut size, mut executor) = (0, ptr::null_mut());
        let code = c!($first($($argument,)* &mut size, &mut executor));
        assert_eq!(code, 0, "{}", last_error());
        assert_eq!(c!($second(ptr::null_mut(), size, executor, $stream.0)), 0);
        $stream.synchronize().unwrap();
    }};
}

#[test]
fn numbers_in_place_and_with_scalars() {
    set_device(0);
    let stream = Stream::create();
    let x = Tensor::of(&[2, 2], &[1.0, -2.0, 3.0, 0.5]);
    let row = Tensor::of(&[2], &[10.0, 20.0]);
    let out = Tensor::of(&[2, 2], &[0.0; 4]);
    let (two, half) = (scalar(2.0), scalar(0.5));
    run!(
        stream,
        aclnnInplaceAddGetWorkspaceSize,
        aclnnInplaceAdd,
        x.handle,
        row.handle,
        half
    );
    assert_eq!(x.values(), [6.0, 8.0, 8.0, 10.5]);
    run!(
        stream,
        aclnnInplaceMulGetWorkspaceSize,
        aclnnInplaceMul,
        x.handle,
        row.handle
    );
    assert_eq!(x.values(), [60.0, 160.0, 80.0, 210.0]);
    run!(
        stream,
        aclnnInplaceMulsGetWorkspaceSize,
        aclnnInplaceMuls,
        x.handle,
        half
    );
    run!(
        stream,
        aclnnInplaceAddsGetWorkspaceSize,
        aclnnInplaceAdds,
        x.handle,
        two,
        two
    );
    assert_eq!(x.values(), [34.0, 84.0, 44.0, 109.0]);
    run!(
        stream,
        aclnnSubsGetWorkspaceSize,
        aclnnSubs,
        x.handle,
        two,
        half,
        out.handle
    );
    assert_eq!(out.values(), [33.0, 83.0, 43.0, 108.0]);
    run!(
        stream,
        aclnnDivsGetWorkspaceSize,
        aclnnDivs,
        x.handle,
        two,
        out.handle
    );
    assert_eq!(out.values(), [17.0, 42.0, 22.0, 54.5]);
    run!(
        stream,
        aclnnPowTensorScalarGetWorkspaceSize,
        aclnnPowTensorScalar,
        x.handle,
        two,
        out.handle
    );
    assert_eq!(out.values(), [1156.0, 7056.0, 1936.0, 11881.0]);
    let bound = scalar(44.0);
    run!(
        stream,
        aclnnClampMinGetWorkspaceSize,
        aclnnClampMin,
        x.handle,
        bound,
        out.handle
    );
    assert_eq!(out.values(), [44.0, 84.0, 44.0, 109.0]);
    run!(
        stream,
        aclnnEqScalarGetWorkspaceSize,
        aclnnEqScalar,
        x.handle,
        bound,
        out.handle
    );
    assert_eq!(out.values(), [0.0, 0.0, 1.0, 0.0]);
    run!(
        stream,
        aclnnNeScalarGetWorkspaceSize,
        aclnnNeScalar,
        x.handle,
        bound,
        out.handle
    );
    assert_eq!(out.values(), [1.0, 1.0, 0.0, 1.0]);
    run!(
        stream,
        aclnnGtScalarGetWorkspaceSize,
        aclnnGtScalar,
        x.handle,
        bound,
        out.handle
    );
    assert_eq!(out.values(), [0.0, 1.0, 0.0, 1.0]);
    run!(
        stream,
        aclnnLtScalarGetWorkspaceSize,
        aclnnLtScalar,
        x.handle,
        bound,
        out.handle
    );
    assert_eq!(out.values(), [1.0, 0.0, 0.0, 0.0]);
    run!(
        stream,
        aclnnGeScalarGetWorkspaceSize,
        aclnnGeScalar,
        x.handle,
        bound,
        out.handle
    );
    assert_eq!(out.values(), [0.0, 1.0, 1.0, 1.0]);
    run!(
        stream,
        aclnnInplaceOneGetWorkspaceSize,
        aclnnInplaceOne,
        out.handle
    );
    assert_eq!(out.values(), [1.0; 4]);
    run!(
        stream,
        aclnnInplaceZeroGetWorkspaceSize,
        aclnnInplaceZero,
        out.handle
    );
    assert_eq!(out.values(), [0.0; 4]);
    reset_device(0);
}

#[test]
fn functions_matrices_and_slices() {
    set_device(0);
    let stream = Stream::create();
    let x = Tensor::of(&[2, 3], &[1.0, 2.0, -4.0, 0.5, 8.0, -0.25]);
    let out = Tensor::of(&[2, 3], &[0.0; 6]);
    run!(
        stream,
        aclnnReciprocalGetWorkspaceSize,
        aclnnReciprocal,
        x.handle,
        out.handle
    );
    assert_eq!(out.values(), [1.0, 0.5, -0.25, 2.0, 0.125, -4.0]);
    run!(
        stream,
        aclnnSinGetWorkspaceSize,
        aclnnSin,
        x.handle,
        out.handle
    );
    for (got, x) in out.values().iter().zip(x.values()) {
        assert!((f64::from(*got) - f64::from(x).sin()).abs() < 1e-6);
    }
    run!(
        stream,
        aclnnCosGetWorkspaceSize,
        aclnnCos,
        x.handle,
        out.handle
    );
    for (got, x) in out.values().iter().zip(x.values()) {
        assert!((f64::from(*got) - f64::from(x).cos()).abs() < 1e-6);
    }
    let y = Tensor::of(&[3, 2], &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
    let product = Tensor::of(&[2, 2], &[0.0; 4]);
    run!(
        stream,
        aclnnMmGetWorkspaceSize,
        aclnnMm,
        x.handle,
        y.handle,
        product.handle,
        0
    );
    assert_eq!(product.values(), [-7.0, -70.0, 15.75, 157.5]);
    let (mut size, mut executor) = (0, ptr::null_mut());
    let vector = Tensor::of(&[3], &[0.0; 3]);
    let refused = c!(aclnnMmGetWorkspaceSize(
        x.handle,
        vector.handle,
        product.handle,
        0,
        &mut size,
        &mut executor
    ));
    assert_eq!(refused, 161_002);
    assert!(last_error().contains("two dimensions"));
    let part = Tensor::of(&[2, 2], &[0.0; 4]);
    run!(
        stream,
        aclnnSliceGetWorkspaceSize,
        aclnnSlice,
        x.handle,
        1,
        0,
        3,
        2,
        part.handle
    );
    assert_eq!(part.values(), [1.0, -4.0, 0.5, -0.25]);
    reset_device(0);
}
