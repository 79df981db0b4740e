//! Operators that compute each element of the output from the elements at the same place of the inputs.

use super::compute::{BLOCK, Compute};
use super::dtype::{CONVERTIBLE, Class, HALF_AND_SINGLE, INTEGERS, NUMBERS, REALS, SIGNED, Type};
use super::executor::{Arg, Operand, Plan, bad};
use super::in_class;
use super::layout::{Dims, broadcast};
use super::math::{Binary, Math, Relation, Unary, relate};
use super::object::{Scalar, Tensor};
use crate::error::Outcome;
use crate::span::strided::Elements;

/// Calls `block(start, length)` for pieces of `0..len`.
pub(crate) fn blocks(len: usize, mut block: impl FnMut(usize, usize)) {
    for start in (0..len).step_by(BLOCK) {
        block(start, BLOCK.min(len - start));
    }
}

/// `out[i] = f(x[i])` for the functions of [`Unary`]:
/// `-x`, `|x|`, `e^x`, `ln x`, `√x`, `1/√x`, `tanh x`, `1/(1+e^-x)`, `max(x, 0)`, `x·Φ(x)` (by erf or by tanh),
/// `x/(1+e^-x)`. The input's types are those of [`domain`]; integers become `FLOAT` where the result has a fraction.
pub(crate) fn unary(f: Unary, x: Arg<Tensor>, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    let (types, to_float) = domain(f);
    x.expect_types(types)?;
    let computed = if to_float {
        x.dtype.to_float()
    } else {
        x.dtype
    };
    out.expect_types(CONVERTIBLE)?;
    out.expect_holds(computed)?;
    out.expect_dims(x.dims())?;
    let (x_at, out_at) = (x.layout.clone(), out.layout.clone());
    let class = computed.class();
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&x_at), out.elements(&out_at));
        in_class!(class, C => map_blocks::<C>(&x, &out, |_, values| C::unary(f, values)));
    }))
}

/// Types that a function accepts, and whether its result has a fraction.
fn domain(f: Unary) -> (&'static [Type], bool) {
    match f {
        Unary::Neg => (SIGNED, false),
        Unary::Abs => (REALS, false),
        Unary::Relu => (NUMBERS, false),
        Unary::Gelu | Unary::GeluTanh | Unary::Silu => (HALF_AND_SINGLE, true),
        Unary::Exp
        | Unary::Log
        | Unary::Sqrt
        | Unary::Rsqrt
        | Unary::Tanh
        | Unary::Sigmoid
        | Unary::Sin
        | Unary::Cos
        | Unary::Reciprocal => (REALS, true),
    }
}

/// aclnnGeluV2: gelu by erf (`approximate` 0) or by tanh (1). FLOAT, FLOAT16, BF16.
pub(crate) fn gelu_v2(x: Arg<Tensor>, approximate: i64, out: Arg<Tensor>) -> Outcome<Plan> {
    let f = match approximate {
        0 => Unary::Gelu,
        1 => Unary::GeluTanh,
        _ => return Err(bad("approximate", "0 (erf) or 1 (tanh)", approximate)),
    };
    unary(f, x, out)
}

/// aclnnSwiGlu: `out = silu(a)·b` for the first half `a` and the second half `b` of `x` along `dim`. FLOAT, FLOAT16,
/// BF16.
pub(crate) fn swiglu(x: Arg<Tensor>, dim: i64, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    x.expect_types(HALF_AND_SINGLE)?;
    out.expect_types(&[x.dtype])?;
    let axis = x.axis("dim", dim)?;
    let mut dims = x.layout.dims.clone();
    if dims.is_empty() || !dims[axis].is_multiple_of(2) {
        let expected = format!("an even size of dimension {axis}");
        return Err(bad(&x.name, expected, format_args!("shape {dims:?}")));
    }
    let half = dims[axis] / 2;
    dims[axis] = half;
    out.expect_dims(&dims)?;
    let halves = [0, half].map(|start| x.layout.narrow(axis, start, half, 1));
    let out_at = out.layout.clone();
    Ok(Plan::new([x, out], move |[x, out]| {
        let [gate, value] = [0, 1].map(|i| x.elements(&halves[i]));
        zip_blocks::<f32>(&gate, &value, &out.elements(&out_at), |gate, value| {
            f32::unary(Unary::Silu, gate);
            f32::binary(Binary::Mul, gate, value);
        });
    }))
}

