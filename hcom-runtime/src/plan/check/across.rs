//! The plans of several ranks together.

use hcom_ir::Graph;
use rustc_hash::FxHashMap;

use super::{Checker, Violation};
use crate::plan::Plan;

/// Proves that the plans of several ranks do not wait for each other in a circle: there is an order
/// of all collectives of all groups in which every rank can execute its own.
///
/// # Errors
/// [`Violation::Cycle`] with one circle.
pub fn across_ranks(ranks: &[(&Graph, &Plan)]) -> Result<(), Violation> {
    // A collective is known on all its members as the n-th of its channel.
    let mut index_of: FxHashMap<(Vec<u32>, bool, usize), usize> = FxHashMap::default();
    let mut names: Vec<String> = Vec::new();
    let mut next: Vec<Vec<usize>> = Vec::new();
    for &(graph, plan) in ranks {
        let checker = Checker::new(graph, plan)?;
        let mut counts: FxHashMap<usize, usize> = FxHashMap::default();
        let mut own: Vec<(usize, usize)> = Vec::new();
        for &task in &checker.issued {
            let Some(channel) = checker.task(task).channel else {
                continue;
            };
            let count = counts.entry(channel).or_default();
            *count += 1;
            let spec = &plan.tasks.channels[channel];
            let key = (spec.group.ranks.clone(), spec.point_to_point, *count);
            let node = *index_of.entry(key).or_insert_with(|| {
                names.push(checker.describe(task));
                next.push(Vec::new());
                names.len() - 1
            });
            own.push((task, node));
        }
        for (at, &(first, node)) in own.iter().enumerate() {
            for &(second, later) in &own[at + 1..] {
                if checker.precedes(first, second) {
                    next[node].push(later);
                }
            }
        }
    }
    match find_cycle(&next) {
        Some(cycle) => Err(Violation::Cycle {
            cycle: cycle.into_iter().map(|node| names[node].clone()).collect(),
        }),
        None => Ok(()),
    }
}

fn find_cycle(next: &[Vec<usize>]) -> Option<Vec<usize>> {
    // 0 unseen, 1 on the current path, 2 done.
    let mut state = vec![0u8; next.len()];
    for root in 0..next.len() {
        if state[root] != 0 {
            continue;
        }
        let mut path: Vec<(usize, usize)> = vec![(root, 0)];
        state[root] = 1;
        while let Some(&mut (node, ref mut edge)) = path.last_mut() {
            if let Some(&follower) = next[node].get(*edge) {
                *edge += 1;
                match state[follower] {
                    0 => {
                        state[follower] = 1;
                        path.push((follower, 0));
                    }
                    1 => {
                        let from = path.iter().position(|&(node, _)| node == follower)?;
                        return Some(path[from..].iter().map(|&(node, _)| node).collect());
                    }
                    _ => {}
                }
            } else {
                state[node] = 2;
                path.pop();
            }
        }
    }
    None
}
