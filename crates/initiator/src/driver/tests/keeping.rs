//! Acknowledged writes that are kept, flushed by the driver itself, and given again.

use sanwire_scsi::report;
use sanwire_scsi::vpd::BlockLimits;

use super::*;

mod copies;
mod order;
mod overlaps;
mod parts;
mod stable;

/// What happened at the array: the operation code, the unit's number, the first block of a write.
type Log = Vec<(u8, u16, u8)>;

/// How a write or flush ends: its operation code, the unit's number, what happened before.
type Manner = Box<dyn FnMut(u8, u16, &Log) -> Option<Result<Told, Silence>> + Send>;

/// Two disks that say what they have lost.
struct Array {
    /// By number: which of the disks is there.
    units: BTreeMap<u16, u8>,
    verifier: u8,
    /// They say nothing of what they have lost.
    is_silent: bool,
    /// What they take at once.
    blocks_max: u8,
    /// What the next command of one of these disks is told instead.
    attention: Option<(u8, AdditionalSense)>,
    log: Log,
    /// How it takes writes and flushes; `None`: well.
    manner: Manner,
}

/// The array, as its driver sees it and the test has it.
#[derive(Clone)]
struct Set {
    array: Arc<Mutex<Array>>,
    stage: Arc<Stage>,
}

const FLUSH: u8 = 0x35;
const WRITE: u8 = 0x2a;
const COPY: u8 = 0x83;
const INQUIRY: u8 = 0x12;
const BLOCK: usize = BLOCK_BYTES as usize;

fn good() -> Told {
    (Status::Good, Vec::new(), Vec::new())
}

fn status(status: Status) -> Told {
    (status, Vec::new(), Vec::new())
}

impl Array {
    fn answer(&mut self, lun: Lun, cdb: &Cdb) -> Result<Told, Silence> {
        let (bytes, number) = (cdb.as_ref(), lun.number());
        if bytes[0] == 0xa0 {
            let luns: Vec<Lun> = self.units.keys().map(|number| Lun::new(*number).expect("a number")).collect();
            return Ok((Status::Good, Vec::new(), report::luns(&luns)));
        }
        let Some(disk) = self.units.get(&number).copied() else {
            return Ok(refuse(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED));
        };
        self.log.push((bytes[0], number, bytes.get(5).copied().unwrap_or(0)));
        match (bytes[0], bytes[2]) {
            (INQUIRY, 0xc0) => {
                let tenure = Some([9; 16]);
                let said = WriteVerifier { verifier: [self.verifier; 16], tenure, ..WriteVerifier::default() };
                Ok((Status::Good, Vec::new(), said.to_page()))
            }
            (INQUIRY, 0x83) => {
                let identity = Identity::new("disk", u128::from(disk).to_be_bytes()).expect("a name");
                Ok((Status::Good, Vec::new(), identity.to_page(&TargetPort::default())))
            }
            (INQUIRY, 0xb0) => {
                let limits = BlockLimits { maximum_transfer: self.blocks_max.into(), ..BlockLimits::default() };
                Ok((Status::Good, Vec::new(), limits.to_page()))
            }
            (INQUIRY, 0) if bytes[1] == 1 => {
                let pages: &[u8] = if self.is_silent { &[0, 0xb0] } else { &[0, 0xb0, 0xc0] };
                Ok((Status::Good, Vec::new(), [&[0, 0, 0, pages.len() as u8], pages].concat()))
            }
            (0x25, _) => Ok((Status::Good, Vec::new(), vec![0, 0, 0x0f, 0xff, 0, 0, 2, 0])),
            (FLUSH | WRITE | COPY, _) => {
                if let Some((_, told)) = self.attention.take_if(|(of, _)| *of == disk) {
                    return Ok(refuse(SenseKey::UnitAttention, told));
                }
                if bytes[0] == WRITE && bytes[8] > self.blocks_max {
                    return Ok(refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB));
                }
                (self.manner)(bytes[0], number, &self.log).unwrap_or_else(|| Ok(good()))
            }
            _ => Ok(introduce(cdb)
                .unwrap_or_else(|| refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE))),
        }
    }
}

impl Set {
    /// Disk 1 behind number 0, disk 2 behind number 1.
    fn new() -> Self {
        let array = Array {
            units: BTreeMap::from([(0, 1), (1, 2)]),
            verifier: 1,
            is_silent: false,
            blocks_max: 128,
            attention: None,
            log: Log::new(),
            manner: Box::new(|_, _, _| None),
        };
        Set { array: Arc::new(Mutex::new(array)), stage: Arc::default() }
    }

