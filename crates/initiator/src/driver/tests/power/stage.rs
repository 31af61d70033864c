//! Drivers in a simulated world: each on a thread of its own, one of them or the world running at a time, so that all comes
//! from the seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use sanwire_core::{Instant, Lun, Protection};
use sanwire_io::Waker;
use sanwire_sim::hyperscsi::wire::Packets;
use sanwire_sim::workload::Initiator;
use sanwire_sim::world::{Outcome, World};

use super::wires::{Driven, DrivenWire};
use crate::session::{Event, Order, OrderId, ServerInfo, Session, Wish};

/// Turns of drivers at one moment: more mean that one does not rest.
const TURNS_AT_ONCE_MAX: u32 = 10_000;

/// A world takes no longer than this.
const LIFE_MAX: Duration = Duration::from_secs(600);

/// The world, and who runs.
pub(in super::super) struct Stage<W: DrivenWire = Packets> {
    scene: Mutex<Scene<W>>,
    changed: Condvar,
}

struct Scene<W: DrivenWire> {
    world: World<W>,
    /// The driver that runs; else the world does.
    running: Option<usize>,
    actors: Vec<Actor>,
    failure: Option<String>,
}

/// A driver.
#[derive(Clone, Copy)]
struct Actor {
    /// When it wants to go on, whatever happens.
    until: Option<Instant>,
    is_over: bool,
}

impl<W: DrivenWire> Stage<W> {
    /// Runs a world with a driver for each client until all of them have ended.
    pub(in super::super) fn live(mut world: World<W>, act: impl Fn(Cue<W>) -> Outcome<()> + Sync) -> Outcome<World<W>> {
        world.start()?;
        let count = world.plan.clients;
        let actors = vec![Actor { until: Some(world.now), is_over: false }; count];
        let scene = Mutex::new(Scene { world, running: None, actors, failure: None });
        let stage = Arc::new(Stage { scene, changed: Condvar::new() });
        thread::scope(|scope| {
            for client in 0..count {
                let cue = Cue { stage: Arc::clone(&stage), client };
                let act = &act;
                scope.spawn(move || {
                    let ending = cue.another();
                    ending.wait_for_turn();
                    let outcome = catch_unwind(AssertUnwindSafe(|| act(cue)));
                    ending.end(outcome.unwrap_or_else(|_| Err("it panicked (see above)".to_owned())));
                });
            }
            stage.direct();
        });
        let stage = Arc::into_inner(stage).ok_or("a driver is still there")?;
        let scene = stage.scene.into_inner().unwrap_or_else(PoisonError::into_inner);
        scene.failure.map_or(Ok(scene.world), Err)
    }

    fn lock(&self) -> MutexGuard<'_, Scene<W>> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets run who has something to do, and the world when nobody has. When something has failed all may run, to end.
    fn direct(&self) {
        let mut scene = self.lock();
        let (end, mut turns) = (scene.world.now + LIFE_MAX, (scene.world.now, 0));
        while scene.actors.iter().any(|actor| !actor.is_over) {
            match scene.next() {
                Some(next) => {
                    turns = (scene.world.now, if turns.0 == scene.world.now { turns.1 + 1 } else { 0 });
                    if turns.1 > TURNS_AT_ONCE_MAX {
                        let what = format!("client {next} does not rest: {}", scene.world.describe());
                        scene.failure.get_or_insert(what);
                    }
                    scene.running = Some(next);
                    self.changed.notify_all();
                    scene = self
                        .changed
                        .wait_while(scene, |scene| scene.running.is_some())
                        .unwrap_or_else(PoisonError::into_inner);
                }
                None => {
                    let wakes = scene.actors.iter().filter(|actor| !actor.is_over).filter_map(|actor| actor.until);
                    let until = wakes.min().unwrap_or(end).min(end);
                    let went = scene.world.advance(until).and_then(|went| match went || scene.world.now < end {
                        true => Ok(()),
                        false => Err(format!("it does not end: {}", scene.world.describe())),
                    });
                    scene.failure = went.err();
                }
            }
        }
    }
}

impl<W: DrivenWire> Scene<W> {
    fn next(&mut self) -> Option<usize> {
        let (now, has_failed) = (self.world.now, self.failure.is_some());
        (0..self.actors.len()).find(|&client| {
            let Actor { until, is_over } = self.actors[client];
            let is_due = self.world.workers[client].is_stirred || until.is_some_and(|at| at <= now);
            !is_over && (is_due || has_failed)
        })
    }
}

