//! Faults of operations and kernels as text: what `HCOM_FAKE_FAULT` and `hcomExtPlanFaults` say.
//!
//! ```text
//! rank=1,op=5,do=kill ; kind=broadcast,op=2,do=delay:200ms
//! ```
//! Faults are separated by `;`, their fields by `,`, in any order and each at most once.
//!
//! | field | meaning | without it |
//! |---|---|---|
//! | `op=N` | the N-th operation, from 1, of those that the other fields let through | must be there |
//! | `do=ACTION` | what happens in its place or before it | must be there |
//! | `rank=R` | on this rank of the communicator only | on every rank |
//! | `kind=NAME` | operations of this name only, as messages spell it (`all_reduce`, `batch_send_recv`, …) | all |
//! | `comm=NAME` | on communicators of this name only, as `HcclGetCommName` answers it | on all |
//! | `kernel=NAME` | kernels of this operator in place of operations, such as `aclnnRelu`; each stream counts for itself | operations |
//! | `device=D` | with `kernel=`: on this device only | on every device |
//!
//! | action | meaning |
//! |---|---|
//! | `kill` | the process of the rank ends by SIGKILL |
//! | `stop` | the process of the rank stops by SIGSTOP; after SIGCONT it goes on with the operation |
//! | `delay:TIME` | the operation begins so much later: a number and `us`, `ms` or `s` |
//! | `drop` | the operation does nothing on this rank and reports success; its number in the sequence is used up |
//! | `error:CODE` | the operation fails on this rank with this code of the runtime, such as 507018 |

use std::time::Duration;

use crate::comm::{Kind, MOST_RANKS};

/// What befalls an operation or a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The process is killed.
    Kill,
    /// The process is stopped.
    Stop,
    /// The operation begins later.
    Delay(Duration),
    /// The operation does nothing and succeeds.
    Drop,
    /// The operation fails with this code.
    Error(i32),
}

/// What is counted, and struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Operations of communicators.
    Operation {
        /// The rank, or any.
        rank: Option<u32>,
        /// The operation's kind, or any.
        kind: Option<Kind>,
        /// The communicator's name, or any.
        comm: Option<String>,
    },
    /// Kernels of an operator.
    Kernel {
        /// The operator.
        name: String,
        /// The device, or any.
        device: Option<u32>,
    },
}

/// One planned fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What it strikes.
    pub target: Target,
    /// The how-manieth of those that fit, from 1.
    pub op: u64,
    /// What happens.
    pub action: Action,
}

/// Reads faults; an empty text is none.
///
/// # Errors
/// A sentence that names the fault, the field, what was expected and what came.
pub(crate) fn parse(text: &str) -> Result<Vec<Fault>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(';')
        .map(|fault| one(fault).map_err(|what| format!("fault `{}`: {what}", fault.trim())))
        .collect()
}

fn one(text: &str) -> Result<Fault, String> {
    let (mut rank, mut kind, mut comm, mut op, mut action) = (None, None, None, None, None);
    let (mut kernel, mut device) = (None, None);
    for field in text.split(',') {
        let Some((name, value)) = field.split_once('=') else {
            return Err(format!(
                "expected fields name=value with commas between, got `{}`",
                field.trim()
            ));
        };
        let (name, value) = (name.trim(), value.trim());
        let again = match name {
            "rank" => rank
                .replace(number(name, value, 0, u64::from(MOST_RANKS) - 1)? as u32)
                .is_some(),
            "op" => op
                .replace(number(name, value, 1, u64::from(u32::MAX))?)
                .is_some(),
            "kind" => kind.replace(kind_of(value)?).is_some(),
            "comm" if value.is_empty() => return Err("comm= is empty".to_owned()),
            "comm" => comm.replace(value.to_owned()).is_some(),
            "kernel" => kernel.replace(kernel_of(value)?).is_some(),
            "device" => device.replace(number(name, value, 0, 63)? as u32).is_some(),
            "do" => action.replace(action_of(value)?).is_some(),
            _ => {
                return Err(format!(
                    "unknown field `{name}`; there are op, do, rank, kind, comm, kernel and device"
                ));
            }
        };
        if again {
            return Err(format!("the field `{name}` appears twice"));
        }
    }
    let of_operation = rank.is_some() || kind.is_some() || comm.is_some();
    let target = match (kernel, device) {
        (Some(_), _) if of_operation => {
            return Err("rank=, kind= and comm= choose operations, kernel= kernels".to_owned());
        }
        (Some(name), device) => Target::Kernel { name, device },
        (None, Some(_)) => return Err("device= chooses kernels, but kernel= is missing".to_owned()),
        (None, None) => Target::Operation { rank, kind, comm },
    };
    Ok(Fault {
        target,
        op: op.ok_or("op=N is missing: which operation, from 1")?,
        action: action.ok_or_else(|| format!("do=ACTION is missing: {ACTIONS}"))?,
    })
}

const ACTIONS: &str = "kill, stop, delay:TIME, drop or error:CODE";

fn number(name: &str, value: &str, low: u64, high: u64) -> Result<u64, String> {
    match value.parse() {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(format!(
            "{name}={value}: expected a whole number from {low} to {high}"
        )),
    }
}

