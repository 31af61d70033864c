//! A world's whole life, and what must hold in the end.

use std::time::Duration;

use super::{Host, Outcome, PlanOf, Wire, World};
use crate::derived::Standing;
use crate::workload::Worker;

impl<W: Wire> World<W> {
    /// Runs a world through its whole life: work and faults, recovery, a look at all blocks, idleness, the farewell.
    ///
    /// # Errors
    /// When any promise is broken.
    pub fn live(plan: PlanOf<W>, seed: u64) -> Outcome<World<W>> {
        let mut world = World::new(plan, seed);
        let healed_at = world.now + world.plan.healed_after;
        world.start()?;
        let think = Duration::from_micros(world.plan.work.think_us) * world.plan.work.commands as u32;
        world.run_for(world.plan.healed_after)?;
        world.run_until(healed_at + W::RECOVERY_MAX + think, World::is_worked_off)?;
        // A server may turn those away whom it has nothing to show.
        let is_lost = |worker: &Worker<W::Client>| worker.given_up.is_some() && worker.standing != Standing::Outsider;
        if world.workers.iter().any(is_lost) {
            return Err(format!("a client has given up: {}", world.describe()));
        }
        let blocks = world.plan.blocks;
        let insiders = world.workers.iter_mut().filter(|worker| worker.standing != Standing::Outsider);
        insiders.for_each(|worker| worker.verify_all(blocks));
        world.run_until(world.now + W::RECOVERY_MAX, World::is_worked_off)?;
        W::idle(&mut world)?;
        world.farewell()?;
        Ok(world)
    }

    /// Runs a world whose first client keeps others waiting as it can: until all is healed, each other one that has something to do has
    /// an answer within each `bound`. After that all have all theirs within `patience`, the first one too.
    ///
    /// # Errors
    /// When one stands still, or any promise is broken.
    pub fn live_beside_the_first(plan: PlanOf<W>, seed: u64, bound: Duration, patience: Duration) -> Outcome<()> {
        let rounds = plan.healed_after.as_millis() / bound.as_millis();
        let mut world: World<W> = World::new(plan, seed);
        world.start()?;
        let answered = |worker: &Worker<W::Client>| worker.good + worker.other;
        for _ in 0..rounds {
            let before: Vec<u64> = world.workers.iter().map(answered).collect();
            world.run_for(bound)?;
            let mut others = world.workers.iter().zip(before).enumerate().skip(1);
            let standing = others.find(|(_, (worker, before))| answered(worker) == *before && !worker.is_done());
            if let Some((number, _)) = standing {
                return Err(format!("client {number} stood still until {:?}: {}", world.now, world.describe()));
            }
        }
        world.run_for(Duration::from_secs(1))?;
        world.run_until(world.now + patience, World::is_worked_off)?;
        world.farewell()
    }

    /// All clients leave: nothing of them stays.
    ///
    /// # Errors
    /// When something does.
    pub fn farewell(&mut self) -> Outcome<()> {
        let now = self.now;
        self.workers.iter_mut().for_each(|worker| worker.close(now));
        self.drain_clients()?;
        self.run_for(W::forgotten_after(&self.plan.wire))?;
        if let Some(host) = &self.host
            && (host.sessions() > 0 || !host.is_idle())
        {
            return Err(format!("the server still has something after the farewell: {}", self.describe()));
        }
        if let Some(worker) = self.workers.iter().find(|worker| worker.in_flight() > 0) {
            return Err(format!("{} commands were never answered: {}", worker.in_flight(), self.describe()));
        }
        self.check_memory()
    }

    /// Whether all commands of all clients are answered.
    #[must_use]
    pub fn is_worked_off(&self) -> bool {
        self.workers.iter().all(Worker::is_done)
    }

    /// Whether every frame is home again, on both sides.
    ///
    /// # Errors
    /// Says whose memory is missing.
    pub fn check_memory(&self) -> Outcome<()> {
        let of_server = self.host.as_ref().map(Host::memory).unwrap_or_default();
        let clients = self.workers.iter().map(|worker| ("a client", &worker.memory));
        let server = of_server.iter().map(|memory| ("the server", memory));
        let retired = self.retired.iter().map(|memory| ("a past machine", memory));
        let mut all = clients.chain(server).chain(retired);
        match all.find(|(_, memory)| memory.free_bytes() != memory.length_bytes()) {
            Some((whose, memory)) => Err(format!("memory of {whose} is missing: {memory:?}")),
            None => Ok(()),
        }
    }

    /// What is going on, for a failure's message.
    #[must_use]
    pub fn describe(&self) -> String {
        let clients: Vec<String> = self
            .workers
            .iter()
            .map(|worker| {
                let Worker { client, sessions, good, other, given_up, .. } = worker;
                format!(
                    "client: {} in flight, {sessions} sessions, {good} good, {other} other, refused {:?}, given up: {given_up:?}, {}",
                    worker.in_flight(),
                    worker.refusals(),
                    W::describe_client(client),
                )
            })
            .collect();
        let server = self.host.as_ref().map_or("no server".to_owned(), Host::describe);
        format!("{clients:#?}\n{server}\n{}\n{:?}", self.wire.describe(), self.plan)
    }
}
