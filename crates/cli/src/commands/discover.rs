//! `sanwire discover`.

mod members;
mod portal;
mod showing;
mod ways;

use std::thread;
use std::time::{Duration, Instant};

use sanwire_core::text::printable;
use sanwire_initiator::{
    AoeTarget, Client, ClientOptions, FoundLink, HdspFound, HdspServer, HyperScsiServer, IscsiServer, IserPath, Server,
    Station, Url, VisaFound, VisaServer, VolumeInfo, aoe_targets, discover, hdsp_servers, targets, visa_servers,
};
use sanwire_iscsi::DiscoveredTarget;
use serde::Serialize;

use crate::args::DiscoverArgs;
use crate::connect::{check_protocol, options_of_one};
use crate::failure::misuse;
use crate::known_servers::KnownServers;
use crate::output;

pub(crate) use members::find_volumes;
use portal::Portal;
use showing::{describe, tell};
use ways::{BY_ADAPTER, OtherWay};

/// Servers whose volumes are asked for at once.
const ASKED_AT_ONCE: usize = 16;

/// How long all of them have in all: anybody can answer as thousands that then keep silent.
const ASKING_MAX: Duration = Duration::from_secs(30);

/// What a connection takes that only looks.
const LOOKING_MEMORY_BYTES: usize = 1 << 20;

/// A server, or a target of one, that answered.
struct Seen {
    /// What it calls itself.
    name: String,
    /// Which it is, as people name it.
    server: Server,
    /// Its addresses, at least one.
    links: Vec<Link>,
    /// How else it is spoken to; `None`: nobody knows yet.
    others: Option<Vec<OtherWay>>,
    /// How to connect to it.
    options: ClientOptions,
}

/// A way to a server.
#[derive(Serialize)]
struct Link {
    /// Our interface, on raw Ethernet.
    interface: Option<String>,
    /// Where the server is: a MAC address, or an IP address and port.
    address: String,
    /// The largest packet that its end takes; iSCSI has no such limit.
    packet_max_bytes: Option<u32>,
}

/// The volumes of a server, or why they cannot be told.
type Volumes = Result<Vec<VolumeInfo>, String>;

/// Asks, waits, looks into what answered, and prints that.
pub(crate) fn run(args: &DiscoverArgs) -> anyhow::Result<()> {
    let mut seen = ask(args)?;
    anyhow::ensure!(
        args.json || !seen.is_empty(),
        "no server answered: is one running on this link, and does it allow this host?"
    );
    ways::seek(&mut seen, args.time);
    let volumes = volumes_of(&seen, Instant::now() + ASKING_MAX.max(args.time));
    let found: Vec<(&Seen, &Volumes)> = seen.iter().zip(&volumes).collect();
    if args.json {
        let told: Vec<_> = found.iter().map(|(seen, volumes)| tell(seen, volumes)).collect();
        return Ok(output::print(&format!("{}\n", serde_json::to_string_pretty(&told)?))?);
    }
    let (table, problems) = describe(&found, args.wide);
    Ok(output::print(&(table + &problems))?)
}

/// Asks on every link or host that is meant. A place that cannot be asked is told of, unless it is the only one.
fn ask(args: &DiscoverArgs) -> anyhow::Result<Vec<Seen>> {
    let places = places(args)?;
    check_protocol(&args.client, &places.iter().collect::<Vec<_>>())?;
    let mut seen = Vec::new();
    for place in &places {
        match ask_at(place, args) {
            Ok(servers) => seen.extend(servers),
            Err(error) if places.len() == 1 => return Err(error),
            Err(error) => eprintln!("sanwire: {}", printable(&error.to_string())),
        }
    }
    Ok(seen)
}

