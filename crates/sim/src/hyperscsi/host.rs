//! A server's process: the protocol machine, the logical units, and what they have under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sanwire_buffer::{Region, Slice};
use sanwire_core::{ClientId, Instant, Lun, NexusId};
use sanwire_device::NexusPorts;
use sanwire_hyperscsi::{Agreed, CommandHandle, Server, ServerConfig, ServerEvent};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Reply, Status};

use super::terms::Wanted;
use crate::disk::SimDisk;
use crate::random::Random;
use crate::runner::{Counts, Ended, Handle, Runner};
use crate::task::manage_request;
use crate::world;

/// What a server knows of its clients.
pub struct Clients {
    pub(super) wanted: Wanted,
    /// Their numbers, as the world has them.
    pub(super) numbers: BTreeMap<ClientId, usize>,
    /// So many may manage it: the first ones.
    pub(super) managers: usize,
}

/// Who has a session.
struct Visitor {
    client: ClientId,
    /// It wants to read only.
    is_read_only: bool,
}

/// A server that runs. Dropping it is killing it.
pub struct Host {
    /// Its protocol machine.
    pub server: Server,
    memory: Region,
    /// What it executes.
    pub runner: Runner<CommandHandle>,
    clients: Clients,
    visitors: BTreeMap<NexusId, Visitor>,
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
    pub fn new(config: ServerConfig, disk: Arc<SimDisk>, write_cache: bool, clients: Clients) -> Result<Self, String> {
        let memory = config.memory.clone();
        let runner = Runner::new(memory.clone(), disk, write_cache)?;
        let server = Server::new(config);
        let (visitors, resets, notes) = (BTreeMap::new(), Vec::new(), Vec::new());
        Ok(Host { server, memory, runner, clients, visitors, resets, notes })
    }

    /// Handles all events of the server.
    ///
    /// # Errors
    /// When the server breaks a promise.
    pub fn drain_events(&mut self, counts: &mut Counts, now: Instant) -> Result<(), String> {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::SessionOpened { nexus, client, options, .. } => self.open(nexus, client, &options)?,
                ServerEvent::Refused { .. } => {}
                ServerEvent::Options { nexus, options } => {
                    self.runner.units_of(nexus).lock_media(nexus, options.medium_lock);
                    if let Some(visitor) = self.visitors.get_mut(&nexus) {
                        visitor.is_read_only = options.peer_is_read_only;
                    }
                }
                ServerEvent::SessionClosed { nexus } => {
                    self.runner.close(nexus);
                    self.visitors.remove(&nexus);
                    self.resets.retain(|(handle, ..)| handle.nexus() != nexus);
                }
                ServerEvent::Command { handle, task } => {
                    self.notes.push(handle.number());
                    self.runner.begin(handle, task, counts, now)?;
                }
                ServerEvent::Abort { handle } => {
                    self.runner.abort(handle.nexus(), |other, _| other == handle);
                }
                ServerEvent::Administer { handle, request, .. } => {
                    let answer = self.administer(handle.nexus(), request, counts)?;
                    self.server.administered(handle, answer, now);
                }
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

    fn open(&mut self, nexus: NexusId, client: ClientId, options: &Agreed) -> Result<(), String> {
        let ports = NexusPorts { initiator: TransportId::hyperscsi(client), target: TargetPort::default() };
        let units = self.runner.open_view(nexus, Arc::new(ports))?;
        let is_read_only = options.peer_is_read_only;
        units.set_read_only(is_read_only || self.clients.wanted.of(client).read_only);
        units.lock_media(nexus, options.medium_lock);
        self.visitors.insert(nexus, Visitor { client, is_read_only });
        Ok(())
    }

    /// What is wanted of clients has changed.
    pub(super) fn look_after_terms(&mut self, now: Instant) {
        for (nexus, visitor) in &self.visitors {
            let is_read_only = visitor.is_read_only || self.clients.wanted.of(visitor.client).read_only;
            self.runner.units_of(*nexus).set_read_only(is_read_only);
        }
        self.server.refresh_options(now);
        self.server.share_windows(now);
    }

    /// Whether an initiator keeps the medium in.
    pub(super) fn keeps_medium(&self) -> bool {
        self.runner.units.get(Lun::default()).is_some_and(|disk| disk.is_removal_prevented())
    }

    /// Does what it is asked, which is to send it back, for a client that may ask.
    fn administer(
        &mut self,
        nexus: NexusId,
        request: Option<Slice>,
        counts: &mut Counts,
    ) -> Result<Option<Slice>, String> {
        let Some(visitor) = self.visitors.get(&nexus) else {
            return Err(format!("{nexus:?} manages, and is not there"));
        };
        let asker = self.clients.numbers.get(&visitor.client).copied();
        let Some((operation, client)) = request.as_deref().and_then(manage_request) else {
            return Err("a request to manage the server is not what was sent".to_owned());
        };
        if asker != Some(client) {
            return Err(format!("client {client} manages as {asker:?}"));
        }
        if client >= self.clients.managers {
            return Ok(None);
        }
        let count = counts.entry(operation).or_default();
        *count += 1;
        if *count > 1 {
            return Err(format!("request {operation} to manage the server was executed {count} times"));
        }
        Ok(request)
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
