//! A client that does to a unit whatever it may, without end, beside one that only uses it: this one goes on within a bound.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_buffer::{Frame, Region};
use sanwire_core::Lun;
use sanwire_hyperscsi::Order;
use sanwire_hyperscsi::wire::command::{Ask, Function};
use sanwire_io::Waker;
use sanwire_scsi::{Cdb, build};
use sanwire_sim::hyperscsi::plan::{Medium, Plan};
use sanwire_sim::hyperscsi::wire::{Packets, World};
use sanwire_sim::world::{Outcome, Wire};

use super::power::stage::{Cue, Simulated, Stage};
use super::power::{open, serve_until};
use super::{BufferPool, Driver};

/// The honest client works for so long.
const LIFE: Duration = Duration::from_secs(1);

/// So long no operation takes: a look at the unit for each of the disturbances that come at one moment.
const BOUND: Duration = Duration::from_millis(500);

/// Commands of the other one under way at once.
const DEPTH: usize = 4;

/// What the other one does in turns.
#[derive(Clone, Debug)]
enum Deed {
    Reset,
    Give(Cdb, Vec<u8>),
}

fn give(cdb: impl Into<Cdb>, data: &[u8]) -> Deed {
    Deed::Give(cdb.into(), data.to_vec())
}

/// The caching page with the write cache switched on or off.
fn caching(is_on: bool) -> Deed {
    let mut list = vec![0; 24];
    (list[4], list[5], list[6]) = (8, 0x12, u8::from(is_on) << 2);
    give(build::mode_select_6(24), &list)
}

/// SET TARGET PORT GROUPS: the only group of all clients into this state.
fn ports(state: u8) -> Deed {
    give([0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0], &[0, 0, 0, 0, state, 0, 0, 1])
}

fn honest(cue: Cue, longest: &Mutex<Duration>) -> Outcome<()> {
    let wake_at = Arc::new(Mutex::new(None));
    let session = Simulated { cue: cue.another(), wake_at: Arc::clone(&wake_at) };
    let mut driver = Driver::new(Box::new(session), Waker::new().map_err(|error| error.to_string())?);
    let pool = BufferPool::new(Region::new(1 << 20).map_err(|error| error.to_string())?);
    let mut volumes = Vec::new();
    while volumes.is_empty() {
        volumes.extend(open(&mut driver, &pool));
    }
    let begun = driver.session.now();
    let mut count = 0u64;
    while driver.session.now() < begun + LIFE {
        let since = driver.session.now();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let read = volumes[0].read(count % 64 * 512, Frame::from(vec![0; 512]));
        let mut read = std::pin::pin!(read);
        loop {
            match read.as_mut().poll(&mut context) {
                std::task::Poll::Ready(Ok(_)) => break,
                std::task::Poll::Ready(Err(error)) => return Err(format!("read {count}: {error}")),
                std::task::Poll::Pending => driver.turn_or_sleep(),
            }
        }
        count += 1;
        let took = driver.session.now().saturating_since(since);
        let mut longest = longest.lock().expect("no panic");
        *longest = took.max(*longest);
        drop(longest);
        let next = driver.session.now() + Duration::from_millis(1);
        serve_until(&mut driver, &wake_at, next);
    }
    if count < 100 { Err(format!("{count} reads")) } else { Ok(()) }
}

fn hostile(cue: Cue, deeds: &[Deed]) -> Outcome<()> {
    let end = cue.with(|world| world.now) + LIFE + Duration::from_secs(1);
    let begin = cue.with(|world| world.now) + Duration::from_millis(500);
    // The honest one has opened its volume by then.
    while cue.with(|world| world.now) < begin {
        cue.rest(Some(begin));
    }
    let (mut given, mut ended) = (0usize, 0usize);
    while cue.with(|world| world.now) < end {
        cue.with(|world| {
            let client = &mut world.workers[cue.client].client;
            while let Some(event) = client.poll_event() {
                use sanwire_hyperscsi::ClientEvent::{Completed, Failed};
                ended += usize::from(matches!(event, Completed { .. } | Failed { .. }));
            }
            while given - ended < DEPTH && client.server().is_some() {
                let (ask, data) = match &deeds[given % deeds.len()] {
                    Deed::Reset => (Ask::Manage { function: Function::LogicalUnitReset, task: 0 }, None),
                    Deed::Give(cdb, data) => (Ask::Command(*cdb), (!data.is_empty()).then(|| data.clone().into())),
                };
                let order = Order { lun: Lun::default(), ask, is_repeatable: true, data_out: data, data_in: None };
                if client.order(order, world.now).is_err() {
                    break;
                }
                given += 1;
            }
            Packets::drain_client(world, cue.client)
        })?;
        cue.rest(Some(end));
    }
    if ended < 1000 { Err(format!("{ended} deeds")) } else { Ok(()) }
}

fn longest_beside(deeds: &[Deed]) -> Outcome<Duration> {
    let mut plan = Plan::clean(Medium::Udp, 9000);
    (plan.is_verified, plan.is_driven, plan.blocks, plan.clients) = (true, true, 4096, 2);
    plan.wire.link.delay_us = 100;
    plan.healed_after = LIFE;
    let longest = Mutex::default();
    Stage::live(World::new(plan, 1), |cue| match cue.client {
        0 => honest(cue, &longest),
        _ => hostile(cue, deeds),
    })?;
    Ok(longest.into_inner().expect("no panic"))
}

#[test]
fn an_honest_client_goes_on_whatever_another_one_does_to_the_unit() {
    let swap = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    let all = [
        vec![caching(false), caching(true)],
        vec![Deed::Reset],
        vec![caching(false), Deed::Reset],
        vec![give(swap, &[0; 1024])],
        vec![ports(0), ports(1)],
        vec![ports(3)],
    ];
    for deeds in all {
        let longest = longest_beside(&deeds).unwrap_or_else(|what| panic!("{deeds:?}: {what}"));
        assert!(longest <= BOUND, "{deeds:?}: {longest:?}");
    }
}
