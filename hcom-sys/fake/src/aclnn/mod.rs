//! The aclnn operators.
