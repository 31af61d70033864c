//! Commands of a client: their numbers, and what becomes of them.

use std::collections::{BTreeMap, VecDeque};

use sanwire_ata::{Registers, TaskFile, status};
use sanwire_buffer::{Frame, Slices};

use super::types::{Command, CommandId, Order, OrderError, Outcome};
use crate::channel::{Opened, Piece, Rejected};
use crate::pieces;
use crate::server::sectors;
use crate::wire::Pdu;
use crate::wire::offer::{COMMANDS_MAX, Waiting};
use crate::wire::pdu::{Fields, SECTOR_BYTES};

/// Commands that are given, at the most, while a server may still be told of those before.
pub(super) const SAID_SPAN: u16 = 1 << 14;

/// A command with a number.
#[derive(Debug)]
struct Given {
    id: CommandId,
    order: Order,
    /// The end of the received data that lies farthest behind: nothing has been received beyond this offset, in bytes.
    data_end: usize,
    /// Bytes of the answer that are here, and how many there are.
    received: usize,
    total: Option<usize>,
    outcome: Option<Outcome>,
    /// It is held until it is known whether the disk is the same.
    is_held: bool,
}

/// An ended command.
pub(super) type Ended = (CommandId, Outcome, Option<Frame>, usize);

/// All commands that are not answered.
#[derive(Debug, Default)]
pub(super) struct Orders {
    given: BTreeMap<u16, Given>,
    queue: VecDeque<(CommandId, Order)>,
    oldest: u16,
    next: u16,
    next_id: u64,
    written_bytes: u64,
    /// Only probes are given.
    pub(super) is_held: bool,
}

impl Order {
    /// Whether it is one that can be given.
    fn check(&self) -> Result<(), OrderError> {
        let data_bytes = self.data.as_ref().map_or(0, Slices::len);
        match &self.command {
            Command::Scsi(cdb) if cdb.is_empty() || cdb.len() > 255 => Err(OrderError::Data),
            _ if self.data.is_some() && data_bytes == 0 => Err(OrderError::Data),
            Command::Scsi(_) => Ok(()),
            Command::Ata(task_file) => {
                let sectors = data_bytes.div_ceil(SECTOR_BYTES) as u64;
                if !data_bytes.is_multiple_of(SECTOR_BYTES) || self.data.is_some() && !says(task_file, sectors) {
                    return Err(OrderError::Data);
                }
                let end = task_file.lba + sectors.max(task_file.count.into());
                let is_short = end <= 1 << 24 && task_file.device & 0x0f == 0 && task_file.features <= 0xff;
                let fits = if task_file.is_long { end <= 1 << 48 } else { is_short && task_file.count <= 0xff };
                if fits { Ok(()) } else { Err(OrderError::Address) }
            }
        }
    }
}

/// Whether a command that writes is of so many sectors; zero stands for the most there can be. With data there is no room for the
/// upper byte of FEATURES.
fn says(task_file: &TaskFile, sectors: u64) -> bool {
    let count_max: u64 = if task_file.is_long { 65_536 } else { 256 };
    sectors <= count_max && sectors % count_max == u64::from(task_file.count) && task_file.features <= 0xff
}

impl Order {
    /// How much it writes, or may read.
    fn transfer_bytes(&self) -> u64 {
        let read_bytes = match &self.command {
            Command::Ata(task_file) => match sanwire_ata::Command::parse(task_file) {
                Some(sanwire_ata::Command::Read { .. }) => sectors(task_file) * SECTOR_BYTES as u64,
                _ => 0,
            },
            Command::Scsi(_) => self.room.as_ref().map_or(0, |room| room.len()) as u64,
        };
        read_bytes.max(self.data.as_ref().map_or(0, Slices::len) as u64)
    }
}

impl Orders {
    /// Takes an order.
    pub(super) fn order(&mut self, order: Order) -> Result<CommandId, OrderError> {
        order.check()?;
        self.next_id += 1;
        let id = CommandId(self.next_id);
        match order.is_probe {
            true => self.queue.push_front((id, order)),
            false => self.queue.push_back((id, order)),
        }
        Ok(id)
    }

    /// Takes out the commands whose turn it is, as far as they have, or read, more data than this.
    pub(super) fn take_longer(&mut self, transfer_max_bytes: u32) -> Vec<Ended> {
        let mut ended = Vec::new();
        while self.queue.front().is_some_and(|(_, order)| order.transfer_bytes() > transfer_max_bytes.into()) {
            let taken = self.queue.pop_front();
            ended.extend(taken.map(|(id, order)| (id, Outcome::TooLong, order.room, 0)));
        }
        ended
    }

