//! What local operations compute.

use hcom_ir::Op;

use super::{calculate, literal};

#[track_caller]
fn check(constants: &[&str], statements: &str, expected: &str) {
    assert_eq!(calculate(constants, statements), expected, "{statements}");
}

/// Compares floats within a relative tolerance.
#[track_caller]
fn near(constants: &[&str], statements: &str, expected: &[f32]) {
    let got = calculate(constants, statements);
    let got = literal(&got).to_vec::<f32>().expect("f32");
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        let tolerance = expected.abs().max(1e-30) * 2e-7;
        assert!(
            (got - expected).abs() <= tolerance,
            "{statements}: {got} is not {expected}"
        );
    }
}

#[test]
fn bits_combine_and_complex_numbers_are_pairs() {
    check(
        &["i16[2] [12, -1]", "i16[] 10"],
        "%y = bit_and %a, %b",
        "i16[2] [8, 10]",
    );
    check(
        &["u64[2] [12, 9223372036854775808]", "u64[] 10"],
        "%y = bit_or %a, %b",
        "u64[2] [14, 9223372036854775818]",
    );
    check(
        &["bool[2] [true, true]", "bool[2] [true, false]"],
        "%y = bit_xor %a, %b",
        "bool[2] [false, true]",
    );
    check(
        &["c64[2] [(1, 2), (3, -4)]"],
        "%y = as_real %a",
        "f32[2, 2] [[1, 2], [3, -4]]",
    );
    check(&["f64[2] [1, 2]"], "%y = as_complex %a", "c128[] (1, 2)");
}

#[test]
fn arithmetic_wraps_truncates_and_broadcasts() {
    check(
        &["i8[2] [127, -128]", "i8[] 1"],
        "%y = add %a, %b",
        "i8[2] [-128, -127]",
    );
    check(
        &["u8[2] [0, 200]", "u8[2] [1, 100]"],
        "%y = sub %a, %b",
        "u8[2] [255, 100]",
    );
    check(
        &["u64[] 18446744073709551615", "u64[] 18446744073709551615"],
        "%y = mul %a, %b",
        "u64[] 1",
    );
    check(
        &["i32[4] [-7, 7, 5, -2147483648]", "i32[4] [2, -2, 0, -1]"],
        "%y = div %a, %b",
        "i32[4] [-3, -3, 0, -2147483648]",
    );
    check(
        &["bool[2, 1] [[true], [false]]", "bool[2] [false, true]"],
        "%y = add %a, %b",
        "bool[2, 2] [[true, true], [false, true]]",
    );
    check(
        &["bool[2] [true, false]", "bool[2] [true, true]"],
        "%y = mul %a, %b",
        "bool[2] [true, false]",
    );
    check(
        &["f32[0, 3] []", "f32[1, 1] [[2]]"],
        "%y = mul %a, %b",
        "f32[0, 3] []",
    );
    check(
        &["c64[] (1, 2)", "c64[] (3, -1)"],
        "%y = mul %a, %b",
        "c64[] (5, 5)",
    );
    check(
        &["c128[] (5, 5)", "c128[] (3, -1)"],
        "%y = div %a, %b",
        "c128[] (1, 2)",
    );
    check(
        &["f16[2] [2048, 2050]", "f16[2] [1, 1]"],
        "%y = add %a, %b",
        "f16[2] [2048, 2052]",
    );
    check(
        &["i64[4] [2, -2, 2, -1]", "i64[4] [62, 3, -1, -3]"],
        "%y = pow %a, %b",
        "i64[4] [4611686018427387904, -8, 0, -1]",
    );
    check(
        &["f64[2] [1, 0]", "f64[2] [0, 0]"],
        "%y = div %a, %b",
        "f64[2] [inf, nan]",
    );
}

#[test]
fn nan_propagates_through_minimum_maximum_and_relu() {
    check(
        &["f32[3] [1, nan, 3]", "f32[3] [nan, 2, 4]"],
        "%y = minimum %a, %b",
        "f32[3] [nan, nan, 3]",
    );
    check(
        &["f32[3] [1, nan, -0]", "f32[3] [nan, 2, 0]"],
        "%y = maximum %a, %b",
        "f32[3] [nan, nan, 0]",
    );
    check(
        &["f32[4] [nan, -1, 2, -0]"],
        "%y = relu %a",
        "f32[4] [nan, 0, 2, 0]",
    );
    check(
        &["f32[2, 2] [[1, nan], [3, 4]]"],
        "%y = max %a, dims = [1]",
        "f32[2] [nan, 4]",
    );
    check(
        &["f32[2, 3] [[1, nan, nan], [3, 4, 4]]"],
        "%y = argmax %a, dim = -1",
        "i64[2] [1, 1]",
    );
    check(
        &["f32[3] [nan, 1, 2]", "f32[3] [nan, 1, 3]"],
        "%y = equal %a, %b",
        "bool[3] [false, true, false]",
    );
    check(
        &["f32[3] [nan, 1, 2]", "f32[] 1.5"],
        "%y = less %a, %b",
        "bool[3] [false, true, false]",
    );
}

