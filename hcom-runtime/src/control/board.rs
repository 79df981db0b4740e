//! One rank's view of the job, and the exchanges on top of it; the same for every transport.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Control, ControlError, Life, PeerStatus, RankState};
use crate::failure::{Failure, RankList};

/// What ranks tell each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Message {
    /// A contribution to an exchange.
    Part {
        exchange: Exchange,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Where the sender stands.
    State(RankState),
    /// The job has failed.
    Fail(Failure),
    /// Does your process run?
    Ping,
    /// It does.
    Pong,
    /// The sender ends: in order, or for the given reason.
    Goodbye { reason: Option<String> },
}

/// Identity of an exchange, equal on all members.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Exchange {
    group: Vec<u32>,
    key: String,
    /// How often the members used this group and key before.
    turn: u64,
}

/// Carries messages to other ranks, in order, without ever blocking on a slow one.
pub(super) trait Transport: Send + Sync {
    /// Sends `message`, which is of `era`, to each rank of `to` (never the own one).
    fn send(&self, to: &[u32], era: u32, message: &Message);
}

/// What one rank knows of each era of a job: the first, and one for each time that its ranks left a failure behind.
pub(super) struct Boards {
    eras: Mutex<Vec<Arc<Board>>>,
}

impl Boards {
    pub(super) fn new(rank: u32, world_size: u32, job: &str) -> Arc<Boards> {
        let first = Board::new(rank, vec![Life::Alive; world_size as usize], job.to_owned());
        Arc::new(Boards {
            eras: Mutex::new(vec![first]),
        })
    }

    /// The view of an era. It begins when this rank or another one first speaks of it; who was gone by then is gone.
    fn era(&self, era: u32) -> Arc<Board> {
        // A board is added whole or not at all.
        let mut eras = self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        while eras.len() <= era as usize {
            let first = &eras[0];
            let known = first.lock();
            let lives = known.peers.iter().map(|peer| peer.life.clone()).collect();
            drop(known);
            let job = format!("{}-{}", first.job, eras.len());
            let next = Board::new(first.rank, lives, job);
            eras.push(next);
        }
        eras[era as usize].clone()
    }

    /// Takes in a message of rank `from`.
    pub(super) fn deliver(&self, from: u32, era: u32, message: Message) {
        match message {
            Message::Goodbye { reason } => {
                let life = match reason {
                    None => Life::Left,
                    Some(reason) => Life::Dead { reason },
                };
                self.end(|board| board.lock().peers[from as usize].life = life.clone());
            }
            message => self.era(era).deliver(from, message),
        }
    }

    /// Notes that nothing will come from rank `from` any more; a death unless it said goodbye.
    pub(super) fn lost(&self, from: u32, reason: &str) {
        self.end(|board| {
            let life = &mut board.lock().peers[from as usize].life;
            if *life == Life::Alive {
                *life = Life::Dead {
                    reason: reason.to_owned(),
                };
            }
        });
    }

    /// Notes the end of a rank in every era.
    fn end(&self, note: impl Fn(&Board)) {
        for board in &*self.eras.lock().unwrap_or_else(PoisonError::into_inner) {
            note(board);
            board.changed.notify_all();
        }
    }
}

/// What one rank knows. Filled by the transport, waited on by exchanges.
struct Board {
    rank: u32,
    job: String,
    known: Mutex<Known>,
    changed: Condvar,
}

struct Known {
    peers: Vec<PeerStatus>,
    failure: Option<Failure>,
    /// When the ranks that have not answered were asked whether they run.
    asked: BTreeMap<u32, Instant>,
    /// Exchanges that this rank is in, or that others have started.
    parts: HashMap<Exchange, BTreeMap<u32, Vec<u8>>>,
    /// Turns taken by this rank.
    turns: HashMap<(Vec<u32>, String), u64>,
    /// What the user published, and the slow exchanges this rank waits in.
    published: RankState,
    slow: BTreeMap<Exchange, String>,
}

impl Board {
    fn new(rank: u32, lives: Vec<Life>, job: String) -> Arc<Board> {
        Arc::new(Board {
            rank,
            job,
            known: Mutex::new(Known {
                peers: (0..)
                    .zip(lives)
                    .map(|(rank, life)| PeerStatus {
                        rank,
                        life,
                        state: RankState::default(),
                    })
                    .collect(),
                failure: None,
                asked: BTreeMap::new(),
                parts: HashMap::new(),
                turns: HashMap::new(),
                published: RankState::default(),
                slow: BTreeMap::new(),
            }),
            changed: Condvar::new(),
        })
    }

