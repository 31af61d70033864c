//! Messages that are being sent: a slab, so that packets name their message by a small number.

use std::collections::VecDeque;

use sanwire_buffer::{Head, Slice, Slices};

use crate::compression::{Compressed, Compressor};
use crate::wire::packet::guard_bytes;
use crate::wire::{FRAGMENTS_MAX, OVERHEAD_BYTES, Opcode, Protection, Tag};

/// Fragments of one reply that are cut before another has its turn: a short reply must not wait behind a long one.
const TURN_FRAGMENTS: u16 = 32;

/// How much of what is sent next is fetched into the cache while a packet is made: the data of a packet of 1500 bytes. The
/// processor sees by itself that more follows in longer ones.
const PREFETCH_BYTES: usize = 1536;

/// A message's place in the slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageId(u32);

/// One message: a head that goes with fragment 0, and data that is cut into fragments.
#[derive(Debug)]
pub(crate) struct Message {
    tag: Tag,
    cookie: u64,
    protection: Protection,
    /// Whether it is one of management.
    is_local: bool,
    is_compressible: bool,
    head: Head,
    data: Option<Slices>,
    data_length: u32,
    /// How long the data is when it is expanded; 0: it is not compressed.
    expanded_kib: u16,
    cut_bytes: u32,
    next_fragment: u16,
    /// Data bytes of every fragment but the first and the last; fixed when the first is cut.
    stride: u32,
    unacknowledged: u32,
}

impl Message {
    pub(crate) fn new(tag: Tag, cookie: u64, protection: Protection, head: Head, data: Option<Slices>) -> Self {
        let data = data.filter(|data| !data.is_empty());
        let data_length = data.as_ref().map_or(0, |data| data.len() as u32);
        Message {
            tag,
            cookie,
            protection,
            is_local: false,
            is_compressible: false,
            head,
            data,
            data_length,
            expanded_kib: 0,
            cut_bytes: 0,
            next_fragment: 0,
            stride: 0,
            unacknowledged: 0,
        }
    }

    /// The same, of management if it `is_local`.
    pub(crate) fn local(self, is_local: bool) -> Self {
        Message { is_local, ..self }
    }

    /// Its operation code, where that of commands and their answers is `opcode`.
    pub(super) fn opcode(&self, opcode: Opcode) -> Opcode {
        match opcode {
            Opcode::HcbeRequest if self.is_local => Opcode::LocalRequest,
            Opcode::HcbeReply if self.is_local => Opcode::LocalReply,
            opcode => opcode,
        }
    }

    /// The same, guarded so or better.
    pub(super) fn guarded(self, floor: Protection) -> Self {
        Message { protection: self.protection.max(floor), ..self }
    }

    /// The same, of a logical unit whose data may be compressed if it `is_compressible`.
    pub(crate) fn compressible(self, is_compressible: bool) -> Self {
        Message { is_compressible, ..self }
    }

    /// The same with less data, where that is to be had.
    pub(super) fn compressed(self, compressor: &mut Compressor) -> Self {
        // What manages a server holds secrets beside what others may have chosen: its length must not tell of them.
        let data = self.data.as_ref().filter(|_| self.is_compressible && !self.is_local);
        match data.and_then(|data| compressor.compress(data)) {
            Some(Compressed { data, expanded_kib }) => {
                Message { data_length: data.len() as u32, data: Some(data.into()), expanded_kib, ..self }
            }
            None => self,
        }
    }

    pub(super) fn expanded_kib(&self) -> u16 {
        self.expanded_kib
    }

    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    pub(super) fn protection(&self) -> Protection {
        self.protection
    }

    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    pub(super) fn data_length(&self) -> u32 {
        self.data_length
    }

    pub(super) fn data(&self, offset: u32, length: u32) -> Option<Slice> {
        let data = self.data.as_ref().filter(|_| length > 0)?;
        Some(data.cut(offset as usize..(offset + length) as usize))
    }

