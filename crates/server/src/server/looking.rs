//! What there is to see of a server that runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_device::{LogicalUnit, LogicalUnits};
use sanwire_scsi::IscsiName;

use super::Server;
use super::portals::is_there;
use crate::counting::Counted;
use crate::events::EventLog;
use crate::front::TallyFamily;
use crate::front::copies::Copiers;
use crate::front::hyperscsi::clients::Clients;
use crate::front::iscsi::directory::TargetNodes;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::login_listener::LoginResults;
use crate::opener::Opener;
use crate::past_uses::Host;
use crate::protection_table::ProtectionTable;
use crate::revisions::Revisions;
use crate::sessions::{self, SessionStatus};
use crate::wire::Wire;

/// What there is to see of a server without asking its shards.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) units: Arc<LogicalUnits>,
    pub(crate) levels: Arc<ProtectionTable>,
    pub(crate) exports: Arc<TargetNodes>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) revisions: Revisions,
    pub(crate) openers: Vec<Arc<Opener>>,
}

impl Server {
    /// Whether connections can come to the portal of a wire: its address is one of this host now, and so is an RDMA adapter of that
    /// address where it goes by one. `None` for a wire of packets.
    pub(crate) fn takes_connections(&self, wire: &Wire) -> Option<bool> {
        let (portal, _) = wire.portal()?;
        Some(is_there(portal) && !(wire.is_by_adapter() && self.logins.is_closed(portal)))
    }

    /// An iSCSI target, as it is configured now.
    pub(crate) fn target_node(&self, name: &IscsiName) -> Option<TargetNodeConfig> {
        self.look_at_target(name, TargetNodeConfig::clone)
    }

    /// What `look` finds in an iSCSI target; `None` when there is no such target.
    pub(crate) fn look_at_target<T>(&self, name: &IscsiName, look: impl FnOnce(&TargetNodeConfig) -> T) -> Option<T> {
        self.exports.table().by_name(name).map(|export| look(&export.config))
    }

    /// How many iSCSI targets there are.
    pub(crate) fn target_count(&self) -> usize {
        self.exports.table().iter().count()
    }

    /// Who has sessions with an iSCSI target, for people.
    pub(crate) fn guests_of(&self, name: &IscsiName) -> Vec<String> {
        let target = self.exports.table().by_name(name).map(|export| export.id);
        let guests = target.map(|target| self.exports.guests().of_target(target)).unwrap_or_default();
        guests.into_iter().map(|(_, guest)| guest.shown()).collect()
    }

    /// The ports of those who have sessions with an iSCSI target and could not have them if it were so.
    pub(crate) fn outcasts_of(&self, target: &TargetNodeConfig) -> Vec<String> {
        self.exports.outcasts_of(target)
    }

    /// An iSCSI target that is open to all whom its rules name. All are looked at: only who gives a client a secret asks.
    pub(crate) fn open_target(&self) -> Option<IscsiName> {
        let table = self.exports.table();
        table.iter().find(|target| target.config.is_open()).map(|target| target.config.name.clone())
    }

    /// The iSCSI targets that have a unit of this volume.
    pub(crate) fn targets_with(&self, volume: &str) -> Vec<TargetNodeConfig> {
        self.exports.with_volume(volume)
    }

    /// Where jobs have copies made.
    pub(crate) fn copiers(&self) -> &Arc<Copiers> {
        &self.copiers
    }

    /// What has happened.
    pub(crate) fn events(&self) -> &EventLog {
        &self.events
    }

    /// Which revision each thing has.
    pub(crate) fn revisions(&self) -> &Revisions {
        &self.revisions
    }

    /// The hosts that have used a volume and have lost their sessions.
    pub(crate) fn lost(&self, volume: &LogicalUnit) -> Vec<Host> {
        self.past_uses.lost(volume.identity().uuid())
    }

    /// The hosts that used this volume when the server ended, and may still come back.
    pub(crate) fn awaited(&self, volume: &LogicalUnit) -> Vec<Host> {
        self.past_uses.awaited(volume.identity().uuid())
    }

    /// All hosts that used volumes when the server ended, and may still come back, with the uuids of these volumes.
    pub(crate) fn all_awaited(&self) -> Vec<(Host, Vec<[u8; 16]>)> {
        self.past_uses.all_awaited()
    }

    /// What there is to see, for who does not have the server.
    pub(crate) fn view(&self) -> View {
        View {
            units: Arc::clone(&self.units),
            levels: Arc::clone(&self.levels),
            exports: Arc::clone(&self.exports),
            clients: Arc::clone(&self.clients),
            revisions: self.revisions.clone(),
            openers: self.openers.clone(),
        }
    }

    /// Whether each client is counted.
    pub(crate) fn counts_clients(&self) -> bool {
        self.counts_clients
    }

    /// How logins have ended, of each service that has a portal.
    pub(crate) fn login_results(&self) -> BTreeMap<&'static TallyFamily, LoginResults> {
        self.logins.results()
    }

    /// The sessions of all shards that answer.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let revisions = self.revisions().sessions_of_all();
        self.sessions_of(&self.count(), &revisions)
    }

    /// The sessions, as the shards have counted them.
    pub(crate) fn sessions_of(&self, counted: &[Counted], revisions: &BTreeMap<Box<str>, u64>) -> Vec<SessionStatus> {
        sessions::rows(counted, &self.units, &self.clients, revisions)
    }
}
