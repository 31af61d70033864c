//! What initiators have set of AoE targets (config strings, masks, reservations), kept through restarts under the names of the volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use sanwire_aoe::{Address, Shelves, TargetSettings};
use sanwire_core::MacAddress;
use serde::{Deserialize, Serialize};

use crate::config::ServerConfig;
use crate::kept::{Keeps, StateError, StateFile};

/// What is set of one target, as it stands in the file.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields, default)]
struct Written {
    /// In hexadecimal digits: it is no text.
    #[serde(skip_serializing_if = "String::is_empty")]
    config: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mask: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reserved: Vec<String>,
}

/// What is set, of volumes that are there and of those that are configured and not served now.
#[derive(Default)]
struct Known {
    volumes: BTreeMap<Address, String>,
    settings: BTreeMap<String, TargetSettings>,
}

/// Keeps what is set. Without a file it lives as long as the server.
pub(super) struct SettingsKeeper {
    known: Arc<Mutex<Known>>,
    ring: Option<SyncSender<()>>,
}

impl SettingsKeeper {
    /// With what was kept of these volumes; what changes of the targets is kept from now on.
    ///
    /// # Errors
    /// [`StateError`] when what was kept cannot be read.
    pub(super) fn open(
        config: &ServerConfig,
        volumes: &BTreeSet<&str>,
        shelves: &Arc<Shelves>,
    ) -> Result<SettingsKeeper, StateError> {
        let file = config.state_file("aoe-settings", "json");
        let Some(file) = file.map(|path| StateFile::new(path, Keeps::AOE_SETTINGS)) else {
            return Ok(SettingsKeeper { known: Arc::default(), ring: None });
        };
        let kept: BTreeMap<String, Written> = file.load()?.unwrap_or_default();
        let mut settings = BTreeMap::new();
        for (name, written) in kept.into_iter().filter(|(name, _)| volumes.contains(name.as_str())) {
            settings.insert(name, written.read(&file)?);
        }
        let known = Arc::new(Mutex::new(Known { volumes: BTreeMap::new(), settings }));
        // One that waits there stands for all that came before it is heard.
        let (ring, rung) = sync_channel(1);
        let keeper = (Arc::downgrade(shelves), Arc::clone(&known));
        // A shard has others to serve while a file is made stable.
        let work = move || keep(&keeper.0, &keeper.1, &file, &rung);
        match thread::Builder::new().name("aoe-settings".into()).spawn(work) {
            Ok(_) => {
                let ring = ring.clone();
                shelves.keep_with(Box::new(move || _ = ring.try_send(())));
            }
            Err(error) => tracing::warn!("what is set of AoE targets is not kept through restarts: {error}"),
        }
        Ok(SettingsKeeper { known, ring: Some(ring) })
    }

    /// A volume is at an address; what was set of it.
    pub(super) fn serve(&self, name: &str, address: Address) -> TargetSettings {
        let mut known = lock(&self.known);
        known.volumes.insert(address, name.to_owned());
        known.settings.get(name).cloned().unwrap_or_default()
    }

    /// A volume is gone for good, and what was set of it with it.
    pub(super) fn remove(&self, address: Address) {
        let mut known = lock(&self.known);
        if let Some(name) = known.volumes.remove(&address)
            && known.settings.remove(&name).is_some()
            && let Some(ring) = &self.ring
        {
            // One that waits there already will do.
            let _ = ring.try_send(());
        }
    }
}

/// The thread that keeps what was changed, as long as there are targets.
fn keep(shelves: &Weak<Shelves>, known: &Mutex<Known>, file: &StateFile, rung: &Receiver<()>) {
    let mut is_failing = false;
    while rung.recv().is_ok() {
        let Some(shelves) = shelves.upgrade() else { return };
        let (change, settings) = shelves.settings();
        let written = lock(known).take(settings);
        let result = file.save(&written);
        note(&mut is_failing, file, result.as_ref().err());
        // Whoever has set it is told all the same: it holds, as long as the server runs.
        shelves.kept(change);
    }
}

