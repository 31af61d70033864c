//! A store that is some of the bytes of another one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanwire_buffer::{Slice, Slices};

use crate::completion::CompletionQueue;
use crate::error::{ErrorKind, StoreError};
use crate::extents::ExtentMap;
use crate::parts;
use crate::request::{Capabilities, Geometry, Request, Started, Store};
use crate::resize::ResizeError;

/// What may be done there, where the store below can do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentAccess {
    /// Writes.
    pub writes: bool,
    /// Discards.
    pub discards: bool,
}

/// Some extents of another store as one store. The other one goes on to be used by itself: what ends here ends nothing there, and its
/// space, its copies and its length are nobody's business here.
///
/// An error says where it is in the store below: [`ExtentMap::numbers_of`] tells what that is here.
#[derive(Debug)]
pub struct ExtentStore {
    below: Arc<dyn Store>,
    map: Arc<ExtentMap>,
    access: ExtentAccess,
    is_closed: AtomicBool,
}

impl ExtentStore {
    /// These bytes of `below`.
    #[must_use]
    pub fn new(below: Arc<dyn Store>, map: Arc<ExtentMap>, access: ExtentAccess) -> Self {
        ExtentStore { below, map, access, is_closed: AtomicBool::new(false) }
    }

    /// Has it begin no request any more, from now on and whoever asks, but flushes, which take nothing from anybody. What it has begun
    /// ends.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Whether it begins nothing any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Whether anybody may ask for such a thing.
    fn check_access(&self, request: &Request) -> Result<(), ErrorKind> {
        match request {
            Request::Flush => Ok(()),
            _ if self.is_closed() => Err(ErrorKind::Gone),
            Request::Discard { .. } if !self.access.discards => Err(ErrorKind::Unsupported),
            request if request.is_write() && !self.access.writes => Err(ErrorKind::ReadOnly),
            _ => Ok(()),
        }
    }

    /// The places of a range, each with its length.
    fn parts(&self, range: Range<u64>) -> Vec<(Range<u64>, usize)> {
        self.map.pieces(range).map(|piece| (piece.clone(), (piece.end - piece.start) as usize)).collect()
    }

    /// The same request for each place of its range.
    fn each(&self, range: Range<u64>, completions: &CompletionQueue, request: impl Fn(u64, u64) -> Request) -> Started {
        let begin = |place: Range<u64>| self.below.start(request(place.start, place.end - place.start), completions);
        parts::all(self.map.pieces(range).map(begin).collect(), completions)
    }
}

/// The same request at another place.
fn moved(request: Request, offset_bytes: u64) -> Request {
    match request {
        Request::Read { buffer, .. } => Request::Read { offset_bytes, buffer },
        Request::Write { data, .. } => Request::Write { offset_bytes, data },
        Request::Discard { length_bytes, .. } => Request::Discard { offset_bytes, length_bytes },
        Request::WriteZeroes { length_bytes, .. } => Request::WriteZeroes { offset_bytes, length_bytes },
        Request::Allocation { length_bytes, .. } => Request::Allocation { offset_bytes, length_bytes },
        Request::Flush => Request::Flush,
    }
}

impl Store for ExtentStore {
    fn geometry(&self) -> Geometry {
        let below = self.below.geometry();
        let is_aligned = self.map.is_aligned_to(below.physical_block_bytes.into());
        Geometry {
            length_bytes: self.map.length_bytes(),
            physical_block_bytes: if is_aligned { below.physical_block_bytes } else { below.block_bytes },
            read_only: below.read_only || !self.access.writes,
            discards: below.discards && self.access.discards,
            // What lies in several places is written by several requests.
            atomic_write_bytes: if self.map.is_one_piece() { below.atomic_write_bytes } else { 0 },
            ..below
        }
    }

    fn capabilities(&self) -> Capabilities {
        let below = self.below.capabilities();
        Capabilities { geometry: self.geometry(), tells_space: false, grows: false, ..below }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let (offset_bytes, length_bytes) = request.range_bytes();
        if let Err(kind) = self.check_access(&request) {
            return Started::Done(Err(StoreError::new(kind, offset_bytes)));
        }
        let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
        // As nearly always: the store below looks at all that is left to be looked at.
        if let Some(place) = self.map.piece(range.clone()) {
            return self.below.start(moved(request, place.start), completions);
        }
        if let Err(error) = self.geometry().check(&request) {
            return Started::Done(Err(error));
        }
        match request {
            Request::Read { offset_bytes, buffer } => {
                parts::read((offset_bytes, buffer), self.parts(range), completions, |place, buffer| {
                    self.below.start(Request::Read { offset_bytes: place.start, buffer }, completions)
                })
            }
            Request::Write { data, .. } => parts::write(&data, self.parts(range), completions, |place, data| {
                self.below.start(Request::Write { offset_bytes: place.start, data }, completions)
            }),
            Request::Discard { .. } => self
                .each(range, completions, |offset_bytes, length_bytes| Request::Discard { offset_bytes, length_bytes }),
            Request::WriteZeroes { .. } => self.each(range, completions, |offset_bytes, length_bytes| {
                Request::WriteZeroes { offset_bytes, length_bytes }
            }),
            // The answer may be about the beginning only.
            Request::Allocation { .. } => match self.map.pieces(range).next() {
                Some(place) => {
                    let length_bytes = place.end - place.start;
                    self.below.start(Request::Allocation { offset_bytes: place.start, length_bytes }, completions)
                }
                None => Started::Done(Err(StoreError::new(ErrorKind::OutOfRange, offset_bytes))),
            },
            Request::Flush => self.below.start(request, completions),
        }
    }

    fn share(&self, offset_bytes: u64, length_bytes: usize) -> Option<Slices> {
        if self.is_closed() {
            return None;
        }
        let range = offset_bytes..offset_bytes.checked_add(length_bytes as u64)?;
        if let Some(place) = self.map.piece(range.clone()) {
            return self.below.share(place.start, length_bytes);
        }
        let mut shared = Vec::<Slice>::new();
        for (place, length_bytes) in self.parts(range) {
            shared.extend(self.below.share(place.start, length_bytes)?.pieces().iter().cloned());
        }
        Slices::join(shared.into_iter()).filter(|slices| slices.len() == length_bytes)
    }

    fn is_over(&self) -> bool {
        self.below.is_over()
    }

    fn resize(&self, _length_bytes: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Fixed("it is a part of another volume, as it was derived from that"))
    }
}
