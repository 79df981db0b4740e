//! Rank tables: which rank runs on which device, as a JSON file. A table is checked whole before anybody connects; the
//! first mistake is reported with its entry, field and value.
//!
//! The servers of a table are all this host: two ranks may have a device number in common when they are on different
//! servers.

mod group_list;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use hcom_sys::bindings::{self as sys, HcclResult};
use serde_json::{Map, Value};

use crate::error::{Outcome, refuse};
use crate::soc::Family;

/// The longest `server_id`.
const LONGEST_NAME: usize = 64;

/// A checked table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RankTable {
    /// The server, counted from 0, and the device of each rank, by rank.
    pub(super) devices: Vec<(u32, u32)>,
}

fn wrong<T>(text: String) -> Outcome<T> {
    refuse(sys::HCCL_E_PARA.0 as i32, format!("rank table: {text}"))
}

fn unusable<T>(code: HcclResult, text: &str) -> Outcome<T> {
    refuse(code.0 as i32, format!("rank table: {text}"))
}

/// An object of the table, and where it stands.
struct Entry<'a> {
    place: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Entry<'a> {
    fn field(&self, name: &str) -> String {
        if self.place.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.place)
        }
    }

    /// A text, as all scalars are; `None` when it is missing.
    fn optional(&self, name: &str) -> Outcome<Option<&'a str>> {
        match self.fields.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(other) => wrong(format!(
                "{} is {other}; expected a text that is not empty",
                self.field(name)
            )),
        }
    }

    fn text(&self, name: &str) -> Outcome<&'a str> {
        match self.optional(name)? {
            Some(text) => Ok(text),
            None => wrong(format!("{} is missing", self.field(name))),
        }
    }

    fn number(&self, name: &str) -> Outcome<u32> {
        let text = self.text(name)?;
        text.parse().or_else(|_| {
            wrong(format!(
                "{} is {text:?}; expected a whole number in quotes",
                self.field(name)
            ))
        })
    }

    fn list(&self, name: &str) -> Outcome<Vec<Entry<'a>>> {
        let entries = match self.fields.get(name) {
            None => return wrong(format!("{} is missing", self.field(name))),
            Some(Value::Array(entries)) if !entries.is_empty() => entries,
            Some(other) => {
                return wrong(format!(
                    "{} is {other}; expected a list that is not empty",
                    self.field(name)
                ));
            }
        };
        let entry = |(index, value): (usize, &'a Value)| {
            let place = format!("{}[{index}]", self.field(name));
            match value {
                Value::Object(fields) => Ok(Entry { place, fields }),
                other => wrong(format!("{place} is {other}; expected an object")),
            }
        };
        entries.iter().enumerate().map(entry).collect()
    }

    /// Refuses a value that an earlier entry has too.
    fn unique<K: std::hash::Hash + Eq>(
        &self,
        name: &str,
        key: K,
        seen: &mut HashMap<K, String>,
    ) -> Outcome {
        let place = self.field(name);
        match seen.insert(key, place.clone()) {
            None => Ok(()),
            Some(earlier) => wrong(format!(
                "{place} is {}, as is {earlier}; it must be unique",
                self.fields[name]
            )),
        }
    }
}

impl RankTable {
    /// Reads a table for the chips of `family`.
    ///
    /// # Errors
    /// `HCCL_E_PARA` naming entry, field and value; `HCCL_E_UNAVAIL` for a table that is not completed.
    pub(super) fn parse(text: &str, family: Family) -> Outcome<Self> {
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(error) => return wrong(format!("not JSON, which has no comments: {error}")),
        };
        let Value::Object(fields) = &value else {
            return wrong(format!("it is {value}; expected an object"));
        };
        let top = Entry {
            place: String::new(),
            fields,
        };
        match top.text("status")? {
            "completed" => {}
            "initializing" => {
                return unusable(
                    sys::HCCL_E_UNAVAIL,
                    "status is \"initializing\"; it can be used when it is \"completed\"",
                );
            }
            other => {
                return wrong(format!(
                    "status is {other:?}; expected \"completed\" or \"initializing\""
                ));
            }
        }
        if fields.contains_key("group_list") {
            return group_list::parse(&top, family);
        }
        let super_pods = match top.text("version")? {
            "1.0" => false,
            "1.2" if family == Family::A3 => true,
            other => {
                let known = if family == Family::A3 {
                    "\"1.0\" or \"1.2\""
                } else {
                    "\"1.0\""
                };
                return wrong(format!("version is {other:?}; expected {known}"));
            }
        };
        let servers = top.list("server_list")?;
        if fields.contains_key("server_count") || family != Family::A3 {
            top.counts("server_count", "server_list has", servers.len())?;
        }
        if super_pods {
            top.list("super_pod_list")?;
        }
        let (mut names, mut addresses, mut ranks) =
            (HashMap::new(), HashMap::new(), HashMap::new());
        let mut devices = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            let name = server.name("server_id")?;
            server.unique("server_id", name, &mut names)?;
            server.address("host_ip")?;
            let mut ids = HashMap::new();
            for device in server.list("device")? {
                let id = device.number("device_id")?;
                device.unique("device_id", id, &mut ids)?;
                let rank = device.number("rank_id")?;
                device.unique("rank_id", rank, &mut ranks)?;
                let needed = family == Family::A1 || (family == Family::A2 && servers.len() > 1);
                device.device_ip(needed, &mut addresses)?;
                device.port("device_port")?;
                if super_pods {
                    device.text("super_device_id")?;
                }
                devices.push((rank, id, index, device.field("rank_id")));
            }
        }
        check_order(&mut devices)?;
        let places = devices
            .into_iter()
            .map(|(_, id, server, _)| (server as u32, id));
        Ok(Self {
            devices: places.collect(),
        })
    }
}

