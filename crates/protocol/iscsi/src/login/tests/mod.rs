//! Both ends of a login against each other, and hostile ends.

mod agreement;
mod chap;
mod foreign;
mod hostile;
mod property;
mod stages;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use sanwire_buffer::Frame;
use sanwire_core::Instant;

use super::*;
use crate::chap::ChapSecret;
use crate::client::{ClientConfig, DesiredParameters, Failure};
use crate::outbox::Outbox;
use crate::receiver::{Destination, Receiver, Step};
use crate::serial::Serial;
use crate::wire::{Header, LoginRequest, LoginResponse};

const TARGET: &str = "iqn.2026-11.org.sanwire:disk0";
const INITIATOR: &str = "iqn.2026-11.org.example:host";

/// A server with one target.
#[derive(Clone)]
struct OneTarget {
    entry: TargetEntry,
    refusal: Option<LoginRefusal>,
    discovery: Authentication,
    forbids_user: bool,
}

impl Default for OneTarget {
    fn default() -> Self {
        let authentication = Authentication::default();
        let entry = TargetEntry {
            id: TargetId(3),
            alias: "a disk".to_owned(),
            authentication: authentication.clone(),
            requires_digests: false,
            redirect: None,
        };
        OneTarget { entry, refusal: None, discovery: authentication, forbids_user: false }
    }
}

impl Directory for OneTarget {
    fn target(&self, name: &IscsiName, _: &IscsiName, _: IpAddr, _: &Portal) -> Result<TargetEntry, LoginRefusal> {
        match self.refusal {
            Some(refusal) => Err(refusal),
            None if name.as_str() == TARGET => Ok(self.entry.clone()),
            None => Err(LoginRefusal::NotFound),
        }
    }

    fn permits_user(&self, _: TargetId, _: (&IscsiName, IpAddr), _: &str) -> bool {
        !self.forbids_user
    }

    fn discovery_authentication(&self, _: &IscsiName, _: IpAddr) -> Result<Authentication, LoginRefusal> {
        self.refusal.map_or_else(|| Ok(self.discovery.clone()), Err)
    }

    fn visible(&self, _: &IscsiName, _: IpAddr, _: &Portal) -> Vec<(IscsiName, Vec<String>)> {
        vec![]
    }
}

fn credential(name: &str, secret: &str) -> Credential {
    Credential { name: name.to_owned(), secret: ChapSecret::new(secret.as_bytes().to_vec()).unwrap() }
}

fn config() -> ClientConfig {
    ClientConfig {
        initiator: INITIATOR.parse().unwrap(),
        isid: Isid([0x80, 1, 2, 3, 4, 5]),
        target: Some(TARGET.parse().unwrap()),
        portals: vec![],
        credential: None,
        target_credential: None,
        wishes: DesiredParameters { digests: false, error_recovery_level: 0, connections: 1 },
        commands_max: 32,
        connect_patience: Duration::ZERO,
        reconnect_patience: None,
        command_patience: None,
        seed: [0; 32],
    }
}

fn server_with_seed(seed: u8) -> ServerLogin {
    let portal =
        Portal { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 3260)), group_tag: 7, carrier: PortalCarrier::Tcp };
    ServerLogin::new(portal, Ipv4Addr::LOCALHOST.into(), [seed; 32], Instant::ZERO)
}

fn plan(config: &ClientConfig) -> LoginPlan<'_> {
    let command_number = Serial(1);
    LoginPlan { config, tsih: 0, connection: 0, command_number, md5_only: false, is_iser: false, seed: [9; 32] }
}

fn client(config: &ClientConfig, md5_only: bool) -> ClientLogin {
    ClientLogin::new(&LoginPlan { md5_only, ..plan(config) })
}

/// The bytes of PDUs.
fn bytes(pdus: impl IntoIterator<Item = (Header, Vec<u8>)>) -> Vec<u8> {
    let mut outbox = Outbox::default();
    pdus.into_iter().for_each(|(header, text)| outbox.push(header, Some(text.into())));
    let mut bytes = Vec::new();
    while let Some(packet) = outbox.pop() {
        bytes.extend_from_slice(&packet.head);
        bytes.extend_from_slice(packet.payload.as_deref().unwrap_or(&[]));
    }
    bytes
}

/// What a server sends.
fn sent(server: &mut ServerLogin) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(packet) = server.poll_transmit() {
        bytes.extend_from_slice(&packet.head);
        bytes.extend_from_slice(packet.payload.as_deref().unwrap_or(&[]));
    }
    bytes
}

