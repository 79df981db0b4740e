//! The Ascend ACL, HCCL and aclnn C ABI: headers, bindings and a lazily resolved symbol table.