    /// A driver that keeps so much of each disk, in a memory of a megabyte, and the pool of that.
    fn driver(&self, keep_bytes: u64) -> (Driver, BufferPool) {
        let array = Arc::clone(&self.array);
        let devices = move |lun, cdb: &Cdb| array.lock().expect("no panic").answer(lun, cdb);
        let mut driver = driver_of(Box::new(devices), Arc::clone(&self.stage));
        let pool = BufferPool::new(Region::new(1 << 20).expect("memory"));
        driver.keep_writes(keep_bytes, pool.clone());
        (driver, pool)
    }

    fn change(&self, change: impl FnOnce(&mut Array)) {
        change(&mut self.array.lock().expect("no panic"));
    }

    /// From now on writes and flushes end so.
    fn take(&self, manner: impl FnMut(u8, u16, &Log) -> Option<Result<Told, Silence>> + Send + 'static) {
        self.change(|array| array.manner = Box::new(manner));
    }

    /// A disk has lost what was not flushed.
    fn lose_power(&self, disk: u8) {
        self.change(|array| {
            array.verifier += 1;
            array.attention = Some((disk, AdditionalSense::POWER_ON_OR_RESET_OCCURRED));
        });
    }

    fn count(&self, operation: u8) -> usize {
        self.array.lock().expect("no panic").log.iter().filter(|(code, ..)| *code == operation).count()
    }

    /// The first blocks of the writes to this number since it was asked last.
    fn writes(&self, number: u16) -> Vec<u8> {
        let mut writes = Vec::new();
        self.change(|array| {
            writes =
                array.log.iter().filter(|(code, to, _)| (*code, *to) == (WRITE, number)).map(|(.., at)| *at).collect();
            array.log.clear();
        });
        writes
    }

    /// Lets the driver do what it does by itself for so long.
    fn run(&self, driver: &mut Driver, ms: u64) {
        let end = self.stage.now_ms.load(Ordering::SeqCst) + ms;
        for _ in 0..TURNS_MAX {
            if self.stage.now_ms.load(Ordering::SeqCst) >= end {
                return;
            }
            driver.turn_or_sleep();
        }
        panic!("the driver does not rest");
    }

    /// Serves until the operation has its result, for so long at the most.
    fn serve_for<T: Send>(&self, driver: &mut Driver, ms: u64, operation: impl Future<Output = T> + Send) -> Option<T> {
        let end = self.stage.now_ms.load(Ordering::SeqCst) + ms;
        let mut operation = std::pin::pin!(operation);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..TURNS_MAX {
            if let std::task::Poll::Ready(result) = operation.as_mut().poll(&mut context) {
                return Some(result);
            }
            if self.stage.now_ms.load(Ordering::SeqCst) >= end {
                return None;
            }
            driver.turn_or_sleep();
        }
        panic!("the driver does not rest");
    }
}

async fn write(volume: &Volume, lba: u64) -> Result<(), VolumeError> {
    volume.write(lba * BLOCK as u64, Frame::from(vec![0; BLOCK]).freeze()).await
}

/// Turns of a driver in one test, at the most.
const TURNS_MAX: usize = 200_000;

const PLENTY: u64 = 1 << 20;

/// Less than three writes are half of it.
const LITTLE: u64 = 20_000;

#[test]
fn a_write_that_is_given_again_and_does_not_end_holds_no_other_volume() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let (one, other) = (open_unit(&mut driver, 0), open_unit(&mut driver, 1));
    for lba in [1, 2] {
        assert_eq!(serve(&mut driver, write(&one, lba)), Ok(()));
    }
    set.writes(0);
    set.lose_power(1);
    set.take(|code, number, _| (code == WRITE && number == 0).then(|| Err(Silence::Gated(good()))));
    let mut flush = std::pin::pin!(one.flush());
    assert_eq!(set.serve_for(&mut driver, 100, flush.as_mut()), None, "what is lost is not there again");
    assert_eq!(set.serve_for(&mut driver, 100, write(&other, 7)), Some(Ok(())));
    assert_eq!(set.writes(0), [1], "one after the other, and nothing else");
    set.stage.open_gate(0);
    assert_eq!(set.serve_for(&mut driver, 100, flush.as_mut()), Some(Ok(())));
    assert_eq!(set.writes(0), [2]);
}

