//! Seeded random values: the same on every rank, machine and run.

/// A SplitMix64 generator (Steele, Lea and Flood, 2014).
pub(crate) struct Seeded(u64);

impl Seeded {
    /// A generator whose values depend on `seed` alone.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A value in `[-1, 1)`, a multiple of 2⁻²³ and so exact in f32.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    /// `count` values in `[-bound, bound)`.
    pub(crate) fn uniform(&mut self, count: u64, bound: f32) -> Vec<f32> {
        (0..count).map(|_| self.unit() * bound).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Seeded;

    #[test]
    fn values_depend_on_the_seed_alone_and_fill_the_range() {
        // First outputs of SplitMix64 for seed 1234567, from the generator's published test vector.
        let mut random = Seeded::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);

        let values = Seeded::new(7).uniform(4096, 2.0);
        assert_eq!(values, Seeded::new(7).uniform(4096, 2.0));
        assert!(values.iter().all(|value| (-2.0..2.0).contains(value)));
        assert!(
            values.iter().any(|value| *value < -1.9) && values.iter().any(|value| *value > 1.9)
        );
    }
}
