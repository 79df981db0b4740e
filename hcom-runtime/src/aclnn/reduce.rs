//! Reductions over dimensions, softmax and normalisation.

use hcom_ir::{DType, Op};

use super::{Arg, Kernel, Lowered, Site};

pub(super) fn lower(site: &Site<'_>, to: &mut Lowered) {
    match site.op {
        Op::Softmax => to.push(
            Kernel::Softmax,
            [
                site.operand(0).into(),
                Arg::Int(site.attrs.int("dim")),
                site.result(0).into(),
            ],
        ),
        Op::LayerNorm => {
            let x = site.operand(0);
            let width = x.shape[x.shape.len() - 1];
            to.push(
                Kernel::LayerNorm,
                [
                    x.into(),
                    Arg::Ints(vec![width]),
                    site.operand(1).into(),
                    site.operand(2).into(),
                    Arg::Float(site.attrs.float("eps")),
                    site.result(0).into(),
                    Arg::NoTensor,
                    Arg::NoTensor,
                ],
            );
        }
        Op::RmsNorm => {
            let x = site.operand(0);
            let mut per_row = x.shape.clone();
            *per_row.last_mut().expect("a norm has a last dimension") = 1;
            let rstd = to.scratch(DType::F32, per_row);
            to.push(
                Kernel::RmsNorm,
                [
                    x.into(),
                    site.operand(1).into(),
                    Arg::Float(site.attrs.float("eps")),
                    site.result(0).into(),
                    rstd.into(),
                ],
            );
        }
        Op::Argmax => to.push(
            Kernel::ArgMax,
            [
                site.operand(0).into(),
                Arg::Int(site.dim("dim", site.operands[0].shape.rank()) as i64),
                Arg::Flag(site.attrs.bool("keepdim")),
                site.result(0).into(),
            ],
        ),
        Op::Sum | Op::Mean | Op::Max => reduce(site, to),
        op => unreachable!("{op} is no reduction"),
    }
}

fn reduce(site: &Site<'_>, to: &mut Lowered) {
    let [x, y] = [site.operand(0), site.result(0)];
    let dims = site.attrs.ints("dims").to_vec();
    if x.elements() == 0 {
        let value = if site.op == Op::Mean { f64::NAN } else { 0.0 };
        to.fill(y, value);
        return;
    }
    let keep = Arg::Flag(site.attrs.bool("keepdim"));
    let (x, y) = if x.dtype == DType::Bool {
        // Bytes of 0 and 1: the largest one is the logical or.
        (x.reread(DType::U8), y.reread(DType::U8))
    } else {
        (x, y)
    };
    let dtype = y.dtype;
    match site.op {
        Op::Sum if site.operands[0].dtype != DType::Bool => to.push(
            Kernel::ReduceSum,
            [x.into(), Arg::Ints(dims), keep, Arg::DType(dtype), y.into()],
        ),
        Op::Mean => to.push(
            Kernel::Mean,
            [x.into(), Arg::Ints(dims), keep, Arg::DType(dtype), y.into()],
        ),
        _ => to.push(Kernel::Amax, [x.into(), Arg::Ints(dims), keep, y.into()]),
    }
}
