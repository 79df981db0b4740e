//! Operators of the device library.

#![expect(unsafe_code, reason = "calls into the device library")]

use std::{
    ffi::c_void,
    ptr::{null, null_mut},
    sync::Arc,
};

use hcom_ir::DType;
use hcom_sys::{CallError, Code, bindings as c, check_aclnn};

use super::{Driver, Memory, Place, Stream, with_detail};
use crate::{
    aclnn::{Arg, Kernel, Scalar, View},
    error::Error,
};

/// An operator with its arguments, ready to be queued any number of times.
#[derive(Debug)]
pub(crate) struct Operator {
    driver: Arc<Driver>,
    kernel: Kernel,
    arguments: Vec<Argument>,
    /// Keeps the memory that the tensors describe.
    _places: Vec<Place>,
}

#[derive(Debug)]
enum Argument {
    Tensor(*mut c::aclTensor),
    Tensors(*mut c::aclTensorList),
    Scalar(*mut c::aclScalar),
    Ints(*mut c::aclIntArray),
    Int(i64),
    Code(i8),
    Mode(i32),
    Flag(bool),
    Float(f64),
    DType(c::aclDataType),
}

// SAFETY: the pointers are descriptions owned by the operator alone; the library keeps no thread's
// state in them, and `Operator` hands none out.
unsafe impl Send for Operator {}

/// Device memory that operators of one stream use one after the other.
#[derive(Debug)]
pub(crate) struct Workspace {
    driver: Arc<Driver>,
    memory: Option<Memory>,
}

impl Workspace {
    pub(crate) fn new(driver: &Arc<Driver>) -> Workspace {
        Workspace {
            driver: driver.clone(),
            memory: None,
        }
    }

    /// Makes room for `bytes` bytes. Growing waits for the device.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<(), Error> {
        if bytes > self.memory.as_ref().map_or(0, Memory::bytes) {
            self.memory = None;
            self.memory = Some(Memory::allocate(&self.driver, bytes)?);
        }
        Ok(())
    }

    fn address(&self) -> *mut c_void {
        self.memory.as_ref().map_or(null_mut(), Memory::address)
    }
}

/// Hands the arguments to a call one after the other.
struct Cursor<'a>(std::slice::Iter<'a, Argument>);

macro_rules! cursor {
    ($($method:ident: $variant:ident -> $type:ty;)*) => {$(
        fn $method(&mut self) -> $type {
            match self.0.next() {
                Some(Argument::$variant(value)) => *value,
                other => unreachable!("the lowering passes a {}, not {other:?}", stringify!($method)),
            }
        }
    )*};
}

impl Cursor<'_> {
    cursor! {
        tensor: Tensor -> *mut c::aclTensor;
        tensors: Tensors -> *mut c::aclTensorList;
        scalar: Scalar -> *mut c::aclScalar;
        ints: Ints -> *mut c::aclIntArray;
        int: Int -> i64;
        code: Code -> i8;
        mode: Mode -> i32;
        flag: Flag -> bool;
        float: Float -> f64;
        dtype: DType -> c::aclDataType;
    }
}

macro_rules! operators {
    ($($kernel:ident: $size:ident, $run:ident ($($argument:ident),*);)*) => {
        impl Operator {
            /// The first phase: checks everything, and says how much workspace the second needs.
            fn plan(&self) -> Result<(u64, *mut c::aclOpExecutor), Error> {
                let (mut bytes, mut executor) = (0u64, null_mut());
                let mut next = Cursor(self.arguments.iter());
                let (call, code) = match self.kernel {
                    $(Kernel::$kernel => {
                        let call = self.driver.library.$size()?;
                        // SAFETY: the arguments are of the kinds that the signature names, made by
                        // this library and alive as long as `self`; both answers have valid places.
                        let code = unsafe { call($(next.$argument(),)* &mut bytes, &mut executor) };
                        (stringify!($size), code)
                    })*
                };
                self.check(call, code)?;
                Ok((bytes, executor))
            }

            /// The second phase, which uses up the executor.
            fn run(
                &self,
                workspace: *mut c_void,
                bytes: u64,
                executor: *mut c::aclOpExecutor,
                stream: &Stream,
            ) -> Result<(), Error> {
                let (call, code) = match self.kernel {
                    $(Kernel::$kernel => {
                        let call = self.driver.library.$run()?;
                        // SAFETY: the executor comes from this operator's first phase and is used
                        // once; the workspace has `bytes` bytes and is freed only when the device is
                        // idle, as is the memory of the tensors.
                        let code = unsafe { call(workspace, bytes, executor, stream.raw()) };
                        (stringify!($run), code)
                    })*
                };
                self.check(call, code)
            }
        }
    };
}

