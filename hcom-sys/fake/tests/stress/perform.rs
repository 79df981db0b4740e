//! One rank of a job: runs its part through the C interface and compares all its buffers with the oracle.

use std::ffi::{CString, c_void};
use std::fs;
use std::ptr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hcom_sys::bindings::{self as sys, HcclDataType, HcclSendRecvItem};

use super::c;
use super::oracle::{self, Memory};
use super::program::{
    BUFFERS, Collective, Epoch, Kind, Mode, Part, Place, Segment, Settings, Step, Together,
    Transfer, What, element,
};
use super::support::Rank;
use super::support::api::{Buffer, Comm, Stream, acl, hccl, split};

/// What a rank did.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Operations, replays of them included.
    pub(crate) operations: u64,
    /// Bytes compared.
    pub(crate) compared: u64,
    /// What the process held after each epoch; in a process of several ranks rank 0 says it.
    pub(crate) held: Vec<Held>,
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) descriptors: usize,
    /// Mappings of memory files.
    pub(crate) mappings: usize,
    pub(crate) threads: usize,
    /// Shared memory, in KiB.
    pub(crate) shared: usize,
}

/// How long the threads of destroyed streams, which nothing joins, may take to end before they count.
const ENDING: Duration = Duration::from_millis(200);

impl Held {
    /// What is held now, once there are no more threads than in the least of `earlier`, or they do not go.
    fn after(earlier: &[Self]) -> Self {
        let least = earlier.iter().map(|held| held.threads).min();
        let begun = Instant::now();
        loop {
            let now = Self::now();
            if least.is_none_or(|least| now.threads <= least) || begun.elapsed() >= ENDING {
                return now;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").expect("this process has a status");
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let digits = line.and_then(|rest| rest.split_whitespace().next());
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        let maps = fs::read_to_string("/proc/self/maps").expect("this process has mappings");
        Self {
            descriptors: fs::read_dir("/proc/self/fd")
                .expect("and descriptors")
                .count(),
            mappings: maps.lines().filter(|line| line.contains("/memfd:")).count(),
            threads: number("Threads:"),
            shared: number("RssShmem:"),
        }
    }
}

/// Why a rank stopped.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Data differs from the oracle's.
    Wrong(String),
    /// A call or a task failed, or took too long.
    Failed(String),
}

type Outcome<T = ()> = Result<T, Trouble>;

fn failed<C: std::fmt::Display>(what: &str) -> impl Fn((C, String)) -> Trouble + '_ {
    move |(code, text)| Trouble::Failed(format!("{what}: {code}: {text}"))
}

/// Runs the job. `threads` holds back the ranks of this process while one of them counts what it holds.
pub(crate) fn run(
    rank: &Rank,
    seed: u64,
    settings: &Settings,
    threads: &Barrier,
) -> Outcome<Report> {
    let mut report = Report::default();
    let world = rank.join();
    for number in 0..settings.epochs {
        epoch(rank, &world, seed, settings, number, &mut report)?;
        // Everybody has destroyed its parts when all have come.
        let stream = Stream::create();
        world.barrier(&stream).map_err(failed("a barrier"))?;
        stream.synchronize().map_err(failed("a barrier"))?;
        drop(stream);
        threads.wait();
        if rank.rank == 0 || !settings.threads {
            report.held.push(Held::after(&report.held));
        }
        threads.wait();
    }
    Ok(report)
}

/// One rank's equipment for an epoch.
struct Equipment<'a> {
    rank: u32,
    epoch: &'a Epoch,
    /// By group; `None` where this rank is no member.
    comms: Vec<Option<&'a Comm>>,
    streams: [Stream; 2],
    buffers: Vec<Buffer>,
}

