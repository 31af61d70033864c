//! A shard of a server: its protocol machine, the clients that have sessions there, and what they have under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_buffer::{Region, Shortage, Slice};
use sanwire_core::{ClientId, Instant, Lun, NexusId, Principal};
use sanwire_device::{LogicalUnits, NexusPorts};
use sanwire_engine::{Handle, Selection, Which, task_aborted};
use sanwire_hyperscsi::{Agreed, CommandHandle, Server, ServerConfig, ServerEvent};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;

use super::terms::Wanted;
use crate::disk::SimDisk;
use crate::executor::{Counts, Executor};
use crate::managers::Managers;
use crate::memory_watch::MemoryWatch;

/// What a server knows of its clients.
pub(super) struct Clients {
    pub(super) wanted: Wanted,
    /// Which of them may manage it.
    pub(super) managers: Managers,
}

/// Who has a session.
struct Visitor {
    client: ClientId,
    /// It wants to read only.
    is_read_only: bool,
}

/// A reset that a client has asked for.
pub(super) type WantedReset = (CommandHandle, Option<Lun>);

/// A shard that runs.
pub struct Shard {
    /// Its protocol machine.
    pub server: Server,
    pub(super) memory: Region,
    watch: MemoryWatch,
    /// What it executes.
    pub executor: Executor<Command>,
    clients: Clients,
    visitors: BTreeMap<NexusId, Visitor>,
    /// What the trace must know.
    pub notes: Vec<u64>,
}

/// A command of HyperSCSI, as the engine knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Command(pub CommandHandle);

impl Handle for Command {
    fn nexus(&self) -> NexusId {
        self.0.nexus()
    }
}

impl Shard {
    /// A shard of a server with these logical units.
    pub(super) fn new(config: ServerConfig, units: Arc<LogicalUnits>, disk: Arc<SimDisk>, clients: Clients) -> Self {
        let memory = config.memory.clone();
        let executor = Executor::new(memory.clone(), units, disk);
        let (watch, server) = (MemoryWatch::new(&memory), Server::new(config));
        Shard { server, memory, watch, executor, clients, visitors: BTreeMap::new(), notes: Vec::new() }
    }

    /// Handles the events of the server up to a reset, which concerns all shards.
    ///
    /// # Errors
    /// When the server breaks a promise.
    pub(super) fn drain_events(&mut self, counts: &mut Counts, now: Instant) -> Result<Option<WantedReset>, String> {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::SessionOpened { nexus, client, run, options, memory, .. } => {
                    self.open(nexus, client, &options, memory)?;
                    let writer = u128::from_be_bytes(client.0) ^ u128::from(run);
                    self.executor.units_of(nexus).name_writer(nexus, writer.to_be_bytes());
                }
                ServerEvent::Disconnected { nexus } if self.server.is_connected(nexus) => {}
                ServerEvent::Disconnected { nexus } => {
                    for Command(handle) in self.executor.withdraw_starved(nexus) {
                        self.server.withdraw(handle, now);
                    }
                }
                ServerEvent::Held { nexus, is_held } => {
                    self.executor.withhold(nexus, is_held);
                    self.executor.retry(now);
                }
                ServerEvent::Refused { .. } | ServerEvent::NotAllowed { .. } => {}
                ServerEvent::Options { nexus, options } | ServerEvent::SessionResumed { nexus, options, .. } => {
                    self.executor.units_of(nexus).lock_media(nexus, options.medium_lock);
                    if let Some(visitor) = self.visitors.get_mut(&nexus) {
                        visitor.is_read_only = options.peer_is_read_only;
                    }
                }
                ServerEvent::SessionClosed { nexus, .. } => {
                    self.executor.close(nexus);
                    self.visitors.remove(&nexus);
                }
                ServerEvent::Command { handle, task } => {
                    self.notes.push(handle.number());
                    self.executor.begin(Command(handle), task, counts, now)?;
                }
                ServerEvent::Abort { handle } => {
                    let which = Which::Command(Command(handle));
                    self.executor.abort(&Selection { by: handle.nexus(), which }, None);
                }
                ServerEvent::Administer { handle, request, .. } => {
                    let answer = self.administer(handle.nexus(), request, counts)?;
                    self.server.administered(handle, answer, now);
                }
                ServerEvent::Reset { handle, lun } => return Ok(Some((handle, lun))),
            }
            self.answer(now)?;
        }
        Ok(None)
    }

    /// Sessions, with a connection or without.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.visitors.len()
    }

    fn open(&mut self, nexus: NexusId, client: ClientId, options: &Agreed, memory: Region) -> Result<(), String> {
        // Its program may have been killed and run again.
        for (former, _) in self.visitors.iter().filter(|(_, visitor)| visitor.client == client) {
            self.executor.keep_blocks(*former, nexus);
        }
        let ports = NexusPorts {
            initiator: TransportId::hyperscsi(client),
            target: TargetPort::default(),
            principal: Principal { client: Some(client), ..Principal::default() },
        };
        let units = self.executor.open_view(nexus, Arc::new(ports), memory)?;
        let is_read_only = options.peer_is_read_only;
        units.set_read_only(is_read_only || self.clients.wanted.of(client).read_only);
        units.lock_media(nexus, options.medium_lock);
        self.visitors.insert(nexus, Visitor { client, is_read_only });
        Ok(())
    }

    /// When something is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let of_memory = self.watch.poll_timeout(self.executor.is_starved() || self.server.is_starved());
        [self.server.poll_timeout(), self.executor.poll_timeout(), of_memory].into_iter().flatten().min()
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.watch.note_driven(now);
        self.server.handle_timeout(now);
        self.executor.handle_timeout(now);
        let starving = self.executor.starving().chain(self.server.starving());
        let shortage: Shortage = starving.collect();
        self.server.relieve(&shortage, now);
    }

    /// What is wanted of clients has changed.
    pub(super) fn look_after_terms(&mut self, now: Instant) {
        for (nexus, visitor) in &self.visitors {
            let is_read_only = visitor.is_read_only || self.clients.wanted.of(visitor.client).read_only;
            self.executor.units_of(*nexus).set_read_only(is_read_only);
        }
        self.server.refresh_options(now);
        self.server.share_windows(now);
    }

    /// Whether an initiator keeps the medium in.
    pub(super) fn keeps_medium(&self) -> bool {
        self.executor.units.get(Lun::default()).is_some_and(|disk| disk.is_removal_prevented())
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
        self.clients.managers.execute(visitor.client, request, counts)
    }

    /// Tells the clients what has become of their commands.
    ///
    /// # Errors
    /// When one was answered before.
    pub(super) fn answer(&mut self, now: Instant) -> Result<(), String> {
        for (Command(handle), reply) in self.executor.take_ended(now)? {
            self.server.reply(handle, reply.unwrap_or_else(task_aborted), now);
        }
        Ok(())
    }
}
