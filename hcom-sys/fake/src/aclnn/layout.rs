//! Where the elements of a tensor lie in its storage, and the views that only change that.

use smallvec::SmallVec;

/// Largest rank of a tensor that an operator accepts.
pub(crate) const MAX_RANK: usize = 8;

/// Largest rank of a view of one: repeating makes two dimensions of each.
pub(crate) const MAX_VIEW_RANK: usize = 2 * MAX_RANK;

/// Sizes of the dimensions, outermost first.
pub(crate) type Dims = SmallVec<[usize; MAX_RANK]>;
/// Distances in elements between neighbours of each dimension.
pub(crate) type Strides = SmallVec<[isize; MAX_RANK]>;

/// Element `index` of the tensor lies `offset + Σ index[d] · strides[d]` elements behind the storage's start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) dims: Dims,
    pub(crate) strides: Strides,
    pub(crate) offset: isize,
}

impl Layout {
    /// Row-major, without gaps, from the start of the storage.
    pub(crate) fn contiguous(dims: &[usize]) -> Layout {
        let mut strides = Strides::from_elem(1, dims.len());
        for d in (1..dims.len()).rev() {
            strides[d - 1] = strides[d] * dims[d].max(1) as isize;
        }
        Layout {
            dims: dims.into(),
            strides,
            offset: 0,
        }
    }

    pub(crate) fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements; 1 for rank 0.
    pub(crate) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Smallest and largest element offset; `None` without elements.
    pub(crate) fn extent(&self) -> Option<(isize, isize)> {
        let (mut low, mut high) = (self.offset, self.offset);
        for (&dim, &stride) in self.dims.iter().zip(&self.strides) {
            let reach = (dim as isize).checked_sub(1).filter(|&reach| reach >= 0)? * stride;
            if reach < 0 {
                low += reach
            } else {
                high += reach
            }
        }
        Some((low, high))
    }

    /// Whether two indices may name the same element; exact for the layouts that views of contiguous tensors have.
    pub(crate) fn overlaps_itself(&self) -> bool {
        let mut order: SmallVec<[(isize, usize); MAX_RANK]> = (self.strides.iter())
            .zip(&self.dims)
            .filter(|&(_, &dim)| dim > 1)
            .map(|(&stride, &dim)| (stride.abs(), dim))
            .collect();
        order.sort_unstable();
        let mut reach = 0;
        self.len() != 0
            && order.into_iter().any(|(stride, dim)| {
                let overlap = stride <= reach;
                reach += stride * (dim as isize - 1);
                overlap
            })
    }

    /// Repeats dimensions of size 1 and adds outer ones (stride 0), as NumPy does. `None` if the sizes do not fit.
    pub(crate) fn broadcast_to(&self, dims: &[usize]) -> Option<Layout> {
        let added = dims.len().checked_sub(self.rank())?;
        let mut strides = Strides::from_elem(0, added);
        for ((&from, &to), &stride) in self.dims.iter().zip(&dims[added..]).zip(&self.strides) {
            strides.push(if from == to {
                stride
            } else if from == 1 {
                0
            } else {
                return None;
            });
        }
        Some(Layout {
            dims: dims.into(),
            strides,
            offset: self.offset,
        })
    }

    /// Dimension `d` of the result is dimension `order[d]` of this.
    pub(crate) fn permute(&self, order: &[usize]) -> Layout {
        Layout {
            dims: order.iter().map(|&d| self.dims[d]).collect(),
            strides: order.iter().map(|&d| self.strides[d]).collect(),
            offset: self.offset,
        }
    }

    /// `len` elements of dimension `dim`, from `start` on, every `step`th.
    pub(crate) fn narrow(&self, dim: usize, start: usize, len: usize, step: usize) -> Layout {
        let mut view = self.clone();
        view.dims[dim] = len;
        if len > 0 {
            view.offset += start as isize * self.strides[dim];
        }
        view.strides[dim] *= step as isize;
        view
    }

    /// Dimension `dim` behind all others.
    pub(crate) fn move_to_end(&self, dim: usize) -> Layout {
        let mut order: Dims = (0..self.rank()).filter(|&d| d != dim).collect();
        order.push(dim);
        self.permute(&order)
    }

