//! What the driver makes of a unit at which it has to look again.

use sanwire_scsi::report;

use super::*;

const INQUIRY: u8 = 0x12;
const WRITE: u8 = 0x2a;
const FLUSH: u8 = 0x35;

const FUA: u8 = 0x10;
const PROTECTED: u8 = 0x90;
/// It knows no SYNCHRONIZE CACHE either.
const FLUSHLESS: u8 = 1;

/// Commands of one test, at the most.
const COMMANDS_MAX: u32 = 100_000;

/// Longer than a unit may be busy.
const LONG_MS: u64 = 200_000;

/// A disk that says nothing of what it has lost.
struct Unit {
    number: u16,
    block_bytes: u32,
    last_block: u32,
    /// Of the header of mode pages: it may not be written (80h), it knows FUA (10h).
    mode: u8,
    /// So many questions end so.
    refusals: (u32, Status),
    /// What the next command is told instead, unless it is a question that every unit answers.
    attention: Option<AdditionalSense>,
    /// It answers some questions when the gate opens.
    is_slow: bool,
    /// It breaks the rules of the wire.
    is_foul: bool,
    /// Commands so far.
    commands: u32,
    /// Numbers that were written to, and how.
    written: Vec<(u16, u8)>,
    flushes: u32,
}

impl Unit {
    fn answer(&mut self, lun: Lun, cdb: &Cdb) -> Told {
        let (bytes, number) = (cdb.as_ref(), lun.number());
        if bytes[0] == 0xa0 {
            let lun = Lun::new(self.number).expect("a number");
            return (Status::Good, Vec::new(), report::luns(&[lun]));
        }
        if number != self.number {
            return refuse(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
        }
        if bytes[0] == INQUIRY && self.refusals.0 > 0 {
            self.refusals.0 -= 1;
            return (self.refusals.1, Vec::new(), Vec::new());
        }
        if let Some(told) = self.attention.take_if(|_| bytes[0] != INQUIRY) {
            return refuse(SenseKey::UnitAttention, told);
        }
        let data = match (bytes[0], bytes[2]) {
            (INQUIRY, 0x83) => Identity::new("disk", [1; 16]).expect("a name").to_page(&TargetPort::default()),
            (0x00, _) => Vec::new(),
            (0x25, _) => [self.last_block.to_be_bytes(), self.block_bytes.to_be_bytes()].concat(),
            (0x1a, _) => {
                let mut page = vec![0; 24];
                (page[0], page[2], page[4], page[5], page[6]) = (23, self.mode, 8, 18, 4);
                page
            }
            (0x28, _) => vec![0; usize::from(bytes[8]) * self.block_bytes as usize],
            (WRITE, _) => {
                self.written.push((number, bytes[1]));
                Vec::new()
            }
            (FLUSH, _) if self.mode & FLUSHLESS == 0 => {
                self.flushes += 1;
                Vec::new()
            }
            _ => {
                let unknown = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
                return introduce(cdb).unwrap_or_else(|| refuse(SenseKey::IllegalRequest, unknown));
            }
        };
        (Status::Good, Vec::new(), data)
    }
}

/// A driver and a handle of its only volume.
struct Scene {
    unit: Arc<Mutex<Unit>>,
    stage: Arc<Stage>,
    driver: Driver,
    volume: Volume,
}

impl Scene {
    fn new(mode: u8) -> Self {
        let (number, block_bytes, last_block, refusals) = (0, BLOCK_BYTES, 0x0fff, (0, Status::Good));
        let (attention, commands, written, flushes) = (None, 0, Vec::new(), 0);
        let (is_slow, is_foul) = (false, false);
        let unit = Unit {
            number,
            block_bytes,
            last_block,
            mode,
            refusals,
            attention,
            is_slow,
            is_foul,
            commands,
            written,
            flushes,
        };
        let (unit, stage) = (Arc::new(Mutex::new(unit)), Arc::<Stage>::default());
        let asked = Arc::clone(&unit);
        let devices = move |lun, cdb: &Cdb| {
            let mut unit = asked.lock().expect("no panic");
            let told = unit.answer(lun, cdb);
            unit.commands += 1;
            assert!(unit.commands < COMMANDS_MAX, "the driver does not rest");
            match cdb.operation_code() {
                INQUIRY if unit.is_foul => Err(Silence::Failed(Failure::Protocol("nonsense".into()))),
                0x9e if unit.is_slow => Err(Silence::Gated(told)),
                _ => Ok(told),
            }
        };
        let mut driver = driver_of(Box::new(devices), Arc::clone(&stage));
        let volume = open(&mut driver);
        Scene { unit, stage, driver, volume }
    }

