//! The files beside the models of a job: which model runs on which device, and which ranks form which
//! group.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// The longest name of a group that the engine takes, in characters.
const LONGEST: usize = 128;

/// The name of a group: that of the engine for all ranks of the world in order, else made from the
/// ranks, so that every rank gives the same name to the same group and to no other.
pub fn group_name(ranks: &[u32], world_size: u32) -> String {
    if ranks.iter().copied().eq(0..world_size) {
        return "hccl_world_group".to_owned();
    }
    let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let name = format!("ranks_{}", list.join("_"));
    if name.len() <= LONGEST {
        return name;
    }
    // FNV-1a: Fowler, Noll and Vo.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("ranks_{}_of_{world_size}_{hash:016x}", ranks.len())
}

/// `model_relation_config.json`: the models `name<rank>.air`, the devices that run them, and the groups
/// of all ranks.
pub fn relations(name: &str, world_size: u32, groups: &BTreeSet<Vec<u32>>) -> Value {
    let model = |rank: u32| format!("{name}{rank}.air");
    let ranks = 0..world_size;
    json!({
        "deploy_config": ranks.clone().map(|rank| json!({
            "submodel_name": model(rank),
            "deploy_device_id_list": format!("0:0:{rank}"),
        })).collect::<Vec<_>>(),
        "model_name_to_instance_id": ranks.clone().map(|rank| json!({
            "submodel_name": model(rank),
            "model_instance_id": rank,
        })).collect::<Vec<_>>(),
        "comm_group": groups.iter().map(|ranks| json!({
            "group_name": group_name(ranks, world_size),
            "group_rank_list": format!("{ranks:?}"),
        })).collect::<Vec<_>>(),
        "rank_table": ranks.map(|rank| json!({
            "rank_id": rank,
            "model_instance_id": rank,
        })).collect::<Vec<_>>(),
    })
}

/// `numa_config.json`: one node with a device per rank, to be edited for the real machines. The spelling
/// of `nodes_toplogy` is the format's.
pub fn numa(world_size: u32) -> Value {
    json!({
        "cluster": [{
            "cluster_nodes": [{
                "node_id": 0,
                "node_type": "ATLAS800",
                "ipaddr": "127.0.0.1",
                "port": 29500,
                "item_list": (0..world_size).map(|rank| json!({"item_id": rank})).collect::<Vec<_>>(),
            }],
            "nodes_toplogy": {},
        }],
        "item_def": [{"item_type": "Ascend910"}],
        "node_def": [{"item": [{"item_type": "Ascend910"}]}],
    })
}
