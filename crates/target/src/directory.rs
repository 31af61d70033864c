//! What a login asks of a server's targets. It always sees one whole configuration, however often that changes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use sanwire_core::Peer;
use sanwire_device::LogicalUnits;
use sanwire_io::interface;
use sanwire_iscsi::{Authentication, Directory, IscsiName, LoginRefusal, Portal, TargetEntry, TargetId};

use crate::export::{Export, ExportConfig, ExportError, ExportTable};

/// The targets of a server, shared by all its threads.
pub(crate) struct Exports {
    table: ArcSwap<ExportTable>,
    /// How discovery sessions authenticate.
    discovery: Authentication,
    /// Where the server listens, with the tags of the portal groups.
    portals: Vec<(SocketAddr, u16)>,
}

impl Exports {
    pub(crate) fn new(discovery: Authentication, portals: Vec<(SocketAddr, u16)>) -> Self {
        Exports { table: ArcSwap::default(), discovery, portals }
    }

    /// Replaces all targets; tells which are gone. One thread at a time does this.
    ///
    /// # Errors
    /// [`ExportError`]; then nothing has changed.
    pub(crate) fn replace(
        &self,
        configs: Vec<ExportConfig>,
        volumes: &LogicalUnits,
    ) -> Result<Vec<TargetId>, ExportError> {
        let (table, gone) = self.table.load().with(configs, volumes)?;
        self.table.store(Arc::new(table));
        Ok(gone)
    }

    /// The targets as they are now.
    pub(crate) fn configs(&self) -> Vec<ExportConfig> {
        self.table.load().iter().map(|export| export.config.clone()).collect()
    }

    /// A target that is served.
    pub(crate) fn by_id(&self, target: TargetId) -> Option<Arc<Export>> {
        self.table.load().by_id(target).map(Arc::clone)
    }

    /// The portals through which a target is told to who came in at `portal`: of a wildcard the address that was reached, and
    /// none that only this host reaches to who is elsewhere.
    fn addresses(&self, export: &Export, portal: &Portal) -> Vec<String> {
        let here = portal.address.ip().to_canonical();
        let groups = &export.config.group_tags;
        let listed = self.portals.iter().filter(|(_, tag)| groups.is_empty() || groups.contains(tag));
        let reached = listed.filter_map(|(address, tag)| {
            let ip = match address.ip() {
                ip if !ip.is_unspecified() => ip,
                ip if ip.is_ipv4() == here.is_ipv4() => here,
                _ => return None,
            };
            let is_reached = here.is_loopback() || !ip.is_loopback();
            is_reached.then(|| format!("{},{tag}", SocketAddr::new(ip, address.port())))
        });
        reached.collect()
    }
}

fn permits(export: &Export, initiator: &IscsiName, peer: IpAddr) -> bool {
    let (allow, authentication) = (&export.config.allow, &export.config.authentication);
    // Who knows the secret needs no rule.
    if allow.rules().is_empty() && !authentication.users.is_empty() {
        return true;
    }
    let is_local = || interface::is_local_address(Peer::Udp((peer, 0).into())).unwrap_or(false);
    allow.permits_initiator(initiator, peer, allow.rules().is_empty() && is_local())
}

fn has_portal(export: &Export, portal: &Portal) -> bool {
    let groups = &export.config.group_tags;
    groups.is_empty() || groups.contains(&portal.group_tag)
}

impl Directory for Exports {
    fn target(
        &self,
        name: &IscsiName,
        initiator: &IscsiName,
        peer: IpAddr,
        portal: &Portal,
    ) -> Result<TargetEntry, LoginRefusal> {
        let table = self.table.load();
        let export = table.by_name(name).filter(|export| has_portal(export, portal)).ok_or(LoginRefusal::NotFound)?;
        if !permits(export, initiator, peer) {
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

    fn permits_user(&self, target: TargetId, _initiator: &IscsiName, user: &str) -> bool {
        let table = self.table.load();
        let users = table.by_id(target).map(|export| export.config.authentication.users.as_slice());
        users.unwrap_or_default().iter().any(|credential| credential.name == user)
    }

    fn discovery_authentication(&self, _initiator: &IscsiName, _peer: IpAddr) -> Result<Authentication, LoginRefusal> {
        Ok(self.discovery.clone())
    }

    fn visible(&self, initiator: &IscsiName, peer: IpAddr, portal: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        let table = self.table.load();
        let permitted = table.iter().filter(|export| permits(export, initiator, peer));
        let listed = permitted.map(|export| (export.config.name.clone(), self.addresses(export, portal)));
        listed.filter(|(_, addresses)| !addresses.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests;
