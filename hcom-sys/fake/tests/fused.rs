//! Matrix products fused with collectives, launched at once and replayed from a graph, on threads and on processes.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use half::f16;
use hcom_sys::bindings as sys;
use support::api::{Buffer, acl, last_error};
use support::communicator::name_of;
use support::{KINDS, Rank, equip, ranks};

const LOCAL: sys::aclmdlRICaptureMode = sys::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
const NONE: *const sys::aclTensor = ptr::null();

/// A FLOAT16 tensor of two dimensions, or of one.
struct Tensor {
    memory: Buffer,
    handle: *mut sys::aclTensor,
    count: usize,
}

impl Tensor {
    fn of(dims: &[i64], values: &[f32]) -> Self {
        let tensor = Self::strided(dims, ptr::null(), values.len());
        tensor.set(values);
        tensor
    }

    /// Rows of two elements that lie `stride` apart.
    fn strided(dims: &[i64], strides: *const i64, count: usize) -> Self {
        let memory = Buffer::of(&vec![f16::from_f32(-77.0); count]);
        let (rank, sizes, storage) = (dims.len() as u64, dims.as_ptr(), count as i64);
        let (half, plain) = (sys::ACL_FLOAT16, sys::ACL_FORMAT_ND);
        let handle = c!(aclCreateTensor(
            sizes, rank, half, strides, 0, plain, &storage, 1, memory.0
        ));
        Self {
            memory,
            handle,
            count,
        }
    }

    fn set(&self, values: &[f32]) {
        let values: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
        self.memory.write(&values);
    }

    fn values(&self) -> Vec<f32> {
        let values: Vec<f16> = self.memory.read(self.count);
        values.into_iter().map(f16::to_f32).collect()
    }
}

/// `x · y + bias` for matrices of so many columns.
fn product(x: &[f32], inner: usize, y: &[f32], bias: &[f32]) -> Vec<f32> {
    let columns = bias.len();
    let rows = x.chunks(inner);
    rows.flat_map(|row| {
        (0..columns).map(move |j| {
            let dot: f32 = row
                .iter()
                .enumerate()
                .map(|(k, x)| x * y[k * columns + j])
                .sum();
            dot + bias[j]
        })
    })
    .collect()
}

/// Small whole numbers that differ per rank and element.
fn left(rank: usize, round: usize) -> Vec<f32> {
    (0..12)
        .map(|i| ((i * 3 + rank * 5 + round * 7) % 11) as f32 - 5.0)
        .collect()
}

fn right(rank: usize) -> Vec<f32> {
    (0..6)
        .map(|i| (i as f32 - 2.0) * (rank as f32 + 1.0))
        .collect()
}

fn sum(parts: impl Iterator<Item = Vec<f32>>) -> Vec<f32> {
    parts
        .reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect())
        .unwrap()
}

/// First phase: the executor and its workspace.
macro_rules! prepare {
    ($first:ident($($argument:expr),* $(,)?)) => {{
        let (mut size, mut executor) = (0u64, ptr::null_mut());
        let code = c!($first($($argument,)* &mut size, &mut executor));
        assert_eq!(code, 0, "{}", last_error());
        (executor, Buffer::new(size.max(1) as usize), size)
    }};
}

#[test]
fn products_of_two_ranks() {
    for kind in KINDS {
        ranks(kind, 2, "products_of_two_ranks", |rank| products(&rank, 2));
    }
}

#[test]
fn products_of_four_ranks() {
    for kind in KINDS {
        ranks(kind, 4, "products_of_four_ranks", |rank| products(&rank, 4));
    }
}