fn kind_of(value: &str) -> Result<Kind, String> {
    Kind::all()
        .find(|kind| kind.name() == value)
        .ok_or_else(|| {
            let names: Vec<&str> = Kind::all().map(Kind::name).collect();
            format!("kind={value}: expected one of {}", names.join(", "))
        })
}

fn kernel_of(value: &str) -> Result<String, String> {
    let operator = |name: &str| name.starts_with("aclnn") && !name.ends_with("GetWorkspaceSize");
    let known = crate::table()
        .symbols
        .iter()
        .any(|(name, _)| *name == value && operator(name));
    match known {
        true => Ok(value.to_owned()),
        false => Err(format!(
            "kernel={value}: expected an operator that this library has, such as aclnnRelu"
        )),
    }
}

fn action_of(value: &str) -> Result<Action, String> {
    let (name, argument) = match value.split_once(':') {
        Some((name, argument)) => (name.trim(), Some(argument.trim())),
        None => (value, None),
    };
    match (name, argument) {
        ("kill", None) => Ok(Action::Kill),
        ("stop", None) => Ok(Action::Stop),
        ("drop", None) => Ok(Action::Drop),
        ("delay", Some(time)) => delay(time)
            .map(Action::Delay)
            .ok_or_else(|| format!("do={value}: expected a time such as 200ms: a whole number and us, ms or s, at most a day")),
        ("error", Some(code)) => match code.parse() {
            Ok(code @ 1..) => Ok(Action::Error(code)),
            _ => Err(format!("do={value}: expected a code of the runtime above 0, such as error:507018")),
        },
        _ => Err(format!("do={value}: expected {ACTIONS}")),
    }
}

fn delay(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let micros = match &text[digits.len()..] {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return None,
    };
    let time = Duration::from_micros(digits.parse::<u64>().ok()?.checked_mul(micros)?);
    (time <= Duration::from_secs(86_400)).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_and_action_is_read() {
        let operation = |rank, kind, comm, op, action| Fault {
            target: Target::Operation { rank, kind, comm },
            op,
            action,
        };
        let any = |op, action| operation(None, None, None, op, action);
        assert_eq!(parse(" "), Ok(vec![]));
        assert_eq!(
            parse(
                "rank=1,op=5,do=kill; op = 1 , do = delay : 200ms;op=2,do=stop;do=drop,op=3;op=4,do=error:507018"
            ),
            Ok(vec![
                operation(Some(1), None, None, 5, Action::Kill),
                any(1, Action::Delay(Duration::from_millis(200))),
                any(2, Action::Stop),
                any(3, Action::Drop),
                any(4, Action::Error(507_018)),
            ])
        );
        assert_eq!(
            parse("comm=tp,kind=all_to_all_v,op=4294967295,do=delay:7us"),
            Ok(vec![operation(
                None,
                Some(Kind::AllToAllV),
                Some("tp".to_owned()),
                4_294_967_295,
                Action::Delay(Duration::from_micros(7))
            )])
        );
        assert_eq!(
            parse("device=3,kernel=aclnnRelu,op=9,do=delay:4s"),
            Ok(vec![Fault {
                target: Target::Kernel {
                    name: "aclnnRelu".to_owned(),
                    device: Some(3),
                },
                op: 9,
                action: Action::Delay(Duration::from_secs(4)),
            }])
        );
    }

    #[test]
    fn every_mistake_is_named() {
        for (text, what) in [
            ("op=1,do=kill;", "fault ``: expected fields name=value"),
            ("kill", "got `kill`"),
            (
                "op=1",
                "do=ACTION is missing: kill, stop, delay:TIME, drop or error:CODE",
            ),
            ("do=kill", "op=N is missing"),
            (
                "op=0,do=kill",
                "op=0: expected a whole number from 1 to 4294967295",
            ),
            ("op=-1,do=kill", "op=-1: expected"),
            (
                "op=1,do=kill,rank=64",
                "rank=64: expected a whole number from 0 to 63",
            ),
            ("op=1,op=2,do=kill", "the field `op` appears twice"),
            ("op=1,do=kill,node=3", "unknown field `node`"),
            ("op=1,do=kill,comm=", "comm= is empty"),
            (
                "op=1,do=kill,kind=allreduce",
                "kind=allreduce: expected one of all_reduce, reduce",
            ),
            (
                "op=1,do=kill,kernel=relu",
                "kernel=relu: expected an operator",
            ),
            ("op=1,do=kill,kernel=aclnnRelu,rank=1", "kernel= kernels"),
            ("op=1,do=kill,device=1", "kernel= is missing"),
            ("op=1,do=die", "do=die: expected kill, stop"),
            ("op=1,do=kill:9", "do=kill:9: expected kill, stop"),
            ("op=1,do=delay", "do=delay: expected kill, stop"),
            (
                "op=1,do=delay:200",
                "do=delay:200: expected a time such as 200ms",
            ),
            ("op=1,do=delay:1.5s", "expected a time"),
            ("op=1,do=delay:86401s", "at most a day"),
            ("op=1,do=delay:18446744073709551615s", "expected a time"),
            ("op=1,do=error:0", "do=error:0: expected a code"),
            ("op=1,do=error:x", "expected a code"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("fault `"), "{error}");
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
