//! Volumes that are missing: when they come, and what they are then.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use sanwire_store::kind::{Backing, Likeness, StoreKind, register};
use sanwire_store::{Expectation, Known, OpenError, RamStore, SpecError, Store, Written};

use super::super::testing::{Kept, config as of_volumes};
use super::super::{Answer, Asker, ManagementHandle, Request, Response};
use super::*;
use crate::config::ServerConfig;
use crate::front::iscsi::target_node::TargetNodeConfig;

/// Stores of a server that is there, away, or refuses.
struct FarKind;

#[derive(Debug)]
struct Far {
    place: String,
    state: &'static AtomicU8,
}

const THERE: u8 = 0;
const AWAY: u8 = 1;
const REFUSES: u8 = 2;
static STATES: [AtomicU8; 8] = [const { AtomicU8::new(THERE) }; 8];

impl StoreKind for FarKind {
    fn words(&self) -> &'static [&'static str] {
        &["far"]
    }

    fn form(&self) -> &'static str {
        "far:NUMBER"
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let number: usize = written.place().parse().map_err(|_| written.is_no_store())?;
        Ok(Arc::new(Far { place: written.store().to_owned(), state: &STATES[number] }))
    }
}

impl Backing for Far {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        match self.state.load(Ordering::SeqCst) {
            THERE => Ok((Arc::new(RamStore::new(1 << 20, 512)), None)),
            state => {
                let (store, source) = (self.place.clone(), "no answer".into());
                Err(OpenError::Elsewhere { store, source, is_away: state == AWAY })
            }
        }
    }

    fn place(&self) -> Place<'_> {
        Place::Elsewhere(&self.place)
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let is_same = (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| other.place == self.place);
        if is_same { Likeness::Same } else { Likeness::Other }
    }
}

fn kept(label: &str, number: usize, state: u8, keys: &str) -> Kept {
    register(&FarKind);
    STATES[number].store(state, Ordering::SeqCst);
    Kept::new(label, &["a=ram:1M", &format!("b=far:{number}{keys}")])
}

const WAITS: &str = ",when-gone=wait:1s";

#[test]
fn a_volume_that_waits_for_a_store_on_a_server_that_is_away_keeps_no_server_from_starting_and_comes_later() {
    let kept = kept("away", 0, AWAY, WAITS);
    let desk = ManagementHandle::new(kept.start().unwrap());
    let by = Asker::Signal { signal: "test" };
    let status = || match desk.handle(&by, Request::Status) {
        Response::Done(Answer::Status(status)) => status,
        other => panic!("{other:?}"),
    };
    let there = status();
    assert_eq!((there.volumes.len(), &*there.missing[0].name), (1, "b"));
    assert!(there.targets.iter().all(|target| target.units.iter().all(|(_, volume)| volume == "a")));
    STATES[0].store(THERE, Ordering::SeqCst);
    let since = Instant::now();
    while !status().missing.is_empty() {
        assert!(since.elapsed() < Duration::from_secs(60), "it never comes");
        thread::sleep(Duration::from_millis(20));
    }
    let there = status();
    assert_eq!(there.volumes.len(), 2);
    assert!(there.targets.iter().any(|target| target.units.iter().any(|(_, volume)| volume == "b")), "{there:?}");
    assert!(there.revision > 1);
}

#[test]
fn a_store_that_nobody_waits_for_or_that_is_refused_stops_the_start() {
    assert!(kept("away-at-once", 1, AWAY, "").start().is_err());
    assert!(kept("refused", 2, REFUSES, WAITS).start().is_err());
    assert!(kept("there", 3, THERE, WAITS).start().is_ok());
}

/// A manager of these, that reads those again.
fn from_to(before: ServerConfig, after: ServerConfig) -> Manager {
    Manager::start(before, Box::new(move || Ok(after.clone()))).unwrap()
}

fn reload(manager: &mut Manager) -> Vec<String> {
    match manager.execute(Request::Reload { force: false, dry_run: false, reset: false }) {
        Ok(Answer::Changed(lines)) => lines,
        other => panic!("{other:?}"),
    }
}

fn units(manager: &Manager) -> Vec<(String, String, bool)> {
    let exports = manager.target.exports();
    let of = |export: &TargetNodeConfig| {
        let has_users = !export.authentication.users.is_empty();
        let name = export.name.to_string();
        export
            .units
            .iter()
            .map(|(lun, volume)| (name.clone(), format!("{lun}={volume}"), has_users))
            .collect::<Vec<_>>()
    };
    exports.iter().flat_map(of).collect()
}

fn away(number: usize, volumes: &[&str]) -> ServerConfig {
    register(&FarKind);
    STATES[number].store(AWAY, Ordering::SeqCst);
    of_volumes(volumes)
}

