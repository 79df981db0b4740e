//! Numbers and data from seeds.

use hcom_ir::{DType, Literal};

/// A source of numbers that depend on its seeds only (SplitMix64: Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn of(seeds: &[u64]) -> Random {
        let mut random = Random(0);
        for &seed in seeds {
            random.0 ^= seed;
            random.0 = random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is small and not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    /// True once in `n` times.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these, of which there is at least one.
    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// An order of these.
    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            list.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

/// How the elements of floats are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grain {
    /// Quarters between -8 and 8: products of small matrices of them are exact.
    Coarse,
    /// All bits of the mantissa, and rarely a NaN, an infinity or a zero of either sign.
    Fine,
}

/// Data of this type.
pub(super) fn data(dtype: DType, shape: &[u64], grain: Grain, random: &mut Random) -> Literal {
    let elements: u64 = shape.iter().product();
    let mut bytes = Vec::new();
    for _ in 0..elements {
        match dtype {
            DType::Bool => bytes.push(random.below(2) as u8),
            DType::F16 => bytes.extend(half::f16::from_f64(float(grain, random)).to_le_bytes()),
            DType::BF16 => bytes.extend(half::bf16::from_f64(float(grain, random)).to_le_bytes()),
            DType::F32 => bytes.extend((float(grain, random) as f32).to_le_bytes()),
            DType::F64 => bytes.extend(float(grain, random).to_le_bytes()),
            DType::C64 => {
                for _ in 0..2 {
                    bytes.extend((float(grain, random) as f32).to_le_bytes());
                }
            }
            DType::C128 => {
                for _ in 0..2 {
                    bytes.extend(float(grain, random).to_le_bytes());
                }
            }
            integer => {
                // Small numbers mostly, so that few wrap; the low bytes of any number fit any type.
                let number = match random.below(8) {
                    0 => random.next(),
                    _ => random.below(19).wrapping_sub(9),
                };
                bytes.extend(&number.to_le_bytes()[..integer.bytes() as usize]);
            }
        }
    }
    Literal::new(dtype, shape.to_vec(), bytes).expect("the data has the size of its type")
}

fn float(grain: Grain, random: &mut Random) -> f64 {
    if grain == Grain::Coarse {
        return (random.below(65) as f64 - 32.0) / 4.0;
    }
    match random.below(64) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => -0.0,
        3 => 0.0,
        _ => (random.next() >> 11) as f64 / (1u64 << 50) as f64 - 4.0,
    }
}
