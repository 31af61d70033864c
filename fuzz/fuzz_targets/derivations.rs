//! Units that are derived from each other in whatever way, and commands to them: nothing changes but blocks that a unit has, and nothing is
//! read but these; what a token stands for is what was there.
#![no_main]

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::{Region, Slice};
use sanwire_core::{ClientId, Instant, Lun, NexusId, Principal, WallClock};
use sanwire_device::{
    AllowedOperations, Derivation, DerivedExtent, LogicalUnit, LogicalUnits, NexusPorts, Progress, TokenSeed,
    UnitOptions,
};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Cdb, Extent, Identity, OperationClasses, Reply, Status, Task, build, unmap_parameters};
use sanwire_store::{Outcome, RamStore, Request};
use sanwire_store_file::blocking;

const BLOCKS: u64 = 48;
const BLOCK: usize = 512;
const NEXUS: NexusId = NexusId(1);

struct World {
    units: LogicalUnits,
    store: Arc<RamStore>,
    memory: Region,
    /// Of each unit, which blocks of the store it has.
    maps: Vec<Vec<u64>>,
    /// The token that was made last.
    token: Vec<u8>,
}

impl World {
    fn new() -> World {
        let store = Arc::new(RamStore::new(BLOCKS * BLOCK as u64, BLOCK as u32));
        let units = LogicalUnits::new();
        let options = UnitOptions { token_seed: Some(TokenSeed::new([1; 32])), ..UnitOptions::default() };
        let root = LogicalUnit::new(identity(0), store.clone(), options).expect("a disk");
        units.add(Lun::default(), root).expect("the first unit");
        let initiator = TransportId::hyperscsi(ClientId([1; 16]));
        let ports = NexusPorts { initiator, target: TargetPort::default(), principal: Principal::default() };
        units.nexus_established(NEXUS, Arc::new(ports));
        let mut token = vec![0; 512];
        token[..8].copy_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 1, 0xf8]);
        World { units, store, memory: Region::new(1 << 20).expect("memory"), maps: vec![(0..BLOCKS).collect()], token }
    }

    /// Derives a unit from one that is there, if such a unit can be derived.
    fn derive(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let from = u.choose_index(self.maps.len())?;
        let mut extents = Vec::new();
        for _ in 0..u.int_in_range(0..=4u8)? {
            let (lba, blocks) = (u.int_in_range(0..=BLOCKS)?, u.int_in_range(0..=16u64)?);
            let skew = if u.ratio(1, 32)? { u.arbitrary::<u16>()?.into() } else { 0 };
            extents.push(DerivedExtent { offset_bytes: lba * 512 + skew, length_bytes: blocks * 512 });
        }
        let classes = if u.arbitrary()? { u.arbitrary()? } else { u8::MAX };
        let operations = AllowedOperations::of(OperationClasses::from_bits(classes));
        let (until_unix_ms, program, admission) = (None, None, None);
        let clock = WallClock::default();
        let derivation = Derivation { extents: extents.clone(), operations, admission, until_unix_ms, program, clock };
        let number = self.maps.len() as u16;
        let parent = self.units.get(lun(from as u16)).expect("it was added");
        let unit = LogicalUnit::derive(identity(number), &parent, derivation, UnitOptions::default());
        let Ok(unit) = unit else { return Ok(()) };
        self.units.add(lun(number), unit).expect("a free number");
        let of = |extent: &DerivedExtent| extent.offset_bytes / 512..(extent.offset_bytes + extent.length_bytes) / 512;
        let map = extents.iter().flat_map(of).map(|lba| self.maps[from][lba as usize]).collect();
        self.maps.push(map);
        Ok(())
    }

    fn content(&self) -> Vec<u8> {
        let buffer = vec![0; BLOCKS as usize * BLOCK].into();
        match blocking::run(&*self.store, Request::Read { offset_bytes: 0, buffer }) {
            Ok(Outcome::Read(frame)) => frame.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn run(&self, unit: usize, cdb: Cdb, data: Vec<u8>) -> Reply {
        let task = Task {
            lun: Some(lun(unit as u16)),
            cdb,
            data_out: (!data.is_empty()).then(|| Slice::from(data).into()),
            tells_residual: false,
            data_in_max_bytes: 1 << 20,
            may_share: true,
            piece: None,
            receipts: 0,
        };
        let mut progress = self.units.begin(NEXUS, task, &self.memory, Instant::ZERO);
        for _ in 0..10_000 {
            progress = match progress {
                Progress::Done(reply) | Progress::Piece(reply, _) => return reply,
                Progress::Store(execution, request) | Progress::Answered(execution, request) => {
                    let completion = blocking::run(&**execution.store(), request);
                    self.units.resume(execution, completion, &self.memory)
                }
                Progress::Abort(execution, _) => self.units.resume(execution, Ok(Outcome::Done), &self.memory),
                Progress::Wait(waiting) => self.units.retry(waiting, &self.memory),
                other => panic!("{other:?}: there is memory, and no program"),
            };
        }
        panic!("{cdb:?} never ends");
    }

    /// Gives a command, and looks at what it has read and changed.
    fn command(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let unit = u.choose_index(self.maps.len())?;
        let extent = Extent { lba: u.int_in_range(0..=BLOCKS)?, blocks: u.int_in_range(1..=12)? };
        let byte: u8 = u.arbitrary()?;
        let block = vec![byte; BLOCK];
        let kind = u.int_in_range(0..=6u8)?;
        let (cdb, data) = match kind {
            0 => (build::read_16(extent), Vec::new()),
            1 => (build::write_16(extent, false), vec![byte; BLOCK * extent.blocks as usize]),
            2 => (build::write_same_16(extent, u.arbitrary()?, false), block),
            3 => {
                let list = unmap_parameters(&[extent]).expect("a list");
                (build::unmap(list.len() as u16), list)
            }
            4 => populate(extent),
            5 => write_token(&self.token, extent),
            _ => (Cdb::from([0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0]), Vec::new()),
        };
        let before = self.content();
        let reply = self.run(unit, cdb, data);
        let after = self.content();
        let own = |lba: u64| self.maps[unit].contains(&lba);
        for lba in (0..BLOCKS).filter(|lba| !own(*lba)) {
            let place = lba as usize * BLOCK..(lba as usize + 1) * BLOCK;
            assert_eq!(before[place.clone()], after[place], "{cdb:?} of unit {unit} has changed block {lba}");
        }
        if reply.status != Status::Good {
            return Ok(());
        }
        let from = extent.lba as usize;
        match kind {
            0 => {
                let read = reply.data_in.map_or(Vec::new(), |data| data.to_vec());
                let map = self.maps[unit][from..from + extent.blocks as usize].iter();
                let wanted: Vec<u8> = map.flat_map(|lba| &before[*lba as usize * BLOCK..][..BLOCK]).copied().collect();
                assert_eq!(read, wanted);
            }
            4 => {
                let cdb = [0x84, 0x07, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0];
                let told = self.run(unit, cdb.into(), Vec::new()).data_in.map_or(Vec::new(), |data| data.to_vec());
                self.token = told[38..].to_vec();
            }
            _ => {}
        }
        Ok(())
    }
}

fn lun(number: u16) -> Lun {
    Lun::new(number).expect("a small number")
}

fn identity(number: u16) -> Identity {
    Identity::new(&format!("unit{number}"), (u128::from(number + 1) << 64).to_be_bytes()).expect("a name")
}

fn range(extent: Extent) -> Vec<u8> {
    let mut bytes = extent.lba.to_be_bytes().to_vec();
    bytes.extend(extent.blocks.to_be_bytes());
    bytes.resize(16, 0);
    bytes
}

fn populate(extent: Extent) -> (Cdb, Vec<u8>) {
    let list = [&[0, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16][..], &range(extent)].concat();
    (Cdb::from([0x83, 0x10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 32, 0, 0]), list)
}

fn write_token(token: &[u8], extent: Extent) -> (Cdb, Vec<u8>) {
    let head = [2, 0x26, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let list = [&head[..], token, &[0, 0, 0, 0, 0, 0, 0, 16], &range(extent)].concat();
    (Cdb::from([0x83, 0x11, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0x28, 0, 0]), list)
}

fn run(input: &[u8]) -> Result<()> {
    let mut u = Unstructured::new(input);
    let mut world = World::new();
    for _ in 0..80 {
        if u.is_empty() {
            break;
        }
        if world.maps.len() < 6 && u.ratio(1, 4)? {
            world.derive(&mut u)?;
        } else if u.ratio(1, 24)? {
            let unit = u.choose_index(world.maps.len())?;
            world.units.get(lun(unit as u16)).expect("it was added").revoke();
        } else {
            world.command(&mut u)?;
        }
    }
    assert_eq!(world.memory.free_bytes(), world.memory.length_bytes(), "memory was lost");
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
