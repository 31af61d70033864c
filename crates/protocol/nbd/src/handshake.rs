//! The negotiation of one connection, from the server's greeting until requests may be sent.

use crate::export::{BlockSizes, Export, HandshakeError};
use crate::wire::*;

/// Bytes of the head of an answer to an option.
const REPLY_HEAD_BYTES: usize = 20;
/// The longest answer to an option that is listened to.
const REPLY_MAX_BYTES: usize = 32 << 10;
/// Answers to one option, at the most.
const REPLIES_MAX: usize = 10_000;
/// Names of exports that an error tells of.
const NAMES_MAX: usize = 16;
/// Bytes at the beginning of a server's greeting.
const GREETING_BYTES: usize = 18;

/// The longest piece that [`Handshake::take`] waits for.
pub(crate) const WANTED_MAX_BYTES: usize = REPLY_HEAD_BYTES + REPLY_MAX_BYTES;

/// What is awaited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Greeting,
    /// Answers to an option.
    Option(u32),
    /// The answer to [`OPT_EXPORT_NAME`], which has a form of its own.
    ExportName,
    Ready,
}

/// One negotiation.
#[derive(Debug)]
pub(crate) struct Handshake {
    name: String,
    stage: Stage,
    output: Vec<u8>,
    no_zeroes: bool,
    is_structured: bool,
    allocation_context: Option<u32>,
    size_and_flags: Option<(u64, u16)>,
    blocks: BlockSizes,
    known: Vec<String>,
    replies: usize,
}

impl Handshake {
    /// A negotiation for the export of this name, which may be empty; at most [`TEXT_MAX_BYTES`] bytes.
    pub(crate) fn new(name: String) -> Self {
        Handshake {
            name,
            stage: Stage::Greeting,
            output: Vec::new(),
            no_zeroes: false,
            is_structured: false,
            allocation_context: None,
            size_and_flags: None,
            blocks: BlockSizes::default(),
            known: Vec::new(),
            replies: 0,
        }
    }

    /// What is to be sent.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// What was negotiated, once it is.
    pub(crate) fn export(&self) -> Option<Export> {
        let (size_bytes, flags) = self.size_and_flags.filter(|_| self.stage == Stage::Ready)?;
        let Handshake { blocks, is_structured, allocation_context, .. } = *self;
        Some(Export { size_bytes, flags, blocks, is_structured, allocation_context })
    }

    /// Takes the next piece of what has arrived and gives its length; zero when it is not whole yet. With
    /// [`WANTED_MAX_BYTES`] bytes it always is.
    pub(crate) fn take(&mut self, waiting: &[u8]) -> Result<usize, HandshakeError> {
        match self.stage {
            Stage::Greeting => self.take_greeting(waiting),
            Stage::Option(option) => self.take_reply(option, waiting),
            Stage::ExportName => self.take_old_answer(waiting),
            Stage::Ready => Ok(0),
        }
    }