    /// Gives the next command that waits, if there are a number and room for it.
    ///
    /// A server may learn late what was said of the commands up to `said`: numbers do not come near to those again before it has.
    pub(super) fn give(&mut self, write_room_bytes: u32, data_bytes: u16, said: Option<u16>) -> Option<Vec<Piece>> {
        let (_, order) = self.queue.front()?;
        let bytes = order.data.as_ref().map_or(0, Slices::len) as u64;
        // What is held has no room at the server, which has forgotten it; and it is held until probes are answered.
        let has_room = self.is_held || self.written_bytes == 0 || self.written_bytes + bytes <= write_room_bytes.into();
        let is_far = said.is_some_and(|said| self.next.wrapping_sub(said) >= SAID_SPAN);
        let has_number = self.next.wrapping_sub(self.oldest) < COMMANDS_MAX && !is_far;
        if self.is_held && !order.is_probe || !(has_room || bytes == 0) || !has_number {
            return None;
        }
        let (id, order) = self.queue.pop_front()?;
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.written_bytes += bytes;
        let given = Given { id, order, data_end: 0, received: 0, total: None, outcome: None, is_held: false };
        let pieces = given.pieces(number, data_bytes);
        self.given.insert(number, given);
        Some(pieces)
    }

    /// What the client waits for.
    pub(super) fn waiting(&self) -> Waiting {
        Waiting::new(self.oldest, self.next, self.given.keys().copied())
    }

    /// Whether anything was given, or waits to be.
    pub(super) fn is_empty(&self) -> bool {
        self.given.is_empty() && self.queue.is_empty()
    }

    /// The numbers of what was given, the oldest first.
    fn numbers(&self) -> Vec<u16> {
        let mut numbers: Vec<u16> = self.given.keys().copied().collect();
        numbers.sort_by_key(|number| number.wrapping_sub(self.oldest));
        numbers
    }

    /// There is a new connection: all that was given is given again. If the server has forgotten it, it is held first.
    pub(super) fn again(&mut self, is_forgotten: bool, data_bytes: u16) -> Vec<Piece> {
        self.is_held |= is_forgotten;
        let mut pieces = Vec::new();
        for number in self.numbers() {
            let Some(given) = self.given.get_mut(&number) else { continue };
            (given.data_end, given.received, given.total, given.outcome) = (0, 0, None, None);
            given.is_held |= is_forgotten && !given.order.is_probe;
            if !given.is_held {
                pieces.extend(given.pieces(number, data_bytes));
            }
        }
        pieces
    }

    /// The disk is the same: what may be repeated is, and the rest is lost.
    pub(super) fn resume(&mut self, data_bytes: u16) -> (Vec<Piece>, Vec<Ended>) {
        self.is_held = false;
        let (mut pieces, mut ended) = (Vec::new(), Vec::new());
        for number in self.numbers() {
            match self.given.get_mut(&number).filter(|given| given.is_held) {
                Some(given) if given.order.may_repeat => {
                    given.is_held = false;
                    pieces.extend(given.pieces(number, data_bytes));
                }
                Some(_) => ended.extend(self.end(number, (Outcome::Lost, 0))),
                None => {}
            }
        }
        (pieces, ended)
    }

    /// All that was given is lost, and what waits as well.
    pub(super) fn fail(&mut self) -> Vec<Ended> {
        self.is_held = false;
        let mut ended: Vec<Ended> = Vec::new();
        for number in self.numbers() {
            ended.extend(self.end(number, (Outcome::Lost, 0)));
        }
        ended.extend(self.queue.drain(..).map(|(id, order)| (id, Outcome::Lost, order.room, 0)));
        ended
    }

    /// All that is held is lost: what was given to the server that has forgotten it, and what waits behind that.
    pub(super) fn fail_held(&mut self) -> Vec<Ended> {
        let queued = self.queue.iter().filter(|(_, order)| self.is_held && !order.is_probe).map(|(id, _)| *id);
        let held = self.given.values().filter(|given| given.is_held).map(|given| given.id);
        let ids: Vec<CommandId> = held.chain(queued).collect();
        ids.into_iter().filter_map(|id| self.withdraw(id)).collect()
    }

