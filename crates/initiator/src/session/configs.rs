//! What a client brings to a connection, in the words of the protocols.

use std::io;

use sanwire_core::limits::{COMMANDS_IN_TRANSIT_MAX, HYPERSCSI_TRANSFER_MAX_BYTES};
use sanwire_hyperscsi::{ClientConfig, LinkLimits};
use sanwire_iscsi::{ClientConfig as IscsiConfig, Credential, IscsiName, Isid};

use sanwire_scsi::reservation::TransportId;

use super::iscsi::Way;
use super::table::{ISCSI, ISER};
use crate::endpoint::{self, ConnectError};
use crate::options::{ClientOptions, IserPath, no_randomness};
use crate::ports::EVERYWHERE;
use crate::random;
use crate::url::IscsiServer;

/// Commands of one iSCSI session in transit; the target's window may be smaller.
const ISCSI_COMMANDS_MAX: u16 = 128;

impl ClientOptions {
    pub(crate) fn hyperscsi(&self, server_name: &str, link: LinkLimits) -> Result<ClientConfig, ConnectError> {
        Ok(ClientConfig {
            name: self.name.clone(),
            identity: self.identity.clone(),
            psk: self.psk,
            server_key: self.server_key,
            path: EVERYWHERE,
            server_name: server_name.to_owned(),
            link,
            commands_max: COMMANDS_IN_TRANSIT_MAX as u16,
            transfer_max_bytes: HYPERSCSI_TRANSFER_MAX_BYTES as u32,
            protection_min: self.protection_min,
            wishes: self.connection.clone(),
            recovery: self.recovery,
            connect_patience: self.connect_patience,
            reconnect_patience: self.reconnect_patience,
            seed: seed()?,
        })
    }

    /// What a session with a target of the host needs; without a target it is a discovery session.
    pub(crate) fn iscsi(&self, server: &IscsiServer, target: Option<IscsiName>) -> Result<IscsiConfig, ConnectError> {
        let credential = match (&server.user, &self.iscsi.secret) {
            (Some(user), Some(secret)) => Some(Credential { name: user.clone(), secret: secret.clone() }),
            (Some(user), None) => return Err(ConnectError::NoSecret { user: user.clone() }),
            (None, _) => None,
        };
        let service = if server.is_iser { ISER } else { ISCSI };
        Ok(IscsiConfig {
            initiator: self.initiator_name()?,
            isid: random_isid()?,
            target,
            portals: endpoint::addresses(&server.host, server.port, service, &self.name_servers)?,
            credential,
            target_credential: self.iscsi.target.clone(),
            wishes: self.iscsi.wishes,
            commands_max: ISCSI_COMMANDS_MAX,
            connect_patience: self.connect_patience,
            reconnect_patience: self.reconnect_patience,
            command_patience: self.iscsi.command_patience,
            seed: seed()?,
        })
    }

    /// By what sessions with a target of the host go.
    pub(crate) fn way(&self, server: &IscsiServer) -> Result<Way, ConnectError> {
        match self.iscsi.iser_path {
            _ if !server.is_iser => Ok(Way::Tcp),
            IserPath::Tcp => Ok(Way::Iwarp),
            IserPath::Rdma => {
                self.rdma.check().map_err(|source| ConnectError::NoRdma { source })?;
                Ok(Way::Adapter(self.rdma.clone()))
            }
        }
    }

    /// What servers call this client, by either wire.
    pub(crate) fn ports(&self) -> Result<Vec<TransportId>, ConnectError> {
        let hyperscsi = TransportId::hyperscsi(self.identity.client_id());
        let iscsi = TransportId::iscsi_device(self.initiator_name()?.as_str());
        Ok(iscsi.into_iter().chain([hyperscsi]).collect())
    }

    /// The name by which targets know this client.
    fn initiator_name(&self) -> Result<IscsiName, ConnectError> {
        match &self.iscsi.initiator {
            Some(name) => Ok(name.clone()),
            // A client id is hexadecimal: the name is always a legal one.
            None => format!("iqn.2026-11.org.sanwire:client-{}", self.identity.client_id())
                .parse()
                .map_err(|error| no_randomness(io::Error::other(error))),
        }
    }
}

/// A random qualifier for this process (RFC 7143 11.12.5, type 10b): two clients on one host are two initiator ports.
fn random_isid() -> Result<Isid, ConnectError> {
    let [a, b, c, d, e] = seed()?;
    Ok(Isid([0x80, a, b, c, d, e]))
}

fn seed<const N: usize>() -> Result<[u8; N], ConnectError> {
    random::bytes().map_err(no_randomness)
}