    fn take_greeting(&mut self, waiting: &[u8]) -> Result<usize, HandshakeError> {
        let magic = MAGIC_INIT.to_be_bytes();
        if !waiting.starts_with(&magic[..waiting.len().min(magic.len())]) {
            return Err(HandshakeError::NotNbd);
        }
        if waiting.len() < GREETING_BYTES {
            return Ok(0);
        }
        let flags = be16(waiting, 16);
        if be64(waiting, 8) != MAGIC_OPTION || flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(HandshakeError::TooOld);
        }
        self.no_zeroes = flags & FLAG_NO_ZEROES != 0;
        self.output.extend(u32::from(flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES)).to_be_bytes());
        self.ask(OPT_STRUCTURED_REPLY, &[]);
        Ok(GREETING_BYTES)
    }

    fn ask(&mut self, option: u32, data: &[u8]) {
        self.output.extend(MAGIC_OPTION.to_be_bytes());
        self.output.extend(option.to_be_bytes());
        self.output.extend((data.len() as u32).to_be_bytes());
        self.output.extend(data);
        (self.stage, self.replies) = (Stage::Option(option), 0);
    }

    fn named(&self) -> Vec<u8> {
        let mut data = (self.name.len() as u32).to_be_bytes().to_vec();
        data.extend(self.name.as_bytes());
        data
    }

    fn ask_context(&mut self) {
        let mut data = self.named();
        data.extend(1u32.to_be_bytes());
        data.extend((BASE_ALLOCATION.len() as u32).to_be_bytes());
        data.extend(BASE_ALLOCATION);
        self.ask(OPT_SET_META_CONTEXT, &data);
    }

    fn ask_go(&mut self) {
        let mut data = self.named();
        data.extend(1u16.to_be_bytes());
        data.extend(INFO_BLOCK_SIZE.to_be_bytes());
        self.ask(OPT_GO, &data);
    }

    fn take_reply(&mut self, option: u32, waiting: &[u8]) -> Result<usize, HandshakeError> {
        if waiting.len() < REPLY_HEAD_BYTES {
            return Ok(0);
        }
        if be64(waiting, 0) != MAGIC_OPTION_REPLY || be32(waiting, 8) != option {
            return Err(HandshakeError::Violation("an answer to an option that was not asked"));
        }
        let (kind, length) = (be32(waiting, 12), be32(waiting, 16) as usize);
        if length > REPLY_MAX_BYTES {
            return Err(HandshakeError::Violation("an answer to an option is too long"));
        }
        self.replies += 1;
        let Some(data) = waiting.get(REPLY_HEAD_BYTES..REPLY_HEAD_BYTES + length) else {
            self.replies -= 1;
            return Ok(0);
        };
        if self.replies > REPLIES_MAX {
            return Err(HandshakeError::Violation("the answer to an option never ends"));
        }
        match option {
            OPT_STRUCTURED_REPLY => self.structured_reply(kind)?,
            OPT_SET_META_CONTEXT => self.context_reply(kind, data)?,
            OPT_GO => self.go_reply(kind, data)?,
            _ => self.list_reply(kind, data)?,
        }
        Ok(REPLY_HEAD_BYTES + length)
    }

    fn structured_reply(&mut self, kind: u32) -> Result<(), HandshakeError> {
        match kind {
            REP_ACK => {
                self.is_structured = true;
                self.ask_context();
            }
            REP_ERR_TLS_REQD => return Err(HandshakeError::NeedsTls),
            kind if kind & REP_IS_ERROR != 0 => self.ask_go(),
            _ => return Err(HandshakeError::Violation("an answer that fits no option")),
        }
        Ok(())
    }

    fn context_reply(&mut self, kind: u32, data: &[u8]) -> Result<(), HandshakeError> {
        match kind {
            REP_META_CONTEXT if data.len() >= 4 => {
                if &data[4..] == BASE_ALLOCATION {
                    self.allocation_context = Some(be32(data, 0));
                }
            }
            REP_ACK => self.ask_go(),
            // An unknown export is told of when it is opened.
            kind if kind & REP_IS_ERROR != 0 => {
                self.allocation_context = None;
                self.ask_go();
            }
            _ => return Err(HandshakeError::Violation("a malformed metadata context")),
        }
        Ok(())
    }

    fn go_reply(&mut self, kind: u32, data: &[u8]) -> Result<(), HandshakeError> {
        match kind {
            REP_ACK if self.size_and_flags.is_some() => self.stage = Stage::Ready,
            REP_INFO if data.len() >= 2 => return self.info(data),
            REP_ERR_UNSUP => {
                let name = self.name.clone();
                self.ask(OPT_EXPORT_NAME, name.as_bytes());
                self.stage = Stage::ExportName;
            }
            REP_ERR_UNKNOWN => self.ask(OPT_LIST, &[]),
            REP_ERR_TLS_REQD => return Err(HandshakeError::NeedsTls),
            kind if kind & REP_IS_ERROR != 0 => return Err(HandshakeError::Refused { text: text(data) }),
            _ => return Err(HandshakeError::Violation("it begins without telling the export's size")),
        }
        Ok(())
    }

    fn info(&mut self, data: &[u8]) -> Result<(), HandshakeError> {
        match (be16(data, 0), data.len()) {
            (INFO_EXPORT, 12) => self.size_and_flags = Some((be64(data, 2), be16(data, 10))),
            (INFO_BLOCK_SIZE, 14) => {
                let blocks = BlockSizes::new(be32(data, 2), be32(data, 6), be32(data, 10));
                self.blocks = blocks.ok_or(HandshakeError::Violation("block sizes that make no sense"))?;
            }
            (INFO_EXPORT | INFO_BLOCK_SIZE, _) => {
                return Err(HandshakeError::Violation("malformed information about the export"));
            }
            _ => {}
        }
        Ok(())
    }

    fn list_reply(&mut self, kind: u32, data: &[u8]) -> Result<(), HandshakeError> {
        if kind == REP_SERVER && data.len() >= 4 {
            let name = data[4..].get(..be32(data, 0) as usize);
            let name = name.ok_or(HandshakeError::Violation("a malformed list of exports"))?;
            if self.known.len() < NAMES_MAX {
                self.known.push(text(name));
            }
            return Ok(());
        }
        let known = std::mem::take(&mut self.known);
        Err(HandshakeError::NoSuchExport { name: self.name.clone(), known })
    }

    fn take_old_answer(&mut self, waiting: &[u8]) -> Result<usize, HandshakeError> {
        let length = if self.no_zeroes { 10 } else { 10 + 124 };
        if waiting.len() < length {
            return Ok(0);
        }
        self.size_and_flags = Some((be64(waiting, 0), be16(waiting, 8)));
        self.stage = Stage::Ready;
        Ok(length)
    }
}

/// What a server wrote for people.
pub(crate) fn text(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(TEXT_MAX_BYTES)];
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
