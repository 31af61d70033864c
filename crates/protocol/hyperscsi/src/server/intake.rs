//! Requests that are coming in on a connection: their fragments are put to their places, compressed data is expanded.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_buffer::{Frame, Region, Slice};
use sanwire_core::Instant;
use sanwire_core::quota::Account;

use super::connection::Request;
use crate::assembly::Assembly;
use crate::compression::{EXPANDED_MAX_BYTES, expand, expanded_max_bytes};
use crate::vacancy::{Data, Vacancy};
use crate::wire::command::{Fragment, RequestHead};
use crate::wire::{Header, Opcode, Prefix, Protection, RawPacket};

/// The memory for a message's data.
#[derive(Default)]
struct Room {
    /// For the data as it comes.
    frame: Option<Frame>,
    /// For compressed data when it is expanded: found before the first of it is taken, so that what has arrived can be used.
    expanded: Option<Frame>,
}

/// The head and the data of a request.
struct Whole {
    head: Vec<u8>,
    data: Option<Slice>,
    protection: Protection,
}

struct Incoming {
    assembly: Assembly,
    room: Room,
    expanded_kib: u16,
    protection: Protection,
    /// The packet by which it began.
    sequence: u64,
    /// When the last of it came.
    since: Instant,
}

/// A message's tag, and whether it is of management.
type Key = (u16, bool);

fn key(header: Header) -> Key {
    (header.tag.number(), header.opcode == Opcode::LocalRequest)
}

/// What became of a fragment.
pub(super) enum Taken {
    /// No memory is free: it will come again.
    NoMemory {
        /// What must be free.
        wanted: Wanted,
    },
    /// More must come.
    Noted,
    /// The request has arrived whole.
    Request(Request),
    /// The peer breaks the rules; the message is given up.
    Violation,
}

/// The memory that a message needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// For the data as it comes.
    data_bytes: usize,
    /// For the data when it is expanded.
    expanded_bytes: usize,
    /// What must be left besides, when something before it is missing.
    spare_bytes: usize,
}

impl Wanted {
    /// What must be free, for a message that is or is not the next one.
    pub(super) fn bytes(self, is_next: bool) -> usize {
        let needed = self.data_bytes + self.expanded_bytes;
        if is_next || needed == 0 { needed } else { needed.saturating_add(self.spare_bytes) }
    }

    /// Whether its frames are to be had: free bytes may lie in holes that are too small.
    pub(super) fn has_frames(self, memory: &Region) -> bool {
        memory.has_frames(self.data_bytes, self.expanded_bytes)
    }
}

/// A fragment with what is around it.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) prefix: &'a Prefix,
    pub(super) fragment: &'a Fragment,
    pub(super) head: &'a [u8],
    pub(super) data: Data<'a>,
    /// Everything before it has arrived.
    pub(super) is_next: bool,
}

/// The requests that are coming in.
pub(super) struct Intake {
    transfer_max_bytes: u32,
    /// Whether data may come compressed.
    takes_compressed: bool,
    /// By tags, and whether they are of management: nothing else is ever taken for a part of that.
    incoming: BTreeMap<Key, Incoming>,
    /// Data of requests that came in several packets.
    placed_bytes: u64,
}

impl Intake {
    pub(super) fn new(transfer_max_bytes: u32, takes_compressed: bool) -> Self {
        Intake { transfer_max_bytes, takes_compressed, incoming: BTreeMap::new(), placed_bytes: 0 }
    }

    /// From now on data may come compressed. There is no way back: what is under way comes as it was sent.
    pub(super) fn take_compressed(&mut self) {
        self.takes_compressed = true;
    }

    /// From now on messages may be so long; never less than before, as those under way come as they were cut.
    pub(super) fn limit_transfers(&mut self, transfer_max_bytes: u32) {
        self.transfer_max_bytes = transfer_max_bytes;
    }

