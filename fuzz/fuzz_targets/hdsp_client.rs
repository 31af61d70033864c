//! A client and a server that knows the password and keeps no rule: no panic, no endless sending, and every command ends once.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_ata::{DEVICE_LBA, TaskFile};
use sanwire_buffer::{Frame, Slice, Slices};
use sanwire_core::Instant;
use sanwire_fuzz::hdsp::{Impostor, PROTECTION, PSK, bytes, client, identity, path};
use sanwire_hdsp::wire::connection::Step;
use sanwire_hdsp::wire::offer::{Agreement, ServerOffer, Terms};
use sanwire_hdsp::wire::pcu::RawPcu;
use sanwire_hdsp::wire::{Class, DiskType, Header, Pcu};
use sanwire_hdsp::{Client, ClientEvent, Command, CommandId, Order};
use sanwire_security::handshake::Responder;
use sanwire_security::keys::Randomness;

struct World {
    client: Client,
    disk_type: DiskType,
    now: Instant,
    responder: Option<(Responder, Header)>,
    impostor: Option<Impostor>,
    random: Randomness,
    waiting: BTreeSet<CommandId>,
    given: Vec<Vec<u8>>,
    port: u16,
}

impl World {
    fn drain(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let mut packets = 0;
        loop {
            while let Some(event) = self.client.poll_event() {
                match event {
                    ClientEvent::Ended { id, .. } => assert!(self.waiting.remove(&id), "{id:?} ends twice"),
                    ClientEvent::Forgotten if u.arbitrary()? => self.client.resume(self.now),
                    ClientEvent::Forgotten => self.client.abandon(),
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
        let Ok(raw) = RawPcu::read(packet) else { return Ok(()) };
        if raw.pcu.is_sealed {
            return Ok(());
        }
        match Step::read(raw.operation) {
            Ok(Step::Request(request)) if self.responder.is_none() => {
                self.port += 1;
                let header = Header { from_server: true, server_port: self.port, ..raw.pcu.header };
                let offer = ServerOffer {
                    terms: Terms { packet_max_bytes: 1500, window_packets: 64, group_packets: 8 },
                    write_room_bytes: u.int_in_range(0..=100_000)?,
                    transfer_max_bytes: u.arbitrary()?,
                    keep_alive_ms: u.arbitrary()?,
                    instance: [u.arbitrary()?; 16],
                    name: String::new(),
                };
                let keys = (&identity(0), &PSK);
                let prologue = request.prologue(header.client_port);
                let said = (header.connection(), &offer.write()[..]);
                let Ok((responder, noise, mark)) =
                    Responder::new(keys, &prologue, &request.noise, said, &mut self.random)
                else {
                    return Ok(());
                };
                self.responder = Some((responder, header));
                let step = Step::Challenge { attempt: request.attempt, mark, noise: &noise };
                let pcu = Pcu { header, class: Class::Connection, is_sealed: false, number: 0 };
                self.client.handle_input(path(0), &pcu.open_packet(&step.write()), self.now);
            }
            Ok(Step::Proof { client, noise, .. }) => {
                let Some((mut responder, header)) = self.responder.take() else { return Ok(()) };
                let Ok((_, secrets)) = responder.read(client, noise) else { return Ok(()) };
                let agreement = Agreement {
                    disk_type: self.disk_type,
                    disk_address: 3,
                    protection: PROTECTION,
                    window_packets: u.int_in_range(1..=70)?,
                    group_packets: u.int_in_range(1..=9)?,
                    data_bytes: *u.choose(&[512, 1024, 1536])?,
                    is_known: u.arbitrary()?,
                    volume: [u.int_in_range(7..=8)?; 16],
                };
                let header = Header { disk_type: self.disk_type, disk_address: 3, ..header };
                let Some(mut impostor) = secrets.of_server().ok().map(|ring| Impostor::new(ring, header)) else {
                    return Ok(());
                };
                let accepted = impostor.control(Class::Connection, &agreement.write());
                self.client.handle_input(path(0), &accepted, self.now);
                self.impostor = Some(impostor);
            }
            _ => {}
        }
        Ok(())
    }

    fn order(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let sectors: u8 = u.int_in_range(0..=4)?;
        let length = usize::from(sectors) * 512;
        let writes = u.arbitrary()?;
        let code = if writes { 0x35 } else { 0x25 };
        let command = match self.disk_type {
            DiskType::Scsi => Command::Scsi(vec![0x28; u.int_in_range(0..=16)?]),
            _ => Command::Ata(TaskFile::long(
                code,
                0,
                sectors.into(),
                [u.int_in_range(0..=64)?, 0, 0, 0, 0, 0],
                DEVICE_LBA,
            )),
        };
        let data = writes.then(|| Slices::from(Slice::from(vec![1; length])));
        let room = if writes { None } else { Frame::zeroed(length) };
        let order =
            Order { command, data, room, more: u.arbitrary()?, may_repeat: u.arbitrary()?, is_probe: u.ratio(1, 8)? };
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
    let disk_type = *u.choose(&[DiskType::Sata, DiskType::Scsi])?;
    let mut world = World {
        client: client(now),
        disk_type,
        now,
        responder: None,
        impostor: None,
        random: Randomness::new([5; 32]),
        waiting: BTreeSet::new(),
        given: Vec::new(),
        port: 0,
    };
    world.drain(&mut u)?;
    while !u.is_empty() {
        world.step(&mut u)?;
    }
    world.client.close();
    world.drain(&mut u)?;
    assert!(world.waiting.is_empty(), "commands that never end");
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
