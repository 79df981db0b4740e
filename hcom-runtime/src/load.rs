//! What a plan needs on the device, made once, and the launch of its tasks.

use std::sync::Arc;

use hcom_ir::{Graph, NodeId, Op};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    Array, Error, Plan,
    aclnn::{self, Call, Place as Where},
    buffer::Block,
    comm::{Comm, Key},
    control::Run,
    memory::Home,
    plan::{Root, Task, Work},
    raw::{Communicator, Event, Operator, Place, Stream, Workspace},
    runtime::{Inner, Launch},
    watchdog::{LineId, Mark, Row},
};

/// The arrays of one execution.
pub(crate) struct Outside<'a> {
    pub(crate) inputs: &'a [Array],
    pub(crate) outputs: &'a [Array],
}

impl Outside<'_> {
    fn array(&self, slot: Open) -> &Array {
        match slot {
            Open::Input(input) => &self.inputs[input],
            Open::Output(output) => &self.outputs[output],
        }
    }
}

/// The collectives that a capture has on one channel.
pub(crate) struct Tape {
    pub(crate) line: LineId,
    pub(crate) rows: Vec<Arc<Row>>,
}

impl Tape {
    pub(crate) fn new(line: LineId) -> Tape {
        Tape {
            line,
            rows: Vec::new(),
        }
    }
}

/// Where launches lead.
pub(crate) enum Way<'a> {
    /// To the device. There is a run for each channel.
    Device {
        launch: &'a mut Launch,
        runs: &'a [Arc<Run>],
    },
    /// Into a capture. There is a tape for each channel and a workspace for each lane.
    Capture {
        tapes: &'a mut [Tape],
        workspaces: &'a mut [Workspace],
    },
}

/// Memory that another execution may find elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Input(usize),
    Output(usize),
}

/// Memory of an operand or result.
#[derive(Clone, Debug)]
enum Slot {
    Fixed(Place),
    Open(Open),
}

impl Slot {
    fn place(&self, outside: &Outside<'_>) -> Place {
        match self {
            Slot::Fixed(place) => place.clone(),
            Slot::Open(open) => outside.array(*open).place(),
        }
    }
}

/// An operator with the open memory it was last described for.
struct Described {
    operator: Option<Operator>,
    open: SmallVec<[(Open, usize); 2]>,
}

/// A task whose fixed memory is resolved.
struct Prepared {
    operands: SmallVec<[Slot; 3]>,
    results: SmallVec<[Slot; 1]>,
    scratch: SmallVec<[Place; 2]>,
    /// One entry per kernel call, in order.
    operators: Vec<Described>,
    row: Option<Arc<Row>>,
}

impl Prepared {
    fn slot(&self, place: Where) -> Option<Slot> {
        match place {
            Where::Operand(index) => self.operands.get(index).cloned(),
            Where::Result(index) => self.results.get(index).cloned(),
            Where::Scratch(index) => self.scratch.get(index).cloned().map(Slot::Fixed),
        }
    }

    fn place(&self, place: Where, outside: &Outside<'_>) -> Option<Place> {
        self.slot(place).map(|slot| slot.place(outside))
    }
}

/// Everything of a plan that stays on the device between executions.
pub(crate) struct Loaded {
    /// The stream of each lane.
    pub(crate) lanes: Vec<Arc<Stream>>,
    pub(crate) events: Vec<Event>,
    /// The largest workspace that an operator of each lane needs.
    pub(crate) workspace_bytes: Vec<u64>,
    comms: Vec<Arc<Comm>>,
    tasks: Vec<Prepared>,
    /// Holds the memory that the tasks refer to.
    _blocks: Vec<Block>,
}

impl Loaded {
    pub(crate) fn new(
        inner: &Arc<Inner>,
        launch: &mut Launch,
        graph: &Graph,
        plan: &Plan,
    ) -> Result<Loaded, Error> {
        let calls = plan.tasks.tasks.iter().flat_map(|task| &task.lowered.calls);
        for call in calls {
            if let Call::Collective(collective) = call {
                Communicator::offers(&inner.driver, &collective.kind)?;
            }
        }
        let (arena, _) = Block::take(inner, plan.arena_bytes())?;
        let mut blocks = Vec::new();
        let constants = upload_constants(inner, graph, &mut blocks)?;
        let comms = connect(inner, launch, plan)?;
        let mut lanes = vec![inner.compute.clone()];
        if plan.mode.overlaps() {
            lanes.extend(comms.iter().map(|comm| comm.stream().clone()));
        }
        let events = (0..plan.events)
            .map(|_| Event::new(&inner.driver))
            .collect::<Result<_, Error>>()?;
        let resolver = Resolver {
            plan,
            arena: &arena,
            constants: &constants,
        };
        let tasks = plan
            .tasks
            .tasks
            .iter()
            .enumerate()
            .map(|(index, task)| {
                let row = task.channel.is_some().then(|| row(graph, task));
                resolver.prepare(index, task, row)
            })
            .collect();
        let mut loaded = Loaded {
            workspace_bytes: vec![0; lanes.len()],
            lanes,
            events,
            comms,
            tasks,
            _blocks: blocks,
        };
        loaded.examine(inner, launch, graph, plan)?;
        loaded._blocks.push(arena);
        Ok(loaded)
    }

