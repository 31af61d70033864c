//! Copies that go from a volume here straight to one of another server: who may order them, and where they may go. Whoever orders one
//! has this server connect to a place that they name, so places are rules of this server, and not of who asks.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use sanwire_core::ClientId;

use crate::allow::{AllowRule, IpPrefix};

/// Where copies may go when nothing is said: addresses that no router of the Internet passes on, and servers of the same Ethernet. Not
/// the loopback of this host: its services may trust whoever is on it.
const USUAL_PLACES: [&str; 5] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "ethernet"];

/// Schemes of URLs whose servers are reached over IP, and of those that are on an Ethernet of this host.
const OVER_IP: [&str; 3] = ["hs+ip", "visa", "visa+tcp"];
const OVER_ETHERNET: [&str; 2] = ["hs+eth", "hdsp"];

/// The longest URL of a destination: the audit log has all of each.
const URL_MAX_BYTES: usize = 256;

/// From here on ports are those of programs like this one; what listens below is something else, and may trust this host.
const PORT_MIN: u16 = 1024;

/// This server, which copies to itself by no connection.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Own<'a> {
    /// What others of its Ethernet call it.
    pub(crate) name: &'a str,
    /// Addresses of its host.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Which copies to other servers are made.
#[derive(Clone, Debug)]
pub struct DirectCopies {
    /// Who may order them.
    pub by: CopyOrderers,
    /// Where they may go.
    pub to: Vec<CopyPlace>,
    /// Which client this server is to others; `None`: none, so that no other server could name it.
    pub client_id: Option<ReadClientId>,
}

/// Reads the key by which this server is a client of others, or makes it, and gives its id.
pub type ReadClientId = fn() -> Result<ClientId, String>;

impl Default for DirectCopies {
    fn default() -> Self {
        DirectCopies { by: CopyOrderers::default(), to: CopyPlace::usual(), client_id: None }
    }
}

impl DirectCopies {
    /// Whether copies may go to the server of this URL.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(crate) fn check_place(&self, url: &str, own: &Own<'_>) -> Result<(), String> {
        if url.len() > URL_MAX_BYTES {
            let bytes = url.len();
            return Err(format!("a URL of a direct copy has at most {URL_MAX_BYTES} bytes, and this one {bytes}"));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| format!("'{url}' is no URL of a volume"))?;
        let server = rest.split('/').next().unwrap_or_default();
        if OVER_ETHERNET.contains(&scheme) {
            if rest.split('/').nth(1) == Some(own.name) {
                return Err(format!("{url}: this server is called {} itself", own.name));
            }
            return match self.to.iter().any(|place| matches!(place, CopyPlace::Any | CopyPlace::Ethernet)) {
                true => Ok(()),
                false => Err(format!("{url}: `direct-copy-to` of this server names no Ethernet: add 'ethernet'")),
            };
        }
        if !OVER_IP.contains(&scheme) {
            return Err(format!("{url}: direct copies go by hs+ip, hs+eth, hdsp and visa, whose clients have keys"));
        }
        // What a name leads to may change between the look and the connection.
        let (address, port) = address_of(server)
            .ok_or_else(|| format!("{url}: the server is to be given by its address, and '{server}' is none"))?;
        if self.to.iter().any(|place| place.is_only(address)) {
            return Ok(());
        }
        if is_here(address, own) {
            return Err(format!("{url}: {address} is this host: `direct-copy-to` has to name exactly that address"));
        }
        if let Some(port) = port.filter(|port| *port < PORT_MIN) {
            return Err(format!(
                "{url}: port {port} is that of another service: `direct-copy-to` has to name exactly {address}"
            ));
        }
        match self.to.iter().any(|place| place.includes(address)) {
            true => Ok(()),
            false => Err(format!("{url}: `direct-copy-to` of this server does not name {address}: add it there")),
        }
    }
}

/// An address, and the port where one is written.
fn address_of(server: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = server.parse::<SocketAddr>() {
        return Some((address.ip().to_canonical(), Some(address.port())));
    }
    let bare = server.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(server);
    bare.parse().ok().map(|address: IpAddr| (address.to_canonical(), None))
}

/// Whether services of this host are there, which may trust it.
fn is_here(address: IpAddr, own: &Own<'_>) -> bool {
    let is_own = || own.addresses.iter().any(|own| own.to_canonical() == address);
    address.is_loopback() || address.is_unspecified() || is_own()
}

/// Who may order copies to other servers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CopyOrderers {
    /// Nobody.
    Off,
    /// Who may manage the server. The usual: whoever orders one has this server write wherever it may write as a client.
    #[default]
    Managers,
    /// These, and who owns the volume.
    Owners,
}

/// Text that says of nobody whether they may.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' does not say who may order direct copies: use off, managers or owners")]
pub struct CopyOrderersError(String);

impl FromStr for CopyOrderers {
    type Err = CopyOrderersError;

    fn from_str(text: &str) -> Result<Self, CopyOrderersError> {
        Ok(match text {
            "off" => CopyOrderers::Off,
            "managers" => CopyOrderers::Managers,
            "owners" => CopyOrderers::Owners,
            other => return Err(CopyOrderersError(other.to_owned())),
        })
    }
}

/// Where copies may go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyPlace {
    /// Anywhere.
    Any,
    /// Servers on an Ethernet of this host.
    Ethernet,
    /// Addresses that begin with these bits.
    Prefix(IpPrefix),
}

/// Text that is no such place.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no place for direct copies: use an address, a prefix like 10.0.0.0/8, ethernet or any")]
pub struct CopyPlaceError(String);

