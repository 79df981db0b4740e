//! Type rules: what each operation yields and refuses.

use hcom_ir::{Bindings, DType, Dim, Guard, Id as _, SymbolId, parse};

/// The type of `%y`, and guards, for these inputs; or the first message.
fn typed(inputs: &str, statement: &str) -> String {
    let text =
        format!("hcom 1\ngroup @g = ranks(0, 1)\ngraph @t[s, n]({inputs}) {{\n  {statement}\n}}\n");
    match parse(&text, "t") {
        Err(found) => found.0[0].message.to_string(),
        Ok(graph) => {
            let mut out: Vec<String> = graph
                .nodes()
                .flat_map(|(_, node)| &node.results)
                .map(|&value| graph.ty(value).display(graph.symbols()).to_string())
                .collect();
            out.extend(
                graph
                    .guards()
                    .iter()
                    .map(|guard| guard.display(graph.symbols()).to_string()),
            );
            out.join(", ")
        }
    }
}

#[track_caller]
fn check(inputs: &str, statement: &str, expected: &str) {
    assert_eq!(
        typed(inputs, statement),
        expected,
        "{statement} on {inputs}"
    );
}

#[test]
fn elementwise() {
    check(
        "%a: f32[s, 1, 4], %b: f32[n, 4]",
        "%y = add %a, %b",
        "f32[s, n, 4]",
    );
    check("%a: f32[], %b: f32[0]", "%y = mul %a, %b", "f32[0]");
    check(
        "%a: f32[s], %b: f32[4]",
        "%y = add %a, %b",
        "`add`: the shapes do not broadcast",
    );
    check(
        "%a: f32[2], %b: f32[3]",
        "%y = add %a, %b",
        "`add`: the shapes do not broadcast",
    );
    check(
        "%a: f32[2], %b: f16[2]",
        "%y = add %a, %b",
        "`add`: the operands have different element types",
    );
    check(
        "%a: bool[2]",
        "%y = sub %a, %a",
        "`sub`: operand `a` cannot be bool",
    );
    check(
        "%a: c64[2]",
        "%y = maximum %a, %a",
        "`maximum`: operand `a` cannot be c64",
    );
    check(
        "%a: i32[2]",
        "%y = exp %a",
        "`exp`: operand `x` cannot be i32",
    );
    check(
        "%a: c64[2]",
        "%y = less %a, %a",
        "`less`: operand `a` cannot be c64",
    );
    check("%a: i8[2, 1], %b: i8[3]", "%y = less %a, %b", "bool[2, 3]");
    check(
        "%c: bool[s], %a: f16[1, s], %b: f16[]",
        "%y = where %c, %a, %b",
        "f16[1, s]",
    );
    check(
        "%a: f32[2]",
        "%y = where %a, %a, %a",
        "`where`: operand `c` cannot be f32",
    );
    check(
        "%a: f32[2]",
        "%y = add %a",
        "`add` has the wrong number of operands",
    );
    check("%a: f32[s]", "%y = cast %a, to = i8", "i8[s]");
}

