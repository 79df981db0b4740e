//! What the CPU library knows about this machine: how its cores lie, and how fast a collective could be on it.

#[cfg(feature = "fake")]
pub(super) use with_fake::{bound_us, cores, pin, regime};
#[cfg(not(feature = "fake"))]
pub(super) use without_fake::{bound_us, cores, pin, regime};

#[cfg(feature = "fake")]
mod with_fake {
    use std::time::Duration;

    use hcom_fake::bound;
    use hcom_fake::regime::Regime;
    pub(in super::super) use hcom_fake::regime::{cores, pin};
    use hcom_ir::DType;
    use hcom_sys::bindings as sys;

    use super::super::collective::{Mode, Operation};

    /// The name of the regime.
    pub(in super::super) fn regime() -> &'static str {
        Regime::measure().name()
    }

    /// Microseconds of the kernel alone; `None` when it cannot be measured here.
    pub(in super::super) fn bound_us(
        operation: Operation,
        mode: Mode,
        ranks: u32,
        bytes: u64,
        dtype: DType,
    ) -> Option<f64> {
        bound::measure(&bound::Case {
            operation: match operation {
                Operation::AllReduce => bound::Operation::AllReduce,
                Operation::AllGather => bound::Operation::AllGather,
                Operation::ReduceScatter => bound::Operation::ReduceScatter,
                Operation::AllToAll => bound::Operation::AllToAll,
                Operation::Broadcast => bound::Operation::Broadcast,
            },
            mode: match mode {
                Mode::Reused => bound::Mode::Reused,
                Mode::Owned => bound::Mode::Owned,
                Mode::Whole => bound::Mode::Whole,
            },
            ranks: ranks as usize,
            bytes: usize::try_from(bytes).ok()?,
            dtype: match dtype {
                DType::F16 => sys::HCCL_DATA_TYPE_FP16,
                DType::BF16 => sys::HCCL_DATA_TYPE_BFP16,
                DType::I8 => sys::HCCL_DATA_TYPE_INT8,
                DType::I32 => sys::HCCL_DATA_TYPE_INT32,
                DType::I64 => sys::HCCL_DATA_TYPE_INT64,
                _ => sys::HCCL_DATA_TYPE_FP32,
            },
            budget: Duration::from_millis(120),
        })
    }
}

#[cfg(not(feature = "fake"))]
mod without_fake {
    use hcom_ir::DType;

    use super::super::collective::{Mode, Operation};

    /// Nobody measures it.
    pub(in super::super) fn regime() -> &'static str {
        "unknown"
    }

    /// Nobody counts them.
    pub(in super::super) fn cores() -> Vec<usize> {
        vec![0]
    }

    /// Stays where it is.
    pub(in super::super) fn pin(_: usize) {}

    /// Nobody measures it.
    pub(in super::super) fn bound_us(
        _: Operation,
        _: Mode,
        _: u32,
        _: u64,
        _: DType,
    ) -> Option<f64> {
        None
    }
}
