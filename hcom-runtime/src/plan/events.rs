//! Events: the fewest synchronisations between lanes that keep every dependency.
//!
//! Each lane is in order, so a dependency inside a lane is free. Across lanes one vector clock per
//! lane records how far every other lane is known to have come; a dependency that the clock already
//! implies needs no event. Taking the predecessors of a job latest first makes the result the
//! transitive reduction of the cross-lane dependencies, which is unique and therefore minimal for
//! the given lanes and order. One record serves any number of waits.

/// For each lane, the number of its jobs that are known to have finished.
pub(crate) type Clock = Vec<u32>;

/// Which jobs are recorded, who waits for them, and what is known when a job starts.
#[derive(Clone, Debug)]
pub(crate) struct Synchronisation {
    /// The event recorded right after a job, if any.
    pub(crate) record: Vec<Option<usize>>,
    /// The jobs a job waits for, by event, before it starts.
    pub(crate) waits: Vec<Vec<usize>>,
    /// The number of events.
    pub(crate) events: usize,
    /// 1-based position of a job within its lane.
    pub(crate) position: Vec<u32>,
    /// What has finished when a job starts; its own lane counts the jobs before it.
    pub(crate) before: Vec<Clock>,
}

/// Places the events for jobs issued in `order`. `lane[job]` is the lane of a job and
/// `after[job]` its predecessors, all of them earlier in `order`.
pub(crate) fn synchronise(
    order: &[usize],
    lane: &[usize],
    after: &[Vec<usize>],
    lanes: usize,
) -> Synchronisation {
    let jobs = lane.len();
    let mut issued_at = vec![0usize; jobs];
    for (at, &job) in order.iter().enumerate() {
        issued_at[job] = at;
    }
    let mut result = Synchronisation {
        record: vec![None; jobs],
        waits: vec![Vec::new(); jobs],
        events: 0,
        position: vec![0; jobs],
        before: vec![Vec::new(); jobs],
    };
    let mut known: Vec<Clock> = vec![vec![0; lanes]; lanes];
    for &job in order {
        let own = lane[job];
        let mut earlier: Vec<usize> = after[job]
            .iter()
            .copied()
            .filter(|&p| lane[p] != own)
            .collect();
        earlier.sort_unstable_by_key(|&p| std::cmp::Reverse(issued_at[p]));
        for predecessor in earlier {
            let other = lane[predecessor];
            let position = result.position[predecessor];
            if known[own][other] >= position {
                continue;
            }
            if result.record[predecessor].is_none() {
                result.record[predecessor] = Some(result.events);
                result.events += 1;
            }
            result.waits[job].push(predecessor);
            for (mine, theirs) in known[own].iter_mut().zip(&result.before[predecessor]) {
                *mine = (*mine).max(*theirs);
            }
            known[own][other] = known[own][other].max(position);
        }
        result.before[job] = known[own].clone();
        known[own][own] += 1;
        result.position[job] = known[own][own];
    }
    result
}

impl Synchronisation {
    /// Whether `first` has finished whenever `second` starts. A job does not precede itself.
    pub(crate) fn precedes(&self, lane: &[usize], first: usize, second: usize) -> bool {
        self.before[second][lane[first]] >= self.position[first]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(lane: &[usize], after: &[&[usize]], lanes: usize) -> Synchronisation {
        let order: Vec<usize> = (0..lane.len()).collect();
        let after: Vec<Vec<usize>> = after.iter().map(|a| a.to_vec()).collect();
        synchronise(&order, lane, &after, lanes)
    }

    #[test]
    fn a_dependency_inside_a_lane_costs_nothing() {
        assert_eq!(place(&[0, 0], &[&[], &[0]], 1).events, 0);
    }

    #[test]
    fn implied_dependencies_need_no_event() {
        // 0 and 1 on lane 0; 2 on lane 1 needs both; 3 on lane 1 needs 0: one event, after 1.
        let sync = place(&[0, 0, 1, 1], &[&[], &[], &[0, 1], &[0]], 2);
        assert_eq!(sync.events, 1);
        assert_eq!(sync.waits, [vec![], vec![], vec![1], vec![]]);
        assert!(sync.precedes(&[0, 0, 1, 1], 0, 3));
        assert!(!sync.precedes(&[0, 0, 1, 1], 2, 1));
    }

    #[test]
    fn knowledge_travels_through_a_third_lane() {
        // 0 (lane 0) -> 1 (lane 1) -> 2 (lane 2), and 0 -> 2 is implied.
        let sync = place(&[0, 1, 2], &[&[], &[0], &[0, 1]], 3);
        assert_eq!(sync.events, 2);
        assert_eq!(sync.waits[2], [1]);
    }

    #[test]
    fn one_record_serves_several_waits() {
        let sync = place(&[0, 1, 2], &[&[], &[0], &[0]], 3);
        assert_eq!((sync.events, sync.record[0]), (1, Some(0)));
    }

    /// Reachability through lanes and waits equals reachability through the dependencies, and no
    /// wait can be left out.
    #[test]
    fn waits_are_sufficient_and_minimal_on_seeded_graphs() {
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let count = 2 + random(11) as usize;
            let lanes = 1 + random(3) as usize;
            let lane: Vec<usize> = (0..count).map(|_| random(lanes as u64) as usize).collect();
            let after: Vec<Vec<usize>> = (0..count)
                .map(|job| (0..job).filter(|_| random(4) == 0).collect())
                .collect();
            let order: Vec<usize> = (0..count).collect();
            let sync = synchronise(&order, &lane, &after, lanes);
            let reach = |skip: Option<(usize, usize)>| {
                let mut reach = vec![vec![false; count]; count];
                for job in 0..count {
                    let in_lane = (0..job).rev().find(|&p| lane[p] == lane[job]);
                    let waits = sync.waits[job].iter().copied();
                    let waits = waits.filter(|&p| skip != Some((p, job)));
                    for p in in_lane.into_iter().chain(waits) {
                        reach[job][p] = true;
                        let theirs = reach[p].clone();
                        for (mine, theirs) in reach[job].iter_mut().zip(theirs) {
                            *mine |= theirs;
                        }
                    }
                }
                reach
            };
            let full = reach(None);
            for job in 0..count {
                assert!(
                    after[job].iter().all(|&p| full[job][p]),
                    "{lane:?} {after:?}"
                );
                for (p, &reached) in full[job].iter().enumerate() {
                    assert_eq!(reached, sync.precedes(&lane, p, job));
                }
                for &wait in &sync.waits[job] {
                    let without = reach(Some((wait, job)));
                    assert!(
                        after
                            .iter()
                            .enumerate()
                            .any(|(j, a)| a.iter().any(|&p| !without[j][p]))
                    );
                }
            }
        }
    }
}
