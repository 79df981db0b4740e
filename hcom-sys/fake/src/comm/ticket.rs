//! The root's ticket: where the ranks of a new communicator meet, and the secret that lets them in.
//!
//! It has the size of `HcclRootInfo`. The first 64 bytes hold an address as text, where programs of the real library
//! look for one; everything that counts lies behind.

use std::ffi::c_char;
use std::hash::{Hash, Hasher};

use hcom_sys::bindings::HcclRootInfo;

use crate::error::{Outcome, refuse};
use hcom_sys::bindings as sys;

const MAGIC: &[u8; 8] = b"hcomfake";
const VERSION: u8 = 1;
const AT: usize = 256;
/// Random bytes that name the socket.
pub(crate) const NAME: usize = 16;
/// Random bytes that prove the ticket.
pub(crate) const TOKEN: usize = 32;

/// What is in a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Names the socket of the rendezvous in the abstract name space.
    pub name: [u8; NAME],
    /// Known to holders of the ticket only.
    pub token: [u8; TOKEN],
}

impl Ticket {
    /// A ticket nobody can guess.
    pub(crate) fn random() -> Outcome<Self> {
        let mut ticket = Self {
            name: [0; NAME],
            token: [0; TOKEN],
        };
        let random =
            getrandom::fill(&mut ticket.name).and_then(|()| getrandom::fill(&mut ticket.token));
        match random {
            Ok(()) => Ok(ticket),
            Err(error) => refuse(
                sys::HCCL_E_SYSCALL.0 as i32,
                format!("no random numbers: {error}"),
            ),
        }
    }

    /// The ticket of those who know the same words, such as a rank table. Whoever knows them can make it.
    pub(crate) fn derived(words: &[&[u8]]) -> Self {
        let word = |index: u64| {
            let mut hasher = std::hash::DefaultHasher::new();
            (index, words).hash(&mut hasher);
            hasher.finish().to_le_bytes()
        };
        let mut bytes = (0..).flat_map(word);
        let mut next = || bytes.next().expect("endless");
        Self {
            name: std::array::from_fn(|_| next()),
            token: std::array::from_fn(|_| next()),
        }
    }

    /// The name of the communicator that the ticket is for.
    pub(crate) fn communicator(&self) -> String {
        let digits: String = self.name.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("hcom-{digits}")
    }

    /// The ticket in the form that programs carry around.
    pub(crate) fn to_root_info(&self) -> HcclRootInfo {
        let mut bytes = [0u8; size_of::<HcclRootInfo>()];
        bytes[..9].copy_from_slice(b"127.0.0.1");
        let name = self.communicator();
        bytes[72..72 + name.len()].copy_from_slice(name.as_bytes());
        let mut at = AT;
        for part in [&MAGIC[..], &[VERSION], &self.name, &self.token] {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        HcclRootInfo {
            internal: bytes.map(|byte| byte as c_char),
        }
    }

    /// Reads a ticket.
    ///
    /// # Errors
    /// `HCCL_E_PARA` when the bytes are none.
    pub(crate) fn from_root_info(info: &HcclRootInfo) -> Outcome<Self> {
        let bytes = info.internal.map(|byte| byte as u8);
        let (magic, rest) = bytes[AT..].split_at(MAGIC.len());
        if magic != MAGIC || rest[0] != VERSION {
            return refuse(
                sys::HCCL_E_PARA.0 as i32,
                "the root info is no ticket of this library: it must come from HcclGetRootInfo, all 4108 bytes",
            );
        }
        let (name, rest) = rest[1..].split_first_chunk().expect("4108 bytes");
        let token = rest.first_chunk().expect("4108 bytes");
        Ok(Self {
            name: *name,
            token: *token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_survives_the_journey() {
        let ticket = Ticket::random().unwrap();
        let info = ticket.to_root_info();
        assert_eq!(Ticket::from_root_info(&info).unwrap(), ticket);
        let torn = HcclRootInfo {
            internal: [0; 4108],
        };
        assert!(
            Ticket::from_root_info(&torn)
                .unwrap_err()
                .text
                .contains("no ticket")
        );
        assert_ne!(Ticket::random().unwrap(), ticket);
        let derived = |words: &[&[u8]]| Ticket::derived(words);
        assert_eq!(derived(&[b"a", b"b"]), derived(&[b"a", b"b"]));
        assert_ne!(derived(&[b"a", b"b"]), derived(&[b"ab"]));
    }
}
