//! A CPU implementation of the Ascend ACL, HCCL and aclnn C ABI: real ranks, real data, real failures.

mod aclnn;
mod comm;
mod error;
mod ffi;
mod futex;
mod shm;
mod simd;
mod span;
