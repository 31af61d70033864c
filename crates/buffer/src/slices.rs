//! The data of a command or of an answer: in one piece, or in several where it came, or is kept, in several places.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::frame::{Frame, Slice, prefetch};

/// Bytes in one or several [`Slice`]s, one after the other. Cloning shares all of them; one piece alone needs no memory.
#[derive(Clone)]
pub struct Slices(Repr);

#[derive(Clone)]
enum Repr {
    One(Slice),
    Several(Arc<[Slice]>),
}

impl Slices {
    /// Pieces that [`Slices::join`] takes at the most.
    pub const PIECES_MAX: usize = 16;

    /// These pieces, one after the other; `None` when there are none, or more than [`Slices::PIECES_MAX`]: an answer in more of them
    /// costs more to send than a copy of it.
    #[must_use]
    pub fn join(mut pieces: impl ExactSizeIterator<Item = Slice>) -> Option<Slices> {
        match pieces.len() {
            1 => pieces.next().map(Slices::from),
            2..=Self::PIECES_MAX => Some(Slices(Repr::Several(pieces.collect()))),
            _ => None,
        }
    }

    /// These pieces, one after the other, however many they are: what a peer sent is in as many as it came in. Those that follow each
    /// other in one frame become one. `None` when there are none.
    #[must_use]
    pub fn gather(pieces: impl IntoIterator<Item = Slice>) -> Option<Slices> {
        let mut runs: Vec<Slice> = Vec::new();
        for piece in pieces {
            if !runs.last_mut().is_some_and(|last| last.extend_to(&piece)) {
                runs.push(piece);
            }
        }
        if runs.len() > 1 { Some(Slices(Repr::Several(runs.into()))) } else { runs.pop().map(Slices::from) }
    }

    /// The pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Slice] {
        match &self.0 {
            Repr::One(piece) => std::slice::from_ref(piece),
            Repr::Several(pieces) => pieces,
        }
    }

    /// The first piece, and those after it.
    #[must_use]
    pub fn split_first(self) -> (Slice, Vec<Slice>) {
        match self.0 {
            Repr::One(piece) => (piece, Vec::new()),
            Repr::Several(pieces) => (pieces[0].clone(), pieces[1..].to_vec()),
        }
    }

    /// Bytes of all pieces together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces().iter().map(|piece| piece.len()).sum()
    }

    /// Whether there is not one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part `range` in one piece: shared where it lies within one, else a copy. It is for parts that are short beside the
    /// pieces, so that few of them are copied.
    ///
    /// # Panics
    /// When the range is not within the bytes.
    #[must_use]
    pub fn cut(&self, range: Range<usize>) -> Slice {
        if let Repr::One(piece) = &self.0 {
            return piece.slice(range);
        }
        let mut parts = self.parts(range.clone());
        match (parts.next(), parts.next()) {
            (Some((only, within)), None) => only.slice(within),
            _ => self.bytes(range).into_owned().into(),
        }
    }

    /// The part `range`, shared.
    ///
    /// # Panics
    /// When the range is not within the bytes.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Slices {
        if let Repr::One(piece) = &self.0 {
            return piece.slice(range).into();
        }
        let mut parts: Vec<Slice> = self.parts(range).map(|(piece, within)| piece.slice(within)).collect();
        if parts.len() > 1 {
            return Slices(Repr::Several(parts.into()));
        }
        parts.pop().unwrap_or_else(|| Slice::from(Vec::new())).into()
    }

    /// The bytes of `range`, run by run: one for each piece that has some of them.
    ///
    /// # Panics
    /// When the range is not within the bytes.
    pub fn runs(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        self.parts(range).map(|(piece, within)| &piece[within])
    }

    /// The bytes of `range` as one run: borrowed where they lie within one piece, else copied.
    ///
    /// # Panics
    /// When the range is not within the bytes.
    #[must_use]
    pub fn bytes(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        let mut runs = self.runs(range.clone());
        match (runs.next(), runs.next()) {
            (None, _) => Cow::Borrowed(&[]),
            (Some(only), None) => Cow::Borrowed(only),
            _ => {
                let mut bytes = Vec::with_capacity(range.len());
                self.runs(range).for_each(|run| bytes.extend_from_slice(run));
                Cow::Owned(bytes)
            }
        }
    }

    /// Has the processor fetch the bytes of `range`, as far as there are such, into its cache while it goes on.
    pub fn prefetch(&self, range: Range<usize>) {
        let length = self.len();
        self.runs(range.start.min(length)..range.end.min(length)).for_each(prefetch);
    }

    /// Copies the bytes to a place that is as long as they are together.
    ///
    /// # Panics
    /// When it is not.
    pub fn copy_to(&self, place: &mut [u8]) {
        assert_eq!(self.len(), place.len(), "a place for all bytes");
        let mut rest = place;
        for piece in self.pieces() {
            let (here, behind) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = behind;
        }
    }

    /// What of the pieces lies in `range`, and where in each: nothing of them is empty, unless the range is.
    fn parts(&self, range: Range<usize>) -> impl Iterator<Item = (&Slice, Range<usize>)> {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} is not within {} bytes", self.len());
        let mut at = 0;
        self.pieces().iter().filter_map(move |piece| {
            let start = range.start.max(at) - at;
            at += piece.len();
            let end = range.end.min(at).saturating_sub(at - piece.len());
            (start < end).then_some((piece, start..end))
        })
    }

    /// All bytes as one run: borrowed where there is one piece, else copied.
    #[must_use]
    pub fn contiguous(&self) -> Cow<'_, [u8]> {
        match &self.0 {
            Repr::One(piece) => Cow::Borrowed(piece),
            Repr::Several(_) => Cow::Owned(self.to_vec()),
        }
    }

    /// A copy of all bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.pieces().iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// Bytes of memory that it keeps: its frames, each as a whole and once, however little of one it is itself.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        if let Repr::One(piece) = &self.0 {
            return piece.kept().1;
        }
        let mut frames: Vec<(*const Frame, usize)> = self.pieces().iter().map(Slice::kept).collect();
        frames.sort_unstable();
        frames.dedup();
        frames.iter().map(|(_, bytes)| bytes).sum()
    }

    /// See [`Slice::heap_bytes`].
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.pieces().iter().map(Slice::heap_bytes).sum()
    }

    /// See [`Slice::lent_bytes`].
    #[must_use]
    pub fn lent_bytes(&self) -> usize {
        self.pieces().iter().map(Slice::lent_bytes).sum()
    }
}

