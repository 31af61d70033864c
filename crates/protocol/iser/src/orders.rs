//! Orders that wait for the RDMA below, and what they take, with those that are being cut into packets there.

use std::collections::VecDeque;

use sanwire_buffer::Slices;
use sanwire_iwarp::{Order, WorkId};

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

/// The orders of one connection, first those that were given first.
#[derive(Default)]
pub(crate) struct Orders {
    waiting: VecDeque<Waiting>,
    /// What is being cut into packets.
    under_way: VecDeque<Size>,
    /// All of both.
    queued: Size,
}

impl Orders {
    /// To be sent once a read is done, if one is given.
    pub(crate) fn push(&mut self, order: Order, after: Option<WorkId>) {
        let size = Size::of(&order);
        self.queued.add(size);
        self.waiting.push_back(Waiting { order, size, after });
    }

    /// The next one, which is under way from now on; `None` when there is none, or it is not time. All reads are done up to the last one.
    pub(crate) fn next(&mut self, last_read: WorkId) -> Option<Order> {
        let next = self.waiting.pop_front_if(|next| next.after.is_none_or(|read| read <= last_read))?;
        self.under_way.push_back(next.size);
        Some(next.order)
    }

    /// The one that was given last cannot be sent.
    pub(crate) fn give_up_last(&mut self) {
        self.queued.take_off(self.under_way.pop_back().unwrap_or_default());
    }

    /// The first of those under way is packets by now.
    pub(crate) fn note_sent(&mut self) {
        self.queued.take_off(self.under_way.pop_front().unwrap_or_default());
    }

    /// What waits is not sent any more.
    pub(crate) fn forget_waiting(&mut self) {
        self.waiting.drain(..).for_each(|waiting| self.queued.take_off(waiting.size));
    }

    /// Whether any is not under way yet.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.queued.bytes
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.queued.heap_bytes
    }

    pub(crate) fn lent_bytes(&self) -> usize {
        self.queued.lent_bytes
    }
}
