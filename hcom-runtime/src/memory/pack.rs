//! First-fit packing of buffers into one arena.

/// The alignment of every buffer in an arena, in bytes: what transfers and vector units of the
/// device like best, and a multiple of every requirement of the C interface.
pub const ALIGNMENT: u64 = 512;

/// Rounds `bytes` up to a multiple of [`ALIGNMENT`].
pub(crate) fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGNMENT) * ALIGNMENT
}

/// Offsets of buffers and the size of the arena that holds them, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    pub(crate) offsets: Vec<u64>,
    pub(crate) bytes: u64,
}

/// Places buffers of `sizes` bytes so that two of them overlap only where `conflict` allows it.
///
/// Tries several orders (by size, by first use, by both) and keeps the smallest arena. `first_use`
/// gives the position of a buffer in the order of execution.
pub(crate) fn pack(
    sizes: &[u64],
    first_use: &[usize],
    conflict: impl Fn(usize, usize) -> bool,
) -> Packing {
    let count = sizes.len();
    let mut neighbours = vec![Vec::new(); count];
    for a in 0..count {
        for b in 0..a {
            if conflict(a, b) {
                neighbours[a].push(b);
                neighbours[b].push(a);
            }
        }
    }
    let mut by_size: Vec<usize> = (0..count).collect();
    by_size.sort_by_key(|&b| (std::cmp::Reverse(sizes[b]), first_use[b]));
    let mut by_use: Vec<usize> = (0..count).collect();
    by_use.sort_by_key(|&b| (first_use[b], std::cmp::Reverse(sizes[b])));
    let mut by_degree: Vec<usize> = (0..count).collect();
    by_degree.sort_by_key(|&b| {
        (
            std::cmp::Reverse(neighbours[b].len()),
            std::cmp::Reverse(sizes[b]),
            b,
        )
    });
    [by_size, by_use, by_degree]
        .iter()
        .map(|order| first_fit(sizes, &neighbours, order))
        .min_by_key(|packing| packing.bytes)
        .expect("there are three orders")
}

fn first_fit(sizes: &[u64], neighbours: &[Vec<usize>], order: &[usize]) -> Packing {
    let mut offsets: Vec<Option<u64>> = vec![None; sizes.len()];
    let mut bytes = 0;
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for &buffer in order {
        taken.clear();
        taken.extend(
            neighbours[buffer]
                .iter()
                .filter_map(|&n| offsets[n].map(|start| (start, start + aligned(sizes[n])))),
        );
        taken.sort_unstable();
        let size = aligned(sizes[buffer]);
        let mut offset = 0;
        for &(start, end) in &taken {
            if start >= offset + size {
                break;
            }
            offset = offset.max(end);
        }
        offsets[buffer] = Some(offset);
        bytes = bytes.max(offset + size);
    }
    Packing {
        offsets: offsets
            .into_iter()
            .map(|offset| offset.unwrap_or(0))
            .collect(),
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_never_meet_share_memory() {
        let packing = pack(&[1000, 1000, 10], &[0, 1, 2], |a, b| (a == 2) != (b == 2));
        assert_eq!(packing.offsets[0], packing.offsets[1]);
        assert_eq!(packing.bytes, 1024 + 512);
    }

    #[test]
    fn a_gap_is_used_before_the_arena_grows() {
        // 0 and 2 live throughout, 1 dies before 3 is born: 3 fits where 1 was.
        let conflict = |a: usize, b: usize| !matches!((a, b), (1, 3) | (3, 1));
        let packing = pack(&[512, 1024, 512, 700], &[0, 1, 2, 3], conflict);
        assert_eq!(packing.bytes, 2048);
        assert_eq!(packing.offsets[1], packing.offsets[3]);
    }

    #[test]
    fn offsets_are_aligned_and_nothing_overlaps() {
        let sizes: Vec<u64> = (0..40).map(|i| 1 + (i * 7919) % 5000).collect();
        let uses: Vec<usize> = (0..40).collect();
        let conflict = |a: usize, b: usize| a.abs_diff(b) < 5;
        let packing = pack(&sizes, &uses, conflict);
        for a in 0..40 {
            assert_eq!(packing.offsets[a] % ALIGNMENT, 0);
            assert!(packing.offsets[a] + sizes[a] <= packing.bytes);
            for b in (0..a).filter(|&b| conflict(a, b)) {
                let (x, y) = (packing.offsets[a], packing.offsets[b]);
                assert!(x + sizes[a] <= y || y + sizes[b] <= x, "{a} {b}");
            }
        }
    }

    #[test]
    fn nothing_takes_no_memory() {
        assert_eq!(pack(&[], &[], |_, _| true).bytes, 0);
    }
}
