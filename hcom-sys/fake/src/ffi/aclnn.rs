//! C functions of the aclnn part.