    /// Lets the library check every operator, makes room for what they need, and describes those
    /// whose memory never changes.
    fn examine(
        &mut self,
        inner: &Arc<Inner>,
        launch: &mut Launch,
        graph: &Graph,
        plan: &Plan,
    ) -> Result<(), Error> {
        for (index, task) in plan.tasks.tasks.iter().enumerate() {
            let named = |error: Error| match task.work {
                Work::Node(node) => error.at(|| graph.print_node(node)),
                _ => error,
            };
            let mut workspace = 0;
            let mut operators = Vec::new();
            for call in &task.lowered.calls {
                let Call::Kernel { kernel, args } = call else {
                    continue;
                };
                let needs = Operator::examine(&inner.driver, *kernel, args).map_err(named)?;
                workspace = needs.max(workspace);
                operators.push(Described {
                    operator: None,
                    open: self.tasks[index].open(args),
                });
            }
            self.tasks[index].operators = operators;
            let most = &mut self.workspace_bytes[plan.lane_of[index]];
            *most = workspace.max(*most);
            match task.channel {
                Some(channel) if plan.mode.overlaps() => {
                    self.comms[channel].workspace().reserve(workspace)?;
                }
                _ => launch.workspace.reserve(workspace)?,
            }
        }
        Ok(())
    }

    /// Queues one task on its lane, or records it; returns the sequence number of its collective, 0 without one.
    pub(crate) fn launch(
        &mut self,
        inner: &Arc<Inner>,
        way: &mut Way<'_>,
        plan: &Plan,
        outside: &Outside<'_>,
        index: usize,
    ) -> Result<u64, Error> {
        let task = &plan.tasks.tasks[index];
        let lane = plan.lane_of[index];
        let stream = &self.lanes[lane];
        let prepared = &mut self.tasks[index];
        let mut seq = 0;
        let mut kernels = 0;
        for call in &task.lowered.calls {
            match call {
                Call::Kernel { kernel, args } => {
                    prepared.describe(inner, kernels, *kernel, args, outside)?;
                    let operator = prepared.operators[kernels].operator.as_ref();
                    let operator = operator.expect("the operator was described");
                    match (&mut *way, task.channel) {
                        (Way::Capture { workspaces, .. }, _) => {
                            operator.launch(stream, &mut workspaces[lane])?;
                        }
                        (_, Some(channel)) if plan.mode.overlaps() => {
                            operator.launch(stream, &mut self.comms[channel].workspace())?;
                        }
                        (Way::Device { launch, .. }, _) => {
                            operator.launch(stream, &mut launch.workspace)?;
                        }
                    }
                    kernels += 1;
                }
                Call::Copy { from, to, bytes } => {
                    let (from, to) = (prepared.place(*from, outside), prepared.place(*to, outside));
                    if let (Some(from), Some(to)) = (from, to) {
                        from.copy_to(&to, *bytes, stream)?;
                    }
                }
                Call::Collective(collective) => {
                    let channel = task.channel.expect("a collective has a channel");
                    let comm = &self.comms[channel];
                    let transfer = plan.tasks.channels[channel].point_to_point;
                    let from = prepared.place(collective.from, outside);
                    let to = prepared.place(collective.to, outside);
                    let row = prepared.row.as_ref().expect("a collective has a row");
                    let mark = match way {
                        Way::Device { launch, runs } => {
                            seq = launch.next_seq(&comm.group().ranks, transfer);
                            Mark::Issue {
                                line: comm.line(),
                                seq,
                                row,
                                run: Some(&runs[channel]),
                            }
                        }
                        Way::Capture { tapes, .. } => {
                            let tape = &mut tapes[channel];
                            tape.rows.push(row.clone());
                            Mark::Capture {
                                line: tape.line,
                                at: tape.rows.len() as u64,
                            }
                        }
                    };
                    comm.launch(collective, from.as_ref(), to.as_ref(), &mark)?;
                }
            }
        }
        Ok(seq)
    }
}