fn epoch(
    rank: &Rank,
    world: &Comm,
    seed: u64,
    settings: &Settings,
    number: u32,
    report: &mut Report,
) -> Outcome {
    let epoch = Epoch::of(seed, number, settings);
    let delays = CString::new(epoch.delays.as_str()).expect("no zero inside");
    acl(c!(hcomExtClearFaults())).map_err(failed("hcomExtClearFaults"))?;
    acl(c!(hcomExtPlanFaults(delays.as_ptr()))).map_err(failed("hcomExtPlanFaults"))?;
    let mut parts = vec![None];
    for (index, members) in epoch.groups.iter().enumerate().skip(1) {
        let id = u64::from(number) << 8 | index as u64;
        let own = members.iter().position(|&member| member == rank.rank);
        let part = own.map(|own| split(world, members, id, own as u32));
        parts.push(part.transpose().map_err(failed("a part"))?);
    }
    let comms = (0..parts.len()).map(|index| match index {
        0 => Some(world),
        _ => parts[index].as_ref(),
    });
    let equipment = Equipment {
        rank: rank.rank,
        comms: comms.collect(),
        streams: [Stream::create(), Stream::create()],
        buffers: (0..BUFFERS).map(|_| Buffer::new(epoch.bytes)).collect(),
        epoch: &epoch,
    };
    for (index, segment) in epoch.segments.iter().enumerate() {
        let place = format!("seed {seed}, epoch {number}, segment {index}");
        equipment.run(segment, settings.size, &place, report)?;
    }
    Ok(())
}

