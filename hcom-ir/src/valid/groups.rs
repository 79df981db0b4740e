//! Groups have members, each once.

use rustc_hash::FxHashSet;

use crate::diag::{Code, Diagnostic};
use crate::graph::Graph;
use crate::group::Group;

pub(super) fn validate(graph: &Graph, found: &mut Vec<Diagnostic>) {
    found.extend(
        graph
            .groups
            .iter()
            .filter_map(|(_, group)| check(group).err()),
    );
}

/// Fails when the group is empty or holds a rank twice.
pub(crate) fn check(group: &Group) -> Result<(), Diagnostic> {
    if group.ranks.is_empty() {
        return Err(
            Diagnostic::new(Code::Group, format!("group `@{}` has no ranks", group.name))
                .expected("one rank or more")
                .got(group),
        );
    }
    let mut seen = FxHashSet::default();
    match group.ranks.iter().find(|rank| !seen.insert(**rank)) {
        Some(rank) => Err(Diagnostic::new(
            Code::Group,
            format!("rank {rank} is in group `@{}` twice", group.name),
        )
        .expected("each rank once")
        .got(group)),
        None => Ok(()),
    }
}
