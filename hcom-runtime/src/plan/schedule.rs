//! List scheduling: the order in which the work of a plan is issued.
//!
//! Clock-driven: among the jobs whose predecessors are placed, the one that can start earliest
//! goes next; ties go to the longer remaining path (upward rank) or follow the program. The
//! result depends on nothing but its arguments, so that equal arguments on all ranks give an equal
//! order of collectives without any agreement at run time.

/// A piece of work as the scheduler sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    /// The lane (stream) that executes the job. Each lane executes one job at a time.
    pub(crate) lane: usize,
    /// Expected duration in microseconds.
    pub(crate) duration_us: f64,
    /// Jobs that must finish first. Every index is below the job's own.
    pub(crate) after: Vec<usize>,
    /// Jobs that must be issued first, though they need not have finished.
    pub(crate) issued_after: Vec<usize>,
}

/// The outcome: an order that respects every predecessor, and the expected times.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) order: Vec<usize>,
    pub(crate) start_us: Vec<f64>,
    pub(crate) finish_us: Vec<f64>,
    /// Dependencies `(first, second)` that keep exclusive lanes from running at the same time.
    pub(crate) added: Vec<(usize, usize)>,
}

impl Schedule {
    /// When the last job finishes, in microseconds from the start.
    pub(crate) fn makespan_us(&self) -> f64 {
        self.finish_us.iter().copied().fold(0.0, f64::max)
    }
}

/// Orders `jobs` on `lanes` lanes. `exclusive(a, b)` says that lanes `a` and `b` must never execute
/// at the same time; it must be symmetric and is not asked for `a == b`.
///
/// Two rules for ties are tried and the shorter schedule is kept: the longer remaining path, and
/// the order of the program, which lets equal chains run one behind the other instead of in step.
pub(crate) fn list_schedule(
    jobs: &[Job],
    lanes: usize,
    exclusive: impl Fn(usize, usize) -> bool,
) -> Schedule {
    let by_path = place(jobs, lanes, &exclusive, &upward_ranks(jobs));
    let by_program = place(jobs, lanes, &exclusive, &vec![0.0; jobs.len()]);
    if by_program.makespan_us() < by_path.makespan_us() {
        by_program
    } else {
        by_path
    }
}

/// Places every job as early as the clock allows; ties go to the higher `rank`, then to the lower
/// index.
fn place(
    jobs: &[Job],
    lanes: usize,
    exclusive: &impl Fn(usize, usize) -> bool,
    rank: &[f64],
) -> Schedule {
    let mut followers = vec![Vec::new(); jobs.len()];
    let mut missing = vec![0usize; jobs.len()];
    for (index, job) in jobs.iter().enumerate() {
        for &earlier in job.after.iter().chain(&job.issued_after) {
            debug_assert!(earlier < index, "predecessors come first");
            followers[earlier].push(index);
            missing[index] += 1;
        }
    }
    let rivals: Vec<Vec<usize>> = (0..lanes)
        .map(|a| (0..lanes).filter(|&b| a != b && exclusive(a, b)).collect())
        .collect();

    let mut schedule = Schedule {
        order: Vec::with_capacity(jobs.len()),
        start_us: vec![0.0; jobs.len()],
        finish_us: vec![0.0; jobs.len()],
        added: Vec::new(),
    };
    let mut last_on: Vec<Option<usize>> = vec![None; lanes];
    // Earliest start by data; lane times are added when candidates are compared.
    let mut data_ready = vec![0.0f64; jobs.len()];
    let mut ready: Vec<usize> = (0..jobs.len()).filter(|&job| missing[job] == 0).collect();
    while !ready.is_empty() {
        let finish = &schedule.finish_us;
        let start_of = |job: usize| {
            let lane = jobs[job].lane;
            std::iter::once(lane)
                .chain(rivals[lane].iter().copied())
                .filter_map(|lane| last_on[lane])
                .map(|last| finish[last])
                .fold(data_ready[job], f64::max)
        };
        let (slot, start) = ready
            .iter()
            .enumerate()
            .map(|(slot, &job)| (slot, start_of(job)))
            .min_by(|&(a, a_start), &(b, b_start)| {
                let (a, b) = (ready[a], ready[b]);
                a_start
                    .total_cmp(&b_start)
                    .then(rank[b].total_cmp(&rank[a]))
                    .then(a.cmp(&b))
            })
            .expect("the loop condition says that a job is ready");
        let job = ready.swap_remove(slot);
        let lane = jobs[job].lane;
        for rival in rivals[lane].iter().filter_map(|&rival| last_on[rival]) {
            schedule.added.push((rival, job));
        }
        last_on[lane] = Some(job);
        schedule.start_us[job] = start;
        schedule.finish_us[job] = start + jobs[job].duration_us;
        schedule.order.push(job);
        for &next in &followers[job] {
            missing[next] -= 1;
            if jobs[next].after.contains(&job) {
                data_ready[next] = data_ready[next].max(schedule.finish_us[job]);
            }
            if missing[next] == 0 {
                ready.push(next);
            }
        }
    }
    debug_assert_eq!(schedule.order.len(), jobs.len());
    schedule
}

