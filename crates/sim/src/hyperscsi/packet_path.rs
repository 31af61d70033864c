//! The way of a packet from one end to the other, past the attacker.

use sanwire_buffer::Packet;
use sanwire_core::{Path, Peer};
use sanwire_hyperscsi::Counters;
use sanwire_hyperscsi::wire::{Opcode, Prefix};

use super::attacker::{self, Strike};
use super::meter::{self, AGREED_WITHIN};
use super::participants::identity;
use super::processor::is_step;
use super::wire::{Event, Packets, World};
use crate::world::{Outcome, Wire};

impl World {
    pub(super) fn pause(&mut self, client: usize, is_paused: bool) -> Outcome<()> {
        let id = identity(client)?.client_id();
        let Some(host) = &mut self.host else { return Ok(()) };
        host.shards.iter_mut().for_each(|shard| shard.server.pause(id, is_paused, self.now));
        Packets::drain_server(self)
    }

    pub(super) fn pause_server(&mut self, client: usize, is_paused: bool) -> Outcome<()> {
        self.workers[client].client.pause(is_paused, self.now);
        Packets::drain_client(self, client)
    }

    pub(super) fn transmit(&mut self, (client, on): (usize, usize), to_server: bool, packet: &Packet) -> Outcome<()> {
        let bytes = packet.to_vec();
        self.note(bytes.len() as u64 ^ u64::from(bytes[bytes.len() - 1]) << 32);
        self.check_sent(client, to_server, &bytes)?;
        let wire = &mut self.wire;
        wire.stats.note(on, to_server, &bytes);
        if self.plan.wire.attacks > 0 {
            wire.attacker.overhear(attacker::Passing { client, link: on, to_server, bytes: bytes.clone() });
            if wire.attacker.takes(&bytes) {
                return Ok(());
            }
        }
        let passed_at = match &mut wire.queues[usize::from(to_server)] {
            Some(queue) => queue.pass(bytes.len(), self.now),
            None => Some(self.now),
        };
        let Some(passed_at) = passed_at else { return Ok(()) };
        let link = if to_server { &mut wire.there[client][on] } else { &mut wire.back[client][on] };
        for (at, bytes) in link.pass(&bytes, &mut self.random, passed_at) {
            self.schedule(at, arrival((client, on), to_server, bytes));
        }
        Ok(())
    }

    /// A packet has come to the server's machine. Where strangers stand at the door each shard takes its time.
    pub(super) fn arrive(&mut self, path: Path, bytes: Vec<u8>) -> Outcome<()> {
        let Some(host) = &mut self.host else { return Ok(()) };
        let link = usize::from(path.link.0);
        let Some(shard) = self.wire.steering.shard_of(link, &bytes, &mut self.random) else { return Ok(()) };
        if self.wire.strangers_at_door.is_none() {
            host.shards[shard].server.handle_input(path, &bytes, self.now);
            return Packets::drain_server(self);
        }
        if let Some(at) = self.wire.processor.take(shard, path, bytes, self.now) {
            self.schedule(at, Event::Work(shard));
        }
        Ok(())
    }

    /// A shard deals with the next packet.
    pub(super) fn work(&mut self, shard: usize) -> Outcome<()> {
        let Some((path, bytes)) = self.wire.processor.begin(shard, self.now) else { return Ok(()) };
        if let Some(host) = &mut self.host {
            host.shards[shard].server.handle_input(path, &bytes, self.now);
            Packets::drain_server(self)?;
        }
        if let Some(at) = self.wire.processor.end(shard) {
            self.schedule(at, Event::Work(shard));
        }
        Ok(())
    }

    /// What a shard sends costs it time too.
    pub(super) fn note_sent(&mut self, shard: usize, to: Peer, packet: &Packet) {
        let Some(strangers) = &mut self.wire.strangers_at_door else { return };
        self.wire.processor.spend(shard, &packet.head);
        strangers.handshakes += u64::from(strangers.has(to) && is_step(&packet.head));
    }

    /// An end sends no packet of data that is guarded less, or sooner, than both have agreed on.
    fn check_sent(&mut self, client: usize, to_server: bool, bytes: &[u8]) -> Outcome<()> {
        let Ok((prefix, ..)) = Prefix::read(bytes) else { return Err(format!("client {client}: no packet is sent")) };
        let is_local = match prefix.header.opcode {
            Opcode::HcbeRequest | Opcode::HcbeReply => false,
            Opcode::LocalRequest | Opcode::LocalReply => true,
            _ => return Ok(()),
        };
        if self.plan.wire.terms.is_empty() {
            return Ok(());
        }
        if self.wire.healed_at.is_some_and(|at| self.now.saturating_since(at) > AGREED_WITHIN) {
            let least = self.plan.wire.least(self.wire.wanted.protection());
            self.wire.meters.settle(client, [least, self.plan.wire.terms_of(client).protection_min]);
        }
        let floor = self.wire.meters.floor(client);
        if !is_local && prefix.protection < floor {
            return Err(format!("client {client}, to the server {to_server}: {prefix:?} goes below {floor}"));
        }
        if let Some(server) = self.workers.get(client).and_then(|worker| worker.client.server()) {
            self.wire.meters.believe(client, server.options.rate_cap_bytes_per_second);
        }
        let (connection, bytes_max) = (prefix.connection, self.plan.wire.claimed_bytes);
        let passing = meter::Passing { client, connection, to_server, bytes: bytes.len(), bytes_max };
        if self.wire.meters.pass(passing, self.now) {
            Ok(())
        } else {
            Err(format!("{passing:?} goes beyond the cap at {:?}: {}", self.now, self.describe()))
        }
    }

    /// The attacker does something.
    pub(super) fn suffer(&mut self) -> Outcome<()> {
        let Some(Strike { passing, is_forged }) = self.wire.attacker.strike() else { return Ok(()) };
        let attacker::Passing { client, link, to_server, bytes } = passing.clone();
        let before = self.refused(client, to_server).filter(|_| is_forged);
        Packets::handle(self, arrival((client, link), to_server, bytes))?;
        match (before, self.refused(client, to_server)) {
            (Some(before), Some(after)) if after != before + 1 => {
                Err(format!("a forgery was not counted once, but {} times: {passing:?}", after - before))
            }
            _ => Ok(()),
        }
    }

    /// Packets that an end has not taken, for whatever reason; `None` when it is not there.
    fn refused(&self, client: usize, to_server: bool) -> Option<u64> {
        let count = |counters: Counters| counters.reasons().map(|(_, count)| count).sum::<u64>();
        Some(match to_server {
            true => self.host.as_ref()?.shards.iter().map(|shard| count(shard.server.counters())).sum(),
            // Who seeks a server looks at nothing else.
            false => count(Some(&self.workers[client].client).filter(|client| client.server().is_some())?.counters()),
        })
    }
}

fn arrival((client, link): (usize, usize), to_server: bool, bytes: Vec<u8>) -> Event {
    match to_server {
        true => Event::ToServer { from: client, link, bytes },
        false => Event::ToClient { client, link, bytes },
    }
}
