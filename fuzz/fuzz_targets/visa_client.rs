//! A client and a server that knows the password and keeps no rule: no panic, no endless sending, and every command ends once.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::{Frame, Slice};
use sanwire_core::{Instant, Lun, Protection};
use sanwire_fuzz::visa::{Impostor, PSK, bytes, client, identity, path};
use sanwire_scsi::Cdb;
use sanwire_security::handshake::{Responder, SecondStep};
use sanwire_security::keys::Randomness;
use sanwire_visa::wire::Kind;
use sanwire_visa::wire::header::{RawPacket, open_packet};
use sanwire_visa::wire::offer::{Offer, ServerOffer};
use sanwire_visa::wire::setup::{Accept, Confirm, Connect};
use sanwire_visa::{Ask, Client, ClientEvent, CommandId, Failure, Order};

struct World {
    client: Client,
    now: Instant,
    responder: Option<(Responder, u32)>,
    impostor: Option<Impostor>,
    random: Randomness,
    waiting: BTreeSet<CommandId>,
    given: Vec<Vec<u8>>,
    connection: u32,
}

fn offer() -> Offer {
    Offer {
        packet_max_bytes: 1472,
        window_packets: 64,
        allows_classic: true,
        wants_classic: false,
        allows_unchecked: true,
        wants_unchecked: false,
        classic_payload_bytes: 0,
        protection_min: Protection::Checksum,
    }
}

impl World {
    fn drain(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let mut packets = 0;
        loop {
            while let Some(event) = self.client.poll_event() {
                match event {
                    ClientEvent::Completed { id, .. } | ClientEvent::Failed { id, .. } => {
                        assert!(self.waiting.remove(&id), "{id:?} ends twice");
                    }
                    ClientEvent::Connected { resumed: false, .. } if u.arbitrary()? => self.client.release(self.now),
                    ClientEvent::Connected { .. } => self.client.abandon(Lun::default(), Failure::InDoubt),
                    _ => {}
                }
            }
            let Some((_, packet)) = self.client.poll_transmit(self.now) else { return Ok(()) };
            packets += 1;
            assert!(packets < 20_000, "the client never stops sending");
            self.hear(&bytes(&packet), u)?;
        }
    }

    /// Answers the steps of a handshake.
    fn hear(&mut self, packet: &[u8], u: &mut Unstructured<'_>) -> Result<()> {
        let Ok(raw) = RawPacket::read(packet) else { return Ok(()) };
        match raw.header.kind {
            Kind::Connect if self.responder.is_none() => {
                let Ok(connect) = Connect::read(raw.payload) else { return Ok(()) };
                self.connection += 1;
                let offer = ServerOffer {
                    offer: offer(),
                    commands_max: u.int_in_range(1..=100)?,
                    transfer_max_bytes: u.arbitrary()?,
                    keep_alive_ms: u.arbitrary()?,
                    instance: u.arbitrary()?,
                    name: String::new(),
                };
                let (keys, said) = ((&identity(0), &PSK), (self.connection, &offer.write()[..]));
                let made = Responder::new(keys, &connect.prologue(), &connect.noise, said, &mut self.random);
                let Ok((responder, noise, mark)) = made else { return Ok(()) };
                self.responder = Some((responder, self.connection));
                let step = SecondStep { connection: self.connection, noise: &noise, mark };
                let accept = Accept::Challenge { attempt: connect.attempt, step }.write();
                let packet = open_packet(Kind::Accept, true, raw.header.connection, &accept);
                self.client.handle_input(path(0), &packet, self.now);
            }
            Kind::Confirm => {
                let Ok(confirm) = Confirm::read(raw.payload) else { return Ok(()) };
                let Some((mut responder, connection)) = self.responder.take() else { return Ok(()) };
                let Ok((said, secrets)) = responder.read(confirm.client, confirm.noise) else { return Ok(()) };
                let Ok(theirs) = Offer::read(&said) else { return Ok(()) };
                let ours = Offer { wants_classic: u.arbitrary()?, wants_unchecked: u.arbitrary()?, ..offer() };
                let mut terms = ours.agree(&theirs, u.arbitrary()?);
                if u.ratio(1, 8)? {
                    terms.payload_bytes = u.arbitrary()?;
                }
                let Ok(ring) = secrets.of_server() else { return Ok(()) };
                let mut impostor = Impostor::new(ring, connection, true);
                let accepted = impostor.control(Kind::Agree, &terms.write());
                self.client.handle_input(path(0), &accepted, self.now);
                self.impostor = Some(impostor);
            }
            _ => {}
        }
        Ok(())
    }

    fn order(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (bytes, writes) = (u.int_in_range(0..=4)? * 512, u.arbitrary()?);
        let Some(cdb) = Cdb::new(&[if writes { 0x2a } else { 0x28 }, 0, 0, 0, 0, 0, 0, 0, 1, 0]) else { return Ok(()) };
        let data_out = (writes && bytes > 0).then(|| Slice::from(vec![1; bytes]));
        let data_in = if writes { None } else { Frame::zeroed(bytes) };
        let is_repeatable = u.arbitrary()?;
        let ask = if u.ratio(1, 8)? { Ask::Administer } else { Ask::Command(cdb) };
        let order = Order { lun: Lun::default(), ask, is_repeatable, data_out, data_in };
        self.waiting.extend(self.client.order(order, self.now).ok());
        Ok(())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=9)? {
            0 | 1 => self.order(u)?,
            2 => {
                self.now += Duration::from_micros(u.int_in_range(0..=3_000_000)?);
                self.client.handle_timeout(self.now);
            }
            3 if !self.given.is_empty() => {
                let again = u.choose(&self.given)?.clone();
                self.client.handle_input(path(0), &again, self.now);
            }
            4 => self.client.handle_input(path(0), u.bytes(u.len().min(60))?, self.now),
            what => {
                let Some(impostor) = &mut self.impostor else { return Ok(()) };
                let packet = if what == 5 { impostor.any_control(u)? } else { impostor.any_data(u)? };
                self.client.handle_input(path(0), &packet, self.now);
                self.given.push(packet);
            }
        }
        self.drain(u)
    }
}

fn run(input: &[u8]) -> Result<()> {
    let mut u = Unstructured::new(input);
    let now = Instant::from_nanos(1_000_000_000);
    let mut world = World {
        client: client(now),
        now,
        responder: None,
        impostor: None,
        random: Randomness::new([5; 32]),
        waiting: BTreeSet::new(),
        given: Vec::new(),
        connection: 0,
    };
    if u.arbitrary()? {
        world.client.hold_after_restart();
    }
    world.drain(&mut u)?;
    while !u.is_empty() {
        world.step(&mut u)?;
    }
    world.client.disconnect();
    world.drain(&mut u)?;
    assert!(world.waiting.is_empty(), "commands that never end");
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
