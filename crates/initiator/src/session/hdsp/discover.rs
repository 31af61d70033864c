//! Which HDSP servers are there, and where?

use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::Path;
use sanwire_hdsp::ETHERTYPE;
use sanwire_hdsp::wire::discovery::{Discovery, Instance};
use sanwire_hdsp::wire::pcu::RawPcu;
use sanwire_hdsp::wire::{Class, DiskType, Header, PacketType, Pcu};

use super::terms::no_answer;
use crate::endpoint::{ConnectError, Endpoint};
use crate::options::{ClientOptions, no_randomness};
use crate::random;
use crate::session::asking::{self, OTHERS_TIMEOUT};
use crate::url::{HdspServer, Station};

/// A server that has answered on one of our interfaces.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HdspFound {
    /// Its name.
    pub name: String,
    /// What it drew when it started: servers of one name differ in it.
    instance: Instance,
    /// Our interface.
    pub interface: Option<String>,
    /// Its address there.
    pub station: String,
    /// The largest packet that its end takes, in bytes.
    pub packet_max_bytes: u16,
}

impl HdspFound {
    /// Whether both are one server.
    #[must_use]
    pub fn is_same_server(&self, other: &HdspFound) -> bool {
        (&self.name, self.instance) == (&other.name, other.instance)
    }
}

/// Asks everybody who may be meant, on every interface, and collects who answers within `patience`. Servers that do not serve this client
/// keep silent.
///
/// # Errors
/// [`ConnectError`] when no port can be opened or used.
pub fn hdsp_servers(
    server: &HdspServer,
    options: &ClientOptions,
    patience: Duration,
) -> Result<Vec<HdspFound>, ConnectError> {
    let mut endpoint = Endpoint::of_station(server.interface.as_deref(), &server.server, ETHERTYPE)?;
    Ok(ask(&mut endpoint, (server.name(), options), (patience, patience))?
        .into_iter()
        .map(|(_, found)| found)
        .collect())
}

/// Ports towards the server. One that is known by its name is asked for first: more than one of that name is an error, not a matter of
/// luck.
pub(super) fn locate(server: &HdspServer, options: &ClientOptions) -> Result<Endpoint, ConnectError> {
    let mut endpoint = Endpoint::of_station(server.interface.as_deref(), &server.server, ETHERTYPE)?;
    if !server.is_named() {
        return Ok(endpoint);
    }
    let found = ask(&mut endpoint, (server.name(), options), (options.connect_patience, OTHERS_TIMEOUT))?;
    let Some((_, first)) = found.first() else {
        return Err(ConnectError::Handshake { server: server.to_string(), failure: no_answer() });
    };
    if found.iter().any(|(_, other)| !other.is_same_server(first)) {
        let place = |(_, other): &(Path, HdspFound)| {
            let station = other.station.parse().map_or_else(|_| server.server.clone(), Station::Mac);
            HdspServer { interface: other.interface.clone(), server: station }.to_string()
        };
        let places: Vec<String> = found.iter().map(place).collect();
        let (name, count) = (server.name().to_owned(), places.len());
        return Err(ConnectError::Ambiguous { name, count, places: places.join(", ") });
    }
    // The others lead to nobody who is meant.
    endpoint.places.retain(|place| found.iter().any(|(path, _)| path.link == place.link));
    let used: Vec<_> = endpoint.places.iter().map(|place| place.link).collect();
    endpoint.ports.keep_only(&used);
    Ok(endpoint)
}

/// Asks until the patience is over, or for as long as the other patience after the first answer.
fn ask(
    endpoint: &mut Endpoint,
    (name, options): (&str, &ClientOptions),
    timing: (Duration, Duration),
) -> Result<Vec<(Path, HdspFound)>, ConnectError> {
    let client_port = u16::from_be_bytes(random::bytes().map_err(no_randomness)?);
    let question = question(name, options, client_port);
    let mut answers = asking::ask(endpoint, &question, timing, |path, bytes| answer(path, bytes, client_port))?;
    for (path, found) in &mut answers {
        found.interface = endpoint.ports.interface(path.link).map(ToOwned::to_owned);
    }
    answers.sort_by(|a, b| a.1.cmp(&b.1));
    Ok(answers)
}

fn question(server_name: &str, options: &ClientOptions, client_port: u16) -> Packet {
    let header = Header {
        from_server: false,
        error: None,
        packet_type: PacketType::Pcu,
        disk_type: DiskType::Any,
        disk_address: 0,
        server_port: 0,
        client_port,
    };
    let query = Discovery::Query { client: options.identity.client_id(), server_name };
    let pcu = Pcu { header, class: Class::Discovery, is_sealed: false, number: 0 };
    Packet::new(pcu.open_packet(&query.write()).into(), None)
}

/// What a packet says, if it answers our question.
fn answer(path: Path, packet: &[u8], client_port: u16) -> Option<HdspFound> {
    let raw = RawPcu::read(packet).ok()?;
    let Pcu { header, class, is_sealed, .. } = raw.pcu;
    if !header.from_server
        || header.client_port != client_port
        || class != Class::Discovery
        || is_sealed
        || !raw.is_whole()
    {
        return None;
    }
    match Discovery::read(raw.operation).ok()? {
        Discovery::Answer { instance, packet_max_bytes, server_name } => Some(HdspFound {
            name: server_name.to_owned(),
            instance,
            interface: None,
            station: path.peer.to_string(),
            packet_max_bytes,
        }),
        Discovery::Query { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::{LinkId, MacAddress, Peer};

    use super::*;

    #[test]
    fn only_an_answer_to_this_question_counts() {
        let path = Path { link: LinkId(0), peer: Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, 1])) };
        let packet = |from_server, client_port| {
            let header = Header {
                from_server,
                error: None,
                packet_type: PacketType::Pcu,
                disk_type: DiskType::Any,
                disk_address: 0,
                server_port: 0,
                client_port,
            };
            let said = Discovery::Answer { instance: [7; 16], packet_max_bytes: 9000, server_name: "vault" };
            Pcu { header, class: Class::Discovery, is_sealed: false, number: 0 }.open_packet(&said.write())
        };
        let found = answer(path, &packet(true, 5), 5).unwrap();
        assert_eq!((found.name.as_str(), found.packet_max_bytes), ("vault", 9000));
        assert_eq!(found.station, "02:00:00:00:00:01");
        assert_eq!((answer(path, &packet(false, 5), 5), answer(path, &packet(true, 6), 5)), (None, None));
        let mut damaged = packet(true, 5);
        damaged[20] ^= 1;
        assert_eq!(answer(path, &damaged, 5), None);
    }
}
