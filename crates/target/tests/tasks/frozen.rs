//! Clients that ask for much and take none of it: the others of their shard go on, over both wires.

use sanwire_hyperscsi::Identity;
use sanwire_hyperscsi::random;

use super::hyperscsi::{Driver, connect};
use super::initiator::{GOOD, Said};
use super::{GATED, PROMPT, World};

/// A key whose connections are all in the first of two shards.
fn key() -> [u8; 32] {
    loop {
        let key = random().unwrap();
        let id = Identity::from_private(key).unwrap().client_id();
        if u32::from_be_bytes(id.0[..4].try_into().unwrap()).is_multiple_of(2) {
            return key;
        }
    }
}

/// Programs of one client that ask for 32 MiB together, and are not heard of again.
fn frozen(world: &World) -> Vec<Driver> {
    let key = key();
    let mut programs: Vec<Driver> = (0..4).map(|_| connect(world.hyperscsi_address(), key)).collect();
    for program in &mut programs {
        (0..8).for_each(|_| _ = program.read_much(GATED));
    }
    programs
}

#[test]
fn a_client_that_takes_no_answers_keeps_no_other_waiting() {
    let world = World::new();
    let mut other = connect(world.hyperscsi_address(), key());
    let frozen = frozen(&world);
    for _ in 0..3 {
        other.hears_nothing_else();
        let write = other.write(GATED, 1, 7);
        assert_eq!(other.answer(), (write, true));
        let read = other.read_much(GATED);
        assert_eq!(other.answer(), (read, true));
    }
    drop(frozen);
}

#[test]
fn a_client_that_takes_no_answers_keeps_no_initiator_waiting() {
    let world = World::new();
    let mut initiator =
        (1..).map(|port| (world.login(port), world.shard_of(port))).find(|(_, shard)| *shard == 0).unwrap().0;
    let frozen = frozen(&world);
    let write = initiator.write(GATED, 1, 7);
    assert_eq!(initiator.hear(), Said::Status(write, GOOD));
    assert_eq!(initiator.read(GATED, 1), 7);
    drop(frozen);
}

#[test]
fn an_initiator_that_reads_no_answers_keeps_no_other_waiting() {
    let world = World::new();
    let mut logins = (1..).map(|port| (world.login(port), world.shard_of(port))).filter(|(_, shard)| *shard == 0);
    let [mut frozen, mut other] = [(); 2].map(|()| logins.next().unwrap().0);
    let mut client = connect(world.hyperscsi_address(), key());
    for _ in 0..32 {
        frozen.command(GATED, &[0x28, 0, 0, 0, 0, 0, 0, 8, 0, 0], &[], 1 << 20);
    }
    let read = client.read_much(GATED);
    assert_eq!(client.answer(), (read, true));
    assert_eq!(other.read(GATED, 1), 0, "of the same initiator: the memory is taken back");
    let write = other.write(PROMPT, 1, 7);
    assert_eq!(other.hear(), Said::Status(write, GOOD));
    drop(frozen);
}
