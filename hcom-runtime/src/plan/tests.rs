//! The planner under its checker, and the checker under wrong plans.

use hcom_ir::{Attrs, Builder, CostModel, Graph, Group, Op, ReduceOp, Type, ValueId, parse};

use super::{
    Mode, Plan, Root, Step, Work,
    check::{Violation, across_ranks, check},
};
use crate::{crosscheck::Uniformity, memory::Home};

fn graph(body: &str) -> Graph {
    let text =
        format!("hcom 1\ngroup @g = ranks(0, 1)\ngroup @h = ranks(0, 1, 2)\ngraph @f{body}\n");
    parse(&text, "plan").unwrap_or_else(|found| panic!("{found}\n{text}"))
}

fn plan_on(graph: &Graph, rank: u32, mode: Mode, uniformity: &Uniformity) -> Plan {
    Plan::new(graph, rank, mode, uniformity, &CostModel::cpu_fake())
        .expect("the graph can be planned")
}

fn plan(graph: &Graph) -> Plan {
    let plan = plan_on(graph, 0, Mode::Overlapped, &Uniformity::Uniform);
    check(graph, &plan, false).expect("the planner's plan is right");
    plan
}

/// A chain over a collective, with a branch that overlaps it, and a written input.
fn branched() -> Graph {
    graph(
        "(%x: mut f32[256], %y: f32[256]) -> (f32[256], f32[256]) {
  %a = exp %x
  %b = all_reduce %a, op = sum, group = @g
  %c = exp %y
  %d = neg %c
  %e = add %b, %d
  %n = neg %x
  copy_to_input %c, %x
  return %e, %n
}",
    )
}

/// Index of the task of the node that defines `%name`, or of the first `op` without result.
fn task_of(graph: &Graph, plan: &Plan, name: &str) -> usize {
    let found = plan.tasks.tasks.iter().position(|task| match task.work {
        Work::Node(id) => graph.print_node(id).trim_start().starts_with(name),
        _ => false,
    });
    found.unwrap_or_else(|| panic!("{name} is a task"))
}

fn step_of(plan: &Plan, task: usize) -> usize {
    let found = plan
        .steps
        .iter()
        .position(|step| *step == Step::Launch { task });
    found.expect("the task is launched")
}

fn buffer_of(plan: &Plan, task: usize) -> usize {
    match plan.tasks.tasks[task].results[0] {
        Root::Buffer(buffer) => buffer,
        other => panic!("{other:?} is no buffer"),
    }
}

#[test]
fn two_micro_batches_overlap_with_the_fewest_events() {
    let graph = graph(
        "(%x: f32[64, 64], %y: f32[64, 64]) -> (f32[64, 64], f32[64, 64]) {
  %a = matmul %x, %x
  %b = all_reduce %a, op = sum, group = @g
  %c = matmul %y, %y
  %d = all_reduce %c, op = sum, group = @g
  %e = relu %b
  %f = relu %d
  return %e, %f
}",
    );
    let plan = plan(&graph);
    assert_eq!(plan.lanes().len(), 2);
    // Each collective waits for its product and each relu for its collective; nothing else.
    assert_eq!(plan.events(), 4);
    assert_eq!(plan.collectives(), 2);
    let [a, c, e] = ["%a", "%c", "%e"].map(|name| step_of(&plan, task_of(&graph, &plan, name)));
    assert!(
        a < c && c < e,
        "the second product runs while the first sum travels"
    );
    // Both sums take over the memory of the products, and the outputs are written directly.
    assert_eq!(plan.arena_bytes(), 2 * 64 * 64 * 4);
    let serial = plan_on(&graph, 0, Mode::SingleStream, &Uniformity::Uniform);
    assert_eq!((serial.events(), serial.lanes().len()), (0, 1));
    assert!(plan.predicted_us() < serial.predicted_us());
}

#[test]
fn pinned_collectives_keep_their_order_also_between_groups() {
    // The cheap path to the second collective is ready long before the first.
    let graph = graph(
        "(%x: f32[256, 256], %y: f32[4]) -> (f32[256, 256], f32[4]) {
  %a = matmul %x, %x
  %b = all_reduce %a, op = sum, group = @g
  %c = all_reduce %y, op = sum, group = @g
  return %b, %c
}",
    );
    let order = |plan: &Plan| {
        step_of(plan, task_of(&graph, plan, "%b")) < step_of(plan, task_of(&graph, plan, "%c"))
    };
    assert!(!order(&plan(&graph)), "free to start what is ready");
    let pinned = Uniformity::Pinned {
        reason: "test".into(),
    };
    let pinned = plan_on(&graph, 0, Mode::Overlapped, &pinned);
    check(&graph, &pinned, true).unwrap();
    assert!(order(&pinned));
}

