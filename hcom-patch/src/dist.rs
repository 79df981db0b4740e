//! Ranks, groups and the collective calls.
//!
//! A call writes its tensor in place, as the tensor's clones see too. While a function is being
//! compiled the call is recorded instead; which of the two happens is decided in one place, behind
//! one crate-internal trait with an eager and a recording implementation.
//!
//! Ranks within a group are *group ranks*; [`Root`] says which of the two is meant.

use crate::rank::Rank;
use crate::{Error, Tensor, eager, scope};
use hcom_convert::Call;
use hcom_runtime::{Runtime, Settings};
use rustc_hash::FxHasher;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::panic::Location;
use std::sync::Arc;

mod calls;
mod transfers;
mod work;

pub use calls::{
    all_gather, all_gather_into_tensor, all_gather_into_tensor_coalesced,
    all_gather_into_tensor_uneven, all_reduce, all_reduce_coalesced, all_to_all, all_to_all_single,
    all_to_all_single_dims, barrier, broadcast, gather, reduce, reduce_scatter,
    reduce_scatter_tensor, reduce_scatter_tensor_coalesced, reduce_scatter_tensor_uneven, scatter,
};
pub use hcom_convert::{Peer, Reduction, Root};
pub use hcom_ir::ReduceOp;
pub use transfers::{Transfer, batch_isend_irecv, irecv, isend, recv, send};
pub use work::{Work, start};

/// The collective calls, run now or recorded.
pub(crate) trait CollectiveCalls {
    /// Makes `call` over `group`: reads `operands` and writes `targets`, which are the same tensor
    /// in an in-place call.
    fn collective(
        &mut self,
        call: &Call,
        targets: &[&Tensor],
        operands: &[&Tensor],
        group: &Group,
        location: &'static Location<'static>,
    ) -> Result<(), Error>;
}

/// An ordered set of ranks of the world that communicate with each other. Cheap to clone.
///
/// Making a group involves no communication, so its members may make it while other ranks do
/// something else; groups of the same ranks in the same order are one group.
#[derive(Clone, PartialEq, Eq)]
pub struct Group(Arc<hcom_ir::Group>);

impl Group {
    /// The name it has in graphs and errors.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its ranks within the world, in group order.
    pub fn ranks(&self) -> &[u32] {
        &self.0.ranks
    }

    /// Number of ranks in it.
    pub fn group_size(&self) -> u32 {
        self.0.group_size()
    }

    /// The group rank of a rank of the world, if it is a member.
    pub fn rank_of(&self, global_rank: u32) -> Option<u32> {
        self.0.rank_of(global_rank)
    }

