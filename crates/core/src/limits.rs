//! Bounds that several rooms must agree on. Every queue and pool of Sanwire is sized from these.

/// The largest data transfer of one command, in bytes, that every wire carries, and that is done wholly or not at all.
pub const TRANSFER_MAX_BYTES: usize = 1 << 20;

/// The largest data transfer of one READ, WRITE, VERIFY or WRITE AND VERIFY, in bytes, over HyperSCSI, which has the data of a
/// command in memory as a whole (the paper: 512 KiB, six times that with jumbo frames).
pub const HYPERSCSI_TRANSFER_MAX_BYTES: usize = 3 << 20;

/// The largest data transfer of one READ, WRITE, VERIFY or WRITE AND VERIFY, in bytes, over a wire that carries it in pieces.
pub const LONG_TRANSFER_MAX_BYTES: usize = 16 << 20;

/// A piece of a longer transfer, in bytes: a multiple of every block length.
pub const PIECE_BYTES: usize = 512 << 10;

/// Volumes of a server, and logical units of one target, at the most: what one level of LUNs addresses (SAM-5 4.7.7.3), but one.
pub const LUNS_MAX: usize = 16_383;

/// Commands that one HyperSCSI connection has in transit at the most (HyperSCSI 8).
pub const COMMANDS_IN_TRANSIT_MAX: usize = 64;

/// A volume's name: bytes of UTF-8, at the most.
pub const VOLUME_NAME_MAX_BYTES: usize = 64;
