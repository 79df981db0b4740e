//! Where the intermediate values of a plan live.
//!
//! Two buffers may share memory when one's last use happens before the other's first, in the order
//! that lanes and events guarantee rather than the order of issue. A collective writes into its
//! operand's buffer when nothing else needs it any more.

use crate::plan::{Root, Synchronisation, Tasks};

mod pack;

pub use pack::ALIGNMENT;

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// At this byte offset of the arena.
    Arena(u64),
    /// In the array that becomes this output.
    Output(usize),
}

/// The memory of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Home of each buffer of [`Tasks::buffers`].
    pub(crate) buffers: Vec<Home>,
    /// For each task, the arena offsets of its temporary buffers.
    pub(crate) scratch: Vec<Vec<u64>>,
    pub(crate) arena_bytes: u64,
    pub(crate) unshared_bytes: u64,
}

/// What shares one piece of memory: a buffer, with those that take it over in place.
#[derive(Clone, Debug)]
struct Slot {
    bytes: u64,
    /// The task that writes it first.
    first: usize,
    /// Every task that touches it.
    users: Vec<usize>,
}

impl Layout {
    pub(crate) fn new(
        tasks: &Tasks,
        order: &[usize],
        lane_of: &[usize],
        sync: &Synchronisation,
    ) -> Layout {
        let mut issued = vec![0; tasks.tasks.len()];
        for (at, &task) in order.iter().enumerate() {
            issued[task] = at;
        }
        let owner = share_in_place(tasks, order, lane_of, sync);
        let (slots, of_buffer, of_scratch) = slots(tasks, order, &owner);

        let lanes = sync.before.first().map_or(0, Vec::len);
        let last_use: Vec<Vec<u32>> = slots
            .iter()
            .map(|slot| {
                let mut clock = vec![0; lanes];
                for &user in &slot.users {
                    let lane = lane_of[user];
                    clock[lane] = clock[lane].max(sync.position[user]);
                }
                clock
            })
            .collect();
        // All uses of `a` have finished when `b` is first written.
        let precedes = |a: usize, b: usize| {
            let known = &sync.before[slots[b].first];
            last_use[a]
                .iter()
                .zip(known)
                .all(|(used, known)| used <= known)
        };
        // Without elements too: the library compares the addresses of operand and result.
        let sizes: Vec<u64> = slots.iter().map(|slot| slot.bytes.max(1)).collect();
        let first_use: Vec<usize> = slots.iter().map(|slot| issued[slot.first]).collect();
        let packing = pack::pack(&sizes, &first_use, |a, b| {
            !precedes(a, b) && !precedes(b, a)
        });

        let buffers = owner
            .iter()
            .enumerate()
            .map(|(buffer, owner)| match *owner {
                Root::Output(output) => Home::Output(output),
                _ => Home::Arena(of_buffer[buffer].map_or(0, |slot| packing.offsets[slot])),
            })
            .collect();
        let scratch = of_scratch
            .iter()
            .map(|slots| slots.iter().map(|&slot| packing.offsets[slot]).collect())
            .collect();
        Layout {
            buffers,
            scratch,
            arena_bytes: packing.bytes,
            unshared_bytes: sizes.iter().map(|&bytes| pack::aligned(bytes)).sum(),
        }
    }
}

/// For each buffer, the root whose memory it is part of: itself, the buffer that takes it over, or
/// the output that does.
fn share_in_place(
    tasks: &Tasks,
    order: &[usize],
    lane_of: &[usize],
    sync: &Synchronisation,
) -> Vec<Root> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); tasks.buffers.len()];
    for (index, task) in tasks.tasks.iter().enumerate() {
        for root in &task.operands {
            if let Root::Buffer(buffer) = *root {
                readers[buffer].push(index);
            }
        }
    }
    let mut taken_by: Vec<Option<Root>> = vec![None; tasks.buffers.len()];
    for &index in order {
        let task = &tasks.tasks[index];
        if !task.lowered.in_place {
            continue;
        }
        let (Root::Buffer(operand), result) = (task.operands[0], task.results[0]) else {
            continue;
        };
        let others_are_done = readers[operand]
            .iter()
            .all(|&reader| reader == index || sync.precedes(lane_of, reader, index));
        if others_are_done {
            taken_by[operand] = Some(result);
        }
    }
    (0..tasks.buffers.len())
        .map(|buffer| {
            let mut root = Root::Buffer(buffer);
            while let Root::Buffer(current) = root
                && let Some(next) = taken_by[current]
            {
                root = next;
            }
            root
        })
        .collect()
}

/// The slots of the arena, the slot of each buffer that has one, and those of each task's
/// temporary buffers.
fn slots(
    tasks: &Tasks,
    order: &[usize],
    owner: &[Root],
) -> (Vec<Slot>, Vec<Option<usize>>, Vec<Vec<usize>>) {
    let mut slots: Vec<Slot> = Vec::new();
    let mut of_owner: Vec<Option<usize>> = vec![None; owner.len()];
    let mut of_scratch = vec![Vec::new(); tasks.tasks.len()];
    // In order of issue, so that the first task to touch a slot is the one that writes it first.
    for &index in order {
        let task = &tasks.tasks[index];
        for root in task.results.iter().chain(&task.operands) {
            let Root::Buffer(buffer) = *root else {
                continue;
            };
            let Root::Buffer(leader) = owner[buffer] else {
                continue;
            };
            let slot = *of_owner[leader].get_or_insert_with(|| {
                slots.push(Slot {
                    bytes: tasks.buffers[leader],
                    first: index,
                    users: Vec::new(),
                });
                slots.len() - 1
            });
            slots[slot].users.push(index);
        }
        for &bytes in &task.lowered.scratch {
            of_scratch[index].push(slots.len());
            slots.push(Slot {
                bytes,
                first: index,
                users: vec![index],
            });
        }
    }
    let of_buffer = owner
        .iter()
        .map(|owner| match *owner {
            Root::Buffer(leader) => of_owner[leader],
            _ => None,
        })
        .collect();
    (slots, of_buffer, of_scratch)
}
