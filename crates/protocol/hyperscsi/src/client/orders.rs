//! The commands of a client that are not answered yet, by their tags.

use std::collections::BTreeMap;

use sanwire_buffer::{Frame, Head, Slice};
use sanwire_core::limits::COMMANDS_IN_TRANSIT_MAX;
use sanwire_core::{Lun, Protection};

use crate::assembly::Assembly;
use crate::compression::{expand, expanded_max_bytes};
use crate::receipts::Received;
use crate::server::SPAN_MAX;
use crate::wire::command::{Answer, Ask, Fragment, ReplyHead, RequestHead, UnitTerms};
use crate::wire::{Header, Opcode, Tag};

/// The number of a command in its session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(pub(super) u64);

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

/// A command whose answer has arrived whole.
pub(super) struct Answered {
    pub(super) id: CommandId,
    pub(super) answer: Answer,
    pub(super) data_in: Option<Frame>,
    pub(super) data_in_bytes: usize,
}

/// A request to be sent.
pub(super) struct Asking {
    pub(super) head: Head,
    pub(super) data: Option<Slice>,
    pub(super) protection: Protection,
    /// Whether it is one to manage the server.
    pub(super) is_local: bool,
    pub(super) is_compressible: bool,
}

/// What became of a fragment of a reply.
pub(super) enum Placed {
    /// More must come, or nobody waits for it.
    Noted,
    /// The answer has arrived whole.
    Answered(Answered),
    /// The command was not executed: it must be asked again, better guarded.
    Weak(Tag),
}

struct Pending {
    number: u64,
    /// What was settled, and had, when it was given: see [`RequestHead`].
    settled_below: u64,
    receipts: u16,
    order: Order,
    assembly: Option<Box<Assembly>>,
    /// The answer's data as far as it has come, when it is compressed.
    compressed: Vec<u8>,
    /// How it was asked on this connection; its answer is guarded no less.
    protection: Protection,
    /// Asked on this connection.
    asked: bool,
    /// Asked on some connection: it may have been executed.
    was_asked: bool,
    /// It waits for [`super::Client::release`].
    is_held: bool,
}

impl Pending {
    fn is_local(&self) -> bool {
        self.order.ask == Ask::Administer
    }
}

/// All commands in transit.
pub(super) struct Orders {
    slots: Vec<Option<Pending>>,
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

impl Orders {
    pub(super) fn new() -> Self {
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

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(super) fn in_transit(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes an order in, if a tag is free and fewer than `limit` are taken.
    pub(super) fn insert(&mut self, order: Order, limit: usize) -> Result<(Tag, CommandId), Order> {
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
            assembly: None,
            compressed: Vec::new(),
            protection: Protection::STRONGEST,
            asked: false,
            was_asked: false,
            is_held: false,
        });
        match Tag::new(tag) {
            Some(tag) => Ok((tag, CommandId(number))),
            None => unreachable!("fewer commands in transit than tags"),
        }
    }

    /// The request of a tag, to be sent (again).
    pub(super) fn request(&mut self, tag: Tag) -> Option<Asking> {
        let pending = self.slots.get_mut(usize::from(tag.number()))?.as_mut()?;
        pending.asked = true;
        pending.was_asked = true;
        pending.assembly = None;
        pending.compressed = Vec::new();
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

    /// The numbers of all commands in transit, ascending.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.slots.iter().flatten().map(|pending| pending.number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn settled_below(&self) -> u64 {
        self.slot_numbers.iter().copied().fold(NO_NUMBER, u64::min).min(self.next_number)
    }

    /// All tags in use, in the order in which their commands were given.
    pub(super) fn tags(&self) -> Vec<Tag> {
        let mut tags: Vec<(u64, Tag)> = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(tag, slot)| Some((slot.as_ref()?.number, Tag::new(tag as u16)?)))
            .collect();
        tags.sort_unstable();
        tags.into_iter().map(|(_, tag)| tag).collect()
    }

    /// Nothing has been asked on this connection yet, and nothing is known of its logical units.
    pub(super) fn unask(&mut self) {
        self.units.clear();
        self.slots.iter_mut().flatten().for_each(|pending| pending.asked = false);
    }

    /// The server has forgotten the session, and with it which of its replies have arrived.
    pub(super) fn forget_receipts(&mut self) {
        self.received = Received::default();
        self.slots.iter_mut().flatten().for_each(|pending| pending.receipts = 0);
    }

    /// The server has forgotten the session: all commands that there are wait.
    pub(super) fn hold(&mut self) {
        self.slots.iter_mut().flatten().for_each(|pending| pending.is_held = true);
    }

    /// No command waits any more.
    pub(super) fn release(&mut self) {
        self.slots.iter_mut().flatten().for_each(|pending| pending.is_held = false);
    }

    /// The tags of commands that were not asked on this connection and are not held, in the order in which they were given.
    pub(super) fn unasked_tags(&self) -> Vec<Tag> {
        let is_unasked = |tag: &Tag| {
            self.slots[usize::from(tag.number())].as_ref().is_some_and(|pending| !pending.asked && !pending.is_held)
        };
        self.tags().into_iter().filter(is_unasked).collect()
    }

    /// Takes out the commands with more data than a server takes.
    pub(super) fn take_larger_than(&mut self, transfer_max_bytes: u32) -> Vec<(CommandId, Order)> {
        self.take_where(|pending| {
            pending.order.data_out.as_ref().is_some_and(|data| data.len() > transfer_max_bytes as usize)
        })
    }

    /// Takes out the held commands for a logical unit.
    pub(super) fn take_held(&mut self, lun: Lun) -> Vec<(CommandId, Order)> {
        self.take_where(|pending| pending.is_held && pending.order.lun == lun)
    }

