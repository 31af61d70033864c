//! A server's process: its end of iSCSI, and what it executes.

use std::collections::BTreeSet;
use std::sync::Arc;

use sanwire_buffer::{Region, Shortage};
use sanwire_core::{Instant, NexusId};
use sanwire_device::NexusPorts;
use sanwire_iscsi::{
    Admission, Admitted, CommandHandle, ConnectionId, Function, ManageHandle, ManageOutcome, Server, ServerConfig,
    ServerEvent,
};
use sanwire_scsi::reservation::TransportId;

use super::desk::target_port;
use crate::disk::SimDisk;
use crate::random::Random;
use crate::runner::{COUNT, Counts, Ended, Handle, Runner, logical_units};
use crate::world;

impl Handle for CommandHandle {
    fn nexus(&self) -> NexusId {
        CommandHandle::nexus(self)
    }
}

/// A server that runs. Dropping it is killing it.
pub struct Host {
    /// Its end of the protocol.
    pub server: Server,
    memory: Region,
    /// What it executes.
    pub runner: Runner<CommandHandle>,
    /// Requests that wait for the end of commands.
    managing: Vec<(ManageHandle, BTreeSet<CommandHandle>)>,
    sessions: BTreeSet<NexusId>,
    admissions: u64,
    /// Connections that are to be closed when all is sent.
    pub closing: Vec<ConnectionId>,
    /// The counting commands, in the order in which they were executed.
    pub counted: Vec<u64>,
}

impl Host {
    /// Starts a server.
    ///
    /// # Errors
    /// When the disk or its name is refused.
    pub fn new(config: ServerConfig, disk: Arc<SimDisk>, write_cache: bool) -> Result<Self, String> {
        let memory = config.memory.clone();
        let runner = Runner::new(memory.clone(), logical_units(disk, write_cache, None)?);
        Ok(Host {
            server: Server::new(config),
            memory,
            runner,
            managing: Vec::new(),
            sessions: BTreeSet::new(),
            admissions: 0,
            closing: Vec::new(),
            counted: Vec::new(),
        })
    }

    /// Takes over a connection that has passed its login.
    pub fn admit(&mut self, connection: ConnectionId, admitted: Admitted, now: Instant) {
        self.admissions += 1;
        let admission = Admission { tsih: self.admissions as u16, nexus: NexusId(self.admissions) };
        self.server.admit(connection, admitted, admission, now);
    }

    /// Handles all events of the server, and goes on with what waits.
    ///
    /// # Errors
    /// When the server breaks a promise.
    pub fn drain_events(&mut self, counts: &mut Counts, now: Instant) -> Result<(), String> {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::SessionOpened { nexus, initiator, isid, memory, .. } => {
                    let initiator = TransportId::iscsi_port(initiator.as_str(), isid.0)
                        .map_err(|error| format!("{initiator}: {error}"))?;
                    self.runner.open(nexus, Arc::new(NexusPorts { initiator, target: target_port() }), memory);
                    self.sessions.insert(nexus);
                }
                ServerEvent::SessionClosed { nexus, .. } => {
                    if !self.sessions.remove(&nexus) {
                        return Err(format!("{nexus:?} was closed and was not open"));
                    }
                    self.runner.close(nexus);
                    self.managing.retain(|(handle, _)| handle.nexus() != nexus);
                }
                ServerEvent::Command { handle, task, .. } => {
                    if !self.sessions.contains(&handle.nexus()) {
                        return Err(format!("{handle:?} is of no open session"));
                    }
                    if task.cdb.operation_code() == COUNT {
                        self.counted.push(task.cdb[2..10].iter().fold(0, |id, byte| id << 8 | u64::from(*byte)));
                    }
                    self.runner.begin(handle, task, counts, now)?;
                }
                ServerEvent::Manage {
                    handle,
                    function: Function::AbortTask(command) | Function::ForsakeTask(command),
                    ..
                } => {
                    let awaited = self.runner.abort(handle.nexus(), |other, _| other == command);
                    self.managing.push((handle, awaited));
                }
                ServerEvent::Manage { function, .. } => return Err(format!("no client asks for {function:?}")),
                ServerEvent::Close { connection } | ServerEvent::Cut { connection } => self.closing.push(connection),
            }
            self.answer(now);
        }
        self.runner.retry(now)?;
        if self.runner.is_starved() && self.server.relieve(now) {
            self.runner.retry(now)?;
        }
        self.answer(now);
        Ok(())
    }

    fn answer(&mut self, now: Instant) {
        for Ended { handle, reply } in std::mem::take(&mut self.runner.ended) {
            match reply {
                Some(reply) => self.server.reply(handle, reply, now),
                None => self.server.aborted(handle, now),
            }
        }
        let Host { managing, runner, server, .. } = self;
        for (handle, _) in managing.extract_if(.., |(_, awaited)| !runner.is_any_active(awaited)) {
            server.managed(handle, ManageOutcome::Complete, now);
        }
    }
}

impl world::Host for Host {
    fn memory(&self) -> Vec<Region> {
        vec![self.memory.clone()]
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.server.poll_timeout().into_iter().chain(self.runner.poll_timeout()).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.server.handle_timeout(now);
        self.runner.handle_timeout(now);
        let starving = self.runner.starving().chain(self.server.starving());
        let shortage: Shortage = starving.collect();
        if !shortage.is_empty() {
            self.server.drop_hoards(&shortage, now);
        }
    }

    fn disk_done(&mut self, token: u64, now: Instant) -> Result<(), String> {
        self.runner.disk_done(token, now)?;
        self.answer(now);
        Ok(())
    }

    fn shut_down(&mut self, now: Instant) {
        self.server.shut_down(now);
    }

    fn kill(self, random: &mut Random) {
        self.runner.kill(random);
    }

    fn sessions(&self) -> usize {
        self.sessions.len()
    }

    fn is_idle(&self) -> bool {
        self.runner.is_idle() && self.managing.is_empty()
    }

    fn describe(&self) -> String {
        let Host { sessions, managing, .. } = self;
        format!("server: {} sessions, {}, {} requests wait", sessions.len(), self.runner.describe(), managing.len())
    }
}
