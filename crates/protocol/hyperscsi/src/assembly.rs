//! Putting a message together from its fragments, in whatever order they come.
//!
//! A fragment says itself where its data belongs, so data goes straight to its final place. A message is whole when
//! every fragment up to the last has arrived once and the pieces tile the data without holes: a peer that lies
//! about offsets gets its message refused, never another's memory.
//!
//! Fragment numbers begin again in long messages. Where a fragment's data belongs, and how long it is, tells its place.

use std::ops::Range;

use crate::wire::command::Fragment;
use crate::wire::{FRAGMENT_NUMBERS, FRAGMENTS_MAX, Header, fragment_number};

const WORDS: usize = (FRAGMENTS_MAX / 64) as usize;

/// The fragments of one message that have arrived.
#[derive(Debug)]
pub(crate) struct Assembly {
    data_length: u32,
    expanded_kib: u16,
    head: Option<Vec<u8>>,
    /// Those between the first and the last, by their places.
    seen: [u64; WORDS],
    count: u16,
    highest: u16,
    received_bytes: u64,
    /// Where fragment 1 begins, and the data bytes of each fragment between the first and the last.
    second_offset: Option<u32>,
    stride_bytes: Option<u32>,
    last: Option<Last>,
}

/// The last fragment, as it came.
#[derive(Clone, Copy, Debug)]
struct Last {
    number: u16,
    offset: u32,
}

/// The fragments of a message contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Contradiction;

impl Assembly {
    /// For the message that this is a fragment of.
    pub(crate) fn new(fragment: &Fragment) -> Self {
        Assembly {
            data_length: fragment.data_length,
            expanded_kib: fragment.expanded_kib,
            head: None,
            seen: [0; WORDS],
            count: 0,
            highest: 0,
            received_bytes: 0,
            second_offset: None,
            stride_bytes: None,
            last: None,
        }
    }

    /// Data that has not come.
    pub(crate) fn awaited_bytes(&self) -> u64 {
        u64::from(self.data_length).saturating_sub(self.received_bytes)
    }

