//! The ports of simulated shards: packets come into a buffer of some length, and go out in batches.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use sanwire_buffer::{Arrival, Packet};
use sanwire_core::Peer;
use sanwire_io::interface::Interface;
use sanwire_io::{LocalAddress, Port, PortCounters};

use crate::link::{LinkPort, PortTerms};

/// Packets that wait to be received, at the most: more are dropped.
const RECEIVE_MAX: usize = 256;

/// Packets of a batch.
const BATCH_MAX: usize = 16;

/// The largest packet.
pub(super) const PACKET_MAX_BYTES: usize = 1472;

/// A port, and what its network holds of it.
#[derive(Clone)]
pub(super) struct SimPort {
    address: SocketAddr,
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    received: VecDeque<(Peer, Vec<u8>)>,
    batch: Vec<(Peer, Packet)>,
    sent: Vec<(Peer, Vec<u8>)>,
    counters: PortCounters,
}

impl SimPort {
    pub(super) fn new(address: SocketAddr) -> Self {
        SimPort { address, state: Rc::default() }
    }

    /// A packet has come.
    pub(super) fn put(&self, from: Peer, bytes: Vec<u8>) {
        let mut state = self.state.borrow_mut();
        if state.received.len() < RECEIVE_MAX {
            state.received.push_back((from, bytes));
        }
    }

    /// Whether a shard that sleeps is woken for it.
    pub(super) fn has_input(&self) -> bool {
        !self.state.borrow().received.is_empty()
    }

    /// What was sent since the last look.
    pub(super) fn take_sent(&self) -> Vec<(Peer, Vec<u8>)> {
        std::mem::take(&mut self.state.borrow_mut().sent)
    }
}

impl LinkPort for SimPort {
    fn reopened(_: Port) -> Option<Self> {
        None
    }

    fn receive(&mut self, budget: usize, handler: &mut dyn FnMut(Peer, Arrival<'_>)) -> io::Result<usize> {
        let mut count = 0;
        while count < budget {
            // What is handled may be sent at once.
            let Some((from, bytes)) = self.state.borrow_mut().received.pop_front() else { break };
            handler(from, bytes[..].into());
            count += 1;
        }
        self.state.borrow_mut().counters.received += count as u64;
        Ok(count)
    }

    fn queue(&mut self, to: Peer, packet: Packet) -> Result<(), Packet> {
        let mut state = self.state.borrow_mut();
        if state.batch.len() >= BATCH_MAX {
            return Err(packet);
        }
        state.batch.push((to, packet));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let state = &mut *self.state.borrow_mut();
        for (to, packet) in state.batch.drain(..) {
            let bytes = packet.to_vec();
            state.counters.sent += 1;
            state.sent.push((to, bytes));
        }
        Ok(())
    }

    fn refresh(&mut self, _: &[Interface]) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.state.borrow().counters
    }

    fn terms(&self) -> PortTerms {
        let address = LocalAddress::Udp(self.address);
        PortTerms { address, packet_max_bytes: PACKET_MAX_BYTES, receive_capacity_packets: RECEIVE_MAX as u32 }
    }
}
