//! Runs many seeds, and says how to run one of them again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::plan::Plan;
use crate::random::Random;
use crate::world::{Outcome, World};

/// How long a healed world may take for the work that is left.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// How long an idle world is watched, and the packets that it may send for each client and second.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_PACKETS_MAX: u64 = 4;

/// New keys take a request, an answer, and a sign that they are used, which is answered; some of it twice.
const REKEY_PACKETS_MAX: u64 = 6;

/// A server looks after a change of keys no more often than this.
const REKEY_MIN_MS: u64 = 200;

/// Runs `run` with so many seeds, on all processors; `SANWIRE_SEED` replaces them by one, `SANWIRE_SEEDS` sets their
/// number.
///
/// # Panics
/// When a seed fails; the message says how to run it again.
pub fn run_seeds(test: &str, seeds: u64, run: impl Fn(u64) -> Outcome<()> + Sync) {
    if let Some(seed) = number("SANWIRE_SEED") {
        run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        return;
    }
    let seeds = number("SANWIRE_SEEDS").unwrap_or(seeds);
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let failure: Mutex<Option<(u64, String)>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
                    let what = match outcome {
                        Ok(Ok(())) => continue,
                        Ok(Err(what)) => what,
                        Err(_) => "panicked (see above)".to_owned(),
                    };
                    failed.store(true, Ordering::Relaxed);
                    if let Ok(mut failure) = failure.lock() {
                        failure.get_or_insert((seed, what));
                    }
                }
            });
        }
    });
    if let Ok(Some((seed, what))) = failure.into_inner() {
        panic!("seed {seed}: {what}\nrun it again: SANWIRE_SEED={seed} cargo test -p sanwire-sim {test}");
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a world through its whole life: work and faults, recovery, a look at all blocks, idleness, the farewell.
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
    idle(world)?;
    farewell(world)
}

fn idle(world: &mut World) -> Outcome<()> {
    world.run_for(Duration::from_secs(5))?;
    let before = world.stats.clone();
    world.run_for(IDLE)?;
    let packets = world.stats.packets - before.packets;
    let timeouts = world.stats.timeouts - before.timeouts;
    let clients = world.plan.clients as u64;
    let rekeys = IDLE.as_millis() as u64 / (world.plan.rekey_interval.as_millis() as u64).max(REKEY_MIN_MS);
    if packets > clients * (IDLE.as_secs() * IDLE_PACKETS_MAX + rekeys * REKEY_PACKETS_MAX) {
        return Err(format!("{packets} packets in {IDLE:?} of idleness: {}", world.describe()));
    }
    if timeouts > 3 * packets + 20 {
        return Err(format!("woken {timeouts} times in {IDLE:?} of idleness: {}", world.describe()));
    }
    Ok(())
}

fn farewell(world: &mut World) -> Outcome<()> {
    let now = world.now;
    world.workers.iter_mut().for_each(|worker| worker.close(now));
    let end = now + world.plan.session_idle_max + Duration::from_secs(10);
    world.flush_clients()?;
    world.run_for(end - now)?;
    if let Some(host) = &world.host
        && (host.server.connections() > 0 || !host.is_idle())
    {
        return Err(format!("the server still has something after the farewell: {}", world.describe()));
    }
    world.check_memory()
}

/// A generator for drawing a plan, apart from the world's own.
#[must_use]
pub fn plan_random(theme: u64, seed: u64) -> Random {
    Random::new(seed.wrapping_mul(31).wrapping_add(theme << 48))
}
