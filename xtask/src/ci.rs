//! The gate: every step named and timed, the first failure ends it.
//!
//! One profile and one target folder serve all steps; every cargo call selects the whole workspace, so that the
//! features of shared dependencies resolve alike and nothing is built twice.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::{bindings, stress, sweep, tidy, tools, torch_npu, wheel};

mod air;
mod consumers;

/// Arguments of `ci`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Add the slow parts: packages, consumers outside the workspace, torch_npu, all tests several times over, ten minutes of
    /// stress.
    #[arg(long)]
    full: bool,
    /// Print the steps' names and end.
    #[arg(long)]
    list: bool,
    /// Run this step only (repeatable).
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
}

/// One part of the gate.
struct Step {
    name: &'static str,
    /// Belongs to `--full` only.
    slow: bool,
    run: fn() -> Result<()>,
}

/// How often `--full` runs all tests: most faults of a program with several ranks are races.
const ROUNDS: u32 = 5;

const STEPS: [Step; 19] = [
    Step {
        name: "tools",
        slow: false,
        run: tools::require_all,
    },
    Step {
        name: "format",
        slow: false,
        run: format,
    },
    Step {
        name: "tidy",
        slow: false,
        run: tidy::run,
    },
    Step {
        name: "bindings",
        slow: false,
        run: || bindings::run(true),
    },
    Step {
        name: "clippy",
        slow: false,
        run: clippy,
    },
    Step {
        name: "docs",
        slow: false,
        run: docs,
    },
    Step {
        name: "tests-in-process",
        slow: false,
        run: || tests(Library::InProcess),
    },
    Step {
        name: "tests-dlopen",
        slow: false,
        run: || tests(Library::SharedObject),
    },
    Step {
        name: "doctests",
        slow: false,
        run: doctests,
    },
    Step {
        name: "sweep",
        slow: false,
        run: sweep::third,
    },
    Step {
        name: "sweep-full",
        slow: true,
        run: sweep::whole,
    },
    Step {
        name: "python",
        slow: false,
        run: wheel::test,
    },
    Step {
        name: "stress",
        slow: false,
        run: || stress::run(&stress::Args::of_seconds(15)),
    },
    Step {
        name: "tests-full",
        slow: true,
        run: tests_full,
    },
    Step {
        name: "stress-full",
        slow: true,
        run: || stress::run(&stress::Args::of_seconds(600)),
    },
    Step {
        name: "exported-models",
        slow: true,
        run: air::run,
    },
    Step {
        name: "packages",
        slow: true,
        run: consumers::run,
    },
    Step {
        name: "python-full",
        slow: true,
        run: wheel::test_full,
    },
    Step {
        name: "torch-npu",
        slow: true,
        run: torch_npu::run,
    },
];

/// Runs the gate, or the part of it that the arguments select.
pub(crate) fn run(args: &Args) -> Result<()> {
    for name in &args.only {
        ensure!(
            STEPS.iter().any(|step| step.name == name),
            "there is no step `{name}`; the steps are {}",
            STEPS.map(|step| step.name).join(", ")
        );
    }
    let selected: Vec<&Step> = STEPS
        .iter()
        .filter(|step| match args.only.is_empty() {
            true => args.full || !step.slow,
            false => args.only.iter().any(|name| step.name == name),
        })
        .collect();
    if args.list {
        for step in selected {
            println!("{}", step.name);
        }
        return Ok(());
    }
    run_steps(&selected)
}

fn run_steps(steps: &[&Step]) -> Result<()> {
    let start = Instant::now();
    let mut times = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("── {} ({}/{})", step.name, index + 1, steps.len());
        let begun = Instant::now();
        let result = (step.run)();
        times.push(format!("{} {}", step.name, seconds(begun.elapsed())));
        if let Err(error) = result {
            println!(
                "ci: FAILED at {}, after {}: {}",
                step.name,
                seconds(start.elapsed()),
                times.join(", ")
            );
            return Err(error.context(format!("step {}", step.name)));
        }
    }
    println!(
        "ci: passed {} steps in {}: {}",
        steps.len(),
        seconds(start.elapsed()),
        times.join(", ")
    );
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn format() -> Result<()> {
    tools::run(tools::cargo().args(["fmt", "--all", "--", "--check"]))
}

fn clippy() -> Result<()> {
    tools::run(tools::cargo().args([
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "--deny",
        "warnings",
    ]))
}

fn docs() -> Result<()> {
    tools::run(
        tools::cargo()
            .args(["doc", "--quiet", "--workspace", "--no-deps", "--locked"])
            .env("RUSTDOCFLAGS", "--deny warnings"),
    )
}

/// Where the tests' C functions come from.
#[derive(Clone, Copy, PartialEq)]
enum Library {
    InProcess,
    SharedObject,
}

fn tests(library: Library) -> Result<()> {
    let mut command = tools::cargo();
    command.args([
        "test",
        "--quiet",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
        "--examples",
        "--locked",
    ]);
    // A developer's own settings must not decide what the gate tests.
    command
        .env_remove("HCOM_LIBRARY_PATH")
        .env_remove("ASCEND_HOME_PATH");
    if library == Library::SharedObject {
        tools::run(tools::cargo().args(["build", "--quiet", "--workspace", "--locked"]))?;
        let path = tools::target().join("debug/libhcom_fake_so.so");
        ensure!(path.is_file(), "the build left no {}", path.display());
        command.env("HCOM_LIBRARY_PATH", path);
    }
    tools::run(&mut command)
}

fn tests_full() -> Result<()> {
    for _ in 0..ROUNDS {
        tests(Library::InProcess)?;
        tests(Library::SharedObject)?;
    }
    Ok(())
}

fn doctests() -> Result<()> {
    tools::run(tools::cargo().args(["test", "--quiet", "--workspace", "--doc", "--locked"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn the_first_failure_ends_the_run_and_is_named() {
        static LATER: AtomicU32 = AtomicU32::new(0);
        let fails = Step {
            name: "fails",
            slow: false,
            run: || bail!("no"),
        };
        let later = Step {
            name: "later",
            slow: false,
            run: || {
                LATER.fetch_add(1, Ordering::Relaxed);
                Ok(())
            },
        };
        let error = run_steps(&[&later, &fails, &later]).unwrap_err();
        assert_eq!(format!("{error:#}"), "step fails: no");
        assert_eq!(LATER.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_unknown_step_is_refused_with_the_list() {
        let args = Args {
            full: false,
            list: true,
            only: vec!["clipy".into()],
        };
        let error = run(&args).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no step `clipy`; the steps are tools, format"),
            "{error}"
        );
    }
}
