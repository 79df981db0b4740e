//! A layered layout: rows by dependency, an order in each row with few crossings, columns that keep edges straight.
//!
//! The three steps of Sugiyama, Tagawa and Toda (1981): an edge over several rows gets a narrow waypoint in each row
//! between; barycentre sweeps order the rows; columns are least-squares positions under the rows' order, found by
//! pooling adjacent violators.

/// Space between neighbours in a row.
const GAP: f64 = 28.0;
/// Sweeps down and up; more change no drawing visibly.
const SWEEPS: usize = 12;

/// What is laid out.
#[derive(Default)]
pub(super) struct Layout {
    /// Width of each box; waypoints follow the caller's boxes.
    widths: Vec<f64>,
    /// Row of each box.
    pub(super) rows: Vec<usize>,
    /// Centre of each box.
    pub(super) x: Vec<f64>,
    /// Per edge of the caller, the boxes it passes: its ends and the waypoints between.
    pub(super) paths: Vec<Vec<usize>>,
    /// Boxes of each row from left to right.
    order: Vec<Vec<usize>>,
}

/// Lays out boxes of these widths; `edges` lead from an earlier box to a later one (`from < to`).
pub(super) fn layout(widths: &[f64], edges: &[(usize, usize)]) -> Layout {
    let mut layout = Layout {
        widths: widths.to_vec(),
        rows: rows(widths.len(), edges),
        ..Layout::default()
    };
    layout.add_waypoints(edges);
    layout.fill_rows();
    let (above, below) = layout.neighbours();
    for _ in 0..SWEEPS {
        layout.sort_rows(&above, true);
        layout.sort_rows(&below, false);
    }
    layout.place(&above, &below);
    layout
}

/// A box stands one row below the lowest of its sources; a box without sources right above its first target.
fn rows(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut sources = vec![Vec::new(); count];
    let mut targets = vec![Vec::new(); count];
    for &(from, to) in edges {
        sources[to].push(from);
        targets[from].push(to);
    }
    let mut rows = vec![0; count];
    for to in 0..count {
        rows[to] = sources[to]
            .iter()
            .map(|&from| rows[from] + 1)
            .max()
            .unwrap_or(0);
    }
    for from in (0..count).filter(|&from| sources[from].is_empty()) {
        let first = targets[from].iter().map(|&to| rows[to]).min();
        rows[from] = first.map_or(0, |row| row - 1);
    }
    rows
}

impl Layout {
    fn add_waypoints(&mut self, edges: &[(usize, usize)]) {
        for &(from, to) in edges {
            let mut path = vec![from];
            for row in self.rows[from] + 1..self.rows[to] {
                path.push(self.widths.len());
                self.widths.push(0.0);
                self.rows.push(row);
            }
            path.push(to);
            self.paths.push(path);
        }
    }

    fn fill_rows(&mut self) {
        let count = self.rows.iter().max().map_or(0, |last| last + 1);
        self.order = vec![Vec::new(); count];
        for (index, &row) in self.rows.iter().enumerate() {
            self.order[row].push(index);
        }
    }

