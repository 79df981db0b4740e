//! Type rules of communication and custom work.

use smallvec::SmallVec;

use super::{Inferred, Site, one};
use crate::arena::Id as _;
use crate::diag::{Code, Diagnostic};
use crate::group::Group;
use crate::op::attr::{Attr, ReduceOp};
use crate::shape::Dim;
use crate::types::Type;

type Rule = Result<Inferred, Diagnostic>;

fn group<'a>(site: &Site<'a>) -> Result<&'a Group, Diagnostic> {
    let id = site.attrs.group("group");
    let group = site.groups.get(id.index()).ok_or_else(|| {
        site.error(Code::Reference, "the group is not one of this graph")
            .expected(format!("one of {} groups", site.groups.len()))
            .got(format!("group {}", id.index()))
    })?;
    if group.ranks.is_empty() {
        return Err(site.error(
            Code::Group,
            format_args!("group `@{}` has no ranks", group.name),
        ));
    }
    Ok(group)
}

/// Fails unless the attribute `name` is a rank within the group.
fn member(site: &Site<'_>, name: &str) -> Result<(), Diagnostic> {
    let group = group(site)?;
    let rank = site.attrs.int(name);
    if (0..i64::from(group.group_size())).contains(&rank) {
        return Ok(());
    }
    let diagnostic = site
        .error(
            Code::Group,
            format_args!("`{name}` is no rank of group `@{}`", group.name),
        )
        .expected(format!(
            "a rank within the group, 0..{}",
            group.group_size()
        ))
        .got(rank);
    let as_global = u32::try_from(rank)
        .ok()
        .and_then(|rank| group.rank_of(rank));
    Err(match as_global {
        Some(within) => {
            diagnostic.help(format!("global rank {rank} is rank {within} of this group"))
        }
        None => diagnostic,
    })
}

fn reduction(site: &Site<'_>) -> Result<(), Diagnostic> {
    let op = site.attrs.reduce("op");
    let dtype = site.operands[0].dtype;
    if !op.accepts(dtype) {
        let accepted: Vec<&str> = ReduceOp::ALL
            .into_iter()
            .filter(|op| op.accepts(dtype))
            .map(ReduceOp::name)
            .collect();
        return Err(site
            .error(
                Code::DType,
                format_args!("reduction `{op}` is not defined for {dtype}"),
            )
            .expected(format!("one of {}", accepted.join(", ")))
            .got(op));
    }
    match (
        op == ReduceOp::PremulSum,
        site.attrs.get("factor").is_some(),
    ) {
        (true, false) => Err(site.error(
            Code::Attribute,
            "`op = premul_sum` needs the attribute `factor`",
        )),
        (false, true) => Err(site.error(
            Code::Attribute,
            format_args!("`op = {op}` takes no `factor`"),
        )),
        _ => Ok(()),
    }
}

/// The operand with dimension `dim` multiplied by the group size.
fn gathered(site: &Site<'_>, dim: usize) -> Rule {
    let x = site.operands[0];
    let size = u64::from(group(site)?.group_size());
    let size = x.shape.dims()[dim]
        .mul(size)
        .map_err(|error| site.dim_error(error))?;
    Ok(one(Type::new(x.dtype, x.shape.clone().with_dim(dim, size))))
}

/// The operand with dimension `dim` divided by the group size.
fn scattered(site: &Site<'_>, dim: usize) -> Rule {
    let x = site.operands[0];
    let group = group(site)?;
    let size = &x.shape.dims()[dim];
    let (size, guard) = size.div(u64::from(group.group_size())).map_err(|_| {
        site.error(
            Code::Shape,
            format_args!(
                "{} rows are not divisible by the {} ranks of `@{}`",
                site.show_dim(size),
                group.group_size(),
                group.name
            ),
        )
        .expected(format!(
            "a multiple of {} in dimension {dim}",
            group.group_size()
        ))
        .got(site.show(x))
    })?;
    let mut inferred = one(Type::new(x.dtype, x.shape.clone().with_dim(dim, size)));
    inferred.guards.extend(guard);
    Ok(inferred)
}

/// Fails unless the list `name` has one entry per rank.
fn counts<'a>(site: &Site<'a>, name: &str) -> Result<&'a [Dim], Diagnostic> {
    let size = group(site)?.group_size();
    let counts = site.attrs.dims(name);
    if counts.len() == size as usize {
        return Ok(counts);
    }
    Err(site
        .error(
            Code::Range,
            format_args!("`{name}` does not have one entry per rank"),
        )
        .expected(format!("{size} entries"))
        .got(counts.len()))
}

/// Fails unless the list `name` sums to the rows of the operand.
fn counts_of_operand<'a>(site: &Site<'a>, name: &str) -> Result<&'a [Dim], Diagnostic> {
    site.rank_at_least(0, 1)?;
    let counts = counts(site, name)?;
    let (total, rows) = (site.sum(counts)?, &site.operands[0].shape.dims()[0]);
    if total == *rows {
        return Ok(counts);
    }
    Err(site
        .error(
            Code::Shape,
            format_args!("`{name}` does not sum to the rows of the operand"),
        )
        .expected(site.show_dim(rows))
        .got(site.show_dim(&total)))
}

