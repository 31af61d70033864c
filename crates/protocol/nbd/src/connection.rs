//! One connection: its negotiation, then requests on their way out and answers on their way in.

use sanwire_buffer::{Head, Packet, Slices};
use sanwire_core::Instant;
use slab::Slab;

use crate::chunk::{take_error, take_extents, take_hole, within};
use crate::client::{ConnectionId, Orders};
use crate::coverage::Coverage;
use crate::export::{Export, HandshakeError};
use crate::handshake::{Handshake, WANTED_MAX_BYTES};
use crate::order::{Extent, Failure};
use crate::outbox::Outbox;
use crate::wire::*;

/// Bytes that are received for something else than the frame of a read; what a negotiation waits for has room.
const STAGING_BYTES: usize = 64 << 10;
const _: () = assert!(STAGING_BYTES >= WANTED_MAX_BYTES);
/// A rest of a read's data of at least so many bytes is received in place; less is copied, with what follows it.
const DIRECT_MIN_BYTES: usize = 4096;
/// After data of at least so many bytes the next is taken to be as long: then few bytes behind it are received at a time.
const LONG_MIN_BYTES: usize = 16 << 10;
/// That many answers without data, one after the other, and no more long data is to be expected.
const LONG_ENDS_AFTER: u8 = 8;
/// Bytes that are received behind long data: some heads.
const BEHIND_LONG_BYTES: usize = 512;
/// The longest chunk without data that is listened to: an error with the longest text, and some.
const CHUNK_MAX_BYTES: usize = 8 << 10;
/// Requests under way on one connection, at the most.
const PIECES_MAX: usize = 64;

/// What the server does that no server may.
pub(crate) type Violation = &'static str;

/// One request under way: an order, or a part of one.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) order: u64,
    /// The command.
    pub(crate) kind: u16,
    /// Where in the order's data it begins.
    pub(crate) start: usize,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u32,
    pub(crate) failure: Option<Failure>,
    pub(crate) extent: Option<Extent>,
    pub(crate) coverage: Coverage,
    cookie: u64,
}

impl Piece {
    pub(crate) fn new(order: u64, kind: u16, start: usize, offset_bytes: u64, length_bytes: u32) -> Self {
        let (failure, extent, coverage) = (None, None, Coverage::default());
        Piece { order, kind, start, offset_bytes, length_bytes, failure, extent, coverage, cookie: 0 }
    }

    pub(crate) fn fail(&mut self, errno: u32, offset_bytes: Option<u64>, text: String) {
        self.failure.get_or_insert(Failure::Server { errno, offset_bytes, text });
    }
}

#[derive(Debug)]
enum Stage {
    Connecting,
    Negotiating(Box<Handshake>),
    Ready(Export),
}

impl Stage {
    fn allocation_context(&self) -> Option<u32> {
        if let Stage::Ready(export) = self { export.allocation_context } else { None }
    }
}

/// Data of a read that is being received.
#[derive(Debug)]
struct Run {
    key: usize,
    /// Where in the order's frame the next byte goes.
    at: usize,
    left: usize,
    is_last: bool,
}