    /// Has the processor fetch the beginning of the data from here on, which is sent next.
    pub(super) fn prefetch(&self, offset: u32) {
        if let Some(data) = &self.data {
            data.prefetch(offset as usize..offset as usize + PREFETCH_BYTES);
        }
    }

    fn held(&self) -> Held {
        let bytes = |of: fn(&Slices) -> usize| self.data.as_ref().map_or(0, of) as u64;
        Held { messages: 1, heap_bytes: bytes(Slices::heap_bytes), lent_bytes: bytes(Slices::lent_bytes) }
    }

    fn is_cut(&self) -> bool {
        self.next_fragment > 0 && self.cut_bytes == self.data_length()
    }

    fn cut(&mut self, room: usize) -> Cut {
        let room = room.saturating_sub(guard_bytes(self.protection));
        let fragment = self.next_fragment;
        if fragment == 0 {
            // A message never has more fragments than it may have.
            self.stride = (room as u32).max(self.data_length().div_ceil(u32::from(FRAGMENTS_MAX) - 1));
        }
        let room = if fragment == 0 { (room.saturating_sub(self.head.len())) as u32 } else { self.stride };
        let data_offset = self.cut_bytes;
        let data_bytes = room.min(self.data_length() - self.cut_bytes);
        self.cut_bytes += data_bytes;
        self.next_fragment += 1;
        self.unacknowledged += 1;
        Cut { data_offset, data_bytes, fragment, last: self.is_cut() }
    }
}

/// What messages hold until they are acknowledged whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    pub(crate) messages: usize,
    /// Their data that nobody accounts for elsewhere.
    pub(crate) heap_bytes: u64,
    /// What they keep of the memory of stores.
    pub(crate) lent_bytes: u64,
}

/// A piece of a message.
pub(super) struct Cut {
    pub(super) data_offset: u32,
    pub(super) data_bytes: u32,
    pub(super) fragment: u16,
    pub(super) last: bool,
}

impl Held {
    fn add(&mut self, more: Held) {
        self.messages += more.messages;
        self.heap_bytes += more.heap_bytes;
        self.lent_bytes += more.lent_bytes;
    }

    fn take_off(&mut self, less: Held) {
        self.messages -= less.messages;
        self.heap_bytes -= less.heap_bytes;
        self.lent_bytes -= less.lent_bytes;
    }
}

/// In which order messages with data are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turns {
    /// In turns. For replies: the requester has the memory for them.
    Alternate,
    /// One after the other. For requests: a receiver that is short of memory must be able to finish what it has begun
    /// before it finds room for more, so nothing that it has no room for may stand in the window before the rest of it.
    Queue,
}

/// All messages that are not acknowledged whole.
#[derive(Debug)]
pub(super) struct Messages {
    slots: Vec<Option<Message>>,
    free: Vec<u32>,
    /// Messages without data, which need one packet each and no memory: they go first.
    short: VecDeque<MessageId>,
    uncut: VecDeque<MessageId>,
    turns: Turns,
    turn: u16,
    delivered: VecDeque<u64>,
    held: Held,
}

impl Messages {
    pub(super) fn new(turns: Turns) -> Self {
        Messages {
            slots: Vec::new(),
            free: Vec::new(),
            short: VecDeque::new(),
            uncut: VecDeque::new(),
            turns,
            turn: 0,
            delivered: VecDeque::new(),
            held: Held::default(),
        }
    }

