//! The initiator's part of a session's identity.

use std::fmt;

pub use sanwire_scsi::{IscsiName, NameError};

/// The initiator's part of a session's identity (RFC 7143 11.12.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Isid(pub [u8; 6]);

impl fmt::Display for Isid {
    /// As in a TransportID: twelve hexadecimal digits (SPC-5 7.6.4.6).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
