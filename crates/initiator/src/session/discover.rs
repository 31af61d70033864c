//! Who serves, and where?

use std::time::Duration;

use sanwire_core::Peer;
use sanwire_hyperscsi::{announcement, discovery};

use super::Failure;
use super::asking::{self, OTHERS_TIMEOUT};
use crate::endpoint::{ConnectError, Endpoint};
use crate::options::ClientOptions;
use crate::url::{HyperScsiServer, Station};

/// A server that answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Where it has answered, at least one.
    pub links: Vec<FoundLink>,
    /// What it drew when it started: servers of one name differ in it.
    instance: u64,
}

/// A way to a server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FoundLink {
    /// Our interface, on raw Ethernet.
    pub interface: Option<String>,
    /// The server's address there.
    pub peer: Peer,
    /// The largest packet that the server's end takes, in bytes.
    pub packet_max_bytes: u32,
}

impl FoundLink {
    /// The server at this place and no other.
    #[must_use]
    pub fn server(&self) -> HyperScsiServer {
        match self.peer {
            Peer::Ethernet(mac) => {
                HyperScsiServer::Ethernet { interface: self.interface.clone(), server: Station::Mac(mac) }
            }
            Peer::Udp(address) => HyperScsiServer::Ip { host: address.ip().to_string(), port: address.port() },
        }
    }
}

/// Asks everybody who may be meant, on every link and at every address, and collects who answers within `patience`. Servers
/// that do not serve this client keep silent.
///
/// # Errors
/// [`ConnectError`] when no port can be opened or used.
pub fn discover(
    server: &HyperScsiServer,
    options: &ClientOptions,
    patience: Duration,
) -> Result<Vec<Found>, ConnectError> {
    ask(server, options, (patience, patience))
}

/// The interfaces on which a server on Ethernet answers.
pub(crate) fn locate(server: &HyperScsiServer, options: &ClientOptions) -> Result<Vec<String>, ConnectError> {
    let mut found = ask(server, options, (options.connect_patience, OTHERS_TIMEOUT))?;
    if let Some(error) = ambiguity(server.name(), &found) {
        return Err(error);
    }
    let found = found.pop().ok_or_else(|| ConnectError::Handshake {
        server: server.to_string(),
        failure: Failure::from(sanwire_hyperscsi::Failure::NoAnswer),
    })?;
    let mut interfaces: Vec<String> = found.links.into_iter().filter_map(|link| link.interface).collect();
    interfaces.dedup();
    Ok(interfaces)
}

fn ambiguity(name: &str, found: &[Found]) -> Option<ConnectError> {
    let places = found.iter().filter_map(|server| Some(server.links.first()?.server().to_string()));
    let places: Vec<String> = places.collect();
    let ambiguous = || ConnectError::Ambiguous { name: name.into(), count: places.len(), places: places.join(", ") };
    (places.len() > 1).then(ambiguous)
}

/// Asks until the patience is over, or for as long as the other patience after the first answer.
fn ask(
    server: &HyperScsiServer,
    options: &ClientOptions,
    timing: (Duration, Duration),
) -> Result<Vec<Found>, ConnectError> {
    let mut endpoint = Endpoint::open_for_questions(server, options)?;
    let config = options.hyperscsi(server.name(), endpoint.ports.limits())?;
    let number = u64::from_be_bytes(*config.seed.first_chunk().unwrap_or(&[0; 8]));
    let question = discovery(&config, number);
    let answers = asking::ask(&mut endpoint, &question, timing, |_, bytes| announcement(bytes, number))?;
    let answers = answers.into_iter().map(|(path, announcement)| {
        let interface = endpoint.ports.interface(path.link).map(ToOwned::to_owned);
        let link = FoundLink { interface, peer: path.peer, packet_max_bytes: announcement.packet_max_bytes };
        (announcement.server_name, announcement.instance, link)
    });
    Ok(servers(answers))
}

/// Puts together what one server has answered on several links.
fn servers(answers: impl Iterator<Item = (String, u64, FoundLink)>) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for (name, instance, link) in answers {
        match found.iter_mut().find(|known| known.name == name && known.instance == instance) {
            Some(known) => known.links.push(link),
            None => found.push(Found { name, instance, links: vec![link] }),
        }
    }
    found.iter_mut().for_each(|server| server.links.sort());
    found.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.links.cmp(&b.links)));
    found
}

#[cfg(test)]
mod tests {
    use sanwire_core::MacAddress;

    use super::*;

    fn answer(name: &str, instance: u64, interface: &str, last: u8) -> (String, u64, FoundLink) {
        let peer = Peer::Ethernet(MacAddress([2, 0, 0, 0, 0, last]));
        (name.into(), instance, FoundLink { interface: Some(interface.into()), peer, packet_max_bytes: 1500 })
    }

    #[test]
    fn one_server_on_two_links_is_one_server() {
        let found = servers([answer("box", 7, "b", 2), answer("box", 7, "a", 1)].into_iter());
        assert_eq!(found.len(), 1);
        let interfaces: Vec<_> = found[0].links.iter().filter_map(|link| link.interface.as_deref()).collect();
        assert_eq!(interfaces, ["a", "b"]);
        assert!(ambiguity("box", &found).is_none());
    }

    #[test]
    fn two_servers_of_one_name_are_told_apart_and_listed() {
        let found = servers([answer("box", 8, "b", 2), answer("box", 7, "a", 1)].into_iter());
        let error = ambiguity("box", &found).expect("an error").to_string();
        let places = "hs+eth://a/02:00:00:00:00:01, hs+eth://b/02:00:00:00:00:02";
        assert!(error.starts_with(&format!("2 servers are called box: {places}; name the one")), "{error}");
    }
}
