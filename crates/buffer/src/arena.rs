//! Memory for what stores keep: frames of one length, cut from pieces that are as long as the processor's large pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::frame::Frame;
use crate::pages::Pages;

/// A large page of the common processors, in bytes. Where the kernel gives one for a piece, the processor finds all of its bytes by
/// one entry of its tables instead of 512.
const PIECE_BYTES: usize = 2 << 20;

/// Frames of a piece, at the most.
const FRAMES_MAX: usize = u64::BITS as usize;

/// Of the frames that are in use, such a part may be kept for the next taker when it is not needed any more: what is written while
/// answers share it is copied, again and again.
const SPARE_PARTS: usize = 8;

/// No more frames are kept so.
const SPARE_MAX: usize = 8;

/// Frames of one length for one store. It grows as they are taken, and gives memory back as they go home.
///
/// Cloning gives another handle to the same arena, which lives until the last handle and the last frame are gone.
#[derive(Clone)]
pub struct Arena(Arc<Shared>);

struct Shared {
    frame_bytes: usize,
    reserve_bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By where they begin.
    pieces: BTreeMap<usize, Piece>,
    /// Those that have free frames.
    open: BTreeSet<usize>,
    /// Frames that came home as they were.
    spare: Vec<Place>,
    taken: usize,
}

struct Piece {
    pages: Pages,
    /// A bit for each frame that is free: it is zero, and takes no memory.
    free: u64,
}

/// A frame of a piece.
#[derive(Clone, Copy)]
struct Place {
    piece: usize,
    frame: usize,
}

impl Arena {
    /// An arena of frames of `frame_bytes`, a power of two that a piece has at most 64 of; other lengths are rounded up. So much as
    /// `reserve_bytes` must be left for the rest of the process whenever it takes memory.
    #[must_use]
    pub fn new(frame_bytes: usize, reserve_bytes: usize) -> Self {
        let frame_bytes = frame_bytes.next_power_of_two().clamp(PIECE_BYTES / FRAMES_MAX, PIECE_BYTES);
        Arena(Arc::new(Shared { frame_bytes, reserve_bytes, state: Mutex::default() }))
    }

    /// A frame of zeroes; `None` when there is no memory for it.
    #[must_use]
    pub fn zeroed(&self) -> Option<Frame> {
        let (mut frame, is_zero) = self.take()?;
        if !is_zero {
            frame.fill(0);
        }
        Some(frame)
    }

    /// A frame that begins with these bytes, of which the rest is unspecified; `None` when there is no memory for it.
    #[must_use]
    pub fn copied(&self, bytes: &[u8]) -> Option<Frame> {
        let (mut frame, _) = self.take()?;
        let length = bytes.len().min(frame.len());
        frame[..length].copy_from_slice(&bytes[..length]);
        Some(frame)
    }

