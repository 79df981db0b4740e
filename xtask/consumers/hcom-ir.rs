//! Reads a graph, prints it and reads it again.

const TEXT: &str = "hcom 1
group @tp = ranks(0, 1)
graph @g(%x: f32[2]) -> f32[2] {
  %y = all_reduce %x, op = sum, group = @tp
  return %y
}
";

fn main() -> Result<(), hcom_ir::Diagnostics> {
    let graph = hcom_ir::parse(TEXT, "g.hcom")?;
    assert_eq!(graph.to_string(), TEXT);
    assert_eq!(graph.world_size(), 2);
    println!("ok");
    Ok(())
}
