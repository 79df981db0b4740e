//! Tensors, scalars, arrays, lists and executors of aclnn, as C sees them.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(non_snake_case, reason = "names are those of the C interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use hcom_sys::bindings::{
    aclBoolArray, aclDataType, aclFloatArray, aclFormat, aclIntArray, aclOpExecutor, aclScalar,
    aclScalarList, aclTensor, aclTensorList, aclnnStatus,
};

use crate::aclnn::dtype::Type;
use crate::aclnn::executor::{BAD_ARGUMENT, EXECUTORS, Executor, NULL_ARGUMENT, Which};
use crate::aclnn::object::{
    BOOL_ARRAYS, FLOAT_ARRAYS, INT_ARRAYS, Registry, SCALAR_LISTS, SCALARS, Scalar, TENSOR_LISTS,
    TENSORS, Tensor,
};
use crate::error::fail;

/// Hands every function of this file to the macro `$callback` as rows `fn name(parameter: type, …) -> type;`.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_tensor_function {
    ($callback:ident) => {
        $callback! {
            fn aclCreateTensor(viewDims: *const i64, viewDimsNum: u64, dataType: aclDataType, stride: *const i64, offset: i64, format: aclFormat, storageDims: *const i64, storageDimsNum: u64, tensorData: *mut c_void) -> *mut aclTensor;
            fn aclInitTensor(tensor: *mut aclTensor, viewDims: *const i64, viewDimsNum: u64, dataType: aclDataType, stride: *const i64, offset: i64, format: aclFormat, storageDims: *const i64, storageDimsNum: u64, tensorDataAddr: *mut c_void) -> aclnnStatus;
            fn aclDestroyTensor(tensor: *const aclTensor) -> aclnnStatus;
            fn aclGetViewShape(tensor: *const aclTensor, viewDims: *mut *mut i64, viewDimsNum: *mut u64) -> aclnnStatus;
            fn aclGetViewStrides(tensor: *const aclTensor, stridesValue: *mut *mut i64, stridesNum: *mut u64) -> aclnnStatus;
            fn aclGetViewOffset(tensor: *const aclTensor, offset: *mut i64) -> aclnnStatus;
            fn aclGetStorageShape(tensor: *const aclTensor, storageDims: *mut *mut i64, storageDimsNum: *mut u64) -> aclnnStatus;
            fn aclGetDataType(tensor: *const aclTensor, dataType: *mut aclDataType) -> aclnnStatus;
            fn aclGetFormat(tensor: *const aclTensor, format: *mut aclFormat) -> aclnnStatus;
            fn aclGetRawTensorAddr(tensor: *const aclTensor, addr: *mut *mut c_void) -> aclnnStatus;
            fn aclSetRawTensorAddr(tensor: *mut aclTensor, addr: *mut c_void) -> aclnnStatus;
            fn aclCreateScalar(value: *mut c_void, dataType: aclDataType) -> *mut aclScalar;
            fn aclDestroyScalar(scalar: *const aclScalar) -> aclnnStatus;
            fn aclCreateIntArray(value: *const i64, size: u64) -> *mut aclIntArray;
            fn aclDestroyIntArray(array: *const aclIntArray) -> aclnnStatus;
            fn aclGetIntArraySize(array: *const aclIntArray, size: *mut u64) -> aclnnStatus;
            fn aclCreateFloatArray(value: *const f32, size: u64) -> *mut aclFloatArray;
            fn aclDestroyFloatArray(array: *const aclFloatArray) -> aclnnStatus;
            fn aclGetFloatArraySize(array: *const aclFloatArray, size: *mut u64) -> aclnnStatus;
            fn aclCreateBoolArray(value: *const bool, size: u64) -> *mut aclBoolArray;
            fn aclDestroyBoolArray(array: *const aclBoolArray) -> aclnnStatus;
            fn aclGetBoolArraySize(array: *const aclBoolArray, size: *mut u64) -> aclnnStatus;
            fn aclCreateTensorList(value: *const *const aclTensor, size: u64) -> *mut aclTensorList;
            fn aclDestroyTensorList(array: *const aclTensorList) -> aclnnStatus;
            fn aclGetTensorListSize(tensorList: *const aclTensorList, size: *mut u64) -> aclnnStatus;
            fn aclCreateScalarList(value: *const *const aclScalar, size: u64) -> *mut aclScalarList;
            fn aclDestroyScalarList(array: *const aclScalarList) -> aclnnStatus;
            fn aclGetScalarListSize(scalarList: *const aclScalarList, size: *mut u64) -> aclnnStatus;
            fn aclSetAclOpExecutorRepeatable(executor: *mut aclOpExecutor) -> aclnnStatus;
            fn aclDestroyAclOpExecutor(executor: *mut aclOpExecutor) -> aclnnStatus;
            fn aclSetInputTensorAddr(executor: *mut aclOpExecutor, index: usize, tensor: *mut aclTensor, addr: *mut c_void) -> aclnnStatus;
            fn aclSetOutputTensorAddr(executor: *mut aclOpExecutor, index: usize, tensor: *mut aclTensor, addr: *mut c_void) -> aclnnStatus;
            fn aclSetTensorAddr(executor: *mut aclOpExecutor, index: usize, tensor: *mut aclTensor, addr: *mut c_void) -> aclnnStatus;
            fn aclnnInit(configPath: *const c_char) -> aclnnStatus;
            fn aclnnFinalize() -> aclnnStatus;
        }
    };
}

