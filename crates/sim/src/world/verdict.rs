//! What a world looks like from outside.

use super::{Outcome, World};
use crate::host::Host;
use crate::plan::Plan;
use crate::workload::Worker;

impl World {
    /// Whether all commands of all clients are answered.
    #[must_use]
    pub fn is_worked_off(&self) -> bool {
        self.workers.iter().all(Worker::is_done)
    }

    /// Whether every frame is home again, on both sides.
    ///
    /// # Errors
    /// Says whose memory is missing.
    pub fn check_memory(&self) -> Outcome<()> {
        let clients = self.workers.iter().map(|worker| ("a client", &worker.memory));
        let server = self.host.iter().map(|host| ("the server", &host.memory));
        let retired = self.retired.iter().map(|memory| ("a past machine", memory));
        for (whose, memory) in clients.chain(server).chain(retired) {
            if memory.free_bytes() != memory.length_bytes() {
                return Err(format!("memory of {whose} is missing: {memory:?}"));
            }
        }
        Ok(())
    }

    /// What is going on, for a failure's message.
    #[must_use]
    pub fn describe(&self) -> String {
        let clients: Vec<String> = self
            .workers
            .iter()
            .map(|worker| {
                let connected = worker.client.server().is_some();
                let counters = worker.client.counters();
                format!(
                    "client: {} in flight, connected {connected}, {} connections, {} good, {} other, {counters:?}",
                    worker.in_flight(),
                    worker.connections,
                    worker.good,
                    worker.other
                )
            })
            .collect();
        let server = self.host.as_ref().map_or("no server".to_owned(), Host::describe);
        let Plan { wire, link, claimed_bytes, capacity_packets, recovery, disk, work, faults, .. } = &self.plan;
        format!(
            "{clients:#?}\n{server}\n{:?}\n{wire:?} {link:?} claims \
             {claimed_bytes} bytes, capacity {capacity_packets}, {recovery:?}\n{disk:?}\n{work:?}\n{faults:?}",
            self.stats
        )
    }
}