#[test]
fn products_norms_and_attention() {
    check(
        "%a: f32[s, 2, 3], %b: f32[3, 4]",
        "%y = matmul %a, %b",
        "f32[s, 2, 4]",
    );
    check(
        "%a: f32[2, s], %b: f32[n, s]",
        "%y = matmul %a, %b, transpose_b = true",
        "f32[2, n]",
    );
    check(
        "%a: f32[2, 0], %b: f32[0, 4]",
        "%y = matmul %a, %b",
        "f32[2, 4]",
    );
    check(
        "%a: f32[2, 3], %b: f32[2, 3]",
        "%y = matmul %a, %b",
        "`matmul`: the inner sizes differ",
    );
    check(
        "%a: f32[3], %b: f32[3, 2]",
        "%y = matmul %a, %b",
        "`matmul`: operand `a` has too few dimensions",
    );
    check(
        "%x: f32[s, 4], %b: f32[4]",
        "%y = bias_add %x, %b",
        "f32[s, 4]",
    );
    check(
        "%x: f32[s, 4], %b: f32[3]",
        "%y = bias_add %x, %b",
        "`bias_add`: a vector does not fit the last dimension of the first operand",
    );
    check(
        "%x: f32[]",
        "%y = softmax %x",
        "`softmax`: `dim` is no dimension of the operand",
    );
    check(
        "%x: f16[2, s], %w: f16[s]",
        "%y = layer_norm %x, %w, %w",
        "f16[2, s]",
    );
    check(
        "%x: f16[2, s], %w: f16[s]",
        "%y = rms_norm %x, %w, eps = nan",
        "`rms_norm`: `eps` is out of range",
    );
    check(
        "%q: f32[2, s, 8], %k: f32[2, n, 8], %v: f32[2, n, 4], %m: f32[n]",
        "%y = attention %q, %k, %v, %m, scale = 1",
        "f32[2, s, 4]",
    );
    check(
        "%q: f32[2, s, 8], %k: f32[2, n, 8], %v: f32[2, s, 4]",
        "%y = attention %q, %k, %v, scale = 1",
        "`attention`: query, key and value do not fit",
    );
    check(
        "%q: f32[2, 8], %m: f32[3]",
        "%y = attention %q, %q, %q, %m, scale = 1",
        "`attention`: the shapes do not broadcast",
    );
}

#[test]
fn movement() {
    check(
        "%x: f32[s, 4]",
        "%y = reshape %x, shape = [2*s, 2]",
        "f32[2*s, 2]",
    );
    check(
        "%x: f32[s, 4]",
        "%y = reshape %x, shape = [s/2, 8]",
        "f32[s/2, 8], s % 2 == 0",
    );
    check(
        "%x: f32[s, n, 2]",
        "%y = reshape %x, shape = [2*n, s]",
        "f32[2*n, s]",
    );
    check(
        "%x: f32[s, n]",
        "%y = reshape %x, shape = [n]",
        "`reshape`: the shapes hold different numbers of elements",
    );
    check(
        "%x: f32[0, 3]",
        "%y = reshape %x, shape = [7, 0]",
        "f32[7, 0]",
    );
    check("%x: f32[1]", "%y = reshape %x, shape = []", "f32[]");
    check("%x: f32[]", "%y = transpose %x, perm = []", "f32[]");
    check(
        "%x: f32[s, n]",
        "%y = transpose %x, perm = [1, 0]",
        "f32[n, s]",
    );
    check(
        "%x: f32[2, 3]",
        "%y = transpose %x, perm = [1, 1]",
        "`transpose`: `perm` is no permutation of the dimensions",
    );
    check(
        "%x: f32[s]",
        "%y = slice %x, dim = 0, start = 1, end = 4",
        "f32[3], s >= 4",
    );
    check(
        "%x: f32[s]",
        "%y = slice %x, dim = 0, start = 0, end = s, step = 2",
        "f32[s/2], s % 2 == 0",
    );
    check(
        "%x: f32[5]",
        "%y = slice %x, dim = 0, start = 0, end = 5, step = 2",
        "f32[3]",
    );
    check(
        "%x: f32[5]",
        "%y = slice %x, dim = 0, start = 3, end = 6",
        "`slice`: `end` is beyond the size of the dimension",
    );
    check(
        "%x: f32[5]",
        "%y = slice %x, dim = 0, start = 3, end = 2",
        "`slice`: `end` is before `start`",
    );
    check(
        "%x: f32[s, 2], %z: f32[n, 2]",
        "%y = concat %x, %z, %x, dim = 0",
        "f32[2*s + n, 2]",
    );
    check(
        "%x: f32[s, 2], %z: f32[s, 3]",
        "%y = concat %x, %z, dim = 0",
        "`concat`: the shapes differ outside dimension 0",
    );
    check(
        "%x: f32[s + 3]",
        "%a, %y = split %x, dim = 0, sizes = [3, s]",
        "f32[3], f32[s]",
    );
    check(
        "%x: f32[4]",
        "%a, %y = split %x, dim = 0, sizes = [3, 2]",
        "`split`: the sizes do not sum to that of the dimension",
    );
    check(
        "%x: f32[1, 2]",
        "%y = expand %x, shape = [s, n, 2]",
        "f32[s, n, 2]",
    );
    check(
        "%x: f32[3]",
        "%y = expand %x, shape = [6]",
        "`expand`: the operand does not repeat to the shape",
    );
    check(
        "%x: f32[s]",
        "%y = pad %x, low = [1], high = [n], value = 0",
        "f32[s + n + 1]",
    );
    check(
        "%x: u8[2]",
        "%y = pad %x, low = [1], high = [0], value = -1",
        "`pad`: `value` is no value of u8",
    );
    check(
        "%t: f32[s, 8], %i: i64[2, n]",
        "%y = embedding %t, %i",
        "f32[2, n, 8]",
    );
    check(
        "%t: f32[s, 8], %i: f32[2]",
        "%y = embedding %t, %i",
        "`embedding`: operand `indices` cannot be f32",
    );
    check(
        "%x: f32[4, 2], %i: i32[9, 2]",
        "%y = gather %x, %i, dim = 0",
        "f32[9, 2]",
    );
    check(
        "%x: f32[4, 2], %i: i32[1, 3]",
        "%y = gather %x, %i, dim = 0",
        "`gather`: the indices are larger than the operand",
    );
    check(
        "%x: f32[3]",
        "%y = tril %x",
        "`tril`: operand `x` has too few dimensions",
    );
    check(
        "",
        "%y = arange start = 2, end = s, step = 1, dtype = i64",
        "i64[s - 2], s >= 2",
    );
    check(
        "",
        "%y = arange start = 0, end = 300, step = 1, dtype = u8",
        "`arange`: the last element is no value of u8",
    );
    check(
        "",
        "%y = arange start = 0, end = 3, step = 0, dtype = u8",
        "`arange`: the number of elements is not defined",
    );
    check(
        "",
        "%y = fill shape = [s], value = 2, dtype = bool",
        "`fill`: `value` is no value of bool",
    );
    check(
        "",
        "%y = fill shape = [4294967296, 4294967296], value = 2, dtype = i8",
        "a result of `fill` is too large",
    );
}

