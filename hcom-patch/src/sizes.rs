//! Which sizes of a compiled function's arguments are symbols of its graph.
//!
//! A graph with symbols serves every call whose sizes meet its guards. A function that needs a size
//! as a number (it reads [`Tensor::shape`], or an operation cannot be typed without it) is recorded
//! again with that size fixed, and fixed it stays.

use crate::Tensor;
use crate::compile::Shapes;
use hcom_ir::{Bindings, Builder, Dim, Graph, Shape, SymbolId, Type};
use std::collections::{BTreeMap, BTreeSet};

/// A dimension of an argument: the argument's position, the dimension's.
pub(crate) type Place = (usize, usize);

/// The dimensions to be symbols in a recording.
pub(crate) type Free = BTreeSet<Place>;

/// What the calls so far have shown of the sizes.
#[derive(Default)]
pub(crate) struct Seen {
    last: Vec<Vec<u64>>,
    varied: Free,
    fixed: Free,
}

impl Seen {
    /// The dimensions that a recording for `arguments` makes symbols. Sizes of 0 and 1 never are,
    /// since operations treat them differently.
    pub(crate) fn choose(&mut self, shapes: &Shapes, arguments: &[Tensor]) -> Free {
        let sizes: Vec<Vec<u64>> = arguments.iter().map(|x| x.shape().to_vec()).collect();
        let comparable = self.last.len() == sizes.len();
        if comparable {
            for (argument, (before, now)) in self.last.iter().zip(&sizes).enumerate() {
                if before.len() == now.len() {
                    let pairs = before.iter().zip(now).enumerate();
                    let varied = pairs.filter(|(_, (before, now))| before != now);
                    self.varied.extend(varied.map(|(dim, _)| (argument, dim)));
                }
            }
        }
        let chosen: Free = match shapes {
            Shapes::Static => Free::new(),
            Shapes::Automatic => self.varied.clone(),
            Shapes::Dynamic(places) => places.iter().copied().collect(),
        };
        let large = |&(argument, dim): &Place| {
            let size = sizes.get(argument).and_then(|sizes| sizes.get(dim));
            size.is_some_and(|size| *size >= 2)
        };
        let chosen = chosen.difference(&self.fixed).copied();
        let chosen = chosen.filter(large).collect();
        self.last = sizes;
        chosen
    }

    /// Keeps these dimensions from being symbols from now on.
    pub(crate) fn fix(&mut self, places: &Free) {
        self.fixed.extend(places);
    }
}

/// The symbols of one recording: dimensions of equal size share one.
#[derive(Default)]
pub(crate) struct Symbols {
    free: Free,
    by_size: BTreeMap<u64, SymbolId>,
    bindings: Bindings,
    places: Vec<(Place, SymbolId)>,
    read: BTreeSet<SymbolId>,
}

impl Symbols {
    pub(crate) fn new(free: Free) -> Symbols {
        Symbols {
            free,
            ..Symbols::default()
        }
    }

    /// Whether every size is a number.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// The type of `tensor` as argument number `argument` of the function that `builder` records.
    pub(crate) fn declare(
        &mut self,
        builder: &mut Builder,
        argument: usize,
        tensor: &Tensor,
    ) -> Type {
        let mut dims = tensor.ty().shape.dims().to_vec();
        for (dim, size) in dims.iter_mut().enumerate() {
            let place = (argument, dim);
            let Some(number) = size.as_fixed().filter(|_| self.free.contains(&place)) else {
                continue;
            };
            let count = self.by_size.len();
            let symbol = *self
                .by_size
                .entry(number)
                .or_insert_with(|| builder.symbol(&format!("s{count}")));
            self.bindings.set(symbol, number);
            self.places.push((place, symbol));
            *size = Dim::symbol(symbol);
        }
        Type::new(tensor.dtype(), Shape::new(dims))
    }

    /// The sizes of `shape` in the recorded call.
    pub(crate) fn now(&self, shape: &Shape) -> Option<Vec<u64>> {
        shape.bind(&self.bindings).ok()?.as_fixed()
    }

    /// Notes that the function has read the sizes of `shape` as numbers.
    pub(crate) fn read(&mut self, shape: &Shape) {
        let terms = shape.dims().iter().flat_map(Dim::terms);
        self.read.extend(terms.map(|(symbol, _)| *symbol));
    }

    /// The dimensions whose symbols were read.
    pub(crate) fn places_read(&self) -> Free {
        let read = self
            .places
            .iter()
            .filter(|(_, symbol)| self.read.contains(symbol));
        read.map(|(place, _)| *place).collect()
    }
}

/// The values of `graph`'s symbols for arguments of the recorded `shapes`; none if a size or a guard
/// does not hold.
pub(crate) fn bind(graph: &Graph, shapes: &[Shape], arguments: &[Tensor]) -> Option<Bindings> {
    let mut bindings = Bindings::new();
    for (shape, argument) in shapes.iter().zip(arguments) {
        for (dim, size) in shape.dims().iter().zip(argument.ty().shape.dims()) {
            let size = size.as_fixed()?;
            match dim.terms() {
                [] if dim.as_fixed() == Some(size) => {}
                [(symbol, _)] if size >= 2 => match bindings.get(*symbol) {
                    None => bindings.set(*symbol, size),
                    Some(known) if known == size => {}
                    Some(_) => return None,
                },
                _ => return None,
            }
        }
    }
    let holds = |guard: &hcom_ir::Guard| guard.holds(&bindings) == Ok(true);
    graph.guards().iter().all(holds).then_some(bindings)
}
