//! Ends whose levels and permission a test changes.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanwire_core::{ClientId, Lun, Peer, Protection};
use sanwire_hyperscsi::{ClientConfig, ProtectionLookup, Server, ServerConfig};

use crate::common::{self, nines, path};

/// How long the keys of a connection are used.
pub(crate) const REKEY_INTERVAL: Duration = Duration::from_secs(30);

/// How the logical units are guarded; others are not.
type LevelsOfUnits = Arc<Mutex<BTreeMap<u16, Protection>>>;

/// Both ends.
pub(crate) struct Ends {
    ends: common::Ends,
    pub(crate) levels: LevelsOfUnits,
    /// Whether the client is on the server's list.
    pub(crate) is_permitted: Arc<AtomicBool>,
}

impl Deref for Ends {
    type Target = common::Ends;

    fn deref(&self) -> &common::Ends {
        &self.ends
    }
}

impl DerefMut for Ends {
    fn deref_mut(&mut self) -> &mut common::Ends {
        &mut self.ends
    }
}

pub(crate) fn client_config(protection_min: Protection) -> ClientConfig {
    ClientConfig { protection_min, ..common::client_config(path(2)) }
}

fn levels_of(levels: &LevelsOfUnits) -> ProtectionLookup {
    let levels = Arc::clone(levels);
    Box::new(move |lun: Option<Lun>| {
        let levels = levels.lock().unwrap();
        match lun {
            Some(lun) => levels.get(&lun.number()).copied().unwrap_or_default(),
            None => levels.values().min().copied().unwrap_or_default(),
        }
    })
}

fn server_config(levels: &LevelsOfUnits, is_permitted: &Arc<AtomicBool>) -> ServerConfig {
    let permits = Arc::clone(is_permitted);
    let admission = Box::new(move |_: Peer, _: Option<ClientId>| permits.load(Ordering::Relaxed));
    ServerConfig { rekey_interval: REKEY_INTERVAL, ..common::server_config(admission, levels_of(levels)) }
}

impl Ends {
    /// Connected ends, over a network that works.
    pub(crate) fn new(levels: &[(u16, Protection)], protection_min: Protection) -> Self {
        let levels = Arc::new(Mutex::new(levels.iter().copied().collect()));
        let is_permitted = Arc::new(AtomicBool::new(true));
        let server = server_config(&levels, &is_permitted);
        let ends = common::Ends::new([path(1), path(2)], client_config(protection_min), server, nines);
        let mut ends = Ends { ends, levels, is_permitted };
        ends.run(Duration::from_secs(2));
        assert!(ends.client.server().is_some(), "connected");
        ends.sent.clear();
        ends
    }
    /// The server starts anew and has forgotten everything but its key. It draws what it drew before.
    pub(crate) fn restart_server(&mut self) {
        self.ends.server = Server::new(server_config(&self.levels, &self.is_permitted));
    }
}
