//! A disk that takes ATA commands, for a driver that speaks SCSI.

use std::collections::{BTreeMap, VecDeque};

use sanwire_ata::{Host, IDENTIFY_BYTES, IdentifyDevice, Plan, Registers, Told, Work};
use sanwire_buffer::{Frame, Slices};
use sanwire_core::Instant;
use sanwire_hdsp::{Client, Command, CommandId, Order as WireOrder, Outcome};
use sanwire_scsi::{Sense, Status};

use super::super::{Answer, Event, Failure, Order, OrderId};

/// The only sectors that the protocol knows.
const SECTOR_BYTES: u32 = 512;

/// Orders have numbers of their own: they wait for each other before they are given.
const ORDERS_BASE: u64 = 1 << 62;

/// Sectors of one command, at the most.
const SECTORS_MAX: u32 = u16::MAX as u32;

/// An order that is given when it is known whether another write follows it.
struct Pending {
    id: OrderId,
    work: Work,
    order: WireOrder,
}

/// An order under way.
struct Running {
    id: OrderId,
    work: Work,
}

/// The disk, as it is known, and what was ordered of it.
pub(super) struct AtaDisk {
    name: String,
    host: Option<Host>,
    /// The question what the disk is.
    asking: Option<CommandId>,
    pending: VecDeque<Pending>,
    /// By the numbers that the protocol has given.
    running: BTreeMap<u64, Running>,
    next: u64,
    /// Of orders that cannot be given.
    refused: Vec<Event>,
}

impl AtaDisk {
    /// One that is called so.
    pub(super) fn new(name: String) -> Self {
        AtaDisk {
            name,
            host: None,
            asking: None,
            pending: VecDeque::new(),
            running: BTreeMap::new(),
            next: ORDERS_BASE,
            refused: Vec::new(),
        }
    }

    /// Asks the disk what it is.
    pub(super) fn identify(&mut self, protocol: &mut Client, now: Instant) {
        let order = WireOrder {
            command: Command::Ata(Host::identify()),
            data: None,
            room: Frame::zeroed(IDENTIFY_BYTES),
            more: false,
            may_repeat: true,
            is_probe: true,
        };
        self.asking = protocol.order(order, now).ok();
    }

    /// Whether this is the question what the disk is.
    pub(super) fn is_asking(&self, id: CommandId) -> bool {
        self.asking == Some(id)
    }

    /// The question has ended; `None`: without an answer. It is asked again by the next connection.
    pub(super) fn identified(&mut self, outcome: &Outcome, data: Option<&[u8]>) -> Option<Result<(), String>> {
        self.asking = None;
        let told = match (outcome, data) {
            (Outcome::Ata(registers), Some(data)) if registers.is_success() => IdentifyDevice::parse(data),
            (Outcome::Ata(_), _) => return Some(Err("the server does not tell what its disk is".to_owned())),
            _ => return None,
        };
        Some(match told {
            Ok(disk) if disk.sector_bytes == SECTOR_BYTES => {
                self.host = Host::new(&self.name, disk);
                self.host.as_ref().map(|_| ()).ok_or_else(|| format!("{} is no name of a disk", self.name))
            }
            Ok(disk) => {
                Err(format!("the disk's sectors have {} bytes; they must have {SECTOR_BYTES}", disk.sector_bytes))
            }
            Err(error) => Err(error.to_string()),
        })
    }

    /// Takes an order. What is only a question is answered at once, by what is known of the disk.
    pub(super) fn order(&mut self, order: Order, events: &mut VecDeque<Event>) -> OrderId {
        let id = OrderId(self.next);
        self.next += 1;
        let Order { cdb, is_repeatable, data_out, data_in, .. } = order;
        let Some(host) = &self.host else {
            events.push_back(Event::Failed { id, failure: Failure::InDoubt, data_in });
            return id;
        };
        let plan = host.plan(&cdb, data_out.as_deref().unwrap_or_default());
        let work = match plan {
            Plan::Do(work) if has_room(&work, data_in.as_ref()) => work,
            Plan::Do(_) => {
                let sense = Sense::invalid_field_in_cdb(0, None).to_fixed();
                events.push_back(told(id, Told { status: Status::CheckCondition, sense, data: Vec::new() }, data_in));
                return id;
            }
            Plan::Tell(answer) => {
                events.push_back(told(id, answer, data_in));
                return id;
            }
        };
        let task_file = host.command(&work, 0, work.parts() as u16);
        let data = match &work {
            Work::Write { .. } => data_out.map(Slices::from),
            Work::Trim { ranges, .. } => Some(Slices::from(ranges.clone())),
            Work::Read(_) | Work::Verify(_) | Work::Flush => None,
        };
        let order = WireOrder {
            command: Command::Ata(task_file),
            data,
            room: data_in,
            more: false,
            may_repeat: is_repeatable,
            is_probe: false,
        };
        self.pending.push_back(Pending { id, work, order });
        id
    }

