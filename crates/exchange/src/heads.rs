//! The heads of messages: a command block with what belongs to it, a status with its sense data.
//!
//! ```text
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
use sanwire_core::read::{ReadError, Reader};
use sanwire_core::{Lun, Protection};
use sanwire_scsi::{Cdb, Status};

/// The longest sense data that a reply carries (SPC-5 4.4.1: 252 bytes).
pub const SENSE_MAX_BYTES: usize = 252;

const REPLY_FIXED_BYTES: usize = 16;

/// In a reply: the unit's data is not to be compressed.
const INCOMPRESSIBLE: u8 = 1;

/// The kind of a reply to a request that was guarded too little.
const TOO_WEAK: u8 = 2;

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
    /// [`ReadError`] for lengths or kinds that are not allowed.
    pub fn read(bytes: &[u8]) -> Result<RequestHead, ReadError> {
        let mut reader = Reader::new(bytes);
        let number = reader.u64()?;
        let settled_below = reader.u64()?;
        let lun = reader.array()?;
        let data_in_max_bytes = reader.u32()?;
        let (kind, detail) = (reader.u8()?, reader.u8()?);
        let receipts = reader.u16()?;
        let ask = match kind {
            0 => Ask::Command(Cdb::new(reader.bytes(usize::from(detail))?).ok_or(ReadError::Field("command block"))?),
            1 => {
                let function = match detail {
                    1 => Function::AbortTask,
                    5 => Function::LogicalUnitReset,
                    _ => return Err(ReadError::Field("function")),
                };
                Ask::Manage { function, task: reader.u64()? }
            }
            2 => Ask::Administer,
            _ => return Err(ReadError::Field("kind of request")),
        };
        if settled_below > number {
            return Err(ReadError::Field("settled below"));
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
    /// [`ReadError`] for lengths, kinds or a status that are not allowed.
    pub fn read(bytes: &[u8]) -> Result<ReplyHead, ReadError> {
        let mut reader = Reader::new(bytes);
        let number = reader.u64()?;
        let (kind, code) = (reader.u8()?, reader.u8()?);
        let sense_length = usize::from(reader.u16()?);
        let protection = Protection::from_code(reader.u8()?).ok_or(ReadError::Field("protection"))?;
        let is_compressible = reader.u8()? & INCOMPRESSIBLE == 0;
        let receipt = reader.u16()?;
        let answer = match kind {
            0 => {
                let status = Status::from_code(code).ok_or(ReadError::Field("status"))?;
                if sense_length > SENSE_MAX_BYTES {
                    return Err(ReadError::Field("sense length"));
                }
                Some(Answer::Command { status, sense: reader.bytes(sense_length)?.to_vec() })
            }
            1 if code <= 1 => Some(Answer::Managed { done: code == 1 }),
            3 => Some(Answer::Administered),
            TOO_WEAK => None,
            _ => return Err(ReadError::Field("kind of reply")),
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
}