#[test]
fn reductions() {
    check(
        "%x: f32[s, 4]",
        "%y = sum %x, dims = [0], keepdim = true",
        "f32[1, 4]",
    );
    check("%x: f32[s, 4]", "%y = max %x, dims = [0]", "f32[4], s >= 1");
    check(
        "%x: f32[0, 4]",
        "%y = max %x, dims = [0]",
        "`max`: a reduced dimension has no element",
    );
    check("%x: f32[0, 4]", "%y = sum %x, dims = [0, -1]", "f32[]");
    check(
        "%x: f32[2, 4]",
        "%y = sum %x, dims = [1, -1]",
        "`sum`: dimension 1 is listed twice in `dims`",
    );
    check(
        "%x: f32[2, 4]",
        "%y = sum %x, dims = []",
        "`sum`: `dims` is empty",
    );
    check(
        "%x: i32[2]",
        "%y = mean %x, dims = [0]",
        "`mean`: operand `x` cannot be i32",
    );
    check(
        "%x: f32[2, 3]",
        "%y = argmax %x, dim = 2",
        "`argmax`: `dim` is no dimension of the operand",
    );
}

#[test]
fn communication() {
    check(
        "%x: f32[s, 4]",
        "%y = all_gather %x, group = @g",
        "f32[2*s, 4]",
    );
    check(
        "%x: f32[s, 4]",
        "%y = all_gather %x, dim = 1, group = @g",
        "f32[s, 8]",
    );
    check(
        "%x: f32[]",
        "%y = all_gather %x, group = @g",
        "`all_gather`: `dim` is no dimension of the operand",
    );
    check(
        "%x: f32[]",
        "%y = all_reduce %x, op = sum, group = @g",
        "f32[]",
    );
    check(
        "%x: f32[s]",
        "%y = reduce_scatter %x, op = sum, group = @g",
        "f32[s/2], s % 2 == 0",
    );
    check(
        "%x: f32[4*s]",
        "%y = reduce_scatter %x, op = sum, group = @g",
        "f32[2*s]",
    );
    check(
        "%x: f32[5]",
        "%y = reduce_scatter %x, op = sum, group = @g",
        "`reduce_scatter`: 5 rows are not divisible by the 2 ranks of `@g`",
    );
    check(
        "%x: bool[2]",
        "%y = all_reduce %x, op = avg, group = @g",
        "`all_reduce`: reduction `avg` is not defined for bool",
    );
    check(
        "%x: f32[2]",
        "%y = all_reduce %x, op = premul_sum, group = @g",
        "`all_reduce`: `op = premul_sum` needs the attribute `factor`",
    );
    check(
        "%x: f32[2]",
        "%y = broadcast %x, root = 2, group = @g",
        "`broadcast`: `root` is no rank of group `@g`",
    );
    check(
        "%x: f32[s]",
        "%y = all_to_all %x, group = @g",
        "f32[s], s % 2 == 0",
    );
    check(
        "%x: f32[s + 1]",
        "%y = all_to_all %x, send_counts = [s, 1], recv_counts = [2, n], group = @g",
        "f32[n + 2]",
    );
    check(
        "%x: f32[3]",
        "%y = all_to_all %x, send_counts = [1, 2], group = @g",
        "`all_to_all`: `send_counts` and `recv_counts` come together",
    );
    check(
        "%x: f32[3]",
        "%y = all_gather_uneven %x, counts = [4, 1], group = @g",
        "`all_gather_uneven`: the rows of this rank are none of `counts`",
    );
    check(
        "%x: f32[3]",
        "%y = all_gather_uneven %x, counts = [3], group = @g",
        "`all_gather_uneven`: `counts` does not have one entry per rank",
    );
    check(
        "%x: f32[4]",
        "%y = scatter %x, root = 0, group = @g",
        "f32[2]",
    );
    check("", "%y = recv f32[s, 2], peer = 0, group = @g", "f32[s, 2]");
    check(
        "%x: f32[2]",
        "send %x, peer = 1, tag = -1, group = @g",
        "`send`: `tag` is out of range",
    );
}

