use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sanwire_buffer::Region;
use sanwire_scsi::vpd::{Identity, TargetPort, WriteVerifier};
use sanwire_scsi::{AdditionalSense, Capacity, Cdb, Sense, SenseKey, Status};

use super::*;
use crate::inventory;
use crate::session::Order;
use crate::volume::tests::block_on;
use crate::volume::{BufferPool, Volume, VolumeInfo, WireUnit};

const BLOCK_BYTES: u32 = 512;

mod away;
mod exclusive;
mod finding;
mod hostile;
mod keeping;
mod looking;
mod power;
mod scripted;

use scripted::*;

fn array() -> ServerInfo {
    ServerInfo {
        name: "array".into(),
        commands_max: 8,
        transfer_max_bytes: 1 << 20,
        transfer_limit_bytes: 1 << 20,
        unit: WireUnit::Packet(0),
        public_key: None,
        rate_cap_bytes_per_second: None,
    }
}

fn driver(mut device: Device) -> Driver {
    driver_of(Box::new(move |_, cdb| Ok(device(cdb))), Arc::default())
}

fn driver_of(devices: Devices, stage: Arc<Stage>) -> Driver {
    let connected = Event::Connected { server: array(), resumed: true };
    let session = Scripted {
        devices,
        events: VecDeque::from([connected]),
        orders: 0,
        gated: Vec::new(),
        unanswered: Vec::new(),
        stage,
    };
    let mut driver = Driver::new(Box::new(session), Waker::new().expect("an event descriptor"));
    driver.turn();
    driver
}

/// A handle of the first unit, which the driver serves.
fn open(driver: &mut Driver) -> Volume {
    open_unit(driver, 0)
}

fn open_unit(driver: &mut Driver, at: usize) -> Volume {
    let summary = inventory::volumes(driver, "array").unwrap_or_else(|error| panic!("{error}")).remove(at);
    let info = InfoCell::new(VolumeInfo {
        size_bytes: summary.size_bytes,
        block_bytes: summary.block_bytes,
        naa: summary.mark.naa(),
        ..crate::volume::tests::info()
    });
    let queue = OpQueue::new(Arc::new(|| ()));
    let pool = BufferPool::new(Region::new(1 << 20).expect("memory"));
    let volume = Volume::from_queue(info.clone(), &queue, pool);
    driver.serve(&summary, queue, info);
    volume
}

/// Serves until the operation, on a thread of its own, has its result.
fn serve<T: Send>(driver: &mut Driver, operation: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(operation));
        while !waiting.is_finished() {
            driver.turn();
        }
        waiting.join().expect("no panic")
    })
}

/// What every device here says of itself: it has unit 0, which is a disk without pages.
fn introduce(cdb: &Cdb) -> Option<(Status, Vec<u8>, Vec<u8>)> {
    let bytes = cdb.as_ref();
    match bytes[0] {
        0xa0 => Some((Status::Good, Vec::new(), sanwire_scsi::report::luns(&[Lun::default()]))),
        0x12 if bytes[1] == 0 => Some((Status::Good, Vec::new(), [&[0, 0, 2, 2, 31][..], &[b' '; 31]].concat())),
        0x12 | 0x1a => Some(refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB)),
        _ => None,
    }
}

fn refuse(key: SenseKey, reason: AdditionalSense) -> (Status, Vec<u8>, Vec<u8>) {
    (Status::CheckCondition, Sense::new(key, reason).to_fixed(), Vec::new())
}

#[test]
fn a_server_that_is_there_but_answers_no_command_is_not_waited_for_longer_than_that() {
    let mut driver = driver_of(Box::new(|_, _| Err(Silence::Never)), Arc::default());
    for patience in [Duration::from_millis(10), Duration::ZERO] {
        let error = driver.within(patience, |driver| inventory::volumes(driver, "array")).expect_err("silence");
        assert!(error.to_string().contains("does not answer what it is asked"), "{error}");
        assert!(driver.waiting.is_empty() && driver.own_until.is_none());
    }
}

