//! A server and a client that knows the keys and keeps no rule: no panic, nothing runs twice, no memory of others in
//! a command's data, no endless sending, all memory back in the end.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::{Region, Slices};
use sanwire_core::Instant;
use sanwire_fuzz::impostor::{FirstStep, offer};
use sanwire_fuzz::steps::{self, CANARY, Impostor, Numbers, Tried};
use sanwire_fuzz::world::{Habits, bytes, marked_region, path, server};
use sanwire_hyperscsi::wire::{Opcode, Prefix};
use sanwire_hyperscsi::{CommandHandle, Server, ServerEvent};
use sanwire_scsi::Reply;

struct World {
    server: Server,
    now: Instant,
    ethernet: bool,
    impostor: Impostor,
    attempt: u64,
    working: Vec<(CommandHandle, bool)>,
    executed: BTreeSet<(u64, u64)>,
    sent: Vec<Vec<u8>>,
}

impl World {
    fn drain(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, task } => {
                    let is_new = self.executed.insert((handle.nexus().0, handle.number()));
                    assert!(is_new, "{handle:?} runs twice");
                    let data = task.data_out.as_ref().map(Slices::to_vec).unwrap_or_default();
                    assert!(!data.contains(&CANARY), "{handle:?} carries memory that it did not send");
                    self.working.push((handle, true));
                }
                ServerEvent::Reset { handle, .. } => self.working.push((handle, false)),
                ServerEvent::Administer { handle, request, .. } => self.server.administered(handle, request, self.now),
                // What is to be aborted works, and is replied to in any case.
                _ => {}
            }
        }
        self.sent.clear();
        while let Some((_, packet)) = self.server.poll_transmit(self.now) {
            self.sent.push(bytes(&packet));
            assert!(self.sent.len() < 6000, "the server never stops sending");
        }
    }
}

impl Tried for World {
    const DATA: Opcode = Opcode::HcbeRequest;

    fn impostor(&mut self) -> &mut Impostor {
        &mut self.impostor
    }

    fn input(&mut self, packet: &[u8]) {
        self.server.handle_input(path(self.ethernet, 1), packet, self.now);
        self.drain();
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.server.handle_timeout(self.now);
        self.drain();
    }

    fn act(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.working.is_empty() {
            return Ok(());
        }
        let (handle, is_command) = self.working.swap_remove(u.choose_index(self.working.len())?);
        if is_command {
            let data = steps::payload(u, 3000)?;
            let data_in = (!data.is_empty()).then(|| data.into());
            let reply = Reply { is_bulk_read: u.arbitrary()?, ..Reply::good(data_in) };
            // What such a one has read may be lost with its connection.
            if reply.is_bulk_read && reply.data_in.is_some() {
                self.executed.remove(&(handle.nexus().0, handle.number()));
            }
            self.server.reply(handle, reply, self.now);
        } else {
            self.server.managed(handle, true, self.now);
        }
        self.drain();
        Ok(())
    }

    fn shake_hands(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        // A connection is to live for a while.
        if self.impostor.keys.is_some() && !u.ratio(1, 8)? {
            return Ok(());
        }
        self.attempt += 1;
        let packet_max = if u.ratio(7, 8)? { 9000 } else { u.arbitrary()? };
        let first = FirstStep::new(u64::from(u.int_in_range(0..=2u8)?), self.attempt, packet_max);
        self.input(&first.packet);
        let Some(second) =
            self.sent.iter().find(|p| Prefix::read(p).is_ok_and(|(p, ..)| p.header.opcode == Opcode::AdnRequest))
        else {
            return Ok(());
        };
        let mut offer = offer(u.arbitrary()?);
        if u.ratio(1, 8)? {
            (offer.packet_max_bytes, offer.receive_capacity_packets) = (u.arbitrary()?, u.arbitrary()?);
            (offer.commands_max, offer.transfer_max_bytes) = (u.arbitrary()?, u.arbitrary()?);
        }
        let offer = if u.ratio(1, 16)? { steps::payload(u, 100)? } else { offer.write() };
        if let Some((third, keys)) = first.third_step(&second.clone(), &offer) {
            self.input(&third);
            self.impostor = Impostor { keys: Some(keys), numbers: Numbers::default() };
        }
        Ok(())
    }
}

fn run(input: &[u8], memory: &Region) -> Result<()> {
    let mut u = Unstructured::new(input);
    let habits = Habits::new(&mut u)?;
    let mut world = World {
        server: server(memory.clone(), habits, 1),
        now: Instant::ZERO,
        ethernet: u.arbitrary()?,
        impostor: Impostor::default(),
        attempt: 0,
        working: Vec::new(),
        executed: BTreeSet::new(),
        sent: Vec::new(),
    };
    steps::run(&mut world, &mut u)
}

fuzz_target!(|input: &[u8]| {
    let memory = marked_region(256 << 10);
    let _ = run(input, &memory);
    assert_eq!(memory.free_bytes(), memory.length_bytes(), "memory was lost");
});
