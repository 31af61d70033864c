//! Which stores write where, so that no late write of one lands on what another one has written: no store of this process is opened
//! at a server that may still be at work for one that is not used any more, nor to write to an export to which another one writes.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::path::{self, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Address;
use super::address::Place;

static MARKS: Mutex<Marks> = Mutex::new(Marks::new());
static FEWER: Condvar = Condvar::new();

/// How many stores have made each mark.
type Marks = BTreeMap<Mark, usize>;

/// What a store does somewhere.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Mark {
    /// It is not used any more, and its server may be at work for it.
    Ends(Site),
    /// It writes to this export.
    Writes(Site, String),
}

/// One way to reach a server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Site {
    /// A unix socket's path, without symbolic links.
    Path(PathBuf),
    /// A host's name in small letters.
    Name(String, u16),
    /// An address of a host, the link that it is on where that is part of it, and the port.
    Socket(IpAddr, u32, u16),
}

/// The ways to reach a server, however its address is written: addresses that have one of them in common lead to the same server.
///
/// The export's name is no part of it. Servers may ignore it and give one disk by any name, as most plugins of nbdkit do, and nothing in the
/// protocol tells. Two exports that are two disks wait for each other without need, but for the end of a store only: stores that
/// are in use are told apart by it, since servers with many disks would be of no use else.
#[derive(Clone, Debug)]
pub(super) struct Sites(Arc<[Site]>);

impl Sites {
    /// Of an address, and the places that it has: none where a name is not known now.
    pub(super) fn of(address: &Address, places: &VecDeque<Place>) -> Sites {
        let name = match address {
            Address::Path(_) => None,
            Address::Host { host, port } => {
                let name = host.strip_suffix('.').unwrap_or(host);
                Some(Site::Name(name.to_ascii_lowercase(), *port))
            }
        };
        let sites = places.iter().map(|place| match place {
            Place::Path(written) => {
                let path = written.canonicalize().or_else(|_| path::absolute(written));
                Site::Path(path.unwrap_or_else(|_| written.clone()))
            }
            Place::Socket(address) => {
                let link = if let SocketAddr::V6(address) = address { address.scope_id() } else { 0 };
                Site::Socket(address.ip().to_canonical(), link, address.port())
            }
        });
        Sites(name.into_iter().chain(sites).collect())
    }

    fn marks(&self, mark: impl Fn(Site) -> Mark) -> Vec<Mark> {
        self.0.iter().cloned().map(mark).collect()
    }
}

/// What a store does at its server, for as long as this lives.
#[derive(Debug)]
pub(super) struct Claim {
    sites: Sites,
    marks: Vec<Mark>,
}

/// Why there is no claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Busy {
    /// The server may be at work for a store that is not used any more.
    Ending,
    /// Another store writes to the export.
    InUse,
}

impl Claim {
    /// Waits until a store may be opened at this server, for so long at the most; `export`: what it writes to, if it writes.
    ///
    /// Two writers do not go together even where clients agree who writes: each gives again to a server that restarts what
    /// it has written, over what the other one has.
    pub(super) fn begin(sites: Sites, export: Option<&str>, patience: Duration) -> Result<Claim, Busy> {
        let ends = sites.marks(Mark::Ends);
        let marks = export.map_or_else(Vec::new, |export| sites.marks(|site| Mark::Writes(site, export.to_owned())));
        let why = |table: &Marks| {
            let is_there = |mark: &Mark| table.contains_key(mark);
            let in_use = marks.iter().any(is_there).then_some(Busy::InUse);
            ends.iter().any(is_there).then_some(Busy::Ending).or(in_use)
        };
        let waited = FEWER.wait_timeout_while(lock(), patience, |table| why(table).is_some());
        let (mut table, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match why(&table) {
            Some(busy) => Err(busy),
            None => {
                add(&mut table, &marks);
                Ok(Claim { sites, marks })
            }
        }
    }

    /// The store is not used any more.
    pub(super) fn end(&mut self) {
        self.change(self.sites.marks(Mark::Ends));
    }

    /// The store is not used any more, and ends later.
    pub(super) fn retire(&mut self) {
        if !self.marks.is_empty() {
            self.end();
        }
    }

    /// The store does not write.
    pub(super) fn only_read(&mut self) {
        self.change(Vec::new());
    }

    fn change(&mut self, marks: Vec<Mark>) {
        let mut table = lock();
        add(&mut table, &marks);
        remove(&mut table, &self.marks);
        drop(table);
        self.marks = marks;
        FEWER.notify_all();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.change(Vec::new());
    }
}

fn add(table: &mut Marks, marks: &[Mark]) {
    marks.iter().for_each(|mark| *table.entry(mark.clone()).or_default() += 1);
}

fn remove(table: &mut Marks, marks: &[Mark]) {
    for mark in marks {
        if let Some(count) = table.get_mut(mark) {
            *count -= 1;
            if *count == 0 {
                table.remove(mark);
            }
        }
    }
}

fn lock() -> MutexGuard<'static, Marks> {
    // Nothing panics while it is locked.
    MARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(text: &str) -> Sites {
        let (address, _) = Address::read(text).unwrap();
        Sites::of(&address, &address.places().unwrap_or_default())
    }

