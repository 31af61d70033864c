//! What two ends have agreed on (RFC 7143 13).

use crate::digest::Digests;

/// The agreement on one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionParameters {
    /// Which digests PDUs carry.
    pub digests: Digests,
    /// The longest data segment that the other end takes (its MaxRecvDataSegmentLength), in bytes.
    pub send_data_max_bytes: u32,
    /// The longest data segment that we take, in bytes.
    pub receive_data_max_bytes: u32,
}

/// The agreement on a session, made by its leading connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionParameters {
    /// Data goes out only when asked for, beyond the immediate data.
    pub initial_r2t: bool,
    /// Commands may bring data along.
    pub immediate_data: bool,
    /// The longest sequence of Data-In or of solicited Data-Out, in bytes.
    pub max_burst_bytes: u32,
    /// The most that is sent without being asked for, in bytes.
    pub first_burst_bytes: u32,
    /// R2Ts of one task that may be unanswered.
    pub max_outstanding_r2t: u16,
    /// PDUs of a sequence have rising offsets.
    pub data_pdu_in_order: bool,
    /// Sequences have rising offsets.
    pub data_sequence_in_order: bool,
    /// 0, 1 or 2.
    pub error_recovery_level: u8,
    /// Connections of the session, at the most.
    pub max_connections: u16,
    /// Seconds to wait after a loss before coming back.
    pub time_to_wait_s: u16,
    /// Seconds after that for which tasks are kept.
    pub time_to_retain_s: u16,
    /// RFC 7144's level: 1, or 2 when both ends have its task management.
    pub protocol_level: u16,
    /// Over RDMA, PDUs that nothing counts and that the other end takes at a time on each connection (its MaxOutstandingUnexpectedPDUs);
    /// 0: it says nothing, or as many as one likes.
    pub unexpected_max: u32,
}

impl Default for ConnectionParameters {
    /// What holds for keys that nobody names (RFC 7143 13.1, 13.12).
    fn default() -> Self {
        ConnectionParameters { digests: Digests::default(), send_data_max_bytes: 8192, receive_data_max_bytes: 8192 }
    }
}

impl Default for SessionParameters {
    /// What holds for keys that nobody names (RFC 7143 13).
    fn default() -> Self {
        SessionParameters {
            initial_r2t: true,
            immediate_data: true,
            max_burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            max_connections: 1,
            time_to_wait_s: 2,
            time_to_retain_s: 20,
            protocol_level: 1,
            unexpected_max: 0,
        }
    }
}
