//! A server without I/O, with a disk that can lose what was not flushed.

use std::collections::BTreeMap;

use sanwire_core::Instant;

use crate::wire::*;

pub(super) const DISK_BYTES: usize = 1 << 16;

/// What a server is like.
#[derive(Clone, Debug)]
pub(super) struct Traits {
    pub(super) is_structured: bool,
    pub(super) tells_extents: bool,
    /// It does not know [`OPT_GO`].
    pub(super) is_old: bool,
    pub(super) flags: u16,
    pub(super) size_bytes: u64,
    pub(super) payload_max_bytes: u32,
    /// Data of one chunk, at the most; the chunks come last first.
    pub(super) chunk_bytes: usize,
}

impl Default for Traits {
    fn default() -> Self {
        let flags = TRANSMISSION_HAS_FLAGS
            | TRANSMISSION_SEND_FLUSH
            | TRANSMISSION_SEND_WRITE_ZEROES
            | TRANSMISSION_CAN_MULTI_CONN;
        Traits {
            is_structured: true,
            tells_extents: true,
            is_old: false,
            flags,
            size_bytes: DISK_BYTES as u64,
            payload_max_bytes: 32 << 20,
            chunk_bytes: 1 << 20,
        }
    }
}

/// The server's end of one connection.
#[derive(Default)]
struct End {
    input: Vec<u8>,
    output: Vec<u8>,
    knows_client: bool,
    is_ready: bool,
    pending: Vec<(RawRequest, Vec<u8>)>,
}

pub(super) struct Server {
    pub(super) traits: Traits,
    pub(super) disk: Vec<u8>,
    pub(super) stable: Vec<u8>,
    ends: BTreeMap<u64, End>,
    /// What connections carried that are cut, and until when it may still be done.
    ghosts: Vec<(Instant, RawRequest, Vec<u8>)>,
    /// Every request that was carried out.
    pub(super) done: Vec<RawRequest>,
    /// The errno of the next requests of a kind.
    pub(super) fails: Option<(u16, u32)>,
}

impl Server {
    pub(super) fn new(traits: Traits) -> Self {
        let disk = vec![0; DISK_BYTES];
        let (ends, ghosts, done) = (BTreeMap::new(), Vec::new(), Vec::new());
        Server { traits, stable: disk.clone(), disk, ends, ghosts, done, fails: None }
    }

    pub(super) fn accept(&mut self, connection: u64) {
        let mut end = End::default();
        end.output.extend(MAGIC_INIT.to_be_bytes());
        end.output.extend(MAGIC_OPTION.to_be_bytes());
        end.output.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        self.ends.insert(connection, end);
    }

    /// Ends a connection. What it carried may be done until then.
    pub(super) fn cut(&mut self, connection: u64, until: Instant) {
        let pending = self.ends.remove(&connection).map(|end| end.pending).unwrap_or_default();
        self.ghosts.extend(pending.into_iter().map(|(request, data)| (until, request, data)));
    }

    pub(super) fn pass(&mut self, now: Instant) {
        self.ghosts.retain(|(until, ..)| now < *until);
    }

    /// Carries out something that a lost connection carried; gives whether there was anything.
    pub(super) fn work_late(&mut self, choice: usize) -> bool {
        if self.ghosts.is_empty() {
            return false;
        }
        let (_, request, data) = self.ghosts.remove(choice % self.ghosts.len());
        self.carry_out(&request, &data, &mut Vec::new());
        true
    }

    /// All that was not flushed is lost.
    pub(super) fn lose_power(&mut self) {
        self.disk = self.stable.clone();
        self.ends.clear();
        self.ghosts.clear();
    }

    pub(super) fn connections(&self) -> Vec<u64> {
        self.ends.keys().copied().collect()
    }

    pub(super) fn input(&mut self, connection: u64, bytes: &[u8]) {
        let Some(mut end) = self.ends.remove(&connection) else { return };
        end.input.extend(bytes);
        while self.take(&mut end) {}
        self.ends.insert(connection, end);
    }