    /// Whether nothing more has arrived for so long of a request that may go on coming: one that began before what is kept back.
    pub(super) fn is_abandoned(&self, kept_back_from: Option<u64>, now: Instant, after: Duration) -> bool {
        self.under_way(kept_back_from).any(|incoming| now.saturating_since(incoming.since) >= after)
    }

    /// How much data of requests has come to its place, and how much is to come of those that may go on coming.
    pub(super) fn placed_and_awaited_bytes(&self, kept_back_from: Option<u64>) -> (u64, u64) {
        (self.placed_bytes, self.under_way(kept_back_from).map(|incoming| incoming.assembly.awaited_bytes()).sum())
    }

    fn under_way(&self, kept_back_from: Option<u64>) -> impl Iterator<Item = &Incoming> {
        let may_come = move |sequence: u64| kept_back_from.is_none_or(|from| sequence < from);
        self.incoming.values().filter(move |incoming| may_come(incoming.sequence))
    }

    /// The client may send from now on, if it was not to before: what has begun to come goes on then.
    pub(super) fn go_on(&mut self, now: Instant) {
        self.incoming.values_mut().for_each(|incoming| incoming.since = now);
    }

    /// Where the data of an encrypted packet belongs, as far as its header tells, if nothing has come there.
    pub(super) fn vacancy_for(&mut self, packet: &RawPacket<'_>) -> Option<Vacancy<'_>> {
        let (data_bytes, header) = (packet.sealed_data_bytes()?, packet.prefix.header);
        let Incoming { assembly, room, .. } = self.incoming.get_mut(&key(header))?;
        let place = assembly.vacancy(header, data_bytes)?;
        Vacancy::new(room.frame.as_deref_mut()?, place)
    }

    /// Takes a fragment that is new. The account is of all that come in at once.
    pub(super) fn take(&mut self, piece: Piece<'_>, memory: &Region, account: &mut Account, now: Instant) -> Taken {
        let key = key(piece.prefix.header);
        let mut may_begin = || self.may_be(piece.fragment) && account.admits(self.incoming.len() as u64, 1);
        if !self.incoming.contains_key(&key) && !may_begin() {
            return Taken::Violation;
        }
        match self.place(piece, memory, now) {
            None => Taken::NoMemory { wanted: self.wanted(&piece) },
            Some(Ok(None)) => Taken::Noted,
            Some(Ok(Some(Whole { head, data, protection }))) => match RequestHead::read(&head) {
                Ok(head) => {
                    let (tag, is_local) = (piece.prefix.header.tag, key.1);
                    Taken::Request(Request { tag, head, data, protection, is_local })
                }
                Err(_) => Taken::Violation,
            },
            Some(Err(())) => {
                self.incoming.remove(&key);
                Taken::Violation
            }
        }
    }

    /// Whether a message may be as long as a fragment says.
    fn may_be(&self, fragment: &Fragment) -> bool {
        let expanded_min_bytes = expanded_max_bytes(fragment.expanded_kib).saturating_sub(1023);
        let is_plain = fragment.expanded_kib == 0;
        fragment.data_length <= self.transfer_max_bytes
            && (is_plain || self.takes_compressed && expanded_min_bytes <= self.transfer_max_bytes as usize)
    }

    /// Puts a fragment's data where it belongs. The outer `None`: no memory is free; `Err`: it contradicts others.
    fn place(&mut self, piece: Piece<'_>, memory: &Region, now: Instant) -> Option<Result<Option<Whole>, ()>> {
        let Piece { prefix: Prefix { header, protection, .. }, fragment, head, data, .. } = piece;
        let tag = key(*header);
        if !self.incoming.contains_key(&tag) {
            if header.fragment == 0
                && header.last
                && let Data::Apart(data) = data
            {
                return self.place_whole(piece, data, memory);
            }
            let room = self.room(&piece, memory)?;
            let (assembly, expanded_kib) = (Assembly::new(fragment), fragment.expanded_kib);
            let (protection, sequence) = (*protection, fragment.sequence);
            let incoming = Incoming { assembly, room, expanded_kib, protection, sequence, since: now };
            self.incoming.insert(tag, incoming);
        }
        let incoming = self.incoming.get_mut(&tag)?;
        incoming.since = now;
        incoming.protection = incoming.protection.min(*protection);
        let noted = incoming.assembly.note(*header, fragment, head, data.len());
        self.placed_bytes += data.len() as u64;
        let start = fragment.data_offset as usize;
        if noted.is_ok()
            && let Data::Apart(data) = data
            && let Some(place) = incoming.room.frame.as_mut().and_then(|frame| frame.get_mut(start..start + data.len()))
        {
            place.copy_from_slice(data);
        }
        match noted.and_then(|()| incoming.assembly.finish()) {
            Ok(None) => Some(Ok(None)),
            Ok(Some(head)) => self.incoming.remove(&tag).map(|incoming| incoming.finish(head).map(Some)),
            Err(_) => Some(Err(())),
        }
    }

    /// As `place`, for a message in one packet: compressed data is expanded out of it.
    fn place_whole(&self, piece: Piece<'_>, data: &[u8], memory: &Region) -> Option<Result<Option<Whole>, ()>> {
        let Piece { prefix, fragment, head, .. } = piece;
        if fragment.data_length as usize != data.len() {
            return Some(Err(()));
        }
        let room = self.room(&piece, memory)?;
        let data = match room {
            Room { expanded: Some(mut frame), .. } => match expand(data, fragment.expanded_kib, &mut frame) {
                Ok(length) => Some(frame.freeze().slice(0..length)),
                Err(_) => return Some(Err(())),
            },
            Room { frame: Some(mut frame), .. } => {
                frame.copy_from_slice(data);
                Some(frame.freeze())
            }
            _ => None,
        };
        Some(Ok(Some(Whole { head: head.to_vec(), data, protection: prefix.protection })))
    }

    /// What a message needs of which this is the first packet to come.
    ///
    /// Requests are sent one after the other, so the next one in order can always be finished. One that overtook others
    /// cannot, while they have no room: it only gets what leaves room for the largest of them.
    fn wanted(&self, piece: &Piece<'_>) -> Wanted {
        let Piece { prefix, fragment, .. } = piece;
        let most = self.transfer_max_bytes as usize;
        // What comes compressed in one packet is expanded out of it.
        let is_expanded_at_once = prefix.header.fragment == 0 && prefix.header.last && fragment.expanded_kib > 0;
        Wanted {
            data_bytes: if is_expanded_at_once { 0 } else { fragment.data_length as usize },
            expanded_bytes: expanded_max_bytes(fragment.expanded_kib).min(most),
            spare_bytes: if self.takes_compressed { most.max(2 * most.min(EXPANDED_MAX_BYTES)) } else { most },
        }
    }

    fn room(&self, piece: &Piece<'_>, memory: &Region) -> Option<Room> {
        let wanted = self.wanted(piece);
        if !piece.is_next && memory.free_bytes() < wanted.bytes(false) {
            return None;
        }
        let frame = |bytes: usize| if bytes == 0 { Some(None) } else { memory.frame(bytes).map(Some) };
        Some(Room { frame: frame(wanted.data_bytes)?, expanded: frame(wanted.expanded_bytes)? })
    }
}

impl Incoming {
    fn finish(self, head: Vec<u8>) -> Result<Whole, ()> {
        let Incoming { room: Room { frame, expanded }, expanded_kib, protection, .. } = self;
        let data = match expanded {
            None => frame.map(Frame::freeze),
            Some(mut expanded) => {
                let length = expand(frame.as_deref().unwrap_or(&[]), expanded_kib, &mut expanded).map_err(|_| ())?;
                Some(expanded.freeze().slice(0..length))
            }
        };
        Ok(Whole { head, data, protection })
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::quota::INCOMING_OF_SESSION;

    use super::*;
    use crate::vacancy::Parts;
    use crate::wire::Tag;
    use crate::wire::command::{Ask, FRAGMENT_BYTES};
    use crate::wire::packet::TAG_BYTES;

    /// The first of several packets.
    fn begin(intake: &mut Intake, number: u16, account: &mut Account) -> Taken {
        let opcode = if number < 128 { Opcode::HcbeRequest } else { Opcode::LocalRequest };
        let header = Header { tag: Tag::new(number % 128).unwrap(), last: false, fragment: 0, opcode };
        let prefix = Prefix { header, protection: Protection::Hash, epoch: 0, connection: 1, number: number.into() };
        let fragment = &Fragment { data_length: 100, head_length: 4, ..Fragment::default() };
        let piece = Piece { prefix: &prefix, fragment, head: b"head", data: Data::Apart(&[1; 50]), is_next: true };
        intake.take(piece, &Region::new(1 << 20).unwrap(), account, Instant::ZERO)
    }

    #[test]
    fn data_that_was_decrypted_where_it_belongs_is_a_part_of_the_request() {
        let (mut intake, mut account) = (Intake::new(1 << 20, false), Account::new(&INCOMING_OF_SESSION));
        let memory = Region::new(1 << 20).unwrap();
        let mut take = |intake: &mut Intake, prefix: &Prefix, (fragment, head, data): Parts<'_>| {
            let piece = Piece { prefix, fragment: &fragment, head, data, is_next: true };
            intake.take(piece, &memory, &mut account, Instant::ZERO)
        };
        let (lun, ask) = ([0; 8], Ask::Administer);
        let head = RequestHead { number: 0, settled_below: 0, receipts: 0, lun, data_in_max_bytes: 0, ask }.write();
        let tag = Tag::new(3).unwrap();
        let header = |number: u16| Header { tag, last: number == 1, fragment: number, opcode: Opcode::HcbeRequest };
        let [first, last] = [0, 1].map(|number| {
            let protection = Protection::Aes128Gcm;
            Prefix { header: header(number), protection, epoch: 0, connection: 1, number: number.into() }
        });
        let fields = Fragment { data_length: 100, head_length: head.len() as u16, ..Fragment::default() };
        assert!(matches!(take(&mut intake, &first, (fields, &head[..], Data::Apart(&[1; 60]))), Taken::Noted));

        let body_bytes = FRAGMENT_BYTES + 40 + TAG_BYTES;
        let packet = [&last.write(body_bytes)[..], &vec![0; body_bytes]].concat();
        let mut vacancy = intake.vacancy_for(&RawPacket::read(&packet).unwrap()).unwrap();
        let fields = Fragment { data_offset: 60, data_length: 100, ..Fragment::default() };
        let decrypted = vacancy.fill(|body| {
            body.copy_from_slice(&[&fields.write()[..], &[2; 40]].concat());
            Some(())
        });
        let mut plain = Vec::new();
        let parts = vacancy.parts(&decrypted.unwrap(), &mut plain).unwrap();
        assert_eq!(parts.2, Data::InPlace(40));
        let Taken::Request(request) = take(&mut intake, &last, parts) else { panic!("it is whole") };
        assert_eq!(request.data.as_deref(), Some(&[&[1u8; 60][..], &[2; 40]].concat()[..]));
        assert!(intake.vacancy_for(&RawPacket::read(&packet).unwrap()).is_none(), "nothing more is to come");
    }

    #[test]
    fn no_more_requests_come_in_at_once_than_a_session_may_have() {
        let (mut intake, mut account) = (Intake::new(1 << 20, false), Account::new(&INCOMING_OF_SESSION));
        let begun = (0..200).filter(|number| matches!(begin(&mut intake, *number, &mut account), Taken::Noted)).count();
        assert_eq!(begun as u64, INCOMING_OF_SESSION.limit);
        assert_eq!((account.usage().most, account.usage().refused), (Some(128), 72));
    }
}
