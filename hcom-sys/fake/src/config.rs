//! Settings from the environment, read once per process.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `HCOM_FAKE_DEVICES` | devices of this host, 1 to 64 | 16 |
//! | `HCOM_FAKE_SOC` | what `aclrtGetSocName` answers, and with it the supported dtypes | `Ascend910_9382` |
//! | `HCOM_FAKE_MEMORY` | memory of one device, in GiB or with K, M or G behind the number, at least 2M | 64, at most the memory of the host |
//! | `HCOM_FAKE_STREAMS` | streams that a device has, 1 to 65536 | 1984 |
//! | `HCOM_FAKE_EVENTS` | events that a device has, 1 to 1048576 | 65536 |
//! | `HCOM_FAKE_STRICT` | 1: device addresses cannot be touched by the host | 0 |
//! | `HCOM_FAKE_FAULT` | faults of operations and kernels, such as `rank=1,op=5,do=kill`; see [`crate::fault::plan`] | none |
//! | `HCOM_FAKE_PORTABLE` | 1: loops are not compiled for the vectors of this CPU, and no stores go past the caches | 0 |
//! | `HCOM_FAKE_LINK` | `alpha_us,gbytes_per_s`: transfers take modelled time | off |
//! | `HCCL_CONNECT_TIMEOUT` | seconds to wait for the peers of a new communicator, 120 to 7200 | 120 |
//! | `HCCL_EXEC_TIMEOUT` | seconds a collective may wait inside, 0 for ever | 1836 |
//!
//! A value that cannot be read is an error of `aclInit` and of every communicator's creation, never a silent default.

use std::sync::OnceLock;
use std::time::Duration;

use crate::fault::plan::{self, Fault};
use crate::soc::Soc;

/// α and β of the modelled link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinkModel {
    /// Time before the first byte, in nanoseconds.
    pub alpha_ns: u64,
    /// Bytes per nanosecond, which is gigabytes per second.
    pub bytes_per_ns: f64,
}

/// All settings.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Devices of this host.
    pub devices: u32,
    /// The chip.
    pub soc: Soc,
    /// Memory of one device in bytes.
    pub device_bytes: usize,
    /// Streams of one device.
    pub streams: usize,
    /// Events of one device.
    pub events: usize,
    /// Whether device addresses are without access rights.
    pub strict: bool,
    /// The modelled link, if on.
    pub link: Option<LinkModel>,
    /// Faults of operations and kernels.
    pub faults: Vec<Fault>,
    /// How long a communicator's creation waits for peers.
    pub connect_timeout: Duration,
    /// How long a collective waits inside; `None` for ever.
    pub exec_timeout: Option<Duration>,
}

/// The settings of this process, or the sentence that says which variable is wrong.
pub(crate) fn get() -> Result<&'static Config, &'static str> {
    static CONFIG: OnceLock<Result<Config, String>> = OnceLock::new();
    CONFIG
        .get_or_init(|| read(|name| std::env::var(name).ok()))
        .as_ref()
        .map_err(String::as_str)
}

/// The settings, or the defaults where they are wrong: for calls that cannot fail for that reason.
pub(crate) fn or_default() -> &'static Config {
    static DEFAULT: OnceLock<Config> = OnceLock::new();
    get().unwrap_or_else(|_| {
        DEFAULT.get_or_init(|| read(|_| None).expect("the defaults can be read"))
    })
}

fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Config, String> {
    let integer = |name: &str, low: u64, high: u64, default: u64| match variable(name) {
        None => Ok(default),
        Some(text) => match text.trim().parse::<u64>() {
            Ok(value) if (low..=high).contains(&value) => Ok(value),
            _ => Err(format!(
                "{name}={text}: expected a whole number from {low} to {high}"
            )),
        },
    };
    let host = rustix::system::sysinfo();
    let host_bytes = (host.totalram as u64).saturating_mul(u64::from(host.mem_unit));
    let soc = match variable("HCOM_FAKE_SOC") {
        None => Soc::default(),
        Some(name) => Soc::parse(&name).ok_or_else(|| {
            format!("HCOM_FAKE_SOC={name}: expected a chip such as Ascend910_9382, Ascend910B2 or Ascend910A")
        })?,
    };
    let strict = match variable("HCOM_FAKE_STRICT").as_deref() {
        None | Some("" | "0") => false,
        Some("1") => true,
        Some(other) => return Err(format!("HCOM_FAKE_STRICT={other}: expected 0 or 1")),
    };
    let bytes = match variable("HCOM_FAKE_MEMORY") {
        None => 64 << 30,
        Some(text) => parse_bytes(&text)?,
    };
    let exec = integer("HCCL_EXEC_TIMEOUT", 0, 2_147_483_647, 1836)?;
    Ok(Config {
        devices: integer("HCOM_FAKE_DEVICES", 1, 64, 16)? as u32,
        soc,
        streams: integer("HCOM_FAKE_STREAMS", 1, 65536, 1984)? as usize,
        events: integer("HCOM_FAKE_EVENTS", 1, 1 << 20, 65536)? as usize,
        device_bytes: bytes.min(host_bytes).next_multiple_of(1 << 21) as usize,
        strict,
        link: variable("HCOM_FAKE_LINK")
            .map(|text| parse_link(&text))
            .transpose()?
            .flatten(),
        faults: plan::parse(&variable("HCOM_FAKE_FAULT").unwrap_or_default())
            .map_err(|what| format!("HCOM_FAKE_FAULT: {what}"))?,
        connect_timeout: Duration::from_secs(integer("HCCL_CONNECT_TIMEOUT", 120, 7200, 120)?),
        exec_timeout: (exec > 0).then(|| Duration::from_secs(exec)),
    })
}

