//! A server and a client that knows the keys and keeps no rule: no panic, no endless sending, all memory back in the end.
#![no_main]

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_ata::Registers;
use sanwire_buffer::{Region, Slice, Slices};
use sanwire_core::Instant;
use sanwire_fuzz::hdsp::{Impostor, PROTECTION, PSK, bytes, identity, path, server};
use sanwire_hdsp::wire::connection::{Request as First, SessionName, Step};
use sanwire_hdsp::wire::offer::{ClientOffer, Terms, Waiting};
use sanwire_hdsp::wire::pcu::RawPcu;
use sanwire_hdsp::wire::{Class, DiskType, Header, PacketType, Pcu};
use sanwire_hdsp::{Answer, CommandHandle, Request, Server, ServerEvent};
use sanwire_security::handshake::{Initiator, SecondStep};
use sanwire_security::keys::Randomness;

struct World {
    server: Server,
    disk_type: DiskType,
    now: Instant,
    impostor: Option<Impostor>,
    random: Randomness,
    working: Vec<(CommandHandle, Request)>,
    sent: Vec<Vec<u8>>,
    given: Vec<Vec<u8>>,
}

impl World {
    fn drain(&mut self) {
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::Command { handle, request, .. } = event {
                self.working.push((handle, request));
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
        let client = identity(1);
        let session =
            SessionName { client: client.client_id(), run: u.int_in_range(0..=2)?, epoch: u.int_in_range(0..=2)? };
        let header = Header {
            from_server: false,
            error: None,
            packet_type: PacketType::Pcu,
            disk_type: DiskType::Any,
            disk_address: 0,
            server_port: 0,
            client_port: 7,
        };
        let open = |header, step: Step<'_>| {
            Pcu { header, class: Class::Connection, is_sealed: false, number: 0 }.open_packet(&step.write())
        };
        let attempt = self.random.u64();
        let mut first = First { attempt, session, server_name: "", noise: [0; 32], cookie: None };
        let Ok((initiator, noise)) = Initiator::new(&first.prologue(7), &mut self.random) else { return Ok(()) };
        first.noise.copy_from_slice(&noise);
        self.input(open(header, Step::Request(first)));
        let answers = self.sent.clone();
        for answer in &answers {
            let Ok(raw) = RawPcu::read(answer) else { continue };
            let Ok(Step::Challenge { mark, noise, .. }) = Step::read(raw.operation) else { continue };
            let header = Header { server_port: raw.pcu.header.server_port, ..header };
            let Ok(met) = initiator.read(SecondStep { connection: header.connection(), noise, mark }) else { continue };
            let (window_packets, group_packets) = match u.arbitrary::<u8>()? {
                0 => (0, 8),
                1 => (64, 0),
                2 => (64, 257),
                3 => (65_535, 256),
                4 => (u32::MAX, u16::MAX),
                5 => (u32::MAX, 1),
                few => (few.into(), 8),
            };
            let offer = ClientOffer {
                terms: Terms { packet_max_bytes: 1500, window_packets, group_packets },
                protection: PROTECTION,
                disk_type: DiskType::Any,
                disk_address: 3,
                volume: String::new(),
                waiting: Waiting::new(
                    u.int_in_range(0..=300)?,
                    u.int_in_range(0..=300)?,
                    [u.int_in_range(0..=300)?].into_iter(),
                ),
            };
            let Ok((third, secrets)) = met.answer((&client, &PSK), &offer.write(), &mut self.random) else { continue };
            self.input(open(header, Step::Proof { attempt, client: session.client, noise: &third }));
            let own = Header { disk_type: self.disk_type, disk_address: 3, ..header };
            self.impostor = secrets.of_client().ok().map(|ring| Impostor::new(ring, own));
        }
        Ok(())
    }

    fn reply(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.working.is_empty() {
            return Ok(());
        }
        let (handle, request) = self.working.swap_remove(u.choose_index(self.working.len())?);
        let sectors: usize = u.int_in_range(0..=8)?;
        let data = (sectors > 0).then(|| Slices::from(Slice::from(vec![7; sectors * 512])));
        let answer = match &request {
            Request::Ata { task_file, .. } if u.arbitrary()? => {
                Answer::Ata { registers: Registers::failure(task_file, 4), data }
            }
            Request::Ata { task_file, .. } => Answer::Ata { registers: Registers::success(task_file), data },
            Request::Scsi { .. } => Answer::Scsi { status: u.arbitrary()?, sense: vec![0x70; 18], data },
        };
        drop(request);
        self.server.reply(handle, &answer, u.arbitrary()?, self.now);
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
            6 => {
                let Some(impostor) = &mut self.impostor else { return self.shake_hands(u) };
                let packet = impostor.any_control(u)?;
                self.input(packet);
            }
            _ => {
                let Some(impostor) = &mut self.impostor else { return self.shake_hands(u) };
                let packet = impostor.any_data(u)?;
                self.input(packet);
            }
        }
        Ok(())
    }
}

fn run(input: &[u8], memory: &Region) -> Result<()> {
    let mut u = Unstructured::new(input);
    let disk_type = *u.choose(&[DiskType::Sata, DiskType::Scsi])?;
    let mut world = World {
        server: server(memory.clone(), disk_type),
        disk_type,
        now: Instant::from_nanos(1_000_000_000),
        impostor: None,
        random: Randomness::new([5; 32]),
        working: Vec::new(),
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
