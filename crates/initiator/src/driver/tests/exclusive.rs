//! Volumes for one client alone: what was under way never comes after what another one has written.

use std::collections::BTreeMap;

use sanwire_core::ClientId;
use sanwire_scsi::reservation::{ReservationType, read_keys, read_reservation};

use super::*;
use crate::endpoint::ConnectError;
use crate::inventory::Rival;

/// A key of another program of the same client, and one of another client.
const OUR_OTHER: u64 = 7 << 32 | 2;
const THEIRS: u64 = 8 << 32 | 1;
/// A port of another client.
const OTHER_PORT: u8 = 99;

const READ_KEYS: u8 = 0;
const READ_RESERVATION: u8 = 1;
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;

/// The reservations of a unit, of which the client under test is one user.
#[derive(Default)]
struct Unit {
    generation: u32,
    /// Keys by ports.
    keys: BTreeMap<u8, u64>,
    holder: Option<u8>,
    /// The port of the client under test.
    port: u8,
    /// It has not heard yet that another one has removed its registration.
    is_to_hear: bool,
    /// It keeps them when it is restarted.
    keeps: bool,
    writes: u32,
    /// After so many more commands about reservations this happens to it.
    next: Option<(u32, Happening)>,
}

type Happening = fn(&mut Unit);

fn good(data: Vec<u8>) -> Told {
    (Status::Good, Vec::new(), data)
}

impl Unit {
    fn order(&mut self, action: u8, list: &[u8]) -> Told {
        let key = |at: usize| u64::from_be_bytes(list[at..at + 8].try_into().expect("a list"));
        let (key, action_key, port) = (key(0), key(8), self.port);
        if list[20] != 0 && !self.keeps {
            return refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
        }
        let has = self.keys.get(&port).copied().unwrap_or(0);
        match action {
            REGISTER_AND_IGNORE => self.register(port, action_key),
            _ if key != has => return (Status::ReservationConflict, Vec::new(), Vec::new()),
            REGISTER => self.register(port, action_key),
            RESERVE if has != 0 && self.holder.is_none_or(|holder| holder == port) => self.holder = Some(port),
            PREEMPT_AND_ABORT if has != 0 && self.keys.values().any(|key| *key == action_key) => {
                self.preempt(port, action_key);
            }
            _ => return (Status::ReservationConflict, Vec::new(), Vec::new()),
        }
        good(Vec::new())
    }

    fn query(&self, action: u8) -> Told {
        good(match action {
            READ_KEYS => read_keys(self.generation, self.keys.values().copied()),
            READ_RESERVATION => {
                let key = self.holder.map(|holder| (self.keys[&holder], ReservationType::WriteExclusive));
                read_reservation(self.generation, key)
            }
            _ => return refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB),
        })
    }

    fn register(&mut self, port: u8, key: u64) {
        self.generation += 1;
        if key == 0 {
            self.keys.remove(&port);
            self.holder = self.holder.filter(|holder| *holder != port);
        } else {
            self.keys.insert(port, key);
        }
    }

    /// SPC-5 5.14.11.4: who names its own key and is not the holder strikes itself out.
    fn preempt(&mut self, by: u8, victims: u64) {
        self.generation += 1;
        let takes_over = self.holder.is_some_and(|holder| self.keys[&holder] == victims);
        let own = self.port;
        let mut is_struck = false;
        self.keys.retain(|port, key| {
            let stays = *key != victims || (takes_over && *port == by);
            is_struck |= !stays && *port == own && own != by;
            stays
        });
        self.is_to_hear |= is_struck;
        self.holder = if takes_over { Some(by) } else { self.holder };
    }

    /// Another client takes it.
    fn is_taken(&mut self) {
        self.register(OTHER_PORT, THEIRS);
        match self.holder.map(|holder| self.keys[&holder]) {
            Some(held) => self.preempt(OTHER_PORT, held),
            None => self.holder = Some(OTHER_PORT),
        }
    }

    /// Another client takes it, writes, and leaves.
    fn change_hands(&mut self) {
        self.is_taken();
        self.register(OTHER_PORT, 0);
    }

    fn restart(&mut self) {
        self.generation = 0;
        self.is_to_hear = false;
        if !self.keeps {
            (self.keys, self.holder) = (BTreeMap::new(), None);
        }
    }

    fn answer(&mut self, cdb: &Cdb, list: &[u8], page: &[u8]) -> Told {
        let (code, action) = (cdb.operation_code(), cdb.as_ref()[1] & 0x1f);
        if code != 0x12 && code != 0xa0 && std::mem::take(&mut self.is_to_hear) {
            return refuse(SenseKey::UnitAttention, AdditionalSense::REGISTRATIONS_PREEMPTED);
        }
        match (code, cdb.as_ref()[2]) {
            (0x12, 0x83) => good(page.to_vec()),
            (0x25, _) => good(vec![0, 0, 0x0f, 0xff, 0, 0, 2, 0]),
            (0x5e | 0x5f, _) => {
                let told = if code == 0x5e { self.query(action) } else { self.order(action, list) };
                self.next = match self.next.take() {
                    Some((0, happens)) => {
                        happens(self);
                        None
                    }
                    next => next.map(|(left, happens)| (left - 1, happens)),
                };
                told
            }
            (0x2a, _) if self.holder.is_some_and(|holder| holder != self.port) => {
                (Status::ReservationConflict, Vec::new(), Vec::new())
            }
            (0x2a, _) => {
                self.writes += 1;
                good(Vec::new())
            }
            _ => introduce(cdb)
                .unwrap_or_else(|| refuse(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE)),
        }
    }
}

