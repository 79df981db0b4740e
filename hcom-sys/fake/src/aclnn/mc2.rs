//! Matrix products fused with a collective. The product and the collective follow each other on the stream of the call;
//! what lies between them is in the workspace.

use std::sync::Arc;

use hcom_sys::bindings as sys;

use super::create::copy;
use super::dtype::Type;
use super::executor::{Arg, Operand, Plan, Transfer, bad};
use super::layout::Layout;
use super::matmul::Product;
use super::object::Tensor;
use crate::comm::{self, Communicator, Kind};
use crate::error::Outcome;

/// Types that the fused operators accept.
const TYPES: &[Type] = &[Type::F16, Type::BF16];

/// What every fused operator is told about its collective.
pub(crate) struct Options {
    /// Name of the communicator.
    pub(crate) group: Option<String>,
    /// What sums up; `None` for an operator that gathers.
    pub(crate) reduce: Option<Option<String>>,
    /// Which operand is gathered.
    pub(crate) gather: i64,
    pub(crate) turn: i64,
    pub(crate) stream_mode: i64,
}

impl Options {
    /// Checks them against what is documented and finds the communicator.
    fn check(self) -> Outcome<Arc<Communicator>> {
        if let Some(reduce) = self.reduce
            && reduce.as_deref() != Some("sum")
        {
            return Err(bad("reduceOp", "sum", reduce.unwrap_or_default()));
        }
        for (name, value, only) in [
            ("gatherIndex", self.gather, 0),
            ("commTurn", self.turn, 0),
            ("streamMode", self.stream_mode, 1),
        ] {
            if value != only {
                return Err(bad(name, only, value));
            }
        }
        let group = self.group.unwrap_or_default();
        comm::by_name(&group).ok_or_else(|| {
            let expected = "the name that HcclGetCommName gives for a living communicator";
            bad("group", expected, format_args!("{group:?}"))
        })
    }
}

/// What the second versions take in addition; nothing is quantised here.
#[derive(Default)]
pub(crate) struct Quantisation {
    /// Scales, and where the largest absolute value would go.
    pub(crate) tensors: Vec<Arg<Tensor>>,
    /// Sizes of the blocks and groups that have a scale.
    pub(crate) sizes: [i64; 2],
}

impl Quantisation {
    /// The parameters of the second versions. Which unit moves the data makes no difference.
    pub(crate) fn new(tensors: [Arg<Tensor>; 4], sizes: [i64; 2], _mode: Option<String>) -> Self {
        Self {
            tensors: tensors.into(),
            sizes,
        }
    }

    fn refuse(&self) -> Outcome {
        for tensor in &self.tensors {
            if tensor
                .optional_input()?
                .is_some_and(|tensor| tensor.layout.len() > 0)
            {
                let expected = "no tensor, as nothing is quantised here";
                return Err(bad(tensor.name, expected, "one"));
            }
        }
        for (name, size) in ["blockSize", "groupSize"].into_iter().zip(self.sizes) {
            if size != 0 {
                return Err(bad(name, "0, as nothing is quantised here", size));
            }
        }
        Ok(())
    }
}

/// Types and shapes that all have in common; gives rows, columns of the left and of the right matrix.
fn sizes(x: &Operand, y: &Operand, bias: Option<&Operand>, rank: usize) -> Outcome<[usize; 3]> {
    x.expect_types(TYPES)?;
    y.expect_types(&[x.dtype])?;
    if !(2..=rank).contains(&x.rank()) || x.layout.len() == 0 {
        let expected = format!("elements in 2 to {rank} dimensions");
        return Err(bad(&x.name, expected, format_args!("shape {:?}", x.dims())));
    }
    let &[inner, columns] = y.dims() else {
        return Err(bad(
            &y.name,
            "two dimensions",
            format_args!("{:?}", y.dims()),
        ));
    };
    if columns == 0 {
        return Err(bad(
            &y.name,
            "elements",
            format_args!("shape {:?}", y.dims()),
        ));
    }
    if let Some(bias) = bias {
        bias.expect_types(&[x.dtype])?;
        bias.expect_dims(&[columns])?;
    }
    Ok([x.layout.len() / inner.max(1), inner, columns])
}

fn hccl_type(dtype: Type) -> sys::HcclDataType {
    match dtype {
        Type::F16 => sys::HCCL_DATA_TYPE_FP16,
        _ => sys::HCCL_DATA_TYPE_BFP16,
    }
}

/// aclnnMatmulAllReduce and aclnnMatmulAllReduceV2: the sum over all ranks of `x · y + bias + addend`, rounded to its type
/// on each rank before it is summed. `x` has two or three dimensions, `bias` one. FLOAT16, BF16.
pub(crate) fn all_reduce(
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    bias: Arg<Tensor>,
    addend: Option<Arg<Tensor>>,
    options: Options,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, y, bias) = (x.input()?, y.input()?, bias.optional_input()?);
    let addend = match addend {
        Some(addend) => addend.optional_input()?,
        None => None,
    };
    let out = out.output()?;
    sizes(&x, &y, bias.as_ref(), 3)?;
    out.expect_types(&[x.dtype])?;
    if let Some(addend) = &addend {
        addend.expect_types(&[x.dtype])?;
        addend.expect_dims(out.dims())?;
    }
    let comm = options.check()?;
    let whole = Operand::workspace(x.dtype, out.dims());
    let transfer = Transfer {
        kind: Kind::AllReduce,
        comm: comm.handle,
        send: 0,
        count: out.layout.len() as u64,
        dtype: hccl_type(x.dtype),
        sums: true,
    };
    let addends = [bias, addend].into_iter().flatten().collect();
    reduced(x, y, addends, out, whole, transfer)
}

