//! Where bytes lie that are numbered anew: in extents of something else.

use std::ops::Range;

/// The most extents of one map.
pub const EXTENTS_MAX: usize = 1024;

/// Extents that make no map. They are counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExtentError {
    /// There is none.
    #[error("there is no extent: give at least one, as OFFSET+LENGTH")]
    None,
    /// There are more than [`EXTENTS_MAX`].
    #[error("there are {0} extents, more than {EXTENTS_MAX}: join those that follow each other, or make several of it")]
    TooMany(usize),
    /// One has no byte.
    #[error("extent {0} has length 0: leave it out")]
    Empty(usize),
    /// One ends behind the last number.
    #[error("extent {0} ends behind the largest offset there is: check its offset and its length")]
    Overflow(usize),
    /// Two have bytes in common.
    #[error("extents {0} and {1} overlap: each byte may be in one of them only")]
    Overlap(usize, usize),
}

/// Where bytes lie that are numbered from 0 on: in extents of something else, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtentMap {
    /// In the order of their own numbers.
    extents: Box<[Extent]>,
    length_bytes: u64,
    /// The bits of all offsets at which one of them begins, here and where it lies.
    begin_bits: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Extent {
    /// Its first byte by the numbers of the map.
    from_bytes: u64,
    /// The same byte, where it lies.
    offset_bytes: u64,
    length_bytes: u64,
}

impl Extent {
    fn end_bytes(&self) -> u64 {
        self.from_bytes + self.length_bytes
    }
}

impl ExtentMap {
    /// The map of these extents, each an offset and a length in bytes.
    ///
    /// # Errors
    /// [`ExtentError`].
    pub fn new(extents: &[(u64, u64)]) -> Result<ExtentMap, ExtentError> {
        if extents.is_empty() {
            return Err(ExtentError::None);
        }
        if extents.len() > EXTENTS_MAX {
            return Err(ExtentError::TooMany(extents.len()));
        }
        let mut places = Vec::with_capacity(extents.len());
        for ((offset_bytes, length_bytes), number) in extents.iter().zip(1..) {
            if *length_bytes == 0 {
                return Err(ExtentError::Empty(number));
            }
            let end_bytes = offset_bytes.checked_add(*length_bytes).ok_or(ExtentError::Overflow(number))?;
            places.push((*offset_bytes, end_bytes, number));
        }
        places.sort_unstable();
        let overlap = places.windows(2).find(|pair| pair[0].1 > pair[1].0);
        if let Some([one, other]) = overlap {
            return Err(ExtentError::Overlap(one.2.min(other.2), one.2.max(other.2)));
        }
        Ok(ExtentMap::of(extents.iter().map(|(offset_bytes, length_bytes)| *offset_bytes..offset_bytes + length_bytes)))
    }

    /// Of ranges that do not overlap.
    fn of(ranges: impl Iterator<Item = Range<u64>>) -> ExtentMap {
        let (mut extents, mut length_bytes) = (Vec::<Extent>::new(), 0);
        for range in ranges {
            let added_bytes = range.end - range.start;
            match extents.last_mut().filter(|last| last.offset_bytes + last.length_bytes == range.start) {
                Some(last) => last.length_bytes += added_bytes,
                None => extents.push(Extent {
                    from_bytes: length_bytes,
                    offset_bytes: range.start,
                    length_bytes: added_bytes,
                }),
            }
            length_bytes += added_bytes;
        }
        let begin_bits = extents.iter().fold(0, |bits, extent| bits | extent.from_bytes | extent.offset_bytes);
        ExtentMap { extents: extents.into(), length_bytes, begin_bits }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Whether all bytes lie one after the other.
    #[must_use]
    pub fn is_one_piece(&self) -> bool {
        self.extents.len() == 1
    }

    /// Whether each piece of it begins at a multiple of so many bytes. It is asked for each command.
    #[must_use]
    pub fn is_aligned_to(&self, bytes: u64) -> bool {
        if bytes.is_power_of_two() {
            return self.begin_bits & (bytes - 1) == 0;
        }
        self.extents
            .iter()
            .all(|extent| extent.offset_bytes.is_multiple_of(bytes) && extent.from_bytes.is_multiple_of(bytes))
    }

    /// The end of what lies farthest behind.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.offset_bytes + extent.length_bytes).max().unwrap_or(0)
    }

    /// Where the bytes of a range lie, piece after piece; what is behind the end of the map lies nowhere.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.extents.partition_point(|extent| extent.end_bytes() <= range.start);
        let touched = self.extents[first..].iter().take_while(move |extent| extent.from_bytes < range.end);
        touched.map(move |extent| {
            let from = range.start.max(extent.from_bytes) - extent.from_bytes;
            let to = range.end.min(extent.end_bytes()) - extent.from_bytes;
            extent.offset_bytes + from..extent.offset_bytes + to
        })
    }

    /// Where a range lies, if all of it lies in one piece.
    #[must_use]
    pub fn piece(&self, range: Range<u64>) -> Option<Range<u64>> {
        // As nearly always.
        if let [Extent { offset_bytes, length_bytes, .. }] = &*self.extents {
            let is_within =
                range.start <= range.end && range.start < *length_bytes && (1..=*length_bytes).contains(&range.end);
            return is_within.then(|| offset_bytes + range.start..offset_bytes + range.end);
        }
        let length_bytes = range.end.checked_sub(range.start)?;
        let piece = self.pieces(range).next()?;
        (piece.end - piece.start == length_bytes).then_some(piece)
    }

    /// The numbers of what lies there, if all of it is in the map and numbered one after the other.
    #[must_use]
    pub fn numbers_of(&self, place: Range<u64>) -> Option<Range<u64>> {
        let is_around = |extent: &&Extent| {
            let end_bytes = extent.offset_bytes + extent.length_bytes;
            extent.offset_bytes <= place.start && place.start < end_bytes && place.end <= end_bytes
        };
        let extent = self.extents.iter().find(is_around)?;
        let number = |offset_bytes: u64| offset_bytes - extent.offset_bytes + extent.from_bytes;
        (place.start <= place.end).then(|| number(place.start)..number(place.end))
    }

    /// The same bytes by where those of another map lie, on whose numbers this one is; `None` when it goes beyond its end.
    #[must_use]
    pub fn over(&self, below: &ExtentMap) -> Option<ExtentMap> {
        let ranges = self.extents.iter().map(|extent| extent.offset_bytes..extent.offset_bytes + extent.length_bytes);
        (self.end_bytes() <= below.length_bytes).then(|| ExtentMap::of(ranges.flat_map(|range| below.pieces(range))))
    }
}

#[cfg(test)]
mod tests;
