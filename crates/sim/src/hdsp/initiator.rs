//! What a client is told to do, and whether what it is told is true.

use std::collections::BTreeMap;

use sanwire_ata::{DEVICE_LBA, TaskFile, command_code as code};
use sanwire_buffer::{Frame, Slice, Slices};
use sanwire_core::Instant;
use sanwire_hdsp::wire::DiskType;
use sanwire_hdsp::{Client, ClientEvent, Command, CommandId, Order, Outcome};

use super::disk::Deed;
use super::plan::Plan;
use crate::content::{BLOCK_BYTES, fill};
use crate::model::{Model, Range, Tick};
use crate::random::Random;

struct Given {
    deed: Deed,
    operation: u64,
    begun: Tick,
}

/// One client with its work.
pub(super) struct Initiator {
    pub(super) client: Client,
    given: BTreeMap<CommandId, Given>,
    left: u32,
    depth: usize,
    random: Random,
    pub(super) lost: u64,
    pub(super) ended: u64,
    /// Where a row of writes goes on.
    row: Option<u64>,
    /// What was given, and what has ended, since somebody looked.
    pub(super) news: (Vec<u64>, Vec<u64>),
}

impl Initiator {
    pub(super) fn new(client: Client, plan: &Plan, random: Random) -> Self {
        let (left, depth) = (plan.commands, plan.depth);
        Initiator {
            client,
            given: BTreeMap::new(),
            left,
            depth,
            random,
            lost: 0,
            ended: 0,
            row: None,
            news: Default::default(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.given.is_empty()
    }

    /// Gives as many commands as it may have at once.
    pub(super) fn work(
        &mut self,
        plan: &Plan,
        blocks: u64,
        model: &mut Model,
        operations: &mut u64,
        now: Instant,
    ) -> Result<(), String> {
        while self.left > 0 && self.given.len() < self.depth {
            self.left -= 1;
            let deed = self.draw(plan, blocks);
            *operations += 1;
            let operation = *operations;
            let more = self.row.is_some();
            let begun = match deed {
                Deed::Write { lba, blocks } => model.begin_write(operation, operation, Range { lba, blocks }),
                _ => model.tick(),
            };
            let order = order(plan.disk_type, deed, operation, more, &mut self.random);
            let id = self.client.order(order, now).map_err(|error| format!("{deed:?}: {error}"))?;
            self.given.insert(id, Given { deed, operation, begun });
            self.news.0.push(operation);
        }
        Ok(())
    }

    fn draw(&mut self, plan: &Plan, blocks: u64) -> Deed {
        let length = self.random.range(1..=plan.blocks_max);
        if let Some(lba) = self.row.take().filter(|lba| lba + length <= blocks) {
            self.row = self.random.chance(700_000).then_some(lba + length);
            return Deed::Write { lba, blocks: length };
        }
        let lba = self.random.range(0..=blocks - length);
        match self.random.range(0..=9) {
            0 => Deed::Flush,
            1..=4 => Deed::Read { lba, blocks: length },
            _ => {
                self.row = self.random.chance(300_000).then_some(lba + length);
                Deed::Write { lba, blocks: length }
            }
        }
    }

    /// Takes what the client tells. The disk is always the same.
    pub(super) fn hear(&mut self, model: &mut Model, now: Instant) -> Result<(), String> {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Forgotten => self.client.resume(now),
                ClientEvent::Ended { id, outcome, data, .. } => self.end(id, &outcome, data, model)?,
                ClientEvent::Refused(reason) => return Err(format!("the server refuses: {reason:?}")),
                ClientEvent::VolumeGone => return Err("the server has no such volume".to_owned()),
                ClientEvent::OtherServer { .. } => return Err("another server has answered".to_owned()),
                ClientEvent::Connected(_) | ClientEvent::Disconnected => {}
            }
        }
        Ok(())
    }

    fn end(&mut self, id: CommandId, outcome: &Outcome, data: Option<Frame>, model: &mut Model) -> Result<(), String> {
        let given = self.given.remove(&id).ok_or("a command ends twice")?;
        self.ended += 1;
        self.news.1.push(given.operation);
        let is_good = match outcome {
            Outcome::Ata(registers) => registers.is_success(),
            Outcome::Scsi { status, .. } => *status == 0,
            Outcome::TooLong => return Err(format!("{:?} is too long", given.deed)),
            Outcome::Lost => {
                // It may be done still.
                self.lost += 1;
                return Ok(());
            }
        };
        let Given { deed, operation, begun } = given;
        match deed {
            Deed::Write { lba, blocks } if is_good => {
                model.acknowledge_write(operation, Range { lba, blocks }, begun, false);
            }
            Deed::Write { lba, blocks } => drop(model.end_write(operation, Range { lba, blocks })),
            Deed::Flush if is_good => model.acknowledge_flush(begun),
            Deed::Read { lba, blocks } if is_good => {
                let data = data.ok_or("a read without data")?;
                model.check_read(None, Range { lba, blocks }, begun, &data)?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn order(disk_type: DiskType, deed: Deed, version: u64, more: bool, random: &mut Random) -> Order {
    let frame = |lba: u64, blocks: u64| {
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        fill(&mut bytes, lba, version);
        Slices::from(Slice::from(bytes))
    };
    let (data, room) = match deed {
        Deed::Write { lba, blocks } => (Some(frame(lba, blocks)), None),
        Deed::Read { blocks, .. } => (None, Frame::zeroed(blocks as usize * BLOCK_BYTES)),
        Deed::Flush | Deed::Unknown => (None, None),
    };
    let is_long = random.chance(500_000);
    let command = match disk_type {
        DiskType::Scsi => Command::Scsi(cdb(deed)),
        _ => Command::Ata(task_file(deed, is_long)),
    };
    Order { command, data, room, more, may_repeat: true, is_probe: false }
}

fn cdb(deed: Deed) -> Vec<u8> {
    let (code, lba, blocks) = match deed {
        Deed::Read { lba, blocks } => (0x88, lba, blocks),
        Deed::Write { lba, blocks } => (0x8a, lba, blocks),
        Deed::Flush | Deed::Unknown => (0x91, 0, 0),
    };
    [&[code, 0][..], &lba.to_be_bytes(), &(blocks as u32).to_be_bytes(), &[0, 0]].concat()
}

fn task_file(deed: Deed, is_long: bool) -> TaskFile {
    let ([short, long], lba, blocks) = match deed {
        Deed::Read { lba, blocks } => ([code::READ_DMA, code::READ_DMA_EXT], lba, blocks),
        Deed::Write { lba, blocks } => ([code::WRITE_DMA, code::WRITE_DMA_EXT], lba, blocks),
        Deed::Flush | Deed::Unknown => ([code::FLUSH_CACHE, code::FLUSH_CACHE_EXT], 0, 0),
    };
    let [b0, b1, b2, b3, b4, b5, ..] = lba.to_le_bytes();
    match is_long {
        true => TaskFile::long(long, 0, blocks as u16, [b0, b1, b2, b3, b4, b5], DEVICE_LBA),
        false => TaskFile::short(short, 0, blocks as u8, [b0, b1, b2], DEVICE_LBA),
    }
}