#[test]
fn what_cannot_be_given_again_at_all_is_told_once() {
    for failure in
        [Failure::TooLarge, Failure::Protocol("nonsense".into()), Failure::TimedOut { after: Duration::ZERO }]
    {
        let set = Set::new();
        let (mut driver, _) = set.driver(PLENTY);
        let volume = open(&mut driver);
        assert_eq!(serve(&mut driver, write(&volume, 1)), Ok(()));
        set.lose_power(1);
        set.take({
            let failure = failure.clone();
            move |code, _, _| (code == WRITE).then(|| Err(Silence::Failed(failure.clone())))
        });
        let told = set.serve_for(&mut driver, 100, volume.flush());
        assert!(matches!(told, Some(Err(VolumeError::WritesLost { .. }))), "{failure}: {told:?}");
        assert_eq!(set.serve_for(&mut driver, 100, volume.flush()), Some(Ok(())), "{failure}");
    }
}

#[test]
fn a_busy_device_is_asked_to_take_a_lost_write_for_a_minute_without_haste() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let volume = open(&mut driver);
    assert_eq!(serve(&mut driver, write(&volume, 1)), Ok(()));
    set.lose_power(1);
    set.writes(0);
    set.take(|code, _, _| (code == WRITE).then(|| Ok(status(Status::Busy))));
    let mut flush = std::pin::pin!(volume.flush());
    assert_eq!(set.serve_for(&mut driver, 50_000, flush.as_mut()), None);
    assert!((5_000..=10_001).contains(&set.count(WRITE)), "{} in 50 s", set.count(WRITE));
    let told = set.serve_for(&mut driver, 20_000, flush.as_mut());
    assert!(matches!(told, Some(Err(VolumeError::WritesLost { .. }))), "{told:?}");
}

/// Whom the reset was meant to keep out a reservation keeps out.
#[test]
fn what_another_clients_reset_has_ended_is_given_again() {
    let set = Set::new();
    let (mut driver, _) = set.driver(PLENTY);
    let volume = open(&mut driver);
    let mut resets = 0;
    set.take(move |code, _, _| {
        resets += usize::from(code == WRITE);
        (code == WRITE && resets < 4).then(|| Ok(status(Status::TaskAborted)))
    });
    assert_eq!(set.serve_for(&mut driver, 1000, write(&volume, 1)), Some(Ok(())));
    assert_eq!(set.writes(0), [1; 4]);
    set.take(move |code, _, _| (code == WRITE).then(|| Ok(status(Status::TaskAborted))));
    let refused = set.serve_for(&mut driver, 120_000, write(&volume, 1));
    assert!(matches!(refused, Some(Err(_))), "not without end");
}

#[test]
fn a_flush_of_our_own_that_is_refused_is_given_again_without_haste() {
    for refusal in [Status::ReservationConflict, Status::Busy, Status::TaskSetFull] {
        let set = Set::new();
        let (mut driver, _) = set.driver(LITTLE);
        let volume = open(&mut driver);
        set.take(move |code, _, _| (code == FLUSH).then(|| Ok(status(refusal))));
        for lba in 0..4 {
            assert_eq!(serve(&mut driver, write(&volume, lba)), Ok(()));
        }
        set.run(&mut driver, 5000);
        let count = set.count(FLUSH);
        assert!((5..20).contains(&count), "{count} in 5 s: {refusal:?}");
        set.take(|_, _, _| None);
        set.run(&mut driver, 2000);
        assert_eq!(set.count(FLUSH), count + 1, "and then it is done");
    }
}

/// All the memory for buffers is in writes that are kept, and nothing makes them stable.
#[test]
fn who_waits_for_memory_is_not_kept_waiting_by_a_device_that_does_nothing() {
    for is_lost in [false, true] {
        let set = Set::new();
        let (mut driver, pool) = set.driver(64 << 20);
        let volume = open(&mut driver);
        while let Some(frame) = pool.region().frame(64 << 10) {
            assert_eq!(serve(&mut driver, volume.write(0, frame.freeze())), Ok(()));
        }
        set.take(move |code, _, _| match code {
            WRITE if is_lost => Some(Err(Silence::Never)),
            WRITE => None,
            _ => Some(Ok(status(Status::Busy))),
        });
        if is_lost {
            set.lose_power(1);
        }
        let buffer = set.serve_for(&mut driver, 20_000, pool.frame(64 << 10));
        assert!(matches!(buffer, Some(Ok(_))), "lost {is_lost}");
    }
}

