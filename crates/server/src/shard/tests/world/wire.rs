//! Such a world: clients, their networks, an administrator, and a server of shards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sanwire_core::{Instant, Principal};
use sanwire_iscsi::{Client, ClientConfig, ConnectionId, Isid};
use sanwire_sim::hyperscsi::link::LinkPlan;
use sanwire_sim::iscsi::fixed_directory::{client_name, portal, target_name};
use sanwire_sim::iscsi::plan::{StreamFault, StreamPlan};
use sanwire_sim::plan;
use sanwire_sim::random::Random;
use sanwire_sim::world::{self, Wire};

use super::administrator::{self, Deed};
use super::air::{self, Air};
use super::cables::{self, Cable};
use super::copier::{self, Copier};
use super::far::{FarDisk, Mood};
use super::host::{Host, HostPlan, Medium};
use super::machine::Machine;
use super::{Outcome, told};

/// Everything about a world but its seed.
pub(super) type Plan = plan::Plan<NetworkPlan, Trouble>;

/// Such a world.
pub(super) type World = world::World<Networks>;

/// The networks and the server.
#[derive(Clone, Debug)]
pub(super) struct NetworkPlan {
    pub(super) streams: StreamPlan,
    /// How the links of packets behave.
    pub(super) link: LinkPlan,
    /// So many clients, the first ones, go by packets.
    pub(super) by_packets: usize,
    /// So many, the last ones, are jobs that copy to another server, which fails so often.
    pub(super) copiers: usize,
    pub(super) far_errors_per_million: u32,
    pub(super) host: HostPlan,
    /// Networks, disks and mail take next to no time.
    pub(super) is_fast: bool,
    /// The longest that a client with commands under way may hear nothing, where nothing goes wrong.
    pub(super) answer_max: Option<Duration>,
    /// Bytes that the kernel takes of a connection whose other end reads nothing.
    pub(super) socket_bytes: usize,
}

impl NetworkPlan {
    /// Whether that one of so many clients copies.
    pub(super) fn is_copier(&self, client: usize, clients: usize) -> bool {
        client >= clients - self.copiers
    }
}

/// What happens to a network, or is done to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    Stream(StreamFault),
    /// No packets pass between this client and the server for so long.
    Cut(usize, Duration),
    /// The administrator does something.
    Deed(Deed),
    /// The other server is so from now on.
    Far(Mood),
}

/// What happens at some moment.
pub(super) enum Event {
    Open {
        client: usize,
        connection: ConnectionId,
    },
    /// A packet arrives.
    ToServer {
        client: usize,
        bytes: Vec<u8>,
    },
    ToClient {
        client: usize,
        bytes: Vec<u8>,
    },
    /// Packets of a client pass again.
    Mend(usize),
    /// A client reads again.
    Hear,
    /// The other server may do what it was asked.
    FarDone(u64),
    /// A job that copies hears of something.
    Heed(usize),
    /// It is seen who waits for how long.
    Look,
    /// It is seen whether a client that is paused gets answers.
    LookAtPause {
        client: usize,
        number: u64,
        answered: Option<u64>,
    },
}

/// What is between clients and server.
pub(super) struct Networks {
    pub(super) cables: BTreeMap<u64, Cable>,
    pub(super) next_cable: u64,
    /// Until when nothing passes for a client.
    pub(super) stalled: BTreeMap<usize, Instant>,
    /// Until when a client reads nothing.
    pub(super) deaf: BTreeMap<usize, Instant>,
    /// By clients.
    pub(super) airs: BTreeMap<usize, Air>,
    /// Where copies go.
    pub(super) far: Arc<FarDisk>,
    /// How many answers a client had that waits for more, and since when.
    pub(super) heard: BTreeMap<usize, (u64, Instant)>,
}

impl Wire for Networks {
    type Plan = NetworkPlan;
    type Fault = Trouble;
    type Event = Event;
    type Client = Machine;
    type Host = Host;

    /// A silent connection is noticed late.
    const RECOVERY_MAX: Duration = Duration::from_secs(120);
    const STOPPING_MAX_US: u64 = 100_000;

