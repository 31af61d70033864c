//! The commands of a client that are not answered yet, by their tags.

use std::collections::BTreeMap;

use sanwire_buffer::{Frame, Head, Slice};
use sanwire_core::limits::COMMANDS_IN_TRANSIT_MAX;
use sanwire_core::{Lun, Protection};

use crate::heads::{Ask, RequestHead, UnitTerms};
use crate::memory::SPAN_MAX;
use crate::receipts::Received;

/// The number of a command in its session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(u64);

impl CommandId {
    /// The number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What to ask a server.
#[derive(Debug)]
pub struct Order {
    /// Where.
    pub lun: Lun,
    /// What.
    pub ask: Ask,
    /// Whether it does the same when it is done again: the unit's type decides that. One that does not fails when nobody knows
    /// whether it was done.
    pub is_repeatable: bool,
    /// The data to go with it.
    pub data_out: Option<Slice>,
    /// Where the answer's data is to be put; its length is what the server may send.
    pub data_in: Option<Frame>,
}

/// A request to be sent.
#[derive(Debug)]
pub struct Asking {
    /// Its head.
    pub head: Head,
    /// Its data.
    pub data: Option<Slice>,
    /// How its packets are guarded.
    pub protection: Protection,
    /// Whether it is one to manage the server.
    pub is_local: bool,
    /// Whether its data may be compressed, as far as its logical unit has said so.
    pub is_compressible: bool,
}

/// A command that is not answered. `Arriving` is what its protocol keeps of an answer that has not come whole.
#[derive(Debug)]
pub struct Pending<Arriving> {
    number: u64,
    /// What was settled, and had, when it was given: see [`RequestHead`].
    settled_below: u64,
    receipts: u16,
    /// What was ordered.
    pub order: Order,
    /// The part of its answer that has arrived.
    pub arriving: Arriving,
    /// How it was asked on this connection; its answer is guarded no less.
    pub protection: Protection,
    /// Asked on this connection.
    pub asked: bool,
    /// Asked on some connection: it may have been executed.
    was_asked: bool,
    /// It waits until its commands are released.
    is_held: bool,
}

impl<Arriving> Pending<Arriving> {
    /// Its number in the session.
    #[must_use]
    pub fn id(&self) -> CommandId {
        CommandId(self.number)
    }

    /// Whether it manages the server.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.order.ask == Ask::Administer
    }
}

/// All commands in transit.
#[derive(Debug)]
pub struct Orders<Arriving> {
    slots: Vec<Option<Pending<Arriving>>>,
    /// The number of each slot's command, [`NO_NUMBER`] for a free one: the lowest is asked for with every request.
    slot_numbers: [u64; COMMANDS_IN_TRANSIT_MAX],
    free: Vec<u16>,
    next_number: u64,
    received: Received,
    /// What logical units say of their packets; those that have said nothing yet are guarded as strongly as can be, in plain.
    units: BTreeMap<Lun, UnitTerms>,
}

/// No command has this number.
const NO_NUMBER: u64 = u64::MAX;

impl<Arriving: Default> Default for Orders<Arriving> {
    fn default() -> Self {
        let tags = COMMANDS_IN_TRANSIT_MAX as u16;
        Orders {
            slots: (0..tags).map(|_| None).collect(),
            slot_numbers: [NO_NUMBER; COMMANDS_IN_TRANSIT_MAX],
            free: (0..tags).rev().collect(),
            next_number: 0,
            received: Received::default(),
            units: BTreeMap::new(),
        }
    }
}

impl<Arriving: Default> Orders<Arriving> {
    /// Whether nothing is in transit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Commands in transit.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes an order in, if a tag is free and fewer than `limit` are taken. Gives its tag.
    ///
    /// # Errors
    /// Gives the order back.
    pub fn insert(&mut self, order: Order, limit: usize) -> Result<(u16, CommandId), Order> {
        // The server keeps track of so many numbers only: one command that takes long makes the others wait.
        let settled_below = self.settled_below();
        if self.in_transit() >= limit || self.next_number - settled_below >= SPAN_MAX {
            return Err(order);
        }
        let Some(tag) = self.free.pop() else { return Err(order) };
        let number = self.next_number;
        self.next_number += 1;
        self.slot_numbers[usize::from(tag)] = number;
        self.slots[usize::from(tag)] = Some(Pending {
            number,
            settled_below,
            receipts: self.received.up_to(),
            order,
            arriving: Arriving::default(),
            protection: Protection::STRONGEST,
            asked: false,
            was_asked: false,
            is_held: false,
        });
        Ok((tag, CommandId(number)))
    }

    /// The request of a tag, to be sent (again).
    pub fn request(&mut self, tag: u16) -> Option<Asking> {
        let pending = self.slots.get_mut(usize::from(tag))?.as_mut()?;
        pending.asked = true;
        pending.was_asked = true;
        pending.arriving = Arriving::default();
        let lun = pending.order.lun;
        let unit = self.units.get(&lun).filter(|_| !pending.is_local());
        pending.protection = unit.map_or(Protection::STRONGEST, |unit| unit.protection);
        let data_in_max_bytes = pending.order.data_in.as_ref().map_or(0, |frame| frame.len() as u32);
        let head = RequestHead {
            number: pending.number,
            settled_below: pending.settled_below,
            receipts: pending.receipts,
            lun: lun.to_wire(),
            data_in_max_bytes,
            ask: pending.order.ask,
        };
        Some(Asking {
            head: head.write(),
            data: pending.order.data_out.clone(),
            protection: pending.protection,
            is_local: pending.is_local(),
            is_compressible: unit.is_some_and(|unit| unit.is_compressible),
        })
    }

