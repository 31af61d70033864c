//! Volumes for one client alone: what was under way never comes after what another one has written.

use sanwire_scsi::reservation::{ReservationType, read_keys, read_reservation};

use super::*;
use crate::inventory::Rival;

const OURS: u64 = 7;
const THEIRS: u64 = 8;
const READ_KEYS: u8 = 0;
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const REGISTER_AND_IGNORE: u8 = 6;

/// The reservations of a unit, of which the client under test is one user.
#[derive(Default)]
struct Unit {
    generation: u32,
    keys: Vec<u64>,
    holder: Option<u64>,
    /// It keeps them when it is restarted; else it refuses every other registration: the one that asks for that.
    keeps: bool,
    is_asked_again: bool,
    writes: u32,
}

impl Unit {
    fn order(&mut self, action: u8) -> Told {
        match action {
            REGISTER_AND_IGNORE if !self.keeps && !std::mem::replace(&mut self.is_asked_again, true) => {
                return refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
            }
            REGISTER_AND_IGNORE => {
                self.is_asked_again = false;
                self.register(OURS);
            }
            REGISTER => self.leave(OURS),
            RESERVE if self.holder.is_none_or(|holder| holder == OURS) => self.holder = Some(OURS),
            _ => return (Status::ReservationConflict, Vec::new(), Vec::new()),
        }
        (Status::Good, Vec::new(), Vec::new())
    }

    fn query(&self, action: u8) -> Told {
        let answer = match action {
            READ_KEYS => read_keys(self.generation, self.keys.iter().copied()),
            _ => read_reservation(self.generation, self.holder.map(|key| (key, ReservationType::WriteExclusive))),
        };
        (Status::Good, Vec::new(), answer)
    }

    fn register(&mut self, key: u64) {
        self.generation += 1;
        self.keys.retain(|other| *other != key);
        self.keys.push(key);
    }

    fn leave(&mut self, key: u64) {
        self.generation += 1;
        self.keys.retain(|other| *other != key);
        self.holder = self.holder.filter(|holder| *holder != key);
    }

    /// Another client takes it, writes, and leaves.
    fn change_hands(&mut self) {
        self.register(THEIRS);
        self.leave(OURS);
        self.holder = Some(THEIRS);
        self.leave(THEIRS);
    }

    fn restart(&mut self) {
        self.generation = 0;
        if !self.keeps {
            (self.keys, self.holder) = (Vec::new(), None);
        }
    }
}

/// A driver that has this unit for itself, with a handle of it.
fn owner(keeps: bool) -> (Arc<Mutex<Unit>>, Driver, Volume, Arc<Stage>) {
    let unit = Arc::new(Mutex::new(Unit { keeps, ..Unit::default() }));
    let stage = Arc::<Stage>::default();
    let of_device = Arc::clone(&unit);
    let page = Identity::new("one", [1; 16]).expect("a name").to_page(&TargetPort::default());
    let device = move |cdb: &Cdb| {
        let unit = &mut *of_device.lock().expect("no panic");
        match (cdb.operation_code(), cdb.as_ref()[1] & 0x1f, cdb.as_ref()[2]) {
            (0x12, _, 0x83) => (Status::Good, Vec::new(), page.clone()),
            (0x25, ..) => (Status::Good, Vec::new(), vec![0, 0, 0x0f, 0xff, 0, 0, 2, 0]),
            (0x5e, action, _) => unit.query(action),
            (0x5f, action, _) => unit.order(action),
            (0x2a, ..) => {
                unit.writes += 1;
                (Status::Good, Vec::new(), Vec::new())
            }
            _ => introduce(cdb)
                .unwrap_or_else(|| refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE)),
        }
    };
    let mut driver = driver_of(Box::new(move |_, cdb| Ok(device(cdb))), Arc::clone(&stage));
    let volume = open(&mut driver);
    driver.make_exclusive(&volume.info(), OURS, Rival::Respected).expect("nobody has it");
    (unit, driver, volume, stage)
}

/// Whether a write is done after the session has begun anew, and this has happened at the unit meanwhile.
#[track_caller]
fn writes_after(keeps: bool, happens: &[fn(&mut Unit)]) -> bool {
    let (unit, mut driver, volume, stage) = owner(keeps);
    let block = || Frame::from(vec![0; BLOCK_BYTES as usize]).freeze();
    assert_eq!(serve(&mut driver, volume.write(0, block())), Ok(()));
    happens.iter().for_each(|happen| happen(&mut unit.lock().expect("no panic")));
    stage.is_lost.store(true, Ordering::SeqCst);
    let result = serve(&mut driver, volume.write(0, block()));
    let is_written = unit.lock().expect("no panic").writes == 2;
    assert_eq!(result.is_ok(), is_written, "{result:?}");
    if !is_written {
        assert_eq!(result, Err(VolumeError::Reserved));
    }
    is_written
}

#[test]
fn what_another_client_has_had_meanwhile_is_not_written_any_more() {
    for keeps in [false, true] {
        assert!(writes_after(keeps, &[]));
        assert!(!writes_after(keeps, &[Unit::change_hands]), "keeps {keeps}");
        // It was restarted: that tells nothing where it keeps what is registered.
        assert!(writes_after(keeps, &[Unit::restart]), "keeps {keeps}");
        assert!(!writes_after(keeps, &[Unit::restart, Unit::change_hands]), "keeps {keeps}");
    }
    assert!(!writes_after(true, &[Unit::change_hands, Unit::restart]));
}

#[test]
fn what_another_client_had_is_not_ours_again_after_further_sessions() {
    let (unit, mut driver, volume, stage) = owner(true);
    unit.lock().expect("no panic").change_hands();
    for _ in 0..2 {
        stage.is_lost.store(true, Ordering::SeqCst);
        assert_eq!(serve(&mut driver, volume.flush()), Err(VolumeError::Reserved));
        assert!(unit.lock().expect("no panic").keys.is_empty(), "it leaves no trace");
    }
}
