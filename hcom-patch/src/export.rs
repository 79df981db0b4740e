//! `export`: the graph of a function, without running it; as a value, or as the files that Huawei's
//! offline compiler `atc` reads.

use crate::rank::Rank;
use crate::recording::{Piece, Recorder, Rules};
use crate::scope::Scope;
use crate::sizes::Free;
use crate::{Error, Tensor};
use hcom_convert::ge::{self, Weight};
use hcom_ir::{Graph, Literal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Records `f` as this rank and returns its graph, which prints as text.
///
/// The graph's inputs are `arguments` in their order, then the captured tensors in the order of
/// their first use. Nothing runs, so [placeholders](Tensor::placeholder) will do, on a rank
/// [without a device](crate::dist::init_abstract) too. Collectives are always recorded.
///
/// # Errors
/// What `f` returns; [`Error::Break`] if it reads data; [`Error::Recording`] inside a compiled
/// function; [`Error::NotInitialized`].
///
/// ```
/// use hcom_patch::{DType, Error, ReduceOp, Tensor, dist, export};
///
/// dist::init_abstract(0, 2)?;
/// let x = Tensor::placeholder(DType::F32, &[2, 3]).named("x");
/// let w = Tensor::placeholder(DType::F32, &[3, 4]).named("w");
/// let f = |inputs: &[Tensor]| {
///     let mut y = inputs[0].matmul(&w)?;
///     dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
///     Ok(vec![y])
/// };
/// let graph = export("mlp", f, &[x])?;
/// assert!(graph.to_string().contains("= all_reduce %"));
/// # Ok::<(), Error>(())
/// ```
pub fn export<F>(name: &str, f: F, arguments: &[Tensor]) -> Result<Graph, Error>
where
    F: FnOnce(&[Tensor]) -> Result<Vec<Tensor>, Error>,
{
    Ok(piece(&Rank::current()?, name, f, arguments)?.graph)
}

/// Records `f` as one graph, collectives included.
fn piece<F>(rank: &Rank, name: &str, f: F, arguments: &[Tensor]) -> Result<Piece, Error>
where
    F: FnOnce(&[Tensor]) -> Result<Vec<Tensor>, Error>,
{
    let place = (rank.rank, rank.world_size);
    let recorder = Recorder::new(name, place, Rules::default(), arguments, Free::new(), None);
    let marked = recorder.marked(arguments);
    let scope = Scope::open(recorder)?;
    let returned = f(&marked)?;
    Ok(scope.end().finish(&returned)?.piece)
}

/// Where the data of captured tensors goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// Into the model, while it stays below what the format can hold.
    #[default]
    Fitting,
    /// Into the model.
    Inside,
    /// Into a file per tensor, beside the model.
    Beside,
}

/// How [`export_to`] writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// What the models' files are called: `name.air`, or `name<rank>.air` when there are several.
    pub name: String,
    /// Where the data of captured tensors goes.
    pub weights: Weights,
}

impl Default for ExportOptions {
    /// `export`, with weights where they fit.
    fn default() -> ExportOptions {
        ExportOptions {
            name: "export".to_owned(),
            weights: Weights::Fitting,
        }
    }
}

/// What was written for this rank.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Exported {
    /// The graph that was recorded.
    pub graph: Graph,
    /// The files, in the order of their writing.
    pub files: Vec<PathBuf>,
}

/// The bytes of weights above which they do not fit a model: a message of protobuf holds 2 GiB, of which
/// 200 MiB are left to the operators.
const FITTING_BYTES: usize = (2048 - 200) << 20;

/// Records `f` as this rank and writes its graph into `dir`, for Huawei's offline compiler and for people.
/// Collectives are recorded whether patched or not; nothing runs.
///
/// In a world of one: `name.air`, `dynamo.pbtxt`, `graph.hcom`. On rank `r` of several: `name<r>.air`,
/// `rank_<r>/dynamo.pbtxt`, `rank_<r>/graph.hcom`; rank 0 also writes `model_relation_config.json` and
/// `numa_config.json`, with the groups of all ranks. All ranks call this together then; ranks
/// [without a device](crate::dist::init_abstract) come one after the other, and each takes the groups of
/// those before it from their files in `dir`.
///
/// A captured tensor that has data and is not written becomes part of the model: a constant, or a file
/// called after the tensor.
///
/// `atc` itself was never run on these files.
///
/// # Errors
/// As [`export()`]; [`Error::Export`] for an operation without a form there; [`Error::File`];
/// [`Error::Runtime`] if another rank does not come.
pub fn export_to<F>(
    dir: &Path,
    f: F,
    arguments: &[Tensor],
    options: &ExportOptions,
) -> Result<Exported, Error>
where
    F: FnOnce(&[Tensor]) -> Result<Vec<Tensor>, Error>,
{
    let rank = Rank::current()?;
    let piece = piece(&rank, &options.name, f, arguments)?;
    let weights = weights(&piece, arguments)?;
    let place = Place {
        dir,
        name: &options.name,
        rank: rank.rank,
        world_size: rank.world_size,
    };
    let mut files = place.write(&piece.graph, weights, options.weights)?;
    if rank.world_size > 1 {
        let groups = match rank.runtime("export") {
            Ok(runtime) => of_all_ranks(runtime, &piece.graph)?,
            Err(_) => place.groups_in_files()?,
        };
        if rank.rank == 0 || rank.runtime("export").is_err() {
            files.extend(place.write_configuration(&groups)?);
        }
    }
    Ok(Exported {
        graph: piece.graph,
        files,
    })
}

