//! Operators called by name and kernels: there is no compiler and no core here, and every call says so.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::ffi::{CStr, c_char, c_int, c_void};

use hcom_sys::bindings::{
    aclDataBuffer, aclDataType, aclError, aclTensorDesc, aclopAttr, aclopCompileType,
    aclopEngineType, aclrtBinHandle, aclrtBinaryLoadOptions, aclrtFuncHandle, aclrtStream,
    rtDevBinary_t, rtError_t, rtSmDesc_t, rtStream_t,
};

use crate::code;
use crate::error::fail;

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_refused_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclopCreateAttr() -> *mut aclopAttr;
            fn aclopDestroyAttr(attr: *const aclopAttr) -> ();
            fn aclopSetAttrBool(attr: *mut aclopAttr, attrName: *const c_char, attrValue: u8) -> aclError;
            fn aclopSetAttrDataType(attr: *mut aclopAttr, attrName: *const c_char, attrValue: aclDataType) -> aclError;
            fn aclopSetAttrFloat(attr: *mut aclopAttr, attrName: *const c_char, attrValue: f32) -> aclError;
            fn aclopSetAttrInt(attr: *mut aclopAttr, attrName: *const c_char, attrValue: i64) -> aclError;
            fn aclopSetAttrString(attr: *mut aclopAttr, attrName: *const c_char, attrValue: *const c_char) -> aclError;
            fn aclopSetAttrListBool(attr: *mut aclopAttr, attrName: *const c_char, numValues: c_int, values: *const u8) -> aclError;
            fn aclopSetAttrListFloat(attr: *mut aclopAttr, attrName: *const c_char, numValues: c_int, values: *const f32) -> aclError;
            fn aclopSetAttrListInt(attr: *mut aclopAttr, attrName: *const c_char, numValues: c_int, values: *const i64) -> aclError;
            fn aclopSetAttrListListInt(attr: *mut aclopAttr, attrName: *const c_char, numLists: c_int, numValues: *const c_int, values: *const *const i64) -> aclError;
            fn aclopCompileAndExecute(opType: *const c_char, numInputs: c_int, inputDesc: *const *const aclTensorDesc, inputs: *const *const aclDataBuffer, numOutputs: c_int, outputDesc: *const *const aclTensorDesc, outputs: *const *mut aclDataBuffer, attr: *const aclopAttr, engineType: aclopEngineType, compileFlag: aclopCompileType, opPath: *const c_char, stream: aclrtStream) -> aclError;
            fn aclopCompileAndExecuteV2(opType: *const c_char, numInputs: c_int, inputDesc: *mut *mut aclTensorDesc, inputs: *mut *mut aclDataBuffer, numOutputs: c_int, outputDesc: *mut *mut aclTensorDesc, outputs: *mut *mut aclDataBuffer, attr: *mut aclopAttr, engineType: aclopEngineType, compileFlag: aclopCompileType, opPath: *const c_char, stream: aclrtStream) -> aclError;
            fn aclrtBinaryLoadFromData(data: *const c_void, length: usize, options: *const aclrtBinaryLoadOptions, binHandle: *mut aclrtBinHandle) -> aclError;
            fn aclrtBinaryGetFunction(binHandle: aclrtBinHandle, kernelName: *const c_char, funcHandle: *mut aclrtFuncHandle) -> aclError;
            fn aclrtGetFunctionAddr(funcHandle: aclrtFuncHandle, aicAddr: *mut *mut c_void, aivAddr: *mut *mut c_void) -> aclError;
            fn rtDevBinaryRegister(bin: *const rtDevBinary_t, hdl: *mut *mut c_void) -> rtError_t;
            fn rtFunctionRegister(binHandle: *mut c_void, stubFunc: *const c_void, stubName: *const c_char, kernelInfoExt: *const c_void, funcMode: u32) -> rtError_t;
            fn rtKernelLaunch(stubFunc: *const c_void, numBlocks: u32, args: *mut c_void, argsSize: u32, smDesc: *mut rtSmDesc_t, stm: rtStream_t) -> rtError_t;
        }
    };
}

/// Why operators called by name do not run.
pub(crate) const NO_COMPILER: &str = "operators called by name need an operator compiler, which this CPU library has \
                                      not; call the aclnn function of the operator";
/// Why kernels do not run.
pub(crate) const NO_CORES: &str =
    "kernel binaries are machine code of an NPU's cores, which this CPU library has not";

/// # Safety
/// `text` is null or ends with a zero.
unsafe fn quoted(text: *const c_char) -> String {
    if text.is_null() {
        return "without a name".to_owned();
    }
    // SAFETY: not null, so it ends with a zero as the caller promises.
    format!("{:?}", unsafe { CStr::from_ptr(text) })
}

