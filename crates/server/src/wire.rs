//! Where a server listens, as people write it: `WORD:IF`, `WORD:ADDR[:PORT]` or `WORD:ADDR[:PORT][,TAG][,path=PATH]`. Which words there
//! are stands in the table of the front ends.

mod parsing;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use crate::channel::PortalPath;
use crate::front::{PROTOCOLS, WIRE_DEFAULT, WIRES};

/// The portal group of a portal for which none is said.
const GROUP_TAG_DEFAULT: u16 = 1;

/// A kind of wire.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct WireKind {
    /// What people write before the colon.
    pub(crate) word: &'static str,
    /// The scheme of its URLs.
    pub(crate) scheme: &'static str,
    pub(crate) carrier: Carrier,
    /// The wire that is served besides at the same address.
    pub(crate) also: Option<&'static str>,
    /// The place of its front end in each shard.
    pub(crate) front: u8,
    /// Who else may have taken its port.
    pub(crate) listener: &'static str,
    /// Whether those who use it are clients with ids.
    pub(crate) is_for_clients: bool,
    /// Whether volumes have addresses of their own there, with a shelf and a slot.
    pub(crate) has_shelves: bool,
    /// Whether volumes have addresses of their own there, of one byte.
    pub(crate) has_disk_addresses: bool,
}

/// What a wire goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    /// Packets on raw Ethernet; the word at byte `word_at` says which shard they are for.
    Ethernet {
        ethertype: u16,
        word_at: usize,
        /// What answers have set in their first byte, where they can be told from requests.
        answer_bits: u8,
        /// What packets bring is kept in the memory that they came into, where there is such.
        keeps_packets: bool,
    },
    /// Packets over UDP.
    Datagrams {
        /// That for which none is said.
        port: u16,
        /// IP may take them apart.
        may_fragment: bool,
    },
    /// Connections over TCP, in portal groups.
    Streams {
        port: u16,
        /// They are RDMA, which goes over TCP or by an adapter: iSER.
        is_rdma: bool,
    },
}

impl WireKind {
    /// Whether its connections are RDMA.
    pub(crate) fn is_rdma(&self) -> bool {
        matches!(self.carrier, Carrier::Streams { is_rdma: true, .. })
    }
}

/// How the packets of a raw Ethernet wire are to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ReceiveChoice {
    /// By AF_XDP where the network card puts packets into our memory itself and they are kept there, else by AF_PACKET, which is faster
    /// than copying there.
    #[default]
    Automatic,
    /// By AF_XDP wherever that works at all.
    Xdp,
    /// By AF_PACKET.
    Packet,
}

impl ReceiveChoice {
    /// As they are written.
    const WORDS: [(&'static str, ReceiveChoice); 3] =
        [("auto", ReceiveChoice::Automatic), ("xdp", ReceiveChoice::Xdp), ("packet", ReceiveChoice::Packet)];
}

/// One wire of a server. Made by `parse` from what people write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wire {
    kind: &'static WireKind,
    place: Place,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Interface(String, ReceiveChoice),
    Address(SocketAddr),
    /// A network portal, and the tag of its group (RFC 7143 4.3.1): portals through which one session may have connections.
    Portal(SocketAddr, u16, PortalPath),
}

impl Wire {
    /// Where it listens and the tag of its group, if it takes connections.
    #[must_use]
    pub fn portal(&self) -> Option<(SocketAddr, u16)> {
        match self.place {
            Place::Portal(address, group_tag, _) => Some((address, group_tag)),
            Place::Interface(..) | Place::Address(_) => None,
        }
    }

