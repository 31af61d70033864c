//! One shard: a thread with its ports and connections, its ends of the protocols, and the commands that it executes.

mod hyperscsi;
mod iscsi;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use sanwire_buffer::Shortage;
use sanwire_core::{Instant, LinkId, Path};
use sanwire_engine::{Ended, Engine, VolumeCounters, Work, task_aborted};
use sanwire_hyperscsi::{LinkLimits, Server, ServerConfig as ProtocolConfig};
use sanwire_io::file::{EngineKind, FileEngine};
use sanwire_io::{Clock, Poller, Port, Waker};
use sanwire_store::CompletionQueue;

use self::hyperscsi::Visitors;
use self::iscsi::IscsiEnd;
use crate::clients::Clients;
use crate::command::CommandHandle;
use crate::directory::TargetNodes;
use crate::link::{Links, packet_max_bytes};
use crate::logging::ShardLines;
use crate::management_queue::ManagementQueue;
use crate::messages::{AdmittedConnection, Mailbox, ShardMessage};
use crate::opener::Opener;
use crate::past_uses::PastUses;
use crate::registry::Registry;

/// Packets taken from a port before the shard looks at anything else.
const RECEIVE_BUDGET: usize = 32;

/// Packets sent before the shard looks for what has come.
const TRANSMIT_BUDGET: usize = 256;

/// Operations of the kernel's engine at once.
const ENGINE_DEPTH: u32 = 256;

/// How long a stopping shard waits for its commands, for acknowledgements, and for iSCSI initiators to leave.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A stopping shard that never comes to rest tells its clients after this.
const STOP_REST: Duration = Duration::from_secs(2);

/// How often it is looked whether somebody keeps memory from others.
const RELIEVE: Duration = Duration::from_millis(50);

/// Packets by which receive buffers are measured: what most links take at the most. A wildcard address or the loopback
/// takes larger ones; then fewer fit, and the rest is recovered like any loss.
const JUMBO_BYTES: usize = 9000;

/// What a shard is made of; its thread builds the rest, because an engine belongs to one thread.
pub(crate) struct ShardParts {
    pub(crate) ports: Vec<Port>,
    /// What opened the ports.
    pub(crate) openers: Vec<Arc<Opener>>,
    pub(crate) server: ProtocolConfig,
    pub(crate) iscsi: sanwire_iscsi::ServerConfig,
    /// HyperSCSI's clients, with what they see.
    pub(crate) clients: Arc<Clients>,
    /// Where requests to manage the server go.
    pub(crate) inbox: ManagementQueue,
    /// The targets, as iSCSI's initiators see them.
    pub(crate) exports: Arc<TargetNodes>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) past_uses: Arc<PastUses>,
    pub(crate) engine: EngineKind,
    pub(crate) waker: Waker,
    pub(crate) mail: Receiver<ShardMessage>,
    /// The ways to all shards, and which of them is this one.
    pub(crate) shards: Arc<[Mailbox]>,
    pub(crate) index: usize,
    pub(crate) stop: Arc<AtomicBool>,
}

/// The limits of a port, as the protocol negotiates them.
pub(crate) fn link_limits(port: &Port, shards: u32) -> LinkLimits {
    let packet_max_bytes = packet_max_bytes(port);
    let measure = (packet_max_bytes as usize).min(JUMBO_BYTES);
    LinkLimits {
        packet_max_bytes,
        receive_capacity_packets: (port.receive_capacity_packets(measure) / shards.max(1)).max(1),
    }
}

struct Shard {
    links: Links,
    server: Server,
    visitors: Visitors,
    iscsi: IscsiEnd,
    mail: Receiver<ShardMessage>,
    shards: Arc<[Mailbox]>,
    index: usize,
    engine: Engine<CommandHandle>,
    files: FileEngine,
    poller: Poller,
    clock: Clock,
    /// Connections on their way to other shards, which wait until this one has seen which of its own have ended.
    newcomers: Vec<Arc<AdmittedConnection>>,
    counters: VolumeCounters,
    /// Requests to manage the server from clients that may not.
    unpermitted: u64,
    past_uses: Arc<PastUses>,
    lines: ShardLines,
    /// When it is next looked whether somebody keeps memory from others.
    relieve_at: Instant,
}

