//! Wires as people write them.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use super::{Carrier, GROUP_TAG_DEFAULT, Place, ReceiveChoice, Wire, WireError, WireKind};
use crate::channel::PortalPath;
use crate::front::WIRES;

/// The longest name of a network interface (Linux, IFNAMSIZ less the final zero).
const INTERFACE_NAME_MAX_BYTES: usize = 15;

impl FromStr for Wire {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let found = text.split_once(':').and_then(|(word, rest)| {
            let kind = WIRES.iter().find(|kind| kind.word == word)?;
            Some((kind, rest))
        });
        let (kind, rest) = found.ok_or_else(|| WireError::Unknown(text.into()))?;
        let place = match kind.carrier {
            Carrier::Ethernet { .. } => parse_interface(rest)?,
            Carrier::Datagrams { port, .. } => Place::Address(parse_address(rest, port)?),
            Carrier::Streams { port, .. } => parse_portal(kind, rest, port)?,
        };
        Ok(Wire { kind, place })
    }
}

/// `eth0` or `eth0,path=xdp`.
fn parse_interface(text: &str) -> Result<Place, WireError> {
    let (name, path) = text.split_once(',').map_or((text, None), |(name, path)| (name, Some(path)));
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    if !(1..=INTERFACE_NAME_MAX_BYTES).contains(&name.len()) || !name.bytes().all(is_allowed) {
        return Err(WireError::Interface(name.into()));
    }
    let choice = match path {
        None => ReceiveChoice::Automatic,
        Some(path) => {
            let word = path.strip_prefix("path=");
            let found = ReceiveChoice::WORDS.iter().find(|(known, _)| word == Some(*known));
            found.ok_or_else(|| WireError::Path(path.into()))?.1
        }
    };
    Ok(Place::Interface(name.into(), choice))
}

/// `1.2.3.4:5`, `1.2.3.4,2`, `1.2.3.4,path=rdma` or `1.2.3.4,2,path=rdma`.
fn parse_portal(kind: &WireKind, text: &str, port: u16) -> Result<Place, WireError> {
    let (text, path) = match text.rsplit_once(",path=") {
        Some((text, word)) => {
            let found = PortalPath::WORDS.iter().find(|(known, _)| word == *known);
            (text, found.ok_or_else(|| WireError::PortalPath(format!("path={word}")))?.1)
        }
        None => (text, PortalPath::default()),
    };
    if path == PortalPath::Rdma && !kind.is_rdma() {
        return Err(WireError::NoRdma(kind.word));
    }
    let (address, tag) = text.split_once(',').map_or((text, None), |(address, tag)| (address, Some(tag)));
    let address = parse_address(address, port)?;
    let group_tag = match tag {
        None => GROUP_TAG_DEFAULT,
        Some(tag) => tag.parse().ok().filter(|tag| *tag != 0).ok_or_else(|| WireError::GroupTag(tag.into()))?,
    };
    Ok(Place::Portal(address, group_tag, path))
}

/// `1.2.3.4`, `1.2.3.4:5`, `[::1]` or `[::1]:5`.
fn parse_address(text: &str, port: u16) -> Result<SocketAddr, WireError> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let alone = match bracketed {
        Some(inside) => inside.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().map(IpAddr::V4),
    };
    let address = alone.map(|ip| SocketAddr::new(ip, port)).or_else(|| text.parse().ok());
    address.filter(|address| address.port() != 0).ok_or_else(|| WireError::Address(text.into()))
}
