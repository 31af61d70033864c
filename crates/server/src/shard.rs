//! One shard: a thread with its ports and connections, its front ends, and the commands that it executes.

mod events;
mod mail;
mod nexuses;
mod stopping;
mod system;
mod task_management;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use sanwire_buffer::{Region, Shortage};
use sanwire_core::{HEADWAY_PERIOD, Instant};
use sanwire_engine::{Ended, Engine, VolumeCounters, Work};
use sanwire_io::file::EngineKind;
use sanwire_io::{Poller, Port, Ready, Waker, turns};
use sanwire_store::CompletionQueue;

use self::nexuses::Nexuses;
use self::stopping::{Next, Stopping};
use self::system::{Kernel, System};
use crate::announce::Announced;
use crate::command::CommandRef;
use crate::events::EventLog;
use crate::front::{FrontBuilder, Fronts};
use crate::link::Links;
use crate::logging::ShardLines;
use crate::management_queue::ManagementQueue;
use crate::messages::{AdmittedConnection, Mailbox, ShardMessage};
use crate::opener::Opener;
use crate::past_uses::PastUses;
use crate::registry::Registry;
use crate::streams::Streams;

/// Packets taken from a port before the shard looks at anything else.
const RECEIVE_BUDGET: usize = 32;

/// Packets sent before the shard looks for what has come.
const TRANSMIT_BUDGET: usize = 256;

/// What a shard is made of; its thread builds the rest, because an engine belongs to one thread.
pub(crate) struct ShardParts<P> {
    pub(crate) ports: Vec<P>,
    /// What opened the ports.
    pub(crate) openers: Vec<Arc<Opener>>,
    pub(crate) fronts: Vec<FrontBuilder>,
    /// For data in transit.
    pub(crate) memory: Region,
    /// Where what is to be written down goes.
    pub(crate) inbox: ManagementQueue,
    pub(crate) registry: Arc<Registry>,
    pub(crate) past_uses: Arc<PastUses>,
    pub(crate) events: EventLog,
    pub(crate) engine: EngineKind,
    /// Whether each client is counted, volume by volume.
    pub(crate) counts_clients: bool,
    /// Which addresses clients are told.
    pub(crate) announced: Announced,
    pub(crate) waker: Waker,
    pub(crate) mail: Receiver<ShardMessage>,
    /// The ways to all shards, and which of them is this one.
    pub(crate) shards: Arc<[Mailbox]>,
    pub(crate) index: usize,
    pub(crate) stop: Arc<AtomicBool>,
}

struct Shard<S: System> {
    links: Links<S::Port>,
    streams: Streams,
    fronts: Fronts,
    nexuses: Nexuses,
    inbox: ManagementQueue,
    registry: Arc<Registry>,
    mail: Receiver<ShardMessage>,
    shards: Arc<[Mailbox]>,
    index: usize,
    engine: Engine<CommandRef>,
    system: S,
    poller: Poller,
    /// Connections on their way to other shards, which wait until this one has seen which of its own have ended.
    newcomers: Vec<Arc<AdmittedConnection>>,
    counters: VolumeCounters,
    past_uses: Arc<PastUses>,
    counts_clients: bool,
    /// Who watches is told of sessions, links and stores.
    events: EventLog,
    lines: ShardLines,
    /// When the progress of those that have memory is next measured, if others wait for some.
    relieve_at: Instant,
}

/// Runs a shard until it is told to stop.
pub(crate) fn run(parts: ShardParts<Port>, ready: impl FnOnce(io::Result<()>)) {
    let system = match Kernel::new(&parts.memory, parts.engine) {
        Ok(system) => system,
        Err(error) => return ready(Err(error)),
    };
    // Where it is refused, work for others on the same core costs commands more.
    let _ = turns::ask_for_short_turns();
    let (waker, stop) = (parts.waker.clone(), Arc::clone(&parts.stop));
    let index = parts.index;
    let shard = Shard::new(parts, system);
    ready(Ok(()));
    if let Err(error) = shard.serve(&waker, &stop) {
        tracing::error!("server thread {index} has stopped: {error}; start the server again");
    }
}

impl<S: System> Shard<S> {
    fn new(parts: ShardParts<S::Port>, system: S) -> Self {
        let waker = parts.waker.clone();
        let for_memory = parts.waker.clone();
        // The region is this shard's own. Its frames may go home on other threads.
        parts.memory.on_release(move || for_memory.wake());
        Shard {
            links: Links::new(parts.ports, parts.openers, parts.announced, parts.events.clone()),
            streams: Streams::default(),
            fronts: Fronts::new(parts.fronts),
            nexuses: Nexuses::default(),
            inbox: parts.inbox,
            registry: parts.registry,
            mail: parts.mail,
            shards: parts.shards,
            index: parts.index,
            engine: Engine::new(parts.memory, CompletionQueue::new(move || waker.wake())),
            system,
            poller: Poller::new(),
            newcomers: Vec::new(),
            counters: VolumeCounters::default(),
            past_uses: parts.past_uses,
            counts_clients: parts.counts_clients,
            events: parts.events,
            lines: ShardLines::default(),
            relieve_at: Instant::ZERO,
        }
    }

    /// Does what there is to do; false when there was nothing.
    fn turn(&mut self, now: Instant) -> io::Result<bool> {
        if self.links.tend(&self.shards, now) {
            self.links.tell_addresses(&mut self.fronts, now);
        }
        self.read_mail(now);
        let received = self.links.receive(RECEIVE_BUDGET, &mut self.fronts, now)
            + self.streams.receive(&mut self.fronts, &mut self.poller, now)?;
        self.advance(now);
        self.newcomers.clear();
        let sent = self.links.transmit(TRANSMIT_BUDGET, &mut self.fronts, now) + self.transmit_streams(now);
        self.submit();
        if self.system.in_flight() > 0 {
            self.system.flush()?;
        }
        self.count_closed();
        Ok(received + sent > 0 || self.fronts.have_events())
    }

