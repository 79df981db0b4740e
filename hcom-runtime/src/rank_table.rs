//! Rank tables: the JSON file that says which rank runs on which device of which server.
//!
//! The format is HCCL's; every scalar is a JSON string, numbers included:
//!
//! ```json
//! {"version": "1.0", "status": "completed", "server_count": "1", "server_list": [
//!   {"server_id": "box0", "device": [{"device_id": "0", "rank_id": "0"},
//!                                    {"device_id": "1", "rank_id": "1"}]}]}
//! ```
//!
//! A table is checked as a whole before it is used; the first mistake is reported with the entry, the
//! field and the value.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde_json::{Map, Value};
use thiserror::Error;

/// A checked rank table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTable {
    servers: Vec<Server>,
    ranks: Vec<TableRank>,
}

/// Where a rank runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRank {
    /// Index of its server in the table.
    pub server: usize,
    /// Index of its device on that server.
    pub device_id: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Server {
    id: String,
    host_ip: Option<IpAddr>,
}

/// A mistake in a rank table.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RankTableError {
    /// The file cannot be read.
    #[error("rank table {path:?} (RANK_TABLE_FILE) cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not JSON.
    #[error("rank table {path:?} is not JSON (comments are not allowed in it)")]
    Json {
        /// The file; empty for a table that did not come from a file.
        path: PathBuf,
        /// Line, column and what is wrong there.
        source: serde_json::Error,
    },
    /// A field is missing or wrong.
    #[error("rank table {path:?}: {entry}.{field} is {value}: expected {expected}")]
    Field {
        /// The file; empty for a table that did not come from a file.
        path: PathBuf,
        /// The entry that holds the field, such as `server_list[0].device[1]`.
        entry: String,
        /// Name of the field.
        field: String,
        /// Its value as JSON, or `missing`.
        value: String,
        /// What would be accepted.
        expected: String,
    },
}

impl RankTableError {
    pub(crate) fn in_file(mut self, file: &Path) -> RankTableError {
        match &mut self {
            RankTableError::Read { path, .. }
            | RankTableError::Json { path, .. }
            | RankTableError::Field { path, .. } => *path = file.to_path_buf(),
        }
        self
    }
}

impl RankTable {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// See [`RankTableError`].
    pub fn read(path: &Path) -> Result<RankTable, RankTableError> {
        let text = std::fs::read_to_string(path).map_err(|source| RankTableError::Read {
            path: path.to_path_buf(),
            source,
        })?;
        RankTable::parse(&text).map_err(|error| error.in_file(path))
    }

    /// Checks the text of a table.
    ///
    /// # Errors
    /// See [`RankTableError`].
    pub fn parse(text: &str) -> Result<RankTable, RankTableError> {
        let json: Value = serde_json::from_str(text).map_err(|source| RankTableError::Json {
            path: PathBuf::new(),
            source,
        })?;
        let Value::Object(fields) = &json else {
            return Err(mistake("table", "{}", Some(&json), "an object"));
        };
        let table = Entry {
            path: "table".into(),
            fields,
        };
        table.one_of("status", &["completed"])?;
        if fields.contains_key("group_list") {
            return of_groups(&table);
        }
        of_servers(&table)
    }

    /// The ranks in order, from 0.
    pub fn ranks(&self) -> &[TableRank] {
        &self.ranks
    }

    /// Address of the server of rank 0.
    ///
    /// # Errors
    /// A table with several servers must give it as `host_ip` or as `server_id`.
    pub fn master_host(&self) -> Result<String, RankTableError> {
        let index = self.ranks[0].server;
        let server = &self.servers[index];
        match (server.host_ip, IpAddr::from_str(&server.id)) {
            (Some(address), _) => Ok(address.to_string()),
            _ if self.servers.len() == 1 => Ok("127.0.0.1".into()),
            (None, Ok(address)) => Ok(address.to_string()),
            (None, Err(_)) => Err(mistake(
                &format!("server_list[{index}]"),
                "host_ip",
                None,
                "the address of the host of rank 0, since the table has several servers (or set \
                 MASTER_ADDR)",
            )),
        }
    }
}

/// An object of the table and where it is.
struct Entry<'a> {
    path: String,
    fields: &'a Map<String, Value>,
}

fn mistake(entry: &str, field: &str, value: Option<&Value>, expected: &str) -> RankTableError {
    RankTableError::Field {
        path: PathBuf::new(),
        entry: entry.into(),
        field: field.into(),
        value: value.map_or("missing".into(), Value::to_string),
        expected: expected.into(),
    }
}

impl<'a> Entry<'a> {
    fn wrong(&self, field: &str, expected: &str) -> RankTableError {
        mistake(&self.path, field, self.fields.get(field), expected)
    }

