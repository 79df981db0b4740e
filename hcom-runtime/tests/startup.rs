//! Ranks that look for each other, and everything that may be in their way.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use hcom_runtime::{Control, Master, Settings, StartError, World, connect};

/// A place to meet that nobody else has.
struct Place {
    listener: Arc<TcpListener>,
    port: u16,
}

impl Place {
    fn new() -> Place {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        Place {
            listener: Arc::new(listener),
            port,
        }
    }

    /// The world of `rank`; rank 0 has the socket.
    fn world(&self, rank: u32, world_size: u32) -> World {
        World {
            rank,
            world_size,
            local_rank: rank,
            master: Some(Master {
                host: "127.0.0.1".into(),
                port: self.port,
                job: "job".into(),
                listener: (rank == 0).then(|| self.listener.clone()),
            }),
        }
    }
}

type Outcome = Result<Arc<dyn Control>, StartError>;

/// Starts one rank on a thread.
fn start(world: World, seconds: f64) -> JoinHandle<Outcome> {
    let settings = Settings {
        connect_timeout: Duration::from_secs_f64(seconds),
        ..Settings::default()
    };
    std::thread::spawn(move || connect(&world, &settings))
}

fn error(rank: JoinHandle<Outcome>) -> StartError {
    match rank.join().unwrap() {
        Ok(_) => panic!("the rank must not start"),
        Err(error) => error,
    }
}

/// All ranks talk to all others.
fn check_complete(ranks: Vec<JoinHandle<Outcome>>) {
    let controls: Vec<_> = ranks
        .into_iter()
        .map(|rank| rank.join().unwrap().unwrap())
        .collect();
    let world: Vec<u32> = (0..controls.len() as u32).collect();
    std::thread::scope(|scope| {
        for control in controls {
            let world = &world;
            scope.spawn(move || {
                let deadline = Instant::now() + Duration::from_secs(10);
                let parts = control.all_gather(world, "id", &[control.rank() as u8], deadline);
                let expected: Vec<Vec<u8>> = world.iter().map(|rank| vec![*rank as u8]).collect();
                assert_eq!(parts.unwrap(), expected);
            });
        }
    });
}

#[test]
fn ranks_meet_in_any_order() {
    for first in 0..4 {
        let place = Place::new();
        let ranks = (0..4).map(|index| start(place.world((first + index) % 4, 4), 20.0));
        let ranks: Vec<_> = ranks.collect();
        check_complete(ranks);
    }
}

#[test]
fn the_same_port_serves_the_next_job_at_once() {
    let Place { listener, port } = Place::new();
    drop(listener);
    let place = Place {
        listener: Arc::new(TcpListener::bind(("127.0.0.1", 0)).unwrap()),
        port,
    };
    for _ in 0..3 {
        let mut worlds: Vec<World> = (0..3).map(|rank| place.world(rank, 3)).collect();
        worlds[0].master.as_mut().unwrap().listener = None;
        check_complete(worlds.into_iter().map(|world| start(world, 20.0)).collect());
    }
}

#[test]
fn strangers_do_not_disturb() {
    let place = Place::new();
    let zero = start(place.world(0, 3), 20.0);
    let knock = |bytes: &[u8]| {
        let mut stranger = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
        stranger.write_all(bytes).unwrap();
        stranger
    };
    let _silent = knock(b"");
    let _started = knock(b"hco");
    let mut web = knock(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut liar = knock(b"hcom\x01\0\0\0\x05\0\0\0\x09abcd");
    drop(knock(b"hcom\x01\0\0\0"));
    // Those who say something wrong are shown out, which also shows that rank 0 has seen them.
    for stranger in [&mut web, &mut liar] {
        let mut answer = Vec::new();
        // The connection ends, orderly or not, after the preamble.
        let _ = stranger.read_to_end(&mut answer);
        assert_eq!(answer, b"hcom\x01\0\0\0");
    }
    let others = [1, 2].map(|rank| start(place.world(rank, 3), 20.0));
    check_complete([zero].into_iter().chain(others).collect());
}

#[test]
fn missing_ranks_are_named_on_every_rank() {
    let place = Place::new();
    let started = Instant::now();
    let ranks = [0, 1, 3].map(|rank| start(place.world(rank, 6), 0.5));
    for rank in ranks {
        assert_eq!(
            error(rank).to_string(),
            "waiting for ranks 2, 4, 5 of 6; 0.5 seconds are over (HCOM_CONNECT_TIMEOUT)"
        );
    }
    let waited = started.elapsed();
    assert!(
        waited >= Duration::from_millis(500) && waited < Duration::from_secs(3),
        "{waited:?}"
    );
}

#[test]
fn a_missing_rank_0_is_named() {
    let Place { listener, port } = Place::new();
    drop(listener);
    let place = Place {
        listener: Arc::new(TcpListener::bind(("127.0.0.1", 0)).unwrap()),
        port,
    };
    let text = error(start(place.world(1, 2), 0.3)).to_string();
    let expected = format!(
        "waiting for rank 0 at 127.0.0.1:{port}; 0.3 seconds are over (HCOM_CONNECT_TIMEOUT); the last \
         attempt: "
    );
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains("refused"), "{text}");
}

