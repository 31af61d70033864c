//! Who changes a server while it runs, as its management does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use sanwire_core::Lun;
use sanwire_device::{LogicalUnit, UnitOptions};
use sanwire_scsi::Identity;
use sanwire_scsi::port_groups::AccessState;
use sanwire_sim::iscsi::fixed_directory::{client_name, portal};
use sanwire_store::RamStore;

use super::host::Host;
use super::wire::{Event, World};
use super::{Outcome, air, told};
use crate::config::{Origin, VolumeConfig};
use crate::counting::Counted;
use crate::messages::ShardMessage;

/// After so long nothing is under way that was begun before a pause, where all is fast; and how often that is seen.
const SETTLED: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The volume that comes and goes.
const VOLUME: &str = "passing";

/// What the administrator does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    /// The commands of a client wait.
    Pause(usize),
    Resume(usize),
    /// The sessions of a client end.
    Drop(usize),
    /// A volume comes, or goes if it is there.
    Volume,
    /// The volume that is derived from the disk is revoked, and derived anew.
    Renew,
    /// The ports of iSCSI do nothing for anybody.
    Standby,
    Active,
    /// What clients may do is looked at again.
    Terms,
    /// The shards are asked for what they have counted.
    Count,
}

/// What was asked of a server, and is to be undone.
#[derive(Default)]
pub(super) struct Doings {
    /// Clients, each with the number of its pause.
    paused: BTreeMap<usize, u64>,
    counts: Vec<Receiver<Counted>>,
}

/// What a client is called.
fn principal(world: &World, client: usize) -> Outcome<String> {
    let plan = &world.plan;
    Ok(if client < plan.wire.by_packets || plan.wire.is_copier(client, plan.clients) {
        air::identity(client)?.client_id().to_string()
    } else {
        client_name(client)?.to_string()
    })
}

pub(super) fn act(world: &mut World, deed: Deed) -> Outcome<()> {
    let of = |client| principal(world, client);
    let client = match deed {
        Deed::Pause(client) | Deed::Resume(client) | Deed::Drop(client) => Some(of(client)?),
        _ => None,
    };
    let number = world.draw_operation();
    let Some(host) = &mut world.host else { return Ok(()) };
    let name = client.unwrap_or_default();
    match deed {
        Deed::Pause(client) => {
            host.doings.paused.insert(client, number);
            host.server.pause_principal(&name, true);
            if world.plan.wire.is_fast {
                let event = Event::LookAtPause { client, number, answered: None };
                world.schedule(world.now + SETTLED, event);
            }
        }
        Deed::Resume(client) => {
            host.doings.paused.remove(&client);
            host.server.pause_principal(&name, false);
        }
        Deed::Drop(_) => host.server.drop_principal(&name),
        Deed::Volume => return toggle_volume(host),
        Deed::Renew => return host.renew_part(),
        Deed::Standby => _ = host.server.set_access_state(portal().group_tag, AccessState::Standby, None),
        Deed::Active => _ = host.server.set_access_state(portal().group_tag, AccessState::ActiveOptimized, None),
        Deed::Terms => host.server.terms_changed(),
        Deed::Count => {
            let (sender, counted) = mpsc::channel();
            host.server.post(|| ShardMessage::Count(sender.clone()));
            host.doings.counts.push(counted);
        }
    }
    Ok(())
}

/// All that was done is undone.
pub(super) fn heal(world: &mut World) -> Outcome<()> {
    let paused = world.host.as_mut().map(|host| std::mem::take(&mut host.doings.paused)).unwrap_or_default();
    for client in paused.into_keys() {
        act(world, Deed::Resume(client))?;
    }
    act(world, Deed::Active)
}

/// A client whose commands wait gets no answers.
pub(super) fn check_pause(world: &mut World, client: usize, number: u64, before: Option<u64>) -> Outcome<()> {
    let paused = world.host.as_ref().and_then(|host| host.doings.paused.get(&client).copied());
    if paused != Some(number) {
        return Ok(());
    }
    let answered = world.workers[client].good;
    if before.is_some_and(|before| before != answered) {
        return Err(format!("client {client} is paused and gets answers: {}", world.describe()));
    }
    let event = Event::LookAtPause { client, number, answered: Some(answered) };
    world.schedule(world.now + LOOK_EVERY, event);
    Ok(())
}

/// All shards have told what they have counted.
pub(super) fn check_counts(world: &mut World) -> Outcome<()> {
    let Some(host) = &mut world.host else { return Ok(()) };
    let shards = world.plan.wire.host.shards;
    for counted in std::mem::take(&mut host.doings.counts) {
        let counted: Vec<Counted> = counted.try_iter().collect();
        if counted.len() != shards {
            return Err(format!("{} of {shards} shards have told what they have counted", counted.len()));
        }
    }
    Ok(())
}

/// As a request to add or remove a volume does it.
fn toggle_volume(host: &mut Host) -> Outcome<()> {
    let lun = Lun::new(1).ok_or("a number")?;
    let is_there = host.server.units().get(lun).is_some();
    let mut targets = host.server.exports();
    let target = targets.first_mut().ok_or("no target")?;
    if is_there {
        target.units.remove(&lun);
        host.server.set_exports(targets).map_err(told)?;
        drop(host.server.remove_volume(lun));
        return Ok(());
    }
    target.units.insert(lun, VOLUME.to_owned());
    let spec = format!("{VOLUME}=ram:1M").parse().map_err(told)?;
    let volume = VolumeConfig { lun, spec, origin: Origin::Management };
    let identity = Identity::new(VOLUME, [9; 16]).map_err(|error| format!("{error:?}"))?;
    let options = UnitOptions {
        slot: host.server.take_slots(1, |_| false).first().copied().unwrap_or_default(),
        ..Default::default()
    };
    let store = Arc::new(RamStore::new(1 << 20, 512));
    let unit = LogicalUnit::new(identity, store, options).map_err(told)?;
    host.server.put_volumes(vec![(&volume, Arc::new(unit))]).map_err(told)?;
    host.server.set_exports(targets).map_err(told)
}
