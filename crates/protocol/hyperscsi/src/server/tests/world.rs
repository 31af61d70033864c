//! Both ends and a clock.

use std::time::Duration;

use sanwire_buffer::{Frame, Packet};
use sanwire_core::{Instant, Lun};
use sanwire_scsi::{Reply, build};

use super::{client, exchange, path, server};
use crate::wire::command::Ask;
use crate::{Client, ClientEvent, Order, Server, ServerEvent};

pub(super) const MS: Duration = Duration::from_millis(1);

/// Both ends, and a clock.
pub(super) struct World {
    pub(super) server: Server,
    pub(super) client: Client,
    pub(super) now: Instant,
    /// Packets from the client so far.
    pub(super) sent: u32,
}

impl World {
    pub(super) fn new() -> Self {
        World::with(server())
    }

    pub(super) fn with(mut server: Server) -> Self {
        let mut clients = [client(1)];
        exchange(&mut server, &mut clients, Instant::ZERO);
        while server.poll_event().is_some() {}
        let [mut client] = clients;
        while client.poll_event().is_some() {}
        World { server, client, now: Instant::ZERO, sent: 0 }
    }

    /// Time passes, and packets; those from the server of which `is_lost` holds do not come.
    pub(super) fn run(&mut self, duration: Duration, is_lost: &mut dyn FnMut(&Packet) -> bool) {
        let end = self.now + duration;
        while self.now < end {
            self.now += MS;
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            for _ in 0..10 {
                while let Some((_, packet)) = self.client.poll_transmit(self.now) {
                    self.sent += 1;
                    self.server.handle_input(path(100), &bytes(&packet), self.now);
                }
                while let Some((_, packet)) = self.server.poll_transmit(self.now) {
                    if !is_lost(&packet) {
                        self.client.handle_input(path(1), &bytes(&packet), self.now);
                    }
                }
            }
            let deadline = self.server.poll_timeout();
            let is_known = |at| deadline.is_some_and(|deadline| deadline <= at);
            assert!(self.server.connections.values().all(|connection| is_known(connection.poll_timeout())));
        }
    }

    pub(super) fn pass(&mut self, duration: Duration) {
        self.run(duration, &mut |_| false);
    }

    pub(super) fn order(&mut self, data_bytes: usize) {
        let data_out = (data_bytes > 0).then(|| vec![1; data_bytes].into());
        let ask = Ask::Command(build::test_unit_ready());
        self.client
            .order(Order { lun: Lun::default(), ask, is_repeatable: true, data_out, data_in: None }, self.now)
            .unwrap();
    }

    /// Bytes of the commands that have arrived since the last look.
    pub(super) fn come(&mut self) -> Vec<usize> {
        let events = std::iter::from_fn(|| self.server.poll_event());
        let tasks = events.filter_map(|event| match event {
            ServerEvent::Command { handle, task } => Some((handle, task)),
            _ => None,
        });
        let tasks: Vec<_> = tasks.collect();
        for (handle, _) in &tasks {
            self.server.reply(*handle, Reply::good(None), self.now);
        }
        tasks.iter().map(|(_, task)| task.data_out.as_ref().map_or(0, |data| data.len())).collect()
    }

    pub(super) fn answers(&mut self) -> usize {
        std::iter::from_fn(|| self.client.poll_event()).fold(0, |count, event| match event {
            ClientEvent::Completed { .. } => count + 1,
            ClientEvent::Lost { .. } | ClientEvent::Failed { .. } => panic!("the connection stays: {event:?}"),
            _ => count,
        })
    }

    /// All the memory of the server.
    pub(super) fn all_memory(&self) -> Frame {
        self.server.config.memory.frame(self.server.config.memory.free_bytes()).unwrap()
    }
}

pub(super) fn bytes(packet: &Packet) -> Vec<u8> {
    packet.to_vec()
}
