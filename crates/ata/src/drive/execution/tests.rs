use sanwire_buffer::Slice;
use sanwire_scsi::vpd::{BlockLimits, Identity, Provisioning, page, supported_pages, unit_serial_number};
use sanwire_scsi::{AdditionalSense, BlockCommand, Capacity, CommandSet, CommandStandard, Features, UnmapList};

use super::*;
use crate::identify::IdentifyDevice;
use crate::task_file::status;

const SECTORS: u64 = 1000;
const UUID: [u8; 16] = *b"0123456789abcdef";

/// A unit that answers questions about itself, and notes what else it is asked. What it refuses comes from `refusals` first.
#[derive(Default)]
struct Unit {
    drive: Drive,
    asked: Vec<BlockCommand>,
    refusals: VecDeque<Reply>,
    /// Somebody else has an Exclusive Access reservation.
    is_reserved: bool,
    /// Sectors beyond the usual ones.
    growth: u64,
}

impl Unit {
    fn answer(&mut self, ask: &Ask) -> Reply {
        if let Some(refusal) = self.refusals.pop_front() {
            return refusal;
        }
        if self.is_reserved && !matches!(ask.cdb[0], 0x12 | 0x9e) {
            return Reply::bare(Status::ReservationConflict);
        }
        let identity = Identity::new("disk0", UUID).unwrap();
        let limits = BlockLimits { maximum_unmap: 100, maximum_unmap_descriptors: 2, ..BlockLimits::default() };
        let limits = BlockLimits { maximum_write_same: 300, ..limits };
        let thin = Provisioning { unmap: true, reads_zeroes: true, ..Provisioning::default() };
        let data = match (ask.cdb[0], ask.cdb[1], ask.cdb[2]) {
            (0x12, 0, _) => sanwire_scsi::inquiry::standard_inquiry(false).to_vec(),
            (0x12, 1, 0) => supported_pages(&[page::BLOCK_LIMITS, page::LOGICAL_BLOCK_PROVISIONING]),
            (0x12, 1, page::UNIT_SERIAL_NUMBER) => unit_serial_number(&identity.serial()),
            (0x12, 1, page::DEVICE_IDENTIFICATION) => identity.to_page(&Default::default()),
            (0x12, 1, page::BLOCK_LIMITS) => limits.to_page(),
            (0x12, 1, page::LOGICAL_BLOCK_PROVISIONING) => thin.to_page(),
            (0x9e, ..) => Capacity { blocks: SECTORS + self.growth, ..capacity() }.to_sixteen().to_vec(),
            (0x1a, ..) => refused(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE).sense,
            _ => {
                let set = CommandSet::disk(Features::ALL);
                let operation = set.find(&ask.cdb).expect("a command of a disk");
                assert_eq!(operation.standard, CommandStandard::Block);
                let command = BlockCommand::parse(operation, &ask.cdb).unwrap();
                let out = ask.data_out.as_ref().map_or(0, |data| data.len() as u64);
                assert_eq!(command.data_out_bytes(512), out);
                self.asked.push(command);
                vec![7; ask.data_in_max_bytes as usize]
            }
        };
        Reply::good(Some(Slices::from(data)))
    }

    fn give(&mut self, task_file: TaskFile, data: &[u8]) -> Answer {
        let data = (!data.is_empty()).then(|| in_pieces(data));
        let mut drive = std::mem::take(&mut self.drive);
        let (mut execution, mut step) = Execution::begin(task_file, data, &mut drive);
        loop {
            step = match step {
                Step::Ask(ask) | Step::Later(ask) => execution.answered(self.answer(&ask), &mut drive),
                Step::Done(answer) => {
                    self.drive = drive;
                    return answer;
                }
            }
        }
    }

    fn asked(&mut self) -> Vec<BlockCommand> {
        std::mem::take(&mut self.asked)
    }
}

fn capacity() -> Capacity {
    let (provisioning_management, reads_zeroes) = (true, true);
    Capacity { blocks: SECTORS, block_bytes: 512, physical_block_exponent: 3, provisioning_management, reads_zeroes }
}