#[test]
fn counts_beyond_32_bits_stay_exact() {
    check(
        "%x: u8[2147483656]",
        "%y = broadcast %x, root = 0, group = @g",
        "u8[2147483656]",
    );
    check(
        "%x: f64[1073741824]",
        "%y = all_gather %x, group = @g",
        "f64[2147483648]",
    );
    check(
        "%x: u8[9223372036854775808]",
        "%y = all_gather %x, group = @g",
        "`all_gather`: the size does not fit in 64 bits",
    );
    check(
        "%x: f64[1152921504606846976]",
        "%y = all_gather %x, group = @g",
        "a result of `all_gather` is too large",
    );
    let text = "hcom 1\ngroup @g = ranks(0, 1)\ngraph @t(%x: i8[2147483656]) {\n  %y = all_reduce %x, op = sum, group = @g\n}";
    let graph = super::graph(text);
    let (_, row) = hcom_ir::rows(&graph, hcom_ir::GroupId::from_index(0)).remove(0);
    assert_eq!(row.uniform.count, Some((1 << 31) + 8));
}

#[test]
fn writes_have_one_meaning() {
    check("%x: mut f32[2], %v: f32[2]", "copy_to_input %v, %x", "");
    check(
        "%x: f32[2], %v: f32[2]",
        "copy_to_input %v, %x",
        "input `%x` is not mutable",
    );
    check(
        "%x: mut f32[2], %v: f32[3]",
        "copy_to_input %v, %x",
        "`copy_to_input`: the value and the input have different types",
    );
    check(
        "%x: mut f32[2], %v: f32[2]",
        "copy_to_input %v, %x\n %y = neg %x",
        "input `%x` is read after it was written",
    );
    check(
        "%x: mut f32[2], %v: f32[2]",
        "copy_to_input %v, %x\n copy_to_input %v, %x",
        "input `%x` is written twice",
    );
    check(
        "%x: mut f32[2], %v: f32[2]",
        "copy_to_input %v, %x\n return %x",
        "output `x` is an input that was written",
    );
    check(
        "%x: mut f32[2]",
        "%y = neg %x\n copy_to_input %x, %y",
        "`%y` is no input",
    );
}