/// The object behind a handle, or the status for a caller who has none.
fn find<T>(registry: &Registry<T>, handle: usize) -> Result<Arc<T>, aclnnStatus> {
    registry
        .get(handle)
        .ok_or_else(|| unknown(registry, handle))
}

fn unknown<T>(registry: &Registry<T>, handle: usize) -> aclnnStatus {
    let kind = registry.kind;
    if handle == 0 {
        fail(
            NULL_ARGUMENT,
            format!("expected an {kind}, got a null pointer"),
        )
    } else {
        fail(
            BAD_ARGUMENT,
            format!("expected a live {kind}, got a destroyed or foreign handle"),
        )
    }
}

/// Destroys an object; null is fine.
fn destroy<T>(registry: &Registry<T>, handle: usize) -> aclnnStatus {
    if handle == 0 || registry.remove(handle).is_some() {
        0
    } else {
        unknown(registry, handle)
    }
}

/// `count` elements at `start`; `None` if there should be some and the pointer is null.
///
/// # Safety
/// A pointer that is not null points to `count` readable elements.
unsafe fn list<T: Clone>(start: *const T, count: u64) -> Option<Vec<T>> {
    match count {
        0 => Some(Vec::new()),
        _ if start.is_null() => {
            fail(
                NULL_ARGUMENT,
                format!("expected {count} values, got a null pointer"),
            );
            None
        }
        // SAFETY: not null, and the caller vouches for `count` elements.
        _ => Some(unsafe { std::slice::from_raw_parts(start, count as usize) }.to_vec()),
    }
}

/// Writes `value` where the caller wants it.
///
/// # Safety
/// A pointer that is not null may be written.
unsafe fn give<T>(to: *mut T, value: T) -> aclnnStatus {
    if to.is_null() {
        return fail(
            NULL_ARGUMENT,
            "expected where to write the answer, got a null pointer",
        );
    }
    // SAFETY: not null, and the caller lets it be written.
    unsafe { to.write(value) };
    0
}

/// Gives away a copy of `values` that the caller frees with C++ `delete[]`.
///
/// # Safety
/// Pointers that are not null may be written.
unsafe fn give_array(values: &[i64], to: *mut *mut i64, count: *mut u64) -> aclnnStatus {
    if to.is_null() || count.is_null() {
        return fail(
            NULL_ARGUMENT,
            "expected where to write the array and its size, got a null pointer",
        );
    }
    let layout = Layout::array::<i64>(values.len().max(1)).expect("ranks are small");
    // SAFETY: the size is not 0. At the alignment of i64 the system's allocator is malloc, whose memory `delete[]`
    // may free. The copy fits, and neither answer is null.
    unsafe {
        let copy = System.alloc(layout).cast::<i64>();
        if copy.is_null() {
            return fail(561_103, "no memory for the array");
        }
        copy.copy_from_nonoverlapping(values.as_ptr(), values.len());
        to.write(copy);
        count.write(values.len() as u64);
    }
    0
}

