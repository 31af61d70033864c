//! A client and a server that knows the keys and keeps no rule: no panic, every command ends once at the most, no
//! endless sending.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::Frame;
use sanwire_core::{Instant, Lun};
use sanwire_fuzz::impostor::{Keys, SecondStep, checked, offer};
use sanwire_fuzz::steps::{self, Numbers};
use sanwire_fuzz::world::{bytes, client, path};
use sanwire_hyperscsi::wire::command::{Ask, Function};
use sanwire_hyperscsi::wire::flow::{Snr, Window, Windows};
use sanwire_hyperscsi::wire::packet::Salt;
use sanwire_hyperscsi::wire::{Opcode, Prefix};
use sanwire_hyperscsi::{Client, ClientEvent, Order, Recovery};
use sanwire_scsi::Cdb;

struct World {
    client: Client,
    now: Instant,
    ethernet: bool,
    keys: Option<Keys>,
    half: Option<SecondStep>,
    numbers: Numbers,
    connections: u32,
    waiting: BTreeSet<u64>,
    sent: Vec<Vec<u8>>,
}

impl World {
    fn input(&mut self, packet: &[u8]) {
        self.client.handle_input(path(self.ethernet, 2), packet, self.now);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Completed { id, data_in, data_in_bytes, .. } => {
                    assert!(self.waiting.remove(&id.number()), "{id:?} ends twice");
                    assert!(data_in_bytes <= data_in.map_or(0, |frame| frame.len()));
                }
                ClientEvent::Failed { id, .. } => assert!(self.waiting.remove(&id.number()), "{id:?} ends twice"),
                _ => {}
            }
        }
        let before = self.sent.len();
        while let Some((_, packet)) = self.client.poll_transmit(self.now) {
            self.sent.push(bytes(&packet));
            assert!(self.sent.len() - before < 6000, "the client never stops sending");
        }
    }

    /// Answers whatever step of a handshake the client has sent last.
    fn shake_hands(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let sent = std::mem::take(&mut self.sent);
        let opcode = |packet: &[u8]| Prefix::read(packet).map(|(prefix, ..)| prefix.header.opcode);
        if let Some(third) = sent.iter().rfind(|packet| opcode(packet) == Ok(Opcode::AdnReply))
            && let Some(half) = self.half.take()
        {
            (self.keys, self.numbers) = (half.keys(third), Numbers::default());
            if let Some(keys) = &self.keys {
                let windows = Windows { outward: Window::fitting(64), inward: Window::fitting(64) };
                let accept = Snr::SetWindows { resumed: u.arbitrary()?, windows };
                let packet = keys.sealed(Opcode::AckSnr, 1 << 20, &accept.write(0));
                self.input(&packet);
            }
        } else if let Some(first) = sent.iter().rfind(|packet| opcode(packet) == Ok(Opcode::DeviceDiscovery)) {
            let mut offer = offer();
            if u.ratio(1, 8)? {
                (offer.packet_max_bytes, offer.receive_capacity_packets) = (u.arbitrary()?, u.arbitrary()?);
                (offer.commands_max, offer.keep_alive_ms) = (u.arbitrary()?, u.arbitrary()?);
            }
            let offer = if u.ratio(1, 16)? { steps::payload(u, 100)? } else { offer.write() };
            self.connections += 1;
            self.half = SecondStep::answer(first, self.connections, &offer);
            if let Some(half) = &self.half {
                let packet = half.packet.clone();
                self.input(&packet);
            }
        }
        Ok(())
    }

    fn order(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let room = u.int_in_range(0..=128usize)?;
        let ask = if u.ratio(1, 8)? {
            Ask::Manage { function: Function::AbortTask, task: u64::from(u.arbitrary::<u8>()?) }
        } else {
            Ask::Command(Cdb::from([u.arbitrary()?, 0, 0, 0, 0, 0]))
        };
        let data_out = if u.arbitrary()? { Some(steps::payload(u, 5000)?.into()) } else { None };
        let data_in = (room > 0).then(|| Frame::from(vec![0; room]));
        if let Ok(id) = self.client.order(Order { lun: Lun::default(), ask, data_out, data_in }, self.now) {
            assert!(self.waiting.insert(id.number()));
        }
        self.drain();
        Ok(())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match (u.int_in_range(0..=15u8)?, &self.keys) {
            (0, _) => {
                let length = u.int_in_range(0..=120usize)?;
                let packet = u.bytes(length.min(u.len()))?;
                self.input(packet);
            }
            (1, keys) => {
                let opcode = steps::opcode(u)?;
                let connection = keys.as_ref().map_or(5, |keys| keys.connection);
                let header = steps::header(u, opcode)?;
                let (number, body) = (u.arbitrary()?, steps::payload(u, 200)?);
                self.input(&checked(Salt::default(), header, connection, number, &body));
            }
            (2..=4, _) => {
                self.now += Duration::from_micros(100 << u.int_in_range(0..=16u32)?);
                self.client.handle_timeout(self.now);
                self.drain();
            }
            (5 | 6, _) => self.order(u)?,
            (7..=10, Some(keys)) => {
                let packet = steps::control(u, keys, &mut self.numbers)?;
                self.input(&packet);
            }
            (11..=14, Some(keys)) => {
                let packet = steps::data(u, keys, &mut self.numbers, Opcode::HcbeReply)?;
                self.input(&packet);
            }
            _ => self.shake_hands(u)?,
        }
        Ok(())
    }
}

fn run(input: &[u8]) -> Result<()> {
    let mut u = Unstructured::new(input);
    let recovery = if u.arbitrary()? { Recovery::Selective } else { Recovery::WholeWindow };
    let ethernet = u.arbitrary()?;
    let mut world = World {
        client: client(path(ethernet, 2), recovery, 2),
        now: Instant::ZERO,
        ethernet,
        keys: None,
        half: None,
        numbers: Numbers::default(),
        connections: 0,
        waiting: BTreeSet::new(),
        sent: Vec::new(),
    };
    world.drain();
    for _ in 0..300 {
        if u.is_empty() {
            break;
        }
        world.step(&mut u)?;
    }
    // Leaving ends whatever is left.
    world.client.disconnect(world.now);
    world.drain();
    assert!(world.waiting.is_empty(), "never ended: {:?}", world.waiting);
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