/// `out = f(x, y)` with broadcasting, for the functions of [`Binary`]: `x + y`, `x - y`, `x·y`, `x/y`, the larger,
/// the smaller, `x^y`, and conjunction, disjunction and exclusive disjunction of bits. Real numbers, for the bits
/// integers and BOOL; BOOL is refused by `-` and `^`; `/` gives FLOAT for integers; negative powers of integers round
/// toward 0.
pub(crate) fn binary(f: Binary, x: Arg<Tensor>, y: Arg<Tensor>, out: Arg<Tensor>) -> Outcome<Plan> {
    scaled(f, x, y, None, out)
}

/// aclnnDivMod: the exact quotient (`mode` 0), rounded toward 0 (1) or down (2), with broadcasting. Real numbers, for
/// the rounded quotients without BOOL; integers stay integers when they are rounded.
pub(crate) fn div_mod(
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    mode: i32,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let f = match mode {
        0 => Binary::Div,
        1 => Binary::DivTrunc,
        2 => Binary::DivFloor,
        _ => return Err(bad("mode", "0 (exact), 1 (toward 0) or 2 (down)", mode)),
    };
    binary(f, x, y, out)
}

/// aclnnAdd and aclnnSub: `out = x ± alpha·y` with broadcasting. Real numbers, for Sub without BOOL.
pub(crate) fn scaled_binary(
    f: Binary,
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    alpha: Arg<Scalar>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let alpha_name = alpha.name;
    scaled(f, x, y, Some((alpha_name, *alpha.get()?)), out)
}

fn scaled(
    f: Binary,
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    alpha: Option<(&str, Scalar)>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, y, out) = (x.input()?, y.input()?, out.output()?);
    let common = common_type(f, &x, &y)?;
    let dims = common_dims(&x, &y)?;
    expect_result(&out, common, &dims)?;
    let alpha = match alpha {
        Some((name, alpha)) => {
            expect_scalar(name, alpha, common)?;
            Some(alpha).filter(|alpha| alpha.to_f64() != 1.0)
        }
        None => None,
    };
    let (x_at, y_at, out_at) = (
        x.broadcast_to(&dims)?,
        y.broadcast_to(&dims)?,
        out.layout.clone(),
    );
    let class = common.class();
    Ok(Plan::new([x, y, out], move |[x, y, out]| {
        let (x, y, out) = (x.elements(&x_at), y.elements(&y_at), out.elements(&out_at));
        in_class!(class, C => {
            let factors = alpha.map(|alpha| [C::from_scalar(alpha); BLOCK]);
            zip_blocks::<C>(&x, &y, &out, |x, y| {
                if let Some(factors) = &factors {
                    C::binary(Binary::Mul, y, &factors[..y.len()]);
                }
                C::binary(f, x, y);
            });
        });
    }))
}

/// aclnnInplaceAdd: `x = x + alpha·y`, where `y` broadcasts to the shape of `x`.
pub(crate) fn inplace_add(x: Arg<Tensor>, y: Arg<Tensor>, alpha: Arg<Scalar>) -> Outcome<Plan> {
    scaled_binary(Binary::Add, x.again(), y, alpha, x)
}

/// aclnnInplaceMul: `x = x·y`, where `y` broadcasts to the shape of `x`.
pub(crate) fn inplace_mul(x: Arg<Tensor>, y: Arg<Tensor>) -> Outcome<Plan> {
    binary(Binary::Mul, x.again(), y, x)
}

/// aclnnInplaceAdds: `x = x + alpha·other` for a scalar `other`.
pub(crate) fn inplace_adds(
    x: Arg<Tensor>,
    other: Arg<Scalar>,
    alpha: Arg<Scalar>,
) -> Outcome<Plan> {
    adds(x.again(), other, alpha, x)
}

/// aclnnSubs: `out = x - alpha·other` for a scalar `other`.
pub(crate) fn subs(
    x: Arg<Tensor>,
    other: Arg<Scalar>,
    alpha: Arg<Scalar>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let alpha_name = alpha.name;
    let alpha = Some((alpha_name, *alpha.get()?));
    with_scalar(Binary::Sub, x, other, alpha, out)
}

/// `out = f(x, other)` for a scalar `other`, whose type counts only if it is of a higher category: aclnnDivs,
/// aclnnPowTensorScalar, aclnnClampMin. Division gives FLOAT for integers.
pub(crate) fn by_scalar(
    f: Binary,
    x: Arg<Tensor>,
    other: Arg<Scalar>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    with_scalar(f, x, other, None, out)
}

