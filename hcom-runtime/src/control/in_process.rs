//! The control plane of ranks that are threads of one process.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use super::{
    Control,
    board::{Boards, Endpoint, Message, Transport},
};

/// Makes the control planes of ranks that are threads of one process.
///
/// A rank that drops its control plane has left; one that drops it while panicking has died.
pub struct InProcess;

impl InProcess {
    /// The control planes of `world_size` ranks; entry `r` belongs to rank `r`.
    #[allow(
        clippy::new_ret_no_self,
        reason = "makes one connected object per rank"
    )]
    pub fn new(world_size: u32) -> Vec<Arc<dyn Control>> {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        let job = format!("p{}-{number}", std::process::id());
        let boards: Arc<[Arc<Boards>]> = (0..world_size)
            .map(|rank| Boards::new(rank, world_size, &job))
            .collect();
        (0..world_size)
            .map(|rank| {
                let transport = Direct {
                    rank,
                    boards: boards.clone(),
                };
                Arc::new(Endpoint::new(boards[rank as usize].clone(), transport))
                    as Arc<dyn Control>
            })
            .collect()
    }
}

/// Delivers straight into the other rank's board.
struct Direct {
    rank: u32,
    boards: Arc<[Arc<Boards>]>,
}

impl Transport for Direct {
    fn send(&self, to: &[u32], era: u32, message: &Message) {
        for &rank in to {
            match message {
                // Ranks of one process run or stop together.
                Message::Ping => self.boards[self.rank as usize].deliver(rank, era, Message::Pong),
                _ => self.boards[rank as usize].deliver(self.rank, era, message.clone()),
            }
        }
    }
}
