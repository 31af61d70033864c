//! What the fuzz targets of iSCSI's login share: a guarded target, requests and texts near enough to legal ones.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use arbitrary::{Result, Unstructured};
use sanwire_core::Instant;
use sanwire_iscsi::wire::{Header, LoginRequest};
use sanwire_iscsi::{
    Authentication, ChapSecret, Credential, Datamover, Directory, IscsiName, LoginRefusal, Outbox, Portal,
    PortalCarrier, ServerLogin, TargetEntry, TargetId,
};

use crate::iser_peer::{Carriage, Driven};

/// The name of the target.
pub const TARGET: &str = "iqn.2026-11.org.sanwire:disk0";

/// The keys of a login, and some that are none.
const KEYS: [&str; 40] = [
    "InitiatorName",
    "InitiatorAlias",
    "TargetName",
    "SessionType",
    "AuthMethod",
    "CHAP_A",
    "CHAP_I",
    "CHAP_C",
    "CHAP_N",
    "CHAP_R",
    "HeaderDigest",
    "DataDigest",
    "MaxRecvDataSegmentLength",
    "MaxConnections",
    "InitialR2T",
    "ImmediateData",
    "MaxBurstLength",
    "FirstBurstLength",
    "DefaultTime2Wait",
    "DefaultTime2Retain",
    "MaxOutstandingR2T",
    "DataPDUInOrder",
    "DataSequenceInOrder",
    "ErrorRecoveryLevel",
    "iSCSIProtocolLevel",
    "TaskReporting",
    "IFMarker",
    "OFMarkInt",
    "TargetAlias",
    "TargetAddress",
    "TargetPortalGroupTag",
    "SendTargets",
    "X-org.example.key",
    "RDMAExtensions",
    "InitiatorRecvDataSegmentLength",
    "TargetRecvDataSegmentLength",
    "iSERHelloRequired",
    "MaxOutstandingUnexpectedPDUs",
    "MaxAHSLength",
    "TaggedBufferForSolicitedDataOnly",
];

const VALUES: [&str; 26] = [
    "Yes",
    "No",
    "None",
    "CHAP",
    "CHAP,None",
    "None,CHAP",
    "CRC32C",
    "CRC32C,None",
    "8,7,6,5",
    "5",
    "0x5",
    "0bBQ==",
    "0",
    "1",
    "255",
    "256",
    "8192",
    "0xffffff",
    "16777216",
    "RFC3720",
    "Normal",
    "Discovery",
    "user",
    "Reject",
    "NotUnderstood",
    "Irrelevant",
];

/// A server with one target, which wants to know its users, or takes everybody.
pub struct OneTarget {
    /// Who must be shown.
    pub authentication: Authentication,
}

impl OneTarget {
    /// A guarded target, whose secrets no input contains, or an open one.
    pub fn new(is_guarded: bool, seed: [u8; 32]) -> Self {
        let credential = |name: &str, mark: u8| {
            let secret = ChapSecret::new(seed.iter().map(|byte| byte ^ mark).collect()).expect("a long secret");
            Credential { name: name.into(), secret }
        };
        let users = if is_guarded { vec![credential("user", 0x5a)] } else { vec![] };
        let mutual = Some(credential("target", 0xa5));
        OneTarget { authentication: Authentication { users, mutual, ..Authentication::default() } }
    }
}

impl Directory for OneTarget {
    fn target(
        &self,
        name: &IscsiName,
        _: &IscsiName,
        _: IpAddr,
        _: &Portal,
    ) -> std::result::Result<TargetEntry, LoginRefusal> {
        let (id, authentication) = (TargetId(0), self.authentication.clone());
        let entry = TargetEntry { id, alias: "a disk".into(), authentication, requires_digests: false, redirect: None };
        if name.as_str() == TARGET { Ok(entry) } else { Err(LoginRefusal::NotFound) }
    }

    fn permits_user(&self, _: TargetId, _: (&IscsiName, IpAddr), _: &str) -> bool {
        true
    }

    fn discovery_authentication(&self, _: &IscsiName, _: IpAddr) -> std::result::Result<Authentication, LoginRefusal> {
        Ok(self.authentication.clone())
    }

    fn visible(&self, _: &IscsiName, _: IpAddr, _: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        vec![]
    }
}

/// For servers whose sessions are already there: no target, but names that discovery lists.
pub struct NoTarget {
    /// How many are listed.
    pub listed: usize,
}

