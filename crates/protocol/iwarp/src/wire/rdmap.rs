//! RDMAP: operations, and the header of a Read Request (RFC 5040 4.3 and 4.4).

use super::field::{Stag, array};

/// The version of RDMAP.
pub const RDMAP_VERSION: u8 = 1;

/// Bytes of the header of a Read Request, which is all that the message has.
pub const READ_REQUEST_BYTES: usize = 28;

/// The queues of untagged messages (RFC 5040 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is named by its messages")]
#[repr(u32)]
pub enum Queue {
    Send = 0,
    ReadRequest = 1,
    Terminate = 2,
}

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is named by its message")]
#[repr(u8)]
pub enum Opcode {
    Write = 0,
    ReadRequest = 1,
    ReadResponse = 2,
    Send = 3,
    SendInvalidate = 4,
    SendSolicited = 5,
    SendSolicitedInvalidate = 6,
    Terminate = 7,
}

impl Opcode {
    /// The message with this code (four bits).
    #[must_use]
    pub fn from_code(code: u8) -> Option<Opcode> {
        Some(match code {
            0 => Opcode::Write,
            1 => Opcode::ReadRequest,
            2 => Opcode::ReadResponse,
            3 => Opcode::Send,
            4 => Opcode::SendInvalidate,
            5 => Opcode::SendSolicited,
            6 => Opcode::SendSolicitedInvalidate,
            7 => Opcode::Terminate,
            _ => return None,
        })
    }

    /// The Send of these properties.
    #[must_use]
    pub fn send(is_solicited: bool, invalidates: bool) -> Opcode {
        match (is_solicited, invalidates) {
            (false, false) => Opcode::Send,
            (false, true) => Opcode::SendInvalidate,
            (true, false) => Opcode::SendSolicited,
            (true, true) => Opcode::SendSolicitedInvalidate,
        }
    }

    /// The queue that it belongs to; `None` for what goes into registered memory.
    #[must_use]
    pub fn queue(self) -> Option<Queue> {
        match self {
            Opcode::Write | Opcode::ReadResponse => None,
            Opcode::ReadRequest => Some(Queue::ReadRequest),
            Opcode::Terminate => Some(Queue::Terminate),
            _ => Some(Queue::Send),
        }
    }

    /// Whether it asks for the receiver's attention.
    #[must_use]
    pub fn is_solicited(self) -> bool {
        matches!(self, Opcode::SendSolicited | Opcode::SendSolicitedInvalidate)
    }

    /// Whether an STag ends with it.
    #[must_use]
    pub fn invalidates(self) -> bool {
        matches!(self, Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate)
    }
}

/// Asks for bytes of the receiver's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRequest {
    /// The memory of who asks.
    pub sink: Stag,
    /// Where in it the answer goes.
    pub sink_offset: u64,
    /// How much.
    pub length_bytes: u32,
    /// The memory of who is asked.
    pub source: Stag,
    /// Where in it the bytes are.
    pub source_offset: u64,
}

impl ReadRequest {
    /// As it stands on the wire.
    #[must_use]
    pub fn write(&self) -> [u8; READ_REQUEST_BYTES] {
        let mut bytes = [0; READ_REQUEST_BYTES];
        bytes[..4].copy_from_slice(&self.sink.0.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length_bytes.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.source.0.to_be_bytes());
        bytes[20..].copy_from_slice(&self.source_offset.to_be_bytes());
        bytes
    }

    /// The request in these bytes.
    #[must_use]
    pub fn read(bytes: &[u8; READ_REQUEST_BYTES]) -> ReadRequest {
        let number = |at| u32::from_be_bytes(array(bytes, at));
        let offset = |at| u64::from_be_bytes(array(bytes, at));
        ReadRequest {
            sink: Stag(number(0)),
            sink_offset: offset(4),
            length_bytes: number(12),
            source: Stag(number(16)),
            source_offset: offset(20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5040 figure 7.
    #[test]
    fn a_read_request_stands_as_in_the_figure() {
        let request = ReadRequest {
            sink: Stag(0x0102_0304),
            sink_offset: 0x1112_1314_1516_1718,
            length_bytes: 0x2122_2324,
            source: Stag(0x3132_3334),
            source_offset: 0x4142_4344_4546_4748,
        };
        let bytes = request.write();
        let expected = "01020304111213141516171821222324313233344142434445464748";
        assert_eq!(bytes.map(|byte| format!("{byte:02x}")).concat(), expected);
        assert_eq!(ReadRequest::read(&bytes), request);
    }

    /// RFC 5040 figure 2.
    #[test]
    fn every_operation_has_its_code_and_its_queue() {
        use Opcode as O;
        let table = [
            (O::Write, None, false, false),
            (O::ReadRequest, Some(Queue::ReadRequest), false, false),
            (O::ReadResponse, None, false, false),
            (O::Send, Some(Queue::Send), false, false),
            (O::SendInvalidate, Some(Queue::Send), false, true),
            (O::SendSolicited, Some(Queue::Send), true, false),
            (O::SendSolicitedInvalidate, Some(Queue::Send), true, true),
            (O::Terminate, Some(Queue::Terminate), false, false),
        ];
        for (code, (opcode, queue, is_solicited, invalidates)) in (0..).zip(table) {
            assert_eq!((O::from_code(code), opcode as u8, opcode.queue()), (Some(opcode), code, queue));
            assert_eq!((opcode.is_solicited(), opcode.invalidates()), (is_solicited, invalidates));
            if queue == Some(Queue::Send) {
                assert_eq!(O::send(is_solicited, invalidates), opcode);
            }
        }
        assert!((8..=255).all(|code| O::from_code(code).is_none()));
    }
}