    /// The address that it binds, over IP.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self.place {
            Place::Address(address) | Place::Portal(address, ..) => Some(address),
            Place::Interface(..) => None,
        }
    }

    /// The network interface, on raw Ethernet.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match &self.place {
            Place::Interface(interface, _) => Some(interface),
            Place::Address(_) | Place::Portal(..) => None,
        }
    }

    /// The same wire at another address; with port 0, where the kernel chooses. One without an address stays as it is.
    #[must_use]
    pub fn at(self, address: SocketAddr) -> Wire {
        let place = match self.place {
            Place::Address(_) => Place::Address(address),
            Place::Portal(_, group_tag, path) => Place::Portal(address, group_tag, path),
            place @ Place::Interface(..) => place,
        };
        Wire { place, ..self }
    }

    /// What people call its protocol.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        PROTOCOLS[usize::from(self.kind.front)]
    }

    /// The scheme of the URLs by which clients find what is served here.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.kind.scheme
    }

    /// The port that URLs need not name.
    #[must_use]
    pub fn usual_port(&self) -> Option<u16> {
        match self.kind.carrier {
            Carrier::Ethernet { .. } => None,
            Carrier::Datagrams { port, .. } | Carrier::Streams { port, .. } => Some(port),
        }
    }

    /// What answers have set in their first byte, and whether packets are kept where they came, on raw Ethernet.
    pub(crate) fn arrivals(&self) -> Option<(u8, bool)> {
        match self.kind.carrier {
            Carrier::Ethernet { answer_bits, keeps_packets, .. } => Some((answer_bits, keeps_packets)),
            Carrier::Datagrams { .. } | Carrier::Streams { .. } => None,
        }
    }

    /// How its packets are to come, on raw Ethernet.
    pub(crate) fn receive_choice(&self) -> Option<ReceiveChoice> {
        match self.place {
            Place::Interface(_, choice) => Some(choice),
            Place::Address(_) | Place::Portal(..) => None,
        }
    }

    /// The EtherType of its packets, on raw Ethernet.
    pub(crate) fn ethertype(&self) -> Option<u16> {
        match self.kind.carrier {
            Carrier::Ethernet { ethertype, .. } => Some(ethertype),
            Carrier::Datagrams { .. } | Carrier::Streams { .. } => None,
        }
    }

    /// Where its packets say which shard they are for, on raw Ethernet.
    pub(crate) fn word_at(&self) -> Option<usize> {
        match self.kind.carrier {
            Carrier::Ethernet { word_at, .. } => Some(word_at),
            Carrier::Datagrams { .. } | Carrier::Streams { .. } => None,
        }
    }

    /// Whether those who use it are clients with ids, who show who they are and guard what they send: whatever holds for clients holds
    /// there.
    #[must_use]
    pub fn is_for_clients(&self) -> bool {
        self.kind.is_for_clients
    }

    /// Whether its connections are RDMA.
    #[must_use]
    pub fn is_rdma(&self) -> bool {
        self.kind.is_rdma()
    }

    /// By what its connections come, if it takes any.
    pub(crate) fn portal_path(&self) -> PortalPath {
        match self.place {
            Place::Portal(_, _, path) => path,
            Place::Address(_) | Place::Interface(..) => PortalPath::Tcp,
        }
    }

    /// Whether its connections come by an RDMA adapter of this host.
    #[must_use]
    pub fn is_by_adapter(&self) -> bool {
        self.portal_path() == PortalPath::Rdma
    }

    /// Whether it has iSCSI targets, in portal groups.
    #[must_use]
    pub fn has_targets(&self) -> bool {
        self.portal().is_some() && !self.kind.is_for_clients
    }

    /// The wire that is served besides, at the same address: over TCP what is spoken over UDP.
    #[must_use]
    pub fn also(&self) -> Option<Wire> {
        let kind = WIRES.iter().find(|kind| Some(kind.word) == self.kind.also)?;
        Some(Wire { kind, place: Place::Portal(self.address()?, GROUP_TAG_DEFAULT, PortalPath::Tcp) })
    }

    /// Whether IP may take its packets apart.
    pub(crate) fn may_fragment(&self) -> bool {
        matches!(self.kind.carrier, Carrier::Datagrams { may_fragment: true, .. })
    }

    /// Whether its targets are found by their addresses, for which volumes have keys.
    #[must_use]
    pub fn has_shelves(&self) -> bool {
        self.kind.has_shelves
    }

    /// Whether its volumes are found by disk addresses, for which they have a key.
    #[must_use]
    pub fn has_disk_addresses(&self) -> bool {
        self.kind.has_disk_addresses
    }

    /// What kind of wire it is.
    pub(crate) fn kind(&self) -> &'static WireKind {
        self.kind
    }

    /// The place of its front end in each shard.
    pub(crate) fn front(&self) -> u8 {
        self.kind.front
    }

    /// What to do about a port that another program has, for messages.
    pub(crate) fn port_advice(&self) -> String {
        let WireKind { word, listener, .. } = self.kind;
        let Some(address) = self.address() else { return String::new() };
        format!("; is another {listener} running on {address}? choose another port with {word}:{}:PORT", address.ip())
    }
}

