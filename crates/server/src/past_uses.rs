//! Which hosts use which volumes, remembered through restarts of the server: who has a volume mounted and does nothing comes back
//! without using it again, and it is not to be taken away from under him.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_core::{ClientId, Peer};
use sanwire_device::LogicalUnits;
use sanwire_engine::Meter;
use sanwire_scsi::Task;
use sanwire_scsi::vpd::Designator;
use serde::{Deserialize, Serialize};

use crate::counting::Uses;
use crate::kept::{Keeps, StateError, StateFile};

/// Hosts that are remembered, at the most.
const HOSTS_MAX: usize = 1024;

/// How long hosts may take to come back after a start of the server.
const RETURN: Duration = Duration::from_secs(120);

/// One end of sessions: the same after a restart of the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Host {
    /// What tells it from all others; before the comma, whose it is.
    pub(crate) port: String,
    /// Who, for people.
    pub(crate) who: String,
    /// The iSCSI target that it uses; `None` over HyperSCSI.
    pub(crate) target: Option<String>,
    /// Where it was last.
    #[serde(default)]
    pub(crate) address: Option<String>,
}

impl Host {
    /// The client by its id, or the initiator by its name, which may have any number of sessions.
    pub(crate) fn owner(&self) -> &str {
        self.port.split_once(',').map_or(&self.port, |(owner, _)| owner)
    }

    /// Which HyperSCSI client it is, and where, as far as that is known.
    pub(crate) fn client(&self) -> Option<(ClientId, Peer)> {
        let address = self.address.as_ref()?;
        let ethernet = address.parse().map(Peer::Ethernet).ok();
        let peer = ethernet.or_else(|| address.parse().map(Peer::Udp).ok())?;
        Some((self.owner().parse().ok()?, peer))
    }
}

/// What is remembered of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Past {
    #[serde(flatten)]
    host: Host,
    /// By their uuids.
    volumes: BTreeSet<String>,
    /// It has a session, or had one when the server ended.
    is_there: bool,
    /// It has had one since the server has started.
    #[serde(skip)]
    is_back: bool,
}

/// What hosts have used.
#[derive(Debug)]
pub(crate) struct PastUses(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Option<StateFile>,
    started_at: Instant,
    table: Mutex<Table>,
    /// Held while the file is written.
    writing: Mutex<()>,
}

#[derive(Default, Debug)]
struct Table {
    /// The one that was longest ago first; shared with who writes them down.
    hosts: Vec<Arc<Past>>,
    is_changed: bool,
    is_saving: bool,
    /// The server ends: what ends with it is no change.
    is_closed: bool,
}

impl PastUses {
    /// What is remembered in this file; nothing without one.
    ///
    /// # Errors
    /// [`StateError`]. A file that cannot be understood is not overwritten.
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Self, StateError> {
        let file = path.map(|path| StateFile::new(path, Keeps::USES));
        let load = |file: &StateFile| match file.load_plain::<Vec<Past>>()? {
            None => file.load(),
            first => Ok(first),
        };
        let hosts: Vec<Past> = file.as_ref().map(load).transpose()?.flatten().unwrap_or_default();
        let table = Mutex::new(Table { hosts: hosts.into_iter().map(Arc::new).collect(), ..Table::default() });
        Ok(PastUses(Arc::new(Shared { file, started_at: Instant::now(), table, writing: Mutex::default() })))
    }

    /// A host has a session: what it used when it was there last.
    pub(crate) fn came(&self, host: &Host, units: &LogicalUnits) -> Uses {
        let mut uses = Uses::default();
        self.0.change(|table| {
            let Some(past) = table.find(host) else { return false };
            // Only those are looked for, however many volumes there are.
            let used = past.volumes.iter().filter_map(|uuid| units.find(&Designator::of_uuid(from_hexadecimal(uuid)?)));
            used.for_each(|disk| uses.set(disk.slot()));
            past.is_back = true;
            let is_changed = !past.is_there || past.host != *host;
            (past.is_there, past.host) = (true, host.clone());
            is_changed
        });
        uses
    }

    /// Notes a command of a host's session.
    pub(crate) fn note(&self, uses: &mut Uses, host: &Host, units: &LogicalUnits, meter: &Meter, task: &Task) {
        if uses.note(meter.slot(), task).is_some()
            && let Some(disk) = task.lun.and_then(|lun| units.get(lun))
        {
            self.used(host, disk.identity().uuid());
        }
    }

