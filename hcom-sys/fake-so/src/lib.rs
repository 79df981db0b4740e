//! The fake as a shared object that other people's Ascend programs load.