/// A driver whose flush of three writes is not answered until the gate opens; under other numbers none is done.
fn flushing() -> (Set, Driver, Volume) {
    let set = Set::new();
    let (mut driver, _) = set.driver(LITTLE);
    let volume = open(&mut driver);
    set.take(|code, number, _| match (code, number) {
        (FLUSH, 0) => Some(Err(Silence::Gated(good()))),
        (FLUSH, _) => Some(Ok(status(Status::Busy))),
        _ => None,
    });
    for lba in 1..4 {
        assert_eq!(serve(&mut driver, write(&volume, lba)), Ok(()));
    }
    set.run(&mut driver, 10);
    assert_eq!(set.count(FLUSH), 1);
    (set, driver, volume)
}

/// Its answer may be that of another volume, which has the number by now.
#[test]
fn nothing_is_looked_at_while_a_flush_of_our_own_is_under_way() {
    let (set, mut driver, volume) = flushing();
    set.change(|array| {
        array.units = BTreeMap::from([(0, 2), (5, 1)]);
        array.attention = Some((2, AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED));
        array.log.clear();
    });
    let mut next = std::pin::pin!(write(&volume, 4));
    assert_eq!(set.serve_for(&mut driver, 100, next.as_mut()), None);
    assert_eq!(set.count(INQUIRY), 0, "the look comes after the flush");
    set.stage.open_gate(0);
    assert_eq!(set.serve_for(&mut driver, 100, next.as_mut()), Some(Ok(())));
    assert_eq!(set.writes(5), [4]);
    set.lose_power(1);
    assert_eq!(set.serve_for(&mut driver, 100, write(&volume, 5)), Some(Ok(())));
    // The write that is told of the loss, what was lost, and that write again.
    assert_eq!(set.writes(5), [5, 1, 2, 3, 4, 5], "nobody has flushed them");
}

/// It was held there, and goes to whoever has the number then.
#[test]
fn a_flush_of_our_own_does_not_outlive_its_session() {
    let (set, mut driver, volume) = flushing();
    set.change(|array| array.units = BTreeMap::from([(0, 2), (5, 1)]));
    set.stage.is_lost.store(true, Ordering::SeqCst);
    set.run(&mut driver, 10);
    set.stage.open_gate(0);
    set.run(&mut driver, 10);
    set.writes(5);
    set.lose_power(1);
    assert_eq!(set.serve_for(&mut driver, 100, write(&volume, 5)), Some(Ok(())));
    assert_eq!(set.writes(5), [5, 1, 2, 3, 5], "nobody has flushed them");
}

#[test]
fn a_flush_of_our_own_finds_that_the_volume_has_another_number() {
    let set = Set::new();
    let (mut driver, _) = set.driver(LITTLE);
    let volume = open(&mut driver);
    set.take(|code, _, _| (code == FLUSH).then(|| Ok(status(Status::Busy))));
    for lba in 1..4 {
        assert_eq!(serve(&mut driver, write(&volume, lba)), Ok(()));
    }
    set.change(|array| array.units = BTreeMap::from([(5, 1)]));
    set.take(|_, _, _| None);
    set.run(&mut driver, 2000);
    assert_eq!(set.array.lock().expect("no panic").log.last().map(|(code, to, _)| (*code, *to)), Some((FLUSH, 5)));
    set.writes(5);
    set.lose_power(1);
    assert_eq!(set.serve_for(&mut driver, 100, volume.flush()), Some(Ok(())));
    assert_eq!(set.writes(5), Vec::<u8>::new(), "all was flushed at its new number");
}

/// Where the writes of a volume were kept, another's may be by then.
#[test]
fn the_answer_to_a_flush_of_our_own_is_not_taken_for_another_volumes() {
    let set = Set::new();
    let (mut driver, _) = set.driver(LITTLE);
    let one = open_unit(&mut driver, 0);
    set.take(|code, number, _| (code == FLUSH && number == 0).then(|| Err(Silence::Gated(good()))));
    for lba in 1..4 {
        assert_eq!(serve(&mut driver, write(&one, lba)), Ok(()));
    }
    set.run(&mut driver, 10);
    assert!(set.count(FLUSH) == 1 && !driver.is_unused());
    drop(one);
    set.run(&mut driver, 10);
    assert!(driver.is_unused(), "nobody waits for it");
    set.stage.open_gate(100);
    let other = open_unit(&mut driver, 1);
    assert_eq!(set.serve_for(&mut driver, 10, write(&other, 9)), Some(Ok(())));
    set.run(&mut driver, 200);
    set.writes(1);
    set.lose_power(2);
    assert_eq!(set.serve_for(&mut driver, 100, other.flush()), Some(Ok(())));
    assert_eq!(set.writes(1), [9]);
}

