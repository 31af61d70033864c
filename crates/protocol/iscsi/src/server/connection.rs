//! One admitted connection: its stream in both directions, its status numbers, its signs of life.

use std::net::IpAddr;

use sanwire_buffer::{Packet, Slices};
use sanwire_core::quota::{Account, ISCSI_LENT_BYTES, ISCSI_UNSENT_BYTES, ISCSI_UNSENT_HEAP_BYTES, Usage};
use sanwire_core::{Headway, Instant};

use super::command_window::Order;
use super::hoard::Delivery;
use super::pieces::Pieces;
use super::retransmit_buffer::Memory;
use super::text::Exchange;
use super::unexpected::Unexpected;
use crate::ConnectionId;
use crate::datamover::Datamover;
use crate::login::{Admitted, Portal};
use crate::parameters::{ConnectionParameters, SessionParameters};
use crate::serial::Serial;
use crate::wire::field::{Field, U32};
use crate::wire::{Header, Opcode};

/// Bytes that are received at once, beyond what goes straight into a command's frame.
const STAGING_BYTES: usize = 64 << 10;

/// The longest data segment that a header can tell of, in bytes.
const DATA_MAX_BYTES: u32 = (1 << 24) - 1;

/// One connection of a session.
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    /// Its number in the session (CID).
    pub(super) cid: u16,
    pub(super) peer: IpAddr,
    pub(super) portal: Portal,
    pub(super) parameters: ConnectionParameters,
    pub(super) mover: Box<dyn Datamover>,
    /// What may wait there to be sent; while it is more, nothing is read.
    unsent: Account,
    unsent_heap: Account,
    /// Of the memory of stores.
    lent: Account,
    heap_max_bytes: u64,
    is_crammed: bool,
    /// What waits until less is to be sent.
    pub(super) pieces: Pieces,
    /// How what was taken out of it comes forward.
    pub(super) delivery: Delivery,
    /// How what is asked for comes.
    pub(super) headway: Headway,
    /// What may be asked for again.
    pub(super) memory: Memory,
    /// The number of the next status (StatSN).
    status_number: Serial,
    /// It is in the queue of those that have something to send.
    pub(super) is_ready: bool,
    /// A header waits for memory for its data.
    pub(super) is_stalled: bool,
    /// When the last bytes came.
    pub(super) heard_at: Instant,
    /// When the last Data-Out came, or the connection could be read from again.
    pub(super) data_at: Instant,
    /// What the initiator does not expect and has not acknowledged.
    pub(super) unexpected: Unexpected,
    /// When a NOP-In went out that is not answered.
    pub(super) pinged_at: Option<Instant>,
    /// A text exchange under way.
    pub(super) exchange: Option<Exchange>,
    /// Until when the initiator must have left, once it was asked to.
    pub(super) leave_by: Option<Instant>,
}

impl Connection {
    /// The connection of an admitted login; its answer has the status number that the login says.
    /// Outside the memory for data it may have so much for now.
    pub(super) fn new(id: ConnectionId, admitted: Admitted, heap_max_bytes: u64, now: Instant) -> Self {
        let staging_bytes = STAGING_BYTES.min(usize::try_from(heap_max_bytes).unwrap_or(STAGING_BYTES));
        let mut mover = admitted.datamover;
        mover.widen(staging_bytes.max(admitted.leftover.len()));
        Connection {
            id,
            cid: admitted.request.connection,
            peer: admitted.peer,
            portal: admitted.portal,
            parameters: admitted.connection,
            mover,
            unsent: Account::new(&ISCSI_UNSENT_BYTES),
            unsent_heap: Account::new(&ISCSI_UNSENT_HEAP_BYTES),
            lent: Account::new(&ISCSI_LENT_BYTES),
            heap_max_bytes,
            is_crammed: false,
            pieces: Pieces::default(),
            delivery: Delivery::default(),
            headway: Headway::default(),
            memory: Memory::default(),
            status_number: Serial(admitted.status_number),
            is_ready: false,
            is_stalled: false,
            heard_at: now,
            data_at: now,
            unexpected: Unexpected::default(),
            pinged_at: None,
            exchange: None,
            leave_by: None,
        }
    }

    /// Begins the full feature phase: both directions have the agreed digests from now on.
    /// What is sent is kept until it is acknowledged, where the session recovers it.
    pub(super) fn begin(&mut self, session: &SessionParameters, commands_max: u32) {
        self.memory.is_on = session.error_recovery_level > 0;
        self.unexpected = Unexpected::new(session.unexpected_max);
        self.mover.begin(&self.parameters, commands_max as usize);
    }

