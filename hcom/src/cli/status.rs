//! `hcom status`: where the ranks of the running jobs stand.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use hcom_runtime::recorder::{Progress, Story};
use hcom_runtime::status::{Answer, Listener, Request, listeners};
use hcom_runtime::{Life, Record};
use serde_json::{Value, json};

use super::bad_input::BadInput;
use super::{print, print_json};

/// Ask the running jobs of this user on this host where their ranks stand.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hcom status                        every job: its groups, and who is behind\n  hcom status --json | jq '.jobs[].groups'\n  hcom status --dump /tmp/records    the ranks write their flight records too\n\nA rank answers while its collectives hang, and tells what it knows of ranks on other hosts; one that is stopped\n(SIGSTOP) is shown as not answering. Exit code 1: no job runs."
)]
pub(super) struct Arguments {
    /// Ask this job only.
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Have every rank write its flight record into this folder, for `hcom record show`.
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// What the ranks of one job say.
struct Job {
    name: String,
    /// The ranks on this host, and what each answered.
    ranks: Vec<(Listener, Result<Answer, String>)>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let request = match &arguments.dump {
        None => Request::Status,
        Some(folder) => Request::Dump(
            std::path::absolute(folder)
                .with_context(|| format!("{} has no absolute path", folder.display()))?,
        ),
    };
    let mut jobs = listeners().context("cannot list the sockets of this host")?;
    if let Some(name) = &arguments.job {
        let names: Vec<String> = jobs.keys().cloned().collect();
        jobs.retain(|job, _| job == name);
        if jobs.is_empty() {
            return Err(BadInput::new(format!("no job {name} runs here"))
                .expected(match names.is_empty() {
                    true => "nothing: no job runs".to_owned(),
                    false => format!("one of {}", names.join(", ")),
                })
                .into());
        }
    }
    let jobs: Vec<Job> = jobs
        .into_iter()
        .map(|(name, ranks)| Job::ask(name, ranks, &request))
        .collect();
    if arguments.json {
        print_json(&json!({"jobs": jobs.iter().map(Job::json).collect::<Vec<_>>()}))?;
    } else if jobs.is_empty() {
        eprintln!("no job of this user runs on this host");
    } else {
        print(&jobs.iter().map(Job::text).collect::<Vec<_>>().join("\n"))?;
    }
    let dumped = jobs.iter().flat_map(|job| &job.ranks).all(|(_, answer)| {
        !matches!(
            answer,
            Ok(Answer {
                dumped: Some(Err(_)),
                ..
            })
        )
    });
    Ok(match jobs.is_empty() || !dumped {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

impl Job {
    fn ask(name: String, ranks: Vec<Listener>, request: &Request) -> Job {
        // All at once: a rank that is stopped takes a second not to answer.
        let ranks = thread::scope(|scope| {
            let asked: Vec<_> = ranks
                .into_iter()
                .map(|rank| {
                    scope.spawn(move || {
                        let answer = rank.ask(request).map_err(|error| error.to_string());
                        (rank, answer)
                    })
                })
                .collect();
            asked
                .into_iter()
                .filter_map(|rank| rank.join().ok())
                .collect()
        });
        Job { name, ranks }
    }

    fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.ranks
            .iter()
            .filter_map(|(_, answer)| answer.as_ref().ok())
    }

    fn records(&self) -> Vec<Record> {
        self.answers().map(|answer| answer.record.clone()).collect()
    }

    /// One object per rank of the job, those on other hosts as a rank on this host sees them.
    fn members(&self) -> Vec<Value> {
        let seen = self
            .answers()
            .next()
            .map_or(&[][..], |answer| &answer.record.peers);
        let elsewhere = seen
            .iter()
            .filter(|peer| self.ranks.iter().all(|(rank, _)| rank.rank != peer.rank))
            .map(|peer| {
                let life = match &peer.life {
                    Life::Alive => "on another host".to_owned(),
                    Life::Left => "it has left".to_owned(),
                    Life::Dead { reason } => format!("it died: {reason}"),
                };
                json!({"rank": peer.rank, "pid": null, "state": peer.state, "says": peer.state.to_string(), "error": life, "dumped": null})
            });
        let here = self.ranks.iter().map(|(rank, answer)| match answer {
            Ok(answer) => {
                let state = &answer.record.state;
                json!({"rank": rank.rank, "pid": rank.pid, "state": state, "says": state.to_string(), "error": null, "dumped": answer.dumped})
            }
            Err(error) => {
                let state = seen.iter().find(|peer| peer.rank == rank.rank).map(|peer| &peer.state);
                json!({"rank": rank.rank, "pid": rank.pid, "state": state, "says": state.map(ToString::to_string), "error": format!("does not answer: {error}"), "dumped": null})
            }
        });
        let mut members: Vec<Value> = here.chain(elsewhere).collect();
        members.sort_by_key(|member| member["rank"].as_u64());
        members
    }

    fn json(&self) -> Value {
        let records = self.records();
        let story = Story::of(&records);
        json!({
            "job": self.name,
            "world_size": story.world_size,
            "timeout_s": self.answers().next().map(|answer| answer.timeout_s),
            "failure": story.failure,
            "ranks": self.members(),
            "groups": Progress::of(&records),
            "outstanding": story.stuck,
        })
    }

    fn text(&self) -> String {
        let records = self.records();
        let story = Story::of(&records);
        let mut text = format!("job {}, {} ranks", self.name, story.world_size);
        if let Some(answer) = self.answers().next() {
            text += &format!(", {} s in a collective", answer.timeout_s);
        }
        text.push('\n');
        if let Some(failure) = &story.failure {
            text += &format!("  failed: {failure}\n");
        }
        for member in self.members() {
            let word = |key: &str| member[key].as_str().unwrap_or_default().to_owned();
            let pid = member["pid"]
                .as_u64()
                .map_or("-".to_owned(), |pid| pid.to_string());
            let note = [word("says"), word("error")];
            let note: Vec<&str> = note
                .iter()
                .map(String::as_str)
                .filter(|n| !n.is_empty())
                .collect();
            text += &format!(
                "  rank {:<4} pid {pid:<8} {}\n",
                member["rank"],
                note.join("; ")
            );
            if let Some(file) = member["dumped"]["Ok"].as_str() {
                text += &format!("            wrote {file}\n");
            } else if let Some(error) = member["dumped"]["Err"].as_str() {
                text += &format!("            wrote no record: {error}\n");
            }
        }
        for group in Progress::of(&records) {
            let reached: Vec<String> = group
                .members
                .iter()
                .map(|m| format!("{}: {}/{}/{}", m.rank, m.issued, m.entered, m.completed))
                .collect();
            text += &format!(
                "  group {} (rank: issued/entered/completed)  {}",
                group.group,
                reached.join("  ")
            );
            if !group.behind.is_empty() {
                text += &format!("  behind: {:?}", group.behind);
            }
            text.push('\n');
        }
        for group in &story.stuck {
            text += &format!("  {}\n", group.sentence);
        }
        text
    }
}
