//! What lies in memory during a plan, derived from the graph, and the proof that none of it is
//! overwritten while it is needed.

use hcom_ir::{Class, Def, NodeId, Op, ValueId};
use rustc_hash::FxHashMap;

use super::{Checker, Violation};
use crate::{
    memory::Home,
    plan::{Root, Work},
};

/// A stretch of memory; `start..end` are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    space: Space,
    start: u64,
    end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    Input(usize),
    Constant(NodeId),
    Output(usize),
    Arena,
}

/// Something that lies in memory for a while.
pub(super) struct Content {
    region: Region,
    /// The task that writes it; nothing for what is there at the start.
    writer: Option<usize>,
    readers: Vec<usize>,
    /// Whether it is needed after the plan has ended.
    kept: bool,
    name: String,
}

impl Checker<'_> {
    /// The value whose memory `value` names: itself unless it is a view.
    pub(super) fn origin(&self, mut value: ValueId) -> ValueId {
        while let Def::Node { node, .. } = self.graph.value(value).def
            && self.graph.node(node).op.class() == Class::View
        {
            value = self.graph.node(node).operands[0];
        }
        value
    }

    fn region(&self, root: Root, bytes: u64) -> Region {
        let (space, start) = match root {
            Root::Input(input) => (Space::Input(input), 0),
            Root::Constant(node) => (Space::Constant(node), 0),
            Root::Output(output) => (Space::Output(output), 0),
            Root::Buffer(buffer) => match self.plan.layout.buffers[buffer] {
                Home::Arena(offset) => (Space::Arena, offset),
                Home::Output(output) => (Space::Output(output), 0),
            },
        };
        Region {
            space,
            start,
            end: start + bytes,
        }
    }

    fn value_bytes(&self, value: ValueId) -> u64 {
        self.graph.ty(value).bytes().unwrap_or(0)
    }

    /// Everything that lies in memory, from the graph; checks that tasks use the memory in which
    /// their operands were left.
    pub(super) fn contents(&self) -> Result<Vec<Content>, Violation> {
        let mut contents: Vec<Content> = Vec::new();
        let mut of_value: FxHashMap<ValueId, usize> = FxHashMap::default();
        let named = |value: ValueId| format!("%{}", self.graph.value(value).name);
        for (index, input) in self.graph.inputs().iter().enumerate() {
            of_value.insert(input.value, contents.len());
            contents.push(Content {
                region: self.region(Root::Input(index), self.value_bytes(input.value)),
                writer: None,
                readers: Vec::new(),
                kept: false,
                name: named(input.value),
            });
        }
        for (id, node) in self
            .graph
            .nodes()
            .filter(|(_, node)| node.op == Op::Constant)
        {
            let value = node.results[0];
            of_value.insert(value, contents.len());
            contents.push(Content {
                region: self.region(Root::Constant(id), self.value_bytes(value)),
                writer: None,
                readers: Vec::new(),
                kept: true,
                name: named(value),
            });
        }
        // Writers first, so that a reader issued too early is still matched with its writer.
        for &task in &self.issued {
            if let Work::Node(node) = self.task(task).work {
                let node = self.graph.node(node);
                for (&value, &root) in node.results.iter().zip(&self.task(task).results) {
                    of_value.insert(value, contents.len());
                    contents.push(Content {
                        region: self.region(root, self.value_bytes(value)),
                        writer: Some(task),
                        readers: Vec::new(),
                        kept: false,
                        name: named(value),
                    });
                }
            }
        }
        let mut snapshots: FxHashMap<ValueId, Vec<usize>> = FxHashMap::default();
        for &task in &self.issued {
            self.read(task, &mut contents, &of_value, &mut snapshots)?;
            let scratch = &self.plan.layout.scratch[task];
            for (&offset, &bytes) in scratch.iter().zip(&self.task(task).lowered.scratch) {
                contents.push(Content {
                    region: Region {
                        space: Space::Arena,
                        start: offset,
                        end: offset + bytes,
                    },
                    writer: Some(task),
                    readers: Vec::new(),
                    kept: false,
                    name: format!("temporary memory of {}", self.describe(task)),
                });
            }
        }
        self.outputs(&mut contents, &of_value)?;
        Ok(contents)
    }

    /// Registers what `task` reads, and what it writes beyond the results of its node.
    fn read(
        &self,
        task: usize,
        contents: &mut Vec<Content>,
        of_value: &FxHashMap<ValueId, usize>,
        snapshots: &mut FxHashMap<ValueId, Vec<usize>>,
    ) -> Result<(), Violation> {
        let wiring = |value: ValueId| Violation::Wiring {
            task: self.describe(task),
            value: self.graph.value(value).name.clone(),
        };
        let roots = &self.task(task).operands;
        match self.task(task).work {
            Work::Node(id) if self.graph.node(id).op == Op::CopyToInput => {
                let node = self.graph.node(id);
                let (value, input) = (node.operands[0], node.operands[1]);
                let from = self.region(roots[0], self.value_bytes(value));
                let origin = self.origin(value);
                let candidates = snapshots.get(&origin).cloned().unwrap_or_default();
                let content = candidates
                    .into_iter()
                    .chain([of_value[&origin]])
                    .find(|&content| contents[content].region == from)
                    .ok_or_else(|| wiring(value))?;
                contents[content].readers.push(task);
                let Def::Input(index) = self.graph.value(input).def else {
                    return Err(wiring(input));
                };
                let declared = &self.graph.inputs()[index as usize];
                let target = self.region(Root::Input(index as usize), self.value_bytes(input));
                if self.region(roots[1], self.value_bytes(input)) != target {
                    return Err(wiring(input));
                }
                contents.push(Content {
                    region: target,
                    writer: Some(task),
                    readers: Vec::new(),
                    kept: true,
                    name: format!("the new value of %{}", declared.name),
                });
            }
            Work::Node(id) => {
                for (&value, &root) in self.graph.node(id).operands.iter().zip(roots) {
                    let content = of_value[&self.origin(value)];
                    if contents[content].region != self.region(root, self.value_bytes(value)) {
                        return Err(wiring(value));
                    }
                    contents[content].readers.push(task);
                }
            }
            Work::CopyOut { value, .. } | Work::Snapshot { value } => {
                let bytes = self.value_bytes(value);
                let content = of_value[&self.origin(value)];
                if contents[content].region != self.region(roots[0], bytes) {
                    return Err(wiring(value));
                }
                contents[content].readers.push(task);
                if let Work::Snapshot { .. } = self.task(task).work {
                    snapshots
                        .entry(self.origin(value))
                        .or_default()
                        .push(contents.len());
                }
                contents.push(Content {
                    region: self.region(self.task(task).results[0], bytes),
                    writer: Some(task),
                    readers: Vec::new(),
                    kept: matches!(self.task(task).work, Work::CopyOut { .. }),
                    name: self.describe(task),
                });
            }
        }
        Ok(())
    }

    /// Each output's array must end up with the output's value.
    fn outputs(
        &self,
        contents: &mut [Content],
        of_value: &FxHashMap<ValueId, usize>,
    ) -> Result<(), Violation> {
        for (output, &value) in self.graph.outputs().iter().enumerate() {
            let region = self.region(Root::Output(output), self.value_bytes(value));
            let copied = self.issued.iter().any(|&task| {
                self.task(task).work == (Work::CopyOut { output, value })
                    && self.task(task).results[0] == Root::Output(output)
            });
            if copied {
                continue;
            }
            let content = &mut contents[of_value[&self.origin(value)]];
            if content.region != region {
                return Err(Violation::Wiring {
                    task: format!("output {output}"),
                    value: self.graph.value(value).name.clone(),
                });
            }
            content.kept = true;
        }
        Ok(())
    }

    pub(super) fn memory(&self, contents: &[Content]) -> Result<(), Violation> {
        let arena_bytes = self.plan.layout.arena_bytes;
        for content in contents {
            if let Some(writer) = content.writer {
                if content.region.space == Space::Arena && content.region.end > arena_bytes {
                    return Err(Violation::OutOfArena {
                        task: self.describe(writer),
                        arena_bytes,
                    });
                }
                if let Some(&reader) = content
                    .readers
                    .iter()
                    .find(|&&reader| !self.precedes(writer, reader))
                {
                    return Err(Violation::Dependency {
                        reader: self.describe(reader),
                        writer: self.describe(writer),
                    });
                }
            }
        }
        let mut by_place: Vec<usize> = (0..contents.len()).collect();
        by_place.sort_by_key(|&c| (contents[c].region.space, contents[c].region.start));
        for (at, &a) in by_place.iter().enumerate() {
            for &b in &by_place[at + 1..] {
                let (x, y) = (&contents[a], &contents[b]);
                if x.region.space != y.region.space || y.region.start >= x.region.end {
                    break;
                }
                if y.region.start == y.region.end {
                    continue;
                }
                if !self.gone_before(x, y) && !self.gone_before(y, x) {
                    let (kept, writer) = if y.writer.is_some() { (x, y) } else { (y, x) };
                    return Err(Violation::Overlap {
                        writer: writer
                            .writer
                            .map_or_else(|| "the caller".into(), |w| self.describe(w)),
                        kept: kept.name.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether nobody needs `old` any more when `new` is written over it.
    fn gone_before(&self, old: &Content, new: &Content) -> bool {
        let Some(writer) = new.writer else {
            return false;
        };
        if old.kept || old.writer == new.writer {
            return false;
        }
        let in_place = old.region == new.region
            && match self.task(writer).work {
                Work::Node(id) => {
                    matches!(self.graph.node(id).op, Op::AllReduce | Op::Broadcast)
                        && self.graph.node(id).operands.len() == 1
                }
                _ => false,
            };
        old.writer
            .is_none_or(|old_writer| self.precedes(old_writer, writer))
            && old
                .readers
                .iter()
                .all(|&reader| self.precedes(reader, writer) || (in_place && reader == writer))
    }
}