    fn change(&self, change: impl FnOnce(&mut Unit)) {
        change(&mut self.unit.lock().expect("no panic"));
    }

    fn restart(&self) {
        self.stage.is_lost.store(true, Ordering::SeqCst);
    }

    fn now_ms(&self) -> u64 {
        self.stage.now_ms.load(Ordering::SeqCst)
    }

    fn serve<T>(&mut self, operation: impl Future<Output = T>) -> T {
        let end = self.now_ms() + LONG_MS;
        let mut operation = std::pin::pin!(operation);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        loop {
            if let std::task::Poll::Ready(result) = operation.as_mut().poll(&mut context) {
                return result;
            }
            assert!(self.now_ms() < end, "it does not end");
            self.driver.turn_or_sleep();
        }
    }

    fn write(&mut self) -> Result<(), VolumeError> {
        let volume = self.volume.clone();
        self.serve(volume.write(0, Frame::from(vec![0; BLOCK_BYTES as usize]).freeze()))
    }
}

/// As a server does that is short of memory, or has dropped the question for another client's reset.
#[test]
fn a_volume_whose_unit_is_busy_for_a_moment_is_not_taken_for_one_that_is_gone() {
    for status in [Status::Busy, Status::TaskSetFull, Status::TaskAborted] {
        for is_new_session in [false, true] {
            let mut scene = Scene::new(FUA);
            scene.change(|unit| {
                unit.refusals = (50, status);
                unit.attention = (!is_new_session).then_some(AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
            });
            if is_new_session {
                scene.restart();
            }
            let begun = scene.now_ms();
            assert_eq!(scene.write(), Ok(()), "{status:?}, new session: {is_new_session}");
            assert!(scene.now_ms() - begun >= 50, "it is asked again without haste");
        }
    }
}

#[test]
fn a_volume_whose_unit_is_busy_without_end_is_not_waited_for_without_end() {
    let mut scene = Scene::new(FUA);
    scene.change(|unit| unit.refusals = (u32::MAX, Status::Busy));
    scene.restart();
    let told = scene.write();
    assert!(matches!(told, Err(VolumeError::Protocol { .. })), "{told:?}");
}

#[test]
fn a_volume_whose_unit_gives_no_answers_but_wrong_ones_holds_nobody_for_ever() {
    for is_new_session in [false, true] {
        let mut scene = Scene::new(FUA);
        scene.change(|unit| {
            unit.is_foul = true;
            unit.attention = (!is_new_session).then_some(AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
        });
        if is_new_session {
            scene.restart();
        }
        let told = scene.write();
        assert!(matches!(told, Err(VolumeError::Protocol { .. })), "new session: {is_new_session}: {told:?}");
    }
}

/// What was meant for one of its blocks would go elsewhere.
#[test]
fn a_volume_that_comes_back_with_another_block_is_another_one_at_whatever_number() {
    for number in [0, 5] {
        let mut scene = Scene::new(FUA);
        scene.change(|unit| (unit.number, unit.block_bytes) = (number, 4096));
        scene.restart();
        let told = scene.write();
        assert!(matches!(told, Err(VolumeError::Protocol { .. })), "{number}: {told:?}");
        scene.change(|unit| assert!(unit.written.is_empty(), "{:?}", unit.written));
    }
}

#[test]
fn what_a_unit_without_a_verifier_says_of_its_power_counts_at_its_new_number_too() {
    for number in [0, 5] {
        let mut scene = Scene::new(FUA);
        assert_eq!(scene.write(), Ok(()));
        scene.change(|unit| {
            unit.number = number;
            unit.attention = Some(AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
        });
        scene.restart();
        let volume = scene.volume.clone();
        let told = scene.serve(volume.flush());
        assert!(matches!(told, Err(VolumeError::WritesLost { .. })), "{number}: {told:?}");
        assert_eq!(scene.serve(volume.flush()), Ok(()), "{number}: once");
    }
}

/// It is told once.
#[test]
fn what_a_unit_says_of_its_power_counts_also_when_the_question_was_given_up() {
    let mut scene = Scene::new(FUA);
    assert_eq!(scene.write(), Ok(()));
    scene.change(|unit| {
        unit.attention = Some(AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
        unit.is_slow = true;
    });
    let given_up = scene.driver.within(Duration::from_millis(10), |driver| inventory::volumes(driver, "array"));
    assert!(given_up.is_err());
    scene.change(|unit| unit.is_slow = false);
    scene.stage.open_gate(0);
    let volume = scene.volume.clone();
    let told = scene.serve(volume.flush());
    assert!(matches!(told, Err(VolumeError::WritesLost { .. })), "{told:?}");
}

#[test]
fn a_volume_that_may_be_written_from_now_on_or_no_more_says_so() {
    for is_read_only in [true, false] {
        let modes = if is_read_only { [PROTECTED, FUA] } else { [FUA, PROTECTED] };
        let mut scene = Scene::new(modes[0]);
        scene.change(|unit| {
            unit.mode = modes[1];
            unit.attention = Some(AdditionalSense::MODE_PARAMETERS_CHANGED);
        });
        let volume = scene.volume.clone();
        assert!(scene.serve(volume.read(0, Frame::from(vec![0; BLOCK_BYTES as usize]))).is_ok());
        assert_eq!(scene.volume.info().read_only, !is_read_only);
        assert_eq!(scene.write().is_ok(), is_read_only);
    }
}

#[test]
fn a_volume_that_nobody_uses_has_its_new_size_when_it_is_asked() {
    for last_block in [0x1fff, 0x07ff] {
        let mut scene = Scene::new(FUA);
        let volume = scene.volume.clone();
        assert_eq!(scene.serve(volume.check()), Ok(()));
        assert_eq!(volume.info().size_bytes, 0x1000 * u64::from(BLOCK_BYTES));
        scene.change(|unit| {
            unit.last_block = last_block;
            unit.attention = Some(AdditionalSense::CAPACITY_DATA_HAS_CHANGED);
        });
        assert_eq!(scene.serve(volume.check()), Ok(()));
        assert_eq!(volume.info().size_bytes, (u64::from(last_block) + 1) * u64::from(BLOCK_BYTES));
        assert_eq!(volume.looker().look().0.operations, 0, "nobody has used it");
    }
}

/// It would take the bit for an error, or take no notice of it.
#[test]
fn what_is_to_be_stable_at_once_is_flushed_where_the_unit_knows_no_fua() {
    let mut scene = Scene::new(0);
    for (mode, flags, flushes) in [(0, 0, 1), (FUA, 8, 0), (0, 0, 1), (FLUSHLESS, 0, 0)] {
        scene.change(|unit| {
            unit.mode = mode;
            unit.attention = Some(AdditionalSense::MODE_PARAMETERS_CHANGED);
        });
        let volume = scene.volume.clone();
        assert!(scene.serve(volume.read(0, Frame::from(vec![0; BLOCK_BYTES as usize]))).is_ok());
        scene.change(|unit| (unit.flushes, unit.written) = (0, Vec::new()));
        let stable = volume.write_stable(0, Frame::from(vec![0; BLOCK_BYTES as usize]).freeze());
        assert_eq!(scene.serve(stable), Ok(()));
        scene.change(|unit| assert_eq!((&unit.written[..], unit.flushes), (&[(0, flags)][..], flushes)));
    }
}

/// The connection may be lost before all volumes were looked at.
#[test]
fn operations_of_a_volume_in_doubt_wake_a_driver_that_waits_for_no_server_any_more() {
    let mut scene = Scene::new(FUA);
    let id = scene.driver.volumes[0].as_ref().expect("it is served").id;
    scene.driver.doubt(id);
    scene.driver.fail_operations(Failure::NoAnswer("nobody is there".into()));
    let volume = scene.volume.clone();
    let mut flush = std::pin::pin!(volume.flush());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(flush.as_mut().poll(&mut context).is_pending());
    let begun = scene.now_ms();
    scene.driver.sleep();
    assert_eq!(scene.now_ms(), begun, "it does not sleep");
    scene.driver.turn();
    let told = flush.as_mut().poll(&mut context);
    assert!(matches!(told, std::task::Poll::Ready(Err(VolumeError::Disconnected { .. }))), "{told:?}");
}
