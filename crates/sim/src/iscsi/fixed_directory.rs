//! Who is who: names, secrets, and the directory of targets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use sanwire_iscsi::{
    Authentication, ChapSecret, Credential, Directory, ISCSI_PORT, IscsiName, LoginRefusal, Portal, PortalCarrier,
    TargetEntry, TargetId,
};
use sanwire_scsi::vpd::TargetPort;

/// Where the server is.
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

const TARGET: &str = "iqn.2026-11.org.sanwire:simulated";

/// What clients call themselves by CHAP.
const CLIENT_USER: &str = "client";

/// The server's only portal.
#[must_use]
pub fn portal() -> Portal {
    Portal { address: SocketAddr::new(SERVER, ISCSI_PORT), group_tag: 1, carrier: PortalCarrier::Tcp }
}

/// The target's port.
#[must_use]
pub fn target_port() -> TargetPort {
    TargetPort {
        relative_id: 2,
        group: 1,
        port_name: Some(format!("{TARGET},t,0x0001")),
        device_name: Some(TARGET.to_owned()),
    }
}

/// The name of the target.
///
/// # Errors
/// When it is no name.
pub fn target_name() -> Result<IscsiName, String> {
    TARGET.parse().map_err(|error| format!("{error}"))
}

/// The name of a client.
///
/// # Errors
/// When it is no name.
pub fn client_name(client: usize) -> Result<IscsiName, String> {
    format!("iqn.2026-11.org.sanwire:client{client}").parse().map_err(|error| format!("{error}"))
}

/// What a client shows.
///
/// # Errors
/// When its secret is none.
pub fn client_credential() -> Result<Credential, String> {
    credential(CLIENT_USER, "a secret of clients")
}

/// What the target shows.
///
/// # Errors
/// When its secret is none.
pub fn target_credential() -> Result<Credential, String> {
    credential("target", "the target's secret")
}

fn credential(name: &str, secret: &str) -> Result<Credential, String> {
    let secret = ChapSecret::new(secret.into()).map_err(|error| error.to_string())?;
    Ok(Credential { name: name.to_owned(), secret })
}

/// One target for all.
#[derive(Debug)]
pub struct FixedDirectory {
    /// Both ends must show who they are.
    pub has_chap: bool,
}

impl FixedDirectory {
    fn authentication(&self) -> Authentication {
        match self.has_chap {
            true => Authentication {
                users: client_credential().into_iter().collect(),
                mutual: target_credential().ok(),
                algorithms: Vec::new(),
            },
            false => Authentication::default(),
        }
    }
}

impl Directory for FixedDirectory {
    fn target(&self, name: &IscsiName, _: &IscsiName, _: IpAddr, _: &Portal) -> Result<TargetEntry, LoginRefusal> {
        if name.as_str() != TARGET {
            return Err(LoginRefusal::NotFound);
        }
        Ok(TargetEntry {
            id: TargetId(1),
            alias: String::new(),
            authentication: self.authentication(),
            requires_digests: false,
            redirect: None,
        })
    }

    fn permits_user(&self, _: TargetId, _: (&IscsiName, IpAddr), user: &str) -> bool {
        user == CLIENT_USER
    }

    fn discovery_authentication(&self, _: &IscsiName, _: IpAddr) -> Result<Authentication, LoginRefusal> {
        Ok(self.authentication())
    }

    fn visible(&self, _: &IscsiName, _: IpAddr, _: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        Vec::new()
    }
}
