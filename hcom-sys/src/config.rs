//! The configuration of a communicator, which C programs prepare with an inline function.

use crate::bindings::{
    HCCL_COMM_CONFIG_MAGIC_WORD, HCCL_COMM_CONFIG_VERSION, HCCL_COMM_DEFAULT, HcclCommConfig,
};

/// A configuration with every field at its default, as `HcclCommConfigInit` of the headers writes it.
pub fn comm_config() -> HcclCommConfig {
    let mut config = HcclCommConfig {
        hcclBufferSize: HCCL_COMM_DEFAULT,
        hcclDeterministic: HCCL_COMM_DEFAULT,
        hcclRdmaTrafficClass: HCCL_COMM_DEFAULT,
        hcclRdmaServiceLevel: HCCL_COMM_DEFAULT,
        hcclExecTimeOut: -1,
        hcclQos: HCCL_COMM_DEFAULT,
        hcclSymWinMaxMemSizePerRank: 16,
        hcclChannelSqDepth: HCCL_COMM_DEFAULT,
        ..HcclCommConfig::default()
    };
    let size = size_of::<HcclCommConfig>().to_ne_bytes();
    let magic = HCCL_COMM_CONFIG_MAGIC_WORD.to_ne_bytes();
    let version = HCCL_COMM_CONFIG_VERSION.to_ne_bytes();
    let head = size.into_iter().chain(magic).chain(version);
    for (place, byte) in config.reserved.iter_mut().zip(head) {
        *place = byte as std::ffi::c_char;
    }
    config
}
