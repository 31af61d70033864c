//! Target port groups: asymmetric logical unit access (SPC-5 5.17).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_scsi::port_groups::{AccessState, PortGroup, StateCause, parse_set, report, unknown_group};
use sanwire_scsi::{AdditionalSense, Cdb, Sense, SenseKey, Task, operation_code as code};

use crate::attention::Attention;
use crate::step::Step;
use crate::units::LogicalUnits;

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
        let group = PortGroup {
            id: 1,
            state: AccessState::ActiveOptimized,
            is_preferred: false,
            cause: StateCause::None,
            ports: vec![1],
        };
        PortGroups { is_limited: AtomicBool::new(false), groups: Mutex::new(vec![group]) }
    }
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

    /// Puts other groups in their place; tells whether the state of one has changed.
    pub(crate) fn replace(&self, groups: Vec<PortGroup>) -> bool {
        let mut current = self.lock();
        let state = |of: &[PortGroup], id| of.iter().find(|group| group.id == id).map(|group| group.state);
        let has_changed = current.iter().any(|group| state(&groups, group.id) != Some(group.state));
        *current = groups;
        self.publish(&current);
        has_changed
    }

    /// SET TARGET PORT GROUPS (SPC-5 6.45): all or nothing. Tells whether the state of a group has changed.
    ///
    /// # Errors
    /// The sense data to answer: a list that is cut short, a state or a group that there is not.
    pub(crate) fn set(&self, list: &[u8]) -> Result<bool, Sense> {
        let asked = parse_set(list)?;
        let mut groups = self.lock();
        if let Some(at) = asked.iter().position(|(id, _)| !groups.iter().any(|group| group.id == *id)) {
            return Err(unknown_group(at));
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

impl LogicalUnits {
    /// The groups of the target's ports, as they are now.
    #[must_use]
    pub fn target_port_groups(&self) -> Vec<PortGroup> {
        self.port_groups().groups()
    }

    /// Puts other groups of ports, or other states of them, in their place; when a state has changed, every initiator is
    /// told.
    pub fn set_target_port_groups(&self, groups: Vec<PortGroup>) {
        if self.port_groups().replace(groups) {
            self.raise_access_state_changed(None);
        }
    }

    /// SET TARGET PORT GROUPS. The other initiators are told.
    pub(crate) fn set_port_states(&self, parameter_bytes: u32, task: &Task, by: NexusId) -> Result<Step, Sense> {
        let too_short = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        let data = task.data_out.as_deref().unwrap_or(&[]);
        let list = data.get(..parameter_bytes as usize).ok_or(too_short)?;
        // SPC-5 6.45: no list is no error, and changes nothing.
        if !list.is_empty() && self.port_groups().set(list)? {
            self.raise_access_state_changed(Some(by));
        }
        Ok(Step::Good)
    }

    fn raise_access_state_changed(&self, except: Option<NexusId>) {
        self.iter().iter().for_each(|(_, disk)| disk.nexuses.raise(Attention::AccessStateChanged, except));
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
    // In transition nobody may ask for another state.
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