/// Reads what [`aclCreateTensor`] is told.
///
/// # Safety
/// As for [`aclCreateTensor`].
#[expect(clippy::too_many_arguments, reason = "those of the C function")]
unsafe fn tensor(
    viewDims: *const i64,
    viewDimsNum: u64,
    dataType: aclDataType,
    stride: *const i64,
    offset: i64,
    format: aclFormat,
    storageDims: *const i64,
    storageDimsNum: u64,
    tensorData: *mut c_void,
) -> Option<Tensor> {
    // SAFETY: the caller vouches for the arrays.
    let (dims, storage) = unsafe {
        (
            list(viewDims, viewDimsNum)?,
            list(storageDims, storageDimsNum)?,
        )
    };
    let strides = if stride.is_null() {
        let mut next = 1i64;
        let mut strides: Vec<i64> = (dims.iter().rev())
            .map(|&dim| {
                let stride = next;
                next = next.saturating_mul(dim.max(1));
                stride
            })
            .collect();
        strides.reverse();
        strides
    } else {
        // SAFETY: the caller vouches for one stride per dimension.
        unsafe { list(stride, viewDimsNum)? }
    };
    Some(Tensor {
        dims,
        strides,
        offset,
        dtype: dataType.0,
        format: format.0,
        storage,
        address: tensorData.addr(),
    })
}

/// A view of device memory: sizes, strides (null: row-major) and offset in elements from `tensorData`. Null when an
/// array is missing.
///
/// # Safety
/// The arrays hold as many numbers as their counts say, `stride` as many as `viewDims`.
pub unsafe extern "C" fn aclCreateTensor(
    viewDims: *const i64,
    viewDimsNum: u64,
    dataType: aclDataType,
    stride: *const i64,
    offset: i64,
    format: aclFormat,
    storageDims: *const i64,
    storageDimsNum: u64,
    tensorData: *mut c_void,
) -> *mut aclTensor {
    // SAFETY: passed on to the caller.
    let tensor = unsafe {
        tensor(
            viewDims,
            viewDimsNum,
            dataType,
            stride,
            offset,
            format,
            storageDims,
            storageDimsNum,
            tensorData,
        )
    };
    tensor.map_or(ptr::null_mut(), |tensor| {
        ptr::without_provenance_mut(TENSORS.insert(tensor))
    })
}

/// Describes other memory with an existing tensor.
///
/// # Safety
/// As for [`aclCreateTensor`].
pub unsafe extern "C" fn aclInitTensor(
    tensor: *mut aclTensor,
    viewDims: *const i64,
    viewDimsNum: u64,
    dataType: aclDataType,
    stride: *const i64,
    offset: i64,
    format: aclFormat,
    storageDims: *const i64,
    storageDimsNum: u64,
    tensorDataAddr: *mut c_void,
) -> aclnnStatus {
    // SAFETY: passed on to the caller.
    let described = unsafe {
        self::tensor(
            viewDims,
            viewDimsNum,
            dataType,
            stride,
            offset,
            format,
            storageDims,
            storageDimsNum,
            tensorDataAddr,
        )
    };
    let Some(described) = described else {
        return NULL_ARGUMENT;
    };
    let updated = TENSORS.update(tensor.addr(), |tensor| *tensor = described);
    updated.map_or_else(|| unknown(&TENSORS, tensor.addr()), |()| 0)
}

/// Ends a tensor, not its memory; null is fine. Operators that were prepared with it are not affected.
///
/// # Safety
/// None; a handle that is not live is refused.
pub unsafe extern "C" fn aclDestroyTensor(tensor: *const aclTensor) -> aclnnStatus {
    destroy(&TENSORS, tensor.addr())
}

