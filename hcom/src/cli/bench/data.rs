//! Values that tell where they come from: different for every rank and position, and sums that are exact.

use half::{bf16, f16};
use hcom_ir::DType;

/// The element types that can be measured.
pub(super) const DTYPES: [DType; 6] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I8,
    DType::I32,
    DType::I64,
];

/// The largest value: small enough that the sum over four ranks is exact even in bf16.
const MODULUS: u64 = 61;

/// The value of element `index` of the buffer of `rank`; `salt` tells rounds apart.
pub(super) fn value(rank: u32, index: u64, salt: u64) -> u64 {
    let mixed = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(rank) + 1) << 32;
    (mixed.wrapping_add(salt).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40) % MODULUS
}

/// Appends a whole number as an element, as the reductions round it: once.
pub(super) fn encode(dtype: DType, value: u64, bytes: &mut Vec<u8>) {
    match dtype {
        DType::F32 => bytes.extend((value as f32).to_le_bytes()),
        DType::F16 => bytes.extend(f16::from_f32(value as f32).to_le_bytes()),
        DType::BF16 => bytes.extend(bf16::from_f32(value as f32).to_le_bytes()),
        DType::I8 => bytes.push(value as u8),
        DType::I32 => bytes.extend((value as i32).to_le_bytes()),
        DType::I64 => bytes.extend((value as i64).to_le_bytes()),
        other => unreachable!("{other} is not among the types that can be measured"),
    }
}

/// `count` elements, element i being `of(i)`.
pub(super) fn buffer(dtype: DType, count: u64, of: impl Fn(u64) -> u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((count * dtype.bytes()) as usize);
    for index in 0..count {
        encode(dtype, of(index), &mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_differ_by_rank_place_and_round() {
        let row = |rank, salt| {
            (0..64)
                .map(|index| value(rank, index, salt))
                .collect::<Vec<_>>()
        };
        assert_ne!(row(0, 0), row(1, 0));
        assert_ne!(row(0, 0), row(0, 1));
        assert_ne!(row(0, 0)[..32], row(0, 0)[32..]);
        assert!(row(3, 9).iter().all(|&value| value < MODULUS));
    }

    #[test]
    fn sums_over_four_ranks_are_exact_in_every_type() {
        for dtype in DTYPES {
            let mut bytes = Vec::new();
            encode(dtype, 4 * (MODULUS - 1), &mut bytes);
            assert_eq!(bytes.len() as u64, dtype.bytes());
        }
        assert_eq!(bf16::from_f32(240.0).to_f32(), 240.0);
    }
}
