//! What one rank of a benchmark does.

use std::time::{Duration, Instant};

use anyhow::Result;
use hcom_ir::{DType, Group, ReduceOp};
use hcom_runtime::{Array, Direct, DirectCall, DirectOp, Runtime};
use serde::{Deserialize, Serialize};

use super::collective::{Arguments, Mode, Operation};
use super::{data, machine};
use crate::cli::{gather, settings};

/// Bytes that a rank writes or reads at a time where it touches a whole buffer: they stay in its first-level cache.
pub(super) const CHUNK: u64 = 32 << 10;

/// How long one sample and all samples of a size take, unless the number of operations is given.
const SAMPLE: Duration = Duration::from_micros(400);
const BUDGET: Duration = Duration::from_millis(250);

/// What the ranks found for one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Bytes of the larger of a rank's two buffers.
    pub(super) bytes: u64,
    /// Microseconds of one operation: the median over the samples of the slowest rank of each.
    pub(super) us: f64,
    /// How many elements had a wrong value, on all ranks together.
    pub(super) wrong: u64,
    /// Operations measured.
    pub(super) iterations: u64,
}

/// The buffers and calls of one size.
struct Case<'a> {
    direct: &'a Direct,
    arguments: &'a Arguments,
    operation: Operation,
    rank: u32,
    ranks: u32,
    /// Elements of the larger buffer.
    count: u64,
    call: DirectCall,
    barrier: DirectCall,
    input: Array,
    output: Array,
    /// Where in its array the input begins, in bytes, and how long it is.
    from: u64,
    input_bytes: u64,
    to: u64,
    output_bytes: u64,
    chunk: Vec<u8>,
}

/// Measures every size. All ranks return the same figures.
///
/// # Errors
/// What the runtime and the library report.
pub(super) fn run(
    operation: Operation,
    arguments: &Arguments,
    sizes: &[u64],
) -> Result<Vec<Measured>> {
    let runtime = crate::init(&settings(None)?)?;
    let world: Vec<u32> = (0..runtime.world_size()).collect();
    let direct = Direct::connect(&runtime, &Group::new("world", world))?;
    // Other libraries' launchers tie ranks to cores as well.
    let cores = machine::cores();
    machine::pin(cores[runtime.rank() as usize % cores.len()]);
    let mut rows = Vec::new();
    for &bytes in sizes {
        let case = Case::new(&runtime, &direct, operation, arguments, bytes)?;
        rows.push(case.measure(&runtime, bytes)?);
    }
    Ok(rows)
}

