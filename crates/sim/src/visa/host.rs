//! A server's process: its end of VISA, and what it executes.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::{Packet, Region, Shortage};
use sanwire_core::{ClientId, Instant, Lun, NexusId, Path, Principal};
use sanwire_device::{LogicalUnits, NexusPorts};
use sanwire_engine::{Handle, Selection, Which, task_aborted};
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;
use sanwire_visa::{CommandHandle, Server, ServerConfig, ServerEvent};

use crate::disk::SimDisk;
use crate::executor::{Counts, Executor};
use crate::managers::Managers;
use crate::memory_watch::MemoryWatch;
use crate::post::{Post, ShardMessage};
use crate::random::Random;
use crate::world::{self, Outcome};

/// How long mail of the only shard to itself takes at the most.
const MAIL_MAX: Duration = Duration::from_micros(5);

/// Who wants commands ended.
#[derive(Clone, Copy)]
enum AbortedBy {
    /// A reset that a client has asked for.
    Reset(CommandHandle),
    /// A command, at the barrier with this number.
    Command(u64),
}

/// A command of VISA, as the engine knows it.
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
    executor: Executor<Command>,
    post: Post<Command, AbortedBy>,
    visitors: BTreeMap<NexusId, ClientId>,
    managers: Managers,
    /// Connections over TCP that are of no more use.
    pub(super) hangups: Vec<Path>,
    /// What the trace must know.
    pub(super) notes: Vec<u64>,
}

