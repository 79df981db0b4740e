//! Operators through their C functions, against plain references in `f64`.
//!
//! Every operator meets distinct values, each family of types, and inputs and outputs that are contiguous, transposed,
//! gapped or reversed in memory.
#![expect(unsafe_code, reason = "calls the C interface")]

mod attention;
mod draws;
mod elementwise;
mod executor;
mod matmul;
mod moves;
mod parts;
mod picks;
mod rotary;
mod rows;
mod truth;

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use half::{bf16, f16};
use hcom_sys::bindings::{
    aclDataType, aclFormat, aclIntArray, aclOpExecutor, aclScalar, aclTensor, aclTensorList,
    aclrtStream,
};

use super::dtype::Type;
use crate::ffi::all::{
    aclCreateIntArray, aclCreateScalar, aclCreateTensor, aclCreateTensorList, aclDestroyTensor,
};
use crate::stream::Stream;
use crate::{device, memory};

/// How a tensor lies in its storage.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Form {
    /// Row by row.
    Plain,
    /// Column by column, behind three unused elements.
    Transposed,
    /// Row by row with two unused elements behind each.
    Gapped,
    /// Row by row from the end.
    Reversed,
}

const FORMS: [Form; 4] = [Form::Plain, Form::Transposed, Form::Gapped, Form::Reversed];

/// A tensor on device 0.
struct Dev {
    dtype: Type,
    dims: Vec<usize>,
    strides: Vec<isize>,
    offset: isize,
    storage: usize,
    bytes: usize,
    handle: *mut aclTensor,
}

impl Dev {
    /// A tensor with the given values in row-major order.
    fn of(dtype: Type, dims: &[usize], values: &[f64], form: Form) -> Dev {
        let tensor = Dev::new(dtype, dims, form);
        assert_eq!(values.len(), dims.iter().product::<usize>());
        for (number, &value) in values.iter().enumerate() {
            tensor.set(number, value);
        }
        tensor
    }

    /// A tensor of bytes 0xA5.
    fn new(dtype: Type, dims: &[usize], form: Form) -> Dev {
        let mut order: Vec<usize> = (0..dims.len()).collect();
        if form != Form::Transposed {
            order.reverse();
        }
        let spread = if form == Form::Gapped { 3 } else { 1 };
        let mut strides = vec![0; dims.len()];
        let mut next = spread;
        for d in order {
            strides[d] = next;
            next *= dims[d].max(1) as isize;
        }
        let mut offset = 3;
        if form == Form::Reversed {
            offset += next - 1;
            strides.iter_mut().for_each(|stride| *stride = -*stride);
        }
        Dev::with(dtype, dims, strides, offset, next as usize + 3)
    }

    /// A tensor with any strides over fresh memory of `elements` elements.
    fn with(
        dtype: Type,
        dims: &[usize],
        strides: Vec<isize>,
        offset: isize,
        elements: usize,
    ) -> Dev {
        device::set(0).unwrap();
        let bytes = elements * dtype.bytes();
        let storage = device::current()
            .unwrap()
            .device
            .arena
            .allocate(bytes)
            .unwrap();
        memory::span(storage, bytes).unwrap().fill(0xA5);
        let mut tensor = Dev {
            dtype,
            dims: dims.into(),
            strides,
            offset,
            storage: storage.addr(),
            bytes,
            handle: ptr::null_mut(),
        };
        tensor.handle = tensor.describe();
        tensor
    }

    /// A handle for this tensor.
    fn describe(&self) -> *mut aclTensor {
        let dims: Vec<i64> = self.dims.iter().map(|&dim| dim as i64).collect();
        let strides: Vec<i64> = self.strides.iter().map(|&stride| stride as i64).collect();
        let elements = (self.bytes / self.dtype.bytes()) as i64;
        // SAFETY: the arrays live through the call and have the lengths given.
        unsafe {
            aclCreateTensor(
                dims.as_ptr(),
                dims.len() as u64,
                aclDataType(self.dtype.acl()),
                strides.as_ptr(),
                self.offset as i64,
                aclFormat(2),
                &elements,
                1,
                ptr::without_provenance_mut(self.storage),
            )
        }
    }

    fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Bytes of element `number` in row-major order.
    fn place(&self, mut number: usize) -> crate::span::Span {
        let mut at = self.offset;
        for d in (0..self.dims.len()).rev() {
            at += (number % self.dims[d]) as isize * self.strides[d];
            number /= self.dims[d];
        }
        let size = self.dtype.bytes();
        let span = memory::span(ptr::without_provenance(self.storage), self.bytes).unwrap();
        span.part(at as usize * size, size)
    }

    fn set(&self, number: usize, x: f64) {
        let place = self.place(number);
        match self.dtype {
            Type::F32 => place.write(0, &[x as f32]),
            Type::F64 => place.write(0, &[x]),
            Type::F16 => place.write(0, &[f16::from_f64(x)]),
            Type::BF16 => place.write(0, &[bf16::from_f64(x)]),
            Type::I8 => place.write(0, &[x as i8]),
            Type::I16 => place.write(0, &[x as i16]),
            Type::I32 => place.write(0, &[x as i32]),
            Type::I64 => place.write(0, &[x as i64]),
            Type::U8 | Type::Bool => place.write(0, &[x as u8]),
            Type::U16 => place.write(0, &[x as u16]),
            Type::U32 => place.write(0, &[x as u32]),
            Type::U64 => place.write(0, &[x as u64]),
            Type::C64 => place.write(0, &[x as f32, -x as f32]),
            Type::C128 => place.write(0, &[x, -x]),
        }
    }

    fn get(&self, number: usize) -> f64 {
        fn one<T: crate::span::Element>(span: &crate::span::Span) -> T {
            span.to_vec::<T>()[0]
        }
        let place = self.place(number);
        match self.dtype {
            Type::F32 => one::<f32>(&place).into(),
            Type::F64 => one(&place),
            Type::F16 => one::<f16>(&place).to_f64(),
            Type::BF16 => one::<bf16>(&place).to_f64(),
            Type::I8 => one::<i8>(&place).into(),
            Type::I16 => one::<i16>(&place).into(),
            Type::I32 => one::<i32>(&place).into(),
            Type::I64 => one::<i64>(&place) as f64,
            Type::U8 | Type::Bool => one::<u8>(&place).into(),
            Type::U16 => one::<u16>(&place).into(),
            Type::U32 => one::<u32>(&place).into(),
            Type::U64 => one::<u64>(&place) as f64,
            Type::C64 => {
                let [re, im] = place.to_vec::<f32>()[..] else {
                    unreachable!()
                };
                assert_eq!(re, -im);
                re.into()
            }
            Type::C128 => {
                let [re, im] = place.to_vec::<f64>()[..] else {
                    unreachable!()
                };
                assert_eq!(re, -im);
                re
            }
        }
    }

    /// All elements in row-major order.
    fn values(&self) -> Vec<f64> {
        (0..self.len()).map(|number| self.get(number)).collect()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // SAFETY: any handle may be passed.
        unsafe { aclDestroyTensor(self.handle) };
        let _ = memory::free(ptr::without_provenance(self.storage));
    }
}

/// A C argument.
trait Pass<T> {
    fn pass(&self) -> T;
}
impl Pass<*const aclTensor> for Dev {
    fn pass(&self) -> *const aclTensor {
        self.handle
    }
}
impl Pass<*mut aclTensor> for Dev {
    fn pass(&self) -> *mut aclTensor {
        self.handle
    }
}
impl<T: Copy> Pass<T> for T {
    fn pass(&self) -> T {
        *self
    }
}

fn ints(values: &[i64]) -> *const aclIntArray {
    // SAFETY: the slice is as long as said.
    unsafe { aclCreateIntArray(values.as_ptr(), values.len() as u64) }
}

fn float(value: f32) -> *const aclScalar {
    // SAFETY: a float of that type.
    unsafe { aclCreateScalar((&raw const value).cast_mut().cast(), aclDataType(0)) }
}

fn double(value: f64) -> *const aclScalar {
    // SAFETY: a double of that type.
    unsafe { aclCreateScalar((&raw const value).cast_mut().cast(), aclDataType(11)) }
}

fn int(value: i64) -> *const aclScalar {
    // SAFETY: an integer of that type.
    unsafe { aclCreateScalar((&raw const value).cast_mut().cast(), aclDataType(9)) }
}

