//! Memory that is filled, handed out and given back in turn: see [`Recycler`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::frame::Slice;

/// Pieces that are remembered. What is sent goes in batches, which are shorter.
const PIECES_MAX: usize = 128;

/// The length of a piece is a multiple of this, in bytes: so one that held a short packet soon holds a longer one.
const PIECE_STEP_BYTES: usize = 1024;

/// How many pieces are checked before a new one is allocated, the one that was handed out first at the front.
const LOOKS_MAX: usize = 2;

/// Memory for packets that are made, sent and forgotten. A piece is filled again as soon as nobody else has a share of it: so it is
/// neither cleared nor given back to the allocator between two packets, which costs more than what is done with it.
///
/// Cloning gives another handle to the same pieces. It keeps at most 128 of them, each as long as the longest thing that was in it.
#[derive(Clone, Default)]
pub struct Recycler(Arc<Mutex<VecDeque<Slice>>>);

impl Recycler {
    /// No pieces yet.
    #[must_use]
    pub fn new() -> Self {
        Recycler::default()
    }

    /// A slice of `length_bytes`, all of which `fill` is to write: it finds there what was there before.
    ///
    /// # Errors
    /// That of `fill`; nobody sees what it has written then.
    pub fn filled<E>(&self, length_bytes: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Slice, E> {
        let mut piece = self.take(length_bytes);
        let place = piece.get_mut().and_then(|bytes| bytes.get_mut(..length_bytes));
        fill(place.unwrap_or_default())?;
        let filled = piece.slice(0..length_bytes);
        let pieces = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pieces.len() < PIECES_MAX {
            pieces.push_back(piece);
        }
        Ok(filled)
    }

    /// A piece that nobody else has a share of, at least so long.
    fn take(&self, length_bytes: usize) -> Slice {
        let pieces = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LOOKS_MAX {
            let Some(mut piece) = pieces.pop_front() else { break };
            if piece.get_mut().is_none() {
                pieces.push_back(piece);
            } else if piece.len() >= length_bytes {
                return piece;
            }
        }
        vec![0; length_bytes.next_multiple_of(PIECE_STEP_BYTES)].into()
    }
}

impl fmt::Debug for Recycler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Recycler").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(recycler: &Recycler, length_bytes: usize, byte: u8) -> Slice {
        let fill = |bytes: &mut [u8]| {
            bytes.fill(byte);
            Ok::<(), ()>(())
        };
        recycler.filled(length_bytes, fill).unwrap()
    }

    #[test]
    fn a_piece_is_filled_again_when_nobody_has_a_share_of_it_any_more() {
        let recycler = Recycler::new();
        let first = filled(&recycler, 100, 1);
        let place = first.as_ptr();
        let second = filled(&recycler, 100, 2);
        assert_ne!(second.as_ptr(), place, "the first is still in use");
        assert_eq!((&*first, &*second), (&[1; 100][..], &[2; 100][..]));
        drop(first);
        let third = filled(&recycler, 1000, 3);
        assert_eq!((third.as_ptr(), &*third), (place, &[3; 1000][..]), "a piece is longer than what it held first");
        assert_eq!(*second, [2; 100]);
    }

    #[test]
    fn no_more_pieces_are_kept_than_a_batch_has_and_what_could_not_be_filled_is_nobodys() {
        let recycler = Recycler::new();
        let kept: Vec<_> = (0..2 * PIECES_MAX).map(|at| filled(&recycler, 2000, at as u8)).collect();
        assert_eq!(recycler.0.lock().unwrap().len(), PIECES_MAX);
        assert!(kept.iter().enumerate().all(|(at, slice)| **slice == [at as u8; 2000]));
        drop(kept);
        assert_eq!(recycler.filled(10, |_| Err(7)).unwrap_err(), 7);
        assert_eq!(filled(&recycler, 0, 0).len(), 0);
        assert_eq!(filled(&recycler, 5000, 9).len(), 5000, "those that are too short are let go");
    }
}
