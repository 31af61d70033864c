//! What goes out: orders and reads, as far as there is room for them below.

use std::ops::Range;

use sanwire_buffer::{Frame, Head, Packet, Slice, Slices};
use sanwire_iwarp::{Order, Refusal, Refused, SendKind, Stag, WorkId};

use super::Carrier;
use super::below::Below;
use crate::orders::Read;
use crate::queue_pair::QueuePair;

impl Carrier {
    /// Has a message sent, once a read is done if one is given.
    pub(crate) fn send(&mut self, head: Head, data: Option<Slices>, invalidate: Option<Stag>, after: Option<WorkId>) {
        self.push(Order::Send { kind: SendKind { solicited: true, invalidate }, head, data }, after);
    }

    /// Has data written into the other end's memory. Gives the order's number.
    pub(crate) fn write(&mut self, stag: Stag, offset: u64, data: Slices) -> u64 {
        self.push(Order::Write { stag, offset, data }, None);
        self.orders.given()
    }

    /// Whether an adapter is done with an order of this number, or a stream has it: what is said later comes behind it there.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.orders.is_sent(number)
    }

    /// Has an RDMA Write of no bytes sent, which needs no memory at the other end (RFC 5041 5.3), if nothing waits to be sent. It is for
    /// software that has slept: adapters do not.
    pub(crate) fn nudge(&mut self) {
        let Below::Stream(stream) = &self.below else { return };
        if stream.is_established() && stream.packet.is_none() && !self.orders.has_waiting() {
            self.write(Stag(0), 0, Slice::from(Vec::new()).into());
        }
    }

    /// An adapter is given it when its owner has pushed all that there is.
    fn push(&mut self, order: Order, after: Option<WorkId>) {
        if self.is_over() {
            return;
        }
        self.orders.push(order, after);
        match &mut self.below {
            Below::Stream(_) => self.go_on(),
            Below::Adapter(adapter) => adapter.is_due = true,
        }
    }

    /// Reads the other end's memory into a part of a frame.
    ///
    /// # Errors
    /// The frame, when that cannot be.
    pub(crate) fn read(&mut self, frame: Frame, part: Range<usize>, stag: Stag, offset: u64) -> Result<WorkId, Frame> {
        let id = self.next_work();
        let read = Read { id, frame, part, stag, offset };
        if self.orders.has_reads() {
            self.orders.push_read(read)?;
        } else if let Err((refusal, read)) = self.begin_read(read) {
            if refusal != Refusal::Full {
                return Err(read.frame);
            }
            self.orders.push_read(read)?;
        }
        self.go_on();
        Ok(id)
    }

    fn begin_read(&mut self, read: Read) -> Result<(), (Refusal, Read)> {
        let Read { id, frame, part, stag, offset } = read;
        let begun = self.below.pair_mut().read(id, frame, part.clone(), stag, offset);
        begun.map_err(|Refused { refusal, given: frame }| (refusal, Read { id, frame, part, stag, offset }))
    }

    /// Hands down what there is room for: of a stream, as much as makes the next packet.
    pub(super) fn go_on(&mut self) {
        self.read_on();
        match &self.below {
            Below::Stream(_) => self.look_ahead(),
            Below::Adapter(_) => while self.order_next() {},
        }
    }

    /// Begins reads that have waited, in their order.
    fn read_on(&mut self) {
        while let Some(read) = self.orders.next_read() {
            match self.begin_read(read) {
                Ok(()) => {}
                Err((Refusal::Full, read)) => return self.orders.put_back_read(read),
                Err(_) => return self.fail("something cannot be read from its memory"),
            }
        }
    }

    /// Hands the next order down; `false` when there is none, or it is not time.
    fn order_next(&mut self) -> bool {
        if !self.below.pair().is_established() {
            return false;
        }
        let id = self.next_work();
        let Some(order) = self.orders.next(self.last_read, id) else { return false };
        match self.below.pair_mut().order(order, Some(id)) {
            Ok(()) => true,
            Err(Refused { refusal: Refusal::Full, given }) => {
                self.orders.put_back(given);
                false
            }
            Err(_) => {
                // What follows would tell of it as if it had been sent.
                self.orders.give_up_last();
                self.fail("something cannot be sent to it");
                false
            }
        }
    }

    /// Has the next packet of a stream ready, if there is one.
    fn look_ahead(&mut self) {
        while self.is_idle() {
            let Below::Stream(stream) = &mut self.below else { return };
            stream.packet = stream.rdma.poll_transmit();
            self.drain();
            if self.is_idle() && !self.order_next() {
                return;
            }
        }
    }

    fn next_work(&mut self) -> WorkId {
        self.last_work += 1;
        WorkId(self.last_work)
    }

    /// The next bytes to send. An adapter has none: it sends by itself what it is given.
    pub(crate) fn pop(&mut self) -> Option<Packet> {
        let packet = match &mut self.below {
            Below::Stream(stream) => stream.packet.take(),
            Below::Adapter(adapter) => {
                adapter.is_due = false;
                None
            }
        };
        self.go_on();
        if let Below::Stream(stream) = &mut self.below
            && packet.is_none()
            && self.is_leaving
        {
            // Nobody waits for what is still to come.
            drop(stream.rdma.reclaim());
        }
        packet
    }

    /// Whether [`Carrier::pop`] need not be asked.
    pub(crate) fn is_idle(&self) -> bool {
        self.below.is_idle()
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.orders.bytes()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.orders.heap_bytes()
    }

    pub(crate) fn lent_bytes(&self) -> usize {
        self.orders.lent_bytes()
    }
}
