//! The answers to a client's commands. Packets are taken in order, so one comes in at a time.

use sanwire_buffer::Frame;
use sanwire_core::Protection;
use sanwire_exchange::{Answer, CommandId, ReplyHead};

use crate::wire::Header;
use crate::wire::message::{PROLOGUE_BYTES, Prologue};

/// All commands in transit.
pub(super) type Orders = sanwire_exchange::Orders<()>;

/// A command whose answer has arrived whole.
pub(super) struct Answered {
    pub(super) id: CommandId,
    pub(super) answer: Answer,
    pub(super) data_in: Option<Frame>,
    pub(super) data_in_bytes: usize,
}

/// What became of a packet.
pub(super) enum Placed {
    /// More must come, or nobody waits for it.
    Noted,
    /// The answer has arrived whole.
    Answered(Answered),
    /// The command was not executed: it must be asked again, better guarded.
    Weak(u16),
    /// It was guarded less than what it answers: no honest server sends that.
    Downgrade,
    /// The server breaks the rules.
    Violation,
}

/// An answer that has not come whole.
struct Partial {
    tag: u16,
    head: Vec<u8>,
    data_bytes: usize,
    have: usize,
    /// Nobody waits for it.
    is_unwanted: bool,
}

/// What is coming in.
#[derive(Default)]
pub(super) struct Intake(Option<Partial>);

impl Intake {
    /// Takes the next packet.
    pub(super) fn take(&mut self, orders: &mut Orders, header: &Header, payload: &[u8]) -> Placed {
        let (partial, data) = match self.0.take() {
            None if header.first && header.offset == 0 => {
                let Ok((prologue, head, data)) = Prologue::read(payload) else { return Placed::Violation };
                let is_unwanted = orders.get_mut(header.tag).is_none_or(|pending| !pending.asked);
                let data_bytes = prologue.data_bytes as usize;
                (Partial { tag: header.tag, head: head.to_vec(), data_bytes, have: 0, is_unwanted }, data)
            }
            Some(partial) if !header.first && partial.is_next(header) && !payload.is_empty() => (partial, payload),
            _ => return Placed::Violation,
        };
        if !partial.is_unwanted && is_too_weak(orders, header) {
            return Placed::Downgrade;
        }
        self.go_on(orders, header, partial, data)
    }

    fn go_on(&mut self, orders: &mut Orders, header: &Header, mut partial: Partial, data: &[u8]) -> Placed {
        let end = partial.have + data.len();
        if end > partial.data_bytes || (end == partial.data_bytes) != header.last {
            return Placed::Violation;
        }
        if !partial.is_unwanted && !data.is_empty() {
            let room = orders.get_mut(partial.tag).and_then(|pending| pending.order.data_in.as_mut());
            let Some(place) = room.and_then(|room| room.get_mut(partial.have..end)) else { return Placed::Violation };
            place.copy_from_slice(data);
        }
        partial.have = end;
        match header.last {
            true if partial.is_unwanted => Placed::Noted,
            true => finish(orders, &partial),
            false => {
                self.0 = Some(partial);
                Placed::Noted
            }
        }
    }
}

impl Partial {
    fn is_next(&self, header: &Header) -> bool {
        let at = PROLOGUE_BYTES + self.head.len() + self.have;
        header.tag == self.tag && header.offset as usize == at
    }
}

fn is_too_weak(orders: &Orders, header: &Header) -> bool {
    let protection: Protection = header.guarding.protection();
    orders.is_too_weak(header.tag, protection)
}

fn finish(orders: &mut Orders, partial: &Partial) -> Placed {
    let Ok(reply) = ReplyHead::read(&partial.head) else { return Placed::Violation };
    let Some(pending) = orders.get_mut(partial.tag) else { return Placed::Noted };
    let (id, lun, is_local) = (pending.id(), pending.order.lun, pending.is_local());
    // No unit answers what manages the server, and no server wants that guarded better than it was.
    if reply.number != id.number() || (reply.answer == Some(Answer::Administered)) != is_local {
        return Placed::Violation;
    }
    let Some(answer) = reply.answer else {
        // Who is asked for more than it was given learns something; a hint can make it ask better, never worse.
        let is_more = reply.unit.protection > pending.protection;
        pending.asked = false;
        orders.learn(lun, reply.unit);
        return if is_more { Placed::Weak(partial.tag) } else { Placed::Violation };
    };
    if !is_local {
        orders.learn(lun, reply.unit);
    }
    let Some(pending) = orders.answered(partial.tag, reply.receipt) else { return Placed::Noted };
    Placed::Answered(Answered { id, answer, data_in: pending.order.data_in, data_in_bytes: partial.data_bytes })
}
