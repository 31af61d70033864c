//! Messages and data on their way to the other end.

use std::collections::VecDeque;
use std::sync::Arc;

use sanwire_buffer::{Frame, Slice, Slices};
use sanwire_iwarp::{Order, Refusal, SendKind, Stag, WorkId};

use crate::domain::Domain;
use crate::error::Error;
use crate::ffi::{
    OPCODE_SEND, OPCODE_SEND_WITH_INVALIDATE, OPCODE_WRITE, SEND_SIGNALED, SEND_SOLICITED, ScatterGather, SendRequest,
};
use crate::memory::{Access, COPIED_MAX_BYTES, Pool, Registered};
use crate::queue::{Queue, Work};

/// Memory for copies from the start, which every stranger has locked: a login takes no more, since it has one answer of up to 8 KiB under way.
const FIRST_POOL_BYTES: usize = 16 << 10;

/// A piece that is shorter is copied with its neighbours, wherever it lies: each piece is a request of its own.
const IN_REGION_MIN_BYTES: usize = 1024;

/// Bytes of one piece that is copied because its neighbours are short as well.
const RUN_MAX_BYTES: usize = 256 << 10;

/// Memory from which something is sent.
struct Source {
    piece: ScatterGather,
    _kept: Kept,
}

/// What keeps it.
enum Kept {
    /// A copy.
    Copied(#[expect(dead_code, reason = "it is kept")] Frame),
    /// Where the data lies.
    InPlace(#[expect(dead_code, reason = "it is kept")] Registered),
    /// Where it lies, in a region that is registered.
    InRegion,
}

/// An order that the adapter has.
struct Posted {
    number: u64,
    id: Option<WorkId>,
    /// Requests that it is.
    requests: usize,
    // What is registered goes before the data that it is.
    _sources: Vec<Source>,
    _data: Option<Slices>,
}

/// The orders of one connection that the adapter has, first those that were given first.
pub(crate) struct Orders {
    posted: VecDeque<Posted>,
    /// Memory for copies: a little from the start, since whoever connects gets that much; the rest when it is needed.
    pools: Vec<Pool>,
    send_bytes: usize,
    last: u64,
    /// Requests that they are.
    requests: usize,
    /// Why there is no memory, the last time that there was none.
    failure: Option<Error>,
}

impl Orders {
    /// # Errors
    /// When there is no such memory.
    pub(crate) fn new(domain: &Arc<Domain>, send_bytes: usize) -> Result<Self, Error> {
        let first = Pool::new(domain, FIRST_POOL_BYTES.min(send_bytes), Access::default())?;
        Ok(Orders { posted: VecDeque::new(), pools: vec![first], send_bytes, last: 0, requests: 0, failure: None })
    }

    /// Requests that the adapter has.
    pub(crate) fn requests(&self) -> usize {
        self.requests
    }

    /// Why there was no memory for an order, if that has happened.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Gives an order to the adapter, as at most so many requests. Before it others are carried out, which name no memory that is sent
    /// from or read into.
    ///
    /// # Errors
    /// [`Refusal::Full`] when there is no room now.
    pub(crate) fn post(
        &mut self,
        order: &Order,
        id: Option<WorkId>,
        [free, most]: [usize; 2],
        before: Vec<SendRequest>,
        (domain, queue): (&Arc<Domain>, &mut Queue),
    ) -> Result<(), Refusal> {
        let (sources, data) = match order {
            Order::Send { head, data, .. } => (vec![self.copy(head, data.as_ref(), domain)?], None),
            Order::Write { data, .. } => (self.sources(data, domain)?, Some(data.clone())),
        };
        let count = before.len() + sources.len();
        if count > free {
            return Err(if count > most { Refusal::Range } else { Refusal::Full });
        }
        let number = self.last + 1;
        let mut pieces: Vec<ScatterGather> = sources.iter().map(|source| source.piece).collect();
        let mut requests = requests(order, number, &pieces, before);
        pieces.splice(0..0, std::iter::repeat_n(ScatterGather::default(), requests.len() - pieces.len()));
        self.last = number;
        self.requests += count;
        self.posted.push_back(Posted { number, id, requests: count, _sources: sources, _data: data });
        // SAFETY: what the pieces are of is in `posted` until the last of the requests has ended, or the queue pair is gone. Copies are in
        // nobody else's hands, and shared data is not written to.
        let posted = unsafe { queue.post(&mut requests, &mut pieces) };
        // Some of them may be under way: so it stays among those that are posted.
        if posted { Ok(()) } else { Err(Refusal::NotConnected) }
    }

    /// A copy, in one piece.
    fn copy(&mut self, head: &[u8], data: Option<&Slices>, domain: &Arc<Domain>) -> Result<Source, Refusal> {
        let length = head.len() + data.map_or(0, Slices::len);
        let (mut frame, local_key) = self.room_for(length, domain)?;
        let (front, back) = frame.split_at_mut(head.len());
        front.copy_from_slice(head);
        if let Some(data) = data {
            data.copy_to(back);
        }
        let piece = ScatterGather { address: frame.as_ptr().addr() as u64, length: length as u32, local_key };
        Ok(Source { piece, _kept: Kept::Copied(frame) })
    }

    /// Room in the connection's own memory, and the key of that.
    fn room_for(&mut self, length_bytes: usize, domain: &Arc<Domain>) -> Result<(Frame, u32), Refusal> {
        if length_bytes > self.send_bytes {
            return Err(Refusal::Range);
        }
        let room = |pool: &Pool| Some((pool.frame(length_bytes)?, pool.local_key()));
        if let Some(found) = self.pools.iter().find_map(room) {
            return Ok(found);
        }
        if self.pools.len() == 1 {
            match Pool::new(domain, self.send_bytes, Access::default()) {
                Ok(pool) => self.pools.push(pool),
                Err(error) => {
                    self.failure = Some(error);
                    // What is under way leaves room.
                    return Err(if self.posted.is_empty() { Refusal::NotConnected } else { Refusal::Full });
                }
            }
        }
        // Of a pool that is this order's alone nothing comes back.
        let refusal = if self.posted.is_empty() { Refusal::NotConnected } else { Refusal::Full };
        self.pools.last().and_then(room).ok_or(refusal)
    }

    /// Data to be written: where it lies, as far as that is in a region that is registered, or in long pieces.
    fn sources(&mut self, data: &Slices, domain: &Arc<Domain>) -> Result<Vec<Source>, Refusal> {
        let (mut sources, mut short) = (Vec::new(), 0..0);
        for piece in data.pieces() {
            let (start, end) = (short.end, short.end + piece.len());
            let key = domain.key_of(piece.region()).filter(|_| piece.len() >= IN_REGION_MIN_BYTES);
            let is_copied = key.is_none() && piece.len() <= COPIED_MAX_BYTES;
            if !short.is_empty() && (!is_copied || end - short.start > RUN_MAX_BYTES) {
                sources.push(self.copy(&[], Some(&data.slice(short)), domain)?);
                short = start..start;
            }
            if !is_copied {
                sources.push(match key {
                    Some(key) => in_region(piece, key),
                    None => self.in_place(piece, domain)?,
                });
                short.start = end;
            }
            short.end = end;
        }
        if !short.is_empty() || sources.is_empty() {
            sources.push(self.copy(&[], Some(&data.slice(short)), domain)?);
        }
        Ok(sources)
    }

    /// Data where it lies; a copy where no more memory may be locked.
    fn in_place(&mut self, data: &Slice, domain: &Arc<Domain>) -> Result<Source, Refusal> {
        let address = data.as_ptr().cast_mut();
        // SAFETY: whoever posts it keeps the data as long; the adapter only reads there, which is all that it has a right to.
        match unsafe { Registered::new(domain, address, data.len(), Access::default()) } {
            Ok(registered) => Ok(Source { piece: registered.whole(), _kept: Kept::InPlace(registered) }),
            Err(_) => self.copy(data, None, domain),
        }
    }

    /// The adapter is done with all orders up to this one. Their names are told one after the other.
    pub(crate) fn note_done(&mut self, number: u64, mut each: impl FnMut(WorkId)) {
        while let Some(done) = self.posted.pop_front_if(|posted| posted.number <= number) {
            self.requests -= done.requests;
            if let Some(id) = done.id {
                each(id);
            }
        }
    }
}

fn in_region(data: &Slice, local_key: u32) -> Source {
    let piece = ScatterGather { address: data.as_ptr().addr() as u64, length: data.len() as u32, local_key };
    Source { piece, _kept: Kept::InRegion }
}

/// What the adapter is asked for, behind something else. It tells when the last one is done, and with it the others.
fn requests(order: &Order, number: u64, pieces: &[ScatterGather], before: Vec<SendRequest>) -> Vec<SendRequest> {
    let id = Work::Order(number).id();
    let mut requests = before;
    requests.iter_mut().for_each(|request| request.id = id);
    match order {
        Order::Send { kind, .. } => requests.push(send(id, *kind)),
        Order::Write { stag, offset, .. } => {
            let mut behind = 0;
            let write = |piece: &ScatterGather| {
                let mut request = SendRequest::new(id, OPCODE_WRITE);
                (request.remote_key, request.remote_address) = (stag.0, offset.wrapping_add(behind));
                behind += u64::from(piece.length);
                request
            };
            requests.extend(pieces.iter().map(write));
        }
    }
    if let Some(last) = requests.last_mut() {
        last.flags |= SEND_SIGNALED;
    }
    requests
}

fn send(id: u64, kind: SendKind) -> SendRequest {
    let opcode = if kind.invalidate.is_some() { OPCODE_SEND_WITH_INVALIDATE } else { OPCODE_SEND };
    let mut request = SendRequest::new(id, opcode);
    if let Some(Stag(key)) = kind.invalidate {
        // libsiw sends the key that belongs to RDMA Writes. Nobody else looks there.
        (request.invalidate_key, request.remote_key) = (key, key);
    }
    request.flags = if kind.solicited { SEND_SOLICITED } else { 0 };
    request
}

#[cfg(test)]
mod tests {
    use sanwire_buffer::Head;

    use super::*;
    use crate::ffi::OPCODE_BIND_WINDOW;

    #[test]
    fn the_pieces_of_data_follow_each_other_and_the_last_one_is_told_of() {
        let order = Order::Write { stag: Stag(7), offset: 100, data: Slice::from(vec![1; 50]).into() };
        let piece = |length| ScatterGather { length, ..ScatterGather::default() };
        let all = requests(&order, 9, &[piece(20), piece(25), piece(5)], Vec::new());
        let told: Vec<_> = all.iter().map(|one| (one.remote_key, one.remote_address, one.flags, one.id)).collect();
        let id = Work::Order(9).id();
        assert_eq!(told, [(7, 100, 0, id), (7, 120, 0, id), (7, 145, SEND_SIGNALED, id)]);
    }

    #[test]
    fn windows_are_bound_before_the_message_that_tells_of_them_and_nothing_is_told_of_that() {
        let order = Order::Send { kind: SendKind::default(), head: Head::from(vec![1]), data: None };
        let bind = || SendRequest::new(0, OPCODE_BIND_WINDOW);
        let all = requests(&order, 3, &[ScatterGather::default()], vec![bind(), bind()]);
        let told: Vec<_> = all.iter().map(|one| (one.opcode, one.flags, one.id)).collect();
        let id = Work::Order(3).id();
        assert_eq!(told, [(OPCODE_BIND_WINDOW, 0, id), (OPCODE_BIND_WINDOW, 0, id), (OPCODE_SEND, SEND_SIGNALED, id)]);
    }

    #[test]
    fn the_key_that_a_message_ends_is_said_in_both_places() {
        let request = send(1, SendKind { solicited: true, invalidate: Some(Stag(0x1234)) });
        assert_eq!((request.opcode, request.flags), (OPCODE_SEND_WITH_INVALIDATE, SEND_SOLICITED));
        assert_eq!((request.invalidate_key, request.remote_key), (0x1234, 0x1234));
        let plain = send(1, SendKind::default());
        assert_eq!((plain.opcode, plain.flags, plain.invalidate_key), (OPCODE_SEND, 0, 0));
    }
}
