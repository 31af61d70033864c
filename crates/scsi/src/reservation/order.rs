//! PERSISTENT RESERVE OUT: its parameter list (SPC-5 6.16.3 and 6.16.4) with what of the CDB belongs to it.

use super::{ReservationType, TransportId};
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::sense::{AdditionalSense, Sense, SenseKey};

/// The service actions (SPC-5 6.16.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum OrderAction {
    /// 00h.
    Register = 0,
    /// 01h.
    Reserve = 1,
    /// 02h.
    Release = 2,
    /// 03h.
    Clear = 3,
    /// 04h.
    Preempt = 4,
    /// 05h.
    PreemptAndAbort = 5,
    /// 06h.
    RegisterAndIgnore = 6,
    /// 07h.
    RegisterAndMove = 7,
}

impl OrderAction {
    const ALL: [OrderAction; 8] = [
        OrderAction::Register,
        OrderAction::Reserve,
        OrderAction::Release,
        OrderAction::Clear,
        OrderAction::Preempt,
        OrderAction::PreemptAndAbort,
        OrderAction::RegisterAndIgnore,
        OrderAction::RegisterAndMove,
    ];

    /// The service action with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|action| *action as u8 == code)
    }
}

/// What an initiator wants done with registrations and reservations. Keys of zero stand for none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// REGISTER, and REGISTER AND IGNORE EXISTING KEY.
    Register {
        /// The key that the nexus must have now; `None` to ignore it.
        key: Option<u64>,
        /// The key to have from now on; zero to have none.
        new_key: u64,
        /// Registrations and the reservation are to survive power loss (APTPL).
        keep: bool,
        /// For all target ports (ALL_TG_PT).
        all_ports: bool,
        /// Other initiator ports to register (SPEC_I_PT).
        others: Option<Vec<TransportId>>,
    },
    /// RESERVE.
    Reserve {
        /// The key that the nexus must have.
        key: u64,
        /// The reservation.
        kind: ReservationType,
    },
    /// RELEASE.
    Release {
        /// The key that the nexus must have.
        key: u64,
        /// The reservation; `None` when scope and type are those of none that could be.
        kind: Option<ReservationType>,
    },
    /// CLEAR.
    Clear {
        /// The key that the nexus must have.
        key: u64,
    },
    /// PREEMPT, and PREEMPT AND ABORT.
    Preempt {
        /// The key that the nexus must have.
        key: u64,
        /// The key of those preempted; zero for all others.
        victims: u64,
        /// The reservation in place of a preempted one; an error when scope and type are those of none that could be.
        kind: Result<ReservationType, Sense>,
        /// Their commands are to be aborted.
        abort: bool,
    },
    /// REGISTER AND MOVE.
    Move {
        /// The key that the nexus must have.
        key: u64,
        /// The key of the nexus that is the holder from now on.
        new_key: u64,
        /// The nexus that was the holder is registered no longer (UNREG).
        unregister: bool,
        /// As for [`Order::Register`].
        keep: bool,
        /// The relative target port identifier of the nexus that is the holder from now on.
        target_port: u16,
        /// Its initiator port.
        initiator: TransportId,
    },
}

impl Order {
    /// Whether registrations and the reservation are to survive power loss (APTPL).
    #[must_use]
    pub fn keeps(&self) -> bool {
        matches!(self, Order::Register { keep: true, .. } | Order::Move { keep: true, .. })
    }
}

/// The basic parameter list, and the part of the one of REGISTER AND MOVE before the TransportID.
const BASIC_BYTES: usize = 24;

/// Where the TransportIDs of SPEC_I_PT begin.
const LIST_AT: usize = 28;

