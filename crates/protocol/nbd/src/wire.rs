//! The numbers and the byte layout of NBD (NetworkBlockDevice/nbd, doc/proto.md).

/// Bytes of one request in the transmission phase.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of the longest reply head: a structured error with an offset and no message.
pub const REPLY_HEAD_MAX_BYTES: usize = 34;

/// The longest name or explanation (doc/proto.md, "String values").
pub const TEXT_MAX_BYTES: usize = 4096;

/// "NBDMAGIC": the first bytes of a server.
pub const MAGIC_INIT: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT": the server negotiates by options; and the first bytes of each option.
pub const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054;
/// The first bytes of each answer to an option.
pub const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const SIMPLE_REPLY_BYTES: usize = 16;
const CHUNK_HEAD_BYTES: usize = 20;
const MAGIC_REQUEST: u32 = 0x2560_9513;
const MAGIC_SIMPLE_REPLY: u32 = 0x6744_6698;
const MAGIC_CHUNK: u32 = 0x668e_33ef;

/// Handshake flag, both directions: answers to options have a fixed form.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// No 124 zeroes follow the answer to [`OPT_EXPORT_NAME`].
pub const FLAG_NO_ZEROES: u16 = 2;

/// Option: begin with this export; the old way, which cannot tell of errors.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: the negotiation ends here.
pub const OPT_ABORT: u32 = 2;
/// Option: name the exports.
pub const OPT_LIST: u32 = 3;
/// Option: tell about an export.
pub const OPT_INFO: u32 = 6;
/// Option: tell about an export and begin with it.
pub const OPT_GO: u32 = 7;
/// Option: answers come in chunks.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: name the metadata contexts.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: choose metadata contexts.
pub const OPT_SET_META_CONTEXT: u32 = 10;

/// Answer: done.
pub const REP_ACK: u32 = 1;
/// Answer: an export.
pub const REP_SERVER: u32 = 2;
/// Answer: something about an export.
pub const REP_INFO: u32 = 3;
/// Answer: a metadata context and its number.
pub const REP_META_CONTEXT: u32 = 4;
/// Answer: the option is not known.
pub const REP_ERR_UNSUP: u32 = 0x8000_0001;
/// Answer: the server's rules forbid it.
pub const REP_ERR_POLICY: u32 = 0x8000_0002;
/// Answer: the option is malformed.
pub const REP_ERR_INVALID: u32 = 0x8000_0003;
/// Answer: first TLS, then this.
pub const REP_ERR_TLS_REQD: u32 = 0x8000_0005;
/// Answer: there is no such export.
pub const REP_ERR_UNKNOWN: u32 = 0x8000_0006;

/// About an export: size and flags.
pub const INFO_EXPORT: u16 = 0;
/// About an export: its name.
pub const INFO_NAME: u16 = 1;
/// About an export: smallest, preferred and largest block.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Flag of an export: always set.
pub const TRANSMISSION_HAS_FLAGS: u16 = 1;
/// Flag of an export: no writes.
pub const TRANSMISSION_READ_ONLY: u16 = 1 << 1;
/// Flag of an export: [`CMD_FLUSH`] is known.
pub const TRANSMISSION_SEND_FLUSH: u16 = 1 << 2;
/// Flag of an export: [`CMD_FLAG_FUA`] is known.
pub const TRANSMISSION_SEND_FUA: u16 = 1 << 3;
/// Flag of an export: [`CMD_TRIM`] is known.
pub const TRANSMISSION_SEND_TRIM: u16 = 1 << 5;
/// Flag of an export: [`CMD_WRITE_ZEROES`] is known.
pub const TRANSMISSION_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Flag of an export: [`CMD_FLAG_DF`] is known.
pub const TRANSMISSION_SEND_DF: u16 = 1 << 7;
/// Flag of an export: a flush on one connection covers what was answered on all.
pub const TRANSMISSION_CAN_MULTI_CONN: u16 = 1 << 8;
/// Flag of an export: [`CMD_CACHE`] is known.
pub const TRANSMISSION_SEND_CACHE: u16 = 1 << 10;

/// Command: read.
pub const CMD_READ: u16 = 0;
/// Command: write the data that follows.
pub const CMD_WRITE: u16 = 1;
/// Command: the end; it is not answered.
pub const CMD_DISCONNECT: u16 = 2;
/// Command: make stable what was answered.
pub const CMD_FLUSH: u16 = 3;
/// Command: the range is not needed any more.
pub const CMD_TRIM: u16 = 4;
/// Command: read ahead.
pub const CMD_CACHE: u16 = 5;
/// Command: write zeroes.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Command: tell what is allocated.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Flag of a command: answer when it is stable.
pub const CMD_FLAG_FUA: u16 = 1;
/// Flag of [`CMD_WRITE_ZEROES`]: keep the space.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Flag of [`CMD_READ`]: all data in one chunk.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// Flag of [`CMD_BLOCK_STATUS`]: one extent will do.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;

/// Bits of an option's answer that say that it failed.
pub const REP_IS_ERROR: u32 = 0x8000_0000;
/// Flag of an export: it is a spinning disk.
pub const TRANSMISSION_ROTATIONAL: u16 = 1 << 4;
/// The metadata context that this program knows: what is allocated, and what reads as zeroes.
pub const BASE_ALLOCATION: &[u8] = b"base:allocation";
/// The number that a server of this program gives it.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// Flag of an extent: no space stands behind it.
pub const STATE_HOLE: u32 = 1;
/// Flag of an extent: it reads as zeroes.
pub const STATE_ZERO: u32 = 2;

