//! The answers to a client's commands: their fragments, wherever they come from, and what they come to.

use sanwire_buffer::Frame;
use sanwire_core::Protection;
use sanwire_exchange::Pending;
pub use sanwire_exchange::{CommandId, Order};

use crate::assembly::Assembly;
use crate::compression::{expand, expanded_max_bytes};
use crate::vacancy::{Data, Vacancy};
use crate::wire::command::{Answer, Fragment, ReplyHead};
use crate::wire::{Header, Opcode, RawPacket, Tag};

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

/// The command that a fragment may be an answer to. What answers management is sealed as well: nothing else is taken for a part of it.
fn asked(orders: &mut Orders, header: Header) -> Option<&mut Pending<Arriving>> {
    let is_local = header.opcode == Opcode::LocalReply;
    orders.get_mut(header.tag.number()).filter(|pending| pending.asked && pending.is_local() == is_local)
}

/// Where the data of an encrypted packet belongs, as far as its header tells, if nothing has come there.
pub(super) fn vacancy_for<'a>(orders: &'a mut Orders, packet: &RawPacket<'_>) -> Option<Vacancy<'a>> {
    let (data_bytes, header) = (packet.sealed_data_bytes()?, packet.prefix.header);
    let Pending { arriving: Arriving { assembly, compressed }, order, .. } = asked(orders, header)?;
    let assembly = assembly.as_deref()?;
    let place = assembly.vacancy(header, data_bytes)?;
    let message = if assembly.is_compressed() { &mut compressed[..] } else { order.data_in.as_deref_mut()? };
    Vacancy::new(message, place)
}

/// Puts a fragment of a reply where it belongs. `Err`: the server breaks the rules; the command stays, and will be
/// asked again on another connection.
pub(super) fn place(
    orders: &mut Orders,
    header: Header,
    fragment: &Fragment,
    (head, data): (&[u8], Data<'_>),
) -> Result<Placed, ()> {
    let (tag, is_local) = (header.tag.number(), header.opcode == Opcode::LocalReply);
    let Some(pending) = asked(orders, header) else { return Ok(Placed::Noted) };
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
    fn put(&mut self, room: &mut Option<Frame>, fragment: &Fragment, data: Data<'_>) -> Result<(), ()> {
        let Data::Apart(data) = data else { return Ok(()) };
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

#[cfg(test)]
mod tests {
    use sanwire_core::Lun;
    use sanwire_scsi::{Status, build};

    use super::*;
    use crate::vacancy::Parts;
    use crate::wire::Prefix;
    use crate::wire::command::{Ask, FRAGMENT_BYTES, UnitTerms};
    use crate::wire::packet::TAG_BYTES;

    /// A packet of an answer, sealed by nobody.
    fn packet(header: Header, data_bytes: usize) -> Vec<u8> {
        let prefix = Prefix { header, protection: Protection::Aes128Gcm, epoch: 0, connection: 1, number: 1 };
        let body_bytes = FRAGMENT_BYTES + data_bytes + TAG_BYTES;
        [&prefix.write(body_bytes)[..], &vec![0; body_bytes]].concat()
    }

    /// Decrypts a packet of an answer that has these fields and data of this.
    fn decrypt<'p>(
        orders: &mut Orders,
        header: Header,
        fields: Fragment,
        data: &[u8],
        plain: &'p mut Vec<u8>,
    ) -> Parts<'p> {
        let packet = packet(header, data.len());
        let mut vacancy = vacancy_for(orders, &RawPacket::read(&packet).unwrap()).unwrap();
        let decrypted = vacancy.fill(|body| {
            body.copy_from_slice(&[&fields.write()[..], data].concat());
            Some(())
        });
        vacancy.parts(&decrypted.unwrap(), plain).unwrap()
    }

    #[test]
    fn data_that_was_decrypted_where_it_belongs_is_a_part_of_the_answer() {
        let (mut orders, mut plain) = (Orders::default(), Vec::new());
        let (lun, ask) = (Lun::default(), Ask::Command(build::test_unit_ready()));
        let data_in = Some(Frame::from(vec![0; 200]));
        let order = Order { lun, ask, is_repeatable: true, data_out: None, data_in };
        let (tag, id) = orders.insert(order, 1).unwrap();
        let tag = Tag::new(tag).unwrap();
        let header = |number: u16| Header { tag, last: number == 2, fragment: number, opcode: Opcode::HcbeReply };
        let fields = |data_offset: u32| Fragment { data_offset, data_length: 130, ..Fragment::default() };
        let is_vacant = |orders: &mut Orders, number: u16, data_bytes: usize| {
            let packet = packet(header(number), data_bytes);
            vacancy_for(orders, &RawPacket::read(&packet).unwrap()).is_some()
        };
        orders.request(tag.number()).unwrap();
        assert!(!is_vacant(&mut orders, 1, 50), "nothing is known of the answer");

        let unit = UnitTerms { protection: Protection::Checksum, is_compressible: false };
        let answer = Some(Answer::Command { status: Status::Good, sense: Vec::new() });
        let head = ReplyHead { number: id.number(), unit, receipt: 0, answer }.write();
        let first = Fragment { head_length: head.len() as u16, ..fields(0) };
        let placed = place(&mut orders, header(0), &first, (&head[..], Data::Apart(&[1; 50])));
        assert!(matches!(placed, Ok(Placed::Noted)));
        assert!(!is_vacant(&mut orders, 2, 60), "beyond the answer's data, though not beyond the memory for it");
        assert!(!is_vacant(&mut orders, 0, 50), "it has come");

        let (second, _, data) = decrypt(&mut orders, header(1), fields(50), &[2; 50], &mut plain);
        assert_eq!(data, Data::InPlace(50));
        let placed = place(&mut orders, header(1), &second, (&b""[..], data));
        assert!(matches!(placed, Ok(Placed::Noted)));
        let (last, _, data) = decrypt(&mut orders, header(2), fields(100), &[3; 30], &mut plain);
        assert_eq!(data, Data::InPlace(30));
        let Ok(Placed::Answered(answered)) = place(&mut orders, header(2), &last, (&b""[..], data)) else {
            panic!("it is whole");
        };
        let expected = [&[1u8; 50][..], &[2; 50], &[3; 30], &[0; 70]].concat();
        assert_eq!((answered.data_in.as_deref(), answered.data_in_bytes), (Some(&expected[..]), 130));
    }
}
