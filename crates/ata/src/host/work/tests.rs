use sanwire_scsi::mode::ModeData;
use sanwire_scsi::vpd::page;
use sanwire_scsi::{Capacity, DeviceIdentification, ModeForm, PageControl, build, mode, unmap_parameters};

use super::*;
use crate::identify::{Abilities, Trim};
use crate::task_file::{error, status};

fn disk() -> IdentifyDevice {
    IdentifyDevice {
        serial: "7.3:host".to_owned(),
        firmware: "V25".to_owned(),
        model: "Coraid EtherDrive vblade".to_owned(),
        sectors: 2000,
        sector_bytes: 512,
        physical_sector_exponent: 0,
        rotation_rate: 0,
        world_wide_name: None,
        multiple: 0,
        dma_mode: None,
        abilities: Abilities { has_48_bit_addresses: true, has_flush: true, ..Abilities::default() },
        run: None,
        trim: None,
    }
}

fn told(host: &Host, cdb: Cdb) -> Told {
    match host.plan(&cdb, &[]) {
        Plan::Tell(told) => told,
        Plan::Do(work) => panic!("{work:?}"),
    }
}

#[test]
fn questions_are_answered_by_what_the_disk_has_said() {
    let host = Host::new("7.3", disk()).unwrap();
    let capacity = Capacity::parse_sixteen(&told(&host, build::read_capacity_16(32)).data).unwrap();
    assert_eq!((capacity.blocks, capacity.block_bytes), (2000, 512));
    let page = told(&host, build::inquiry(Some(page::DEVICE_IDENTIFICATION), 4096)).data;
    let identity = DeviceIdentification::parse(&page).unwrap().identity().unwrap();
    assert_eq!(identity.name(), "7.3");
    let other = Host::new("7.3", IdentifyDevice { serial: "7.3:other".to_owned(), ..disk() }).unwrap();
    assert_ne!(other.identity.uuid(), identity.uuid());
    let named = Host::new("7.3", IdentifyDevice { world_wide_name: Some(0x3123_4567_89ab_cdef), ..disk() }).unwrap();
    let page = told(&named, build::inquiry(Some(page::DEVICE_IDENTIFICATION), 4096)).data;
    assert_eq!(DeviceIdentification::parse(&page).unwrap().naa(), Some(0x3123_4567_89ab_cdef), "its own name");
    let inquiry = told(&host, build::inquiry(None, 36)).data;
    assert_eq!(&inquiry[8..32], b"ATA     Coraid EtherDriv");
    let mode = told(&host, build::mode_sense_6(PageControl::Current, mode::page::CACHING, 252)).data;
    let mode = ModeData::parse(ModeForm::Six, &mode).unwrap();
    assert_eq!((mode.write_cache(), mode.force_unit_access), (Some(true), false), "it does not say that it has none");
    assert_eq!(told(&host, build::test_unit_ready()).status, Status::Good);
    assert_eq!(told(&host, build::inquiry(Some(page::WRITE_VERIFIER), 64)).status, Status::CheckCondition);
    assert_eq!(
        told(&host, build::write_same_16(Extent { lba: 0, blocks: 1 }, false, false)).status,
        Status::CheckCondition
    );
}

#[test]
fn work_is_cut_into_commands_of_the_form_that_the_disk_has() {
    let host = Host::new("7.3", disk()).unwrap();
    let extent = Extent { lba: 0x123, blocks: 5 };
    let Plan::Do(read) = host.plan(&build::read_16(extent), &[]) else { panic!("read") };
    assert_eq!((read.parts(), read.changes(0, 2)), (5, None));
    assert_eq!(host.command(&read, 2, 3), TaskFile::long(0x24, 0, 3, [0x25, 1, 0, 0, 0, 0], 0x40));
    let Plan::Do(write) = host.plan(&build::write_16(extent, false), &[0; 5 * 512]) else { panic!("write") };
    assert_eq!(write.changes(2, 3), Some(Extent { lba: 0x125, blocks: 3 }));
    assert_eq!(host.command(&write, 0, 2).command, 0x34);
    assert_eq!(told(&host, build::write_16(extent, true)).status, Status::CheckCondition, "no FUA");
    let Plan::Do(flush) = host.plan(&build::synchronize_cache_16(extent), &[]) else { panic!("flush") };
    assert_eq!(host.command(&flush, 0, 0).command, 0xe7);
    let old = IdentifyDevice { abilities: Abilities::default(), ..disk() };
    let host = Host::new("7.3", old).unwrap();
    assert_eq!(host.command(&read, 2, 3), TaskFile::short(0x20, 0, 3, [0x25, 1, 0], 0xe0));
    assert_eq!(told(&host, build::synchronize_cache_16(extent)).status, Status::Good, "it tells of no cache");
    let abilities = |write_cache| Abilities { write_cache, ..Abilities::default() };
    for (write_cache, status) in [(Some(false), Status::Good), (Some(true), Status::CheckCondition)] {
        let host = Host::new("7.3", IdentifyDevice { abilities: abilities(write_cache), ..disk() }).unwrap();
        assert_eq!(told(&host, build::synchronize_cache_16(extent)).status, status, "a cache that is {write_cache:?}");
    }
    let beyond = told(&host, build::read_16(Extent { lba: 1999, blocks: 2 }));
    assert_eq!(Sense::parse(&beyond.sense).unwrap().additional, AdditionalSense::LBA_OUT_OF_RANGE);
}