impl Directory for NoTarget {
    fn target(
        &self,
        _: &IscsiName,
        _: &IscsiName,
        _: IpAddr,
        _: &Portal,
    ) -> std::result::Result<TargetEntry, LoginRefusal> {
        Err(LoginRefusal::NotFound)
    }

    fn permits_user(&self, _: TargetId, _: (&IscsiName, IpAddr), _: &str) -> bool {
        true
    }

    fn discovery_authentication(&self, _: &IscsiName, _: IpAddr) -> std::result::Result<Authentication, LoginRefusal> {
        Ok(Authentication::default())
    }

    fn visible(&self, _: &IscsiName, _: IpAddr, _: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        let name = |number| format!("iqn.2026-11.org.sanwire:disk{number}").parse().expect("a legal name");
        (0..self.listed).map(|number| (name(number), vec!["192.0.2.1:3260,1".into()])).collect()
    }
}

/// A login that begins, over plain TCP.
pub fn server(seed: [u8; 32]) -> ServerLogin {
    ServerLogin::new(portal(PortalCarrier::Tcp), Ipv4Addr::LOCALHOST.into(), seed, Instant::ZERO)
}

/// The same by RDMA.
pub fn server_over(mover: Box<dyn Datamover>, carriage: Carriage, seed: [u8; 32]) -> ServerLogin {
    let carrier = if carriage == Carriage::Stream { PortalCarrier::Iwarp } else { PortalCarrier::Adapter };
    ServerLogin::over(mover, portal(carrier), Ipv4Addr::LOCALHOST.into(), seed, Instant::ZERO)
}

fn portal(carrier: PortalCarrier) -> Portal {
    Portal { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 3260)), group_tag: 1, carrier }
}

/// A login at a target, as its driver has it.
pub struct AtTarget<'a> {
    /// The login.
    pub login: &'a mut ServerLogin,
    /// Whose it is.
    pub directory: &'a OneTarget,
}

impl Driven for AtTarget<'_> {
    fn sent(&mut self) -> Vec<u8> {
        std::iter::from_fn(|| self.login.poll_transmit()).flat_map(|packet| packet.to_vec()).collect()
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        self.login.handle_input(bytes, self.directory, Instant::ZERO);
        bytes.len()
    }

    fn ready(&mut self) {
        self.login.handle_ready(self.directory, Instant::ZERO);
    }
}

/// A PDU as it is on the wire.
pub fn pdu(header: Header, text: Vec<u8>) -> Vec<u8> {
    let mut outbox = Outbox::default();
    outbox.push(header, Some(text.into()));
    let mut bytes = Vec::new();
    while let Some(packet) = outbox.pop() {
        bytes.extend_from_slice(&packet.head);
        bytes.extend_from_slice(packet.payload.as_deref().unwrap_or(&[]));
    }
    bytes
}

/// All that a login sends, which must not be much.
pub fn sent(server: &mut ServerLogin) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(packet) = server.poll_transmit() {
        bytes.extend_from_slice(&packet.head);
        bytes.extend_from_slice(packet.payload.as_deref().unwrap_or(&[]));
    }
    bytes
}

/// Some value of a key.
pub fn value(u: &mut Unstructured<'_>) -> Result<String> {
    Ok(match u.int_in_range(0..=3u8)? {
        0..=2 => (*u.choose(&VALUES)?).to_owned(),
        _ => u.arbitrary::<&str>()?.to_owned(),
    })
}

/// Some pairs.
pub fn text(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for _ in 0..u.int_in_range(0..=8)? {
        let (key, value) = (u.choose(&KEYS)?, value(u)?);
        text.extend_from_slice(format!("{key}={value}\0").as_bytes());
    }
    Ok(text)
}

/// A request that is mostly legal.
pub fn request(u: &mut Unstructured<'_>) -> Result<LoginRequest> {
    let current_stage = u.int_in_range(0..=1)?;
    let wild = u.ratio(1, 16)?;
    Ok(LoginRequest {
        is_immediate: true,
        transits: u.arbitrary()?,
        continues: u.ratio(1, 8)?,
        current_stage: if wild { u.int_in_range(0..=3)? } else { current_stage },
        next_stage: if wild { u.int_in_range(0..=3)? } else { *u.choose(&[1, 3])? },
        tsih: if wild { u.arbitrary()? } else { 0 },
        ..LoginRequest::default()
    })
}
