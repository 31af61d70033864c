//! An initiator's login and targets that keep no rule: it says little and never panics.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_core::Instant;
use sanwire_fuzz::login::{TARGET, pdu, text};
use sanwire_iscsi::wire::LoginResponse;
use sanwire_iscsi::{
    ChapSecret, Client, ClientAction, ClientConfig, ConnectionId, Credential, DesiredParameters, Isid,
};

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

/// Puts bytes where the client wants them.
fn give(client: &mut Client, connection: ConnectionId, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let mut count = 0;
        for space in client.spaces(connection) {
            let length = space.len().min(bytes.len());
            space[..length].copy_from_slice(&bytes[..length]);
            (bytes, count) = (&bytes[length..], count + length);
        }
        if count == 0 {
            return;
        }
        client.filled(connection, count, Instant::ZERO);
    }
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut client = Client::new(config(u)?, Instant::ZERO);
    let (mut connection, mut said_bytes) = (None, 0);
    while !u.is_empty() {
        while let Some(action) = client.poll_action() {
            match action {
                ClientAction::Connect { connection: new, .. } => {
                    connection = Some(new);
                    client.connected(new, Instant::ZERO);
                }
                ClientAction::Close { connection: old } => connection = connection.filter(|id| *id != old),
            }
        }
        while client.poll_event().is_some() {}
        while client.poll_ready().is_some() {}
        let Some(connection) = connection else { return Ok(()) };
        while let Some(packet) = client.poll_transmit(connection) {
            said_bytes += packet.length_bytes();
        }
        assert!(said_bytes < 1 << 22, "it talks without end");
        let stream =
            if u.ratio(1, 12)? { u.arbitrary::<&[u8]>()?.to_vec() } else { pdu(response(u)?.write(), text(u)?) };
        for piece in stream.chunks(u.int_in_range(1..=400)?) {
            give(&mut client, connection, piece);
        }
    }
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(&mut Unstructured::new(input));
});
