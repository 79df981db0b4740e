//! Operations that move elements without computing.

use hcom_ir::{Attr, Op};

use super::{Arg, Call, Kernel, Lowered, Place, Scalar, Site, View};

pub(super) fn lower(site: &Site<'_>, to: &mut Lowered) {
    match site.op {
        Op::Copy | Op::Reshape | Op::AsReal | Op::AsComplex => to.calls.push(Call::Copy {
            from: Place::Operand(0),
            to: Place::Result(0),
            bytes: site.operand_bytes(),
        }),
        Op::CopyToInput => to.calls.push(Call::Copy {
            from: Place::Operand(0),
            to: Place::Operand(1),
            bytes: site.operand_bytes(),
        }),
        Op::Transpose => to.push(
            Kernel::Permute,
            [
                site.operand(0).into(),
                Arg::Ints(site.attrs.ints("perm").to_vec()),
                site.result(0).into(),
            ],
        ),
        Op::Slice => to.push(
            Kernel::SliceV2,
            [
                site.operand(0).into(),
                Arg::Ints(vec![site.attrs.size("start") as i64]),
                Arg::Ints(vec![site.attrs.size("end") as i64]),
                Arg::Ints(vec![site.dim("dim", site.operands[0].shape.rank()) as i64]),
                Arg::Ints(vec![site.attrs.int("step")]),
                site.result(0).into(),
            ],
        ),
        Op::Concat => {
            let parts: Vec<View> = (0..site.operands.len())
                .map(|index| site.operand(index))
                .filter(|part| part.elements() > 0)
                .collect();
            to.push(
                Kernel::Cat,
                [
                    Arg::Tensors(parts),
                    Arg::Int(site.dim("dim", site.results[0].shape.rank()) as i64),
                    site.result(0).into(),
                ],
            );
        }
        Op::Split => {
            let dim = site.dim("dim", site.operands[0].shape.rank());
            let mut start = 0;
            for index in 0..site.results.len() {
                let piece = site.result(index);
                let size = piece.shape[dim];
                if piece.elements() > 0 {
                    let part = site.operand(0).narrowed(dim, start, size);
                    to.push(Kernel::InplaceCopy, [piece.into(), part.into()]);
                }
                start += size;
            }
        }
        Op::Expand => {
            let size = site.result(0).shape;
            to.push(
                Kernel::Expand,
                [
                    site.operand(0).into(),
                    Arg::Ints(size),
                    site.result(0).into(),
                ],
            );
        }
        Op::Pad => pad(site, to),
        Op::Tril | Op::Triu => {
            let kernel = if site.op == Op::Tril {
                Kernel::Tril
            } else {
                Kernel::Triu
            };
            to.push(
                kernel,
                [
                    site.operand(0).into(),
                    Arg::Int(site.attrs.int("diagonal")),
                    site.result(0).into(),
                ],
            );
        }
        Op::Embedding => {
            let table = site.operand(0);
            let rows = table.shape[0];
            let width: i64 = table.shape[1..].iter().product();
            let indices = site.operand(1);
            let mut flat = indices.shape.clone();
            flat.push(width);
            to.push(
                Kernel::Embedding,
                [
                    table.reshaped([rows, width]).into(),
                    indices.into(),
                    site.result(0).reshaped(flat).into(),
                ],
            );
        }
        Op::Gather => to.push(
            Kernel::Gather,
            [
                site.operand(0).into(),
                Arg::Int(site.dim("dim", site.operands[0].shape.rank()) as i64),
                site.operand(1).into(),
                site.result(0).into(),
            ],
        ),
        op => unreachable!("{op} moves no elements"),
    }
}

fn pad(site: &Site<'_>, to: &mut Lowered) {
    let dtype = site.results[0].dtype;
    let value = match site.attrs.get("value") {
        Some(Attr::Int(value)) if dtype.is_integer() => Scalar::I64(*value),
        _ => Scalar::of(site.attrs.float("value"), dtype),
    };
    if site.operand(0).elements() == 0 {
        to.push(
            Kernel::InplaceFillScalar,
            [site.result(0).into(), Arg::Scalar(value)],
        );
        return;
    }
    // The library counts dimensions from the last one: before, after, before, after, …
    let (low, high) = (site.attrs.sizes("low"), site.attrs.sizes("high"));
    let amounts = low
        .iter()
        .zip(&high)
        .rev()
        .flat_map(|(&low, &high)| [low as i64, high as i64])
        .collect();
    to.push(
        Kernel::ConstantPadNd,
        [
            site.operand(0).into(),
            Arg::Ints(amounts),
            Arg::Scalar(value),
            site.result(0).into(),
        ],
    );
}
