//! Putting a message together from its fragments, in whatever order they come.
//!
//! A fragment says itself where its data belongs, so data goes straight to its final place. A message is whole when
//! every number up to the last fragment's has come once and the pieces tile the data without holes: a peer that lies
//! about offsets gets its message refused, never another's memory.

use crate::wire::command::Fragment;
use crate::wire::{FRAGMENTS_MAX, Header};

const WORDS: usize = (FRAGMENTS_MAX / 64) as usize;

/// The fragments of one message that have come.
#[derive(Debug)]
pub(crate) struct Assembly {
    data_length: u32,
    expanded_kib: u16,
    head: Option<Vec<u8>>,
    seen: [u64; WORDS],
    count: u16,
    last: Option<u16>,
    highest: u16,
    received_bytes: u64,
    /// Where fragment 1 begins, and the data bytes of each fragment between the first and the last.
    second_offset: Option<u32>,
    stride_bytes: Option<u32>,
    last_offset: u32,
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
            last: None,
            highest: 0,
            received_bytes: 0,
            second_offset: None,
            stride_bytes: None,
            last_offset: 0,
        }
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
        let (word, bit) = (usize::from(number / 64), 1 << (number % 64));
        let impossible = fragment.data_length != self.data_length
            || fragment.expanded_kib != self.expanded_kib
            || self.seen[word] & bit != 0
            || (number == 0) == head.is_empty()
            || self.last.is_some_and(|last| header.last || number > last)
            || (header.last && number < self.highest);
        if impossible {
            return Err(Contradiction);
        }
        let data_bytes = u32::try_from(data_bytes).map_err(|_| Contradiction)?;
        match number {
            0 => {
                agree(fragment.data_offset, 0)?;
                agree(*self.second_offset.get_or_insert(data_bytes), data_bytes)?;
                self.head = Some(head.to_vec());
            }
            _ if header.last => self.last_offset = fragment.data_offset,
            _ => {
                agree(*self.stride_bytes.get_or_insert(data_bytes), data_bytes)?;
                let before = u64::from(data_bytes) * u64::from(number - 1);
                let second = u64::from(fragment.data_offset).checked_sub(before).ok_or(Contradiction)?;
                let second = u32::try_from(second).map_err(|_| Contradiction)?;
                agree(*self.second_offset.get_or_insert(second), second)?;
            }
        }
        if header.last {
            self.last = Some(number);
        }
        self.highest = self.highest.max(number);
        self.seen[word] |= bit;
        self.count += 1;
        self.received_bytes += u64::from(data_bytes);
        Ok(())
    }

    /// The message head, when all fragments are there; `None` while some are missing.
    pub(crate) fn finish(&mut self) -> Result<Option<Vec<u8>>, Contradiction> {
        let Some(last) = self.last else { return Ok(None) };
        if self.count != last + 1 {
            return Ok(None);
        }
        let second = u64::from(self.second_offset.unwrap_or(0));
        let tiled = second + u64::from(self.stride_bytes.unwrap_or(0)) * u64::from(last.saturating_sub(1));
        let ends_well = last == 0 || u64::from(self.last_offset) == tiled;
        if !ends_well || self.received_bytes != u64::from(self.data_length) {
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
        number: u16,
        last: bool,
        offset: u32,
        total: u32,
        bytes: usize,
    ) -> Result<(), Contradiction> {
        let header = Header { tag: Tag::default(), last, fragment: number, opcode: Opcode::HcbeReply };
        let head: &[u8] = if number == 0 { b"head" } else { b"" };
        let head_length = head.len() as u16;
        let fields = Fragment { data_offset: offset, data_length: total, head_length, ..Fragment::default() };
        assembly.note(header, &fields, head, bytes)
    }

    proptest! {
        #[test]
        fn any_order_makes_the_message(total in 0u32..100_000, first in 1u32..1500, stride in 100u32..1500, seed: u64) {
            let first = first.min(total);
            let mut pieces = vec![(0u32, first)];
            let mut at = first;
            while at < total {
                let bytes = stride.min(total - at);
                pieces.push((at, bytes));
                at += bytes;
            }
            prop_assume!(pieces.len() <= 1024);
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
