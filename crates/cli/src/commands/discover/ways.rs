//! The other ways to a target: those that its server tells of. Where it does not know the question, what answers in the other way.

use std::thread;
use std::time::Duration;

use sanwire_initiator::{ClientOptions, IscsiServer, IserPath, Server, Url, targets};
use sanwire_iscsi::{DiscoveredTarget, IscsiName, OtherPortal, PortalCarrier};
use serde::Serialize;

use super::portal::{Portal, place_of};
use super::{Link, Seen, links_to};

/// iSER by an RDMA adapter: whoever uses it says so.
pub(super) const BY_ADAPTER: &str = "iSER/RDMA";

/// Portals that are asked in the other way, of all servers together.
const ASKED_MAX: usize = 16;

/// A way to a target that is spoken to otherwise than the one by which it was found.
pub(super) struct OtherWay {
    carrier: PortalCarrier,
    server: IscsiServer,
    pub(super) links: Vec<Link>,
}

/// The same for programs.
#[derive(Serialize)]
pub(super) struct ToldWay<'a> {
    wire: &'static str,
    url: String,
    links: &'a [Link],
}

impl OtherWay {
    pub(super) fn wire(&self) -> &'static str {
        match self.carrier {
            PortalCarrier::Tcp => "iSCSI",
            PortalCarrier::Iwarp => "iSER",
            PortalCarrier::Adapter => BY_ADAPTER,
        }
    }

    pub(super) fn url(&self) -> Url {
        Url { server: Server::Iscsi(self.server.clone()), volume: None }
    }

    pub(super) fn tell(&self) -> ToldWay<'_> {
        ToldWay { wire: self.wire(), url: self.url().to_string(), links: &self.links }
    }

    /// By those of these portals that are spoken to so; `None` when there are none.
    fn by(carrier: PortalCarrier, target: &IscsiName, portals: &[OtherPortal], asked: &Portal<'_>) -> Option<Self> {
        let portals = portals.iter().filter(|portal| portal.carrier == carrier);
        let addresses: Vec<&str> = portals.map(|portal| &*portal.address).collect();
        let server = IscsiServer { target: Some(target.clone()), ..asked.of_other(&addresses, carrier.is_rdma())? };
        Some(OtherWay { carrier, server, links: links_to(&addresses) })
    }

    /// By the portal that has told of this target.
    fn found(place: &IscsiServer, target: &DiscoveredTarget) -> Self {
        let carrier = if place.is_iser { PortalCarrier::Iwarp } else { PortalCarrier::Tcp };
        let server = Portal::new(place).of_target(&target.addresses);
        let addresses: Vec<&str> = target.addresses.iter().map(|(address, _)| &**address).collect();
        let links = if addresses.is_empty() { links_to(&[&place.host]) } else { links_to(&addresses) };
        OtherWay { carrier, server: IscsiServer { target: Some(target.name.clone()), ..server }, links }
    }
}

/// The other ways of which a server tells, at most one of each kind; `None` when it does not know that it could.
pub(super) fn told(target: &DiscoveredTarget, asked: &Portal<'_>) -> Option<Vec<OtherWay>> {
    let portals = target.others.as_deref()?;
    let carriers = [PortalCarrier::Tcp, PortalCarrier::Iwarp, PortalCarrier::Adapter].into_iter();
    Some(carriers.filter_map(|carrier| OtherWay::by(carrier, &target.name, portals, asked)).collect())
}