/// aclnnEqScalar, aclnnNeScalar, aclnnGtScalar, aclnnLtScalar, aclnnGeScalar: the relation of `x` to a scalar. The
/// output is BOOL, or any real type that gets 0 and 1.
pub(crate) fn compare_scalar(
    relation: Relation,
    x: Arg<Tensor>,
    other: Arg<Scalar>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, other_name, other, out) = (x.input()?, other.name, *other.get()?, out.output()?);
    x.expect_types(REALS)?;
    if other.dtype.is_complex() {
        return Err(bad(other_name, "a real number", other.dtype));
    }
    expect_result(&out, Type::Bool, x.dims())?;
    let class = x.dtype.promote_scalar(other.dtype).class();
    let (x_at, out_at) = (x.layout.clone(), out.layout.clone());
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&x_at), out.elements(&out_at));
        in_class!(class, C => {
            let operand = [C::from_scalar(other); BLOCK];
            map_blocks::<C>(&x, &out, |_, values| {
                relate(relation, values, &operand[..values.len()]);
            });
        });
    }))
}

/// aclnnLogicalNot: whether `x` is 0. Real numbers; the output as for comparisons.
pub(crate) fn logical_not(x: Arg<Tensor>, out: Arg<Tensor>) -> Outcome<Plan> {
    let zero = Scalar::from_bytes(Type::Bool, &[0]);
    compare_scalar(Relation::Equal, x, Arg::fixed("other", zero), out)
}

/// aclnnBitwiseAndScalar: the bits that `x` and a scalar have in common. Integers and BOOL.
pub(crate) fn bitwise_and_scalar(
    x: Arg<Tensor>,
    other: Arg<Scalar>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    x.input()?.expect_types(INTEGERS)?;
    let scalar = other.get()?;
    if scalar.dtype.is_float() || scalar.dtype.is_complex() {
        return Err(bad(other.name, "an integer", scalar.dtype));
    }
    by_scalar(Binary::And, x, other, out)
}

/// aclnnIsFinite: whether `x` is neither infinite nor not a number. Real numbers; the output is BOOL.
pub(crate) fn is_finite(x: Arg<Tensor>, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    x.expect_types(REALS)?;
    out.expect_types(&[Type::Bool])?;
    out.expect_dims(x.dims())?;
    let (x_at, out_at, class) = (x.layout.clone(), out.layout.clone(), x.dtype.class());
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&x_at), out.elements(&out_at));
        in_class!(class, C => {
            let mut same = [C::ZERO; BLOCK];
            map_blocks::<C>(&x, &out, |_, values| {
                let same = &mut same[..values.len()];
                same.copy_from_slice(values);
                // The difference of a finite number and itself is 0, of others it is not a number.
                C::binary(Binary::Sub, values, same);
                same.fill(C::ZERO);
                relate(Relation::Equal, values, same);
            });
        });
    }))
}

/// aclnnEqual: one BOOL that says whether both tensors have the same shape and the same elements. Real numbers, compared
/// in their common type.
pub(crate) fn equal(x: Arg<Tensor>, y: Arg<Tensor>, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, y, out) = (x.input()?, y.input()?, out.output()?);
    let common = common_type(Binary::Maximum, &x, &y)?;
    out.expect_types(&[Type::Bool])?;
    out.expect_single()?;
    let same_shape = x.dims() == y.dims();
    let layouts = [&x, &y, &out].map(|operand| operand.layout.clone());
    let class = common.class();
    Ok(Plan::new([x, y, out], move |storages| {
        let [x, y, out] = std::array::from_fn(|i| storages[i].elements(&layouts[i]));
        let mut equal = same_shape;
        if same_shape {
            in_class!(class, C => {
                let (mut left, mut right) = ([C::ZERO; BLOCK], [C::ZERO; BLOCK]);
                blocks(x.len(), |start, len| {
                    C::read(&x, start, &mut left[..len]);
                    C::read(&y, start, &mut right[..len]);
                    equal &= left[..len] == right[..len];
                });
            });
        }
        out.scatter(0, &[u8::from(equal)]);
    }))
}

