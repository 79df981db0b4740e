//! Tensors of torch: their memory is read where it lies, and results are given to torch without a copy.

#![expect(
    unsafe_code,
    reason = "reads memory of torch and lends it memory of the device"
)]

use std::{
    ffi::{CStr, c_void},
    ptr::{NonNull, null_mut, slice_from_raw_parts},
};

use hcom_ir::{DType, Type};
use hcom_runtime::{Array, Error};
use pyo3::{Bound, PyResult, Python, ffi, types::PyCapsule};

/// The memory of a dense tensor that Python holds during the call.
#[derive(Clone, Copy)]
pub(crate) struct Dense {
    address: *const u8,
    bytes: usize,
}

// SAFETY: the memory is only read, and `arguments` had it from a caller who sees that nobody writes it.
unsafe impl Send for Dense {}

impl Dense {
    /// The arguments of an operator: the addresses of dense tensors of these types. The operator's
    /// caller holds the tensors until it returns, and by torch's rules nobody writes them meanwhile.
    /// `None` when one is too large for the address space.
    pub(crate) fn arguments(addresses: &[usize], types: &[Type]) -> Option<Vec<Dense>> {
        let dense = |(&address, ty): (&usize, &Type)| {
            Some(Dense {
                address: std::ptr::with_exposed_provenance(address),
                bytes: usize::try_from(ty.bytes()?).ok()?,
            })
        };
        addresses.iter().zip(types).map(dense).collect()
    }

    /// Copies the elements into an array that the device does not use.
    pub(crate) fn copy_to(self, array: &Array) -> Result<(), Error> {
        assert_eq!(
            self.bytes as u64,
            array.byte_len(),
            "an input has the size of its type"
        );
        if self.bytes == 0 {
            return Ok(());
        }
        match array.host_pointer() {
            Some(to) => {
                // SAFETY: `arguments` had a live tensor of that size from its caller; the array has as many bytes of
                // its own, and the device does not use them.
                unsafe {
                    self.address
                        .copy_to_nonoverlapping(to.as_ptr().cast(), self.bytes);
                }
                Ok(())
            }
            None => {
                // SAFETY: `arguments` had a live tensor of that size from its caller, and nobody writes it.
                array.write(unsafe { &*slice_from_raw_parts(self.address, self.bytes) })
            }
        }
    }
}

const CAPSULE: &CStr = c"dltensor";

/// `DLTensor` of DLPack 0.8.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor` of DLPack 0.8.
#[repr(C)]
struct DlManaged {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManaged)>,
}

/// What a lent tensor needs as long as torch has it.
struct Lent {
    managed: DlManaged,
    _shape: Vec<i64>,
    _owner: Memory,
}

/// Where the elements are.
enum Memory {
    /// In memory of the device that the host can reach.
    Mapped { _array: Array },
    /// In a copy; the unit keeps the alignment of every element type.
    Copied { _copy: Vec<u128> },
}

/// Lends the elements of `array`, which the device has written, as a DLPack capsule that torch takes
/// over. Nothing is copied where the host reaches the device's memory.
pub(crate) fn lend(py: Python<'_>, array: Array) -> PyResult<Bound<'_, PyCapsule>> {
    let mut shape: Vec<i64> = array.shape().iter().map(|&size| size as i64).collect();
    let (code, bits) = kind(array.dtype());
    let (data, owner) = match array.host_pointer() {
        Some(pointer) => (pointer.as_ptr(), Memory::Mapped { _array: array }),
        None => {
            let bytes = array
                .to_host()
                .map_err(|error| crate::error::raise(&error, ""))?;
            let mut copy = vec![0u128; bytes.len().div_ceil(size_of::<u128>()).max(1)];
            // SAFETY: the copy has room for all bytes.
            unsafe {
                bytes
                    .as_ptr()
                    .copy_to_nonoverlapping(copy.as_mut_ptr().cast(), bytes.len());
            }
            (copy.as_mut_ptr().cast(), Memory::Copied { _copy: copy })
        }
    };
    let tensor = DlTensor {
        data,
        device_type: 1,
        device_id: 0,
        ndim: shape.len() as i32,
        code,
        bits,
        lanes: 1,
        shape: shape.as_mut_ptr(),
        strides: null_mut(),
        byte_offset: 0,
    };
    let lent = Box::into_raw(Box::new(Lent {
        managed: DlManaged {
            tensor,
            context: null_mut(),
            deleter: Some(take_back),
        },
        _shape: shape,
        _owner: owner,
    }));
    // SAFETY: `lent` comes from a box, which `take_back` frees once.
    let managed = unsafe {
        (*lent).managed.context = lent.cast();
        &raw mut (*lent).managed
    };
    let pointer = NonNull::new(managed.cast()).expect("a box is not null");
    // SAFETY: the pointer is to a `DLManagedTensor`, as the name says, and valid until its deleter is
    // called: by torch, or by `forget` when torch has not taken it.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, CAPSULE, Some(forget)) }
}

/// The deleter that torch calls.
unsafe extern "C" fn take_back(managed: *mut DlManaged) {
    // SAFETY: torch calls this once with the pointer it was given, whose context is the box.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Lent>()) });
}

/// Destroys a capsule; torch renames those that it takes.
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule of `lend`, once, and holds the interpreter.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, CAPSULE.as_ptr()) == 1 {
            take_back(ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr()).cast());
        }
    }
}

/// Type code and bits of DLPack.
fn kind(dtype: DType) -> (u8, u8) {
    const INT: u8 = 0;
    const UINT: u8 = 1;
    const FLOAT: u8 = 2;
    const BFLOAT: u8 = 4;
    const COMPLEX: u8 = 5;
    const BOOL: u8 = 6;
    let code = match dtype {
        DType::Bool => BOOL,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => INT,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => UINT,
        DType::F16 | DType::F32 | DType::F64 => FLOAT,
        DType::BF16 => BFLOAT,
        DType::C64 | DType::C128 => COMPLEX,
    };
    (code, (dtype.bytes() * 8) as u8)
}