    pub(super) fn push(&mut self, message: Message) {
        let is_short = message.data.is_none();
        self.held.add(message.held());
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(message);
                id
            }
            None => {
                self.slots.push(Some(message));
                (self.slots.len() - 1) as u32
            }
        };
        let queue = if is_short { &mut self.short } else { &mut self.uncut };
        queue.push_back(MessageId(id));
    }

    /// Messages that are not begun are guarded so or better.
    pub(super) fn guard(&mut self, floor: Protection) {
        for message in self.slots.iter_mut().flatten().filter(|message| message.next_fragment == 0) {
            message.protection = message.protection.max(floor);
        }
    }

    /// Whether a message is guarded less.
    pub(super) fn has_weaker(&self, floor: Protection) -> bool {
        self.slots.iter().flatten().any(|message| message.protection < floor)
    }

    /// What all of them hold.
    pub(super) fn held(&self) -> Held {
        self.held
    }

    /// The data of all of them.
    pub(super) fn data_bytes(&self) -> u64 {
        self.slots.iter().flatten().map(|message| u64::from(message.data_length())).sum()
    }

    pub(super) fn get(&self, id: MessageId) -> &Message {
        self.slots[id.0 as usize].as_ref().expect("a sent packet's message stays until it is acknowledged")
    }

    pub(super) fn has_uncut(&self) -> bool {
        !self.short.is_empty() || !self.uncut.is_empty()
    }

    /// Whether a message without data is to be cut.
    pub(super) fn has_short(&self) -> bool {
        !self.short.is_empty()
    }

    /// How large the packet of the next fragment can be, when no packet may be larger than this.
    pub(super) fn next_bytes(&self, packet_max_bytes: usize) -> usize {
        let next = self.short.front().or(self.uncut.front()).map(|&id| self.get(id));
        let needed = next.map_or(0, |message| {
            let left = (message.data_length() - message.cut_bytes) as usize;
            OVERHEAD_BYTES + message.head.len() + left + guard_bytes(message.protection)
        });
        // A message that is cut already keeps its stride.
        let begun = next
            .filter(|message| message.next_fragment > 0)
            .map_or(0, |message| OVERHEAD_BYTES + message.stride as usize + guard_bytes(message.protection));
        needed.min(packet_max_bytes.max(begun))
    }

    /// Cuts the next fragment, with `room` bytes for message head, data and what guards them.
    pub(super) fn cut(&mut self, room: usize) -> Option<(MessageId, Cut)> {
        if let Some(&id) = self.short.front() {
            let cut = self.slots[id.0 as usize].as_mut()?.cut(room);
            self.short.pop_front();
            return Some((id, cut));
        }
        let id = *self.uncut.front()?;
        let message = self.slots[id.0 as usize].as_mut()?;
        let cut = message.cut(room);
        self.turn += 1;
        if cut.last {
            self.uncut.pop_front();
            self.turn = 0;
        } else if self.turns == Turns::Alternate && self.turn >= TURN_FRAGMENTS {
            self.uncut.rotate_left(1);
            self.turn = 0;
        }
        Some((id, cut))
    }

    /// One packet of the message is acknowledged in order.
    pub(super) fn packet_done(&mut self, id: MessageId) {
        let slot = &mut self.slots[id.0 as usize];
        let Some(message) = slot else { return };
        message.unacknowledged -= 1;
        if message.unacknowledged == 0 && message.is_cut() {
            self.delivered.push_back(message.cookie);
            self.held.take_off(message.held());
            *slot = None;
            self.free.push(id.0);
        }
    }

    pub(super) fn poll_delivered(&mut self) -> Option<u64> {
        self.delivered.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tags of the messages that fragments are cut from, after two long messages and a short one were pushed.
    fn order(turns: Turns) -> Vec<u16> {
        let mut messages = Messages::new(turns);
        for (tag, bytes) in [(0, 100_000), (1, 100_000), (2, 0)] {
            let tag = Tag::new(tag).unwrap_or_default();
            messages.push(Message::new(tag, 0, Protection::Checksum, Head::new(), Some(vec![0; bytes].into())));
        }
        std::iter::from_fn(|| messages.cut(1000).map(|(id, _)| messages.get(id).tag().number())).collect()
    }

    #[test]
    fn requests_are_cut_one_after_the_other() {
        assert!(order(Turns::Queue).iter().is_sorted_by_key(|tag| (*tag + 1) % 3));
    }

    #[test]
    fn replies_are_cut_in_turns() {
        let order = order(Turns::Alternate);
        let turns: Vec<u16> = order.chunk_by(|a, b| a == b).map(|run| run[0]).collect();
        assert_eq!(turns, [2, 0, 1, 0, 1, 0, 1, 0, 1]);
    }
}