impl Default for Wire {
    /// On this host alone: what needs no root.
    fn default() -> Self {
        let wire = Wire { kind: WIRE_DEFAULT, place: Place::Interface(String::new(), ReceiveChoice::Automatic) };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, wire.usual_port().unwrap_or_default()));
        Wire { place: Place::Address(address), ..wire }
    }
}

/// Why a text is not a wire.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// Not one of the wires.
    #[error("'{0}' is no wire: use {known}", known = known())]
    Unknown(String),
    /// Not the name of an interface.
    #[error("'{0}' is no network interface: use its name as `ip link` shows it, like eth0")]
    Interface(String),
    /// Not a way for packets to come.
    #[error(
        "'{0}' says nothing of an interface: use path=auto, path=xdp or path=packet behind its name, as in eth0,path=xdp"
    )]
    Path(String),
    /// Not an address.
    #[error("'{0}' is no address to listen on: use an IPv4 address, or IPv6 in brackets, and perhaps :PORT")]
    Address(String),
    /// Not by what connections are to come.
    #[error(
        "'{0}' says nothing of a portal: use path=tcp or path=rdma (by an RDMA adapter), as in iser:192.0.2.1,path=rdma"
    )]
    PortalPath(String),
    /// RDMA for what is no RDMA.
    #[error("{0}: connections go over TCP alone; path=rdma is for iser:")]
    NoRdma(&'static str),
    /// Not the tag of a portal group.
    #[error("'{0}' is no tag of a portal group: use a number from 1 to 65535 behind the address, as in 192.0.2.1,2")]
    GroupTag(String),
}

