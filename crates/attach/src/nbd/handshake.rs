//! The negotiation of fixed newstyle NBD, from the server's side: bytes in, bytes out, no socket.

use sanwire_nbd::wire::*;

/// Option data longer than this ends the connection: a name has at most 4096 bytes.
const OPTION_DATA_MAX_BYTES: u32 = 8192;

/// Options that a client may send before it must choose an export.
const OPTIONS_MAX: u32 = 64;

/// What is offered to clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Export {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) read_only: bool,
    pub(crate) discards: bool,
    pub(crate) block_min_bytes: u32,
    pub(crate) block_preferred_bytes: u32,
    pub(crate) request_max_bytes: u32,
}

impl Export {
    fn transmission_flags(&self, structured: bool) -> u16 {
        let always = TRANSMISSION_HAS_FLAGS
            | TRANSMISSION_SEND_FLUSH
            | TRANSMISSION_SEND_FUA
            | TRANSMISSION_SEND_WRITE_ZEROES
            | TRANSMISSION_SEND_CACHE
            // A flush covers the volume, so every connection's completed writes.
            | TRANSMISSION_CAN_MULTI_CONN;
        let when = |condition: bool, flag: u16| if condition { flag } else { 0 };
        always
            | when(self.read_only, TRANSMISSION_READ_ONLY)
            | when(self.discards && !self.read_only, TRANSMISSION_SEND_TRIM)
            | when(structured, TRANSMISSION_SEND_DF)
    }
}

/// How far the negotiation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Go on feeding.
    Negotiating,
    /// The client has chosen the export: the next bytes are requests.
    Transmission {
        /// Whether reads are answered in chunks.
        structured: bool,
        /// Whether the client may ask what is allocated.
        tells_allocation: bool,
    },
    /// Send the output, then close.
    Ended(Ending),
}

/// Why a negotiation ended without an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The client wanted so.
    Aborted,
    /// It asked for an export that is not here, in the way that allows no answer.
    UnknownExport,
    /// It broke the protocol.
    Protocol(&'static str),
}

/// One client's negotiation.
#[derive(Debug)]
pub(crate) struct Handshake {
    export: Export,
    stage: Stage,
    /// What has come of the current stage's bytes.
    input: Vec<u8>,
    output: Vec<u8>,
    no_zeroes: bool,
    structured: bool,
    tells_allocation: bool,
    options_seen: u32,
    progress: Progress,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    ClientFlags,
    OptionHead,
    OptionData { option: u32, length: u32 },
}

impl Handshake {
    /// Begins with the server's greeting as output.
    pub(crate) fn new(export: Export) -> Self {
        let mut output = Vec::with_capacity(256);
        output.extend_from_slice(&MAGIC_INIT.to_be_bytes());
        output.extend_from_slice(&MAGIC_OPTION.to_be_bytes());
        output.extend_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        Handshake {
            export,
            stage: Stage::ClientFlags,
            input: Vec::new(),
            output,
            no_zeroes: false,
            structured: false,
            tells_allocation: false,
            options_seen: 0,
            progress: Progress::Negotiating,
        }
    }

    /// Bytes that are needed next, never zero while negotiating.
    pub(crate) fn wanted(&self) -> usize {
        self.stage_bytes() - self.input.len()
    }

    /// Takes up to [`Handshake::wanted`] bytes; says how many it took.
    pub(crate) fn handle_input(&mut self, bytes: &[u8]) -> usize {
        if self.progress != Progress::Negotiating {
            return 0;
        }
        let taken = bytes.len().min(self.wanted());
        self.input.extend_from_slice(&bytes[..taken]);
        if self.input.len() == self.stage_bytes() {
            let input = std::mem::take(&mut self.input);
            self.finish_stage(&input);
        }
        taken
    }

