//! Random numbers on a stream: a counter-based generator, so that the same seed and counter give the same numbers.

use half::{bf16, f16};
use hcom_sys::bindings::{self as sys, aclDataType};

use crate::code;
use crate::error::{Failure, Outcome, refuse};
use crate::memory;
use crate::span::Span;

/// A number of a task: its bits, or the device address and bytes of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameter {
    /// The bits.
    Value(u64),
    /// Where they lie, and how many bytes.
    At(usize, usize),
}

/// What the numbers look like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Distribution {
    /// Bits that are zero with this probability: a mask for dropout.
    Bits(Parameter),
    /// From the first, included, to the second, excluded.
    Uniform(Parameter, Parameter),
    /// The bell curve; `truncated` within two deviations.
    Normal {
        /// Its centre.
        mean: Parameter,
        /// Its width.
        deviation: Parameter,
        /// Whether the tails are cut.
        truncated: bool,
    },
}

/// One task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// Type of parameters and results.
    pub dtype: aclDataType,
    /// What to make.
    pub distribution: Distribution,
    /// Device address of the results.
    pub result: usize,
    /// Device address of the 16-byte counter.
    pub counter: usize,
    /// The seed.
    pub seed: Parameter,
    /// How many numbers, or bits.
    pub count: Parameter,
}

fn at(address: usize, bytes: usize) -> Outcome<Span> {
    memory::span(std::ptr::without_provenance(address), bytes)
        .map_err(|failure| Failure::new(code::DEVICE_MEMORY, failure.text))
}

impl Parameter {
    fn bits(self) -> Outcome<u64> {
        match self {
            Self::Value(bits) => Ok(bits),
            Self::At(address, bytes) => {
                let mut word = [0u8; 8];
                at(address, bytes)?.read(0, &mut word[..bytes]);
                Ok(u64::from_le_bytes(word))
            }
        }
    }

    fn float(self, dtype: aclDataType) -> Outcome<f64> {
        let bits = self.bits()?;
        Ok(match dtype {
            sys::ACL_FLOAT16 => f16::from_bits(bits as u16).to_f64(),
            sys::ACL_BF16 => bf16::from_bits(bits as u16).to_f64(),
            _ => f64::from(f32::from_bits(bits as u32)),
        })
    }
}

/// Refuses a type that the distribution has not.
///
/// # Errors
/// 207000.
pub(crate) fn check(task: &Task) -> Outcome {
    let float = matches!(
        task.dtype,
        sys::ACL_FLOAT | sys::ACL_FLOAT16 | sys::ACL_BF16
    );
    let integer = matches!(
        task.dtype,
        sys::ACL_INT32 | sys::ACL_INT64 | sys::ACL_UINT32 | sys::ACL_UINT64
    );
    let fits = match task.distribution {
        Distribution::Uniform(..) => float || integer,
        Distribution::Bits(_) | Distribution::Normal { .. } => float,
    };
    if fits {
        return Ok(());
    }
    refuse(
        code::NOT_SUPPORTED,
        format!("data type {} for this distribution", task.dtype.0),
    )
}

/// SplitMix64 over seed and counter.
pub(crate) struct Generator {
    state: u64,
}

impl Generator {
    /// The numbers of a seed from a counter on.
    pub(crate) fn new(seed: u64, counter: u64) -> Self {
        let mut start = Self { state: seed };
        let mixed = start.next();
        Self {
            state: mixed ^ counter.wrapping_mul(0xd134_2543_de82_ef95),
        }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0, included, to 1, excluded.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The standard bell curve, by Box and Muller.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Makes the numbers.
///
/// # Errors
/// 507053 for memory that is not allocated, 507018 for parameters that make no sense.
pub(crate) fn run(task: &Task) -> Outcome {
    let count = task.count.bits()? as usize;
    let counter = at(task.counter, 16)?;
    let mut words = [0u64; 2];
    counter.read(0, &mut words);
    let mut generator = Generator::new(task.seed.bits()?, words[0]);
    let senseless = |text: String| Failure::new(code::TASK_FAILED, text);
    match task.distribution {
        Distribution::Bits(ratio) => {
            let ratio = ratio.float(task.dtype)?;
            if !(0.0..=1.0).contains(&ratio) {
                return Err(senseless(format!("a dropout ratio of {ratio}")));
            }
            let mask = (0..count.div_ceil(8)).map(|byte| {
                (0..8.min(count - byte * 8))
                    .map(|bit| u8::from(generator.unit() >= ratio) << bit)
                    .sum()
            });
            let mask: Vec<u8> = mask.collect();
            at(task.result, mask.len())?.write(0, &mask);
        }
        Distribution::Uniform(low, high) => match task.dtype {
            sys::ACL_INT32 | sys::ACL_UINT32 | sys::ACL_INT64 | sys::ACL_UINT64 => {
                let whole = |parameter: Parameter| {
                    let bits = parameter.bits()?;
                    Ok(match task.dtype {
                        sys::ACL_INT32 => i128::from(bits as i32),
                        sys::ACL_INT64 => i128::from(bits as i64),
                        sys::ACL_UINT32 => i128::from(bits as u32),
                        _ => i128::from(bits),
                    })
                };
                let (low, high) = (whole(low)?, whole(high)?);
                if low >= high {
                    return Err(senseless(format!("numbers from {low} to below {high}")));
                }
                let number = |g: &mut Generator| low + i128::from(g.next()) % (high - low);
                let numbers: Vec<i128> = (0..count).map(|_| number(&mut generator)).collect();
                if matches!(task.dtype, sys::ACL_INT32 | sys::ACL_UINT32) {
                    let words: Vec<u32> = numbers.iter().map(|&n| n as u32).collect();
                    at(task.result, count * 4)?.write(0, &words);
                } else {
                    let words: Vec<u64> = numbers.iter().map(|&n| n as u64).collect();
                    at(task.result, count * 8)?.write(0, &words);
                }
            }
            dtype => {
                let (low, high) = (low.float(dtype)?, high.float(dtype)?);
                let numbers: Vec<f64> = (0..count)
                    .map(|_| low + (high - low) * generator.unit())
                    .collect();
                store(task, &numbers)?;
            }
        },
        Distribution::Normal {
            mean,
            deviation,
            truncated,
        } => {
            let (mean, deviation) = (mean.float(task.dtype)?, deviation.float(task.dtype)?);
            let numbers: Vec<f64> = (0..count)
                .map(|_| {
                    let mut standard = generator.normal();
                    while truncated && standard.abs() > 2.0 {
                        standard = generator.normal();
                    }
                    mean + deviation * standard
                })
                .collect();
            store(task, &numbers)?;
        }
    }
    words[0] = words[0].wrapping_add(count as u64);
    counter.write(0, &words);
    Ok(())
}

fn store(task: &Task, numbers: &[f64]) -> Outcome {
    match task.dtype {
        sys::ACL_FLOAT16 => {
            let values: Vec<f16> = numbers.iter().map(|&n| f16::from_f64(n)).collect();
            at(task.result, values.len() * 2)?.write(0, &values);
        }
        sys::ACL_BF16 => {
            let values: Vec<bf16> = numbers.iter().map(|&n| bf16::from_f64(n)).collect();
            at(task.result, values.len() * 2)?.write(0, &values);
        }
        _ => {
            let values: Vec<f32> = numbers.iter().map(|&n| n as f32).collect();
            at(task.result, values.len() * 4)?.write(0, &values);
        }
    }
    Ok(())
}