fn refused(key: SenseKey, additional: AdditionalSense) -> Reply {
    Reply { sense: Sense::new(key, additional).to_fixed(), ..Reply::bare(Status::CheckCondition) }
}

fn long(command: u8, features: u16, count: u16, lba: u64) -> TaskFile {
    let [b0, b1, b2, b3, b4, b5, ..] = lba.to_le_bytes();
    TaskFile::long(command, features, count, [b0, b1, b2, b3, b4, b5], 0x40)
}

fn short(command: u8, features: u8, count: u8, lba: [u8; 3]) -> TaskFile {
    TaskFile::short(command, features, count, lba, 0xe0)
}

/// As it comes in packets: in pieces that end where they like.
fn in_pieces(data: &[u8]) -> Slices {
    let whole = Slice::from(data.to_vec());
    let middle = data.len() / 2 - 1;
    Slices::join([whole.slice(0..middle), whole.slice(middle..data.len())].into_iter()).unwrap()
}

#[test]
fn the_unit_is_asked_who_it_is_and_told_as_an_ata_disk() {
    let answer = Unit::default().give(short(0xec, 0, 1, [0; 3]), &[]);
    assert!(answer.registers.is_success());
    let disk = IdentifyDevice::parse(&answer.data.unwrap().to_vec()).unwrap();
    assert_eq!((disk.sectors, disk.sector_bytes, disk.physical_sector_exponent), (SECTORS, 512, 3));
    assert_eq!((&*disk.model, &*disk.serial), ("SANWIRE disk0", "30313233343536373839"));
    assert_eq!(disk.world_wide_name, Some(Identity::new("disk0", UUID).unwrap().naa()));
    assert_eq!(disk.rotation_rate, 0, "the unit lists no page that says it");
    assert!(disk.trim.is_some_and(|trim| trim.reads_zeroes) && disk.abilities.has_flush_ext);
}

#[test]
fn reads_and_writes_are_those_of_the_unit() {
    let mut unit = Unit::default();
    let read = unit.give(long(0x24, 0, 2, 998), &[]);
    assert_eq!(read.data.unwrap().len(), 1024);
    assert!(unit.give(long(0x34, 0, 1, 5), &[1; 512]).registers.is_success());
    assert!(unit.give(long(0x3d, 0, 1, 6), &[1; 512]).registers.is_success());
    assert!(unit.give(short(0xe7, 0, 0, [0; 3]), &[]).registers.is_success());
    let extent = |lba, blocks| Extent { lba, blocks };
    let write = |lba, force_unit_access| BlockCommand::Write { extent: extent(lba, 1), force_unit_access };
    let flush = BlockCommand::SynchronizeCache { extent: extent(0, 0), immediate: false };
    let read = BlockCommand::Read { extent: extent(998, 2) };
    assert_eq!(unit.asked(), [read, write(5, false), write(6, true), flush]);
}

#[test]
fn without_a_write_cache_every_write_is_stable() {
    let mut unit = Unit::default();
    assert_eq!(unit.drive.settings(), Drive::default());
    unit.give(short(0xef, 0x82, 0, [0; 3]), &[]);
    assert_ne!(unit.drive.settings(), Drive::default());
    unit.give(short(0x30, 0, 1, [1, 0, 0]), &[1; 512]);
    assert!(matches!(unit.asked()[..], [BlockCommand::Write { force_unit_access: true, .. }]));
    unit.give(short(0xef, 0x02, 0, [0; 3]), &[]);
    unit.give(short(0x30, 0, 1, [1, 0, 0]), &[1; 512]);
    assert!(matches!(unit.asked()[..], [BlockCommand::Write { force_unit_access: false, .. }]));
}

