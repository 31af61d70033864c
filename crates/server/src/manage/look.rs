//! How a server is, for those who only look: they never wait for one who changes something.

use std::sync::Arc;

use super::deviations::deviations;
use super::keeping::SharedRecord;
use super::{GroupStatus, Manager, MissingStatus, Status, TargetStatus, VolumeStatus};
use crate::config::Origin;
use crate::kept::Configured;
use crate::server::View;

/// What the manager knows, as it was after the last change, and the way to the rest, as it is now.
pub(super) struct Looker {
    view: View,
    name: String,
    record: SharedRecord,
    missing: Vec<MissingStatus>,
    wires: Vec<String>,
    /// Who has said of a volume that it is to be served.
    configured: Arc<Configured>,
}

impl Manager {
    pub(super) fn looker(&self) -> Looker {
        Looker {
            view: self.target.view(),
            name: self.name.clone(),
            record: self.kept.shared(),
            missing: self.missing(),
            wires: self.target.wires().iter().map(ToString::to_string).collect(),
            configured: Arc::clone(&self.kept.configured),
        }
    }
}

impl Looker {
    pub(super) fn status(&self) -> Status {
        let View { units, levels, exports, clients } = &self.view;
        let volumes = units.iter().into_iter().map(|(lun, disk)| {
            let (geometry, name) = (disk.store().geometry(), disk.identity().name());
            VolumeStatus {
                id: format!("{:032x}", u128::from_be_bytes(disk.identity().uuid())),
                origin: self.configured.volume(name).map_or(Origin::Management, |volume| volume.origin),
                name: name.to_owned(),
                lun: lun.number(),
                size_bytes: geometry.length_bytes,
                block_bytes: geometry.block_bytes,
                read_only: geometry.read_only,
                waiting: disk.stalls().waiting(),
                security: levels.of(Some(lun)).to_string(),
            }
        });
        let table = exports.table();
        let targets = table.iter().map(|export| TargetStatus {
            name: export.config.name.to_string(),
            groups: export.units.target_port_groups().into_iter().map(GroupStatus::from).collect(),
            units: export.config.units.iter().map(|(lun, volume)| (lun.number(), volume.clone())).collect(),
        });
        let record = self.record.read();
        Status {
            name: self.name.clone(),
            revision: record.revision,
            deviations: deviations(&record.changes, clients),
            missing: self.missing.clone(),
            wires: self.wires.clone(),
            volumes: volumes.collect(),
            targets: targets.collect(),
            groups: units.target_port_groups().into_iter().map(GroupStatus::from).collect(),
        }
    }
}
