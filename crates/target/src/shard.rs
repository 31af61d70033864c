//! One shard: a thread with its ports, its end of the protocol, and the commands that it executes.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, LinkId, Path};
use sanwire_device::{LogicalUnits, NexusPorts};
use sanwire_hyperscsi::{LinkLimits, Server, ServerConfig, ServerEvent};
use sanwire_io::file::{EngineKind, FileEngine};
use sanwire_io::{Clock, Poller, Port, Waker};
use sanwire_scsi::reservation::TransportId;

use crate::link::{Links, Opener};
use crate::runner::{Answered, Runner};
use crate::wire::HYPERSCSI_PORT;

/// Packets taken from a port before the shard looks at anything else.
const RECEIVE_BUDGET: usize = 32;

/// Packets sent before the shard looks for what has come.
const TRANSMIT_BUDGET: usize = 256;

/// Operations of the kernel's engine at once.
const ENGINE_DEPTH: u32 = 256;

/// How long a stopping shard waits for its commands and for acknowledgements.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// A stopping shard that never comes to rest tells its clients after this.
const STOP_REST: Duration = Duration::from_secs(2);

/// Packets by which receive buffers are measured: what most links take at the most. A wildcard address or the loopback
/// takes larger ones; then fewer fit, and the rest is recovered like any loss.
const JUMBO_BYTES: usize = 9000;

/// What a shard is made of; its thread builds the rest, because an engine belongs to one thread.
pub(crate) struct ShardParts {
    pub(crate) ports: Vec<Port>,
    /// What opened the ports.
    pub(crate) openers: Vec<Opener>,
    pub(crate) server: ServerConfig,
    pub(crate) units: Arc<LogicalUnits>,
    pub(crate) engine: EngineKind,
    pub(crate) waker: Waker,
    pub(crate) stop: Arc<AtomicBool>,
}

/// The limits of a port, as the protocol negotiates them.
pub(crate) fn link_limits(port: &Port, shards: u32) -> LinkLimits {
    // HyperSCSI counts body bytes in 16 bits.
    let packet_max = port.payload_max_bytes().min(65_000);
    LinkLimits {
        packet_max_bytes: packet_max as u32,
        receive_capacity_packets: (port.receive_capacity_packets(packet_max.min(JUMBO_BYTES)) / shards.max(1)).max(1),
    }
}

struct Shard {
    links: Links,
    server: Server,
    runner: Runner,
    engine: FileEngine,
    clock: Clock,
    answered: Vec<Answered>,
}

/// Runs a shard until it is told to stop.
pub(crate) fn run(parts: ShardParts, ready: impl FnOnce(io::Result<()>)) {
    let memory = parts.server.memory.clone();
    let engine = match FileEngine::new(&memory, ENGINE_DEPTH, parts.engine) {
        Ok(engine) => engine,
        Err(error) => return ready(Err(error)),
    };
    let links = Links::new(parts.ports, parts.openers);
    let shard = Shard::new(links, parts.server, parts.units, memory, engine);
    ready(Ok(()));
    if let Err(error) = shard.serve(&parts.waker, &parts.stop) {
        tracing::error!("a shard ends: {error}; start the server again");
    }
}

impl Shard {
    fn new(links: Links, config: ServerConfig, units: Arc<LogicalUnits>, memory: Region, engine: FileEngine) -> Self {
        let runner = Runner::new(units, memory);
        Shard { links, server: Server::new(config), runner, engine, clock: Clock::new(), answered: Vec::new() }
    }

    fn serve(mut self, waker: &Waker, stop: &AtomicBool) -> io::Result<()> {
        let mut poller = Poller::new();
        while !stop.load(Ordering::Acquire) {
            let now = self.clock.now();
            if !self.turn(now)? {
                self.sleep(&mut poller, waker, None)?;
            }
        }
        self.stop(&mut poller, waker)
    }

    /// Does what there is to do; false when there was nothing.
    fn turn(&mut self, now: Instant) -> io::Result<bool> {
        self.links.tend(now);
        let received = self.receive(now);
        self.advance(now);
        let sent = self.transmit(now);
        if self.engine.in_flight() > 0 {
            self.engine.flush()?;
        }
        Ok(received + sent > 0)
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
        self.runner.handle_timeout(&mut self.engine, now, &mut self.answered);
        self.reap(now);
        while let Some(event) = self.server.poll_event() {
            self.handle_event(event, now);
        }
        self.runner.retry(&mut self.engine, now, &mut self.answered);
        // What an engine does at once (a file in memory) is answered in the same turn.
        self.reap(now);
        self.runner.take_ended(&mut self.answered);
        for (handle, reply) in self.answered.drain(..) {
            self.server.reply(handle, reply, now);
        }
    }

    fn reap(&mut self, now: Instant) {
        if self.engine.in_flight() == 0 {
            return;
        }
        let mut completions = Vec::new();
        self.engine.reap(&mut |tag, completion| completions.push((tag, completion)));
        for (tag, completion) in completions {
            self.answered.extend(self.runner.completed(tag, completion, &mut self.engine, now));
        }
    }

    fn handle_event(&mut self, event: ServerEvent, now: Instant) {
        match event {
            ServerEvent::Command { handle, task } => {
                if let Some((handle, reply)) = self.runner.begin(handle, task, &mut self.engine, now) {
                    self.server.reply(handle, reply, now);
                }
            }
            ServerEvent::Manage { handle, lun, .. } => {
                let done = self.runner.reset(lun, handle.nexus());
                self.server.managed(handle, done, now);
            }
            ServerEvent::SessionOpened { nexus, client, name, path } => {
                tracing::info!("client {client} ({name}) at {path} has come");
                let initiator = TransportId::hyperscsi(client);
                self.runner.nexus_established(nexus, NexusPorts { initiator, target: HYPERSCSI_PORT });
            }
            ServerEvent::SessionClosed { nexus } => {
                tracing::info!("the session of nexus {} is over", nexus.0);
                self.runner.nexus_lost(nexus);
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

    fn sleep(&mut self, poller: &mut Poller, waker: &Waker, limit: Option<Instant>) -> io::Result<()> {
        let deadlines = [self.server.poll_timeout(), self.runner.poll_timeout(), self.links.poll_timeout(), limit];
        let deadline = deadlines.into_iter().flatten().min();
        let engine: [BorrowedFd<'_>; 1] = [self.engine.as_fd()];
        let fds = if self.engine.in_flight() > 0 { &engine[..] } else { &[] };
        poller.wait(self.links.ports(), fds, Some(waker), deadline, &self.clock).map(drop)
    }

    /// Ends what is under way, tells the clients, and leaves.
    fn stop(mut self, poller: &mut Poller, waker: &Waker) -> io::Result<()> {
        let begun_at = self.clock.now();
        let give_up_at = begun_at + STOP_PATIENCE;
        let mut told = false;
        loop {
            let now = self.clock.now();
            let busy = self.turn(now)?;
            if now >= give_up_at {
                return Ok(());
            }
            if told && !busy && self.server.is_drained() {
                return Ok(());
            }
            if !told && (self.runner.is_idle() || now >= begun_at + STOP_REST) {
                self.server.shut_down();
                told = true;
            } else if !busy {
                self.sleep(poller, waker, Some(give_up_at.min(now + Duration::from_millis(50))))?;
            }
        }
    }
}
