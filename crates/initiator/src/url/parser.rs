//! Reads the text of a URL, part by part.

use std::net::Ipv6Addr;

use sanwire_core::Lun;
use sanwire_core::limits::VOLUME_NAME_MAX_BYTES;

use super::{AoeServer, HdspServer, HyperScsiServer, IscsiServer, Server, Station, Url, UrlError, VisaServer};
use crate::session::table::{
    AOE_SHAPE, ETHERNET_SHAPE, HDSP_SHAPE, HS_IP_PORT, IP_SHAPE, ISCSI_PORT, ISCSI_SHAPE, ISER_SHAPE, VISA_PORT,
    VISA_SHAPE, VISA_TCP_SHAPE,
};

/// The longest name of a network interface (Linux, IFNAMSIZ less the final zero).
const INTERFACE_NAME_MAX_BYTES: usize = 15;
/// The longest name of a host (RFC 1035 2.3.4).
const HOST_NAME_MAX_BYTES: usize = 253;

/// The longest CHAP name that a URL may have.
const USER_NAME_MAX_BYTES: usize = 255;

/// Reads the parts; keeps the whole for messages.
pub(crate) struct Parser<'a> {
    url: &'a str,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(url: &'a str) -> Self {
        Parser { url }
    }

    pub(crate) fn ip(&self, rest: &str) -> Result<Url, UrlError> {
        let mut parts = rest.split('/');
        let (host, port) = self.authority(parts.next().unwrap_or_default(), HS_IP_PORT)?;
        let volume = self.volume(&mut parts, IP_SHAPE)?;
        Ok(Url { server: Server::HyperScsi(HyperScsiServer::Ip { host, port }), volume })
    }

    pub(crate) fn visa(&self, rest: &str, is_stream: bool) -> Result<Url, UrlError> {
        let mut parts = rest.split('/');
        let (host, port) = self.authority(parts.next().unwrap_or_default(), VISA_PORT)?;
        let volume = self.volume(&mut parts, if is_stream { VISA_TCP_SHAPE } else { VISA_SHAPE })?;
        Ok(Url { server: Server::Visa(VisaServer { host, port, is_stream }), volume })
    }

    pub(crate) fn ethernet(&self, rest: &str) -> Result<Url, UrlError> {
        let mut parts = rest.split('/');
        let interface = self.interface(parts.next().unwrap_or_default())?;
        let server = match parts.next().filter(|server| !server.is_empty()) {
            None => return Err(self.shape("no server", ETHERNET_SHAPE)),
            Some(text) => self.station(text)?,
        };
        let volume = self.volume(&mut parts, ETHERNET_SHAPE)?;
        Ok(Url { server: Server::HyperScsi(HyperScsiServer::Ethernet { interface, server }), volume })
    }

    pub(crate) fn hdsp(&self, rest: &str) -> Result<Url, UrlError> {
        let mut parts = rest.split('/');
        let interface = self.interface(parts.next().unwrap_or_default())?;
        let station = parts.next().filter(|server| !server.is_empty()).map(|text| self.station(text)).transpose()?;
        let volume = match parts.next().filter(|volume| !volume.is_empty()) {
            Some(_) if station.is_none() => return Err(self.shape("no server", HDSP_SHAPE)),
            Some(text) if text.starts_with('@') => Some(self.disk_address(text)?),
            text => self.volume(&mut text.into_iter(), HDSP_SHAPE)?,
        };
        if parts.next().is_some() {
            return Err(self.shape("a part too many", HDSP_SHAPE));
        }
        let server = match station {
            Some(server) => HdspServer { interface, server },
            None => HdspServer::everybody(interface),
        };
        Ok(Url { server: Server::Hdsp(server), volume })
    }

    /// A disk by its address, as in `@3`.
    fn disk_address(&self, text: &str) -> Result<String, UrlError> {
        let address: Option<u8> = text.strip_prefix('@').and_then(|address| address.parse().ok());
        let address = address.filter(|address| *address < u8::MAX);
        let expected = "@ and a number from 0 to 254, like @3";
        address.map(|address| format!("@{address}")).ok_or_else(|| self.part(text, "disk address", expected))
    }

    /// An interface by its name, or none.
    fn interface(&self, text: &str) -> Result<Option<String>, UrlError> {
        if text.len() > INTERFACE_NAME_MAX_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let expected = "its name as `ip link` shows it, like eth0, or nothing for all of them";
            return Err(self.part(text, "network interface", expected));
        }
        Ok(Some(text.to_owned()).filter(|interface| !interface.is_empty()))
    }

    pub(crate) fn aoe(&self, rest: &str) -> Result<Url, UrlError> {
        let mut parts = rest.split('/');
        let interface = self.interface(parts.next().unwrap_or_default())?;
        let text = parts.next().filter(|address| !address.is_empty());
        if parts.next().is_some() {
            return Err(self.shape("a part too many", AOE_SHAPE));
        }
        let expected = "a shelf from 0 to 4094, a point and a slot from 0 to 254, like 7.3";
        let parse = |text: &str| text.parse().map_err(|_| self.part(text, "AoE address", expected));
        let address = text.map(parse).transpose()?;
        Ok(Url { server: Server::Aoe(AoeServer { interface, address }), volume: text.map(ToOwned::to_owned) })
    }

    pub(crate) fn iscsi(&self, rest: &str, is_iser: bool) -> Result<Url, UrlError> {
        let shape = if is_iser { ISER_SHAPE } else { ISCSI_SHAPE };
        let mut parts = rest.split('/');
        let authority = parts.next().unwrap_or_default();
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, _)) if !is_name(user, USER_NAME_MAX_BYTES) => {
                return Err(self.part(user, "user name", "letters a-z and A-Z, digits, '.', '_' and '-'"));
            }
            Some((user, authority)) => (Some(user.to_owned()), authority),
            None => (None, authority),
        };
        let (host, port) = self.authority(authority, ISCSI_PORT)?;
        let target = match parts.next().filter(|target| !target.is_empty()) {
            None => None,
            Some(text) => match text.parse() {
                Ok(name) => Some(name),
                Err(_) => return Err(self.part(text, "iSCSI target", "a name like iqn.2026-11.org.sanwire:disk0")),
            },
        };
        let lun = parts.next().filter(|lun| !lun.is_empty());
        if target.is_none() && lun.is_some() {
            return Err(self.shape("no target", shape));
        }
        if parts.next().is_some() {
            return Err(self.shape("a part too many", shape));
        }
        let volume = match lun {
            None => None,
            Some(text) => match text.parse().ok().and_then(Lun::new) {
                Some(lun) => Some(lun.to_string()),
                None => return Err(self.part(text, "LUN", "a number from 0 to 16383")),
            },
        };
        Ok(Url { server: Server::Iscsi(IscsiServer { user, host, port, is_iser, target }), volume })
    }

    fn station(&self, text: &str) -> Result<Station, UrlError> {
        if let Ok(mac) = text.parse() {
            Ok(Station::Mac(mac))
        } else if is_name(text, VOLUME_NAME_MAX_BYTES) {
            Ok(Station::Name(text.into()))
        } else {
            Err(self.part(text, "server", "its name as `sanwire discover` shows it, or a MAC like 02:00:5e:10:00:01"))
        }
    }

    /// `HOST`, `HOST:PORT`, `[IPv6]` or `[IPv6]:PORT`.
    fn authority(&self, text: &str, usual_port: u16) -> Result<(String, u16), UrlError> {
        let (host, port) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let split = bracketed.split_once(']').filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok());
                split.ok_or_else(|| self.part(text, "host", "an IPv6 address in brackets, like [fe80::1]"))?
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        if !text.starts_with('[') && !is_name(host, HOST_NAME_MAX_BYTES) {
            return Err(self.part(host, "host", "a name, an IPv4 address or an IPv6 address in brackets"));
        }
        let port = match port.strip_prefix(':') {
            Some(digits) => digits.parse().ok().filter(|port| *port != 0),
            None if port.is_empty() => Some(usual_port),
            None => None,
        };
        let expected = "a number from 1 to 65535 (an IPv6 address stands in brackets)";
        Ok((host.into(), port.ok_or_else(|| self.part(text, "host with a port", expected))?))
    }

    fn volume<'b>(
        &self,
        parts: &mut impl Iterator<Item = &'b str>,
        expected: &'static str,
    ) -> Result<Option<String>, UrlError> {
        let volume = parts.next().filter(|volume| !volume.is_empty());
        if parts.next().is_some() {
            return Err(self.shape("a part too many", expected));
        }
        match volume {
            Some(name) if !is_name(name, VOLUME_NAME_MAX_BYTES) => {
                Err(self.part(name, "volume name", "1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'"))
            }
            volume => Ok(volume.map(Into::into)),
        }
    }

    fn shape(&self, problem: &'static str, expected: &'static str) -> UrlError {
        UrlError::Shape { url: self.url.into(), problem, expected }
    }

    fn part(&self, part: &str, what: &'static str, expected: &'static str) -> UrlError {
        UrlError::Part { url: self.url.into(), part: part.into(), what, expected }
    }
}

fn is_name(text: &str, max_bytes: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=max_bytes).contains(&text.len()) && text.bytes().all(is_allowed)
}
