//! Machines.

use super::{Algorithm, CostModel, Level};

const TERA_PER_US: f64 = 1e6;
const GIGA_PER_US: f64 = 1e3;

fn level(size: u32, algorithm: Algorithm, alpha_us: f64, gigabytes_per_s: f64) -> Level {
    Level {
        size,
        algorithm,
        alpha_us,
        bytes_per_us: gigabytes_per_s * GIGA_PER_US,
        reduced_bytes_per_us: f64::INFINITY,
    }
}

impl CostModel {
    /// Atlas 800T A2: servers of 8 Ascend 910B, connected by RoCE.
    ///
    /// - 313 TFLOPS in half precision (the middle bin of 376, 313 and 280), 1.6 TB/s of memory,
    ///   efficiencies 0.7 and 0.6, 5 µs per matrix operation and 2 µs per vector operation: figures of
    ///   Huawei's msmodeling. Single precision at a quarter of half precision is an assumption.
    /// - 18.3 GB/s per HCCS link and 20 GB/s (25 × 0.8) of RoCE: the constants of HCCL's own
    ///   selection of algorithms; so are 60 µs per step between servers.
    /// - 15 µs per step within a server is an assumption; with it the mesh formulas meet measured
    ///   all-reduce bandwidth of 2 and 8 cards within 2 %, of 4 cards within 22 %.
    pub fn a2() -> CostModel {
        CostModel {
            name: "Atlas 800T A2".to_owned(),
            half_flops_per_us: 313.0 * TERA_PER_US,
            flops_per_us: 313.0 * TERA_PER_US / 4.0,
            bytes_per_us: 1600.0 * GIGA_PER_US,
            compute_efficiency: 0.7,
            memory_efficiency: 0.6,
            matmul_us: 5.0,
            vector_us: 2.0,
            communication_us: 0.0,
            levels: vec![
                level(8, Algorithm::Mesh, 15.0, 18.3),
                level(u32::MAX, Algorithm::Nhr, 60.0, 20.0),
            ],
        }
    }

    /// Atlas A3, one rank per die: packages of two dies, servers of 8 packages, a superpod of servers.
    ///
    /// - 376 TFLOPS in half precision and 1.6 TB/s of memory per die, efficiencies 0.7 and 0.6, 5 µs
    ///   per matrix operation, 2 µs per vector operation and 10 µs per communication: figures of
    ///   Huawei's msmodeling. Single precision at a quarter of half precision is an assumption.
    /// - 204 GB/s between the dies of a package (240 × 0.85): the constant of HCCL; 0.2 µs, then
    ///   196 GB/s with 0.5 µs within a server and 5.5 µs between servers: msmodeling.
    pub fn a3() -> CostModel {
        CostModel {
            name: "Atlas A3".to_owned(),
            half_flops_per_us: 376.0 * TERA_PER_US,
            flops_per_us: 376.0 * TERA_PER_US / 4.0,
            bytes_per_us: 1600.0 * GIGA_PER_US,
            compute_efficiency: 0.7,
            memory_efficiency: 0.6,
            matmul_us: 5.0,
            vector_us: 2.0,
            communication_us: 10.0,
            levels: vec![
                level(2, Algorithm::Mesh, 0.2, 204.0),
                level(8, Algorithm::Nhr, 0.5, 196.0),
                level(u32::MAX, Algorithm::Nhr, 5.5, 196.0),
            ],
        }
    }

    /// The CPU implementation of the device libraries, one rank per core of a common server.
    ///
    /// Orders of magnitude, all assumptions: 50 GFLOP/s of single precision at an efficiency of 0.6 (8 lanes with fused
    /// multiply-add), 10 GB/s of memory per core, 1 µs to
    /// start an operation, 5 µs to wake a rank. Half precision is converted and is no faster.
    pub fn cpu_fake() -> CostModel {
        CostModel {
            name: "CPU".to_owned(),
            half_flops_per_us: 50.0 * GIGA_PER_US,
            flops_per_us: 50.0 * GIGA_PER_US,
            bytes_per_us: 10.0 * GIGA_PER_US,
            compute_efficiency: 0.6,
            memory_efficiency: 1.0,
            matmul_us: 1.0,
            vector_us: 1.0,
            communication_us: 1.0,
            levels: vec![Level {
                reduced_bytes_per_us: 10.0 * GIGA_PER_US,
                ..level(u32::MAX, Algorithm::Direct, 5.0, 10.0)
            }],
        }
    }
}

impl Default for CostModel {
    /// [`CostModel::a3`].
    fn default() -> Self {
        Self::a3()
    }
}