/// A driver's place on the stage.
pub(in super::super) struct Cue<W: DrivenWire = Packets> {
    stage: Arc<Stage<W>>,
    pub(in super::super) client: usize,
}

impl<W: DrivenWire> Cue<W> {
    pub(in super::super) fn with<T>(&self, act: impl FnOnce(&mut World<W>) -> T) -> T {
        act(&mut self.stage.lock().world)
    }

    pub(in super::super) fn another(&self) -> Cue<W> {
        Cue { stage: Arc::clone(&self.stage), client: self.client }
    }

    fn wait_for_turn(&self) {
        let scene = self.stage.lock();
        let is_not_ours = |scene: &mut Scene<W>| scene.running != Some(self.client);
        drop(self.stage.changed.wait_while(scene, is_not_ours).unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets the others run until there is something to do.
    pub(in super::super) fn rest(&self, until: Option<Instant>) {
        {
            let mut scene = self.stage.lock();
            scene.world.workers[self.client].is_stirred = false;
            scene.actors[self.client].until = until;
            scene.running = None;
            self.stage.changed.notify_all();
        }
        self.wait_for_turn();
        if self.stage.lock().failure.is_some() {
            // Whatever it waits for may never come.
            std::panic::resume_unwind(Box::new("something has failed"));
        }
    }

    fn end(&self, outcome: Outcome<()>) {
        let mut scene = self.stage.lock();
        scene.actors[self.client].is_over = true;
        scene.running = None;
        if let Err(what) = outcome {
            scene.failure.get_or_insert(format!("client {}: {what}", self.client));
        }
        self.stage.changed.notify_all();
    }
}

/// The session of a client of the world.
pub(in super::super) struct Simulated<W: DrivenWire = Packets> {
    pub(in super::super) cue: Cue<W>,
    /// When the client's user wants to go on.
    pub(in super::super) wake_at: Arc<Mutex<Option<Instant>>>,
}

impl<W: DrivenWire> Simulated<W> {
    fn client<T>(&self, act: impl FnOnce(&mut W::Client, Instant) -> T) -> T {
        self.cue.with(|world| act(&mut world.workers[self.cue.client].client, world.now))
    }
}

impl<W: DrivenWire> Session for Simulated<W> {
    fn receive(&mut self, _: Instant) -> usize {
        0
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        // The user of a driver that waits for answers of its own can do nothing yet.
        let now = self.now();
        self.wake_at.lock().unwrap_or_else(PoisonError::into_inner).filter(|at| *at > now)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.client(|client, _| client.next_event())
    }

    fn transmit(&mut self, _: Instant) -> usize {
        let sent = self.cue.with(|world| {
            let before = world.wire.sent();
            W::drain_client(world, self.cue.client).map(|()| world.wire.sent() - before)
        });
        sent.unwrap_or_else(|what| panic!("{what}")) as usize
    }

    fn order(&mut self, order: Order, now: Instant) -> Result<OrderId, Order> {
        self.client(|client, _| client.take_order(order, now))
    }

    fn in_transit(&self) -> usize {
        self.client(|client, _| Driven::in_transit(client))
    }

    fn hold_after_restart(&mut self) {
        self.client(|client, _| Driven::hold_after_restart(client));
    }

    fn release(&mut self) {
        self.client(|client, _| Driven::release(client));
    }

    fn abandon(&mut self, lun: Lun) {
        self.client(|client, _| Driven::abandon(client, lun));
    }

    fn withdraw(&mut self, id: OrderId) {
        self.client(|client, _| Driven::withdraw(client, id));
    }

    fn server(&self) -> Option<ServerInfo> {
        self.client(|client, _| Driven::server(client))
    }

    fn protection(&self, lun: Lun) -> Option<Protection> {
        self.client(|client, _| Driven::protection(client, lun))
    }

    fn disconnect(&mut self, now: Instant) {
        self.client(|client, _| client.disconnect(now));
    }

    fn wish(&mut self, wish: Wish, now: Instant) {
        self.client(|client, _| Driven::wish(client, wish, now));
    }

    fn now(&self) -> Instant {
        self.cue.with(|world| world.now)
    }

    fn wait(&mut self, _: &Waker, deadline: Option<Instant>) -> std::io::Result<()> {
        self.cue.rest(deadline);
        Ok(())
    }
}
