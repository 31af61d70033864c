//! Where the bytes of an array lie: which group of members has them, and where in it.

use std::ops::Range;

/// How the groups of an array make one volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrangement {
    /// One group behind the other.
    Concat,
    /// So many bytes of each group in turn.
    Stripe {
        /// A multiple of 4,096 bytes.
        chunk_bytes: u32,
    },
}

/// The groups of an array. A group is a member, or several that hold the same bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// How they make one volume.
    pub arrangement: Arrangement,
    /// The bytes that each has. Of a stripe, all have the same.
    pub group_bytes: Vec<u64>,
}

/// A part of a range that one group has in one piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) group: usize,
    /// The first byte in the group.
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

impl Piece {
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes + self.length_bytes
    }
}

impl Layout {
    /// The bytes of the volume.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        match self.arrangement {
            Arrangement::Concat => self.group_bytes.iter().sum(),
            Arrangement::Stripe { chunk_bytes } => {
                let least = self.group_bytes.iter().min().copied().unwrap_or(0);
                (least - least % u64::from(chunk_bytes)) * self.group_bytes.len() as u64
            }
        }
    }

    /// Where a byte lies, and for how long what follows it lies behind it.
    fn place(&self, offset_bytes: u64) -> Option<Piece> {
        match self.arrangement {
            Arrangement::Concat => {
                let mut offset_bytes = offset_bytes;
                for (group, bytes) in self.group_bytes.iter().enumerate() {
                    if offset_bytes < *bytes {
                        return Some(Piece { group, offset_bytes, length_bytes: bytes - offset_bytes });
                    }
                    offset_bytes -= bytes;
                }
                None
            }
            Arrangement::Stripe { chunk_bytes } => {
                let (chunk_bytes, groups) = (u64::from(chunk_bytes), self.group_bytes.len() as u64);
                let (chunk, within) = (offset_bytes / chunk_bytes, offset_bytes % chunk_bytes);
                let group = chunk.checked_rem(groups)?;
                let offset_bytes = chunk / groups * chunk_bytes + within;
                Some(Piece { group: group as usize, offset_bytes, length_bytes: chunk_bytes - within })
            }
        }
    }

    /// The parts of a range within the volume, in the order of its bytes.
    pub(crate) fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        let (mut at, mut pieces) = (range.start, Vec::<Piece>::new());
        while at < range.end {
            let Some(mut piece) = self.place(at) else { break };
            piece.length_bytes = piece.length_bytes.min(range.end - at);
            at += piece.length_bytes;
            match pieces.last_mut().filter(|last| last.group == piece.group && last.range().end == piece.offset_bytes) {
                // An array of one group.
                Some(last) => last.length_bytes += piece.length_bytes,
                None => pieces.push(piece),
            }
        }
        pieces
    }

    /// What each group has of a range within the volume: always one piece of the group, if it has any.
    pub(crate) fn shares(&self, range: Range<u64>) -> Vec<Piece> {
        if range.is_empty() {
            return Vec::new();
        }
        let groups = self.group_bytes.len() as u64;
        let Arrangement::Stripe { chunk_bytes } = self.arrangement else { return self.pieces(range) };
        let chunk_bytes = u64::from(chunk_bytes);
        let (first, last) = (range.start / chunk_bytes, (range.end - 1) / chunk_bytes);
        let share = |group: u64| {
            // The first and the last chunk of the range that are this group's.
            let begin = first + (group + groups - first % groups) % groups;
            let end = last.checked_sub((last % groups + groups - group) % groups)?;
            if begin > end {
                return None;
            }
            let place = |chunk: u64| chunk / groups * chunk_bytes;
            let from = place(begin) + if begin == first { range.start % chunk_bytes } else { 0 };
            let to = place(end) + if end == last { (range.end - 1) % chunk_bytes + 1 } else { chunk_bytes };
            Some(Piece { group: group as usize, offset_bytes: from, length_bytes: to - from })
        };
        (0..groups).filter_map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = 4096;

    fn layout(is_stripe: bool, groups: Vec<u64>) -> Layout {
        let arrangement =
            if is_stripe { Arrangement::Stripe { chunk_bytes: CHUNK as u32 } } else { Arrangement::Concat };
        Layout { arrangement, group_bytes: groups }
    }

    #[test]
    fn the_smallest_group_says_how_long_a_stripe_is() {
        assert_eq!(layout(true, vec![3 * CHUNK, 2 * CHUNK + 512]).length_bytes(), 4 * CHUNK);
        assert_eq!(layout(false, vec![3 * CHUNK, CHUNK]).length_bytes(), 4 * CHUNK);
    }

    #[test]
    fn chunks_go_to_groups_in_turn() {
        let layout = layout(true, vec![4 * CHUNK; 3]);
        let pieces = layout.pieces(CHUNK - 512..4 * CHUNK + 512);
        let found: Vec<_> = pieces.iter().map(|piece| (piece.group, piece.range())).collect();
        let rest = |from: u64, to: u64| from..to;
        assert_eq!(
            found,
            [
                (0, rest(CHUNK - 512, CHUNK)),
                (1, rest(0, CHUNK)),
                (2, rest(0, CHUNK)),
                (0, rest(CHUNK, 2 * CHUNK)),
                (1, rest(CHUNK, CHUNK + 512))
            ]
        );
    }

    proptest! {
        /// Each byte lies in one place, no two in the same, and the shares of groups are what their pieces are together.
        #[test]
        fn shares_are_the_pieces_of_a_group_together(
            is_stripe: bool,
            groups in 1_usize..5,
            from in 0_u64..40,
            length in 0_u64..40,
        ) {
            let layout = layout(is_stripe, vec![5 * CHUNK; groups]);
            let unit = CHUNK / 2;
            let end = layout.length_bytes();
            let range = (from * unit).min(end)..((from + length) * unit).min(end);
            let pieces = layout.pieces(range.clone());
            prop_assert_eq!(pieces.iter().map(|piece| piece.length_bytes).sum::<u64>(), range.end - range.start);
            let shares = layout.shares(range);
            for (group, bytes) in layout.group_bytes.iter().enumerate() {
                let mut of_group: Vec<_> = pieces.iter().filter(|piece| piece.group == group).map(Piece::range).collect();
                prop_assert!(of_group.iter().all(|range| range.end <= *bytes));
                of_group.sort_by_key(|range| range.start);
                let joined = of_group.windows(2).all(|pair| pair[0].end == pair[1].start);
                prop_assert!(joined, "{:?}", of_group);
                let whole = of_group.first().zip(of_group.last()).map(|(first, last)| first.start..last.end);
                let share = shares.iter().find(|share| share.group == group).map(Piece::range);
                prop_assert_eq!(share, whole);
            }
        }
    }
}
