//! One command of an ATA host: what is asked of the unit for it, and what it comes to.

use std::collections::VecDeque;
use std::sync::Arc;

use sanwire_buffer::Slices;
use sanwire_scsi::{Cdb, Extent, Reply, Sense, SenseKey, Status, build, unmap_parameters};

use super::facts::{ANSWER_BYTES, Facts, Learning};
use super::failure::{self, Way};
use super::settings::Drive;
use crate::command::{Command, Smart};
use crate::place::{Chs, Place};
use crate::smart;
use crate::task_file::{Registers, SECTORS_OF_28_BITS, TaskFile, error};
use crate::trim;

/// How often a command begins anew because the unit had something else to tell first. Each telling is over once it was heard, so a unit
/// that tells more is broken.
const ATTENTIONS_MAX: u8 = 16;

/// A SCSI command for the unit.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What.
    pub cdb: Cdb,
    /// Its data.
    pub data_out: Option<Slices>,
    /// Room for the answer's data, in bytes.
    pub data_in_max_bytes: u32,
}

/// What a command comes to.
#[derive(Clone, Debug)]
pub struct Answer {
    /// How it ended.
    pub registers: Registers,
    /// What it read.
    pub data: Option<Slices>,
}

/// What is to be done next for a command.
#[derive(Clone, Debug)]
pub enum Step {
    /// Give this to the unit, and tell the reply.
    Ask(Ask),
    /// The unit was busy: give this to it after a while.
    Later(Ask),
    /// Answer the host.
    Done(Answer),
}

/// A command under way.
#[derive(Clone, Debug)]
pub struct Execution {
    task_file: TaskFile,
    data: Option<Slices>,
    /// What the unit is being asked about itself, before the command can be given.
    learning: Option<Learning>,
    /// What was asked last, and what comes after it.
    asks: VecDeque<Ask>,
    way: Way,
    attentions: u8,
}

impl Execution {
    /// Begins a command with the data that came with it.
    #[must_use]
    pub fn begin(task_file: TaskFile, data: Option<Slices>, drive: &mut Drive) -> (Execution, Step) {
        let asks = VecDeque::new();
        let mut execution = Execution { task_file, data, learning: None, asks, way: Way::Other, attentions: 0 };
        let step = execution.start(drive);
        (execution, step)
    }

    fn start(&mut self, drive: &mut Drive) -> Step {
        self.asks.clear();
        let command = Command::parse(&self.task_file);
        match drive.known.facts() {
            // IDENTIFY DEVICE tells what is true now.
            Some(facts) if command != Some(Command::IdentifyDevice) => self.work(&facts, drive),
            _ => {
                self.learning = Some(Learning::new(drive.known.ask()));
                self.learn(drive)
            }
        }
    }

    /// Asks the next question about the unit; after the last one the command begins.
    fn learn(&mut self, drive: &mut Drive) -> Step {
        let Some(learning) = &mut self.learning else { return self.refuse(error::ABRT) };
        if let Some(cdb) = learning.question() {
            self.asks.push_back(Ask { cdb, data_out: None, data_in_max_bytes: ANSWER_BYTES.into() });
            return self.next();
        }
        let (asked, is_whole, facts) = (learning.asked(), learning.is_whole(), learning.facts().map(Arc::new));
        self.learning = None;
        match facts {
            None => self.refuse(error::ABRT),
            // What a reservation keeps back is asked for again by the next command.
            Some(facts) if !is_whole => self.work(&facts, drive),
            Some(facts) if drive.known.learn(asked, Arc::clone(&facts)) => self.work(&facts, drive),
            // Another command has asked since then, or was told of a change.
            Some(_) => match drive.known.facts() {
                Some(newer) => self.work(&newer, drive),
                None => self.begin_anew(drive),
            },
        }
    }

    /// What the unit has answered to the last [`Step::Ask`].
    pub fn answered(&mut self, reply: Reply, drive: &mut Drive) -> Step {
        match reply.status {
            Status::Good | Status::ConditionMet => self.went_well(reply.data_in, drive),
            // Whoever has it aborted did not mean this host: whom he wants to keep out a reservation keeps out.
            Status::Busy | Status::TaskSetFull | Status::TaskAborted => {
                self.asks.front().cloned().map_or_else(|| self.refuse(error::ABRT), Step::Later)
            }
            Status::ReservationConflict => self.kept_out(drive),
            Status::CheckCondition => match Sense::parse(&reply.sense) {
                Some(sense) if sense.key == SenseKey::UnitAttention => self.attend(drive),
                Some(sense) => self.failed(&sense, drive),
                None => self.refuse(error::ABRT),
            },
        }
    }

