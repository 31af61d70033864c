//! A running server: opened whole or not at all.

mod audit_place;
mod changes;
mod counter;
mod deriving;
mod grounds;
mod looking;
mod opener;
mod opening;
mod portals;
mod shard_place;

use self::audit_place::check_audit_log;
pub(crate) use self::grounds::Grounds;
pub(crate) use self::looking::View;
pub(crate) use self::opener::VolumeOpener;
pub(crate) use self::opening::{MissingVolume, note_units};
use self::opening::{add_volumes, refuse_in_the_clear};
use self::portals::{OpenPort, budget, listeners};
pub(crate) use self::shard_place::ShardPlace;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use sanwire_core::WallClock;
use sanwire_device::LogicalUnits;
use sanwire_io::{Port, Waker};

use crate::budget::Budget;
use crate::config::{Origin, ServerConfig, VolumeConfig};
use crate::error::StartError;
use crate::events::EventLog;
use crate::flushing::flush_all;
use crate::front::aoe::addresses::Addresses;
use crate::front::copies::Copiers;
use crate::front::hdsp::disks::Disks;
use crate::front::hyperscsi::clients::Clients;
use crate::front::iscsi::directory::{TargetNodes, portals_of};
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::front::{self, FrontParts, LoginService};
use crate::kept::StateLock;
use crate::latest_time::LatestTime;
use crate::link::LinkPort;
use crate::login_listener::{self, FrontDeskParts, LoginAccounts, Portal};
use crate::management_queue::{InboxUsage, Letters, ManagementQueue};
use crate::messages::Mailbox;
use crate::opener::Opener;
use crate::past_uses::PastUses;
use crate::pools::Pools;
use crate::programs::Programs;
use crate::protection_table::ProtectionTable;
use crate::registry::Registry;
use crate::revisions::Revisions;
use crate::shard::{self, ShardParts};
use crate::slots::Slots;
use crate::wall_time::set_clock;
use crate::wire::{Wire, WireKind};

/// A server that runs. Dropping it stops it.
pub struct Server {
    units: Arc<LogicalUnits>,
    clients: Arc<Clients>,
    /// Requests to manage the server, for who manages it.
    letters: Mutex<Option<Letters>>,
    levels: Arc<ProtectionTable>,
    addresses: Arc<Addresses>,
    disks: Arc<Disks>,
    slots: Slots,
    exports: Arc<TargetNodes>,
    copiers: Arc<Copiers>,
    /// Held while the targets change.
    changing: Mutex<()>,
    state_directory: Option<PathBuf>,
    counts_clients: bool,
    pools: Pools,
    /// For volumes that are not there for ever.
    clock: WallClock,
    latest_time: Arc<LatestTime>,
    programs: Programs,
    registry: Arc<Registry>,
    past_uses: Arc<PastUses>,
    revisions: Revisions,
    events: EventLog,
    instance: u64,
    shards: Arc<[Mailbox]>,
    login_listener: Waker,
    budget: Budget,
    logins: Arc<LoginAccounts>,
    letters_usage: InboxUsage,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    wires: Vec<Wire>,
    /// Those of packets.
    pub(crate) openers: Vec<Arc<Opener>>,
    /// Volumes that were added while an earlier run went on, and cannot be opened now.
    missing: Mutex<Vec<MissingVolume>>,
    /// Last, so that no other server of this name begins before this one has ended.
    _lock: Option<StateLock>,
}

/// A server whose threads are to be started.
pub(crate) struct Prepared<P> {
    pub(crate) server: Server,
    pub(crate) shards: Vec<ShardParts<P>>,
    pub(crate) desk: FrontDeskParts,
}

/// What starting shards takes, besides the configuration.
struct Start {
    inbox: ManagementQueue,
    registry: Arc<Registry>,
    /// The wires of packets.
    openers: Vec<Arc<Opener>>,
}

/// The wires of packets.
pub(crate) struct OpenWires<P> {
    pub(crate) openers: Vec<Arc<Opener>>,
    /// By shards, then by wires.
    pub(crate) ports: Vec<Vec<P>>,
}

impl Server {
    /// Opens every volume and wire, and starts to serve. When something fails, nothing stays open.
    ///
    /// # Errors
    /// [`StartError`] says what, where, and what to do.
    pub fn start(config: ServerConfig) -> Result<Server, StartError> {
        let mut config = config;
        let grounds = Grounds::take(&mut config)?;
        Server::start_on(config, grounds, |volume| volume.origin == Origin::Management)
    }

    /// The same for who has what is the server's alone already. Without volumes that `may_be_missing` the rest is served.
    pub(crate) fn start_on(
        config: ServerConfig,
        grounds: Grounds,
        may_be_missing: impl Fn(&VolumeConfig) -> bool,
    ) -> Result<Server, StartError> {
        let places = ShardPlace::of(&config)?;
        let Prepared { mut server, shards, desk } =
            Server::prepare(config, grounds, may_be_missing, places, open_wires)?;
        for (index, parts) in shards.into_iter().enumerate() {
            server.spawn_shard(index, parts)?;
        }
        if !desk.portals.is_empty() {
            server.spawn("front-desk".into(), move || login_listener::run(desk))?;
        }
        Ok(server)
    }