    /// The command of a tag.
    pub fn get_mut(&mut self, tag: u16) -> Option<&mut Pending<Arriving>> {
        self.slots.get_mut(usize::from(tag))?.as_mut()
    }

    /// The whole answer to the command with this tag has arrived, with this receipt: takes the command out.
    pub fn answered(&mut self, tag: u16, receipt: u16) -> Option<Pending<Arriving>> {
        let pending = self.take(tag)?;
        self.received.note(receipt);
        Some(pending)
    }

    fn take(&mut self, tag: u16) -> Option<Pending<Arriving>> {
        let pending = self.slots.get_mut(usize::from(tag))?.take()?;
        self.free.push(tag);
        self.slot_numbers[usize::from(tag)] = NO_NUMBER;
        Some(pending)
    }

    /// A logical unit says this of its packets.
    pub fn learn(&mut self, lun: Lun, unit: UnitTerms) {
        self.units.insert(lun, unit);
    }

    /// The numbers of all commands in transit, ascending.
    #[must_use]
    pub fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.slots.iter().flatten().map(|pending| pending.number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn settled_below(&self) -> u64 {
        self.slot_numbers.iter().copied().fold(NO_NUMBER, u64::min).min(self.next_number)
    }

    /// All tags in use, in the order in which their commands were given.
    fn tags(&self) -> Vec<u16> {
        let used = (0..).zip(&self.slots).filter_map(|(tag, slot)| Some((slot.as_ref()?.number, tag)));
        let mut tags: Vec<(u64, u16)> = used.collect();
        tags.sort_unstable();
        tags.into_iter().map(|(_, tag)| tag).collect()
    }

    /// Nothing has been asked on this connection yet, and nothing is known of its logical units.
    pub fn unask(&mut self) {
        self.units.clear();
        self.slots.iter_mut().flatten().for_each(|pending| pending.asked = false);
    }

    /// The server has forgotten the session, and with it which of its replies have arrived.
    pub fn forget_receipts(&mut self) {
        self.received = Received::default();
        self.slots.iter_mut().flatten().for_each(|pending| pending.receipts = 0);
    }

    /// The server has forgotten the session: all commands that there are wait.
    pub fn hold(&mut self) {
        self.slots.iter_mut().flatten().for_each(|pending| pending.is_held = true);
    }

    /// No command waits any more.
    pub fn release(&mut self) {
        self.slots.iter_mut().flatten().for_each(|pending| pending.is_held = false);
    }

    /// The tags of commands that were not asked on this connection and are not held, in the order in which they were given.
    #[must_use]
    pub fn unasked_tags(&self) -> Vec<u16> {
        let is_unasked = |tag: &u16| {
            self.slots[usize::from(*tag)].as_ref().is_some_and(|pending| !pending.asked && !pending.is_held)
        };
        self.tags().into_iter().filter(is_unasked).collect()
    }

    /// Takes out the commands with more data than a server takes.
    pub fn take_larger_than(&mut self, transfer_max_bytes: u32) -> Vec<(CommandId, Order)> {
        self.take_where(|pending| {
            pending.order.data_out.as_ref().is_some_and(|data| data.len() > transfer_max_bytes as usize)
        })
    }

    /// Takes out the held commands for a logical unit.
    pub fn take_held(&mut self, lun: Lun) -> Vec<(CommandId, Order)> {
        self.take_where(|pending| pending.is_held && pending.order.lun == lun)
    }

    /// Takes out a command, if it is held.
    pub fn take_held_one(&mut self, number: u64) -> Vec<(CommandId, Order)> {
        self.take_where(|pending| pending.is_held && pending.number == number)
    }

    /// Takes out the commands that must not be executed again by a server that does not remember them.
    pub fn take_in_doubt(&mut self) -> Vec<(CommandId, Order)> {
        self.take_where(|pending| match pending.order.ask {
            Ask::Command(_) => pending.was_asked && !pending.order.is_repeatable,
            Ask::Manage { .. } => false,
            Ask::Administer => pending.was_asked,
        })
    }

    /// Takes out everything.
    pub fn take_all(&mut self) -> Vec<(CommandId, Order)> {
        self.take_where(|_| true)
    }

    fn take_where(&mut self, wanted: impl Fn(&Pending<Arriving>) -> bool) -> Vec<(CommandId, Order)> {
        let mut taken = Vec::new();
        for tag in self.tags() {
            if self.slots[usize::from(tag)].as_ref().is_some_and(&wanted) {
                taken.extend(self.take(tag).map(|pending| (pending.id(), pending.order)));
            }
        }
        taken
    }

    /// Whether a reply's packet is guarded less than its request was: no honest server sends one.
    #[must_use]
    pub fn is_too_weak(&self, tag: u16, protection: Protection) -> bool {
        let slot = self.slots.get(usize::from(tag)).and_then(Option::as_ref);
        slot.is_some_and(|pending| pending.asked && protection < pending.protection)
    }

    /// How a logical unit wants to be guarded, once it has said so.
    #[must_use]
    pub fn level(&self, lun: Lun) -> Option<Protection> {
        self.units.get(&lun).map(|unit| unit.protection)
    }

    /// Whether its data may be compressed, once it has said so.
    #[must_use]
    pub fn is_compressible(&self, lun: Lun) -> Option<bool> {
        self.units.get(&lun).map(|unit| unit.is_compressible)
    }
}
