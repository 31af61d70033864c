//! In which slot each block of a group is, where several are side by side: the slots, and for each block its place among them.

use crate::format::GROUP_BLOCKS;

/// Takes a bit for each block where there are two slots, and 16 at the most, whatever was written.
#[derive(Debug)]
pub(crate) struct Page {
    slots: Vec<u32>,
    /// Bits for the place of a block: 1, 2, 4, 8 or 16.
    width: u32,
    words: Box<[u64]>,
}

impl Page {
    /// One that has places for so many slots.
    pub(crate) fn new(slots: usize) -> Self {
        let width = [1, 2, 4, 8].into_iter().find(|width| slots <= 1 << width).unwrap_or(16);
        let words = vec![0; (GROUP_BLOCKS * u64::from(width) / 64) as usize].into();
        Page { slots: Vec::new(), width, words }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.words.len() * size_of::<u64>() + self.slots.capacity() * size_of::<u32>()) as u64
    }

    /// The slot of a block, and how many from there up to `end` have the same.
    pub(crate) fn run(&self, block: u32, end: u32) -> (u32, u32) {
        let place = self.place(block);
        let other = (block..end).find(|block| self.place(*block) != place);
        (self.slots.get(place).copied().unwrap_or(0), other.unwrap_or(end) - block)
    }

    /// Blocks have this slot now. Where there is no place for another one, `is_needed` says of which blocks the slots are needed still.
    pub(crate) fn put(&mut self, (from, to): (u32, u32), slot: u32, is_needed: impl Fn(u32) -> bool) {
        let known = self.slots.iter().position(|known| *known == slot);
        let place = known.unwrap_or_else(|| {
            if self.slots.len() == 1 << self.width {
                *self = self.again(is_needed);
            }
            self.slots.push(slot);
            self.slots.len() - 1
        });
        (from..to).for_each(|block| self.set(block, place));
    }

    /// The same with a place more, and without slots that are not needed.
    fn again(&self, is_needed: impl Fn(u32) -> bool) -> Page {
        let needed = || (0..GROUP_BLOCKS as u32).filter(|block| is_needed(*block));
        let (mut places, mut slots) = (vec![None; self.slots.len()], Vec::new());
        for place in needed().map(|block| self.place(block)) {
            if let (Some(to @ None), Some(slot)) = (places.get_mut(place), self.slots.get(place)) {
                *to = Some(slots.len());
                slots.push(*slot);
            }
        }
        let mut made = Page::new(slots.len() + 1);
        needed().for_each(|block| made.set(block, places.get(self.place(block)).copied().flatten().unwrap_or(0)));
        Page { slots, ..made }
    }

    fn place(&self, block: u32) -> usize {
        let (word, shift, mask) = self.at(block);
        (self.words[word] >> shift & mask) as usize
    }

    fn set(&mut self, block: u32, place: usize) {
        let (word, shift, mask) = self.at(block);
        self.words[word] = self.words[word] & !(mask << shift) | (place as u64) << shift;
    }

    fn at(&self, block: u32) -> (usize, u32, u64) {
        let of_word = u64::BITS / self.width;
        ((block / of_word) as usize, block % of_word * self.width, (1 << self.width) - 1)
    }
}