#[test]
fn a_target_that_is_configured_no_longer_does_not_come_back_with_its_missing_volume() {
    let before = away(4, &["a=ram:1M", "b=far:4,when-gone=wait:1s"]);
    let mut after = before.clone();
    after.exports.retain(|export| !export.name.as_str().ends_with(":b"));
    let mut manager = from_to(before, after);
    reload(&mut manager);
    STATES[4].store(THERE, Ordering::SeqCst);
    reload(&mut manager);
    assert_eq!(units(&manager).len(), 1, "{:?}", units(&manager));
}

#[test]
fn a_number_that_is_configured_anew_holds_for_a_missing_volume() {
    let mut before = away(5, &["a=ram:1M", "b=far:5,when-gone=wait:1s"]);
    before.exports.truncate(1);
    before.exports[0].units.insert(sanwire_core::Lun::new(1).unwrap(), "b".into());
    let mut after = before.clone();
    after.exports[0].units.remove(&sanwire_core::Lun::new(1).unwrap());
    after.exports[0].units.insert(sanwire_core::Lun::new(7).unwrap(), "b".into());
    let mut manager = from_to(before, after);
    reload(&mut manager);
    STATES[5].store(THERE, Ordering::SeqCst);
    reload(&mut manager);
    let units = units(&manager);
    assert!(units.iter().any(|(_, unit, _)| unit.contains('7')), "{units:?}");
}

#[test]
fn a_missing_volume_comes_back_with_a_reload_that_brings_another_before_it() {
    let before = away(6, &["a=ram:1M", "b=far:6,when-gone=wait:1s"]);
    let after = of_volumes(&["a=ram:1M", "x=ram:1M", "b=far:6,when-gone=wait:1s"]);
    let mut manager = from_to(before, after);
    STATES[6].store(THERE, Ordering::SeqCst);
    let lines = reload(&mut manager);
    assert!(manager.kept.missing.is_empty(), "{lines:?}");
}

#[test]
fn a_number_in_a_target_is_kept_for_a_missing_volume() {
    let mut before = away(7, &["a=ram:1M", "b=far:7,when-gone=wait:1s"]);
    before.exports.truncate(1);
    before.exports[0].units.insert(sanwire_core::Lun::new(1).unwrap(), "b".into());
    let target = before.exports[0].name.to_string();
    let mut manager = from_to(before.clone(), before);
    let volume = "x=ram:1M".to_owned();
    let add = Request::AddVolume { volume, target: Some(target), renew: false, adopt: false };
    manager.execute(add).unwrap();
    STATES[7].store(THERE, Ordering::SeqCst);
    reload(&mut manager);
    let units = units(&manager);
    assert!(units.iter().any(|(_, unit, _)| unit.ends_with("1=b")), "{units:?}");
}

#[test]
fn a_volume_that_no_target_takes_is_not_renewed() {
    let kept = Kept::new("refused-renewal", &["a=ram:1M"]);
    let mut manager = kept.start().unwrap();
    let image = kept.directory.join("c.img");
    let spec = format!("c=file:{},size=1M", image.display());
    let add = |spec: &str, target: Option<&str>, renew| Request::AddVolume {
        volume: spec.to_owned(),
        target: target.map(str::to_owned),
        renew,
        adopt: false,
    };
    let id = |manager: &Manager| manager.find("c").unwrap().1.identity().uuid();
    manager.execute(add(&spec, None, false)).unwrap();
    let former = id(&manager);
    manager.execute(Request::RemoveVolume { name: "c".into(), force: false }).unwrap();
    let guarded = format!("{spec},security=aes-256-gcm");
    let refused = manager.execute(add(&guarded, Some("iqn.2026-11.org.sanwire:a"), true));
    assert!(refused.is_err(), "{refused:?}");
    manager.execute(add(&spec, None, false)).unwrap();
    assert_eq!(id(&manager), former);
}

#[test]
fn a_guarded_target_that_is_renamed_is_not_open_when_its_missing_volume_is_there() {
    let mut before = away(3, &["a=ram:1M", "b=far:3,when-gone=wait:1s"]);
    let secret = sanwire_iscsi::ChapSecret::new(b"a secret of sixteen".to_vec()).unwrap();
    let user = sanwire_iscsi::Credential { name: "host".into(), secret };
    before.exports[1].authentication.users.push(user);
    let mut after = before.clone();
    after.exports[1].name = "iqn.2026-11.org.sanwire:renamed".parse().unwrap();
    let mut manager = from_to(before, after);
    reload(&mut manager);
    STATES[3].store(THERE, Ordering::SeqCst);
    reload(&mut manager);
    let units = units(&manager);
    assert!(units.iter().all(|(_, unit, has_users)| !unit.ends_with("=b") || *has_users), "{units:?}");
    assert!(units.iter().any(|(name, _, has_users)| name.ends_with(":renamed") && *has_users), "{units:?}");
}
