//! A unit for one client alone to write to: a persistent reservation (SPC-5 5.14) of the type Write Exclusive.
//!
//! **Each claim has a key of its own.** The first half of a key says whose it is, the second half is drawn for the claim. So no two
//! programs share a key, not even two of one client on two hosts, nor does one program have the key again with which it has lost a
//! unit. Whoever takes a unit over removes its holder's key from it (PREEMPT AND ABORT; or REGISTER AND IGNORE EXISTING KEY, where two
//! programs of one client are one initiator port), and nobody registers with a key that the unit does not show as the holder's.
//! So a key that is gone never comes back, and a unit that shows it has been nobody else's.
//!
//! **The unit is still ours** when this client's port is registered with the key of the claim, and is the holder of the reservation:
//! then RESERVE with that key succeeds, and for nobody else (SPC-5 5.14.9). It takes nothing that another one has left: the key is not
//! registered any more then. A session by another port than before (of an iSCSI target with several) finds the key as the holder's:
//! there the reservation moves to the port of the session, and it is looked again whether it is there, because another client may have
//! come in between.
//!
//! **Somebody else has had it** in all other cases, whatever stands there: another key, also one of the same client, or nothing, for he
//! may have left again, or the server was restarted and has forgotten who had it. What was under way must not come onto what he has
//! written. Unit attentions do not matter here: they are taken on the way, and what the unit says after them decides. Those that come
//! after the last look meet the commands of the volume.
//!
//! **A new claim** takes what a program of the same client has left that was killed, by the first half of the key. On this host it was
//! killed, if it has not released what it had: see [`crate::claims`]. Of a host with a copy of the client's key nobody can tell, so that
//! program is fenced as any other holder is. A process that has lost a unit takes back by that only what it has left itself: it would
//! take it from its successor. Where both are one port,
//! PREEMPT AND ABORT of the own key does that: servers of Sanwire end what the port's other sessions have under way, and tell them.

use sanwire_core::Lun;
use sanwire_scsi::reservation::{
    Held, OrderAction, ReservationQuery, ReservationType, parameters, parse_full_status, parse_read_reservation,
};
use sanwire_scsi::{AdditionalSense, Cdb, Sense, SenseKey, Status, build};

use super::asker::{ANSWER_BYTES, Asker};
use super::{Driver, THE_SERVER};
use crate::endpoint::ConnectError;

/// How often it is tried while others reserve and release at the same time.
const ROUNDS_MAX: usize = 8;

const KIND: ReservationType = ReservationType::WriteExclusive;
const ASKED: &str = "PERSISTENT RESERVE IN";
const ORDERED: &str = "PERSISTENT RESERVE OUT";

/// What becomes of the reservation of another client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rival {
    /// It stays.
    Respected,
    /// It is removed, with the commands of that client that are under way.
    Preempted,
}

/// A reservation that a client wants to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewClaim {
    /// Nobody has had it.
    pub(crate) key: u64,
    pub(crate) rival: Rival,
    /// The key by which this process has reserved the unit before, and did not release it.
    pub(crate) unreleased: Option<u64>,
}

impl NewClaim {
    /// Whether who has reserved it with this key is in the way.
    fn respects(&self, held: u64) -> bool {
        let is_left = self.unreleased.map_or(held >> 32 == self.key >> 32, |unreleased| held == unreleased);
        self.rival == Rival::Respected && held != self.key && !is_left
    }
}

/// Whose a unit is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// This claim's.
    Us,
    /// Another one's, in words for people.
    Another(String),
    /// Nobody's by now.
    Forgotten,
    /// Nobody's: it knows no persistent reservations.
    Nobody,
}

/// What a unit said to an order.
#[derive(PartialEq, Eq)]
enum Said {
    Done,
    Conflict,
    /// It does not know the order, or this form of it.
    Unknown,
}

/// Reserves a unit with a new key, unless another client has it.
pub(crate) fn reserve(driver: &mut Driver, lun: Lun, claim: NewClaim) -> Result<Owner, ConnectError> {
    let key = claim.key;
    let mut unit = Unit { asker: Asker::new(driver, THE_SERVER), lun, key };
    for _ in 0..ROUNDS_MAX {
        let Some(held) = unit.held()? else { return Ok(Owner::Nobody) };
        let is_ours = held.is_some_and(|held| held.key == key);
        if held.is_some_and(|held| claim.respects(held.key)) {
            return unit.give_way();
        }
        if !is_ours {
            match unit.register()? {
                Said::Done => {}
                Said::Conflict => return Ok(Owner::Another(String::from("another client, by RESERVE"))),
                Said::Unknown => return Ok(Owner::Nobody),
            }
        }
        match held {
            None if unit.order(OrderAction::Reserve, 0)? == Said::Done => return Ok(Owner::Us),
            // Where the former program had the same port, the key is in the place of its own by now: then this is done in the next round.
            Some(held) if unit.order(OrderAction::PreemptAndAbort, held.key)? == Said::Done => return unit.stays(),
            _ => {}
        }
    }
    unit.give_way()
}

/// Whether a unit that was reserved with this key has been this claim's all the time since.
pub(crate) fn stays_reserved(driver: &mut Driver, lun: Lun, key: u64) -> Result<Owner, ConnectError> {
    Unit { asker: Asker::new(driver, THE_SERVER), lun, key }.stays()
}

/// The key with which a unit is reserved, and who has it so, in words for people; `None`: nobody, as far as it knows of reservations.
pub(crate) fn holder(driver: &mut Driver, lun: Lun) -> Result<Option<(u64, String)>, ConnectError> {
    let mut unit = Unit { asker: Asker::new(driver, THE_SERVER), lun, key: 0 };
    let Some(held) = unit.held()?.flatten() else { return Ok(None) };
    Ok(Some((held.key, unit.holder()?)))
}