    /// Takes what came behind the login.
    pub(super) fn take_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = self.mover.take(bytes);
            if taken == 0 {
                // It has failed: nothing that comes is looked at.
                return;
            }
            bytes = &bytes[taken..];
        }
    }

    /// Whether there may be an answer that nobody has pushed: RDMA has some of its own.
    pub(super) fn has_answered(&self) -> bool {
        self.mover.reaches_memory() && !self.mover.is_empty()
    }

    /// The longest Data-In, in bytes: what is written straight into an initiator's memory is one.
    pub(super) fn data_in_max_bytes(&self) -> u32 {
        if self.mover.reaches_memory() { DATA_MAX_BYTES } else { self.parameters.send_data_max_bytes }
    }

    /// The longest data of a PDU of this header that comes in.
    pub(super) fn receive_max_bytes(&self, header: &Header) -> usize {
        let was_read = self.mover.reaches_memory() && header.opcode() == Some(Opcode::DataOut);
        if was_read { DATA_MAX_BYTES as usize } else { self.parameters.receive_data_max_bytes as usize }
    }

    /// Whether no bytes are to be received.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_stalled || self.is_crammed
    }

    /// Whether so much is to be sent that nothing is looked at that has arrived. Then [`Connection::pop`] says when it is. From now on the
    /// connection may have so much outside the memory for data.
    pub(super) fn is_crammed(&mut self, heap_max_bytes: u64) -> bool {
        (self.heap_max_bytes, self.memory.heap_max_bytes) = (heap_max_bytes, heap_max_bytes);
        let (unsent, heap) = (self.mover.queued_bytes() as u64, self.mover.heap_bytes() as u64);
        let has_room = self.unsent.admits(unsent, 0) && self.unsent_heap.admits_up_to(heap_max_bytes, heap, 0);
        self.is_crammed |= !has_room;
        self.is_crammed
    }

    /// Whether an answer may share what a store keeps in memory. What is kept for recovery is counted as memory for data.
    pub(super) fn may_share(&mut self) -> bool {
        !self.memory.is_on && self.lent.admits(self.mover.lent_bytes() as u64, 0)
    }

    /// The next bytes to send, and whether what has arrived is to be looked at again: half of what may wait is sent.
    pub(super) fn pop(&mut self) -> (Option<Packet>, bool) {
        let packet = self.mover.pop();
        self.delivery.took(packet.as_ref());
        let (unsent, heap) = (self.mover.queued_bytes() as u64, self.mover.heap_bytes() as u64);
        let has_room = self.unsent.has_room(unsent, unsent) && self.unsent_heap.has_room(heap, heap);
        let is_relieved = self.is_crammed && has_room && 2 * heap <= self.heap_max_bytes;
        self.is_crammed &= !is_relieved;
        (packet, is_relieved)
    }

    /// How the quotas of what waits and of what is kept are used.
    pub(super) fn usages(&self) -> [Usage; 5] {
        let [kept, kept_heap] = self.memory.usages();
        [self.unsent.usage(), self.unsent_heap.usage(), kept, kept_heap, self.lent.usage()]
    }

    /// The initiator says which status it expects next.
    pub(super) fn acknowledge(&mut self, expected: Serial) {
        // What is ahead says nothing.
        if expected <= self.status_number {
            self.unexpected.acknowledge(expected);
        }
        if self.memory.is_on {
            self.memory.acknowledge(expected, self.status_number);
        }
    }

    /// The number that the next status gets.
    pub(super) fn status_number(&self) -> Serial {
        self.status_number
    }

    /// Queues a PDU that carries no status.
    pub(super) fn push(&mut self, mut header: Header, data: Option<Slices>, order: &Order) {
        stamp(&mut header, self.status_number, order);
        self.mover.push(header, data);
    }

    /// Queues a PDU that takes a status number.
    pub(super) fn push_status(&mut self, mut header: Header, data: Option<Slices>, order: &Order) {
        stamp(&mut header, self.status_number, order);
        self.memory.keep(self.status_number, header, data.as_ref());
        self.status_number = self.status_number.next();
        self.mover.push(header, data);
    }

    /// Queues one that the initiator does not expect, once it takes more of them; one more might find no receive, and end the connection.
    pub(super) fn push_unexpected(&mut self, header: Header, data: Option<Slices>, order: &Order) {
        self.unexpected.wait(header, data);
        self.push_waiting(order);
    }

    /// Queues what has waited for that; `false` if there was nothing.
    pub(super) fn push_waiting(&mut self, order: &Order) -> bool {
        let mut has_pushed = false;
        while let Some((header, data)) = self.unexpected.next(self.status_number) {
            self.push_status(header, data, order);
            has_pushed = true;
        }
        has_pushed
    }
}

/// StatSN, ExpCmdSN and MaxCmdSN: they stand at the same place in all that targets send.
pub(super) fn stamp(header: &mut Header, status_number: Serial, order: &Order) {
    U32::<24>::set(header, status_number.0);
    U32::<28>::set(header, order.expected().0);
    U32::<32>::set(header, order.max().0);
}
