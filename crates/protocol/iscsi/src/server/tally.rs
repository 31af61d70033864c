//! What a server has counted of errors on its connections, and of how they were made good.

use super::Server;

/// Counted since the server began.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Headers whose digest was wrong: each has cost a connection.
    pub header_digest_errors: u64,
    /// Data segments whose digest was wrong.
    pub data_digest_errors: u64,
    /// Recoveries of each level (RFC 7143 7): sessions that their initiators began anew; what was missed and sent again within a
    /// session; commands that went on by another connection.
    pub recoveries: [u64; 3],
}

impl Server {
    /// What was counted.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.shared.tally
    }
}
