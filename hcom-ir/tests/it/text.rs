//! The text form: round trips and messages.

use expect_test::{Expect, expect};
use hcom_ir::{Diagnostics, parse};

/// Parses `text`; the expectation is the canonical form, or the report.
fn check(text: &str, expected: Expect) {
    match parse(text, "test.hcom") {
        Ok(graph) => {
            let printed = graph.to_string();
            assert_eq!(parse(&printed, "again").as_ref(), Ok(&graph), "{printed}");
            expected.assert_eq(&printed);
        }
        Err(found) => expected.assert_eq(&found.render(Some(text))),
    }
}

#[test]
fn the_readme_example_is_canonical() -> Result<(), Diagnostics> {
    let text = "\
hcom 1
group @tp = ranks(0, 1)
graph @mlp(%x: f32[8, 1024], %w1: f32[1024, 2048], %w2: f32[2048, 1024]) -> f32[8, 1024] {
  %h = matmul %x, %w1
  %a = gelu %h
  %p = matmul %a, %w2
  %y = all_reduce %p, op = sum, group = @tp
  return %y
}
";
    assert_eq!(parse(text, "mlp.hcom")?.to_string(), text);
    Ok(())
}

#[test]
fn every_form_of_statement() {
    check(
        r#"hcom 1
group @tp = ranks(0, 1)
group @one=ranks(3,)
# a comment
graph @g[s, n](%x: f32[s, 4], %state: mut f32[4], %i: i64[n]) -> (f32[2*s, 4], f32[4]) where s>=2, n%2==0 {
  %c = constant value = f32[4] [1, -0.0, nan, -inf]
  %d = constant value = c64[2] [(1, 2), (nan, -1e-30)]
  %e = constant value = i64[2, 1] [[-9223372036854775808], [9223372036854775807]]
  %f = constant value = u64[] 18446744073709551615
  %h = constant value = bf16[2] hex "803f0040"
  %z = constant value = bool[0, 3] []
  %y = all_gather %x, group = @tp
  %a, %b = split %state, dim = 0, sizes = [1, 3]
  %r = recv f32[4], peer = 1, group = @tp
  send %r, peer = 1, tag = 7, group = @tp
  %half = slice %i, dim = 0, start = 0, end = n / 2
  %k = custom "ker\"nel"(%r, %c, pure = true, steps = 3, rate = 0.5, dims = [s + 1, 4], reduce = max, to = f16, group = @one, empty = [])
      -> f32[4]
  custom "log"(%k)
  %g = gelu %c, approximate = tanh
  %p = pad %c, low = [1], high = [0], value = -inf
  %ar = arange start = 0, end = s, step = 1, dtype = i32
  barrier group = @tp
  copy_to_input %k, %state
  return %y, last = %k
}
"#,
        expect![[r#"
            hcom 1
            group @tp = ranks(0, 1)
            group @one = ranks(3)
            graph @g[s, n](%x: f32[s, 4], %state: mut f32[4], %i: i64[n]) -> (f32[2*s, 4], f32[4]) where s >= 2, n % 2 == 0 {
              %c = constant value = f32[4] [1, -0, nan, -inf]
              %d = constant value = c64[2] [(1, 2), (nan, -1e-30)]
              %e = constant value = i64[2, 1] [[-9223372036854775808], [9223372036854775807]]
              %f = constant value = u64[] 18446744073709551615
              %h = constant value = bf16[2] [1, 2]
              %z = constant value = bool[0, 3] []
              %y = all_gather %x, group = @tp
              %a, %b = split %state, dim = 0, sizes = [1, 3]
              %r = recv f32[4], peer = 1, group = @tp
              send %r, peer = 1, tag = 7, group = @tp
              %half = slice %i, dim = 0, start = 0, end = n/2
              %k = custom "ker\"nel"(%r, %c, dims = [s + 1, 4], empty = [], group = @one, pure = true, rate = 0.5, reduce = max, steps = 3, to = f16) -> f32[4]
              custom "log"(%k)
              %g = gelu %c, approximate = tanh
              %p = pad %c, low = [1], high = [0], value = -inf
              %ar = arange start = 0, end = s, step = 1, dtype = i32
              barrier group = @tp
              copy_to_input %k, %state
              return %y, last = %k
            }
        "#]],
    );
}

#[test]
fn mistakes_are_shown_with_place_and_advice() {
    check(
        "hcom 1
group @tp = ranks(0, 1)
graph @g(%x: f32[8, 4], %w: f32[5, 2]) -> f32[8, 4] {
  %h = matmul %x, %w
  %a = gellu %h
  %b = add %a, %xx
  %c = all_reduce %x, op = sun, group = @tp
  %d = all_reduce %x, op = sum, group = @pt
  %e = softmax %x, dimm = 1
  %f = gelu %x, approximate = tan
  %x = neg %x
  %i, %j = neg %x
  return %h
}
",
        expect![[r#"
            error[shape]: `matmul`: the inner sizes differ
             --> test.hcom:4:3
              |
            4 |   %h = matmul %x, %w
              |   ^^
              = expected: `[..., m, k] x [..., k, n]`; k is 4 and 5
              = got: f32[8, 4], f32[5, 2]

            error[unknown-op]: there is no operation `gellu`
             --> test.hcom:5:8
              |
            5 |   %a = gellu %h
              |        ^^^^^
              = help: did you mean `gelu`?

            error[unknown]: `%xx` is not defined
             --> test.hcom:6:16
              |
            6 |   %b = add %a, %xx
              |                ^^^
              = help: did you mean `%x`?

            error[syntax]: expected a reduction, found `sun`
             --> test.hcom:7:28
              |
            7 |   %c = all_reduce %x, op = sun, group = @tp
              |                            ^^^
              = help: did you mean `sum`?

            error[unknown]: group `@pt` is not declared
             --> test.hcom:8:41
              |
            8 |   %d = all_reduce %x, op = sum, group = @pt
              |                                         ^^^
              = help: did you mean `@tp`?

            error[attribute]: `softmax` has no attribute `dimm`
             --> test.hcom:9:3
              |
            9 |   %e = softmax %x, dimm = 1
              |   ^^
              = expected: attributes among dim
              = help: did you mean `dim`?

            error[syntax]: expected one of none, tanh, found `tan`
              --> test.hcom:10:31
               |
            10 |   %f = gelu %x, approximate = tan
               |                               ^^^
               = help: did you mean `tanh`?

            error[duplicate]: `%x` is defined twice
              --> test.hcom:11:3
               |
            11 |   %x = neg %x
               |   ^^
               = help: a value is assigned once; choose another name

            error[arity]: `neg` has another number of results than are named
              --> test.hcom:12:3
               |
            12 |   %i, %j = neg %x
               |   ^^
               = expected: 1 names
               = got: 2 names
        "#]],
    );
}

#[test]
fn headers_are_checked() {
    check(
        "graph @g() {\n}",
        expect![[r#"
        error[syntax]: expected the version line, found `graph`
         --> test.hcom:1:1
          |
        1 | graph @g() {
          | ^^^^^
          = expected: hcom 1
          = help: start the text with `hcom 1`
    "#]],
    );
    check(
        "hcom 2\ngraph @g() {\n}",
        expect![[r#"
        error[syntax]: version `2` is not supported
         --> test.hcom:1:6
          |
        1 | hcom 2
          |      ^
          = expected: hcom 1
    "#]],
    );
    check(
        "hcom 1\ngroup @g = ranks(0, 1, 0)\ngraph @g() {\n}",
        expect![[r#"
            error[group]: rank 0 is in group `@g` twice
             --> test.hcom:2:7
              |
            2 | group @g = ranks(0, 1, 0)
              |       ^^
              = expected: each rank once
              = got: @g = ranks(0, 1, 0)
        "#]],
    );
    check(
        "hcom 1\ngraph @g[f32](%x: f32[2]) {\n}",
        expect![[r#"
        error[syntax]: `f32` cannot be the name of a symbol
         --> test.hcom:2:10
          |
        2 | graph @g[f32](%x: f32[2]) {
          |          ^^^
    "#]],
    );
    check(
        "hcom 1\ngraph @g(%x: f33[2]) {\n}",
        expect![[r#"
        error[syntax]: unknown element type `f33`; one of bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128
         --> test.hcom:2:14
          |
        2 | graph @g(%x: f33[2]) {
          |              ^^^
          = help: did you mean `f32`?
    "#]],
    );
    check(
        "hcom 1\ngraph @g(%x: f32[batch]) {\n}",
        expect![[r#"
        error[unknown]: symbol `batch` is not declared
         --> test.hcom:2:18
          |
        2 | graph @g(%x: f32[batch]) {
          |                  ^^^^^
          = help: declare it after the name of the graph: `graph @name[batch](…)`
    "#]],
    );
    check(
        "hcom 1\ngraph @g(%x: f32[2]) -> f32[3] {\n  return %x\n}",
        expect![[r#"
            error[type]: the graph does not return what it declares
             --> test.hcom:4:1
              |
            4 | }
              | ^
              = expected: (f32[3])
              = got: (f32[2])
        "#]],
    );
    check(
        "hcom 1\ngraph @g(%x: f32[2]) {\n  %y = neg %x\n",
        expect![[r#"
            error[syntax]: expected `}`, found the end of the text
             --> test.hcom:3:14
              |
            3 |   %y = neg %x
              |              ^
        "#]],
    );
    check(
        "",
        expect![[r#"
        error[syntax]: expected the version line, found the end of the text
         --> test.hcom:1:1
          = expected: hcom 1
          = help: start the text with `hcom 1`
    "#]],
    );
}

#[test]
fn literals_are_checked() {
    let constant =
        |value: &str| format!("hcom 1\ngraph @g() {{\n  %c = constant value = {value}\n}}\n");
    check(
        &constant("i8[2] [1, 128]"),
        expect![[r#"
        error[range]: 128 is no value of i8
         --> test.hcom:3:35
          |
        3 |   %c = constant value = i8[2] [1, 128]
          |                                   ^^^
    "#]],
    );
    check(
        &constant("f32[2] [1, 2, 3]"),
        expect![[r#"
        error[attribute]: a list of the literal does not fit its type
         --> test.hcom:3:32
          |
        3 |   %c = constant value = f32[2] [1, 2, 3]
          |                                ^
          = expected: 2 entries
          = got: 3 entries
    "#]],
    );
    check(
        &constant("f32[2] hex \"00\""),
        expect![[r#"
        error[attribute]: the data of the literal does not fit its type
         --> test.hcom:3:32
          |
        3 |   %c = constant value = f32[2] hex "00"
          |                                ^^^
          = expected: 8 bytes for f32[2]
          = got: 1 bytes
    "#]],
    );
    check(
        &constant("bool[1] hex \"02\""),
        expect![[r#"
        error[attribute]: a bool literal holds a byte other than 0 and 1
         --> test.hcom:3:33
          |
        3 |   %c = constant value = bool[1] hex "02"
          |                                 ^^^
    "#]],
    );
}

#[test]
fn large_and_unusual_literals_are_hexadecimal() {
    check(
        "hcom 1\ngraph @g() {\n  %c = constant value = f32[2] hex \"0100c07f0000803f\"\n  %d = constant value = f32[1] hex \"0000c07f\"\n}\n",
        expect![[r#"
            hcom 1
            graph @g() {
              %c = constant value = f32[2] hex "0100c07f0000803f"
              %d = constant value = f32[1] [nan]
            }
        "#]],
    );
}