/// Reads the parameter list of a PERSISTENT RESERVE OUT whose CDB has this `scope_and_type` (byte 2).
///
/// # Errors
/// The sense data to answer: PARAMETER LIST LENGTH ERROR or INVALID FIELD IN PARAMETER LIST for the list, INVALID FIELD
/// IN CDB for the scope and the type where they matter.
pub fn order(action: OrderAction, scope_and_type: u8, list: &[u8]) -> Result<Order, Sense> {
    let keys = u64_at(list, 0).zip(u64_at(list, 8)).zip(list.get(BASIC_BYTES - 4));
    let ((key, action_key), flags) = keys.ok_or(LENGTH_ERROR)?;
    if action == OrderAction::RegisterAndMove {
        return register_and_move(key, action_key, list);
    }
    let specifies_initiators = flags & 0x08 != 0;
    let lists = specifies_initiators && action == OrderAction::Register;
    if list.len() != BASIC_BYTES && !lists {
        return Err(LENGTH_ERROR);
    }
    let register = |key| {
        let others = if lists { Some(initiators(list)?) } else { None };
        Ok(Order::Register { key, new_key: action_key, keep: flags & 0x01 != 0, all_ports: flags & 0x04 != 0, others })
    };
    match action {
        OrderAction::Register => register(Some(key)),
        // SPC-5 6.16.3: initiator ports can be specified with REGISTER only.
        OrderAction::RegisterAndIgnore if specifies_initiators => Err(Sense::invalid_field_in_parameters(20, Some(3))),
        OrderAction::RegisterAndIgnore => register(None),
        OrderAction::Reserve => Ok(Order::Reserve { key, kind: kind(scope_and_type)? }),
        OrderAction::Release => Ok(Order::Release { key, kind: kind(scope_and_type).ok() }),
        OrderAction::Clear => Ok(Order::Clear { key }),
        _ => {
            let abort = action == OrderAction::PreemptAndAbort;
            Ok(Order::Preempt { key, victims: action_key, kind: kind(scope_and_type), abort })
        }
    }
}

const LENGTH_ERROR: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

/// Scope 0h (the logical unit) and a type that is there.
fn kind(scope_and_type: u8) -> Result<ReservationType, Sense> {
    if scope_and_type >> 4 != 0 {
        return Err(Sense::invalid_field_in_cdb(2, Some(7)));
    }
    ReservationType::from_code(scope_and_type).ok_or(Sense::invalid_field_in_cdb(2, Some(3)))
}

/// The TransportIDs of SPEC_I_PT (SPC-5 6.16.3), behind their length.
fn initiators(list: &[u8]) -> Result<Vec<TransportId>, Sense> {
    let length_bytes = u32_at(list, LIST_AT - 4).ok_or(LENGTH_ERROR)? as usize;
    let mut rest = list.get(LIST_AT..).filter(|rest| rest.len() == length_bytes).ok_or(LENGTH_ERROR)?;
    let mut initiators = Vec::new();
    while !rest.is_empty() {
        let at = u16::try_from(list.len() - rest.len()).unwrap_or(u16::MAX);
        let (id, after) = TransportId::split_first(rest).ok_or(Sense::invalid_field_in_parameters(at, None))?;
        initiators.push(id);
        rest = after;
    }
    Ok(initiators)
}