    /// What to send now.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    fn stage_bytes(&self) -> usize {
        match self.stage {
            Stage::ClientFlags => 4,
            Stage::OptionHead => 16,
            Stage::OptionData { length, .. } => length as usize,
        }
    }

    fn finish_stage(&mut self, input: &[u8]) {
        match self.stage {
            Stage::ClientFlags => self.client_flags(be32(input, 0)),
            Stage::OptionHead => self.option_head(input),
            Stage::OptionData { option, .. } => self.option(option, input),
        }
    }

    fn client_flags(&mut self, flags: u32) {
        let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        if flags & !known != 0 {
            return self.end(Ending::Protocol("unknown client flags"));
        }
        self.no_zeroes = flags & u32::from(FLAG_NO_ZEROES) != 0;
        self.stage = Stage::OptionHead;
    }

    fn option_head(&mut self, input: &[u8]) {
        let (option, length) = (be32(input, 8), be32(input, 12));
        self.options_seen += 1;
        if be64(input, 0) != MAGIC_OPTION {
            return self.end(Ending::Protocol("wrong option magic"));
        }
        if length > OPTION_DATA_MAX_BYTES {
            return self.end(Ending::Protocol("option data too long"));
        }
        if self.options_seen > OPTIONS_MAX {
            return self.end(Ending::Protocol("too many options"));
        }
        if length == 0 {
            self.option(option, &[]);
        } else {
            self.stage = Stage::OptionData { option, length };
        }
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        self.stage = Stage::OptionHead;
        match option {
            OPT_EXPORT_NAME => self.export_name(data),
            OPT_ABORT => {
                self.reply(option, REP_ACK, &[]);
                self.end(Ending::Aborted);
            }
            OPT_LIST if data.is_empty() => {
                let name = self.export.name.clone();
                self.reply(option, REP_SERVER, &[&(name.len() as u32).to_be_bytes(), name.as_bytes()]);
                self.reply(option, REP_ACK, &[]);
            }
            OPT_STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                self.reply(option, REP_ACK, &[]);
            }
            OPT_LIST | OPT_STRUCTURED_REPLY => self.reply(option, REP_ERR_INVALID, &[b"no data was expected"]),
            OPT_INFO | OPT_GO => self.info(option, data),
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => self.meta_contexts(option, data),
            _ => self.reply(option, REP_ERR_UNSUP, &[]),
        }
    }

    /// The old way to choose: it has no error answer.
    fn export_name(&mut self, name: &[u8]) {
        if !self.is_our_name(name) {
            return self.end(Ending::UnknownExport);
        }
        let flags = self.export.transmission_flags(self.structured);
        self.output.extend_from_slice(&self.export.size_bytes.to_be_bytes());
        self.output.extend_from_slice(&flags.to_be_bytes());
        if !self.no_zeroes {
            self.output.extend_from_slice(&[0; 124]);
        }
        self.begin_transmission();
    }

    fn begin_transmission(&mut self) {
        let (structured, tells_allocation) = (self.structured, self.tells_allocation);
        self.progress = Progress::Transmission { structured, tells_allocation };
    }

    /// Lists or chooses metadata contexts, of which there is one. Of several choices the last one holds.
    fn meta_contexts(&mut self, option: u32, data: &[u8]) {
        let is_choice = option == OPT_SET_META_CONTEXT;
        if is_choice {
            self.tells_allocation = false;
        }
        if !self.structured {
            return self.reply(option, REP_ERR_INVALID, &[b"structured replies come first"]);
        }
        let Some((name, queries)) = parse_meta_contexts(data) else {
            return self.reply(option, REP_ERR_INVALID, &[b"malformed query of contexts"]);
        };
        if !self.is_our_name(name) {
            return self.reply(option, REP_ERR_UNKNOWN, &[b"no export of this name"]);
        }
        // To list, no query asks for all, and a name space for what is in it; a choice names what it means.
        let is_meant = |query: &&[u8]| *query == BASE_ALLOCATION || (!is_choice && *query == b"base:");
        if queries.iter().any(is_meant) || (!is_choice && queries.is_empty()) {
            self.tells_allocation |= is_choice;
            let id = if is_choice { BASE_ALLOCATION_ID } else { 0 };
            self.reply(option, REP_META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION]);
        }
        self.reply(option, REP_ACK, &[]);
    }

    fn info(&mut self, option: u32, data: &[u8]) {
        let Some((name, wanted)) = parse_info(data) else {
            return self.reply(option, REP_ERR_INVALID, &[b"malformed export query"]);
        };
        if !self.is_our_name(name) {
            return self.reply(option, REP_ERR_UNKNOWN, &[b"no export of this name"]);
        }
        let flags = self.export.transmission_flags(self.structured).to_be_bytes();
        let size = self.export.size_bytes.to_be_bytes();
        self.reply(option, REP_INFO, &[&INFO_EXPORT.to_be_bytes(), &size, &flags]);
        if wanted.chunks_exact(2).any(|kind| be16(kind, 0) == INFO_NAME) {
            let name = self.export.name.clone();
            self.reply(option, REP_INFO, &[&INFO_NAME.to_be_bytes(), name.as_bytes()]);
        }
        let sizes = [self.export.block_min_bytes, self.export.block_preferred_bytes, self.export.request_max_bytes];
        let [min, preferred, max] = sizes.map(u32::to_be_bytes);
        self.reply(option, REP_INFO, &[&INFO_BLOCK_SIZE.to_be_bytes(), &min, &preferred, &max]);
        self.reply(option, REP_ACK, &[]);
        if option == OPT_GO {
            self.begin_transmission();
        }
    }

    /// The empty name stands for the default export, which is the only one.
    fn is_our_name(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name.as_bytes()
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[&[u8]]) {
        let length: usize = data.iter().map(|part| part.len()).sum();
        self.output.extend_from_slice(&MAGIC_OPTION_REPLY.to_be_bytes());
        for number in [option, kind, length as u32] {
            self.output.extend_from_slice(&number.to_be_bytes());
        }
        data.iter().for_each(|part| self.output.extend_from_slice(part));
    }

    fn end(&mut self, ending: Ending) {
        self.progress = Progress::Ended(ending);
    }
}

/// The name and the list of wanted information of NBD_OPT_INFO and NBD_OPT_GO.
fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_at_checked(4)?;
    let (name, rest) = rest.split_at_checked(be32(length, 0) as usize)?;
    let (count, wanted) = rest.split_at_checked(2)?;
    (wanted.len() == usize::from(be16(count, 0)) * 2).then_some((name, wanted))
}

/// The export's name and the queries of NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT.
fn parse_meta_contexts(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let text = |data| {
        let (length, rest): (&[u8], &[u8]) = <[u8]>::split_at_checked(data, 4)?;
        rest.split_at_checked(be32(length, 0) as usize)
    };
    let (name, rest) = text(data)?;
    let (count, mut rest) = rest.split_at_checked(4)?;
    let mut queries = Vec::new();
    for _ in 0..be32(count, 0) {
        let (query, behind) = text(rest)?;
        queries.push(query);
        rest = behind;
    }
    rest.is_empty().then_some((name, queries))
}

#[cfg(test)]
mod tests;
