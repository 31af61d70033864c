mod access;
mod clearing;
mod keeping;
mod model;
mod room;
mod rules;

use sanwire_core::NexusId;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::{AdditionalSense, Reply, Sense, SenseKey, Status, build};

use crate::testing::{World, sense};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;
const REGISTER_AND_MOVE: u8 = 7;

const KEEP: u8 = 0x01;
const ALL_PORTS: u8 = 0x04;
const INITIATORS: u8 = 0x08;

const ONE: NexusId = NexusId(1);
const TWO: NexusId = NexusId(2);
const THREE: NexusId = NexusId(3);
/// Who has no attentions, and so may ask without taking any.
const NOBODY: NexusId = NexusId(99);

/// A disk with three nexuses that have been told of power on.
fn world() -> World {
    let world = World::small();
    for nexus in [ONE, TWO, THREE] {
        world.establish(nexus);
        told(&world, nexus);
    }
    world
}

/// What TEST UNIT READY tells this nexus.
fn told(world: &World, nexus: NexusId) -> Option<AdditionalSense> {
    let reply = world.run(nexus, build::test_unit_ready(), &[]);
    (reply.status != Status::Good).then(|| sense(&reply).additional)
}

fn list(key: u64, action_key: u64, flags: u8) -> Vec<u8> {
    let mut list = [key.to_be_bytes(), action_key.to_be_bytes(), [0; 8]].concat();
    list[20] = flags;
    list
}

fn list_with(key: u64, action_key: u64, flags: u8, initiators: &[TransportId]) -> Vec<u8> {
    let mut list = list(key, action_key, flags | INITIATORS);
    let ids: Vec<u8> = initiators.iter().flat_map(|id| id.as_bytes().to_vec()).collect();
    list.extend((ids.len() as u32).to_be_bytes());
    list.extend(ids);
    list
}

fn move_list(keys: (u64, u64), flags: u8, target_port: u16, initiator: &TransportId) -> Vec<u8> {
    let mut list = [keys.0.to_be_bytes(), keys.1.to_be_bytes()].concat();
    list.extend([0, flags]);
    list.extend(target_port.to_be_bytes());
    list.extend((initiator.as_bytes().len() as u32).to_be_bytes());
    list.extend(initiator.as_bytes());
    list
}

fn send(world: &World, nexus: NexusId, action: u8, kind: u8, list: &[u8]) -> Reply {
    let [a, b, c, d] = (list.len() as u32).to_be_bytes();
    world.run(nexus, [0x5f, action, kind, 0, 0, a, b, c, d, 0], list)
}

/// A PERSISTENT RESERVE OUT with a basic list.
fn out(world: &World, nexus: NexusId, action: u8, kind: u8, keys: (u64, u64)) -> Status {
    send(world, nexus, action, kind, &list(keys.0, keys.1, 0)).status
}

fn register(world: &World, nexus: NexusId, key: u64) {
    assert_eq!(out(world, nexus, REGISTER_AND_IGNORE, 0, (0, key)), Status::Good);
}

/// PERSISTENT RESERVE IN parameter data: generation and what follows the header.
fn ask(world: &World, query: u8) -> (u32, Vec<u8>) {
    let reply = world.run(NOBODY, [0x5e, query, 0, 0, 0, 0, 0, 0xff, 0xff, 0], &[]);
    assert_eq!(reply.status, Status::Good, "{:02x?}", reply.sense);
    let data = reply.data_in.unwrap().to_vec();
    let (generation, rest) = data.split_first_chunk::<4>().unwrap();
    assert_eq!(rest[..4], ((rest.len() - 4) as u32).to_be_bytes());
    (u32::from_be_bytes(*generation), rest[4..].to_vec())
}

fn keys(world: &World) -> Vec<u64> {
    let (_, keys) = ask(world, 0);
    keys.as_chunks().0.iter().map(|key| u64::from_be_bytes(*key)).collect()
}

/// The key and the type of the reservation.
fn held(world: &World) -> Option<(u64, u8)> {
    let (_, held) = ask(world, 1);
    held.split_first_chunk().map(|(key, rest)| (u64::from_be_bytes(*key), rest[5]))
}

fn illegal(additional: AdditionalSense) -> Sense {
    Sense::new(SenseKey::IllegalRequest, additional)
}
