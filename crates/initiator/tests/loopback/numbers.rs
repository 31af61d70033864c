//! Volumes that get other numbers while they are in use: each keeps its own content, by HyperSCSI and by iSCSI.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sanwire_buffer::Slice;
use sanwire_core::Lun;
use sanwire_initiator::{Client, Url, Volume, VolumeError};
use sanwire_server::{AllowList, Origin, Server, ServerConfig, TargetNodeConfig, VolumeConfig, Wire};

use super::{config, options, url};

const BLOCK_BYTES: usize = 4096;

/// The writes of one volume that are under way together.
const DEPTH: u64 = 16;

/// A server of two volumes, both of which are also units of one iSCSI target.
struct World(Server);

fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

impl World {
    fn new() -> World {
        let units = BTreeMap::from([(lun(0), "a".to_owned()), (lun(1), "b".to_owned())]);
        let export = TargetNodeConfig { units, ..TargetNodeConfig::of_volume("all", AllowList::default()).unwrap() };
        let wires = ["hs-ip", "iscsi"].map(super::wire).to_vec();
        let settings = ServerConfig { wires, exports: vec![export], ..config(&["a=ram:1M", "b=ram:1M"]) };
        World(Server::start(settings).unwrap())
    }

    /// Both ways to the volumes, and the names of the volumes there.
    fn ways(&self) -> [(Url, [&'static str; 2]); 2] {
        let (portal, _) = self.0.wires().iter().find_map(Wire::portal).unwrap();
        let iscsi = format!("iscsi://{portal}/iqn.2026-11.org.sanwire:all/0").parse().unwrap();
        [(url(&self.0, "a"), ["a", "b"]), (iscsi, ["0", "1"])]
    }

    fn map(&self, change: impl Fn(&mut BTreeMap<Lun, String>)) {
        let mut exports = self.0.exports();
        exports.iter_mut().for_each(|export| change(&mut export.units));
        self.0.set_exports(exports).unwrap();
    }

    fn renumber(&self, from: u16, to: u16) {
        self.map(|units| {
            let moved = units.remove(&lun(from)).unwrap();
            units.insert(lun(to), moved);
        });
        assert!(self.0.renumber_volume(lun(from), lun(to)).unwrap());
    }

    fn remove(&self, number: u16) {
        self.map(|units| drop(units.remove(&lun(number))));
        assert!(self.0.remove_volume(lun(number)).is_some());
    }

    fn add(&self, number: u16, spec: &str) {
        let volume = VolumeConfig { lun: lun(number), spec: spec.parse().unwrap(), origin: Origin::CommandLine };
        self.0.add_volume(&volume, Default::default()).unwrap();
        self.map(|units| drop(units.insert(lun(number), volume.spec.name.to_string())));
    }

    /// The different bytes of which a volume is full.
    fn bytes(&self, name: &str) -> Vec<u8> {
        let mut client = Client::connect(&url(&self.0, name), &options()).unwrap();
        let volume = client.open(name).unwrap();
        let mut all = client.block_on(async { volume.read(0, volume.buffer(1 << 20).await?).await }).unwrap().to_vec();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Writes blocks of this byte again and again, many at a time, until it is over or fails, and counts them.
async fn fill(volume: &Volume, byte: u8, is_over: &AtomicBool, written: &AtomicU64) -> Result<(), VolumeError> {
    let worker = async |at: u64| {
        while !is_over.load(Ordering::Acquire) {
            volume.write(at * BLOCK_BYTES as u64, Slice::from(vec![byte; BLOCK_BYTES])).await?;
            written.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    };
    let mut workers: Vec<_> = (0..DEPTH).map(|at| Box::pin(worker(at))).collect();
    std::future::poll_fn(|context| {
        let mut result = Ok(());
        workers.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(ended) => {
                result = std::mem::replace(&mut result, Ok(())).and(ended);
                false
            }
            std::task::Poll::Pending => true,
        });
        if workers.is_empty() || result.is_err() { result.into() } else { std::task::Poll::Pending }
    })
    .await
}

/// Fills volumes, each with its own byte and by its own client, while the numbers change; gives how it went with each.
fn fill_while(way: &(Url, [&str; 2]), count: usize, change: impl FnOnce()) -> Vec<(Result<(), VolumeError>, u16)> {
    let is_over = AtomicBool::new(false);
    let written: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let fillers = way.1[..count].iter().zip(&written).zip(0xa0..).map(|((name, written), byte)| {
            let mut client = Client::connect(&way.0, &options()).unwrap();
            let volume = client.open(name).unwrap();
            let is_over = &is_over;
            scope.spawn(move || {
                let result = client.block_on(fill(&volume, byte, is_over, written));
                (result, volume.info().lun.number())
            })
        });
        let fillers: Vec<_> = fillers.collect();
        // So many writes of each, or its end.
        let wait_for = |counts: &[u64]| {
            let lacks = |at: usize| !fillers[at].is_finished() && written[at].load(Ordering::Acquire) < counts[at];
            while (0..count).any(lacks) {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        wait_for(&vec![1; count]);
        change();
        // As many as were under way, and as many that were begun after the change.
        let more: Vec<_> = written.iter().map(|written| written.load(Ordering::Acquire) + 2 * DEPTH).collect();
        wait_for(&more);
        is_over.store(true, Ordering::Release);
        fillers.into_iter().map(|filler| filler.join().unwrap()).collect()
    })
}

#[test]
fn a_volume_that_gets_the_number_of_another_one_gets_none_of_its_writes() {
    for at in 0..2 {
        let world = World::new();
        let way = &world.ways()[at];
        let ended = fill_while(way, 1, || {
            world.remove(0);
            world.renumber(1, 0);
        });
        let Err(VolumeError::Protocol { what }) = &ended[0].0 else { panic!("{ended:?}") };
        assert!(what.contains("removed or replaced"), "{what}");
        assert_eq!(world.bytes("b"), [0], "nothing was written there");
    }
}

/// The one that comes has the name, the number and the size of the one that was there: a client that gave it nothing meanwhile
/// learns it from its next command at the earliest.
#[test]
fn a_volume_in_memory_that_is_made_anew_is_another_one_also_for_an_idle_client() {
    for (at, spec) in [(0, "a=ram:1M"), (1, "a=ram:1M"), (0, "a=null:1M"), (1, "a=null:1M")] {
        let world = World::new();
        world.remove(0);
        world.add(0, spec);
        let (url, names) = &world.ways()[at];
        let mut client = Client::connect(url, &options()).unwrap();
        let volume = client.open(names[0]).unwrap();
        let write = |byte| volume.write(0, Slice::from(vec![byte; BLOCK_BYTES]));
        client.block_on(async {
            write(0xa0).await.unwrap();
            volume.flush().await.unwrap();
        });
        world.remove(0);
        world.add(0, spec);
        client.block_on(async {
            let ended = [
                volume.flush().await,
                write(0xa1).await,
                async { volume.read(0, volume.buffer(BLOCK_BYTES).await?).await.map(drop) }.await,
                volume.flush().await,
            ];
            for result in ended {
                let Err(VolumeError::Protocol { what }) = result else { panic!("{spec}: {result:?}") };
                assert!(what.contains("removed or replaced"), "{what}");
            }
        });
        assert_eq!(world.bytes("a"), [0], "nothing was written there");
    }
}

#[test]
fn a_volume_is_found_under_its_new_number_whoever_has_the_old_one() {
    for at in 0..2 {
        let world = World::new();
        let way = &world.ways()[at];
        let ended = fill_while(way, 1, || {
            world.renumber(0, 7);
            world.renumber(1, 0);
        });
        assert_eq!(ended, [(Ok(()), 7)]);
        assert_eq!((world.bytes("a"), world.bytes("b")), (vec![0, 0xa0], vec![0]));
    }
}

#[test]
fn two_volumes_in_use_change_their_numbers() {
    for at in 0..2 {
        let world = World::new();
        let way = &world.ways()[at];
        let ended = fill_while(way, 2, || {
            world.renumber(0, 7);
            world.renumber(1, 0);
            world.renumber(7, 1);
        });
        assert_eq!(ended, [(Ok(()), 1), (Ok(()), 0)]);
        assert_eq!((world.bytes("a"), world.bytes("b")), (vec![0, 0xa0], vec![0, 0xa1]));
    }
}

/// Its own look at the other units must not open a number behind which its commands are still on their way.
#[test]
fn two_volumes_of_one_client_change_their_numbers_while_it_lists_them() {
    for at in 0..2 {
        let world = World::new();
        let (url, names) = &world.ways()[at];
        let mut client = Client::connect(url, &options()).unwrap();
        let volumes = names.map(|name| client.open(name).unwrap());
        for round in 0..4u64 {
            let write = |volume: &Volume, byte: u8| {
                let (volume, data) = (volume.clone(), Slice::from(vec![byte; BLOCK_BYTES]));
                async move { volume.write(round * BLOCK_BYTES as u64, data).await }
            };
            world.renumber(0, 7);
            world.renumber(1, 0);
            if round % 2 == 0 {
                assert_eq!(client.volumes().unwrap().len(), 2);
            }
            world.renumber(7, 1);
            client.block_on(async {
                let (first, second) = (write(&volumes[0], 0xa0), write(&volumes[1], 0xa1));
                first.await.unwrap();
                second.await.unwrap();
            });
        }
        assert_eq!((world.bytes("a"), world.bytes("b")), (vec![0, 0xa0], vec![0, 0xa1]));
    }
}
