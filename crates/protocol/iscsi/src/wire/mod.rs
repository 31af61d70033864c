//! Wire formats (RFC 7143 11): a header is a table of fields, the same in both directions.

pub(crate) mod field;
mod header;
mod request;
mod response;

pub use header::{HEADER_BYTES, Header, TAG_NONE};
pub use request::{DataOut, LoginRequest, LogoutRequest, NopOut, ScsiCommand, SnackRequest, TaskRequest, TextRequest};
pub use response::{
    AsyncMessage, DataIn, LoginResponse, LogoutResponse, NopIn, ReadyToTransfer, Reject, ScsiResponse, TaskResponse,
    TextResponse,
};

/// What a PDU is (RFC 7143 11.2.1.2). Codes below 20h are an initiator's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "each is named by its PDU")]
#[repr(u8)]
pub enum Opcode {
    NopOut = 0x00,
    ScsiCommand = 0x01,
    TaskRequest = 0x02,
    LoginRequest = 0x03,
    TextRequest = 0x04,
    DataOut = 0x05,
    LogoutRequest = 0x06,
    SnackRequest = 0x10,
    NopIn = 0x20,
    ScsiResponse = 0x21,
    TaskResponse = 0x22,
    LoginResponse = 0x23,
    TextResponse = 0x24,
    DataIn = 0x25,
    LogoutResponse = 0x26,
    ReadyToTransfer = 0x31,
    AsyncMessage = 0x32,
    Reject = 0x3f,
}

impl Opcode {
    const ALL: [Opcode; 18] = [
        Opcode::NopOut,
        Opcode::ScsiCommand,
        Opcode::TaskRequest,
        Opcode::LoginRequest,
        Opcode::TextRequest,
        Opcode::DataOut,
        Opcode::LogoutRequest,
        Opcode::SnackRequest,
        Opcode::NopIn,
        Opcode::ScsiResponse,
        Opcode::TaskResponse,
        Opcode::LoginResponse,
        Opcode::TextResponse,
        Opcode::DataIn,
        Opcode::LogoutResponse,
        Opcode::ReadyToTransfer,
        Opcode::AsyncMessage,
        Opcode::Reject,
    ];

    /// The PDU with this code (six bits).
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        *BY_CODE.get(usize::from(code))?
    }
}

const BY_CODE: [Option<Opcode>; 64] = {
    let mut by_code = [None; 64];
    let mut at = 0;
    while at < Opcode::ALL.len() {
        by_code[Opcode::ALL[at] as usize] = Some(Opcode::ALL[at]);
        at += 1;
    }
    by_code
};

#[cfg(test)]
mod tests;
