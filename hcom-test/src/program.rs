//! Random programs of several ranks, with the meaning that the oracle gives them.
//!
//! A program is a list of steps, made from a seed: local operations and views, collectives in
//! groups that may overlap, transfers between two ranks, barriers, writes to inputs. In half of the
//! programs all ranks have the same graph; in the others each rank computes something else between
//! the communication, and takes part in some groups only. Every step draws from a source of its own,
//! so that a program without one of its steps is otherwise nearly the same: [`Program::smaller`].
//!
//! All values are such that their bits are known: integers, and floats whose operations round in
//! one way only.
//!
//! `draft` collects the graphs of one rank, `step` makes steps, `random` numbers and data.

use std::fmt;

use hcom_ir::{Graph, InterpretError, Literal, RankResult, interpret};

mod draft;
mod random;
mod step;

use draft::Draft;
use random::Random;

/// A program that all ranks of a world run together.
#[derive(Clone, Debug)]
pub struct Program {
    /// What it was made from, together with the steps that were left out since.
    pub seed: u64,
    /// Number of ranks.
    pub world_size: u32,
    /// One graph per rank, with every reduction as one operation: what the program means.
    pub meaning: Vec<Graph>,
    /// One graph per rank, with reductions as recording a call makes them: what runs.
    pub graphs: Vec<Graph>,
    /// Data for each rank's inputs.
    pub inputs: Vec<Vec<Literal>>,
    steps: Vec<u64>,
}

impl Program {
    /// The program of this seed for this many ranks, the same wherever it is made.
    pub fn generate(seed: u64, world_size: u32) -> Program {
        let steps = Random::of(&[seed, world_size.into(), 0]).below(10) + 2;
        Program::of_steps(seed, world_size, (0..steps).collect())
    }

    fn of_steps(seed: u64, world_size: u32, steps: Vec<u64>) -> Program {
        let mut random = Random::of(&[seed, world_size.into(), 1]);
        let style = step::Style::new(&mut random, seed, world_size);
        let mut drafts: Vec<Draft> = (0..world_size)
            .map(|rank| Draft::new(rank, world_size, seed))
            .collect();
        for &step in &steps {
            style.step(step, &mut drafts);
        }
        style.end(&mut drafts);
        let mut program = Program {
            seed,
            world_size,
            meaning: Vec::new(),
            graphs: Vec::new(),
            inputs: Vec::new(),
            steps,
        };
        for draft in drafts {
            let (meaning, graph, inputs) = draft.finish();
            program.meaning.push(meaning);
            program.graphs.push(graph);
            program.inputs.push(inputs);
        }
        program
    }

    /// What the oracle says each rank has at the end.
    ///
    /// # Errors
    /// A fault of the generator: the program has no meaning.
    pub fn expected(&self) -> Result<Vec<RankResult>, InterpretError> {
        interpret(&self.meaning, &self.inputs)
    }

    /// The program without one of its steps, for each step.
    pub fn smaller(&self) -> impl Iterator<Item = Program> + '_ {
        (0..self.steps.len()).rev().map(|left_out| {
            let mut steps = self.steps.clone();
            steps.remove(left_out);
            Program::of_steps(self.seed, self.world_size, steps)
        })
    }

    /// The smallest program that still `fails`, leaving out one step after the other.
    pub fn minimised(self, fails: impl Fn(&Program) -> bool) -> Program {
        let mut program = self;
        loop {
            let smaller = program.smaller().find(&fails);
            match smaller {
                Some(smaller) => program = smaller,
                None => return program,
            }
        }
    }
}

impl fmt::Display for Program {
    /// The graphs of all ranks as text, each with the data of its inputs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program {
            seed,
            world_size,
            steps,
            ..
        } = self;
        writeln!(
            f,
            "# seed {seed}, {world_size} ranks, steps {steps:?} of it"
        )?;
        for (rank, (graph, inputs)) in self.graphs.iter().zip(&self.inputs).enumerate() {
            writeln!(f, "# rank {rank}\n{graph}")?;
            for (input, data) in graph.inputs().iter().zip(inputs) {
                writeln!(f, "# %{} = {} {:02x?}", input.name, data.ty(), data.bytes)?;
            }
        }
        Ok(())
    }
}
