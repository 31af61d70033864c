//! What a login asks of a server's targets. It always sees one whole configuration, however often that changes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, Guard};
use sanwire_core::quota::Usage;
use sanwire_core::{NexusId, Principal};
use sanwire_device::LogicalUnits;
use sanwire_io::interface;
use sanwire_iscsi::{
    Admitted, Authentication, Directory, IscsiName, LoginRefusal, Portal, PortalCarrier, SessionKind, TargetEntry,
    TargetId,
};
use sanwire_scsi::port_groups::AccessState;
use sanwire_scsi::vpd::Designator;

use crate::announce::Announced;
use crate::channel::PortalPath;
use crate::front::iscsi::copy_targets::{Guests, Neighbours};
use crate::front::iscsi::target_node::{TargetNode, TargetNodeConfig, TargetNodeError, iscsi_port_id};
use crate::front::iscsi::target_table::{Departures, TargetChanges, TargetNodeTable};
use crate::front::iscsi::whereabouts::Whereabouts;
use crate::wire::Wire;

/// The targets of a server, shared by all its threads.
#[derive(Debug)]
pub(crate) struct TargetNodes {
    table: ArcSwap<TargetNodeTable>,
    /// For the units of targets that are new.
    neighbours: Neighbours,
    whereabouts: Whereabouts,
    guests: Guests,
    /// How discovery sessions authenticate.
    discovery: Authentication,
    /// Where the server listens, with the tags of the portal groups.
    portals: Vec<Portal>,
    /// Which of these are told.
    announced: Announced,
}

/// The portals that wires are.
pub(crate) fn portals_of<'a>(wires: impl Iterator<Item = &'a Wire>) -> Vec<Portal> {
    let portal = |wire: &Wire| {
        let (address, group_tag) = wire.portal()?;
        let carrier = match wire.portal_path() {
            PortalPath::Rdma => PortalCarrier::Adapter,
            PortalPath::Tcp if wire.is_rdma() => PortalCarrier::Iwarp,
            PortalPath::Tcp => PortalCarrier::Tcp,
        };
        Some(Portal { address, group_tag, carrier })
    };
    wires.filter_map(portal).collect()
}

impl TargetNodes {
    pub(crate) fn new(discovery: Authentication, portals: Vec<Portal>, announced: Announced) -> Arc<Self> {
        Arc::new_cyclic(|exports: &Weak<TargetNodes>| TargetNodes {
            table: ArcSwap::default(),
            neighbours: Neighbours::new(exports),
            whereabouts: Whereabouts::default(),
            guests: Guests::default(),
            discovery,
            portals,
            announced,
        })
    }

    /// Makes targets what they should be; tells which are gone, or have moved. One thread at a time does this.
    ///
    /// # Errors
    /// [`TargetNodeError`]; then nothing has changed.
    pub(crate) fn change(&self, changes: TargetChanges, volumes: &LogicalUnits) -> Result<Departures, TargetNodeError> {
        let before = self.table.load();
        let names: Vec<_> = changes.keys().cloned().collect();
        let (table, departures, moved) = before.with(changes, volumes, &self.neighbours)?;
        for export in names.iter().filter_map(|name| table.by_name(name)) {
            export.units.set_target_ports(&self.ports(export));
        }
        self.table.store(Arc::new(table));
        self.whereabouts.note(&moved);
        Ok(departures)
    }

    /// What the targets are now, as it was configured.
    pub(crate) fn configs(&self) -> Vec<TargetNodeConfig> {
        self.table.load().iter().map(|export| export.config.clone()).collect()
    }

    /// The targets as they are now.
    pub(crate) fn table(&self) -> Guard<Arc<TargetNodeTable>> {
        self.table.load()
    }

    /// The targets that have a unit of this volume, as they are configured.
    pub(crate) fn with_volume(&self, volume: &str) -> Vec<TargetNodeConfig> {
        let table = self.table.load();
        let targets = self.whereabouts.with_volume(volume).into_iter().filter_map(|target| table.by_id(target));
        let with_volume = targets.filter(|export| export.units.find_named(volume).is_some());
        let mut configs: Vec<_> = with_volume.map(|export| export.config.clone()).collect();
        configs.sort_by(|one, other| one.name.cmp(&other.name));
        configs
    }