    fn new(plan: &Plan, random: &mut Random) -> Self {
        let airs = (0..plan.wire.by_packets).map(|client| (client, Air::new(plan.wire.link))).collect();
        let (cables, stalled, deaf, heard) = Default::default();
        // Worlds without copies stay as they are.
        let own = if plan.wire.copiers > 0 { random.fork() } else { Random::new(0) };
        let far = FarDisk::new(plan.blocks, plan.wire.far_errors_per_million, own);
        Networks { cables, next_cable: 0, stalled, deaf, airs, far, heard }
    }

    fn prepare(world: &mut World) {
        if let Some(answer_max) = world.plan.wire.answer_max {
            world.schedule(world.now + answer_max / 4, Event::Look);
        }
    }

    fn make_host(world: &mut World) -> Outcome<Host> {
        let (volatility, random) = (world.open_records(), world.random.fork());
        let principals = world.principals()?;
        let medium = Medium {
            disk: Arc::clone(world.disk()),
            write_cache: world.plan.write_cache,
            volatility,
            derived: world.plan.derived.map(|plan| (plan, principals)),
        };
        Host::new(&world.plan.wire.host, medium, random, world.now)
    }

    fn make_client(world: &mut World, client: usize) -> Outcome<Machine> {
        if client < world.plan.wire.by_packets {
            return Ok(Machine::Packets(Box::new(air::machine(client, world)?)));
        }
        if world.plan.wire.is_copier(client, world.plan.clients) {
            let (far, random) = (Arc::clone(&world.wire.far), world.random.fork());
            return Ok(Machine::Copies(Box::new(Copier::new(air::identity(client)?.client_id(), far, random))));
        }
        let StreamPlan { wishes, command_patience, .. } = world.plan.wire.streams;
        let config = ClientConfig {
            initiator: client_name(client)?,
            isid: Isid([0x80, 0, 0, 0, 0, client as u8]),
            target: Some(target_name()?),
            portals: vec![portal().address],
            credential: None,
            target_credential: None,
            wishes,
            commands_max: 32,
            connect_patience: Duration::from_secs(120),
            reconnect_patience: None,
            command_patience,
            seed: world.random.seed(),
        };
        Ok(Machine::Stream(Box::new(Client::new(config, world.now))))
    }

    fn principal(world: &World, client: usize) -> Outcome<Principal> {
        let NetworkPlan { by_packets, .. } = world.plan.wire;
        Ok(if client < by_packets || world.plan.wire.is_copier(client, world.plan.clients) {
            Principal { client: Some(air::identity(client)?.client_id()), ..Principal::default() }
        } else {
            Principal { initiator_name: Some(client_name(client)?.as_str().into()), ..Principal::default() }
        })
    }

    fn next_at(&self) -> Option<Instant> {
        self.cables.values().filter_map(Cable::next_at).min()
    }

    fn attend(world: &mut World) -> Outcome<bool> {
        cables::attend(world)
    }

    fn handle(world: &mut World, event: Event) -> Outcome<()> {
        match event {
            Event::Open { client, connection } => cables::open(world, client, connection),
            Event::ToServer { client, bytes } => air::arrive(world, client, bytes),
            Event::ToClient { client, bytes } => air::hear(world, client, &bytes),
            Event::Mend(client) => {
                air::cut(world, client, false);
                Ok(())
            }
            Event::Hear => run_host(world),
            Event::FarDone(number) => {
                world.wire.far.land(number);
                run_host(world)
            }
            Event::Heed(client) => drain(world, client),
            Event::Look => look(world),
            Event::LookAtPause { client, number, answered } => {
                administrator::check_pause(world, client, number, answered)
            }
        }
    }

    fn fault(world: &mut World, fault: Trouble) -> Outcome<()> {
        match fault {
            Trouble::Stream(StreamFault::Cut) => cables::cut_one(world, true, true),
            Trouble::Stream(StreamFault::CutUnnoticedByServer) => cables::cut_one(world, false, true),
            Trouble::Stream(StreamFault::CutUnnoticedByClient) => cables::cut_one(world, true, false),
            Trouble::Stream(StreamFault::Stall(duration)) => {
                let client = world.random.range(0..=world.plan.clients as u64 - 1) as usize;
                cables::stall(world, client, world.now + duration);
            }
            Trouble::Stream(StreamFault::Deafen(client, duration)) => cables::deafen(world, client, duration),
            Trouble::Cut(client, duration) => {
                air::cut(world, client, true);
                world.schedule(world.now + duration, Event::Mend(client));
            }
            Trouble::Far(mood) => world.wire.far.set_mood(mood),
            Trouble::Deed(deed) => {
                administrator::act(world, deed)?;
                return run_host(world);
            }
        }
        Ok(())
    }