/// The length of the longest path from each job to the end, its own duration included, in
/// microseconds.
pub(crate) fn upward_ranks(jobs: &[Job]) -> Vec<f64> {
    let mut below = vec![0.0f64; jobs.len()];
    let mut rank = vec![0.0f64; jobs.len()];
    for (index, job) in jobs.iter().enumerate().rev() {
        rank[index] = job.duration_us + below[index];
        for &earlier in &job.after {
            below[earlier] = below[earlier].max(rank[index]);
        }
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(lane: usize, duration_us: f64, after: &[usize]) -> Job {
        Job {
            lane,
            duration_us,
            after: after.to_vec(),
            issued_after: Vec::new(),
        }
    }

    #[test]
    fn communication_of_one_chain_hides_under_computation_of_the_other() {
        // Two micro-batches: compute (4) then all_reduce (4) then compute (4) each.
        let jobs = [
            job(0, 4.0, &[]),
            job(1, 4.0, &[0]),
            job(0, 4.0, &[1]),
            job(0, 4.0, &[]),
            job(1, 4.0, &[3]),
            job(0, 4.0, &[4]),
        ];
        let schedule = list_schedule(&jobs, 2, |_, _| false);
        assert_eq!(schedule.order, [0, 3, 1, 4, 2, 5]);
        assert_eq!(schedule.makespan_us(), 16.0);
    }

    #[test]
    fn equal_chains_run_one_behind_the_other() {
        // Two micro-batches of two computations and a long collective each: the first collective
        // must not wait for computations of the second micro-batch.
        let chain = |at: usize| [job(0, 2.0, &[]), job(0, 2.0, &[at]), job(1, 9.0, &[at + 1])];
        let mut jobs = chain(0).to_vec();
        jobs.extend(chain(3));
        jobs[4].after = vec![3];
        jobs[5].after = vec![4];
        let schedule = list_schedule(&jobs, 2, |_, _| false);
        assert_eq!(schedule.start_us[2], 4.0);
        assert_eq!(schedule.makespan_us(), 22.0);
    }

    #[test]
    fn the_longer_remaining_path_goes_first() {
        let jobs = [job(0, 1.0, &[]), job(0, 1.0, &[]), job(1, 9.0, &[1])];
        assert_eq!(list_schedule(&jobs, 2, |_, _| false).order, [1, 2, 0]);
    }

    #[test]
    fn issue_order_holds_without_waiting_for_completion() {
        let mut jobs = [job(0, 5.0, &[]), job(1, 7.0, &[0]), job(2, 1.0, &[])];
        let free = list_schedule(&jobs, 3, |_, _| false);
        assert_eq!(free.order, [0, 2, 1]);
        jobs[2].issued_after = vec![1];
        let pinned = list_schedule(&jobs, 3, |_, _| false);
        assert_eq!(pinned.order, [0, 1, 2]);
        assert_eq!(pinned.start_us[2], 0.0);
    }

    #[test]
    fn exclusive_lanes_take_turns_and_say_so() {
        let jobs = [job(1, 3.0, &[]), job(2, 2.0, &[])];
        let schedule = list_schedule(&jobs, 3, |a, b| a + b == 3);
        assert_eq!(schedule.order, [0, 1]);
        assert_eq!(schedule.start_us[1], 3.0);
        assert_eq!(schedule.added, [(0, 1)]);
    }

    /// The published quality of list scheduling on graphs of this kind: close to the lower bound,
    /// and never worse than program order on average.
    #[test]
    fn seeded_random_graphs_stay_close_to_the_lower_bound() {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut ratio = 0.0;
        const GRAPHS: usize = 200;
        for _ in 0..GRAPHS {
            let jobs: Vec<Job> = (0..300usize)
                .map(|index| {
                    let lane = usize::from(random(10) < 4);
                    let after = (0..random(3))
                        .filter(|_| index > 0)
                        .map(|_| index - 1 - random(index.min(12) as u64) as usize)
                        .collect::<std::collections::BTreeSet<_>>();
                    Job {
                        lane,
                        duration_us: 1.0 + random(10) as f64,
                        after: after.into_iter().collect(),
                        issued_after: Vec::new(),
                    }
                })
                .collect();
            let schedule = list_schedule(&jobs, 2, |_, _| false);
            let mut busy = [0.0; 2];
            for job in &jobs {
                busy[job.lane] += job.duration_us;
            }
            let path = upward_ranks(&jobs).into_iter().fold(0.0, f64::max);
            let bound = path.max(busy[0]).max(busy[1]);
            assert!(schedule.makespan_us() >= bound);
            ratio += schedule.makespan_us() / bound;
        }
        let mean = ratio / GRAPHS as f64;
        assert!(mean < 1.03, "mean ratio to the lower bound is {mean}");
    }
}
