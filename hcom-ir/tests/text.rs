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
