//! Connections that carry streams, with both ends of iSCSI.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun, Principal};
use sanwire_iscsi::{Client, ClientConfig, ClientEvent, CommandId, ConnectionId, Failure, Isid, Order, ServerConfig};
use sanwire_scsi::{Sense, Status};

use super::fixed_directory::{FixedDirectory, client_credential, client_name, portal, target_credential, target_name};
use super::host::Host;
use super::plan::{Plan, StreamFault, StreamPlan};
use super::wires::{Connection, Traffic};
use crate::random::Random;
use crate::rdma::Adapter;
use crate::workload::{Given, Initiator, Told};
use crate::world::{self, Outcome, Wire};

/// A world of iSCSI.
pub type World = world::World<Streams>;

/// A connection is to be opened.
#[derive(Debug)]
pub struct Open {
    pub(super) client: usize,
    pub(super) connection: ConnectionId,
}

/// The connections of a world.
pub struct Streams {
    /// What was sent, and what is to happen to it.
    pub traffic: Traffic,
    pub(super) desk: Arc<FixedDirectory>,
    /// By their numbers at the server.
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    pub(super) next_connection: u64,
    /// The adapters by which all of them go, of clients and server.
    pub(super) adapters: Option<[Adapter; 2]>,
    /// Until when nothing passes for a client.
    pub(super) stalled: BTreeMap<usize, Instant>,
    /// Until when a client reads nothing.
    pub(super) deaf: BTreeMap<usize, Instant>,
}

impl Initiator for Client {
    type Id = CommandId;
    type Failure = Failure;

    fn give(&mut self, given: Given<CommandId>, now: Instant) -> Option<CommandId> {
        let is_repeatable = given.is_repeatable();
        match given {
            Given::Command(cdb, data_out, data_in) => {
                self.order(Order { lun: Lun::default(), cdb, is_repeatable, data_out, data_in }, now).ok()
            }
            // Its users cannot ask for these.
            Given::Abort(_) | Given::Reset | Given::Manage(..) => None,
        }
    }

    fn next_told(&mut self) -> Option<Told<CommandId, Failure>> {
        Some(match self.poll_event()? {
            ClientEvent::Connected { .. } => Told::Connected,
            ClientEvent::Lost { .. } | ClientEvent::Targets(_) => Told::Other,
            ClientEvent::OutOfPatience(failure) | ClientEvent::GivenUp(failure) => Told::GivenUp(failure),
            ClientEvent::Completed { id, status, sense, data_in, data_in_bytes } => Told::Answered {
                id,
                is_good: status == Status::Good,
                is_management: false,
                sense: Sense::parse(&sense),
                data_in: data_in.map(|frame| (frame, data_in_bytes)),
            },
            ClientEvent::Failed { id, failure, .. } => Told::Failed { id, is_in_doubt: failure == Failure::InDoubt },
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Client::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Instant) {
        Client::handle_timeout(self, now);
    }

    fn disconnect(&mut self, now: Instant) {
        Client::disconnect(self, now);
    }
}

impl Wire for Streams {
    type Plan = StreamPlan;
    type Fault = StreamFault;
    type Event = Open;
    type Client = Client;
    type Host = Host;

    /// A silent connection is noticed late.
    const RECOVERY_MAX: Duration = Duration::from_secs(120);
    const STOPPING_MAX_US: u64 = 100_000;

    fn new(plan: &Plan, _random: &mut Random) -> Self {
        Streams {
            traffic: Traffic::default(),
            desk: Arc::new(FixedDirectory { has_chap: plan.wire.has_chap }),
            connections: BTreeMap::new(),
            next_connection: 0,
            adapters: plan.wire.adapters.map(|plans| plans.map(Adapter::new)),
            stalled: BTreeMap::new(),
            deaf: BTreeMap::new(),
        }
    }

    fn make_host(world: &mut World) -> Outcome<Host> {
        let config = ServerConfig {
            memory: Region::new(world.plan.server_memory_bytes).map_err(|error| error.to_string())?,
            directory: Arc::clone(&world.wire.desk) as Arc<_>,
            commands_max: world.plan.wire.commands_max,
            transfer_max_bytes: 1 << 20,
        };
        let (units, random) = (world.make_units()?, world.random.fork());
        Ok(Host::new(config, units, Arc::clone(world.disk()), random))
    }

    fn make_client(world: &mut World, client: usize) -> Outcome<Client> {
        let has_chap = world.plan.wire.has_chap;
        let config = ClientConfig {
            initiator: client_name(client)?,
            isid: Isid([0x80, 0, 0, 0, 0, client as u8]),
            target: Some(target_name()?),
            portals: vec![portal().address],
            credential: has_chap.then(client_credential).transpose()?,
            target_credential: has_chap.then(target_credential).transpose()?,
            wishes: world.plan.wire.wishes,
            commands_max: 32,
            connect_patience: Duration::from_secs(120),
            reconnect_patience: None,
            command_patience: world.plan.wire.command_patience,
            seed: world.random.seed(),
        };
        Ok(if world.plan.wire.is_iser {
            Client::over(sanwire_iser::initiator, config, world.now)
        } else {
            Client::new(config, world.now)
        })
    }

    fn principal(_world: &World, client: usize) -> Outcome<Principal> {
        Ok(Principal { initiator_name: Some(client_name(client)?.as_str().into()), ..Principal::default() })
    }

    fn next_at(&self) -> Option<Instant> {
        self.connections.values().filter_map(Connection::next_at).min()
    }

    fn attend(world: &mut World) -> Outcome<bool> {
        let now = world.now;
        let is_due = |connection: &Connection| connection.next_at().is_some_and(|at| at <= now);
        let due = world.wire.connections.iter().find(|(_, connection)| is_due(connection)).map(|(id, _)| *id);
        due.map_or(Ok(false), |id| world.attend_connection(id).map(|()| true))
    }

    fn handle(world: &mut World, Open { client, connection }: Open) -> Outcome<()> {
        world.open(client, connection)
    }

    fn fault(world: &mut World, fault: StreamFault) -> Outcome<()> {
        match fault {
            StreamFault::Cut => world.cut_one(true, true),
            StreamFault::CutUnnoticedByServer => world.cut_one(false, true),
            StreamFault::CutUnnoticedByClient => world.cut_one(true, false),
            StreamFault::Stall(duration) => {
                let client = world.random.range(0..=world.plan.clients as u64 - 1) as usize;
                world.stall(client, world.now + duration);
            }
            StreamFault::Deafen(client, duration) => _ = world.wire.deaf.insert(client, world.now + duration),
        }
        Ok(())
    }

    fn heal(world: &mut World) -> Outcome<()> {
        world.plan.wire.pieces.damage_per_million = 0;
        Ok(())
    }

    fn killed(world: &mut World) {
        world.sever_all();
    }

    fn drain_server(world: &mut World) -> Outcome<()> {
        world.drain_host()
    }

    fn drain_client(world: &mut World, client: usize) -> Outcome<()> {
        world.drain_machine(client)
    }

    /// A lost session is forgotten by then, and a silent connection given up.
    fn forgotten_after(_plan: &StreamPlan) -> Duration {
        Duration::from_secs(90)
    }

    fn describe_client(client: &Client) -> String {
        format!("connections: {:?}", client.server().map(|info| info.connections))
    }

    fn describe(&self) -> String {
        let lines: Vec<String> = self.connections.values().filter_map(Connection::describe_line).collect();
        format!("{:?}, by adapters: {lines:?}", self.traffic.pdus)
    }
}