    pub(super) fn output(&mut self, connection: u64) -> Vec<u8> {
        self.ends.get_mut(&connection).map(|end| std::mem::take(&mut end.output)).unwrap_or_default()
    }

    pub(super) fn pending(&self) -> usize {
        self.ends.values().map(|end| end.pending.len()).sum()
    }

    /// Carries one request out and answers it; gives whether there was one.
    pub(super) fn work(&mut self, choice: usize) -> bool {
        let busy: Vec<u64> = self.ends.iter().filter(|(_, end)| !end.pending.is_empty()).map(|(id, _)| *id).collect();
        if busy.is_empty() {
            return false;
        }
        let connection = busy[choice % busy.len()];
        let mut end = self.ends.remove(&connection).unwrap();
        let (request, data) = end.pending.remove(choice / 7 % end.pending.len());
        self.carry_out(&request, &data, &mut end.output);
        self.ends.insert(connection, end);
        self.done.push(request);
        true
    }

    fn take(&mut self, end: &mut End) -> bool {
        if end.is_ready {
            let Some(head) = end.input.first_chunk::<REQUEST_BYTES>() else { return false };
            let request = RawRequest::parse(head).expect("a request");
            let length = if request.kind == CMD_WRITE { request.length_bytes as usize } else { 0 };
            if end.input.len() < REQUEST_BYTES + length {
                return false;
            }
            let data = end.input[REQUEST_BYTES..REQUEST_BYTES + length].to_vec();
            end.input.drain(..REQUEST_BYTES + length);
            let has_payload = matches!(request.kind, CMD_READ | CMD_WRITE | CMD_WRITE_ZEROES);
            assert!(!has_payload || request.length_bytes <= self.traits.payload_max_bytes, "longer than was agreed on");
            if request.kind != CMD_DISCONNECT {
                end.pending.push((request, data));
            }
            return true;
        }
        if !end.knows_client {
            if end.input.len() < 4 {
                return false;
            }
            assert_eq!(be32(&end.input, 0), 3, "fixed newstyle, no zeroes");
            end.input.drain(..4);
            end.knows_client = true;
            return true;
        }
        if end.input.len() < 16 || end.input.len() < 16 + be32(&end.input, 12) as usize {
            return false;
        }
        let option: Vec<u8> = end.input.drain(..16 + be32(&end.input, 12) as usize).collect();
        self.option(end, be32(&option, 8), &option[16..]);
        true
    }

    fn option(&mut self, end: &mut End, option: u32, data: &[u8]) {
        let flags = self.traits.flags;
        let mut reply = |kind: u32, data: &[u8]| {
            end.output.extend(MAGIC_OPTION_REPLY.to_be_bytes());
            end.output.extend(option.to_be_bytes());
            end.output.extend(kind.to_be_bytes());
            end.output.extend((data.len() as u32).to_be_bytes());
            end.output.extend(data);
        };
        match option {
            OPT_STRUCTURED_REPLY if self.traits.is_structured => reply(REP_ACK, &[]),
            OPT_SET_META_CONTEXT if self.traits.tells_extents => {
                let mut context = 7u32.to_be_bytes().to_vec();
                context.extend(BASE_ALLOCATION);
                reply(REP_META_CONTEXT, &context);
                reply(REP_ACK, &[]);
            }
            OPT_GO if !self.traits.is_old => {
                let name = &data[4..4 + be32(data, 0) as usize];
                if name != b"disk" {
                    return reply(REP_ERR_UNKNOWN, b"no such thing");
                }
                let mut info = INFO_EXPORT.to_be_bytes().to_vec();
                info.extend(self.traits.size_bytes.to_be_bytes());
                info.extend(flags.to_be_bytes());
                reply(REP_INFO, &info);
                let mut info = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
                [1, 4096.min(self.traits.payload_max_bytes), self.traits.payload_max_bytes]
                    .iter()
                    .for_each(|bytes| info.extend(bytes.to_be_bytes()));
                reply(REP_INFO, &info);
                reply(REP_ACK, &[]);
                end.is_ready = true;
            }
            OPT_EXPORT_NAME => {
                end.output.extend(self.traits.size_bytes.to_be_bytes());
                end.output.extend(flags.to_be_bytes());
                end.is_ready = true;
            }
            OPT_LIST => {
                for name in [&b"disk"[..], b"other\n"] {
                    let mut data = (name.len() as u32).to_be_bytes().to_vec();
                    data.extend(name);
                    reply(REP_SERVER, &data);
                }
                reply(REP_ACK, &[]);
            }
            _ => reply(REP_ERR_UNSUP, &[]),
        }
    }

