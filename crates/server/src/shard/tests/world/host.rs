//! A server's process: all that its threads do, done by one.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun, Peer, Principal};
use sanwire_device::{LogicalUnit, UnitOptions, Volatility};
use sanwire_io::tcp::Stream;
use sanwire_io::{Clock, Waker};
use sanwire_scsi::Identity;
use sanwire_sim::derived::DerivedPlan;
use sanwire_sim::disk::SimDisk;
use sanwire_sim::hyperscsi::steering::Steering;
use sanwire_sim::iscsi::fixed_directory::{portal, target_name};
use sanwire_sim::random::Random;
use sanwire_sim::world;

use super::administrator::Doings;
use super::kernel::SimKernel;
use super::part::Part;
use super::port::SimPort;
use super::post::Post;
use super::{Outcome, air, told};
use crate::allow::{AllowList, AllowRule};
use crate::config::VolumeConfig;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::{Caller, LoginService, WIRES};
use crate::login_listener::LoginListener;
use crate::manage::testing;
use crate::opener::Opener;
use crate::server::{Grounds, OpenWires, Prepared, Server};
use crate::shard::Shard;
use crate::shard::stopping::{Next, Stopping};
use crate::shard::system::System;
use crate::wire::Wire;

/// The volume of all worlds.
const VOLUME: &str = "simulated";
/// The disk, where that is a part of it.
const WHOLE: &str = "whole";

/// Turns at one moment that receive nothing and find nothing new to send: more mean that the shard would never sleep.
const IDLE_TURNS_MAX: u32 = 2_000;

/// Rounds at one moment.
const ROUNDS_MAX: u32 = 20_000;

fn volume() -> Outcome<VolumeConfig> {
    let spec = format!("{VOLUME}=ram:1M").parse().map_err(told)?;
    Ok(VolumeConfig { lun: Default::default(), spec, origin: crate::config::Origin::CommandLine })
}

/// How such a server is made.
#[derive(Clone, Debug)]
pub(super) struct HostPlan {
    pub(super) shards: usize,
    /// Of each shard.
    pub(super) memory_bytes: usize,
    pub(super) mail_max: Duration,
    /// How many of a million packets come to any shard.
    pub(super) misdirected_per_million: u32,
}

/// What is served.
pub(super) struct Medium {
    pub(super) disk: Arc<SimDisk>,
    pub(super) write_cache: bool,
    pub(super) volatility: Option<Volatility>,
    /// Not the disk, but what is derived from it so, for these clients.
    pub(super) derived: Option<(DerivedPlan, Vec<Principal>)>,
}

/// A shard, and whether it ends.
struct Driven {
    shard: Shard<SimKernel>,
    waker: Waker,
    stopping: Option<Stopping>,
    sleeps_until: Option<Instant>,
    is_over: bool,
    /// When it had a turn last in which there was nothing to do, and how many such in a row at that moment.
    idle_turns: (Instant, u32),
}

pub(super) struct Host {
    pub(super) server: Server,
    shards: Vec<Driven>,
    desk: LoginListener,
    logins: Arc<dyn LoginService>,
    post: Post,
    clock: Rc<Cell<Instant>>,
    memory: Vec<Region>,
    /// By shards, and which of them gets what.
    ports: Vec<SimPort>,
    steering: Steering,
    /// When it wants to be driven.
    pub(super) next_at: Option<Instant>,
    random: Random,
    /// What the volume is derived from, if it is.
    part: Option<Part>,
    /// What the administrator has asked for.
    pub(super) doings: Doings,
    /// Turns of all shards.
    pub(super) turns: u64,
}