    /// Whether the data is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.expanded_kib > 0
    }

    /// Where in the message the data of a fragment belongs, as far as its header tells, if nothing has come there.
    ///
    /// Anybody may have written the header: the place never touches what has come, whatever the header says. That it is the
    /// right one only the fragment itself can tell.
    pub(crate) fn vacancy(&self, header: Header, data_bytes: usize) -> Option<Range<usize>> {
        let (second, length) = (self.second_offset?, u64::from(self.data_length));
        let data_bytes = u64::try_from(data_bytes).ok().filter(|data_bytes| *data_bytes > 0)?;
        let stride = self.stride_bytes.map_or(data_bytes, u64::from);
        let fits = if header.last { self.last.is_none() && data_bytes <= stride } else { data_bytes == stride };
        if header.fragment == 0 || !fits {
            return None;
        }
        let mut places = (header.fragment..FRAGMENTS_MAX).step_by(usize::from(FRAGMENT_NUMBERS - 1));
        let place = places.find(|place| !self.has_seen(*place))?;
        let start = u64::from(second) + stride * u64::from(place - 1);
        let end = start + data_bytes;
        let free_end = self.last.map_or(length, |last| length.min(last.offset.into()));
        let is_free = end <= free_end && (!header.last || end == length);
        is_free.then_some(start as usize..end as usize)
    }

    /// Whether this one of those between the first and the last has come.
    fn has_seen(&self, place: u16) -> bool {
        self.seen[usize::from(place / 64)] & 1 << (place % 64) != 0
    }

    /// Notes a fragment with `data_bytes` of data. After a contradiction the message can only be given up.
    pub(crate) fn note(
        &mut self,
        header: Header,
        fragment: &Fragment,
        head: &[u8],
        data_bytes: usize,
    ) -> Result<(), Contradiction> {
        let number = header.fragment;
        let impossible = fragment.data_length != self.data_length
            || fragment.expanded_kib != self.expanded_kib
            || (number == 0) == head.is_empty()
            || (number == 0 && self.head.is_some())
            || (header.last && self.last.is_some());
        if impossible {
            return Err(Contradiction);
        }
        let (offset, data_bytes) = (fragment.data_offset, u32::try_from(data_bytes).map_err(|_| Contradiction)?);
        if header.last {
            self.last = Some(Last { number, offset });
        }
        if number == 0 {
            agree(offset, 0)?;
            agree(*self.second_offset.get_or_insert(data_bytes), data_bytes)?;
            self.head = Some(head.to_vec());
        } else if !header.last {
            self.note_between(number, offset, data_bytes)?;
        }
        self.count += 1;
        self.received_bytes += u64::from(data_bytes);
        match self.last_place()? {
            Some(last) if self.highest > 0 && self.highest >= last => Err(Contradiction),
            _ => Ok(()),
        }
    }

    /// One between the first and the last: these are of one length, and follow each other.
    fn note_between(&mut self, number: u16, offset: u32, data_bytes: u32) -> Result<(), Contradiction> {
        if data_bytes == 0 {
            return Err(Contradiction);
        }
        agree(*self.stride_bytes.get_or_insert(data_bytes), data_bytes)?;
        let stride = u64::from(data_bytes);
        let beyond = u64::from(offset).checked_sub(stride * u64::from(number - 1)).ok_or(Contradiction)?;
        // So much all numbers but 0 take, each once. The first fragment is shorter than that.
        let round = stride * u64::from(FRAGMENT_NUMBERS - 1);
        let (rounds, second) = (beyond / round, (beyond % round) as u32);
        agree(*self.second_offset.get_or_insert(second), second)?;
        let place = u64::from(number) + rounds * u64::from(FRAGMENT_NUMBERS - 1);
        let place = u16::try_from(place).ok().filter(|place| *place < FRAGMENTS_MAX).ok_or(Contradiction)?;
        if self.has_seen(place) {
            return Err(Contradiction);
        }
        self.seen[usize::from(place / 64)] |= 1 << (place % 64);
        self.highest = self.highest.max(place);
        Ok(())
    }

    /// The place of the last fragment, as far as it is known.
    fn last_place(&self) -> Result<Option<u16>, Contradiction> {
        let Some(last) = self.last else { return Ok(None) };
        if last.number == 0 {
            return Ok(Some(0));
        }
        let Some(second) = self.second_offset else { return Ok(None) };
        let beyond = last.offset.checked_sub(second).ok_or(Contradiction)?;
        let between = match self.stride_bytes {
            Some(stride) if beyond.is_multiple_of(stride) => beyond / stride,
            None if beyond == 0 => 0,
            None => return Ok(None),
            Some(_) => return Err(Contradiction),
        };
        let place = u16::try_from(between + 1).ok().filter(|place| *place < FRAGMENTS_MAX).ok_or(Contradiction)?;
        agree(fragment_number(place).into(), last.number.into())?;
        Ok(Some(place))
    }

    /// The message head, when all fragments are there; `None` while some are missing.
    pub(crate) fn finish(&mut self) -> Result<Option<Vec<u8>>, Contradiction> {
        let Some(last) = self.last_place()? else { return Ok(None) };
        if self.count != last + 1 {
            return Ok(None);
        }
        if self.received_bytes != u64::from(self.data_length) {
            return Err(Contradiction);
        }
        Ok(self.head.take())
    }
}

