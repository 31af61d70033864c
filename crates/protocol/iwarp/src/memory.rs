//! Memory that the peer may reach, and by which keys.

use std::ops::Range;

use rustc_hash::FxHashMap;
use sanwire_buffer::{Frame, Slice, Slices};

use crate::event::{Refusal, Refused};
use crate::key::Keys;
use crate::wire::Stag;

/// What is registered.
#[derive(Debug)]
pub enum Memory {
    /// Memory that the peer may write to (and read, where it has the right to). It belongs to the connection as long.
    Frame(Frame),
    /// Memory that is only read. Others may share it.
    Slices(Slices),
}

/// What the peer may do with registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// Read it by RDMA Reads.
    pub remote_read: bool,
    /// Write to it by RDMA Writes. Only a frame can be written to.
    pub remote_write: bool,
    /// End the registration by a Send with Invalidate.
    pub remote_invalidate: bool,
}

/// A window to memory: what of it the peer reaches by a key, and how.
#[derive(Debug)]
pub struct Registration {
    /// The memory.
    pub memory: Memory,
    /// The part of it that can be reached.
    pub range: Range<usize>,
    /// The offset by which the peer calls the first byte of that part: 0, or an address if peers count from such.
    pub base: u64,
    /// What the peer may do.
    pub rights: Rights,
}

impl Memory {
    /// How long it is.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        match self {
            Memory::Frame(frame) => frame.len(),
            Memory::Slices(slices) => slices.len(),
        }
    }
}

impl Registration {
    /// A whole frame that the peer may write to, from offset 0 on.
    #[must_use]
    pub fn of_frame(frame: Frame) -> Self {
        let rights = Rights { remote_write: true, ..Rights::default() };
        Registration { range: 0..frame.len(), memory: Memory::Frame(frame), base: 0, rights }
    }

    /// Bytes that the peer may read, from offset 0 on.
    #[must_use]
    pub fn of_slices(slices: Slices) -> Self {
        let rights = Rights { remote_read: true, ..Rights::default() };
        Registration { range: 0..slices.len(), memory: Memory::Slices(slices), base: 0, rights }
    }

    /// The same, and the peer may end it.
    #[must_use]
    pub fn with_invalidation(mut self) -> Self {
        self.rights.remote_invalidate = true;
        self
    }

    fn is_possible(&self) -> bool {
        let Range { start, end } = self.range;
        let fits = start <= end && end <= self.memory.length_bytes();
        let is_writable = matches!(self.memory, Memory::Frame(_)) || !self.rights.remote_write;
        fits && is_writable && self.base.checked_add((end.saturating_sub(start)) as u64).is_some()
    }
}

/// Why a peer does not reach memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denial {
    /// The key is none, or none any more.
    Stag,
    /// The offset and the length lead out of the window.
    Bounds,
    /// The peer has no right to do that.
    Access,
    /// Offset and length lead beyond 64 bits.
    Wrap,
}

struct Entry {
    registration: Registration,
    /// Whether the peer has not ended it.
    is_valid: bool,
    written: Written,
}

/// Runs of bytes behind a gap that are kept account of. What leaves more gaps counts as not written.
const RUNS_MAX: usize = 256;

/// Which bytes of a window the peer has written, counted from its beginning.
#[derive(Default)]
struct Written {
    /// All up to here.
    reached: usize,
    /// What has come beyond, in rising order; no two of them touch.
    runs: Vec<Range<usize>>,
}

impl Written {
    fn note(&mut self, part: Range<usize>) {
        if part.start <= self.reached {
            self.reached = self.reached.max(part.end);
        } else {
            let at = self.runs.partition_point(|run| run.end < part.start);
            let end = at + self.runs[at..].iter().take_while(|run| run.start <= part.end).count();
            let joined =
                self.runs[at..end].iter().fold(part, |all, run| all.start.min(run.start)..all.end.max(run.end));
            if end > at || self.runs.len() < RUNS_MAX {
                self.runs.splice(at..end, [joined]);
            }
        }
        while let Some(run) = self.runs.first().filter(|run| run.start <= self.reached) {
            self.reached = self.reached.max(run.end);
            self.runs.remove(0);
        }
    }
}

/// All windows of one connection.
pub(crate) struct Registrations {
    keys: Keys,
    entries: FxHashMap<Stag, Entry>,
    max: usize,
    /// All that there have been.
    registered: u64,
}

impl Registrations {
    pub(crate) fn new(seed: [u8; 16], max: usize) -> Self {
        Registrations { keys: Keys::new(seed), entries: FxHashMap::default(), max, registered: 0 }
    }