impl Host {
    pub(super) fn new(plan: &HostPlan, medium: Medium, mut random: Random, now: Instant) -> Outcome<Host> {
        // What the server draws follows from the seed.
        crate::random::follow(random.u64());
        let mut config = testing::config(&[]);
        let wire: Wire = format!("hs-ip:{}", air::server()).parse().map_err(told)?;
        (config.wires, config.shards) = (vec![wire.clone()], plan.shards as u32);
        config.identity = air::identity(99)?;
        config.allow = AllowList::new(vec![AllowRule::Any]);
        let clock = Rc::new(Cell::new(now));
        let mut post = Post::new(plan.mail_max, random.fork());
        let (mut places, mut memory, mut wakers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.shards {
            let place = post.place(Region::new(plan.memory_bytes).map_err(told)?)?;
            memory.push(place.memory.clone());
            wakers.push(place.waker.clone());
            places.push(place);
        }
        let ports: Vec<SimPort> = (0..plan.shards).map(|_| SimPort::new(air::server())).collect();
        let wires = OpenWires {
            openers: vec![Arc::new(Opener::unopened(wire, plan.shards as u32))],
            ports: ports.iter().map(|port| vec![port.clone()]).collect(),
        };
        let Prepared { server, shards, desk } =
            Server::prepare(config, Grounds::default(), |_| false, places, |_, _| Ok(wires)).map_err(told)?;
        let drive = |(parts, waker)| Driven {
            shard: Shard::new(parts, SimKernel::new(Rc::clone(&clock), Arc::clone(&medium.disk))),
            waker,
            stopping: None,
            sleeps_until: None,
            is_over: false,
            idle_turns: (Instant::ZERO, 0),
        };
        let shards = shards.into_iter().zip(wakers).map(drive).collect();
        let logins = WIRES.iter().find_map(|wire| server.logins(&[wire])).ok_or("no wire has logins")?;
        let desk = LoginListener::new(desk);
        let steering = Steering::new(plan.shards, plan.misdirected_per_million);
        let next_at = Some(now);
        let mut host = Host {
            server,
            shards,
            desk,
            logins,
            post,
            clock,
            memory,
            ports,
            steering,
            next_at,
            random,
            part: None,
            doings: Doings::default(),
            turns: 0,
        };
        host.serve(medium)?;
        Ok(host)
    }

    /// Serves the disk, or a part of it.
    fn serve(&mut self, Medium { disk, write_cache, volatility, derived }: Medium) -> Outcome<()> {
        let name = if derived.is_some() { WHOLE } else { VOLUME };
        let identity = Identity::new(name, [7; 16]).map_err(|error| format!("{error:?}"))?;
        let slot = self.server.take_slots(1, |_| false).first().copied().unwrap_or_default();
        let options = UnitOptions { write_cache, volatility, slot, ..Default::default() };
        let unit = Arc::new(LogicalUnit::new(identity, disk, options).map_err(told)?);
        match derived {
            Some((plan, principals)) => {
                self.part = Some(Part::new(unit, plan, &principals, write_cache));
                self.renew_part()?;
            }
            None => self.server.put_volumes(vec![(&volume()?, unit)]).map_err(told)?,
        }
        self.export()
    }

    /// Revokes the volume that is derived from the disk, if there is one, and derives it anew.
    pub(super) fn renew_part(&mut self) -> Outcome<()> {
        let Some(part) = &mut self.part else { return Ok(()) };
        let volume = volume()?;
        let is_there = part.revoke();
        if is_there {
            // As who manages a server does it: the target first.
            self.server.set_exports(Vec::new()).map_err(told)?;
            self.server.unlist_volumes(&[volume.lun]);
        }
        let slot = self.server.take_slots(1, |_| false).first().copied().unwrap_or_default();
        let unit = part.derive(slot)?;
        self.server.put_volumes(vec![(&volume, unit)]).map_err(told)?;
        if is_there { self.export() } else { Ok(()) }
    }

    /// What is copied, if it is there.
    pub(super) fn copied(&self) -> Option<Arc<LogicalUnit>> {
        self.server.units().get(Lun::default())
    }

    /// Has the iSCSI target serve the volume that there is.
    fn export(&self) -> Outcome<()> {
        let allow = AllowList::new(vec![AllowRule::Any]);
        let target =
            TargetNodeConfig { name: target_name()?, ..TargetNodeConfig::of_volume(VOLUME, allow).map_err(told)? };
        self.server.set_exports(vec![target]).map_err(told)
    }

    /// A client connects.
    pub(super) fn accept(&mut self, stream: Stream, client: usize, now: Instant) -> Outcome<()> {
        let at = IpAddr::V4(Ipv4Addr::new(10, 0, 1, client as u8));
        let (peer, portal) = (SocketAddr::new(at, 40_000), portal());
        let caller = Caller { portal: (portal.address, portal.group_tag), peer, queue_pair: None };
        let logins = Arc::clone(&self.logins);
        self.desk.begin(stream.into(), caller, &*logins, now).map_err(told)
    }

    /// A packet comes.
    pub(super) fn receive(&mut self, from: Peer, bytes: Vec<u8>, random: &mut Random) {
        if let Some(shard) = self.steering.shard_of(0, &bytes, random) {
            self.ports[shard].put(from, bytes);
        }
    }

    /// The packets that all shards have sent since the last look.
    pub(super) fn take_sent(&self) -> Vec<(Peer, Vec<u8>)> {
        self.ports.iter().flat_map(SimPort::take_sent).collect()
    }

    /// Lets all threads do what they have to do, until all sleep.
    pub(super) fn run(&mut self, now: Instant) -> Outcome<()> {
        self.clock.set(now);
        for _ in 0..ROUNDS_MAX {
            let mut is_moving = self.post.carry(now);
            is_moving |= self.desk.turn(now).map_err(told)? > 0;
            for driven in &mut self.shards {
                is_moving |= driven.run(&mut self.turns, now)?;
            }
            if !is_moving {
                self.next_at = self.deadline();
                return self.check_sleep(now);
            }
        }
        Err(format!("no rest: {}", world::Host::describe(self)))
    }

    fn deadline(&self) -> Option<Instant> {
        let shards = self.shards.iter().filter_map(Driven::deadline);
        shards.chain(self.desk.deadline()).chain(self.post.next_at()).min()
    }

    /// Now and then: a shard that sleeps has nothing to do.
    fn check_sleep(&mut self, now: Instant) -> Outcome<()> {
        if !self.random.chance(50_000) {
            return Ok(());
        }
        for (number, driven) in self.shards.iter_mut().enumerate().filter(|(_, driven)| !driven.is_over) {
            if driven.shard.turn(now).map_err(told)? {
                return Err(format!("shard {number} sleeps and has something to do"));
            }
        }
        self.next_at = self.deadline();
        Ok(())
    }

    /// When the disk will have done what it was asked since the last look.
    pub(super) fn take_scheduled(&mut self) -> Vec<(Instant, u64)> {
        let shards = self.shards.len() as u64;
        let mut scheduled = Vec::new();
        for (number, driven) in (0..).zip(&mut self.shards) {
            let taken = driven.shard.system.take_scheduled();
            // A shard counts its tokens for itself.
            scheduled.extend(taken.into_iter().map(|(at, token)| (at, token * shards + number)));
        }
        scheduled
    }
}

impl Driven {
    fn deadline(&self) -> Option<Instant> {
        if self.is_over {
            return None;
        }
        let limit = self.sleeps_until;
        self.shard.deadline().into_iter().chain(limit).min()
    }

