//! The iSCSI targets of a server: what they have and who may use them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::quota::{COLD_RESETS, Limiter, Usage};
use sanwire_core::{Instant, Lun, NexusId, Peer, Principal};
use sanwire_device::{LogicalUnit, LogicalUnits};
use sanwire_io::interface;
use sanwire_iscsi::{Authentication, Credential, IscsiName, NameError, TargetId};
use sanwire_scsi::vpd::TargetPort;

use super::target_settings::TargetSettings;
use crate::allow::AllowList;

/// The authority that names the targets of volumes for which the configuration has none.
const AUTHORITY: &str = "iqn.2026-11.org.sanwire";

/// One iSCSI target, as it is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetNodeConfig {
    /// Its name.
    pub name: IscsiName,
    /// What people call it; may be empty.
    pub alias: String,
    /// Its logical units: the names of volumes by their numbers here.
    pub units: BTreeMap<Lun, String>,
    /// Who may use it.
    pub allow: AllowList,
    /// How they show who they are.
    pub authentication: Authentication,
    /// Whether it is meant that they need not, also where clients of HyperSCSI must know a secret.
    pub is_meant_open: bool,
    /// Whether digests may be refused: `true` insists on both.
    pub requires_digests: bool,
    /// The portal groups it is reached through; empty: all.
    pub group_tags: Vec<u16>,
    /// Log in there (`ADDRESS[:PORT][,TAG]`) instead; `true`: for good.
    pub redirect: Option<(String, bool)>,
    /// What administrators have set of it while the server runs, which is in the rest already. Such a target is there without units too.
    pub set: Option<Arc<TargetSettings>>,
}

impl TargetNodeConfig {
    /// A target without units, of which nothing is said but who may use it.
    #[must_use]
    pub fn new(name: IscsiName, allow: AllowList) -> Self {
        TargetNodeConfig {
            name,
            alias: String::new(),
            units: BTreeMap::new(),
            allow,
            authentication: Authentication::default(),
            is_meant_open: false,
            requires_digests: false,
            group_tags: Vec::new(),
            redirect: None,
            set: None,
        }
    }

    /// The target that a volume has when nothing is configured: logical unit 0 of a target with the volume's name.
    ///
    /// # Errors
    /// [`NameError`] when there is no such name.
    pub fn of_volume(volume: &str, allow: AllowList) -> Result<Self, NameError> {
        let units = BTreeMap::from([(Lun::default(), volume.to_owned())]);
        Ok(TargetNodeConfig { alias: volume.to_owned(), units, ..TargetNodeConfig::new(own_name(volume)?, allow) })
    }

    /// The name that is meant: a whole one, or what follows our own authority, as in the target of a volume.
    ///
    /// # Errors
    /// [`NameError`] when it is neither.
    pub fn name_of(text: &str) -> Result<IscsiName, NameError> {
        let is_short = !text.is_empty() && !text.contains([':', '.']);
        if is_short { own_name(text) } else { text.parse() }
    }

    /// Whether it is there without units too.
    #[must_use]
    pub fn stays_empty(&self) -> bool {
        self.redirect.is_some() || self.set.is_some()
    }

    /// Whether the same initiators may use it, by the same portals, as if it were like the other one.
    pub(crate) fn admits_as(&self, other: &TargetNodeConfig) -> bool {
        let is_same_user = self.authentication.users == other.authentication.users;
        self.allow == other.allow && self.group_tags == other.group_tags && is_same_user
    }

    /// Whether it is open to whoever `allow` names, and nobody has said that this is meant.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.authentication.users.is_empty() && !self.is_meant_open && self.redirect.is_none()
    }
}

/// RFC 3722 forbids what a volume's name may have besides letters, digits, dots and dashes.
fn own_name(name: &str) -> Result<IscsiName, NameError> {
    format!("{AUTHORITY}:{}", name.replace('_', "-")).parse()
}

/// Why the targets cannot be as they are configured. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetNodeError {
    /// A unit's volume is not there.
    #[error(
        "target {target}: logical unit {lun} is to be volume {volume}, which is not served: add it or correct the name"
    )]
    NoVolume {
        /// Which target.
        target: IscsiName,
        /// Which unit.
        lun: Lun,
        /// The volume.
        volume: String,
    },
    /// A volume is there twice.
    #[error("target {target}: volume {volume} has two numbers: choose one")]
    VolumeTwice {
        /// Which target.
        target: IscsiName,
        /// The volume.
        volume: String,
    },
    /// A volume that must be guarded would pass in the clear.
    #[error(
        "target {target}: volume {volume} is protected by its key `security`, and iSCSI would carry it in the clear: take it out of the target, or give it security=none"
    )]
    Protected {
        /// Which target.
        target: IscsiName,
        /// The volume.
        volume: String,
    },
    /// A name is there twice.
    #[error("two targets are called {target}: give each a name of its own")]
    NameTwice {
        /// The name.
        target: IscsiName,
    },
}

