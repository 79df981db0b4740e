//! Objects, the two phases and their errors.

use super::*;
use crate::ffi::all::*;

fn refusal<T>(result: Result<T, (i32, String)>) -> (i32, String) {
    result.err().expect("a refusal")
}

#[test]
fn a_null_argument_is_named() {
    let x = Dev::of(Type::F32, &[2], &[1.0, 2.0], Form::Plain);
    let null = (
        ptr::null::<aclTensor>(),
        ptr::null_mut::<aclTensor>(),
        ptr::null::<aclScalar>(),
    );
    let text = |parameter| {
        (
            161_001,
            format!(
                "aclnnAddGetWorkspaceSize: parameter {parameter}: expected an object, got a null pointer"
            ),
        )
    };
    assert_eq!(
        refusal(first!(aclnnAddGetWorkspaceSize(null.0, x, int(1), x))),
        text("self")
    );
    assert_eq!(
        refusal(first!(aclnnAddGetWorkspaceSize(x, null.0, int(1), x))),
        text("other")
    );
    assert_eq!(
        refusal(first!(aclnnAddGetWorkspaceSize(x, x, null.2, x))),
        text("alpha")
    );
    assert_eq!(
        refusal(first!(aclnnAddGetWorkspaceSize(x, x, int(1), null.1))),
        text("out")
    );
    let mut executor = ptr::null_mut();
    // SAFETY: the executor may be written; the size is null, which is refused.
    let status =
        unsafe { aclnnAbsGetWorkspaceSize(x.handle, x.handle, ptr::null_mut(), &mut executor) };
    assert_eq!(status, 161_001);
    assert_eq!(
        crate::error::last().unwrap(),
        "aclnnAbsGetWorkspaceSize: parameter workspaceSize: expected where to write it, got a null pointer"
    );
}

#[test]
fn types_and_shapes_that_do_not_fit_are_named() {
    let x = Dev::of(Type::F32, &[2, 3], &spread(6, 1.0), Form::Plain);
    let y = Dev::of(Type::F32, &[2], &[1.0, 2.0], Form::Plain);
    let bad = |text: &str| (161_002, text.to_owned());
    assert_eq!(
        refusal(first!(aclnnMulGetWorkspaceSize(x, y, x))),
        bad(
            "aclnnMulGetWorkspaceSize: parameter other: expected a shape that broadcasts with [2, 3] of self, got [2]"
        )
    );
    assert_eq!(
        refusal(first!(aclnnMulGetWorkspaceSize(x, x, y))),
        bad("aclnnMulGetWorkspaceSize: parameter out: expected shape [2, 3], got [2]")
    );
    let whole = Dev::new(Type::I32, &[2, 3], Form::Plain);
    assert_eq!(
        refusal(first!(aclnnMulGetWorkspaceSize(x, x, whole))),
        bad(
            "aclnnMulGetWorkspaceSize: parameter out: expected a data type that FLOAT casts to, got INT32"
        )
    );
    let complex = Dev::new(Type::C64, &[2, 3], Form::Plain);
    assert_eq!(
        refusal(first!(aclnnNegGetWorkspaceSize(complex, complex))),
        bad(
            "aclnnNegGetWorkspaceSize: parameter self: expected data type FLOAT, FLOAT16, BF16, DOUBLE, INT8, INT16, INT32, INT64, got COMPLEX64"
        )
    );
    let integers = Dev::of(Type::I32, &[2], &[1.0, 2.0], Form::Plain);
    assert_eq!(
        refusal(first!(aclnnAddGetWorkspaceSize(
            integers,
            integers,
            float(1.5),
            integers
        ))),
        bad(
            "aclnnAddGetWorkspaceSize: parameter alpha: expected a scalar that casts to INT32, got FLOAT"
        )
    );
    assert_eq!(
        refusal(first!(aclnnSoftmaxGetWorkspaceSize(x, 2i64, x))),
        bad(
            "aclnnSoftmaxGetWorkspaceSize: parameter dim: expected a dimension from -2 to 1, got 2"
        )
    );
    assert_eq!(
        refusal(first!(aclnnPermuteGetWorkspaceSize(x, ints(&[0, 0]), x))),
        bad(
            "aclnnPermuteGetWorkspaceSize: parameter dims: expected each of 2 dimensions once, got [0, 0]"
        )
    );
    let row = Dev::with(Type::F32, &[4, 3], vec![0, 1], 0, 3);
    let tall = Dev::new(Type::F32, &[4, 3], Form::Plain);
    assert_eq!(
        refusal(first!(aclnnAbsGetWorkspaceSize(tall, row))),
        bad(
            "aclnnAbsGetWorkspaceSize: parameter out: expected an output whose elements lie apart, got strides [0, 1] for sizes [4, 3]"
        )
    );
    run!(aclnnAbs aclnnAbsGetWorkspaceSize(row, tall));
}