    /// Whether it would be woken now, as its poller says, or by its kernel or its clock.
    fn is_awake(&mut self, now: Instant) -> Outcome<bool> {
        if self.is_over {
            return Ok(false);
        }
        let due = self.deadline().is_some_and(|at| at <= now);
        let shard = &mut self.shard;
        // A moment that is over: it does not wait.
        let past = Some(Instant::ZERO);
        let ready = shard.poller.wait(&[], &[], Some(&self.waker), past, &Clock::new()).map_err(told)?;
        shard.note_ready(ready);
        let has_input = shard.links.ports().iter().any(SimPort::has_input);
        Ok(due || has_input || !ready.is_timeout() || shard.system.has_ended())
    }

    /// Lets it work if it is awake, until it would sleep.
    fn run(&mut self, turns: &mut u64, now: Instant) -> Outcome<bool> {
        if !self.is_awake(now)? {
            return Ok(false);
        }
        let mut is_busy = true;
        while is_busy {
            *turns += 1;
            is_busy = match &mut self.stopping {
                None => self.shard.turn(now).map_err(told)?,
                Some(stopping) => match self.shard.stopping_turn(stopping, now).map_err(told)? {
                    Next::Turn => true,
                    Next::Sleep(limit) => {
                        self.sleeps_until = Some(limit);
                        false
                    }
                    Next::End => {
                        self.is_over = true;
                        return Ok(true);
                    }
                },
            };
            self.idle_turns = match self.idle_turns {
                (at, count) if !is_busy && at == now => (at, count + 1),
                _ => (now, 0),
            };
        }
        if self.idle_turns.1 > IDLE_TURNS_MAX {
            return Err(format!("turn after turn of a shard with nothing to do, due at {:?}", self.deadline()));
        }
        Ok(true)
    }
}

impl world::Host for Host {
    fn memory(&self) -> Vec<Region> {
        self.memory.clone()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next_at
    }

    fn handle_timeout(&mut self, now: Instant) -> Outcome<()> {
        self.run(now)
    }

    fn disk_done(&mut self, token: u64, now: Instant) -> Outcome<()> {
        let shards = self.shards.len() as u64;
        self.shards[(token % shards) as usize].shard.system.land(token / shards);
        self.run(now)
    }

    fn shut_down(&mut self, now: Instant) {
        for driven in &mut self.shards {
            driven.stopping.get_or_insert_with(|| Stopping::new(now));
            driven.waker.wake();
        }
        self.next_at = Some(now);
    }

    fn kill(mut self, random: &mut Random) {
        self.shards.iter_mut().for_each(|driven| driven.shard.system.kill(random));
    }

    fn sessions(&self) -> usize {
        let of_shard = |driven: &Driven| {
            let shard = &driven.shard;
            shard.nexuses.iter().count() + usize::from(!shard.streams.is_empty())
        };
        self.shards.iter().map(of_shard).sum::<usize>() + self.desk.count()
    }

    fn is_idle(&self) -> bool {
        let is_idle = |driven: &Driven| driven.shard.engine.is_idle() && !driven.shard.is_starved();
        self.shards.iter().all(is_idle) && self.post.next_at().is_none()
    }

    fn describe(&self) -> String {
        let shard = |driven: &Driven| {
            let Driven { shard, stopping, is_over, .. } = driven;
            format!(
                "shard: {} nexuses, {} connections, due at {:?}, starved: {} {:?}, stops: {} {is_over}, {} at the disk, {:?}",
                shard.nexuses.iter().count(),
                !shard.streams.is_empty(),
                driven.deadline(),
                shard.is_starved(),
                shard.fronts.iter().map(|front| (front.name(), front.is_starved())).collect::<Vec<_>>(),
                stopping.is_some(),
                shard.system.in_flight(),
                shard.engine,
            )
        };
        let shards: Vec<String> = self.shards.iter().map(shard).collect();
        format!("{} turns, {} logins\n{}\n{:?}", self.turns, self.desk.count(), shards.join("\n"), self.memory)
    }
}
