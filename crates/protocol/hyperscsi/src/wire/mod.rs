//! Wire formats: what every byte of a HyperSCSI packet means. `docs/protocols/hyperscsi.md` draws them.

pub mod command;
pub mod flow;
pub mod header;
pub mod links;
pub mod live;
pub mod offer;
pub mod options;
pub mod packet;
pub mod setup;

pub(crate) use header::fragment_number;
pub use header::{FRAGMENT_NUMBERS, FRAGMENTS_MAX, Header, Opcode, TAGS, Tag};
pub use packet::{OVERHEAD_BYTES, PREFIX_BYTES, Prefix, Protection, RawPacket};
use sanwire_core::read::ReadError;
pub(crate) use sanwire_core::read::{Reader, put_text};

/// Why bytes from the network are no packet of ours. Such packets are dropped and counted, never answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Shorter than the fields that it must have.
    #[error("the packet ends inside a field")]
    Truncated,
    /// The length field says more than there is.
    #[error("the length field exceeds the packet")]
    Length,
    /// A version of the header that we do not speak.
    #[error("header version {0} is not spoken here")]
    Version(u8),
    /// An operation code without a meaning.
    #[error("operation code {0:#04x} has no meaning here")]
    Opcode(u8),
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