/// What a chunk came to.
enum Chunk {
    Starving,
    Taken,
    Ended(usize),
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// Until when it must be ready.
    pub(crate) deadline: Instant,
    stage: Stage,
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    run: Option<Run>,
    long_for: u8,
    outbox: Outbox,
    pieces: Slab<Piece>,
    /// Requests that were ever sent.
    requests: u64,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, deadline: Instant) -> Self {
        Connection {
            id,
            deadline,
            stage: Stage::Connecting,
            staging: vec![0; STAGING_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            run: None,
            long_for: 0,
            outbox: Outbox::default(),
            pieces: Slab::new(),
            requests: 0,
        }
    }

    /// The transport is there: the negotiation begins.
    pub(crate) fn connected(&mut self, export_name: &str) {
        if let Stage::Connecting = self.stage {
            self.stage = Stage::Negotiating(Box::new(Handshake::new(export_name.to_owned())));
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready(_))
    }

    /// Goes on with the negotiation; gives the export once, when it is over.
    pub(crate) fn negotiate(&mut self) -> Result<Option<Export>, HandshakeError> {
        let Stage::Negotiating(handshake) = &mut self.stage else { return Ok(None) };
        loop {
            let taken = handshake.take(&self.staging[self.start..self.end])?;
            self.start += taken;
            let output = handshake.take_output();
            if !output.is_empty() {
                self.outbox.push(Head::from(output), None);
            }
            if let Some(export) = handshake.export() {
                self.stage = Stage::Ready(export);
                return Ok(Some(export));
            }
            if taken == 0 {
                return Ok(None);
            }
        }
    }

    /// Where the next bytes belong: first all of the first space, then the second.
    pub(crate) fn spaces<'a>(&'a mut self, orders: &'a mut Orders) -> [&'a mut [u8]; 2] {
        if self.start > 0 {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let direct = match &self.run {
            Some(run) if run.left >= DIRECT_MIN_BYTES && self.end == 0 => {
                &mut orders.frame(self.pieces[run.key].order)[run.at..run.at + run.left]
            }
            _ => &mut [],
        };
        let end = if self.long_for > 0 { self.end + BEHIND_LONG_BYTES } else { self.staging.len() };
        let end = end.min(self.staging.len());
        [direct, &mut self.staging[self.end..end]]
    }

    /// So many bytes were received into the spaces.
    pub(crate) fn filled(&mut self, count: usize) {
        let mut staged = count;
        if let Some(run) = &mut self.run
            && run.left >= DIRECT_MIN_BYTES
            && self.end == 0
        {
            let direct = count.min(run.left);
            (run.at, run.left) = (run.at + direct, run.left - direct);
            staged -= direct;
        }
        self.end = (self.end + staged).min(self.staging.len());
    }

    pub(crate) fn has_room(&self) -> bool {
        self.is_ready() && self.pieces.len() < PIECES_MAX
    }

    /// Requests under way.
    pub(crate) fn load(&self) -> usize {
        self.pieces.len()
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, mut piece: Piece, flags: u16, data: Option<Slices>) {
        self.requests += 1;
        let entry = self.pieces.vacant_entry();
        // Unlike a bare key, it is never that of an older request.
        piece.cookie = self.requests << 16 | entry.key() as u64;
        let Piece { kind, cookie, offset_bytes, length_bytes, .. } = piece;
        entry.insert(piece);
        self.push(RawRequest { flags, kind, cookie, offset_bytes, length_bytes }, data);
    }

    /// Says that no more requests will come. It is not answered.
    pub(crate) fn leave(&mut self) {
        if self.is_ready() {
            let kind = CMD_DISCONNECT;
            self.push(RawRequest { flags: 0, kind, cookie: 0, offset_bytes: 0, length_bytes: 0 }, None);
        }
    }

    fn push(&mut self, request: RawRequest, data: Option<Slices>) {
        let mut head = Head::new();
        head.extend(&request.to_bytes());
        self.outbox.push(head, data);
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Packet> {
        self.outbox.poll()
    }

    /// Takes back the requests of which nothing was polled yet.
    pub(crate) fn withdraw(&mut self) {
        if self.is_ready() {
            for head in self.outbox.withdraw() {
                let head = <&[u8; REQUEST_BYTES]>::try_from(&head[..]).ok();
                let request = head.and_then(RawRequest::parse);
                if let Some(key) = request.and_then(|request| self.find(request.cookie).ok()) {
                    self.pieces.remove(key);
                }
            }
        }
    }

    /// The orders of which requests are under way.
    pub(crate) fn orders(&self) -> impl Iterator<Item = u64> {
        self.pieces.iter().map(|(_, piece)| piece.order)
    }

    /// Whether requests are under way that write.
    pub(crate) fn has_writes(&self) -> bool {
        self.pieces.iter().any(|(_, piece)| matches!(piece.kind, CMD_WRITE | CMD_WRITE_ZEROES))
    }

    /// The next request that has ended, once the server's word on it is whole.
    pub(crate) fn poll(&mut self, orders: &mut Orders) -> Result<Option<Piece>, Violation> {
        loop {
            if self.run.is_some() {
                match self.take_data(orders) {
                    Some(key) => return self.end(key).map(Some),
                    None if self.run.is_some() => return Ok(None),
                    None => {}
                }
            }
            let reply = RawReply::parse(&self.staging[self.start..self.end]);
            match reply.map_err(|_| "what it sends is no answer")? {
                None => return Ok(None),
                Some((RawReply::Simple { error, cookie }, head_bytes)) => {
                    self.start += head_bytes;
                    if let Some(key) = self.take_simple(error, cookie)? {
                        return self.end(key).map(Some);
                    }
                }
                Some((RawReply::Chunk { flags, kind, cookie, length_bytes }, head_bytes)) => {
                    let key = self.find(cookie)?;
                    let is_last = flags & CHUNK_FLAG_DONE != 0;
                    match self.take_chunk(key, kind, is_last, head_bytes, length_bytes as usize, orders)? {
                        Chunk::Starving => return Ok(None),
                        Chunk::Taken => {}
                        Chunk::Ended(key) => return self.end(key).map(Some),
                    }
                }
            }
        }
    }

    fn find(&self, cookie: u64) -> Result<usize, Violation> {
        let key = (cookie & 0xffff) as usize;
        let is_known = self.pieces.get(key).is_some_and(|piece| piece.cookie == cookie);
        is_known.then_some(key).ok_or("it answers what was not asked")
    }

    /// Copies data that was received with other things; gives the request whose last data this was.
    fn take_data(&mut self, orders: &mut Orders) -> Option<usize> {
        let run = self.run.as_mut()?;
        let count = run.left.min(self.end - self.start);
        let frame = orders.frame(self.pieces[run.key].order);
        frame[run.at..run.at + count].copy_from_slice(&self.staging[self.start..self.start + count]);
        self.start += count;
        (run.at, run.left) = (run.at + count, run.left - count);
        if run.left > 0 {
            return None;
        }
        self.run.take().filter(|run| run.is_last).map(|run| run.key)
    }

    fn take_simple(&mut self, error: u32, cookie: u64) -> Result<Option<usize>, Violation> {
        let key = self.find(cookie)?;
        let is_structured = matches!(&self.stage, Stage::Ready(export) if export.is_structured);
        let piece = &mut self.pieces[key];
        match (error, piece.kind) {
            (0, CMD_READ) if is_structured => Err("it answers a read without chunks"),
            (0, CMD_READ) => {
                let (start, length) = (piece.start, piece.length_bytes);
                self.begin_run(key, start, 0..length, true)?;
                Ok(None)
            }
            (0, CMD_BLOCK_STATUS) => Err("it tells nothing about what is allocated"),
            (0, _) => Ok(Some(key)),
            (errno, _) => {
                piece.fail(errno, None, String::new());
                Ok(Some(key))
            }
        }
    }

    /// `bytes` of the piece come next.
    fn begin_run(
        &mut self,
        key: usize,
        start: usize,
        bytes: std::ops::Range<u32>,
        is_last: bool,
    ) -> Result<(), Violation> {
        let (at, left) = (start + bytes.start as usize, bytes.len());
        if !self.pieces[key].coverage.insert(bytes) {
            return Err("it sends some data of a read twice, or in too many parts");
        }
        self.long_for = if left >= LONG_MIN_BYTES { LONG_ENDS_AFTER } else { 0 };
        self.run = Some(Run { key, at, left, is_last });
        Ok(())
    }

    fn take_chunk(
        &mut self,
        key: usize,
        kind: u16,
        is_last: bool,
        head_bytes: usize,
        length: usize,
        orders: &mut Orders,
    ) -> Result<Chunk, Violation> {
        if !matches!(&self.stage, Stage::Ready(export) if export.is_structured) {
            return Err("it answers in chunks, which was not agreed on");
        }
        let is_data = kind == CHUNK_OFFSET_DATA;
        if !is_data && length > CHUNK_MAX_BYTES {
            return Err("a chunk without data is too long");
        }
        let needed = if is_data { 8 } else { length };
        let Some(body) = self.staging[self.start..self.end].get(head_bytes..head_bytes + needed) else {
            return Ok(Chunk::Starving);
        };
        let context = self.stage.allocation_context();
        let piece = &mut self.pieces[key];
        if is_data {
            let start = piece.start;
            let bytes =
                within(piece, be64(body, 0), length.checked_sub(8).ok_or("a chunk of data without an offset")?)?;
            self.start += head_bytes + needed;
            self.begin_run(key, start, bytes, is_last)?;
            return Ok(Chunk::Taken);
        }
        match kind {
            CHUNK_NONE if is_last && length == 0 => {}
            CHUNK_OFFSET_HOLE if length == 12 => take_hole(piece, body, orders)?,
            CHUNK_BLOCK_STATUS => take_extents(piece, body, context)?,
            kind if kind & CHUNK_IS_ERROR != 0 => take_error(piece, kind, body)?,
            _ => return Err("a chunk of a kind that was not agreed on"),
        }
        self.start += head_bytes + needed;
        self.long_for = self.long_for.saturating_sub(1);
        Ok(if is_last { Chunk::Ended(key) } else { Chunk::Taken })
    }

    fn end(&mut self, key: usize) -> Result<Piece, Violation> {
        let piece = self.pieces.remove(key);
        let is_whole = match piece.kind {
            CMD_READ => piece.coverage.is_whole(piece.length_bytes),
            CMD_BLOCK_STATUS => piece.extent.is_some(),
            _ => true,
        };
        if is_whole || piece.failure.is_some() { Ok(piece) } else { Err("it leaves out a part of what was asked for") }
    }
}