/// Runs a shard until it is told to stop.
pub(crate) fn run(parts: ShardParts, ready: impl FnOnce(io::Result<()>)) {
    let files = match FileEngine::new(&parts.server.memory, ENGINE_DEPTH, parts.engine) {
        Ok(files) => files,
        Err(error) => return ready(Err(error)),
    };
    let (waker, stop) = (parts.waker.clone(), Arc::clone(&parts.stop));
    let index = parts.index;
    let shard = Shard::new(parts, files);
    ready(Ok(()));
    if let Err(error) = shard.serve(&waker, &stop) {
        tracing::error!("thread {index}, one of those that serve, has stopped: {error}; start the server again");
    }
}

impl Shard {
    fn new(parts: ShardParts, files: FileEngine) -> Self {
        let (memory, waker) = (parts.server.memory.clone(), parts.waker.clone());
        Shard {
            links: Links::new(parts.ports, parts.openers),
            server: Server::new(parts.server),
            visitors: Visitors::new(parts.clients, parts.inbox),
            iscsi: IscsiEnd::new(parts.iscsi, parts.exports, parts.registry),
            mail: parts.mail,
            shards: parts.shards,
            index: parts.index,
            engine: Engine::new(memory, CompletionQueue::new(move || waker.wake())),
            files,
            poller: Poller::new(),
            clock: Clock::new(),
            newcomers: Vec::new(),
            counters: VolumeCounters::default(),
            unpermitted: 0,
            past_uses: parts.past_uses,
            lines: ShardLines::default(),
            relieve_at: Instant::ZERO,
        }
    }

