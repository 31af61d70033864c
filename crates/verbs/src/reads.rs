//! RDMA Reads under way.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use sanwire_buffer::Frame;
use sanwire_iwarp::{Refusal, Refused, Stag, WorkId};

use crate::adapter::Domain;
use crate::ffi::{OPCODE_READ, SEND_SIGNALED, ScatterGather, SendRequest};
use crate::memory::{Access, Registered};
use crate::queue::{Queue, Work};

struct Reading {
    number: u64,
    id: WorkId,
    length_bytes: usize,
    // What is registered goes before its memory.
    sink: Option<Registered>,
    frame: Frame,
}

/// The reads of one connection that the adapter has. They end in their order.
#[derive(Default)]
pub(crate) struct Reads {
    under_way: VecDeque<Reading>,
    last: u64,
    read_bytes: u64,
}

impl Reads {
    pub(crate) fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Bytes that have come by reads.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Has the adapter read into a part of a frame, straight to where it is. The memory is registered for this read alone, as many bytes
    /// as it has: on iWARP the other end is told a key by which it could write there as long (RFC 5040 4.4).
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
        let Some(place) = frame.get_mut(part).filter(|place| u32::try_from(place.len()).is_ok()) else {
            return Err(Refused { refusal: Refusal::Range, given: frame });
        };
        let length_bytes = place.len();
        let access = Access { local_write: true, remote_write: domain.capabilities.is_iwarp(), remote_read: false };
        let mut sink = None;
        if length_bytes > 0 {
            // SAFETY: the frame is kept here until the read has ended or the queue pair is gone; nobody looks at it.
            match unsafe { Registered::new(domain, place.as_mut_ptr(), length_bytes, access) } {
                Ok(registered) => sink = Some(registered),
                Err(_) => {
                    let refusal = if self.under_way.is_empty() { Refusal::NotConnected } else { Refusal::Full };
                    return Err(Refused { refusal, given: frame });
                }
            }
        }
        let piece = sink.as_ref().map_or(ScatterGather::default(), Registered::whole);
        self.last += 1;
        let mut request = SendRequest::new(Work::Read(self.last).id(), OPCODE_READ);
        request.flags = SEND_SIGNALED;
        (request.remote_key, request.remote_address) = (source.0, source_offset);
        // SAFETY: as above.
        if unsafe { queue.post(&mut [request], &mut [piece]) }.is_err() {
            // Of a single request nothing is under way.
            drop(sink);
            return Err(Refused { refusal: Refusal::NotConnected, given: frame });
        }
        self.under_way.push_back(Reading { number: self.last, id, length_bytes, sink, frame });
        Ok(())
    }

    /// A read has ended well. `None` when it is not the next one, or has not brought as many bytes as were asked for: then nothing holds
    /// that adapters promise.
    pub(crate) fn take(&mut self, number: u64, length_bytes: usize) -> Option<(WorkId, Frame)> {
        let done = self.under_way.pop_front_if(|first| first.number == number && first.length_bytes == length_bytes)?;
        drop(done.sink);
        self.read_bytes += length_bytes as u64;
        Some((done.id, done.frame))
    }
}
