//! The target itself: messages in, tasks for units out; replies in, messages out.

mod effects;
mod nexuses;
mod queries;
mod timeouts;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sanwire_ata::{Answer, Ask, Execution, Registers, Step, TaskFile, command_code, error};
use sanwire_buffer::{Packet, Slice, Slices};
use sanwire_core::quota::Usage;
use sanwire_core::{Carried, Instant, LinkId, MacAddress, NexusId, Path, Peer};
use sanwire_scsi::{Reply, Status, Task};

use self::effects::{changes, data_out_bytes, is_remembered, is_verify, read_bytes};
use super::counters::Counters;
use super::limits::Limits;
use super::nexus::{Nexus, Running};
use super::recent::{Mark, REMEMBERED_FOR};
use super::settings::Settings;
use super::types::{TargetConfig, TargetEvent};
use crate::shelves::Entry;
use crate::wire::{self, ATA_BYTES, Address, AtaHeader, Header, SECTOR_BYTES, command};

/// What the firmware field of config answers says.
const FIRMWARE: u16 = 0x0100;

/// A unit that was busy is asked again after this.
const BUSY_WAIT: Duration = Duration::from_millis(5);

/// A station that has not heard an answer gives its command again before this, so a later one was given with the answer at hand. Copies
/// under the same tag get the same answer anyhow, so this is for initiators that give copies tags of their own.
const HEARD_AFTER: Duration = Duration::from_secs(10);

/// Stations without commands are forgotten after this; what they have set is kept.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// Messages that wait to be sent at the most; more are lost, as on a link.
const OUTBOX_MAX: usize = 16_384;

/// Memory that each station has, whatever others have: the sectors of its window.
const GUARANTEED_BYTES: usize = 256 << 10;

/// The target's end.
pub struct Target {
    config: TargetConfig,
    nexuses: BTreeMap<NexusId, Nexus>,
    by_station: BTreeMap<(MacAddress, Address), NexusId>,
    next_nexus: u64,
    next_command: u64,
    /// Commands of units that were busy.
    later: BTreeMap<(Instant, u64), (NexusId, Ask)>,
    settings: Settings,
    limits: Limits,
    /// Answers that wait until what was changed is kept, with the numbers of the changes.
    unkept: VecDeque<(u64, Path, Packet)>,
    /// When it is looked whether it is.
    look_at: Option<Instant>,
    /// When writes of a moment ago are forgotten.
    forget_at: Option<Instant>,
    /// When idle stations are looked for.
    tend_at: Option<Instant>,
    events: VecDeque<TargetEvent>,
    outbox: VecDeque<(Path, Packet)>,
    counters: Counters,
    written: Carried,
    answered: Carried,
    /// Who was told not to be allowed.
    told: BTreeSet<MacAddress>,
}

impl Target {
    /// A target.
    #[must_use]
    pub fn new(config: TargetConfig) -> Target {
        let (next_nexus, settings) = (config.nexuses.0, Settings::new(config.run));
        let mut target = Target {
            config,
            nexuses: BTreeMap::new(),
            by_station: BTreeMap::new(),
            next_nexus,
            next_command: 0,
            later: BTreeMap::new(),
            settings,
            limits: Limits::new(),
            unkept: VecDeque::new(),
            look_at: None,
            forget_at: None,
            tend_at: None,
            events: VecDeque::new(),
            outbox: VecDeque::new(),
            counters: Counters::default(),
            written: Carried::default(),
            answered: Carried::default(),
            told: BTreeSet::new(),
        };
        if target.config.announces {
            target.announce();
        }
        target
    }

    /// What was not taken.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What writes have brought: each is one packet, whose data is put into memory of its own.
    #[must_use]
    pub fn written(&self) -> Carried {
        self.written
    }

    /// What answers have carried.
    #[must_use]
    pub fn answered(&self) -> Carried {
        self.answered
    }

    /// How the quotas are used.
    #[must_use]
    pub fn quotas(&self) -> [Usage; 6] {
        self.limits.usages()
    }