    fn carry_out(&mut self, request: &RawRequest, data: &[u8], output: &mut Vec<u8>) {
        let RawRequest { cookie, offset_bytes, length_bytes, kind, .. } = *request;
        let place = offset_bytes as usize..offset_bytes as usize + length_bytes as usize;
        if let Some((_, errno)) = self.fails.filter(|(failing, _)| *failing == kind) {
            return self.refuse(cookie, errno, offset_bytes, output);
        }
        match kind {
            CMD_READ if self.traits.is_structured => {
                let bytes = &self.disk[place];
                let chunks: Vec<&[u8]> = bytes.chunks(self.traits.chunk_bytes).collect();
                for (index, chunk) in chunks.iter().enumerate().rev() {
                    let at = offset_bytes + (index * self.traits.chunk_bytes) as u64;
                    if chunk.iter().all(|byte| *byte == 0) {
                        let flags = u16::from(index == 0);
                        output.extend(chunk_head(flags, CHUNK_OFFSET_HOLE, cookie, 12));
                        output.extend(at.to_be_bytes());
                        output.extend((chunk.len() as u32).to_be_bytes());
                    } else {
                        output.extend(ReplyHead::offset_data(cookie, at, chunk.len() as u32, index == 0).as_bytes());
                        output.extend(*chunk);
                    }
                }
                return;
            }
            CMD_READ => {
                output.extend(ReplyHead::simple(cookie, None).as_bytes());
                output.extend(&self.disk[place]);
                return;
            }
            CMD_WRITE => self.disk[place].copy_from_slice(data),
            CMD_WRITE_ZEROES => self.disk[place].fill(0),
            CMD_FLUSH => self.stable = self.disk.clone(),
            CMD_BLOCK_STATUS => {
                let bytes = &self.disk[place];
                let is_hole = bytes[0] == 0;
                let length = bytes.iter().take_while(|byte| (**byte == 0) == is_hole).count();
                output.extend(chunk_head(CHUNK_FLAG_DONE, CHUNK_BLOCK_STATUS, cookie, 12));
                for word in [7, length as u32, if is_hole { 3 } else { 0 }] {
                    output.extend(word.to_be_bytes());
                }
                return;
            }
            _ => panic!("a request of a kind that was not agreed on"),
        }
        output.extend(ReplyHead::simple(cookie, None).as_bytes());
    }

    fn refuse(&self, cookie: u64, errno: u32, offset_bytes: u64, output: &mut Vec<u8>) {
        if !self.traits.is_structured {
            output.extend(MAGIC_SIMPLE.to_be_bytes());
            output.extend(errno.to_be_bytes());
            return output.extend(cookie.to_be_bytes());
        }
        let message = b"the disk\x07 is bad";
        output.extend(chunk_head(0, CHUNK_ERROR_OFFSET, cookie, 6 + message.len() as u32 + 8));
        output.extend(errno.to_be_bytes());
        output.extend((message.len() as u16).to_be_bytes());
        output.extend(message);
        output.extend((offset_bytes + 1).to_be_bytes());
        output.extend(ReplyHead::done(cookie).as_bytes());
    }
}

const MAGIC_SIMPLE: u32 = 0x6744_6698;

pub(super) fn chunk_head(flags: u16, kind: u16, cookie: u64, length_bytes: u32) -> Vec<u8> {
    let mut head = 0x668e_33efu32.to_be_bytes().to_vec();
    head.extend(flags.to_be_bytes());
    head.extend(kind.to_be_bytes());
    head.extend(cookie.to_be_bytes());
    head.extend(length_bytes.to_be_bytes());
    head
}