fn agree(known: u32, said: u32) -> Result<(), Contradiction> {
    if known == said { Ok(()) } else { Err(Contradiction) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Opcode, Tag};
    use proptest::prelude::*;

    fn note(
        assembly: &mut Assembly,
        place: u16,
        last: bool,
        offset: u32,
        total: u32,
        bytes: usize,
    ) -> Result<(), Contradiction> {
        let number = fragment_number(place);
        let head: &[u8] = if number == 0 { b"head" } else { b"" };
        let head_length = head.len() as u16;
        let fields = Fragment { data_offset: offset, data_length: total, head_length, ..Fragment::default() };
        assembly.note(header(number, last), &fields, head, bytes)
    }

    #[test]
    fn the_last_fragment_of_a_long_message_is_not_taken_for_the_second() {
        // Both have number 1.
        let (stride, places) = (100, 1025);
        let total = stride * places;
        let mut assembly = Assembly::new(&Fragment { data_length: total, ..Fragment::default() });
        note(&mut assembly, 1024, true, stride * 1024, total, 100).unwrap();
        note(&mut assembly, 0, false, 0, total, 100).unwrap();
        assert_eq!(assembly.finish(), Ok(None));
        for place in 1..1024 {
            assert_eq!(assembly.finish(), Ok(None));
            note(&mut assembly, place, false, stride * u32::from(place), total, 100).unwrap();
        }
        assert_eq!(assembly.finish(), Ok(Some(b"head".to_vec())));
    }

    fn header(number: u16, last: bool) -> Header {
        Header { tag: Tag::default(), last, fragment: number, opcode: Opcode::HcbeReply }
    }

    #[test]
    fn a_number_that_comes_again_names_the_first_place_of_it_to_which_nothing_has_come() {
        let (stride, total) = (100, 100 * 1026);
        let mut assembly = Assembly::new(&Fragment { data_length: total, ..Fragment::default() });
        assert_eq!(assembly.vacancy(header(1, false), 100), None, "nobody knows where the second one begins");
        note(&mut assembly, 0, false, 0, total, 60).unwrap();
        assert_eq!(assembly.vacancy(header(0, false), 60), None, "it has come");
        assert_eq!(assembly.vacancy(header(1, false), 0), None, "it would be no data");
        assert_eq!(assembly.vacancy(header(1, false), 100), Some(60..160));
        note(&mut assembly, 1, false, 60, total, 100).unwrap();
        assert_eq!(assembly.vacancy(header(2, false), 99), None, "shorter than the one before");
        assert_eq!(assembly.vacancy(header(2, false), 100), Some(160..260));
        let again = 60 + 1023 * stride;
        assert_eq!(assembly.vacancy(header(1, false), 100), Some(again..again + 100));
        note(&mut assembly, 1024, false, again as u32, total, 100).unwrap();
        assert_eq!(assembly.vacancy(header(1, false), 100), None, "beyond the end");
        let end = 60 + 1025 * stride;
        assert_eq!(assembly.vacancy(header(3, true), 40), None, "not at the end");
        note(&mut assembly, 3, false, 260, total, 100).unwrap();
        assert_eq!(assembly.vacancy(header(3, true), 40), Some(end..end + 40));
        assert_eq!(assembly.vacancy(header(3, true), 39), None, "not to the end");
        note(&mut assembly, 1026, true, end as u32, total, 40).unwrap();
        assert_eq!(assembly.vacancy(header(3, true), 40), None, "there is one last");
    }

    #[test]
    fn a_place_that_no_message_has_is_a_contradiction() {
        for place in [FRAGMENTS_MAX, u16::MAX] {
            let mut assembly = Assembly::new(&Fragment { data_length: u32::MAX, ..Fragment::default() });
            assert_eq!(note(&mut assembly, place, false, 100 * u32::from(place), u32::MAX, 100), Err(Contradiction));
        }
        let mut assembly = Assembly::new(&Fragment { data_length: 64, ..Fragment::default() });
        assert_eq!(note(&mut assembly, 1, false, 16, 64, 0), Err(Contradiction), "nothing is between the others");
    }

    proptest! {
        #[test]
        fn any_order_makes_the_message(total in 0u32..400_000, first in 1u32..1500, stride in 100u32..1500, seed: u64) {
            let first = first.min(total);
            let mut pieces = vec![(0u32, first)];
            let mut at = first;
            while at < total {
                let bytes = stride.min(total - at);
                pieces.push((at, bytes));
                at += bytes;
            }
            prop_assume!(pieces.len() <= usize::from(FRAGMENTS_MAX));
            let mut order: Vec<usize> = (0..pieces.len()).collect();
            order.sort_by_key(|&i| (i as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut assembly = Assembly::new(&Fragment { data_length: total, ..Fragment::default() });
            for (done, &index) in order.iter().enumerate() {
                prop_assert_eq!(assembly.finish(), Ok(None), "after {} of {}", done, pieces.len());
                let (offset, bytes) = pieces[index];
                let last = index == pieces.len() - 1;
                note(&mut assembly, index as u16, last, offset, total, bytes as usize).unwrap();
            }
            prop_assert_eq!(assembly.finish(), Ok(Some(b"head".to_vec())));
        }

        /// Whoever writes headers, in whatever order the true fragments come.
        #[test]
        fn no_vacancy_is_where_data_has_come_and_each_fragment_finds_its_own(
            total in 1u32..10_000, first in 1u32..1500, stride in 100u32..1500, seed: u64,
            forged in proptest::collection::vec((0u16..FRAGMENT_NUMBERS, any::<bool>(), 0usize..3000), 4)
        ) {
            let first = first.min(total);
            let mut pieces = vec![(0, first as usize)];
            let mut at = first;
            while at < total {
                let bytes = stride.min(total - at);
                pieces.push((at, bytes as usize));
                at += bytes;
            }
            let mut order: Vec<usize> = (0..pieces.len()).collect();
            order.sort_by_key(|&i| (i as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut assembly = Assembly::new(&Fragment { data_length: total, ..Fragment::default() });
            let mut covered = vec![false; total as usize];
            for index in order {
                let (offset, bytes) = pieces[index];
                let (last, place) = (index == pieces.len() - 1, offset as usize..offset as usize + bytes);
                for &(number, last, bytes) in &forged {
                    for bytes in [bytes, stride as usize, ((total - first) % stride) as usize] {
                        let numbers = [number, number % 8];
                        let vacancies = numbers.map(|number| assembly.vacancy(header(number, last), bytes));
                        for vacancy in vacancies.into_iter().flatten() {
                            prop_assert_eq!(vacancy.len(), bytes);
                            prop_assert!(covered[vacancy].iter().all(|covered| !covered), "{} {}", number, bytes);
                        }
                    }
                }
                if index > 0 && assembly.second_offset.is_some() && assembly.stride_bytes.is_some() {
                    prop_assert_eq!(assembly.vacancy(header(index as u16, last), bytes), Some(place.clone()));
                }
                note(&mut assembly, index as u16, last, offset, total, bytes).unwrap();
                covered[place].fill(true);
            }
            prop_assert_eq!(assembly.finish(), Ok(Some(b"head".to_vec())));
        }

        #[test]
        fn a_fragment_after_the_last_is_a_contradiction(beyond in 3u16..9) {
            let mut assembly = Assembly::new(&Fragment { data_length: 64, ..Fragment::default() });
            note(&mut assembly, 0, false, 0, 64, 16).unwrap();
            note(&mut assembly, beyond, false, 16 + 16 * u32::from(beyond - 1).min(2), 64, 16).ok();
            prop_assert!(note(&mut assembly, 2, true, 32, 64, 32).is_err() || assembly.finish() != Ok(Some(b"head".to_vec())));
        }

        /// Whatever is accepted as whole covers each byte once.
        #[test]
        fn nothing_with_holes_is_whole(pieces in proptest::collection::vec((0u16..4, any::<bool>(), 0u32..40, 0usize..20), 1..6)) {
            let mut assembly = Assembly::new(&Fragment { data_length: 40, ..Fragment::default() });
            let mut covered = [0u8; 60];
            for (number, last, offset, bytes) in pieces {
                if note(&mut assembly, number, last, offset, 40, bytes).is_err() {
                    return Ok(());
                }
                covered[offset as usize..offset as usize + bytes].iter_mut().for_each(|c| *c += 1);
                if let Ok(Some(_)) = assembly.finish() {
                    prop_assert!(covered[..40].iter().all(|c| *c == 1), "{:?}", covered);
                    return Ok(());
                }
            }
        }
    }
}
