//! The latest time that a server has seen, kept for its next start: the clock of a host may begin in 1970, or where it stood when that was
//! switched off, and what was over must not begin again.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::persist::{read_file, replace_file};
use crate::wall_time::written_seconds;

/// How much later it is when it is written again.
const STEP: Duration = Duration::from_secs(600);

/// The latest time, as in RFC 3339, in `time-NAME.txt` of the state directory.
#[derive(Debug)]
pub(crate) struct LatestTime {
    /// Nowhere: then it is forgotten with the server.
    file: Option<PathBuf>,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// What an earlier run has left.
    at_start: SystemTime,
    time: SystemTime,
    /// Whether it could not be written last.
    is_failing: bool,
}

impl LatestTime {
    /// What an earlier run has left in this file. Without one, or one that says nothing, any time may be.
    pub(crate) fn load(file: Option<PathBuf>) -> LatestTime {
        let read = |file: &PathBuf| match read_file(file) {
            Ok(content) => content.map(|content| String::from_utf8_lossy(&content).trim().to_owned()),
            Err(error) => {
                tracing::warn!("{} cannot be read: {error}; the clock of this host is believed", file.display());
                None
            }
        };
        let text = file.as_ref().and_then(read);
        let time = text.and_then(|text| humantime::parse_rfc3339(&text).ok());
        let at_start = time.unwrap_or(UNIX_EPOCH).max(UNIX_EPOCH);
        LatestTime { file, kept: Mutex::new(Kept { at_start, time: at_start, is_failing: false }) }
    }

    /// What an earlier run has seen last; the beginning of 1970 if that is not known.
    pub(crate) fn at_start(&self) -> SystemTime {
        self.lock().at_start
    }

    /// It is so late: kept now and then.
    pub(crate) fn note(&self, now: SystemTime) {
        let kept = self.lock();
        if kept.time.checked_add(STEP).is_some_and(|next| next <= now) {
            self.write(kept, now);
        }
    }

    /// The same, kept at once: something has ended.
    pub(crate) fn keep(&self, now: SystemTime) {
        let kept = self.lock();
        if kept.time < now {
            self.write(kept, now);
        }
    }

    /// Somebody has had all looked at again by this clock: nothing is left of one that was ahead, at the next start neither.
    pub(crate) fn believe(&self, now: SystemTime) {
        let mut kept = self.lock();
        kept.at_start = kept.at_start.min(now);
        if kept.time > now {
            self.write(kept, now);
        }
    }

    fn write(&self, mut kept: MutexGuard<'_, Kept>, now: SystemTime) {
        // Also where it cannot be written: it is tried again as much later.
        kept.time = now;
        let Some(file) = &self.file else { return };
        let written = replace_file(file, format!("{}\n", written_seconds(now)).as_bytes());
        if let Err(error) = written.as_ref().map_err(|error| (error, file.display()))
            && !kept.is_failing
        {
            let (error, file) = error;
            tracing::warn!(
                "the time cannot be kept in {file}: {error}; a start with an earlier clock would serve what has ended"
            );
        }
        kept.is_failing = written.is_err();
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // It is whole between any two changes.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_latest_time_is_that_of_the_next_start() {
        let directory = std::env::temp_dir().join(format!("sanwire-time-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let file = directory.join("state/time-test.txt");
        fs::create_dir_all(&directory).unwrap();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let load = || LatestTime::load(Some(file.clone()));
        let latest = load();
        assert_eq!(latest.at_start(), UNIX_EPOCH);
        latest.note(at(1_795_483_800));
        assert_eq!((latest.at_start(), load().at_start()), (UNIX_EPOCH, at(1_795_483_800)));
        latest.note(at(1_795_483_860));
        assert_eq!(load().at_start(), at(1_795_483_800), "it is not written for each minute");
        latest.keep(at(1_795_483_861));
        latest.keep(at(7));
        latest.note(at(7));
        assert_eq!(load().at_start(), at(1_795_483_861), "the clock of a host is set back, too");
        let ahead = load();
        ahead.believe(at(1_795_483_862));
        assert_eq!((ahead.at_start(), load().at_start()), (at(1_795_483_861), at(1_795_483_861)), "it was not");
        ahead.believe(at(1_795_000_000));
        assert_eq!(
            (ahead.at_start(), load().at_start()),
            (at(1_795_000_000), at(1_795_000_000)),
            "it was, and is no more"
        );
        for damage in ["", "soon", "\u{fffd}"] {
            fs::write(&file, damage).unwrap();
            assert_eq!(load().at_start(), UNIX_EPOCH, "{damage:?}");
        }
        LatestTime::load(None).keep(at(5));
        fs::remove_dir_all(&directory).unwrap();
    }
}