    /// Why a store that writes to this export cannot be opened now.
    fn busy(text: &str, export: &str) -> Option<Busy> {
        Claim::begin(sites(text), Some(export), Duration::ZERO).err()
    }

    fn ending(text: &str) -> Claim {
        let mut claim = Claim::begin(sites(text), None, Duration::ZERO).unwrap();
        claim.end();
        claim
    }

    #[test]
    fn an_open_waits_for_all_that_end_at_its_server_and_for_no_others() {
        let here = "/endings/here";
        let [mut one, mut other] = [(); 2].map(|()| Claim::begin(sites(here), None, Duration::ZERO).unwrap());
        one.end();
        other.end();
        assert_eq!((busy(here, ""), busy("/endings/there", "")), (Some(Busy::Ending), None));
        drop(one);
        assert_eq!(busy(here, "any"), Some(Busy::Ending));
        let opener = std::thread::spawn(move || Claim::begin(sites(here), None, Duration::from_secs(60)).is_ok());
        drop(other);
        assert!(opener.join().unwrap() && busy(here, "").is_none());
    }

    #[test]
    fn one_store_at_a_time_writes_to_an_export_and_others_may_read() {
        let here = "/endings/shared";
        let mut writer = Claim::begin(sites(here), Some("a"), Duration::ZERO).unwrap();
        assert_eq!((busy(here, "a"), busy(here, "b")), (Some(Busy::InUse), None));
        assert!(Claim::begin(sites(here), None, Duration::ZERO).is_ok(), "it only reads");
        // Its volume is removed, and its writes still end: perhaps both exports are one disk.
        writer.retire();
        assert_eq!((busy(here, "a"), busy(here, "b")), (Some(Busy::Ending), Some(Busy::Ending)));
        writer.end();
        assert_eq!(busy(here, "b"), Some(Busy::Ending));
        drop(writer);
        let mut reader = Claim::begin(sites(here), Some("a"), Duration::ZERO).unwrap();
        reader.only_read();
        reader.retire();
        assert_eq!(busy(here, "a"), None);
    }

    #[test]
    fn a_server_is_the_same_however_its_address_is_written() {
        for (ended, opened, is_same) in [
            ("127.0.0.1:61", "localhost:61", true),
            ("LocalHost:62", "127.0.0.1:62/export", true),
            ("[::ffff:127.0.0.1]:63", "127.0.0.1:63", true),
            ("Nowhere.invalid:64", "nowhere.INVALID.:64/export", true),
            ("127.0.0.1:65", "127.0.0.1:66", false),
            ("127.0.0.1:67", "127.0.0.2:67", false),
            ("/endings/./a", "/endings/a", true),
            ("./endings/a", "/endings/a", false),
        ] {
            let claim = ending(ended);
            assert_eq!(busy(opened, "").is_some(), is_same, "{ended} and {opened}");
            drop(claim);
            assert_eq!(busy(opened, ""), None, "{opened}");
        }
    }
}
