//! `export`: the graph of a function, without running it.

use crate::rank::Rank;
use crate::recording::{Recorder, Rules};
use crate::scope::Scope;
use crate::sizes::Free;
use crate::{Error, Tensor};
use hcom_ir::Graph;

/// Records `f` as this rank and returns its graph, which prints as text.
///
/// The graph's inputs are `arguments` in their order, then the captured tensors in the order of
/// their first use. Nothing runs, so [placeholders](Tensor::placeholder) will do, on a rank
/// [without a device](crate::dist::init_abstract) too. Collectives are always recorded.
///
/// # Errors
/// What `f` returns; [`Error::Break`] if it reads data; [`Error::Recording`] inside a compiled
/// function; [`Error::NotInitialized`].
///
/// ```
/// use hcom_patch::{DType, Error, ReduceOp, Tensor, dist, export};
///
/// dist::init_abstract(0, 2)?;
/// let x = Tensor::placeholder(DType::F32, &[2, 3]).named("x");
/// let w = Tensor::placeholder(DType::F32, &[3, 4]).named("w");
/// let f = |inputs: &[Tensor]| {
///     let mut y = inputs[0].matmul(&w)?;
///     dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
///     Ok(vec![y])
/// };
/// let graph = export("mlp", f, &[x])?;
/// assert!(graph.to_string().contains("= all_reduce %"));
/// # Ok::<(), Error>(())
/// ```
pub fn export<F>(name: &str, f: F, arguments: &[Tensor]) -> Result<Graph, Error>
where
    F: FnOnce(&[Tensor]) -> Result<Vec<Tensor>, Error>,
{
    let rank = Rank::current()?;
    let place = (rank.rank, rank.world_size);
    let recorder = Recorder::new(name, place, Rules::default(), arguments, Free::new(), None);
    let marked = recorder.marked(arguments);
    let scope = Scope::open(recorder)?;
    let returned = f(&marked)?;
    Ok(scope.end().finish(&returned)?.piece.graph)
}