/// aclnnInplaceMaskedFillScalar: sets the elements of `target` to `value` where `mask`, which is BOOL and broadcasts to
/// it, is set. Real numbers.
pub(crate) fn inplace_masked_fill(
    target: Arg<Tensor>,
    mask: Arg<Tensor>,
    value: Arg<Scalar>,
) -> Outcome<Plan> {
    let (target, mask) = (target.output()?, mask.input()?);
    target.expect_types(REALS)?;
    mask.expect_types(&[Type::Bool])?;
    value.real()?;
    let (value, class) = (*value.get()?, target.dtype.class());
    let (target_at, mask_at) = (target.layout.clone(), mask.broadcast_to(target.dims())?);
    Ok(Plan::new([target, mask], move |[target, mask]| {
        let (target, mask) = (target.elements(&target_at), mask.elements(&mask_at));
        in_class!(class, C => {
            let (value, mut set) = (C::from_scalar(value), [0u8; BLOCK]);
            map_blocks::<C>(&target, &target, |start, values| {
                let set = &mut set[..values.len()];
                mask.gather(start, set);
                for (x, &set) in values.iter_mut().zip(&*set) {
                    *x = if set != 0 { value } else { *x };
                }
            });
        });
    }))
}

/// aclnnAdds: `out = x + alpha·other` for a scalar `other`, whose type counts only if it is of a higher category.
pub(crate) fn adds(
    x: Arg<Tensor>,
    other: Arg<Scalar>,
    alpha: Arg<Scalar>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let alpha_name = alpha.name;
    with_scalar(
        Binary::Add,
        x,
        other,
        Some((alpha_name, *alpha.get()?)),
        out,
    )
}

/// aclnnMuls: `out = x·other` for a scalar `other`, whose type counts only if it is of a higher category.
pub(crate) fn muls(x: Arg<Tensor>, other: Arg<Scalar>, out: Arg<Tensor>) -> Outcome<Plan> {
    with_scalar(Binary::Mul, x, other, None, out)
}

fn with_scalar(
    f: Binary,
    x: Arg<Tensor>,
    other: Arg<Scalar>,
    alpha: Option<(&str, Scalar)>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, other_name, other, out) = (x.input()?, other.name, *other.get()?, out.output()?);
    x.expect_types(REALS)?;
    if other.dtype.is_complex() {
        return Err(bad(other_name, "a real number", other.dtype));
    }
    let mut common = x.dtype.promote_scalar(other.dtype);
    if f == Binary::Div {
        common = common.to_float();
    }
    expect_result(&out, common, x.dims())?;
    if let Some((name, alpha)) = alpha {
        expect_scalar(name, alpha, common)?;
    }
    let alpha = alpha.map(|(_, alpha)| alpha);
    let (x_at, out_at) = (x.layout.clone(), out.layout.clone());
    let class = common.class();
    Ok(Plan::new([x, out], move |[x, out]| {
        let (x, out) = (x.elements(&x_at), out.elements(&out_at));
        in_class!(class, C => {
            let mut operand = [C::from_scalar(other); BLOCK];
            if let Some(alpha) = alpha {
                C::binary(Binary::Mul, &mut operand, &[C::from_scalar(alpha); BLOCK]);
            }
            map_blocks::<C>(&x, &out, |_, values| {
                C::binary(f, values, &operand[..values.len()]);
            });
        });
    }))
}

/// aclnnEqTensor, aclnnLtTensor, aclnnGtTensor: whether `x` is equal to, less or greater than `y`, with broadcasting.
/// Real numbers compared in their common type; the output is BOOL, or any real type that gets 0 and 1.
pub(crate) fn compare(
    relation: Relation,
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, y, out) = (x.input()?, y.input()?, out.output()?);
    let common = common_type(Binary::Maximum, &x, &y)?;
    let dims = common_dims(&x, &y)?;
    expect_result(&out, Type::Bool, &dims)?;
    let (x_at, y_at, out_at) = (
        x.broadcast_to(&dims)?,
        y.broadcast_to(&dims)?,
        out.layout.clone(),
    );
    let class = common.class();
    Ok(Plan::new([x, y, out], move |[x, y, out]| {
        let (x, y, out) = (x.elements(&x_at), y.elements(&y_at), out.elements(&out_at));
        in_class!(class, C => zip_blocks::<C>(&x, &y, &out, |x, y| relate(relation, x, y)));
    }))
}

