//! Rotary position embedding: pairs of elements turn by an angle that grows with their position.

use super::compute::Compute;
use super::dtype::HALF_AND_SINGLE;
use super::executor::{Arg, Operand, Plan, bad};
use super::layout::Layout;
use super::object::Tensor;
use crate::error::Outcome;
use crate::span::strided::{Elements, Storage};

/// Which elements of a row make a pair `(a, b)`, which turns to `(a·cos - b·sin, b·cos + a·sin)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// One of each half.
    Half,
    /// Two neighbours.
    Interleave,
    /// One of each quarter of either half.
    Quarter,
    /// Two neighbours, whose results go to either half.
    InterleaveHalf,
}

impl Mode {
    fn from_code(code: i64) -> Outcome<Mode> {
        Ok(match code {
            0 => Mode::Half,
            1 => Mode::Interleave,
            2 => Mode::Quarter,
            3 => Mode::InterleaveHalf,
            _ => return Err(bad("mode", "a number from 0 to 3", code)),
        })
    }

    fn from_name(name: &str) -> Outcome<Mode> {
        Ok(match name {
            "half" => Mode::Half,
            "interleave" => Mode::Interleave,
            "quarter" => Mode::Quarter,
            _ => return Err(bad("rotaryMode", "half, interleave or quarter", name)),
        })
    }

    /// Size of a row must be a multiple of this.
    fn unit(self) -> usize {
        if self == Mode::Quarter { 4 } else { 2 }
    }

    /// Places of pair `i` of a row of `size` elements: where it is read, and where it is written.
    fn places(self, i: usize, size: usize) -> [[usize; 2]; 2] {
        let half = [i, i + size / 2];
        let neighbours = [2 * i, 2 * i + 1];
        let quarter = size / 4;
        match self {
            Mode::Half => [half; 2],
            Mode::Interleave => [neighbours; 2],
            Mode::Quarter => {
                let first = i + if i >= quarter { quarter } else { 0 };
                [[first, first + quarter]; 2]
            }
            Mode::InterleaveHalf => [neighbours, half],
        }
    }
}

/// A checked turn of a tensor.
struct Turn {
    mode: Mode,
    size: usize,
    x: Layout,
    cos: Layout,
    sin: Layout,
    out: Layout,
}

impl Turn {
    fn new(mode: Mode, x: &Operand, [cos, sin]: [&Operand; 2], out: &Operand) -> Outcome<Turn> {
        x.expect_types(HALF_AND_SINGLE)?;
        if x.rank() != 4 {
            let got = format!("{:?}", x.dims());
            return Err(bad(&x.name, "four dimensions", got));
        }
        let size = x.dims()[3];
        if size == 0 || !size.is_multiple_of(mode.unit()) {
            let expected = format!("a last dimension of a multiple of {}", mode.unit());
            return Err(bad(&x.name, expected, format_args!("shape {:?}", x.dims())));
        }
        for angle in [cos, sin] {
            angle.expect_types(&[x.dtype])?;
            if angle.rank() != 4 || angle.dims()[3] != size {
                let expected = format!("four dimensions, {size} in the last");
                return Err(bad(
                    &angle.name,
                    expected,
                    format_args!("{:?}", angle.dims()),
                ));
            }
        }
        out.expect_types(&[x.dtype])?;
        out.expect_dims(x.dims())?;
        Ok(Turn {
            mode,
            size,
            x: x.layout.clone(),
            cos: cos.broadcast_to(x.dims())?,
            sin: sin.broadcast_to(x.dims())?,
            out: out.layout.clone(),
        })
    }

    fn run(&self, x: &Storage, cos: &Storage, sin: &Storage, out: &Storage) {
        let [x, cos, sin]: [Elements<'_>; 3] = [
            x.elements(&self.x),
            cos.elements(&self.cos),
            sin.elements(&self.sin),
        ];
        let out = out.elements(&self.out);
        let mut rows = [(); 4].map(|()| vec![0f32; self.size]);
        for start in (0..out.len()).step_by(self.size) {
            let [values, cosines, sines, turned] = &mut rows;
            f32::read(&x, start, values);
            f32::read(&cos, start, cosines);
            f32::read(&sin, start, sines);
            for i in 0..self.size / 2 {
                let [[from_a, from_b], [a, b]] = self.mode.places(i, self.size);
                turned[a] = values[from_a] * cosines[a] - values[from_b] * sines[a];
                turned[b] = values[from_b] * cosines[b] + values[from_a] * sines[b];
            }
            f32::write(&out, start, turned);
        }
    }
}

/// aclnnRotaryPositionEmbedding: turns the pairs of each row of `x`, four dimensions; `cos` and `sin` broadcast. Modes:
/// 0 pairs one element of each half, 1 neighbours, 2 one of each quarter within either half, 3 neighbours, whose results
/// go to either half. FLOAT, FLOAT16, BF16, all of one type; computed in FLOAT.
pub(crate) fn rotary(
    x: Arg<Tensor>,
    cos: Arg<Tensor>,
    sin: Arg<Tensor>,
    mode: i64,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let (x, cos, sin, out) = (x.input()?, cos.input()?, sin.input()?, out.output()?);
    let turn = Turn::new(Mode::from_code(mode)?, &x, [&cos, &sin], &out)?;
    Ok(Plan::new([x, cos, sin, out], move |[x, cos, sin, out]| {
        turn.run(x, cos, sin, out);
    }))
}

/// aclnnApplyRotaryPosEmb: aclnnApplyRotaryPosEmbV2 in mode `half`.
pub(crate) fn apply(
    query: Arg<Tensor>,
    key: Arg<Tensor>,
    cos: Arg<Tensor>,
    sin: Arg<Tensor>,
    layout: i64,
) -> Outcome<Plan> {
    apply_v2(query, key, cos, sin, layout, Some("half".into()))
}

/// aclnnApplyRotaryPosEmbV2: aclnnRotaryPositionEmbedding of query and key in place, with one `cos` and one `sin` whose
/// size in the dimension of the heads is 1. `layout` says which dimension that is: 1 BSND, 2 SBND, 3 BNSD.
pub(crate) fn apply_v2(
    query: Arg<Tensor>,
    key: Arg<Tensor>,
    cos: Arg<Tensor>,
    sin: Arg<Tensor>,
    layout: i64,
    mode: Option<String>,
) -> Outcome<Plan> {
    let (query, key) = (query.output()?, key.output()?);
    let (cos, sin) = (cos.input()?, sin.input()?);
    let heads = match layout {
        1 | 2 => 2,
        3 => 1,
        _ => return Err(bad("layout", "1 (BSND), 2 (SBND) or 3 (BNSD)", layout)),
    };
    let mode = Mode::from_name(mode.as_deref().unwrap_or_default())?;
    let turns = [
        Turn::new(mode, &query, [&cos, &sin], &query)?,
        Turn::new(mode, &key, [&cos, &sin], &key)?,
    ];
    let mut expected = query.layout.dims.clone();
    expected[heads] = key.dims()[heads];
    key.expect_dims(&expected)?;
    expected[heads] = 1;
    for angle in [&cos, &sin] {
        angle.broadcast_to(&expected)?;
    }
    Ok(Plan::new(
        [query, key, cos, sin],
        move |[query, key, cos, sin]| {
            turns[0].run(query, cos, sin, query);
            turns[1].run(key, cos, sin, key);
        },
    ))
}
