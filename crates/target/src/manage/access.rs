//! The states of portal groups: implicit asymmetric logical unit access.

use sanwire_iscsi::IscsiName;
use sanwire_scsi::port_groups::AccessState;
use serde::{Deserialize, Serialize};

use super::{Answer, ManageError, Manager};

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

impl Manager {
    pub(super) fn set_access_state(
        &mut self,
        group: u16,
        state: PortState,
        target: Option<String>,
    ) -> Result<Answer, ManageError> {
        let name: Option<IscsiName> = match target {
            Some(text) => Some(text.parse().map_err(|_| ManageError::NoTarget(text))?),
            None => None,
        };
        if let Some(name) = &name
            && self.target.exports().iter().all(|export| export.name != *name)
        {
            return Err(ManageError::NoTarget(name.to_string()));
        }
        let changed = self.target.set_access_state(group, state.into(), name.as_ref());
        let lines = changed.ok_or(ManageError::NoGroup(group))?;
        Ok(Answer::Changed(
            lines.into_iter().map(|name| format!("{name}: group {group} has another state now")).collect(),
        ))
    }
}
