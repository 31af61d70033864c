//! The states of portal groups: implicit asymmetric logical unit access.

use sanwire_scsi::IscsiName;
use sanwire_scsi::port_groups::{AccessState, PortGroup};
use serde::{Deserialize, Serialize};

use super::{Answer, GroupStatus, ManageError, Manager};

/// How the ports of a portal group reach their units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortState {
    /// The best way.
    ActiveOptimized,
    /// A way that works, where there is no better one.
    ActiveNonOptimized,
    /// No way to the medium, until that changes.
    Standby,
    /// No way at all, until that changes.
    Unavailable,
}

impl From<PortState> for AccessState {
    fn from(state: PortState) -> Self {
        match state {
            PortState::ActiveOptimized => AccessState::ActiveOptimized,
            PortState::ActiveNonOptimized => AccessState::ActiveNonOptimized,
            PortState::Standby => AccessState::Standby,
            PortState::Unavailable => AccessState::Unavailable,
        }
    }
}

impl From<PortGroup> for GroupStatus {
    fn from(group: PortGroup) -> Self {
        let state = match group.state {
            AccessState::ActiveOptimized => Some(PortState::ActiveOptimized),
            AccessState::ActiveNonOptimized => Some(PortState::ActiveNonOptimized),
            AccessState::Standby => Some(PortState::Standby),
            AccessState::Unavailable => Some(PortState::Unavailable),
            AccessState::Transitioning => None,
        };
        GroupStatus { group: group.id, state }
    }
}

/// The ports of HyperSCSI, in place of an iSCSI target.
const HYPERSCSI: &str = "hyperscsi";

impl Manager {
    pub(super) fn set_access_state(
        &mut self,
        group: u16,
        state: PortState,
        target: Option<String>,
    ) -> Result<Answer, ManageError> {
        if target.as_deref() == Some(HYPERSCSI) {
            let has_changed = self.target.units().set_access_state(group, state.into());
            let has_changed = has_changed.ok_or(ManageError::NoHyperScsiGroup(group))?;
            return Ok(Answer::Changed(has_changed.then(|| changed(HYPERSCSI, group)).into_iter().collect()));
        }
        let name: Option<IscsiName> = match target {
            Some(text) => Some(text.parse().map_err(|_| ManageError::NoTarget(text))?),
            None => None,
        };
        if let Some(name) = &name
            && self.target.exports().iter().all(|export| export.name != *name)
        {
            return Err(ManageError::NoTarget(name.to_string()));
        }
        let targets = self.target.set_access_state(group, state.into(), name.as_ref());
        let targets = targets.ok_or(ManageError::NoGroup(group))?;
        Ok(Answer::Changed(targets.iter().map(|name| changed(name, group)).collect()))
    }
}

fn changed(target: &str, group: u16) -> String {
    format!("{target}: group {group} has another state now")
}
