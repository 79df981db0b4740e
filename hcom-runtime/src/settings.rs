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
}

impl Default for Settings {
    /// No explicit library, 60 s for each timeout.
    fn default() -> Settings {
        Settings {
            library: None,
            connect_timeout: DEFAULT_TIMEOUT,
            timeout: DEFAULT_TIMEOUT,
        }
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Longer limits mean the same (30 years) and keep clock arithmetic away from overflow.
const LONGEST_TIMEOUT: f64 = 1e9;

impl Settings {
    /// Reads `HCOM_CONNECT_TIMEOUT` and `HCOM_TIMEOUT`: seconds, any positive value, fractions
    /// included; 60 when unset.
    ///
    /// # Errors
    /// A value that is not a positive number.
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
        Ok(Settings {
            library: None,
            connect_timeout: seconds("HCOM_CONNECT_TIMEOUT")?,
            timeout: seconds("HCOM_TIMEOUT")?,
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
