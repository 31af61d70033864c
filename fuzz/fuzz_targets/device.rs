//! A disk, or a drive whose disc is changed, and whatever commands, one after the other: no panic, never an answer longer than the room for it, every command ends.
#![no_main]

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::{Region, Slice, Slices};
use sanwire_core::{ClientId, DeviceType, Instant, Lun, NexusId, Principal};
use sanwire_device::{LogicalUnit, LogicalUnits, NexusPorts, Seat, TokenSeed, UnitOptions};
use sanwire_engine::{Engine, Meter, Selection, Which};
use sanwire_fuzz::command::Command;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Cdb, CommandSet, Features, Identity, Operation, Piece, Status, Task};
use sanwire_store::{CompletionQueue, RamStore};

/// A command block whose fields are mostly small, of a command that the unit may have.
fn cdb(u: &mut Unstructured<'_>, commands: CommandSet) -> Result<Cdb> {
    let known: Vec<&Operation> = commands.operations().collect();
    let operation = u.choose(&known)?;
    let mut bytes = vec![0; operation.cdb_bytes()];
    for byte in &mut bytes {
        *byte = if u.ratio(1, 3)? { u.arbitrary()? } else { 0 };
    }
    bytes[0] = operation.code;
    if let Some(action) = operation.service_action {
        bytes[1] = bytes[1] & 0xe0 | action;
    }
    if u.ratio(1, 16)? {
        let length = u.int_in_range(1..=32usize)?;
        bytes = u.bytes(length.min(u.len().max(1)))?.to_vec();
    }
    Cdb::new(&bytes).ok_or(arbitrary::Error::IncorrectFormat)
}

/// A copy within the unit, whose list is mostly right.
fn copy(u: &mut Unstructured<'_>) -> Result<(Cdb, Vec<u8>)> {
    let segments = u.int_in_range(0..=3u8)?;
    let mut list =
        vec![u.arbitrary()?, u.int_in_range(0..=3u8)? << 3, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28 * segments, 0, 0, 0, 0];
    list.extend([0xe4, 0, 0, 0, 1, 3, 0, 8, 0x30, 0, 0, 0, 0, 0, 0, 0]);
    list.extend([0; 16]);
    for _ in 0..segments {
        list.extend([0x02, u.int_in_range(0..=3)?, 0, 0x18, 0, 0, 0, 0, 0, 0, 0, u.int_in_range(0..=40)?]);
        for _ in 0..2 {
            list.extend([0, 0, 0, 0, 0, 0, 0, u.int_in_range(0..=64)?]);
        }
    }
    if u.arbitrary()? {
        let at = u.choose_index(list.len())?;
        list[at] = u.arbitrary()?;
    }
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    Ok((Cdb::from(cdb), list))
}

/// Of the unit: a token is wanted, what has become of that, or the last token is written. Lists are mostly right.
fn token(u: &mut Unstructured<'_>, last: &[u8]) -> Result<(Cdb, Vec<u8>)> {
    let (list_id, deed) = (u.int_in_range(0..=2u8)?, u.int_in_range(0..=3u8)?);
    let mut cdb = [0; 16];
    if deed == 0 {
        (cdb[0], cdb[1], cdb[5], cdb[12]) = (0x84, if u.ratio(7, 8)? { 0x07 } else { 0x05 }, list_id, 0x04);
        return Ok((Cdb::from(cdb), Vec::new()));
    }
    if deed == 1 && u.ratio(1, 4)? {
        (cdb[0], cdb[1], cdb[5]) = (0x83, 0x1c, list_id);
        return Ok((Cdb::from(cdb), Vec::new()));
    }
    let mut ranges = Vec::new();
    for _ in 0..u.int_in_range(1..=3u8)? {
        ranges.extend([0, 0, 0, 0, 0, 0, 0, u.int_in_range(0..=64)?, 0, 0, 0, u.int_in_range(0..=24)?, 0, 0, 0, 0]);
    }
    let (action, head) = if deed == 1 { (0x10, 16) } else { (0x11, 536) };
    let mut list = vec![0; head];
    list[..2].copy_from_slice(&((head - 2 + ranges.len()) as u16).to_be_bytes());
    list[2] = u.int_in_range(0..=3)?;
    if action == 0x11 {
        list[15] = if u.arbitrary()? { 0 } else { u.int_in_range(0..=40)? };
        list[16..528].copy_from_slice(last);
    } else {
        list[2] &= 1;
    }
    list[head - 2..].copy_from_slice(&(ranges.len() as u16).to_be_bytes());
    list.extend(ranges);
    if u.ratio(1, 4)? {
        let at = u.choose_index(list.len())?;
        list[at] = u.arbitrary()?;
    }
    (cdb[0], cdb[1], cdb[9]) = (0x83, action, list_id);
    cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
    Ok((Cdb::from(cdb), list))
}

