//! Tensors whose device memory belongs to someone else: another framework, another library.
//!
//! A dense row-major foreign tensor is used where it lies: nothing is copied, and what a collective
//! writes is in the owner's memory. Any other layout is packed into dense memory before each use
//! and unpacked after each write, element by element as its strides say; the bytes between its
//! elements are never sent, and keep their values.

#![expect(
    unsafe_code,
    reason = "wraps device memory that this crate did not allocate"
)]

use crate::rank::Rank;
use crate::{DType, Error, Tensor};
use hcom_ir::{Attrs, Element, Op};
use hcom_runtime::{Array, Runtime};
use rustc_hash::FxHashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// A tensor in device memory that belongs to its implementor.
///
/// # Safety
/// For as long as the value exists:
/// - all four methods return the same as before;
/// - [`pointer`](DeviceTensor::pointer) is memory of the device that this rank uses, aligned for
///   the element type, and the smallest range that holds all elements (`pointer + strides · index`, in elements, over all
///   indices within the shape) lies in one allocation;
/// - nobody else writes that range while an operation of this crate that reads or writes the
///   tensor runs, nor reads it while one that writes it does.
pub unsafe trait DeviceTensor: Send + Sync {
    /// Device address of the element whose indices are all 0.
    fn pointer(&self) -> *mut c_void;
    /// Element type.
    fn dtype(&self) -> DType;
    /// Sizes in elements, outermost first.
    fn shape(&self) -> &[u64];
    /// Distance between neighbours along each dimension, in elements; may be 0 or negative.
    fn strides(&self) -> &[i64];
}

/// A foreign tensor as this crate uses it.
pub(crate) struct Foreign {
    owner: Arc<dyn DeviceTensor>,
    memory: Memory,
}

enum Memory {
    /// The owner's memory itself.
    Dense(Array),
    /// The owner's memory, of which the tensor is a part.
    Strided(Box<Strided>),
}

struct Strided {
    runtime: Runtime,
    /// All memory from the first to the last element, as a vector.
    range: Array,
    /// For each element of the tensor, its position in the range.
    positions: Array,
    /// The way back; `None` if a position belongs to several elements.
    inverse: Option<Inverse>,
}

struct Inverse {
    /// For each position in the range, the element there, or 0.
    elements: Array,
    /// For each position in the range, whether an element is there.
    inside: Array,
}

impl Tensor {
    /// A tensor over foreign memory, which it keeps alive. In-place operations write that memory.
    ///
    /// # Errors
    /// [`Error::Foreign`] if there is not one stride per dimension or the range is larger than the
    /// address space; [`Error::NotInitialized`]; [`Error::Runtime`].
    pub fn from_device(tensor: impl DeviceTensor + 'static) -> Result<Tensor, Error> {
        let rank = Rank::current()?;
        let runtime = rank.runtime("a foreign tensor")?;
        Ok(Tensor::from_foreign(Foreign::new(
            runtime,
            Arc::new(tensor),
        )?))
    }
}

impl Foreign {
    fn new(runtime: &Runtime, owner: Arc<dyn DeviceTensor>) -> Result<Foreign, Error> {
        let (dtype, shape, strides) = (owner.dtype(), owner.shape(), owner.strides());
        let refuse = |reason| Error::Foreign {
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            reason,
        };
        if shape.len() != strides.len() {
            return Err(refuse("there must be one stride per dimension"));
        }
        let memory = if is_dense(shape, strides) {
            // SAFETY: the implementor of `DeviceTensor` guarantees that the memory of all elements,
            // which without gaps is `shape` elements from `pointer`, stays valid and is ours to use
            // while `owner`, which the array keeps, exists.
            Memory::Dense(unsafe {
                Array::from_raw(
                    runtime,
                    owner.pointer(),
                    dtype,
                    shape,
                    Box::new(Arc::clone(&owner)),
                )?
            })
        } else {
            let (positions, low, length) =
                positions(shape, strides).ok_or_else(|| refuse("its range has no size"))?;
            let bytes = i64::try_from(dtype.bytes()).unwrap_or(i64::MAX);
            let start = low
                .checked_mul(bytes)
                .and_then(|offset| isize::try_from(offset).ok())
                .ok_or_else(|| refuse("its range has no size"))?;
            let first = owner.pointer().wrapping_byte_offset(start);
            // SAFETY: `first` and `length` are the smallest range that holds all elements, of which
            // the implementor guarantees the same as above.
            let range = unsafe {
                Array::from_raw(
                    runtime,
                    first,
                    dtype,
                    &[length],
                    Box::new(Arc::clone(&owner)),
                )?
            };
            Memory::Strided(Box::new(Strided::new(runtime, range, &positions)?))
        };
        Ok(Foreign { owner, memory })
    }

