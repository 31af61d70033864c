//! A client and a server that knows the keys and keeps no rule: no panic, every command ends once at the most, no
//! endless sending.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::Frame;
use sanwire_core::{Instant, Lun};
use sanwire_fuzz::impostor::{SecondStep, offer};
use sanwire_fuzz::steps::{self, Impostor, Numbers, Tried};
use sanwire_fuzz::world::{Habits, bytes, client, path};
use sanwire_hyperscsi::wire::command::{Ask, Function};
use sanwire_hyperscsi::wire::flow::{Snr, Window, Windows};
use sanwire_hyperscsi::wire::{Header, Opcode, Prefix, Tag};
use sanwire_hyperscsi::{Client, ClientEvent, Order};
use sanwire_scsi::Cdb;

struct World {
    client: Client,
    now: Instant,
    ethernet: bool,
    impostor: Impostor,
    half: Option<SecondStep>,
    connections: u32,
    waiting: BTreeSet<u64>,
    sent: Vec<Vec<u8>>,
}

impl World {
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
}

impl Tried for World {
    const DATA: Opcode = Opcode::HcbeReply;

    fn impostor(&mut self) -> &mut Impostor {
        &mut self.impostor
    }

    fn input(&mut self, packet: &[u8]) {
        self.client.handle_input(path(self.ethernet, 2), packet, self.now);
        self.drain();
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.client.handle_timeout(self.now);
        self.drain();
    }

    fn act(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let room = u.int_in_range(0..=128usize)?;
        let ask = match u.int_in_range(0..=7u8)? {
            0 => Ask::Manage { function: Function::AbortTask, task: u64::from(u.arbitrary::<u8>()?) },
            1 => Ask::Administer,
            _ => Ask::Command(Cdb::from([u.arbitrary()?, 0, 0, 0, 0, 0])),
        };
        let data_out = if u.arbitrary()? { Some(steps::payload(u, 5000)?.into()) } else { None };
        let data_in = (room > 0).then(|| Frame::from(vec![0; room]));
        if let Ok(id) =
            self.client.order(Order { lun: Lun::default(), ask, is_repeatable: true, data_out, data_in }, self.now)
        {
            assert!(self.waiting.insert(id.number()));
        }
        self.drain();
        Ok(())
    }

    /// Answers whatever step of a handshake the client has sent last.
    fn shake_hands(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let sent = std::mem::take(&mut self.sent);
        let opcode = |packet: &[u8]| Prefix::read(packet).map(|(prefix, ..)| prefix.header.opcode);
        if let Some(third) = sent.iter().rfind(|packet| opcode(packet) == Ok(Opcode::AdnReply))
            && let Some(half) = self.half.take()
        {
            self.impostor = Impostor { keys: half.keys(third), numbers: Numbers::default() };
            if let Some(keys) = &self.impostor.keys {
                let windows = Windows { outward: Window::fitting(64), inward: Window::fitting(64) };
                let accept = Snr::SetWindows {
                    resumed: u.arbitrary()?,
                    number: u.arbitrary()?,
                    windows,
                    weight: u.int_in_range(1..=16)?,
                };
                let packet = keys.sealed(Header::single(Opcode::AckSnr, Tag::default()), 1 << 20, &accept.write(0));
                self.input(&packet);
            }
        } else if let Some(first) = sent.iter().rfind(|packet| opcode(packet) == Ok(Opcode::DeviceDiscovery)) {
            let mut offer = offer(u.arbitrary()?);
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
}

fn run(input: &[u8]) -> Result<()> {
    let mut u = Unstructured::new(input);
    let habits = Habits::new(&mut u)?;
    let ethernet = u.arbitrary()?;
    let mut world = World {
        client: client(path(ethernet, 2), habits, 2),
        now: Instant::ZERO,
        ethernet,
        impostor: Impostor::default(),
        half: None,
        connections: 0,
        waiting: BTreeSet::new(),
        sent: Vec::new(),
    };
    world.drain();
    steps::run(&mut world, &mut u)?;
    // Leaving ends whatever is left.
    world.client.disconnect(world.now);
    world.drain();
    assert!(world.waiting.is_empty(), "never ended: {:?}", world.waiting);
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
