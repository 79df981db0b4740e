//! Matrix multiplication and attention.

use hcom_ir::Op;

use super::{Arg, Kernel, Lowered, Scalar, Site, View, pointwise};

/// Keep the operands' type in the multiplication: results do not depend on a precision setting.
const KEEP_DTYPE: i8 = 0;

pub(super) fn lower(site: &Site<'_>, to: &mut Lowered) {
    match site.op {
        Op::Matmul => {
            let [mut a, mut b] = [site.operand(0), site.operand(1)];
            if site.attrs.bool("transpose_a") {
                a = a.transposed();
            }
            if site.attrs.bool("transpose_b") {
                b = b.transposed();
            }
            multiply(to, a, b, site.result(0));
        }
        Op::Attention => attention(site, to),
        op => unreachable!("{op} is no matrix operation"),
    }
}

fn multiply(to: &mut Lowered, a: View, b: View, y: View) {
    if a.elements() == 0 || b.elements() == 0 {
        // An empty sum; the library refuses an inner size of 0.
        to.fill(y, 0.0);
    } else {
        to.push(
            Kernel::Matmul,
            [a.into(), b.into(), y.into(), Arg::Code(KEEP_DTYPE)],
        );
    }
}

/// `softmax(q kᵀ · scale + mask) v`, one step after the other.
fn attention(site: &Site<'_>, to: &mut Lowered) {
    let [q, k, v] = [site.operand(0), site.operand(1), site.operand(2)];
    let rank = q.shape.len();
    let (dtype, rows, columns) = (q.dtype, q.shape[rank - 2], k.shape[rank - 2]);
    let mut scores_shape = q.shape.clone();
    scores_shape[rank - 1] = columns;
    let [one, other] = [(); 2].map(|()| to.scratch(dtype, scores_shape.clone()));

    multiply(to, q, k.transposed(), one.clone());
    to.push(
        Kernel::Muls,
        [
            one.clone().into(),
            Arg::Scalar(Scalar::of(site.attrs.float("scale"), dtype)),
            other.clone().into(),
        ],
    );
    let (mut scores, mut free) = (other, one);
    let mut masks = Vec::new();
    if site.operands.len() > 3 {
        masks.push(site.operand(3));
    }
    if site.attrs.bool("causal") && rows > 0 && columns > 0 {
        let full = to.scratch(dtype, [rows, columns]);
        let mask = to.scratch(dtype, [rows, columns]);
        to.fill(full.clone(), f64::NEG_INFINITY);
        // Column j is hidden from row i when j > i.
        to.push(
            Kernel::Triu,
            [full.into(), Arg::Int(1), mask.clone().into()],
        );
        masks.push(mask);
    }
    for mask in masks {
        pointwise::add(to, scores.clone(), mask, free.clone());
        std::mem::swap(&mut scores, &mut free);
    }
    to.push(
        Kernel::Softmax,
        [scores.into(), Arg::Int(-1), free.clone().into()],
    );
    multiply(to, free, v, site.result(0));
}