/// Releases what was reserved with this key, and registers no longer; whether it was still there.
pub(crate) fn release(driver: &mut Driver, lun: Lun, key: u64) -> Result<bool, ConnectError> {
    let mut unit = Unit { asker: Asker::new(driver, THE_SERVER), lun, key };
    Ok(unit.unregister()? == Said::Done)
}

/// A unit that is asked to be ours.
struct Unit<'a> {
    asker: Asker<'a>,
    lun: Lun,
    key: u64,
}

impl Unit<'_> {
    /// What is reserved; outside, `None` when it knows no such thing.
    fn held(&mut self) -> Result<Option<Option<Held>>, ConnectError> {
        let Some(answer) = self.query(ReservationQuery::Reservation)? else { return Ok(None) };
        parse_read_reservation(&answer).map(Some).map_err(|error| self.asker.wrong(ASKED, error))
    }

    /// Whether it is still ours; and has it by the port of this session from now on.
    fn stays(&mut self) -> Result<Owner, ConnectError> {
        for _ in 0..ROUNDS_MAX {
            match self.held()? {
                None => return Ok(Owner::Nobody),
                Some(None) => {
                    self.unregister()?;
                    return Ok(Owner::Forgotten);
                }
                Some(Some(held)) if held.key != self.key => return self.give_way(),
                Some(Some(_)) => {}
            }
            if self.order(OrderAction::Reserve, 0)? == Said::Done {
                return Ok(Owner::Us);
            }
            // It was reserved by another port, or another client has just come.
            if self.register_new()? == Said::Done {
                self.order(OrderAction::PreemptAndAbort, self.key)?;
            }
        }
        self.give_way()
    }

    fn query(&mut self, query: ReservationQuery) -> Result<Option<Vec<u8>>, ConnectError> {
        let cdb = build::persistent_reserve_in(query, ANSWER_BYTES);
        let own = self.asker.settled(self.lun, ASKED, (cdb, None), usize::from(ANSWER_BYTES))?;
        match own.answer.status {
            Status::Good => Ok(Some(own.data)),
            status => self.refused(ASKED, status, &own.answer.sense).map(|_| None),
        }
    }

    /// Whatever the port was registered with before.
    fn register(&mut self) -> Result<Said, ConnectError> {
        let key = self.key;
        match self.give(OrderAction::RegisterAndIgnore, parameters(key, key, true))? {
            Said::Unknown => {}
            said => return Ok(said),
        }
        let said = self.give(OrderAction::RegisterAndIgnore, parameters(key, key, false))?;
        if said == Said::Done {
            tracing::warn!(
                "logical unit {}: its server does not keep reservations when it is restarted: nobody knows after that who has had the volume \
                 meanwhile, and its I/O fails until it is opened again",
                self.lun
            );
        }
        Ok(said)
    }

    /// Where the port is not registered.
    fn register_new(&mut self) -> Result<Said, ConnectError> {
        match self.give(OrderAction::Register, parameters(0, self.key, true))? {
            Said::Unknown => self.give(OrderAction::Register, parameters(0, self.key, false)),
            said => Ok(said),
        }
    }

    /// SPC-5 5.14.11.3: the reservation of a holder ends with its registration. Who is not registered with the key is told of a conflict.
    fn unregister(&mut self) -> Result<Said, ConnectError> {
        self.order(OrderAction::Register, 0)
    }

    /// As the nexus that is registered with the key.
    fn order(&mut self, action: OrderAction, action_key: u64) -> Result<Said, ConnectError> {
        self.give(action, parameters(self.key, action_key, false))
    }

    fn give(&mut self, action: OrderAction, list: [u8; 24]) -> Result<Said, ConnectError> {
        let cdb: Cdb = build::persistent_reserve_out(action, KIND);
        let own = self.asker.settled(self.lun, ORDERED, (cdb, Some(&list)), 0)?;
        match own.answer.status {
            Status::Good => Ok(Said::Done),
            Status::ReservationConflict => Ok(Said::Conflict),
            status => self.refused(ORDERED, status, &own.answer.sense),
        }
    }

    fn refused(&self, command: &'static str, status: Status, sense: &[u8]) -> Result<Said, ConnectError> {
        match Sense::parse(sense) {
            Some(Sense {
                key: SenseKey::IllegalRequest,
                additional:
                    AdditionalSense::INVALID_COMMAND_OPERATION_CODE
                    | AdditionalSense::INVALID_FIELD_IN_CDB
                    | AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST,
                ..
            }) => Ok(Said::Unknown),
            Some(sense) => Err(self.asker.failed(command, sense.to_string())),
            None => Err(self.asker.failed(command, format!("status {status:?}"))),
        }
    }

    /// Leaves it to whoever has it, without a trace.
    fn give_way(&mut self) -> Result<Owner, ConnectError> {
        self.unregister()?;
        Ok(Owner::Another(self.holder()?))
    }

    /// Who has it, as well as the unit can tell.
    fn holder(&mut self) -> Result<String, ConnectError> {
        let status = self.query(ReservationQuery::FullStatus)?.unwrap_or_default();
        let registered = parse_full_status(&status).unwrap_or_default();
        let holders: Vec<String> = registered
            .into_iter()
            .filter(|one| one.is_holder)
            .map(|one| one.initiator.map_or_else(|| by_key(one.key), |port| port.to_string()))
            .collect();
        if !holders.is_empty() {
            return Ok(holders.join(", "));
        }
        let held = self.held()?.flatten();
        Ok(held.map_or_else(|| String::from("another client"), |held| by_key(held.key)))
    }
}

fn by_key(key: u64) -> String {
    format!("another client, with the key {key:#018x}")
}