    /// The targets of this table that have a unit which is, perhaps, called so.
    pub(crate) fn with_designated<'a>(
        &self,
        table: &'a TargetNodeTable,
        designator: &Designator,
    ) -> Vec<&'a Arc<TargetNode>> {
        let targets = self.whereabouts.with_designated(designator).into_iter();
        let mut targets: Vec<_> = targets.filter_map(|target| table.by_id(target)).collect();
        targets.sort_by(|one, other| one.config.name.cmp(&other.config.name));
        targets
    }

    /// Who uses them.
    pub(crate) fn guests(&self) -> &Guests {
        &self.guests
    }

    /// The sessions with these targets of those who may not have them any more.
    pub(crate) fn outcasts(&self, targets: &[TargetId]) -> Vec<NexusId> {
        let table = self.table.load();
        let targets = targets.iter().filter_map(|target| table.by_id(*target));
        let outcasts = targets.flat_map(|export| {
            let guests = self.guests.of_target(export.id).into_iter();
            guests.filter(|(_, guest)| !guest.may_stay(export)).map(|(nexus, _)| nexus)
        });
        outcasts.collect()
    }

    /// The ports of those who have sessions with a target and could not have them if it were so.
    pub(crate) fn outcasts_of(&self, config: &TargetNodeConfig) -> Vec<String> {
        let table = self.table.load();
        let changed = table.by_name(&config.name).filter(|export| !export.config.admits_as(config));
        let Some(export) = changed.map(|export| export.with(config.clone())) else { return Vec::new() };
        let guests = self.guests.of_target(export.id).into_iter();
        guests.filter(|(_, guest)| !guest.may_stay(&export)).map(|(_, guest)| guest.port(&config.name)).collect()
    }

    /// A target that is served.
    pub(crate) fn by_id(&self, target: TargetId) -> Option<Arc<TargetNode>> {
        self.table.load().by_id(target).map(Arc::clone)
    }

    /// How the quotas of the targets are used.
    pub(crate) fn usages(&self) -> Vec<Usage> {
        self.table.load().iter().map(|export| export.usage()).collect()
    }

    /// Gives the ports of a portal group another state, for one target or all. Tells whose state has changed; `None` when none
    /// of them is reached there.
    pub(crate) fn set_access_state(
        &self,
        group_tag: u16,
        state: AccessState,
        only: Option<&IscsiName>,
    ) -> Option<Vec<String>> {
        let table = self.table.load();
        let asked: Vec<_> = match only {
            Some(name) => table.by_name(name).into_iter().collect(),
            None => table.iter().collect(),
        };
        let states = asked.into_iter().map(|export| (export, export.units.set_access_state(group_tag, state)));
        let reached: Vec<_> = states.filter_map(|(export, has_changed)| Some((export, has_changed?))).collect();
        let changed = reached.iter().filter(|(_, has_changed)| *has_changed);
        let names = changed.map(|(export, _)| export.config.name.to_string()).collect();
        (!reached.is_empty()).then_some(names)
    }

    /// Whether some initiator at this address may use some target, as far as can be known before its name is.
    pub(crate) fn may_permit(&self, peer: IpAddr, is_local: bool) -> bool {
        self.table.load().may_permit(peer, is_local)
    }

    /// Whether it is a discovery session of somebody who has shown nothing, and could use no target before he does.
    pub(crate) fn is_stranger(&self, admitted: &Admitted) -> bool {
        let Admitted { initiator, peer, user, kind, .. } = admitted;
        let may_use =
            |export: &TargetNode| export.config.authentication.users.is_empty() && export.permits(initiator, *peer);
        *kind == SessionKind::Discovery
            && user.is_none()
            && !self.table.load().candidates(initiator, *peer).any(|export| may_use(export))
    }

    /// The groups of a target's ports: one for each portal group through which it is reached.
    fn ports(&self, export: &TargetNode) -> BTreeMap<u16, Vec<u16>> {
        let groups = &export.config.group_tags;
        let tags =
            self.portals.iter().map(|portal| portal.group_tag).filter(|tag| groups.is_empty() || groups.contains(tag));
        tags.map(|tag| (tag, vec![iscsi_port_id(tag)])).collect()
    }

    /// The portals through which a target is told to who came in at `portal`: of a wildcard the address that was reached,
    /// none that only this host reaches to who is elsewhere, and none that is spoken to in another way: an answer does not say in which.
    fn addresses(&self, export: &TargetNode, portal: &Portal) -> Vec<String> {
        let here = portal.address.ip().to_canonical();
        let listed =
            self.portals.iter().filter(|told| told.carrier == portal.carrier && export.has_portal(told.group_tag));
        let interfaces = if self.announced.is_all() { None } else { interface::watch().known() };
        let interfaces = interfaces.as_deref().map_or(&[][..], Vec::as_slice);
        let told = listed.flat_map(|Portal { address, group_tag: tag, .. }| {
            let ips = self.announced.of_portal(address.ip(), here, interfaces).into_iter();
            let reached = ips.filter(|ip| here.is_loopback() || !ip.is_loopback());
            reached.map(move |ip| format!("{},{tag}", SocketAddr::new(ip, address.port())))
        });
        told.collect()
    }
}