/// Flag of a chunk: the last one of its request.
pub const CHUNK_FLAG_DONE: u16 = 1;
/// Chunk: nothing but its flag.
pub const CHUNK_NONE: u16 = 0;
/// Chunk: an offset and data.
pub const CHUNK_OFFSET_DATA: u16 = 1;
/// Chunk: an offset and a length that read as zeroes.
pub const CHUNK_OFFSET_HOLE: u16 = 2;
/// Chunk: a context's number and extents.
pub const CHUNK_BLOCK_STATUS: u16 = 5;
/// Chunk: an error and its text.
pub const CHUNK_ERROR: u16 = 0x8001;
/// Chunk: an error, its text and where it is.
pub const CHUNK_ERROR_OFFSET: u16 = 0x8002;
/// Chunks with this bit are errors, also those of a kind that is not known.
pub const CHUNK_IS_ERROR: u16 = 0x8000;

/// The errors of the protocol; the numbers are Linux's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: the export takes no writes.
    Permission = 1,
    /// Input or output failed.
    Io = 5,
    /// No memory.
    NoMemory = 12,
    /// The request is malformed.
    Invalid = 22,
    /// No space is left.
    NoSpace = 28,
    /// Not supported.
    Unsupported = 95,
    /// The server is about to end.
    Shutdown = 108,
}

/// One request as it stands on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawRequest {
    /// Flags of the command.
    pub flags: u16,
    /// The command, one of `CMD_*`.
    pub kind: u16,
    /// What the answer will carry.
    pub cookie: u64,
    /// Where.
    pub offset_bytes: u64,
    /// How much.
    pub length_bytes: u32,
}

impl RawRequest {
    /// Reads the 28 bytes; `None` when the magic is wrong: nothing on the connection can be trusted then.
    #[must_use]
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        (be32(bytes, 0) == MAGIC_REQUEST).then(|| RawRequest {
            flags: be16(bytes, 4),
            kind: be16(bytes, 6),
            cookie: be64(bytes, 8),
            offset_bytes: be64(bytes, 16),
            length_bytes: be32(bytes, 24),
        })
    }

    /// The 28 bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; REQUEST_BYTES] {
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

/// The first bytes of an answer, as they stand on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RawReply {
    /// The whole answer, but for the data of a read that succeeded.
    Simple {
        /// Zero, or an error's number.
        error: u32,
        /// The request's.
        cookie: u64,
    },
    /// A chunk of an answer; so many bytes belong to it.
    Chunk {
        /// [`CHUNK_FLAG_DONE`].
        flags: u16,
        /// One of `CHUNK_*`.
        kind: u16,
        /// The request's.
        cookie: u64,
        /// Bytes that follow.
        length_bytes: u32,
    },
}

/// What begins neither as a simple nor as a structured answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoReply;

impl RawReply {
    /// The head at the beginning of what has arrived, with its length in bytes; `None` while some of it is missing.
    ///
    /// # Errors
    /// [`NoReply`]: nothing on the connection can be trusted any more.
    pub fn parse(bytes: &[u8]) -> Result<Option<(RawReply, usize)>, NoReply> {
        if bytes.len() < 4 {
            return Ok(None);
        }
        match be32(bytes, 0) {
            MAGIC_SIMPLE_REPLY if bytes.len() < SIMPLE_REPLY_BYTES => Ok(None),
            MAGIC_SIMPLE_REPLY => {
                Ok(Some((RawReply::Simple { error: be32(bytes, 4), cookie: be64(bytes, 8) }, SIMPLE_REPLY_BYTES)))
            }
            MAGIC_CHUNK if bytes.len() < CHUNK_HEAD_BYTES => Ok(None),
            MAGIC_CHUNK => {
                let (flags, kind) = (be16(bytes, 4), be16(bytes, 6));
                let (cookie, length_bytes) = (be64(bytes, 8), be32(bytes, 16));
                Ok(Some((RawReply::Chunk { flags, kind, cookie, length_bytes }, CHUNK_HEAD_BYTES)))
            }
            _ => Err(NoReply),
        }
    }
}

/// What precedes a reply's data, without allocation.
#[derive(Clone, Debug)]
pub struct ReplyHead {
    bytes: [u8; REPLY_HEAD_MAX_BYTES],
    length: usize,
}

impl ReplyHead {
    /// A simple reply; a successful read's data follows it.
    #[must_use]
    pub fn simple(cookie: u64, error: Option<Errno>) -> Self {
        ReplyHead::empty().u32(MAGIC_SIMPLE_REPLY).u32(error.map_or(0, |error| error as u32)).u64(cookie)
    }

    /// A chunk of `length` bytes of read data, which follow it.
    #[must_use]
    pub fn offset_data(cookie: u64, offset_bytes: u64, length: u32, done: bool) -> Self {
        ReplyHead::chunk(cookie, CHUNK_OFFSET_DATA, length + 8, done).u64(offset_bytes)
    }

    /// A last chunk of block status in the only context; so many bytes of descriptors follow it.
    #[must_use]
    pub fn block_status(cookie: u64, length: u32) -> Self {
        ReplyHead::chunk(cookie, CHUNK_BLOCK_STATUS, length + 4, true).u32(BASE_ALLOCATION_ID)
    }

    /// The last chunk when there is nothing more to say.
    #[must_use]
    pub fn done(cookie: u64) -> Self {
        ReplyHead::chunk(cookie, CHUNK_NONE, 0, true)
    }

    /// A last chunk that says that the request failed.
    #[must_use]
    pub fn error(cookie: u64, error: Errno) -> Self {
        ReplyHead::chunk(cookie, CHUNK_ERROR, 6, true).u32(error as u32).u16(0)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
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
#[must_use]
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// As [`be16`], with four bytes.
#[must_use]
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}

/// As [`be16`], with eight bytes.
#[must_use]
pub fn be64(bytes: &[u8], at: usize) -> u64 {
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