/// Captures every fused operator on one stream and replays the graph with new data.
fn products(rank: &Rank, size: u32) {
    let (comm, stream) = equip(rank);
    let (n, me) = (size as usize, rank.rank as usize);
    let name = CString::new(name_of(&comm)).unwrap();
    let (group, op) = (name.as_ptr(), c"sum".as_ptr());
    let x = Tensor::of(&[4, 3], &left(me, 0));
    // The right matrix lies column by column.
    let y = Tensor::strided(&[3, 2], [1i64, 3].as_ptr(), 6);
    let turned = |y: &[f32]| [0, 2, 4, 1, 3, 5].map(|i| y[i]);
    y.set(&turned(&right(me)));
    let bias_values = [0.5f32, -1.5];
    let bias = Tensor::of(&[2], &bias_values);
    let addend_values: Vec<f32> = (0..8).map(|i| i as f32 + me as f32 * 8.0).collect();
    let addend = Tensor::of(&[4, 2], &addend_values);

    let reduced = Tensor::of(&[4, 2], &[0.0; 8]);
    let with_addend = Tensor::strided(&[4, 2], [3i64, 1].as_ptr(), 11);
    let share = Tensor::of(&[4 / size as i64, 2], &vec![0.0; 8 / n]);
    let gathered = Tensor::of(&[4 * size as i64, 3], &vec![0.0; 12 * n]);
    let tall = Tensor::of(&[4 * size as i64, 2], &vec![0.0; 8 * n]);
    let tall_again = Tensor::of(&[4 * size as i64, 2], &vec![0.0; 8 * n]);
    let share_again = Tensor::of(&[4 / size as i64, 2], &vec![0.0; 8 / n]);

    acl(c!(aclmdlRICaptureBegin(stream.0, LOCAL))).unwrap();
    let (executor, first, bytes) = prepare!(aclnnMatmulAllReduceGetWorkspaceSize(
        x.handle,
        y.handle,
        bias.handle,
        group,
        op,
        0,
        1,
        reduced.handle
    ));
    assert_eq!(bytes, 16);
    acl(c!(aclnnMatmulAllReduce(first.0, bytes, executor, stream.0))).unwrap();
    let (executor, second, bytes) = prepare!(aclnnMatmulAllReduceV2GetWorkspaceSize(
        x.handle,
        y.handle,
        bias.handle,
        addend.handle,
        group,
        op,
        0,
        1,
        with_addend.handle
    ));
    acl(c!(aclnnMatmulAllReduceV2(
        second.0, bytes, executor, stream.0
    )))
    .unwrap();
    let (executor, third, bytes) = prepare!(aclnnMatmulReduceScatterGetWorkspaceSize(
        x.handle,
        y.handle,
        bias.handle,
        group,
        op,
        0,
        1,
        share.handle
    ));
    acl(c!(aclnnMatmulReduceScatter(
        third.0, bytes, executor, stream.0
    )))
    .unwrap();
    let (executor, fourth, bytes) = prepare!(aclnnAllGatherMatmulGetWorkspaceSize(
        x.handle,
        y.handle,
        bias.handle,
        group,
        0,
        0,
        1,
        tall.handle,
        gathered.handle
    ));
    assert_eq!(bytes, 24 * u64::from(size));
    acl(c!(aclnnAllGatherMatmul(
        fourth.0, bytes, executor, stream.0
    )))
    .unwrap();
    let nowhere = ptr::null_mut();
    let mode = c"".as_ptr();
    let (executor, fifth, bytes) = prepare!(aclnnAllGatherMatmulV2GetWorkspaceSize(
        x.handle,
        y.handle,
        bias.handle,
        NONE,
        NONE,
        NONE,
        0,
        group,
        0,
        0,
        1,
        0,
        mode,
        tall_again.handle,
        nowhere,
        nowhere
    ));
    acl(c!(aclnnAllGatherMatmulV2(
        fifth.0, bytes, executor, stream.0
    )))
    .unwrap();
    let (executor, sixth, bytes) = prepare!(aclnnMatmulReduceScatterV2GetWorkspaceSize(
        x.handle,
        y.handle,
        bias.handle,
        NONE,
        NONE,
        NONE,
        0,
        group,
        op,
        0,
        1,
        0,
        mode,
        share_again.handle,
        nowhere
    ));
    acl(c!(aclnnMatmulReduceScatterV2(
        sixth.0, bytes, executor, stream.0
    )))
    .unwrap();
    let mut model = ptr::null_mut();
    acl(c!(aclmdlRICaptureEnd(stream.0, &mut model))).unwrap();
    // The graph has what it needs: no executor is left, and the descriptions may go.
    for tensor in [&x, &y, &bias, &addend, &reduced, &with_addend, &share] {
        assert_eq!(c!(aclDestroyTensor(tensor.handle)), 0);
    }
    for round in 0..3 {
        x.set(&left(me, round));
        acl(c!(aclmdlRIExecuteAsync(model, stream.0))).unwrap();
        stream.synchronize().unwrap();
        let part = |r| product(&left(r, round), 3, &right(r), &bias_values);
        let all = sum((0..n).map(part));
        assert_eq!(reduced.values(), all, "round {round}");
        let added = sum((0..n).map(|r| (0..8).map(|i| (i + r * 8) as f32).collect()));
        let spread = with_addend.values();
        for i in 0..8 {
            assert_eq!(
                spread[i / 2 * 3 + i % 2],
                all[i] + added[i],
                "round {round}"
            );
        }
        let own = me * (8 / n)..(me + 1) * (8 / n);
        assert_eq!(share.values(), all[own.clone()], "round {round}");
        assert_eq!(share_again.values(), all[own], "round {round}");
        let rows: Vec<f32> = (0..n).flat_map(|r| left(r, round)).collect();
        assert_eq!(gathered.values(), rows, "round {round}");
        let expected = product(&rows, 3, &right(me), &bias_values);
        assert_eq!(tall.values(), expected, "round {round}");
        assert_eq!(tall_again.values(), expected, "round {round}");
    }
    acl(c!(aclmdlRIDestroy(model))).unwrap();
    comm.destroy().unwrap();
}

