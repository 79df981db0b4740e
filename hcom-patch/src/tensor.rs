//! The tensor a model computes with.
//!
//! A [`Tensor`] is a handle: clones are the same tensor. Operators have value semantics, each
//! returns a new tensor; only the collective calls of [`dist`](crate::dist) and [`Tensor::copy_`]
//! write a tensor in place, and every clone sees it. The element type and the shape never change.
//!
//! Outside a compiled function a tensor holds data on the device. Inside one it stands for a value
//! of the graph being recorded, and asking for its data ends the graph at that point, runs it, and
//! goes on with a new one.

use crate::foreign::Foreign;
use crate::rank::Rank;
use crate::{Error, eager, scope};
use hcom_ir::{Attrs, Dim, Element, Literal, Op, Type};
use hcom_runtime::Array;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use hcom_ir::DType;

/// A handle to a tensor on this rank's device, or to a value of the graph being recorded.
///
/// Dense and row-major. [`fmt::Display`] and [`fmt::Debug`] read the data, with the effect that has
/// inside a compiled function.
#[derive(Clone)]
pub struct Tensor {
    cell: Arc<TensorCell>,
    /// Set on handles that a recorded function was given as arguments.
    argument: Option<Arc<Argument>>,
}

/// What a handle is to the function that is called with it.
struct Argument {
    /// The capture that records the function.
    capture: scope::CaptureId,
    /// The tensor's type in the graph, where sizes may be symbols.
    ty: Type,
}

/// What all clones of a tensor share.
pub(crate) struct TensorCell {
    id: u64,
    ty: Type,
    shape: Vec<u64>,
    name: Mutex<Option<Arc<str>>>,
    state: Mutex<State>,
}

/// Where the elements are.
enum State {
    /// On the device, in memory no other tensor writes.
    Data(Array),
    /// In memory that belongs to someone else.
    Foreign(Arc<Foreign>),
    /// Nowhere yet: a value of the graph that this capture records.
    Recorded(scope::CaptureId),
    /// Nowhere: the tensor only has a type.
    Placeholder,
}

impl Tensor {
    fn new(ty: Type, state: State) -> Tensor {
        let shape = ty.shape.as_fixed().expect("a tensor's sizes are numbers");
        Tensor::with_shape(ty, shape, state)
    }

    fn with_shape(ty: Type, shape: Vec<u64>, state: State) -> Tensor {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Tensor {
            cell: Arc::new(TensorCell {
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                ty,
                shape,
                name: Mutex::new(None),
                state: Mutex::new(state),
            }),
            argument: None,
        }
    }

    /// A tensor over device memory. `array` and the tensor are the same memory: what a collective
    /// writes into the tensor appears in the array.
    pub fn from_array(array: Array) -> Tensor {
        let ty = Type::fixed(array.dtype(), array.shape());
        Tensor::new(ty, State::Data(array))
    }

    pub(crate) fn from_foreign(foreign: Foreign) -> Tensor {
        let ty = Type::fixed(foreign.dtype(), foreign.shape());
        Tensor::new(ty, State::Foreign(Arc::new(foreign)))
    }

    /// A value of a graph, with the sizes it has in the call that records it.
    pub(crate) fn recorded(ty: Type, shape: Vec<u64>, capture: scope::CaptureId) -> Tensor {
        Tensor::with_shape(ty, shape, State::Recorded(capture))
    }

    /// A tensor with a type and no data, as argument or captured parameter of a function to be
    /// [exported](crate::export()).
    pub fn placeholder(dtype: DType, shape: &[u64]) -> Tensor {
        Tensor::new(Type::fixed(dtype, shape), State::Placeholder)
    }

    /// A tensor of these elements, row-major. Inside a compiled function they are a constant of
    /// the graph.
    ///
    /// # Errors
    /// [`Error::Operation`] unless `shape` holds exactly `elements.len()` elements;
    /// [`Error::NotInitialized`]; [`Error::Runtime`] if the upload fails.
    #[track_caller]
    pub fn from_slice<T: Element>(elements: &[T], shape: &[u64]) -> Result<Tensor, Error> {
        Tensor::from_literal(Literal::from_slice(shape, elements)?)
    }

    /// A tensor of this constant data, as [`Tensor::from_slice`].
    ///
    /// # Errors
    /// As [`Tensor::from_slice`].
    #[track_caller]
    pub fn from_literal(literal: Literal) -> Result<Tensor, Error> {
        let location = Location::caller();
        scope::with_active(|recorder| match recorder {
            Some(recorder) => {
                let attrs = Attrs::new().with("value", Arc::new(literal));
                recorder.operator_1(Op::Constant, &[], attrs, location)
            }
            None => {
                let rank = Rank::current()?;
                let array = rank.runtime("a tensor's data")?.array(
                    literal.dtype,
                    &literal.shape,
                    &literal.bytes,
                )?;
                Ok(Tensor::from_array(array))
            }
        })
    }

