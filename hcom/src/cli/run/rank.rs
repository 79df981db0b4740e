//! One rank of `hcom run`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use hcom_ir::{Graph, Id, Literal, ValueId};
use hcom_runtime::{Array, CompileOptions, Error, Executable, Mode as PlanMode, Runtime, World};
use serde_json::{Value, json};

use super::super::bad_input::BadInput;
use super::super::settings;
use super::{Arguments, Job, Mode, values};
use crate::launch;

/// Between two messages about progress.
const PROGRESS: Duration = Duration::from_millis(100);

/// Runs the rank and reports: its outputs, or what went wrong.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let (report, code) = match execute(arguments) {
        Ok(report) => (report, 0),
        Err(error) => {
            let (object, code) = describe(&error);
            if !launch::is_collected() {
                eprintln!("error: {error:#}");
            }
            let rank = World::from_env().map_or(Value::Null, |world| world.rank.into());
            (json!({"rank": rank, "error": object}).to_string(), code)
        }
    };
    if (launch::is_collected() || arguments.json || code == 0) && launch::report(&report).is_err() {
        return ExitCode::FAILURE;
    }
    ExitCode::from(code)
}

fn execute(arguments: &Arguments) -> anyhow::Result<String> {
    let settings = settings(arguments.timeout)?;
    let runtime = Runtime::start(&settings)?;
    let rank = runtime.rank();
    let job = Job::read(arguments, Some(runtime.world_size()))?;
    let graph = job.graph(rank);
    let inputs = job.inputs.of_rank(graph, rank, arguments.seed)?;
    let arrays: Vec<Array> = inputs
        .iter()
        .map(|input| runtime.array(input.value.dtype, &input.value.shape, &input.value.bytes))
        .collect::<Result<_, _>>()?;
    // What the graph reduces, the device library may have to be given in other steps.
    let lowered = hcom_convert::written::lower(graph, rank, runtime.world_size())
        .map_err(|error| BadInput::new(error.to_string()))?;
    let program = Program::new(&runtime, &lowered, arguments.mode)?;
    runtime.synchronize()?;

    let start = Instant::now();
    let mut told = start;
    let mut outputs = Vec::new();
    for step in 0..arguments.steps {
        outputs = program.run(&runtime, &arrays)?;
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            launch::progress(step + 1, arguments.steps)?;
        }
    }
    runtime.synchronize()?;
    let step_us = start.elapsed().as_secs_f64() * 1e6 / arguments.steps as f64;

    let mut report = format!("{{\"rank\": {rank}, \"outputs\": {{");
    append(
        &mut report,
        graph
            .output_names()
            .iter()
            .map(String::as_str)
            .zip(&outputs),
    )?;
    report.push_str("}, \"inputs_after\": {");
    let after = graph.inputs().iter().zip(&inputs).zip(&arrays);
    append(
        &mut report,
        after
            .filter(|((declared, input), _)| declared.mutable || input.given)
            .map(|((declared, _), array)| (&*declared.name, array)),
    )?;
    report.push_str(&format!("}}, \"step_us\": {step_us:.1}}}"));
    Ok(report)
}

fn append<'a>(
    report: &mut String,
    arrays: impl Iterator<Item = (&'a str, &'a Array)>,
) -> Result<(), Error> {
    for (index, (name, array)) in arrays.enumerate() {
        if index > 0 {
            report.push_str(", ");
        }
        report.push_str(&format!("{}: ", Value::from(name)));
        let literal = Literal {
            dtype: array.dtype(),
            shape: array.shape().to_vec(),
            bytes: array.to_host()?,
        };
        values::write(report, &literal);
    }
    Ok(())
}

/// The graph, ready to be run in one of the modes.
enum Program<'a> {
    Eager(&'a Graph),
    Plan(Executable),
}

impl<'a> Program<'a> {
    fn new(runtime: &Runtime, graph: &'a Graph, mode: Mode) -> Result<Program<'a>, Error> {
        let mode = match mode {
            Mode::Eager => return Ok(Program::Eager(graph)),
            Mode::Launch => PlanMode::Overlapped,
            Mode::Replay => PlanMode::Replay,
            Mode::Split => PlanMode::Split,
        };
        let options = CompileOptions {
            mode,
            ..CompileOptions::default()
        };
        Ok(Program::Plan(runtime.compile(graph, &options)?))
    }

    fn run(&self, runtime: &Runtime, inputs: &[Array]) -> Result<Vec<Array>, Error> {
        match self {
            Program::Eager(graph) => eager(runtime, graph, inputs),
            Program::Plan(executable) => executable.run(inputs),
        }
    }
}

/// Runs the nodes one by one in program order; an array goes when its last user has run.
fn eager(runtime: &Runtime, graph: &Graph, inputs: &[Array]) -> Result<Vec<Array>, Error> {
    let users = graph.users();
    let mut arrays: Vec<Option<Array>> = vec![None; graph.values().len()];
    for (input, array) in graph.inputs().iter().zip(inputs) {
        arrays[input.value.index()] = Some(array.clone());
    }
    let is_output = |value: &ValueId| graph.outputs().contains(value);
    for (id, node) in graph.nodes() {
        let operands: Vec<&Array> = node
            .operands
            .iter()
            .filter_map(|value| arrays[value.index()].as_ref())
            .collect();
        let group = node.group().map(|group| graph.group(group));
        let results = runtime.eager(node.op, &node.attrs, group, &operands)?;
        for (value, array) in node.results.iter().zip(results) {
            arrays[value.index()] = Some(array);
        }
        for value in node.operands.iter().chain(&node.results) {
            let last = users[value.index()].last().is_none_or(|user| *user == id);
            if last && !is_output(value) {
                arrays[value.index()] = None;
            }
        }
    }
    Ok(graph
        .outputs()
        .iter()
        .filter_map(|value| arrays[value.index()].clone())
        .collect())
}

/// The error object of the report, and the exit code.
fn describe(error: &anyhow::Error) -> (Value, u8) {
    if let Some(bad) = error.downcast_ref::<BadInput>() {
        return (bad.to_json(), 2);
    }
    let message = format!("{error:#}");
    let Some(error) = error.downcast_ref::<Error>() else {
        return (object("error", &message), 1);
    };
    let described = match error {
        Error::Failure(failure) => {
            let mut object = serde_json::to_value(failure).unwrap_or_default();
            object["message"] = message.into();
            object
        }
        Error::Call { source, node } => {
            let mut object = object("library", &message);
            object["op"] = source.call.into();
            object["node"] = node.clone().into();
            object
        }
        Error::Load(_) | Error::Missing(_) => object("library", &message),
        Error::Thread { .. } => object("system", &message),
        Error::Control(_) => object("control", &message),
        Error::Plan { .. } => object("plan", &message),
        Error::Start(_) => object("start", &message),
        Error::Settings(settings) => {
            let mut object = object("settings", &message);
            object["expected"] = settings.expected.into();
            object["got"] = settings.value.clone().into();
            object
        }
        Error::Unsupported { op, types, .. } => {
            let mut object = object("unsupported", &message);
            object["op"] = (*op).into();
            object["got"] = types.clone().into();
            object
        }
        _ => object("graph", &message),
    };
    (described, if error.is_bad_input() { 2 } else { 1 })
}

/// An error of which only the kind and the message are known.
fn object(kind: &str, message: &str) -> Value {
    json!({
        "kind": kind, "op": null, "group": null, "seq": null, "rank": null, "ranks": [], "node": null,
        "expected": null, "got": null, "help": null, "message": message,
    })
}
