//! From a host's name to the addresses at which its service may be, in the order in which they are to be tried: what SRV
//! records say (RFC 2782), or else the addresses of the name itself.

mod name_server;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use simple_dns::TYPE;

use name_server::{NameServers, Record, Srv};

/// Addresses of one host that are tried at the most, and places of one domain.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// How long name servers are asked for one host, all questions together.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long one server has for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Where the system says who its name servers are.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// A service as DNS names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    /// Its name and protocol, before the domain.
    pub(crate) label: &'static str,
    /// Its port when nobody names one.
    pub(crate) usual_port: u16,
}

/// The addresses at which the service of a host may be, at least one and at most 16. SRV records are asked for when the host
/// is a domain and the port the usual one. Without `name_servers` the system's are asked, and for addresses the system itself,
/// which also knows `/etc/hosts`.
///
/// # Errors
/// What the system says, or `NotFound` when there is no address.
pub(crate) fn addresses(
    host: &str,
    port: u16,
    service: Service,
    name_servers: &[SocketAddr],
) -> io::Result<Vec<SocketAddr>> {
    let deadline = Instant::now() + TIMEOUT;
    Resolver { name_servers, deadline, answer_timeout: ANSWER_TIMEOUT }.addresses_of_service(host, port, service)
}

struct Resolver<'a> {
    /// Empty: the system's.
    name_servers: &'a [SocketAddr],
    deadline: Instant,
    answer_timeout: Duration,
}

impl Resolver<'_> {
    fn addresses_of_service(&self, host: &str, port: u16, service: Service) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        if port == service.usual_port && host.trim_end_matches('.').contains('.') {
            let places = self.places(host, service);
            if !places.is_empty() {
                return self.addresses_of_places(places);
            }
        }
        self.addresses(host, port)
    }

    fn ask(&self, servers: &NameServers, name: &str, kind: TYPE) -> io::Result<Vec<Record>> {
        servers.ask(name, kind, self.deadline, self.answer_timeout)
    }

    /// What the domain's SRV records say, in the order of trying; nothing also when no name server can be asked.
    fn places(&self, domain: &str, service: Service) -> Vec<Srv> {
        let servers = match self.name_servers {
            [] => NameServers::read(Path::new(RESOLV_CONF)),
            given => Ok(NameServers::new(given)),
        };
        let name = format!("{}.{domain}", service.label);
        match servers.and_then(|servers| self.ask(&servers, &name, TYPE::SRV)) {
            Ok(records) => in_order(records.into_iter().filter_map(Record::into_srv).collect(), &mut random),
            Err(error) => {
                tracing::debug!("no name server tells the SRV records of {name}: {error}");
                Vec::new()
            }
        }
    }

    /// A place without addresses does not hide the others.
    fn addresses_of_places(&self, places: Vec<Srv>) -> io::Result<Vec<SocketAddr>> {
        // RFC 2782: a target of "." says that the service is decidedly not there.
        if places.iter().all(|place| place.target.is_empty()) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its SRV record says that it has no such service"));
        }
        let mut found: Vec<SocketAddr> = Vec::new();
        let mut failure = None;
        for place in places.iter().filter(|place| !place.target.is_empty()) {
            match self.addresses(&place.target, place.port) {
                Ok(addresses) => {
                    let new = addresses.into_iter().filter(|address| !found.contains(address));
                    found.append(&mut new.collect());
                }
                Err(error) => failure = Some(io::Error::new(error.kind(), format!("{}: {error}", place.target))),
            }
            if found.len() >= ADDRESSES_MAX || Instant::now() >= self.deadline {
                break;
            }
        }
        found.truncate(ADDRESSES_MAX);
        match failure {
            Some(failure) if found.is_empty() => Err(failure),
            _ => Ok(found),
        }
    }

    /// The addresses of a name. IPv4 comes first: servers listen on that unless they are told to listen elsewhere.
    fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut addresses: Vec<SocketAddr> = if self.name_servers.is_empty() {
            (host, port).to_socket_addrs()?.collect()
        } else {
            let servers = NameServers::new(self.name_servers);
            let four = self.ask(&servers, host, TYPE::A)?;
            let six = self.ask(&servers, host, TYPE::AAAA).unwrap_or_default();
            let ips = four.into_iter().chain(six).filter_map(Record::into_address);
            ips.map(|ip| SocketAddr::new(ip, port)).collect()
        };
        addresses.sort_by_key(SocketAddr::is_ipv6);
        addresses.truncate(ADDRESSES_MAX);
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(addresses)
    }
}

/// The order of RFC 2782: the lowest priority first; among equals each next one is drawn by weight.
fn in_order(mut records: Vec<Srv>, random: &mut dyn FnMut() -> u32) -> Vec<Srv> {
    // Records of weight 0 come first, so that they are drawn too, if seldom.
    records.sort_by_key(|record| (record.priority, record.weight));
    let mut ordered = Vec::new();
    while let Some(first) = records.first() {
        let equals = records.iter().take_while(|record| record.priority == first.priority).count();
        let total: u32 = records[..equals].iter().map(|record| u32::from(record.weight)).sum();
        let drawn = random() % (total + 1);
        let mut sum = 0;
        let place = records[..equals].iter().position(|record| {
            sum += u32::from(record.weight);
            sum >= drawn
        });
        ordered.push(records.remove(place.unwrap_or(0)));
    }
    ordered
}

fn random() -> u32 {
    // Without randomness the order is still one that the priorities allow.
    crate::random::bytes().map_or(0, u32::from_be_bytes)
}

#[cfg(test)]
mod tests;
