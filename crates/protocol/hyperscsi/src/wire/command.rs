//! Bodies of HCBE_REQUEST and HCBE_REPLY: a command with its data, a status with its data.
//!
//! Every packet of a message starts its body with the fragment fields; then fragment 0 has the message head (a
//! command block or a status) and every fragment its part of the data.
//!
//! ```text
//! offset bytes   fragment fields, in every packet
//!      0     8  sequence: which data packet of this direction it is; the same in every transmission
//!      8     4  data offset: where this packet's data belongs
//!     12     4  data length of the whole message
//!     16     4  acknowledgement: low 32 bits of the lowest sequence not yet received from the peer
//!     20     2  length of the message head in this packet: 0 but in fragment 0
//!     22     2  flags: bit 0: to be acknowledged at once; bits 1-4: sent 0; bits 5-15: length of the data when it is
//!               expanded, in KiB, rounded up; 0: it is not compressed
//!
//! offset bytes   head of a request                  head of a reply
//!      0     8  command number                      command number
//!      8     8  settled below: no lower number      1 byte kind, 1 byte status, 2 bytes sense length,
//!               will ever be asked about again     1 byte protection of the logical unit, 1 byte flags,
//!                                                   2 bytes receipt: 0, or a number that is to be told again
//!     16     8  LUN (SAM-5 4.7)                     sense data
//!     24     4  room for data-in, in bytes
//!     28     1  kind: 0 command, 1 task management, 2 management of the server
//!     29     1  length of the command block, or the function
//!     30     2  the last receipt up to which the client had all when it first gave the command; 0: none
//!     32        command block, or the number of the task to manage
//! ```

use sanwire_buffer::Head;
use sanwire_core::{Lun, Protection};
use sanwire_scsi::{Cdb, Status};

use super::{Malformed, Reader};

/// Compressed data is never longer than so many KiB when it is expanded.
pub const EXPANDED_MAX_KIB: u16 = 0x7ff;

/// Where the length stands among the flags of the fragment fields.
const EXPANDED_SHIFT: u32 = 5;

/// Bytes of the fragment fields.
pub const FRAGMENT_BYTES: usize = 24;

/// The longest sense data that a reply carries (SPC-5 4.4.1: 252 bytes).
pub const SENSE_MAX_BYTES: usize = 252;

const REPLY_FIXED_BYTES: usize = 16;

/// The fragment fields' flag for [`Fragment::answer_at_once`].
const ANSWER_AT_ONCE: u16 = 1;

/// In a reply: the unit's data is not to be compressed.
const INCOMPRESSIBLE: u8 = 1;

/// The kind of a reply to a request that was guarded too little.
const TOO_WEAK: u8 = 2;

/// Bytes of a data packet's body that are not data: the fragment fields, and the message head whose length they tell.
pub(super) fn header_bytes(body: &[u8]) -> usize {
    let head_length = body.get(20..22).map_or(0, |bytes| usize::from(bytes[0]) << 8 | usize::from(bytes[1]));
    (FRAGMENT_BYTES + head_length).min(body.len())
}

/// The fields at the start of every data packet's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fragment {
    /// Which data packet of this direction it is: kept when it is sent again.
    pub sequence: u64,
    /// Where this packet's data belongs in the message's data.
    pub data_offset: u32,
    /// Data bytes of the whole message.
    pub data_length: u32,
    /// Low 32 bits of the lowest sequence that the sender of this packet has not received.
    pub acknowledgement: u32,
    /// Bytes of message head in this packet.
    pub head_length: u16,
    /// Its sender waits for an acknowledgement before it can send more.
    pub answer_at_once: bool,
    /// How long the message's data is when it is expanded, in KiB, rounded up; 0: it is not compressed. At most
    /// [`EXPANDED_MAX_KIB`].
    pub expanded_kib: u16,
}

impl Fragment {
    /// Splits a data packet's body into fields, message head and data.
    ///
    /// # Errors
    /// [`Malformed`] when the lengths do not fit together.
    pub fn read(body: &[u8]) -> Result<(Fragment, &[u8], &[u8]), Malformed> {
        let mut reader = Reader::new(body);
        let fragment = Fragment {
            sequence: reader.u64()?,
            data_offset: reader.u32()?,
            data_length: reader.u32()?,
            acknowledgement: reader.u32()?,
            head_length: reader.u16()?,
            ..Fragment::flags(reader.u16()?)
        };
        let head = reader.bytes(usize::from(fragment.head_length))?;
        let data = reader.rest();
        let end = u64::from(fragment.data_offset) + data.len() as u64;
        if end > u64::from(fragment.data_length) {
            return Err(Malformed::Field("data offset"));
        }
        Ok((fragment, head, data))
    }

    fn flags(flags: u16) -> Fragment {
        let answer_at_once = flags & ANSWER_AT_ONCE != 0;
        Fragment { answer_at_once, expanded_kib: flags >> EXPANDED_SHIFT, ..Fragment::default() }
    }