    /// Gives what was ordered since: writes of neighbouring sectors in a row say so, and go to the disk together.
    /// While it is not known which disk there is (`is_fresh`), nothing of it is a question about that, and all is held.
    pub(super) fn give(&mut self, protocol: &mut Client, is_fresh: bool, now: Instant) {
        while let Some(Pending { id, work, order }) = self.pending.pop_front() {
            let more = self.pending.front().is_some_and(|next| goes_on(&work, &next.work));
            let order = WireOrder { more, is_probe: protocol.is_held() && !is_fresh, ..order };
            match protocol.order(order, now) {
                Ok(command) => drop(self.running.insert(command.number(), Running { id, work })),
                Err(error) => {
                    let failure = Failure::Protocol(error.to_string());
                    self.refused.push(Event::Failed { id, failure, data_in: None });
                }
            }
        }
    }

    /// What became of orders that could not be given.
    pub(super) fn poll_refused(&mut self) -> Option<Event> {
        self.refused.pop()
    }

    /// Orders that are not given yet.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// An order that was given is over: what it was.
    pub(super) fn finish(&mut self, command: CommandId) -> Option<(OrderId, Work)> {
        self.running.remove(&command.number()).map(|running| (running.id, running.work))
    }

    /// How an order has ended that the disk has answered.
    pub(super) fn ended(
        &self,
        (id, work): (OrderId, &Work),
        registers: &Registers,
        data_in: Option<Frame>,
        data_in_bytes: usize,
    ) -> Event {
        let failed = (!registers.is_success()).then_some(registers);
        let told = self.host.as_ref().map(|host| host.told(work, failed));
        match told {
            Some(Told { status, sense, .. }) => {
                let data_in_bytes = if failed.is_some() { 0 } else { data_in_bytes };
                Event::Completed { id, answer: Answer { status, sense }, data_in, data_in_bytes }
            }
            None => Event::Failed { id, failure: Failure::InDoubt, data_in },
        }
    }

    /// The number by which the protocol knows an order.
    pub(super) fn command_of(&self, id: OrderId) -> Option<CommandId> {
        self.running.iter().find(|(_, running)| running.id == id).map(|(number, _)| CommandId::new(*number))
    }
}

/// Whether a command can be given for this: the frame for the answer takes all that is to be read.
fn has_room(work: &Work, data_in: Option<&Frame>) -> bool {
    let has_frame = match work {
        Work::Read(extent) => {
            let bytes = extent.blocks as usize * SECTOR_BYTES as usize;
            data_in.is_some_and(|frame| frame.len() >= bytes)
        }
        _ => true,
    };
    has_frame && work.parts() <= SECTORS_MAX
}

/// Whether two are writes of neighbouring sectors that may be one.
fn goes_on(work: &Work, next: &Work) -> bool {
    match (work, next) {
        (Work::Write { extent, is_stable: false }, Work::Write { extent: next, is_stable: false }) => {
            extent.lba + u64::from(extent.blocks) == next.lba
        }
        _ => false,
    }
}

fn told(id: OrderId, Told { status, sense, data }: Told, mut data_in: Option<Frame>) -> Event {
    let mut data_in_bytes = 0;
    if let Some(frame) = &mut data_in {
        data_in_bytes = data.len().min(frame.len());
        frame[..data_in_bytes].copy_from_slice(&data[..data_in_bytes]);
    }
    Event::Completed { id, answer: Answer { status, sense }, data_in, data_in_bytes }
}

#[cfg(test)]
mod tests {
    use sanwire_scsi::Extent;

    use super::*;

    fn write(lba: u64, blocks: u32) -> Work {
        Work::Write { extent: Extent { lba, blocks }, is_stable: false }
    }

    #[test]
    fn writes_of_neighbouring_sectors_go_on() {
        assert!(goes_on(&write(8, 8), &write(16, 1)));
        assert!(!goes_on(&write(8, 8), &write(17, 1)) && !goes_on(&write(8, 8), &Work::Flush));
        let stable = Work::Write { extent: Extent { lba: 16, blocks: 1 }, is_stable: true };
        assert!(!goes_on(&write(8, 8), &stable));
    }

    #[test]
    fn nothing_is_read_that_has_no_room() {
        let read = Work::Read(Extent { lba: 0, blocks: 2 });
        let frame = |bytes| Frame::zeroed(bytes);
        assert!(has_room(&read, frame(1024).as_ref()) && !has_room(&read, frame(1023).as_ref()));
        assert!(!has_room(&read, None) && has_room(&Work::Flush, None));
        assert!(!has_room(&Work::Verify(Extent { lba: 0, blocks: 70_000 }), None));
    }
}
