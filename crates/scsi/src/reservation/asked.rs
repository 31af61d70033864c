//! What an initiator asks with PERSISTENT RESERVE OUT, and reads from PERSISTENT RESERVE IN (SPC-5 6.15 and 6.16).

use super::{ReservationType, TransportId};
use crate::bytes::{AnswerError, put, u32_at, u64_at};

/// The basic parameter list: the key that the nexus has, the key that the service action is about, and whether registrations and the
/// reservation are to survive power loss (APTPL).
#[must_use]
pub fn parameters(key: u64, action_key: u64, keep: bool) -> [u8; 24] {
    let mut list = [0; 24];
    put(&mut list, 0, key.to_be_bytes());
    put(&mut list, 8, action_key.to_be_bytes());
    list[20] = keep.into();
    list
}

/// The persistent reservation of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The holder's key; zero where all registrants are holders.
    pub key: u64,
    /// What it is; `None` for a type that the standard does not know.
    pub kind: Option<ReservationType>,
}

/// Reads the answer to READ RESERVATION; `None` when nothing is reserved.
///
/// # Errors
/// [`AnswerError`] when it is cut short.
pub fn parse_read_reservation(bytes: &[u8]) -> Result<Option<Held>, AnswerError> {
    const WHAT: &str = "PERSISTENT RESERVE IN (READ RESERVATION)";
    let body = body(bytes, WHAT)?;
    if body.is_empty() {
        return Ok(None);
    }
    let (key, kind) = u64_at(body, 0).zip(body.get(13)).ok_or(AnswerError::Short(WHAT))?;
    Ok(Some(Held { key, kind: ReservationType::from_code(kind & 0x0f) }))
}

/// One registration of those that READ FULL STATUS tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registered {
    /// Its key.
    pub key: u64,
    /// Whether it holds the reservation.
    pub is_holder: bool,
    /// The initiator port; `None` where it is of a protocol that is unknown here.
    pub initiator: Option<TransportId>,
}

/// Reads the answer to READ FULL STATUS, as much as there is of it.
///
/// # Errors
/// [`AnswerError`] when there is not even its header.
pub fn parse_full_status(bytes: &[u8]) -> Result<Vec<Registered>, AnswerError> {
    const WHAT: &str = "PERSISTENT RESERVE IN (READ FULL STATUS)";
    let stated = u32_at(bytes, 4).ok_or(AnswerError::Short(WHAT))? as usize;
    let mut rest = bytes.get(8..).unwrap_or_default();
    rest = &rest[..stated.min(rest.len())];
    let mut all = Vec::new();
    while let (Some(key), Some(flags), Some(id_bytes)) = (u64_at(rest, 0), rest.get(12), u32_at(rest, 20)) {
        let Some(id) = rest.get(24..).and_then(|ids| ids.get(..id_bytes as usize)) else { break };
        all.push(Registered { key, is_holder: flags & 1 != 0, initiator: TransportId::parse(id) });
        rest = &rest[24 + id.len()..];
    }
    Ok(all)
}

/// What comes behind PRGENERATION and ADDITIONAL LENGTH.
fn body<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a [u8], AnswerError> {
    let length = u32_at(bytes, 4).ok_or(AnswerError::Short(what))? as usize;
    bytes.get(8..).and_then(|body| body.get(..length)).ok_or(AnswerError::Short(what))
}

#[cfg(test)]
mod tests {
    use super::super::{Order, OrderAction, Registration, full_status, order, read_reservation};
    use super::*;
    use sanwire_core::ClientId;

    #[test]
    fn the_target_reads_what_is_asked() {
        let registering = order(OrderAction::RegisterAndIgnore, 0, &parameters(1, 2, true));
        let register = Order::Register { key: None, new_key: 2, keep: true, all_ports: false, others: None };
        assert_eq!(registering, Ok(register));
        let preempting = order(OrderAction::PreemptAndAbort, 1, &parameters(1, 2, false));
        let kind = Ok(ReservationType::WriteExclusive);
        assert_eq!(preempting, Ok(Order::Preempt { key: 1, victims: 2, kind, abort: true }));
    }

    #[test]
    fn the_reservation_is_read_whole_or_not_at_all() {
        assert_eq!(parse_read_reservation(&read_reservation(7, None)), Ok(None));
        let held = read_reservation(7, Some((9, ReservationType::ExclusiveAccess)));
        let kind = Some(ReservationType::ExclusiveAccess);
        assert_eq!(parse_read_reservation(&held), Ok(Some(Held { key: 9, kind })));
        (0..held.len()).for_each(|length| assert!(parse_read_reservation(&held[..length]).is_err(), "{length}"));
    }

    #[test]
    fn registrations_are_read_as_far_as_they_go() {
        let port = TransportId::hyperscsi(ClientId([9; 16]));
        let one = Registration { key: 5, initiator: &port, target_port: Some(1), holds: None };
        let other = Registration { key: 6, holds: Some(ReservationType::WriteExclusive), ..one };
        let mut answer = full_status(1, [one, other].into_iter());
        let expected = [(5, false), (6, true)];
        let expected = expected.map(|(key, is_holder)| Registered { key, is_holder, initiator: Some(port.clone()) });
        assert_eq!(parse_full_status(&answer).as_deref(), Ok(&expected[..]));
        assert_eq!(parse_full_status(&answer[..answer.len() - 1]).as_deref(), Ok(&expected[..1]), "the second is cut");
        // A fibre channel port.
        answer[32] = 0;
        assert_eq!(parse_full_status(&answer).unwrap()[0].initiator, None);
        assert!(parse_full_status(&answer[..7]).is_err());
        // No length leads out of the answer, or goes on for ever.
        answer[28..32].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(parse_full_status(&answer).as_deref(), Ok(&[][..]));
    }
}