impl From<Slice> for Slices {
    fn from(piece: Slice) -> Self {
        Slices(Repr::One(piece))
    }
}

impl From<Vec<u8>> for Slices {
    fn from(bytes: Vec<u8>) -> Self {
        Slice::from(bytes).into()
    }
}

impl fmt::Debug for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slices({} bytes in {})", self.len(), self.pieces().len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces of these lengths, each a part of a frame of its own, and what they hold together.
    fn list(lengths: &[usize]) -> (Option<Slices>, Vec<u8>) {
        let mut byte = 0u8;
        let pieces: Vec<Slice> = lengths
            .iter()
            .map(|length| {
                byte = byte.wrapping_mul(5).wrapping_add(1);
                Slice::from((0..length + 2).map(|at| byte ^ at as u8).collect::<Vec<u8>>()).slice(1..length + 1)
            })
            .collect();
        let bytes = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        (Slices::join(pieces.into_iter()), bytes)
    }

    proptest! {
        /// Against the bytes as one run: however they are cut, the same come out, shared where they can be.
        #[test]
        fn a_cut_gives_the_bytes_that_lie_there(
            lengths in proptest::collection::vec(0usize..40, 1..=Slices::PIECES_MAX),
            (from, to) in (0usize..=640, 0usize..=640),
        ) {
            let (slices, bytes) = list(&lengths);
            let slices = slices.unwrap();
            prop_assert_eq!(slices.len(), bytes.len());
            prop_assert_eq!(slices.is_empty(), bytes.is_empty());
            prop_assert_eq!(&*slices.contiguous(), &bytes[..]);
            let (first, rest) = slices.clone().split_first();
            prop_assert_eq!(Slices::join([first].into_iter().chain(rest).collect::<Vec<_>>().into_iter()).unwrap().to_vec(), &bytes[..]);
            // Beyond the end there is nothing to fetch.
            slices.prefetch(from.min(to)..from.max(to));
            let (from, to) = (from.min(bytes.len()), to.min(bytes.len()));
            let range = from.min(to)..from.max(to);
            let part = slices.slice(range.clone());
            prop_assert_eq!(part.to_vec(), &bytes[range.clone()]);
            prop_assert_eq!(&*slices.cut(range.clone()), &bytes[range.clone()]);
            prop_assert_eq!(&*slices.bytes(range.clone()), &bytes[range.clone()]);
            prop_assert_eq!(slices.runs(range.clone()).collect::<Vec<_>>().concat(), &bytes[range.clone()]);
            prop_assert!(slices.runs(range.clone()).all(|run| !run.is_empty()) || range.is_empty());
            // What was cut is cut again.
            let half = range.len() / 2;
            prop_assert_eq!(part.slice(half..range.len()).to_vec(), &bytes[range.start + half..range.end]);
            for piece in part.pieces() {
                let is_shared = slices.pieces().iter().any(|whole| whole.as_ptr_range().contains(&piece.as_ptr()));
                prop_assert!(is_shared || piece.is_empty());
            }
        }
    }

    #[test]
    fn one_piece_is_shared_and_only_parts_of_several_are_copied() {
        let (slices, _) = list(&[10, 20, 30]);
        let slices = slices.unwrap();
        let second = &slices.pieces()[1];
        assert_eq!(slices.cut(10..30).as_ptr(), second.as_ptr());
        assert_eq!(slices.cut(12..20).as_ptr(), second[2..].as_ptr());
        assert_ne!(slices.cut(9..30)[1..].as_ptr(), second.as_ptr());
        assert_eq!(slices.slice(9..40).pieces()[1].as_ptr(), second.as_ptr());
        assert!(matches!(slices.slice(10..30).0, Repr::One(_)) && slices.cut(10..10).is_empty());
        assert_eq!((slices.heap_bytes(), slices.lent_bytes()), (60, 0));
    }

    #[test]
    fn every_frame_that_is_kept_counts_once_and_as_a_whole() {
        let frames = [0, 1].map(|_| Slice::from(vec![0; 100]));
        let part = |frame: usize, from: usize| frames[frame].slice(from..from + 10);
        assert_eq!(Slices::from(part(0, 50)).kept_bytes(), 100);
        let mixed = Slices::gather([part(0, 0), part(1, 0), part(0, 90), part(1, 10)]).unwrap();
        assert_eq!((mixed.pieces().len(), mixed.kept_bytes(), mixed.heap_bytes()), (4, 200, 40));
        let region = crate::Region::new(8192).unwrap();
        let page = Slices::from(region.frame(600).unwrap().freeze());
        assert_eq!((page.len(), page.kept_bytes()), (600, crate::UNIT_BYTES));
    }

    #[test]
    fn a_list_is_bounded() {
        assert!(list(&[]).0.is_none() && list(&[1; Slices::PIECES_MAX + 1]).0.is_none());
        assert_eq!(list(&[1; Slices::PIECES_MAX]).0.unwrap().pieces().len(), Slices::PIECES_MAX);
        // The data of an answer is as small as one piece of it.
        assert!(size_of::<Slices>() <= size_of::<Slice>() && size_of::<Option<Slices>>() <= size_of::<Slice>() + 8);
    }

    #[test]
    fn what_came_in_many_pieces_is_gathered_as_it_lies() {
        let frame = Slice::from((0..100).collect::<Vec<u8>>());
        let part = |from: usize, to: usize| frame.slice(from..to);
        let lengths = |pieces: Vec<Slice>| {
            Slices::gather(pieces).map(|slices| slices.pieces().iter().map(|piece| piece.len()).collect::<Vec<_>>())
        };
        assert_eq!(lengths(vec![part(0, 10), part(10, 30), part(30, 31)]), Some(vec![31]), "one behind the other");
        assert_eq!(lengths(vec![part(0, 10), part(11, 30), part(10, 11)]), Some(vec![10, 19, 1]), "not so");
        let others = vec![part(0, 10), vec![1; 10].into(), part(10, 20), part(20, 30)];
        assert_eq!(lengths(others), Some(vec![10, 10, 20]), "of two frames");
        assert_eq!(lengths(Vec::new()), None);
        let whole = Slices::gather([part(0, 60), part(60, 100)]).unwrap();
        assert_eq!((whole.pieces()[0].as_ptr(), whole.to_vec()), (frame.as_ptr(), frame.to_vec()));

        let many = Slices::gather((0..3000u32).map(|number| Slice::from(vec![number as u8; 3]))).unwrap();
        assert_eq!((many.len(), many.pieces().len()), (9000, 3000));
        let part = many.slice(1..8999);
        assert_eq!((part.len(), part.pieces().len(), part.pieces()[0].len()), (8998, 3000, 2));
        let mut place = vec![0; part.len()];
        part.copy_to(&mut place);
        assert!(place == part.to_vec() && place[2..5] == [1; 3]);
    }

    #[test]
    #[should_panic(expected = "is not within 30 bytes")]
    fn a_cut_beyond_the_end_is_refused() {
        let _ = list(&[10, 20]).0.unwrap().cut(29..31);
    }
}
