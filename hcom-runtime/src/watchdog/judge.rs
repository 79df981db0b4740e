//! What is wrong with a collective that the device is inside of.

use std::time::{Duration, Instant};

use super::{
    Watchdog,
    line::{Line, Row, disagree, same_sequence},
    lock,
};
use crate::{
    control::{Life, PeerStatus, Position},
    error::Error,
    failure::{Failure, FailureKind, RankList},
};

/// How long a collective may go on after a member was found dead: its part may be complete.
const GRACE: Duration = Duration::from_millis(300);
/// How long a peer whose device failed may take to say so, once the library says that one did.
const PEERS_ERROR: Duration = Duration::from_secs(2);

/// How long a rank may take to say that it runs, before it is told apart from one that does.
const PATIENCE: Duration = Duration::from_millis(400);

impl Watchdog {
    /// The device reported an error. When that is because a peer is gone, says so; else the error
    /// becomes the failure of the job, because the peers may wait for this rank.
    pub(crate) fn blame(&self, error: Error) -> Error {
        let remote = error.is_of_a_peer();
        let until = Instant::now() + if remote { PEERS_ERROR } else { GRACE * 2 };
        loop {
            if let Some(failure) = self.inspect() {
                return self.fail(failure);
            }
            // The device may yet have to get to the collective that failed.
            let outstanding = lock(&self.state)
                .lines
                .iter()
                .any(|line| !line.issued.is_empty());
            if !(outstanding || remote) || Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Error::Failure(failure) = error {
            return self.fail(failure);
        }
        let rank = self.control.rank();
        let state = lock(&self.state);
        let inside = state
            .lines
            .iter()
            .find_map(|line| Some((line, line.current()?)));
        let mut failure = match inside {
            Some((line, issued)) => {
                let position = line.position(issued);
                failed(FailureKind::Library, &position, &issued.row, rank)
            }
            None => Failure::new(FailureKind::Library, rank),
        };
        failure.ranks = match inside {
            Some((line, _)) if remote => {
                let others = line.group.ranks.iter().copied();
                others.filter(|&other| other != rank).collect()
            }
            _ => vec![rank],
        };
        failure.got = Some(error.to_string());
        drop(state);
        self.fail(failure)
    }

    /// What is wrong on `line`, as far as `peers` tell.
    pub(super) fn judge(
        &self,
        line: &mut Line,
        peers: &[PeerStatus],
        now: Instant,
    ) -> Option<Failure> {
        let (seq, since) = line.since?;
        let own = self.control.rank();
        let members: Vec<&PeerStatus> = peers
            .iter()
            .filter(|peer| peer.rank != own && line.group.ranks.contains(&peer.rank))
            .collect();
        let issued = line.current()?;
        let position = line.position(issued);
        let row = issued.row.clone();
        let at = |seen: &Option<Position>| {
            seen.as_ref()
                .is_some_and(|p| same_sequence(p, &position) && p.seq >= seq)
        };
        let gone: Vec<&PeerStatus> = members
            .iter()
            .copied()
            .filter(|peer| peer.life != Life::Alive && !at(&peer.state.completed))
            .collect();
        let failure = |kind| failed(kind, &position, &row, own);
        if !gone.is_empty() {
            let first = *line.bereft.get_or_insert(now);
            if now.duration_since(first) < GRACE {
                return None;
            }
            let dead = gone.iter().find_map(|peer| match &peer.life {
                Life::Dead { reason } => Some(reason.clone()),
                _ => None,
            });
            let kind = if dead.is_some() {
                FailureKind::PeerDied
            } else {
                FailureKind::PeerLeft
            };
            return Some(Failure {
                ranks: gone.iter().map(|peer| peer.rank).collect(),
                got: Some(dead.unwrap_or_else(|| seen(&gone))),
                help: Some(format!("look at the output of rank {}", gone[0].rank)),
                ..failure(kind)
            });
        }
        let other = members.iter().find(|peer| {
            peer.state.entered.as_ref().is_some_and(|entered| {
                same_sequence(entered, &position)
                    && entered.seq == seq
                    && disagree(entered, &position)
            })
        });
        if let Some(peer) = other {
            return Some(Failure {
                ranks: vec![own, peer.rank],
                expected: Some(match &position.run {
                    Some(run) => format!("{} in {run} as on rank {own}", position.op),
                    None => format!("{} on every rank, as on rank {own}", position.op),
                }),
                got: Some(format!("rank {} {}", peer.rank, peer.state)),
                help: Some(
                    "all ranks must run the same graphs and call the collectives of a group in the \
                     same order"
                        .into(),
                ),
                ..failure(FailureKind::Mismatch)
            });
        }
        let waited = now.duration_since(since);
        let patience = PATIENCE.min(self.settings.timeout / 4);
        let silent = if waited + patience * 2 < self.settings.timeout {
            Vec::new()
        } else {
            let inside = members.iter().filter(|peer| at(&peer.state.entered));
            let inside: Vec<u32> = inside.map(|peer| peer.rank).collect();
            self.control.silent(&inside, patience)
        };
        if waited < self.settings.timeout {
            return None;
        }
        let missing: Vec<&PeerStatus> = members
            .iter()
            .copied()
            .filter(|peer| !at(&peer.state.entered))
            .collect();
        let got = match (missing.is_empty(), silent.is_empty()) {
            (false, _) => seen(&missing),
            (true, false) => format!(
                "every member has entered it, but {} no longer answers: the process is stopped, or \
                 cannot be reached",
                RankList(&silent)
            ),
            (true, true) => "every member has entered it".to_owned(),
        };
        Some(Failure {
            ranks: match missing.is_empty() {
                true => silent,
                false => missing.iter().map(|peer| peer.rank).collect(),
            },
            got: Some(got),
            expected: Some(format!("completion within {:?}", self.settings.timeout)),
            help: Some(
                "every member of the group must take part; raise HCOM_TIMEOUT if a rank is only slow"
                    .into(),
            ),
            ..failure(FailureKind::Timeout)
        })
    }
}

/// A failure of `kind` in the collective at `position`, noticed by `rank`.
fn failed(kind: FailureKind, position: &Position, row: &Row, rank: u32) -> Failure {
    Failure {
        op: Some(position.op.clone()),
        group: Some(position.group.clone()),
        seq: Some(position.seq),
        graph: position.run.as_ref().map(|run| run.graph.clone()),
        replay: position.replay(),
        node: Some(row.node.clone()),
        ..Failure::new(kind, rank)
    }
}

fn seen(peers: &[&PeerStatus]) -> String {
    let seen: Vec<String> = peers
        .iter()
        .map(|peer| format!("rank {} {}", peer.rank, peer.state))
        .collect();
    seen.join("; ")
}
