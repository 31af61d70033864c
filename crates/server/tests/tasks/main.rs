//! Tasks of several sessions on several shards of one server: who waits for whom, and who ends whose.

mod addresses;
mod attentions;
mod copy;
mod flushes;
mod frozen;
mod hyperscsi;
mod initiator;
mod logins;
mod management;
mod nexus_loss;
mod pending;
mod pieces;
mod residuals;
mod stalls;
mod steering;
mod store;
mod targets;
mod timed;
mod usage;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sanwire_core::{Lun, Protection};
use sanwire_device::{LogicalUnit, UnitOptions};
use sanwire_hyperscsi::{Identity, Recovery, random};
use sanwire_io::file::EngineKind;
use sanwire_scsi::Identity as DiskIdentity;
use sanwire_server::{AllowList, Compression, Origin, Server, ServerConfig, TargetNodeConfig, VolumeConfig, Wire};
use sanwire_store::Patience;

use self::hyperscsi::Driver;
use self::initiator::Initiator;
use self::store::GatedStore;

/// Nothing here takes so long unless it never happens.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The unit whose store can be made to hold writes back: they cannot be withdrawn.
const GATED: u16 = 0;
/// The unit whose writes wait for an hour before they begin: they can be withdrawn.
const DELAYED: u16 = 1;
/// The unit that does everything at once.
const PROMPT: u16 = 2;

/// The unit whose medium can be ejected; no export has it.
const REMOVABLE: u16 = 3;

/// The unit of which the test says how flushes end.
const FLUSHED: u16 = 4;

/// A server with two shards, and one target of three units.
struct World {
    target: Server,
    store: Arc<GatedStore>,
}

/// The units but the gated one, on two shards, over both wires.
fn config() -> ServerConfig {
    let volume = |lun, spec: &str| VolumeConfig {
        lun: Lun::new(lun).unwrap(),
        spec: spec.parse().unwrap(),
        origin: Origin::CommandLine,
    };
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    ServerConfig {
        name: "test".into(),
        identity: Identity::from_private(random().unwrap()).unwrap(),
        psk: [0; 32],
        wires: ["iscsi:127.0.0.1", "hs-ip:127.0.0.1"].map(|wire| wire.parse::<Wire>().unwrap().at(any_port)).into(),
        protection: Protection::Checksum,
        compression: Compression::Off,
        rekey_interval: ServerConfig::REKEY_INTERVAL_DEFAULT,
        allow: AllowList::default(),
        pools: Vec::new(),
        volumes: vec![
            volume(DELAYED, "delayed=ram:1M,delay=write:3600s"),
            volume(PROMPT, "prompt=ram:1M"),
            volume(REMOVABLE, "removable=ram:1M,removable"),
        ],
        exports: vec![TargetNodeConfig::of_volume("prompt", AllowList::default()).unwrap()],
        discovery: Default::default(),
        shards: 2,
        memory_bytes: ServerConfig::MEMORY_BYTES_DEFAULT,
        ring_bytes: 1 << 20,
        // Only a ring can wait for a socket as if it were a disk.
        engine: EngineKind::IoUring,
        visa: Default::default(),
        recovery: Recovery::default(),
        accepted: Default::default(),
        state_directory: None,
        audit_log: None,
        announced: Default::default(),
        metrics_of_clients: false,
        rdma: Default::default(),
        direct_copies: Default::default(),
        clients: Vec::new(),
    }
}

/// Where a server is reached over HyperSCSI.
fn hyperscsi_address(server: &Server) -> SocketAddr {
    server.wires().iter().filter(|wire| wire.portal().is_none()).find_map(Wire::address).unwrap()
}

impl World {
    fn new() -> World {
        World::with(Patience::default())
    }

    /// With such patience with the gated store.
    fn with(patience: Patience) -> World {
        let target = Server::start(config()).unwrap();
        let store = Arc::new(GatedStore::new());
        let identity = DiskIdentity::new("gated", [7; 16]).unwrap();
        let disk =
            LogicalUnit::new(identity, Arc::clone(&store) as _, UnitOptions { patience, ..UnitOptions::default() })
                .unwrap();
        target.units().add(Lun::new(GATED).unwrap(), disk).unwrap();
        let units = [(GATED, "gated"), (DELAYED, "delayed"), (PROMPT, "prompt")];
        let units = units.map(|(lun, name)| (Lun::new(lun).unwrap(), name.to_owned()));
        let export = TargetNodeConfig {
            units: units.into(),
            ..TargetNodeConfig::of_volume("all", AllowList::default()).unwrap()
        };
        let exports = [target.exports(), vec![export]].concat();
        target.set_exports(exports).unwrap();
        World { target, store }
    }

    fn portal(&self) -> SocketAddr {
        self.target.wires().iter().find_map(Wire::portal).unwrap().0
    }

    fn hyperscsi_address(&self) -> SocketAddr {
        hyperscsi_address(&self.target)
    }

    /// A session of the initiator port with this number, whose unit attentions are over.
    fn login(&self, port: u8) -> Initiator {
        Initiator::login(self.portal(), "iqn.2026-11.org.sanwire:all", port)
    }

    /// The shard that has the session of a port.
    fn shard_of(&self, port: u8) -> usize {
        let isid = format!("{port:02x}");
        let sessions = self.target.sessions();
        let is_own = |port: &str| port.split(',').nth(1).is_some_and(|own| own.replace(':', "").ends_with(&isid));
        sessions.iter().find(|session| is_own(&session.port)).unwrap().shard
    }

    /// Waits until so many commands wait for the gated store.
    fn wait_for_stalls(&self, count: u32) {
        let disk = self.target.units().get(Lun::new(GATED).unwrap()).unwrap();
        wait_until("so many commands wait for the store", || disk.stalls().waiting() == count);
    }

    /// The same, while a client takes what comes: it is asked for what its commands write bit by bit.
    fn wait_for_stalls_of(&self, client: &mut Driver, count: u32) {
        let disk = self.target.units().get(Lun::new(GATED).unwrap()).unwrap();
        wait_until("so many commands of a client wait for the store", || {
            client.take_a_packet();
            disk.stalls().waiting() == count
        });
    }

    /// Waits until there are so many sessions of iSCSI.
    fn wait_for_sessions(&self, count: usize) {
        let sessions = || self.target.sessions().into_iter().filter(|session| session.target.is_some());
        wait_until("the sessions are so many", || sessions().count() == count);
    }
}

impl Drop for World {
    /// A server waits for its stores before it ends.
    fn drop(&mut self) {
        self.store.release();
    }
}

/// Waits for what happens soon.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up_at = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < give_up_at, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