#[test]
fn two_processes_with_one_rank_are_told_so() {
    let place = Place::new();
    let ranks = [0, 2, 2].map(|rank| start(place.world(rank, 3), 20.0));
    for rank in ranks {
        assert_eq!(
            error(rank).to_string(),
            "two processes are rank 2, at 127.0.0.1 and at 127.0.0.1: start each process with a RANK \
             of its own, from 0 to 2"
        );
    }
}

#[test]
fn two_processes_with_rank_0_are_told_so() {
    let place = Place::new();
    let first = start(place.world(0, 2), 20.0);
    let mut second = place.world(0, 2);
    second.master.as_mut().unwrap().listener = None;
    let second = start(second, 20.0);
    for rank in [first, second] {
        let text = error(rank).to_string();
        assert!(
            text.starts_with("two processes are rank 0, at 127.0.0.1"),
            "{text}"
        );
    }
}

#[test]
fn a_port_in_use_is_named() {
    let place = Place::new();
    let mut world = place.world(0, 2);
    world.master.as_mut().unwrap().listener = None;
    let started = Instant::now();
    assert_eq!(
        error(start(world, 20.0)).to_string(),
        format!(
            "port in use: rank 0 must listen at 127.0.0.1:{}, but another program does; expected a \
             free port: set MASTER_PORT to one, or end that program",
            place.port
        )
    );
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn an_address_of_another_host_is_named() {
    let place = Place::new();
    for (host, expected) in [
        ("192.0.2.1", "rank 0 cannot listen at 192.0.2.1:"),
        (
            "no such host",
            "MASTER_ADDR \"no such host\" is no address and no known host",
        ),
    ] {
        let mut world = place.world(0, 2);
        let master = world.master.as_mut().unwrap();
        master.host = host.into();
        master.listener = None;
        let text = error(start(world, 1.0)).to_string();
        assert!(text.starts_with(expected), "{text}");
    }
}

#[test]
fn different_world_sizes_are_named_on_both_sides() {
    let place = Place::new();
    let ranks = [place.world(0, 3), place.world(1, 2)].map(|world| start(world, 20.0));
    for rank in ranks {
        assert_eq!(
            error(rank).to_string(),
            "rank 1 expects 2 ranks, rank 0 expects 3: start all with the same WORLD_SIZE"
        );
    }
}

#[test]
fn another_version_is_named_on_both_sides() {
    let expected = "speaks version 2 of the control protocol, expected 1: run the same version of hcom \
                    on every rank";
    let place = Place::new();
    let zero = start(place.world(0, 2), 20.0);
    let mut newer = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
    newer.write_all(b"hcom\x02\0\0\0").unwrap();
    let text = error(zero).to_string();
    assert!(text.ends_with(expected), "{text}");

    let place = Place::new();
    let one = start(place.world(1, 2), 20.0);
    let (mut newer, _) = place.listener.accept().unwrap();
    newer.write_all(b"hcom\x02\0\0\0").unwrap();
    let text = error(one).to_string();
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn a_rank_of_another_job_is_turned_away() {
    let place = Place::new();
    let zero = start(place.world(0, 2), 20.0);
    let mut stray = place.world(1, 2);
    stray.master.as_mut().unwrap().job = "other".into();
    assert_eq!(
        error(start(stray, 20.0)).to_string(),
        "the address of rank 0 belongs to another job (\"job\", this one is \"other\"): give each job \
         a MASTER_PORT of its own"
    );
    check_complete(vec![zero, start(place.world(1, 2), 20.0)]);
}
