//! Which lane executes what.
//!
//! Lane 0 computes. Where the mode overlaps, each communicator has a lane of its own, because a
//! communicator must be used by one stream only; in the other modes everything is on lane 0.

use hcom_ir::{CostModel, Graph};

use super::{Channel, Lane, Mode, Task, Tasks, Work, schedule::Job};

/// The lanes of a plan.
pub(super) fn lanes(tasks: &Tasks, mode: Mode) -> Vec<Lane> {
    let compute = Lane {
        name: "compute".into(),
    };
    let channels = tasks.channels.iter().filter(|_| mode.overlaps());
    std::iter::once(compute)
        .chain(channels.map(|channel| Lane {
            name: channel_name(channel),
        }))
        .collect()
}

fn channel_name(channel: &Channel) -> String {
    let suffix = if channel.point_to_point { " p2p" } else { "" };
    format!("{}{suffix}", channel.group.name)
}

/// The lane of each task.
pub(super) fn assign(tasks: &Tasks, mode: Mode) -> Vec<usize> {
    tasks
        .tasks
        .iter()
        .map(|task| match task.channel {
            Some(channel) if mode.overlaps() => channel + 1,
            _ => 0,
        })
        .collect()
}

/// Whether two lanes must not execute at the same time: two collectives whose groups share more
/// than one rank could otherwise each occupy what the other one needs on the ranks they share.
pub(super) fn exclusive(tasks: &Tasks, a: usize, b: usize) -> bool {
    let channel = |lane: usize| {
        lane.checked_sub(1)
            .and_then(|index| tasks.channels.get(index))
    };
    match (channel(a), channel(b)) {
        (Some(a), Some(b)) => !a.point_to_point && !b.point_to_point && a.shared_members(b) > 1,
        _ => false,
    }
}

/// Expected duration of each task in microseconds.
pub(super) fn durations_us(graph: &Graph, tasks: &Tasks, cost: &CostModel) -> Vec<f64> {
    let of = |task: &Task| match task.work {
        Work::Node(node) => cost.node(graph, node),
        Work::CopyOut { .. } | Work::Snapshot { .. } => cost.vector_us,
    };
    tasks.tasks.iter().map(of).collect()
}

/// The tasks as the scheduler sees them. When `pinned`, the collectives of a group keep their
/// order in the program, also against every group that shares a member, and so do the transfers
/// between two ranks.
pub(super) fn jobs(
    tasks: &Tasks,
    lane_of: &[usize],
    pinned: bool,
    durations_us: &[f64],
) -> Vec<Job> {
    let mut latest: Vec<Option<usize>> = vec![None; tasks.channels.len()];
    let mut jobs = Vec::with_capacity(tasks.tasks.len());
    for (index, task) in tasks.tasks.iter().enumerate() {
        let mut issued_after = Vec::new();
        if let Some(channel) = task.channel {
            if pinned {
                let own = &tasks.channels[channel];
                issued_after = latest
                    .iter()
                    .zip(&tasks.channels)
                    .filter(|(_, other)| ordered(own, other))
                    .filter_map(|(latest, _)| *latest)
                    .filter(|before| !task.after.contains(before))
                    .collect();
            }
            latest[channel] = Some(index);
        }
        jobs.push(Job {
            lane: lane_of[index],
            duration_us: durations_us[index],
            after: task.after.clone(),
            issued_after,
        });
    }
    jobs
}

/// Whether the communication of two channels keeps its order in the program when it is pinned.
fn ordered(own: &Channel, other: &Channel) -> bool {
    if own.point_to_point || other.point_to_point {
        return own == other;
    }
    own.shared_members(other) > 0
}