#[test]
fn sizes_are_affine_and_exact() {
    let symbol = |index| Dim::symbol(SymbolId::from_index(index));
    let bindings = Bindings::new()
        .with(SymbolId::from_index(0), 12)
        .with(SymbolId::from_index(1), 5);
    let (s, n) = (symbol(0), symbol(1));
    let sum = s
        .mul(3)
        .and_then(|dim| dim.add(&n))
        .and_then(|dim| dim.add(&Dim::fixed(7)))
        .expect("a size");
    assert_eq!(
        (sum.to_string().as_str(), sum.bind(&bindings)),
        ("3*s0 + s1 + 7", Ok(48))
    );
    assert_eq!(
        sum.sub(&n).and_then(|dim| dim.sub(&s.mul(3)?)),
        Ok(Dim::fixed(7))
    );
    let (half, guard) = s.div(4).expect("a size");
    assert_eq!(
        guard,
        Some(Guard::Divisible {
            dim: s.clone(),
            by: 4
        })
    );
    assert_eq!(
        (half.to_string().as_str(), half.bind(&bindings)),
        ("s0/4", Ok(3))
    );
    assert_eq!(half.mul(4), Ok(s.clone()));
    assert_eq!(
        half.add(&s.div(6).expect("a size").0)
            .map(|dim| dim.to_string()),
        Ok("5*s0/12".to_owned())
    );
    assert!(s.product(&n).is_err());
    assert!(Dim::fixed(5).div(2).is_err());
    assert!(Dim::fixed(u64::MAX).add(&Dim::fixed(1)).is_err());
    assert!(n.div(2).expect("a size").0.bind(&bindings).is_err());
}

#[test]
fn binding_fixes_sizes_and_checks_guards() {
    let text = "hcom 1\ngroup @g = ranks(0, 1)\ngraph @t[s](%x: f32[s, 2]) -> f32[s/2, 2] where s >= 3, s % 2 == 0 {\n  %r = reduce_scatter %x, op = sum, group = @g\n  return %r\n}\n";
    let graph = super::graph(text);
    assert!(!graph.is_fixed());
    let bind = |value| graph.bind(&Bindings::new().with(SymbolId::from_index(0), value));
    let fixed = bind(8).expect("a graph");
    assert!(fixed.is_fixed());
    assert_eq!(
        fixed.to_string(),
        "hcom 1\ngroup @g = ranks(0, 1)\ngraph @t(%x: f32[8, 2]) -> f32[4, 2] {\n  %r = reduce_scatter %x, op = sum, group = @g\n  return %r\n}\n"
    );
    let report = |value| {
        bind(value)
            .map_err(|found| found.to_string())
            .expect_err("a broken guard")
    };
    assert!(report(7).contains("expected: s % 2 == 0") && report(7).contains("got: s = 7"));
    assert!(report(2).contains("expected: s >= 3"));
    assert!(
        graph
            .bind(&Bindings::new())
            .expect_err("no value")
            .to_string()
            .contains("symbol `s` has no value")
    );
}

#[test]
fn element_types_know_themselves() {
    for dtype in DType::ALL {
        assert_eq!(dtype.name().parse(), Ok(dtype));
        assert!(dtype.bytes().is_power_of_two());
        let kinds = [
            dtype == DType::Bool,
            dtype.is_integer(),
            dtype.is_float(),
            dtype.is_complex(),
        ];
        assert_eq!(kinds.iter().filter(|kind| **kind).count(), 1, "{dtype}");
    }
}
