//! What this host remembers of derived volumes that it has made for copies: whoever is killed takes nothing back. The next copy to the same volume
//! ends what is left, whichever way it goes itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// What the files of traces end with.
const SUFFIX: &str = "json";

/// A derived volume that may be there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Made {
    /// Its name.
    pub(super) name: String,
    /// Where it is, for people.
    pub(super) server: String,
    /// Which volume it is derived from: what tells that from all others.
    pub(super) destination: String,
    /// For how long after it was made, or renewed.
    pub(super) life_seconds: u32,
}

/// The trace of one.
#[derive(Debug)]
pub(super) struct Trace {
    path: PathBuf,
    pub(super) made: Made,
}

impl Trace {
    /// Leaves it in a directory, which is made when it is missing: before the volume is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn leave(directory: &Path, made: Made) -> anyhow::Result<Trace> {
        let trace = Trace { path: directory.join(format!("{}.{SUFFIX}", made.name)), made };
        let left = fs::create_dir_all(directory).and_then(|()| trace.write());
        left.with_context(|| format!("cannot write {}", trace.path.display()))?;
        Ok(trace)
    }

    /// The volume lives as long again from now on.
    pub(super) fn renew(&self) {
        if let Err(error) = self.write() {
            tracing::debug!("cannot write {}: {error}", self.path.display());
        }
    }

    fn write(&self) -> io::Result<()> {
        fs::write(&self.path, serde_json::to_vec(&self.made)?)
    }

    /// The volume is gone.
    pub(super) fn remove(&self) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!("cannot remove {}: {error}", self.path.display());
            }
            _ => {}
        }
    }

    /// Whether its volume may still be there.
    fn is_current(&self, now: SystemTime) -> bool {
        let Ok(written) = fs::metadata(&self.path).and_then(|metadata| metadata.modified()) else { return false };
        // What was written later than now was written under another clock: it may be there.
        let age = now.duration_since(written).unwrap_or_default();
        age <= Duration::from_secs(self.made.life_seconds.into())
    }
}

/// The traces of what may still be there of this volume. Those whose time is over go.
pub(super) fn left(directory: &Path, destination: &str, now: SystemTime) -> Vec<Trace> {
    let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let traces = paths.filter(|path| path.extension().is_some_and(|end| end == SUFFIX)).filter_map(|path| {
        let made = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        Some(Trace { path, made })
    });
    let (current, over): (Vec<Trace>, Vec<Trace>) = traces.partition(|trace| trace.is_current(now));
    over.iter().for_each(Trace::remove);
    current.into_iter().filter(|trace| trace.made.destination == destination).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_of_a_volume_is_found_until_it_is_taken_back_or_its_time_is_over() {
        let directory = std::env::temp_dir().join(format!("sanwire-traces-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        assert!(left(&directory, "a", SystemTime::now()).is_empty());
        let made = |name: &str, destination: &str| Made {
            name: name.to_owned(),
            server: "hs+ip://b".to_owned(),
            destination: destination.to_owned(),
            life_seconds: 100,
        };
        let [first, second, other] = [("copy-1", "a"), ("copy-2.5", "a"), ("copy-3", "b")]
            .map(|(name, destination)| Trace::leave(&directory, made(name, destination)).unwrap());
        let names = |destination: &str, now: SystemTime| {
            let mut names: Vec<String> =
                left(&directory, destination, now).into_iter().map(|trace| trace.made.name).collect();
            names.sort();
            names
        };
        let now = SystemTime::now();
        assert_eq!(names("a", now), ["copy-1", "copy-2.5"]);
        first.remove();
        assert_eq!(names("a", now), ["copy-2.5"]);
        second.renew();
        assert_eq!((names("b", now), names("c", now)), (vec!["copy-3".to_owned()], Vec::new()));
        assert!(names("a", now + Duration::from_secs(300)).is_empty());
        assert!(names("b", now).is_empty() && !other.path.exists(), "those of all volumes go");
        fs::remove_dir_all(&directory).unwrap();
    }
}
