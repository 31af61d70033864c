//! Who lives in a world: the server, the clients, their keys and addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::limits::TRANSFER_MAX_BYTES;
use sanwire_core::{ClientId, Instant, LinkId, Lun, Path, Peer, Principal};
use sanwire_scsi::{Sense, Status};
use sanwire_visa::{
    Answer, Ask, Client, ClientConfig, ClientEvent, CommandId, Doorkeeper, Failure, Function, Identity, LinkLimits,
    Order, PORT, ServerConfig,
};

use super::host::Host;
use super::wire::World;
use crate::managers::Managers;
use crate::workload::{Given, Initiator, Told};
use crate::world::Outcome;

const PASSWORD: [u8; 32] = [5; 32];

/// The port of the first program of a client.
const FIRST_PORT: u16 = 20_000;

/// All clients of the world, and nobody else.
struct Door(Vec<ClientId>);

impl Doorkeeper for Door {
    fn permits(&self, _: Peer, client: Option<ClientId>) -> bool {
        client.is_none_or(|client| self.0.contains(&client))
    }
}

fn identity(number: u8) -> Outcome<Identity> {
    Identity::from_private([number; 32]).map_err(|error| error.to_string())
}

/// Who a client is to units.
pub(super) fn principal(client: usize) -> Outcome<Principal> {
    Ok(Principal { client: Some(identity(10 + client as u8)?.client_id()), ..Principal::default() })
}

/// Where a client is, as its program or connection of this number.
pub(super) fn client_path((client, round): (usize, u64)) -> Path {
    path(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 1, client as u8)), FIRST_PORT + round as u16))
}

/// Whose path that is.
pub(super) fn client_at(path: Path) -> Option<(usize, u64)> {
    let Peer::Udp(address) = path.peer else { return None };
    let IpAddr::V4(ip) = address.ip() else { return None };
    let (client, round) = (ip.octets()[3].into(), address.port().checked_sub(FIRST_PORT)?.into());
    (client_path((client, round)) == path).then_some((client, round))
}

/// Where the server is.
pub(super) fn server_path() -> Path {
    path(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), PORT))
}

fn path(address: SocketAddr) -> Path {
    Path { link: LinkId(0), peer: Peer::Udp(address) }
}

impl World {
    fn limits(&self) -> LinkLimits {
        LinkLimits {
            packet_max_bytes: self.plan.wire.claimed_bytes,
            window_packets: self.plan.wire.window_packets,
            is_stream: self.plan.wire.is_stream,
        }
    }

    pub(super) fn make_server(&mut self) -> Outcome<Host> {
        let units = self.make_units()?;
        let numbers = (0..self.plan.clients).map(|client| Ok((identity(10 + client as u8)?.client_id(), client)));
        let managers = Managers { numbers: numbers.collect::<Outcome<_>>()?, count: self.plan.work.managers };
        let protection = self.plan.wire.protection;
        let config = ServerConfig {
            name: "sim".to_owned(),
            identity: identity(99)?,
            psk: PASSWORD,
            doorkeeper: Box::new(Door(managers.numbers.keys().copied().collect())),
            levels: Box::new(move |lun| lun.map_or(sanwire_core::Protection::Checksum, |_| protection)),
            wishes: self.plan.wire.wishes[0],
            memory: Region::new(self.plan.server_memory_bytes).map_err(|error| error.to_string())?,
            links: vec![self.limits()],
            shard: 0,
            shards: 1,
            instance: self.random.u64(),
            nexus_base: 0,
            keep_alive: Duration::from_secs(1),
            session_idle_max: self.plan.wire.session_idle_max,
            commands_max: 16,
            transfer_max_bytes: TRANSFER_MAX_BYTES as u32,
            seed: self.random.seed(),
        };
        Ok(Host::new(config, units, Arc::clone(self.disk()), managers, self.random.fork()))
    }

    pub(super) fn make_machine(&mut self, client: usize) -> Outcome<Client> {
        let config = ClientConfig {
            identity: identity(10 + client as u8)?,
            psk: PASSWORD,
            server_key: if client == 0 { Some(*identity(99)?.public()) } else { None },
            places: vec![server_path()],
            server_name: if client == 0 { String::new() } else { "sim".to_owned() },
            links: vec![self.limits()],
            wishes: self.plan.wire.wishes[1],
            commands_max: 32,
            protection_min: self.plan.wire.protection_min,
            connect_patience: Duration::from_secs(120),
            reconnect_patience: self.plan.work.patience,
            seed: self.random.seed(),
        };
        Ok(Client::new(config, self.now))
    }
}

impl Initiator for Client {
    type Id = CommandId;
    type Failure = Failure;

    fn give(&mut self, given: Given<CommandId>, now: Instant) -> Option<CommandId> {
        let is_repeatable = given.is_repeatable();
        let manage = |function, task| (Ask::Manage { function, task }, None, None);
        let (ask, data_out, data_in) = match given {
            Given::Command(cdb, data_out, data_in) => (Ask::Command(cdb), data_out, data_in),
            Given::Abort(task) => manage(Function::AbortTask, task.number()),
            Given::Reset => manage(Function::LogicalUnitReset, 0),
            Given::Manage(request, room) => (Ask::Administer, Some(request), Some(room)),
        };
        self.order(Order { lun: Lun::default(), ask, is_repeatable, data_out, data_in }, now).ok()
    }

    fn next_told(&mut self) -> Option<Told<CommandId, Failure>> {
        Some(match self.poll_event()? {
            ClientEvent::Connected { .. } => Told::Connected,
            ClientEvent::Lost { .. } => Told::Other,
            ClientEvent::OutOfPatience(_) => Told::OutOfPatience,
            ClientEvent::GivenUp(failure) => Told::GivenUp(failure),
            ClientEvent::Completed { id, answer, data_in, data_in_bytes } => {
                let (is_good, is_management, sense) = match answer {
                    Answer::Command { status, sense } => (status == Status::Good, false, Sense::parse(&sense)),
                    Answer::Managed { done } => (done, true, None),
                    Answer::Administered => (data_in_bytes > 0, true, None),
                };
                let data_in = data_in.map(|frame| (frame, data_in_bytes));
                Told::Answered { id, is_good, is_management, sense, data_in }
            }
            ClientEvent::Failed { id, failure, .. } => Told::Failed { id, is_in_doubt: failure == Failure::InDoubt },
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Client::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Instant) {
        Client::handle_timeout(self, now);
    }

    fn disconnect(&mut self, _now: Instant) {
        Client::disconnect(self);
    }
}
