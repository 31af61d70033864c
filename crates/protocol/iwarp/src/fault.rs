//! What ends a stream: the errors that a Terminate message tells (RFC 5040 4.8, RFC 5041 8, RFC 5044 8, RFC 6581 10).

/// What is wrong with what a peer sent, or with this end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each is named by its message")]
pub enum Fault {
    #[error("RDMAP: local catastrophic error")]
    LocalCatastrophic,
    #[error("RDMAP: invalid STag")]
    ReadStag,
    #[error("RDMAP: base or bounds violation")]
    ReadBounds,
    #[error("RDMAP: access rights violation")]
    Access,
    #[error("RDMAP: STag not associated with the stream")]
    ForeignStag,
    #[error("RDMAP: the tagged offset wraps")]
    ReadWrap,
    #[error("RDMAP: remote protection error")]
    Protection,
    #[error("RDMAP: invalid version")]
    RdmapVersion,
    #[error("RDMAP: unexpected operation code")]
    Opcode,
    #[error("RDMAP: catastrophic error of the stream")]
    Stream,
    #[error("RDMAP: catastrophic error of all streams")]
    Global,
    #[error("RDMAP: the STag cannot be invalidated")]
    Invalidation,
    #[error("RDMAP: remote operation error")]
    Operation,
    #[error("DDP: local catastrophic error")]
    DdpCatastrophic,
    #[error("DDP: invalid STag")]
    Stag,
    #[error("DDP: base or bounds violation")]
    Bounds,
    #[error("DDP: STag not associated with the stream")]
    ForeignDdpStag,
    #[error("DDP: the tagged offset wraps")]
    Wrap,
    #[error("DDP: invalid version of a tagged segment")]
    TaggedVersion,
    #[error("DDP: invalid queue number")]
    Queue,
    #[error("DDP: no buffer for the message")]
    NoBuffer,
    #[error("DDP: message sequence number out of range")]
    Sequence,
    #[error("DDP: invalid message offset")]
    Offset,
    #[error("DDP: the message is longer than its buffer")]
    TooLong,
    #[error("DDP: invalid version of an untagged segment")]
    UntaggedVersion,
    #[error("MPA: the TCP connection was lost")]
    TcpLost,
    #[error("MPA: wrong CRC")]
    Crc,
    #[error("MPA: the length of an FPDU does not fit what is in it")]
    Length,
    #[error("MPA: invalid request or reply frame")]
    Startup,
    #[error("MPA: local catastrophic error")]
    MpaCatastrophic,
    #[error("MPA: the peer takes fewer RDMA Reads at a time than this end needs")]
    Ird,
    #[error("MPA: no way in common to say that the responder may begin")]
    Rtr,
}

use Fault as F;

/// Each with its layer, its type and its code.
const CODES: [(Fault, (u8, u8, u8)); 32] = [
    (F::LocalCatastrophic, (0, 0, 0x00)),
    (F::ReadStag, (0, 1, 0x00)),
    (F::ReadBounds, (0, 1, 0x01)),
    (F::Access, (0, 1, 0x02)),
    (F::ForeignStag, (0, 1, 0x03)),
    (F::ReadWrap, (0, 1, 0x04)),
    (F::Protection, (0, 1, 0xff)),
    (F::RdmapVersion, (0, 2, 0x05)),
    (F::Opcode, (0, 2, 0x06)),
    (F::Stream, (0, 2, 0x07)),
    (F::Global, (0, 2, 0x08)),
    (F::Invalidation, (0, 2, 0x09)),
    (F::Operation, (0, 2, 0xff)),
    (F::DdpCatastrophic, (1, 0, 0x00)),
    (F::Stag, (1, 1, 0x00)),
    (F::Bounds, (1, 1, 0x01)),
    (F::ForeignDdpStag, (1, 1, 0x02)),
    (F::Wrap, (1, 1, 0x03)),
    (F::TaggedVersion, (1, 1, 0x04)),
    (F::Queue, (1, 2, 0x01)),
    (F::NoBuffer, (1, 2, 0x02)),
    (F::Sequence, (1, 2, 0x03)),
    (F::Offset, (1, 2, 0x04)),
    (F::TooLong, (1, 2, 0x05)),
    (F::UntaggedVersion, (1, 2, 0x06)),
    (F::TcpLost, (2, 0, 0x01)),
    (F::Crc, (2, 0, 0x02)),
    (F::Length, (2, 0, 0x03)),
    (F::Startup, (2, 0, 0x04)),
    (F::MpaCatastrophic, (2, 0, 0x05)),
    (F::Ird, (2, 0, 0x06)),
    (F::Rtr, (2, 0, 0x07)),
];

impl Fault {
    /// Its layer, its type and its code, as a Terminate message has them.
    #[must_use]
    pub fn code(self) -> (u8, u8, u8) {
        CODES.iter().find(|(fault, _)| *fault == self).map_or((0, 0, 0), |(_, code)| *code)
    }

    /// The fault with this layer, type and code.
    #[must_use]
    pub fn from_code(code: (u8, u8, u8)) -> Option<Fault> {
        CODES.iter().find(|(_, of)| *of == code).map(|(fault, _)| *fault)
    }

    /// Whether a Terminate message about it has the header of the segment that it is about: one that was not read has none.
    pub(crate) fn is_of_segment(self) -> bool {
        self.code().0 < 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_code_of_its_own() {
        for (fault, code) in CODES {
            assert_eq!((fault.code(), Fault::from_code(code)), (code, Some(fault)));
        }
        assert_eq!(Fault::from_code((3, 0, 0)), None);
    }
}
