//! A world's whole life, and what must hold in the end.

use std::time::Duration;

use super::host::Host;
use super::plan::Plan;
use super::worker::Worker;
use super::world::World;
use crate::world::Outcome;

/// How long a healed world may take for the work that is left: a silent connection is noticed late.
const RECOVERY_MAX: Duration = Duration::from_secs(120);

/// A lost session is forgotten after this, and a silent connection given up.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(90);

/// Runs a world through its whole life: work and faults, recovery, a look at all blocks, the farewell.
///
/// # Errors
/// When any promise is broken.
pub fn live(plan: Plan, seed: u64) -> Outcome<World> {
    let mut world = World::new(plan, seed);
    live_on(&mut world)?;
    Ok(world)
}

/// As [`live`], for a world that was changed before its start.
///
/// # Errors
/// When any promise is broken.
pub fn live_on(world: &mut World) -> Outcome<()> {
    let healed_at = world.now + world.plan.healed_after;
    world.start()?;
    let think = Duration::from_micros(world.plan.work.think_us) * world.plan.work.commands as u32;
    world.run_for(world.plan.healed_after)?;
    world.run_until(healed_at + RECOVERY_MAX + think, World::is_worked_off)?;
    if world.workers.iter().any(|worker| worker.given_up.is_some()) {
        return Err(format!("a client has given up: {}", world.describe()));
    }
    let blocks = world.plan.blocks;
    world.workers.iter_mut().for_each(|worker| worker.verify_all(blocks));
    world.run_until(world.now + RECOVERY_MAX, World::is_worked_off)?;
    farewell(world)
}

/// All clients leave: nothing of them stays.
///
/// # Errors
/// When something does.
pub fn farewell(world: &mut World) -> Outcome<()> {
    let now = world.now;
    for worker in &mut world.workers {
        worker.is_closed = true;
        worker.client.disconnect(now);
    }
    world.drain_clients()?;
    world.run_for(FORGOTTEN_AFTER)?;
    if let Some(host) = &world.host
        && (host.sessions() > 0 || !host.is_idle())
    {
        return Err(format!("the server still has something after the farewell: {}", world.describe()));
    }
    if let Some(worker) = world.workers.iter().find(|worker| worker.in_flight() > 0) {
        return Err(format!("{} commands were never answered: {}", worker.in_flight(), world.describe()));
    }
    match world.regions().find(|(_, memory)| memory.free_bytes() != memory.length_bytes()) {
        Some((whose, memory)) => Err(format!("memory of {whose} is missing: {memory:?}")),
        None => Ok(()),
    }
}

impl World {
    /// Whether all commands of all clients are answered.
    #[must_use]
    pub fn is_worked_off(&self) -> bool {
        self.workers.iter().all(Worker::is_done)
    }

    /// What is going on, for a failure's message.
    #[must_use]
    pub fn describe(&self) -> String {
        let clients: Vec<String> = self
            .workers
            .iter()
            .map(|worker| {
                let info = worker.client.server();
                let connections = info.map(|info| info.connections);
                let Worker { sessions, good, other, given_up, .. } = worker;
                format!(
                    "client: {} in flight, {connections:?} connections, {sessions} sessions, {good} good, {other} other, \
                     given up: {given_up:?}",
                    worker.in_flight(),
                )
            })
            .collect();
        let server = self.host.as_ref().map_or("no server".to_owned(), Host::describe);
        format!("{clients:#?}\n{server}\n{:?}\n{:?}", self.traffic.pdus, self.plan)
    }
}
