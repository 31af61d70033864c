//! A server's process: the protocol machine, the logical units, and what they have under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun, NexusId};
use sanwire_device::{Disk, DiskOptions, Execution, LogicalUnits, NexusPorts, Progress};
use sanwire_hyperscsi::wire::command::Function;
use sanwire_hyperscsi::{CommandHandle, Server, ServerConfig, ServerEvent};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Identity, Reply, Task};
use sanwire_store::{Delayed, Request, Started, Store};

use crate::disk::SimDisk;
use crate::random::Random;

/// The command that must not be executed twice: the simulation's device counts it. Its number stands in bytes 2 to 9.
pub const COUNT: u8 = 0xc9;

/// How often each counting command was executed, through all lives of the server.
pub type Counts = BTreeMap<u64, u32>;

struct Working {
    handle: CommandHandle,
    execution: Execution,
    delayed: Delayed,
}

/// A server that runs. Dropping it is killing it.
pub struct Host {
    /// Its protocol machine.
    pub server: Server,
    /// Its memory.
    pub memory: Region,
    units: LogicalUnits,
    working: BTreeMap<u64, Working>,
    next_token: u64,
    /// Commands that wait for memory.
    starved: VecDeque<(CommandHandle, Task)>,
    /// Commands that have begun and not ended.
    active: BTreeSet<CommandHandle>,
    /// Commands that have begun: none begins twice in one life.
    begun: BTreeSet<CommandHandle>,
    /// Resets that wait for the end of what is active.
    resets: Vec<(CommandHandle, bool)>,
    /// When the completions come that are new since the last look.
    pub scheduled: Vec<(Instant, u64)>,
    /// What the trace must know.
    pub notes: Vec<u64>,
}