    /// The text of a field, `None` when it is missing.
    fn optional(&self, field: &str, expected: &str) -> Result<Option<&'a str>, RankTableError> {
        match self.fields.get(field) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(self.wrong(field, &format!("{expected}, as a JSON string"))),
        }
    }

    fn text(&self, field: &str, expected: &str) -> Result<&'a str, RankTableError> {
        self.optional(field, expected)?
            .ok_or_else(|| self.wrong(field, expected))
    }

    fn parsed<T: FromStr>(&self, field: &str, expected: &str) -> Result<Option<T>, RankTableError> {
        match self.optional(field, expected)? {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(self.wrong(field, expected)),
            },
        }
    }

    fn number(&self, field: &str, expected: &str) -> Result<u32, RankTableError> {
        self.parsed(field, expected)?
            .ok_or_else(|| self.wrong(field, expected))
    }

    fn one_of(&self, field: &str, accepted: &[&str]) -> Result<&'a str, RankTableError> {
        let expected = format!("\"{}\"", accepted.join("\" or \""));
        let text = self.text(field, &expected)?;
        if accepted.contains(&text) {
            Ok(text)
        } else {
            Err(self.wrong(field, &expected))
        }
    }

    /// The objects of a list that must not be empty.
    fn list(&self, field: &str) -> Result<Vec<Entry<'a>>, RankTableError> {
        let expected = "a list of at least one object";
        let Some(Value::Array(items)) = self.fields.get(field) else {
            return Err(self.wrong(field, expected));
        };
        if items.is_empty() {
            return Err(self.wrong(field, expected));
        }
        let prefix = match self.path.as_str() {
            "table" => field.to_string(),
            path => format!("{path}.{field}"),
        };
        let entry = |(index, item): (usize, &'a Value)| match item {
            Value::Object(fields) => Ok(Entry {
                path: format!("{prefix}[{index}]"),
                fields,
            }),
            other => Err(mistake(
                &self.path,
                &format!("{field}[{index}]"),
                Some(other),
                "an object",
            )),
        };
        items.iter().enumerate().map(entry).collect()
    }

    /// Checks that a count, where given, is the length of the list it counts.
    fn count(&self, field: &str, length: usize, needed: bool) -> Result<(), RankTableError> {
        let expected = format!("the number of entries, \"{length}\"");
        match self.parsed::<usize>(field, &expected)? {
            Some(count) if count == length => Ok(()),
            None if !needed => Ok(()),
            _ => Err(self.wrong(field, &expected)),
        }
    }
}

/// Values that may appear once, and where each has appeared.
#[derive(Default)]
struct Unique(HashMap<String, String>);

impl Unique {
    fn insert(
        &mut self,
        entry: &Entry<'_>,
        field: &str,
        value: &str,
    ) -> Result<(), RankTableError> {
        match self.0.insert(value.to_string(), entry.path.clone()) {
            None => Ok(()),
            Some(first) => {
                Err(entry.wrong(field, &format!("a value of its own; {first} has the same")))
            }
        }
    }
}

const DEVICE: &str = "the number of a device, from 0";
const RANK: &str = "the number of a rank, from 0";
const ADDRESS: &str = "an IP address";

/// The current form: servers with devices, each device with its rank.
fn of_servers(table: &Entry<'_>) -> Result<RankTable, RankTableError> {
    let version = table.one_of("version", &["1.0", "1.2"])?;
    let entries = table.list("server_list")?;
    table.count("server_count", entries.len(), version == "1.0")?;
    let mut servers = Vec::new();
    let mut by_rank: HashMap<u32, (TableRank, String)> = HashMap::new();
    let (mut server_ids, mut rank_ids) = (Unique::default(), Unique::default());
    let mut device_ips = Unique::default();
    for (server, entry) in entries.iter().enumerate() {
        servers.push(read_server(entry, &mut server_ids)?);
        let mut device_ids = Unique::default();
        let mut first_rank = None;
        let devices = entry.list("device")?;
        let mut numbered = Vec::new();
        for device in &devices {
            let device_id = device.number("device_id", DEVICE)?;
            device_ids.insert(device, "device_id", &device_id.to_string())?;
            let rank_id = device.number("rank_id", RANK)?;
            rank_ids.insert(device, "rank_id", &rank_id.to_string())?;
            check_device(device, version, &mut device_ips)?;
            let place = TableRank { server, device_id };
            by_rank.insert(rank_id, (place, device.path.clone()));
            first_rank = Some(first_rank.map_or(rank_id, |first: u32| first.min(rank_id)));
            numbered.push((rank_id, device));
        }
        let first = first_rank.unwrap_or(0);
        let last = u64::from(first) + devices.len() as u64 - 1;
        if let Some((_, device)) = numbered.iter().find(|(rank, _)| u64::from(*rank) > last) {
            let expected =
                format!("the ranks of one server to be contiguous, here {first} to {last}");
            return Err(device.wrong("rank_id", &expected));
        }
    }
    if table.fields.contains_key("super_pod_list") {
        check_super_pods(table, &servers)?;
    }
    let count = by_rank.len() as u32;
    if let Some((_, path)) = by_rank
        .iter()
        .max_by_key(|(rank, _)| **rank)
        .map(|(_, rank)| rank)
        && let Some(missing) = (0..count).find(|rank| !by_rank.contains_key(rank))
    {
        let highest = by_rank.keys().max().copied().unwrap_or(0);
        return Err(mistake(
            path,
            "rank_id",
            Some(&Value::from(highest.to_string())),
            &format!("ranks 0 to {}; rank {missing} is missing", count - 1),
        ));
    }
    let mut ranks: Vec<(u32, TableRank)> = by_rank
        .into_iter()
        .map(|(rank, (place, _))| (rank, place))
        .collect();
    ranks.sort_by_key(|(rank, _)| *rank);
    let ranks = ranks.into_iter().map(|(_, place)| place).collect();
    Ok(RankTable { servers, ranks })
}