impl Host {
    pub(super) fn new(
        config: ServerConfig,
        units: Arc<LogicalUnits>,
        disk: Arc<SimDisk>,
        managers: Managers,
        random: Random,
    ) -> Self {
        let memory = config.memory.clone();
        Host {
            watch: MemoryWatch::new(&memory),
            executor: Executor::new(memory.clone(), units, disk),
            post: Post::new(1, MAIL_MAX, random),
            server: Server::new(config),
            memory,
            visitors: BTreeMap::new(),
            managers,
            hangups: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Handles all events.
    ///
    /// # Errors
    /// When the server breaks a promise.
    pub(super) fn drain_events(&mut self, counts: &mut Counts, now: Instant) -> Outcome<()> {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::SessionOpened { nexus, client, run, memory, .. } => {
                    // Its program may have been killed and run again.
                    for (former, _) in self.visitors.iter().filter(|(_, visitor)| **visitor == client) {
                        self.executor.keep_blocks(*former, nexus);
                    }
                    let ports = NexusPorts {
                        initiator: TransportId::hyperscsi(client),
                        target: TargetPort::default(),
                        principal: Principal { client: Some(client), ..Principal::default() },
                    };
                    self.executor.open_view(nexus, Arc::new(ports), memory)?;
                    let writer = u128::from_be_bytes(client.0) ^ u128::from(run);
                    self.executor.units_of(nexus).name_writer(nexus, writer.to_be_bytes());
                    self.visitors.insert(nexus, client);
                }
                ServerEvent::Disconnected { nexus } if self.server.is_connected(nexus) => {}
                ServerEvent::Disconnected { nexus } => {
                    for Command(handle) in self.executor.withdraw_starved(nexus) {
                        self.server.withdraw(handle, now);
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
                ServerEvent::Administer { handle, request, .. } => {
                    let client = *self.visitors.get(&handle.nexus()).ok_or("who manages has no session")?;
                    let answer = self.managers.execute(client, request, counts)?;
                    self.server.administered(handle, answer, now);
                }
                ServerEvent::Abort { handle } => {
                    let which = Which::Command(Command(handle));
                    self.executor.abort(&Selection { by: handle.nexus(), which }, None);
                }
                ServerEvent::Reset { handle, lun } => self.reset(handle, lun, now),
                ServerEvent::Hangup { path } => self.hangups.push(path),
                ServerEvent::SessionResumed { .. } | ServerEvent::Refused { .. } | ServerEvent::NotAllowed { .. } => {}
            }
            self.answer(now)?;
        }
        self.answer(now)
    }

    /// Ends the commands of all clients for a logical unit.
    fn reset(&mut self, handle: CommandHandle, lun: Option<Lun>, now: Instant) {
        let units = self.executor.units_of(handle.nexus());
        let Some((lun, disk)) = lun.and_then(|lun| Some((lun, units.may_reset(handle.nexus(), lun, now)?))) else {
            return self.server.managed(handle, false, now);
        };
        units.logical_unit_reset(lun);
        let selection = Selection { by: handle.nexus(), which: Which::On(vec![disk.id()]) };
        self.abort(AbortedBy::Reset(handle), &selection);
    }

    fn abort(&mut self, by: AbortedBy, selection: &Selection<Command>) {
        let barrier = self.post.barrier(0, by);
        self.executor.abort(selection, Some(&barrier));
    }

    fn answer(&mut self, now: Instant) -> Outcome<()> {
        while let Some((number, selection)) = self.executor.poll_abort() {
            self.abort(AbortedBy::Command(number), &selection);
        }
        for (Command(handle), reply) in self.executor.take_ended(now)? {
            self.server.reply(handle, reply.unwrap_or_else(task_aborted), now);
        }
        self.post.collect(now);
        Ok(())
    }

    fn read_mail(&mut self, now: Instant) -> Outcome<()> {
        while let Some((_, mail)) = self.post.take(now) {
            match mail {
                ShardMessage::Abort(..) => {}
                ShardMessage::BarrierPassed(AbortedBy::Reset(handle)) => self.server.managed(handle, true, now),
                ShardMessage::BarrierPassed(AbortedBy::Command(number)) => self.executor.barrier_passed(number, now),
            }
        }
        self.answer(now)
    }

    /// Begins what waited, as far as it can.
    ///
    /// # Errors
    /// When the server breaks a promise.
    pub(super) fn feed_starved(&mut self, now: Instant) -> Outcome<()> {
        self.executor.retry(now);
        self.answer(now)
    }

    /// What is to be sent.
    ///
    /// # Errors
    /// When that is more than `most` packets at one moment.
    pub(super) fn transmits(&mut self, now: Instant, most: usize) -> Outcome<Vec<(Path, Packet)>> {
        let mut packets = Vec::new();
        while packets.len() <= most {
            if let Some(sent) = self.server.poll_transmit(now) {
                packets.push(sent);
            } else if let Some(path) = self.server.poll_stream(now) {
                let on_stream = iter::from_fn(|| self.server.poll_transmit_on(path, now));
                packets.extend(on_stream.take(most + 1).map(|packet| (path, packet)));
            } else {
                return Ok(packets);
            }
        }
        Err("the server transmits without end".to_owned())
    }

    pub(super) fn take_scheduled(&mut self) -> Vec<(Instant, u64)> {
        self.executor.take_scheduled()
    }
}

impl world::Host for Host {
    fn memory(&self) -> Vec<Region> {
        vec![self.memory.clone()]
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let of_memory = self.watch.poll_timeout(self.executor.is_starved() || self.server.is_starved());
        let others = [self.server.poll_timeout(), self.executor.poll_timeout(), self.post.next_at(), of_memory];
        others.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) -> Outcome<()> {
        self.watch.note_driven(now);
        self.server.handle_timeout(now);
        self.executor.handle_timeout(now);
        let shortage: Shortage = self.executor.starving().chain(self.server.starving()).collect();
        self.server.relieve(&shortage, now);
        self.read_mail(now)
    }

    fn disk_done(&mut self, token: u64, now: Instant) -> Outcome<()> {
        self.executor.disk_done(token, now);
        self.feed_starved(now)
    }

    fn shut_down(&mut self, _now: Instant) {
        self.server.admit_no_more();
        self.server.shut_down();
    }

    fn kill(self, random: &mut Random) {
        self.executor.kill(random);
    }

    fn sessions(&self) -> usize {
        self.server.sessions()
    }

    fn is_idle(&self) -> bool {
        self.executor.is_idle() && self.post.is_empty()
    }

    fn describe(&self) -> String {
        let connections = self.server.connections().map(|status| status.traffic).collect::<Vec<_>>();
        format!("{connections:?}, {}, {:?}", self.executor.describe(), self.server.counters())
    }
}