    /// This command is lost, if it is held.
    pub(super) fn withdraw(&mut self, id: CommandId) -> Option<Ended> {
        let given = self.given.iter().find(|(_, given)| given.id == id && given.is_held).map(|(number, _)| *number);
        if let Some(number) = given {
            return self.end(number, (Outcome::Lost, 0));
        }
        let is_it = |(other, order): &(CommandId, Order)| *other == id && self.is_held && !order.is_probe;
        let (id, order) = self.queue.remove(self.queue.iter().position(is_it)?)?;
        Some((id, Outcome::Lost, order.room, 0))
    }

    /// How many are not answered.
    pub(super) fn len(&self) -> usize {
        self.given.len() + self.queue.len()
    }

    /// Numbers begin anew: for a session of which no server knows.
    pub(super) fn renumber(&mut self) {
        debug_assert!(self.given.is_empty());
        (self.oldest, self.next) = (0, 0);
    }

    /// As if so many commands had been given and answered.
    #[cfg(test)]
    pub(super) fn skip(&mut self, numbers: u16) {
        self.next = self.next.wrapping_add(numbers);
        self.oldest = self.next;
    }

    fn end(&mut self, number: u16, (outcome, data_bytes): (Outcome, usize)) -> Option<Ended> {
        let given = self.given.remove(&number)?;
        self.written_bytes -= given.order.data.as_ref().map_or(0, Slices::len) as u64;
        while self.oldest != self.next && !self.given.contains_key(&self.oldest) {
            self.oldest = self.oldest.wrapping_add(1);
        }
        Some((given.id, outcome, given.order.room, data_bytes))
    }

    /// Where the data of a packet of an answer belongs, if nothing has come there, nor behind it. Anybody may have sent the packet.
    pub(super) fn vacancy(&mut self, pdu: &Pdu) -> Option<&mut [u8]> {
        let given = self.given.get_mut(&pdu.command)?;
        let start = given.offset(pdu).filter(|start| *start >= given.data_end)?;
        let end = start.checked_add(pdu.body().data_bytes).filter(|end| *end > start)?;
        given.order.room.as_mut()?.get_mut(start..end)
    }

    /// A packet of an answer. Gives the command that it ends.
    pub(super) fn take(&mut self, pdu: &Pdu, opened: &Opened<'_>) -> Result<Option<Ended>, Rejected> {
        let Some(given) = self.given.get_mut(&pdu.command) else { return Ok(None) };
        given.take(pdu, opened)?;
        if given.total != Some(given.received) {
            return Ok(None);
        }
        let Some(outcome) = given.outcome.take() else { return Ok(None) };
        let data_bytes = given.received;
        Ok(self.end(pdu.command, (outcome, data_bytes)))
    }
}

impl Given {
    fn pieces(&self, number: u16, data_bytes: u16) -> Vec<Piece> {
        let (order, data_bytes) = (&self.order, data_bytes.into());
        match &order.command {
            Command::Ata(task_file) => {
                pieces::ata_command((number, task_file), order.data.as_ref(), (data_bytes, !order.more))
            }
            Command::Scsi(cdb) => {
                let room_bytes = order.room.as_ref().map_or(0, |room| room.len()) as u32;
                pieces::scsi_command((number, cdb), order.data.as_ref(), room_bytes, data_bytes)
            }
        }
    }

    /// Where the data of a packet of the answer belongs.
    fn offset(&self, pdu: &Pdu) -> Option<usize> {
        match (&pdu.fields, &self.order.command) {
            (Fields::Ata(register), Command::Ata(task_file)) => {
                let sectors = usize::try_from(register.lba.checked_sub(task_file.lba)?).ok()?;
                Some(sectors.saturating_mul(SECTOR_BYTES))
            }
            (Fields::Scsi(scsi), Command::Scsi(_)) => Some(scsi.offset_bytes as usize),
            _ => None,
        }
    }

    fn take(&mut self, pdu: &Pdu, opened: &Opened<'_>) -> Result<(), Rejected> {
        let data_bytes = opened.data_bytes();
        let (offset, outcome) = match (&pdu.fields, &self.order.command) {
            (Fields::Ata(register), Command::Ata(task_file)) => {
                let outcome = Outcome::Ata(registers(register, task_file));
                if data_bytes == 0 {
                    // A failure, perhaps after data: none of that counts.
                    self.received = 0;
                    (0, outcome)
                } else {
                    (self.offset(pdu).ok_or(Rejected::Violation)?, outcome)
                }
            }
            (Fields::Scsi(scsi), Command::Scsi(_)) => {
                let outcome = Outcome::Scsi { status: scsi.status, sense: opened.before.to_vec() };
                (scsi.offset_bytes as usize, outcome)
            }
            _ => return Err(Rejected::Violation),
        };
        let end = offset.saturating_add(data_bytes);
        if data_bytes > 0 {
            let Some(room) = self.order.room.as_mut().and_then(|room| room.get_mut(offset..end)) else {
                // It was not asked for so much: another connection would bring the same.
                (self.total, self.outcome) = (Some(self.received), Some(Outcome::Lost));
                return Ok(());
            };
            if opened.in_place_bytes == 0 {
                room.copy_from_slice(opened.data);
            }
            self.data_end = self.data_end.max(end);
            self.received += data_bytes;
        }
        if pdu.flags.last {
            self.total = Some(end);
            self.outcome = Some(outcome);
        }
        Ok(())
    }
}