#[test]
fn a_resize_is_seen_with_the_next_operation() {
    let capacity = |blocks| Capacity {
        blocks,
        block_bytes: BLOCK_BYTES,
        physical_block_exponent: 0,
        provisioning_management: false,
        reads_zeroes: false,
    };
    let blocks = Arc::new(Mutex::new(1000));
    let mut told_blocks = 1000;
    let now_blocks = Arc::clone(&blocks);
    let mut driver = driver(Box::new(move |cdb| {
        let blocks = *now_blocks.lock().expect("no panic");
        match cdb.operation_code() {
            0x9e => (Status::Good, Vec::new(), capacity(blocks).to_sixteen().to_vec()),
            0x91 if blocks != told_blocks => {
                told_blocks = blocks;
                refuse(SenseKey::UnitAttention, AdditionalSense::CAPACITY_DATA_HAS_CHANGED)
            }
            _ => introduce(cdb).unwrap_or((Status::Good, Vec::new(), Vec::new())),
        }
    }));
    let volume = open(&mut driver);
    *blocks.lock().expect("no panic") = 2000;
    assert_eq!(serve(&mut driver, volume.flush()), Ok(()));
    assert_eq!(volume.info().size_bytes, 2000 * u64::from(BLOCK_BYTES));
}

/// Devices of others tell it once, and go on with whatever is asked next.
#[test]
fn a_command_that_a_unit_attention_has_stopped_is_given_again_to_the_same_unit_only() {
    let page = |uuid| Identity::new("one", [uuid; 16]).expect("a name").to_page(&TargetPort::default());
    let told = [
        (AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED, 1, true),
        (AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED, 2, false),
        (AdditionalSense::INQUIRY_DATA_HAS_CHANGED, 2, false),
        (AdditionalSense::POWER_ON_OR_RESET_OCCURRED, 2, false),
        (AdditionalSense { code: 0x29, qualifier: 0x04 }, 2, false),
        (AdditionalSense::CAPACITY_DATA_HAS_CHANGED, 2, false),
        (AdditionalSense::RESERVATIONS_RELEASED, 1, true),
    ];
    for (told, then, is_written) in told {
        let (mut uuid, writes) = (1, Arc::new(Mutex::new(0)));
        let given = Arc::clone(&writes);
        let mut driver = driver(Box::new(move |cdb| match (cdb.operation_code(), cdb.as_ref()[2]) {
            (0x12, 0x83) => (Status::Good, Vec::new(), page(uuid)),
            (0x25, _) => (Status::Good, Vec::new(), vec![0, 0, 0x0f, 0xff, 0, 0, 2, 0]),
            (0x2a, _) => {
                let mut given = given.lock().expect("no panic");
                *given += 1;
                uuid = then;
                if *given == 1 { refuse(SenseKey::UnitAttention, told) } else { (Status::Good, Vec::new(), Vec::new()) }
            }
            _ => introduce(cdb)
                .unwrap_or_else(|| refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE)),
        }));
        let volume = open(&mut driver);
        let block = || Frame::from(vec![0; BLOCK_BYTES as usize]).freeze();
        let result = serve(&mut driver, volume.write(0, block()));
        assert_eq!(
            (result.is_ok(), *writes.lock().expect("no panic") == 2),
            (is_written, is_written),
            "{told:?}: {result:?}"
        );
    }
}