fn list(tensors: &[&Dev]) -> *const aclTensorList {
    let handles: Vec<*const aclTensor> = tensors
        .iter()
        .map(|tensor| tensor.describe().cast_const())
        .collect();
    // SAFETY: the vector is as long as said.
    unsafe { aclCreateTensorList(handles.as_ptr(), handles.len() as u64) }
}

type Second = unsafe extern "C" fn(*mut c_void, u64, *mut aclOpExecutor, aclrtStream) -> i32;

thread_local! {
    /// One stream per test, so that the failure of one test reaches no other.
    static STREAM: Arc<Stream> = Stream::create(device::current().unwrap().device.clone(), 0, 0);
}

/// Queues an executor and waits.
fn finish(second: Second, executor: *mut aclOpExecutor) -> Result<(), (i32, String)> {
    let stream = STREAM.with(Arc::clone);
    let handle = crate::handle::to_pointer(stream.handle);
    // SAFETY: the tensors of the executor live on in the test.
    let status = unsafe { second(ptr::null_mut(), 0, executor, handle) };
    if status != 0 {
        return Err((status, crate::error::last().unwrap_or_default()));
    }
    stream
        .synchronize(None)
        .map_err(|failure| (failure.code, failure.text))
}

/// Calls the first phase; `Err` holds its status and text.
macro_rules! first {
    ($first:ident($($argument:expr),* $(,)?)) => {{
        crate::device::set(0).unwrap();
        let (mut size, mut executor) = (u64::MAX, std::ptr::null_mut());
        // SAFETY: both answers may be written; the objects are live or null.
        let status = unsafe {
            crate::ffi::all::$first(
                $(crate::aclnn::tests::Pass::pass(&$argument),)*
                &mut size,
                &mut executor,
            )
        };
        if status == 0 {
            assert_eq!(size, 0);
            Ok(executor)
        } else {
            Err((status, crate::error::last().unwrap_or_default()))
        }
    }};
}

/// Runs an operator to its end, or panics with its error.
macro_rules! run {
    ($second:ident $first:ident($($argument:expr),* $(,)?)) => {{
        let executor = crate::aclnn::tests::first!($first($($argument),*)).unwrap();
        crate::aclnn::tests::finish(crate::ffi::all::$second, executor).unwrap();
    }};
}
use {first, run};

/// `count` distinct values around 0, negative and positive, no two of the same size.
fn spread(count: usize, step: f64) -> Vec<f64> {
    (0..count)
        .map(|i| (i as f64 - count as f64 / 2.0 + 0.25) * step)
        .collect()
}

/// Whole numbers `first, first + step, …`.
fn count_from(first: i64, step: i64, count: usize) -> Vec<f64> {
    (0..count as i64)
        .map(|i| (first + i * step) as f64)
        .collect()
}

/// Distinct values that every type but BOOL holds.
fn values(dtype: Type, count: usize) -> Vec<f64> {
    match dtype {
        Type::Bool => (0..count)
            .map(|i| f64::from(u8::from(i % 3 == 1)))
            .collect(),
        _ => count_from(1, 2, count),
    }
}

/// Asserts that the first phase refused its arguments with a text that ends so.
#[track_caller]
fn assert_refused(got: Result<*mut aclOpExecutor, (i32, String)>, end: &str) {
    let (code, text) = got.unwrap_err();
    assert_eq!(code, 161_002);
    assert!(text.ends_with(end), "{text}");
}

/// Relative error that one rounding to the type allows, with a little for the computation in front of it.
fn tolerance(dtype: Type) -> f64 {
    match dtype {
        Type::F64 => 4e-15,
        Type::F32 => 4e-7,
        Type::F16 => 5e-4,
        Type::BF16 => 4e-3,
        _ => 0.0,
    }
}

/// Asserts that each element is as expected, within the tolerance of the type.
#[track_caller]
fn assert_close(what: &str, tensor: &Dev, expected: &[f64]) {
    let got = tensor.values();
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let fits = got == expected
            || got.is_nan() && expected.is_nan()
            || (got - expected).abs() <= tolerance(tensor.dtype) * expected.abs().max(0.01);
        assert!(
            fits,
            "{what}: element {i} of {}: expected {expected}, got {got}",
            tensor.dtype
        );
    }
}