    /// A host has used this volume for the first time in its session.
    fn used(&self, host: &Host, uuid: [u8; 16]) {
        let uuid = hexadecimal(uuid);
        self.0.change(|table| {
            let before = table.hosts.iter().position(|past| past.host.port == host.port);
            let new = || Past { host: host.clone(), volumes: BTreeSet::new(), is_there: true, is_back: true };
            let mut past = match before {
                Some(index) => table.hosts.remove(index),
                None => {
                    table.make_room();
                    Arc::new(new())
                }
            };
            let is_new = !past.volumes.contains(&uuid);
            if is_new {
                Arc::make_mut(&mut past).volumes.insert(uuid);
            }
            table.hosts.push(past);
            is_new
        });
    }

    /// A session is over; `is_for_good` when its host will not come back with it.
    pub(crate) fn left(&self, host: &Host, is_for_good: bool) {
        self.0.change(|table| {
            let before = table.hosts.len();
            table.hosts.retain(|past| !is_for_good || past.host.port != host.port);
            table.find(host).map(|past| past.is_there = false).is_some() || table.hosts.len() < before
        });
    }

    /// Nobody uses these volumes any more: they are not served. Each host is looked at once, however many they are.
    pub(crate) fn forget(&self, uuids: impl IntoIterator<Item = [u8; 16]>) {
        let gone: BTreeSet<String> = uuids.into_iter().map(hexadecimal).collect();
        self.0.change(|table| {
            let users = table.hosts.iter_mut().filter(|past| !past.volumes.is_disjoint(&gone));
            let removed = users.map(|past| Arc::make_mut(past).volumes.retain(|uuid| !gone.contains(uuid))).count() > 0;
            table.hosts.retain(|past| !past.volumes.is_empty());
            removed
        });
    }

    /// The hosts that used this volume when the server ended, and may still come back.
    pub(crate) fn awaited(&self, uuid: [u8; 16]) -> Vec<Host> {
        self.0.awaited_at(uuid, Instant::now())
    }

    /// The hosts that used this volume and did not leave it, but have no session: they may come back and go on, however late.
    pub(crate) fn lost(&self, uuid: [u8; 16]) -> Vec<Host> {
        let uuid = hexadecimal(uuid);
        let table = self.0.lock();
        let lost = table.hosts.iter().filter(|past| past.volumes.contains(&uuid) && !(past.is_there && past.is_back));
        lost.map(|past| past.host.clone()).collect()
    }

    /// All of these, with the uuids of what they used.
    pub(crate) fn all_awaited(&self) -> Vec<(Host, Vec<[u8; 16]>)> {
        let uuids = |past: &Past| past.volumes.iter().filter_map(|uuid| from_hexadecimal(uuid)).collect();
        self.0.awaited_where(Instant::now(), |_| true, |past| (past.host.clone(), uuids(past)))
    }

    /// The server ends: sessions that end from now on are there when it starts again.
    pub(crate) fn close(&self) {
        let is_saved = {
            let mut table = self.0.lock();
            std::mem::replace(&mut table.is_closed, true) || !(table.is_changed || table.is_saving)
        };
        if !is_saved {
            self.0.save(true);
        }
    }
}

impl Shared {
    fn awaited_at(&self, uuid: [u8; 16], now: Instant) -> Vec<Host> {
        let uuid = hexadecimal(uuid);
        self.awaited_where(now, |past| past.volumes.contains(&uuid), |past| past.host.clone())
    }

    /// What `tell` says of those that are awaited, and are meant.
    fn awaited_where<T>(&self, now: Instant, is_meant: impl Fn(&Past) -> bool, tell: impl Fn(&Past) -> T) -> Vec<T> {
        if now.saturating_duration_since(self.started_at) >= RETURN {
            return Vec::new();
        }
        let table = self.lock();
        let awaited = table.hosts.iter().filter(|past| past.is_there && !past.is_back && is_meant(past));
        awaited.map(|past| tell(past)).collect()
    }

