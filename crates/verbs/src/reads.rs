//! RDMA Reads under way.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use sanwire_buffer::Frame;
use sanwire_iwarp::{Refusal, Refused, Stag, WorkId};

use crate::domain::Domain;
use crate::error::Error;
use crate::ffi::{OPCODE_READ, SEND_SIGNALED, ScatterGather, SendRequest};
use crate::memory::{Access, COPIED_MAX_BYTES, Pool, Registered, keep_frame_out};
use crate::queue::{Queue, Work};

/// Where the adapter puts what it reads.
enum Sink {
    /// There is nothing to put.
    Nothing,
    /// Where it belongs, in a region that is registered.
    InRegion,
    /// Where it belongs.
    InPlace(Registered),
    /// Into the connection's own memory.
    Apart(Frame),
}

struct Reading {
    number: u64,
    id: WorkId,
    // What is registered goes before its memory.
    sink: Sink,
    part: Range<usize>,
    frame: Frame,
}

/// The reads of one connection that the adapter has. They end in their order.
///
/// On iWARP the other end is told a key with each read, by which it could write to all that is registered so (RFC 5040 4.4). So that is
/// the part of a frame and nothing else, as long as the read takes; or memory that only reads use, and that is copied from at their end.
pub(crate) struct Reads {
    under_way: VecDeque<Reading>,
    last: u64,
    /// Memory for short reads, once there was one.
    pool: Option<Pool>,
    pool_bytes: usize,
    read_bytes: u64,
    copied_bytes: u64,
    /// Why there is no memory, the last time that there was none.
    failure: Option<Error>,
}

impl Reads {
    pub(crate) fn new(pool_bytes: usize) -> Self {
        Reads {
            under_way: VecDeque::new(),
            last: 0,
            pool: None,
            pool_bytes,
            read_bytes: 0,
            copied_bytes: 0,
            failure: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Bytes that have come by reads.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Those of them that were copied to where they belong.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Why there was no memory for a read, if that has happened.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Has the adapter read into a part of a frame.
    ///
    /// # Errors
    /// The frame. [`Refusal::Full`] when no more memory may be locked, and other reads will end.
    pub(crate) fn post(
        &mut self,
        id: WorkId,
        mut frame: Frame,
        part: Range<usize>,
        (source, source_offset): (Stag, u64),
        (domain, queue): (&Arc<Domain>, &mut Queue),
    ) -> Result<(), Refused<Frame>> {
        let key = domain.key_of(frame.region());
        let Some(place) = frame.get_mut(part.clone()).filter(|place| u32::try_from(place.len()).is_ok()) else {
            return Err(Refused { refusal: Refusal::Range, given: frame });
        };
        let Some((sink, piece)) = self.sink(place, key, domain) else {
            let refusal = if self.under_way.is_empty() { Refusal::NotConnected } else { Refusal::Full };
            return Err(Refused { refusal, given: frame });
        };
        self.last += 1;
        let mut request = SendRequest::new(Work::Read(self.last).id(), OPCODE_READ);
        request.flags = SEND_SIGNALED;
        (request.remote_key, request.remote_address) = (source.0, source_offset);
        // SAFETY: sink and frame are kept here until the read has ended or the queue pair is gone; nobody looks at them.
        if !unsafe { queue.post(&mut [request], &mut [piece]) } {
            // Of a single request nothing is under way then.
            drop(sink);
            return Err(Refused { refusal: Refusal::NotConnected, given: frame });
        }
        self.under_way.push_back(Reading { number: self.last, id, sink, part, frame });
        Ok(())
    }

    /// Where so much is read to, if a region with this key has it; `None` when there is no such memory.
    fn sink(&mut self, place: &mut [u8], key: Option<u32>, domain: &Arc<Domain>) -> Option<(Sink, ScatterGather)> {
        let remote_write = domain.capabilities.is_iwarp();
        let access = Access { local_write: true, remote_write, ..Access::default() };
        if place.is_empty() {
            return Some((Sink::Nothing, ScatterGather::default()));
        }
        if let Some(local_key) = key {
            let address = place.as_mut_ptr().addr() as u64;
            return Some((Sink::InRegion, ScatterGather { address, length: place.len() as u32, local_key }));
        }
        if place.len() <= COPIED_MAX_BYTES {
            if self.pool.is_none() {
                self.pool = Pool::new(domain, self.pool_bytes, access).ok();
            }
            if let Some(pool) = &self.pool
                && let Some(frame) = pool.frame(place.len())
            {
                let piece = pool.piece(&frame);
                return Some((Sink::Apart(frame), piece));
            }
        }
        // SAFETY: the frame is kept as long as what is registered of it, and nobody looks at it meanwhile.
        let registered = unsafe { Registered::new(domain, place.as_mut_ptr(), place.len(), access) };
        let registered = registered.map_err(|error| self.failure = Some(error)).ok()?;
        let piece = registered.whole();
        Some((Sink::InPlace(registered), piece))
    }

    /// A read has ended well. `None` when it is not the next one, or has not brought as many bytes as were asked for: then nothing holds
    /// that adapters promise.
    pub(crate) fn take(&mut self, number: u64, length_bytes: usize) -> Option<(WorkId, Frame)> {
        let is_next = |first: &mut Reading| first.number == number && first.part.len() == length_bytes;
        let Reading { id, sink, part, mut frame, .. } = self.under_way.pop_front_if(is_next)?;
        match sink {
            Sink::Nothing | Sink::InRegion => {}
            Sink::InPlace(registered) => {
                if let Err(error) = registered.end() {
                    frame = keep_frame_out(frame, &error);
                }
            }
            Sink::Apart(apart) => {
                frame[part].copy_from_slice(&apart);
                self.copied_bytes += length_bytes as u64;
            }
        }
        self.read_bytes += length_bytes as u64;
        Some((id, frame))
    }
}