fn ask_at(place: &Server, args: &DiscoverArgs) -> anyhow::Result<Vec<Seen>> {
    let mut options = options_of_one(&args.client, place)?;
    match place {
        Server::HyperScsi(place) => {
            let found = discover(place, &options, args.time)?;
            let known = KnownServers::load()?;
            let seen = found.iter().map(|server| {
                let is_only = found.iter().filter(|other| other.name == server.name).count() == 1;
                let shown = shown(place, &server.name, &server.links, is_only);
                options.server_key = known.key_of(&shown);
                Seen {
                    name: server.name.clone(),
                    server: shown,
                    links: server.links.iter().map(Link::new).collect(),
                    others: Some(Vec::new()),
                    options: options.clone(),
                }
            });
            Ok(seen.collect())
        }
        Server::Aoe(place) => {
            let targets = aoe_targets(place, args.time)?;
            Ok(targets.into_iter().map(|target| Seen::aoe(target, &options)).collect())
        }
        Server::Hdsp(place) => {
            let (found, known) = (hdsp_servers(place, &options, args.time)?, KnownServers::load()?);
            Ok(Seen::hdsp(place, &found, (&options, &known)))
        }
        Server::Visa(place) => {
            let (found, known) = (visa_servers(place, &options, args.time)?, KnownServers::load()?);
            Ok(Seen::visa(place, &found, (&options, &known)))
        }
        Server::Iscsi(host) => {
            let targets = targets(host, &options)?;
            let portal = Portal::new(host);
            Ok(targets.into_iter().map(|target| Seen::target(&portal, target, &options)).collect())
        }
    }
}

/// What to ask: the URLs, the hosts, the interface, or else every Ethernet.
fn places(args: &DiscoverArgs) -> anyhow::Result<Vec<Server>> {
    if !args.url.is_empty() {
        return Ok(args.url.iter().map(|url| url.server.clone()).collect());
    }
    if !args.host.is_empty() {
        let urls = args.host.iter().map(|host| format!("hs+ip://{host}").parse::<Url>());
        return urls.map(|url| url.map(|url| url.server).map_err(|error| misuse(error.to_string()))).collect();
    }
    Ok(vec![Server::HyperScsi(HyperScsiServer::everybody(args.interface.clone()))])
}

/// How people name a server: by its name where that is clear, by its address where it is not.
fn shown(place: &HyperScsiServer, name: &str, links: &[FoundLink], is_only: bool) -> Server {
    let server = Server::HyperScsi(match (place, links) {
        (HyperScsiServer::Ip { .. }, _) if is_only => place.clone(),
        (HyperScsiServer::Ethernet { .. }, [first, others @ ..]) if is_only => {
            let is_on_one = others.iter().all(|other| other.interface == first.interface);
            let interface = first.interface.clone().filter(|_| is_on_one);
            HyperScsiServer::Ethernet { interface, server: Station::Name(name.to_owned()) }
        }
        (_, links) => links.first().map_or_else(|| place.clone(), FoundLink::server),
    });
    // Anybody can answer, by any name: also by one that is a path, or another's address.
    match server.to_string().parse::<Url>() {
        Ok(url) if url.volume.is_none() && url.server == server => server,
        _ => Server::HyperScsi(links.first().map_or_else(|| place.clone(), FoundLink::server)),
    }
}

impl Link {
    fn new(link: &FoundLink) -> Self {
        Link {
            interface: link.interface.clone(),
            address: link.peer.to_string(),
            packet_max_bytes: Some(link.packet_max_bytes),
        }
    }

    fn describe(&self) -> String {
        match &self.interface {
            Some(interface) => format!("{interface} {}", self.address),
            None => self.address.clone(),
        }
    }
}

impl Seen {
    fn target(portal: &Portal<'_>, target: DiscoveredTarget, options: &ClientOptions) -> Self {
        let addresses: Vec<&str> = target.addresses.iter().map(|(address, _)| &**address).collect();
        let links = if addresses.is_empty() { links_to(&[&portal.asked.host]) } else { links_to(&addresses) };
        let (name, others) = (target.name.to_string(), ways::told(&target, portal));
        let server = Server::Iscsi(IscsiServer { target: Some(target.name), ..portal.of_target(&target.addresses) });
        Seen { name, server, links, others, options: options.clone() }
    }

    fn aoe(target: AoeTarget, options: &ClientOptions) -> Self {
        let packet_max_bytes = Some(target.packet_max_bytes);
        let link = Link { interface: target.server.interface.clone(), address: target.station, packet_max_bytes };
        let name = target.server.address.map(|address| address.to_string()).unwrap_or_default();
        Seen {
            name,
            server: Server::Aoe(target.server),
            links: vec![link],
            others: Some(Vec::new()),
            options: options.clone(),
        }
    }