    /// Changes the table, and has it written down when `change` says that there is something new.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Table) -> bool) {
        let mut table = self.lock();
        if table.is_closed || !change(&mut table) || self.file.is_none() {
            return;
        }
        table.is_changed = true;
        if !table.is_saving {
            let own = Arc::clone(self);
            // Without a thread it is written down with the next change, or at the end.
            table.is_saving = thread::Builder::new().name("uses".into()).spawn(move || own.work()).is_ok();
        }
    }

    /// Writes down what is new until nothing is: a shard waits for no disk.
    fn work(&self) {
        loop {
            {
                let mut table = self.lock();
                if !std::mem::take(&mut table.is_changed) {
                    table.is_saving = false;
                    return;
                }
            }
            self.save(false);
        }
    }

    /// Writes down what is there. After the last time nothing is written any more: the next server may have the file.
    fn save(&self, is_last: bool) {
        let Some(file) = &self.file else { return };
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = {
            let table = self.lock();
            if table.is_closed && !is_last {
                return;
            }
            // No shard waits until it is all made into text.
            table.hosts.clone()
        };
        if let Err(error) = file.save(&hosts.iter().map(|past| &**past).collect::<Vec<_>>()) {
            let path = file.path().display();
            tracing::warn!("{path} cannot be written: {error}; after a restart it is not known who used volumes");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // It is whole between any two changes.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn find(&mut self, host: &Host) -> Option<&mut Past> {
        self.hosts.iter_mut().find(|past| past.host.port == host.port).map(Arc::make_mut)
    }

    /// Forgets a host when there are too many: one that is away before those that are there, and of the owner that has the most; of
    /// these the one that was longest ago.
    fn make_room(&mut self) {
        if self.hosts.len() < HOSTS_MAX {
            return;
        }
        let mut counts = BTreeMap::<&str, usize>::new();
        self.hosts.iter().for_each(|past| *counts.entry(past.host.owner()).or_default() += 1);
        let rank = |past: &Past| (past.is_there, Reverse(counts.get(past.host.owner()).copied()));
        let last = self.hosts.iter().enumerate().min_by_key(|(_, past)| rank(past)).map(|(index, _)| index);
        if let Some(index) = last {
            self.hosts.remove(index);
        }
    }
}

fn hexadecimal(uuid: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(uuid))
}

