//! The three steps: patch, compile, call.

use hcom::prelude::*;

fn main() -> Result<(), Error> {
    hcom::init(&Settings::default())?;
    let _patch = patch_for_hcom();
    let double = compile(
        |inputs: &[Tensor]| {
            let mut y = inputs[0].add(&inputs[0])?;
            dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
            Ok(vec![y])
        },
        Config::default(),
    );
    let y = double.call(&[Tensor::from_slice(&[1.0f32, -3.0], &[2])?])?;
    assert_eq!(y[0].to_vec::<f32>()?, [2.0, -6.0]);
    println!("ok");
    Ok(())
}
