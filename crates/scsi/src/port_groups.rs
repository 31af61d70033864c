//! REPORT and SET TARGET PORT GROUPS (SPC-5 6.36 and 6.45): asymmetric logical unit access.

use crate::bytes::{put, u16_at};
use crate::sense::{AdditionalSense, Sense, SenseKey};

/// How well a logical unit can be reached through the ports of a group (SPC-5 5.17.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AccessState {
    /// Every command, at full speed.
    ActiveOptimized = 0x0,
    /// Every command, on a longer way.
    ActiveNonOptimized = 0x1,
    /// Only commands that do not touch the medium, until the state changes.
    Standby = 0x2,
    /// Only what tells of the unit.
    Unavailable = 0x3,
    /// On the way from one state to another.
    Transitioning = 0xf,
}

impl AccessState {
    /// The state that SET TARGET PORT GROUPS may ask for with this code.
    fn settable(code: u8) -> Option<Self> {
        [Self::ActiveOptimized, Self::ActiveNonOptimized, Self::Standby, Self::Unavailable]
            .into_iter()
            .find(|state| *state as u8 == code)
    }
}

/// Why a group is in its state (STATUS CODE).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum StateCause {
    /// It has always been.
    #[default]
    None = 0,
    /// An initiator asked for it.
    Explicit = 1,
    /// The target's owner wanted it.
    Implicit = 2,
}

/// What is told of one group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PortGroup {
    /// Its number.
    pub id: u16,
    /// The state of its ports.
    pub state: AccessState,
    /// Whether the target would like this one to be used.
    pub is_preferred: bool,
    /// How it came to its state.
    pub cause: StateCause,
    /// Its ports, by their relative identifiers; 255 at the most.
    pub ports: Vec<u16>,
}

/// The states that a group can be in: T_SUP, U_SUP, S_SUP, AN_SUP, AO_SUP.
const SUPPORTED_STATES: u8 = 0x8f;

/// REPORT TARGET PORT GROUPS data, with the header of either format.
#[must_use]
pub fn report(groups: &[PortGroup], extended_header: bool) -> Vec<u8> {
    let mut bytes = vec![0; if extended_header { 8 } else { 4 }];
    if extended_header {
        bytes[4] = 0x10; // RETURN DATA FORMAT 001b; no transition takes time
    }
    for group in groups {
        let preferred = u8::from(group.is_preferred) << 7;
        let [high, low] = group.id.to_be_bytes();
        let ports = &group.ports[..group.ports.len().min(usize::from(u8::MAX))];
        let state = preferred | group.state as u8;
        bytes.extend([state, SUPPORTED_STATES, high, low, 0, group.cause as u8, 0, ports.len() as u8]);
        ports.iter().for_each(|port| bytes.extend(u32::from(*port).to_be_bytes()));
    }
    let length = (bytes.len() - 4) as u32;
    put(&mut bytes, 0, length.to_be_bytes());
    bytes
}

/// Reads the parameter list of SET TARGET PORT GROUPS: groups with the states that they shall have.
///
/// # Errors
/// PARAMETER LIST LENGTH ERROR when it ends within a descriptor; INVALID FIELD IN PARAMETER LIST for a state that cannot
/// be asked for.
pub fn parse_set(list: &[u8]) -> Result<Vec<(u16, AccessState)>, Sense> {
    let error = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let (descriptors, rest) = list.get(4..).ok_or(error)?.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(error);
    }
    let parse = |(at, descriptor): (usize, &[u8; 4])| {
        let state = AccessState::settable(descriptor[0] & 0x0f).ok_or_else(|| invalid_state(at))?;
        Ok((u16_at(descriptor, 2).unwrap_or(0), state))
    };
    descriptors.iter().enumerate().map(parse).collect()
}

fn invalid_state(at: usize) -> Sense {
    Sense::invalid_field_in_parameters(u16::try_from(4 + 4 * at).unwrap_or(u16::MAX), Some(3))
}

/// The same list names a group, at this place of it, that does not exist.
#[must_use]
pub fn unknown_group(at: usize) -> Sense {
    Sense::invalid_field_in_parameters(u16::try_from(4 + 4 * at + 2).unwrap_or(u16::MAX), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_told_with_either_header() {
        let group = PortGroup {
            id: 0x0102,
            state: AccessState::Standby,
            is_preferred: true,
            cause: StateCause::Explicit,
            ports: vec![1, 0x0203],
        };
        let descriptor = [0x82, 0x8f, 1, 2, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 2, 3];
        assert_eq!(report(std::slice::from_ref(&group), false), [&[0, 0, 0, 16][..], &descriptor].concat());
        assert_eq!(
            report(std::slice::from_ref(&group), true),
            [&[0, 0, 0, 20, 0x10, 0, 0, 0][..], &descriptor].concat()
        );
    }

    #[test]
    fn asked_for_states_are_checked() {
        let list = [0, 0, 0, 0, 0, 0, 0, 1, 3, 0, 1, 2];
        let states = vec![(1, AccessState::ActiveOptimized), (0x102, AccessState::Unavailable)];
        assert_eq!(parse_set(&list), Ok(states));
        assert_eq!(parse_set(&[0; 4]), Ok(vec![]));
        let error = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        for length in [1, 3, 5, 7, 9, 11] {
            assert_eq!(parse_set(&list[..length]), Err(error), "{length}");
        }
        for state in [0x4, 0xe, 0xf] {
            let list = [0, 0, 0, 0, 0, 0, 0, 1, state, 0, 0, 1];
            assert_eq!(parse_set(&list), Err(Sense::invalid_field_in_parameters(8, Some(3))), "{state:x}");
        }
    }
}
