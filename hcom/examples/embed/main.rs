//! Sentence vectors by all-MiniLM-L6-v2, tensor-parallel: attention heads and MLP are split over the ranks, and the
//! twelve all_reduces of a forward pass are inside one graph.
//!
//! ```text
//! cargo xtask model
//! cargo run --release --example embed -- --ranks 4 "A man is eating food." "A man eats something." "The sky is blue."
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use hcom::launch::{self, Launch, Role};
use hcom::prelude::*;
use serde::{Deserialize, Serialize};
use tokenizers::Tokenizer;

mod model;

use model::Model;

/// Sentence vectors by all-MiniLM-L6-v2 on several ranks.
#[derive(Parser)]
#[command(name = "embed")]
struct Arguments {
    /// The sentences.
    #[arg(required = true)]
    sentences: Vec<String>,
    /// Number of ranks; a divisor of the model's 12 attention heads.
    #[arg(short = 'n', long, default_value_t = 4)]
    ranks: u32,
    /// Folder with config.json, tokenizer.json and model.safetensors.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "target/models/all-MiniLM-L6-v2"
    )]
    model: PathBuf,
    /// Print one JSON object, with the vectors.
    #[arg(long)]
    json: bool,
}

/// What the first rank says at the end.
#[derive(Serialize, Deserialize)]
struct Embeddings {
    ranks: u32,
    graphs: usize,
    collectives: usize,
    /// One vector of unit length for each sentence.
    vectors: Vec<Vec<f32>>,
}

fn main() -> ExitCode {
    let role = launch::attach();
    let arguments = Arguments::parse();
    let done = match role {
        Role::Launcher => start(&arguments),
        Role::Rank => rank(&arguments).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        let job_failed = error
            .downcast_ref::<Error>()
            .is_some_and(|error| !error.is_bad_input());
        ExitCode::from(if job_failed { 1 } else { 2 })
    })
}

/// Checks the input, starts the ranks and prints what they found.
fn start(arguments: &Arguments) -> Result<ExitCode> {
    let config = config(&arguments.model)?;
    config.check_ranks(arguments.ranks)?;
    tokens(arguments, &config)?;
    let outcome = Launch::this(arguments.ranks).collect().run()?;
    let Some(report) = outcome.reports.first().cloned().flatten() else {
        return Ok(ExitCode::from(outcome.exit_code()));
    };
    let embeddings: Embeddings = serde_json::from_str(&report).context("the report of rank 0")?;
    if arguments.json {
        println!("{}", serde_json::to_string(&embeddings)?);
    } else {
        print(&embeddings, &arguments.sentences);
    }
    Ok(ExitCode::from(outcome.exit_code()))
}

fn print(embeddings: &Embeddings, sentences: &[String]) {
    println!("ranks            {}", embeddings.ranks);
    println!("graphs per rank  {}", embeddings.graphs);
    println!("collectives      {}", embeddings.collectives);
    println!("\ncosine similarity");
    for (i, a) in embeddings.vectors.iter().enumerate() {
        for (j, b) in embeddings.vectors.iter().enumerate().skip(i + 1) {
            let cosine: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
            println!("  {cosine:8.5}  {:?} ~ {:?}", sentences[i], sentences[j]);
        }
    }
}

/// One rank's part: its share of the weights, one compiled call, and on rank 0 the report.
fn rank(arguments: &Arguments) -> Result<()> {
    hcom::init(&Settings::from_env()?)?;
    let config = config(&arguments.model)?;
    let batch = tokens(arguments, &config)?;
    let path = arguments.model.join("model.safetensors");
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let model = Model::load(config, &bytes, dist::world()?)?;
    drop(bytes);

    let _patch = patch_for_hcom();
    let opt_model = compile(
        |inputs: &[Tensor]| Ok(vec![model.forward(&inputs[0], &inputs[1])?]),
        Config::default(),
    );
    let shape = [batch.sentences, batch.tokens];
    let ids = Tensor::from_slice(&batch.ids, &shape)?;
    let mask = Tensor::from_slice(&batch.mask, &shape)?;
    let vectors = opt_model.call(&[ids, mask])?[0].clone();

    if dist::rank()? == 0 {
        let report = opt_model.report();
        let width = vectors.shape()[1] as usize;
        let embeddings = Embeddings {
            ranks: dist::world_size()?,
            graphs: report.graphs,
            collectives: report.collectives,
            vectors: vectors
                .to_vec::<f32>()?
                .chunks_exact(width)
                .map(<[f32]>::to_vec)
                .collect(),
        };
        launch::report(&serde_json::to_string(&embeddings)?)?;
    }
    Ok(())
}

/// Reads the model's `config.json`.
fn config(folder: &Path) -> Result<model::Config> {
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path).with_context(|| {
        format!(
            "there is no model in {}: cannot read {}; `cargo xtask model` fetches it",
            folder.display(),
            path.display()
        )
    })?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is no BERT configuration", path.display()))
}

/// Token ids of the sentences, padded to the longest.
struct Batch {
    sentences: u64,
    tokens: u64,
    ids: Vec<i64>,
    /// 1 for a token, 0 for padding.
    mask: Vec<f32>,
}

fn tokens(arguments: &Arguments, config: &model::Config) -> Result<Batch> {
    let path = arguments.model.join("tokenizer.json");
    let failed = |error| anyhow::anyhow!("{}: {error}", path.display());
    let mut tokenizer = Tokenizer::from_file(&path).map_err(failed)?;
    // The file pads to 128 tokens; the batch needs only the length of its longest sentence.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(failed)?;
    let encodings = tokenizer
        .encode_batch(arguments.sentences.clone(), true)
        .map_err(failed)?;

    let longest = encodings
        .iter()
        .map(|encoding| encoding.get_ids().len())
        .max()
        .unwrap_or(0);
    ensure!(
        longest as u64 <= config.max_position_embeddings,
        "a sentence has {longest} tokens; expected at most {}, shorten it",
        config.max_position_embeddings
    );
    let mut batch = Batch {
        sentences: encodings.len() as u64,
        tokens: longest as u64,
        ids: Vec::new(),
        mask: Vec::new(),
    };
    for encoding in &encodings {
        let ids = encoding.get_ids();
        let padding = longest - ids.len();
        batch.ids.extend(
            ids.iter()
                .map(|&id| i64::from(id))
                .chain(std::iter::repeat_n(0, padding)),
        );
        batch
            .mask
            .extend(std::iter::repeat_n(1.0, ids.len()).chain(std::iter::repeat_n(0.0, padding)));
    }
    Ok(batch)
}
