//! What the sectors of a volume may hold.

use std::collections::BTreeMap;

use super::disk::SECTOR_BYTES;

/// What one sector has held, in the order in which its writes began; no two of them were under way together.
#[derive(Clone, Debug)]
pub(super) struct History {
    versions: Vec<u64>,
    /// Of the last write that has ended well.
    current: usize,
    /// No earlier one may be found after a loss of power.
    floor: usize,
    /// A failed flush may have lost what was written up to here.
    suspect: usize,
}

impl History {
    fn of(version: u64) -> Self {
        History { versions: vec![version], current: 0, floor: 0, suspect: 0 }
    }

    /// Whether an earlier version may come back.
    fn is_suspect(&self) -> bool {
        self.suspect > 0 && self.current <= self.suspect
    }
}

/// What a volume may hold, sector by sector; of the rest of it nothing is known.
#[derive(Clone, Default, Debug)]
pub(super) struct Model(BTreeMap<u64, History>);

/// What was known of a volume when a request began.
pub(super) type Moment = BTreeMap<u64, usize>;

/// What each sector of a snapshot may hold.
pub(super) type Frozen = BTreeMap<u64, Vec<u64>>;

impl Model {
    /// These sectors hold that.
    pub(super) fn set(&mut self, sectors: impl Iterator<Item = (u64, u64)>) {
        self.0.extend(sectors.map(|(sector, version)| (sector, History::of(version))));
    }

    pub(super) fn sectors(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }

    /// What is there now; for sectors from `from` on, so many.
    pub(super) fn now(&self, from: u64, count: u64) -> Moment {
        let of = |history: &History| if history.is_suspect() { history.floor } else { history.current };
        self.0.range(from..from + count).map(|(sector, history)| (*sector, of(history))).collect()
    }

    /// A write begins.
    pub(super) fn begin(&mut self, from: u64, count: u64, version: u64) {
        self.0.range_mut(from..from + count).for_each(|(_, history)| history.versions.push(version));
    }

    /// It has ended well.
    pub(super) fn end(&mut self, from: u64, count: u64) {
        self.0.range_mut(from..from + count).for_each(|(_, history)| history.current = history.versions.len() - 1);
    }

    /// A flush that began at that moment has ended well.
    pub(super) fn flushed(&mut self, moment: &Moment) {
        for (sector, current) in moment {
            let is_sure = |history: &&mut History| history.suspect == 0 || *current > history.suspect;
            if let Some(history) = self.0.get_mut(sector).filter(is_sure) {
                history.floor = history.floor.max(*current);
            }
        }
    }

    /// One has failed.
    pub(super) fn lost(&mut self) {
        for history in self.0.values_mut().filter(|history| history.versions.len() - 1 > history.floor) {
            history.suspect = history.versions.len() - 1;
        }
    }

    /// Whether a read that began at that moment may show this.
    pub(super) fn may_show(&self, moment: &Moment, sector: u64, version: u64) -> Result<(), String> {
        let (Some(history), Some(first)) = (self.0.get(&sector), moment.get(&sector)) else { return Ok(()) };
        // What a failed flush has left in a place that was not written again, nobody knows: whatever was once there.
        let allowed = &history.versions[*first..];
        if (history.suspect > 0 && *first <= history.suspect) || allowed.contains(&version) {
            return Ok(());
        }
        Err(format!("sector {sector} shows version {version}, not one of {allowed:?}"))
    }

    /// After a loss of power a sector holds this.
    pub(super) fn found(&mut self, sector: u64, version: u64) -> Result<(), String> {
        let Some(history) = self.0.get_mut(&sector) else { return Ok(()) };
        let allowed = &history.versions[history.floor..];
        if !allowed.contains(&version) {
            return Err(format!(
                "after a loss of power sector {sector} holds version {version}, not one of {allowed:?}"
            ));
        }
        *history = History::of(version);
        Ok(())
    }

    /// What a snapshot holds that is made now, when nothing is under way and all was flushed.
    pub(super) fn freeze(&self) -> Frozen {
        let of = |history: &History| match history.is_suspect() {
            // Writes that have failed may be there.
            false => history.versions[history.current..].to_vec(),
            true => history.versions[history.floor..].to_vec(),
        };
        self.0.iter().map(|(sector, history)| (*sector, of(history))).collect()
    }

    /// A volume that begins with what a snapshot holds.
    pub(super) fn thaw(frozen: &Frozen) -> Self {
        let of = |versions: &Vec<u64>| History {
            versions: versions.clone(),
            current: 0,
            floor: 0,
            suspect: versions.len() - 1,
        };
        Model(frozen.iter().map(|(sector, versions)| (*sector, of(versions))).collect())
    }
}

/// What a sector holds, by its version and its place.
pub(super) fn content(version: u64, sector: u64) -> [u8; SECTOR_BYTES] {
    let mut bytes = [0; SECTOR_BYTES];
    if version > 0 {
        for (word, chunk) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *chunk = if word % 2 == 0 { version } else { sector }.to_le_bytes();
        }
    }
    bytes
}

/// The version of what a sector holds; `None`: it is nothing that was ever written there.
pub(super) fn version_of(bytes: &[u8], sector: u64) -> Option<u64> {
    let version = u64::from_le_bytes(*bytes.first_chunk()?);
    (content(version, sector) == *bytes).then_some(version)
}