    /// A key for something else than a window.
    pub(crate) fn new_key(&mut self) -> Stag {
        self.keys.next()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many there have been.
    pub(crate) fn registered(&self) -> u64 {
        self.registered
    }

    pub(crate) fn register(&mut self, registration: Registration) -> Result<Stag, Refused<Registration>> {
        if !registration.is_possible() {
            return Err(Refused { refusal: Refusal::Range, given: registration });
        }
        if self.entries.len() >= self.max {
            return Err(Refused { refusal: Refusal::Full, given: registration });
        }
        let stag = self.keys.next();
        self.registered += 1;
        self.entries.insert(stag, Entry { registration, is_valid: true, written: Written::default() });
        Ok(stag)
    }

    pub(crate) fn deregister(&mut self, stag: Stag) -> Option<Memory> {
        self.entries.remove(&stag).map(|entry| entry.registration.memory)
    }

    /// The peer ends a registration.
    pub(crate) fn invalidate(&mut self, stag: Stag) -> Result<(), Denial> {
        let entry = self.entries.get_mut(&stag).filter(|entry| entry.is_valid).ok_or(Denial::Stag)?;
        if !entry.registration.rights.remote_invalidate {
            return Err(Denial::Access);
        }
        entry.is_valid = false;
        Ok(())
    }

    /// Where in the memory the peer may write so many bytes that it wants at an offset.
    pub(crate) fn writable(&self, stag: Stag, offset: u64, length: usize) -> Result<usize, Denial> {
        self.reachable(stag, offset, length, |rights| rights.remote_write)
    }

    /// Where in the memory the peer may read so many bytes.
    pub(crate) fn readable(&self, stag: Stag, offset: u64, length: usize) -> Result<usize, Denial> {
        self.reachable(stag, offset, length, |rights| rights.remote_read)
    }

    fn reachable(
        &self,
        stag: Stag,
        offset: u64,
        length: usize,
        allows: impl Fn(Rights) -> bool,
    ) -> Result<usize, Denial> {
        let entry = self.entries.get(&stag).filter(|entry| entry.is_valid).ok_or(Denial::Stag)?;
        let Registration { range, base, rights, .. } = &entry.registration;
        if !allows(*rights) {
            return Err(Denial::Access);
        }
        let end = offset.checked_add(length as u64).ok_or(Denial::Wrap)?;
        if offset < *base || end > base + range.len() as u64 {
            return Err(Denial::Bounds);
        }
        Ok(range.start + (offset - base) as usize)
    }

    /// These bytes of memory that was found to be [`Registrations::writable`]; `None` when it is not registered any more.
    pub(crate) fn bytes_mut(&mut self, stag: Stag, range: Range<usize>) -> Option<&mut [u8]> {
        match &mut self.entries.get_mut(&stag).filter(|entry| entry.is_valid)?.registration.memory {
            Memory::Frame(frame) => frame.get_mut(range),
            Memory::Slices(_) => None,
        }
    }

    /// The peer has written these bytes, which were found to be [`Registrations::writable`]; `None` when the memory is not registered
    /// any more.
    pub(crate) fn note_written(&mut self, stag: Stag, range: Range<usize>) -> Option<()> {
        let entry = self.entries.get_mut(&stag).filter(|entry| entry.is_valid)?;
        let start = entry.registration.range.start;
        entry.written.note(range.start - start..range.end - start);
        Some(())
    }

    /// How many bytes from the beginning of a window on the peer has written, without a gap.
    pub(crate) fn written_bytes(&self, stag: Stag) -> usize {
        self.entries.get(&stag).map_or(0, |entry| entry.written.reached)
    }

    /// Bytes that the peer may read, to be sent: shared, or a copy where the peer may write there.
    pub(crate) fn source(&self, stag: Stag, offset: u64, length: usize) -> Result<Slices, Denial> {
        let at = self.readable(stag, offset, length)?;
        let entry = self.entries.get(&stag).ok_or(Denial::Stag)?;
        match &entry.registration.memory {
            Memory::Frame(frame) => Ok(Slice::from(frame[at..at + length].to_vec()).into()),
            Memory::Slices(slices) => Ok(slices.slice(at..at + length)),
        }
    }

    /// Everything that is registered, by its keys.
    pub(crate) fn drain(&mut self) -> Vec<(Stag, Memory)> {
        let mut all: Vec<_> = self.entries.drain().map(|(stag, entry)| (stag, entry.registration.memory)).collect();
        all.sort_unstable_by_key(|(stag, _)| *stag);
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn registrations() -> Registrations {
        Registrations::new([1; 16], 3)
    }

    #[test]
    fn a_window_is_reached_by_its_key_within_its_bounds_and_by_its_rights() {
        let mut all = registrations();
        let window = Registration {
            memory: Memory::Frame(vec![0; 100].into()),
            range: 10..60,
            base: 0x1000,
            rights: Rights { remote_write: true, ..Rights::default() },
        };
        let stag = all.register(window).unwrap();
        assert_eq!(all.writable(stag, 0x1000, 50), Ok(10));
        assert_eq!(all.writable(stag, 0x1031, 1), Ok(59));
        assert_eq!(all.writable(stag, 0x1032, 0), Ok(60), "nothing at the end");
        for (offset, length) in [(0xfff, 1), (0x1000, 51), (0x1032, 1), (0, 0), (u64::MAX, 0)] {
            assert_eq!(all.writable(stag, offset, length), Err(Denial::Bounds), "{offset:#x} {length}");
        }
        assert_eq!(all.writable(stag, u64::MAX, 1), Err(Denial::Wrap));
        assert_eq!(all.readable(stag, 0x1000, 1), Err(Denial::Access));
        assert_eq!(all.writable(Stag(stag.0 ^ 1), 0x1000, 1), Err(Denial::Stag));
        assert_eq!(all.invalidate(stag), Err(Denial::Access));
        assert_eq!(all.deregister(stag).unwrap().length_bytes(), 100);
        assert_eq!(all.writable(stag, 0x1000, 1), Err(Denial::Stag));
        assert!(all.deregister(stag).is_none());
    }

    #[test]
    fn what_the_peer_has_ended_is_not_reached_and_not_lost() {
        let mut all = registrations();
        let stag = all.register(Registration::of_slices(vec![7; 9].into()).with_invalidation()).unwrap();
        assert_eq!((all.readable(stag, 0, 9), all.invalidate(stag)), (Ok(0), Ok(())));
        assert_eq!((all.readable(stag, 0, 9), all.invalidate(stag)), (Err(Denial::Stag), Err(Denial::Stag)));
        assert_eq!(all.deregister(stag).unwrap().length_bytes(), 9);
    }

    #[test]
    fn what_cannot_be_registered_comes_back() {
        let mut all = registrations();
        let shared = |range: Range<usize>, base, remote_write| Registration {
            memory: Memory::Slices(vec![0; 10].into()),
            range,
            base,
            rights: Rights { remote_read: true, remote_write, remote_invalidate: false },
        };
        for bad in [shared(0..11, 0, false), shared(0..10, u64::MAX - 9, false), shared(0..10, 0, true)] {
            let refused = all.register(bad).unwrap_err();
            assert_eq!((refused.refusal, refused.given.memory.length_bytes()), (Refusal::Range, 10));
        }
        (0..3).for_each(|_| _ = all.register(shared(0..10, u64::MAX - 10, false)).unwrap());
        assert_eq!(all.register(shared(0..0, 0, false)).unwrap_err().refusal, Refusal::Full);
        assert_eq!((all.drain().len(), all.len()), (3, 0));
    }

    #[test]
    fn gaps_without_end_are_not_kept_account_of() {
        let mut written = Written::default();
        (1..5000).for_each(|number| written.note(2 * number..2 * number + 1));
        assert_eq!((written.reached, written.runs.len()), (0, RUNS_MAX));
        written.note(0..20_000);
        assert_eq!((written.reached, written.runs.len()), (20_000, 0));
    }

    proptest! {
        #[test]
        fn what_is_written_reaches_to_the_first_gap(parts in prop::collection::vec((0usize..80, 1usize..9), 0..40)) {
            let (mut written, mut model) = (Written::default(), [false; 100]);
            for (start, length) in parts {
                written.note(start..start + length);
                model[start..start + length].fill(true);
                prop_assert_eq!(Some(written.reached), model.iter().position(|is| !is));
                prop_assert!(written.runs.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }

        /// Whatever a peer says, what it is given lies in the window.
        #[test]
        fn nothing_outside_a_window_is_reached(
            start in 0usize..50, length in 0usize..50, base in any::<u64>(), offset in any::<u64>(), near in any::<bool>(),
            wanted in 0usize..80,
        ) {
            let mut all = registrations();
            let rights = Rights { remote_write: true, ..Rights::default() };
            let memory = Memory::Frame(vec![0; 100].into());
            let base = base.min(u64::MAX - length as u64);
            let stag = all.register(Registration { memory, range: start..start + length, base, rights }).unwrap();
            let offset = if near { base.wrapping_add(offset % 100).wrapping_sub(20) } else { offset };
            if let Ok(at) = all.writable(stag, offset, wanted) {
                prop_assert!(at >= start && at + wanted <= start + length);
                prop_assert_eq!(all.bytes_mut(stag, at..at + wanted).unwrap().len(), wanted);
            } else {
                let fits = offset >= base && (offset - base) as usize <= length && (offset - base) as usize + wanted <= length;
                prop_assert!(!fits);
            }
        }
    }
}