impl<'a> Case<'a> {
    fn new(
        runtime: &Runtime,
        direct: &'a Direct,
        operation: Operation,
        arguments: &'a Arguments,
        bytes: u64,
    ) -> Result<Case<'a>> {
        use Operation as O;
        let (rank, ranks, dtype) = (runtime.rank(), runtime.world_size(), arguments.dtype);
        let count = operation.elements(bytes, dtype, ranks);
        let block = count / u64::from(ranks);
        let (op, per_call) = match operation {
            O::AllReduce => (DirectOp::AllReduce(ReduceOp::Sum), count),
            O::AllGather => (DirectOp::AllGather, block),
            O::ReduceScatter => (DirectOp::ReduceScatter(ReduceOp::Sum), block),
            O::AllToAll => (DirectOp::AllToAll, block),
            O::Broadcast => (DirectOp::Broadcast { root: 0 }, count),
        };
        let element = dtype.bytes();
        let (input_bytes, output_bytes) = match operation {
            O::AllGather => (block * element, count * element),
            O::ReduceScatter => (count * element, block * element),
            _ => (count * element, count * element),
        };
        let own = u64::from(rank) * block * element;
        let output = runtime.empty(DType::U8, &[count * element])?;
        let shared = operation == O::Broadcast || arguments.in_place;
        let (input, from, to) = match (shared, operation) {
            (false, _) => (runtime.empty(DType::U8, &[count * element])?, 0, 0),
            (true, O::AllGather) => (output.clone(), own, 0),
            (true, O::ReduceScatter) => (output.clone(), 0, own),
            (true, _) => (output.clone(), 0, 0),
        };
        Ok(Case {
            direct,
            arguments,
            operation,
            rank,
            ranks,
            count,
            call: DirectCall::new(op, dtype, per_call)?,
            barrier: DirectCall::new(DirectOp::Barrier, dtype, 0)?,
            input,
            output,
            from,
            input_bytes,
            to,
            output_bytes,
            chunk: data::buffer(dtype, CHUNK / element, |index| data::value(rank, index, 0)),
        })
    }

    fn queue(&self) -> Result<()> {
        let (from, to) = ((&self.input, self.from), (&self.output, self.to));
        Ok(self.direct.queue(&self.call, from, to)?)
    }

    fn meet(&self) -> Result<()> {
        let nothing = (&self.output, 0);
        self.direct.queue(&self.barrier, nothing, nothing)?;
        Ok(self.direct.synchronize()?)
    }

    /// Whether this rank's input counts: only the root's does in a broadcast.
    fn contributes(&self) -> bool {
        self.operation != Operation::Broadcast || self.rank == 0
    }

    /// Writes the whole input anew.
    fn rewrite(&self) -> Result<()> {
        if self.contributes() {
            for start in (0..self.input_bytes).step_by(CHUNK as usize) {
                let bytes = CHUNK.min(self.input_bytes - start) as usize;
                let (to, chunk) = (self.from + start, &self.chunk[..bytes]);
                self.direct.write(&self.input, to, chunk)?;
            }
        }
        Ok(())
    }

    /// Reads the whole result.
    fn read_out(&self, room: &mut [u8]) -> Result<()> {
        for start in (0..self.output_bytes).step_by(CHUNK as usize) {
            let bytes = CHUNK.min(self.output_bytes - start) as usize;
            self.direct
                .read(&self.output, self.to + start, &mut room[..bytes])?;
        }
        std::hint::black_box(room);
        Ok(())
    }

    /// Microseconds of one operation, the mean over `batch` of them.
    fn sample(&self, batch: u64) -> Result<f64> {
        self.meet()?;
        let mut room = vec![0; CHUNK as usize];
        let mut spent = Duration::ZERO;
        let whole = Instant::now();
        for _ in 0..batch {
            match self.arguments.mode {
                Mode::Reused => {
                    self.queue()?;
                    if self.arguments.synchronize {
                        self.direct.synchronize()?;
                    }
                }
                Mode::Owned => {
                    self.rewrite()?;
                    self.meet()?;
                    let begin = Instant::now();
                    self.queue()?;
                    self.direct.synchronize()?;
                    spent += begin.elapsed();
                }
                Mode::Whole => {
                    self.rewrite()?;
                    self.queue()?;
                    self.direct.synchronize()?;
                    self.read_out(&mut room)?;
                }
            }
        }
        self.direct.synchronize()?;
        if self.arguments.mode != Mode::Owned {
            spent = whole.elapsed();
        }
        Ok(spent.as_secs_f64() * 1e6 / batch as f64)
    }

    /// Runs once on values that tell where they come from, and counts the wrong elements of this rank's result.
    fn check(&self, salt: u64) -> Result<u64> {
        use Operation as O;
        let (dtype, element) = (self.arguments.dtype, self.arguments.dtype.bytes());
        let (block, all) = (self.count / u64::from(self.ranks), 0..self.ranks);
        if self.contributes() {
            let elements = self.input_bytes / element;
            let values = data::buffer(dtype, elements, |index| data::value(self.rank, index, salt));
            self.direct.write(&self.input, self.from, &values)?;
        }
        self.meet()?;
        self.queue()?;
        self.direct.synchronize()?;
        let sum = |index: u64| all.clone().map(|rank| data::value(rank, index, salt)).sum();
        let source = |index: u64| (index / block) as u32;
        let own = u64::from(self.rank) * block;
        let right = |index: u64| match self.operation {
            O::AllReduce => sum(index),
            O::ReduceScatter => sum(own + index),
            O::AllGather => data::value(source(index), index % block, salt),
            O::AllToAll => data::value(source(index), own + index % block, salt),
            O::Broadcast => data::value(0, index, salt),
        };
        let right = data::buffer(dtype, self.output_bytes / element, right);
        let mut got = vec![0; self.output_bytes as usize];
        self.direct.read(&self.output, self.to, &mut got)?;
        let elements = |bytes: &[u8]| {
            bytes
                .chunks(element as usize)
                .map(<[u8]>::to_vec)
                .collect::<Vec<_>>()
        };
        let wrong = match got == right {
            true => 0,
            false => elements(&got)
                .iter()
                .zip(elements(&right))
                .filter(|(got, right)| **got != *right)
                .count(),
        };
        self.meet()?;
        Ok(wrong as u64)
    }

    fn measure(&self, runtime: &Runtime, bytes: u64) -> Result<Measured> {
        let mut wrong = self.check(bytes)?;
        let arguments = self.arguments;
        self.sample(arguments.warmup.max(1))?;
        let estimate = self.sample(3)?;
        let name = |what: &str| format!("bench/{what} {bytes}");
        let slowest = gather(runtime, &name("estimate"), &estimate)?
            .into_iter()
            .fold(0.05, f64::max);
        let mut batch = (SAMPLE.as_secs_f64() * 1e6 / slowest).clamp(1.0, 200.0) as u64;
        let budget = BUDGET.as_secs_f64() * 1e6 / (slowest * batch as f64);
        let mut samples = budget.clamp(7.0, 400.0) as u64;
        if let Some(iterations) = arguments.iterations {
            batch = batch.min(iterations);
            samples = iterations.div_ceil(batch);
        }
        let own = (0..samples)
            .map(|_| self.sample(batch))
            .collect::<Result<Vec<f64>>>()?;
        wrong += self.check(!bytes)?;
        let all = gather(runtime, &name("samples"), &(own, wrong))?;
        let mut slowest: Vec<f64> = (0..samples as usize)
            .map(|at| all.iter().map(|(own, _)| own[at]).fold(0.0, f64::max))
            .collect();
        slowest.sort_by(f64::total_cmp);
        Ok(Measured {
            bytes,
            us: slowest[slowest.len() / 2],
            wrong: all.iter().map(|(_, wrong)| wrong).sum(),
            iterations: batch * samples,
        })
    }
}