fn note(is_failing: &mut bool, file: &StateFile, error: Option<&io::Error>) {
    let was_failing = std::mem::replace(is_failing, error.is_some());
    let path = file.path().display();
    match error {
        Some(error) if !was_failing => {
            tracing::error!("{path} cannot be written: {error}; what is set of AoE targets is lost by a restart");
        }
        None if was_failing => tracing::warn!("what is set of AoE targets can be kept in {path} again"),
        _ => {}
    }
}

impl Known {
    /// Takes over what is set now; what is to be written.
    fn take(&mut self, settings: Vec<(Address, TargetSettings)>) -> BTreeMap<String, Written> {
        for (address, set) in settings {
            let Some(name) = self.volumes.get(&address) else { continue };
            match set == TargetSettings::default() {
                true => drop(self.settings.remove(name)),
                false => drop(self.settings.insert(name.clone(), set)),
            }
        }
        self.settings.iter().map(|(name, set)| (name.clone(), Written::of(set))).collect()
    }
}

impl Written {
    fn of(set: &TargetSettings) -> Written {
        let stations = |stations: &[MacAddress]| stations.iter().map(MacAddress::to_string).collect();
        let config = set.config.iter().map(|byte| format!("{byte:02x}")).collect();
        Written { config, mask: stations(&set.masks), reserved: stations(&set.reserved) }
    }

    fn read(&self, file: &StateFile) -> Result<TargetSettings, StateError> {
        let stations = |texts: &[String]| -> Result<Vec<MacAddress>, StateError> {
            texts.iter().map(|text| file.parsed(text)).collect()
        };
        let pairs = self.config.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap_or_default());
        let bytes: Result<Vec<u8>, StateError> = pairs.map(|pair| Ok(file.parsed::<Pair>(pair)?.0)).collect();
        Ok(TargetSettings { config: bytes?, masks: stations(&self.mask)?, reserved: stations(&self.reserved)? })
    }
}

/// A byte in two hexadecimal digits.
struct Pair(u8);

impl std::str::FromStr for Pair {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Pair, Self::Err> {
        u8::from_str_radix(text, 16).map(Pair)
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    // Each change of it is whole.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_nothing_is_guessed() {
        let file = StateFile::new("aoe-settings.json".into(), Keeps::AOE_SETTINGS);
        let set = TargetSettings {
            config: vec![0, 0xff, b'x'],
            masks: vec![MacAddress([2, 0, 0, 0, 0, 1])],
            reserved: vec![MacAddress([2, 0, 0, 0, 0, 2])],
        };
        let written = Written::of(&set);
        assert_eq!(written.config, "00ff78");
        assert_eq!(written.read(&file).unwrap(), set);
        for config in ["0g", "é"] {
            let damaged = Written { config: config.to_owned(), ..written.clone() };
            assert!(damaged.read(&file).unwrap_err().to_string().contains("aoe-settings.json"));
        }
        let damaged = Written { mask: vec!["02:00".to_owned()], ..written };
        assert!(damaged.read(&file).is_err());
    }

    #[test]
    fn what_is_set_of_a_volume_that_is_not_served_now_stays() {
        let (here, away) = (Address { shelf: 1, slot: 0 }, TargetSettings { config: vec![1], ..Default::default() });
        let mut known = Known::default();
        known.settings.insert("away".to_owned(), away);
        known.volumes.insert(here, "here".to_owned());
        let set = TargetSettings { config: vec![2], ..Default::default() };
        assert_eq!(known.take(vec![(here, set)]).into_keys().collect::<Vec<_>>(), ["away", "here"]);
        assert_eq!(known.take(vec![(here, TargetSettings::default())]).into_keys().collect::<Vec<_>>(), ["away"]);
    }
}
