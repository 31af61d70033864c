//! Reservations that are ended for hosts that do not come again.

use serde::{Deserialize, Serialize};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_device::{ClearedReservations, LogicalUnit, NotCleared};

use super::reservations::ReservationKind;
use super::slow::Step;
use super::usage::ENDING;
use super::{Answer, ManageError, Manager};
use crate::events::Happening;

/// What is done to the volume meanwhile.
const CLEARED: &str = "having its reservations ended";

/// What initiators do to it that comes first.
const ORDERED: &str = "having its reservations changed by an initiator";

/// So long orders of initiators are let by.
const PATIENCE: Duration = Duration::from_secs(5);

/// How soon it is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// Whose reservations end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clearing {
    /// Its name.
    pub name: String,
    /// Only of those who are registered with this key, in hexadecimal digits; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether that is done also while they are connected.
    #[serde(default)]
    pub force: bool,
}

impl Manager {
    /// Ends all reservations of a volume and registrations for them, or those with a key.
    pub(super) fn clear_reservations(
        &mut self,
        name: &str,
        key: Option<&str>,
        force: bool,
    ) -> Result<Step, ManageError> {
        let hold = self.busy.hold(name, CLEARED)?;
        let (unit, key) = self.to_clear(name, key)?;
        let name = name.to_owned();
        let clear = move || patiently(|| clear(&unit, key, force));
        Ok(Step::slow(format!("ending reservations of {name}"), clear, move |manager, cleared| {
            let _hold = hold;
            let cleared = cleared.map_err(|refused| refusal(&name, key, refused))?;
            if cleared != ClearedReservations::default() {
                let registrations = u32::try_from(cleared.registrations.len()).unwrap_or(u32::MAX);
                manager.target.events().note(Happening::ReservationsCleared { volume: name.clone(), registrations });
            }
            Ok(Step::Done(Answer::Changed(lines(&name, &cleared, ["is", "has"]))))
        }))
    }

    /// Tells what that would end.
    pub(super) fn rehearse_clearing(&self, name: &str, key: Option<&str>, force: bool) -> Result<Step, ManageError> {
        let _hold = self.busy.hold(name, CLEARED)?;
        let (unit, key) = self.to_clear(name, key)?;
        let name = name.to_owned();
        let look = move || patiently(|| unit.would_clear_reservations(key, force));
        Ok(Step::slow(format!("looking at the reservations of {name}"), look, move |_, cleared| {
            let cleared = cleared.map_err(|refused| refusal(&name, key, refused))?;
            Ok(Step::Done(Answer::Changed(lines(&name, &cleared, ["would be", "would have"]))))
        }))
    }

    fn to_clear(&self, name: &str, key: Option<&str>) -> Result<(Arc<LogicalUnit>, Option<u64>), ManageError> {
        let key = key.map(reservation_key).transpose()?;
        let (_, unit) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        Ok((unit, key))
    }
}

/// A key as `reservations` tells it.
fn reservation_key(text: &str) -> Result<u64, ManageError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_number = (1..=16).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let key = is_number.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
    key.ok_or_else(|| ManageError::ReservationKey(text.to_owned()))
}

/// Ends them; returns when that is kept, or will not be.
fn clear(unit: &LogicalUnit, key: Option<u64>, force: bool) -> Result<ClearedReservations, NotCleared> {
    let (sender, told) = mpsc::channel();
    // Nobody else would want to be told.
    unit.state().clear_reservations(key, force, move |cleared| _ = sender.send(cleared));
    told.recv().unwrap_or(Err(NotCleared::Ordering))
}

/// Tries it again while initiators order something, and once more when somebody is connected: sessions may just be ending.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, NotCleared>) -> Result<T, NotCleared> {
    let (begun, mut is_last) = (Instant::now(), false);
    loop {
        match attempt() {
            Err(NotCleared::Ordering) if begun.elapsed() < PATIENCE => thread::sleep(AGAIN),
            Err(NotCleared::Connected(_)) if !is_last => {
                is_last = true;
                thread::sleep(ENDING);
            }
            done => return done,
        }
    }
}

fn refusal(name: &str, key: Option<u64>, refused: NotCleared) -> ManageError {
    let name = name.to_owned();
    match refused {
        NotCleared::Unknown => ManageError::NoRegistration { name, key: format!("{:016x}", key.unwrap_or_default()) },
        NotCleared::Connected(who) => {
            ManageError::Reserved { name, users: who.into_iter().collect::<Vec<_>>().join(", ") }
        }
        NotCleared::Ordering => ManageError::Busy { name, what: ORDERED },
        NotCleared::NotKept(place) => ManageError::ReservationsNotKept { name, place },
    }
}

/// What became of them, a line for each thing; `is` and `has` in the words for what was done, or would be.
fn lines(name: &str, cleared: &ClearedReservations, [is, has]: [&str; 2]) -> Vec<String> {
    let ClearedReservations { registrations, kind, reserved_by } = cleared;
    let of_registrations = registrations.iter().map(|registration| {
        let (initiator, key) = (&registration.initiator, registration.key);
        format!("{initiator} {is} not registered for volume {name} any more; its key was {key:016x}")
    });
    let of_reservation = kind.map(|kind| {
        let kind = ReservationKind::from(kind);
        format!("volume {name} {has} no persistent reservation any more; it was {}", kind.word())
    });
    let of_reserve = reserved_by
        .map(|nexus| format!("session {:x} {has} volume {name} no longer for itself, as it had by RESERVE", nexus.0));
    let lines: Vec<String> = of_registrations.chain(of_reservation).chain(of_reserve).collect();
    match lines.is_empty() {
        true => vec![format!("nobody is registered for volume {name}, and nothing of it is reserved")],
        false => lines,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::config;
    use super::super::{Answer, ManageError, Manager, Request};
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_told() {
        for (text, key) in [("2a", 0x2a), ("0x2A", 0x2a), ("ffffffffffffffff", u64::MAX), ("0", 0)] {
            assert_eq!(reservation_key(text).unwrap(), key, "{text}");
        }
        for text in ["", "0x", "g", "-1", "+1", "10000000000000000", "2a ", "２a"] {
            assert!(matches!(reservation_key(text), Err(ManageError::ReservationKey(_))), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_refused_and_nothing_reserved_is_nothing_to_do() {
        let mut manager = Manager::start(config(&["a=ram:1M"]), Box::new(|| Ok(config(&[])))).unwrap();
        let clear = |name: &str, key: Option<&str>| {
            Request::ClearReservations(Clearing { name: name.into(), key: key.map(str::to_owned), force: false })
        };
        assert!(matches!(manager.execute(clear("b", None)), Err(ManageError::NoVolume(_))));
        assert!(matches!(manager.execute(clear("a", Some("x"))), Err(ManageError::ReservationKey(_))));
        let unknown = manager.execute(clear("a", Some("2a"))).unwrap_err().to_string();
        assert!(unknown.contains("nobody is registered with the key 000000000000002a"), "{unknown}");
        let dry = Request::DryRun { request: Box::new(clear("a", None)) };
        for request in [clear("a", None), dry] {
            let Ok(Answer::Changed(lines)) = manager.execute(request) else { panic!("it is done") };
            assert_eq!(lines, ["nobody is registered for volume a, and nothing of it is reserved"]);
        }
        let hold = manager.busy.hold("a", "being removed").unwrap();
        assert!(matches!(manager.execute(clear("a", None)), Err(ManageError::Busy { .. })));
        drop(hold);
        manager.into_target().stop().unwrap();
    }
}