/// Fails when no entry of `counts` equals `rows`.
fn own_rows(site: &Site<'_>, counts: &[Dim], rows: &Dim) -> Result<(), Diagnostic> {
    if counts.contains(rows) {
        return Ok(());
    }
    let counts: Vec<String> = counts.iter().map(|count| site.show_dim(count)).collect();
    Err(site
        .error(Code::Shape, "the rows of this rank are none of `counts`")
        .expected(format!("one of [{}]", counts.join(", ")))
        .got(site.show_dim(rows)))
}

pub(in crate::op) fn all_reduce(site: &Site<'_>) -> Rule {
    group(site)?;
    reduction(site)?;
    Ok(one(site.operands[0].clone()))
}

pub(in crate::op) fn all_gather(site: &Site<'_>) -> Rule {
    let dim = site.axis("dim", site.operands[0].shape.rank())?;
    gathered(site, dim)
}

pub(in crate::op) fn all_gather_uneven(site: &Site<'_>) -> Rule {
    site.rank_at_least(0, 1)?;
    let x = site.operands[0];
    let counts = counts(site, "counts")?;
    own_rows(site, counts, &x.shape.dims()[0])?;
    Ok(one(Type::new(
        x.dtype,
        x.shape.clone().with_dim(0, site.sum(counts)?),
    )))
}

pub(in crate::op) fn reduce_scatter(site: &Site<'_>) -> Rule {
    reduction(site)?;
    let dim = site.axis("dim", site.operands[0].shape.rank())?;
    scattered(site, dim)
}

pub(in crate::op) fn reduce_scatter_uneven(site: &Site<'_>) -> Rule {
    reduction(site)?;
    let x = site.operands[0];
    let counts = counts_of_operand(site, "counts")?;
    let rows = site.attrs.dim("rows");
    own_rows(site, counts, rows)?;
    Ok(one(Type::new(
        x.dtype,
        x.shape.clone().with_dim(0, rows.clone()),
    )))
}

pub(in crate::op) fn all_to_all(site: &Site<'_>) -> Rule {
    site.rank_at_least(0, 1)?;
    let x = site.operands[0];
    match (
        site.attrs.get("send_counts").is_some(),
        site.attrs.get("recv_counts").is_some(),
    ) {
        (false, false) => {
            let guards = scattered(site, 0)?.types[0].shape.dims()[0]
                .guard()
                .into_iter()
                .collect();
            Ok(Inferred {
                types: one(x.clone()).types,
                guards,
            })
        }
        (true, true) => {
            counts_of_operand(site, "send_counts")?;
            let rows = site.sum(counts(site, "recv_counts")?)?;
            Ok(one(Type::new(x.dtype, x.shape.clone().with_dim(0, rows))))
        }
        _ => Err(site
            .error(
                Code::Attribute,
                "`send_counts` and `recv_counts` come together",
            )
            .expected("both or none")),
    }
}

pub(in crate::op) fn broadcast(site: &Site<'_>) -> Rule {
    member(site, "root")?;
    Ok(one(site.operands[0].clone()))
}

pub(in crate::op) fn reduce(site: &Site<'_>) -> Rule {
    reduction(site)?;
    broadcast(site)
}

pub(in crate::op) fn scatter(site: &Site<'_>) -> Rule {
    member(site, "root")?;
    site.rank_at_least(0, 1)?;
    scattered(site, 0)
}

pub(in crate::op) fn gather_to(site: &Site<'_>) -> Rule {
    member(site, "root")?;
    site.rank_at_least(0, 1)?;
    gathered(site, 0)
}

fn tag(site: &Site<'_>) -> Result<(), Diagnostic> {
    let tag = site.attrs.int("tag");
    if (0..=i64::from(u32::MAX)).contains(&tag) {
        return Ok(());
    }
    Err(site
        .error(Code::Range, "`tag` is out of range")
        .expected("0..2^32")
        .got(tag))
}

pub(in crate::op) fn send(site: &Site<'_>) -> Rule {
    member(site, "peer")?;
    tag(site)?;
    Ok(Inferred::default())
}

pub(in crate::op) fn recv(site: &Site<'_>) -> Rule {
    member(site, "peer")?;
    tag(site)?;
    Ok(one(site.attrs.ty("type").clone()))
}

pub(in crate::op) fn barrier(site: &Site<'_>) -> Rule {
    group(site)?;
    Ok(Inferred::default())
}

pub(in crate::op) fn custom(site: &Site<'_>) -> Rule {
    if site.attrs.text("name").is_empty() {
        return Err(site.error(Code::Attribute, "the name of custom work is empty"));
    }
    if site.attrs.get("group").is_some() {
        if !matches!(site.attrs.get("group"), Some(Attr::Group(_))) {
            return Err(site.error(
                Code::Attribute,
                "the attribute `group` of custom work is no group",
            ));
        }
        group(site)?;
    }
    Ok(Inferred {
        types: site.attrs.types("types").iter().cloned().collect(),
        guards: SmallVec::new(),
    })
}