fn from_hexadecimal(uuid: &str) -> Option<[u8; 16]> {
    u128::from_str_radix(uuid, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanwire_core::Lun;
    use sanwire_device::{LogicalUnit, UnitOptions};
    use sanwire_scsi::Identity;
    use sanwire_store::{RamStore, Store};

    const UUID: [u8; 16] = [7; 16];
    const SLOT: u16 = 5;

    /// A server's state, which goes with the test.
    struct State(PathBuf);

    impl State {
        fn new(test: &str) -> State {
            State(std::env::temp_dir().join(format!("sanwire-uses-{test}-{}", std::process::id())))
        }

        fn start(&self) -> PastUses {
            PastUses::open(Some(self.0.join("uses.json"))).unwrap()
        }
    }

    impl Drop for State {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn units() -> LogicalUnits {
        let store: Arc<dyn Store> = Arc::new(RamStore::new(1 << 20, 512));
        let options = UnitOptions { slot: SLOT, ..UnitOptions::default() };
        let units = LogicalUnits::new();
        units
            .add(Lun::default(), LogicalUnit::new(Identity::new("a", UUID).unwrap(), store, options).unwrap())
            .unwrap();
        units
    }

    fn host(port: &str) -> Host {
        Host { port: port.into(), who: format!("host {port}"), target: None, address: None }
    }

    #[test]
    fn what_a_host_used_is_known_when_it_is_back_after_a_restart() {
        let (state, units, [idle, gone]) = (State::new("restart"), units(), ["idle", "gone"].map(host));
        let before = state.start();
        for host in [&idle, &gone] {
            assert!(before.came(host, &units).is_empty());
            before.used(host, UUID);
        }
        before.left(&gone, true);
        assert_eq!(before.awaited(UUID), [], "it is there");
        before.close();
        before.left(&idle, true);
        let after = state.start();
        assert_eq!(after.awaited(UUID), std::slice::from_ref(&idle), "it may come");
        assert_eq!(after.awaited([8; 16]), [], "another volume");
        assert_eq!(after.0.awaited_at(UUID, Instant::now() + RETURN), [], "it does not come any more");
        assert!(after.came(&idle, &units).has(SLOT));
        assert!(after.came(&gone, &units).is_empty());
        assert_eq!(after.awaited(UUID), []);
    }

    #[test]
    fn a_damaged_file_is_refused_and_not_overwritten_and_one_of_the_first_versions_is_read() {
        let (state, units, host) = (State::new("damaged"), units(), host("one"));
        let before = state.start();
        before.used(&host, UUID);
        before.close();
        let path = state.0.join("uses.json");
        let good = std::fs::read(&path).unwrap();
        let newer = String::from_utf8(good.clone()).unwrap().replacen("\"sanwire\":1", "\"sanwire\":9", 1);
        for bad in [&good[..good.len() - 2], &b"[{\"port\":"[..], newer.as_bytes()] {
            std::fs::write(&path, bad).unwrap();
            let refused = PastUses::open(Some(path.clone())).unwrap_err().to_string();
            assert!(refused.contains("who uses which volumes") && refused.contains("mv "), "{refused}");
            assert_eq!(std::fs::read(&path).unwrap(), bad, "nothing is overwritten");
        }
        let body = good.splitn(2, |byte| *byte == b'\n').nth(1).unwrap();
        std::fs::write(&path, body).unwrap();
        assert!(state.start().came(&host, &units).has(SLOT));
    }

    #[test]
    fn a_host_that_has_lost_its_session_uses_what_it_used_when_it_is_back() {
        let (state, units, host) = (State::new("lost"), units(), host("one"));
        let uses = state.start();
        uses.came(&host, &units);
        uses.used(&host, UUID);
        uses.left(&host, false);
        assert!(uses.came(&host, &units).has(SLOT));
        uses.forget([UUID]);
        uses.left(&host, false);
        assert!(uses.came(&host, &units).is_empty(), "the volume was taken away meanwhile");
    }

    /// One initiator has as many ports as it likes.
    #[test]
    fn of_too_many_hosts_those_that_are_away_are_forgotten_first_and_most_of_one_owner() {
        let uses = PastUses::open(None).unwrap();
        let knows = |port: &str| uses.0.lock().hosts.iter().any(|past| past.host.port == port);
        ["here,1", "away,1"].into_iter().for_each(|port| uses.used(&host(port), UUID));
        uses.left(&host("away,1"), false);
        for number in 0..2 * HOSTS_MAX {
            let port = host(&format!("many,{number}"));
            uses.used(&port, UUID);
            uses.left(&port, false);
        }
        assert!(knows("here,1") && knows("away,1"));
        assert_eq!(uses.0.lock().hosts.len(), HOSTS_MAX);
        for number in 0..2 * HOSTS_MAX {
            uses.used(&host(&format!("more,{number}")), UUID);
        }
        assert!(knows("here,1") && !knows("away,1"), "those that are there keep their places");
        assert_eq!(uses.0.lock().hosts.len(), HOSTS_MAX);
    }

    #[test]
    fn who_a_host_is_and_where_is_known_again() {
        let client = ClientId([7; 16]);
        for (test, peer) in [("mac", "02:00:00:00:00:01"), ("ip", "192.0.2.1:7"), ("ipv6", "[2001:db8::1]:7")] {
            let state = State::new(test);
            let host = Host { address: Some(peer.into()), ..host(&format!("{client},0")) };
            let before = state.start();
            before.used(&host, UUID);
            before.close();
            let awaited = state.start().awaited(UUID);
            let found = awaited[0].client().map(|(client, peer)| (client, peer.to_string()));
            assert_eq!(found, Some((client, peer.to_owned())));
        }
        assert_eq!(host("iqn.2026-01.example:a,1").client(), None);
    }

    #[test]
    fn of_too_many_hosts_those_are_remembered_that_came_last() {
        let (units, uses) = (units(), PastUses::open(None).unwrap());
        for number in 0..=HOSTS_MAX {
            uses.used(&host(&number.to_string()), UUID);
        }
        assert_eq!(uses.0.lock().hosts.len(), HOSTS_MAX);
        assert!(uses.came(&host("1"), &units).has(SLOT) && !uses.came(&host("0"), &units).has(SLOT));
    }
}
