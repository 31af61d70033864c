//! The answers to a client's commands: their fragments, wherever they come from, and what they come to.

use sanwire_buffer::Frame;
use sanwire_core::Protection;
pub use sanwire_exchange::{CommandId, Order};

use crate::assembly::Assembly;
use crate::compression::{expand, expanded_max_bytes};
use crate::wire::command::{Answer, Fragment, ReplyHead};
use crate::wire::{Header, Opcode, Tag};

pub(super) use sanwire_exchange::Asking;

/// A command whose answer has arrived whole.
pub(super) struct Answered {
    pub(super) id: CommandId,
    pub(super) answer: Answer,
    pub(super) data_in: Option<Frame>,
    pub(super) data_in_bytes: usize,
}

/// What became of a fragment of a reply.
pub(super) enum Placed {
    /// More must come, or nobody waits for it.
    Noted,
    /// The answer has arrived whole.
    Answered(Answered),
    /// The command was not executed: it must be asked again, better guarded.
    Weak(u16),
}

/// An answer that has not come whole.
#[derive(Default)]
pub(super) struct Arriving {
    assembly: Option<Box<Assembly>>,
    /// The answer's data as far as it has come, when it is compressed.
    compressed: Vec<u8>,
}

/// All commands in transit.
pub(super) type Orders = sanwire_exchange::Orders<Arriving>;

/// Whether a reply's packet is guarded less than its request was.
pub(super) fn is_too_weak(orders: &Orders, tag: Tag, protection: Protection) -> bool {
    orders.is_too_weak(tag.number(), protection)
}

/// Puts a fragment of a reply where it belongs. `Err`: the server breaks the rules; the command stays, and will be
/// asked again on another connection.
pub(super) fn place(
    orders: &mut Orders,
    header: Header,
    fragment: &Fragment,
    (head, data): (&[u8], &[u8]),
) -> Result<Placed, ()> {
    let tag = header.tag.number();
    // What answers management is sealed as well: nothing else is taken for a part of it.
    let is_local = header.opcode == Opcode::LocalReply;
    let pending = orders.get_mut(tag).filter(|pending| pending.asked && pending.is_local() == is_local);
    let Some(pending) = pending else { return Ok(Placed::Noted) };
    let (id, lun) = (pending.id(), pending.order.lun);
    let (arriving, room) = (&mut pending.arriving, &mut pending.order.data_in);
    arriving.put(room, fragment, data)?;
    let Some(whole) = arriving.note(header, fragment, (head, data.len()))? else { return Ok(Placed::Noted) };
    let reply = ReplyHead::read(&whole).map_err(|_| ())?;
    if reply.number != id.number() || (reply.answer == Some(Answer::Administered)) != is_local {
        return Err(());
    }
    let Some(answer) = reply.answer else {
        // Who is asked for more than it was given learns something; a hint can make it ask better, never worse.
        let is_more = reply.unit.protection > pending.protection;
        pending.asked = false;
        orders.learn(lun, reply.unit);
        return if is_more { Ok(Placed::Weak(tag)) } else { Err(()) };
    };
    let data_in_bytes = arriving.finish(room, fragment)?;
    let Some(pending) = orders.answered(tag, reply.receipt) else { return Ok(Placed::Noted) };
    if !is_local {
        orders.learn(lun, reply.unit);
    }
    Ok(Placed::Answered(Answered { id, answer, data_in: pending.order.data_in, data_in_bytes }))
}

impl Arriving {
    /// The head, once all fragments are there.
    fn note(
        &mut self,
        header: Header,
        fragment: &Fragment,
        (head, data_bytes): (&[u8], usize),
    ) -> Result<Option<Vec<u8>>, ()> {
        if header.fragment == 0 && header.last && self.assembly.is_none() {
            return (data_bytes == fragment.data_length as usize).then(|| Some(head.to_vec())).ok_or(());
        }
        let assembly = self.assembly.get_or_insert_with(|| Box::new(Assembly::new(fragment)));
        assembly.note(header, fragment, head, data_bytes).map_err(|_| ())?;
        assembly.finish().map_err(|_| ())
    }

    /// Puts the data of a fragment where it belongs: into the caller's frame, or beside it until all of it can be expanded.
    fn put(&mut self, room: &mut Option<Frame>, fragment: &Fragment, data: &[u8]) -> Result<(), ()> {
        if data.is_empty() {
            return Ok(());
        }
        let frame = room.as_mut().ok_or(())?;
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
    fn finish(&mut self, room: &mut Option<Frame>, fragment: &Fragment) -> Result<usize, ()> {
        match room {
            Some(frame) if fragment.expanded_kib > 0 => {
                expand(&self.compressed, fragment.expanded_kib, frame).map_err(|_| ())
            }
            _ => Ok(fragment.data_length as usize),
        }
    }
}