/// A device with a cache of which it tells; it counts the flushes, which fail if they are to.
fn caching(fails: bool, flushes: Arc<Mutex<u32>>) -> Device {
    let verifier = WriteVerifier { verifier: [1; 16], tenure: Some([2; 16]), ..WriteVerifier::default() };
    Box::new(move |cdb| match (cdb.operation_code(), cdb.as_ref()[2]) {
        (0x12, 0xc0) => (Status::Good, Vec::new(), verifier.to_page()),
        (0x12, 0) if cdb.as_ref()[1] == 1 => (Status::Good, Vec::new(), vec![0, 0, 0, 2, 0, 0xc0]),
        (0x25, _) => (Status::Good, Vec::new(), vec![0, 0, 0x0f, 0xff, 0, 0, 2, 0]),
        (0x35, _) => {
            *flushes.lock().expect("no panic") += 1;
            let failure = || refuse(SenseKey::MediumError, AdditionalSense::WRITE_ERROR);
            if fails { failure() } else { (Status::Good, Vec::new(), Vec::new()) }
        }
        (0x2a, _) => (Status::Good, Vec::new(), Vec::new()),
        _ => introduce(cdb)
            .unwrap_or_else(|| refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE)),
    })
}

/// Else it would hear of a failed flush by its next one, besides.
#[test]
fn a_client_says_that_it_heeds_the_write_verifier_page() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (log, mut tells) = (Arc::clone(&asked), caching(false, Arc::default()));
    let mut driver = driver(Box::new(move |cdb| {
        if let [0x12, 1, 0xc0, .., control] = cdb.as_ref() {
            log.lock().expect("no panic").push(*control);
        }
        tells(cdb)
    }));
    open(&mut driver);
    let asked = asked.lock().expect("no panic");
    assert!(!asked.is_empty() && asked.iter().all(|control| *control == 0x80), "{asked:?}");
}

#[test]
fn what_comes_near_the_bound_is_flushed_before_anybody_asks() {
    for (fails, keep_bytes, is_flushed) in [(false, 20_000, true), (false, 0, false), (true, 20_000, true)] {
        let flushes = Arc::new(Mutex::new(0));
        let mut driver = driver(caching(fails, Arc::clone(&flushes)));
        driver.keep_writes(keep_bytes, BufferPool::new(Region::new(1 << 20).expect("memory")));
        let volume = open(&mut driver);
        for _ in 0..10 {
            let block = Frame::from(vec![0; BLOCK_BYTES as usize]).freeze();
            assert_eq!(serve(&mut driver, volume.write(0, block)), Ok(()));
        }
        driver.turn();
        assert_eq!(*flushes.lock().expect("no panic") > 0, is_flushed, "{keep_bytes} bytes");
        if fails {
            let told = serve(&mut driver, volume.write_stable(0, Frame::from(vec![0; BLOCK_BYTES as usize]).freeze()));
            assert!(matches!(told, Err(VolumeError::WritesLost { .. })), "a device tells of it once: {told:?}");
        }
    }
}

#[test]
fn small_old_disks_are_used_by_the_short_commands() {
    let mut driver = driver(Box::new(|cdb| match cdb.operation_code() {
        0x25 => (Status::Good, Vec::new(), vec![0, 0, 0x0f, 0xff, 0, 0, 2, 0]),
        // READ (10) of one block, the third.
        0x28 => {
            assert_eq!(cdb.as_ref(), [0x28, 0, 0, 0, 0, 2, 0, 0, 1, 0]);
            (Status::Good, Vec::new(), vec![7; BLOCK_BYTES as usize])
        }
        0x2a | 0x35 => (Status::Good, Vec::new(), Vec::new()),
        _ => introduce(cdb)
            .unwrap_or_else(|| refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE)),
    }));
    let volume = open(&mut driver);
    assert_eq!(volume.info().size_bytes, 2 << 20);
    let block = || Frame::from(vec![0; BLOCK_BYTES as usize]);
    let read = serve(&mut driver, volume.read(1024, block())).expect("a block");
    assert!(read.iter().all(|byte| *byte == 7));
    assert_eq!(serve(&mut driver, volume.write(1024, block().freeze())), Ok(()));
    assert_eq!(serve(&mut driver, volume.flush()), Ok(()));
    assert_eq!(serve(&mut driver, volume.write_zeroes(0, 512)), Err(VolumeError::Unsupported));
}