impl Directory for TargetNodes {
    fn target(
        &self,
        name: &IscsiName,
        initiator: &IscsiName,
        peer: IpAddr,
        portal: &Portal,
    ) -> Result<TargetEntry, LoginRefusal> {
        let table = self.table.load();
        let export =
            table.by_name(name).filter(|export| export.has_portal(portal.group_tag)).ok_or(LoginRefusal::NotFound)?;
        if !export.permits(initiator, peer) || !export.may_admit(&principal(initiator, peer)) {
            return Err(LoginRefusal::Forbidden);
        }
        let config = &export.config;
        Ok(TargetEntry {
            id: export.id,
            alias: config.alias.clone(),
            authentication: config.authentication.clone(),
            requires_digests: config.requires_digests,
            redirect: config.redirect.clone(),
        })
    }

    fn permits_user(&self, target: TargetId, (initiator, peer): (&IscsiName, IpAddr), user: &str) -> bool {
        let table = self.table.load();
        let Some(export) = table.by_id(target) else { return false };
        let users = &export.config.authentication.users;
        let shown = Principal { chap_user: Some(user.into()), ..principal(initiator, peer) };
        users.iter().any(|credential| credential.name == user) && export.admits(&shown)
    }

    fn discovery_authentication(&self, _initiator: &IscsiName, _peer: IpAddr) -> Result<Authentication, LoginRefusal> {
        Ok(self.discovery.clone())
    }

    fn visible(&self, initiator: &IscsiName, peer: IpAddr, portal: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        let table = self.table.load();
        let asks = principal(initiator, peer);
        let is_permitted = |export: &&Arc<TargetNode>| export.permits(initiator, peer) && export.may_admit(&asks);
        let permitted = table.candidates(initiator, peer).filter(is_permitted);
        let permitted: BTreeMap<&IscsiName, &TargetNode> =
            permitted.map(|export| (&export.config.name, &**export)).collect();
        let listed = permitted.into_iter().map(|(name, export)| (name.clone(), self.addresses(export, portal)));
        listed.filter(|(_, addresses)| !addresses.is_empty()).collect()
    }
}

/// An initiator that has not shown who it is.
fn principal(initiator: &IscsiName, peer: IpAddr) -> Principal {
    Principal { address: Some(peer.into()), initiator_name: Some(initiator.as_str().into()), ..Principal::default() }
}

#[cfg(test)]
impl TargetNodes {
    /// Serves these targets and no others.
    pub(crate) fn replace(
        &self,
        configs: Vec<TargetNodeConfig>,
        volumes: &LogicalUnits,
    ) -> Result<Departures, TargetNodeError> {
        let changes = self.table().changes_to(configs)?;
        self.change(changes, volumes)
    }
}

#[cfg(test)]
mod tests;