    fn went_well(&mut self, data: Option<Slices>, drive: &mut Drive) -> Step {
        self.asks.pop_front();
        if let Some(learning) = &mut self.learning {
            learning.answered(data.map(|data| data.to_vec()).unwrap_or_default());
            return self.learn(drive);
        }
        if self.asks.is_empty() { self.done(data.filter(|_| self.way == Way::Read)) } else { self.next() }
    }

    /// An ATA disk has no unit attentions: what they tell is looked at, and the command begins anew.
    fn attend(&mut self, drive: &mut Drive) -> Step {
        drive.known.forget();
        self.begin_anew(drive)
    }

    fn begin_anew(&mut self, drive: &mut Drive) -> Step {
        self.attentions += 1;
        if self.attentions > ATTENTIONS_MAX { self.refuse(error::ABRT) } else { self.start(drive) }
    }

    /// Somebody has reserved the unit. What an ATA disk says of itself it says to everybody.
    fn kept_out(&mut self, drive: &mut Drive) -> Step {
        let Some(learning) = self.learning.as_mut().filter(|learning| learning.may_be_refused()) else {
            return self.refuse(error::ABRT);
        };
        learning.withheld();
        self.asks.pop_front();
        self.learn(drive)
    }

    fn failed(&mut self, sense: &Sense, drive: &mut Drive) -> Step {
        if let Some(learning) = self.learning.as_mut().filter(|learning| learning.may_be_refused()) {
            learning.answered(Vec::new());
            self.asks.pop_front();
            return self.learn(drive);
        }
        Step::Done(Answer { registers: failure::registers(&self.task_file, sense, self.way), data: None })
    }

    /// Does what the command says, with a unit that is known.
    fn work(&mut self, facts: &Facts, drive: &mut Drive) -> Step {
        let Some(command) = Command::parse(&self.task_file) else { return self.refuse(error::ABRT) };
        match command {
            Command::Read { is_multiple: true, .. } | Command::Write { is_multiple: true, .. }
                if drive.multiple == 0 =>
            {
                self.refuse(error::ABRT)
            }
            Command::Read { place, .. } => self.read(facts, place),
            Command::Write { place, is_stable, .. } => self.write(facts, place, is_stable || !drive.write_cache),
            Command::Verify(place) => self.at(facts, place, Way::Read, |this, extent| {
                this.ask(build::verify_16(extent), None, 0);
            }),
            Command::Flush => {
                self.ask(build::synchronize_cache_16(Extent { lba: 0, blocks: 0 }), None, 0);
                self.next()
            }
            Command::Trim { blocks } => self.trim(facts, blocks),
            Command::Zero { place, may_trim } => self.zero(facts, place, may_trim),
            command => self.at_once(command, facts, drive),
        }
    }

    fn read(&mut self, facts: &Facts, place: Place) -> Step {
        let bytes = u64::from(place.sectors()) * u64::from(facts.sector_bytes);
        let Ok(bytes) = u32::try_from(bytes) else { return self.refuse(error::ABRT) };
        self.at(facts, place, Way::Read, |this, extent| this.ask(build::read_16(extent), None, bytes))
    }

    fn write(&mut self, facts: &Facts, place: Place, is_stable: bool) -> Step {
        let bytes = u64::from(place.sectors()) * u64::from(facts.sector_bytes);
        let Some(data) = self.data.clone().filter(|data| data.len() as u64 == bytes) else {
            return self.refuse(error::ABRT);
        };
        self.at(facts, place, Way::Write, |this, extent| this.ask(build::write_16(extent, is_stable), Some(data), 0))
    }

    /// Zeroes are one sector that the unit writes again and again.
    fn zero(&mut self, facts: &Facts, place: Place, may_trim: bool) -> Step {
        let unmaps = may_trim && facts.trims && facts.reads_zeroes;
        let sector = Slices::from(vec![0; facts.sector_bytes as usize]);
        let max = facts.zero_sectors_max;
        self.at(facts, place, Way::Write, |this, extent| {
            for part in parts(extent, max) {
                this.ask(build::write_same_16(part, unmaps, false), Some(sector.clone()), 0);
            }
        })
    }

    fn trim(&mut self, facts: &Facts, blocks: u16) -> Step {
        let bytes = usize::from(blocks) * trim::BLOCK_BYTES;
        let Some(data) = self.data.clone().filter(|data| facts.trims && blocks > 0 && data.len() == bytes) else {
            return self.refuse(error::ABRT);
        };
        self.way = Way::Write;
        let ranges = match trim::checked(&data.contiguous(), facts.sectors) {
            Ok(ranges) => ranges,
            Err(lba) => return Step::Done(self.failure_at(lba)),
        };
        let ranges: Vec<Extent> = ranges.into_iter().flat_map(|range| parts(range, facts.unmap_sectors_max)).collect();
        for list in lists(&ranges, facts) {
            let Some(parameters) = unmap_parameters(list) else { return self.refuse(error::ABRT) };
            self.ask(build::unmap(parameters.len() as u16), Some(Slices::from(parameters)), 0);
        }
        if self.asks.is_empty() { self.done(None) } else { self.next() }
    }