#[test]
fn unknown_types_formats_and_handles_are_refused() {
    let x = Dev::new(Type::F32, &[2], Form::Plain);
    let dims = [2i64];
    let make = |dtype, format| {
        // SAFETY: one dimension, as said.
        unsafe {
            aclCreateTensor(
                dims.as_ptr(),
                1,
                aclDataType(dtype),
                ptr::null(),
                0,
                aclFormat(format),
                dims.as_ptr(),
                1,
                ptr::without_provenance_mut(x.storage),
            )
        }
    };
    let (code, text) = refusal(first!(aclnnAbsGetWorkspaceSize(make(34, 2), x)));
    assert_eq!(
        (code, &*text),
        (
            161_002,
            "aclnnAbsGetWorkspaceSize: parameter self: expected a supported data type, got aclDataType 34"
        )
    );
    let (code, text) = refusal(first!(aclnnAbsGetWorkspaceSize(make(0, 29), x)));
    assert_eq!(
        (code, &*text),
        (
            161_002,
            "aclnnAbsGetWorkspaceSize: parameter self: expected a format that only names axes, got aclFormat 29"
        )
    );
    let gone = make(0, 2);
    // SAFETY: any handle may be passed.
    unsafe {
        assert_eq!(aclDestroyTensor(gone), 0);
        assert_eq!(aclDestroyTensor(gone), 161_002);
        assert_eq!(aclDestroyTensor(ptr::null()), 0);
        assert!(
            aclCreateTensor(
                ptr::null(),
                1,
                aclDataType(0),
                ptr::null(),
                0,
                aclFormat(2),
                ptr::null(),
                0,
                ptr::null_mut()
            )
            .is_null()
        );
    }
    let (code, text) = refusal(first!(aclnnAbsGetWorkspaceSize(gone, x)));
    assert_eq!(
        (code, &*text),
        (
            161_002,
            "aclnnAbsGetWorkspaceSize: parameter self: expected a live aclTensor, got a destroyed or foreign handle"
        )
    );
}

#[test]
fn an_executor_is_used_once_unless_repeatable() {
    let x = Dev::of(Type::F32, &[2], &[1.0, -2.0], Form::Plain);
    let out = Dev::new(Type::F32, &[2], Form::Plain);
    let executor = first!(aclnnAbsGetWorkspaceSize(x, out)).unwrap();
    let (code, text) = finish(aclnnNeg, executor).unwrap_err();
    assert_eq!(
        (code, &*text),
        (
            561_103,
            "aclnnNeg: parameter executor: expected one of aclnnNeg, got one of aclnnAbs"
        )
    );
    finish(aclnnAbs, executor).unwrap();
    assert_eq!(finish(aclnnAbs, executor).unwrap_err().0, 561_103);
    assert_eq!(finish(aclnnAbs, ptr::null_mut()).unwrap_err().0, 561_103);

    let executor = first!(aclnnAbsGetWorkspaceSize(x, out)).unwrap();
    let other = Dev::of(Type::F32, &[2], &[-5.0, 6.0], Form::Plain);
    let result = Dev::new(Type::F32, &[2], Form::Plain);
    // SAFETY: any handle may be passed.
    unsafe {
        assert_eq!(aclSetAclOpExecutorRepeatable(executor), 0);
        finish(aclnnAbs, executor).unwrap();
        assert_eq!(out.values(), [1.0, 2.0]);
        assert_eq!(
            aclSetInputTensorAddr(
                executor,
                0,
                x.handle,
                ptr::without_provenance_mut(other.storage)
            ),
            0
        );
        finish(aclnnAbs, executor).unwrap();
        assert_eq!(out.values(), [5.0, 6.0]);
        assert_eq!(
            aclSetTensorAddr(
                executor,
                0,
                x.handle,
                ptr::without_provenance_mut(x.storage)
            ),
            0
        );
        assert_eq!(
            aclSetOutputTensorAddr(
                executor,
                0,
                out.handle,
                ptr::without_provenance_mut(result.storage)
            ),
            0
        );
        finish(aclnnAbs, executor).unwrap();
        assert_eq!(
            (result.values(), out.values()),
            (vec![1.0, 2.0], vec![5.0, 6.0])
        );
        assert_eq!(
            aclSetInputTensorAddr(executor, 1, x.handle, ptr::null_mut()),
            161_002
        );
        assert_eq!(aclDestroyAclOpExecutor(executor), 0);
        assert_eq!(aclDestroyAclOpExecutor(executor), 161_002);
    }
    assert_eq!(finish(aclnnAbs, executor).unwrap_err().0, 561_103);
}

#[test]
fn tensors_may_go_before_the_work_runs() {
    let x = Dev::of(Type::F32, &[2], &[-1.0, -2.0], Form::Plain);
    let out = Dev::new(Type::F32, &[2], Form::Plain);
    let (from, to) = (x.describe(), out.describe());
    let executor = first!(aclnnAbsGetWorkspaceSize(from, to)).unwrap();
    // SAFETY: any handle may be passed.
    unsafe {
        aclDestroyTensor(from);
        aclDestroyTensor(to);
    }
    finish(aclnnAbs, executor).unwrap();
    assert_eq!(out.values(), [1.0, 2.0]);
}

