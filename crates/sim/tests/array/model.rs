//! What the sectors of an array may hold.

use std::collections::BTreeMap;

use super::disk::SECTOR_BYTES;

/// What one sector has held since it was last stable, in the order in which its writes began; no two were under way together.
#[derive(Clone, Debug)]
struct History {
    versions: Vec<u64>,
    /// Of the last write that has ended well.
    current: usize,
    /// No earlier one may be found after a loss of power.
    floor: usize,
    /// What was read since, while nothing was written and no member was lost, and when: that stays.
    seen: Option<(u64, u64)>,
    under_way: u32,
    /// When something last began or ended that may change what is read.
    disturbed: u64,
}

impl History {
    fn of(version: u64) -> Self {
        History { versions: vec![version], current: 0, floor: 0, seen: None, under_way: 0, disturbed: 0 }
    }
}

/// What an array may hold, sector by sector.
#[derive(Clone, Default, Debug)]
pub struct Model {
    sectors: BTreeMap<u64, History>,
    clock: u64,
    /// When something was lost last.
    lost: u64,
}

/// What was known when a request began.
#[derive(Clone, Default, Debug)]
pub struct Moment {
    at: u64,
    current: BTreeMap<u64, usize>,
}

impl History {
    fn disturb(&mut self, now: u64) {
        (self.seen, self.disturbed) = (None, now);
    }
}

impl Model {
    /// These sectors hold nothing.
    pub fn new(sectors: impl Iterator<Item = u64>) -> Self {
        Model { sectors: sectors.map(|sector| (sector, History::of(0))).collect(), clock: 0, lost: 0 }
    }

    /// These hold nothing, too.
    pub fn add(&mut self, sectors: impl Iterator<Item = u64>) {
        self.clock += 1;
        let disturbed = self.clock;
        for sector in sectors {
            self.sectors.entry(sector).or_insert_with(|| History { disturbed, ..History::of(0) });
        }
    }

    pub fn sectors(&self) -> impl Iterator<Item = u64> {
        self.sectors.keys().copied()
    }

    /// What has ended well by now.
    pub fn now(&mut self, from: u64, count: u64) -> Moment {
        self.clock += 1;
        let range = self.sectors.range(from..from.saturating_add(count));
        Moment { at: self.clock, current: range.map(|(sector, history)| (*sector, history.current)).collect() }
    }

    /// A write begins.
    pub fn begin(&mut self, from: u64, count: u64, version: u64) {
        self.clock += 1;
        for (_, history) in self.sectors.range_mut(from..from + count) {
            history.versions.push(version);
            history.under_way += 1;
            history.disturb(self.clock);
        }
    }

    /// It has ended.
    pub fn end(&mut self, from: u64, count: u64, is_well: bool) {
        self.clock += 1;
        for (_, history) in self.sectors.range_mut(from..from + count) {
            history.under_way -= 1;
            history.disturb(self.clock);
            if is_well {
                history.current = history.versions.len() - 1;
            }
        }
    }

    /// A flush that began at that moment has ended well. Another one may have lost what it was to make stable.
    pub fn flushed(&mut self, moment: &Moment) {
        if moment.at <= self.lost {
            return;
        }
        for (sector, current) in &moment.current {
            let history = self.sectors.get_mut(sector);
            history.into_iter().for_each(|history| history.floor = history.floor.max(*current));
        }
    }

    /// A member was lost: what nobody acknowledged may be gone with it.
    pub fn lost_member(&mut self) {
        self.clock += 1;
        self.sectors.values_mut().for_each(|history| history.disturb(self.clock));
    }

    /// The host has ended: nothing is under way any more.
    pub fn lost_host(&mut self) {
        self.lost_member();
        self.sectors.values_mut().for_each(|history| history.under_way = 0);
    }

    /// What was not flushed may be gone.
    pub fn lost_power(&mut self) {
        (self.lost, self.clock) = (self.clock + 1, self.clock + 1);
        self.sectors.values_mut().for_each(|history| history.current = history.floor);
    }

    /// This is what a sector holds from now on, whatever was answered before.
    ///
    /// # Errors
    /// When it never held that.
    pub fn force(&mut self, sector: u64, version: u64) -> Result<(), String> {
        let Some(history) = self.sectors.get_mut(&sector) else { return Ok(()) };
        if !history.versions.contains(&version) {
            return Err(format!("sector {sector} shows version {version}, which it never had"));
        }
        self.clock += 1;
        *history = History { disturbed: self.clock, ..History::of(version) };
        Ok(())
    }

    /// A read that began at that moment has found this.
    ///
    /// # Errors
    /// When it may not.
    pub fn found(&mut self, moment: &Moment, sector: u64, version: u64) -> Result<(), String> {
        let (Some(history), Some(first)) = (self.sectors.get_mut(&sector), moment.current.get(&sector)) else {
            return Ok(());
        };
        let allowed = &history.versions[*first..];
        if !allowed.contains(&version) {
            return Err(format!("sector {sector} shows version {version}, not one of {allowed:?}"));
        }
        if history.under_way > 0 || history.disturbed > moment.at {
            return Ok(());
        }
        match history.seen {
            Some((seen, at)) if at < moment.at && seen != version => {
                Err(format!("sector {sector} shows version {version}, and {seen} before"))
            }
            _ => {
                self.clock += 1;
                history.seen = Some((version, self.clock));
                Ok(())
            }
        }
    }
}

/// What a sector holds, by its version and its place.
pub fn content(version: u64, sector: u64) -> [u8; SECTOR_BYTES] {
    let mut bytes = [0; SECTOR_BYTES];
    if version > 0 {
        for (word, chunk) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *chunk = if word % 2 == 0 { version } else { sector }.to_le_bytes();
        }
    }
    bytes
}

/// The version of what a sector holds; `None`: it is nothing that was ever written there.
pub fn version_of(bytes: &[u8], sector: u64) -> Option<u64> {
    let version = u64::from_le_bytes(*bytes.first_chunk()?);
    (content(version, sector) == *bytes).then_some(version)
}