/// The target port that a portal group is to an iSCSI target (RFC 7143 4.4.1), in a target port group of its own: states are
/// those of portal groups. Numbers begin behind that of HyperSCSI.
pub(crate) fn iscsi_port(target: &IscsiName, group_tag: u16) -> TargetPort {
    TargetPort {
        relative_id: iscsi_port_id(group_tag),
        group: group_tag,
        port_name: Some(format!("{target},t,0x{group_tag:04x}")),
        device_name: Some(target.to_string()),
    }
}

/// The relative identifier of the port that a portal group is.
pub(crate) fn iscsi_port_id(group_tag: u16) -> u16 {
    group_tag.saturating_add(1)
}

/// One iSCSI target that is served.
#[derive(Debug)]
pub(crate) struct TargetNode {
    pub(crate) id: TargetId,
    pub(crate) config: TargetNodeConfig,
    pub(crate) units: Arc<LogicalUnits>,
    /// Those that end its sessions, on whatever shard.
    cold_resets: Arc<Mutex<Limiter>>,
}

impl TargetNode {
    /// A target that nobody has logged in to yet, without units.
    pub(super) fn new(id: TargetId, config: TargetNodeConfig, units: Arc<LogicalUnits>) -> Self {
        TargetNode { id, config, units, cold_resets: Arc::new(Mutex::new(Limiter::new(&COLD_RESETS))) }
    }

    /// The same target, with its sessions, otherwise configured.
    pub(crate) fn with(&self, config: TargetNodeConfig) -> Self {
        let (units, cold_resets) = (Arc::clone(&self.units), Arc::clone(&self.cold_resets));
        TargetNode { id: self.id, config, units, cold_resets }
    }

    /// The numbers of its units that are served no longer: a volume of the same name may be.
    pub(super) fn stale(&self) -> Vec<Lun> {
        let units = self.units.iter().into_iter();
        units.filter(|(_, unit)| unit.stalls().is_over()).map(|(lun, _)| lun).collect()
    }

    /// Its units, if they may all be reset now by this initiator, and with a cold reset its sessions be ended. What is refused counts
    /// for nothing.
    pub(crate) fn may_reset(&self, by: NexusId, is_cold: bool, now: Instant) -> Option<Vec<(Lun, Arc<LogicalUnit>)>> {
        let mut cold = is_cold.then(|| self.lock_cold_resets());
        if cold.as_mut().is_some_and(|cold| !cold.has_left(now)) {
            return None;
        }
        let units = self.units.may_reset_all(by, now)?;
        if let Some(mut cold) = cold {
            cold.take(now);
        }
        Some(units)
    }

    /// How the quota of the target is used.
    pub(crate) fn usage(&self) -> Usage {
        self.lock_cold_resets().usage()
    }

    fn lock_cold_resets(&self) -> MutexGuard<'_, Limiter> {
        // Whatever stands in it is a pace.
        self.cold_resets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the initiator of this name at this address may use it, provided that it shows who it is where that is wanted.
    pub(crate) fn permits(&self, initiator: &IscsiName, peer: IpAddr) -> bool {
        let (allow, authentication) = (&self.config.allow, &self.config.authentication);
        // Who knows the secret needs no rule.
        if allow.rules().is_empty() && !authentication.users.is_empty() {
            return true;
        }
        let is_local = || interface::watch().contains(Peer::Udp((peer, 0).into()));
        allow.permits_initiator(initiator, peer, allow.rules().is_empty() && is_local())
    }

    /// Whether it has anything for this one: a unit that is derived from another volume is there for its principals alone.
    pub(crate) fn admits(&self, principal: &Principal) -> bool {
        let units = &self.config.units;
        let admits = |lun: &Lun| self.units.get(*lun).is_none_or(|unit| unit.admits(principal));
        units.is_empty() || units.keys().any(admits)
    }

    /// The same of one that may show to be a user of CHAP before it uses anything.
    pub(crate) fn may_admit(&self, principal: &Principal) -> bool {
        let users = &self.config.authentication.users;
        let as_user = |name: &str| Principal { chap_user: Some(name.into()), ..principal.clone() };
        let may_be_admitted = users.iter().any(|credential| self.admits(&as_user(&credential.name)));
        if users.is_empty() { self.admits(principal) } else { may_be_admitted }
    }

    /// What a user of it has shown to know.
    pub(crate) fn credential(&self, user: Option<&str>) -> Option<Credential> {
        self.config.authentication.users.iter().find(|credential| Some(&*credential.name) == user).cloned()
    }

    /// Whether it is reached through this portal group.
    pub(crate) fn has_portal(&self, group_tag: u16) -> bool {
        let groups = &self.config.group_tags;
        groups.is_empty() || groups.contains(&group_tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_unit_zero_of_its_own_target() {
        let config = TargetNodeConfig::of_volume("Disk_0", AllowList::default()).unwrap();
        assert_eq!(config.name.as_str(), "iqn.2026-11.org.sanwire:disk-0");
        assert_eq!(config.units, BTreeMap::from([(Lun::default(), "Disk_0".to_owned())]));
    }
}
