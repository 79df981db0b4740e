//! Sends and receives between two ranks.

mod support;

use hcom_patch::{DType, Error, Peer, Tensor, dist};
use hcom_runtime::{Runtime, Settings};
use hcom_test::Kind;
use std::time::Duration;
use support::{chain, f32s, ranks, read, same_everywhere, world};

fn zeros(shape: &[u64]) -> Tensor {
    Tensor::zeros(shape, DType::F32).unwrap()
}

#[test]
fn a_tensor_goes_round_a_ring() {
    ranks(4, Kind::Threads, |rank| {
        let r = rank.rank();
        let (next, previous) = (Peer::Global((r + 1) % 4), Peer::Global((r + 3) % 4));
        let f = |x: &[Tensor]| {
            let mut y = zeros(&[3]);
            // Rank 0 sends first, so that the others have something to receive.
            if r == 0 {
                dist::send(&x[0], next, 5, &world())?;
                dist::recv(&mut y, previous, 5, &world())?;
            } else {
                dist::recv(&mut y, previous, 5, &world())?;
                dist::send(&(&y + &x[0])?, next, 5, &world())?;
            }
            Ok(vec![y])
        };
        let x = f32s(&[1.0, 10.0 * r as f32, 0.5], &[3]);
        let sums = [
            [4.0, 60.0, 2.0],
            [1.0, 0.0, 0.5],
            [2.0, 10.0, 1.0],
            [3.0, 30.0, 1.5],
        ];
        assert_eq!(read(&same_everywhere(f, &[x])[0]), sums[r as usize]);
    });
}

#[test]
fn peers_have_a_number_in_the_group_and_others_skip() {
    ranks(4, Kind::Threads, |rank| {
        let r = rank.rank();
        let group = dist::new_group(&[3, 2, 0]).unwrap();
        for (to, from) in [
            (Peer::Group(2), Peer::Group(0)),
            (Peer::Global(0), Peer::Global(3)),
        ] {
            let f = |x: &[Tensor]| {
                let mut y = zeros(&[2, 1]);
                match r {
                    3 => dist::send(&x[0], to, 0, &group)?,
                    0 => dist::recv(&mut y, from, 0, &group)?,
                    _ => {}
                }
                Ok(vec![y])
            };
            let results = same_everywhere(f, &[f32s(&[r as f32, 7.0], &[2])]);
            let expected = if r == 0 { [3.0, 7.0] } else { [0.0, 0.0] };
            assert_eq!(read(&results[0]), expected);
        }
    });
}

#[test]
fn a_batch_exchanges_whatever_its_order_and_size() {
    ranks(2, Kind::Threads, |rank| {
        let r = rank.rank();
        let peer = Peer::Global(1 - r);
        for n in [6u64, 1 << 20] {
            let f = |x: &[Tensor]| {
                let mut y = zeros(&[n]);
                dist::batch_isend_irecv(
                    [dist::isend(&x[0], peer, 0), dist::irecv(&mut y, peer, 0)],
                    &world(),
                )?;
                Ok(vec![y])
            };
            let values: Vec<f32> = (0..n).map(|i| (i % 1000) as f32 + 0.5 * r as f32).collect();
            let results = same_everywhere(f, &[f32s(&values, &[n])]);
            let expected: Vec<f32> = values.iter().map(|v| v + 0.5 - r as f32).collect();
            assert_eq!(read(&results[0]), expected);
        }
    });
}

#[test]
fn every_rank_exchanges_with_every_other_in_one_batch() {
    ranks(4, Kind::Threads, |rank| {
        let r = rank.rank();
        let f = |x: &[Tensor]| {
            let mut y: Vec<Tensor> = (0..6).map(|_| zeros(&[2])).collect();
            let (first, second) = y.split_at_mut(3);
            let others: Vec<u32> = (1..4).map(|step| (r + step) % 4).collect();
            let sends = others.iter().flat_map(|&p| {
                [
                    dist::isend(&x[0], Peer::Global(p), 1),
                    dist::isend(&x[1], Peer::Global(p), 1),
                ]
            });
            let receives = others
                .iter()
                .zip(first)
                .zip(second)
                .flat_map(|((&p, a), b)| {
                    [
                        dist::irecv(a, Peer::Global(p), 1),
                        dist::irecv(b, Peer::Global(p), 1),
                    ]
                });
            dist::batch_isend_irecv(sends.chain(receives), &world())?;
            Ok(y)
        };
        let own = |r: u32, k: u32| [(10 * r + k) as f32, 1.0];
        let x = [f32s(&own(r, 0), &[2]), f32s(&own(r, 1), &[2])];
        let results: Vec<Vec<f32>> = same_everywhere(f, &x).iter().map(read).collect();
        let expected: Vec<[f32; 2]> = (0..2)
            .flat_map(|k| (1..4).map(move |step| own((r + step) % 4, k)))
            .collect();
        assert_eq!(results, expected);
    });
}

