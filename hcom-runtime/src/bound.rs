//! How fast an execution could be at best.

use crate::Plan;

/// A lower bound of the duration of an execution, for the streams of its plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// All work of the compute stream, in microseconds.
    pub compute_us: f64,
    /// All work of the busiest communicator, in microseconds.
    pub communication_us: f64,
    /// The longest chain of dependent work, in microseconds.
    pub critical_path_us: f64,
    /// Whether every duration is measured; else the cost model stands in for those that are not.
    /// Collectives count as measured once a merged trace was
    /// [observed](crate::Executable::observe).
    pub measured: bool,
}

impl Bound {
    /// The largest of the three, in microseconds.
    pub fn us(&self) -> f64 {
        self.compute_us
            .max(self.communication_us)
            .max(self.critical_path_us)
    }

    pub(crate) fn new(plan: &Plan, measured: &[Option<f64>]) -> Bound {
        let duration = |task: usize| measured[task].unwrap_or(plan.durations_us[task]);
        let tasks = &plan.tasks.tasks;
        let mut compute_us = 0.0;
        let mut per_channel = vec![0.0f64; plan.tasks.channels.len()];
        let mut finish = vec![0.0f64; tasks.len()];
        for (index, task) in tasks.iter().enumerate() {
            match task.channel {
                Some(channel) => per_channel[channel] += duration(index),
                None => compute_us += duration(index),
            }
            let before = task
                .after
                .iter()
                .map(|&before| finish[before])
                .fold(0.0, f64::max);
            finish[index] = before + duration(index);
        }
        Bound {
            compute_us,
            communication_us: per_channel.into_iter().fold(0.0, f64::max),
            critical_path_us: finish.into_iter().fold(0.0, f64::max),
            measured: measured.iter().all(Option::is_some),
        }
    }
}
