//! A server's process: the protocol machine, the logical units, and what they have under way.

use std::collections::BTreeSet;
use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_device::NexusPorts;
use sanwire_hyperscsi::{CommandHandle, Server, ServerConfig, ServerEvent};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Reply, Status};

use crate::disk::SimDisk;
use crate::random::Random;
use crate::runner::{Counts, Ended, Handle, Runner};
use crate::world;

/// A server that runs. Dropping it is killing it.
pub struct Host {
    /// Its protocol machine.
    pub server: Server,
    memory: Region,
    /// What it executes.
    pub runner: Runner<CommandHandle>,
    /// Resets that wait for the end of what they have aborted.
    resets: Vec<(CommandHandle, bool, BTreeSet<CommandHandle>)>,
    /// What the trace must know.
    pub notes: Vec<u64>,
}

impl Handle for CommandHandle {
    fn nexus(&self) -> NexusId {
        CommandHandle::nexus(self)
    }
}

impl Host {
    /// Starts a server.
    ///
    /// # Errors
    /// When the disk or its name is refused.
    pub fn new(config: ServerConfig, disk: Arc<SimDisk>, write_cache: bool) -> Result<Self, String> {
        let memory = config.memory.clone();
        let runner = Runner::new(memory.clone(), disk, write_cache)?;
        Ok(Host { server: Server::new(config), memory, runner, resets: Vec::new(), notes: Vec::new() })
    }

    /// Handles all events of the server.
    ///
    /// # Errors
    /// When the server breaks a promise.
    pub fn drain_events(&mut self, counts: &mut Counts, now: Instant) -> Result<(), String> {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::SessionOpened { nexus, client, .. } => {
                    let initiator = TransportId::hyperscsi(client);
                    self.runner.open(nexus, Arc::new(NexusPorts { initiator, target: TargetPort::default() }));
                }
                ServerEvent::Refused { .. } => {}
                ServerEvent::SessionClosed { nexus } => {
                    self.runner.close(nexus);
                    self.resets.retain(|(handle, ..)| handle.nexus() != nexus);
                }
                ServerEvent::Command { handle, task } => {
                    self.notes.push(handle.number());
                    self.runner.begin(handle, task, counts, now)?;
                }
                ServerEvent::Abort { handle } => {
                    self.runner.abort(handle.nexus(), |other, _| other == handle);
                }
                ServerEvent::Administer { handle, request, .. } => self.server.administered(handle, request, now),
                ServerEvent::Reset { handle, lun } => {
                    let done = lun.is_some_and(|lun| self.runner.units.logical_unit_reset(lun));
                    let awaited = self.runner.abort(handle.nexus(), |_, _| done);
                    self.resets.push((handle, done, awaited));
                }
            }
            self.answer(now);
        }
        Ok(())
    }

    fn answer(&mut self, now: Instant) {
        for Ended { handle, reply } in std::mem::take(&mut self.runner.ended) {
            self.server.reply(handle, reply.unwrap_or_else(|| Reply::bare(Status::TaskAborted)), now);
        }
        let Host { resets, runner, server, .. } = self;
        for (handle, done, _) in resets.extract_if(.., |(_, _, awaited)| !runner.is_any_active(awaited)) {
            server.managed(handle, done, now);
        }
    }

    /// Begins what waited for memory, as far as there is some.
    ///
    /// # Errors
    /// When the server breaks a promise.
    pub fn feed_starved(&mut self, now: Instant) -> Result<(), String> {
        self.runner.retry(now)?;
        self.answer(now);
        Ok(())
    }
}

impl world::Host for Host {
    fn memory(&self) -> &Region {
        &self.memory
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.server.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.server.handle_timeout(now);
    }

    fn disk_done(&mut self, token: u64, now: Instant) -> Result<(), String> {
        self.runner.disk_done(token, now)?;
        self.answer(now);
        Ok(())
    }

    fn shut_down(&mut self, _now: Instant) {
        self.server.shut_down();
    }

    fn kill(self, random: &mut Random) {
        self.runner.kill(random);
    }

    fn sessions(&self) -> usize {
        self.server.connections()
    }

    fn is_idle(&self) -> bool {
        self.runner.is_idle() && self.resets.is_empty()
    }

    fn describe(&self) -> String {
        format!(
            "server: {} connections, {}, {} resets waiting, {:?}",
            self.server.connections(),
            self.runner.describe(),
            self.resets.len(),
            self.server.counters()
        )
    }
}
