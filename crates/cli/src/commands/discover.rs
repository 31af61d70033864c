//! `sanwire discover`.

use sanwire_initiator::{Server, Url, discover, everybody_on};
use sanwire_io::interface;

use crate::args::DiscoverArgs;
use crate::connect::options;
use crate::failure::misuse;
use crate::output;

/// A server that answered.
#[derive(serde::Serialize)]
struct Found {
    /// What it calls itself.
    name: String,
    /// Its URL.
    url: String,
    /// Where it is: a MAC address, or an IP address and port.
    address: String,
    /// The largest packet that its link takes.
    mtu_bytes: u32,
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
        .map(|server| [server.name, server.url, server.address, server.mtu_bytes.to_string()])
        .collect();
    Ok(output::print(&output::table(["SERVER", "URL", "ADDRESS", "MTU"], &rows))?)
}

/// Asks on every link or host that is meant. A link that cannot be asked is told of, unless it is the only one.
fn ask(args: &DiscoverArgs) -> anyhow::Result<Vec<Found>> {
    let options = options(&args.client)?;
    let places = places(args)?;
    let mut found = Vec::new();
    for place in &places {
        match discover(place, &options, args.time) {
            Ok(servers) => found.extend(servers.into_iter().map(|server| describe(place, server))),
            Err(error) if places.len() == 1 => return Err(error.into()),
            Err(error) => eprintln!("sanwire: {error}"),
        }
    }
    Ok(found)
}

fn places(args: &DiscoverArgs) -> anyhow::Result<Vec<Server>> {
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
    Ok(interfaces.iter().map(|interface| everybody_on(interface)).collect())
}

fn describe(place: &Server, server: sanwire_initiator::Found) -> Found {
    let url = match place {
        Server::Ethernet { interface, .. } => format!("hs+eth://{interface}/{}", server.name),
        Server::Ip { .. } => place.to_string(),
    };
    Found { name: server.name, url, address: server.peer.to_string(), mtu_bytes: server.packet_max_bytes }
}