impl CopyPlace {
    /// Those where nothing is said.
    #[must_use]
    pub fn usual() -> Vec<CopyPlace> {
        USUAL_PLACES.iter().filter_map(|text| text.parse().ok()).collect()
    }

    fn is_only(&self, address: IpAddr) -> bool {
        matches!(self, CopyPlace::Prefix(prefix) if prefix.is_only(address))
    }

    fn includes(&self, address: IpAddr) -> bool {
        match self {
            CopyPlace::Any => true,
            CopyPlace::Ethernet => false,
            CopyPlace::Prefix(prefix) => prefix.contains(address),
        }
    }
}

impl FromStr for CopyPlace {
    type Err = CopyPlaceError;

    fn from_str(text: &str) -> Result<Self, CopyPlaceError> {
        match text {
            "any" => Ok(CopyPlace::Any),
            "ethernet" => Ok(CopyPlace::Ethernet),
            _ => match text.parse() {
                Ok(AllowRule::Prefix(prefix)) => Ok(CopyPlace::Prefix(prefix)),
                _ => Err(CopyPlaceError(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for CopyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyPlace::Any => f.write_str("any"),
            CopyPlace::Ethernet => f.write_str("ethernet"),
            CopyPlace::Prefix(prefix) => prefix.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Own<'static> {
        Own { name: "me", addresses: ["10.7.7.7", "fd00::7", "198.51.100.7"].map(|text| text.parse().unwrap()).into() }
    }

    fn may_go(to: &[&str], url: &str) -> Result<(), String> {
        let to = to.iter().map(|text| text.parse().unwrap()).collect();
        DirectCopies { to, ..DirectCopies::default() }.check_place(url, &own())
    }

    #[test]
    fn copies_go_where_the_rules_say() {
        assert_eq!(CopyPlace::usual().len(), USUAL_PLACES.len());
        let usual = DirectCopies::default();
        for url in ["hs+ip://10.1.2.3/v", "visa://192.168.0.9:7777/v", "hs+ip://[fd00::1]:5674/v", "hs+eth:///box/v"] {
            assert_eq!(usual.check_place(url, &own()), Ok(()), "{url}");
        }
        for url in [
            "hs+ip://127.0.0.1/v",
            "hs+ip://[::1]/v",
            "hs+ip://[::ffff:127.0.0.1]/v",
            "hs+ip://169.254.169.254/v",
            "hs+ip://198.51.100.1/v",
            "hs+ip://localhost/v",
            "hs+ip://10.0.0.1@127.0.0.1/v",
            "hs+ip:///v",
            "iscsi://10.1.2.3/iqn.x:v/0",
            "nbd://10.1.2.3/v",
            "file:/etc/passwd",
            "ram:1M",
        ] {
            assert!(usual.check_place(url, &own()).is_err(), "{url}");
        }
        assert_eq!(may_go(&["127.0.0.1"], "hs+ip://127.0.0.1:99/v"), Ok(()));
        assert!(may_go(&["127.0.0.1"], "hs+eth:///box/v").is_err());
        assert!(may_go(&["ethernet"], "hs+ip://10.0.0.1/v").is_err());
        assert!(may_go(&[], "hs+ip://10.0.0.1/v").is_err());
        assert_eq!(may_go(&["any"], "visa://198.51.100.1/v"), Ok(()));
    }

    #[test]
    fn copies_go_to_this_host_only_where_exactly_its_address_is_named() {
        for url in ["hs+ip://10.7.7.7/v", "visa://[::ffff:10.7.7.7]/v", "hs+ip://[fd00::7]:5674/v", "hs+eth:///me/v"] {
            for to in [&["10.0.0.0/8", "fc00::/7", "ethernet"][..], &["any"]] {
                let refused = may_go(to, url).unwrap_err();
                assert!(refused.contains("this host") || refused.contains("itself"), "{refused}");
            }
        }
        for url in ["hs+ip://127.0.0.1/v", "hs+ip://0.0.0.0/v", "visa+tcp://[::1]:5675/v", "hs+ip://198.51.100.7/v"] {
            assert!(may_go(&["any"], url).is_err(), "{url}");
        }
        assert_eq!(may_go(&["10.7.7.7"], "hs+ip://10.7.7.7/v"), Ok(()));
        assert_eq!(may_go(&["any", "::1"], "visa+tcp://[::1]:5675/v"), Ok(()));
        assert_eq!(may_go(&["any"], "hs+eth:///other/me"), Ok(()), "a volume may be called so");
    }

    #[test]
    fn copies_connect_to_no_other_service_and_have_no_endless_urls() {
        assert!(may_go(&["10.0.0.0/8"], "visa+tcp://10.0.0.1:22/v").unwrap_err().contains("port 22"));
        assert_eq!(may_go(&["10.0.0.1"], "visa+tcp://10.0.0.1:22/v"), Ok(()));
        assert_eq!(may_go(&["10.0.0.0/8"], "visa+tcp://10.0.0.1:7000/v"), Ok(()));
        let url = format!("hs+ip://10.0.0.1/{}", "v".repeat(300));
        let refused = may_go(&["any"], &url).unwrap_err();
        assert!(refused.contains("at most 256 bytes") && refused.len() < 256, "{refused}");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["", "10.0.0.1/8", "02:00:5e:10:00:01", "localhost", "iqn.2026-11.org.example:*"] {
            assert!(text.parse::<CopyPlace>().is_err(), "{text}");
        }
        for text in ["any", "ethernet", "10.0.0.0/8", "fd00::1"] {
            assert_eq!(text.parse::<CopyPlace>().unwrap().to_string(), text);
        }
        assert_eq!("off".parse::<CopyOrderers>().unwrap(), CopyOrderers::Off);
        assert!("nobody".parse::<CopyOrderers>().is_err());
    }
}