/// `aclopCreateAttr`
pub unsafe extern "C" fn aclopCreateAttr() -> *mut aclopAttr {
    fail(
        code::API_NOT_SUPPORTED,
        format!("aclopCreateAttr: {NO_COMPILER}"),
    );
    std::ptr::null_mut()
}

/// `aclopDestroyAttr`: there never is one.
pub unsafe extern "C" fn aclopDestroyAttr(_attr: *const aclopAttr) {}

macro_rules! attributes {
    ($($name:ident($($ty:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($name), "`: refused.")]
        pub unsafe extern "C" fn $name(_attr: *mut aclopAttr, name: *const c_char, $(_: $ty),*) -> aclError {
            // SAFETY: the caller passes null or text that ends with a zero.
            let attribute = unsafe { quoted(name) };
            let text = format!("{}: attribute {attribute}: {NO_COMPILER}", stringify!($name));
            fail(code::API_NOT_SUPPORTED, text)
        }
    )*};
}
attributes! {
    aclopSetAttrBool(u8);
    aclopSetAttrDataType(aclDataType);
    aclopSetAttrFloat(f32);
    aclopSetAttrInt(i64);
    aclopSetAttrString(*const c_char);
    aclopSetAttrListBool(c_int, *const u8);
    aclopSetAttrListFloat(c_int, *const f32);
    aclopSetAttrListInt(c_int, *const i64);
    aclopSetAttrListListInt(c_int, *const c_int, *const *const i64);
}

/// # Safety
/// `operator` is null or ends with a zero.
unsafe fn by_name(function: &str, operator: *const c_char) -> aclError {
    // SAFETY: passed on as it came.
    let operator = unsafe { quoted(operator) };
    super::missing::report(&operator);
    fail(
        code::API_NOT_SUPPORTED,
        format!("{function}: operator {operator}: {NO_COMPILER}"),
    )
}

/// `aclopCompileAndExecute`: refused, and the operator is named.
pub unsafe extern "C" fn aclopCompileAndExecute(
    operator: *const c_char,
    _: c_int,
    _: *const *const aclTensorDesc,
    _: *const *const aclDataBuffer,
    _: c_int,
    _: *const *const aclTensorDesc,
    _: *const *mut aclDataBuffer,
    _: *const aclopAttr,
    _: aclopEngineType,
    _: aclopCompileType,
    _: *const c_char,
    _: aclrtStream,
) -> aclError {
    // SAFETY: the caller passes null or text that ends with a zero.
    unsafe { by_name("aclopCompileAndExecute", operator) }
}

/// `aclopCompileAndExecuteV2`: refused, and the operator is named.
pub unsafe extern "C" fn aclopCompileAndExecuteV2(
    operator: *const c_char,
    _: c_int,
    _: *mut *mut aclTensorDesc,
    _: *mut *mut aclDataBuffer,
    _: c_int,
    _: *mut *mut aclTensorDesc,
    _: *mut *mut aclDataBuffer,
    _: *mut aclopAttr,
    _: aclopEngineType,
    _: aclopCompileType,
    _: *const c_char,
    _: aclrtStream,
) -> aclError {
    // SAFETY: the caller passes null or text that ends with a zero.
    unsafe { by_name("aclopCompileAndExecuteV2", operator) }
}

macro_rules! kernels {
    ($($name:ident($($ty:ty),*) -> $answer:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`: refused.")]
        pub unsafe extern "C" fn $name($(_: $ty),*) -> $answer {
            fail(code::API_NOT_SUPPORTED, format!("{}: {NO_CORES}", stringify!($name)))
        }
    )*};
}
kernels! {
    aclrtBinaryLoadFromData(*const c_void, usize, *const aclrtBinaryLoadOptions, *mut aclrtBinHandle) -> aclError;
    aclrtBinaryGetFunction(aclrtBinHandle, *const c_char, *mut aclrtFuncHandle) -> aclError;
    aclrtGetFunctionAddr(aclrtFuncHandle, *mut *mut c_void, *mut *mut c_void) -> aclError;
    rtDevBinaryRegister(*const rtDevBinary_t, *mut *mut c_void) -> rtError_t;
    rtFunctionRegister(*mut c_void, *const c_void, *const c_char, *const c_void, u32) -> rtError_t;
    rtKernelLaunch(*const c_void, u32, *mut c_void, u32, *mut rtSmDesc_t, rtStream_t) -> rtError_t;
}
