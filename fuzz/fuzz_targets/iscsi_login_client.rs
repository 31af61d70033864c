//! An initiator's login, over TCP or by RDMA, and targets that keep no rule: it says little and never panics.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_core::Instant;
use sanwire_fuzz::iser_peer::{ByClient, Carriage, Driven, Peer, feed, message};
use sanwire_fuzz::login::{TARGET, pdu, text};
use sanwire_iscsi::wire::LoginResponse;
use sanwire_iscsi::{
    ChapSecret, Client, ClientAction, ClientConfig, ConnectionId, Credential, DesiredParameters, Isid,
};
use sanwire_iser::wire::HeaderForm;
use sanwire_iser::{initiator, initiator_by};
use sanwire_iwarp::Event;

const ISID: [u8; 6] = [0x80, 0, 0, 0, 0, 1];

fn config(u: &mut Unstructured<'_>) -> Result<ClientConfig> {
    let credential = |name: &str| Credential {
        name: name.into(),
        secret: ChapSecret::new(vec![b'x'; name.len() * 4]).expect("a long secret"),
    };
    let (has_user, is_mutual) = (u.arbitrary()?, u.arbitrary()?);
    Ok(ClientConfig {
        initiator: "iqn.2026-11.org.example:host".parse().expect("a name"),
        isid: Isid(ISID),
        target: u.ratio(3, 4)?.then(|| TARGET.parse().expect("a name")),
        portals: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 3260))],
        credential: bool::then(has_user, || credential("user")),
        target_credential: bool::then(is_mutual, || credential("target")),
        wishes: DesiredParameters {
            digests: u.arbitrary()?,
            error_recovery_level: u.int_in_range(0..=2)?,
            connections: 1,
        },
        commands_max: 8,
        connect_patience: Duration::from_secs(5),
        reconnect_patience: None,
        command_patience: None,
        seed: [3; 32],
    })
}

fn response(u: &mut Unstructured<'_>) -> Result<LoginResponse> {
    let is_refused = u.ratio(1, 12)?;
    Ok(LoginResponse {
        transits: u.arbitrary()?,
        continues: u.ratio(1, 8)?,
        current_stage: u.int_in_range(0..=1)?,
        next_stage: *u.choose(&[1, 3, 3, 0])?,
        isid: ISID,
        tsih: u16::from(u.ratio(7, 8)?),
        status_class: if is_refused { u.int_in_range(0..=4)? } else { 0 },
        status_detail: if is_refused { u.int_in_range(0..=12)? } else { 0 },
        max_command_number: 9,
        expected_command_number: 1,
        ..LoginResponse::default()
    })
}

/// A connection opens; gives who is at its other end, if that has RDMA.
fn open(
    u: &mut Unstructured<'_>,
    client: &mut Client,
    connection: ConnectionId,
    carriage: Option<Carriage>,
) -> Result<Option<Peer>> {
    if carriage == Some(Carriage::Adapter) {
        let (peer, end) = Peer::by_adapter(u, false)?;
        client.connected_over(connection, initiator_by(Box::new(end)), Instant::ZERO);
        return Ok(Some(peer));
    }
    client.connected(connection, Instant::ZERO);
    carriage.map(|_| Peer::over_stream(u, false)).transpose()
}

/// Everything arrives by RDMA; gives how much the client has said.
fn pass(peer: &mut Peer, ours: &mut ByClient<'_>) -> usize {
    let told = peer.pass(ours).into_iter();
    told.map(|event| if let Event::Message(message) = event { message.buffer.len() } else { 0 }).sum()
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let carriage = Carriage::any(u)?;
    let config = config(u)?;
    let mut client = match carriage {
        Some(_) => Client::over(initiator, config, Instant::ZERO),
        None => Client::new(config, Instant::ZERO),
    };
    let (mut connection, mut peer, mut said_bytes) = (None, None, 0);
    while !u.is_empty() {
        while let Some(action) = client.poll_action() {
            match action {
                ClientAction::Connect { connection: new, .. } => {
                    connection = Some(new);
                    peer = open(u, &mut client, new, carriage)?;
                }
                ClientAction::Close { connection: old } => connection = connection.filter(|id| *id != old),
            }
        }
        while client.poll_event().is_some() {}
        let Some(connection) = connection else { return Ok(()) };
        let mut ours = ByClient { client: &mut client, connection, now: Instant::ZERO };
        match &mut peer {
            Some(peer) => said_bytes += pass(peer, &mut ours),
            None => said_bytes += ours.sent().len(),
        }
        while ours.client.poll_ready().is_some() {}
        assert!(said_bytes < 1 << 22, "it talks without end");
        let said = if u.ratio(1, 12)? { u.arbitrary::<&[u8]>()?.to_vec() } else { pdu(response(u)?.write(), text(u)?) };
        match &mut peer {
            Some(peer) => {
                peer.send(message(u, HeaderForm::Rfc7145, &said)?, None);
                said_bytes += pass(peer, &mut ours);
            }
            None => {
                for piece in said.chunks(u.int_in_range(1..=400)?) {
                    feed(&mut ours, piece);
                }
            }
        }
    }
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(&mut Unstructured::new(input));
});