    /// The bytes of the fields.
    #[must_use]
    pub fn write(&self) -> [u8; FRAGMENT_BYTES] {
        let mut out = [0; FRAGMENT_BYTES];
        out[..8].copy_from_slice(&self.sequence.to_be_bytes());
        out[8..12].copy_from_slice(&self.data_offset.to_be_bytes());
        out[12..16].copy_from_slice(&self.data_length.to_be_bytes());
        out[16..20].copy_from_slice(&self.acknowledgement.to_be_bytes());
        out[20..22].copy_from_slice(&self.head_length.to_be_bytes());
        let at_once = u16::from(self.answer_at_once) * ANSWER_AT_ONCE;
        let flags = at_once | (self.expanded_kib.min(EXPANDED_MAX_KIB) << EXPANDED_SHIFT);
        out[22..].copy_from_slice(&flags.to_be_bytes());
        out
    }
}

/// Task management functions (SAM-5 7), with the codes that iSCSI gives them (RFC 7143 11.5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Function {
    /// One task of this client is given up.
    AbortTask = 1,
    /// The logical unit forgets its tasks and settings.
    LogicalUnitReset = 5,
}

/// What a request asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Execute a command.
    Command(Cdb),
    /// Manage tasks. `task` is the number of the command that [`Function::AbortTask`] is about.
    Manage {
        /// What to do.
        function: Function,
        /// Which command.
        task: u64,
    },
    /// Manage the server: the data says how, and so does that of the answer. Only in messages that are sealed.
    Administer,
}

/// The head of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead {
    /// The command's number in its session: counts from 0, never used twice.
    pub number: u64,
    /// No lower number will be asked about again: so it was when the command was first given.
    pub settled_below: u64,
    /// The client had the replies up to this [`ReplyHead::receipt`] then; 0: it had none, or does not tell.
    pub receipts: u16,
    /// The eight bytes of the logical unit number.
    pub lun: [u8; 8],
    /// Bytes that the client has room for.
    pub data_in_max_bytes: u32,
    /// What to do.
    pub ask: Ask,
}

impl RequestHead {
    /// Reads a request's head.
    ///
    /// # Errors
    /// [`Malformed`] for lengths or kinds that are not allowed.
    pub fn read(bytes: &[u8]) -> Result<RequestHead, Malformed> {
        let mut reader = Reader::new(bytes);
        let number = reader.u64()?;
        let settled_below = reader.u64()?;
        let lun = reader.array()?;
        let data_in_max_bytes = reader.u32()?;
        let (kind, detail) = (reader.u8()?, reader.u8()?);
        let receipts = reader.u16()?;
        let ask = match kind {
            0 => Ask::Command(Cdb::new(reader.bytes(usize::from(detail))?).ok_or(Malformed::Field("command block"))?),
            1 => {
                let function = match detail {
                    1 => Function::AbortTask,
                    5 => Function::LogicalUnitReset,
                    _ => return Err(Malformed::Field("function")),
                };
                Ask::Manage { function, task: reader.u64()? }
            }
            2 => Ask::Administer,
            _ => return Err(Malformed::Field("kind of request")),
        };
        if settled_below > number {
            return Err(Malformed::Field("settled below"));
        }
        Ok(RequestHead { number, settled_below, receipts, lun, data_in_max_bytes, ask })
    }

    /// The bytes of the head.
    #[must_use]
    pub fn write(&self) -> Head {
        let mut out = Head::new();
        out.extend(&self.number.to_be_bytes());
        out.extend(&self.settled_below.to_be_bytes());
        out.extend(&self.lun);
        out.extend(&self.data_in_max_bytes.to_be_bytes());
        let [high, low] = self.receipts.to_be_bytes();
        match &self.ask {
            Ask::Command(cdb) => {
                out.extend(&[0, cdb.len() as u8, high, low]);
                out.extend(cdb);
            }
            Ask::Manage { function, task } => {
                out.extend(&[1, *function as u8, high, low]);
                out.extend(&task.to_be_bytes());
            }
            Ask::Administer => out.extend(&[2, 0, high, low]),
        }
        out
    }

    /// The logical unit, when the eight bytes name one that could exist.
    #[must_use]
    pub fn logical_unit(&self) -> Option<Lun> {
        Lun::from_wire(self.lun)
    }
}

/// How a request ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The command's status, with sense data.
    Command {
        /// SAM-5 status.
        status: Status,
        /// At most [`SENSE_MAX_BYTES`].
        sense: Vec<u8>,
    },
    /// Whether the task management function was done.
    Managed {
        /// False: the function is not supported, or the logical unit does not exist.
        done: bool,
    },
    /// What came of a request to manage the server stands in the data.
    Administered,
}

/// What a logical unit says of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitTerms {
    /// How it wants them guarded.
    pub protection: Protection,
    /// Whether its data may be compressed, where both ends have agreed on that.
    pub is_compressible: bool,
}