/// The PDUs in a stream.
fn pdus(mut bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let (mut receiver, mut pdus) = (Receiver::new(0), Vec::new());
    loop {
        match receiver.poll() {
            Step::Starving if bytes.is_empty() => return pdus,
            Step::Starving => bytes = &bytes[receiver.take(bytes)..],
            Step::Header(header) => {
                receiver.place(Destination::Frame(Frame::from(vec![0; header.data_bytes()]), 0));
            }
            Step::Pdu(pdu) => pdus.push((pdu.header, pdu.data.as_deref().unwrap_or(&[]).to_vec())),
            Step::Torn => panic!("a torn stream"),
        }
    }
}

/// Answers the last request as a session does.
fn final_answer(admitted: &Admitted) -> (LoginResponse, Vec<u8>) {
    let response = LoginResponse {
        transits: true,
        current_stage: admitted.request.current_stage,
        next_stage: 3,
        isid: admitted.isid.0,
        tsih: 0x4711,
        task_tag: admitted.request.task_tag,
        status_number: admitted.status_number,
        expected_command_number: admitted.request.command_number,
        max_command_number: admitted.request.command_number + 31,
        ..LoginResponse::default()
    };
    (response, admitted.text.clone())
}

/// How both ends saw it.
struct Meeting {
    client: Result<ClientAdmission, ClientRefusal>,
    server: Option<LoginOutcome>,
    /// All texts of the server.
    answers: String,
}

/// Lets both ends talk, the client's bytes in pieces of this size.
fn meet(client: &mut ClientLogin, server: &mut ServerLogin, directory: &OneTarget, piece: usize) -> Meeting {
    let mut answers = String::new();
    for _ in 0..200 {
        let requests: Vec<_> = std::iter::from_fn(|| client.poll_transmit()).collect();
        for piece in bytes(requests.iter().map(|(request, text)| (request.write(), text.clone()))).chunks(piece) {
            server.handle_input(piece, directory, Instant::ZERO);
        }
        let mut responses: Vec<_> =
            pdus(&sent(server)).into_iter().map(|(header, text)| (LoginResponse::read(&header), text)).collect();
        let outcome = server.poll_outcome();
        if let Some(LoginOutcome::Admitted(admitted)) = &outcome {
            responses.push(final_answer(admitted));
        }
        for (response, text) in responses {
            answers.push_str(&String::from_utf8_lossy(&text));
            if let Some(client) = client.handle(&response, &text) {
                return Meeting { client, server: outcome, answers };
            }
        }
        assert!(outcome.is_none(), "the server ended it: {outcome:?}");
    }
    panic!("the login does not end")
}

/// A login between the two.
fn log_in(config: &ClientConfig, directory: &OneTarget) -> Meeting {
    meet(&mut client(config, false), &mut server_with_seed(1), directory, usize::MAX)
}

/// Requests of a hostile or simple initiator, and the server's answers to them.
fn ask(
    server: &mut ServerLogin,
    directory: &OneTarget,
    request: &LoginRequest,
    text: &str,
) -> Vec<(LoginResponse, String)> {
    server.handle_input(&bytes([(request.write(), text.as_bytes().to_vec())]), directory, Instant::ZERO);
    let read = |(header, text): (Header, Vec<u8>)| (LoginResponse::read(&header), String::from_utf8(text).unwrap());
    pdus(&sent(server)).into_iter().map(read).collect()
}

/// A request of the stage, that wants to go to the next one or not.
fn request(current_stage: u8, next_stage: Option<u8>) -> LoginRequest {
    LoginRequest {
        is_immediate: true,
        transits: next_stage.is_some(),
        current_stage,
        next_stage: next_stage.unwrap_or(0),
        task_tag: 5,
        command_number: 1,
        ..LoginRequest::default()
    }
}

/// Who and where to.
fn names() -> String {
    format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0")
}

/// The status of a refusal.
fn status(responses: &[(LoginResponse, String)]) -> u16 {
    let last = responses.last().expect("an answer");
    u16::from_be_bytes([last.0.status_class, last.0.status_detail])
}

/// The status of the answer to one request.
fn status_of(directory: &OneTarget, request: &LoginRequest, text: &str) -> u16 {
    let mut server = server_with_seed(1);
    let status = status(&ask(&mut server, directory, request, text));
    refused(&mut server);
    status
}

fn admitted(server: &mut ServerLogin) -> Box<Admitted> {
    match server.poll_outcome() {
        Some(LoginOutcome::Admitted(admitted)) => admitted,
        other => panic!("not admitted: {other:?}"),
    }
}

fn refused(server: &mut ServerLogin) -> String {
    match server.poll_outcome() {
        Some(LoginOutcome::Refused(reason)) => reason,
        other => panic!("not refused: {other:?}"),
    }
}
