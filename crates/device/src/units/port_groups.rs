//! The states of a target's groups of ports, for its owner and its initiators.

use std::collections::BTreeMap;

use sanwire_core::NexusId;
use sanwire_scsi::port_groups::{AccessState, PortGroup};
use sanwire_scsi::{Sense, Task};

use super::LogicalUnits;
use crate::data::parameter_list;

impl LogicalUnits {
    /// The groups of the target's ports, as they are now.
    #[must_use]
    pub fn target_port_groups(&self) -> Vec<PortGroup> {
        self.port_groups().groups()
    }

    /// The target has these groups of ports from now on: by their numbers, the relative identifiers of their ports, as the
    /// [`sanwire_scsi::vpd::TargetPort`] of each nexus says them. Groups that stay keep their states; when others come or go,
    /// the target's initiators are told.
    pub fn set_target_ports(&self, groups: &BTreeMap<u16, Vec<u16>>) {
        if self.port_groups().set_ports(groups) {
            self.raise_access_changed(None);
        }
    }

    /// Puts a group of ports into another state, as the target's owner wishes (implicit asymmetric access, SPC-5 5.17.3), and
    /// tells all initiators of the target. Whether that changed anything; `None` when there is no such group.
    pub fn set_access_state(&self, group: u16, state: AccessState) -> Option<bool> {
        let has_changed = self.port_groups().set_state(group, state)?;
        if has_changed {
            self.raise_access_changed(None);
        }
        Some(has_changed)
    }

    /// SET TARGET PORT GROUPS. The other initiators are told.
    pub(crate) fn set_port_states(&self, parameter_bytes: u32, task: &Task, by: NexusId) -> Result<(), Sense> {
        let list = parameter_list(task, parameter_bytes as usize)?;
        // SPC-5 6.45: no list is no error, and changes nothing.
        if !list.is_empty() && self.port_groups().set(&list, self.whole.is_some())? {
            self.raise_access_changed(Some(by));
        }
        Ok(())
    }
}