/// Asks in the other way where the servers of targets do not tell, all at once, for so long at the most. What does not answer is not there.
pub(super) fn seek(seen: &mut [Seen], time: Duration) {
    let mut places: Vec<(IscsiServer, ClientOptions)> = Vec::new();
    for place in seen.iter().filter(|seen| seen.others.is_none()).flat_map(|seen| places_of(seen, time)) {
        if places.len() < ASKED_MAX && !places.iter().any(|(known, _)| *known == place.0) {
            places.push(place);
        }
    }
    let answers: Vec<Vec<DiscoveredTarget>> = thread::scope(|scope| {
        let ask = |(place, options): &(IscsiServer, ClientOptions)| targets(place, options).unwrap_or_default();
        let asking: Vec<_> = places.iter().map(|place| scope.spawn(move || ask(place))).collect();
        asking.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    for seen in seen.iter_mut().filter(|seen| seen.others.is_none()) {
        let Server::Iscsi(server) = &seen.server else { continue };
        let is_other = |place: &IscsiServer| place.is_iser != server.is_iser && place.user == server.user;
        let way =
            places.iter().zip(&answers).filter(|((place, _), _)| is_other(place)).find_map(|((place, _), found)| {
                let target = found.iter().find(|target| Some(&target.name) == server.target.as_ref())?;
                Some(OtherWay::found(place, target))
            });
        seen.others = Some(way.into_iter().collect());
    }
}

/// Where the server of a target is asked in the other way, and how: at all its portals of which it has told.
fn places_of(seen: &Seen, time: Duration) -> Vec<(IscsiServer, ClientOptions)> {
    let Server::Iscsi(server) = &seen.server else { return Vec::new() };
    let mut options =
        ClientOptions { connect_patience: seen.options.connect_patience.min(time), ..seen.options.clone() };
    options.iscsi.iser_path = IserPath::Tcp;
    let portals = seen.links.iter().filter_map(|link| place_of(&link.address));
    let other = |(host, port)| IscsiServer { host, port, target: None, is_iser: !server.is_iser, ..server.clone() };
    portals.map(|portal| (other(portal), options.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use sanwire_core::{Lun, Protection};
    use sanwire_io::file::EngineKind;
    use sanwire_server::{AllowList, Compression, Origin, ServerConfig, TargetNodeConfig, VolumeConfig};

    use super::*;

    /// A server with a volume and these wires.
    fn serve(wires: &[String]) -> sanwire_server::Server {
        let volume =
            VolumeConfig { lun: Lun::default(), spec: "disk=ram:1M".parse().unwrap(), origin: Origin::CommandLine };
        let config = ServerConfig {
            name: "box".into(),
            identity: ClientOptions::anonymous().unwrap().identity,
            psk: [0; 32],
            wires: wires.iter().map(|wire| wire.parse().unwrap()).collect(),
            protection: Protection::Checksum,
            compression: Compression::Off,
            rekey_interval: ServerConfig::REKEY_INTERVAL_DEFAULT,
            allow: AllowList::default(),
            volumes: vec![volume],
            exports: vec![TargetNodeConfig::of_volume("disk", AllowList::default()).unwrap()],
            discovery: Default::default(),
            shards: 1,
            memory_bytes: ServerConfig::MEMORY_BYTES_DEFAULT,
            ring_bytes: 1 << 20,
            engine: EngineKind::Auto,
            visa: Default::default(),
            recovery: Default::default(),
            accepted: Default::default(),
            pools: Vec::new(),
            state_directory: None,
            audit_log: None,
            announced: Default::default(),
            metrics_of_clients: false,
            rdma: Default::default(),
            direct_copies: Default::default(),
            clients: Vec::new(),
        };
        sanwire_server::Server::start(config).unwrap()
    }

    /// Servers of others do not know the question: there it is tried, and what is not there is no reason for a word, nor for waiting long.
    #[test]
    fn where_nobody_tells_the_other_way_is_found_by_asking() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let both = [format!("iscsi:{free}"), format!("iser:{free}")];
        for (wires, scheme, other) in
            [(&both[..], "iscsi", Some("iser")), (&both[..], "iser", Some("iscsi")), (&both[..1], "iscsi", None)]
        {
            let server = serve(wires);
            let asked: Url = format!("{scheme}://{free}").parse().unwrap();
            let Server::Iscsi(host) = asked.server else { panic!("{scheme}") };
            let patience = Duration::from_secs(60);
            let options = ClientOptions { connect_patience: patience, ..ClientOptions::anonymous().unwrap() };
            let found = targets(&host, &options).unwrap().into_iter();
            let found = found.map(|target| DiscoveredTarget { others: None, ..target });
            let mut seen: Vec<Seen> = found.map(|target| Seen::target(&Portal::new(&host), target, &options)).collect();
            // What is there has all the time that a busy machine takes.
            let time = other.map_or(Duration::from_millis(700), |_| patience);
            let begun = Instant::now();
            seek(&mut seen, time);
            assert!(begun.elapsed() < patience, "it takes no longer than it may: {:?}", begun.elapsed());
            let ways: Vec<String> = seen[0].others.iter().flatten().map(|way| way.url().to_string()).collect();
            let expected = other.map(|other| format!("{other}://{free}/iqn.2026-11.org.sanwire:disk"));
            assert_eq!(ways, Vec::from_iter(expected), "{scheme}");
            server.stop().unwrap();
        }
    }
}
