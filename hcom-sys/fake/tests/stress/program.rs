//! What the ranks of a job do, made from its seed. Every rank makes the whole of it, and so knows what all do.

use hcom_sys::bindings::{self as sys, HcclDataType, HcclReduceOp};

/// Buffers of each rank.
pub(crate) const BUFFERS: usize = 3;

/// Numbers that follow from a seed (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number from 0 to `most`.
    fn to(&mut self, most: usize) -> usize {
        (self.next() % (most as u64 + 1)) as usize
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.to(choices.len() - 1)]
    }

    /// `0..n` in any order.
    fn shuffled(&mut self, n: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..n).collect();
        for last in (1..all.len()).rev() {
            all.swap(last, self.to(last));
        }
        all
    }
}

/// How a job is run.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) size: u32,
    /// Ranks are threads of one process instead of processes.
    pub(crate) threads: bool,
    pub(crate) strict: bool,
    /// All ranks share one core.
    pub(crate) one_core: bool,
    /// Transfers take modelled time.
    pub(crate) link: bool,
    pub(crate) epochs: u32,
}

impl Settings {
    pub(crate) fn of(seed: u64, ranks: Option<u32>) -> Self {
        let mut random = Random::new(seed, 1);
        Self {
            size: ranks.unwrap_or(2 + random.to(2) as u32),
            threads: random.chance(40),
            strict: random.chance(25),
            one_core: random.chance(20),
            link: random.chance(15),
            epochs: 8,
        }
    }
}

/// A stretch with the same communicators, buffers and streams.
pub(crate) struct Epoch {
    /// Bytes of each buffer.
    pub(crate) bytes: usize,
    /// Members of each communicator by rank of the world, which is the first.
    pub(crate) groups: Vec<Vec<u32>>,
    /// Which of the two streams each communicator uses.
    pub(crate) streams: Vec<usize>,
    /// Faults to plan: delays only.
    pub(crate) delays: String,
    pub(crate) segments: Vec<Segment>,
}

/// Steps that follow each other on the same data; then all buffers are checked.
pub(crate) struct Segment {
    pub(crate) dtype: HcclDataType,
    pub(crate) mode: Mode,
    /// What the buffers hold before.
    pub(crate) fill: u64,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// Each step is waited for.
    Synchronised,
    /// All steps are queued, then waited for.
    Queued,
    /// All steps are captured, and the graph is run so many times.
    Replayed(u32),
}

#[derive(Debug)]
pub(crate) struct Step {
    /// Which communicator.
    pub(crate) group: usize,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Collective(Collective),
    Transfers(Together, Vec<Transfer>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    Reduce,
    ReduceScatter,
    ReduceScatterV,
    Broadcast,
    Scatter,
    AllGather,
    AllGatherV,
    AllToAll,
    AllToAllV,
    AllToAllVC,
    Barrier,
}

/// Where data starts: which buffer, and at which element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) buffer: usize,
    pub(crate) at: usize,
}

/// Members are counted within the group.
#[derive(Debug)]
pub(crate) struct Collective {
    pub(crate) kind: Kind,
    pub(crate) op: HcclReduceOp,
    pub(crate) root: usize,
    /// Of the operations with one count.
    pub(crate) count: usize,
    /// Of the uneven ones: elements from each member to each member.
    pub(crate) matrix: Vec<Vec<usize>>,
    /// By member.
    pub(crate) parts: Vec<Part>,
}

/// One member's part in a collective.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) send: Place,
    pub(crate) recv: Place,
    /// Where the blocks of the uneven operations start, in elements from the place.
    pub(crate) send_displs: Vec<usize>,
    pub(crate) recv_displs: Vec<usize>,
}

/// How several transfers are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// There is only one.
    Alone,
    /// `HcclBatchSendRecv`.
    Batch,
    /// `HcclGroupStart` to `HcclGroupEnd`.
    Group,
}

#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) count: usize,
    pub(crate) source: Place,
    pub(crate) target: Place,
}

/// The types that every collective moves, with their sizes.
const MOVED: [(HcclDataType, usize); 12] = [
    (sys::HCCL_DATA_TYPE_INT8, 1),
    (sys::HCCL_DATA_TYPE_INT16, 2),
    (sys::HCCL_DATA_TYPE_INT32, 4),
    (sys::HCCL_DATA_TYPE_INT64, 8),
    (sys::HCCL_DATA_TYPE_FP16, 2),
    (sys::HCCL_DATA_TYPE_BFP16, 2),
    (sys::HCCL_DATA_TYPE_FP32, 4),
    (sys::HCCL_DATA_TYPE_UINT8, 1),
    (sys::HCCL_DATA_TYPE_UINT16, 2),
    (sys::HCCL_DATA_TYPE_UINT32, 4),
    (sys::HCCL_DATA_TYPE_UINT64, 8),
    (sys::HCCL_DATA_TYPE_FP64, 8),
];
/// How many of them, from the first, are reduced too (Atlas A3).
const REDUCED: usize = 7;

pub(crate) fn element(dtype: HcclDataType) -> usize {
    let found = MOVED.iter().find(|(other, _)| *other == dtype);
    found.expect("one of the types above").1
}