impl Prepared {
    fn open(&self, args: &[aclnn::Arg]) -> SmallVec<[(Open, usize); 2]> {
        let mut open = SmallVec::new();
        let views = args.iter().flat_map(|arg| match arg {
            aclnn::Arg::Tensor(view) => std::slice::from_ref(view),
            aclnn::Arg::Tensors(views) => views.as_slice(),
            _ => &[],
        });
        for view in views {
            if let Some(Slot::Open(slot)) = self.slot(view.place)
                && !open.iter().any(|&(known, _)| known == slot)
            {
                open.push((slot, 0));
            }
        }
        open
    }

    /// Describes kernel call number `call` for the arrays of this execution, unless that is how it
    /// was described last.
    fn describe(
        &mut self,
        inner: &Arc<Inner>,
        call: usize,
        kernel: aclnn::Kernel,
        args: &[aclnn::Arg],
        outside: &Outside<'_>,
    ) -> Result<(), Error> {
        let described = &self.operators[call];
        let address = |open| outside.array(open).ptr() as usize;
        let current = described.operator.is_some()
            && described.open.iter().all(|&(open, at)| address(open) == at);
        if current {
            return Ok(());
        }
        let place = |at: Where| {
            self.place(at, outside)
                .expect("kernels use memory that exists")
        };
        let operator = Operator::new(&inner.driver, kernel, args, place)?;
        let described = &mut self.operators[call];
        described.operator = Some(operator);
        for (open, at) in &mut described.open {
            *at = address(*open);
        }
        Ok(())
    }
}

fn row(graph: &Graph, task: &Task) -> Arc<Row> {
    let Work::Node(id) = task.work else {
        unreachable!("communication comes from nodes");
    };
    Row::new(graph, id)
}

/// Makes the communicators of a plan, in an order that is the same on all ranks.
fn connect(inner: &Arc<Inner>, launch: &mut Launch, plan: &Plan) -> Result<Vec<Arc<Comm>>, Error> {
    let channels = &plan.tasks.channels;
    let keys: Vec<Key> = channels
        .iter()
        .map(|channel| Key {
            ranks: channel.group.ranks.clone(),
            own_stream: plan.mode.overlaps(),
            point_to_point: channel.point_to_point,
        })
        .collect();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|&index| &keys[index]);
    let mut comms: Vec<Option<Arc<Comm>>> = vec![None; keys.len()];
    for index in order {
        comms[index] = Some(inner.comm(launch, &keys[index], &channels[index].group)?);
    }
    Ok(comms.into_iter().flatten().collect())
}

fn upload_constants(
    inner: &Arc<Inner>,
    graph: &Graph,
    blocks: &mut Vec<Block>,
) -> Result<FxHashMap<NodeId, Place>, Error> {
    let mut constants = FxHashMap::default();
    for (id, node) in graph.nodes().filter(|(_, node)| node.op == Op::Constant) {
        let literal = node.attrs.literal("value");
        let bytes = literal.bytes.len() as u64;
        let (block, fresh) = Block::take(inner, bytes)?;
        let place = block.place(bytes);
        if !fresh {
            inner.watchdog.wait(&inner.compute)?;
        }
        if bytes > 0 {
            place.write(&literal.bytes)?;
        }
        constants.insert(id, place);
        blocks.push(block);
    }
    Ok(constants)
}

struct Resolver<'a> {
    plan: &'a Plan,
    arena: &'a Block,
    constants: &'a FxHashMap<NodeId, Place>,
}

impl Resolver<'_> {
    fn slot(&self, root: Root) -> Slot {
        match root {
            Root::Input(input) => Slot::Open(Open::Input(input)),
            Root::Output(output) => Slot::Open(Open::Output(output)),
            Root::Constant(node) => Slot::Fixed(self.constants[&node].clone()),
            Root::Buffer(buffer) => match self.plan.layout.buffers[buffer] {
                Home::Output(output) => Slot::Open(Open::Output(output)),
                Home::Arena(offset) => {
                    Slot::Fixed(self.arena.part(offset, self.plan.tasks.buffers[buffer]))
                }
            },
        }
    }

    fn prepare(&self, index: usize, task: &Task, row: Option<Arc<Row>>) -> Prepared {
        let scratch = self.plan.layout.scratch[index]
            .iter()
            .zip(&task.lowered.scratch)
            .map(|(&offset, &bytes)| self.arena.part(offset, bytes))
            .collect();
        Prepared {
            operands: task.operands.iter().map(|&root| self.slot(root)).collect(),
            results: task.results.iter().map(|&root| self.slot(root)).collect(),
            scratch,
            operators: Vec::new(),
            row,
        }
    }
}
