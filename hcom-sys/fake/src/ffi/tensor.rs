//! C functions of the tensor part.
