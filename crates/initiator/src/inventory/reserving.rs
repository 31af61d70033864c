//! A unit for one client alone to write to: a persistent reservation (SPC-5 5.14) of the type Write Exclusive.
//!
//! A client has one key, whatever wire it comes by, so that it knows what it has reserved before, also from a process that has ended
//! without releasing it.

use sanwire_core::Lun;
use sanwire_scsi::reservation::{
    Held, OrderAction, ReservationQuery, ReservationType, parameters, parse_full_status, parse_read_keys,
    parse_read_reservation,
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

/// Whose a unit is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// This client's. `survives`: also when the server is restarted.
    Us { survives: bool },
    /// Another one's, in words for people.
    Another(String),
    /// Nobody's: it knows no persistent reservations.
    Nobody,
}

/// What the registration of this client is known to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// There may be none.
    New(Rival),
    /// There was one, with the reservation, all the time since; `survives`: also where the server was restarted.
    Again { survives: bool },
}

/// What a unit said to an order.
enum Said {
    Done,
    Conflict,
    /// It does not know the order, or this form of it.
    Unknown,
}

/// Reserves a unit with this key, unless another client has it, or by [`Claim::Again`] may have had it meanwhile: what this client had
/// under way would come onto what that one has written.
pub(crate) fn reserve(driver: &mut Driver, lun: Lun, key: u64, claim: Claim) -> Result<Owner, ConnectError> {
    let mut unit = Unit { asker: Asker::new(driver, THE_SERVER), lun, key, survives: true };
    for _ in 0..ROUNDS_MAX {
        let Some(held) = unit.held()? else { return Ok(Owner::Nobody) };
        let others = held.filter(|held| held.key != key);
        if others.is_some() && claim != Claim::New(Rival::Preempted) {
            return unit.give_way();
        }
        if let (None, Claim::Again { survives }) = (held, claim)
            && !unit.was_ours(survives)?
        {
            return Ok(Owner::Another(String::from("another client, which has left it since,")));
        }
        match unit.register()? {
            Said::Done => {}
            Said::Conflict => return Ok(Owner::Another(String::from("another client, by RESERVE"))),
            Said::Unknown => return Ok(Owner::Nobody),
        }
        let said = match others {
            Some(held) => unit.order(OrderAction::PreemptAndAbort, held.key, false)?,
            None => match unit.order(OrderAction::Reserve, 0, false)? {
                // A process of this client that has ended came from another port.
                Said::Conflict if held.is_some() => unit.order(OrderAction::PreemptAndAbort, key, false)?,
                said => said,
            },
        };
        if let Said::Done = said {
            return Ok(Owner::Us { survives: unit.survives });
        }
    }
    unit.give_way()
}

/// Releases what was reserved with this key, and registers no longer.
pub(crate) fn release(driver: &mut Driver, lun: Lun, key: u64) -> Result<(), ConnectError> {
    let mut unit = Unit { asker: Asker::new(driver, THE_SERVER), lun, key, survives: false };
    // SPC-5 5.14.11.2.3: the reservation of a holder ends with its registration. Who is not registered any more is told of a conflict.
    unit.order(OrderAction::Register, 0, false).map(drop)
}

/// A unit that is asked to be ours.
struct Unit<'a> {
    asker: Asker<'a>,
    lun: Lun,
    key: u64,
    /// Whether the server keeps what is registered.
    survives: bool,
}

impl Unit<'_> {
    /// What is reserved; outside, `None` when it knows no such thing.
    fn held(&mut self) -> Result<Option<Option<Held>>, ConnectError> {
        let Some(answer) = self.query(ReservationQuery::Reservation)? else { return Ok(None) };
        parse_read_reservation(&answer).map(Some).map_err(|error| self.asker.wrong(ASKED, error))
    }

    /// Whether nobody can have had it since this client had: who takes it over removes the registration (SPC-5 5.14.11.3), and leaves a
    /// trace of his own until the server is restarted.
    fn was_ours(&mut self, survives: bool) -> Result<bool, ConnectError> {
        let Some(answer) = self.query(ReservationQuery::Keys)? else { return Ok(false) };
        let registered = parse_read_keys(&answer).map_err(|error| self.asker.wrong(ASKED, error))?;
        let is_forgotten = !survives && registered.generation == 0 && registered.keys.is_empty();
        Ok(registered.keys.contains(&self.key) || is_forgotten)
    }

    fn query(&mut self, query: ReservationQuery) -> Result<Option<Vec<u8>>, ConnectError> {
        let cdb = build::persistent_reserve_in(query, ANSWER_BYTES);
        let own = self.asker.settled(self.lun, ASKED, (cdb, None), usize::from(ANSWER_BYTES))?;
        match own.answer.status {
            Status::Good => Ok(Some(own.data)),
            status => self.refused(ASKED, status, &own.answer.sense).map(|_| None),
        }
    }

    /// Also where it was registered before, by whatever port. It survives a restart of the server where that keeps it.
    fn register(&mut self) -> Result<Said, ConnectError> {
        match self.order(OrderAction::RegisterAndIgnore, self.key, true)? {
            Said::Unknown => {
                self.survives = false;
                self.order(OrderAction::RegisterAndIgnore, self.key, false)
            }
            said => Ok(said),
        }
    }

    fn order(&mut self, action: OrderAction, action_key: u64, keep: bool) -> Result<Said, ConnectError> {
        // The key that a nexus has is ignored by the order that registers it.
        let list = parameters(self.key, action_key, keep);
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
        self.order(OrderAction::Register, 0, false)?;
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
