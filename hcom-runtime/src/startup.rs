//! How a process learns which rank it is, and how the ranks come together.
//!
//! | variable | meaning |
//! |---|---|
//! | `RANK`, `WORLD_SIZE` | the own global rank, the number of ranks |
//! | `LOCAL_RANK` | the device to use |
//! | `MASTER_ADDR`, `MASTER_PORT` | where rank 0 listens while the ranks come together |
//! | `HCOM_MASTER_LISTENER` | `stdin`: rank 0 has inherited the listening socket as its standard input |
//! | `HCOM_JOB`, else `TORCHELASTIC_RUN_ID` | name of the job; ranks of other jobs are turned away |
//! | `RANK_TABLE_FILE`, `RANK_ID` | a [rank table](crate::rank_table) and the own rank in it |
//!
//! `torchrun` sets the first five but `HCOM_MASTER_LISTENER`. A launcher that binds port 0 itself and
//! hands the socket to rank 0 cannot lose the port to someone else in between. A process with none of
//! these variables is a world of one.

use std::{ffi::OsString, io, net::TcpListener, os::fd::AsFd, path::Path, sync::Arc};

use thiserror::Error;

use crate::{
    control::{Control, InProcess, Meeting, Refusal},
    rank_table::{RankTable, RankTableError},
    settings::{Settings, SettingsError},
};

/// A process's place among the ranks.
#[derive(Clone, Debug)]
pub struct World {
    /// The own global rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// Index of the device to use on this host.
    pub local_rank: u32,
    /// Where the ranks meet; not needed in a world of one.
    pub master: Option<Master>,
}

/// Where the ranks meet: rank 0 listens here until all have come.
#[derive(Clone, Debug)]
pub struct Master {
    /// Host name or address of rank 0.
    pub host: String,
    /// TCP port on that host.
    pub port: u16,
    /// Name of the job, equal on all its ranks; may be empty.
    pub job: String,
    /// The socket that listens there, if rank 0 has it already.
    pub listener: Option<Arc<TcpListener>>,
}

/// Used with a rank table when `MASTER_PORT` is not set; the port torchrun uses.
const DEFAULT_PORT: u16 = 29500;

impl World {
    /// A world of one rank.
    pub fn alone() -> World {
        World {
            rank: 0,
            world_size: 1,
            local_rank: 0,
            master: None,
        }
    }

    /// The place that the environment gives this process.
    ///
    /// # Errors
    /// A variable that is missing or wrong, or a rank table that is not readable or not right. All of
    /// it is checked before anything is connected.
    pub fn from_env() -> Result<World, StartError> {
        let mut world = World::from_lookup(|variable| std::env::var_os(variable))?;
        if let Some(master) = &mut world.master
            && world.rank == 0
            && let Some(value) = std::env::var_os("HCOM_MASTER_LISTENER")
        {
            master.listener = Some(Arc::new(inherited(&value)?));
        }
        Ok(world)
    }

    /// [`World::from_env`] with another source of variables; never inherits a socket.
    ///
    /// # Errors
    /// As [`World::from_env`].
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<World, StartError> {
        let variables = Variables { lookup };
        if let Some(path) = variables.text("RANK_TABLE_FILE")? {
            return variables.with_table(Path::new(&path));
        }
        if variables.text("RANK")?.is_some() {
            return variables.with_rank();
        }
        for (present, needed) in [("WORLD_SIZE", "RANK"), ("RANK_ID", "RANK_TABLE_FILE")] {
            if variables.text(present)?.is_some() {
                return Err(StartError::MissingVariable {
                    variable: needed,
                    because: present,
                });
            }
        }
        Ok(World::alone())
    }
}

struct Variables<F> {
    lookup: F,
}

impl<F: Fn(&str) -> Option<OsString>> Variables<F> {
    /// An empty variable counts as not set.
    fn text(&self, variable: &'static str) -> Result<Option<String>, StartError> {
        match (self.lookup)(variable) {
            None => Ok(None),
            Some(value) => match value.into_string() {
                Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
                Err(value) => Err(StartError::Variable {
                    variable,
                    value: value.to_string_lossy().into_owned(),
                    expected: "text in UTF-8".into(),
                }),
            },
        }
    }