    /// The group as graphs hold it.
    pub(crate) fn as_ir(&self) -> &hcom_ir::Group {
        &self.0
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Makes this thread a rank of the world that the environment describes (`RANK`, `WORLD_SIZE`,
/// `MASTER_ADDR`, `MASTER_PORT`, or `RANK_TABLE_FILE`; none of them: a world of one), and returns
/// its runtime.
///
/// # Errors
/// [`Error::Runtime`] if the environment is incomplete, a peer does not appear in time, or no
/// device library is found.
pub fn init(settings: &Settings) -> Result<Runtime, Error> {
    let runtime = Runtime::start(settings)?;
    init_with(runtime.clone());
    Ok(runtime)
}

/// Makes this thread the rank that `runtime` belongs to.
pub fn init_with(runtime: Runtime) {
    let (rank, world_size) = (runtime.rank(), runtime.world_size());
    Rank::set(Some(Rank::new(rank, world_size, Some(runtime))));
}

/// Makes this thread a rank without a device, which can record and [`export`](crate::export())
/// functions of [placeholders](Tensor::placeholder), but run nothing.
///
/// # Errors
/// [`Error::Group`] unless `rank` is below `world_size`.
pub fn init_abstract(rank: u32, world_size: u32) -> Result<(), Error> {
    if rank >= world_size {
        return Err(Error::Group {
            ranks: vec![rank],
            world_size,
            reason: "a rank is below the size of the world",
        });
    }
    Rank::set(Some(Rank::new(rank, world_size, None)));
    Ok(())
}

/// Ends this thread's being a rank. Tensors stay valid as long as they are held.
pub fn finalize() {
    Rank::set(None);
}

/// The runtime of this rank.
///
/// # Errors
/// [`Error::NotInitialized`]; [`Error::NoDevice`] after [`init_abstract`].
pub fn runtime() -> Result<Runtime, Error> {
    Ok(Rank::current()?.runtime("the runtime")?.clone())
}

/// This rank, within the world.
///
/// # Errors
/// [`Error::NotInitialized`].
pub fn rank() -> Result<u32, Error> {
    Ok(Rank::current()?.rank)
}

/// Number of ranks in the world.
///
/// # Errors
/// [`Error::NotInitialized`].
pub fn world_size() -> Result<u32, Error> {
    Ok(Rank::current()?.world_size)
}

/// The group of all ranks.
///
/// # Errors
/// [`Error::NotInitialized`].
pub fn world() -> Result<Group, Error> {
    let ranks: Vec<u32> = (0..Rank::current()?.world_size).collect();
    Ok(group("world".to_owned(), ranks))
}

/// The group of these ranks of the world, in this order. Its name follows from the ranks.
///
/// # Errors
/// [`Error::Group`] if a rank is not in the world or occurs twice, or if there is none;
/// [`Error::NotInitialized`].
pub fn new_group(ranks: &[u32]) -> Result<Group, Error> {
    let world = world()?;
    let refuse = |reason| Error::Group {
        ranks: ranks.to_vec(),
        world_size: world.group_size(),
        reason,
    };
    if ranks.is_empty() {
        return Err(refuse("a group needs a member"));
    }
    if ranks.iter().any(|rank| *rank >= world.group_size()) {
        return Err(refuse("a rank is not in the world"));
    }
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != ranks.len() {
        return Err(refuse("a rank occurs twice"));
    }
    if ranks == world.ranks() {
        return Ok(world);
    }
    Ok(group(name(ranks), ranks.to_vec()))
}

/// A name of at most 63 characters that only these ranks in this order have.
fn name(ranks: &[u32]) -> String {
    if let [first, second, .., last] = ranks
        && let Some(step) = second.checked_sub(*first)
        && ranks
            .windows(2)
            .all(|pair| pair[1].checked_sub(pair[0]) == Some(step))
    {
        return match step {
            1 => format!("ranks_{first}_to_{last}"),
            _ => format!("ranks_{first}_to_{last}_by_{step}"),
        };
    }
    let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let name = format!("ranks_{}", list.join("_"));
    if name.len() < 64 {
        return name;
    }
    let mut hasher = FxHasher::default();
    ranks.hash(&mut hasher);
    format!(
        "ranks_{}_from_{}_{:016x}",
        ranks.len(),
        ranks[0],
        hasher.finish()
    )
}

fn group(name: String, ranks: Vec<u32>) -> Group {
    Group(Arc::new(hcom_ir::Group { name, ranks }))
}

/// Runs or records `call`.
#[track_caller]
fn dispatch(
    call: &Call,
    targets: &[&Tensor],
    operands: &[&Tensor],
    group: &Group,
) -> Result<(), Error> {
    for target in targets {
        target.check_writable()?;
    }
    let location = Location::caller();
    scope::with_active(|recorder| match recorder {
        Some(recorder) => recorder.collective(call, targets, operands, group, location),
        None => eager::Eager.collective(call, targets, operands, group, location),
    })
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn groups_are_named_after_their_ranks() {
        assert_eq!(name(&[2]), "ranks_2");
        assert_eq!(name(&[3, 1]), "ranks_3_1");
        assert_eq!(name(&[1, 2, 3]), "ranks_1_to_3");
        assert_eq!(name(&[0, 2, 4, 6]), "ranks_0_to_6_by_2");
        assert_eq!(name(&[0, 2, 3]), "ranks_0_2_3");
        assert_eq!(name(&[3, 2, 1]), "ranks_3_2_1");
    }
}
