//! The numbers and the byte layout of NBD (NetworkBlockDevice/nbd, doc/proto.md).

/// Bytes of one request in the transmission phase.
pub(crate) const REQUEST_BYTES: usize = 28;
/// Bytes of the longest reply head: a structured error with an offset and no message.
pub(crate) const REPLY_HEAD_MAX_BYTES: usize = 34;

pub(crate) const MAGIC_INIT: u64 = 0x4e42_444d_4147_4943;
pub(crate) const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054;
pub(crate) const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const MAGIC_REQUEST: u32 = 0x2560_9513;
const MAGIC_SIMPLE_REPLY: u32 = 0x6744_6698;
const MAGIC_CHUNK: u32 = 0x668e_33ef;

/// Handshake flags, both directions.
pub(crate) const FLAG_FIXED_NEWSTYLE: u16 = 1;
pub(crate) const FLAG_NO_ZEROES: u16 = 2;

pub(crate) const OPT_EXPORT_NAME: u32 = 1;
pub(crate) const OPT_ABORT: u32 = 2;
pub(crate) const OPT_LIST: u32 = 3;
pub(crate) const OPT_INFO: u32 = 6;
pub(crate) const OPT_GO: u32 = 7;
pub(crate) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(crate) const OPT_LIST_META_CONTEXT: u32 = 9;
pub(crate) const OPT_SET_META_CONTEXT: u32 = 10;

pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_SERVER: u32 = 2;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_META_CONTEXT: u32 = 4;
pub(crate) const REP_ERR_UNSUP: u32 = 0x8000_0001;
pub(crate) const REP_ERR_INVALID: u32 = 0x8000_0003;
pub(crate) const REP_ERR_UNKNOWN: u32 = 0x8000_0006;

pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_NAME: u16 = 1;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

pub(crate) const TRANSMISSION_HAS_FLAGS: u16 = 1;
pub(crate) const TRANSMISSION_READ_ONLY: u16 = 1 << 1;
pub(crate) const TRANSMISSION_SEND_FLUSH: u16 = 1 << 2;
pub(crate) const TRANSMISSION_SEND_FUA: u16 = 1 << 3;
pub(crate) const TRANSMISSION_SEND_TRIM: u16 = 1 << 5;
pub(crate) const TRANSMISSION_SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(crate) const TRANSMISSION_SEND_DF: u16 = 1 << 7;
pub(crate) const TRANSMISSION_CAN_MULTI_CONN: u16 = 1 << 8;
pub(crate) const TRANSMISSION_SEND_CACHE: u16 = 1 << 10;

pub(crate) const CMD_READ: u16 = 0;
pub(crate) const CMD_WRITE: u16 = 1;
pub(crate) const CMD_DISCONNECT: u16 = 2;
pub(crate) const CMD_FLUSH: u16 = 3;
pub(crate) const CMD_TRIM: u16 = 4;
pub(crate) const CMD_CACHE: u16 = 5;
pub(crate) const CMD_WRITE_ZEROES: u16 = 6;
pub(crate) const CMD_BLOCK_STATUS: u16 = 7;

pub(crate) const CMD_FLAG_FUA: u16 = 1;
pub(crate) const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
pub(crate) const CMD_FLAG_DF: u16 = 1 << 2;
pub(crate) const CMD_FLAG_REQ_ONE: u16 = 1 << 3;

/// The only metadata context: what is allocated, and what reads as zeroes.
pub(crate) const BASE_ALLOCATION: &[u8] = b"base:allocation";
/// Its number on every connection.
pub(crate) const BASE_ALLOCATION_ID: u32 = 1;
pub(crate) const STATE_HOLE: u32 = 1;
pub(crate) const STATE_ZERO: u32 = 2;

const CHUNK_FLAG_DONE: u16 = 1;
const CHUNK_NONE: u16 = 0;
const CHUNK_OFFSET_DATA: u16 = 1;
const CHUNK_BLOCK_STATUS: u16 = 5;
const CHUNK_ERROR: u16 = 0x8001;

/// The errors of the protocol; the numbers are Linux's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Errno {
    Permission = 1,
    Io = 5,
    NoMemory = 12,
    Invalid = 22,
    NoSpace = 28,
    Unsupported = 95,
    Shutdown = 108,
}