    /// The servers that have answered, each with all links on which it did.
    fn hdsp(place: &HdspServer, found: &[HdspFound], (options, known): (&ClientOptions, &KnownServers)) -> Vec<Self> {
        let mut seen: Vec<Seen> = Vec::new();
        for (index, first) in found.iter().enumerate() {
            if found[..index].iter().any(|before| before.is_same_server(first)) {
                continue;
            }
            let links: Vec<&HdspFound> = found.iter().filter(|other| other.is_same_server(first)).collect();
            let is_only = found.iter().all(|other| other.name != first.name || other.is_same_server(first));
            let is_on_one = links.iter().all(|other| other.interface == first.interface);
            let by_name = HdspServer {
                interface: first.interface.clone().filter(|_| is_on_one),
                server: Station::Name(first.name.clone()),
            };
            // Anybody can answer, by any name: also by one that is a path, or another's address.
            let is_clear = |server: &Server| {
                server.to_string().parse::<Url>().is_ok_and(|url| url.volume.is_none() && url.server == *server)
            };
            let named = Some(Server::Hdsp(by_name)).filter(|named| is_only && is_clear(named));
            let station = first.station.parse().map_or_else(|_| place.server.clone(), Station::Mac);
            let by_address = || Server::Hdsp(HdspServer { interface: first.interface.clone(), server: station });
            let server = named.unwrap_or_else(by_address);
            let link = |link: &&HdspFound| Link {
                interface: link.interface.clone(),
                address: link.station.clone(),
                packet_max_bytes: Some(link.packet_max_bytes.into()),
            };
            let options = ClientOptions { server_key: known.key_of(&server), ..options.clone() };
            let links = links.iter().map(link).collect();
            seen.push(Seen { name: first.name.clone(), server, links, others: Some(Vec::new()), options });
        }
        seen
    }

    /// The servers that have answered, each with all addresses at which it did. They are asked over UDP also for what is used over TCP.
    fn visa(place: &VisaServer, found: &[VisaFound], (options, known): (&ClientOptions, &KnownServers)) -> Vec<Self> {
        let mut seen: Vec<Seen> = Vec::new();
        for (index, first) in found.iter().enumerate() {
            if found[..index].iter().any(|before| before.is_same_server(first)) {
                continue;
            }
            let is_only = found.iter().all(|other| other.is_same_server(first));
            let at = first.server().filter(|_| !is_only).unwrap_or_else(|| place.clone());
            let server = Server::Visa(VisaServer { is_stream: place.is_stream, ..at });
            let link = |link: &VisaFound| Link {
                interface: None,
                address: link.peer.to_string(),
                packet_max_bytes: Some(link.packet_max_bytes.into()),
            };
            let links = found.iter().filter(|other| other.is_same_server(first)).map(link).collect();
            let options = ClientOptions { server_key: known.key_of(&server), ..options.clone() };
            seen.push(Seen { name: first.name.clone(), server, links, others: Some(Vec::new()), options });
        }
        seen
    }

    /// What this client may see there, if that is found out by then.
    fn volumes(&self, end: Instant) -> Volumes {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!(
                "too many servers answered to ask them all: `sanwire ls {}` asks this one",
                self.url()
            ));
        }
        let options = ClientOptions {
            memory_bytes: LOOKING_MEMORY_BYTES,
            connect_patience: self.options.connect_patience.min(left),
            ..self.options.clone()
        };
        Client::connect(&self.url(), &options)
            .and_then(|mut client| client.within(end.saturating_duration_since(Instant::now()), Client::volumes))
            .map_err(|error| error.to_string())
    }

    fn url(&self) -> Url {
        Url { server: self.server.clone(), volume: None }
    }

    /// All ways to it: the wire of each, its URL, its links. That by which it was found comes first.
    fn ways(&self) -> Vec<(&'static str, Url, &[Link])> {
        let others = self.others.iter().flatten().map(|way| (way.wire(), way.url(), &way.links[..]));
        std::iter::once((self.wire(), self.url(), &self.links[..])).chain(others).collect()
    }

    fn wire(&self) -> &'static str {
        match &self.server {
            Server::HyperScsi(HyperScsiServer::Ethernet { .. }) => "HS/eth",
            Server::HyperScsi(HyperScsiServer::Ip { .. }) => "HS/IP",
            Server::Iscsi(IscsiServer { is_iser: true, .. }) => match self.options.iscsi.iser_path {
                IserPath::Tcp => "iSER",
                IserPath::Rdma => BY_ADAPTER,
            },
            Server::Iscsi(_) => "iSCSI",
            Server::Aoe(_) => "AoE",
            Server::Hdsp(_) => "HDSP",
            Server::Visa(VisaServer { is_stream: false, .. }) => "VISA",
            Server::Visa(_) => "VISA/TCP",
        }
    }
}