#[test]
fn what_the_disk_does_not_have_is_refused_without_the_unit() {
    let mut unit = Unit::default();
    for (task_file, data, expected) in [
        (long(0x24, 0, 2, 999), 0, error::IDNF),
        (long(0x34, 0, 2, 999), 1024, error::IDNF),
        (long(0x34, 0, 2, 10), 512, error::ABRT),
        (long(0x06, 1, 1, 0), 0, error::ABRT),
        (short(0xc6, 0, 3, [0; 3]), 0, error::ABRT),
        (short(0xfe, 0, 0, [0; 3]), 0, error::ABRT),
    ] {
        let registers = unit.give(task_file, &vec![0; data]).registers;
        assert_eq!((registers.status & status::ERR, registers.error), (status::ERR, expected), "{task_file:?}");
    }
    unit.give(short(0xc6, 0, 0, [0; 3]), &[]);
    assert_eq!(unit.give(long(0x29, 0, 1, 0), &[]).registers.error, error::ABRT, "READ MULTIPLE is off");
    assert_eq!(unit.asked(), []);
}

#[test]
fn trims_go_in_lists_that_the_unit_takes() {
    let mut unit = Unit::default();
    let ranges = [(0, 150), (200, 30), (300, 30), (400, 30)].map(|(lba, blocks)| Extent { lba, blocks });
    let data = trim::parameters(&ranges);
    assert!(unit.give(long(0x06, 1, 1, 0), &data).registers.is_success());
    let unmaps = unit.asked().len();
    assert_eq!(unmaps, 3, "100 | 50 + 30 | 30 + 30");
    let beyond = trim::parameters(&[Extent { lba: 999, blocks: 2 }]);
    assert_eq!(unit.give(long(0x06, 1, 1, 0), &beyond).registers.lba, SECTORS);
    assert_eq!(unit.asked(), [], "none of it is trimmed");
    let list = unmap_parameters(&ranges).unwrap();
    assert_eq!(UnmapList::parse(&list).unwrap().len(), 4);
}

#[test]
fn zeroes_go_in_parts_that_the_unit_takes() {
    let mut unit = Unit::default();
    assert!(unit.give(long(0x44, 1, 400, 10), &[]).registers.is_success());
    let part = |lba, blocks| BlockCommand::WriteSame { extent: Extent { lba, blocks }, unmap: true, no_data: false };
    assert_eq!(unit.asked(), [part(10, 300), part(310, 100)]);
}

