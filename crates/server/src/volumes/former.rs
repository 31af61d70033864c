//! What was known of a volume before it was opened as another one, to be put back when it is not wanted after all.

use std::io;
use std::path::Path;

use sanwire_store::kind::Place;
use sanwire_store::{Known, VolumeSpec};
use sanwire_store_file::{VolumeMark, remove_made};

use crate::records::Record;

/// What was known of a volume, and what its file said which one it was.
pub(crate) struct Former {
    known: Option<Known>,
    file: FormerFile,
    /// The identity that a file has that is made when it is opened.
    fresh: [u8; 16],
}

/// What was at the path of a volume.
enum FormerFile {
    /// No file, or one that says nothing that can be read: it stays as it is.
    Unknown,
    /// None.
    Missing,
    /// One that said that.
    Marked(VolumeMark),
}

impl Former {
    /// `None` when what is known of the volume cannot be read, and so not be put back.
    pub(super) fn of(spec: &VolumeSpec, record: &Record, fresh: [u8; 16]) -> Option<Former> {
        let file = match spec.store.backing.place() {
            Place::File(path) => FormerFile::at(path),
            Place::Memory | Place::Nowhere | Place::Elsewhere(_) | Place::Volume(_) => FormerFile::Unknown,
        };
        Some(Former { known: record.load().ok()?, file, fresh })
    }

    /// Whether it had no file.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.file, FormerFile::Missing)
    }

    /// As if the volume had not been opened. It is not open any more, and nothing was written to it.
    pub(super) fn put_back(&self, spec: &VolumeSpec, record: &Record) -> io::Result<()> {
        let path = match spec.store.backing.place() {
            Place::File(path) => Some(path),
            Place::Memory | Place::Nowhere | Place::Elsewhere(_) | Place::Volume(_) => None,
        };
        let file = path.map_or(Ok(()), |path| self.put_back_file(spec, path));
        let recorded = match self.known.clone() {
            // A file that should be gone and is there is not taken for the volume, also where files carry no marks.
            Some(known) if self.is_in_the_way(path) => record.save(&Known { is_marked: true, ..known }),
            Some(known) => record.save(&known),
            None => {
                record.forget();
                Ok(())
            }
        };
        file.and(recorded)
    }

    fn put_back_file(&self, spec: &VolumeSpec, path: &Path) -> io::Result<()> {
        match &self.file {
            FormerFile::Unknown => Ok(()),
            FormerFile::Missing => remove_made(path, self.fresh, &spec.name),
            FormerFile::Marked(mark) => mark.put_back(path),
        }
    }

    fn is_in_the_way(&self, path: Option<&Path>) -> bool {
        self.is_missing() && path.is_some_and(|path| !matches!(path.try_exists(), Ok(false)))
    }
}

impl FormerFile {
    fn at(path: &Path) -> FormerFile {
        match VolumeMark::of(path) {
            Some(mark) => FormerFile::Marked(mark),
            None if matches!(path.try_exists(), Ok(false)) => FormerFile::Missing,
            None => FormerFile::Unknown,
        }
    }
}