/// Links over which packets have no limit of their own.
fn links_to(addresses: &[&str]) -> Vec<Link> {
    let link = |address: &&str| Link { interface: None, address: (*address).to_owned(), packet_max_bytes: None };
    addresses.iter().map(link).collect()
}

/// Asks the servers for their volumes, some at a time: one that keeps us waiting does not hold up all.
fn volumes_of(seen: &[Seen], end: Instant) -> Vec<Volumes> {
    let mut volumes = Vec::with_capacity(seen.len());
    for some in seen.chunks(ASKED_AT_ONCE) {
        thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|server| scope.spawn(|| server.volumes(end))).collect();
            let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("asking failed".into())));
            volumes.extend(ended);
        });
    }
    volumes
}

#[cfg(test)]
mod tests {
    use sanwire_core::{MacAddress, Peer};
    use sanwire_iscsi::{OtherPortal, PortalCarrier};
    use serde_json::Value;

    use super::*;
    use crate::test_volume;

    fn link(interface: &str, last: u8) -> FoundLink {
        let peer = Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, last]));
        FoundLink { interface: Some(interface.into()), peer, packet_max_bytes: 1500 }
    }

    fn shown_on_ethernet(name: &str, links: &[FoundLink], is_only: bool) -> String {
        shown(&HyperScsiServer::everybody(None), name, links, is_only).to_string()
    }

    fn seen(links: &[FoundLink]) -> Seen {
        let server: Url = "hs+eth://a/box".parse().unwrap();
        Seen {
            name: "box".into(),
            server: server.server,
            links: links.iter().map(Link::new).collect(),
            others: Some(Vec::new()),
            options: ClientOptions::anonymous().unwrap(),
        }
    }

    #[test]
    fn servers_are_named_by_name_where_that_is_clear() {
        assert_eq!(shown_on_ethernet("box", &[link("a", 1)], true), "hs+eth://a/box");
        assert_eq!(shown_on_ethernet("box", &[link("a", 1), link("b", 2)], true), "hs+eth:///box");
        assert_eq!(shown_on_ethernet("box", &[link("a", 1)], false), "hs+eth://a/02:00:00:00:00:01");
        assert_eq!(shown_on_ethernet("b/../x", &[link("a", 1)], true), "hs+eth://a/02:00:00:00:00:01");
        assert_eq!(shown_on_ethernet("02:00:00:00:00:09", &[link("a", 1)], true), "hs+eth://a/02:00:00:00:00:01");
        assert_eq!(shown_on_ethernet("\u{1b}[2J", &[link("a", 1)], true), "hs+eth://a/02:00:00:00:00:01");
    }

    #[test]
    fn a_target_is_at_a_portal_of_its_own() {
        let asked: Url = "iscsi://host@127.0.0.1:3261".parse().unwrap();
        let Server::Iscsi(asked) = asked.server else { panic!("iSCSI") };
        let at = |addresses: &[&str]| {
            let addresses: Vec<_> = addresses.iter().map(|address| ((*address).to_owned(), 1)).collect();
            Portal::new(&asked).of_target(&addresses).to_string()
        };
        assert_eq!(at(&["127.0.0.2:3261", "127.0.0.1:3261"]), "iscsi://host@127.0.0.1:3261", "where it was found");
        assert_eq!(at(&["127.0.0.2:3262"]), "iscsi://host@127.0.0.2:3262", "another portal of the host");
        assert_eq!(at(&["127.0.0.1"]), "iscsi://host@127.0.0.1", "another port of the same address");
        assert_eq!(at(&["[::1]:3261", "box:1"]), "iscsi://host@[::1]:3261");
        assert_eq!((at(&[]), at(&["a b"])), (asked.to_string(), asked.to_string()), "nothing that could be used");
    }

    /// Each way has a line of its own, with the URL by which it goes; for programs they stand beside the one that was asked for.
    #[test]
    fn a_target_is_shown_with_all_ways_to_it() {
        let asked: Url = "iscsi://10.0.0.1".parse().unwrap();
        let Server::Iscsi(asked) = asked.server else { panic!("iSCSI") };
        let portal = |carrier, address: &str| OtherPortal { carrier, address: address.into(), group_tag: 1 };
        let others = vec![
            portal(PortalCarrier::Iwarp, "10.0.0.9:3261"),
            portal(PortalCarrier::Iwarp, "10.0.0.1:3261"),
            portal(PortalCarrier::Adapter, "10.0.0.9:3260"),
        ];
        let target = |others| DiscoveredTarget {
            name: "iqn.2026-11.org.sanwire:disk".parse().unwrap(),
            addresses: vec![("10.0.0.1:3260".into(), 1)],
            others,
        };
        let options = ClientOptions::anonymous().unwrap();
        let seen = Seen::target(&Portal::new(&asked), target(Some(others)), &options);
        let volumes = Ok(vec![test_volume::info(1 << 30, 4096)]);
        let (text, _) = describe(&[(&seen, &volumes)], true);
        let lines: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        let shown: Vec<(&str, &str)> = lines.iter().map(|line| (line[5], line[line.len() - 3])).collect();
        assert_eq!(shown[0], ("iscsi://10.0.0.1/iqn.2026-11.org.sanwire:disk/0", "iSCSI"), "{text}");
        assert!(lines[1].ends_with(&["iSER", "1500", "10.0.0.9:3261,", "10.0.0.1:3261"]), "{text}");
        assert_eq!(
            lines[1][5], "iser://10.0.0.1:3261/iqn.2026-11.org.sanwire:disk/0",
            "at this host, where it is there too"
        );
        assert_eq!(shown[2], ("iser://10.0.0.9/iqn.2026-11.org.sanwire:disk/0", "iSER/RDMA"), "{text}");
        assert_eq!(lines[2][6..8], ["--iser-path", "rdma"], "{text}");
        let told = serde_json::to_value(tell(&seen, &volumes)).unwrap();
        assert_eq!((&told["others"][0]["wire"], &told["others"][1]["wire"]), (&"iSER".into(), &"iSER/RDMA".into()));
        assert_eq!(told["others"][1]["url"], "iser://10.0.0.9/iqn.2026-11.org.sanwire:disk");
        assert_eq!(told["others"][1]["links"][0]["address"], "10.0.0.9:3260");
        assert!(Seen::target(&Portal::new(&asked), target(None), &options).others.is_none(), "it is still to be asked");
    }

    #[test]
    fn servers_that_are_too_many_to_be_asked_in_time_are_shown_with_what_to_do() {
        let many: Vec<Seen> = (0..40).map(|_| seen(&[link("a", 1)])).collect();
        let volumes = volumes_of(&many, Instant::now());
        let advice = "`sanwire ls hs+eth://a/box` asks this one";
        assert_eq!(volumes.len(), 40);
        assert!(volumes.iter().all(|volumes| volumes.as_ref().is_err_and(|why| why.ends_with(advice))), "{volumes:?}");
    }

    #[test]
    fn a_server_that_refuses_is_shown_with_the_reason() {
        let (open, shut) = (seen(&[link("a", 1), link("b", 2)]), seen(&[link("a", 3)]));
        let volumes = Ok(vec![test_volume::info(1 << 30, 4096)]);
        let refused = Err("the passwords differ".to_owned());
        let shown = |wide| describe(&[(&open, &volumes), (&shut, &refused)], wide);
        let (text, problems) = shown(true);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let links = ["a", "02:00:00:00:00:01,", "b", "02:00:00:00:00:02"];
        assert_eq!(lines[1][..6], ["box", "disk", "1", "GiB", "rw", "hs+eth://a/box/disk"], "{text}");
        assert!(lines[1].ends_with(&links), "{text}");
        assert_eq!(lines[2], ["box", "-", "-", "-", "hs+eth://a/box", "-", "HS/eth", "1500", "a", "02:00:00:00:00:03"]);
        assert_eq!(problems, "hs+eth://a/box: the passwords differ\n");
        let (narrow, _) = shown(false);
        assert!(narrow.lines().nth(1).is_some_and(|line| line.ends_with("rw    hs+eth://a/box/disk")), "{narrow}");
        let told = serde_json::to_value(tell(&shut, &refused)).unwrap();
        assert_eq!((&told["problem"], &told["volumes"]), (&"the passwords differ".into(), &Value::Array(vec![])));
        let told = serde_json::to_value(tell(&open, &volumes)).unwrap();
        assert_eq!((&told["problem"], &told["volumes"][0]["url"]), (&Value::Null, &"hs+eth://a/box/disk".into()));
        assert_eq!((&told["links"][1]["interface"], &told["address"]), (&"b".into(), &"02:00:00:00:00:01".into()));
    }
}