/// aclnnMatmulReduceScatter and its V2: of the sum over all ranks of `x · y + bias`, each rank gets its share of the rows.
/// Two dimensions each, `bias` one; the ranks divide the rows. FLOAT16, BF16.
pub(crate) fn reduce_scatter(
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    bias: Arg<Tensor>,
    quantisation: Quantisation,
    options: Options,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    quantisation.refuse()?;
    let (x, y, bias, out) = (
        x.input()?,
        y.input()?,
        bias.optional_input()?,
        out.output()?,
    );
    let [rows, _, columns] = sizes(&x, &y, bias.as_ref(), 2)?;
    out.expect_types(&[x.dtype])?;
    let comm = options.check()?;
    let ranks = comm.size as usize;
    if !rows.is_multiple_of(ranks) {
        let expected = format!("rows that {ranks} ranks share");
        return Err(bad(&x.name, expected, format_args!("shape {:?}", x.dims())));
    }
    out.expect_dims(&[rows / ranks, columns])?;
    let whole = Operand::workspace(x.dtype, &[rows, columns]);
    let transfer = Transfer {
        kind: Kind::ReduceScatter,
        comm: comm.handle,
        send: 0,
        count: (rows / ranks * columns) as u64,
        dtype: hccl_type(x.dtype),
        sums: true,
    };
    reduced(x, y, bias.into_iter().collect(), out, whole, transfer)
}

/// Product into the workspace, collective there, and its first elements into the output.
fn reduced(
    x: Operand,
    y: Operand,
    addends: Vec<Operand>,
    out: Operand,
    whole: Operand,
    transfer: Transfer,
) -> Outcome<Plan> {
    let mut product = Product::new(&x, &y, &whole, 0)?;
    for addend in &addends {
        product.add(addend, &whole, 1.0)?;
    }
    let (from, to) = (Layout::contiguous(out.dims()), out.layout.clone());
    let count = addends.len();
    let operands = [x, y].into_iter().chain(addends).chain([out, whole]);
    let plan = Plan::many(operands.collect(), move |storages| {
        let addends: Vec<_> = storages[2..2 + count].iter().collect();
        product.run(&storages[0], &storages[1], &addends, &storages[count + 3]);
        Ok(())
    });
    Ok(plan.then_transfer(transfer).then_compute(move |storages| {
        copy(
            &storages[count + 3].elements(&from),
            &storages[count + 2].elements(&to),
        );
        Ok(())
    }))
}

/// aclnnAllGatherMatmul and its V2: `gather_out` holds the rows of `x` of all ranks, `out = gather_out · y + bias`.
/// `gather_out` may be null or without elements. Two dimensions each, `bias` one. FLOAT16, BF16.
pub(crate) fn all_gather(
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    bias: Arg<Tensor>,
    quantisation: Quantisation,
    options: Options,
    out: Arg<Tensor>,
    gather_out: Arg<Tensor>,
) -> Outcome<Plan> {
    quantisation.refuse()?;
    let (x, y, bias, out) = (
        x.input()?,
        y.input()?,
        bias.optional_input()?,
        out.output()?,
    );
    let gathered = gather_out
        .optional_output()?
        .filter(|out| out.layout.len() > 0);
    let [rows, inner, _] = sizes(&x, &y, bias.as_ref(), 2)?;
    out.expect_types(&[x.dtype])?;
    let comm = options.check()?;
    let all_rows = rows * comm.size as usize;
    let whole = Operand::workspace(x.dtype, &[all_rows, inner]);
    if let Some(gathered) = &gathered {
        gathered.expect_types(&[x.dtype])?;
        gathered.expect_dims(whole.dims())?;
    }
    let mut product = Product::new(&whole, &y, &out, 0)?;
    if let Some(bias) = &bias {
        product.add(bias, &out, 1.0)?;
    }
    let first = rows * comm.rank as usize;
    let (from, own) = (x.layout.clone(), whole.layout.narrow(0, first, rows, 1));
    let transfer = Transfer {
        kind: Kind::AllGather,
        comm: comm.handle,
        send: first * inner * x.dtype.bytes(),
        count: (rows * inner) as u64,
        dtype: hccl_type(x.dtype),
        sums: false,
    };
    let with_bias = usize::from(bias.is_some());
    let gathered_at = gathered.as_ref().map(|gathered| gathered.layout.clone());
    let whole_at = whole.layout.clone();
    let outputs = [Some(out), gathered, Some(whole)];
    let operands = [Some(x), Some(y), bias].into_iter().chain(outputs);
    let plan = Plan::many(operands.flatten().collect(), move |storages| {
        let whole = storages.last().expect("the workspace is there");
        copy(&storages[0].elements(&from), &whole.elements(&own));
        Ok(())
    });
    Ok(plan.then_transfer(transfer).then_compute(move |storages| {
        let whole = storages.last().expect("the workspace is there");
        let addends: Vec<_> = storages[2..2 + with_bias].iter().collect();
        product.run(whole, &storages[1], &addends, &storages[2 + with_bias]);
        if let Some(at) = &gathered_at {
            copy(
                &whole.elements(&whole_at),
                &storages[3 + with_bias].elements(at),
            );
        }
        Ok(())
    }))
}
