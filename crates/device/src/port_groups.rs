//! Target port groups: asymmetric logical unit access (SPC-5 5.17).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_scsi::port_groups::{AccessState, PortGroup, StateCause, parse_set, report, unknown_group};
use sanwire_scsi::{AdditionalSense, Cdb, Sense, SenseKey, operation_code as code};

/// The groups of a target's ports. All its units are in the same state behind one group.
#[derive(Debug)]
pub(crate) struct PortGroups {
    /// Whether some group is not active: all that a command reads when, as nearly always, none is.
    is_limited: AtomicBool,
    groups: Mutex<Vec<PortGroup>>,
}

impl Default for PortGroups {
    /// One port, in one group.
    fn default() -> Self {
        PortGroups { is_limited: AtomicBool::new(false), groups: Mutex::new(vec![new_group(1)]) }
    }
}

/// A group that is active, with the port that has its number.
fn new_group(id: u16) -> PortGroup {
    let (state, cause) = (AccessState::ActiveOptimized, StateCause::None);
    PortGroup { id, state, is_preferred: false, cause, ports: vec![id] }
}

impl PortGroups {
    /// Whether some group is not active.
    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Acquire)
    }

    /// The state of a group; a port whose group is not known is not limited.
    pub(crate) fn state(&self, group: u16) -> AccessState {
        if !self.is_limited() {
            return AccessState::ActiveOptimized;
        }
        let groups = self.lock();
        groups.iter().find(|known| known.id == group).map_or(AccessState::ActiveOptimized, |known| known.state)
    }

    /// REPORT TARGET PORT GROUPS data.
    pub(crate) fn report(&self, extended_header: bool) -> Vec<u8> {
        report(&self.lock(), extended_header)
    }

    /// The groups as they are now.
    pub(crate) fn groups(&self) -> Vec<PortGroup> {
        self.lock().clone()
    }

    /// The target has these groups from now on, each with its ports; those that stay keep their states. Tells whether a group
    /// was added or removed.
    pub(crate) fn set_ports(&self, ports: &BTreeMap<u16, Vec<u16>>) -> bool {
        let mut groups = self.lock();
        let has_changed = !groups.iter().map(|group| group.id).eq(ports.keys().copied());
        let group = |(id, ports): (&u16, &Vec<u16>)| {
            let known = groups.iter().find(|group| group.id == *id).cloned();
            PortGroup { ports: ports.clone(), ..known.unwrap_or_else(|| new_group(*id)) }
        };
        *groups = ports.iter().map(group).collect();
        self.publish(&groups);
        has_changed
    }

    /// The owner's wish for one group; tells whether it has another state now, `None` when there is no such group.
    pub(crate) fn set_state(&self, id: u16, state: AccessState) -> Option<bool> {
        let mut groups = self.lock();
        let group = groups.iter_mut().find(|group| group.id == id)?;
        let has_changed = group.state != state;
        (group.state, group.cause) = (state, StateCause::Implicit);
        self.publish(&groups);
        Some(has_changed)
    }

    /// SET TARGET PORT GROUPS (SPC-5 6.45): all or nothing. Tells whether the state of a group has changed. What the owner has
    /// limited stays so: hosts with several paths make each active that they try, and would use what the owner takes out of service.
    /// And so does everything for an initiator that sees only `a_part` of the units: the others are not its own.
    ///
    /// # Errors
    /// The sense data to answer: a list that is cut short, a state or a group that there is not, or not for initiators.
    pub(crate) fn set(&self, list: &[u8], a_part: bool) -> Result<bool, Sense> {
        let asked = parse_set(list)?;
        let mut groups = self.lock();
        if let Some(at) = asked.iter().position(|(id, _)| !groups.iter().any(|group| group.id == *id)) {
            return Err(unknown_group(at));
        }
        let is_withheld = |group: &PortGroup| {
            let is_limited = group.cause == StateCause::Implicit && not_accessible(group.state).is_some();
            (is_limited || a_part) && asked.iter().any(|(id, state)| *id == group.id && *state != group.state)
        };
        if groups.iter().any(is_withheld) {
            let failed = AdditionalSense::SET_TARGET_PORT_GROUPS_COMMAND_FAILED;
            return Err(Sense::new(SenseKey::HardwareError, failed));
        }
        let mut has_changed = false;
        for (id, state) in asked {
            for group in groups.iter_mut().filter(|group| group.id == id && group.state != state) {
                (group.state, group.cause, has_changed) = (state, StateCause::Explicit, true);
            }
        }
        self.publish(&groups);
        Ok(has_changed)
    }

    fn publish(&self, groups: &[PortGroup]) {
        let is_limited = groups.iter().any(|group| not_accessible(group.state).is_some());
        self.is_limited.store(is_limited, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PortGroup>> {
        // Nothing panics between two writes to the groups: poisoned ones are still whole.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// With what a command ends that the state does not pass; `None` in the active states, which pass all.
pub(crate) fn not_accessible(state: AccessState) -> Option<Sense> {
    let additional = match state {
        AccessState::ActiveOptimized | AccessState::ActiveNonOptimized => return None,
        AccessState::Standby => AdditionalSense::NOT_READY_TARGET_PORT_STANDBY,
        AccessState::Unavailable => AdditionalSense::NOT_READY_TARGET_PORT_UNAVAILABLE,
        AccessState::Transitioning => AdditionalSense::NOT_READY_ASYMMETRIC_ACCESS_STATE_TRANSITION,
    };
    Some(Sense::new(SenseKey::NotReady, additional))
}

/// Refuses what ports in this state do not pass on.
pub(crate) fn check(state: AccessState, cdb: &Cdb) -> Result<(), Sense> {
    match not_accessible(state) {
        Some(sense) if !passes(state, cdb) => Err(sense),
        _ => Ok(()),
    }
}

/// Whether ports in this state pass the command on (SPC-5 5.17.2.4 to 5.17.2.8).
fn passes(state: AccessState, cdb: &Cdb) -> bool {
    let action = cdb.get(1).map_or(0, |byte| byte & 0x1f);
    let is_about_groups = action == code::TARGET_PORT_GROUPS_ACTION;
    let is_inventory = match cdb.operation_code() {
        code::INQUIRY | code::REPORT_LUNS | code::REQUEST_SENSE => true,
        code::MAINTENANCE_IN => is_about_groups,
        _ => false,
    };
    // In transition no initiator may ask for another state.
    let is_setting = cdb.operation_code() == code::MAINTENANCE_OUT && is_about_groups;
    match state {
        AccessState::ActiveOptimized | AccessState::ActiveNonOptimized => true,
        AccessState::Transitioning => is_inventory,
        AccessState::Unavailable => is_inventory || is_setting,
        AccessState::Standby => is_inventory || is_setting || passes_standby(cdb.operation_code()),
    }
}

/// What standby passes beyond: settings and reservations, not the medium.
fn passes_standby(operation: u8) -> bool {
    matches!(
        operation,
        code::MODE_SENSE_6
            | code::MODE_SENSE_10
            | code::MODE_SELECT_6
            | code::MODE_SELECT_10
            | code::MAINTENANCE_IN
            | code::LOG_SENSE
            | code::PERSISTENT_RESERVE_IN
            | code::PERSISTENT_RESERVE_OUT
    )
}
