//! The states of portal groups: implicit asymmetric logical unit access.

use sanwire_scsi::port_groups::{AccessState, PortGroup};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::slow::Step;
use super::{Answer, GroupStatus, ManageError, Manager};
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::iscsi::target_table::TargetChanges;
use crate::revisions::Collection;

/// How the ports of a portal group reach their units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
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

/// Another state of the ports of a portal group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessChange {
    /// The portal group's tag.
    pub group: u16,
    /// The state.
    pub state: PortState,
    /// One iSCSI target; without it, all that are reached through the group.
    #[serde(default)]
    pub target: Option<String>,
}

impl PortState {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PortState::ActiveOptimized => "active-optimized",
            PortState::ActiveNonOptimized => "active-non-optimized",
            PortState::Standby => "standby",
            PortState::Unavailable => "unavailable",
        }
    }
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
    ) -> Result<Step, ManageError> {
        let places = self.places_of(group, target.as_deref())?;
        let before = self.kept.access_states.clone();
        for place in &places {
            let states = self.kept.access_states.entry(place.clone()).or_default();
            match state {
                PortState::ActiveOptimized => drop(states.remove(&group)),
                _ => drop(states.insert(group, state)),
            }
        }
        self.kept.access_states.retain(|_, states| !states.is_empty());
        if let Err(error) = self.keep_targets(&self.target.exports()) {
            self.kept.access_states = before;
            return Err(error);
        }
        let changed_places = places.iter().filter(|place| self.apply_access_state(place, group, state));
        Ok(Step::Done(Answer::Changed(changed_places.map(|place| changed(place, group)).collect())))
    }

    /// The targets that are reached through a group, or those of HyperSCSI.
    pub(super) fn places_of(&self, group: u16, target: Option<&str>) -> Result<Vec<String>, ManageError> {
        let has = |groups: Vec<PortGroup>| groups.iter().any(|known| known.id == group);
        if target == Some(HYPERSCSI) {
            let is_there = has(self.target.units().target_port_groups());
            return if is_there { Ok(vec![HYPERSCSI.to_owned()]) } else { Err(ManageError::NoHyperScsiGroup(group)) };
        }
        let exports = self.target.exports();
        // A name is one however it is written.
        let wanted = target.map(|text| text.parse().map_err(|_| ManageError::NoTarget(text.to_owned()))).transpose()?;
        let is_meant = |export: &&TargetNodeConfig| wanted.as_ref().is_none_or(|name| export.name == *name);
        let meant: Vec<&TargetNodeConfig> = exports.iter().filter(is_meant).collect();
        if let (true, Some(target)) = (meant.is_empty(), target) {
            return Err(ManageError::NoTarget(target.to_owned()));
        }
        let reached = meant.into_iter().filter(|export| has(self.target.portal_groups(&export.name)));
        let places: Vec<String> = reached.map(|export| export.name.to_string()).collect();
        if places.is_empty() { Err(ManageError::NoGroup(group)) } else { Ok(places) }
    }

    /// Whether the group had another state.
    pub(super) fn apply_access_state(&self, place: &str, group: u16, state: PortState) -> bool {
        if place == HYPERSCSI {
            let is_changed = self.target.units().set_access_state(group, state.into()) == Some(true);
            is_changed.then(|| self.kept.revise());
            return is_changed;
        }
        let changed =
            place.parse().ok().and_then(|name| self.target.set_access_state(group, state.into(), Some(&name)));
        let is_changed = changed.is_some_and(|targets| !targets.is_empty());
        is_changed.then(|| self.target.revisions().changed(Collection::Targets, place));
        is_changed
    }

    /// Serves these targets so from now on. One that is there again has the states that are kept of its groups.
    ///
    /// # Errors
    /// [`ManageError::TargetNode`]; then nothing has changed.
    pub(super) fn serve_targets(&self, targets: TargetChanges) -> Result<(), ManageError> {
        self.target.change_targets(targets)?;
        self.restore_access_states();
        Ok(())
    }

    /// Gives the groups the states that they had in an earlier run, or before their target went.
    pub(super) fn restore_access_states(&self) {
        for (place, groups) in &self.kept.access_states {
            for (group, state) in groups {
                // A group that is not there any more has no state.
                let _ = self.apply_access_state(place, *group, *state);
            }
        }
    }
}

pub(super) fn changed(target: &str, group: u16) -> String {
    format!("{target}: group {group} has another state now")
}
