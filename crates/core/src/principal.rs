//! Who asks: what a wire knows of the initiator of an I_T nexus.

use std::fmt;

use crate::id::ClientId;
use crate::net::HostAddress;

/// All that a wire knows of who is behind an I_T nexus. How much each part is worth differs: who decides by one says which.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Principal {
    /// Where it is: as true as the network makes it.
    pub address: Option<HostAddress>,
    /// Which client it is (HyperSCSI, HDSP, VISA): it has proved that by its static key. A wire by which that is not proved tells none.
    pub client: Option<ClientId>,
    /// What it calls itself (iSCSI): nobody proves that.
    pub initiator_name: Option<Box<str>>,
    /// Whom it has shown to be by CHAP (iSCSI).
    pub chap_user: Option<Box<str>>,
}

impl Principal {
    /// Whether both are the same one, perhaps at different addresses: where anything else is known of them, that counts.
    #[must_use]
    pub fn is_same_as(&self, other: &Principal) -> bool {
        let names = |of: &Principal| of.client.is_some() || of.initiator_name.is_some() || of.chap_user.is_some();
        (&self.client, &self.initiator_name, &self.chap_user)
            == (&other.client, &other.initiator_name, &other.chap_user)
            && (names(self) || self.address == other.address)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.client, &self.initiator_name) {
            (Some(client), _) => write!(f, "client {client}")?,
            (None, Some(name)) => write!(f, "initiator {name}")?,
            (None, None) if self.address.is_none() => f.write_str("somebody")?,
            (None, None) => f.write_str("host")?,
        }
        if let Some(user) = &self.chap_user {
            write!(f, " (user {user})")?;
        }
        match &self.address {
            Some(address) if self.client.is_none() && self.initiator_name.is_none() => write!(f, " {address}"),
            Some(address) => write!(f, " at {address}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::MacAddress;

    #[test]
    fn a_client_is_the_same_one_wherever_it_is_and_a_host_only_where_it_is() {
        let at = |host: u8| Principal { address: Some(MacAddress([host; 6]).into()), ..Principal::default() };
        let client = |host, id: u8| Principal { client: Some(ClientId([id; 16])), ..at(host) };
        assert!(client(1, 7).is_same_as(&client(2, 7)) && !client(1, 7).is_same_as(&client(1, 8)));
        assert!(at(1).is_same_as(&at(1)) && !at(1).is_same_as(&at(2)) && !at(1).is_same_as(&client(1, 7)));
        let named = |user: Option<&str>| Principal {
            initiator_name: Some("iqn.2026-11.org.example:a".into()),
            chap_user: user.map(Into::into),
            ..at(1)
        };
        assert!(!named(None).is_same_as(&named(Some("alice"))), "the name alone proves nothing");
    }

    #[test]
    fn people_read_who_it_is_and_where() {
        let address = Some(HostAddress::Ip("192.0.2.1".parse().unwrap()));
        assert_eq!(Principal::default().to_string(), "somebody");
        assert_eq!(Principal { address, ..Principal::default() }.to_string(), "host 192.0.2.1");
        let (initiator_name, chap_user) = (Some("iqn.2026-11.org.example:a".into()), Some("alice".into()));
        let initiator = Principal { address, initiator_name, chap_user, ..Principal::default() };
        assert_eq!(initiator.to_string(), "initiator iqn.2026-11.org.example:a (user alice) at 192.0.2.1");
    }
}