fn read_server(entry: &Entry<'_>, ids: &mut Unique) -> Result<Server, RankTableError> {
    let expected = "the name of a server, at most 64 characters";
    let id = entry.text("server_id", expected)?;
    if id.chars().count() > 64 {
        return Err(entry.wrong("server_id", expected));
    }
    ids.insert(entry, "server_id", id)?;
    Ok(Server {
        id: id.into(),
        host_ip: entry.parsed("host_ip", ADDRESS)?,
    })
}

/// Checks the fields of a device that HCCL reads and this crate only passes on.
fn check_device(device: &Entry<'_>, version: &str, ips: &mut Unique) -> Result<(), RankTableError> {
    if let Some(address) = device.parsed::<IpAddr>("device_ip", ADDRESS)? {
        ips.insert(device, "device_ip", &address.to_string())?;
    }
    device.parsed::<IpAddr>("backup_device_ip", ADDRESS)?;
    for field in ["device_port", "backup_device_port", "host_port"] {
        let expected = "a port from 1 to 65535";
        if device.parsed::<u16>(field, expected)? == Some(0) {
            return Err(device.wrong(field, expected));
        }
    }
    if version == "1.2" {
        device.number(
            "super_device_id",
            "the number of a device in its super node (version 1.2)",
        )?;
    }
    Ok(())
}

fn check_super_pods(table: &Entry<'_>, servers: &[Server]) -> Result<(), RankTableError> {
    let (mut pods, mut grouped) = (Unique::default(), Unique::default());
    for pod in table.list("super_pod_list")? {
        pods.insert(
            &pod,
            "super_pod_id",
            pod.text("super_pod_id", "the name of a super node")?,
        )?;
        for server in pod.list("server_list")? {
            let expected = "the server_id of an entry of server_list";
            let id = server.text("server_id", expected)?;
            if !servers.iter().any(|server| server.id == id) {
                return Err(server.wrong("server_id", expected));
            }
            grouped.insert(&server, "server_id", id)?;
        }
    }
    Ok(())
}

/// The older form: groups of instances with devices; ranks are numbered in order of appearance.
fn of_groups(table: &Entry<'_>) -> Result<RankTable, RankTableError> {
    let groups = table.list("group_list")?;
    table.count("group_count", groups.len(), true)?;
    let mut servers: Vec<Server> = Vec::new();
    let mut ranks = Vec::new();
    let (mut devices, mut device_ips) = (Unique::default(), Unique::default());
    for group in &groups {
        let first = ranks.len();
        let instances = group.list("instance_list")?;
        group.count("instance_count", instances.len(), true)?;
        for instance in &instances {
            let id = instance.text("server_id", "the name of a server")?;
            let known = servers.iter().position(|server| server.id == id);
            let server = known.unwrap_or_else(|| {
                servers.push(Server {
                    id: id.into(),
                    host_ip: None,
                });
                servers.len() - 1
            });
            for device in instance.list("devices")? {
                let device_id = device.number("device_id", DEVICE)?;
                devices.insert(&device, "device_id", &format!("{id} {device_id}"))?;
                check_device(&device, "1.0", &mut device_ips)?;
                ranks.push(TableRank { server, device_id });
            }
        }
        group.count("device_count", ranks.len() - first, true)?;
    }
    Ok(RankTable { servers, ranks })
}

#[cfg(test)]
mod tests;
