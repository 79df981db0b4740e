//! Real ranks that compile and run functions.

#![allow(dead_code, reason = "each test crate uses a part")]

use hcom_patch::{Collectives, Compiled, Config, Error, Tensor, compile, dist};
use hcom_runtime::{Runtime, Settings};
use hcom_test::{Kind, Rank};
use std::time::Duration;

/// Runs `f` on `n` ranks of either kind.
pub(crate) fn ranks(n: u32, kind: Kind, f: impl Fn(Rank) + Send + Sync + 'static) {
    hcom_test::ranks(n, kind, Duration::from_secs(100), move |rank| {
        hcom_sys::register_fallback(hcom_fake::table());
        let settings = Settings::from_env().unwrap();
        let runtime = Runtime::with_control(rank.control(), rank.rank(), &settings).unwrap();
        dist::init_with(runtime);
        f(rank);
        dist::finalize();
    });
}

pub(crate) fn recorded() -> Config {
    Config {
        collectives: Collectives::Recorded,
        ..Config::default()
    }
}

pub(crate) fn cut() -> Config {
    Config {
        collectives: Collectives::Cut,
        ..Config::default()
    }
}

pub(crate) fn f32s(values: &[f32], shape: &[u64]) -> Tensor {
    Tensor::from_slice(values, shape).unwrap()
}

pub(crate) fn read(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

pub(crate) fn world() -> dist::Group {
    dist::world().unwrap()
}

#[track_caller]
pub(crate) fn assert_close(actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len());
    for (index, (a, b)) in actual.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-4, "element {index}: {a} against {b}");
    }
}

/// Compiles a function of one tensor that gives one tensor.
pub(crate) fn one<F>(
    f: F,
    config: Config,
) -> Compiled<impl Fn(&[Tensor]) -> Result<Vec<Tensor>, Error>>
where
    F: Fn(&Tensor) -> Result<Tensor, Error>,
{
    compile(move |x: &[Tensor]| Ok(vec![f(&x[0])?]), config)
}
