//! What a launch costs: step by step against replayed, and with the flight recorder against without.
//!
//! ```text
//! cargo bench -p hcom-runtime --bench replay
//! ```
//!
//! Both sides of each comparison take turns in one process; medians of the slower rank, and the
//! shortest times, which a busy machine disturbs least.

use std::{fmt::Write, sync::Arc, time::Instant};

use hcom_ir::{DType, parse};
use hcom_runtime::{
    Array, CompileOptions, Control, Executable, InProcess, Mode, Runtime, Settings,
};

const ADDS: usize = 1000;
const LAYERS: usize = 24;
const TURNS: usize = 21;
const RUNS: u32 = 10;

/// A chain of additions of one element on one stream.
fn adds() -> String {
    let mut text = "hcom 1\ngraph @adds(%x0: f32[1], %y: f32[1]) -> f32[1] {\n".to_owned();
    for at in 0..ADDS {
        let _ = writeln!(text, "  %x{} = add %x{at}, %y", at + 1);
    }
    let _ = writeln!(text, "  return %x{ADDS}\n}}");
    text
}

/// A small layer with an all_reduce of 4 KiB, again and again.
fn layers() -> String {
    let mut text = "hcom 1\ngroup @tp = ranks(0, 1)\n\
                    graph @layers(%x0: f32[16, 64], %w: f32[64, 64]) -> f32[16, 64] {\n"
        .to_owned();
    for at in 0..LAYERS {
        let _ = writeln!(
            text,
            "  %m{at} = matmul %x{at}, %w\n  %a{at} = tanh %m{at}\n  \
             %x{} = all_reduce %a{at}, op = avg, group = @tp",
            at + 1
        );
    }
    let _ = writeln!(text, "  return %x{LAYERS}\n}}");
    text
}

/// A graph on one rank, ready to be timed.
struct Side {
    runtime: Runtime,
    executable: Executable,
    inputs: Vec<Array>,
}

impl Side {
    fn new(control: Arc<dyn Control>, settings: &Settings, text: &str, mode: Mode) -> Side {
        let rank = control.rank();
        let runtime = Runtime::with_control(control, rank, settings).expect("a device is there");
        let graph = parse(text, "bench").expect("the graph is valid");
        let options = CompileOptions {
            mode,
            ..CompileOptions::default()
        };
        let executable = runtime.compile(&graph, &options).expect("it compiles");
        assert_eq!(executable.fallback(), None);
        let inputs = graph.inputs().iter().map(|input| {
            let ty = graph.ty(input.value);
            let shape = ty.shape.as_fixed().expect("sizes are fixed");
            let bytes = 0.01f32
                .to_le_bytes()
                .repeat(shape.iter().product::<u64>() as usize);
            runtime
                .array(DType::F32, &shape, &bytes)
                .expect("there is memory")
        });
        let inputs = inputs.collect();
        Side {
            runtime,
            executable,
            inputs,
        }
    }

    /// Microseconds of one execution.
    fn time_us(&self) -> f64 {
        let begin = Instant::now();
        for _ in 0..RUNS {
            self.executable.run(&self.inputs).expect("it runs");
        }
        self.runtime.synchronize().expect("it ends");
        begin.elapsed().as_secs_f64() * 1e6 / f64::from(RUNS)
    }
}

/// Median and shortest time of one side, in microseconds.
#[derive(Clone, Copy, Default)]
struct Times {
    median_us: f64,
    shortest_us: f64,
}

impl Times {
    fn new(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        Times {
            median_us: times[times.len() / 2],
            shortest_us: times[0],
        }
    }

    fn slower(self, other: Times) -> Times {
        Times {
            median_us: self.median_us.max(other.median_us),
            shortest_us: self.shortest_us.max(other.shortest_us),
        }
    }
}

/// Times of two ways to run `text` on `ranks` ranks.
fn compare(ranks: u32, text: &str, sides: [(Settings, Mode); 2]) -> [Times; 2] {
    let jobs = [InProcess::new(ranks), InProcess::new(ranks)];
    let [first, second] = jobs;
    let threads: Vec<_> = first
        .into_iter()
        .zip(second)
        .map(|(first, second)| {
            let (text, sides) = (text.to_owned(), sides.clone());
            std::thread::spawn(move || {
                let [(a, a_mode), (b, b_mode)] = &sides;
                let sides = [
                    Side::new(first, a, &text, *a_mode),
                    Side::new(second, b, &text, *b_mode),
                ];
                for side in &sides {
                    side.time_us();
                }
                let mut times = [Vec::new(), Vec::new()];
                for turn in 0..2 * TURNS {
                    // Neither side is always the one that comes second.
                    let at = (turn + turn / 2) % 2;
                    times[at].push(sides[at].time_us());
                }
                times.map(Times::new)
            })
        })
        .collect();
    let times = threads.into_iter().map(|rank| rank.join().expect("it ran"));
    times.fold([Times::default(); 2], |slowest, own| {
        [slowest[0].slower(own[0]), slowest[1].slower(own[1])]
    })
}

fn main() {
    hcom_sys::register_fallback(hcom_fake::table());
    let plain = Settings::from_env().expect("the environment is right");
    let [stepped, replayed] = compare(
        1,
        &adds(),
        [
            (plain.clone(), Mode::SingleStream),
            (plain.clone(), Mode::Replay),
        ],
    );
    let per_node = |us: f64| us / ADDS as f64;
    println!(
        "{ADDS} adds of one element: step by step {:.3} µs per node, replayed {:.3} µs per node, ratio {:.2}",
        per_node(stepped.median_us),
        per_node(replayed.median_us),
        replayed.median_us / stepped.median_us
    );
    let without = Settings {
        record_entries: 0,
        ..plain.clone()
    };
    for mode in [Mode::Overlapped, Mode::Replay] {
        let sides = [(without.clone(), mode), (plain.clone(), mode)];
        let [off, on] = compare(2, &layers(), sides);
        println!(
            "{LAYERS} layers, {}: {:.0} µs without the recorder, {:.0} µs with it, ratio {:.3} (of the shortest {:.3})",
            mode.name(),
            off.median_us,
            on.median_us,
            on.median_us / off.median_us,
            on.shortest_us / off.shortest_us
        );
    }
}