#[test]
fn memory_outside_an_allocation_stops_the_device() {
    let x = Dev::with(Type::F32, &[1000], vec![1], 0, 16);
    let out = Dev::new(Type::F32, &[1000], Form::Plain);
    let executor = first!(aclnnAbsGetWorkspaceSize(x, out)).unwrap();
    let (code, text) = finish(aclnnAbs, executor).unwrap_err();
    assert_eq!(code, 507_015);
    assert!(
        text.contains("aclnnAbs: parameter self: 1000 elements of FLOAT at 0x"),
        "{text}"
    );
}

#[test]
fn descriptions_can_be_read_and_changed() {
    let x = Dev::with(Type::BF16, &[2, 3], vec![4, 1], 5, 20);
    let (mut values, mut count, mut offset) = (ptr::null_mut(), 0, 0);
    let (mut dtype, mut format, mut address) = (aclDataType(0), aclFormat(0), ptr::null_mut());
    let take = |values: *mut i64, count: u64| {
        // SAFETY: the library allocated it with malloc and gave it away.
        unsafe {
            let copy = std::slice::from_raw_parts(values, count as usize).to_vec();
            std::alloc::GlobalAlloc::dealloc(
                &std::alloc::System,
                values.cast(),
                std::alloc::Layout::array::<i64>(count.max(1) as usize).unwrap(),
            );
            copy
        }
    };
    // SAFETY: all answers may be written.
    unsafe {
        assert_eq!(aclGetViewShape(x.handle, &mut values, &mut count), 0);
        assert_eq!(take(values, count), [2, 3]);
        assert_eq!(aclGetViewStrides(x.handle, &mut values, &mut count), 0);
        assert_eq!(take(values, count), [4, 1]);
        assert_eq!(aclGetStorageShape(x.handle, &mut values, &mut count), 0);
        assert_eq!(take(values, count), [20]);
        assert_eq!(aclGetViewOffset(x.handle, &mut offset), 0);
        assert_eq!(aclGetDataType(x.handle, &mut dtype), 0);
        assert_eq!(aclGetFormat(x.handle, &mut format), 0);
        assert_eq!((offset, dtype.0, format.0), (5, 27, 2));
        assert_eq!(
            aclSetRawTensorAddr(x.handle, ptr::without_provenance_mut(64)),
            0
        );
        assert_eq!(aclGetRawTensorAddr(x.handle, &mut address), 0);
        assert_eq!(address.addr(), 64);
        assert_eq!(
            aclGetViewShape(ptr::null(), &mut values, &mut count),
            161_001
        );
        let dims = [7i64, 2];
        let none = ptr::null();
        assert_eq!(
            aclInitTensor(
                x.handle,
                dims.as_ptr(),
                2,
                aclDataType(0),
                none,
                0,
                aclFormat(2),
                none,
                0,
                ptr::null_mut()
            ),
            0
        );
        assert_eq!(aclGetViewStrides(x.handle, &mut values, &mut count), 0);
        assert_eq!(take(values, count), [2, 1]);
    }
}

#[test]
fn arrays_and_lists_count_and_own_their_members() {
    let x = Dev::new(Type::F32, &[2], Form::Plain);
    let member = x.describe();
    let (mut size, members) = (0, [member.cast_const()]);
    // SAFETY: the arrays are as long as said, and the size may be written.
    unsafe {
        let numbers = ints(&[3, 4, 5]);
        assert_eq!((aclGetIntArraySize(numbers, &mut size), size), (0, 3));
        assert_eq!(aclDestroyIntArray(numbers), 0);
        let flags = aclCreateBoolArray([true, false].as_ptr(), 2);
        assert_eq!((aclGetBoolArraySize(flags, &mut size), size), (0, 2));
        assert_eq!(aclDestroyBoolArray(flags), 0);
        let floats = aclCreateFloatArray(ptr::null(), 0);
        assert_eq!((aclGetFloatArraySize(floats, &mut size), size), (0, 0));
        assert_eq!(aclDestroyFloatArray(floats), 0);
        let tensors = aclCreateTensorList(members.as_ptr(), 1);
        assert_eq!((aclGetTensorListSize(tensors, &mut size), size), (0, 1));
        assert_eq!(aclDestroyTensorList(tensors), 0);
        assert_eq!(
            aclDestroyTensor(member),
            161_002,
            "the list destroyed its member"
        );
        let scalars = aclCreateScalarList([int(1)].as_ptr(), 1);
        assert_eq!((aclGetScalarListSize(scalars, &mut size), size), (0, 1));
        assert_eq!(aclDestroyScalarList(scalars), 0);
        assert!(aclCreateIntArray(ptr::null(), 2).is_null());
        assert!(aclCreateScalar(ptr::null_mut(), aclDataType(0)).is_null());
    }
}