/// The reductions of a type on Atlas A3; the uneven reduce_scatter has no product.
fn reductions(dtype: HcclDataType, kind: Kind) -> &'static [HcclReduceOp] {
    const ALL: [HcclReduceOp; 4] = [
        sys::HCCL_REDUCE_SUM,
        sys::HCCL_REDUCE_MAX,
        sys::HCCL_REDUCE_MIN,
        sys::HCCL_REDUCE_PROD,
    ];
    let narrow = matches!(dtype, sys::HCCL_DATA_TYPE_INT16 | sys::HCCL_DATA_TYPE_BFP16);
    if narrow || kind == Kind::ReduceScatterV {
        &ALL[..3]
    } else {
        &ALL
    }
}

impl Epoch {
    /// Epoch `number` of the job with this seed.
    pub(crate) fn of(seed: u64, number: u32, settings: &Settings) -> Self {
        let mut random = Random::new(seed, 1000 + u64::from(number));
        let size = settings.size;
        let sizes = [512, 512, 8192, 8192, 8192, 65_536, 65_536, 300_000, 1 << 20];
        let bytes = random.pick(&sizes);
        let mut groups = vec![(0..size).collect::<Vec<u32>>()];
        for _ in 0..random.to(2) {
            let mut members = random.shuffled(size);
            members.truncate(1 + random.to(size as usize - 1));
            groups.push(members);
        }
        let streams = groups.iter().map(|_| random.to(1)).collect();
        let mut delays = Vec::new();
        if random.chance(40) {
            for _ in 0..1 + random.to(3) {
                let (rank, op) = (random.to(size as usize - 1), 1 + random.to(20));
                let micros = random.pick(&[20, 200, 2000]);
                delays.push(format!("rank={rank},op={op},do=delay:{micros}us"));
            }
        }
        let segments = if bytes > 100_000 { 2 } else { 6 };
        Self {
            bytes,
            segments: (0..segments)
                .map(|_| segment(&mut random, &groups, bytes))
                .collect(),
            groups,
            streams,
            delays: delays.join(";"),
        }
    }
}

fn segment(random: &mut Random, groups: &[Vec<u32>], bytes: usize) -> Segment {
    let reduces = random.chance(70);
    let (dtype, element) = if reduces {
        random.pick(&MOVED[..REDUCED])
    } else {
        random.pick(&MOVED)
    };
    let mode = match random.to(9) {
        0..3 => Mode::Synchronised,
        3..6 => Mode::Queued,
        _ => Mode::Replayed(1 + random.to(3) as u32),
    };
    let room = bytes / element;
    let steps = (0..1 + random.to(9))
        .map(|_| {
            let group = random.to(groups.len() - 1);
            let members = groups[group].len();
            let what = if members > 1 && random.chance(20) {
                transfers(random, members, room)
            } else {
                What::Collective(collective(random, dtype, members, room))
            };
            Step { group, what }
        })
        .collect();
    Segment {
        dtype,
        mode,
        fill: random.next(),
        steps,
    }
}

/// A count up to `most`, often at an edge.
fn count(random: &mut Random, most: usize) -> usize {
    match random.to(9) {
        0 => 0,
        1 => 1.min(most),
        2 => most,
        3..6 => random.to(most.min(64)),
        _ => random.to(most),
    }
}

fn place(random: &mut Random, room: usize, length: usize) -> Place {
    let at = if random.chance(50) {
        0
    } else {
        random.to(room - length)
    };
    Place {
        buffer: random.to(BUFFERS - 1),
        at,
    }
}

/// Where blocks of these lengths start when gaps of any length lie between them, and all fit into `room`.
fn spread(random: &mut Random, lengths: &[usize], room: usize) -> Vec<usize> {
    let mut free = room - lengths.iter().sum::<usize>();
    let mut at = 0;
    let mut displs = Vec::new();
    for length in lengths {
        let gap = random.to(free / 2);
        free -= gap;
        displs.push(at + gap);
        at += gap + length;
    }
    displs
}

/// The elements up to the end of the last block.
fn extent(displs: &[usize], lengths: &[usize]) -> usize {
    let ends = displs.iter().zip(lengths).map(|(at, length)| at + length);
    ends.max().unwrap_or(0)
}