/// Ranks are 0, 1, 2, … and those of one server follow each other. Sorts by rank.
fn check_order(devices: &mut [(u32, u32, usize, String)]) -> Outcome {
    devices.sort_by_key(|(rank, ..)| *rank);
    let mut left = HashSet::new();
    let mut current = None;
    for (expected, (rank, _, server, place)) in devices.iter().enumerate() {
        if *rank as usize != expected {
            return wrong(format!(
                "{place} is \"{rank}\", but no entry has \"{expected}\"; ranks must be 0 to {}",
                devices.len() - 1
            ));
        }
        if current != Some(*server) {
            if left.contains(server) {
                return wrong(format!(
                    "{place} is \"{rank}\", but rank {} is on another server; the ranks of a server must follow each other",
                    rank - 1
                ));
            }
            left.extend(current.replace(*server));
        }
    }
    Ok(())
}

impl<'a> Entry<'a> {
    /// A name of a server.
    fn name(&self, name: &str) -> Outcome<&'a str> {
        let text = self.text(name)?;
        if text.len() > LONGEST_NAME {
            return wrong(format!(
                "{} is {text:?}; expected at most {LONGEST_NAME} characters",
                self.field(name)
            ));
        }
        Ok(text)
    }

    /// Refuses a number that is not that of the entries it counts.
    fn counts(&self, name: &str, what: &str, entries: usize) -> Outcome {
        let count = self.number(name)?;
        if count as usize != entries {
            return wrong(format!(
                "{} is \"{count}\", but {what} {entries} entries",
                self.field(name)
            ));
        }
        Ok(())
    }

    /// The address of a device's network card, which no other device has.
    fn device_ip(&self, needed: bool, seen: &mut HashMap<IpAddr, String>) -> Outcome {
        match self.address("device_ip")? {
            None if needed => wrong(format!("{} is missing", self.field("device_ip"))),
            None => Ok(()),
            Some(ip) => self.unique("device_ip", ip, seen),
        }
    }

    fn address(&self, name: &str) -> Outcome<Option<IpAddr>> {
        let Some(text) = self.optional(name)? else {
            return Ok(None);
        };
        match text.parse() {
            Ok(address) => Ok(Some(address)),
            Err(_) => wrong(format!(
                "{} is {text:?}; expected an IP address",
                self.field(name)
            )),
        }
    }

    fn port(&self, name: &str) -> Outcome {
        if self.optional(name)?.is_some() && !(1..=65_535).contains(&self.number(name)?) {
            return wrong(format!(
                "{} is {}; expected 1 to 65535",
                self.field(name),
                self.fields[name]
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"version":"1.0","status":"completed","server_count":"1","server_list":[
        {"server_id":"box0","device":[
            {"device_id":"3","rank_id":"1","device_ip":"10.0.0.2"},
            {"device_id":"2","rank_id":"0","device_ip":"10.0.0.1"}]}]}"#;
    const TWO: &str = r#"{"version":"1.0","status":"completed","server_count":"2","server_list":[
        {"server_id":"a","device":[{"device_id":"0","rank_id":"0"},{"device_id":"1","rank_id":"1"}]},
        {"server_id":"b","device":[{"device_id":"0","rank_id":"2"},{"device_id":"1","rank_id":"3"}]}]}"#;

    /// What is said about `table` with `from` replaced by `to`.
    #[track_caller]
    fn said(family: Family, table: &str, from: &str, to: &str) -> (i32, String) {
        assert!(table.contains(from));
        let refusal = RankTable::parse(&table.replacen(from, to, 1), family).unwrap_err();
        (refusal.code, refusal.text)
    }

    #[test]
    fn devices_come_in_rank_order() {
        let table = RankTable::parse(GOOD, Family::A1).unwrap();
        assert_eq!(table.devices, [(0, 2), (0, 3)]);
    }

    #[test]
    fn every_mistake_is_named_by_entry_field_and_value() {
        let para = sys::HCCL_E_PARA.0 as i32;
        let device = "server_list[0].device[1]";
        for (from, to, what) in [
            ("{", "// a comment\n{", "not JSON, which has no comments"),
            ("\"completed\"", "\"done\"", "status is \"done\""),
            ("\"status\":\"completed\",", "", "status is missing"),
            ("\"1.0\"", "\"2.0\"", "version is \"2.0\""),
            ("\"1.0\"", "1.0", "version is 1.0; expected a text"),
            (
                "\"server_count\":\"1\"",
                "\"server_count\":\"2\"",
                "server_count is \"2\", but server_list has 1",
            ),
            ("\"server_count\":\"1\",", "", "server_count is missing"),
            ("\"box0\"", "\"\"", "server_list[0].server_id is \"\""),
            (
                "\"rank_id\":\"0\"",
                "\"rank_id\":\"1\"",
                &format!("{device}.rank_id is \"1\", as is server_list[0].device[0].rank_id"),
            ),
            (
                "\"rank_id\":\"1\"",
                "\"rank_id\":\"2\"",
                "server_list[0].device[0].rank_id is \"2\", but no entry has \"1\"",
            ),
            (
                "\"rank_id\":\"0\"",
                "\"rank_id\":0",
                &format!("{device}.rank_id is 0; expected a text"),
            ),
            (
                "\"rank_id\":\"0\"",
                "\"rank_id\":\"x\"",
                &format!("{device}.rank_id is \"x\""),
            ),
            (
                "10.0.0.1",
                "10.0.0.2",
                &format!("{device}.device_ip is \"10.0.0.2\", as is"),
            ),
            (
                "10.0.0.1",
                "10.0.0",
                &format!("{device}.device_ip is \"10.0.0\"; expected an IP"),
            ),
            (
                "\"device_id\":\"2\"",
                "\"device_id\":\"3\"",
                &format!("{device}.device_id is \"3\", as is"),
            ),
            (
                "\"device_id\":\"2\",",
                "",
                &format!("{device}.device_id is missing"),
            ),
            (
                ",\"device_ip\":\"10.0.0.1\"",
                "",
                &format!("{device}.device_ip is missing"),
            ),
            (
                ",\"device_ip\":\"10.0.0.1\"",
                ",\"device_ip\":\"10.0.0.1\",\"device_port\":\"0\"",
                &format!("{device}.device_port is \"0\""),
            ),
        ] {
            let (code, text) = said(Family::A1, GOOD, from, to);
            assert_eq!(code, para, "{text}");
            assert!(text.contains(what), "{text}");
        }
        let (code, text) = said(Family::A3, GOOD, "completed", "initializing");
        assert_eq!(code, sys::HCCL_E_UNAVAIL.0 as i32, "{text}");
    }

    #[test]
    fn newer_tables_need_more() {
        let (_, text) = said(
            Family::A3,
            GOOD,
            "\"1.0\"",
            "\"1.2\",\"super_pod_list\":[{}]",
        );
        assert!(
            text.contains("server_list[0].device[0].super_device_id is missing"),
            "{text}"
        );
        let (_, text) = said(Family::A3, GOOD, "\"1.0\"", "\"1.2\"");
        assert!(text.contains("super_pod_list is missing"), "{text}");
        let (_, text) = said(Family::A2, GOOD, "\"1.0\"", "\"1.2\"");
        assert!(
            text.contains("version is \"1.2\"; expected \"1.0\""),
            "{text}"
        );
    }

    #[test]
    fn servers_are_told_apart() {
        let (_, text) = said(Family::A3, TWO, "\"b\"", "\"a\"");
        assert!(
            text.contains("server_list[1].server_id is \"a\", as is server_list[0]"),
            "{text}"
        );
        let interleaved = TWO
            .replacen("\"rank_id\":\"1\"", "\"rank_id\":\"x\"", 1)
            .replacen("\"rank_id\":\"2\"", "\"rank_id\":\"1\"", 1);
        let (_, text) = said(Family::A3, &interleaved, "\"x\"", "\"2\"");
        assert!(
            text.contains(
                "server_list[0].device[1].rank_id is \"2\", but rank 1 is on another server"
            ),
            "{text}"
        );
        let table = RankTable::parse(TWO, Family::A3).unwrap();
        assert_eq!(table.devices, [(0, 0), (0, 1), (1, 0), (1, 1)]);
        let (_, text) = said(Family::A2, TWO, "1.0", "1.0");
        assert!(
            text.contains("server_list[0].device[0].device_ip is missing"),
            "{text}"
        );
    }
}