/// The head of a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplyHead {
    /// Whose reply.
    pub number: u64,
    /// What the logical unit says.
    pub unit: UnitTerms,
    /// Not 0: the client is to tell when it has this reply. Such replies are numbered from 1, and after 65,535 from 1 again.
    pub receipt: u16,
    /// What became of it; `None` when it was not executed because the request was guarded less than that.
    pub answer: Option<Answer>,
}

impl ReplyHead {
    /// Reads a reply's head.
    ///
    /// # Errors
    /// [`Malformed`] for lengths, kinds or a status that are not allowed.
    pub fn read(bytes: &[u8]) -> Result<ReplyHead, Malformed> {
        let mut reader = Reader::new(bytes);
        let number = reader.u64()?;
        let (kind, code) = (reader.u8()?, reader.u8()?);
        let sense_length = usize::from(reader.u16()?);
        let protection = Protection::from_code(reader.u8()?).ok_or(Malformed::Field("protection"))?;
        let is_compressible = reader.u8()? & INCOMPRESSIBLE == 0;
        let receipt = reader.u16()?;
        let answer = match kind {
            0 => {
                let status = Status::from_code(code).ok_or(Malformed::Field("status"))?;
                if sense_length > SENSE_MAX_BYTES {
                    return Err(Malformed::Field("sense length"));
                }
                Some(Answer::Command { status, sense: reader.bytes(sense_length)?.to_vec() })
            }
            1 if code <= 1 => Some(Answer::Managed { done: code == 1 }),
            3 => Some(Answer::Administered),
            TOO_WEAK => None,
            _ => return Err(Malformed::Field("kind of reply")),
        };
        Ok(ReplyHead { number, unit: UnitTerms { protection, is_compressible }, receipt, answer })
    }

    /// The bytes of the head. Sense data beyond [`SENSE_MAX_BYTES`] is cut.
    #[must_use]
    pub fn write(&self) -> Head {
        let mut fixed = [0; REPLY_FIXED_BYTES];
        fixed[..8].copy_from_slice(&self.number.to_be_bytes());
        let sense: &[u8] = match &self.answer {
            Some(Answer::Command { status, sense }) => {
                fixed[9] = *status as u8;
                &sense[..sense.len().min(SENSE_MAX_BYTES)]
            }
            Some(Answer::Managed { done }) => {
                fixed[8] = 1;
                fixed[9] = u8::from(*done);
                &[]
            }
            Some(Answer::Administered) => {
                fixed[8] = 3;
                &[]
            }
            None => {
                fixed[8] = TOO_WEAK;
                &[]
            }
        };
        fixed[12] = self.unit.protection as u8;
        fixed[13] = if self.unit.is_compressible { 0 } else { INCOMPRESSIBLE };
        fixed[14..16].copy_from_slice(&self.receipt.to_be_bytes());
        fixed[10..12].copy_from_slice(&(sense.len() as u16).to_be_bytes());
        let mut out = Head::new();
        out.extend(&fixed);
        out.extend(sense);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_heads_survive_the_wire() {
        for ask in [
            Ask::Command(Cdb::new(&[0x28, 0, 0, 0, 0, 1, 0, 0, 8, 0]).unwrap()),
            Ask::Command(Cdb::new(&[9; 32]).unwrap()),
            Ask::Manage { function: Function::LogicalUnitReset, task: 77 },
            Ask::Administer,
        ] {
            let lun = [0, 4, 0, 0, 0, 0, 0, 0];
            let head = RequestHead { number: 9, settled_below: 3, receipts: 0x102, lun, data_in_max_bytes: 7, ask };
            let bytes = head.write();
            assert_eq!(RequestHead::read(&bytes), Ok(head));
            for length in 0..bytes.len() {
                assert!(RequestHead::read(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn reply_heads_survive_the_wire() {
        for answer in [
            Some(Answer::Command { status: Status::Good, sense: Vec::new() }),
            Some(Answer::Command { status: Status::CheckCondition, sense: vec![0x70; SENSE_MAX_BYTES] }),
            Some(Answer::Managed { done: true }),
            Some(Answer::Administered),
            None,
        ] {
            for is_compressible in [true, false] {
                let unit = UnitTerms { protection: Protection::Aes128Gcm, is_compressible };
                let head = ReplyHead { number: 1 << 40, unit, receipt: 0x304, answer: answer.clone() };
                assert_eq!(ReplyHead::read(&head.write()), Ok(head));
            }
        }
    }

    #[test]
    fn a_fragment_beyond_its_message_is_refused() {
        let fragment = Fragment { data_offset: u32::MAX, data_length: 4, ..Fragment::default() };
        let body = [&fragment.write()[..], b"data"].concat();
        assert_eq!(Fragment::read(&body), Err(Malformed::Field("data offset")));
    }
}