macro_rules! tensor_arrays {
    ($($(#[$doc:meta])* $name:ident => $field:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers that are not null may be written. The array is the caller's, to be freed with `delete[]`.
        pub unsafe extern "C" fn $name(
            tensor: *const aclTensor,
            values: *mut *mut i64,
            count: *mut u64,
        ) -> aclnnStatus {
            match find(&TENSORS, tensor.addr()) {
                // SAFETY: passed on to the caller.
                Ok(tensor) => unsafe { give_array(&tensor.$field, values, count) },
                Err(status) => status,
            }
        }
    )*};
}
tensor_arrays! {
    /// Sizes of a tensor's dimensions.
    aclGetViewShape => dims;
    /// Strides of a tensor in elements.
    aclGetViewStrides => strides;
    /// Sizes of a tensor's storage.
    aclGetStorageShape => storage;
}

macro_rules! tensor_values {
    ($($(#[$doc:meta])* $name:ident($to:ty) = $value:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// A pointer that is not null may be written.
        pub unsafe extern "C" fn $name(tensor: *const aclTensor, value: *mut $to) -> aclnnStatus {
            let read: fn(&Tensor) -> $to = $value;
            match find(&TENSORS, tensor.addr()) {
                // SAFETY: passed on to the caller.
                Ok(tensor) => unsafe { give(value, read(&tensor)) },
                Err(status) => status,
            }
        }
    )*};
}
tensor_values! {
    /// Place of a tensor's first element in its storage, in elements.
    aclGetViewOffset(i64) = |tensor| tensor.offset;
    /// Type of a tensor's elements.
    aclGetDataType(aclDataType) = |tensor| aclDataType(tensor.dtype);
    /// Format of a tensor.
    aclGetFormat(aclFormat) = |tensor| aclFormat(tensor.format);
    /// Device address of a tensor's storage.
    aclGetRawTensorAddr(*mut c_void) = |tensor| ptr::without_provenance_mut(tensor.address);
}

/// Moves a tensor to another storage.
///
/// # Safety
/// None; a handle that is not live is refused.
pub unsafe extern "C" fn aclSetRawTensorAddr(
    tensor: *mut aclTensor,
    addr: *mut c_void,
) -> aclnnStatus {
    let updated = TENSORS.update(tensor.addr(), |tensor| tensor.address = addr.addr());
    updated.map_or_else(|| unknown(&TENSORS, tensor.addr()), |()| 0)
}

/// A copy of the number at `value`. Null when there is none or its type is not known.
///
/// # Safety
/// `value` is null or points to a number of type `dataType`, at any alignment.
pub unsafe extern "C" fn aclCreateScalar(
    value: *mut c_void,
    dataType: aclDataType,
) -> *mut aclScalar {
    let Some(dtype) = Type::from_acl(dataType.0) else {
        fail(
            BAD_ARGUMENT,
            format!(
                "expected a supported data type, got aclDataType {}",
                dataType.0
            ),
        );
        return ptr::null_mut();
    };
    // SAFETY: the caller vouches for as many bytes as the type has.
    match unsafe { list(value.cast::<u8>(), dtype.bytes() as u64) } {
        Some(bytes) => {
            ptr::without_provenance_mut(SCALARS.insert(Scalar::from_bytes(dtype, &bytes)))
        }
        None => ptr::null_mut(),
    }
}

/// Ends a scalar; null is fine.
///
/// # Safety
/// None; a handle that is not live is refused.
pub unsafe extern "C" fn aclDestroyScalar(scalar: *const aclScalar) -> aclnnStatus {
    destroy(&SCALARS, scalar.addr())
}

macro_rules! arrays {
    ($($create:ident $destroy:ident $size:ident: $ty:ty, $value:ty as $stored:ty, $from:expr, $registry:ident, $end:expr;)*) => {$(
        /// A copy of `size` values; null when there should be some and `value` is null.
        ///
        /// # Safety
        /// `value` is null or points to `size` readable values.
        pub unsafe extern "C" fn $create(value: *const $value, size: u64) -> *mut $ty {
            // SAFETY: passed on to the caller.
            let values = unsafe { list(value.cast::<$stored>(), size) };
            let handle = values.map(|values| $registry.insert(values.into_iter().map($from).collect()));
            handle.map_or(ptr::null_mut(), ptr::without_provenance_mut)
        }

        /// Ends an array or a list with its members; null is fine.
        ///
        /// # Safety
        /// None; a handle that is not live is refused.
        pub unsafe extern "C" fn $destroy(array: *const $ty) -> aclnnStatus {
            let end: fn(usize) -> aclnnStatus = $end;
            end(array.addr())
        }

        /// Number of values.
        ///
        /// # Safety
        /// `size` is null or may be written.
        pub unsafe extern "C" fn $size(array: *const $ty, size: *mut u64) -> aclnnStatus {
            match find(&$registry, array.addr()) {
                // SAFETY: passed on to the caller.
                Ok(array) => unsafe { give(size, array.len() as u64) },
                Err(status) => status,
            }
        }
    )*};
}
arrays! {
    aclCreateIntArray aclDestroyIntArray aclGetIntArraySize: aclIntArray,
        i64 as i64, |x| x, INT_ARRAYS, |array| destroy(&INT_ARRAYS, array);
    aclCreateFloatArray aclDestroyFloatArray aclGetFloatArraySize: aclFloatArray,
        f32 as f32, |x| x, FLOAT_ARRAYS, |array| destroy(&FLOAT_ARRAYS, array);
    // Read as bytes, because C may put any number into a bool.
    aclCreateBoolArray aclDestroyBoolArray aclGetBoolArraySize: aclBoolArray,
        bool as u8, |x| x != 0, BOOL_ARRAYS, |array| destroy(&BOOL_ARRAYS, array);
    aclCreateTensorList aclDestroyTensorList aclGetTensorListSize: aclTensorList,
        *const aclTensor as *const aclTensor, <*const aclTensor>::addr, TENSOR_LISTS,
        |list| destroy_list(&TENSOR_LISTS, &TENSORS, list);
    aclCreateScalarList aclDestroyScalarList aclGetScalarListSize: aclScalarList,
        *const aclScalar as *const aclScalar, <*const aclScalar>::addr, SCALAR_LISTS,
        |list| destroy_list(&SCALAR_LISTS, &SCALARS, list);
}

/// Destroys a list and its members; null is fine.
fn destroy_list<T>(
    lists: &Registry<Vec<usize>>,
    members: &Registry<T>,
    list: usize,
) -> aclnnStatus {
    if let Some(list) = lists.get(list) {
        for &member in list.iter() {
            members.remove(member);
        }
    }
    destroy(lists, list)
}

/// Lets the second phase of an executor be called any number of times; [`aclDestroyAclOpExecutor`] ends it.
///
/// # Safety
/// None; a handle that is not live is refused.
pub unsafe extern "C" fn aclSetAclOpExecutorRepeatable(
    executor: *mut aclOpExecutor,
) -> aclnnStatus {
    let updated = EXECUTORS.update(executor.addr(), Executor::make_repeatable);
    updated.map_or_else(|| unknown(&EXECUTORS, executor.addr()), |()| 0)
}

/// Ends an executor; null is fine. Work that it queued still runs.
///
/// # Safety
/// None; a handle that is not live is refused.
pub unsafe extern "C" fn aclDestroyAclOpExecutor(executor: *mut aclOpExecutor) -> aclnnStatus {
    destroy(&EXECUTORS, executor.addr())
}

macro_rules! rebind {
    ($($(#[$doc:meta])* $name:ident = $which:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// The tensors of a list count one by one. Launches before this keep the address they had.
        ///
        /// # Safety
        /// None; a handle that is not live is refused.
        pub unsafe extern "C" fn $name(
            executor: *mut aclOpExecutor,
            index: usize,
            tensor: *mut aclTensor,
            addr: *mut c_void,
        ) -> aclnnStatus {
            if tensor.is_null() {
                return unknown(&TENSORS, 0);
            }
            let found = EXECUTORS.update(executor.addr(), |executor| {
                executor.rebind($which, index, addr.addr())
            });
            match found {
                Some(true) => 0,
                Some(false) => {
                    fail(BAD_ARGUMENT, format!("expected the index of a tensor of the executor, got {index}"))
                }
                None => unknown(&EXECUTORS, executor.addr()),
            }
        }
    )*};
}
rebind! {
    /// Points tensor number `index` among those that the operator reads at other memory.
    aclSetInputTensorAddr = Which::Inputs;
    /// Points tensor number `index` among those that the operator writes at other memory.
    aclSetOutputTensorAddr = Which::Outputs;
    /// Points tensor number `index` of the operator at other memory, in the order of the parameters.
    aclSetTensorAddr = Which::All;
}

/// Starts the operators, which needs nothing; the configuration file is not read.
///
/// # Safety
/// None.
pub unsafe extern "C" fn aclnnInit(_configPath: *const c_char) -> aclnnStatus {
    0
}

/// Ends the operators.
///
/// # Safety
/// None.
pub unsafe extern "C" fn aclnnFinalize() -> aclnnStatus {
    0
}
