//! Portals of a target that are spoken to in another way than the one at which it is asked.
//!
//! An answer to SendTargets does not say how a portal is spoken to (RFC 7143 appendix C), so initiators are told only of those that are like
//! theirs. Who can do more asks for the others too, by a key of our own (RFC 7143 6.2, 13.22): [`ASKS`] stands beside SendTargets. A target
//! that knows it answers it, and tells of each other portal behind the addresses of its target ([`TELLS`]). Any other one answers
//! NotUnderstood, or not at all.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::login::{Directory, Portal, PortalCarrier};
use crate::name::IscsiName;

/// By which other portals are asked for, and by which it is answered that they are told: `Yes`.
pub(crate) const ASKS: &str = "X-org.sanwire.OtherPortals";

/// By which each of them is told.
pub(crate) const TELLS: &str = "X-org.sanwire.OtherPortal";

/// What carries the connections of portals, in words.
const CARRIERS: [(PortalCarrier, &str); 3] =
    [(PortalCarrier::Tcp, "iscsi"), (PortalCarrier::Iwarp, "iser"), (PortalCarrier::Adapter, "iser-rdma")];

/// Such a portal of a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherPortal {
    /// What carries the connections that come there.
    pub carrier: PortalCarrier,
    /// Where it is (`HOST:PORT`).
    pub address: String,
    /// Its portal group tag.
    pub group_tag: u16,
}

impl fmt::Display for OtherPortal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = CARRIERS.iter().find(|(carrier, _)| *carrier == self.carrier).map_or("", |(_, word)| word);
        write!(f, "{word}:{},{}", self.address, self.group_tag)
    }
}

impl OtherPortal {
    /// One as it was told; `None` of a kind that is not known here.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (word, place) = text.split_once(':')?;
        let (carrier, _) = CARRIERS.iter().find(|(_, known)| *known == word)?;
        let (address, group_tag) = of_address(place);
        Some(OtherPortal { carrier: *carrier, address: address.to_owned(), group_tag })
    }
}

/// A portal's address (`HOST:PORT,TAG`) without its tag, and that.
pub(crate) fn of_address(text: &str) -> (&str, u16) {
    let (address, tag) = text.rsplit_once(',').unwrap_or((text, "1"));
    (address, tag.parse().unwrap_or(1))
}

/// The other portals of all targets that an initiator may know of, by their names.
pub(crate) fn others(
    directory: &dyn Directory,
    (initiator, peer): (&IscsiName, IpAddr),
    asked: &Portal,
) -> BTreeMap<IscsiName, Vec<OtherPortal>> {
    let mut found: BTreeMap<IscsiName, Vec<OtherPortal>> = BTreeMap::new();
    for (carrier, _) in CARRIERS.into_iter().filter(|(carrier, _)| *carrier != asked.carrier) {
        for (name, addresses) in directory.visible(initiator, peer, &Portal { carrier, ..*asked }) {
            let portals = addresses.iter().map(|address| {
                let (address, group_tag) = of_address(address);
                OtherPortal { carrier, address: address.to_owned(), group_tag }
            });
            found.entry(name).or_default().extend(portals);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_comes_back_as_it_was_told() {
        for text in ["iscsi:10.0.0.1:3260,1", "iser:[2001:db8::1]:3261,65535", "iser-rdma:10.0.0.1:3260,2"] {
            assert!(OtherPortal::read(text).is_some_and(|portal| portal.to_string() == text), "{text}");
        }
        for text in ["", "iser", "nvme:10.0.0.1:4420,1", "10.0.0.1:3260,1"] {
            assert!(OtherPortal::read(text).is_none(), "{text}");
        }
    }
}
