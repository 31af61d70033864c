//! Where the data of a command is put while its packets come.
//!
//! Memory is given by pages, and most packets carry less: those of a command share pages, in the order in which they come. What lies
//! side by side in the end is one slice, so data that came in order is as few slices as pages. What may stay where it came is a slice of its
//! own, and takes none of this memory.

use sanwire_buffer::{Frame, Region, Slice, UNIT_BYTES};

use crate::wire::offer::COMMANDS_MAX;

/// Memory that a session may need for so much data in commands that are not whole, however it is cut: packets fill at least half of
/// each page, but for the last one of each command.
pub(super) const fn needed_bytes(data_bytes: u32) -> usize {
    2 * data_bytes as usize + COMMANDS_MAX as usize * UNIT_BYTES
}

/// The data of one packet.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Its place in the command.
    at: u64,
    place: Place,
    bytes: usize,
}

/// Where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In this page, from this byte on.
    Page(usize, usize),
    /// Where it came.
    Kept(usize),
}

/// The data of a command.
#[derive(Debug, Default)]
pub(super) struct Pages {
    full: Vec<Slice>,
    kept: Vec<Slice>,
    /// The one that is filled, up to where.
    open: Option<(Frame, usize)>,
    pieces: Vec<Piece>,
}

impl Pages {
    /// How many packets are there.
    pub(super) fn packets(&self) -> u32 {
        self.pieces.len() as u32
    }

    /// Whether there is a page of the session's memory.
    pub(super) fn takes_memory(&self) -> bool {
        self.open.is_some() || !self.full.is_empty()
    }

    /// How many packets have stayed where they came: each keeps a page from those that are to come.
    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Bytes that have stayed where they came.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|slice| slice.len() as u64).sum()
    }

    /// Keeps the data of a packet that belongs there. `None`: there is no memory.
    pub(super) fn put(&mut self, at: u64, data: &[u8], memory: &Region) -> Option<()> {
        let has_room = |(frame, filled): &&mut (Frame, usize)| frame.len() - filled >= data.len();
        if self.open.as_mut().filter(has_room).is_none() {
            let frame = memory.frame(data.len().next_multiple_of(UNIT_BYTES))?;
            self.close();
            self.open = Some((frame, 0));
        }
        let (frame, filled) = self.open.as_mut()?;
        frame.get_mut(*filled..*filled + data.len())?.copy_from_slice(data);
        self.pieces.push(Piece { at, place: Place::Page(self.full.len(), *filled), bytes: data.len() });
        *filled += data.len();
        Some(())
    }

    /// Keeps the data of a packet where it came.
    pub(super) fn keep(&mut self, at: u64, data: Slice) {
        self.pieces.push(Piece { at, place: Place::Kept(self.kept.len()), bytes: data.len() });
        self.kept.push(data);
    }

    fn close(&mut self) {
        self.full.extend(self.open.take().map(|(frame, _)| frame.freeze()));
    }

    /// All of it in order, if nothing lies over anything and nothing is missing between; places are counted in so many bytes.
    pub(super) fn finish(mut self, start: u64, unit_bytes: usize) -> Option<Vec<Slice>> {
        self.close();
        self.pieces.sort_unstable_by_key(|piece| piece.at);
        let mut next = start;
        let mut runs: Vec<Piece> = Vec::new();
        for piece in self.pieces {
            if piece.at != next {
                return None;
            }
            next += (piece.bytes / unit_bytes) as u64;
            let goes_on = |last: &&mut Piece| match last.place {
                Place::Page(page, start) => piece.place == Place::Page(page, start + last.bytes),
                Place::Kept(_) => false,
            };
            match runs.last_mut().filter(goes_on) {
                Some(last) => last.bytes += piece.bytes,
                None => runs.push(piece),
            }
        }
        let slice = |run: &Piece| match run.place {
            Place::Page(page, start) => self.full[page].slice(start..start + run.bytes),
            Place::Kept(number) => self.kept[number].clone(),
        };
        Some(runs.iter().map(slice).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts sectors there, and gives the lengths of the slices, if their content is right.
    fn lengths(places: &[(u64, usize)]) -> Option<Vec<usize>> {
        let region = Region::new(1 << 20).unwrap();
        let mut pages = Pages::default();
        for (at, sectors) in places {
            let data: Vec<u8> = (*at..*at + *sectors as u64).flat_map(|sector| [sector as u8; 512]).collect();
            pages.put(*at, &data, &region).unwrap();
        }
        let slices = pages.finish(10, 512)?;
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        assert!(all.chunks(512).zip(10u8..).all(|(sector, number)| sector == [number; 512]));
        Some(slices.iter().map(|slice| slice.len()).collect())
    }

    #[test]
    fn packets_share_pages_and_what_came_in_order_is_a_slice_of_each() {
        let in_order: Vec<(u64, usize)> = (0..10).map(|part| (10 + part * 2, 2)).collect();
        assert_eq!(lengths(&in_order), Some(vec![4096, 4096, 2048]));
        assert_eq!(lengths(&[(12, 2), (10, 2), (14, 1)]), Some(vec![1024, 1024, 512]));
        assert_eq!(lengths(&[(10, 16), (26, 7), (33, 7)]), Some(vec![8192, 3584, 3584]), "jumbo frames");
    }

    #[test]
    fn what_stays_where_it_came_is_put_in_order_with_what_was_copied() {
        let region = Region::new(1 << 20).unwrap();
        let mut pages = Pages::default();
        let sector = |number: u8| vec![number; 512];
        for number in [4, 2, 1, 3, 0] {
            match number {
                1 | 3 => pages.keep(number.into(), sector(number).into()),
                _ => pages.put(number.into(), &sector(number), &region).unwrap(),
            }
        }
        assert_eq!(region.length_bytes() - region.free_bytes(), UNIT_BYTES, "one page");
        let slices = pages.finish(0, 512).unwrap();
        assert!(slices.iter().zip(0..).all(|(slice, number)| **slice == sector(number)) && slices.len() == 5);
    }

    #[test]
    fn what_lies_over_another_one_or_leaves_a_gap_is_no_command() {
        assert_eq!(lengths(&[(10, 2), (11, 2)]), None);
        assert_eq!(lengths(&[(10, 2), (13, 2)]), None);
        assert_eq!(lengths(&[(11, 2)]), None);
    }

    #[test]
    fn no_cut_of_the_data_needs_more_memory_than_is_guaranteed() {
        for bytes in (512..=4096).step_by(512) {
            let room = 64 << 10;
            let region = Region::new(needed_bytes(room)).unwrap();
            let commands: Vec<Pages> = (0..COMMANDS_MAX)
                .map(|_| {
                    let mut pages = Pages::default();
                    pages.put(0, &[0; 512], &region).unwrap();
                    pages
                })
                .collect();
            let mut long = Pages::default();
            for at in 0..room as u64 / bytes {
                long.put(at, &vec![0; bytes as usize], &region).unwrap();
            }
            assert!(commands.len() == 256 && long.packets() > 0, "{bytes}");
        }
    }
}