    /// Opens everything, and leaves the shards and the login listener to be driven.
    pub(crate) fn prepare<P: LinkPort>(
        mut config: ServerConfig,
        Grounds { lock, pools }: Grounds,
        may_be_missing: impl Fn(&VolumeConfig) -> bool,
        places: Vec<ShardPlace>,
        open_wires: impl FnOnce(&mut [Wire], &ServerConfig) -> Result<OpenWires<P>, StartError>,
    ) -> Result<Prepared<P>, StartError> {
        let (units, levels) = (Arc::new(LogicalUnits::new()), Arc::new(ProtectionTable::new(config.protection)));
        let (clock, programs) = (set_clock(WallClock::default()), config.programs());
        let latest_time = Arc::new(LatestTime::load(config.state_file("time", "txt")));
        let grounds = (&pools, &clock, &programs, latest_time.at_start());
        let missing = add_volumes((&units, &levels), &mut config, grounds, may_be_missing)?;
        let addresses = Addresses::open(&config, &units, &levels)?;
        let disks = Disks::open(&config, &units)?;
        let clients = Clients::open(config.terms(), config.state_file("clients", "json"), Arc::clone(&units))?;
        check_audit_log(&config)?;
        let mut wires = config.wires.clone();
        let listeners = listeners(&mut wires, &config.rdma)?;
        let exports = targets(&config, &wires, (&units, &levels))?;
        let mailboxes: Arc<[Mailbox]> = places.iter().map(|place| place.mailbox.clone()).collect();
        let (inbox, letters) = ManagementQueue::new();
        let (budget, instance) = (budget(&wires), u64::from_be_bytes(random()?));
        let revisions = Revisions::begin().map_err(|source| StartError::Resource { what: "random numbers", source })?;
        let slots = Slots::taken(units.iter().iter().map(|(_, unit)| unit.slot()).collect());
        let mut server = Server {
            units,
            clients: Arc::new(clients),
            letters: Mutex::new(Some(letters)),
            levels,
            addresses: Arc::new(addresses),
            disks: Arc::new(disks),
            slots,
            exports,
            copiers: Arc::new(Copiers::new(&mailboxes)),
            changing: Mutex::default(),
            state_directory: config.state_directory.clone(),
            counts_clients: config.metrics_of_clients,
            pools,
            clock,
            latest_time,
            programs,
            registry: Arc::new(Registry::new(places.len(), &budget)),
            past_uses: Arc::new(PastUses::open(config.state_file("uses", "json"))?),
            events: EventLog::new(instance, revisions.clone()),
            revisions,
            instance,
            shards: mailboxes,
            login_listener: waker()?,
            budget,
            logins: Arc::new(LoginAccounts::new(&budget)),
            letters_usage: inbox.usage(),
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            wires,
            openers: Vec::new(),
            missing: Mutex::new(missing),
            _lock: lock,
        };
        let OpenWires { openers, ports } = open_wires(&mut server.wires, &config)?;
        server.openers.clone_from(&openers);
        let start = Start { inbox, registry: Arc::clone(&server.registry), openers };
        let shards = (0..).zip(ports).zip(places);
        let shards = shards.map(|((index, ports), place)| server.shard_parts(&config, index, &start, (ports, place)));
        let shards = shards.collect::<Result<_, _>>()?;
        let portal = |port: OpenPort| port.with(|kinds| server.logins(kinds));
        let portals: Vec<Portal> = listeners.into_iter().filter_map(portal).collect();
        portals.iter().for_each(|portal| server.logins.expect(portal.logins.results()));
        let desk = server.login_listener_parts(portals, start);
        Ok(Prepared { server, shards, desk })
    }

    /// Where the server listens; port 0 is replaced by the port that the kernel chose.
    #[must_use]
    pub fn wires(&self) -> &[Wire] {
        &self.wires
    }

    /// The logical units.
    #[must_use]
    pub fn units(&self) -> &Arc<LogicalUnits> {
        &self.units
    }

    /// The iSCSI targets.
    #[must_use]
    pub fn exports(&self) -> Vec<TargetNodeConfig> {
        self.exports.configs()
    }