operators! {
    Abs: aclnnAbsGetWorkspaceSize, aclnnAbs (tensor, tensor);
    Add: aclnnAddGetWorkspaceSize, aclnnAdd (tensor, tensor, scalar, tensor);
    Amax: aclnnAmaxGetWorkspaceSize, aclnnAmax (tensor, ints, flag, tensor);
    Arange: aclnnArangeGetWorkspaceSize, aclnnArange (scalar, scalar, scalar, tensor);
    ArgMax: aclnnArgMaxGetWorkspaceSize, aclnnArgMax (tensor, int, flag, tensor);
    BitwiseAndTensor: aclnnBitwiseAndTensorGetWorkspaceSize, aclnnBitwiseAndTensor (tensor, tensor, tensor);
    BitwiseOrTensor: aclnnBitwiseOrTensorGetWorkspaceSize, aclnnBitwiseOrTensor (tensor, tensor, tensor);
    BitwiseXorTensor: aclnnBitwiseXorTensorGetWorkspaceSize, aclnnBitwiseXorTensor (tensor, tensor, tensor);
    Cast: aclnnCastGetWorkspaceSize, aclnnCast (tensor, dtype, tensor);
    Cat: aclnnCatGetWorkspaceSize, aclnnCat (tensors, int, tensor);
    ConstantPadNd: aclnnConstantPadNdGetWorkspaceSize, aclnnConstantPadNd (tensor, ints, scalar, tensor);
    Div: aclnnDivGetWorkspaceSize, aclnnDiv (tensor, tensor, tensor);
    DivMod: aclnnDivModGetWorkspaceSize, aclnnDivMod (tensor, tensor, mode, tensor);
    Embedding: aclnnEmbeddingGetWorkspaceSize, aclnnEmbedding (tensor, tensor, tensor);
    EqTensor: aclnnEqTensorGetWorkspaceSize, aclnnEqTensor (tensor, tensor, tensor);
    Exp: aclnnExpGetWorkspaceSize, aclnnExp (tensor, tensor);
    Expand: aclnnExpandGetWorkspaceSize, aclnnExpand (tensor, ints, tensor);
    Gather: aclnnGatherGetWorkspaceSize, aclnnGather (tensor, int, tensor, tensor);
    GeluV2: aclnnGeluV2GetWorkspaceSize, aclnnGeluV2 (tensor, int, tensor);
    GtTensor: aclnnGtTensorGetWorkspaceSize, aclnnGtTensor (tensor, tensor, tensor);
    InplaceCopy: aclnnInplaceCopyGetWorkspaceSize, aclnnInplaceCopy (tensor, tensor);
    InplaceFillScalar: aclnnInplaceFillScalarGetWorkspaceSize, aclnnInplaceFillScalar (tensor, scalar);
    LayerNorm: aclnnLayerNormGetWorkspaceSize, aclnnLayerNorm (tensor, ints, tensor, tensor, float, tensor, tensor, tensor);
    Log: aclnnLogGetWorkspaceSize, aclnnLog (tensor, tensor);
    LtTensor: aclnnLtTensorGetWorkspaceSize, aclnnLtTensor (tensor, tensor, tensor);
    Matmul: aclnnMatmulGetWorkspaceSize, aclnnMatmul (tensor, tensor, tensor, code);
    Maximum: aclnnMaximumGetWorkspaceSize, aclnnMaximum (tensor, tensor, tensor);
    Mean: aclnnMeanGetWorkspaceSize, aclnnMean (tensor, ints, flag, dtype, tensor);
    Minimum: aclnnMinimumGetWorkspaceSize, aclnnMinimum (tensor, tensor, tensor);
    Mul: aclnnMulGetWorkspaceSize, aclnnMul (tensor, tensor, tensor);
    Muls: aclnnMulsGetWorkspaceSize, aclnnMuls (tensor, scalar, tensor);
    Neg: aclnnNegGetWorkspaceSize, aclnnNeg (tensor, tensor);
    Permute: aclnnPermuteGetWorkspaceSize, aclnnPermute (tensor, ints, tensor);
    PowTensorTensor: aclnnPowTensorTensorGetWorkspaceSize, aclnnPowTensorTensor (tensor, tensor, tensor);
    ReduceSum: aclnnReduceSumGetWorkspaceSize, aclnnReduceSum (tensor, ints, flag, dtype, tensor);
    Relu: aclnnReluGetWorkspaceSize, aclnnRelu (tensor, tensor);
    RmsNorm: aclnnRmsNormGetWorkspaceSize, aclnnRmsNorm (tensor, tensor, float, tensor, tensor);
    Rsqrt: aclnnRsqrtGetWorkspaceSize, aclnnRsqrt (tensor, tensor);
    SWhere: aclnnSWhereGetWorkspaceSize, aclnnSWhere (tensor, tensor, tensor, tensor);
    Sigmoid: aclnnSigmoidGetWorkspaceSize, aclnnSigmoid (tensor, tensor);
    Silu: aclnnSiluGetWorkspaceSize, aclnnSilu (tensor, tensor);
    SliceV2: aclnnSliceV2GetWorkspaceSize, aclnnSliceV2 (tensor, ints, ints, ints, ints, tensor);
    Softmax: aclnnSoftmaxGetWorkspaceSize, aclnnSoftmax (tensor, int, tensor);
    Sqrt: aclnnSqrtGetWorkspaceSize, aclnnSqrt (tensor, tensor);
    Sub: aclnnSubGetWorkspaceSize, aclnnSub (tensor, tensor, scalar, tensor);
    Tanh: aclnnTanhGetWorkspaceSize, aclnnTanh (tensor, tensor);
    Tril: aclnnTrilGetWorkspaceSize, aclnnTril (tensor, int, tensor);
    Triu: aclnnTriuGetWorkspaceSize, aclnnTriu (tensor, int, tensor);
}