    fn number<N: std::str::FromStr>(
        &self,
        variable: &'static str,
        expected: &str,
        accept: impl Fn(&N) -> bool,
    ) -> Result<Option<N>, StartError> {
        let Some(text) = self.text(variable)? else {
            return Ok(None);
        };
        match text.trim().parse().ok().filter(accept) {
            Some(number) => Ok(Some(number)),
            None => Err(StartError::Variable {
                variable,
                value: text,
                expected: expected.into(),
            }),
        }
    }

    fn port(&self) -> Result<Option<u16>, StartError> {
        self.number("MASTER_PORT", "a port from 1 to 65535", |&port| port != 0)
    }

    fn job(&self) -> Result<String, StartError> {
        let torch = self.text("TORCHELASTIC_RUN_ID")?;
        Ok(self.text("HCOM_JOB")?.or(torch).unwrap_or_default())
    }

    fn with_rank(&self) -> Result<World, StartError> {
        let needed = |variable| StartError::MissingVariable {
            variable,
            because: "RANK",
        };
        let world_size = self
            .number("WORLD_SIZE", "the number of ranks, at least 1", |&n| n > 0)?
            .ok_or(needed("WORLD_SIZE"))?;
        let expected = format!(
            "a rank from 0 to {} (WORLD_SIZE is {world_size})",
            world_size - 1
        );
        let rank = self
            .number("RANK", &expected, |&rank| rank < world_size)?
            .ok_or(needed("RANK"))?;
        let local_rank = self
            .number("LOCAL_RANK", "the index of a device, from 0", |_| true)?
            .or((world_size == 1).then_some(0))
            .ok_or(needed("LOCAL_RANK"))?;
        let master = match world_size {
            1 => None,
            _ => Some(Master {
                host: self.text("MASTER_ADDR")?.ok_or(needed("MASTER_ADDR"))?,
                port: self.port()?.ok_or(needed("MASTER_PORT"))?,
                job: self.job()?,
                listener: None,
            }),
        };
        Ok(World {
            rank,
            world_size,
            local_rank,
            master,
        })
    }

    fn with_table(&self, path: &Path) -> Result<World, StartError> {
        let table = RankTable::read(path)?;
        let world_size = table.ranks().len() as u32;
        let expected = format!("a rank of the rank table, from 0 to {}", world_size - 1);
        let given = |variable| self.number(variable, &expected, |&rank: &u32| rank < world_size);
        let rank = match (given("RANK_ID")?, given("RANK")?) {
            (Some(rank), None) | (None, Some(rank)) => rank,
            (Some(id), Some(rank)) if id == rank => rank,
            (Some(id), Some(rank)) => {
                return Err(StartError::Variable {
                    variable: "RANK_ID",
                    value: id.to_string(),
                    expected: format!("the value of RANK, {rank}"),
                });
            }
            (None, None) => {
                return Err(StartError::MissingVariable {
                    variable: "RANK_ID",
                    because: "RANK_TABLE_FILE",
                });
            }
        };
        let expected = format!("the number of ranks in the rank table, {world_size}");
        self.number("WORLD_SIZE", &expected, |&size: &u32| size == world_size)?;
        let host = match self.text("MASTER_ADDR")? {
            Some(host) => host,
            None => table.master_host().map_err(|error| error.in_file(path))?,
        };
        Ok(World {
            rank,
            world_size,
            local_rank: table.ranks()[rank as usize].device_id,
            master: Some(Master {
                host,
                port: self.port()?.unwrap_or(DEFAULT_PORT),
                job: self.job()?,
                listener: None,
            }),
        })
    }
}

fn inherited(value: &OsString) -> Result<TcpListener, StartError> {
    let wrong = |expected: &str| StartError::Variable {
        variable: "HCOM_MASTER_LISTENER",
        value: value.to_string_lossy().into_owned(),
        expected: expected.into(),
    };
    if value != "stdin" {
        return Err(wrong("`stdin`"));
    }
    let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
    match rustix::net::sockopt::socket_acceptconn(&descriptor) {
        Ok(true) => Ok(TcpListener::from(descriptor)),
        _ => Err(wrong("standard input to be a socket that listens")),
    }
}

