//! One graph, launched split at every collective against launched with communication under computation.
//!
//! ```text
//! cargo bench --bench overlap
//! ```
//!
//! Real ranks (threads of this process) on 2 and 4 devices, without and with a modelled link. Both ways of running
//! are measured in one go, and the closing table prints their ratio. Only the CPU implementation models a link.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use hcom_ir::{Graph, parse};
use hcom_runtime::{CompileOptions, InProcess, Link, Mode, Runtime, Settings};

const LAYERS: usize = 6;
/// Rows of a micro-batch, width, and width of the MLP over all ranks.
const ROWS: usize = 64;
const WIDTH: usize = 256;
const INNER: usize = 1024;

/// The modelled link: about as long under way as the computation between two collectives takes.
const LINK: Link = Link {
    alpha_us: 100.0,
    gbytes_per_s: 0.2,
};

/// A tensor-parallel MLP over two micro-batches that do not depend on each other.
fn graph(ranks: usize) -> Graph {
    let share = INNER / ranks;
    let members: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
    let mut text = format!(
        "hcom 1\ngroup @tp = ranks({})\ngraph @mlp(",
        members.join(", ")
    );
    for layer in 0..LAYERS {
        let _ = write!(
            text,
            "%up{layer}: f32[{WIDTH}, {share}], %down{layer}: f32[{share}, {WIDTH}], "
        );
    }
    let _ = writeln!(
        text,
        "%x0: f32[{ROWS}, {WIDTH}], %y0: f32[{ROWS}, {WIDTH}]) -> (f32[{ROWS}, {WIDTH}], f32[{ROWS}, {WIDTH}]) {{"
    );
    for layer in 0..LAYERS {
        let next = layer + 1;
        for batch in ["x", "y"] {
            let _ = writeln!(
                text,
                "  %{batch}h{layer} = matmul %{batch}{layer}, %up{layer}\n  \
                 %{batch}a{layer} = gelu %{batch}h{layer}\n  \
                 %{batch}p{layer} = matmul %{batch}a{layer}, %down{layer}\n  \
                 %{batch}{next} = all_reduce %{batch}p{layer}, op = sum, group = @tp"
            );
        }
    }
    let _ = writeln!(text, "  return %x{LAYERS}, %y{LAYERS}\n}}");
    parse(&text, "overlap").unwrap_or_else(|errors| panic!("{}", errors.render(Some(&text))))
}

/// Ranks that run steps on demand.
struct Ranks {
    requests: Vec<Sender<u64>>,
    durations: Receiver<Duration>,
    threads: Vec<JoinHandle<()>>,
}

impl Ranks {
    fn start(ranks: usize, mode: Mode, link: Option<Link>) -> Ranks {
        let (report, durations) = channel();
        let (requests, threads) = InProcess::new(ranks as u32)
            .into_iter()
            .enumerate()
            .map(|(rank, control)| {
                let (request, requested) = channel::<u64>();
                let report = report.clone();
                let thread = std::thread::spawn(move || {
                    let settings = Settings::from_env().expect("the settings");
                    let runtime =
                        Runtime::with_control(control, rank as u32, &settings).expect("a rank");
                    runtime.model_link(link).expect("the link");
                    let graph = graph(ranks);
                    let options = CompileOptions {
                        mode,
                        ..CompileOptions::default()
                    };
                    let executable = runtime.compile(&graph, &options).expect("a plan");
                    let inputs: Vec<_> = graph
                        .inputs()
                        .iter()
                        .map(|input| {
                            let ty = &graph.value(input.value).ty;
                            let shape = ty.shape.as_fixed().expect("a fixed shape");
                            let count = shape.iter().product::<u64>() as usize;
                            let values: Vec<u8> = (0..count)
                                .flat_map(|i| ((i % 17) as f32 / 170.0 - 0.05).to_le_bytes())
                                .collect();
                            runtime.array(ty.dtype, &shape, &values).expect("an input")
                        })
                        .collect();
                    for steps in requested {
                        let begin = Instant::now();
                        for _ in 0..steps {
                            executable.run(&inputs).expect("a step");
                            runtime.synchronize().expect("the end of a step");
                        }
                        report.send(begin.elapsed()).expect("the benchmark waits");
                    }
                });
                (request, thread)
            })
            .unzip();
        Ranks {
            requests,
            durations,
            threads,
        }
    }

    /// Runs `steps` steps on every rank; the time of the slowest.
    fn run(&self, steps: u64) -> Duration {
        for request in &self.requests {
            request.send(steps).expect("the ranks live");
        }
        let ended = self
            .requests
            .iter()
            .map(|_| self.durations.recv().expect("every rank reports"));
        ended.max().unwrap_or_default()
    }

    fn stop(self) {
        drop(self.requests);
        for thread in self.threads {
            thread.join().expect("a rank ends well");
        }
    }
}

fn main() {
    hcom_sys::register_fallback(hcom_fake::table());
    let mut criterion = Criterion::default()
        .sample_size(20)
        .measurement_time(Duration::from_secs(4))
        .warm_up_time(Duration::from_secs(1))
        .configure_from_args();
    // Microseconds per step of every sample, by ranks, link and way of running.
    let mut samples: BTreeMap<(usize, &str, &str), Vec<f64>> = BTreeMap::new();
    for ranks in [2, 4] {
        for (link_name, link) in [("no link", None), ("modelled link", Some(LINK))] {
            let mut group = criterion.benchmark_group(format!("{ranks} ranks, {link_name}"));
            for (name, mode) in [("split", Mode::Split), ("overlapped", Mode::Overlapped)] {
                let running = Ranks::start(ranks, mode, link);
                group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                    bencher.iter_custom(|steps| {
                        let duration = running.run(steps);
                        let step = duration.as_secs_f64() * 1e6 / steps as f64;
                        samples
                            .entry((ranks, link_name, name))
                            .or_default()
                            .push(step);
                        duration
                    });
                });
                running.stop();
            }
            group.finish();
        }
    }
    criterion.final_summary();

    println!("\nµs per step, median of the samples    split  overlapped  split / overlapped");
    for ranks in [2, 4] {
        for link in ["no link", "modelled link"] {
            let median = |name| {
                samples
                    .get(&(ranks, link, name))
                    .map(|samples| median(samples))
            };
            if let (Some(split), Some(overlapped)) = (median("split"), median("overlapped")) {
                println!(
                    "{ranks} ranks, {link:<24} {split:>10.0} {overlapped:>11.0} {:>19.2}",
                    split / overlapped
                );
            }
        }
    }
    println!(
        "modelled link: {} µs + bytes / {} GB/s",
        LINK.alpha_us, LINK.gbytes_per_s
    );
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