    /// Gives the tensor the name that it has as a parameter of recorded graphs.
    #[must_use]
    pub fn named(self, name: impl Into<Arc<str>>) -> Tensor {
        *lock(&self.cell.name) = Some(name.into());
        self
    }

    /// The name given by [`Tensor::named`].
    pub fn name(&self) -> Option<Arc<str>> {
        lock(&self.cell.name).clone()
    }

    /// Element type and shape. In a function that is recorded for [several
    /// sizes](crate::Shapes), sizes may be symbols; otherwise they are numbers.
    pub fn ty(&self) -> &Type {
        match &self.argument {
            Some(argument) => &argument.ty,
            None => &self.cell.ty,
        }
    }

    /// The sizes of [`Tensor::ty`], outermost first.
    pub fn dims(&self) -> &[Dim] {
        self.ty().shape.dims()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.cell.ty.dtype
    }

    /// Sizes in elements, outermost first; empty for a scalar.
    ///
    /// A compiled function that reads sizes has graphs for these sizes only; with
    /// [`Tensor::dims`] it does not read them.
    pub fn shape(&self) -> &[u64] {
        let shape = &self.ty().shape;
        if shape.dims().iter().any(|size| size.as_fixed().is_none()) {
            scope::with_active(|recorder| {
                if let Some(recorder) = recorder {
                    recorder.read_sizes(shape);
                }
            });
        }
        &self.cell.shape
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.cell.shape.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape().iter().product()
    }

    /// Whether both handles are the same tensor.
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell)
    }

    /// The elements, row-major. Waits for them; inside a compiled function this breaks the graph.
    ///
    /// # Errors
    /// [`Error::ElementType`] unless `T` is the element type; [`Error::StaleHandle`] for a tensor
    /// of a capture that is over; [`Error::Break`] inside [`export`](crate::export());
    /// [`Error::Runtime`] if what computes the tensor failed.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        if T::DTYPE != self.dtype() {
            return Err(Error::ElementType {
                dtype: self.dtype(),
                asked: T::DTYPE,
            });
        }
        let literal = self.to_literal()?;
        Ok(literal.to_vec().expect("the element type was compared"))
    }

    /// The only element. Waits for it; inside a compiled function this breaks the graph.
    ///
    /// # Errors
    /// [`Error::NotOneElement`], and as [`Tensor::to_vec`].
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T, Error> {
        if self.elements() != 1 {
            return Err(Error::NotOneElement {
                ty: Box::new(self.ty().clone()),
                elements: self.elements(),
            });
        }
        Ok(self.to_vec()?[0])
    }

    /// The elements with their type. Waits for them; inside a compiled function this breaks the
    /// graph.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    #[track_caller]
    pub fn to_literal(&self) -> Result<Literal, Error> {
        let array = self.to_array()?;
        Ok(Literal {
            dtype: self.dtype(),
            shape: self.shape().to_vec(),
            bytes: array.to_host()?,
        })
    }

    /// The device memory of the tensor; a packed copy if the tensor is foreign and strided. Inside
    /// a compiled function this breaks the graph.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    #[track_caller]
    pub fn to_array(&self) -> Result<Array, Error> {
        let location = Location::caller();
        scope::with_active(|recorder| match recorder {
            Some(recorder) => recorder.break_graph("data is read", location),
            None => Ok(()),
        })?;
        self.data()
    }

    /// Copies the elements of `source` into this tensor, for all its clones to see.
    ///
    /// # Errors
    /// [`Error::CopyType`] unless both have the same element type and shape; [`Error::Foreign`] for
    /// a tensor whose elements overlap; otherwise as an operator.
    #[track_caller]
    pub fn copy_(&mut self, source: &Tensor) -> Result<(), Error> {
        if self.ty() != source.ty() {
            return Err(Error::CopyType {
                target: Box::new(self.ty().clone()),
                source_type: Box::new(source.ty().clone()),
            });
        }
        self.check_writable()?;
        let location = Location::caller();
        scope::with_active(|recorder| match recorder {
            Some(recorder) => recorder.copy(self, source, location),
            None => eager::copy(self, source),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.cell.id
    }

    pub(crate) fn cell(&self) -> &Arc<TensorCell> {
        &self.cell
    }

    /// Whether the handle was given to the function that `capture` records, rather than reached
    /// it by other ways.
    pub(crate) fn is_argument_of(&self, capture: scope::CaptureId) -> bool {
        self.argument
            .as_ref()
            .is_some_and(|argument| argument.capture == capture)
    }

    /// The same tensor, marked as an argument, of this type, of the function that `capture`
    /// records.
    pub(crate) fn as_argument_of(&self, capture: scope::CaptureId, ty: Type) -> Tensor {
        Tensor {
            cell: Arc::clone(&self.cell),
            argument: Some(Arc::new(Argument { capture, ty })),
        }
    }

    /// The same tensor without that mark.
    pub(crate) fn unmarked(&self) -> Tensor {
        Tensor::from_cell(Arc::clone(&self.cell))
    }

    pub(crate) fn from_cell(cell: Arc<TensorCell>) -> Tensor {
        Tensor {
            cell,
            argument: None,
        }
    }

    /// The capture that records the tensor, if it has no data yet.
    pub(crate) fn capture(&self) -> Option<scope::CaptureId> {
        match *lock(&self.cell.state) {
            State::Recorded(capture) => Some(capture),
            _ => None,
        }
    }

    /// The tensor's data as device memory that the runtime may read and, unless the tensor is
    /// foreign and strided, write.
    pub(crate) fn data(&self) -> Result<Array, Error> {
        let foreign = match &*lock(&self.cell.state) {
            State::Data(array) => return Ok(array.clone()),
            State::Foreign(foreign) => Arc::clone(foreign),
            State::Recorded(_) => {
                return Err(Error::StaleHandle {
                    ty: Box::new(self.ty().clone()),
                });
            }
            State::Placeholder => {
                return Err(Error::Placeholder {
                    ty: Box::new(self.ty().clone()),
                });
            }
        };
        foreign.read()
    }

    /// Refuses a tensor that no operation can write.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        match &*lock(&self.cell.state) {
            State::Foreign(foreign) => foreign.check_writable(),
            _ => Ok(()),
        }
    }

    /// Stores `array`, a copy of [`Tensor::data`] that has been written since, where the tensor's
    /// elements belong.
    pub(crate) fn written(&self, array: &Array) -> Result<(), Error> {
        let foreign = match &*lock(&self.cell.state) {
            State::Foreign(foreign) => Arc::clone(foreign),
            _ => return Ok(()),
        };
        foreign.write(array)
    }

    /// Gives a recorded tensor the data it stands for.
    pub(crate) fn resolve(&self, array: Array) {
        *lock(&self.cell.state) = State::Data(array);
    }
}