    fn serve(mut self, waker: &Waker, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Acquire) {
            let now = self.clock.now();
            if !self.turn(now)? {
                self.sleep(waker, None)?;
            }
        }
        self.stop(waker)
    }

    /// Does what there is to do; false when there was nothing.
    fn turn(&mut self, now: Instant) -> io::Result<bool> {
        if self.links.tend(&self.shards, now) {
            self.tell_addresses(now);
        }
        self.read_mail(now);
        let received = self.receive(now) + self.iscsi.receive(&mut self.poller, now)?;
        self.advance(now);
        self.newcomers.clear();
        let sent = self.transmit(now) + self.iscsi.transmit(&mut self.poller, now);
        self.submit();
        if self.files.in_flight() > 0 {
            self.files.flush()?;
        }
        Ok(received + sent > 0 || self.iscsi.has_events())
    }

    fn tell_addresses(&mut self, now: Instant) {
        if let Some(addresses) = self.links.addresses() {
            self.server.set_addresses(addresses, now);
        }
    }

    fn receive(&mut self, now: Instant) -> usize {
        let server = &mut self.server;
        self.links.receive(RECEIVE_BUDGET, &mut |link, peer, bytes| {
            server.handle_input(Path { link: LinkId(link as u8), peer }, bytes, now);
        })
    }

    /// Lets time pass, executes what was asked and answers what was executed.
    fn advance(&mut self, now: Instant) {
        self.server.handle_timeout(now);
        self.iscsi.handle_timeout(&mut self.poller, now);
        self.engine.handle_timeout(now);
        self.reap(now);
        self.relieve(now);
        while let Some(event) = self.server.poll_event() {
            self.handle_event(event, now);
        }
        self.handle_iscsi_events(now);
        self.engine.retry(now);
        if self.engine.is_starved() && self.iscsi.server.relieve(now) {
            self.engine.retry(now);
        }
        self.hold_back(now);
        self.submit();
        // What is done at once (in a file in memory) is answered in the same turn.
        self.reap(now);
        self.abort_for_commands();
        self.answer(now);
        while let Some(notice) = self.engine.poll_notice() {
            tracing::warn!("{notice}");
        }
    }

    /// Has nothing more sent to commands that wait for stores and keep too much memory.
    fn hold_back(&mut self, now: Instant) {
        let (mut sessions, mut commands) = (BTreeSet::new(), Vec::new());
        for command in self.engine.commands_to_pause() {
            match command {
                CommandHandle::HyperScsi(handle) => _ = sessions.insert(handle.nexus()),
                // Of others of their logical units no data is asked for.
                CommandHandle::Iscsi(handle) => commands.push(handle),
            }
        }
        self.server.hold_back(sessions, now);
        self.iscsi.server.hold_back(&commands, now);
    }

    /// Gives the kernel what it is to do, as far as there is room.
    fn submit(&mut self) {
        while let Some(Work { id, op }) = self.engine.poll_work() {
            if let Err(op) = self.files.submit(id, op) {
                return self.engine.give_back(Work { id, op });
            }
        }
    }

    /// Takes memory from those who do nothing by which it would be given back, when others have none.
    fn relieve(&mut self, now: Instant) {
        if now < self.relieve_at {
            return;
        }
        self.relieve_at = now + RELIEVE;
        let starving = self.engine.starving().chain(self.server.starving()).chain(self.iscsi.server.starving());
        let shortage: Shortage = starving.collect();
        if !shortage.is_empty() {
            self.server.relieve(&shortage, now);
            self.iscsi.server.drop_hoards(&shortage, now);
        }
    }

    fn reap(&mut self, now: Instant) {
        if self.files.in_flight() > 0 {
            let engine = &mut self.engine;
            self.files.reap(&mut |id, completion| engine.completed(id, completion, now));
        }
        self.engine.reap(now);
    }

    /// Tells the protocols what has become of commands.
    fn answer(&mut self, now: Instant) {
        if self.engine.ended().len() == 0 {
            return;
        }
        let ended_at = self.clock.now();
        while let Some(Ended { handle, meter, reply }) = self.engine.poll_ended() {
            self.counters.note(&meter, reply.as_ref(), ended_at);
            match handle {
                // Its clients learn of the end of their commands by answers only.
                CommandHandle::HyperScsi(handle) => self.server.reply(handle, reply.unwrap_or_else(task_aborted), now),
                CommandHandle::Iscsi(handle) => self.iscsi.answer(handle, reply, now),
            }
        }
    }

    fn transmit(&mut self, now: Instant) -> usize {
        let mut sent = 0;
        while sent < TRANSMIT_BUDGET
            && let Some((path, packet)) = self.server.poll_transmit(now)
        {
            sent += 1;
            self.links.queue(usize::from(path.link.0), path.peer, packet);
        }
        if sent > 0 {
            self.links.flush();
        }
        sent
    }

    fn sleep(&mut self, waker: &Waker, limit: Option<Instant>) -> io::Result<()> {
        let deadlines = [
            self.server.poll_timeout(),
            self.iscsi.poll_timeout(),
            self.engine.poll_timeout(),
            self.links.poll_timeout(),
            limit,
        ];
        let deadline = deadlines.into_iter().flatten().min();
        let files: [BorrowedFd<'_>; 1] = [self.files.as_fd()];
        let fds = if self.files.in_flight() > 0 { &files[..] } else { &[] };
        if fds.is_empty() && self.iscsi.is_hot() {
            let (iscsi, clock) = (&mut self.iscsi, &self.clock);
            let spin = iscsi.spin();
            // A connection that ends has no bytes, but there is something to do.
            let mut attempt = || iscsi.receive_hot(clock.now()) > 0 || iscsi.has_events();
            if self.poller.watch(spin, self.links.ports(), Some(waker), deadline, clock, &mut attempt) {
                return Ok(());
            }
        }
        let ready = self.poller.wait(self.links.ports(), fds, Some(waker), deadline, &self.clock)?;
        self.iscsi.note(ready);
        Ok(())
    }

    /// Ends what is under way, tells the clients, and leaves.
    fn stop(mut self, waker: &Waker) -> io::Result<()> {
        let begun_at = self.clock.now();
        let give_up_at = begun_at + STOP_TIMEOUT;
        let mut told = false;
        loop {
            let now = self.clock.now();
            let busy = self.turn(now)?;
            if now >= give_up_at {
                return Ok(());
            }
            if told && !busy && self.server.is_drained() && self.iscsi.is_drained() {
                return Ok(());
            }
            if !told && (self.engine.is_idle() || now >= begun_at + STOP_REST) {
                self.server.shut_down();
                self.iscsi.shut_down(now);
                told = true;
            } else if !busy {
                self.sleep(waker, Some(give_up_at.min(now + Duration::from_millis(50))))?;
            }
        }
    }
}