#[test]
fn a_batch_does_not_wait_for_a_peer_that_is_not_ready() {
    ranks(3, Kind::Threads, |rank| {
        let r = rank.rank();
        let peer = Peer::Global;
        let f = |x: &[Tensor]| {
            let (mut a, mut b) = (zeros(&[1]), zeros(&[1]));
            match r {
                0 => dist::batch_isend_irecv(
                    [
                        dist::isend(&x[0], peer(2), 0),
                        dist::isend(&x[0], peer(1), 0),
                    ],
                    &world(),
                )?,
                1 => {
                    dist::recv(&mut a, peer(0), 0, &world())?;
                    dist::send(&(&a + &x[0])?, peer(2), 0, &world())?;
                }
                _ => dist::batch_isend_irecv(
                    [
                        dist::irecv(&mut b, peer(1), 0),
                        dist::irecv(&mut a, peer(0), 0),
                    ],
                    &world(),
                )?,
            }
            Ok(vec![a, b])
        };
        let results = same_everywhere(f, &[f32s(&[[1.0, 20.0, 0.0][r as usize]], &[1])]);
        let results: Vec<f32> = results.iter().flat_map(read).collect();
        assert_eq!(results, [[0.0, 0.0], [1.0, 0.0], [1.0, 21.0]][r as usize]);
    });
}

/// The error of compiling and calling `f` on two ranks, on each of them.
fn refused(
    f: impl Fn(u32, &Tensor, &mut Tensor) -> Result<(), Error> + Send + Sync + 'static,
    rows: [u64; 2],
    expected: &'static [&'static str],
) {
    ranks(2, Kind::Threads, move |rank| {
        let r = rank.rank();
        let x = zeros(&[rows[r as usize]]);
        let body = |x: &[Tensor]| {
            let mut y = zeros(&[rows[r as usize]]);
            f(r, &x[0], &mut y)?;
            Ok(vec![y])
        };
        let compiled = hcom_patch::compile(body, support::recorded());
        let error = chain(&compiled.call(&[x]).unwrap_err());
        for part in expected {
            assert!(error.contains(part), "rank {r}: {error}");
        }
    });
}

#[test]
fn what_does_not_pair_is_refused_before_it_runs_with_both_sides() {
    for rows in [[6, 4], [4, 6]] {
        let f = |r: u32, x: &Tensor, y: &mut Tensor| match r {
            0 => dist::send(x, Peer::Global(1), 0, &world()),
            _ => dist::recv(y, Peer::Global(0), 0, &world()),
        };
        let expected: &[&str] = match rows[0] {
            6 => &[
                "rank 0 sends 6 elements of f32",
                "rank 1 receives 4 elements of f32",
            ],
            _ => &[
                "rank 0 sends 4 elements of f32",
                "rank 1 receives 6 elements of f32",
            ],
        };
        refused(f, rows, expected);
    }
    let tags = |r: u32, x: &Tensor, y: &mut Tensor| match r {
        0 => dist::send(x, Peer::Global(1), 3, &world()),
        _ => dist::recv(y, Peer::Global(0), 4, &world()),
    };
    refused(
        tags,
        [2, 2],
        &[
            "tag = 3",
            "rank 0 sends 2 elements of f32",
            "rank 1 receives nothing more",
        ],
    );
    let both_send =
        |r: u32, x: &Tensor, _: &mut Tensor| dist::send(x, Peer::Global(1 - r), 0, &world());
    refused(
        both_send,
        [2, 2],
        &["rank 0 sends 2", "rank 1 receives nothing more"],
    );
}

#[test]
fn two_ranks_that_send_first_are_an_error_whatever_the_size() {
    for bytes in [24u64, 4 << 20] {
        let limit = Duration::from_secs(60);
        hcom_test::ranks(2, Kind::Threads, limit, move |rank| {
            hcom_sys::register_fallback(hcom_fake::table());
            let settings = Settings {
                timeout: Duration::from_secs(1),
                ..Settings::from_env().unwrap()
            };
            let runtime = Runtime::with_control(rank.control(), rank.rank(), &settings).unwrap();
            dist::init_with(runtime.clone());
            let peer = Peer::Global(1 - rank.rank());
            let mut y = zeros(&[bytes / 4]);
            let x = zeros(&[bytes / 4]);
            let run = || {
                dist::send(&x, peer, 0, &world())?;
                dist::recv(&mut y, peer, 0, &world())?;
                y.to_vec::<f32>()
            };
            let mut run = run;
            let error = chain(&run().unwrap_err());
            assert!(error.contains("send"), "{error}");
            dist::finalize();
        });
    }
}
