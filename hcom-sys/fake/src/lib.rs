//! A CPU implementation of the Ascend ACL, HCCL and aclnn C ABI: real ranks, real data, real failures.