    /// The stations, with how many commands of each are under way.
    pub fn stations(&self) -> impl Iterator<Item = (NexusId, usize)> + '_ {
        self.nexuses.values().map(|nexus| (nexus.id, nexus.commands.len()))
    }

    /// The largest packet of a link has changed.
    pub fn set_link(&mut self, link: LinkId, packet_max_bytes: usize) {
        let Some(known) = self.config.links.get_mut(usize::from(link.0)) else { return };
        if std::mem::replace(known, packet_max_bytes) != packet_max_bytes && self.config.announces {
            self.announce_on(link);
        }
    }

    /// Takes a message.
    pub fn handle_input(&mut self, path: Path, bytes: &[u8], now: Instant) {
        let Peer::Ethernet(station) = path.peer else { return };
        let Some((header, argument)) = Header::parse(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        if header.is_response {
            return;
        }
        // By this byte, too, the kernel has steered it: in another shard nobody knows of the other commands for the target.
        if bytes.get(1) != Some(&0) {
            self.counters.malformed += 1;
            return;
        }
        if !(self.config.admission)(station) {
            return self.turn_away(path, station);
        }
        self.counters.other_version += u64::from(header.version != 1);
        if header.version == 1 && header.command == command::ATA {
            return self.take_ata(path, station, header, argument, now);
        }
        // All that it is for answer.
        if header.address.is_one() || self.limits.may_ask_all(station, now) {
            for own in self.config.shelves.covered(header.address, station) {
                self.obey(path, station, &header, own, argument);
            }
            self.answer_kept(now);
        }
    }

    /// Takes an ATA command. What is wrong with it is told by ATA's registers: initiators take no notice of AoE's own errors here, and
    /// give the command again until they think that the target is gone.
    fn take_ata(&mut self, path: Path, station: MacAddress, header: Header, argument: &[u8], now: Instant) {
        let Some((ata, data)) = AtaHeader::parse(argument) else {
            self.counters.malformed += 1;
            return;
        };
        let unit = match self.config.shelves.entry(header.address, station) {
            Entry::Open { lun, put } => (lun, put),
            Entry::Reserved => {
                self.counters.reserved += 1;
                return self.fail(path, &header, &ata);
            }
            Entry::Absent => return,
        };
        let task_file = ata.task_file();
        let data_bytes = data_out_bytes(&task_file);
        let max_bytes = usize::from(self.sectors_of(path)) * SECTOR_BYTES;
        if data_bytes.max(read_bytes(&task_file)) > max_bytes || data.len() < data_bytes {
            self.counters.malformed += 1;
            return self.fail(path, &header, &ata);
        }
        let Some(id) = self.nexus(path, station, header.address, unit, now) else {
            self.counters.crowded += 1;
            return;
        };
        let Some(nexus) = self.nexuses.get_mut(&id) else { return };
        nexus.is_unmet &= ata.command != command_code::IDENTIFY_DEVICE;
        if nexus.is_unmet {
            // A write that was given again, say, because the unit before went away without an answer.
            return self.fail(path, &header, &ata);
        }
        if nexus.has(&header, &ata) {
            self.counters.repeated += 1;
            return;
        }
        let mark = is_remembered(&task_file).then(|| Mark::of(header.tag, &argument[..ATA_BYTES + data_bytes]));
        let known = mark.and_then(|mark| nexus.recent.answer(mark, now).or_else(|| nexus.failures.answer(mark, now)));
        if let Some(answer) = known {
            self.counters.repeated += 1;
            return self.send(path, &header.response(header.address), &answer.to_bytes(), None);
        }
        if !self.limits.may_command(nexus.commands.len(), self.config.buffers) {
            self.counters.beyond_window += 1;
            return;
        }
        let data = match data_bytes {
            0 => None,
            bytes => match nexus.memory.frame(bytes) {
                Some(mut frame) => {
                    frame.copy_from_slice(&data[..bytes]);
                    self.written.add(bytes, true);
                    Some(frame.freeze())
                }
                None => {
                    // It is given again, as if it had been lost on the way.
                    nexus.memory.forgo();
                    self.counters.without_memory += 1;
                    return;
                }
            },
        };
        self.begin(id, Message { path, header, ata, mark }, task_file, data, now);
    }

    fn begin(&mut self, id: NexusId, message: Message, task_file: TaskFile, data: Option<Slice>, now: Instant) {
        let Some(nexus) = self.nexuses.get_mut(&id) else { return };
        let (execution, step) = Execution::begin(task_file, data.map(Slices::from), &mut nexus.drive);
        let number = self.next_command;
        self.next_command += 1;
        let has_heard = |sent: &Instant| *sent + HEARD_AFTER <= now;
        let receipts = nexus.receipts.received(has_heard);
        nexus.receipts.retain(|sent| !has_heard(sent));
        let (changes, is_verify) = (changes(&task_file), is_verify(&task_file));
        let must_wait = changes.as_ref().is_some_and(|changes| nexus.is_in_the_way(number, changes))
            || is_verify && !self.limits.may_verify(nexus.verifies());
        let (waits_with, step) = match step {
            Step::Ask(ask) if must_wait => (Some(ask), None),
            step => (None, Some(step)),
        };
        let Message { path, header, ata, mark } = message;
        let running = Running { path, header, ata, execution, mark, changes, is_verify, waits_with, receipts };
        nexus.commands.insert(number, running);
        step.into_iter().for_each(|step| self.go_on(id, number, step, now));
    }

    /// A command is over; `None` when it was aborted.
    pub fn reply(&mut self, nexus: NexusId, number: u64, reply: Option<Reply>, now: Instant) {
        let Some(of) = self.nexuses.get_mut(&nexus) else { return };
        let Some(running) = of.commands.get_mut(&number) else { return };
        let reply = reply.unwrap_or_else(|| Reply::bare(Status::TaskAborted));
        if let Some(receipt) = reply.receipt.clone() {
            of.receipts.issue(receipt, now);
        }
        let step = running.execution.answered(reply, &mut of.drive);
        self.go_on(nexus, number, step, now);
    }

    fn go_on(&mut self, id: NexusId, number: u64, step: Step, now: Instant) {
        match step {
            Step::Ask(ask) => self.ask(id, number, ask, now),
            Step::Later(ask) => drop(self.later.insert((now + BUSY_WAIT, number), (id, ask))),
            Step::Done(Answer { registers, data }) => {
                let Some(nexus) = self.nexuses.get_mut(&id) else { return };
                let Some(running) = nexus.commands.remove(&number) else { return };
                let Running { path, header, ata, mark, changes, .. } = running;
                let answer = ata.response(&registers);
                // What is remembered and changes nothing is a flush.
                let is_flush = changes.is_none();
                if let Some(mark) = mark.filter(|_| registers.is_success() != is_flush) {
                    let remembered = if is_flush { &mut nexus.failures } else { &mut nexus.recent };
                    remembered.add(mark, answer, now);
                    self.forget_at.get_or_insert(now + REMEMBERED_FOR);
                }
                self.send(path, &header.response(header.address), &answer.to_bytes(), data);
                while let Some((number, ask)) = self.nexuses.get_mut(&id).and_then(Nexus::next_waiting) {
                    self.ask(id, number, ask, now);
                }
            }
        }
    }

    fn ask(&mut self, id: NexusId, number: u64, ask: Ask, now: Instant) {
        let Some(nexus) = self.nexuses.get(&id) else { return };
        let Some(running) = nexus.commands.get(&number) else { return };
        // Somebody else may have reserved the target since it came.
        if !matches!(self.config.shelves.entry(nexus.address, nexus.station), Entry::Open { .. }) {
            let registers = Registers::failure(&running.ata.task_file(), error::ABRT);
            return self.go_on(id, number, Step::Done(Answer { registers, data: None }), now);
        }
        let receipts = running.receipts;
        let Ask { cdb, data_out, data_in_max_bytes } = ask;
        let task = Task {
            lun: Some(nexus.lun),
            cdb,
            data_out,
            tells_residual: false,
            data_in_max_bytes,
            may_share: true,
            piece: None,
            receipts,
        };
        self.events.push_back(TargetEvent::Command { nexus: id, number, task });
    }

    fn fail(&mut self, path: Path, header: &Header, ata: &AtaHeader) {
        let registers = Registers::failure(&ata.task_file(), error::ABRT);
        self.send(path, &header.response(header.address), &ata.response(&registers).to_bytes(), None);
    }

    /// Whether questions that no command depends on are answered: they leave the most of the room to those that do.
    fn has_time_for_questions(&self) -> bool {
        self.outbox.len() < OUTBOX_MAX / 4
    }

    fn send(&mut self, path: Path, header: &Header, argument: &[u8], data: Option<Slices>) {
        if self.outbox.len() >= OUTBOX_MAX {
            return;
        }
        let payload = data.map(|data| data.cut(0..data.len())).filter(|data| !data.is_empty());
        if let Some(payload) = &payload {
            // What lies in several places is put together on the heap.
            self.answered.add(payload.len(), payload.heap_bytes() > 0);
        }
        let head = wire::head(header, argument, payload.as_ref().map_or(0, |payload| payload.len()));
        self.outbox.push_back((path, Packet::new(head, payload)));
    }

    fn sectors_of(&self, path: Path) -> u8 {
        self.config.links.get(usize::from(path.link.0)).map_or(0, |bytes| wire::sectors_of(*bytes))
    }

    /// What the layer above must know or do.
    pub fn poll_event(&mut self) -> Option<TargetEvent> {
        self.events.pop_front()
    }

    /// How many events wait.
    #[must_use]
    pub fn events_waiting(&self) -> usize {
        self.events.len()
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<(Path, Packet)> {
        self.outbox.pop_front()
    }
}

/// Where a command came from, and how it was given.
struct Message {
    path: Path,
    header: Header,
    ata: AtaHeader,
    mark: Option<Mark>,
}

#[cfg(test)]
mod tests;
