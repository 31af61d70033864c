//! Clients that ask for much and take none of it: the others of their shard go on, over both wires.
//!
//! By default each answer must come within [`super::TIMEOUT`]: so long nobody waits for anything but what never comes. How soon it comes
//! is judged where nothing else runs, in `timed`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sanwire_hyperscsi::Identity;
use sanwire_hyperscsi::random;

use super::hyperscsi::{Driver, connect, connect_narrow};
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
    let mut programs: Vec<Driver> = (0..4).map(|_| connect_narrow(world.hyperscsi_address(), key, 8)).collect();
    for program in &mut programs {
        (0..8).for_each(|_| _ = program.read_much(GATED));
    }
    programs
}

/// Such programs that take a packet now and then: so many that nobody takes their memory back, and so few that what they have asked
/// for keeps it for minutes. Only their share of it leaves others some.
struct Slow {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Some 56 KB in a second; who takes less than 32 KiB in two loses its connection.
const PACKET_EACH: Duration = Duration::from_millis(25);

fn slow(world: &World) -> Slow {
    let is_over = Arc::new(AtomicBool::new(false));
    let take = |mut program: Driver| {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                program.take_a_packet();
                thread::sleep(PACKET_EACH);
            }
        })
    };
    let threads = frozen(world).into_iter().map(take).collect();
    Slow { is_over, threads }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_client_that_takes_its_answers_slowly_keeps_no_other_waiting() {
    client_beside(slow);
}

#[test]
fn a_client_that_takes_no_answers_keeps_no_initiator_waiting() {
    initiator_beside_a_frozen_client();
}

#[test]
fn an_initiator_that_reads_no_answers_keeps_no_other_waiting() {
    beside_a_frozen_initiator();
}

/// How long the slowest of some answers took.
struct Slowest {
    begun: Instant,
    slowest: Duration,
}

impl Slowest {
    fn new() -> Self {
        Slowest { begun: Instant::now(), slowest: Duration::ZERO }
    }

    /// An answer has come, and the next one is waited for.
    fn lap(&mut self) {
        self.slowest = self.slowest.max(self.begun.elapsed());
        self.begun = Instant::now();
    }
}

/// Another client goes on; gives how long it waited at the most.
pub fn beside_a_frozen_client() -> Duration {
    client_beside(frozen)
}

fn client_beside<T>(programs: fn(&World) -> T) -> Duration {
    let world = World::new();
    let mut other = connect(world.hyperscsi_address(), key());
    let programs = programs(&world);
    let mut waited = Slowest::new();
    for _ in 0..3 {
        other.hears_nothing_else();
        let write = other.write(GATED, 1, 7);
        assert_eq!(other.answer(), (write, true));
        waited.lap();
        let read = other.read_much(GATED);
        assert_eq!(other.answer(), (read, true));
        waited.lap();
    }
    drop(programs);
    waited.slowest
}

/// An initiator goes on; gives how long it waited at the most.
pub fn initiator_beside_a_frozen_client() -> Duration {
    let world = World::new();
    let mut initiator =
        (1..).map(|port| (world.login(port), world.shard_of(port))).find(|(_, shard)| *shard == 0).unwrap().0;
    let programs = frozen(&world);
    let mut waited = Slowest::new();
    let write = initiator.write(GATED, 1, 7);
    assert_eq!(initiator.hear(), Said::Status(write, GOOD));
    waited.lap();
    let read = initiator.command(GATED, &[0x28, 0, 0, 0, 0, 0, 0, 8, 0, 0], &[], 1 << 20);
    assert_eq!(initiator.hear(), Said::Status(read, GOOD));
    waited.lap();
    drop(programs);
    waited.slowest
}

/// A client, and another session of the initiator, go on; gives how long they waited at the most.
pub fn beside_a_frozen_initiator() -> Duration {
    let world = World::new();
    // All of them stay until the last has come: a session goes to the shard with the fewest.
    let logins = [1, 2, 3, 4].map(|port| (world.login(port), world.shard_of(port)));
    let mut logins = logins.into_iter().filter(|(_, shard)| *shard == 0);
    let [mut frozen, mut other] = [(); 2].map(|()| logins.next().unwrap().0);
    let mut client = connect(world.hyperscsi_address(), key());
    for _ in 0..32 {
        frozen.command(GATED, &[0x28, 0, 0, 0, 0, 0, 0, 8, 0, 0], &[], 1 << 20);
    }
    let mut waited = Slowest::new();
    let read = client.read_much(GATED);
    assert_eq!(client.answer(), (read, true));
    waited.lap();
    assert_eq!(other.read(GATED, 1), 0, "of the same initiator: the memory is taken back");
    waited.lap();
    let write = other.write(PROMPT, 1, 7);
    assert_eq!(other.hear(), Said::Status(write, GOOD));
    waited.lap();
    drop(frozen);
    waited.slowest
}
