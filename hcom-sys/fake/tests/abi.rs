//! The surface of real programs: listed whole, resolved everywhere, refused with words.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::collections::BTreeSet;
use std::ptr;

use hcom_fake::abi::{SURFACE, Standing};
use hcom_sys::bindings as sys;
use support::api::last_error;

/// The names that programs use: the collective tests, the collective examples, the runtime samples without
/// kernels, and torch_npu.
const NAMES: &str = include_str!("abi/names.txt");

#[test]
fn the_surface_is_listed_whole_and_every_name_is_in_the_table() {
    let names: BTreeSet<&str> = NAMES.split_whitespace().collect();
    let listed: Vec<&str> = SURFACE.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), 208);
    assert!(listed.is_sorted(), "by name, each once");
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), names);
    let table: BTreeSet<&str> = hcom_fake::table()
        .symbols
        .iter()
        .map(|(name, _)| *name)
        .collect();
    let missing: Vec<_> = names.difference(&table).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
}

#[test]
fn only_operators_by_name_and_kernels_are_refused() {
    for entry in SURFACE {
        let optional = ["aclop", "aclrtBinary", "aclrtGetFunctionAddr", "rt"]
            .iter()
            .any(|prefix| entry.name.starts_with(prefix));
        let refused = matches!(entry.standing, Standing::Refused(_));
        assert_eq!(refused, optional, "{}", entry.name);
    }
}

#[test]
fn a_refusal_says_why_and_names_the_operator() {
    let null: *mut std::ffi::c_void = ptr::null_mut();
    assert!(c!(aclopCreateAttr()).is_null());
    assert!(last_error().contains("operator compiler"));
    assert_eq!(
        c!(aclopSetAttrInt(null.cast(), c"axis".as_ptr(), 1)),
        200_001
    );
    assert!(last_error().contains("\"axis\""));
    let code = c!(aclopCompileAndExecute(
        c"MatMulV9".as_ptr(),
        0,
        ptr::null(),
        ptr::null(),
        0,
        ptr::null(),
        ptr::null(),
        ptr::null(),
        sys::ACL_ENGINE_SYS,
        sys::ACL_COMPILE_SYS,
        ptr::null(),
        null,
    ));
    assert_eq!(code, 200_001);
    assert!(last_error().contains("\"MatMulV9\""));
    let mut handle = null;
    assert_eq!(
        c!(aclrtBinaryLoadFromData(
            ptr::null(),
            0,
            ptr::null(),
            &mut handle
        )),
        200_001
    );
    assert!(last_error().contains("cores"));
    assert_eq!(
        hcom_fake::ffi::all::missing_operator("aclnnNoSuchGetWorkspaceSize"),
        561_003
    );
    assert!(last_error().contains("no operator aclnnNoSuch"), "named");
}

#[test]
fn numbers_and_descriptions_need_no_device() {
    assert_eq!(c!(aclDataTypeSize(sys::ACL_BF16)), 2);
    assert_eq!(c!(aclDataTypeSize(sys::ACL_COMPLEX128)), 16);
    assert_eq!(c!(aclDataTypeSize(sys::ACL_INT4)), 0);
    for value in [0.0, 1.5, -65504.0, 6.1e-5] {
        let half = c!(aclFloatToFloat16(value));
        assert_eq!(
            c!(aclFloat16ToFloat(half)),
            half::f16::from_f32(value).to_f32()
        );
    }
    assert_eq!(
        c!(aclFloat16ToFloat(c!(aclFloatToFloat16(f32::INFINITY)))),
        65504.0
    );
    assert_eq!(c!(aclFloat16ToFloat(c!(aclFloatToFloat16(-1e9)))), -65504.0);
    assert_eq!(c!(aclFloat16ToFloat(0x7c00)), 65536.0);
    assert_eq!(c!(aclFloat16ToFloat(0x7e00)), 98304.0);
    let place = ptr::without_provenance_mut(64);
    let buffer = c!(aclCreateDataBuffer(place, 12));
    assert_eq!(c!(aclGetDataBufferAddr(buffer)), place);
    assert_eq!(c!(aclGetDataBufferSizeV2(buffer)), 12);
    assert_eq!(c!(aclDestroyDataBuffer(buffer)), 0);
    assert_eq!(c!(aclDestroyDataBuffer(buffer)), 100_000, "once");
    let dims = [3i64, 5];
    let desc = c!(aclCreateTensorDesc(
        sys::ACL_FLOAT,
        2,
        dims.as_ptr(),
        sys::ACL_FORMAT_ND
    ));
    assert_eq!(c!(aclGetTensorDescType(desc)), sys::ACL_FLOAT);
    assert_eq!(c!(aclGetTensorDescNumDims(desc)), 2);
    let mut size = 0;
    assert_eq!(c!(aclGetTensorDescDimV2(desc, 1, &mut size)), 0);
    assert_eq!(size, 5);
    assert_eq!(c!(aclGetTensorDescDimV2(desc, 2, &mut size)), 100_000);
    c!(aclDestroyTensorDesc(desc));
    let mut text = [0; 8];
    assert_eq!(c!(aclGetCompileoptSize(sys::ACL_OP_JIT_COMPILE)), 8);
    assert_eq!(
        c!(aclGetCompileopt(
            sys::ACL_OP_JIT_COMPILE,
            text.as_mut_ptr(),
            8
        )),
        0
    );
    assert_eq!(text.map(|c| c as u8), *b"disable\0");
    assert_eq!(
        c!(aclGetCompileopt(
            sys::ACL_OP_JIT_COMPILE,
            text.as_mut_ptr(),
            7
        )),
        100_000
    );
}