#[test]
fn an_operand_that_is_read_elsewhere_is_not_taken_over() {
    let graph = graph(
        "(%x: f32[256]) -> (f32[256], f32[256]) {
  %a = exp %x
  %b = all_reduce %a, op = sum, group = @g
  %c = neg %a
  %d = relu %b
  %e = relu %c
  return %d, %e
}",
    );
    let mut plan = plan(&graph);
    let [a, b] = ["%a", "%b"].map(|name| buffer_of(&plan, task_of(&graph, &plan, name)));
    assert_ne!(plan.layout.buffers[a], plan.layout.buffers[b]);
    plan.layout.buffers[b] = plan.layout.buffers[a];
    assert!(matches!(
        check(&graph, &plan, false),
        Err(Violation::Overlap { .. })
    ));
}

#[test]
fn a_node_must_be_launched_once() {
    let graph = branched();
    let mut missing = plan(&graph);
    let at = step_of(&missing, task_of(&graph, &missing, "%n"));
    let step = missing.steps.remove(at);
    assert!(matches!(
        check(&graph, &missing, false),
        Err(Violation::Launches { times: 0, .. })
    ));
    missing.steps.insert(at, step);
    missing.steps.insert(at, step);
    assert!(matches!(
        check(&graph, &missing, false),
        Err(Violation::Launches { times: 2, .. })
    ));
}

#[test]
fn a_value_must_be_written_before_it_is_read() {
    let graph = branched();
    let mut plan = plan(&graph);
    let add = step_of(&plan, task_of(&graph, &plan, "%e"));
    assert!(matches!(plan.steps[add - 1], Step::Wait { .. }));
    plan.steps.swap(add - 1, add);
    assert!(matches!(
        check(&graph, &plan, false),
        Err(Violation::Dependency { .. })
    ));
}

#[test]
fn events_are_recorded_once_and_before_they_are_waited_for() {
    let graph = branched();
    let right = plan(&graph);
    let record = right
        .steps
        .iter()
        .position(|s| matches!(s, Step::Record { .. }))
        .unwrap();
    let mut twice = right.clone();
    twice.steps.insert(record, right.steps[record]);
    assert!(matches!(
        check(&graph, &twice, false),
        Err(Violation::Event { .. })
    ));
    let mut late = right;
    let step = late.steps.remove(record);
    late.steps.push(step);
    assert!(matches!(
        check(&graph, &late, false),
        Err(Violation::Event { .. })
    ));
}

#[test]
fn lanes_begin_with_the_plan_and_are_joined() {
    let graph = branched();
    let right = plan(&graph);
    let waits: Vec<usize> = (0..right.steps.len())
        .filter(|&at| matches!(right.steps[at], Step::Wait { .. }))
        .collect();
    for &at in &waits {
        let mut plan = right.clone();
        plan.steps.remove(at);
        assert!(matches!(
            check(&graph, &plan, false),
            Err(Violation::Join { .. })
        ));
    }
    assert_eq!(waits.len(), 2);
}

#[test]
fn live_memory_must_not_be_shared_or_left() {
    let graph = branched();
    let right = plan(&graph);
    let [b, d] = ["%b", "%d"].map(|name| buffer_of(&right, task_of(&graph, &right, name)));
    let mut shared = right.clone();
    shared.layout.buffers[d] = shared.layout.buffers[b];
    assert!(matches!(
        check(&graph, &shared, false),
        Err(Violation::Overlap { .. })
    ));
    let mut outside = right;
    outside.layout.buffers[d] = Home::Arena(1 << 20);
    assert!(matches!(
        check(&graph, &outside, false),
        Err(Violation::OutOfArena { .. })
    ));
}

#[test]
fn an_input_is_written_after_its_readers() {
    let graph = branched();
    let mut plan = plan(&graph);
    let write = step_of(&plan, task_of(&graph, &plan, "copy_to_input"));
    let step = plan.steps.remove(write);
    let reader = step_of(&plan, task_of(&graph, &plan, "%n"));
    plan.steps.insert(reader, step);
    assert!(matches!(
        check(&graph, &plan, false),
        Err(Violation::Overlap { .. })
    ));
}

#[test]
fn tasks_must_use_the_memory_of_their_operands() {
    let graph = branched();
    let mut plan = plan(&graph);
    let negation = task_of(&graph, &plan, "%d");
    plan.tasks.tasks[negation].operands[0] = Root::Input(1);
    assert!(matches!(
        check(&graph, &plan, false),
        Err(Violation::Wiring { .. })
    ));
}

#[test]
fn a_communicator_has_one_lane() {
    let graph = branched();
    let mut plan = plan(&graph);
    let collective = task_of(&graph, &plan, "%b");
    plan.lane_of[collective] = 0;
    let found = check(&graph, &plan, false).unwrap_err();
    assert!(matches!(found, Violation::Channel { .. }), "{found}");
}

#[test]
fn the_order_of_pinned_collectives_is_checked() {
    let graph = graph(
        "(%x: f32[8], %y: f32[8]) -> (f32[8], f32[8]) {
  %b = all_reduce %x, op = sum, group = @g
  %c = all_reduce %y, op = max, group = @g
  return %b, %c
}",
    );
    let mut plan = plan(&graph);
    let [b, c] = ["%b", "%c"].map(|name| step_of(&plan, task_of(&graph, &plan, name)));
    plan.steps.swap(b, c);
    check(&graph, &plan, false).expect("without pinning the order is free");
    assert!(matches!(
        check(&graph, &plan, true),
        Err(Violation::Order { .. })
    ));
}