/// A number of GiB, or of what the letter behind it says.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let (digits, shift) = match trimmed.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if trimmed.ends_with('K') => (digits, 10),
        Some(digits) if trimmed.ends_with('M') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (trimmed, 30),
    };
    let bytes = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift));
    match bytes {
        Some(bytes) if (2 << 20..=1 << 40).contains(&bytes) => Ok(bytes),
        _ => Err(format!(
            "HCOM_FAKE_MEMORY={text}: expected 2M to 1024G, a number of GiB or one with K, M or G behind it"
        )),
    }
}

/// `alpha_us,gbytes_per_s`; empty is off.
fn parse_link(text: &str) -> Result<Option<LinkModel>, String> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let wrong = || {
        format!(
            "HCOM_FAKE_LINK={text}: expected two numbers alpha_us,gbytes_per_s, such as 15,25: microseconds from 0 \
             to 1000000, and gigabytes per second above 0"
        )
    };
    let (alpha, beta) = text.split_once(',').ok_or_else(wrong)?;
    let number = |text: &str| {
        text.trim()
            .parse::<f64>()
            .ok()
            .filter(|value| value.is_finite())
    };
    match (number(alpha), number(beta)) {
        (Some(alpha), Some(beta)) if (0.0..=1e6).contains(&alpha) && beta > 0.0 => {
            Ok(Some(LinkModel {
                alpha_ns: (alpha * 1e3).round() as u64,
                bytes_per_ns: beta,
            }))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Config, String> {
        read(move |asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn a_link_is_two_numbers() {
        let link = with("HCOM_FAKE_LINK", "15, 25.5").unwrap().link.unwrap();
        assert_eq!(
            link,
            LinkModel {
                alpha_ns: 15_000,
                bytes_per_ns: 25.5
            }
        );
        assert_eq!(with("HCOM_FAKE_LINK", "").unwrap().link, None);
        for bad in ["15", "x,1", "1,0", "-1,5", "nan,1", "1,inf", "1,2,3"] {
            assert!(
                with("HCOM_FAKE_LINK", bad)
                    .unwrap_err()
                    .starts_with("HCOM_FAKE_LINK="),
                "{bad}"
            );
        }
    }

    #[test]
    fn ranges_are_those_of_the_documentation() {
        assert_eq!(read(|_| None).unwrap().connect_timeout.as_secs(), 120);
        assert!(with("HCCL_CONNECT_TIMEOUT", "119").is_err());
        assert!(with("HCCL_CONNECT_TIMEOUT", "7200").is_ok());
        assert_eq!(with("HCCL_EXEC_TIMEOUT", "0").unwrap().exec_timeout, None);
        assert!(with("HCOM_FAKE_DEVICES", "0").is_err());
        let bytes = |text| with("HCOM_FAKE_MEMORY", text).map(|config| config.device_bytes);
        assert_eq!(bytes("4096K"), Ok(4 << 20));
        assert_eq!(bytes("6M"), Ok(6 << 20));
        assert_eq!(bytes("1"), Ok(1 << 30));
        for bad in ["0", "1M", "2048G", "x", "1.5", ""] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(with("HCOM_FAKE_STREAMS", "3").unwrap().streams, 3);
        assert!(with("HCOM_FAKE_EVENTS", "0").is_err());
        assert!(with("HCOM_FAKE_STRICT", "yes").is_err());
        assert!(with("HCOM_FAKE_SOC", "Ascend").is_err());
        let error = with("HCOM_FAKE_FAULT", "op=1").unwrap_err();
        assert!(
            error.starts_with("HCOM_FAKE_FAULT: fault `op=1`: do=ACTION is missing"),
            "{error}"
        );
    }
}