fn collective(random: &mut Random, dtype: HcclDataType, members: usize, room: usize) -> Collective {
    use Kind as K;
    let reducing = [K::AllReduce, K::Reduce, K::ReduceScatter, K::ReduceScatterV];
    let moving = [
        K::Broadcast,
        K::Scatter,
        K::AllGather,
        K::AllGatherV,
        K::AllToAll,
        K::AllToAllV,
        K::AllToAllVC,
        K::Barrier,
    ];
    let can_reduce = MOVED[..REDUCED].iter().any(|(other, _)| *other == dtype);
    let kind = if can_reduce && random.chance(50) {
        random.pick(&reducing)
    } else {
        random.pick(&moving)
    };
    let op = random.pick(reductions(dtype, kind));
    let root = random.to(members - 1);
    let most = room / members;
    let count = match kind {
        K::AllReduce | K::Reduce | K::Broadcast => count(random, room),
        _ => count(random, most),
    };
    // Elements from row to column. What one sends is the same for all in two of them.
    let block = |random: &mut Random| match random.to(3) {
        0 => 0,
        _ => self::count(random, most),
    };
    let matrix: Vec<Vec<usize>> = match kind {
        K::AllToAllV | K::AllToAllVC => (0..members)
            .map(|_| (0..members).map(|_| block(random)).collect())
            .collect(),
        K::ReduceScatterV => {
            let row: Vec<usize> = (0..members).map(|_| block(random)).collect();
            vec![row; members]
        }
        K::AllGatherV => (0..members).map(|_| vec![block(random); members]).collect(),
        _ => Vec::new(),
    };
    let mut parts: Vec<Part> = (0..members)
        .map(|own| part(random, kind, own, root, count, &matrix, members, room))
        .collect();
    if kind == K::ReduceScatterV {
        // The blocks that are combined start at the same place on all ranks.
        let displs = parts[0].send_displs.clone();
        let extent = extent(&displs, &matrix[0]);
        for part in &mut parts {
            part.send.at = part.send.at.min(room - extent);
            part.send_displs.clone_from(&displs);
        }
    }
    Collective {
        kind,
        op,
        root,
        count,
        matrix,
        parts,
    }
}

#[expect(clippy::too_many_arguments, reason = "what a part depends on")]
fn part(
    random: &mut Random,
    kind: Kind,
    own: usize,
    root: usize,
    count: usize,
    matrix: &[Vec<usize>],
    members: usize,
    room: usize,
) -> Part {
    use Kind as K;
    let column = || matrix.iter().map(|row| row[own]).collect::<Vec<usize>>();
    let packed = |lengths: &[usize]| {
        let starts = lengths.iter().scan(0, |at, length| {
            *at += length;
            Some(*at - length)
        });
        starts.collect::<Vec<usize>>()
    };
    let (mut send_displs, mut recv_displs) = (Vec::new(), Vec::new());
    match kind {
        K::AllToAllV => {
            send_displs = spread(random, &matrix[own], room);
            recv_displs = spread(random, &column(), room);
        }
        K::AllToAllVC => {
            send_displs = packed(&matrix[own]);
            recv_displs = packed(&column());
        }
        K::ReduceScatterV => send_displs = spread(random, &matrix[own], room),
        K::AllGatherV => recv_displs = spread(random, &column(), room),
        _ => {}
    }
    let all = members * count;
    let (sends, receives) = match kind {
        K::AllReduce | K::Reduce | K::Broadcast => (count, count),
        K::ReduceScatter | K::Scatter => (all, count),
        K::AllGather => (count, all),
        K::AllToAll => (all, all),
        K::AllToAllV | K::AllToAllVC => (
            extent(&send_displs, &matrix[own]),
            extent(&recv_displs, &column()),
        ),
        K::ReduceScatterV => (extent(&send_displs, &matrix[own]), matrix[own][own]),
        K::AllGatherV => (matrix[own][own], extent(&recv_displs, &column())),
        K::Barrier => (0, 0),
    };
    let mut send = place(random, room, sends);
    let mut recv = place(random, room, receives);
    let own_block = own * count;
    // A block of what is sent: the own one, or any.
    let inside = |random: &mut Random, send: Place| {
        let any = random.to(all - count);
        Place {
            at: send.at + random.pick(&[own_block, any]),
            ..send
        }
    };
    match (kind, random.chance(40)) {
        (K::Broadcast, _) | (K::AllReduce | K::Reduce, true) => recv = send,
        (K::AllGather, true) => {
            send = Place {
                at: recv.at + own_block,
                ..recv
            };
        }
        (K::ReduceScatter, true) => recv = inside(random, send),
        (K::Scatter, true) if own == root => recv = inside(random, send),
        // The two must not overlap.
        _ if recv.buffer == send.buffer => recv.buffer = (send.buffer + 1) % BUFFERS,
        _ => {}
    }
    Part {
        send,
        recv,
        send_displs,
        recv_displs,
    }
}

fn transfers(random: &mut Random, members: usize, room: usize) -> What {
    let together = random.pick(&[Together::Alone, Together::Batch, Together::Group]);
    let number = match together {
        Together::Alone => 1,
        Together::Batch | Together::Group => 1 + random.to(2 * members),
    };
    // What is received must not overlap with anything: each has a piece of its own of another buffer.
    let piece = room / number;
    let target = random.to(BUFFERS - 1);
    let list = (0..number).map(|index| {
        let from = random.to(members - 1);
        let mut to = random.to(members - 1);
        if to == from && together != Together::Batch {
            to = (from + 1) % members;
        }
        let count = count(random, piece).max(usize::from(together != Together::Alone));
        let count = count.min(piece);
        let source = Place {
            buffer: (target + 1 + random.to(BUFFERS - 2)) % BUFFERS,
            ..place(random, room, count)
        };
        Transfer {
            from,
            to,
            count,
            source,
            target: Place {
                buffer: target,
                at: index * piece,
            },
        }
    });
    What::Transfers(together, list.collect())
}