#[test]
fn collectives_that_share_two_ranks_take_turns() {
    let graph = graph(
        "(%x: f32[8], %y: f32[8]) -> (f32[8], f32[8]) {
  %b = all_reduce %x, op = sum, group = @g
  %c = all_reduce %y, op = sum, group = @h
  return %b, %c
}",
    );
    let mut plan = plan(&graph);
    let start = plan
        .steps
        .iter()
        .find_map(|step| match *step {
            Step::Record { event, lane: 0 } => Some(event),
            _ => None,
        })
        .expect("lanes begin after the plan");
    let second = plan
        .steps
        .iter_mut()
        .filter_map(|step| match step {
            Step::Wait { event, lane } if *lane != 0 && *event != start => Some(event),
            _ => None,
        })
        .next()
        .expect("the second collective waits for the first");
    let first = std::mem::replace(second, start);
    plan.steps.push(Step::Wait {
        event: first,
        lane: 0,
    });
    assert!(matches!(
        check(&graph, &plan, false),
        Err(Violation::Concurrent { .. })
    ));
}

#[test]
fn a_split_plan_waits_on_the_host() {
    let graph = branched();
    let mut plan = plan_on(&graph, 0, Mode::Split, &Uniformity::Uniform);
    check(&graph, &plan, false).unwrap();
    plan.steps.retain(|step| *step != Step::Synchronise);
    assert!(matches!(
        check(&graph, &plan, false),
        Err(Violation::NotSplit { .. })
    ));
}

#[test]
fn waits_in_a_circle_across_ranks_are_found() {
    let first = graph(
        "(%x: f32[8]) -> f32[8] {
  %b = all_reduce %x, op = sum, group = @g
  %c = all_reduce %b, op = sum, group = @h
  return %c
}",
    );
    let second = graph(
        "(%x: f32[8]) -> f32[8] {
  %c = all_reduce %x, op = sum, group = @h
  %b = all_reduce %c, op = sum, group = @g
  return %b
}",
    );
    let pinned = Uniformity::Pinned {
        reason: "test".into(),
    };
    let plans = [(&first, 0), (&second, 1)]
        .map(|(graph, rank)| plan_on(graph, rank, Mode::Overlapped, &pinned));
    assert!(matches!(
        across_ranks(&[(&first, &plans[0]), (&second, &plans[1])]),
        Err(Violation::Cycle { .. })
    ));
    across_ranks(&[(&first, &plans[0]), (&first, &plans[0])]).expect("equal plans are fine");
}

/// Random programs over three groups, one input written, in every mode.
#[test]
fn seeded_programs_pass_the_checker_in_every_mode() {
    let mut state = 0x0123_4567_89AB_CDEF_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for round in 0..150 {
        let mut builder = Builder::new("random");
        let groups = [vec![0, 1], vec![0, 1, 2], vec![0, 2]]
            .map(|ranks| builder.group(Group::new(format!("g{}", ranks.len()), ranks)));
        let ty = |rows: u64| Type::fixed(hcom_ir::DType::F32, &[rows]);
        let written = builder.input("x", ty(128), true);
        let mut values: Vec<ValueId> = vec![written, builder.input("y", ty(128), false)];
        let count = 3 + random(25);
        for _ in 0..count {
            let [a, b] = [values[random(values.len())], values[random(values.len())]];
            let new = match random(5) {
                0 => builder.one(Op::Add, &[a, b], Attrs::new()),
                1 => builder.one(Op::Reshape, &[a], Attrs::new().with("shape", vec![128u64])),
                2 => builder.one(Op::Exp, &[a], Attrs::new()),
                _ => {
                    let attrs = Attrs::new()
                        .with("op", ReduceOp::Sum)
                        .with("group", groups[random(groups.len())]);
                    builder.one(Op::AllReduce, &[a], attrs)
                }
            };
            values.push(new.expect("the operation is valid"));
        }
        let last = values[values.len() - 1];
        builder
            .push(Op::CopyToInput, &[last, written], Attrs::new())
            .unwrap();
        let picked = values[random(values.len())];
        let outputs = vec![("p".to_owned(), picked), ("q".to_owned(), last)];
        let Ok(graph) = builder.finish(outputs) else {
            continue;
        };
        for mode in Mode::ALL {
            for pinned in [false, true] {
                let uniformity = match pinned {
                    false => Uniformity::Uniform,
                    true => Uniformity::Pinned {
                        reason: "test".into(),
                    },
                };
                let plan = plan_on(&graph, 0, mode, &uniformity);
                if let Err(violation) = check(&graph, &plan, pinned) {
                    panic!("round {round} {mode:?} pinned {pinned}: {violation}\n{graph}");
                }
                across_ranks(&[(&graph, &plan), (&graph, &plan)]).unwrap();
            }
        }
    }
}