    fn heal(world: &mut World) -> Outcome<()> {
        for air in world.wire.airs.values_mut() {
            (air.there.plan, air.back.plan) = (air.there.plan.healed(), air.back.plan.healed());
        }
        world.wire.far.heal();
        administrator::heal(world)?;
        run_host(world)
    }

    fn killed(world: &mut World) {
        cables::sever_all(world);
        let far = Arc::clone(&world.wire.far);
        far.forsake(&mut world.random);
        copier::pull_all(world);
    }

    fn drain_server(world: &mut World) -> Outcome<()> {
        drain_host(world);
        Ok(())
    }

    fn drain_client(world: &mut World, client: usize) -> Outcome<()> {
        drain(world, client)
    }

    fn idle(world: &mut World) -> Outcome<()> {
        rest(world)
    }

    /// A lost session is forgotten by then, and a silent connection given up.
    fn forgotten_after(plan: &NetworkPlan) -> Duration {
        Duration::from_secs(if plan.by_packets > 0 { 700 } else { 90 })
    }

    fn describe_client(client: &Machine) -> String {
        client.describe()
    }

    fn describe(&self) -> String {
        format!("{:?}", self.cables)
    }
}

/// Deals with what a client has to say.
pub(super) fn drain(world: &mut World, client: usize) -> Outcome<()> {
    world.drain_told(client).map_err(told)?;
    cables::drain_machine(world, client);
    copier::drain_machine(world, client)?;
    air::drain_machine(world, client)
}

/// Takes what the server has to say, and notes when it wants to be driven.
fn drain_host(world: &mut World) {
    let Some(host) = &mut world.host else { return };
    let scheduled = host.take_scheduled();
    world.expect_disk(scheduled);
    let is_relieved = cables::pull_all(world);
    air::pull_all(world);
    copier::pull_all(world);
    if is_relieved && let Some(host) = &mut world.host {
        // Its sockets have room again.
        host.next_at = Some(world.now);
    }
}

/// Lets the server's threads do what they have to do.
pub(super) fn run_host(world: &mut World) -> Outcome<()> {
    let now = world.now;
    let Some(host) = &mut world.host else { return Ok(()) };
    host.run(now)?;
    drain_host(world);
    Ok(())
}

/// Nobody who has commands under way hears nothing for long.
fn look(world: &mut World) -> Outcome<()> {
    let Some(answer_max) = world.plan.wire.answer_max else { return Ok(()) };
    let now = world.now;
    for client in 0..world.workers.len() {
        let worker = &world.workers[client];
        let answered = worker.good + worker.other;
        let seen = world.wire.heard.entry(client).or_insert((answered, now));
        if worker.in_flight() == 0 || seen.0 != answered {
            *seen = (answered, now);
        }
        let since = seen.1;
        if since + answer_max < now {
            return Err(format!("client {client} hears nothing since {since:?}: {}", world.describe()));
        }
    }
    world.schedule(now + answer_max / 4, Event::Look);
    Ok(())
}

/// A server whose clients have nothing to do does next to nothing.
fn rest(world: &mut World) -> Outcome<()> {
    const WATCHED: Duration = Duration::from_secs(20);
    const TURNS_MAX: u64 = 400;
    let turns = |world: &World| world.host.as_ref().map_or(0, |host| host.turns);
    world.run_for(Duration::from_secs(5))?;
    administrator::check_counts(world)?;
    let before = turns(world);
    world.run_for(WATCHED)?;
    let done = turns(world) - before;
    if done > TURNS_MAX {
        Err(format!("{done} turns in {WATCHED:?} for nothing: {}", world.describe()))
    } else {
        Ok(())
    }
}
