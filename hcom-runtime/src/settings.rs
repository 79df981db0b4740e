//! What a rank reads from its environment besides its place in the world.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use thiserror::Error;

/// How a rank starts and how long it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The library to load: a file, or a folder that holds the libraries of an Ascend
    /// installation. `None` searches.
    pub library: Option<PathBuf>,
    /// How long the ranks wait for each other at start.
    pub connect_timeout: Duration,
    /// How long a rank waits for its peers in a collective or in an exchange of the control plane.
    pub timeout: Duration,
    /// How many captures of graphs this rank keeps at a time. Graphs beyond that are launched step
    /// by step.
    pub captures: usize,
    /// How many of the latest collectives the [flight recorder](crate::recorder) keeps; 0 turns it
    /// off.
    pub record_entries: usize,
    /// The folder that the record is written to when the job fails or the rank ends; `None` writes
    /// none.
    pub record_dir: Option<PathBuf>,
}

impl Default for Settings {
    /// No explicit library, 60 s for each timeout, 64 captures, 1024 entries in the record, which is
    /// not written.
    fn default() -> Settings {
        Settings {
            library: None,
            connect_timeout: DEFAULT_TIMEOUT,
            timeout: DEFAULT_TIMEOUT,
            captures: DEFAULT_CAPTURES,
            record_entries: DEFAULT_RECORD_ENTRIES,
            record_dir: None,
        }
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// A capture holds one stream of the device per communicator of its graph.
const DEFAULT_CAPTURES: usize = 64;
const DEFAULT_RECORD_ENTRIES: usize = 1024;
/// Bounds the size of a written record.
const MOST_RECORD_ENTRIES: usize = 65_536;
/// Longer limits mean the same (30 years) and keep clock arithmetic away from overflow.
const LONGEST_TIMEOUT: f64 = 1e9;

impl Settings {
    /// Reads `HCOM_CONNECT_TIMEOUT` and `HCOM_TIMEOUT`: seconds, any positive value, fractions
    /// included; 60 when unset. `HCOM_CAPTURES` and `HCOM_RECORD_ENTRIES`: whole numbers, 64 and
    /// 1024 when unset, at most 65536 for the latter. `HCOM_RECORD_DIR`: a folder.
    ///
    /// # Errors
    /// A value that is not such a number.
    pub fn from_env() -> Result<Settings, SettingsError> {
        Settings::from_lookup(|variable| std::env::var_os(variable))
    }

    /// [`Settings::from_env`] with another source of variables.
    ///
    /// # Errors
    /// A value that is not a positive number.
    pub fn from_lookup(
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, SettingsError> {
        let seconds = |variable: &'static str| match lookup(variable) {
            None => Ok(DEFAULT_TIMEOUT),
            Some(text) => parse_seconds(&text.to_string_lossy()).ok_or_else(|| SettingsError {
                variable,
                value: text.to_string_lossy().into_owned(),
                expected: "a positive number of seconds, such as 60 or 0.5",
            }),
        };
        let number = |variable: &'static str, default| match lookup(variable) {
            None => Ok(default),
            Some(text) => text
                .to_str()
                .and_then(|text| text.trim().parse().ok())
                .ok_or_else(|| SettingsError {
                    variable,
                    value: text.to_string_lossy().into_owned(),
                    expected: "a whole number, such as 64, or 0 for none",
                }),
        };
        let entries = number("HCOM_RECORD_ENTRIES", DEFAULT_RECORD_ENTRIES)?;
        Ok(Settings {
            library: None,
            connect_timeout: seconds("HCOM_CONNECT_TIMEOUT")?,
            timeout: seconds("HCOM_TIMEOUT")?,
            captures: number("HCOM_CAPTURES", DEFAULT_CAPTURES)?,
            record_entries: entries.min(MOST_RECORD_ENTRIES),
            record_dir: lookup("HCOM_RECORD_DIR")
                .filter(|folder| !folder.is_empty())
                .map(PathBuf::from),
        })
    }
}

fn parse_seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.trim().parse().ok()?;
    (seconds > 0.0)
        .then(|| Duration::from_secs_f64(seconds.min(LONGEST_TIMEOUT)).max(Duration::from_nanos(1)))
}

/// An environment variable holds something unusable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{variable} is {value:?}: expected {expected}")]
#[non_exhaustive]
pub struct SettingsError {
    /// Name of the variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What would be accepted.
    pub expected: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(value: Option<&str>) -> Result<Duration, String> {
        Settings::from_lookup(|variable| {
            value
                .filter(|_| variable == "HCOM_TIMEOUT")
                .map(OsString::from)
        })
        .map(|settings| settings.timeout)
        .map_err(|error| error.to_string())
    }

    #[test]
    fn any_positive_number_of_seconds() {
        assert_eq!(timeout(None), Ok(Duration::from_secs(60)));
        assert_eq!(timeout(Some("0.25")), Ok(Duration::from_millis(250)));
        assert_eq!(timeout(Some(" 7 ")), Ok(Duration::from_secs(7)));
        assert_eq!(timeout(Some("1e-12")), Ok(Duration::from_nanos(1)));
        assert_eq!(
            timeout(Some("1e300")),
            Ok(Duration::from_secs(1_000_000_000))
        );
    }

    #[test]
    fn limits_are_whole_numbers_and_bounded() {
        let read = |name: &'static str, value: &'static str| {
            Settings::from_lookup(|variable| (variable == name).then(|| value.into()))
        };
        assert_eq!(read("HCOM_CAPTURES", "3").unwrap().captures, 3);
        let entries = |value| read("HCOM_RECORD_ENTRIES", value).unwrap().record_entries;
        assert_eq!([entries("0"), entries("9999999")], [0, 65_536]);
        assert_eq!(
            read("HCOM_CAPTURES", "-1").unwrap_err().to_string(),
            "HCOM_CAPTURES is \"-1\": expected a whole number, such as 64, or 0 for none"
        );
    }

    #[test]
    fn a_bad_value_names_variable_value_and_what_is_expected() {
        for value in ["0", "-1", "NaN", "", "1m"] {
            assert_eq!(
                timeout(Some(value)),
                Err(format!(
                    "HCOM_TIMEOUT is {value:?}: expected a positive number of seconds, such as 60 or 0.5"
                ))
            );
        }
    }
}
