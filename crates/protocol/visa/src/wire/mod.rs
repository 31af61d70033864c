//! Wire formats: what every byte of a VISA packet means. `docs/protocols/visa.md` draws them. All fields are big-endian.

pub mod flow;
pub mod header;
pub mod message;
pub mod offer;
pub mod setup;

pub use header::{Guarding, HEADER_BYTES, Header, Kind};
use sanwire_core::read::ReadError;
pub(crate) use sanwire_core::read::{Reader, put_text};

/// The longest name of a server, in bytes.
pub const NAME_MAX_BYTES: usize = 64;

/// Why bytes from the network are no packet of ours. Such packets are dropped and counted, never answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Shorter than the fields that it must have.
    #[error("the packet ends inside a field")]
    Truncated,
    /// A version that we do not speak.
    #[error("version {0} is not spoken here")]
    Version(u8),
    /// A field has a value that the format does not allow.
    #[error("the field `{0}` has a value that is not allowed")]
    Field(&'static str),
}

impl From<ReadError> for Malformed {
    fn from(error: ReadError) -> Malformed {
        match error {
            ReadError::Truncated => Malformed::Truncated,
            ReadError::Field(field) => Malformed::Field(field),
        }
    }
}
