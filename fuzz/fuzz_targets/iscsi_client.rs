//! A client of iSCSI and a target that keeps no rule: no panic, every command ends exactly once, every frame comes back,
//! no endless sending.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_fuzz::caller::{Caller, Surroundings, login_response, plausible};
use sanwire_iscsi::wire::{HEADER_BYTES, Header, LoginRequest, Opcode};
use sanwire_iscsi::{ConnectionId, Outbox};

/// Codes of the PDUs that a target sends, and some that it does not.
const CODES: [u8; 14] = [0x20, 0x21, 0x21, 0x22, 0x23, 0x24, 0x25, 0x25, 0x26, 0x31, 0x31, 0x32, 0x3f, 0x05];

struct World {
    caller: Caller,
    /// Open connections, with the last header of the client on each.
    connections: BTreeMap<ConnectionId, Option<Header>>,
    /// Headers that the client has sent: their tags are worth repeating.
    sent: Vec<Header>,
    status: u32,
}

impl Surroundings for World {
    fn caller(&mut self) -> &mut Caller {
        &mut self.caller
    }

    fn drain(&mut self) {
        for closed in self.caller.note() {
            self.connections.remove(&closed);
        }
        let client = &mut self.caller.client;
        let mut packets = 0;
        while let Some(connection) = client.poll_ready() {
            while let Some(packet) = client.poll_transmit(connection) {
                packets += 1;
                assert!(packets < 20_000, "the client never stops sending");
                // Padding and digest of the one before stand in front; without digests a header is always the end.
                if let Some(bytes) = packet.head.last_chunk::<HEADER_BYTES>() {
                    let header = Header::from_bytes(*bytes);
                    self.connections.entry(connection).and_modify(|last| *last = Some(header));
                    self.sent.push(header);
                }
            }
        }
        let surplus = self.sent.len().saturating_sub(64);
        self.sent.drain(..surplus);
    }
}

impl World {
    fn bytes(&mut self, connection: ConnectionId, mut bytes: &[u8]) {
        let Caller { client, now, .. } = &mut self.caller;
        while !bytes.is_empty() {
            let mut taken = 0;
            for space in client.spaces(connection) {
                let count = space.len().min(bytes.len() - taken);
                space[..count].copy_from_slice(&bytes[taken..taken + count]);
                taken += count;
            }
            if taken == 0 {
                return;
            }
            client.filled(connection, taken, *now);
            bytes = &bytes[taken..];
        }
        self.drain();
    }

    fn pdu(&mut self, connection: ConnectionId, header: Header, data: Vec<u8>) {
        let mut outbox = Outbox::default();
        outbox.push(header, Some(data.into()));
        while let Some(packet) = outbox.pop() {
            let payload = packet.payload.map_or(Vec::new(), |payload| payload.to_vec());
            self.bytes(connection, &[&packet.head[..], &payload].concat());
        }
    }

    fn some_connection(&self, u: &mut Unstructured<'_>) -> Result<Option<ConnectionId>> {
        let known: Vec<ConnectionId> = self.connections.keys().copied().collect();
        if known.is_empty() { Ok(None) } else { u.choose(&known).copied().map(Some) }
    }

    /// Answers a login as an honest target would, mostly.
    fn log_in(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(connection) = self.some_connection(u)? else { return Ok(()) };
        for _ in 0..6 {
            let Some(Some(last)) = self.connections.get_mut(&connection).map(Option::take) else { return Ok(()) };
            if last.opcode() != Some(Opcode::LoginRequest) {
                return Ok(());
            }
            let request = LoginRequest::read(&last);
            let is_odd = u.ratio(1, 16)?;
            let response = login_response(u, &request, self.status, is_odd)?;
            let text = match (is_odd, request.current_stage) {
                (true, _) => u.bytes(u.len().min(64))?.to_vec(),
                (false, 0) => b"AuthMethod=None\0".to_vec(),
                (false, _) => b"ErrorRecoveryLevel=2\0MaxConnections=3\0InitialR2T=No\0DefaultTime2Wait=0\0".to_vec(),
            };
            self.status = self.status.wrapping_add(1);
            self.pdu(connection, response.write(), text);
        }
        Ok(())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=15u8)? {
            0 => {
                if let Some(connection) = self.some_connection(u)? {
                    let length = u.int_in_range(0..=100usize)?;
                    let bytes = u.bytes(length.min(u.len()))?;
                    self.bytes(connection, bytes);
                }
            }
            1 => self.caller.wait(u)?,
            2 => {
                if let Some(connection) = self.some_connection(u)? {
                    self.connections.remove(&connection);
                    self.caller.client.connection_lost(connection, self.caller.now);
                }
            }
            3 => self.caller.ask(u)?,
            4 | 5 => self.caller.order(u)?,
            6..=8 => {
                while let Some(connection) = self.caller.opening.pop() {
                    self.connections.insert(connection, None);
                    self.caller.client.connected(connection, self.caller.now);
                    self.drain();
                }
                self.log_in(u)?;
            }
            _ => {
                if let Some(connection) = self.some_connection(u)? {
                    let (header, data) = plausible(u, &CODES, &self.sent, &mut self.status)?;
                    self.pdu(connection, header, data);
                }
            }
        }
        self.drain();
        Ok(())
    }
}

fn run(input: &[u8]) -> Result<()> {
    let mut u = Unstructured::new(input);
    let caller = Caller::new(&mut u, None)?;
    let mut world = World { caller, connections: BTreeMap::new(), sent: Vec::new(), status: 1 };
    world.drain();
    let leaves = u.arbitrary()?;
    for _ in 0..300 {
        if u.is_empty() {
            break;
        }
        if world.step(&mut u).is_err() {
            break;
        }
    }
    world.end(leaves);
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