    fn shard_parts<P: LinkPort>(
        &self,
        config: &ServerConfig,
        index: u32,
        start: &Start,
        (ports, place): (Vec<P>, ShardPlace),
    ) -> Result<ShardParts<P>, StartError> {
        let ShardPlace { memory, waker, mail, .. } = place;
        let of_front = |front| {
            let wires = start.openers.iter().zip(&ports).filter(move |(opener, _)| opener.wire().front() == front);
            wires.map(|(_, port)| port.terms()).collect()
        };
        let fronts = FrontParts {
            config,
            ports: Vec::new(),
            shard: index,
            memory: memory.clone(),
            clients: &self.clients,
            levels: &self.levels,
            targets: &self.exports,
            addresses: &self.addresses,
            disks: &self.disks,
            units: &self.units,
            copiers: &self.copiers,
            instance: self.instance,
            inbox: &start.inbox,
            home: &self.shards[index as usize],
        };
        Ok(ShardParts {
            fronts: front::builders(fronts, of_front)?,
            memory,
            openers: start.openers.clone(),
            ports,
            inbox: start.inbox.clone(),
            registry: Arc::clone(&start.registry),
            past_uses: Arc::clone(&self.past_uses),
            events: self.events.clone(),
            engine: config.engine,
            counts_clients: config.metrics_of_clients,
            announced: config.announced.clone(),
            waker,
            mail,
            shards: Arc::clone(&self.shards),
            index: index as usize,
            stop: Arc::clone(&self.stop),
        })
    }

    fn spawn_shard(&mut self, index: usize, parts: ShardParts<Port>) -> Result<(), StartError> {
        let (sender, receiver) = mpsc::channel();
        self.spawn(format!("shard-{index}"), move || {
            shard::run(parts, |result| {
                // Nobody listens any more when the start has failed elsewhere.
                drop(sender.send(result));
            });
        })?;
        let started = receiver.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended at once")));
        started.map_err(|source| StartError::Resource { what: "an I/O engine", source })
    }

    /// The logins of a port at which these are spoken, if connections begin with one there.
    pub(crate) fn logins(&self, kinds: &[&WireKind]) -> Option<Arc<dyn LoginService>> {
        front::logins(kinds, &self.exports, (&self.clients, self.shards.len()))
    }

    fn login_listener_parts(&self, portals: Vec<Portal>, start: Start) -> FrontDeskParts {
        FrontDeskParts {
            portals,
            registry: start.registry,
            inbox: start.inbox,
            budget: self.budget,
            accounts: Arc::clone(&self.logins),
            shards: Arc::clone(&self.shards),
            waker: self.login_listener.clone(),
            stop: Arc::clone(&self.stop),
        }
    }

    fn spawn(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let spawned = std::thread::Builder::new().name(name).spawn(work);
        self.threads.push(spawned.map_err(|source| StartError::Resource { what: "a thread", source })?);
        Ok(())
    }

    /// Whether every thread still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops: commands under way are finished, clients are told, everything is flushed.
    ///
    /// # Errors
    /// The first store that could not be flushed: what it had acknowledged may not be stable.
    pub fn stop(mut self) -> io::Result<()> {
        self.halt();
        let kept = self.programs.flush();
        flush_all(&self.units, self.state_directory.as_deref()).and(kept)
    }

    fn halt(&mut self) {
        self.past_uses.close();
        self.stop.store(true, Ordering::Release);
        self.login_listener.wake();
        self.shards.iter().for_each(Mailbox::wake);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread has panicked; this is a defect of Sanwire, please report it");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.halt();
    }
}

/// The iSCSI targets of the configuration, on the portals of those wires that have targets.
fn targets(
    config: &ServerConfig,
    wires: &[Wire],
    (units, levels): (&Arc<LogicalUnits>, &ProtectionTable),
) -> Result<Arc<TargetNodes>, StartError> {
    let portals = portals_of(wires.iter().filter(|wire| wire.has_targets()));
    let exports = TargetNodes::new(config.discovery.clone(), portals, config.announced.clone());
    let targets = exports.table().changes_to(config.exports.clone())?;
    refuse_in_the_clear((&exports, &targets), units, |lun, _| levels.of(Some(lun)))?;
    exports.change(targets, units)?;
    Ok(exports)
}

fn waker() -> Result<Waker, StartError> {
    Waker::new().map_err(|source| StartError::Resource { what: "an event descriptor", source })
}

/// Opens the wires of packets, and gives the ports of each shard.
fn open_wires(wires: &mut [Wire], config: &ServerConfig) -> Result<OpenWires<Port>, StartError> {
    let shards = config.shards.max(1);
    let (mut openers, mut ports) = (Vec::new(), Vec::new());
    ports.resize_with(shards as usize, Vec::new);
    for (wire, number) in wires.iter_mut().zip(0..).filter(|(wire, _)| wire.portal().is_none()) {
        let opened = Opener::open(wire, number, shards, config.ring_bytes);
        let (opener, opened) = opened.map_err(|source| StartError::Wire { wire: wire.clone(), source })?;
        ports.iter_mut().zip(opened).for_each(|(ports, port)| ports.push(port));
        *wire = opener.wire().clone();
        openers.push(Arc::new(opener));
    }
    Ok(OpenWires { openers, ports })
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], StartError> {
    crate::random::bytes().map_err(|source| StartError::Resource { what: "random numbers", source })
}