#[test]
fn casts_round_once_truncate_and_saturate() {
    check(
        &["f32[5] [1.9, -1.9, nan, 1e20, -inf]"],
        "%y = cast %a, to = i32",
        "i32[5] [1, -1, 0, 2147483647, -2147483648]",
    );
    check(
        &["i32[3] [300, -1, 5]"],
        "%y = cast %a, to = u8",
        "u8[3] [44, 255, 5]",
    );
    check(
        &["i64[1] [16777217]"],
        "%y = cast %a, to = f32",
        "f32[1] [16777216]",
    );
    // Through f64 this would be a tie, and round down.
    check(
        &["i64[1] [4611686293305294849]"],
        "%y = cast %a, to = f32",
        "f32[1] [4.6116866e18]",
    );
    check(
        &["f64[2] [1.00048828125, 1.0004882812500002]"],
        "%y = cast %a, to = f16",
        "f16[2] [1, 1.0009766]",
    );
    check(
        &["f64[2] [1.00390625, 1.0039062500000002]"],
        "%y = cast %a, to = bf16",
        "bf16[2] [1, 1.0078125]",
    );
    check(
        &["f32[3] [0, 0.5, nan]"],
        "%y = cast %a, to = bool",
        "bool[3] [false, true, true]",
    );
    check(
        &["c64[2] [(1.5, 2), (0, 3)]"],
        "%y = cast %a, to = i8",
        "i8[2] [1, 0]",
    );
    check(
        &["bool[2] [true, false]"],
        "%y = cast %a, to = c64",
        "c64[2] [(1, 0), (0, 0)]",
    );
}

#[test]
fn functions() {
    near(
        &["f32[3] [-1, 0, 2]"],
        "%y = gelu %a",
        &[-0.158_655_25, 0.0, 1.954_499_7],
    );
    near(
        &["f32[2] [-1, 2]"],
        "%y = gelu %a, approximate = tanh",
        &[-0.158_808_01, 1.954_597_7],
    );
    near(
        &["f32[2] [-1, 2]"],
        "%y = silu %a",
        &[-0.268_941_42, 1.761_594_2],
    );
    near(&["f32[2] [4, 0.25]"], "%y = rsqrt %a", &[0.5, 2.0]);
    near(&["f32[2] [0, 1]"], "%y = sigmoid %a", &[0.5, 0.731_058_6]);
    near(&["f32[1] [1]"], "%y = exp %a", &[std::f32::consts::E]);
    check(
        &["f32[3] [-1, 0, inf]"],
        "%y = log %a",
        "f32[3] [nan, -inf, inf]",
    );
    check(&["f32[2] [-inf, inf]"], "%y = gelu %a", "f32[2] [-0, inf]");
    check(
        &["i8[3] [-128, 5, -5]"],
        "%y = abs %a",
        "i8[3] [-128, 5, 5]",
    );
    check(&["u8[2] [0, 1]"], "%y = neg %a", "u8[2] [0, 255]");
    check(
        &["bool[2] [true, false]", "i32[2] [1, 2]", "i32[] 9"],
        "%y = where %a, %b, %c",
        "i32[2] [1, 9]",
    );
}