    /// Per box, its neighbours in the row above and in the row below.
    fn neighbours(&self) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
        let mut above = vec![Vec::new(); self.widths.len()];
        let mut below = vec![Vec::new(); self.widths.len()];
        for path in &self.paths {
            for pair in path.windows(2) {
                above[pair[1]].push(pair[0]);
                below[pair[0]].push(pair[1]);
            }
        }
        (above, below)
    }

    fn sort_rows(&mut self, neighbours: &[Vec<usize>], downwards: bool) {
        let mut position = vec![0.0; self.widths.len()];
        let count = self.order.len();
        for step in 0..count {
            let row = match downwards {
                true => step,
                false => count - 1 - step,
            };
            let mut keyed: Vec<(f64, usize)> = self.order[row]
                .iter()
                .enumerate()
                .map(|(index, &item)| {
                    let near = &neighbours[item];
                    let key = match near.is_empty() {
                        true => index as f64,
                        false => {
                            near.iter().map(|&other| position[other]).sum::<f64>()
                                / near.len() as f64
                        }
                    };
                    (key, item)
                })
                .collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.order[row] = keyed.into_iter().map(|(_, item)| item).collect();
            for (index, &item) in self.order[row].iter().enumerate() {
                position[item] = index as f64;
            }
        }
    }

    fn place(&mut self, above: &[Vec<usize>], below: &[Vec<usize>]) {
        self.x = vec![0.0; self.widths.len()];
        for row in &self.order {
            let mut right = 0.0;
            for &item in row {
                self.x[item] = right + self.widths[item] / 2.0;
                right += self.widths[item] + GAP;
            }
            for &item in row {
                self.x[item] -= (right - GAP) / 2.0;
            }
        }
        // Rows first follow one side in turn, which spreads them; then both sides, which straightens chains.
        let both: Vec<Vec<usize>> = above
            .iter()
            .zip(below)
            .map(|(above, below)| above.iter().chain(below).copied().collect())
            .collect();
        for sweep in 0..10 * SWEEPS {
            let neighbours = match sweep {
                sweep if sweep >= 2 * SWEEPS => &both,
                sweep if sweep % 2 == 0 => above,
                _ => below,
            };
            let count = self.order.len();
            for step in 0..count {
                let row = match sweep % 2 {
                    0 => step,
                    _ => count - 1 - step,
                };
                self.place_row(row, neighbours);
            }
        }
        let left = (0..self.widths.len())
            .map(|item| self.x[item] - self.widths[item] / 2.0)
            .fold(f64::INFINITY, f64::min);
        for x in &mut self.x {
            *x -= left;
        }
    }

    /// Moves a row's boxes as close to their neighbours' mean as their order and widths allow.
    fn place_row(&mut self, row: usize, neighbours: &[Vec<usize>]) {
        // Without the least distances the constraint is `not decreasing`: an isotonic regression.
        let mut offset = 0.0;
        let mut previous = None;
        let mut offsets = Vec::new();
        // Weighted sum of the wishes, weight, number of boxes.
        let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
        for &item in &self.order[row] {
            if let Some(previous) = previous {
                let widths: f64 = self.widths[item] + self.widths[previous];
                offset += widths / 2.0 + GAP;
            }
            previous = Some(item);
            offsets.push(offset);
            let (wish, weight) = self.wish(item, &neighbours[item]);
            let mut block = ((wish - offset) * weight, weight, 1);
            while let Some(&(sum, weight, count)) = blocks.last()
                && sum / weight > block.0 / block.1
            {
                block = (block.0 + sum, block.1 + weight, block.2 + count);
                blocks.pop();
            }
            blocks.push(block);
        }
        let means = blocks
            .iter()
            .flat_map(|&(sum, weight, count)| std::iter::repeat_n(sum / weight, count));
        for ((&item, offset), mean) in self.order[row].iter().zip(offsets).zip(means) {
            self.x[item] = mean + offset;
        }
    }

    /// Where a box would like to stand, and how much: an edge is the straighter the longer it is.
    fn wish(&self, item: usize, neighbours: &[usize]) -> (f64, f64) {
        let is_waypoint = |item: usize| self.widths[item] == 0.0;
        let (mut sum, mut weight) = (0.0, 0.0);
        for &other in neighbours {
            let pull = match (is_waypoint(item), is_waypoint(other)) {
                (true, true) => 8.0,
                (false, false) => 2.0,
                _ => 1.0,
            };
            sum += pull * self.x[other];
            weight += pull;
        }
        match neighbours.is_empty() {
            true => (self.x[item], 1.0),
            false => (sum / weight, weight),
        }
    }

    /// Width of the whole drawing.
    pub(super) fn width(&self) -> f64 {
        (0..self.widths.len())
            .map(|item| self.x[item] + self.widths[item] / 2.0)
            .fold(0.0, f64::max)
    }

    /// Number of rows.
    pub(super) fn row_count(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_a_straight_column() {
        let layout = layout(&[50.0, 80.0, 50.0], &[(0, 1), (1, 2)]);
        assert_eq!(layout.rows, [0, 1, 2]);
        assert_eq!(layout.x, [40.0; 3]);
    }

    #[test]
    fn boxes_of_a_row_never_overlap_and_an_input_stands_above_its_use() {
        // 0..4 feed 5; 5 feeds 7; 6 is an input that only 7 uses.
        let edges = [(0, 5), (1, 5), (2, 5), (3, 5), (4, 5), (5, 7), (6, 7)];
        let widths = [60.0; 8];
        let layout = layout(&widths, &edges);
        assert_eq!(layout.rows[6], 1);
        for row in &layout.order {
            for pair in row.windows(2) {
                assert!(layout.x[pair[1]] - layout.x[pair[0]] >= 60.0 + GAP - 1e-9);
            }
        }
        assert!((layout.x[5] - layout.x[2]).abs() < 60.0);
    }

    #[test]
    fn a_long_edge_has_a_waypoint_in_every_row_between() {
        let layout = layout(&[10.0; 4], &[(0, 1), (1, 2), (2, 3), (0, 3)]);
        assert_eq!(layout.paths[3].len(), 4);
        assert_eq!(
            layout.paths[3]
                .iter()
                .map(|&at| layout.rows[at])
                .collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
    }

    #[test]
    fn two_crossed_columns_are_uncrossed() {
        // 0 → 3 and 1 → 2 cross when rows keep their first order.
        let layout = layout(&[10.0; 4], &[(0, 3), (1, 2)]);
        assert_eq!((layout.x[0] < layout.x[1]), (layout.x[3] < layout.x[2]));
    }
}
