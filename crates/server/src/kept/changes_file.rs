//! The file of the changes: replaced as a whole while that is little, and from then on added to, until what was added is as much again.
//!
//! As long as it is replaced as a whole it is as earlier programs know it. These refuse one to which changes are added, by its version; a server
//! that ends in order leaves none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::added;
use super::file::{Keeps, Parts, StateError, StateFile, VERSION, body_of, with_head};
use super::{Changes, Edit};
use crate::persist::{read_file, replace_file};
use crate::records::fnv1a_128;

/// The version of one that only programs understand that know what is set of targets, ...
const WITH_TARGET_SETTINGS: u32 = VERSION + 1;

/// ... and of one in which more may follow the content.
const FOLLOWED: u32 = VERSION + 2;

/// A content shorter than that is written each time.
const ADDED_FROM_BYTES: usize = 16 << 10;

/// So much may be added at least, before all is written anew.
const ADDED_MIN_BYTES: u64 = 64 << 10;

/// Where what differs from the configuration is kept.
#[derive(Debug)]
pub(crate) struct ChangesFile {
    file: StateFile,
    /// Where changes are added that are to be kept: a file that was written by this run.
    end: Option<End>,
    /// Whether earlier programs refuse the file that is there.
    is_followed: bool,
    /// Whether it may say what was refused, or what was kept may be lost in it.
    is_in_doubt: bool,
    added_from_bytes: usize,
    added_min_bytes: u64,
}

/// The end of a file to which changes are added.
#[derive(Debug)]
struct End {
    file: File,
    /// How long it was without them, and is with them.
    content_bytes: u64,
    length_bytes: u64,
    /// The sum of the last one.
    sum: u128,
}

impl ChangesFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        let file = StateFile::new(path, Keeps::CHANGES);
        let (added_from_bytes, added_min_bytes) = (ADDED_FROM_BYTES, ADDED_MIN_BYTES);
        ChangesFile { file, end: None, is_followed: false, is_in_doubt: false, added_from_bytes, added_min_bytes }
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// What is kept; `None` when there is nothing yet.
    ///
    /// # Errors
    /// [`StateError`]. A file that cannot be understood is not taken for an empty one.
    pub(crate) fn load(&mut self) -> Result<Option<Changes>, StateError> {
        let Some(Loaded { changes, is_followed, is_whole }) = Loaded::of(&self.file)? else { return Ok(None) };
        self.is_followed = is_followed;
        if !is_whole {
            tracing::warn!(
                "the last change in {} is not whole, and is left out: the server, or the host, came to its end while it was written, so that nobody \
                 was told that it is kept",
                self.path().display()
            );
        }
        Ok(Some(changes))
    }

    /// Whether an earlier run has left it so that changes may follow its content, and this one has written none of it: what that run has added
    /// last may be in memory only. Nobody was told of that, and now they are.
    pub(crate) fn is_left_open(&self) -> bool {
        self.is_followed && self.end.is_none()
    }

    /// What was put aside last, as far as it can be understood.
    pub(crate) fn load_aside(&self) -> Option<Changes> {
        Loaded::of(&self.file.aside()).ok().flatten().map(|loaded| loaded.changes)
    }

    /// Puts what is kept aside, as `PATH.old`, before something else takes its place.
    pub(crate) fn put_aside(&self) -> io::Result<()> {
        self.file.put_aside()
    }

    /// Keeps this in place of what was kept.
    ///
    /// # Errors
    /// What the system says; then what was kept still is.
    pub(crate) fn replace(&mut self, changes: &Changes) -> io::Result<()> {
        // All that differs is written.
        #[cfg(test)]
        crate::visits::count(1024);
        self.end = None;
        let body = body_of(changes)?;
        if body.len() < self.added_from_bytes {
            return self.replace_for_all(changes, &body);
        }
        // Also when it cannot be said whether it is there.
        self.is_followed = true;
        let content = with_head(FOLLOWED, &body, true)?;
        self.put(&content)?;
        self.end = End::of(self.path(), content.len(), fnv1a_128(&body));
        Ok(())
    }

    /// Keeps `changes`, which this change of what was kept has led to.
    ///
    /// # Errors
    /// What the system says; then what was kept still is.
    pub(crate) fn add(&mut self, edit: &Edit, changes: &Changes) -> io::Result<()> {
        let end = self.end.take().filter(|end| end.has_room(self.added_min_bytes) && end.is_that_of(self.path()));
        let Some(mut end) = end else { return self.replace(changes) };
        if let Err(error) = end.add(edit) {
            // Nothing is added behind what may be left of it.
            let is_cut = end.cut().is_ok();
            // Where there was no room, nothing has become of what was there. A disk that fails may have lost what stands beside it.
            let has_no_room = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            self.is_in_doubt = !is_cut || !has_no_room;
            return Err(error);
        }
        self.end = Some(end);
        Ok(())
    }

    /// A change was refused because it could not be kept, and these hold: where the file may say something else, it is written anew.
    ///
    /// # Errors
    /// What the system says; then it may say so still.
    pub(crate) fn take_back(&mut self, changes: &Changes) -> io::Result<()> {
        if self.is_in_doubt { self.replace(changes) } else { Ok(()) }
    }

    /// Nothing is added any more: from now on earlier programs understand it, too, as far as they understand what it keeps. What somebody has
    /// put in its place is for the next run, and stays as it is.
    ///
    /// # Errors
    /// What the system says; then only this program does.
    pub(crate) fn finish(&mut self, changes: &Changes) -> io::Result<()> {
        let end = self.end.take();
        if !self.is_followed && !self.is_in_doubt {
            return Ok(());
        }
        if end.is_some_and(|end| !end.is_that_of(self.path())) {
            tracing::warn!("{} was moved or changed by somebody else, and stays as it is", self.path().display());
            return Ok(());
        }
        self.replace_for_all(changes, &body_of(changes)?)
    }

    fn replace_for_all(&mut self, changes: &Changes, body: &[u8]) -> io::Result<()> {
        let version = if changes.target_settings.is_empty() { VERSION } else { WITH_TARGET_SETTINGS };
        self.put(&with_head(version, body, false)?)?;
        self.is_followed = false;
        Ok(())
    }

    /// Puts this in its place.
    fn put(&mut self, content: &[u8]) -> io::Result<()> {
        let put = replace_file(self.path(), content);
        match &put {
            Ok(()) => self.is_in_doubt = false,
            Err(_) => self.note_not_put(content),
        }
        put
    }

    /// This was refused. It may be there all the same: when its directory cannot be made stable, it has its name already.
    fn note_not_put(&mut self, content: &[u8]) {
        let is_other = read_file(self.path()).is_ok_and(|there| there.is_none_or(|there| there != content));
        self.is_in_doubt |= !is_other;
    }
}

