//! Communicators as the tests make and try them.

use hcom_sys::bindings as sys;

use super::api::{Buffer, Comm, Stream, hccl};
use crate::c;

pub(crate) const I32: sys::HcclDataType = sys::HCCL_DATA_TYPE_INT32;

pub(crate) fn name_of(comm: &Comm) -> String {
    let mut name = [0; 128];
    hccl(c!(HcclGetCommName(comm.0, name.as_mut_ptr()))).unwrap();
    let bytes: Vec<u8> = name
        .iter()
        .map(|&c| c as u8)
        .take_while(|&c| c != 0)
        .collect();
    String::from_utf8(bytes).unwrap()
}

/// Every member adds its rank and one; all must get the sum.
pub(crate) fn adds_up(comm: &Comm, stream: &Stream) {
    let (mut rank, mut size) = (0, 0);
    hccl(c!(HcclGetRankId(comm.0, &mut rank))).unwrap();
    hccl(c!(HcclGetRankSize(comm.0, &mut size))).unwrap();
    let buffer = Buffer::of(&[rank as i32 + 1, 10 * (rank as i32 + 1)]);
    comm.all_reduce(&buffer, &buffer, 2, I32, sys::HCCL_REDUCE_SUM, stream)
        .unwrap();
    stream.synchronize().unwrap();
    let sum = (size * (size + 1) / 2) as i32;
    assert_eq!(buffer.read::<i32>(2), [sum, 10 * sum]);
}
