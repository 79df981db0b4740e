//! Compiled graphs on real ranks, against the oracle.

mod common;

use common::*;
use hcom_test::{Kind, ranks};

/// Column-parallel, then row-parallel, then the sum over ranks.
fn mlp(world: u32) -> String {
    let members: Vec<String> = (0..world).map(|rank| rank.to_string()).collect();
    let width = 32 / world;
    format!(
        "hcom 1
group @tp = ranks({})
graph @mlp(%x: f32[6, 16], %w1: f32[16, {width}], %w2: f32[{width}, 16]) -> f32[6, 16] {{
  %h = matmul %x, %w1
  %a = gelu %h
  %p = matmul %a, %w2
  %y = all_reduce %p, op = sum, group = @tp
  return %y
}}
",
        members.join(", ")
    )
}

#[test]
fn mlp_on_one_two_and_four_ranks() {
    for world in [1, 2, 4] {
        for kind in Kind::ALL {
            ranks(world, kind, TIMEOUT, move |rank| {
                let graphs = vec![graph(&mlp(world)); world as usize];
                check_against_oracle(&rank, &graphs);
            });
        }
    }
}