/// Brings a command to its end, and tells when that is. Takes the token of an answer.
fn execute(
    engine: &mut Engine<Command>,
    command: Command,
    seat: Seat<'_>,
    task: Task,
    mut now: Instant,
    last: &mut Vec<u8>,
) -> Instant {
    let is_information = task.cdb.operation_code() == 0x84 && task.cdb.get(1) == Some(&0x07);
    let (shown, room_bytes) = (format!("{:?}", task.cdb), task.data_in_max_bytes as usize);
    engine.begin(command, Meter::start(seat.units, &task, now), seat, task, now);
    let mut answers = 0;
    for turn in 0.. {
        assert!(turn < 20_000, "{shown} never ends");
        while let Some(ended) = engine.poll_ended() {
            let reply = ended.reply.expect("nobody has aborted it");
            assert!(reply.data_in.as_ref().map_or(0, |data| data.len()) <= room_bytes, "{shown} answers too much");
            if let Some(told) = reply.data_in.as_ref().filter(|data| is_information && data.len() == 550) {
                *last = told.bytes(38..550).to_vec();
            }
            assert_eq!(reply.sense.is_empty(), reply.status != Status::CheckCondition, "{shown}");
            answers += 1;
        }
        while let Some((barrier, _)) = engine.poll_abort() {
            engine.barrier_passed(barrier, now);
        }
        assert!(engine.poll_work().is_none(), "memory answers at once");
        if engine.is_starved() {
            answers += engine.withdraw_starved(command.nexus).len();
        }
        if answers > 0 {
            // A command of which only a piece is done goes no further.
            engine.abort(&Selection { by: command.nexus, which: Which::Own }, None);
            while engine.poll_ended().is_some() {}
            if engine.is_idle() {
                break;
            }
        }
        now = engine.poll_timeout().unwrap_or(now).max(now);
        engine.handle_timeout(now);
        engine.retry(now);
    }
    assert_eq!(answers, 1, "{shown}");
    now
}

/// A command, with what its initiator sends for it.
fn asked(u: &mut Unstructured<'_>, (commands, block_bytes): (CommandSet, u32), last: &[u8]) -> Result<(Cdb, Vec<u8>)> {
    let data = match u.int_in_range(0..=3u8)? {
        0 => Vec::new(),
        1 => vec![7; block_bytes as usize * u.int_in_range(1..=8usize)?],
        _ => {
            let length = u.int_in_range(0..=48usize)?;
            u.bytes(length.min(u.len()))?.to_vec()
        }
    };
    match u.int_in_range(0..=7u8)? {
        0 => copy(u),
        1 | 2 => token(u, last),
        _ => Ok((cdb(u, commands)?, data)),
    }
}

fn run(input: &[u8], memory: &Region) -> Result<()> {
    let mut u = Unstructured::new(input);
    let block_bytes = if u.arbitrary()? { 512 } else { 4096 };
    let units = Arc::new(LogicalUnits::new());
    let store = Arc::new(RamStore::new(64 * u64::from(block_bytes), block_bytes));
    let identity = Identity::new("volume", [9; 16]).unwrap();
    let device_type = if u.ratio(1, 4)? && block_bytes == 512 { DeviceType::Optical } else { DeviceType::Disk };
    let commands = match device_type {
        DeviceType::Disk => CommandSet::disk(Features::ALL),
        DeviceType::Optical => CommandSet::optical(),
    };
    let (write_cache, removable) = (u.arbitrary()?, u.arbitrary()?);
    let token_seed = Some(TokenSeed::new([5; 32]));
    let options = UnitOptions { device_type, write_cache, removable, token_seed, ..UnitOptions::default() };
    let unit = LogicalUnit::new(identity, store, options).unwrap();
    let unit = units.add(Lun::default(), unit).unwrap();
    for number in [1, 2] {
        let initiator = TransportId::hyperscsi(ClientId([number; 16]));
        let ports = NexusPorts { initiator, target: TargetPort::default(), principal: Principal::default() };
        units.nexus_established(NexusId(number.into()), Arc::new(ports));
    }
    let mut engine = Engine::new(memory.clone(), CompletionQueue::new(|| ()));
    // At first that of zeroes.
    let mut last = vec![0; 512];
    last[..8].copy_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 1, 0xf8]);
    let mut now = Instant::ZERO;
    for number in 0..60 {
        if u.is_empty() {
            break;
        }
        if device_type == DeviceType::Optical && u.ratio(1, 8)? {
            let disc = RamStore::new(2048 * u.int_in_range(1..=64u64)?, 512);
            let is_out = unit.eject(u.arbitrary()?).is_ok();
            assert!(!is_out || unit.load(Some(Arc::new(disc))).is_ok());
        }
        let room = if u.ratio(7, 8)? { 1 << 20 } else { u32::from(u.arbitrary::<u16>()?) };
        let (cdb, data) = asked(&mut u, (commands, block_bytes), &last)?;
        let border = u.int_in_range(0..=data.len())?;
        let data = Slice::from(data);
        let pieces = [data.slice(0..border), data.slice(border..data.len())];
        let task = Task {
            lun: if u.ratio(15, 16)? { Some(Lun::default()) } else { Lun::new(u.int_in_range(0..=3)?) },
            cdb,
            data_out: Slices::join(pieces.into_iter()).filter(|data| !data.is_empty()),
            tells_residual: u.arbitrary()?,
            receipts: 0,
            data_in_max_bytes: room,
            may_share: u.arbitrary()?,
            piece: if u.ratio(1, 4)? {
                Some(Piece {
                    from_bytes: u.arbitrary()?,
                    medium: u.int_in_range(0..=2)?,
                    data_out_bytes: u.arbitrary()?,
                })
            } else {
                None
            },
        };
        let command = Command { nexus: NexusId(1 + u64::from(u.arbitrary::<bool>()?)), number };
        now = execute(&mut engine, command, Seat { units: &units, memory, weight: 1 }, task, now, &mut last);
    }
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let memory = Region::new(2 << 20).unwrap();
    let _ = run(input, &memory);
    assert_eq!(memory.free_bytes(), memory.length_bytes(), "memory was lost");
});
