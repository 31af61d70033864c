//! How a server is, for those who only look: they never wait for one who changes something.

use std::sync::Arc;

use sanwire_core::Lun;
use sanwire_device::LogicalUnit;
use sanwire_store::VolumeSpec;

use super::deviations::deviations;
use super::dvds::DerivedStatus;
use super::keeping::SharedRecord;
use super::run_status::Beginning;
use super::store_texts::StoreTexts;
use super::{Collections, GroupStatus, Manager, MissingStatus, Request, RunStatus, Status, TargetStatus, VolumeStatus};
use crate::config::Origin;
use crate::kept::{Changes, Configured};
use crate::opener::receive_paths;
use crate::revisions::Collection::{Clients, Targets, Volumes};
use crate::revisions::Revisions;
use crate::server::View;

/// What the manager knows, as it was after the last change, and the way to the rest, as it is now.
pub(super) struct Looker {
    view: View,
    name: String,
    began: Beginning,
    stores: StoreTexts,
    /// That of the server, when what is here was gathered: who sees something newer beside it takes it for older than it is.
    revision: u64,
    record: SharedRecord,
    missing: Vec<MissingStatus>,
    wires: Vec<String>,
    /// Who has said of a volume that it is to be served.
    pub(super) configured: Arc<Configured>,
}

impl Manager {
    pub(super) fn looker(&self) -> Looker {
        Looker {
            view: self.target.view(),
            name: self.name.clone(),
            began: self.began,
            stores: self.stores.clone(),
            revision: self.target.revisions().look().server(),
            record: self.kept.shared(),
            missing: self.missing(),
            wires: self.target.wires().iter().map(ToString::to_string).collect(),
            configured: Arc::clone(&self.kept.configured),
        }
    }
}

impl Revisions {
    /// That of what the answer to a request lists.
    pub(super) fn of_answer(&self, request: &Request) -> u64 {
        let look = self.look();
        match request {
            // Pages fit together whatever sessions come and go meanwhile, but not those of two runs, which number sessions anew.
            Request::Sessions | Request::VolumeSessions { .. } => look.first(),
            Request::Clients => look.all(Clients),
            Request::Statistics | Request::Metrics => look.all(Volumes),
            Request::Jobs => self.jobs(),
            _ => look.server(),
        }
    }
}

impl Looker {
    /// What a volume is to be.
    fn spec<'a>(&'a self, record: &'a Changes, name: &str) -> Option<&'a VolumeSpec> {
        match record.volumes.get(name) {
            Some(change) => change.now.as_ref().map(|definition| &definition.volume),
            None => self.configured.volume(name).map(|volume| &volume.spec),
        }
    }

    /// One volume, if it is served.
    pub(super) fn volume(&self, name: &str) -> Option<VolumeStatus> {
        let revision = self.view.revisions.look().of(Volumes, name);
        let (lun, unit) = self.view.units.find_named(name)?;
        Some(self.of_unit(&self.record.read(), lun, &unit, revision))
    }

    fn of_unit(&self, record: &Changes, lun: Lun, unit: &LogicalUnit, revision: u64) -> VolumeStatus {
        let (geometry, name) = (unit.store().geometry(), unit.identity().name());
        let spec = self.spec(record, name);
        VolumeStatus {
            revision,
            id: format!("{:032x}", u128::from_be_bytes(unit.identity().uuid())),
            origin: self.configured.volume(name).map_or(Origin::Management, |volume| volume.origin),
            name: name.to_owned(),
            lun: lun.number(),
            size_bytes: geometry.length_bytes,
            store: self.stores.of_volume(name),
            used_bytes: unit.store().space().map(|space| space.used_bytes),
            block_bytes: geometry.block_bytes,
            read_only: geometry.read_only,
            waiting: unit.stalls().waiting(),
            security: self.view.levels.of(Some(lun)).to_string(),
            protected: spec.is_some_and(|spec| spec.protected),
            pool: spec.and_then(VolumeSpec::pool).and_then(|place| place.pool.clone()),
            owners: spec.map(|spec| spec.owners.clone()).unwrap_or_default(),
            derived: spec.zip(unit.derived()).and_then(|(spec, derived)| DerivedStatus::of(spec, derived)),
            missing: None,
        }
    }

    pub(super) fn status(&self) -> Status {
        let View { units, exports, clients, revisions, openers, .. } = &self.view;
        // They are read before what they are of.
        let (look, sessions) = (revisions.look(), revisions.sessions());
        let collections = Collections {
            volumes: look.all(Volumes),
            targets: look.all(Targets),
            clients: look.all(Clients),
            sessions,
        };
        let record = self.record.read();
        let volumes = units
            .iter()
            .into_iter()
            .map(|(lun, disk)| self.of_unit(&record, lun, &disk, look.of(Volumes, disk.identity().name())));
        let volumes = volumes.collect();
        let table = exports.table();
        let targets = table.iter().map(|export| TargetStatus {
            revision: look.of(Targets, export.config.name.as_str()),
            name: export.config.name.to_string(),
            terms: export.config.terms(),
            groups: export.units.target_port_groups().into_iter().map(GroupStatus::from).collect(),
            units: export.config.units.iter().map(|(lun, volume)| (lun.number(), volume.clone())).collect(),
        });
        Status {
            name: self.name.clone(),
            run: Box::new(RunStatus::of(self.began, receive_paths(openers))),
            revision: self.revision,
            collections,
            deviations: deviations(&record, clients),
            missing: self.missing.clone(),
            wires: self.wires.clone(),
            volumes,
            targets: targets.collect(),
            groups: units.target_port_groups().into_iter().map(GroupStatus::from).collect(),
        }
    }
}