    /// Dimension `dim` as two, of `outer` and as many as fit. `outer` divides its size.
    pub(crate) fn split_dim(&self, dim: usize, outer: usize) -> Layout {
        let mut view = self.clone();
        let inner = self.dims[dim] / outer;
        view.dims[dim] = inner;
        view.dims.insert(dim, outer);
        view.strides.insert(dim, self.strides[dim] * inner as isize);
        view
    }

    /// A dimension of size 1 in front of position `dim`.
    pub(crate) fn insert_dim(&self, dim: usize) -> Layout {
        let mut view = self.clone();
        view.dims.insert(dim, 1);
        view.strides.insert(dim, 0);
        view
    }

    /// The same elements in the same order with as few dimensions as possible; at least one.
    pub(crate) fn coalesced(&self) -> Layout {
        let (mut dims, mut strides) = (Dims::new(), Strides::new());
        for (&dim, &stride) in self.dims.iter().zip(&self.strides) {
            if dim == 1 {
                continue;
            }
            match (dims.last_mut(), strides.last_mut()) {
                (Some(last), Some(last_stride)) if *last_stride == stride * dim as isize => {
                    *last *= dim;
                    *last_stride = stride;
                }
                _ => {
                    dims.push(dim);
                    strides.push(stride);
                }
            }
        }
        if dims.is_empty() {
            dims.push(1);
            strides.push(1);
        }
        Layout {
            dims,
            strides,
            offset: self.offset,
        }
    }
}

/// Common shape of two shapes by NumPy's broadcasting rule.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Option<Dims> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], d: usize| (d + dims.len()).checked_sub(rank).map_or(1, |d| dims[d]);
    (0..rank)
        .map(|d| match (at(a, d), at(b, d)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_and_extent() {
        let t = Layout::contiguous(&[2, 3, 4]);
        assert_eq!(t.strides.as_slice(), [12, 4, 1]);
        assert_eq!(t.extent(), Some((0, 23)));
        assert_eq!(t.narrow(1, 1, 2, 1).extent(), Some((4, 23)));
        assert_eq!(Layout::contiguous(&[2, 0]).extent(), None);
        assert_eq!(Layout::contiguous(&[]).extent(), Some((0, 0)));
    }

    #[test]
    fn coalescing_keeps_the_order() {
        let t = Layout::contiguous(&[2, 3, 1, 4]);
        assert_eq!(t.coalesced().dims.as_slice(), [24]);
        let view = t.narrow(3, 1, 3, 1).coalesced();
        assert_eq!(
            (view.dims.as_slice(), view.strides.as_slice()),
            (&[6, 3][..], &[4, 1][..])
        );
        let even = t.narrow(3, 0, 2, 2).coalesced();
        assert_eq!(
            (even.dims.as_slice(), even.strides.as_slice()),
            (&[12][..], &[2][..])
        );
        let row = Layout::contiguous(&[3])
            .broadcast_to(&[2, 5, 3])
            .unwrap()
            .coalesced();
        assert_eq!(
            (row.dims.as_slice(), row.strides.as_slice()),
            (&[10, 3][..], &[0, 1][..])
        );
    }

    #[test]
    fn overlap() {
        assert!(
            !Layout::contiguous(&[2, 3])
                .permute(&[1, 0])
                .overlaps_itself()
        );
        assert!(
            Layout::contiguous(&[1, 3])
                .broadcast_to(&[2, 3])
                .unwrap()
                .overlaps_itself()
        );
        let window = Layout {
            dims: [3, 2].as_slice().into(),
            strides: [1, 1].as_slice().into(),
            offset: 0,
        };
        assert!(window.overlaps_itself());
    }

    #[test]
    fn broadcasting() {
        assert_eq!(
            broadcast(&[2, 1, 4], &[3, 1]).unwrap().as_slice(),
            [2, 3, 4]
        );
        assert_eq!(broadcast(&[], &[0]).unwrap().as_slice(), [0]);
        assert_eq!(broadcast(&[2], &[3]), None);
    }
}