    pub(crate) fn dtype(&self) -> DType {
        self.owner.dtype()
    }

    pub(crate) fn shape(&self) -> &[u64] {
        self.owner.shape()
    }

    /// Whether it can be written: no two elements share memory.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        match &self.memory {
            Memory::Strided(strided) if strided.inverse.is_none() => Err(Error::Foreign {
                shape: self.shape().to_vec(),
                strides: self.owner.strides().to_vec(),
                reason: "it cannot be written: elements overlap",
            }),
            _ => Ok(()),
        }
    }

    /// The elements in dense memory: the owner's if that is dense.
    pub(crate) fn read(&self) -> Result<Array, Error> {
        let strided = match &self.memory {
            Memory::Dense(array) => return Ok(array.clone()),
            Memory::Strided(strided) => strided,
        };
        let attrs = Attrs::new().with("dim", 0);
        let packed = strided.run(Op::Gather, attrs, &[&strided.range, &strided.positions])?;
        let attrs = Attrs::new().with("shape", self.shape());
        strided.run(Op::Reshape, attrs, &[&packed])
    }

    /// Puts the elements of `array`, which [`Foreign::read`] returned, where they belong.
    pub(crate) fn write(&self, array: &Array) -> Result<(), Error> {
        self.check_writable()?;
        let Memory::Strided(strided) = &self.memory else {
            return Ok(());
        };
        let Some(inverse) = &strided.inverse else {
            return Ok(());
        };
        let length: u64 = self.shape().iter().product();
        let flat = Attrs::new().with("shape", vec![length]);
        let flat = strided.run(Op::Reshape, flat, &[array])?;
        let attrs = Attrs::new().with("dim", 0);
        let spread = strided.run(Op::Gather, attrs, &[&flat, &inverse.elements])?;
        let operands = [&inverse.inside, &spread, &strided.range];
        let merged = strided.run(Op::Where, Attrs::new(), &operands)?;
        let operands = [&merged, &strided.range];
        strided
            .runtime
            .eager(Op::CopyToInput, &Attrs::new(), None, &operands)?;
        Ok(())
    }
}

impl Strided {
    fn new(runtime: &Runtime, range: Array, positions: &[i64]) -> Result<Strided, Error> {
        let mut element_at: FxHashMap<i64, i64> = FxHashMap::default();
        for (element, position) in (0..).zip(positions) {
            element_at.insert(*position, element);
        }
        let vector = |elements: &[i64]| upload(runtime, elements);
        let inverse = if element_at.len() == positions.len() {
            let at: Vec<Option<&i64>> = (0i64..)
                .zip(0..range.shape()[0])
                .map(|(position, _)| element_at.get(&position))
                .collect();
            let elements: Vec<i64> = at.iter().map(|at| at.copied().unwrap_or(0)).collect();
            let inside: Vec<bool> = at.iter().map(Option::is_some).collect();
            Some(Inverse {
                elements: vector(&elements)?,
                inside: upload(runtime, &inside)?,
            })
        } else {
            None
        };
        Ok(Strided {
            runtime: runtime.clone(),
            range,
            positions: vector(positions)?,
            inverse,
        })
    }

    fn run(&self, op: Op, attrs: Attrs, operands: &[&Array]) -> Result<Array, Error> {
        let mut results = self.runtime.eager(op, &attrs, None, operands)?;
        Ok(results.swap_remove(0))
    }
}

fn upload<T: Element>(runtime: &Runtime, elements: &[T]) -> Result<Array, Error> {
    let mut bytes = Vec::new();
    for element in elements {
        element.write_le(&mut bytes);
    }
    Ok(runtime.array(T::DTYPE, &[elements.len() as u64], &bytes)?)
}

