//! The exported C functions, by header.

mod aclnn;
mod tensor;