    /// Takes in a message of rank `from`, which goes on.
    fn deliver(&self, from: u32, message: Message) {
        let mut known = self.lock();
        match message {
            Message::Part { exchange, bytes } => {
                // A part for an exchange that this rank has given up is of no use to anyone.
                if known.parts.contains_key(&exchange) || exchange.turn >= known.turn(&exchange) {
                    known.parts.entry(exchange).or_default().insert(from, bytes);
                }
            }
            Message::State(state) => known.peers[from as usize].state = state,
            Message::Fail(failure) => {
                known.failure.get_or_insert(failure);
            }
            // The transport answers.
            Message::Ping => return,
            Message::Pong => {
                known.asked.remove(&from);
                return;
            }
            // Of all eras.
            Message::Goodbye { .. } => return,
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every update is complete before anything in it can panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn turn(&self, exchange: &Exchange) -> u64 {
        let name = (exchange.group.clone(), exchange.key.clone());
        self.turns.get(&name).copied().unwrap_or(0)
    }

    /// What this rank shows to others: what was published, and the exchange it is stuck in.
    fn own_state(&self) -> RankState {
        let mut state = self.published.clone();
        if let Some(text) = self.slow.values().next() {
            state.waiting = Some(text.clone());
        }
        state
    }
}

/// A rank's line to the others, shared by its eras. It says goodbye at its end.
struct Voice<T: Transport> {
    boards: Arc<Boards>,
    others: Vec<u32>,
    transport: T,
}

/// A [`Control`] made of the board of an era and a transport.
pub(super) struct Endpoint<T: Transport> {
    era: u32,
    board: Arc<Board>,
    voice: Arc<Voice<T>>,
    /// Held while a state is made and sent, so that the newest one arrives last.
    showing: Mutex<()>,
}

/// The longest contribution to an exchange, in bytes; well below the longest frame.
const LONGEST_PART: usize = 1 << 29;

/// An exchange that takes longer than this is shown to the other ranks.
const SLOW: Duration = Duration::from_millis(50);

impl<T: Transport> Endpoint<T> {
    /// The place of a rank in the first era of a job.
    pub(super) fn new(boards: Arc<Boards>, transport: T) -> Endpoint<T> {
        let board = boards.era(0);
        let world_size = board.lock().peers.len() as u32;
        let others = (0..world_size).filter(|&rank| rank != board.rank).collect();
        let voice = Voice {
            boards,
            others,
            transport,
        };
        Endpoint::of(Arc::new(voice), 0)
    }

    fn of(voice: Arc<Voice<T>>, era: u32) -> Endpoint<T> {
        Endpoint {
            era,
            board: voice.boards.era(era),
            voice,
            showing: Mutex::new(()),
        }
    }

    fn send(&self, to: &[u32], message: &Message) {
        self.voice.transport.send(to, self.era, message);
    }

    /// Changes what this rank shows, and shows it.
    fn show(&self, change: impl FnOnce(&mut Known)) {
        let _order = self.showing.lock().unwrap_or_else(PoisonError::into_inner);
        let state = {
            let mut known = self.board.lock();
            change(&mut known);
            let state = known.own_state();
            known.peers[self.board.rank as usize].state = state.clone();
            state
        };
        self.send(&self.voice.others, &Message::State(state));
    }

    /// Waits until every member's part is there. Removes nothing.
    fn wait(&self, exchange: &Exchange, deadline: Instant) -> Result<(), ControlError> {
        let started = Instant::now();
        // Ranks that wait long say for whom, so that whoever waits for them finds the cause.
        let mut show_at = started + SLOW;
        let mut shown: Option<Vec<u32>> = None;
        let result = loop {
            let known = self.board.lock();
            let missing = match known.missing(exchange) {
                Ok(missing) if missing.is_empty() => break Ok(()),
                Ok(missing) => missing,
                Err(error) => break Err(error),
            };
            let now = Instant::now();
            if now >= deadline {
                break Err(known.timeout(exchange, missing, now - started));
            }
            let news = shown.as_ref() != Some(&missing);
            if news && now >= show_at {
                drop(known);
                let text = format!("{} for {}", exchange.key, RankList(&missing));
                self.show(|known| {
                    known.slow.insert(exchange.clone(), text);
                });
                shown = Some(missing);
                show_at = now + SLOW;
                continue;
            }
            let until = if news {
                deadline.min(show_at)
            } else {
                deadline
            };
            drop(self.board.changed.wait_timeout(known, until - now));
        };
        if shown.is_some() {
            self.show(|known| {
                known.slow.remove(exchange);
            });
        }
        result
    }
}

impl Known {
    /// The members whose parts have not come; an error when they will not.
    fn missing(&self, exchange: &Exchange) -> Result<Vec<u32>, ControlError> {
        if let Some(failure) = &self.failure {
            return Err(ControlError::Failed(Box::new(failure.clone())));
        }
        let parts = &self.parts[exchange];
        let members = exchange.group.iter().copied();
        let missing: Vec<u32> = members.filter(|rank| !parts.contains_key(rank)).collect();
        let status = |rank: u32| &self.peers[rank as usize];
        // Deaths first: a rank that left may have done so because of a death.
        for &rank in &missing {
            if let Life::Dead { reason } = &status(rank).life {
                return Err(ControlError::PeerDied {
                    key: exchange.key.clone(),
                    rank,
                    reason: reason.clone(),
                });
            }
        }
        match missing
            .iter()
            .find(|&&rank| status(rank).life == Life::Left)
        {
            None => Ok(missing),
            Some(&rank) => Err(ControlError::PeerLeft {
                key: exchange.key.clone(),
                rank,
                state: Box::new(status(rank).state.clone()),
            }),
        }
    }

    fn timeout(&self, exchange: &Exchange, missing: Vec<u32>, waited: Duration) -> ControlError {
        let state = |&rank: &u32| self.peers[rank as usize].state.clone();
        ControlError::Timeout {
            key: exchange.key.clone(),
            states: missing.iter().map(state).collect(),
            missing,
            waited,
        }
    }
}

impl<T: Transport + 'static> Control for Endpoint<T> {
    fn rank(&self) -> u32 {
        self.board.rank
    }

    fn world_size(&self) -> u32 {
        self.voice.others.len() as u32 + 1
    }

    fn job(&self) -> &str {
        &self.board.job
    }

    fn all_gather(
        &self,
        group: &[u32],
        key: &str,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, ControlError> {
        let rank = self.rank();
        let world_size = self.world_size();
        let distinct = group
            .iter()
            .enumerate()
            .all(|(index, rank)| *rank < world_size && !group[..index].contains(rank));
        if !distinct || !group.contains(&rank) {
            return Err(ControlError::BadGroup {
                key: key.to_string(),
                group: group.to_vec(),
                rank,
                world_size,
            });
        }
        if bytes.len() > LONGEST_PART {
            return Err(ControlError::TooLong {
                key: key.to_string(),
                bytes: bytes.len(),
                limit: LONGEST_PART,
            });
        }
        let exchange = {
            let mut known = self.board.lock();
            if let Some(failure) = &known.failure {
                return Err(ControlError::Failed(Box::new(failure.clone())));
            }
            let turn = known
                .turns
                .entry((group.to_vec(), key.to_string()))
                .or_default();
            let exchange = Exchange {
                group: group.to_vec(),
                key: key.to_string(),
                turn: *turn,
            };
            *turn += 1;
            known
                .parts
                .entry(exchange.clone())
                .or_default()
                .insert(rank, bytes.to_vec());
            exchange
        };
        let members: Vec<u32> = group.iter().copied().filter(|&to| to != rank).collect();
        self.send(
            &members,
            &Message::Part {
                exchange: exchange.clone(),
                bytes: bytes.to_vec(),
            },
        );
        let result = self.wait(&exchange, deadline);
        let parts = self.board.lock().parts.remove(&exchange);
        result?;
        let mut parts = parts.unwrap_or_default();
        Ok(group
            .iter()
            .map(|rank| parts.remove(rank).unwrap_or_default())
            .collect())
    }

    fn publish(&self, state: &RankState) {
        self.show(|known| known.published = state.clone());
    }

    fn peers(&self) -> Vec<PeerStatus> {
        self.board.lock().peers.clone()
    }

    fn silent(&self, ranks: &[u32], patience: Duration) -> Vec<u32> {
        let now = Instant::now();
        let mut known = self.board.lock();
        let (silent, fresh): (Vec<_>, Vec<_>) = ranks
            .iter()
            .copied()
            .filter(|&rank| rank != self.board.rank)
            .partition(|rank| known.asked.contains_key(rank));
        known.asked.extend(fresh.iter().map(|&rank| (rank, now)));
        let silent = silent
            .into_iter()
            .filter(|rank| now.duration_since(known.asked[rank]) >= patience)
            .collect();
        drop(known);
        self.send(&fresh, &Message::Ping);
        silent
    }

    fn fail(&self, failure: &Failure) {
        {
            let mut known = self.board.lock();
            if known.failure.is_some() {
                return;
            }
            known.failure = Some(failure.clone());
            self.board.changed.notify_all();
        }
        self.send(&self.voice.others, &Message::Fail(failure.clone()));
    }

    fn failure(&self) -> Option<Failure> {
        self.board.lock().failure.clone()
    }

    fn next_era(&self) -> Arc<dyn Control> {
        Arc::new(Endpoint::of(self.voice.clone(), self.era + 1))
    }
}

impl<T: Transport> Drop for Voice<T> {
    fn drop(&mut self) {
        let reason = std::thread::panicking().then(|| "it panicked".to_string());
        // An end is one of all eras.
        self.transport
            .send(&self.others, 0, &Message::Goodbye { reason });
    }
}