    /// Bytes of address space that it has of the system now.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.lock().pieces.len() * PIECE_BYTES
    }

    /// A frame, and whether it is all zero.
    fn take(&self) -> Option<(Frame, bool)> {
        let mut state = self.lock();
        let spare = state.spare.pop();
        let place = match spare {
            Some(place) => place,
            None => state.take_free().or_else(|| state.grow(&self.0))?,
        };
        state.taken += 1;
        let base = state.pieces.get(&place.piece)?.pages.base();
        drop(state);
        let frame_bytes = self.0.frame_bytes;
        // SAFETY: the place is one of a piece, which is as long as all its frames.
        let pointer = unsafe { base.add(place.frame * frame_bytes) };
        // SAFETY: the frame was free or spare and is neither any more, so it belongs to nobody else; the kernel has zeroed it, or
        // somebody has written it. The piece stays as long as one of its frames is taken.
        let frame = unsafe { Frame::from_arena(self.clone(), pointer, frame_bytes) };
        Some((frame, spare.is_none()))
    }

    /// Takes back the memory of a frame.
    pub(crate) fn take_back(&self, address: usize) {
        let piece = address - address % PIECE_BYTES;
        let frame = (address - piece) / self.0.frame_bytes;
        let mut gone = Vec::new();
        let mut state = self.lock();
        state.taken -= 1;
        state.spare.push(Place { piece, frame });
        while state.spare.len() > SPARE_MAX.min(state.taken / SPARE_PARTS) {
            let Some(place) = state.spare.pop() else { break };
            gone.extend(state.release(place, self.0.frame_bytes));
        }
        drop(state);
        // What is unmapped keeps nobody waiting.
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two writes to the tables.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_free(&mut self) -> Option<Place> {
        let piece = *self.open.first()?;
        let entry = self.pieces.get_mut(&piece)?;
        let frame = entry.free.trailing_zeros() as usize;
        entry.free &= entry.free - 1;
        if entry.free == 0 {
            self.open.remove(&piece);
        }
        Some(Place { piece, frame })
    }

    /// Takes the first frame of a new piece.
    fn grow(&mut self, shared: &Shared) -> Option<Place> {
        // Not touched, and given back at once: it asks only whether it could be had.
        drop(Pages::new(shared.reserve_bytes.max(PIECE_BYTES)).ok()?);
        let lowest = self.pieces.first_key_value().map(|(base, _)| *base);
        let pages = Pages::aligned(PIECE_BYTES, lowest).ok()?;
        // A large page takes all of its memory at the first touch: who has written little has none.
        if let Some((_, first)) = self.pieces.first_key_value().filter(|_| self.pieces.len() == 1) {
            first.pages.prefer_large();
        }
        if !self.pieces.is_empty() {
            pages.prefer_large();
        }
        let base = pages.base().addr().get();
        let free = u64::MAX >> (FRAMES_MAX - PIECE_BYTES / shared.frame_bytes);
        self.pieces.insert(base, Piece { pages, free });
        self.open.insert(base);
        self.take_free()
    }

    /// Gives the memory of a frame back to the system; gives the piece of which no frame is in use any more.
    fn release(&mut self, place: Place, frame_bytes: usize) -> Option<Piece> {
        let entry = self.pieces.get_mut(&place.piece)?;
        entry.free |= 1 << place.frame;
        if entry.free.count_ones() as usize == PIECE_BYTES / frame_bytes {
            self.open.remove(&place.piece);
            return self.pieces.remove(&place.piece);
        }
        entry.pages.discard(place.frame * frame_bytes..(place.frame + 1) * frame_bytes);
        self.open.insert(place.piece);
        None
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} bytes)", self.mapped_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 256 << 10;

    #[test]
    fn frames_of_one_piece_lie_side_by_side_and_the_piece_goes_with_the_last() {
        let arena = Arena::new(FRAME, 0);
        let mut frames: Vec<Frame> = (0..8).map(|_| arena.zeroed().unwrap()).collect();
        let addresses: Vec<usize> = frames.iter().map(|frame| frame.as_ptr().addr()).collect();
        assert!(addresses[0].is_multiple_of(PIECE_BYTES), "as large pages begin");
        assert!(addresses.windows(2).all(|pair| pair[1] == pair[0] + FRAME));
        assert_eq!((frames[0].len(), arena.mapped_bytes()), (FRAME, PIECE_BYTES));
        frames.push(arena.zeroed().unwrap());
        assert_eq!(arena.mapped_bytes(), 2 * PIECE_BYTES);
        let slice = frames.remove(0).freeze();
        drop(frames);
        assert_eq!((slice[FRAME - 1], arena.mapped_bytes()), (0, PIECE_BYTES), "one is still there");
        let other = arena.clone();
        drop(arena);
        drop(slice);
        assert_eq!(other.mapped_bytes(), 0);
    }

    #[test]
    fn what_comes_home_is_zero_for_who_wants_zeroes_and_a_copy_for_who_copies() {
        let arena = Arena::new(FRAME, 0);
        let kept: Vec<Frame> = (0..20).map(|_| arena.zeroed().unwrap()).collect();
        let zeroes = vec![0; FRAME];
        for round in 0..6 {
            let mut frames: Vec<Frame> = (0..5).map(|_| arena.zeroed().unwrap()).collect();
            // As a whole: byte by byte it takes Miri minutes.
            assert!(frames.iter().all(|frame| frame[..] == zeroes), "round {round}");
            frames.iter_mut().for_each(|frame| frame.fill(round + 1));
            let copy = arena.copied(&frames[0]).unwrap();
            assert_eq!((copy[0], copy[FRAME - 1]), (round + 1, round + 1));
            drop(frames);
            assert!(arena.lock().spare.len() <= 2 + 1, "few are kept");
        }
        drop(kept);
        assert_eq!((arena.mapped_bytes(), arena.lock().spare.len()), (0, 0));
    }

    /// Resident bytes of this process.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn memory_that_was_written_is_given_back_also_of_pieces_that_stay() {
        const COUNT: usize = 512;
        let arena = Arena::new(FRAME, 0);
        let mut frames: Vec<Frame> = (0..COUNT).map(|_| arena.zeroed().unwrap()).collect();
        frames.iter_mut().for_each(|frame| frame.fill(1));
        let full_bytes = resident_bytes();
        let mut number = 0;
        // One of each piece stays.
        frames.retain(|_| {
            number += 1;
            number % 8 == 0
        });
        let left_bytes = full_bytes.saturating_sub(resident_bytes());
        assert!(left_bytes > (COUNT / 2) * FRAME, "{left_bytes} bytes came back");
        assert!(frames.iter().all(|frame| frame[7] == 1) && arena.mapped_bytes() == COUNT / 8 * PIECE_BYTES);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends a program that asks for more memory than there is")]
    fn what_must_be_left_to_others_is_not_taken() {
        assert!(Arena::new(FRAME, 1 << 62).zeroed().is_none());
    }
}