    /// Takes out a command, if it is held.
    pub(super) fn take_held_one(&mut self, number: u64) -> Vec<(CommandId, Order)> {
        self.take_where(|pending| pending.is_held && pending.number == number)
    }

    /// Takes out the commands that must not be executed again by a server that does not remember them.
    pub(super) fn take_in_doubt(&mut self) -> Vec<(CommandId, Order)> {
        self.take_where(|pending| match pending.order.ask {
            Ask::Command(_) => pending.was_asked && !pending.order.is_repeatable,
            Ask::Manage { .. } => false,
            Ask::Administer => pending.was_asked,
        })
    }

    /// Takes out everything.
    pub(super) fn take_all(&mut self) -> Vec<(CommandId, Order)> {
        self.take_where(|_| true)
    }

    fn take_where(&mut self, wanted: impl Fn(&Pending) -> bool) -> Vec<(CommandId, Order)> {
        let mut taken = Vec::new();
        for tag in self.tags() {
            let slot = &mut self.slots[usize::from(tag.number())];
            if let Some(pending) = slot.take_if(|pending| wanted(pending)) {
                self.free.push(tag.number());
                self.slot_numbers[usize::from(tag.number())] = NO_NUMBER;
                taken.push((CommandId(pending.number), pending.order));
            }
        }
        taken
    }

    /// Whether a reply's packet is guarded less than its request was: no honest server sends one.
    pub(super) fn is_too_weak(&self, tag: Tag, protection: Protection) -> bool {
        let slot = self.slots.get(usize::from(tag.number())).and_then(Option::as_ref);
        slot.is_some_and(|pending| pending.asked && protection < pending.protection)
    }

    /// How a logical unit wants to be guarded, once it has said so.
    pub(super) fn level(&self, lun: Lun) -> Option<Protection> {
        self.units.get(&lun).map(|unit| unit.protection)
    }

    /// Whether its data may be compressed, once it has said so.
    pub(super) fn is_compressible(&self, lun: Lun) -> Option<bool> {
        self.units.get(&lun).map(|unit| unit.is_compressible)
    }

    /// Puts a fragment of a reply where it belongs. `Err`: the server breaks the rules; the command stays, and will be
    /// asked again on another connection.
    pub(super) fn place(
        &mut self,
        header: Header,
        fragment: &Fragment,
        head: &[u8],
        data: &[u8],
    ) -> Result<Placed, ()> {
        let tag = usize::from(header.tag.number());
        let slot = self.slots.get_mut(tag).ok_or(())?;
        // What answers management is sealed as well: nothing else is taken for a part of it.
        let is_local = header.opcode == Opcode::LocalReply;
        let is_meant = |pending: &&mut Pending| pending.asked && pending.is_local() == is_local;
        let Some(pending) = slot.as_mut().filter(is_meant) else { return Ok(Placed::Noted) };
        pending.put(fragment, data)?;
        let whole = if header.fragment == 0 && header.last && pending.assembly.is_none() {
            (data.len() == fragment.data_length as usize).then(|| head.to_vec()).ok_or(())?
        } else {
            let assembly = pending.assembly.get_or_insert_with(|| Box::new(Assembly::new(fragment)));
            assembly.note(header, fragment, head, data.len()).map_err(|_| ())?;
            match assembly.finish().map_err(|_| ())? {
                Some(head) => head,
                None => return Ok(Placed::Noted),
            }
        };
        let reply = ReplyHead::read(&whole).map_err(|_| ())?;
        if reply.number != pending.number {
            return Err(());
        }
        if (reply.answer == Some(Answer::Administered)) != is_local {
            return Err(());
        }
        let Some(answer) = reply.answer else {
            // Who is asked for more than it was given learns something; a hint can make it ask better, never worse.
            let is_more = reply.unit.protection > pending.protection;
            pending.asked = false;
            self.units.insert(pending.order.lun, reply.unit);
            return if is_more { Ok(Placed::Weak(header.tag)) } else { Err(()) };
        };
        let data_in_bytes = pending.finish(fragment)?;
        let Some(pending) = slot.take() else { return Ok(Placed::Noted) };
        self.received.note(reply.receipt);
        if !is_local {
            self.units.insert(pending.order.lun, reply.unit);
        }
        self.free.push(tag as u16);
        self.slot_numbers[tag] = NO_NUMBER;
        Ok(Placed::Answered(Answered {
            id: CommandId(pending.number),
            answer,
            data_in: pending.order.data_in,
            data_in_bytes,
        }))
    }
}

impl Pending {
    /// Puts the data of a fragment where it belongs: into the caller's frame, or beside it until all of it can be expanded.
    fn put(&mut self, fragment: &Fragment, data: &[u8]) -> Result<(), ()> {
        if data.is_empty() {
            return Ok(());
        }
        let frame = self.order.data_in.as_mut().ok_or(())?;
        let length = fragment.data_length as usize;
        let expanded_min_bytes = expanded_max_bytes(fragment.expanded_kib).saturating_sub(1023);
        if length.max(expanded_min_bytes) > frame.len() {
            return Err(());
        }
        let place: &mut [u8] = if fragment.expanded_kib == 0 {
            frame
        } else {
            self.compressed.resize(length, 0);
            &mut self.compressed
        };
        let start = fragment.data_offset as usize;
        place.get_mut(start..start + data.len()).ok_or(())?.copy_from_slice(data);
        Ok(())
    }

    /// All data has arrived; how much of the frame it fills.
    fn finish(&mut self, fragment: &Fragment) -> Result<usize, ()> {
        match &mut self.order.data_in {
            Some(frame) if fragment.expanded_kib > 0 => {
                expand(&self.compressed, fragment.expanded_kib, frame).map_err(|_| ())
            }
            _ => Ok(fragment.data_length as usize),
        }
    }
}
