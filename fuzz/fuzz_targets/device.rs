//! A disk and whatever commands: no panic, never an answer longer than the room for it, every command ends.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::Region;
use sanwire_core::{ClientId, Instant, Lun, NexusId};
use sanwire_device::{Disk, DiskOptions, LogicalUnits, NexusPorts, Progress};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Cdb, Features, Identity, Operation, Piece, Status, Task};
use sanwire_store::{Outcome, RamStore, Started};

/// A command block whose fields are mostly small, of a command that a disk may have.
fn cdb(u: &mut Unstructured<'_>) -> Result<Cdb> {
    let known: Vec<&Operation> = Operation::supported(Features { thin: true, atomic: true }).collect();
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

fn run(input: &[u8], memory: &Region) -> Result<()> {
    let mut u = Unstructured::new(input);
    let block_bytes = if u.arbitrary()? { 512 } else { 4096 };
    let units = LogicalUnits::new();
    let store = Arc::new(RamStore::new(64 * u64::from(block_bytes), block_bytes));
    let identity = Identity::new("volume", [9; 16]).unwrap();
    let options = DiskOptions { write_cache: u.arbitrary()?, removable: u.arbitrary()?, ..DiskOptions::default() };
    let disk = Disk::new(identity, store, options).unwrap();
    units.add(Lun::default(), disk).unwrap();
    for number in [1, 2] {
        let initiator = TransportId::hyperscsi(ClientId([number; 16]));
        let ports = NexusPorts { initiator, target: TargetPort::default() };
        units.nexus_established(NexusId(number.into()), Arc::new(ports));
    }
    for second in 0..60 {
        if u.is_empty() {
            break;
        }
        let room = if u.ratio(7, 8)? { 1 << 20 } else { u32::from(u.arbitrary::<u16>()?) };
        let data = match u.int_in_range(0..=3u8)? {
            0 => Vec::new(),
            1 => vec![7; block_bytes as usize * u.int_in_range(1..=8usize)?],
            _ => {
                let length = u.int_in_range(0..=48usize)?;
                u.bytes(length.min(u.len()))?.to_vec()
            }
        };
        let (cdb, data) = if u.ratio(1, 8)? { copy(&mut u)? } else { (cdb(&mut u)?, data) };
        let task = Task {
            lun: if u.ratio(15, 16)? { Some(Lun::default()) } else { Lun::new(u.int_in_range(0..=3)?) },
            cdb,
            data_out: (!data.is_empty()).then(|| data.into()),
            tells_residual: u.arbitrary()?,
            data_in_max_bytes: room,
            may_share: u.arbitrary()?,
            piece: if u.ratio(1, 4)? {
                Some(Piece { from_bytes: u.arbitrary()?, data_out_bytes: u.arbitrary()? })
            } else {
                None
            },
        };
        let shown = format!("{:?}", task.cdb);
        let now = Instant::ZERO + Duration::from_secs(second);
        let mut progress = units.begin(NexusId(1 + u64::from(u.arbitrary::<bool>()?)), task, memory, now);
        for turn in 0.. {
            assert!(turn < 20_000, "{shown} never ends");
            match progress {
                Progress::Done(reply) | Progress::Piece(reply, _) => {
                    assert!(reply.data_in.map_or(0, |data| data.len()) <= room as usize, "{shown} answers too much");
                    assert_eq!(reply.sense.is_empty(), reply.status != Status::CheckCondition, "{shown}");
                    break;
                }
                Progress::NoMemory(_) => break,
                Progress::Abort(execution, _) => progress = units.resume(execution, Ok(Outcome::Done), memory),
                Progress::Wait(waiting) => progress = units.retry(waiting, memory),
                Progress::Store(execution, request) | Progress::Answered(execution, request) => {
                    match execution.store().start(request) {
                        Started::Done(completion) => progress = units.resume(execution, completion, memory),
                        _ => panic!("memory answers at once"),
                    }
                }
            }
        }
    }
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let memory = Region::new(2 << 20).unwrap();
    let _ = run(input, &memory);
    assert_eq!(memory.free_bytes(), memory.length_bytes(), "memory was lost");
});