impl Operator {
    /// Describes the arguments to the library; `place` gives the memory of each view.
    pub(crate) fn new(
        driver: &Arc<Driver>,
        kernel: Kernel,
        args: &[Arg],
        place: impl Fn(crate::aclnn::Place) -> Place,
    ) -> Result<Operator, Error> {
        Operator::describe(driver, kernel, args, |view| Some(place(view)))
    }

    /// Lets the library check a kernel and its arguments before there is memory for them. Returns
    /// the workspace that a launch needs, in bytes.
    pub(crate) fn examine(
        driver: &Arc<Driver>,
        kernel: Kernel,
        args: &[Arg],
    ) -> Result<u64, Error> {
        let operator = Operator::describe(driver, kernel, args, |_| None)?;
        let (bytes, executor) = operator.plan()?;
        let destroy = driver.library.aclDestroyAclOpExecutor()?;
        // SAFETY: the executor comes from the first phase and was not used.
        let code = unsafe { destroy(executor) };
        operator.check("aclDestroyAclOpExecutor", code)?;
        Ok(bytes)
    }

    /// Tensors without a place have no address and must not be launched.
    fn describe(
        driver: &Arc<Driver>,
        kernel: Kernel,
        args: &[Arg],
        place: impl Fn(crate::aclnn::Place) -> Option<Place>,
    ) -> Result<Operator, Error> {
        let mut operator = Operator {
            driver: driver.clone(),
            kernel,
            arguments: Vec::with_capacity(args.len()),
            _places: Vec::new(),
        };
        for arg in args {
            let argument = match arg {
                Arg::Tensor(view) => Argument::Tensor(operator.tensor(view, place(view.place))?),
                Arg::NoTensor => Argument::Tensor(null_mut()),
                Arg::Tensors(views) => operator.tensors(views, &place)?,
                Arg::Scalar(value) => Argument::Scalar(operator.scalar(*value)?),
                Arg::Ints(values) => Argument::Ints(operator.ints(values)?),
                Arg::Int(value) => Argument::Int(*value),
                Arg::Code(value) => Argument::Code(*value),
                Arg::Mode(value) => Argument::Mode(*value),
                Arg::Flag(value) => Argument::Flag(*value),
                Arg::Float(value) => Argument::Float(*value),
                Arg::DType(dtype) => Argument::DType(data_type(*dtype)),
            };
            operator.arguments.push(argument);
        }
        Ok(operator)
    }

    fn tensor(&mut self, view: &View, place: Option<Place>) -> Result<*mut c::aclTensor, Error> {
        let create = self.driver.library.aclCreateTensor()?;
        let reach: i64 = view
            .shape
            .iter()
            .zip(&view.strides)
            .map(|(size, stride)| (size - 1) * stride)
            .sum();
        let storage = if view.elements() == 0 {
            0
        } else {
            view.offset + reach + 1
        };
        let address = place.as_ref().map_or(null_mut(), |place| {
            assert!(
                storage as u64 * view.dtype.bytes() <= place.bytes(),
                "tensors stay inside their places"
            );
            place.address()
        });
        // SAFETY: the arrays have the lengths given with them and are copied by the call; the
        // memory, if any, holds `storage` elements, as was checked.
        let tensor = unsafe {
            create(
                view.shape.as_ptr(),
                view.shape.len() as u64,
                data_type(view.dtype),
                view.strides.as_ptr(),
                view.offset,
                c::ACL_FORMAT_ND,
                &storage,
                1,
                address,
            )
        };
        self._places.extend(place);
        self.made("aclCreateTensor", tensor)
    }