    fn transmit_streams(&mut self, now: Instant) -> usize {
        self.streams.transmit(&mut self.fronts, &mut self.poller, now)
    }

    /// Lets time pass, executes what was asked and answers what was executed.
    fn advance(&mut self, now: Instant) {
        self.fronts.iter_mut().for_each(|front| front.handle_timeout(now));
        self.streams.handle_timeout(&mut self.fronts, &mut self.poller, now);
        self.engine.handle_timeout(now);
        self.reap(now);
        self.relieve(now);
        self.handle_events(now);
        self.engine.retry(now);
        if self.engine.is_starved() {
            let gave = self.fronts.iter_mut().map(|front| front.give_memory_back(now));
            // Each of them is asked.
            if gave.filter(|gave| *gave).count() > 0 {
                self.engine.retry(now);
            }
        }
        self.hold_back(now);
        self.submit();
        // What is done at once (in a file in memory) is answered in the same turn.
        self.reap(now);
        self.abort_for_commands();
        self.answer(now);
        while let Some(notice) = self.engine.poll_notice() {
            tracing::warn!("{notice}");
            self.events.note(events::of_notice(notice));
        }
    }

    /// Has nothing more sent to commands that wait for stores and keep too much memory.
    fn hold_back(&mut self, now: Instant) {
        let commands: Vec<CommandRef> = self.engine.commands_to_pause().collect();
        self.fronts.iter_mut().for_each(|front| front.hold_back(&commands, now));
    }

    /// Gives the kernel what it is to do, as far as there is room.
    fn submit(&mut self) {
        while let Some(Work { id, op }) = self.engine.poll_work() {
            if let Err(op) = self.system.submit(id, op) {
                return self.engine.give_back(Work { id, op });
            }
        }
    }

    /// Takes memory from those who do nothing by which it would be given back, when others have none.
    fn relieve(&mut self, now: Instant) {
        if now < self.relieve_at {
            return;
        }
        self.relieve_at = now + HEADWAY_PERIOD;
        let of_fronts = self.fronts.iter().flat_map(|front| front.starving());
        let shortage: Shortage = self.engine.starving().chain(of_fronts).collect();
        if !shortage.is_empty() {
            self.fronts.iter_mut().for_each(|front| front.relieve(&shortage, now));
        }
    }

    /// Whether anybody waits for memory.
    fn is_starved(&self) -> bool {
        self.engine.is_starved() || self.fronts.iter().any(|front| front.is_starved())
    }

    fn reap(&mut self, now: Instant) {
        if self.system.in_flight() > 0 {
            let engine = &mut self.engine;
            self.system.reap(&mut |id, completion| engine.completed(id, completion, now));
        }
        self.engine.reap(now);
    }

    /// Tells the front ends what has become of commands.
    fn answer(&mut self, now: Instant) {
        if self.engine.ended().len() == 0 {
            return;
        }
        let ended_at = self.system.now();
        while let Some(Ended { handle, meter, reply }) = self.engine.poll_ended() {
            self.counters.note(&meter, reply.as_ref(), ended_at);
            if let Some(nexus) = self.nexuses.get_mut(handle.nexus) {
                nexus.note(&meter, reply.as_ref());
            }
            if let Some(front) = self.fronts.get(handle.front) {
                front.reply(handle, reply, now);
            }
        }
    }

    /// When there is something to do though nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let relieve_at = self.is_starved().then_some(self.relieve_at);
        let of_carriers =
            [self.engine.poll_timeout(), self.links.poll_timeout(), self.streams.poll_timeout(), relieve_at];
        let of_fronts = self.fronts.iter().filter_map(|front| front.poll_timeout());
        of_carriers.into_iter().flatten().chain(of_fronts).min()
    }

    /// Takes note of why it was woken.
    fn note_ready(&mut self, ready: Ready) {
        if ready.streams {
            self.streams.ask();
        }
    }
}

impl Shard<Kernel> {
    fn serve(mut self, waker: &Waker, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Acquire) {
            let now = self.system.now();
            if !self.turn(now)? {
                self.sleep(waker, None)?;
            }
        }
        self.stop(waker)
    }

    fn sleep(&mut self, waker: &Waker, limit: Option<Instant>) -> io::Result<()> {
        let deadline = self.deadline().into_iter().chain(limit).min();
        let Kernel { clock, .. } = self.system;
        let files: [BorrowedFd<'_>; 1] = [self.system.as_fd()];
        let fds = if self.system.in_flight() > 0 { &files[..] } else { &[] };
        if fds.is_empty() && self.streams.is_hot() {
            let spin = self.streams.spin();
            let (streams, fronts) = (&mut self.streams, &mut self.fronts);
            // A connection that ends has no bytes, but there is something to do.
            let mut attempt = || streams.receive_hot(fronts, clock.now()) > 0 || fronts.have_events();
            if self.poller.watch(spin, self.links.ports(), Some(waker), deadline, &clock, &mut attempt) {
                return Ok(());
            }
        }
        let ready = self.poller.wait(self.links.ports(), fds, Some(waker), deadline, &clock)?;
        self.note_ready(ready);
        Ok(())
    }

    /// Ends what is under way, tells the clients, and leaves.
    fn stop(mut self, waker: &Waker) -> io::Result<()> {
        let mut stopping = Stopping::new(self.system.now());
        loop {
            let now = self.system.now();
            match self.stopping_turn(&mut stopping, now)? {
                Next::Turn => {}
                Next::Sleep(limit) => self.sleep(waker, Some(limit))?,
                Next::End => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
