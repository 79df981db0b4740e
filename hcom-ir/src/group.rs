//! Groups of ranks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An ordered set of ranks that communicate with each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Group {
    /// The name in the text form, without `@`.
    pub name: String,
    /// Global ranks in group order: the position is the rank within the group.
    pub ranks: Vec<u32>,
}

impl Group {
    /// A group of these global ranks, in group order.
    pub fn new(name: impl Into<String>, ranks: impl Into<Vec<u32>>) -> Self {
        Self {
            name: name.into(),
            ranks: ranks.into(),
        }
    }

    /// Number of ranks in the group.
    pub fn group_size(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    /// The rank within the group of `global_rank`; `None` when it is not a member.
    pub fn rank_of(&self, global_rank: u32) -> Option<u32> {
        let position = self.ranks.iter().position(|&rank| rank == global_rank)?;
        u32::try_from(position).ok()
    }

    /// The global rank of the member `rank`; `None` beyond the size of the group.
    pub fn global_rank(&self, rank: u32) -> Option<u32> {
        self.ranks.get(rank as usize).copied()
    }

    /// Whether a rank belongs to both groups.
    pub fn overlaps(&self, other: &Group) -> bool {
        self.ranks.iter().any(|rank| other.ranks.contains(rank))
    }
}

impl fmt::Display for Group {
    /// The declaration without the keyword: `@tp = ranks(0, 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{} = ranks(", self.name)?;
        for (index, rank) in self.ranks.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{rank}")?;
        }
        f.write_str(")")
    }
}
