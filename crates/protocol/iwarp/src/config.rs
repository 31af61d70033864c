//! What an end of a connection wants.

use crate::wire::{PRIVATE_DATA_MAX_BYTES, Rtr};

/// IRD and ORD are numbers of 14 bits, of which the highest says "not negotiated" (RFC 6581 9).
pub(crate) const DEPTH_MAX: u16 = 0x3ffe;

/// Segments are no shorter, so that every header fits.
const SEGMENT_MIN_BYTES: usize = 128;

/// The longest segment of use: ULPDUs have 65,535 bytes at the most.
const SEGMENT_MAX_BYTES: usize = 65_544;

/// What an end of a connection wants, and its limits.
#[derive(Clone, Debug)]
pub struct Config {
    /// Of an initiator: the revision of MPA to ask for, 1 or 2. Only 2 negotiates IRD, ORD and peer-to-peer.
    pub revision: u8,
    /// Whether this end wants CRCs. There are some if one end wants them.
    pub crc: bool,
    /// Of an initiator: that the connection is to be peer-to-peer, whose first message says that the responder may begin.
    pub peer_to_peer: bool,
    /// What that message may be: of an initiator, what it can send; of a responder, what it takes.
    pub rtr: Rtr,
    /// RDMA Reads of the peer at a time, at the most.
    pub ird: u16,
    /// RDMA Reads of this end at a time, at the most. More wait.
    pub ord: u16,
    /// Bytes of the longest FPDU that is sent: the segment size of TCP, or more where TCP cuts as it likes.
    pub segment_bytes: usize,
    /// Bytes for what is not received in place.
    pub staging_bytes: usize,
    /// Orders that may wait, and reads that may be under way besides.
    pub orders_max: usize,
    /// Receive buffers that may be posted at a time.
    pub receives_max: usize,
    /// Registrations at a time.
    pub registrations_max: usize,
    /// What STags are made from; random, and another one for each connection.
    pub seed: [u8; 16],
}

impl Default for Config {
    fn default() -> Self {
        Config {
            revision: 2,
            crc: true,
            peer_to_peer: false,
            rtr: Rtr::ALL,
            ird: 128,
            ord: 128,
            segment_bytes: SEGMENT_MAX_BYTES,
            staging_bytes: 64 << 10,
            orders_max: 1024,
            receives_max: 1024,
            registrations_max: 4096,
            seed: [0; 16],
        }
    }
}

/// What is wrong with a configuration or with what is to be said to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// There are two revisions of MPA.
    #[error("revision {0} of MPA does not exist: it is 1 or 2")]
    Revision(u8),
    /// Peer-to-peer connections and revision 1.
    #[error("revision 1 of MPA has no peer-to-peer connections: ask for revision 2, or for none of them")]
    PeerToPeer,
    /// IRD and ORD.
    #[error("{0} RDMA Reads at a time are too many: at most {DEPTH_MAX}")]
    Depth(u16),
    /// A segment that is too short.
    #[error("segments of {0} bytes are too short: at least {SEGMENT_MIN_BYTES}")]
    Segment(usize),
    /// Private data that is too long.
    #[error("{given} bytes of private data are too many: at most {most}")]
    PrivateData {
        /// How long it is.
        given: usize,
        /// How long it may be.
        most: usize,
    },
    /// There is nothing to accept or to reject.
    #[error("there is no request to answer")]
    NoRequest,
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=2).contains(&self.revision) {
            return Err(ConfigError::Revision(self.revision));
        }
        if self.peer_to_peer && self.revision < 2 {
            return Err(ConfigError::PeerToPeer);
        }
        if let Some(depth) = [self.ird, self.ord].into_iter().find(|depth| *depth > DEPTH_MAX) {
            return Err(ConfigError::Depth(depth));
        }
        if self.segment_bytes < SEGMENT_MIN_BYTES {
            return Err(ConfigError::Segment(self.segment_bytes));
        }
        Ok(())
    }

    /// Bytes of the longest ULPDU that is sent.
    pub(crate) fn mulpdu_bytes(&self) -> usize {
        mulpdu_bytes(self.segment_bytes)
    }
}

/// Bytes of the longest ULPDU where segments have so many: as FPDU it fits into one, and those that fill one end at a multiple of four (RFC
/// 5044 5.1, without markers).
pub(crate) fn mulpdu_bytes(segment_bytes: usize) -> usize {
    let segment_bytes = segment_bytes.clamp(SEGMENT_MIN_BYTES, SEGMENT_MAX_BYTES);
    (segment_bytes - 6 - segment_bytes % 4).min(usize::from(u16::MAX))
}

/// Private data goes into one frame, of which enhanced setup takes four bytes.
pub(crate) fn check_private_data(private_data: &[u8], is_enhanced: bool) -> Result<(), ConfigError> {
    let most = PRIVATE_DATA_MAX_BYTES - if is_enhanced { 4 } else { 0 };
    let given = private_data.len();
    if given > most { Err(ConfigError::PrivateData { given, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::fpdu_bytes;

    #[test]
    fn an_fpdu_of_the_longest_ulpdu_fits_into_its_segment_and_fills_it() {
        for segment_bytes in 128..3000 {
            let mulpdu = Config { segment_bytes, ..Config::default() }.mulpdu_bytes();
            let whole = fpdu_bytes(mulpdu);
            assert!(whole <= segment_bytes && segment_bytes - whole < 4, "{segment_bytes}");
        }
        assert_eq!(Config { segment_bytes: 1 << 20, ..Config::default() }.mulpdu_bytes(), 65_535);
        assert_eq!(Config::default().mulpdu_bytes(), 65_535);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err()
        };
        assert_eq!(refused(|config| config.revision = 3), ConfigError::Revision(3));
        let peer_to_peer = |config: &mut Config| (config.revision, config.peer_to_peer) = (1, true);
        assert_eq!(refused(peer_to_peer), ConfigError::PeerToPeer);
        assert_eq!(refused(|config| config.ird = 0x3fff), ConfigError::Depth(0x3fff));
        assert_eq!(refused(|config| config.segment_bytes = 127), ConfigError::Segment(127));
        assert_eq!(check_private_data(&[0; 509], true), Err(ConfigError::PrivateData { given: 509, most: 508 }));
        assert!(check_private_data(&[0; 512], false).is_ok() && check_private_data(&[0; 508], true).is_ok());
    }
}