/// What is in a file.
struct Loaded {
    changes: Changes,
    /// Whether changes may follow its content.
    is_followed: bool,
    /// Whether the last one of these is whole.
    is_whole: bool,
}

impl Loaded {
    fn of(file: &StateFile) -> Result<Option<Loaded>, StateError> {
        let content =
            read_file(file.path()).map_err(|source| StateError::Read { path: file.path().to_owned(), source })?;
        let Some(content) = content else { return Ok(None) };
        let Parts { version, sum, body, added } = file.parts(&content)?;
        let mut changes = serde_json::from_slice(body).map_err(|error| file.damaged(&error.to_string()))?;
        let is_whole = added::apply(&mut changes, sum, added).map_err(|reason| file.damaged(&reason))?;
        Ok(Some(Loaded { changes, is_followed: version >= FOLLOWED, is_whole }))
    }
}

impl End {
    /// That of a file that was just written; `None` when it cannot be opened: then the next change is kept with all others.
    fn of(path: &Path, content_bytes: usize, sum: u128) -> Option<End> {
        let file = OpenOptions::new().append(true).open(path);
        let file = file.inspect_err(|error| tracing::debug!("{} cannot be added to: {error}", path.display())).ok()?;
        let content_bytes = content_bytes as u64;
        Some(End { file, content_bytes, length_bytes: content_bytes, sum })
    }

    /// Whether all is written anew only later: so that takes no more time for each change than to add it.
    fn has_room(&self, min_bytes: u64) -> bool {
        self.length_bytes - self.content_bytes < min_bytes.max(self.content_bytes)
    }

    /// Whether the path leads there still, and nobody else has changed it: else what is added would be read by nobody.
    fn is_that_of(&self, path: &Path) -> bool {
        let identity = |metadata: io::Result<fs::Metadata>| metadata.map(|it| (it.dev(), it.ino(), it.len())).ok();
        let own = identity(self.file.metadata());
        own.is_some_and(|(_, _, length)| length == self.length_bytes) && own == identity(fs::metadata(path))
    }

    /// Adds one more change, which is stable then.
    ///
    /// # Errors
    /// What the system says; then some of it may be there.
    fn add(&mut self, edit: &Edit) -> io::Result<()> {
        let (line, sum) = added::line(edit, self.sum)?;
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        (self.length_bytes, self.sum) = (self.length_bytes + line.len() as u64, sum);
        Ok(())
    }

    /// Takes away what may be left of a change that could not be added.
    ///
    /// # Errors
    /// What the system says; then it may still be there.
    fn cut(&self) -> io::Result<()> {
        self.file.set_len(self.length_bytes)?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests;