/// Whether the elements lie one after the other in row-major order. Strides of dimensions of size
/// 1 mean nothing, and without elements none do.
fn is_dense(shape: &[u64], strides: &[i64]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1i64;
    for (size, stride) in shape.iter().zip(strides).rev() {
        if *size != 1 && *stride != expected {
            return false;
        }
        expected = expected.saturating_mul(i64::try_from(*size).unwrap_or(i64::MAX));
    }
    true
}

/// For each element in row-major order its position in the range; the distance from the element
/// with indices 0 to the start of the range; the range's length. All in elements; `None` on
/// overflow.
fn positions(shape: &[u64], strides: &[i64]) -> Option<(Vec<i64>, i64, u64)> {
    let (mut low, mut high) = (0i64, 0i64);
    for (size, stride) in shape.iter().zip(strides) {
        let reach = i64::try_from(size.checked_sub(1)?)
            .ok()?
            .checked_mul(*stride)?;
        if reach < 0 {
            low = low.checked_add(reach)?;
        } else {
            high = high.checked_add(reach)?;
        }
    }
    let mut offsets = vec![-low];
    for (size, stride) in shape.iter().zip(strides) {
        let size = i64::try_from(*size).ok()?;
        offsets = offsets
            .iter()
            .flat_map(|offset| (0..size).map(move |index| offset + index * stride))
            .collect();
    }
    let length = high.checked_sub(low)?.checked_add(1)?;
    Some((offsets, low, u64::try_from(length).ok()?))
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign")
            .field("dtype", &self.dtype())
            .field("shape", &self.shape())
            .field("strides", &self.owner.strides())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceTensor, is_dense, positions};
    use crate::{Collectives, Config, DType, ReduceOp, Root, Tensor, compile, dist};
    use hcom_runtime::{Array, Runtime, Settings};
    use std::ffi::c_void;
    use std::time::Duration;

    /// Part of an array, from element `start` on.
    struct Part {
        base: Array,
        start: usize,
        shape: Vec<u64>,
        strides: Vec<i64>,
    }

    impl Part {
        fn tensor(base: &Array, start: usize, shape: &[u64], strides: &[i64]) -> Tensor {
            Tensor::from_device(Part {
                base: base.clone(),
                start,
                shape: shape.to_vec(),
                strides: strides.to_vec(),
            })
            .unwrap()
        }
    }

    // SAFETY: the array keeps its memory; the parts taken in these tests lie inside it, and nothing
    // else uses it while an operation runs.
    unsafe impl DeviceTensor for Part {
        fn pointer(&self) -> *mut c_void {
            let bytes = usize::try_from(self.dtype().bytes()).unwrap();
            self.base.ptr().wrapping_byte_add(self.start * bytes)
        }

        fn dtype(&self) -> DType {
            self.base.dtype()
        }

        fn shape(&self) -> &[u64] {
            &self.shape
        }

        fn strides(&self) -> &[i64] {
            &self.strides
        }
    }

    fn array(values: &[f32], shape: &[u64]) -> Array {
        let tensor = Tensor::from_slice(values, shape).unwrap();
        tensor.to_array().unwrap()
    }

    fn read(array: &Array) -> Vec<f32> {
        Tensor::from_array(array.clone()).to_vec().unwrap()
    }

    fn on_two_ranks(f: impl Fn(u32) + Send + Sync + 'static) {
        let limit = Duration::from_secs(60);
        hcom_test::ranks(2, hcom_test::Kind::Threads, limit, move |rank| {
            hcom_sys::register_fallback(hcom_fake::table());
            let settings = Settings::from_env().unwrap();
            let runtime = Runtime::with_control(rank.control(), rank.rank(), &settings).unwrap();
            dist::init_with(runtime);
            f(rank.rank());
            dist::finalize();
        });
    }

    #[test]
    fn a_strided_column_is_sent_and_the_rest_stays() {
        on_two_ranks(|rank| {
            let values = if rank == 0 {
                [1.0, 9.0, 2.0, 9.0]
            } else {
                [0.0, 7.0, 0.0, 7.0]
            };
            let rest = if rank == 0 { 9.0 } else { 7.0 };
            let broadcast = |x: &[Tensor]| {
                dist::broadcast(&mut x[0].clone(), Root::Global(0), &dist::world()?)?;
                Ok(Vec::new())
            };
            for collectives in [Collectives::Recorded, Collectives::Cut] {
                let base = array(&values, &[2, 2]);
                let column = Part::tensor(&base, 0, &[2], &[2]);
                let config = Config {
                    collectives,
                    ..Config::default()
                };
                compile(broadcast, config)
                    .call(std::slice::from_ref(&column))
                    .unwrap();
                assert_eq!(read(&base), [1.0, rest, 2.0, rest]);
                assert_eq!(column.to_vec::<f32>().unwrap(), [1.0, 2.0]);
            }
            let base = array(&values, &[2, 2]);
            broadcast(&[Part::tensor(&base, 0, &[2], &[2])]).unwrap();
            assert_eq!(read(&base), [1.0, rest, 2.0, rest]);
        });
    }

    #[test]
    fn other_layouts_are_read_and_written_as_they_are_seen() {
        on_two_ranks(|rank| {
            let scale = if rank == 0 { 1.0 } else { 10.0 };
            let values: Vec<f32> = (0u8..6).map(|i| f32::from(i) * scale).collect();
            let sum = |start, shape: &[u64], strides: &[i64]| {
                let base = array(&values, &[6]);
                let mut part = Part::tensor(&base, start, shape, strides);
                let seen: Vec<f32> = part.to_vec().unwrap();
                dist::all_reduce(&mut part, ReduceOp::Sum, &dist::world().unwrap()).unwrap();
                let seen: Vec<f32> = seen.iter().map(|x| x / scale).collect();
                (seen, read(&base))
            };
            let own = |index: usize| values[index];
            // Dense, inside the base: its own memory is written.
            let (seen, base) = sum(2, &[2], &[1]);
            assert_eq!(seen, [2.0, 3.0]);
            assert_eq!(base, [own(0), own(1), 22.0, 33.0, own(4), own(5)]);
            // Transposed, then reversed.
            let (seen, base) = sum(0, &[3, 2], &[1, 3]);
            assert_eq!(seen, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
            assert_eq!(base, [0.0, 11.0, 22.0, 33.0, 44.0, 55.0]);
            let (seen, base) = sum(5, &[3], &[-2]);
            assert_eq!(seen, [5.0, 3.0, 1.0]);
            assert_eq!(base, [own(0), 11.0, own(2), 33.0, own(4), 55.0]);
        });
    }

    #[test]
    fn overlapping_elements_are_read_but_not_written() {
        on_two_ranks(|_| {
            let base = array(&[3.0], &[1]);
            let mut twice = Part::tensor(&base, 0, &[2], &[0]);
            assert_eq!(twice.to_vec::<f32>().unwrap(), [3.0, 3.0]);
            let error = twice.copy_(&twice.clone()).unwrap_err();
            assert!(error.to_string().ends_with("elements overlap"), "{error}");
            assert_eq!(read(&base), [3.0]);
        });
    }

    #[test]
    fn dense_layouts() {
        assert!(is_dense(&[2, 3], &[3, 1]));
        assert!(is_dense(&[], &[]));
        // A column of one element is dense whatever its stride; so is nothing at all.
        assert!(is_dense(&[1, 3], &[99, 1]));
        assert!(is_dense(&[2, 0], &[7, 7]));
        assert!(!is_dense(&[2, 3], &[1, 2]));
        assert!(!is_dense(&[2], &[2]));
        assert!(!is_dense(&[2], &[0]));
    }

    #[test]
    fn positions_count_from_the_start_of_the_range() {
        // The first column of a [2, 2] matrix.
        assert_eq!(positions(&[2], &[2]), Some((vec![0, 2], 0, 3)));
        // A transposed [2, 3] matrix.
        let transposed = vec![0, 3, 1, 4, 2, 5];
        assert_eq!(positions(&[3, 2], &[1, 3]), Some((transposed, 0, 6)));
        // A reversed vector: the element with index 0 is the last of the range.
        assert_eq!(positions(&[3], &[-1]), Some((vec![2, 1, 0], -2, 3)));
        // One element seen twice.
        assert_eq!(positions(&[2], &[0]), Some((vec![0, 0], 0, 1)));
        assert_eq!(positions(&[u64::MAX], &[2]), None);
    }
}
