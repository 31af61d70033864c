//! Stores that are not used any more while their servers may still be at work for them: until that is over, no other store of
//! this process is opened at the same server, so that no late write of the one lands on what the other has written.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::path::{self, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Address;
use super::address::Place;

static ENDINGS: Mutex<BTreeMap<Site, usize>> = Mutex::new(BTreeMap::new());
static FEWER: Condvar = Condvar::new();

/// One way to reach a server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Site {
    /// A unix socket's path, without symbolic links.
    Path(PathBuf),
    /// A host's name in small letters.
    Name(String, u16),
    /// An address of a host.
    Socket(IpAddr, u16),
}

/// The ways to reach a server, however its address is written: addresses that have one of them in common lead to the same server.
///
/// The export's name is no part of it. Servers may ignore it and give one disk by any name, as most plugins of nbdkit do, and nothing in the
/// protocol tells. Two exports that are two disks wait for each other without need, but for the end of a store only.
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
            Place::Socket(address) => Site::Socket(address.ip().to_canonical(), address.port()),
        });
        Sites(name.into_iter().chain(sites).collect())
    }

    fn any(&self, table: &BTreeMap<Site, usize>) -> bool {
        self.0.iter().any(|site| table.contains_key(site))
    }
}

/// A store that is ending, for as long as this lives.
#[derive(Debug)]
pub(super) struct Ending(Sites);

impl Ending {
    /// The store at this server is ending.
    pub(super) fn begin(sites: &Sites) -> Ending {
        let mut endings = lock();
        sites.0.iter().for_each(|site| *endings.entry(site.clone()).or_default() += 1);
        Ending(sites.clone())
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut endings = lock();
        for site in &*self.0.0 {
            if let Some(count) = endings.get_mut(site) {
                *count -= 1;
                if *count == 0 {
                    endings.remove(site);
                }
            }
        }
        drop(endings);
        FEWER.notify_all();
    }
}

/// Waits until no store at this server is ending, for so long at the most; gives whether that is so.
pub(super) fn wait(sites: &Sites, patience: Duration) -> bool {
    let waited = FEWER.wait_timeout_while(lock(), patience, |endings| sites.any(endings));
    let (endings, _) = waited.unwrap_or_else(PoisonError::into_inner);
    !sites.any(&endings)
}

fn lock() -> MutexGuard<'static, BTreeMap<Site, usize>> {
    // Nothing panics while it is locked.
    ENDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(text: &str) -> Sites {
        let (address, _) = Address::read(text).unwrap();
        Sites::of(&address, &address.places().unwrap_or_default())
    }

    #[test]
    fn an_open_waits_for_all_that_end_at_its_server_and_for_no_others() {
        let (here, brief) = (sites("/endings/here"), Duration::from_millis(1));
        let both = [Ending::begin(&here), Ending::begin(&here)];
        assert!(!wait(&here, brief) && wait(&sites("/endings/there"), brief));
        let [one, other] = both;
        drop(one);
        assert!(!wait(&here, brief));
        let sought = here.clone();
        let opener = std::thread::spawn(move || wait(&sought, Duration::from_secs(60)));
        drop(other);
        assert!(opener.join().unwrap() && wait(&here, Duration::ZERO));
    }

    #[test]
    fn a_server_is_the_same_however_its_address_is_written() {
        let is_free = |text| wait(&sites(text), Duration::ZERO);
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
            let ending = Ending::begin(&sites(ended));
            assert_eq!(is_free(opened), !is_same, "{ended} and {opened}");
            drop(ending);
            assert!(is_free(opened), "{opened}");
        }
    }
}