fn register_and_move(key: u64, new_key: u64, list: &[u8]) -> Result<Order, Sense> {
    let (flags, target_port) = list.get(17).zip(u16_at(list, 18)).ok_or(LENGTH_ERROR)?;
    let length_bytes = u32_at(list, 20).ok_or(LENGTH_ERROR)? as usize;
    let id = list.get(BASIC_BYTES..).filter(|id| id.len() == length_bytes).ok_or(LENGTH_ERROR)?;
    let wrong = |byte, bit| Err(Sense::invalid_field_in_parameters(byte, bit));
    if new_key == 0 {
        return wrong(8, None);
    }
    if target_port == 0 {
        return wrong(18, None);
    }
    // SPC-5 7.6.4.6: the name of an initiator device does not say to which port the reservation shall move.
    let Some(initiator) = TransportId::parse(id).filter(|id| !id.is_device()) else {
        return wrong(24, None);
    };
    let (unregister, keep) = (flags & 0x02 != 0, flags & 0x01 != 0);
    Ok(Order::Move { key, new_key, unregister, keep, target_port, initiator })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanwire_core::ClientId;

    fn basic(key: u64, action_key: u64, flags: u8) -> Vec<u8> {
        let mut list = [key.to_be_bytes(), action_key.to_be_bytes(), [0; 8]].concat();
        list[20] = flags;
        list
    }

    fn port(number: u16) -> TransportId {
        TransportId::iscsi_port(&format!("iqn.2026-11.org.example:{number}"), [0, 0, 0, 0, 0, 1]).unwrap()
    }

    fn with_ports(list: &mut Vec<u8>, ports: &[TransportId]) {
        let ids: Vec<u8> = ports.iter().flat_map(|port| port.as_bytes().to_vec()).collect();
        list.extend((ids.len() as u32).to_be_bytes());
        list.extend(ids);
    }

    #[test]
    fn each_action_has_its_order() {
        let list = basic(1, 2, 0x05);
        let of = |action, kind| order(action, kind, &list);
        let register = |key| Order::Register { key, new_key: 2, keep: true, all_ports: true, others: None };
        assert_eq!(of(OrderAction::Register, 0xff), Ok(register(Some(1))), "scope and type are ignored");
        assert_eq!(of(OrderAction::RegisterAndIgnore, 0), Ok(register(None)));
        let kind = ReservationType::ExclusiveAccess;
        assert_eq!(of(OrderAction::Reserve, 3), Ok(Order::Reserve { key: 1, kind }));
        assert_eq!(of(OrderAction::Reserve, 2), Err(Sense::invalid_field_in_cdb(2, Some(3))));
        assert_eq!(of(OrderAction::Reserve, 0x13), Err(Sense::invalid_field_in_cdb(2, Some(7))));
        assert_eq!(of(OrderAction::Release, 3), Ok(Order::Release { key: 1, kind: Some(kind) }));
        assert_eq!(of(OrderAction::Release, 0), Ok(Order::Release { key: 1, kind: None }));
        assert_eq!(of(OrderAction::Clear, 0xff), Ok(Order::Clear { key: 1 }));
        let preempt = |kind, abort| Order::Preempt { key: 1, victims: 2, kind, abort };
        assert_eq!(of(OrderAction::Preempt, 3), Ok(preempt(Ok(kind), false)));
        let wrong = Err(Sense::invalid_field_in_cdb(2, Some(3)));
        assert_eq!(of(OrderAction::PreemptAndAbort, 0), Ok(preempt(wrong, true)), "it may not matter");
    }

    #[test]
    fn lists_too_short_or_too_long_are_refused() {
        for code in 0..8 {
            let action = OrderAction::from_code(code).unwrap();
            let mut list = basic(1, 2, 0);
            for length in 0..24 {
                assert_eq!(order(action, 1, &list[..length]), Err(LENGTH_ERROR), "{action:?} with {length}");
            }
            list.push(0);
            assert_eq!(order(action, 1, &list), Err(LENGTH_ERROR), "{action:?} with 25");
        }
        assert_eq!(OrderAction::from_code(8), None);
    }

    #[test]
    fn initiators_are_specified_behind_their_length() {
        let ports: Vec<_> = (0..1000).map(port).collect();
        let mut list = basic(0, 7, 0x08);
        assert_eq!(order(OrderAction::Register, 0, &list), Err(LENGTH_ERROR), "no length");
        with_ports(&mut list, &ports);
        let Ok(Order::Register { others: Some(others), .. }) = order(OrderAction::Register, 0, &list) else { panic!() };
        assert_eq!(others, ports);
        assert_eq!(order(OrderAction::Register, 0, &list[..list.len() - 1]), Err(LENGTH_ERROR));
        let mut cut = basic(0, 7, 0x08);
        with_ports(&mut cut, &ports[..2]);
        cut[27] -= 4;
        cut.truncate(cut.len() - 4);
        let second = Sense::invalid_field_in_parameters(28 + ports[0].as_bytes().len() as u16, None);
        assert_eq!(order(OrderAction::Register, 0, &cut), Err(second), "the second is truncated");
        let ignoring = order(OrderAction::RegisterAndIgnore, 0, &basic(0, 7, 0x08));
        assert_eq!(ignoring, Err(Sense::invalid_field_in_parameters(20, Some(3))));
    }

    #[test]
    fn moving_names_one_port() {
        let list = |new_key: u64, flags: u8, target_port: u16, id: &[u8]| {
            let mut list = [1u64.to_be_bytes(), new_key.to_be_bytes()].concat();
            list.extend([0, flags]);
            list.extend(target_port.to_be_bytes());
            list.extend((id.len() as u32).to_be_bytes());
            list.extend(id);
            order(OrderAction::RegisterAndMove, 0, &list)
        };
        let initiator = TransportId::hyperscsi(ClientId([3; 16]));
        let (unregister, keep, target_port) = (true, false, 9);
        let expected = Order::Move { key: 1, new_key: 2, unregister, keep, target_port, initiator: initiator.clone() };
        assert_eq!(list(2, 2, 9, initiator.as_bytes()), Ok(expected));
        let wrong = |byte| Err(Sense::invalid_field_in_parameters(byte, None));
        assert_eq!(list(0, 0, 9, initiator.as_bytes()), wrong(8));
        assert_eq!(list(2, 0, 0, initiator.as_bytes()), wrong(18));
        for length in 0..24 {
            assert_eq!(list(2, 0, 9, &initiator.as_bytes()[..length]), wrong(24), "truncated to {length}");
        }
        let device = TransportId::iscsi_device("iqn.a").unwrap();
        assert_eq!(list(2, 0, 9, device.as_bytes()), wrong(24));
    }
}
