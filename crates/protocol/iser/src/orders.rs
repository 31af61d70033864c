//! Orders that wait for the RDMA below, and what they take, with those that are being cut into packets there.

use std::collections::VecDeque;
use std::ops::Range;

use sanwire_buffer::{Frame, Slices};
use sanwire_iwarp::{Order, Stag, WorkId};

/// Reads that wait, at the most: as many as there may be commands.
const READS_MAX: usize = 1024;

/// What waits to be sent, and what it takes.
struct Waiting {
    order: Order,
    size: Size,
    /// It is sent once this read is done.
    after: Option<WorkId>,
}

#[derive(Clone, Copy, Default)]
struct Size {
    bytes: usize,
    heap_bytes: usize,
    lent_bytes: usize,
}

impl Size {
    fn of(order: &Order) -> Size {
        let (head_bytes, data) = match order {
            Order::Send { head, data, .. } => (head.len(), data.as_ref()),
            Order::Write { data, .. } => (0, Some(data)),
        };
        Size {
            bytes: head_bytes + data.map_or(0, Slices::len),
            heap_bytes: size_of::<Waiting>() + data.map_or(0, Slices::heap_bytes),
            lent_bytes: data.map_or(0, Slices::lent_bytes),
        }
    }

    fn add(&mut self, other: Size) {
        self.bytes += other.bytes;
        self.heap_bytes += other.heap_bytes;
        self.lent_bytes += other.lent_bytes;
    }

    fn take_off(&mut self, other: Size) {
        self.bytes -= other.bytes;
        self.heap_bytes -= other.heap_bytes;
        self.lent_bytes -= other.lent_bytes;
    }
}

/// A part of a frame, and the memory of the other end from which it is to be read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) id: WorkId,
    pub(crate) frame: Frame,
    pub(crate) part: Range<usize>,
    pub(crate) stag: Stag,
    pub(crate) offset: u64,
}

/// The orders of one connection, first those that were given first.
#[derive(Default)]
pub(crate) struct Orders {
    waiting: VecDeque<Waiting>,
    /// What is being cut into packets, or sent by an adapter.
    under_way: VecDeque<(WorkId, Size)>,
    /// What is to be read, when less is.
    reads: VecDeque<Read>,
    sent_bytes: u64,
    /// Orders that there have been, and those of them that are sent.
    given: u64,
    sent: u64,
    /// All of both.
    queued: Size,
}

impl Orders {
    /// To be sent once a read is done, if one is given.
    pub(crate) fn push(&mut self, order: Order, after: Option<WorkId>) {
        let size = Size::of(&order);
        self.queued.add(size);
        self.given += 1;
        self.waiting.push_back(Waiting { order, size, after });
    }

    /// The next one, which is under way under this name from now on; `None` when there is none, or it is not time. All reads are done up to
    /// the last one.
    pub(crate) fn next(&mut self, last_read: WorkId, id: WorkId) -> Option<Order> {
        let next = self.waiting.pop_front_if(|next| next.after.is_none_or(|read| read <= last_read))?;
        self.under_way.push_back((id, next.size));
        Some(next.order)
    }

    /// There was no room for the one that was given last.
    pub(crate) fn put_back(&mut self, order: Order) {
        if let Some((_, size)) = self.under_way.pop_back() {
            self.waiting.push_front(Waiting { order, size, after: None });
        }
    }

    /// The one that was given last cannot be sent.
    pub(crate) fn give_up_last(&mut self) {
        if let Some((_, size)) = self.under_way.pop_back() {
            self.queued.take_off(size);
        }
    }

    /// All of those under way are sent up to this one.
    pub(crate) fn note_sent(&mut self, id: WorkId) {
        while let Some((_, size)) = self.under_way.pop_front_if(|(under_way, _)| *under_way <= id) {
            self.sent_bytes += size.bytes as u64;
            self.sent += 1;
            self.queued.take_off(size);
        }
    }

    /// To be read when there is room.
    ///
    /// # Errors
    /// Its frame, when too much waits.
    pub(crate) fn push_read(&mut self, read: Read) -> Result<(), Frame> {
        if self.reads.len() >= READS_MAX {
            return Err(read.frame);
        }
        self.reads.push_back(read);
        Ok(())
    }

    /// What is to be read next.
    pub(crate) fn next_read(&mut self) -> Option<Read> {
        self.reads.pop_front()
    }

    /// There was no room for it.
    pub(crate) fn put_back_read(&mut self, read: Read) {
        self.reads.push_front(read);
    }

    /// Whether anything waits to be read.
    pub(crate) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// What waits is not sent and not read any more.
    pub(crate) fn forget_waiting(&mut self) {
        self.waiting.drain(..).for_each(|waiting| self.queued.take_off(waiting.size));
        self.reads.clear();
    }

    /// Nothing is sent any more.
    pub(crate) fn forget_all(&mut self) {
        *self = Orders { sent_bytes: self.sent_bytes, ..Orders::default() };
    }

    /// Whether nothing is to be sent any more.
    pub(crate) fn are_done(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Whether any is not under way yet.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many there have been: of the last of them, which number it has.
    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    /// Whether the one of this number is sent, as long as none was forgotten.
    pub(crate) fn is_sent(&self, number: u64) -> bool {
        self.sent >= number
    }

    pub(crate) fn bytes(&self) -> usize {
        self.queued.bytes
    }

    /// Bytes that were sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.queued.heap_bytes
    }

    pub(crate) fn lent_bytes(&self) -> usize {
        self.queued.lent_bytes
    }
}
