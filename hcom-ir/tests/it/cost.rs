//! Estimates against published figures, and work by hand.

use hcom_ir::{CostModel, Group, Id as _, NodeId, Op, Work};

use super::graph;

fn world(size: u32) -> Group {
    Group::new("w", (0..size).collect::<Vec<u32>>())
}

/// Hierarchical all-reduce on servers of 8 Ascend 910B, in microseconds.
#[test]
fn all_reduce_on_a2_meets_the_reference_values() {
    let table = [
        (8, [44, 947, 14699]),
        (16, [171, 1486, 21529]),
        (64, [416, 2041, 26803]),
        (512, [777, 2493, 28631]),
        (4096, [1137, 2864, 29174]),
        (16384, [1377, 3105, 29434]),
    ];
    for (ranks, expected) in table {
        for (bytes, expected) in [1u64 << 20, 64 << 20, 1 << 30].into_iter().zip(expected) {
            let time = CostModel::a2().collective(Op::AllReduce, bytes, &world(ranks));
            assert!(
                (time - f64::from(expected)).abs() <= 1.0,
                "{ranks} ranks, {bytes} bytes: {time}, not {expected}"
            );
        }
    }
}

/// Measured on 910B with CANN 8.0: bandwidth of all-reduce and all-gather of 1 GB, in GB/s.
#[test]
fn bandwidth_on_one_server_is_near_what_was_measured() {
    for (ranks, all_reduce, all_gather, tolerance) in [
        (2, 18.0, 38.0, 0.05),
        (4, 30.0, 64.0, 0.23),
        (8, 72.0, 149.0, 0.05),
    ] {
        for (op, measured) in [(Op::AllReduce, all_reduce), (Op::AllGather, all_gather)] {
            let time = CostModel::a2().collective(op, 1_000_000_000, &world(ranks));
            let bandwidth = 1e9 / time / 1e3;
            assert!(
                (bandwidth / measured - 1.0).abs() < tolerance,
                "{op} on {ranks}: {bandwidth}"
            );
        }
    }
}

#[test]
fn every_machine_prefers_few_large_collectives() {
    for machine in [CostModel::a2(), CostModel::a3(), CostModel::cpu_fake()] {
        for op in Op::ALL
            .iter()
            .copied()
            .filter(|op| op.is_communication() && *op != Op::Barrier)
        {
            let time = |bytes| machine.collective(op, bytes, &world(4));
            assert!(
                time(1 << 20) < 16.0 * time(1 << 16),
                "{op} on {}",
                machine.name
            );
            assert!(time(1 << 16) < time(1 << 20), "{op} on {}", machine.name);
        }
        assert!(machine.collective(Op::Barrier, 0, &world(4)) > 0.0);
    }
}

#[test]
fn ranks_of_different_servers_take_the_slow_network() {
    let machine = CostModel::a2();
    let near = machine.collective(Op::Send, 1 << 20, &Group::new("near", [0, 7]));
    let far = machine.collective(Op::Send, 1 << 20, &Group::new("far", [0, 8]));
    assert!((near - (15.0 + 1_048_576.0 / 18_300.0)).abs() < 1e-9);
    assert!((far - (60.0 + 1_048_576.0 / 20_000.0)).abs() < 1e-9);
}

#[test]
fn work_is_counted_exactly() {
    let text = "hcom 1\ngroup @g = ranks(0, 1, 2, 3)\ngraph @t(%a: f16[2, 8, 16], %b: f16[4, 16]) {
  %m = matmul %a, %b, transpose_b = true
  %s = add %m, %m
  %v = reshape %s, shape = [64]
  %r = all_reduce %v, op = sum, group = @g
  %d = sum %v, dims = [0]
  barrier group = @g
}";
    let graph = graph(text);
    let work = |index| graph.work(NodeId::from_index(index));
    let expected = [
        Work {
            flops: 2 * 2 * 8 * 4 * 16,
            bytes: 2 * (256 + 64 + 64),
        },
        Work {
            flops: 64,
            bytes: 2 * 3 * 64,
        },
        Work::default(),
        Work {
            flops: 3 * 64,
            bytes: 2 * 2 * 64,
        },
        Work {
            flops: 64,
            bytes: 2 * 65,
        },
        Work::default(),
    ];
    for (index, expected) in expected.into_iter().enumerate() {
        assert_eq!(work(index), Some(expected), "node {index}");
    }
    let machine = CostModel::a3();
    let matmul = machine.node(&graph, NodeId::from_index(0));
    assert!((matmul - (5.0 + 768.0 / (1.6e6 * 0.6))).abs() < 1e-9);
    assert!(machine.sequential(&graph) > matmul);
    assert_eq!(hcom_ir::liveness::peak_bytes(&graph), Some(128 * 2));
}
