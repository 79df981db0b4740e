//! The older form of a rank table: groups of instances, whose devices are ranks in the order of the lists.

use std::collections::HashMap;

use super::{Entry, RankTable, wrong};
use crate::error::Outcome;
use crate::soc::Family;

/// The group of all ranks.
const WORLD: &str = "hccl_world_group";

/// Reads the ranks of the group of all; `top` has a `group_list`.
///
/// # Errors
/// `HCCL_E_PARA` naming entry, field and value.
pub(super) fn parse(top: &Entry<'_>, family: Family) -> Outcome<RankTable> {
    let groups = top.list("group_list")?;
    top.counts("group_count", "group_list has", groups.len())?;
    let mut world = None;
    for group in &groups {
        if group.text("group_name")? == WORLD || groups.len() == 1 {
            world = Some(group);
        }
    }
    let Some(group) = world else {
        return wrong(format!("group_list has no group called {WORLD:?}"));
    };
    let instances = group.list("instance_list")?;
    group.counts("instance_count", "instance_list has", instances.len())?;
    let (mut servers, mut seen, mut addresses) = (Vec::new(), HashMap::new(), HashMap::new());
    let mut devices = Vec::new();
    for instance in &instances {
        let name = instance.name("server_id")?;
        instance.optional("pod_name")?;
        let server = servers
            .iter()
            .position(|other| *other == name)
            .unwrap_or_else(|| {
                servers.push(name);
                servers.len() - 1
            });
        for device in instance.list("devices")? {
            let id = device.number("device_id")?;
            device.unique("device_id", (server, id), &mut seen)?;
            device.device_ip(family == Family::A1, &mut addresses)?;
            devices.push((server as u32, id));
        }
    }
    group.counts("device_count", "the lists of devices have", devices.len())?;
    Ok(RankTable { devices })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"status":"completed","group_count":"1","group_list":[{
        "group_name":"hccl_world_group","instance_count":"2","device_count":"3","instance_list":[
            {"pod_name":"p0","server_id":"10.0.0.1","devices":[{"device_id":"4","device_ip":"10.1.0.1"},{"device_id":"2","device_ip":"10.1.0.2"}]},
            {"pod_name":"p1","server_id":"10.0.0.2","devices":[{"device_id":"4","device_ip":"10.1.0.3"}]}]}]}"#;

    #[test]
    fn ranks_come_in_the_order_of_the_lists() {
        let table = RankTable::parse(GOOD, Family::A1).unwrap();
        assert_eq!(table.devices, [(0, 4), (0, 2), (1, 4)]);
        let of_one = GOOD
            .replace("10.0.0.2", "10.0.0.1")
            .replace("\"device_id\":\"2\"", "\"device_id\":\"3\"");
        let text = RankTable::parse(&of_one, Family::A1).unwrap_err().text;
        assert!(
            text.contains("group_list[0].instance_list[1].devices[0].device_id is \"4\", as is"),
            "{text}"
        );
    }

    #[test]
    fn every_mistake_is_named() {
        let group = "group_list[0]";
        for (from, to, what) in [
            (
                "\"group_count\":\"1\"",
                "\"group_count\":\"2\"",
                "group_count is \"2\", but group_list has 1".to_owned(),
            ),
            (
                "\"instance_count\":\"2\"",
                "\"instance_count\":\"1\"",
                format!("{group}.instance_count is \"1\""),
            ),
            (
                "\"device_count\":\"3\"",
                "\"device_count\":\"4\"",
                format!("{group}.device_count is \"4\", but the lists of devices have 3"),
            ),
            (
                "\"devices\"",
                "\"device\"",
                format!("{group}.instance_list[0].devices is missing"),
            ),
            (
                ",\"device_ip\":\"10.1.0.1\"",
                "",
                format!("{group}.instance_list[0].devices[0].device_ip is missing"),
            ),
            (
                "10.1.0.2",
                "10.1.0.1",
                format!("{group}.instance_list[0].devices[1].device_ip is \"10.1.0.1\", as is"),
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let text = RankTable::parse(&GOOD.replacen(from, to, 1), Family::A1)
                .unwrap_err()
                .text;
            assert!(text.contains(&what), "{text}");
        }
    }
}
