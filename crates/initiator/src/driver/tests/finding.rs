//! One volume of a server that has very many.

use super::*;
use crate::inventory::Sought;
use crate::session::table::Naming;
use sanwire_scsi::report;

const UNITS: u16 = 1000;

/// Commands as units were given them.
type Log = Arc<Mutex<Vec<(u16, u8)>>>;

/// A server with disks `v0`, `v1` and so on, and a unit for managing it besides; each answer takes a millisecond, however many are under
/// way. A unit with an `error` fails INQUIRY.
fn server(error: Option<u16>) -> (Driver, Log, Arc<Stage>) {
    let (log, stage) = (Log::default(), Arc::<Stage>::default());
    let (given, clock) = (Arc::clone(&log), Arc::clone(&stage));
    let luns: Vec<Lun> = (0..=UNITS).filter_map(Lun::new).collect();
    let devices = move |lun: Lun, cdb: &Cdb| {
        given.lock().expect("no panic").push((lun.number(), cdb.operation_code()));
        clock.open_gate(1);
        let bytes = cdb.as_ref();
        let told = match (bytes[0], bytes[1], bytes[2]) {
            (0x12, ..) if error == Some(lun.number()) => refuse(SenseKey::HardwareError, AdditionalSense::WRITE_ERROR),
            (0x12, 0, _) if lun.number() == UNITS => {
                (Status::Good, Vec::new(), [&[12, 0, 2, 2, 31][..], &[b' '; 31]].concat())
            }
            (0x12, 1, 0x83) => {
                let identity = Identity::new(&format!("v{lun}"), [lun.number() as u8; 16]).expect("a name");
                (Status::Good, Vec::new(), identity.to_page(&TargetPort::default()))
            }
            (0xa0, ..) => (Status::Good, Vec::new(), report::luns(&luns)),
            (0x25, ..) => (Status::Good, Vec::new(), vec![0, 0, 0x0f, 0xff, 0, 0, 2, 0]),
            _ => introduce(cdb)
                .unwrap_or_else(|| refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE)),
        };
        Err(Silence::Gated(told))
    };
    (driver_of(Box::new(devices), Arc::clone(&stage)), log, stage)
}

fn now_ms(stage: &Stage) -> u64 {
    stage.now_ms.load(Ordering::SeqCst)
}

#[test]
fn a_volume_that_is_named_by_its_number_is_the_only_one_that_is_asked() {
    let (mut driver, log, _) = server(Some(3));
    let Ok(Sought::Found(found)) = inventory::find(&mut driver, "array", "900", Naming::ByLun) else {
        panic!("it is there")
    };
    assert_eq!((&*found.name, found.lun.number()), ("v900", 900));
    let log = log.lock().expect("no panic");
    let lists = log.iter().filter(|(_, code)| *code == 0xa0).count();
    assert_eq!(lists, 2, "the second time with as much room as the list takes");
    assert!(log.iter().all(|(lun, code)| *lun == 900 || *code == 0xa0), "{log:?}");
}

#[test]
fn a_volume_that_is_sought_by_its_name_is_found_by_asking_many_at_once_and_none_behind_it() {
    let (mut driver, log, stage) = server(Some(3));
    let Ok(Sought::Found(found)) = inventory::find(&mut driver, "array", "v900", Naming::ByName) else {
        panic!("it is there")
    };
    assert_eq!((&*found.name, found.lun.number()), ("v900", 900));
    assert!(now_ms(&stage) < 100, "one after the other takes 1800 ms, and this {}", now_ms(&stage));
    let farthest = log.lock().expect("no panic").iter().map(|(lun, _)| *lun).max();
    assert!(farthest < Some(950), "{farthest:?}");
}

#[test]
fn all_volumes_are_listed_by_asking_many_at_once() {
    let (mut driver, _, stage) = server(None);
    let volumes = inventory::volumes(&mut driver, "array").expect("it answers");
    let names: Vec<&str> = volumes.iter().map(|volume| &*volume.name).collect();
    assert_eq!((names.len(), names[0], names[999]), (1000, "v0", "v999"), "not the unit for managing it");
    // These disks have no list of pages and the short READ CAPACITY only: of that each is asked on its own.
    assert!(now_ms(&stage) < 8 * 1000, "{} ms", now_ms(&stage));
}

#[test]
fn who_asks_for_a_volume_that_is_not_there_is_told_some_that_are() {
    for naming in [Naming::ByName, Naming::ByLun] {
        let (mut driver, ..) = server(None);
        let Ok(Sought::Absent(there)) = inventory::find(&mut driver, "array", "x", naming) else {
            panic!("it is not there")
        };
        let first = if naming == Naming::ByLun { "0, 1, 2" } else { "v0, v1, v2" };
        assert!(there.starts_with(first) && there.ends_with("and others (`sanwire ls` lists them)"), "{there}");
        assert!(there.len() < 300, "{there}");
    }
    let (mut driver, ..) = server(Some(3));
    let failed =
        inventory::find(&mut driver, "array", "x", Naming::ByName).err().expect("one unit did not say who it is");
    assert!(failed.to_string().contains("INQUIRY"), "{failed}");
}
