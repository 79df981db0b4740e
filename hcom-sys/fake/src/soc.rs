//! Which chip the fake is, and what that chip's collectives accept.

use std::ffi::CString;

use hcom_sys::bindings::{self as sys, HcclDataType, HcclReduceOp};

/// Chip families that differ in what HCCL accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Ascend950.
    A950,
    /// Ascend910_93xx.
    A3,
    /// Ascend910B.
    A2,
    /// Ascend910A.
    A1,
    /// Ascend310P.
    Duo,
}

/// The chip's name and family.
#[derive(Clone, Debug)]
pub(crate) struct Soc {
    /// As `aclrtGetSocName` answers.
    pub name: CString,
    /// Decides the supported types.
    pub family: Family,
}

impl Default for Soc {
    fn default() -> Self {
        Self {
            name: c"Ascend910_9382".to_owned(),
            family: Family::A3,
        }
    }
}

impl Soc {
    /// The chip called `name`, if it is one this crate knows the rules of.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let family = match name.strip_prefix("Ascend")? {
            rest if rest.starts_with("950") => Family::A950,
            rest if rest.starts_with("910_93") => Family::A3,
            rest if rest.starts_with("910B") => Family::A2,
            "910" | "910A" => Family::A1,
            rest if rest.starts_with("310P") => Family::Duo,
            _ => return None,
        };
        Some(Self {
            name: CString::new(name).ok()?,
            family,
        })
    }

    /// Whether collectives that only move data take `dtype`.
    pub(crate) fn moves(&self, dtype: HcclDataType) -> bool {
        match dtype {
            sys::HCCL_DATA_TYPE_INT8
            | sys::HCCL_DATA_TYPE_INT16
            | sys::HCCL_DATA_TYPE_INT32
            | sys::HCCL_DATA_TYPE_INT64
            | sys::HCCL_DATA_TYPE_UINT8
            | sys::HCCL_DATA_TYPE_UINT16
            | sys::HCCL_DATA_TYPE_UINT32
            | sys::HCCL_DATA_TYPE_UINT64
            | sys::HCCL_DATA_TYPE_FP16
            | sys::HCCL_DATA_TYPE_FP32
            | sys::HCCL_DATA_TYPE_FP64 => true,
            sys::HCCL_DATA_TYPE_BFP16 => {
                matches!(self.family, Family::A950 | Family::A3 | Family::A2)
            }
            sys::HCCL_DATA_TYPE_HIF8
            | sys::HCCL_DATA_TYPE_FP8E4M3
            | sys::HCCL_DATA_TYPE_FP8E5M2
            | sys::HCCL_DATA_TYPE_FP8E8M0 => self.family == Family::A950,
            _ => false,
        }
    }

    /// Whether reductions take `dtype` under `op`.
    pub(crate) fn reduces(&self, dtype: HcclDataType, op: HcclReduceOp) -> bool {
        use Family as F;
        let modern = matches!(self.family, F::A950 | F::A3 | F::A2);
        let taken = match dtype {
            sys::HCCL_DATA_TYPE_INT8
            | sys::HCCL_DATA_TYPE_INT32
            | sys::HCCL_DATA_TYPE_FP16
            | sys::HCCL_DATA_TYPE_FP32 => true,
            sys::HCCL_DATA_TYPE_INT16 => self.family != F::A1,
            sys::HCCL_DATA_TYPE_INT64 => self.family != F::Duo,
            sys::HCCL_DATA_TYPE_BFP16 => modern,
            sys::HCCL_DATA_TYPE_UINT64 | sys::HCCL_DATA_TYPE_FP64 => self.family == F::A950,
            _ => false,
        };
        let narrow = matches!(dtype, sys::HCCL_DATA_TYPE_INT16 | sys::HCCL_DATA_TYPE_BFP16);
        taken
            && match op {
                sys::HCCL_REDUCE_SUM => true,
                sys::HCCL_REDUCE_PROD => !narrow,
                sys::HCCL_REDUCE_MAX | sys::HCCL_REDUCE_MIN => {
                    !(self.family == F::Duo && dtype == sys::HCCL_DATA_TYPE_INT16)
                }
                _ => false,
            }
    }
}

/// The size of one element in bytes; `None` for a number that is no data type.
pub(crate) fn element_bytes(dtype: HcclDataType) -> Option<usize> {
    Some(match dtype {
        sys::HCCL_DATA_TYPE_INT8
        | sys::HCCL_DATA_TYPE_UINT8
        | sys::HCCL_DATA_TYPE_HIF8
        | sys::HCCL_DATA_TYPE_FP8E4M3
        | sys::HCCL_DATA_TYPE_FP8E5M2
        | sys::HCCL_DATA_TYPE_FP8E8M0 => 1,
        sys::HCCL_DATA_TYPE_INT16
        | sys::HCCL_DATA_TYPE_UINT16
        | sys::HCCL_DATA_TYPE_FP16
        | sys::HCCL_DATA_TYPE_BFP16 => 2,
        sys::HCCL_DATA_TYPE_INT32 | sys::HCCL_DATA_TYPE_UINT32 | sys::HCCL_DATA_TYPE_FP32 => 4,
        sys::HCCL_DATA_TYPE_INT64 | sys::HCCL_DATA_TYPE_UINT64 | sys::HCCL_DATA_TYPE_FP64 => 8,
        sys::HCCL_DATA_TYPE_INT128 => 16,
        _ => return None,
    })
}

/// What people call `dtype`.
pub(crate) fn dtype_name(dtype: HcclDataType) -> String {
    match dtype {
        sys::HCCL_DATA_TYPE_INT8 => "i8",
        sys::HCCL_DATA_TYPE_INT16 => "i16",
        sys::HCCL_DATA_TYPE_INT32 => "i32",
        sys::HCCL_DATA_TYPE_INT64 => "i64",
        sys::HCCL_DATA_TYPE_UINT8 => "u8",
        sys::HCCL_DATA_TYPE_UINT16 => "u16",
        sys::HCCL_DATA_TYPE_UINT32 => "u32",
        sys::HCCL_DATA_TYPE_UINT64 => "u64",
        sys::HCCL_DATA_TYPE_FP16 => "f16",
        sys::HCCL_DATA_TYPE_FP32 => "f32",
        sys::HCCL_DATA_TYPE_FP64 => "f64",
        sys::HCCL_DATA_TYPE_BFP16 => "bf16",
        other => return format!("data type {}", other.0),
    }
    .to_owned()
}

/// What people call `op`.
pub(crate) fn op_name(op: HcclReduceOp) -> String {
    match op {
        sys::HCCL_REDUCE_SUM => "sum".to_owned(),
        sys::HCCL_REDUCE_PROD => "prod".to_owned(),
        sys::HCCL_REDUCE_MAX => "max".to_owned(),
        sys::HCCL_REDUCE_MIN => "min".to_owned(),
        other => format!("reduction {}", other.0),
    }
}
