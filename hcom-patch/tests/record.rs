//! What is recorded, as graph text; no device is involved.

mod common;

use common::{Layer, Mlp, Model};
use expect_test::{Expect, expect};
use hcom_patch::{DType, Error, ReduceOp, Reduction, Root, Tensor, dist, export};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Records `f` as rank `rank` of `world_size` and compares the graph, or the error, as text.
#[track_caller]
fn check(
    (rank, world_size): (u32, u32),
    arguments: &[Tensor],
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>, Error>,
    expected: Expect,
) {
    dist::init_abstract(rank, world_size).unwrap();
    let actual = match export("f", f, arguments) {
        Ok(graph) => graph.to_string(),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&actual);
}

fn placeholder(name: &str, _: &[f32], shape: &[u64]) -> Tensor {
    Tensor::placeholder(DType::F32, shape).named(name)
}

fn x(shape: &[u64]) -> Tensor {
    Tensor::placeholder(DType::F32, shape)
}

#[test]
fn a_model_is_one_graph() {
    let mlp = Mlp::new(&placeholder, (0, 2));
    check(
        (0, 2),
        &[x(&[3, 8])],
        |x| Ok(vec![mlp.forward(&x[0])?]),
        expect![[r#"
            hcom 1
            group @world = ranks(0, 1)
            graph @f(%x0: f32[3, 8], %w1: f32[8, 16], %b1: f32[16], %w2: f32[16, 8], %b2: f32[8]) -> f32[3, 8] {
              %2 = matmul %x0, %w1
              %4 = bias_add %2, %b1
              %5 = gelu %4
              %7 = matmul %5, %w2
              %8 = all_reduce %7, op = sum, group = @world
              %y = bias_add %8, %b2
              return %y
            }
        "#]],
    );
}

#[test]
fn a_transformer_layer_is_one_graph() {
    let layer = Layer::new(&placeholder, (1, 2));
    check(
        (1, 2),
        &[x(&[3, 8])],
        |x| Ok(vec![layer.forward(&x[0])?]),
        expect![[r#"
            hcom 1
            group @world = ranks(0, 1)
            graph @f(%x0: f32[3, 8], %norm1.w: f32[8], %norm1.b: f32[8], %q: f32[8, 4], %k: f32[8, 4], %v: f32[8, 4], %o: f32[4, 8], %norm2.w: f32[8], %norm2.b: f32[8], %w1: f32[8, 16], %b1: f32[16], %w2: f32[16, 8], %b2: f32[8]) -> f32[3, 8] {
              %3 = layer_norm %x0, %norm1.w, %norm1.b
              %5 = matmul %3, %q
              %6 = reshape %5, shape = [3, 2, 2]
              %7 = transpose %6, perm = [1, 0, 2]
              %9 = matmul %3, %k
              %10 = reshape %9, shape = [3, 2, 2]
              %11 = transpose %10, perm = [1, 0, 2]
              %13 = matmul %3, %v
              %14 = reshape %13, shape = [3, 2, 2]
              %15 = transpose %14, perm = [1, 0, 2]
              %16 = attention %7, %11, %15, scale = 0.7071067811865475, causal = true
              %17 = transpose %16, perm = [1, 0, 2]
              %18 = reshape %17, shape = [3, 4]
              %20 = matmul %18, %o
              %21 = all_reduce %20, op = sum, group = @world
              %22 = add %x0, %21
              %25 = layer_norm %22, %norm2.w, %norm2.b
              %27 = matmul %25, %w1
              %29 = bias_add %27, %b1
              %30 = gelu %29
              %32 = matmul %30, %w2
              %33 = all_reduce %32, op = sum, group = @world
              %35 = bias_add %33, %b2
              %y = add %22, %35
              return %y
            }
        "#]],
    );
}

#[test]
fn a_written_argument_is_written_once_at_the_end() {
    let f = |inputs: &[Tensor]| {
        let mut x = inputs[0].clone();
        dist::all_reduce(&mut x, ReduceOp::Sum, &dist::world()?)?;
        dist::broadcast(&mut x, Root::Global(1), &dist::world()?)?;
        // The caller's handle and the clone are the same tensor.
        Ok(vec![(&inputs[0] * 2.0)?])
    };
    check(
        (0, 2),
        &[x(&[2])],
        f,
        expect![[r#"
        hcom 1
        group @world = ranks(0, 1)
        graph @f(%x0: mut f32[2]) -> f32[2] {
          %1 = all_reduce %x0, op = sum, group = @world
          %2 = broadcast %1, root = 1, group = @world
          %3 = fill shape = [], value = 2.0, dtype = f32
          %y = mul %2, %3
          copy_to_input %2, %x0
          return %y
        }
    "#]],
    );
}

#[test]
fn a_written_intermediate_writes_nothing() {
    let f = |inputs: &[Tensor]| {
        let before = inputs[0].relu()?;
        let mut y = inputs[0].neg()?;
        y.copy_(&before)?;
        dist::all_reduce(&mut y, ReduceOp::Max, &dist::world()?)?;
        Ok(vec![before, y])
    };
    check(
        (0, 2),
        &[x(&[2])],
        f,
        expect![[r#"
        hcom 1
        group @world = ranks(0, 1)
        graph @f(%x0: f32[2]) -> (f32[2], f32[2]) {
          %y0 = relu %x0
          %2 = neg %x0
          %3 = copy %y0
          %y1 = all_reduce %3, op = max, group = @world
          return %y0, %y1
        }
    "#]],
    );
}

#[test]
fn outputs_of_collectives_are_tensors_of_their_own() {
    let f = |inputs: &[Tensor]| {
        let world = dist::world()?;
        let mut gathered = Tensor::zeros(&[2, 4], DType::F32)?;
        dist::all_gather_into_tensor(&mut gathered, &inputs[0], &world)?;
        let mut scattered = inputs[1].clone();
        dist::reduce_scatter_tensor(&mut scattered, &gathered, ReduceOp::Avg, &world)?;
        dist::barrier(&world)?;
        Ok(vec![gathered])
    };
    check(
        (1, 2),
        &[x(&[4]), x(&[4])],
        f,
        expect![[r#"
        hcom 1
        group @world = ranks(0, 1)
        graph @f(%x0: f32[4], %x1: mut f32[4]) -> f32[2, 4] {
          %2 = fill shape = [2, 4], value = 0.0, dtype = f32
          %3 = all_gather %x0, group = @world
          %y = reshape %3, shape = [2, 4]
          %5 = reduce_scatter %y, op = sum, group = @world
          %6 = fill shape = [], value = 2.0, dtype = f32
          %7 = div %5, %6
          %8 = reshape %7, shape = [4]
          barrier group = @world
          copy_to_input %8, %x1
          return %y
        }
    "#]],
    );
}

#[test]
fn sub_groups_take_part_and_the_rest_skip() {
    let f = |inputs: &[Tensor]| {
        let group = dist::new_group(&[1, 3])?;
        let mut x = inputs[0].clone();
        if group.rank_of(dist::rank()?).is_some() {
            dist::broadcast(&mut x, Root::Global(3), &group)?;
        }
        Ok(vec![x.relu()?])
    };
    check(
        (1, 4),
        &[x(&[1])],
        f,
        expect![[r#"
        hcom 1
        group @ranks_1_3 = ranks(1, 3)
        graph @f(%x0: mut f32[1]) -> f32[1] {
          %1 = broadcast %x0, root = 1, group = @ranks_1_3
          %y = relu %1
          copy_to_input %1, %x0
          return %y
        }
    "#]],
    );
    check(
        (2, 4),
        &[x(&[1])],
        f,
        expect![[r#"
        hcom 1
        graph @f(%x0: f32[1]) -> f32[1] {
          %y = relu %x0
          return %y
        }
    "#]],
    );
}

#[test]
fn calls_that_cannot_be_right_are_refused_where_they_are_made() {
    let all = |x: &mut Tensor, op: Reduction, ranks: &[u32]| {
        dist::all_reduce(x, op, &dist::new_group(ranks)?)
    };
    let refused = |rank, dtype, op: Reduction, ranks: &'static [u32], expected: Expect| {
        let argument = Tensor::placeholder(dtype, &[3]);
        let f = |x: &[Tensor]| all(&mut x[0].clone(), op, ranks).map(|()| Vec::new());
        check((rank, 4), &[argument], f, expected);
    };
    refused(
        0,
        DType::F32,
        ReduceOp::Sum.into(),
        &[1, 3],
        expect!["all_reduce: rank 0 is not in group ranks_1_3 (ranks [1, 3])"],
    );
    refused(
        0,
        DType::Bool,
        ReduceOp::Avg.into(),
        &[0, 1],
        expect![
            "all_reduce: avg of bool: a mean of booleans is no boolean; cast the tensor to a number first"
        ],
    );
    refused(
        0,
        DType::C64,
        ReduceOp::Max.into(),
        &[0, 1],
        expect!["all_reduce: max of c64: complex numbers have no order"],
    );
    refused(
        0,
        DType::F32,
        ReduceOp::Sum.into(),
        &[0, 4],
        expect!["ranks [0, 4] form no group of a world of 4: a rank is not in the world"],
    );
    refused(
        0,
        DType::F32,
        ReduceOp::Sum.into(),
        &[0, 0],
        expect!["ranks [0, 0] form no group of a world of 4: a rank occurs twice"],
    );
    refused(
        0,
        DType::F32,
        ReduceOp::Sum.into(),
        &[],
        expect!["ranks [] form no group of a world of 4: a group needs a member"],
    );
    let concat = |_: &[Tensor]| Ok(vec![Tensor::concat(&[], 0)?]);
    check(
        (0, 1),
        &[],
        concat,
        expect!["concat: expected at least one tensor, got none"],
    );
    let sum = |x: &[Tensor]| Ok(vec![x[0].sum(&[2], false)?]);
    check(
        (0, 1),
        &[x(&[2, 3])],
        sum,
        expect!["sum: expected a dimension of f32[2, 3], got 2"],
    );
}

#[test]
fn every_operator_records_its_operation() {
    let f = |inputs: &[Tensor]| {
        let [a, b, indices] = [&inputs[0], &inputs[1], &inputs[2]];
        let mut all = vec![
            (a + b)?,
            (a - b)?,
            (a * b)?,
            (a / b)?,
            (-a)?,
            a.maximum(b)?,
            a.minimum(b)?,
            a.pow(b)?,
            a.abs()?,
            indices.bit_and(indices)?,
            indices.bit_or(indices)?,
            indices.bit_xor(indices)?,
            a.slice(1, 0, 2)?.as_complex()?.as_real()?,
            a.exp()?,
            a.log()?,
            a.sqrt()?,
            a.rsqrt()?,
            a.tanh()?,
            a.sigmoid()?,
            a.silu()?,
            a.gelu_tanh()?,
            a.less(b)?.where_(a, b)?,
            a.equal(b)?,
            a.greater(b)?.cast(DType::I32)?,
            a.matmul_with(b, true, false)?,
            a.softmax(-1)?,
            a.rms_norm(&b.slice(0, 0, 1)?.reshape(&[3])?, 1e-6)?,
            a.embedding(indices)?,
            a.gather(&indices.expand(&[2, 2])?, 1)?,
            a.transpose(0, -1)?,
            a.slice_step(1, 0, 3, 2)?,
            Tensor::concat(&[a, b], -1)?,
            a.pad(&[0, 1], &[1, 0], 0.5)?,
            a.sum(&[0, 1], false)?,
            a.mean(&[-1], true)?,
            a.max(&[0], false)?,
            a.argmax(1, false)?,
            Tensor::arange(0.0, 4.0, 1.0, DType::I64)?,
            Tensor::full(&[2], 1.5, DType::F16)?,
            a.tril(0)?,
            a.triu(1)?,
            Tensor::from_slice(&[true, false], &[2])?,
        ];
        all.extend(a.split(&[1, 2], 1)?);
        Ok(all)
    };
    let arguments = [
        x(&[2, 3]),
        x(&[2, 3]),
        Tensor::placeholder(DType::I64, &[2]),
    ];
    check(
        (0, 1),
        &arguments,
        f,
        expect![[r#"
            hcom 1
            graph @f(%x0: f32[2, 3], %x1: f32[2, 3], %x2: i64[2]) -> (f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], i64[2], i64[2], i64[2], f32[2, 2], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 3], bool[2, 3], i32[2, 3], f32[3, 3], f32[2, 3], f32[2, 3], f32[2, 3], f32[2, 2], f32[3, 2], f32[2, 2], f32[2, 6], f32[3, 4], f32[], f32[2, 1], f32[3], i64[2], i64[4], f16[2], f32[2, 3], f32[2, 3], bool[2], f32[2, 1], f32[2, 2]) {
              %y0 = add %x0, %x1
              %y1 = sub %x0, %x1
              %y2 = mul %x0, %x1
              %y3 = div %x0, %x1
              %y4 = neg %x0
              %y5 = maximum %x0, %x1
              %y6 = minimum %x0, %x1
              %y7 = pow %x0, %x1
              %y8 = abs %x0
              %y9 = bit_and %x2, %x2
              %y10 = bit_or %x2, %x2
              %y11 = bit_xor %x2, %x2
              %15 = slice %x0, dim = 1, start = 0, end = 2
              %16 = as_complex %15
              %y12 = as_real %16
              %y13 = exp %x0
              %y14 = log %x0
              %y15 = sqrt %x0
              %y16 = rsqrt %x0
              %y17 = tanh %x0
              %y18 = sigmoid %x0
              %y19 = silu %x0
              %y20 = gelu %x0, approximate = tanh
              %26 = less %x0, %x1
              %y21 = where %26, %x0, %x1
              %y22 = equal %x0, %x1
              %29 = greater %x0, %x1
              %y23 = cast %29, to = i32
              %y24 = matmul %x0, %x1, transpose_a = true
              %y25 = softmax %x0
              %33 = slice %x1, dim = 0, start = 0, end = 1
              %34 = reshape %33, shape = [3]
              %y26 = rms_norm %x0, %34
              %y27 = embedding %x0, %x2
              %37 = expand %x2, shape = [2, 2]
              %y28 = gather %x0, %37, dim = 1
              %y29 = transpose %x0, perm = [1, 0]
              %y30 = slice %x0, dim = 1, start = 0, end = 3, step = 2
              %y31 = concat %x0, %x1, dim = 1
              %y32 = pad %x0, low = [0, 1], high = [1, 0], value = 0.5
              %y33 = sum %x0, dims = [0, 1]
              %y34 = mean %x0, dims = [1], keepdim = true
              %y35 = max %x0, dims = [0]
              %y36 = argmax %x0, dim = 1
              %y37 = arange start = 0, end = 4, step = 1, dtype = i64
              %y38 = fill shape = [2], value = 1.5, dtype = f16
              %y39 = tril %x0
              %y40 = triu %x0, diagonal = 1
              %y41 = constant value = bool[2] [true, false]
              %y42, %y43 = split %x0, dim = 1, sizes = [1, 2]
              return %y0, %y1, %y2, %y3, %y4, %y5, %y6, %y7, %y8, %y9, %y10, %y11, %y12, %y13, %y14, %y15, %y16, %y17, %y18, %y19, %y20, %y21, %y22, %y23, %y24, %y25, %y26, %y27, %y28, %y29, %y30, %y31, %y32, %y33, %y34, %y35, %y36, %y37, %y38, %y39, %y40, %y41, %y42, %y43
            }
        "#]],
    );
}

#[test]
fn nodes_know_where_they_were_called() {
    dist::init_abstract(0, 2).unwrap();
    let line = line!();
    let f = |x: &[Tensor]| {
        let mut y = (&x[0] + &x[0])?;
        dist::all_reduce(&mut y, ReduceOp::Avg, &dist::world()?)?;
        Ok(vec![y.gelu()?])
    };
    let graph = export("f", f, &[x(&[2])]).unwrap();
    let lines: Vec<u32> = graph
        .nodes()
        .map(|(_, node)| {
            let location = node.location.as_ref().unwrap();
            assert_eq!(&*location.file, file!());
            location.line - line
        })
        .collect();
    // The mean is a sum, its divisor and the division.
    assert_eq!(lines, [2, 3, 3, 3, 4]);
}

#[test]
fn a_refused_operator_shows_its_place_and_both_types() {
    dist::init_abstract(0, 1).unwrap();
    let line = line!() + 1;
    let f = |x: &[Tensor]| x[0].matmul(&x[1]).map(|y| vec![y]);
    let error = export("f", f, &[x(&[2, 3]), x(&[2, 3])]).unwrap_err();
    let Error::Operation(diagnostic) = error else {
        panic!("{error}");
    };
    assert_eq!(diagnostic.location.unwrap().line, line);
    assert_eq!(diagnostic.node.as_deref(), Some("matmul %x0, %x1"));
    assert_eq!(diagnostic.got.as_deref(), Some("f32[2, 3], f32[2, 3]"));
}

#[test]
fn reading_data_has_no_place_in_an_exported_graph() {
    dist::init_abstract(0, 1).unwrap();
    let f = |x: &[Tensor]| x[0].relu()?.to_vec::<f32>().map(|_| Vec::new());
    let error = export("f", f, &[x(&[1])]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Break {
                reason: "data is read",
                ..
            }
        ),
        "{error}"
    );
    let error = x(&[2]).to_vec::<f32>().unwrap_err();
    assert!(matches!(error, Error::Placeholder { .. }), "{error}");
    let error = x(&[2]).to_vec::<i32>().unwrap_err();
    assert_eq!(error.to_string(), "the tensor holds f32, not i32");
    let error = x(&[2]).item::<f32>().unwrap_err();
    assert_eq!(error.to_string(), "f32[2] holds 2 elements, not one");
    let error = x(&[2]).relu().unwrap_err();
    assert!(
        matches!(error, Error::NoDevice { operation: "relu" }),
        "{error}"
    );
}

#[test]
fn a_tensor_that_outlives_its_recording_is_stale() {
    dist::init_abstract(0, 1).unwrap();
    let kept = RefCell::new(None);
    let keep = |x: &[Tensor]| {
        *kept.borrow_mut() = Some(x[0].relu()?);
        Ok(Vec::new())
    };
    export("f", keep, &[x(&[1])]).unwrap();
    let stale = kept.take().unwrap();
    let again = export("g", |_| Ok(vec![stale.relu()?]), &[]);
    assert!(matches!(again, Err(Error::StaleHandle { .. })));
    let returned = export("g", |_| Ok(vec![stale.clone()]), &[]);
    assert!(matches!(returned, Err(Error::StaleHandle { .. })));
    assert!(matches!(
        stale.to_vec::<f32>(),
        Err(Error::StaleHandle { .. })
    ));
    // Printing reads data, and says why it cannot.
    assert!(
        stale
            .to_string()
            .starts_with("f32[1] <the tensor f32[1] belongs to a capture")
    );
}

#[test]
fn a_panic_or_an_error_ends_the_recording() {
    dist::init_abstract(0, 1).unwrap();
    let panicking = |_: &[Tensor]| -> Result<Vec<Tensor>, Error> { panic!("on purpose") };
    assert!(catch_unwind(AssertUnwindSafe(|| export("f", panicking, &[]))).is_err());
    let failing = |x: &[Tensor]| x[0].matmul(&x[0]).map(|y| vec![y]);
    assert!(export("f", failing, &[x(&[2, 3])]).is_err());
    // A recording inside a recording is refused, and leaves the outer one as it is.
    let nested = |x: &[Tensor]| {
        let inner = export("g", |_| Ok(Vec::new()), &[]);
        assert!(matches!(inner, Err(Error::Recording)));
        Ok(vec![x[0].relu()?])
    };
    let graph = export("f", nested, &[x(&[1])]).unwrap();
    assert_eq!(graph.nodes().len(), 1);
}

#[test]
fn a_thread_that_is_no_rank_is_told_so() {
    let error = dist::world().unwrap_err();
    assert!(matches!(error, Error::NotInitialized));
    assert!(dist::init_abstract(2, 2).is_err());
}