    fn tensors(
        &mut self,
        views: &[View],
        place: impl Fn(crate::aclnn::Place) -> Option<Place>,
    ) -> Result<Argument, Error> {
        let create = self.driver.library.aclCreateTensorList()?;
        let mut members: Vec<*const c::aclTensor> = Vec::with_capacity(views.len());
        for view in views {
            members.push(self.tensor(view, place(view.place))?);
        }
        // SAFETY: the list takes over the tensors, which nothing else refers to.
        let list = unsafe { create(members.as_ptr(), members.len() as u64) };
        self.made("aclCreateTensorList", list)
            .map(Argument::Tensors)
    }

    fn scalar(&self, value: Scalar) -> Result<*mut c::aclScalar, Error> {
        let create = self.driver.library.aclCreateScalar()?;
        let make = |value: *const c_void, dtype| {
            // SAFETY: `value` points to one value of `dtype`, which the call copies.
            unsafe { create(value.cast_mut(), dtype) }
        };
        let scalar = match value {
            Scalar::F32(value) => make((&raw const value).cast(), c::ACL_FLOAT),
            Scalar::F64(value) => make((&raw const value).cast(), c::ACL_DOUBLE),
            Scalar::I64(value) => make((&raw const value).cast(), c::ACL_INT64),
            Scalar::Bool(value) => make((&raw const value).cast(), c::ACL_BOOL),
        };
        self.made("aclCreateScalar", scalar)
    }

    fn ints(&self, values: &[i64]) -> Result<*mut c::aclIntArray, Error> {
        let create = self.driver.library.aclCreateIntArray()?;
        let pointer = if values.is_empty() {
            null()
        } else {
            values.as_ptr()
        };
        // SAFETY: `values` has the given length and is copied by the call.
        self.made("aclCreateIntArray", unsafe {
            create(pointer, values.len() as u64)
        })
    }

    fn made<T>(&self, call: &'static str, object: *mut T) -> Result<*mut T, Error> {
        if object.is_null() {
            let error = CallError::new(call, Code::Aclnn(c::ACLNN_ERR_PARAM_NULLPTR));
            return Err(with_detail(&self.driver.library, error));
        }
        Ok(object)
    }

    fn check(&self, call: &'static str, code: c::aclnnStatus) -> Result<(), Error> {
        check_aclnn(call, code).map_err(|error| with_detail(&self.driver.library, error))
    }

    /// Queues the operator on `stream`, which alone uses `workspace`.
    pub(crate) fn launch(&self, stream: &Stream, workspace: &mut Workspace) -> Result<(), Error> {
        let (bytes, executor) = self.plan()?;
        workspace.reserve(bytes)?;
        self.run(workspace.address(), bytes, executor, stream)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let library = &self.driver.library;
        for argument in self.arguments.drain(..) {
            // Destroying a description does not fail; where the library lacks the function, the
            // description could not have been made either.
            match argument {
                Argument::Tensor(tensor) if !tensor.is_null() => {
                    if let Ok(destroy) = library.aclDestroyTensor() {
                        // SAFETY: made by `aclCreateTensor`, destroyed once.
                        unsafe { destroy(tensor) };
                    }
                }
                Argument::Tensors(list) => {
                    if let Ok(destroy) = library.aclDestroyTensorList() {
                        // SAFETY: made by `aclCreateTensorList`, destroyed once with its members.
                        unsafe { destroy(list) };
                    }
                }
                Argument::Scalar(scalar) => {
                    if let Ok(destroy) = library.aclDestroyScalar() {
                        // SAFETY: made by `aclCreateScalar`, destroyed once.
                        unsafe { destroy(scalar) };
                    }
                }
                Argument::Ints(array) => {
                    if let Ok(destroy) = library.aclDestroyIntArray() {
                        // SAFETY: made by `aclCreateIntArray`, destroyed once.
                        unsafe { destroy(array) };
                    }
                }
                _ => {}
            }
        }
    }
}

fn data_type(dtype: DType) -> c::aclDataType {
    match dtype {
        DType::Bool => c::ACL_BOOL,
        DType::I8 => c::ACL_INT8,
        DType::I16 => c::ACL_INT16,
        DType::I32 => c::ACL_INT32,
        DType::I64 => c::ACL_INT64,
        DType::U8 => c::ACL_UINT8,
        DType::U16 => c::ACL_UINT16,
        DType::U32 => c::ACL_UINT32,
        DType::U64 => c::ACL_UINT64,
        DType::F16 => c::ACL_FLOAT16,
        DType::BF16 => c::ACL_BF16,
        DType::F32 => c::ACL_FLOAT,
        DType::F64 => c::ACL_DOUBLE,
        DType::C64 => c::ACL_COMPLEX64,
        DType::C128 => c::ACL_COMPLEX128,
    }
}