#[test]
fn wrong_arguments_are_named() {
    ranks(KINDS[0], 1, "wrong_arguments_are_named", |rank| {
        let (comm, stream) = equip(&rank);
        let name = CString::new(name_of(&comm)).unwrap();
        let group = name.as_ptr();
        let x = Tensor::of(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let refused = |group: *const c_char, op: &CStr, mode: i64| {
            let (mut size, mut executor) = (0, ptr::null_mut());
            let code = c!(aclnnMatmulAllReduceGetWorkspaceSize(
                x.handle,
                x.handle,
                NONE,
                group,
                op.as_ptr(),
                0,
                mode,
                x.handle,
                &mut size,
                &mut executor
            ));
            (code, last_error())
        };
        for (answer, text) in [
            (
                refused(c"nobody".as_ptr(), c"sum", 1),
                "parameter group: expected the name that",
            ),
            (
                refused(ptr::null(), c"sum", 1),
                "parameter group: expected the name that",
            ),
            (
                refused(group, c"max", 1),
                "parameter reduceOp: expected sum, got max",
            ),
            (
                refused(group, c"sum", 0),
                "parameter streamMode: expected 1, got 0",
            ),
        ] {
            assert_eq!(answer.0, 161_002);
            assert!(answer.1.contains(text), "{}", answer.1);
        }
        let out = Tensor::of(&[2, 2], &[0.0; 4]);
        let (executor, workspace, bytes) = prepare!(aclnnMatmulAllReduceGetWorkspaceSize(
            x.handle,
            x.handle,
            NONE,
            group,
            c"sum".as_ptr(),
            0,
            1,
            out.handle
        ));
        assert_eq!(
            c!(aclnnMatmulAllReduce(
                ptr::null_mut(),
                bytes,
                executor,
                stream.0
            )),
            161_001
        );
        assert_eq!(
            c!(aclnnMatmulAllReduce(
                workspace.0,
                bytes - 1,
                executor,
                stream.0
            )),
            161_002
        );
        acl(c!(aclnnMatmulAllReduce(
            workspace.0,
            bytes,
            executor,
            stream.0
        )))
        .unwrap();
        stream.synchronize().unwrap();
        assert_eq!(out.values(), [7.0, 10.0, 15.0, 22.0]);
        comm.destroy().unwrap();
    });
}