/// Handles that have heard nothing hear of it once, those that have been told no more.
#[test]
fn what_could_not_become_stable_is_a_loss_where_the_device_has_tried() {
    const SPACE: AdditionalSense = AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT;
    for (is_silent, operation, key, reason, is_lost) in [
        (false, FLUSH, SenseKey::MediumError, AdditionalSense::WRITE_ERROR, true),
        (true, FLUSH, SenseKey::MediumError, AdditionalSense::WRITE_ERROR, true),
        (false, FLUSH, SenseKey::DataProtect, SPACE, true),
        (false, FLUSH, SenseKey::AbortedCommand, AdditionalSense { code: 0x47, qualifier: 3 }, true),
        (false, FLUSH, SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED, false),
        (false, FLUSH, SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB, false),
        (true, WRITE, SenseKey::MediumError, AdditionalSense::WRITE_ERROR, true),
        (true, WRITE, SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED, false),
        // It tells by its verifier what was lost besides.
        (false, WRITE, SenseKey::MediumError, AdditionalSense::WRITE_ERROR, false),
    ] {
        let set = Set::new();
        set.change(|array| array.is_silent = is_silent);
        let (mut driver, _) = set.driver(PLENTY);
        let (one, other) = (open(&mut driver), open(&mut driver));
        assert_eq!(serve(&mut driver, write(&other, 1)), Ok(()));
        set.take(move |code, _, _| (code == operation).then(|| Ok(refuse(key, reason))));
        let block = Frame::from(vec![0; BLOCK]).freeze();
        let told = match operation {
            FLUSH => serve(&mut driver, one.flush()),
            _ => serve(&mut driver, one.write_stable(0, block)),
        };
        assert!(told.is_err(), "{key:?} {reason:?}");
        set.take(|_, _, _| None);
        let told = serve(&mut driver, other.flush());
        let what = format!("{operation:#x} {key:?} {reason:?}, silent: {is_silent}: {told:?}");
        assert_eq!(matches!(told, Err(VolumeError::WritesLost { .. })), is_lost, "{what}");
        assert_eq!(told.is_ok(), !is_lost, "{what}");
        assert_eq!([serve(&mut driver, one.flush()), serve(&mut driver, other.flush())], [Ok(()), Ok(())], "{what}");
    }
}

/// Devices of others say with each session that it is a new one, whether or not they have lost anything.
#[test]
fn a_device_that_does_not_say_what_it_has_lost_is_flushed_a_second_after_a_write() {
    let set = Set::new();
    set.change(|array| array.is_silent = true);
    let (mut driver, _) = set.driver(PLENTY);
    let volume = open(&mut driver);
    let renew = || set.change(|array| array.attention = Some((1, AdditionalSense::POWER_ON_OR_RESET_OCCURRED)));
    for lba in 0..8 {
        assert_eq!(serve(&mut driver, write(&volume, lba)), Ok(()));
    }
    set.run(&mut driver, 900);
    assert_eq!(set.count(FLUSH), 0);
    set.run(&mut driver, 200);
    assert_eq!(set.count(FLUSH), 1);
    set.run(&mut driver, 10_000);
    assert_eq!(set.count(FLUSH), 1, "there was nothing to flush");
    renew();
    assert_eq!(set.serve_for(&mut driver, 100, volume.flush()), Some(Ok(())), "nothing was lost");
    assert_eq!(serve(&mut driver, write(&volume, 1)), Ok(()));
    renew();
    let told = set.serve_for(&mut driver, 100, volume.flush());
    assert!(matches!(told, Some(Err(VolumeError::WritesLost { .. }))), "perhaps it was: {told:?}");
    assert_eq!(set.serve_for(&mut driver, 100, volume.flush()), Some(Ok(())), "once");
}

/// What it cannot do it has not failed to do.
#[test]
fn a_silent_device_that_knows_no_flush_has_lost_nothing() {
    let set = Set::new();
    set.change(|array| array.is_silent = true);
    let (mut driver, _) = set.driver(PLENTY);
    let volume = open(&mut driver);
    let unknown = || refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    set.take(move |code, _, _| (code == FLUSH).then(|| Ok(unknown())));
    assert_eq!(serve(&mut driver, write(&volume, 1)), Ok(()));
    set.run(&mut driver, 10_000);
    let count = set.count(FLUSH);
    assert!((1..30).contains(&count), "{count} in 10 s");
    let stable = volume.write_stable(0, Frame::from(vec![0; BLOCK]).freeze());
    assert_eq!(set.serve_for(&mut driver, 100, stable), Some(Ok(())));
}