impl Equipment<'_> {
    fn run(&self, segment: &Segment, ranks: u32, place: &str, report: &mut Report) -> Outcome {
        let mut memory = oracle::fill(segment, ranks, self.epoch.bytes);
        for (buffer, bytes) in self.buffers.iter().zip(&memory[self.rank as usize]) {
            buffer.write(bytes);
        }
        let steps = &segment.steps;
        match segment.mode {
            Mode::Synchronised => {
                for step in steps {
                    self.issue(std::slice::from_ref(step), segment.dtype, place)?;
                    self.check(
                        &mut memory,
                        segment,
                        std::slice::from_ref(step),
                        1,
                        place,
                        report,
                    )?;
                }
                Ok(())
            }
            Mode::Queued => {
                self.issue(steps, segment.dtype, place)?;
                self.check(&mut memory, segment, steps, 1, place, report)
            }
            Mode::Replayed(rounds) => {
                self.replay(segment, rounds, place)?;
                self.check(&mut memory, segment, steps, rounds, place, report)
            }
        }
    }

    /// Waits for the streams, lets the oracle do the same steps, and compares.
    fn check(
        &self,
        memory: &mut Memory,
        segment: &Segment,
        steps: &[Step],
        rounds: u32,
        place: &str,
        report: &mut Report,
    ) -> Outcome {
        for stream in &self.streams {
            stream.synchronize().map_err(failed(place))?;
        }
        for _ in 0..rounds {
            for step in steps {
                let members = &self.epoch.groups[step.group];
                oracle::apply(memory, members, segment.dtype, step);
            }
        }
        let own = steps.iter().filter(|step| self.takes_part(step));
        report.operations += own.count() as u64 * u64::from(rounds);
        self.compare(memory, segment, steps, place, report)
    }

    fn takes_part(&self, step: &Step) -> bool {
        self.epoch.groups[step.group].contains(&self.rank)
    }

    fn compare(
        &self,
        memory: &Memory,
        segment: &Segment,
        steps: &[Step],
        place: &str,
        report: &mut Report,
    ) -> Outcome {
        for (index, expected) in memory[self.rank as usize].iter().enumerate() {
            let got = self.buffers[index].read::<u8>(expected.len());
            report.compared += expected.len() as u64;
            let Some(at) = (0..got.len()).find(|&at| got[at] != expected[at]) else {
                continue;
            };
            let wrong = (0..got.len()).filter(|&at| got[at] != expected[at]).count();
            let size = element(segment.dtype);
            let value = |bytes: &[u8]| format!("{:02x?}", &bytes[at / size * size..][..size]);
            return Err(Trouble::Wrong(format!(
                "{place}: rank {}, buffer {index} of {} bytes: {wrong} bytes differ, the first in element {} of {size} \
                 bytes: expected {}, got {}; {:?}, {:?}, communicators {:?}, steps: {steps:?}",
                self.rank,
                expected.len(),
                at / size,
                value(expected),
                value(&got),
                segment.mode,
                segment.dtype,
                self.epoch.groups
            )));
        }
        Ok(())
    }

    /// Captures the steps and runs the graph so many times.
    fn replay(&self, segment: &Segment, rounds: u32, place: &str) -> Outcome {
        let [stream, _] = &self.streams;
        let mode = sys::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
        acl(c!(aclmdlRICaptureBegin(stream.0, mode))).map_err(failed(place))?;
        self.issue(&segment.steps, segment.dtype, place)?;
        let mut graph = ptr::null_mut();
        acl(c!(aclmdlRICaptureEnd(stream.0, &mut graph))).map_err(failed(place))?;
        for _ in 0..rounds {
            acl(c!(aclmdlRIExecuteAsync(graph, stream.0))).map_err(failed(place))?;
        }
        stream.synchronize().map_err(failed(place))?;
        acl(c!(aclmdlRIDestroy(graph))).map_err(failed(place))
    }

    /// Issues this rank's part of all steps; events keep their order across the two streams. It begins and ends on the
    /// first.
    fn issue(&self, steps: &[Step], dtype: HcclDataType, place: &str) -> Outcome {
        let mut current = 0;
        let mut events = Vec::new();
        let mut switch = |to: usize, current: &mut usize| {
            if *current == to {
                return Ok(());
            }
            let mut event = ptr::null_mut();
            acl(c!(aclrtCreateEventExWithFlag(
                &mut event,
                sys::ACL_EVENT_SYNC
            )))?;
            events.push(event);
            acl(c!(aclrtRecordEvent(event, self.streams[*current].0)))?;
            acl(c!(aclrtStreamWaitEvent(self.streams[to].0, event)))?;
            *current = to;
            Ok(())
        };
        for step in steps.iter().filter(|step| self.takes_part(step)) {
            let comm = self.comms[step.group].expect("a member has the communicator");
            let own = self.epoch.groups[step.group]
                .iter()
                .position(|&member| member == self.rank)
                .expect("a member");
            switch(self.epoch.streams[step.group], &mut current).map_err(failed(place))?;
            let stream = &self.streams[current];
            let call = |code| {
                hccl(code).map_err(|(code, text)| {
                    Trouble::Failed(format!("{place}: {step:?}: {code}: {text}"))
                })
            };
            match &step.what {
                What::Collective(what) => {
                    call(self.collective(what, &what.parts[own], own, dtype, comm, stream))?;
                }
                What::Transfers(together, list) => {
                    for code in self.transfers(*together, list, own, dtype, comm, stream) {
                        call(code)?;
                    }
                }
            }
        }
        switch(0, &mut current).map_err(failed(place))?;
        for event in events {
            acl(c!(aclrtDestroyEvent(event))).map_err(failed(place))?;
        }
        Ok(())
    }

    fn at(&self, place: Place, dtype: HcclDataType) -> *mut c_void {
        self.buffers[place.buffer].at(place.at * element(dtype))
    }

    fn collective(
        &self,
        what: &Collective,
        part: &Part,
        own: usize,
        dtype: HcclDataType,
        comm: &Comm,
        stream: &Stream,
    ) -> sys::HcclResult {
        let (send, recv) = (self.at(part.send, dtype), self.at(part.recv, dtype));
        let (comm, stream) = (comm.0, stream.0);
        let (count, op, root) = (what.count as u64, what.op, what.root as u32);
        let list = |values: &[usize]| {
            values
                .iter()
                .map(|&value| value as u64)
                .collect::<Vec<u64>>()
        };
        let row = |of: usize| list(what.matrix.get(of).map_or(&[][..], Vec::as_slice));
        let column: Vec<u64> = what.matrix.iter().map(|row| row[own] as u64).collect();
        let (send_displs, recv_displs) = (list(&part.send_displs), list(&part.recv_displs));
        let pointer = |list: &[u64]| list.as_ptr().cast::<c_void>();
        let row = row(own);
        match what.kind {
            Kind::AllReduce => c!(HcclAllReduce(send, recv, count, dtype, op, comm, stream)),
            Kind::Reduce => c!(HcclReduce(send, recv, count, dtype, op, root, comm, stream)),
            Kind::ReduceScatter => {
                c!(HcclReduceScatter(
                    send, recv, count, dtype, op, comm, stream
                ))
            }
            Kind::ReduceScatterV => c!(HcclReduceScatterV(
                send,
                pointer(&row),
                pointer(&send_displs),
                recv,
                row[own],
                dtype,
                op,
                comm,
                stream
            )),
            Kind::Broadcast => c!(HcclBroadcast(send, count, dtype, root, comm, stream)),
            Kind::Scatter => c!(HcclScatter(send, recv, count, dtype, root, comm, stream)),
            Kind::AllGather => c!(HcclAllGather(send, recv, count, dtype, comm, stream)),
            Kind::AllGatherV => c!(HcclAllGatherV(
                send,
                row[own],
                recv,
                pointer(&column),
                pointer(&recv_displs),
                dtype,
                comm,
                stream
            )),
            Kind::AllToAll => c!(HcclAlltoAll(
                send, count, dtype, recv, count, dtype, comm, stream
            )),
            Kind::AllToAllV => c!(HcclAlltoAllV(
                send,
                pointer(&row),
                pointer(&send_displs),
                dtype,
                recv,
                pointer(&column),
                pointer(&recv_displs),
                dtype,
                comm,
                stream
            )),
            Kind::AllToAllVC => {
                let matrix: Vec<u64> = what.matrix.iter().flat_map(|row| list(row)).collect();
                c!(HcclAlltoAllVC(
                    send,
                    pointer(&matrix),
                    dtype,
                    recv,
                    dtype,
                    comm,
                    stream
                ))
            }
            Kind::Barrier => c!(HcclBarrier(comm, stream)),
        }
    }

    /// The codes of all calls.
    fn transfers(
        &self,
        together: Together,
        list: &[Transfer],
        own: usize,
        dtype: HcclDataType,
        comm: &Comm,
        stream: &Stream,
    ) -> Vec<sys::HcclResult> {
        // What this member does: whether it sends, where, how much, to or from whom.
        let mut items = Vec::new();
        for one in list {
            let (source, target) = (self.at(one.source, dtype), self.at(one.target, dtype));
            if one.from == own {
                items.push((true, source, one.count as u64, one.to as u32));
            }
            if one.to == own {
                items.push((false, target, one.count as u64, one.from as u32));
            }
        }
        if items.is_empty() {
            return Vec::new();
        }
        if together == Together::Batch {
            let mut items: Vec<HcclSendRecvItem> = items
                .into_iter()
                .map(|(sends, buf, count, peer)| HcclSendRecvItem {
                    sendRecvType: if sends {
                        sys::HCCL_SEND
                    } else {
                        sys::HCCL_RECV
                    },
                    buf,
                    count,
                    dataType: dtype,
                    remoteRank: peer,
                })
                .collect();
            let (first, count) = (items.as_mut_ptr(), items.len() as u32);
            return vec![c!(HcclBatchSendRecv(first, count, comm.0, stream.0))];
        }
        let mut codes = Vec::new();
        if together == Together::Group {
            codes.push(c!(HcclGroupStart()));
        }
        for (sends, buffer, count, peer) in items {
            codes.push(if sends {
                c!(HcclSend(buffer, count, dtype, peer, comm.0, stream.0))
            } else {
                c!(HcclRecv(buffer, count, dtype, peer, comm.0, stream.0))
            });
        }
        if together == Together::Group {
            codes.push(c!(HcclGroupEnd()));
        }
        codes
    }
}
