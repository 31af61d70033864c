//! Drivers in a simulated world: each on a thread of its own, one of them or the world running at a time, so that all comes
//! from the seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use sanwire_core::{Instant, Lun, Protection};
use sanwire_hyperscsi::wire::command::Ask;
use sanwire_hyperscsi::{Client, Order as WireOrder};
use sanwire_io::Waker;
use sanwire_sim::hyperscsi::wire::{Packets, World};
use sanwire_sim::world::{Outcome, Wire};

use crate::session::hyperscsi::{server_info, translate};
use crate::session::{Event, Order, OrderId, ServerInfo, Session};

/// Turns of drivers at one moment: more mean that one does not rest.
const TURNS_AT_ONCE_MAX: u32 = 10_000;

/// A world takes no longer than this.
const LIFE_MAX: Duration = Duration::from_secs(600);

/// The world, and who runs.
pub(in super::super) struct Stage {
    scene: Mutex<Scene>,
    changed: Condvar,
}

struct Scene {
    world: World,
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

impl Stage {
    /// Runs a world with a driver for each client until all of them have ended.
    pub(in super::super) fn live(mut world: World, act: impl Fn(Cue) -> Outcome<()> + Sync) -> Outcome<World> {
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

    fn lock(&self) -> MutexGuard<'_, Scene> {
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

impl Scene {
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
pub(in super::super) struct Cue {
    stage: Arc<Stage>,
    pub(in super::super) client: usize,
}

impl Cue {
    pub(in super::super) fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.stage.lock().world)
    }

    pub(in super::super) fn another(&self) -> Cue {
        Cue { stage: Arc::clone(&self.stage), client: self.client }
    }

    fn wait_for_turn(&self) {
        let scene = self.stage.lock();
        let is_not_ours = |scene: &mut Scene| scene.running != Some(self.client);
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
pub(in super::super) struct Simulated {
    pub(in super::super) cue: Cue,
    /// When the client's user wants to go on.
    pub(in super::super) wake_at: Arc<Mutex<Option<Instant>>>,
}

impl Simulated {
    fn client<T>(&self, act: impl FnOnce(&mut Client, Instant) -> T) -> T {
        self.cue.with(|world| act(&mut world.workers[self.cue.client].client, world.now))
    }
}

impl Session for Simulated {
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
        self.client(|client, _| std::iter::from_fn(|| client.poll_event()).find_map(translate))
    }

    fn transmit(&mut self, _: Instant) -> usize {
        let sent = self.cue.with(|world| {
            let before = world.wire.stats.packets;
            Packets::drain_client(world, self.cue.client).map(|()| world.wire.stats.packets - before)
        });
        sent.unwrap_or_else(|what| panic!("{what}")) as usize
    }

    fn order(&mut self, order: Order, now: Instant) -> Result<OrderId, Order> {
        let Order { lun, cdb, data_out, data_in } = order;
        let order = WireOrder { lun, ask: Ask::Command(cdb), data_out, data_in };
        match self.client(|client, _| client.order(order, now)) {
            Ok(id) => Ok(OrderId(id.number())),
            Err(WireOrder { lun, data_out, data_in, .. }) => Err(Order { lun, cdb, data_out, data_in }),
        }
    }

    fn in_transit(&self) -> usize {
        self.client(|client, _| client.in_transit())
    }

    fn hold_after_restart(&mut self) {
        self.client(|client, _| client.hold_after_restart());
    }

    fn release(&mut self) {
        self.client(|client, _| client.release());
    }

    fn abandon(&mut self, lun: Lun) {
        self.client(|client, _| client.abandon(lun, sanwire_hyperscsi::Failure::InDoubt));
    }

    fn withdraw(&mut self, id: OrderId) {
        self.client(|client, _| client.withdraw(id.0));
    }

    fn server(&self) -> Option<ServerInfo> {
        self.client(|client, _| client.server().map(server_info))
    }

    fn protection(&self, lun: Lun) -> Option<Protection> {
        self.client(|client, _| client.protection(lun))
    }

    fn disconnect(&mut self, now: Instant) {
        self.client(|client, _| client.disconnect(now));
    }

    fn now(&self) -> Instant {
        self.cue.with(|world| world.now)
    }

    fn wait(&mut self, _: &Waker, deadline: Option<Instant>) -> std::io::Result<()> {
        self.cue.rest(deadline);
        Ok(())
    }
}