/// The state behind a lock; no code panics while it holds one, so poison means nothing here.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for Tensor {
    #[track_caller]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.ty())?;
        match self.to_literal() {
            Ok(literal) => elements(f, &literal, f.alternate()),
            Err(error) => write!(f, "<{error}>"),
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Writes nested lists; more than 16 entries of a list are cut to the first and last three unless
/// `all` are asked for.
fn elements(f: &mut fmt::Formatter<'_>, literal: &Literal, all: bool) -> fmt::Result {
    fn level(
        f: &mut fmt::Formatter<'_>,
        shape: &[u64],
        texts: &[String],
        all: bool,
    ) -> fmt::Result {
        let [size, inner @ ..] = shape else {
            return f.write_str(&texts[0]);
        };
        let size = usize::try_from(*size).unwrap_or(usize::MAX);
        let step = texts.len() / size.max(1);
        f.write_str("[")?;
        for index in 0..size {
            if index > 0 {
                f.write_str(", ")?;
            }
            if !all && size > 16 && index >= 3 && index < size - 3 {
                if index == 3 {
                    f.write_str("…")?;
                }
                continue;
            }
            level(f, inner, &texts[index * step..(index + 1) * step], all)?;
        }
        f.write_str("]")
    }
    level(f, &literal.shape, &texts(literal), all)
}

fn texts(literal: &Literal) -> Vec<String> {
    fn all<T: Element>(literal: &Literal, text: impl Fn(T) -> String) -> Vec<String> {
        literal
            .to_vec::<T>()
            .unwrap_or_default()
            .into_iter()
            .map(text)
            .collect()
    }
    match literal.dtype {
        DType::Bool => all(literal, |x: bool| x.to_string()),
        DType::I8 => all(literal, |x: i8| x.to_string()),
        DType::I16 => all(literal, |x: i16| x.to_string()),
        DType::I32 => all(literal, |x: i32| x.to_string()),
        DType::I64 => all(literal, |x: i64| x.to_string()),
        DType::U8 => all(literal, |x: u8| x.to_string()),
        DType::U16 => all(literal, |x: u16| x.to_string()),
        DType::U32 => all(literal, |x: u32| x.to_string()),
        DType::U64 => all(literal, |x: u64| x.to_string()),
        DType::F16 => all(literal, |x: half::f16| x.to_string()),
        DType::BF16 => all(literal, |x: half::bf16| x.to_string()),
        DType::F32 => all(literal, |x: f32| x.to_string()),
        DType::F64 => all(literal, |x: f64| x.to_string()),
        DType::C64 => all(literal, |[re, im]: [f32; 2]| format!("{re}{im:+}i")),
        DType::C128 => all(literal, |[re, im]: [f64; 2]| format!("{re}{im:+}i")),
    }
}