/// Writes the graphs of all ranks, one per rank, into `dir`, as [`export_to`] does from recordings.
///
/// # Errors
/// [`Error::Export`], [`Error::File`].
pub fn export_graphs(dir: &Path, name: &str, graphs: &[Graph]) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let place = |rank: usize| Place {
        dir,
        name,
        rank: rank as u32,
        world_size: graphs.len() as u32,
    };
    for (rank, graph) in graphs.iter().enumerate() {
        files.extend(place(rank).write(graph, BTreeMap::new(), Weights::Inside)?);
    }
    if graphs.len() > 1 {
        let groups = graphs.iter().flat_map(groups_of).collect();
        files.extend(place(0).write_configuration(&groups)?);
    }
    Ok(files)
}

/// Data of the inputs that were captured, by position; those that are written stay inputs.
fn weights(piece: &Piece, arguments: &[Tensor]) -> Result<BTreeMap<usize, Literal>, Error> {
    let mut weights = BTreeMap::new();
    for (position, tensor) in piece.inputs.iter().enumerate() {
        let given = arguments.iter().any(|argument| argument.is_same(tensor));
        if given || piece.written.contains(&position) {
            continue;
        }
        let array = match tensor.data() {
            Ok(array) => array,
            Err(Error::Placeholder { .. }) => continue,
            Err(error) => return Err(error),
        };
        let literal = Literal::new(array.dtype(), array.shape().to_vec(), array.to_host()?)?;
        weights.insert(position, literal);
    }
    Ok(weights)
}

/// The groups in which a graph communicates, by their ranks.
fn groups_of(graph: &Graph) -> BTreeSet<Vec<u32>> {
    let used = graph.nodes().filter_map(|(_, node)| node.group());
    used.map(|group| graph.group(group).ranks.clone()).collect()
}

/// The groups of all ranks, which all call this.
fn of_all_ranks(
    runtime: &hcom_runtime::Runtime,
    graph: &Graph,
) -> Result<BTreeSet<Vec<u32>>, Error> {
    let ranks: Vec<u32> = (0..runtime.world_size()).collect();
    let own =
        postcard::to_stdvec(&groups_of(graph)).expect("a list of numbers has a form as bytes");
    let deadline = Instant::now() + runtime.settings().timeout;
    let all = runtime
        .control()
        .all_gather(&ranks, "groups of an exported graph", &own, deadline)
        .map_err(|error| hcom_runtime::Error::from(error.into_failure(runtime.rank())))?;
    let read = |bytes: &Vec<u8>| postcard::from_bytes::<BTreeSet<Vec<u32>>>(bytes).ok();
    Ok(all.iter().filter_map(read).flatten().collect())
}

/// Where the files of one rank go.
struct Place<'a> {
    dir: &'a Path,
    name: &'a str,
    rank: u32,
    world_size: u32,
}

impl Place<'_> {
    fn folder(&self, rank: u32) -> PathBuf {
        match self.world_size {
            1 => self.dir.to_owned(),
            _ => self.dir.join(format!("rank_{rank}")),
        }
    }

    fn write(
        &self,
        graph: &Graph,
        data: BTreeMap<usize, Literal>,
        weights: Weights,
    ) -> Result<Vec<PathBuf>, Error> {
        let folder = self.folder(self.rank);
        fs::create_dir_all(&folder).map_err(|source| Error::File {
            path: folder.clone(),
            source,
        })?;
        let bytes: usize = data.values().map(|literal| literal.bytes.len()).sum();
        let beside = match weights {
            Weights::Fitting => bytes > FITTING_BYTES,
            Weights::Inside => false,
            Weights::Beside => true,
        };
        let mut files = Vec::new();
        let mut options = ge::Options {
            rank: self.rank,
            world_size: self.world_size,
            ..ge::Options::default()
        };
        for (position, literal) in data {
            let weight = if beside {
                let name = graph.inputs()[position].name.replace('.', "_");
                let path = folder.join(&name);
                files.push(write(path, &literal.bytes)?);
                let relative = match self.world_size {
                    1 => name,
                    _ => format!("rank_{}/{name}", self.rank),
                };
                Weight::Beside(relative)
            } else {
                Weight::Inside(literal)
            };
            options.weights.insert(position, weight);
        }
        let model = ge::lower(graph, &options)?;
        let air = match self.world_size {
            1 => format!("{}.air", self.name),
            _ => format!("{}{}.air", self.name, self.rank),
        };
        files.push(write(self.dir.join(air), &model.to_air())?);
        files.push(write(
            folder.join("dynamo.pbtxt"),
            model.to_pbtxt().as_bytes(),
        )?);
        files.push(write(
            folder.join("graph.hcom"),
            graph.to_string().as_bytes(),
        )?);
        Ok(files)
    }

    fn write_configuration(&self, groups: &BTreeSet<Vec<u32>>) -> Result<Vec<PathBuf>, Error> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let relations = ge::relations(self.name, self.world_size, groups);
        let file = |name: &str, value: &serde_json::Value| {
            write(self.dir.join(name), format!("{value:#}\n").as_bytes())
        };
        Ok(vec![
            file("model_relation_config.json", &relations)?,
            file("numa_config.json", &ge::numa(self.world_size))?,
        ])
    }

    /// The groups of the graphs that ranks have written so far.
    fn groups_in_files(&self) -> Result<BTreeSet<Vec<u32>>, Error> {
        let mut groups = BTreeSet::new();
        for rank in 0..self.world_size {
            let path = self.folder(rank).join("graph.hcom");
            match fs::read_to_string(&path) {
                Ok(text) => {
                    let graph = hcom_ir::parse(&text, &path.display().to_string())?;
                    groups.extend(groups_of(&graph));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(Error::File { path, source }),
            }
        }
        Ok(groups)
    }
}

fn write(path: PathBuf, bytes: &[u8]) -> Result<PathBuf, Error> {
    match fs::write(&path, bytes) {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::File { path, source }),
    }
}