/// In a short task file WRITE DMA FUA EXT would have another address, or be another command.
#[test]
fn forced_writes_are_only_of_disks_with_long_addresses() {
    let extent = Extent { lba: 5, blocks: 1 };
    for has_48_bit_addresses in [true, false] {
        let abilities = Abilities { has_48_bit_addresses, has_forced_writes: true, ..Abilities::default() };
        let said = IdentifyDevice { abilities, ..disk() }.to_bytes();
        let host = Host::new("7.3", IdentifyDevice::parse(&said).unwrap()).unwrap();
        let forced = host.plan(&build::write_16(extent, true), &[0; 512]);
        let mode = told(&host, build::mode_sense_6(PageControl::Current, mode::page::CACHING, 252)).data;
        let mode = ModeData::parse(ModeForm::Six, &mode).unwrap();
        match forced {
            Plan::Do(work) => assert_eq!((host.command(&work, 0, 1).is_long, has_48_bit_addresses), (true, true)),
            Plan::Tell(told) => assert_eq!((told.status, has_48_bit_addresses), (Status::CheckCondition, false)),
        }
        assert_eq!(mode.force_unit_access, has_48_bit_addresses);
    }
}

#[test]
fn unmapped_blocks_are_trimmed_where_the_disk_can() {
    let list = unmap_parameters(&[Extent { lba: 10, blocks: 5 }, Extent { lba: 100, blocks: 50 }]).unwrap();
    let unmap = build::unmap(list.len() as u16);
    let host = Host::new("7.3", disk()).unwrap();
    assert!(matches!(host.plan(&unmap, &list), Plan::Tell(Told { status: Status::CheckCondition, .. })));
    let trim = Some(Trim { blocks_max: 1, reads_zeroes: true });
    let host = Host::new("7.3", IdentifyDevice { trim, ..disk() }).unwrap();
    let Plan::Do(work) = host.plan(&unmap, &list) else { panic!("trim") };
    assert_eq!((work.parts(), work.changes(0, 1)), (1, Some(Extent { lba: 10, blocks: 140 })));
    assert_eq!(host.command(&work, 0, 1), TaskFile::long(0x06, 1, 1, [0; 6], 0x40));
}

#[test]
fn failures_are_told_as_sense_data() {
    let host = Host::new("7.3", disk()).unwrap();
    let read = Work::Read(Extent { lba: 0, blocks: 8 });
    let write = Work::Write { extent: Extent { lba: 0, blocks: 8 }, is_stable: false };
    let registers = |error, status| Registers { status, error, count: 0, lba: 5, device: 0 };
    let key = |work: &Work, registers: Registers| {
        let sense = Sense::parse(&host.told(work, Some(&registers)).sense).unwrap();
        (sense.key, sense.information.is_some())
    };
    let failed = status::DRDY | status::ERR;
    assert_eq!(key(&read, registers(error::UNC, failed)), (SenseKey::MediumError, true));
    assert_eq!(key(&write, registers(error::WP | error::ABRT, failed)), (SenseKey::DataProtect, false));
    assert_eq!(key(&write, registers(error::ABRT, failed | status::DF)), (SenseKey::HardwareError, false));
    assert_eq!(key(&read, registers(error::IDNF, failed)), (SenseKey::IllegalRequest, false));
    assert_eq!(key(&read, registers(error::ABRT, failed)), (SenseKey::AbortedCommand, false));
    assert_eq!(host.told(&read, None).status, Status::Good);
}