/// The wires that there are, for messages.
fn known() -> String {
    let usages = WIRES.iter().map(|WireKind { word, carrier, .. }| match carrier {
        Carrier::Ethernet { .. } => format!("{word}:IF (like {word}:eth0)"),
        Carrier::Datagrams { port, .. } | Carrier::Streams { port, .. } => {
            format!("{word}:ADDR[:{port}] (like {word}:0.0.0.0)")
        }
    });
    let usages: Vec<String> = usages.collect();
    let (last, others) = usages.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
    format!("{} or {last}", others.join(", "))
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.kind.word;
        match &self.place {
            Place::Interface(interface, ReceiveChoice::Automatic) => write!(f, "{word}:{interface}"),
            Place::Interface(interface, choice) => {
                let path =
                    ReceiveChoice::WORDS.iter().find(|(_, known)| known == choice).map_or("auto", |(word, _)| word);
                write!(f, "{word}:{interface},path={path}")
            }
            Place::Address(address) => write!(f, "{word}:{address}"),
            Place::Portal(address, group_tag, path) => {
                write!(f, "{word}:{address}")?;
                if *group_tag != GROUP_TAG_DEFAULT {
                    write!(f, ",{group_tag}")?;
                }
                f.write_str(if *path == PortalPath::Rdma { ",path=rdma" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wires_are_read_and_written_again() {
        for (text, canonical) in [
            ("hs-eth:eth0", "hs-eth:eth0"),
            ("hs-eth:eth0,path=auto", "hs-eth:eth0"),
            ("hdsp:eth0,path=xdp", "hdsp:eth0,path=xdp"),
            ("aoe:eth0,path=packet", "aoe:eth0,path=packet"),
            ("hs-ip:127.0.0.1", "hs-ip:127.0.0.1:5674"),
            ("hs-ip:0.0.0.0:99", "hs-ip:0.0.0.0:99"),
            ("hs-ip:[::1]", "hs-ip:[::1]:5674"),
            ("hs-ip:[::]:7", "hs-ip:[::]:7"),
            ("iscsi:10.0.0.1", "iscsi:10.0.0.1:3260"),
            ("iscsi:[::1],1", "iscsi:[::1]:3260"),
            ("iscsi:[::]:99,2", "iscsi:[::]:99,2"),
            ("iser:10.0.0.1", "iser:10.0.0.1:3260"),
            ("iser:[::]:99,2", "iser:[::]:99,2"),
            ("iser:10.0.0.1,path=tcp", "iser:10.0.0.1:3260"),
            ("iser:10.0.0.1,path=rdma", "iser:10.0.0.1:3260,path=rdma"),
            ("iser:[::]:99,2,path=rdma", "iser:[::]:99,2,path=rdma"),
            ("iscsi:10.0.0.1,2,path=tcp", "iscsi:10.0.0.1:3260,2"),
            ("aoe:eth0", "aoe:eth0"),
            ("hdsp:eth0", "hdsp:eth0"),
            ("visa:10.0.0.1", "visa:10.0.0.1:5675"),
            ("visa-tcp:[::1]", "visa-tcp:[::1]:5675"),
        ] {
            assert_eq!(text.parse::<Wire>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, part) in [
            ("eth0", "use hs-eth:IF (like hs-eth:eth0), hs-ip:ADDR[:5674] (like hs-ip:0.0.0.0), iscsi:ADDR[:3260]"),
            ("eth0", "(like iscsi:0.0.0.0), iser:ADDR[:3260] (like iser:0.0.0.0), aoe:IF"),
            (
                "eth0",
                "aoe:IF (like aoe:eth0), hdsp:IF (like hdsp:eth0), visa:ADDR[:5675] (like visa:0.0.0.0) or visa-tcp",
            ),
            ("aoe:", "'' is no network interface"),
            ("tcp:1.2.3.4", "'tcp:1.2.3.4' is no wire"),
            ("hs-eth:", "'' is no network interface"),
            ("hs-eth:much-too-long-name", "is no network interface"),
            ("hs-ip:", "'' is no address to listen on"),
            ("hs-ip:localhost", "IPv6 in brackets"),
            ("hs-ip:::1", "IPv6 in brackets"),
            ("hs-ip:1.2.3.4:0", "is no address"),
            ("hs-ip:1.2.3.4:x", "is no address"),
            ("iscsi:localhost", "IPv6 in brackets"),
            ("iscsi:1.2.3.4,0", "'0' is no tag of a portal group"),
            ("iscsi:1.2.3.4,x", "a number from 1 to 65535"),
            ("iser:1.2.3.4,path=xdp", "'path=xdp' says nothing of a portal: use path=tcp or path=rdma"),
            ("iser:1.2.3.4,path=rdma,2", "'path=rdma,2' says nothing of a portal"),
            ("iser:1.2.3.4,0,path=rdma", "'0' is no tag of a portal group"),
            ("iscsi:1.2.3.4,path=rdma", "iscsi: connections go over TCP alone; path=rdma is for iser:"),
            ("visa-tcp:1.2.3.4,path=rdma", "visa-tcp: connections go over TCP alone"),
        ] {
            let message = text.parse::<Wire>().expect_err(text).to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