/// Connects this rank to all others.
///
/// Returns when all ranks have come, at the latest after [`Settings::connect_timeout`] and a little.
///
/// # Errors
/// Missing ranks, two processes with one rank, different numbers of ranks, a port in use. Every rank
/// that came reports the same.
///
/// # Examples
/// ```
/// use hcom_runtime::{Settings, World, connect};
///
/// let control = connect(&World::alone(), &Settings::default())?;
/// assert_eq!((control.rank(), control.world_size()), (0, 1));
/// # Ok::<(), hcom_runtime::StartError>(())
/// ```
pub fn connect(world: &World, settings: &Settings) -> Result<Arc<dyn Control>, StartError> {
    if world.world_size == 1 {
        return Ok(InProcess::new(1).remove(0));
    }
    let Some(master) = &world.master else {
        return Err(StartError::MissingVariable {
            variable: "MASTER_ADDR",
            because: "WORLD_SIZE",
        });
    };
    let listener = match &master.listener {
        Some(listener) => Some(listener.try_clone()?),
        None => None,
    };
    Meeting {
        job: &master.job,
        rank: world.rank,
        world_size: world.world_size,
        host: &master.host,
        port: master.port,
        listener,
        timeout: settings.connect_timeout,
    }
    .attend()
}

/// Why a rank cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// An environment variable holds something unusable.
    #[error("{variable} is {value:?}: expected {expected}")]
    Variable {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// An environment variable is needed because another one is set.
    #[error("{variable} is not set, but {because} is: set both, as torchrun and `hcom launch` do")]
    MissingVariable {
        /// Name of the variable that is missing.
        variable: &'static str,
        /// Name of the variable that is set.
        because: &'static str,
    },
    /// A time limit is unusable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The rank table is unusable.
    #[error(transparent)]
    RankTable(#[from] RankTableError),
    /// The name of the host of rank 0 is unknown.
    #[error("MASTER_ADDR {host:?} is no address and no known host")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Something else uses the port of rank 0.
    #[error(
        "port in use: rank 0 must listen at {address}, but another program does; expected a free \
         port: set MASTER_PORT to one, or end that program"
    )]
    PortInUse {
        /// Host and port.
        address: String,
    },
    /// Rank 0 cannot listen at the address.
    #[error("rank 0 cannot listen at {address}: expected an address of this host in MASTER_ADDR")]
    Listen {
        /// Host and port.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// Rank 0 was not found.
    #[error(
        "waiting for rank 0 at {address}; {seconds} seconds are over (HCOM_CONNECT_TIMEOUT); the last \
         attempt: {last}"
    )]
    Unreachable {
        /// Host and port.
        address: String,
        /// The time limit in seconds.
        seconds: f64,
        /// How the last attempt ended.
        last: String,
    },
    /// A rank cannot be reached although it has joined.
    #[error("cannot connect to rank {rank} at {address}")]
    Connect {
        /// The rank.
        rank: u32,
        /// Where it listens.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The process at an address speaks another version of the protocol.
    #[error(
        "the process at {address} speaks version {got} of the control protocol, expected {expected}: \
         run the same version of hcom on every rank"
    )]
    Version {
        /// Its address.
        address: String,
        /// The own version.
        expected: u32,
        /// Its version.
        got: u32,
    },
    /// The ranks cannot start together.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A call of the system failed.
    #[error("the control plane cannot start: {0}")]
    System(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(variables: &[(&str, &str)]) -> Result<World, String> {
        World::from_lookup(|wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| OsString::from(value))
        })
        .map_err(|error| error.to_string())
    }

    const TORCHRUN: [(&str, &str); 5] = [
        ("RANK", "5"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "node0"),
        ("MASTER_PORT", "29501"),
    ];

    #[test]
    fn what_torchrun_sets() {
        let world = world(&TORCHRUN).unwrap();
        assert_eq!((world.rank, world.world_size, world.local_rank), (5, 8, 1));
        let master = world.master.unwrap();
        assert_eq!((master.host.as_str(), master.port), ("node0", 29501));
        assert_eq!(master.job, "");
    }

    #[test]
    fn nothing_set_is_a_world_of_one() {
        for variables in [&[][..], &[("RANK", "")], &[("MASTER_ADDR", "node0")]] {
            let world = world(variables).unwrap();
            assert_eq!((world.rank, world.world_size), (0, 1));
            assert!(world.master.is_none());
        }
        let alone = world(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap();
        assert_eq!((alone.rank, alone.world_size, alone.local_rank), (0, 1, 0));
    }

    #[test]
    fn each_missing_variable_is_named() {
        for index in 1..TORCHRUN.len() {
            let mut variables = TORCHRUN.to_vec();
            let (missing, _) = variables.remove(index);
            assert_eq!(
                world(&variables).unwrap_err(),
                format!(
                    "{missing} is not set, but RANK is: set both, as torchrun and `hcom launch` do"
                )
            );
        }
        let error = world(&TORCHRUN[1..]).unwrap_err();
        assert!(
            error.starts_with("RANK is not set, but WORLD_SIZE is"),
            "{error}"
        );
        let error = world(&[("RANK_ID", "0")]).unwrap_err();
        assert!(
            error.starts_with("RANK_TABLE_FILE is not set, but RANK_ID is"),
            "{error}"
        );
    }

    #[test]
    fn each_wrong_variable_is_named_with_its_value() {
        for (variable, value, expected) in [
            ("RANK", "8", "a rank from 0 to 7 (WORLD_SIZE is 8)"),
            ("RANK", "-1", "a rank from 0 to 7 (WORLD_SIZE is 8)"),
            ("WORLD_SIZE", "0", "the number of ranks, at least 1"),
            ("WORLD_SIZE", "two", "the number of ranks, at least 1"),
            ("LOCAL_RANK", "a", "the index of a device, from 0"),
            ("MASTER_PORT", "0", "a port from 1 to 65535"),
            ("MASTER_PORT", "65536", "a port from 1 to 65535"),
        ] {
            let mut variables = TORCHRUN.to_vec();
            variables.insert(0, (variable, value));
            assert_eq!(
                world(&variables).unwrap_err(),
                format!("{variable} is {value:?}: expected {expected}")
            );
        }
    }

    #[test]
    fn a_rank_table_says_device_and_master() {
        let path = std::env::temp_dir().join(format!("hcom-table-{}.json", std::process::id()));
        let table = r#"{"version": "1.0", "status": "completed", "server_count": "2", "server_list": [
          {"server_id": "10.0.0.1", "device": [{"device_id": "4", "rank_id": "0"}]},
          {"server_id": "10.0.0.2", "device": [{"device_id": "7", "rank_id": "1"}]}]}"#;
        std::fs::write(&path, table).unwrap();
        let file = path.to_str().unwrap();
        let with = |more: &[(&str, &str)]| world(&[&[("RANK_TABLE_FILE", file)], more].concat());

        let one = with(&[("RANK_ID", "1")]).unwrap();
        assert_eq!((one.rank, one.world_size, one.local_rank), (1, 2, 7));
        let master = one.master.unwrap();
        assert_eq!((master.host.as_str(), master.port), ("10.0.0.1", 29500));
        let given = [("RANK", "0"), ("MASTER_ADDR", "node"), ("MASTER_PORT", "7")];
        let zero = with(&given).unwrap();
        assert_eq!((zero.rank, zero.local_rank), (0, 4));
        let master = zero.master.unwrap();
        assert_eq!((master.host.as_str(), master.port), ("node", 7));

        for (more, expected) in [
            (&[][..], "RANK_ID is not set, but RANK_TABLE_FILE is"),
            (
                &[("RANK_ID", "2")],
                "RANK_ID is \"2\": expected a rank of the rank table, from 0 to 1",
            ),
            (
                &[("RANK_ID", "1"), ("RANK", "0")],
                "RANK_ID is \"1\": expected the value of RANK, 0",
            ),
            (
                &[("RANK_ID", "1"), ("WORLD_SIZE", "4")],
                "WORLD_SIZE is \"4\": expected the number of ranks in the rank table, 2",
            ),
        ] {
            let error = with(more).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
