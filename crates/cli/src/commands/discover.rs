//! `sanwire discover`.

use sanwire_initiator::{HyperScsiServer, IscsiServer, Server, Url, discover, everybody_on, targets};
use sanwire_io::interface;

use crate::args::DiscoverArgs;
use crate::connect::options;
use crate::failure::misuse;
use crate::output;

/// A server, or a target of one, that answered.
#[derive(serde::Serialize)]
struct Found {
    /// What it calls itself.
    name: String,
    /// Its URL.
    url: String,
    /// Where it is: a MAC address, or an IP address and port.
    address: String,
    /// The largest packet that its link takes; iSCSI has no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_max_bytes: Option<u32>,
}

/// Asks, waits, prints what answered.
pub(crate) fn run(args: &DiscoverArgs) -> anyhow::Result<()> {
    let found = ask(args)?;
    if args.json {
        return Ok(output::print(&format!("{}\n", serde_json::to_string_pretty(&found)?))?);
    }
    anyhow::ensure!(!found.is_empty(), "no server answered: is one running on this link, and does it allow this host?");
    let rows: Vec<_> = found
        .into_iter()
        .map(|server| {
            let packet = server.packet_max_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
            [server.name, server.url, server.address, packet]
        })
        .collect();
    Ok(output::print(&output::table(["SERVER", "URL", "ADDRESS", "PACKET"], &rows))?)
}

/// Asks on every link or host that is meant. A place that cannot be asked is told of, unless it is the only one.
fn ask(args: &DiscoverArgs) -> anyhow::Result<Vec<Found>> {
    let places = places(args)?;
    let mut found = Vec::new();
    for place in &places {
        match ask_at(place, args) {
            Ok(servers) => found.extend(servers),
            Err(error) if places.len() == 1 => return Err(error),
            Err(error) => eprintln!("sanwire: {error}"),
        }
    }
    Ok(found)
}

fn ask_at(place: &Server, args: &DiscoverArgs) -> anyhow::Result<Vec<Found>> {
    let options = options(&args.client, place)?;
    match place {
        Server::HyperScsi(place) => {
            let servers = discover(place, &options, args.time)?;
            Ok(servers.into_iter().map(|server| describe(place, server)).collect())
        }
        Server::Iscsi(place) => {
            let targets = targets(place, &options)?;
            Ok(targets.into_iter().flat_map(|target| describe_target(place, &target)).collect())
        }
    }
}

fn places(args: &DiscoverArgs) -> anyhow::Result<Vec<Server>> {
    if !args.url.is_empty() {
        return Ok(args.url.iter().map(|url| url.server.clone()).collect());
    }
    if !args.host.is_empty() {
        let urls = args.host.iter().map(|host| format!("hs+ip://{host}").parse::<Url>());
        return urls.map(|url| url.map(|url| url.server).map_err(|error| misuse(error.to_string()))).collect();
    }
    let interfaces = match &args.interface {
        Some(interface) => vec![interface.clone()],
        None => interface::list()?
            .into_iter()
            .filter(|interface| interface.is_up && !interface.is_loopback && interface.mac_address.is_some())
            .map(|interface| interface.name)
            .collect(),
    };
    anyhow::ensure!(
        !interfaces.is_empty(),
        "no Ethernet interface is up: set one up (`ip link set IF up`), or ask a host with --host"
    );
    Ok(interfaces.iter().map(|interface| Server::HyperScsi(everybody_on(interface))).collect())
}

fn describe(place: &HyperScsiServer, server: sanwire_initiator::Found) -> Found {
    let url = match place {
        HyperScsiServer::Ethernet { interface, .. } => format!("hs+eth://{interface}/{}", server.name),
        HyperScsiServer::Ip { .. } => place.to_string(),
    };
    let packet_max_bytes = Some(server.packet_max_bytes);
    Found { name: server.name, url, address: server.peer.to_string(), packet_max_bytes }
}

/// One line for each address of the target.
fn describe_target(place: &IscsiServer, target: &sanwire_iscsi::DiscoveredTarget) -> Vec<Found> {
    let url = IscsiServer { target: Some(target.name.clone()), ..place.clone() }.to_string();
    let found = |address: &str| Found {
        name: target.name.to_string(),
        url: url.clone(),
        address: address.to_owned(),
        packet_max_bytes: None,
    };
    match &target.addresses[..] {
        [] => vec![found(&place.host)],
        addresses => addresses.iter().map(|(address, _)| found(address)).collect(),
    }
}
