//! Messages that are being sent: a slab, so that packets name their message by a small number.

use std::collections::VecDeque;

use sanwire_buffer::{Head, Slice};

use crate::wire::{FRAGMENTS_MAX, Tag};

/// Fragments of one message that are cut before another message has its turn: a short reply must not wait behind
/// a long one.
const TURN_FRAGMENTS: u16 = 32;

/// A message's place in the slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageId(u32);

/// One message: a head that goes with fragment 0, and data that is cut into fragments.
#[derive(Debug)]
pub(super) struct Message {
    tag: Tag,
    cookie: u64,
    head: Head,
    data: Option<Slice>,
    cut_bytes: u32,
    next_fragment: u16,
    /// Data bytes of every fragment but the first and the last; fixed when the first is cut.
    stride: u32,
    unacknowledged: u32,
}

impl Message {
    pub(super) fn new(tag: Tag, cookie: u64, head: Head, data: Option<Slice>) -> Self {
        let data = data.filter(|data| !data.is_empty());
        Message { tag, cookie, head, data, cut_bytes: 0, next_fragment: 0, stride: 0, unacknowledged: 0 }
    }

    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    pub(super) fn data_length(&self) -> u32 {
        self.data.as_ref().map_or(0, |data| data.len() as u32)
    }

    pub(super) fn data(&self, offset: u32, length: u32) -> Option<Slice> {
        let data = self.data.as_ref().filter(|_| length > 0)?;
        Some(data.slice(offset as usize..(offset + length) as usize))
    }

    fn is_cut(&self) -> bool {
        self.next_fragment > 0 && self.cut_bytes == self.data_length()
    }

    fn cut(&mut self, room: usize) -> Cut {
        let fragment = self.next_fragment;
        if fragment == 0 {
            // A message is never cut finer than the last fragment number reaches.
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

/// A piece of a message.
pub(super) struct Cut {
    pub(super) data_offset: u32,
    pub(super) data_bytes: u32,
    pub(super) fragment: u16,
    pub(super) last: bool,
}

/// All messages that are not acknowledged whole.
#[derive(Debug, Default)]
pub(super) struct Messages {
    slots: Vec<Option<Message>>,
    free: Vec<u32>,
    uncut: VecDeque<MessageId>,
    turn: u16,
    delivered: VecDeque<u64>,
}

impl Messages {
    pub(super) fn push(&mut self, message: Message) {
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
        self.uncut.push_back(MessageId(id));
    }

    pub(super) fn get(&self, id: MessageId) -> &Message {
        self.slots[id.0 as usize].as_ref().expect("a sent packet's message stays until it is acknowledged")
    }

    pub(super) fn has_uncut(&self) -> bool {
        !self.uncut.is_empty()
    }

    /// Cuts the next fragment, with `room` bytes for message head and data.
    pub(super) fn cut(&mut self, room: usize) -> Option<(MessageId, Cut)> {
        let id = *self.uncut.front()?;
        let message = self.slots[id.0 as usize].as_mut()?;
        let cut = message.cut(room);
        self.turn += 1;
        if cut.last {
            self.uncut.pop_front();
            self.turn = 0;
        } else if self.turn >= TURN_FRAGMENTS {
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
            *slot = None;
            self.free.push(id.0);
        }
    }

    pub(super) fn poll_delivered(&mut self) -> Option<u64> {
        self.delivered.pop_front()
    }
}
