//! A server's process: its end of iSCSI, and what it executes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::{Region, Shortage};
use sanwire_core::{Instant, NexusId, Principal};
use sanwire_device::{LogicalUnits, NexusPorts};
use sanwire_engine::{Handle, Selection, Which};
use sanwire_iscsi::{
    Admission, Admitted, CommandHandle, ConnectionId, Function, ManageHandle, ManageOutcome, Server, ServerConfig,
    ServerEvent,
};
use sanwire_scsi::reservation::TransportId;

use super::fixed_directory::target_port;
use crate::disk::SimDisk;
use crate::executor::{COUNT, Counts, Executor};
use crate::memory_watch::MemoryWatch;
use crate::post::{Post, ShardMessage};
use crate::random::Random;
use crate::world::{self, Outcome};

/// How long mail of the only shard to itself takes at the most.
const MAIL_MAX: Duration = Duration::from_micros(5);

/// A command of iSCSI, as the engine knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Command(pub CommandHandle);

impl Handle for Command {
    fn nexus(&self) -> NexusId {
        self.0.nexus()
    }
}

/// A server that runs. Dropping it is killing it.
pub struct Host {
    /// Its end of the protocol.
    pub server: Server,
    memory: Region,
    watch: MemoryWatch,
    /// What it executes.
    pub executor: Executor<Command>,
    /// Where requests wait for the end of commands.
    post: Post<Command, ManageHandle>,
    sessions: BTreeSet<NexusId>,
    admissions: u64,
    /// Connections that are to be closed when all is sent.
    pub closing: Vec<ConnectionId>,
    /// The counting commands, in the order in which they were executed.
    pub counted: Vec<u64>,
}

impl Host {
    /// Starts a server of these units, whose stores are of this disk.
    #[must_use]
    pub fn new(config: ServerConfig, units: Arc<LogicalUnits>, disk: Arc<SimDisk>, random: Random) -> Self {
        let memory = config.memory.clone();
        Host {
            server: Server::new(config),
            executor: Executor::new(memory.clone(), units, disk),
            watch: MemoryWatch::new(&memory),
            memory,
            post: Post::new(1, MAIL_MAX, random),
            sessions: BTreeSet::new(),
            admissions: 0,
            closing: Vec::new(),
            counted: Vec::new(),
        }
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
                    let principal =
                        Principal { initiator_name: Some(initiator.as_str().into()), ..Principal::default() };
                    let initiator = TransportId::iscsi_port(initiator.as_str(), isid.0)
                        .map_err(|error| format!("{initiator}: {error}"))?;
                    self.executor.open(
                        nexus,
                        Arc::new(NexusPorts { initiator, target: target_port(), principal }),
                        memory,
                    );
                    let mut writer = [1; 16];
                    writer[..isid.0.len()].copy_from_slice(&isid.0);
                    self.executor.units_of(nexus).name_writer(nexus, writer);
                    self.sessions.insert(nexus);
                }
                ServerEvent::SessionClosed { nexus, .. } => {
                    if !self.sessions.remove(&nexus) {
                        return Err(format!("{nexus:?} was closed and was not open"));
                    }
                    self.executor.close(nexus);
                }
                ServerEvent::Command { handle, task, .. } => {
                    if !self.sessions.contains(&handle.nexus()) {
                        return Err(format!("{handle:?} is of no open session"));
                    }
                    if task.cdb.operation_code() == COUNT {
                        self.counted.push(task.cdb[2..10].iter().fold(0, |id, byte| id << 8 | u64::from(*byte)));
                    }
                    self.executor.begin(Command(handle), task, counts, now)?;
                }
                ServerEvent::Manage { handle, function: Function::AbortTask(command), .. } => {
                    self.executor.abort(&this_one(command), Some(&self.post.barrier(0, handle)));
                }
                ServerEvent::Manage { handle, function: Function::AbandonTask(command), .. } => {
                    self.executor.leave(&this_one(command), Some(&self.post.barrier(0, handle)));
                }
                ServerEvent::Manage { function, .. } => return Err(format!("no client asks for {function:?}")),
                ServerEvent::Broken { .. } => {}
                ServerEvent::Close { connection } | ServerEvent::Cut { connection } => self.closing.push(connection),
            }
            self.answer(now)?;
        }
        self.executor.retry(now);
        if self.executor.is_starved() && self.server.relieve(now) {
            self.executor.retry(now);
        }
        self.answer(now)
    }

    fn answer(&mut self, now: Instant) -> Outcome<()> {
        for (Command(handle), reply) in self.executor.take_ended(now)? {
            match reply {
                Some(reply) => self.server.reply(handle, reply, now),
                None => self.server.aborted(handle, now),
            }
        }
        self.post.collect(now);
        Ok(())
    }

    fn read_mail(&mut self, now: Instant) {
        while let Some((_, mail)) = self.post.take(now) {
            // There is one shard, and no command that ends others.
            if let ShardMessage::BarrierPassed(handle) = mail {
                self.server.managed(handle, ManageOutcome::Complete, now);
            }
        }
    }
}

/// A command that its own initiator wants ended.
fn this_one(command: CommandHandle) -> Selection<Command> {
    Selection { by: command.nexus(), which: Which::Command(Command(command)) }
}

impl world::Host for Host {
    fn memory(&self) -> Vec<Region> {
        vec![self.memory.clone()]
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let of_memory = self.watch.poll_timeout(self.executor.is_starved() || self.server.is_starved());
        let of_executor = self.executor.poll_timeout().into_iter().chain(self.post.next_at()).min();
        [self.server.poll_timeout(), of_executor, of_memory].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) -> Outcome<()> {
        self.watch.note_driven(now);
        self.server.handle_timeout(now);
        self.read_mail(now);
        self.executor.handle_timeout(now);
        let starving = self.executor.starving().chain(self.server.starving());
        let shortage: Shortage = starving.collect();
        if !shortage.is_empty() {
            self.server.drop_hoards(&shortage, now);
        }
        self.answer(now)
    }

    fn disk_done(&mut self, token: u64, now: Instant) -> Result<(), String> {
        self.executor.disk_done(token, now);
        self.answer(now)
    }

    fn shut_down(&mut self, now: Instant) {
        self.server.shut_down(now);
    }

    fn kill(self, random: &mut Random) {
        self.executor.kill(random);
    }

    fn sessions(&self) -> usize {
        self.sessions.len()
    }

    fn is_idle(&self) -> bool {
        self.executor.is_idle() && self.post.is_empty()
    }

    fn describe(&self) -> String {
        let Host { sessions, post, .. } = self;
        format!("server: {} sessions, {}, {post:?}", sessions.len(), self.executor.describe())
    }
}