/// The registers of an answer. Those of one with data say where that belongs; the command has succeeded.
fn registers(register: &crate::wire::Register, task_file: &TaskFile) -> Registers {
    if register.code & status::DRQ != 0 {
        return Registers { status: register.code & !status::DRQ, ..Registers::success(task_file) };
    }
    Registers {
        status: register.code,
        error: register.feature as u8,
        count: register.count,
        lba: register.lba,
        device: task_file.device,
    }
}

#[cfg(test)]
mod tests {
    use sanwire_ata::{DEVICE_LBA, command_code};

    use super::*;
    use crate::wire::pdu::{Flags, Register};
    use crate::wire::{DiskType, Header, PacketType};

    /// A packet of the answer to the first command, with so many sectors.
    fn packet(lba: u64, sectors: u16, last: bool) -> Pdu {
        let header = Header {
            from_server: true,
            error: None,
            packet_type: PacketType::Pdu,
            disk_type: DiskType::Sata,
            disk_address: 0,
            server_port: 1,
            client_port: 1,
        };
        let fields = Fields::Ata(Register { feature: 0, count: sectors, code: status::DRQ, lba, is_long: true });
        Pdu { header, flags: Flags { last, ..Flags::default() }, fields, command: 0, group: 0, serial: 0 }
    }

    fn take(orders: &mut Orders, pdu: &Pdu, data: &[u8], in_place_bytes: usize) -> Option<Ended> {
        orders.take(pdu, &Opened { before: &[], data, in_place_bytes }).unwrap()
    }

    fn is_vacant(orders: &mut Orders, lba: u64, sectors: u16) -> bool {
        let vacancy = orders.vacancy(&packet(lba, sectors, false));
        assert!(vacancy.as_ref().is_none_or(|vacancy| vacancy.len() == usize::from(sectors) * SECTOR_BYTES));
        vacancy.is_some()
    }

    #[test]
    fn a_vacancy_is_where_no_data_of_an_answer_has_come_nor_behind() {
        let mut orders = Orders::default();
        let command = Command::Ata(TaskFile::long(command_code::READ_DMA_EXT, 0, 4, [5, 0, 0, 0, 0, 0], DEVICE_LBA));
        let room = Frame::zeroed(4 * SECTOR_BYTES);
        let order = Order { command, data: None, room, more: false, may_repeat: true, is_probe: false };
        orders.order(order).unwrap();
        assert!(!is_vacant(&mut orders, 5, 1), "it was not given");
        orders.give(0, 1024, None).unwrap();
        for (lba, sectors) in [(4, 1), (9, 1), (8, 2), (5, 0), (1 << 40, 1)] {
            assert!(!is_vacant(&mut orders, lba, sectors), "{sectors} at {lba} are not in it");
        }
        assert!(is_vacant(&mut orders, 5, 4));
        orders.vacancy(&packet(6, 1, false)).unwrap().fill(2);
        assert!(is_vacant(&mut orders, 5, 4), "nothing has come yet");
        assert!(take(&mut orders, &packet(6, 1, false), &[], 512).is_none());
        assert!(!is_vacant(&mut orders, 5, 1) && !is_vacant(&mut orders, 6, 1) && is_vacant(&mut orders, 7, 2));
        assert!(take(&mut orders, &packet(5, 1, false), &[1; 512], 0).is_none());
        orders.vacancy(&packet(7, 2, true)).unwrap().fill(3);
        let (.., room, data_bytes) = take(&mut orders, &packet(7, 2, true), &[], 1024).unwrap();
        let expected = [[1u8; 512], [2; 512], [3; 512], [3; 512]].concat();
        assert_eq!((room.as_deref(), data_bytes), (Some(&expected[..]), 2048));
    }
}