#[test]
fn products_of_matrices() {
    let (a, b) = (
        "f32[2, 3] [[1, 2, 3], [4, 5, 6]]",
        "f32[3, 2] [[1, 0], [0, 1], [2, 2]]",
    );
    check(
        &[a, b],
        "%y = matmul %a, %b",
        "f32[2, 2] [[7, 8], [16, 17]]",
    );
    check(
        &[a, a],
        "%y = matmul %a, %b, transpose_b = true",
        "f32[2, 2] [[14, 32], [32, 77]]",
    );
    check(
        &[a, a],
        "%y = matmul %a, %b, transpose_a = true",
        "f32[3, 3] [[17, 22, 27], [22, 29, 36], [27, 36, 45]]",
    );
    check(
        &["i32[2, 1, 1] [[[2]], [[3]]]", "i32[1, 2] [[10, 20]]"],
        "%y = matmul %a, %b",
        "i32[2, 1, 2] [[[20, 40]], [[30, 60]]]",
    );
    check(
        &["f32[2, 0] [[], []]", "f32[0, 2] []"],
        "%y = matmul %a, %b",
        "f32[2, 2] [[0, 0], [0, 0]]",
    );
    check(
        &["f32[0, 2] []", "f32[2, 1] [[1], [1]]"],
        "%y = matmul %a, %b",
        "f32[0, 1] []",
    );
    check(
        &["f32[2, 2] [[1, 2], [3, 4]]", "f32[2] [10, 20]"],
        "%y = bias_add %a, %b",
        "f32[2, 2] [[11, 22], [13, 24]]",
    );
}

#[test]
fn rows_are_normalised() {
    near(
        &["f32[1, 2] [[0, 0.6931472]]"],
        "%y = softmax %a",
        &[1.0 / 3.0, 2.0 / 3.0],
    );
    check(
        &["f32[2, 2] [[1, 1], [1, 1]]"],
        "%y = softmax %a, dim = 0",
        "f32[2, 2] [[0.5, 0.5], [0.5, 0.5]]",
    );
    check(
        &["f32[2] [-inf, -inf]"],
        "%y = softmax %a",
        "f32[2] [nan, nan]",
    );
    check(
        &["f32[2, 0] [[], []]"],
        "%y = softmax %a",
        "f32[2, 0] [[], []]",
    );
    near(
        &["f32[1, 2] [[1, 3]]", "f32[2] [1, 2]", "f32[2] [10, 20]"],
        "%y = layer_norm %a, %b, %c, eps = 0",
        &[9.0, 22.0],
    );
    near(
        &["f32[2] [3, 4]", "f32[2] [1, 10]"],
        "%y = rms_norm %a, %b, eps = 0",
        &[0.848_528_15, 11.313_708],
    );
}

#[test]
fn attention_masks_and_scales() {
    let (q, k, v) = (
        "f32[2, 1] [[1], [1]]",
        "f32[2, 1] [[0], [0.6931472]]",
        "f32[2, 1] [[0], [3]]",
    );
    near(
        &[q, k, v],
        "%y = attention %a, %b, %c, scale = 1.0",
        &[2.0, 2.0],
    );
    near(
        &[q, k, v],
        "%y = attention %a, %b, %c, scale = 1, causal = true",
        &[0.0, 2.0],
    );
    near(
        &[q, k, v, "f32[1, 2] [[0, -inf]]"],
        "%y = attention %a, %b, %c, %d, scale = 1",
        &[0.0, 0.0],
    );
    check(
        &[q, "f32[0, 1] []", "f32[0, 1] []"],
        "%y = attention %a, %b, %c, scale = 1",
        "f32[2, 1] [[0], [0]]",
    );
}