impl Host {
    /// Starts a server.
    ///
    /// # Errors
    /// When the disk or its name is refused.
    pub fn new(config: ServerConfig, disk: Arc<SimDisk>, write_cache: bool) -> Result<Self, String> {
        let memory = config.memory.clone();
        let units = LogicalUnits::new();
        let identity = Identity::new("simulated", [7; 16]).map_err(|error| format!("{error:?}"))?;
        let disk = Disk::new(identity, disk, DiskOptions { write_cache, ..DiskOptions::default() })
            .map_err(|error| error.to_string())?;
        units.add(Lun::default(), disk).map_err(|error| error.to_string())?;
        Ok(Host {
            server: Server::new(config),
            memory,
            units,
            working: BTreeMap::new(),
            next_token: 0,
            starved: VecDeque::new(),
            active: BTreeSet::new(),
            begun: BTreeSet::new(),
            resets: Vec::new(),
            scheduled: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// Whether no command is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty() && self.starved.is_empty() && self.resets.is_empty()
    }

    /// What is going on, for a failure's message.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "server: {} connections, {} commands active, {} at the disk, {} without memory, {} resets waiting, {:?}, {:?}",
            self.server.connections(),
            self.active.len(),
            self.working.len(),
            self.starved.len(),
            self.resets.len(),
            self.memory,
            self.server.counters()
        )
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
                    let ports = NexusPorts { initiator, target: TargetPort::default() };
                    self.units.nexus_established(nexus, Arc::new(ports));
                }
                ServerEvent::SessionClosed { nexus } => self.close(nexus),
                ServerEvent::Command { handle, task } => {
                    if !self.begun.insert(handle) {
                        return Err(format!("{handle:?} was executed twice"));
                    }
                    self.notes.push(handle.number());
                    self.active.insert(handle);
                    self.begin(handle, task, counts, now)?;
                }
                ServerEvent::Manage { handle, function: Function::LogicalUnitReset, lun } => {
                    let done = lun.is_some_and(|lun| self.units.logical_unit_reset(lun, handle.nexus()));
                    self.resets.push((handle, done));
                }
                ServerEvent::Manage { function: Function::AbortTask, .. } => {
                    return Err("the server must abort tasks itself".to_owned());
                }
            }
            self.finish_resets(now);
        }
        Ok(())
    }

    fn close(&mut self, nexus: NexusId) {
        self.units.nexus_lost(nexus);
        self.starved.retain(|(handle, _)| handle.nexus() != nexus);
        self.resets.retain(|(handle, _)| handle.nexus() != nexus);
        let waits: BTreeSet<CommandHandle> = self.working.values().map(|working| working.handle).collect();
        self.active.retain(|handle| handle.nexus() != nexus || waits.contains(handle));
    }

    fn begin(&mut self, handle: CommandHandle, task: Task, counts: &mut Counts, now: Instant) -> Result<(), String> {
        if task.cdb.operation_code() == COUNT {
            let id = task.cdb[2..10].iter().fold(0, |id, byte| id << 8 | u64::from(*byte));
            let count = counts.entry(id).or_default();
            *count += 1;
            if *count > 1 {
                return Err(format!("counting command {id} was executed {count} times"));
            }
            self.end(handle, Reply::good(None), now);
            return Ok(());
        }
        let progress = self.units.begin(handle.nexus(), task, &self.memory);
        self.go_on(handle, progress, now)
    }

    fn go_on(&mut self, handle: CommandHandle, mut progress: Progress, now: Instant) -> Result<(), String> {
        loop {
            let (execution, request): (Execution, Request) = match progress {
                Progress::Done(reply) => {
                    self.end(handle, reply, now);
                    return Ok(());
                }
                Progress::NoMemory(task) => {
                    self.starved.push_back((handle, task));
                    return Ok(());
                }
                Progress::Store(execution, request) => (execution, request),
                Progress::Wait(_) | Progress::Answered(..) => {
                    return Err("the client sends no command that waits for another or is answered early".to_owned());
                }
                Progress::Abort(..) => return Err("no client of the simulation preempts another".to_owned()),
            };
            let store: Arc<dyn Store> = Arc::clone(execution.store());
            match store.start(request) {
                Started::Done(completion) => progress = self.units.resume(execution, completion, &self.memory),
                Started::Later(delayed) => {
                    let token = self.next_token;
                    self.next_token += 1;
                    self.scheduled.push((now + delayed.delay, token));
                    self.working.insert(token, Working { handle, execution, delayed });
                    return Ok(());
                }
                Started::Kernel(_) => return Err("the simulated disk has no file".to_owned()),
            }
        }
    }

    fn end(&mut self, handle: CommandHandle, reply: Reply, now: Instant) {
        self.active.remove(&handle);
        self.server.reply(handle, reply, now);
    }

    fn finish_resets(&mut self, now: Instant) {
        if self.active.is_empty() {
            for (handle, done) in std::mem::take(&mut self.resets) {
                self.server.managed(handle, done, now);
            }
        }
    }

    /// The disk has done something.
    ///
    /// # Errors
    /// When the server breaks a promise.
    pub fn disk_done(&mut self, token: u64, now: Instant) -> Result<(), String> {
        let Some(Working { handle, execution, delayed }) = self.working.remove(&token) else { return Ok(()) };
        let Started::Done(completion) = delayed.resume() else {
            return Err("the medium answers at once".to_owned());
        };
        let progress = self.units.resume(execution, completion, &self.memory);
        self.go_on(handle, progress, now)?;
        self.finish_resets(now);
        Ok(())
    }

    /// Begins what waited for memory, as far as there is some.
    ///
    /// # Errors
    /// When the server breaks a promise.
    pub fn feed_starved(&mut self, counts: &mut Counts, now: Instant) -> Result<(), String> {
        for _ in 0..self.starved.len() {
            let Some((handle, task)) = self.starved.pop_front() else { break };
            self.begin(handle, task, counts, now)?;
        }
        self.finish_resets(now);
        Ok(())
    }

    /// The process is killed: what the disk was asked may be done or not.
    pub fn kill(self, random: &mut Random) {
        for working in self.working.into_values() {
            if random.chance(500_000) {
                drop(working.delayed.resume());
            }
        }
    }
}