    /// What needs no question to the unit.
    fn at_once(&mut self, command: Command, facts: &Facts, drive: &mut Drive) -> Step {
        let success = Registers::success(&self.task_file);
        let told = |registers| Step::Done(Answer { registers, data: None });
        match command {
            Command::IdentifyDevice => self.tell(drive.identify(facts).to_bytes()),
            Command::SetMultiple(sectors) if !drive.set_multiple(sectors) => self.refuse(error::ABRT),
            Command::SetFeatures(feature) => {
                drive.set(feature);
                told(success)
            }
            Command::Smart(smart) => self.smart(smart, drive),
            // Active, or idle: it has no other states.
            Command::CheckPowerMode => told(Registers { count: 0xff, ..success }),
            Command::NativeMaxAddress { is_long } => {
                let sectors = if is_long { facts.sectors } else { facts.sectors.min(SECTORS_OF_28_BITS) };
                told(Registers { lba: sectors.saturating_sub(1), ..success })
            }
            Command::InitializeParameters { heads, sectors } => {
                let Chs { heads: own_heads, sectors: own_sectors, .. } = Chs::of(facts.sectors);
                if (heads, sectors) == (own_heads, own_sectors) { told(success) } else { self.refuse(error::ABRT) }
            }
            // 01h: device 0 has passed (ACS-3 7.9.4).
            Command::Diagnostic => told(Registers { error: 0x01, ..success }),
            _ => told(success),
        }
    }

    fn smart(&mut self, asked: Smart, drive: &mut Drive) -> Step {
        match asked {
            Smart::Enable(is_on) => drive.smart = is_on,
            _ if !drive.smart => return self.refuse(error::ABRT),
            Smart::ReadData => return self.tell(smart::data()),
            // The signature, as it was given: no threshold is exceeded.
            Smart::ReturnStatus => {}
        }
        self.done(None)
    }

    /// Asks for the sectors of a place, where the disk has them.
    fn at(&mut self, facts: &Facts, place: Place, way: Way, ask: impl FnOnce(&mut Self, Extent)) -> Step {
        self.way = way;
        match place.on(facts.sectors) {
            Some(extent) => {
                ask(self, extent);
                self.next()
            }
            None => self.refuse(error::IDNF),
        }
    }

    fn ask(&mut self, cdb: Cdb, data_out: Option<Slices>, data_in_max_bytes: u32) {
        self.asks.push_back(Ask { cdb, data_out, data_in_max_bytes });
    }

    fn next(&mut self) -> Step {
        self.asks.front().cloned().map_or_else(|| self.refuse(error::ABRT), Step::Ask)
    }

    fn refuse(&self, error: u8) -> Step {
        Step::Done(Answer { registers: Registers::failure(&self.task_file, error), data: None })
    }

    fn failure_at(&self, lba: u64) -> Answer {
        Answer { registers: Registers { lba, ..Registers::failure(&self.task_file, error::IDNF) }, data: None }
    }

    fn tell(&self, data: Vec<u8>) -> Step {
        let data = Some(Slices::from(data));
        Step::Done(Answer { registers: Registers::success(&self.task_file), data })
    }

    fn done(&self, data: Option<Slices>) -> Step {
        Step::Done(Answer { registers: Registers::success(&self.task_file), data })
    }
}

/// The extent in parts of so many blocks at the most.
fn parts(extent: Extent, blocks_max: u32) -> impl Iterator<Item = Extent> {
    let max = blocks_max.max(1);
    (0..extent.blocks.div_ceil(max)).map(move |part| {
        let from = part * max;
        Extent { lba: extent.lba + u64::from(from), blocks: max.min(extent.blocks - from) }
    })
}

/// The ranges in lists that one UNMAP takes each, by their number and by all their sectors.
fn lists<'r>(ranges: &'r [Extent], facts: &Facts) -> Vec<&'r [Extent]> {
    let (mut lists, mut from, mut sectors) = (Vec::new(), 0, 0_u32);
    for (at, range) in ranges.iter().enumerate() {
        let sum = sectors.checked_add(range.blocks).filter(|sum| *sum <= facts.unmap_sectors_max);
        let has_room = (at - from) < facts.unmap_ranges_max as usize;
        if let (Some(sum), true) = (sum, has_room) {
            sectors = sum;
        } else {
            lists.push(&ranges[from..at]);
            (from, sectors) = (at, range.blocks);
        }
    }
    lists.push(&ranges[from..]);
    lists.retain(|list| !list.is_empty());
    lists
}

#[cfg(test)]
mod tests;