#[test]
fn what_the_unit_has_to_tell_first_is_heard_and_the_command_begins_anew() {
    let mut unit = Unit::default();
    let attention = || refused(SenseKey::UnitAttention, AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
    unit.refusals.extend([attention(), Reply::bare(Status::Busy), attention(), Reply::bare(Status::TaskAborted)]);
    assert!(unit.give(long(0x34, 0, 1, 5), &[1; 512]).registers.is_success());
    assert_eq!(unit.asked().len(), 1);
    unit.refusals.extend((0..40).map(|_| attention()));
    assert_eq!(unit.give(long(0x24, 0, 1, 5), &[]).registers.error, error::ABRT, "the answer stays the same");
}

/// A unit that has become larger, and a question that was asked before.
#[test]
fn an_answer_that_comes_late_does_not_undo_a_newer_one() {
    let mut unit = Unit::default();
    let identify = short(0xec, 0, 1, [0; 3]);
    let mut drive = Drive::default();
    let (mut early, step) = Execution::begin(identify, None, &mut drive);
    let Step::Ask(capacity) = step else { panic!("{step:?}") };
    let old = unit.answer(&capacity);
    unit.growth = 500;
    unit.drive = drive;
    let grown = unit.give(identify, &[]).data.expect("what it is");
    assert_eq!(IdentifyDevice::parse(&grown.to_vec()).unwrap().sectors, SECTORS + 500);
    let mut drive = std::mem::take(&mut unit.drive);
    let mut step = early.answered(old, &mut drive);
    while let Step::Ask(ask) = step {
        step = early.answered(unit.answer(&ask), &mut drive);
    }
    let Step::Done(Answer { data: Some(data), .. }) = step else { panic!("{step:?}") };
    assert_eq!(IdentifyDevice::parse(&data.to_vec()).unwrap().sectors, SECTORS + 500, "it hears of it, too");
    unit.drive = drive;
    assert!(unit.give(long(0x24, 0, 1, SECTORS + 499), &[]).registers.is_success(), "the new sectors are there");
}

/// The answers came before the unit told somebody else of a change: they are not believed, and it is asked once more.
#[test]
fn an_answer_of_before_a_change_is_not_believed() {
    let mut unit = Unit::default();
    let read = long(0x24, 0, 1, 0);
    let mut drive = Drive::default();
    let (mut early, step) = Execution::begin(read, None, &mut drive);
    let (mut told, _) = Execution::begin(read, None, &mut drive);
    let Step::Ask(capacity) = step else { panic!("{step:?}") };
    let mut step = early.answered(unit.answer(&capacity), &mut drive);
    unit.growth = 500;
    told.answered(refused(SenseKey::UnitAttention, AdditionalSense::CAPACITY_DATA_HAS_CHANGED), &mut drive);
    let mut capacities = 0;
    while let Step::Ask(ask) = step {
        capacities += usize::from(ask.cdb[0] == 0x9e);
        step = early.answered(unit.answer(&ask), &mut drive);
    }
    assert_eq!(capacities, 1);
    unit.drive = drive;
    assert!(unit.give(long(0x24, 0, 1, SECTORS + 499), &[]).registers.is_success());
}

#[test]
fn a_unit_that_somebody_has_for_himself_says_what_it_is_and_does_nothing() {
    let mut unit = Unit { is_reserved: true, ..Unit::default() };
    let identify = short(0xec, 0, 1, [0; 3]);
    let answer = unit.give(identify, &[]);
    let disk = IdentifyDevice::parse(&answer.data.expect("what it is").to_vec()).unwrap();
    assert_eq!((disk.sectors, &*disk.model), (SECTORS, "SANWIRE disk0"));
    assert_eq!(unit.give(long(0x24, 0, 1, 5), &[]).registers.error, error::ABRT);
    assert_eq!(unit.asked(), []);
    unit.is_reserved = false;
    assert!(unit.give(long(0x24, 0, 1, 5), &[]).registers.is_success());
}

#[test]
fn failures_have_the_bits_that_hosts_look_for() {
    let mut unit = Unit::default();
    unit.give(short(0xec, 0, 1, [0; 3]), &[]);
    let mut failed = |task_file: TaskFile, data: usize, reply: Reply| {
        unit.refusals.push_back(reply);
        unit.give(task_file, &vec![0; data]).registers
    };
    let (read, write) = (long(0x24, 0, 4, 5), long(0x34, 0, 1, 5));
    let medium = Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR).with_information(7);
    let medium = || Reply { sense: medium.to_fixed(), ..Reply::bare(Status::CheckCondition) };
    let registers = failed(read, 0, medium());
    assert_eq!((registers.error, registers.lba, registers.status & status::DF), (error::UNC, 7, 0));
    let registers = failed(write, 512, medium());
    assert_eq!((registers.error, registers.status & status::DF), (error::ABRT, status::DF));
    let protected = failed(write, 512, refused(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
    assert_eq!(protected.error, error::WP | error::ABRT);
    let full = refused(SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT);
    assert_eq!(failed(write, 512, full).error, error::ABRT);
    assert_eq!(failed(write, 512, Reply::bare(Status::ReservationConflict)).error, error::ABRT);
    let empty = refused(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT);
    assert_eq!(failed(read, 0, empty).error, error::NM | error::ABRT);
}

#[test]
fn smart_is_told_while_it_is_enabled() {
    let mut unit = Unit::default();
    let smart = |features| short(0xb0, features, 0, [0, 0x4f, 0xc2]);
    assert_eq!(unit.give(smart(0xd0), &[]).data.map(|data| data.len()), Some(512));
    assert_eq!(unit.give(smart(0xda), &[]).registers.lba >> 8, 0xc24f);
    unit.give(smart(0xd9), &[]);
    assert_eq!(unit.give(smart(0xd0), &[]).registers.error, error::ABRT);
    unit.give(smart(0xd8), &[]);
    assert!(unit.give(smart(0xd0), &[]).registers.is_success());
    assert_eq!(unit.give(short(0xe5, 0, 0, [0; 3]), &[]).registers.count, 0xff);
    assert_eq!(unit.give(long(0x27, 0, 0, 0), &[]).registers.lba, SECTORS - 1);
}