/// The client under test.
fn claimant() -> Claimant {
    Claimant::new(ClientId([0, 0, 0, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]), None)
}

/// A driver with this unit, and a handle of it.
fn user(unit: Unit) -> (Arc<Mutex<Unit>>, Driver, Volume, Arc<Stage>) {
    let unit = Arc::new(Mutex::new(unit));
    let stage = Arc::<Stage>::default();
    let (of_device, given) = (Arc::clone(&unit), Arc::clone(&stage));
    let page = Identity::new("one", [1; 16]).expect("a name").to_page(&TargetPort::default());
    let device = move |cdb: &Cdb| {
        let list = given.data_out.lock().expect("no panic").clone();
        of_device.lock().expect("no panic").answer(cdb, &list, &page)
    };
    let mut driver = driver_of(Box::new(move |_, cdb| Ok(device(cdb))), Arc::clone(&stage));
    let volume = open(&mut driver);
    (unit, driver, volume, stage)
}

/// The same, which has it for itself.
fn owner(keeps: bool) -> (Arc<Mutex<Unit>>, Driver, Volume, Arc<Stage>) {
    let (unit, mut driver, volume, stage) = user(Unit { keeps, ..Unit::default() });
    driver.make_exclusive(&volume.info(), &claimant(), Rival::Respected).expect("nobody has it");
    (unit, driver, volume, stage)
}

fn block() -> sanwire_buffer::Slice {
    Frame::from(vec![0; BLOCK_BYTES as usize]).freeze()
}

/// Whether a write is done after the session has begun anew, and this has happened at the unit meanwhile.
#[track_caller]
fn writes_after(keeps: bool, happens: &[Happening]) -> bool {
    let (unit, mut driver, volume, stage) = owner(keeps);
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
        assert!(!writes_after(keeps, &[Unit::is_taken]), "keeps {keeps}");
        assert!(!writes_after(keeps, &[Unit::change_hands]), "keeps {keeps}");
        assert!(!writes_after(keeps, &[Unit::restart, Unit::change_hands]), "keeps {keeps}");
        assert!(!writes_after(keeps, &[Unit::change_hands, Unit::restart]), "keeps {keeps}");
    }
    assert!(writes_after(true, &[Unit::restart]));
    // Nobody knows who has had it before.
    assert!(!writes_after(false, &[Unit::restart]));
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

/// The session comes anew by the port that this makes of it, while it looks whether the volume is still its own.
#[track_caller]
fn taken_during_the_look(port: u8, after: u32, happens: Happening) -> (bool, u32) {
    let (unit, mut driver, volume, stage) = owner(true);
    {
        let unit = &mut *unit.lock().expect("no panic");
        unit.port = port;
        unit.next = Some((after, happens));
    }
    stage.is_lost.store(true, Ordering::SeqCst);
    let result = serve(&mut driver, volume.write(0, block()));
    let unit = unit.lock().expect("no panic");
    assert_eq!(result, if unit.writes == 1 { Ok(()) } else { Err(VolumeError::Reserved) }, "after {after}");
    (unit.next.is_none(), unit.writes)
}