/// One request as it stands on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RawRequest {
    pub(crate) flags: u16,
    pub(crate) kind: u16,
    pub(crate) cookie: u64,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u32,
}

impl RawRequest {
    /// Reads the 28 bytes; `None` when the magic is wrong: nothing on the connection can be trusted then.
    pub(crate) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        (be32(bytes, 0) == MAGIC_REQUEST).then(|| RawRequest {
            flags: be16(bytes, 4),
            kind: be16(bytes, 6),
            cookie: be64(bytes, 8),
            offset_bytes: be64(bytes, 16),
            length_bytes: be32(bytes, 24),
        })
    }

    #[cfg(test)]
    pub(crate) fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&MAGIC_REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset_bytes.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length_bytes.to_be_bytes());
        bytes
    }
}

/// What precedes a reply's data, without allocation.
#[derive(Clone, Debug)]
pub(crate) struct ReplyHead {
    bytes: [u8; REPLY_HEAD_MAX_BYTES],
    length: usize,
}

impl ReplyHead {
    /// A simple reply; a successful read's data follows it.
    pub(crate) fn simple(cookie: u64, error: Option<Errno>) -> Self {
        ReplyHead::empty().u32(MAGIC_SIMPLE_REPLY).u32(error.map_or(0, |error| error as u32)).u64(cookie)
    }

    /// A chunk of `length` bytes of read data, which follow it.
    pub(crate) fn offset_data(cookie: u64, offset_bytes: u64, length: u32, done: bool) -> Self {
        ReplyHead::chunk(cookie, CHUNK_OFFSET_DATA, length + 8, done).u64(offset_bytes)
    }

    /// A last chunk of block status in the only context; so many bytes of descriptors follow it.
    pub(crate) fn block_status(cookie: u64, length: u32) -> Self {
        ReplyHead::chunk(cookie, CHUNK_BLOCK_STATUS, length + 4, true).u32(BASE_ALLOCATION_ID)
    }

    /// The last chunk when there is nothing more to say.
    pub(crate) fn done(cookie: u64) -> Self {
        ReplyHead::chunk(cookie, CHUNK_NONE, 0, true)
    }

    /// A last chunk that says that the request failed.
    pub(crate) fn error(cookie: u64, error: Errno) -> Self {
        ReplyHead::chunk(cookie, CHUNK_ERROR, 6, true).u32(error as u32).u16(0)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn empty() -> Self {
        ReplyHead { bytes: [0; REPLY_HEAD_MAX_BYTES], length: 0 }
    }

    fn chunk(cookie: u64, kind: u16, length: u32, done: bool) -> Self {
        let flags = if done { CHUNK_FLAG_DONE } else { 0 };
        ReplyHead::empty().u32(MAGIC_CHUNK).u16(flags).u16(kind).u64(cookie).u32(length)
    }

    fn u16(self, value: u16) -> Self {
        self.put(&value.to_be_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.put(&value.to_be_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.put(&value.to_be_bytes())
    }

    fn put(mut self, more: &[u8]) -> Self {
        self.bytes[self.length..self.length + more.len()].copy_from_slice(more);
        self.length += more.len();
        self
    }
}

/// The big-endian number at a place that the caller knows to exist.
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// As [`be16`], with four bytes.
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}

/// As [`be16`], with eight bytes.
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_wire() {
        let request =
            RawRequest { flags: 1, kind: CMD_WRITE, cookie: u64::MAX - 1, offset_bytes: 1 << 40, length_bytes: 77 };
        let mut bytes = request.to_bytes();
        assert_eq!(RawRequest::parse(&bytes), Some(request));
        bytes[0] ^= 1;
        assert_eq!(RawRequest::parse(&bytes), None);
    }

    #[test]
    fn reply_heads_have_the_layout_of_the_document() {
        let simple = ReplyHead::simple(7, Some(Errno::Io));
        assert_eq!(simple.as_bytes(), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7]);
        let data = ReplyHead::offset_data(7, 4096, 512, true);
        let expected =
            [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 2, 8, 0, 0, 0, 0, 0, 0, 16, 0];
        assert_eq!(data.as_bytes(), expected);
        assert_eq!(ReplyHead::error(7, Errno::Io).as_bytes().len(), 26);
        assert_eq!(ReplyHead::done(7).as_bytes().len(), 20);
    }
}