/// aclnnSWhere: `out = condition ? x : y` with broadcasting of all three. The condition is BOOL or UINT8; `x` and `y`
/// are real numbers and become their common type.
pub(crate) fn select(
    condition: Arg<Tensor>,
    x: Arg<Tensor>,
    y: Arg<Tensor>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (condition, x, y, out) = (condition.input()?, x.input()?, y.input()?, out.output()?);
    condition.expect_types(&[Type::Bool, Type::U8])?;
    let common = common_type(Binary::Maximum, &x, &y)?;
    let dims = common_dims(&x, &y)?;
    let dims = broadcast(&dims, condition.dims()).ok_or_else(|| {
        let expected = format!("a shape that broadcasts with {dims:?}");
        bad(
            &condition.name,
            expected,
            format_args!("{:?}", condition.dims()),
        )
    })?;
    expect_result(&out, common, &dims)?;
    let condition_at = condition.broadcast_to(&dims)?;
    let (x_at, y_at, out_at) = (
        x.broadcast_to(&dims)?,
        y.broadcast_to(&dims)?,
        out.layout.clone(),
    );
    let class = common.class();
    Ok(Plan::new(
        [condition, x, y, out],
        move |[condition, x, y, out]| {
            let condition = condition.elements(&condition_at);
            let (x, y, out) = (x.elements(&x_at), y.elements(&y_at), out.elements(&out_at));
            let mut start = 0;
            in_class!(class, C => {
                let mut truth = [0u8; BLOCK];
                zip_blocks::<C>(&x, &y, &out, |x, y| {
                    let truth = &mut truth[..x.len()];
                    condition.gather(start, truth);
                    start += truth.len();
                    for ((x, y), truth) in x.iter_mut().zip(y).zip(truth) {
                        *x = if *truth != 0 { *x } else { *y };
                    }
                });
            });
        },
    ))
}

/// `out = f(x)`: `f` gets the number of the first element of a block and leaves its result in the block.
fn map_blocks<C: Compute>(
    x: &Elements<'_>,
    out: &Elements<'_>,
    mut f: impl FnMut(usize, &mut [C]),
) {
    let mut values = [C::ZERO; BLOCK];
    blocks(out.len(), |start, len| {
        let values = &mut values[..len];
        C::read(x, start, values);
        f(start, values);
        C::write(out, start, values);
    });
}

/// `out = f(x, y)`: `f` leaves its result in its first argument and may use the second as it likes.
fn zip_blocks<C: Compute>(
    x: &Elements<'_>,
    y: &Elements<'_>,
    out: &Elements<'_>,
    mut f: impl FnMut(&mut [C], &mut [C]),
) {
    let (mut left, mut right) = ([C::ZERO; BLOCK], [C::ZERO; BLOCK]);
    blocks(out.len(), |start, len| {
        let (left, right) = (&mut left[..len], &mut right[..len]);
        C::read(x, start, left);
        C::read(y, start, right);
        f(left, right);
        C::write(out, start, left);
    });
}

/// The type in which `f` of the operands is computed.
fn common_type(f: Binary, x: &Operand, y: &Operand) -> Outcome<Type> {
    let types = match f {
        Binary::Sub | Binary::Pow | Binary::DivTrunc | Binary::DivFloor => NUMBERS,
        Binary::And | Binary::Or | Binary::Xor => INTEGERS,
        _ => REALS,
    };
    x.expect_types(types)?;
    y.expect_types(types)?;
    let common = x.dtype.promote(y.dtype).ok_or_else(|| {
        bad(
            &y.name,
            format_args!("a data type that promotes with {}", x.dtype),
            y.dtype,
        )
    })?;
    Ok(if f == Binary::Div {
        common.to_float()
    } else {
        common
    })
}

/// The shape that both broadcast to.
pub(crate) fn common_dims(x: &Operand, y: &Operand) -> Outcome<Dims> {
    broadcast(x.dims(), y.dims()).ok_or_else(|| {
        let expected = format!("a shape that broadcasts with {:?} of {}", x.dims(), x.name);
        bad(&y.name, expected, format_args!("{:?}", y.dims()))
    })
}

fn expect_result(out: &Operand, computed: Type, dims: &[usize]) -> Outcome {
    out.expect_types(CONVERTIBLE)?;
    out.expect_holds(computed)?;
    out.expect_dims(dims)
}

/// Refuses a factor with a fraction for integers, and complex factors.
fn expect_scalar(name: &str, scalar: Scalar, common: Type) -> Outcome {
    let fits = if common.is_float() {
        !scalar.dtype.is_complex()
    } else {
        !scalar.dtype.is_complex() && !scalar.dtype.is_float()
    };
    if fits {
        return Ok(());
    }
    Err(bad(
        name,
        format_args!("a scalar that casts to {common}"),
        scalar.dtype,
    ))
}