#[test]
fn movement() {
    let x = "i32[2, 3] [[1, 2, 3], [4, 5, 6]]";
    check(
        &[x],
        "%y = transpose %a, perm = [1, 0]",
        "i32[3, 2] [[1, 4], [2, 5], [3, 6]]",
    );
    check(
        &[x],
        "%y = reshape %a, shape = [3, 2]",
        "i32[3, 2] [[1, 2], [3, 4], [5, 6]]",
    );
    check(
        &[x],
        "%y = slice %a, dim = 1, start = 0, end = 3, step = 2",
        "i32[2, 2] [[1, 3], [4, 6]]",
    );
    check(
        &[x],
        "%y = slice %a, dim = 0, start = 1, end = 1",
        "i32[0, 3] []",
    );
    check(
        &[x, "i32[2, 1] [[7], [8]]"],
        "%y = concat %a, %b, dim = -1",
        "i32[2, 4] [[1, 2, 3, 7], [4, 5, 6, 8]]",
    );
    check(
        &[x],
        "%l, %y = split %a, dim = 1, sizes = [1, 2]",
        "i32[2, 2] [[2, 3], [5, 6]]",
    );
    check(
        &["i32[2, 1] [[1], [2]]"],
        "%y = expand %a, shape = [2, 2, 2]",
        "i32[2, 2, 2] [[[1, 1], [2, 2]], [[1, 1], [2, 2]]]",
    );
    check(&["i32[] 5"], "%y = expand %a, shape = [2]", "i32[2] [5, 5]");
    check(
        &[x],
        "%y = pad %a, low = [0, 1], high = [1, 0], value = 9",
        "i32[3, 4] [[9, 1, 2, 3], [9, 4, 5, 6], [9, 9, 9, 9]]",
    );
    check(&[x], "%y = tril %a", "i32[2, 3] [[1, 0, 0], [4, 5, 0]]");
    check(
        &[x],
        "%y = triu %a, diagonal = 1",
        "i32[2, 3] [[0, 2, 3], [0, 0, 6]]",
    );
    check(
        &["f32[3, 2] [[1, 2], [3, 4], [5, 6]]", "i64[2] [2, 0]"],
        "%y = embedding %a, %b",
        "f32[2, 2] [[5, 6], [1, 2]]",
    );
    check(
        &[x, "i32[2, 2] [[2, 0], [1, 1]]"],
        "%y = gather %a, %b, dim = 1",
        "i32[2, 2] [[3, 1], [5, 5]]",
    );
    check(
        &["f32[1, 2] [[1, 2]]", "i64[1] [1]"],
        "%y = embedding %a, %b",
        "rank 0: `%y = embedding %a, %b`: index 1 is outside 0..1",
    );
    check(
        &["f32[2] [1, 2]", "i64[1] [-1]"],
        "%y = gather %a, %b, dim = 0",
        "rank 0: `%y = gather %a, %b, dim = 0`: index -1 is outside 0..2",
    );
    check(
        &[],
        "%y = arange start = 5, end = -2, step = -3, dtype = i8",
        "i8[3] [5, 2, -1]",
    );
    check(
        &[],
        "%y = arange start = 0.0, end = 1, step = 0.25, dtype = f32",
        "f32[4] [0, 0.25, 0.5, 0.75]",
    );
    check(
        &[],
        "%y = arange start = 3, end = 3, step = 1, dtype = f16",
        "f16[0] []",
    );
    check(
        &[],
        "%y = fill shape = [2], value = -inf, dtype = bf16",
        "bf16[2] [-inf, -inf]",
    );
}

#[test]
fn reductions_over_dimensions() {
    let x = "i8[2, 2] [[100, 100], [-1, 1]]";
    check(&[x], "%y = sum %a, dims = [1]", "i8[2] [-56, 0]");
    check(
        &[x],
        "%y = sum %a, dims = [0, 1], keepdim = true",
        "i8[1, 1] [[-56]]",
    );
    check(
        &["bool[2, 2] [[false, true], [false, false]]"],
        "%y = sum %a, dims = [1]",
        "bool[2] [true, false]",
    );
    check(
        &["f32[2, 0] [[], []]"],
        "%y = sum %a, dims = [1]",
        "f32[2] [0, 0]",
    );
    check(
        &["f32[2, 0] [[], []]"],
        "%y = mean %a, dims = [1]",
        "f32[2] [nan, nan]",
    );
    check(
        &["f32[2, 2] [[1, 2], [3, 5]]"],
        "%y = mean %a, dims = [0]",
        "f32[2] [2, 3.5]",
    );
    check(&["f32[] 3"], "%y = sum %a, dims = []", "f32[] 3");
    check(
        &["i32[2, 2] [[3, 3], [1, 2]]"],
        "%y = argmax %a, dim = 1, keepdim = true",
        "i64[2, 1] [[0], [1]]",
    );
}

#[test]
fn a_large_product_is_quick_enough() {
    let shape = |rows: u64, columns: u64| {
        format!("fill shape = [{rows}, {columns}], value = 1, dtype = f32")
    };
    let text = format!(
        "hcom 1\ngraph @big() {{\n %a = {}\n %b = {}\n %c = matmul %a, %b\n %y = sum %c, dims = [0, 1]\n return %y\n}}",
        shape(8, 1024),
        shape(1024, 1024)
    );
    let ranks = hcom_ir::interpret(&[super::graph(&text)], &[Vec::new()]).expect("a result");
    assert_eq!(
        ranks[0].outputs[0].to_vec::<f32>(),
        Some(vec![8.0 * 1024.0 * 1024.0])
    );
}

#[test]
fn every_operation_is_found_by_its_name() {
    for &op in Op::ALL {
        assert_eq!(op.name().parse(), Ok(op));
        assert_eq!(hcom_ir::info(op).op, op);
    }
}
