//! The negotiation of fixed newstyle NBD, from the server's side: bytes in, bytes out, no socket.

use super::wire::*;

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
        self.progress = Progress::Transmission { structured: self.structured };
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
            self.progress = Progress::Transmission { structured: self.structured };
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn export() -> Export {
        Export {
            name: "disk".into(),
            size_bytes: 1 << 30,
            read_only: false,
            discards: true,
            block_min_bytes: 4096,
            block_preferred_bytes: 4096,
            request_max_bytes: 32 << 20,
        }
    }

    fn option(option: u32, data: &[u8]) -> Vec<u8> {
        let head = [&MAGIC_OPTION.to_be_bytes()[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data];
        head.concat()
    }

    fn go(name: &[u8], wanted: &[u16]) -> Vec<u8> {
        let mut data = [&(name.len() as u32).to_be_bytes()[..], name, &(wanted.len() as u16).to_be_bytes()].concat();
        wanted.iter().for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
        data
    }

    /// Feeds the pieces one after the other; gives what was not taken.
    fn feed(handshake: &mut Handshake, mut input: &[u8], piece: usize) -> usize {
        while !input.is_empty() {
            let taken = handshake.handle_input(&input[..piece.min(input.len())]);
            if taken == 0 {
                break;
            }
            input = &input[taken..];
        }
        input.len()
    }

    fn run(client: &[u8], piece: usize) -> (Handshake, Vec<u8>, usize) {
        let mut handshake = Handshake::new(export());
        let left = feed(&mut handshake, client, piece);
        let output = handshake.take_output();
        (handshake, output, left)
    }

    fn modern_client() -> Vec<u8> {
        let flags = 3u32.to_be_bytes().to_vec();
        [
            flags,
            option(OPT_STRUCTURED_REPLY, &[]),
            option(OPT_LIST, &[]),
            option(99, b"whatever"),
            option(OPT_GO, &go(b"nothing here", &[])),
            option(OPT_INFO, &go(b"disk", &[INFO_NAME])),
            option(OPT_GO, &go(b"", &[INFO_BLOCK_SIZE])),
        ]
        .concat()
    }

    #[test]
    fn any_piecemeal_gives_the_same_answers_and_takes_no_request_byte() {
        let client = [modern_client(), vec![0x25, 0x60]].concat();
        let (whole, expected, left) = run(&client, usize::MAX);
        assert_eq!(whole.progress(), Progress::Transmission { structured: true });
        assert_eq!(left, 2, "what follows is the first request");
        for piece in 1..40 {
            let (handshake, output, left) = run(&client, piece);
            assert_eq!((handshake.progress(), output, left), (whole.progress(), expected.clone(), 2));
        }
    }

    #[test]
    fn the_answers_are_those_of_the_document() {
        let (_, output, _) = run(&modern_client(), usize::MAX);
        let mut replies = Vec::new();
        let mut at = 18;
        while at < output.len() {
            assert_eq!(be64(&output, at), MAGIC_OPTION_REPLY);
            let length = be32(&output, at + 16) as usize;
            replies.push((be32(&output, at + 8), be32(&output, at + 12), output[at + 20..at + 20 + length].to_vec()));
            at += 20 + length;
        }
        let kinds: Vec<(u32, u32)> = replies.iter().map(|(option, kind, _)| (*option, *kind)).collect();
        let expected = [
            (OPT_STRUCTURED_REPLY, REP_ACK),
            (OPT_LIST, REP_SERVER),
            (OPT_LIST, REP_ACK),
            (99, REP_ERR_UNSUP),
            (OPT_GO, REP_ERR_UNKNOWN),
            (OPT_INFO, REP_INFO),
            (OPT_INFO, REP_INFO),
            (OPT_INFO, REP_INFO),
            (OPT_INFO, REP_ACK),
            (OPT_GO, REP_INFO),
            (OPT_GO, REP_INFO),
            (OPT_GO, REP_ACK),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(replies[1].2, b"\0\0\0\x04disk");
        assert_eq!(be64(&replies[9].2, 2), 1 << 30);
        assert_eq!(be16(&replies[9].2, 10), 0b101_1110_1101);
        assert_eq!(be32(&replies[10].2, 2), 4096);
    }

    #[test]
    fn the_old_way_works_and_its_unknown_name_closes() {
        let client = |name: &[u8]| [1u32.to_be_bytes().to_vec(), option(OPT_EXPORT_NAME, name)].concat();
        let (handshake, output, _) = run(&client(b"disk"), usize::MAX);
        assert_eq!(handshake.progress(), Progress::Transmission { structured: false });
        assert_eq!(output.len(), 18 + 8 + 2 + 124);
        let (handshake, output, _) = run(&client(b"disc"), usize::MAX);
        assert_eq!((handshake.progress(), output.len()), (Progress::Ended(Ending::UnknownExport), 18));
    }

    #[test]
    fn broken_clients_are_shown_the_door() {
        let ended = |client: &[u8]| matches!(run(client, 7).0.progress(), Progress::Ended(Ending::Protocol(_)));
        assert!(ended(&[0xff; 4]));
        assert!(ended(&[&[0, 0, 0, 1][..], &[0; 16]].concat()));
        let endless = [&[0, 0, 0, 1][..], &option(OPT_LIST, &[]).repeat(1000)].concat();
        assert!(ended(&endless));
        let mut huge = [&[0, 0, 0, 1][..], &option(OPT_GO, &[])].concat();
        huge[16..20].fill(0xff);
        assert!(ended(&huge));
    }

    proptest! {
        #[test]
        fn no_input_panics_or_stalls(tail in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u32..12, piece in 1usize..50) {
            let client = [&3u32.to_be_bytes()[..], &option(kind, &tail), &tail].concat();
            let (handshake, _, left) = run(&client, piece);
            prop_assert!(left == 0 || handshake.progress() != Progress::Negotiating);
            prop_assert!(handshake.progress() != Progress::Negotiating || handshake.wanted() > 0);
        }
    }
}
