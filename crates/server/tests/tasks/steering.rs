//! Packets that come to the wrong shard, because ports of others are not there: their clients wait, nothing is done twice.

use std::net::SocketAddr;
use std::time::Duration;

use sanwire_hyperscsi::wire::setup::steering_word;
use sanwire_hyperscsi::{DesiredOptions, Identity, random};
use sanwire_io::UdpPort;
use sanwire_scsi::Status;

use super::hyperscsi::{begin, connect};
use super::initiator::BLOCK_BYTES;
use super::{GATED, World, wait_until};

const SHARDS: u32 = 2;

/// Long enough for several attempts to connect.
const A_WHILE: Duration = Duration::from_millis(700);

/// The key of a client that belongs to the last shard.
fn key_of_last_shard() -> [u8; 32] {
    loop {
        let key = random().unwrap();
        if steering_word(Identity::from_private(key).unwrap().client_id()) % SHARDS == SHARDS - 1 {
            return key;
        }
    }
}

/// Makes the kernel choose among so many shards of a server, the first ones, as if the ports of others were not there.
fn steer_among(shards: u32, server: SocketAddr) {
    // The rule is that of the sockets that came last; it stays when they go.
    drop(UdpPort::open_shards(server, shards).unwrap());
}

#[test]
fn a_client_whose_shard_has_no_port_yet_waits_for_it() {
    let world = World::new();
    steer_among(1, world.hyperscsi_address());
    let mut client = begin(world.hyperscsi_address(), key_of_last_shard(), DesiredOptions::default());
    assert!(!client.finds_a_server_within(A_WHILE), "another shard has taken it");
    steer_among(SHARDS, world.hyperscsi_address());
    client.settle();
}

#[test]
fn a_write_is_not_given_again_to_another_shard_and_does_not_land_on_a_newer_one() {
    let world = World::new();
    let mut client = connect(world.hyperscsi_address(), key_of_last_shard());
    let first = world.store.hold(|| client.write(GATED, 0, 1));
    steer_among(1, world.hyperscsi_address());
    client.lose_connection();
    assert!(!client.finds_a_server_within(A_WHILE), "another shard has taken it");
    steer_among(SHARDS, world.hyperscsi_address());
    assert!(client.is_resumed());
    world.store.release();
    assert_eq!(client.answer(), (first, true));
    // Only now: of two writes that one initiator has under way at once, either may come last.
    let second = client.write(GATED, 0, 2);
    assert_eq!(client.answer(), (second, true));
    assert_eq!(world.login(1).read(GATED, 0), 2);
}

#[test]
fn compare_and_write_is_executed_once_though_its_client_was_steered_elsewhere_meanwhile() {
    let world = World::new();
    let mut client = connect(world.hyperscsi_address(), key_of_last_shard());
    // COMPARE AND WRITE (SBC-4 5.3): of zeroes to ones, at block 5.
    let mut cdb = [0; 16];
    (cdb[0], cdb[9], cdb[13]) = (0x89, 5, 1);
    let data = [[0; BLOCK_BYTES], [1; BLOCK_BYTES]].concat();
    let id = client.command(GATED, cdb.into(), Some(data.into()));
    let mut witness = world.login(1);
    wait_until("it is executed", || witness.read(GATED, 5) == 1);
    steer_among(1, world.hyperscsi_address());
    client.lose_connection();
    assert!(!client.finds_a_server_within(A_WHILE), "another shard has taken it");
    steer_among(SHARDS, world.hyperscsi_address());
    assert!(client.is_resumed());
    assert_eq!(client.answer(), (id, true), "{:?}", Status::Good);
}
