//! A server and a client that knows the keys and keeps no rule: no panic, no endless sending, all memory back in the end.
#![no_main]

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::{Region, Slice, Slices};
use sanwire_core::{Instant, Protection};
use sanwire_fuzz::visa::{Impostor, PSK, bytes, identity, path, server};
use sanwire_scsi::{Reply, Task};
use sanwire_security::handshake::Initiator;
use sanwire_security::keys::Randomness;
use sanwire_visa::wire::Kind;
use sanwire_visa::wire::header::{RawPacket, open_packet};
use sanwire_visa::wire::offer::Offer;
use sanwire_visa::wire::setup::{Accept, Confirm, Connect, steering_word};
use sanwire_visa::{CommandHandle, Server, ServerEvent};

struct World {
    server: Server,
    now: Instant,
    impostor: Option<Impostor>,
    random: Randomness,
    working: Vec<(CommandHandle, Task)>,
    managing: Vec<CommandHandle>,
    sent: Vec<Vec<u8>>,
    given: Vec<Vec<u8>>,
}

impl World {
    fn drain(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, task } => self.working.push((handle, task)),
                ServerEvent::Reset { handle, .. } => self.managing.push(handle),
                ServerEvent::Administer { handle, request, .. } => self.server.administered(handle, request, self.now),
                _ => {}
            }
        }
        self.sent.clear();
        while let Some((_, packet)) = self.server.poll_transmit(self.now) {
            self.sent.push(bytes(&packet));
            assert!(self.sent.len() < 20_000, "the server never stops sending");
        }
    }

    fn input(&mut self, packet: Vec<u8>) {
        self.server.handle_input(path(1), &packet, self.now);
        self.given.push(packet);
        self.drain();
    }

    fn shake_hands(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let own = identity(1);
        let (client, attempt) = (own.client_id(), self.random.u64());
        let session = u.int_in_range(0..=2)?;
        let mut connect =
            Connect { is_query: false, attempt, client, session, server_name: "", noise: [0; 32], cookie: None };
        let Ok((initiator, noise)) = Initiator::new(&connect.prologue(), &mut self.random) else { return Ok(()) };
        connect.noise.copy_from_slice(&noise);
        self.input(open_packet(Kind::Connect, false, steering_word(client), &connect.write()));
        for answer in self.sent.clone() {
            let Ok(raw) = RawPacket::read(&answer) else { continue };
            let Ok(Accept::Challenge { step, .. }) = Accept::read(raw.payload) else { continue };
            let Ok(met) = initiator.read(step) else { continue };
            let offer = Offer {
                packet_max_bytes: 1472,
                window_packets: u.int_in_range(1..=100)?,
                allows_classic: true,
                wants_classic: u.arbitrary()?,
                allows_unchecked: true,
                wants_unchecked: u.arbitrary()?,
                classic_payload_bytes: *u.choose(&[0, 1024, 61_440])?,
                protection_min: Protection::Checksum,
            };
            let Ok((third, secrets)) = met.answer((&own, &PSK), &offer.write(), &mut self.random) else { continue };
            let confirm = Confirm { attempt, client, noise: &third }.write();
            self.input(open_packet(Kind::Confirm, false, step.connection, &confirm));
            self.impostor = secrets.of_client().ok().map(|ring| Impostor::new(ring, step.connection, false));
        }
        Ok(())
    }

    fn reply(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if let Some(handle) = self.managing.pop() {
            self.server.managed(handle, u.arbitrary()?, self.now);
        } else if !self.working.is_empty() {
            let (handle, task) = self.working.swap_remove(u.choose_index(self.working.len())?);
            let bytes = u.int_in_range(0..=8)? * 512;
            drop(task);
            match u.int_in_range(0..=7)? {
                0 => self.server.withdraw(handle, self.now),
                _ => {
                    let data = (bytes > 0).then(|| Slices::from(Slice::from(vec![7; bytes])));
                    let reply = Reply { is_bulk_read: u.arbitrary()?, ..Reply::good(data) };
                    self.server.reply(handle, reply, self.now);
                }
            }
        }
        self.drain();
        Ok(())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=9)? {
            0 => self.shake_hands(u)?,
            1 => {
                self.now += Duration::from_micros(u.int_in_range(0..=3_000_000)?);
                self.server.handle_timeout(self.now);
                self.drain();
            }
            2 | 3 => self.reply(u)?,
            4 if !self.given.is_empty() => {
                let again = u.choose(&self.given)?.clone();
                self.input(again);
            }
            5 => {
                let packet = u.bytes(u.len().min(60))?.to_vec();
                self.input(packet);
            }
            what => {
                let Some(impostor) = &mut self.impostor else { return self.shake_hands(u) };
                let packet = if what == 6 { impostor.any_control(u)? } else { impostor.any_data(u)? };
                self.input(packet);
            }
        }
        Ok(())
    }
}

fn run(input: &[u8], memory: &Region) -> Result<()> {
    let mut u = Unstructured::new(input);
    let mut world = World {
        server: server(memory.clone(), u.arbitrary()?),
        now: Instant::from_nanos(1_000_000_000),
        impostor: None,
        random: Randomness::new([5; 32]),
        working: Vec::new(),
        managing: Vec::new(),
        sent: Vec::new(),
        given: Vec::new(),
    };
    while !u.is_empty() {
        world.step(&mut u)?;
    }
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let Ok(memory) = Region::new(256 << 10) else { return };
    let _ = run(input, &memory);
    assert_eq!(memory.free_bytes(), memory.length_bytes(), "memory was lost");
});