#[test]
fn what_changes_hands_while_it_is_looked_at_is_not_written_any_more() {
    for happens in [Unit::is_taken as Happening, Unit::change_hands] {
        for port in [0, 1] {
            let looks = (0..).map(|after| taken_during_the_look(port, after, happens));
            let during: Vec<u32> =
                looks.take_while(|(has_happened, _)| *has_happened).map(|(_, writes)| writes).collect();
            assert!(during.len() >= 2 && during.iter().all(|writes| *writes == 0), "port {port}: {during:?}");
        }
    }
    // By another port it is still its own.
    assert_eq!(taken_during_the_look(1, 100, Unit::change_hands), (false, 1));
}

#[test]
fn what_another_program_of_this_client_has_taken_is_not_ours_any_more() {
    for port in [0, OTHER_PORT] {
        let (unit, mut driver, volume, stage) = owner(true);
        {
            let unit = &mut *unit.lock().expect("no panic");
            unit.register(port, OUR_OTHER);
            let held = unit.keys[&unit.holder.expect("it is held")];
            unit.preempt(port, held);
        }
        stage.is_lost.store(true, Ordering::SeqCst);
        assert_eq!(serve(&mut driver, volume.write(0, block())), Err(VolumeError::Reserved));
        driver.release_exclusive();
        let unit = unit.lock().expect("no panic");
        assert_eq!((unit.writes, unit.keys.clone(), unit.holder), (0, BTreeMap::from([(port, OUR_OTHER)]), Some(port)));
    }
}

#[test]
fn what_a_program_of_this_client_has_left_is_taken_and_what_others_have_is_not() {
    for (port, key, is_ours) in
        [(0, OUR_OTHER, true), (1, OUR_OTHER, true), (OTHER_PORT, THEIRS, false), (OTHER_PORT, 1, false)]
    {
        let left = Unit { keeps: true, keys: BTreeMap::from([(port, key)]), holder: Some(port), ..Unit::default() };
        let (unit, mut driver, volume, _) = user(left);
        let claimed = driver.make_exclusive(&volume.info(), &claimant(), Rival::Respected);
        let now = |unit: &Mutex<Unit>| {
            let unit = unit.lock().expect("no panic");
            (unit.keys.clone(), unit.holder)
        };
        let is_new = |(keys, holder): (BTreeMap<u8, u64>, Option<u8>)| {
            let is_new = |key: u64| key >> 32 == 7 && key != OUR_OTHER;
            keys.len() == 1 && keys.get(&0).is_some_and(|key| is_new(*key)) && holder == Some(0)
        };
        if is_ours {
            claimed.expect("it is this client's");
            assert!(is_new(now(&unit)));
            continue;
        }
        assert!(matches!(claimed, Err(ConnectError::Held { .. })), "{claimed:?}");
        assert_eq!(now(&unit), (BTreeMap::from([(port, key)]), Some(port)), "without a trace");
        driver.make_exclusive(&volume.info(), &claimant(), Rival::Preempted).expect("whoever has it");
        assert!(is_new(now(&unit)));
    }
}

/// Its reservation could not be released, and another program of its client, on another host, may have come meanwhile.
#[test]
fn a_process_that_has_lost_a_volume_takes_back_only_what_it_has_left_itself() {
    let directory = std::env::temp_dir().join(format!("sanwire-left-{}", std::process::id()));
    let claims = Arc::new(crate::claims::Claims::new(directory.clone()));
    let claimant = Claimant { claims: Some(claims), ..claimant() };
    for is_succeeded in [false, true] {
        let (unit, mut driver, volume, _) = user(Unit { keeps: true, ..Unit::default() });
        driver.make_exclusive(&volume.info(), &claimant, Rival::Preempted).expect("nobody has it");
        let beside = driver.make_exclusive(&volume.info(), &claimant, Rival::Preempted);
        assert!(matches!(beside, Err(ConnectError::InUse { process: Some(_), .. })), "{beside:?}");
        driver.link = ConnectionState::Down(away());
        driver.release_exclusive();
        driver.link = ConnectionState::Up(array());
        if is_succeeded {
            let unit = &mut *unit.lock().expect("no panic");
            unit.register(1, OUR_OTHER);
            let held = unit.keys[&0];
            unit.preempt(1, held);
        }
        let again = driver.make_exclusive(&volume.info(), &claimant, Rival::Respected);
        assert_eq!(matches!(again, Err(ConnectError::Held { .. })), is_succeeded, "{again:?}");
        assert_eq!(again.is_ok(), !is_succeeded, "{again:?}");
    }
    std::fs::remove_dir_all(directory).expect("it is there");
}
