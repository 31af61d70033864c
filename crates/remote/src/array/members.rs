//! The members of an array, opened by how they are written.

use std::io;
use std::time::Instant;

use sanwire_array::{Array, ArrayError, Begin, Candidate, Found, Label, View, find};
use sanwire_store::{Completion, CompletionQueue, Outcome, SpecError, Started, StoreSpec};
use sanwire_store_file::blocking;

use super::looking::{Look, look_at};
use super::purpose::{Opening, Purpose, is_unfenced};
use crate::volume::unreserved;

/// How long the requests to a member wait for its server, where nothing else is said: the others have what it has.
const PATIENCE: &str = "5s";

/// Drives what was begun with ordinary blocking calls, and waits for its end.
///
/// # Errors
/// Whatever that comes to.
pub fn drive(begin: Begin) -> Completion {
    sanwire_store::drive(begin, blocking::perform)
}

/// Drives what there is to do; `None`: nothing was.
pub fn step(begin: impl FnOnce(&CompletionQueue) -> Option<Started>) -> Option<Completion> {
    let mut has_begun = false;
    let end = sanwire_store::drive(
        |completions| match begin(completions) {
            Some(started) => {
                has_begun = true;
                started
            }
            None => Started::Done(Ok(Outcome::Done)),
        },
        blocking::perform,
    );
    has_begun.then_some(end)
}

/// An identity that nothing has had.
///
/// # Errors
/// When the system's generator of random numbers fails.
pub fn fresh() -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| io::Error::other("the system's generator of random numbers failed"))?;
    Ok(id)
}

/// Volumes that were opened as members of an array.
#[derive(Debug, Default)]
pub struct Members {
    /// Those that could be opened.
    pub candidates: Vec<Candidate>,
    /// How each of them is written.
    texts: Vec<String>,
    /// What stands on each of them.
    labels: Vec<Option<Label>>,
    /// Those that could not, and why.
    pub failures: Vec<(String, String)>,
    /// What else is to be said where they make no array.
    told: String,
}

/// What is written of a store: the store, and its keys, each as it is written. Commas after a backslash belong to what they stand in.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    text.split(move |character| {
        let is_end = character == ',' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_end
    })
}

fn key_of(part: &str) -> &str {
    part.split('=').next().unwrap_or(part)
}

/// A store as it is to be written for a member: given up soon where its server is away, and reached as the array says.
pub(super) fn member_spec(text: &str, opening: Opening) -> Result<StoreSpec, SpecError> {
    if !text.contains("://") {
        return text.parse();
    }
    let (mut written, purpose) = (text.to_owned(), opening.purpose);
    let exclusive = purpose.reserves().then(|| "exclusive".to_owned());
    let path = opening.iser_path.map(|path| format!("iser-path={path}"));
    for key in exclusive.into_iter().chain(path).chain([format!("reconnect={PATIENCE}")]) {
        let longer = format!("{written},{key}");
        // Other kinds of stores elsewhere, like nbd, or another wire than iSER, have no such key.
        if !parts(text).skip(1).any(|part| key_of(part) == key_of(&key)) && longer.parse::<StoreSpec>().is_ok() {
            written = longer;
        }
    }
    let spec = written.parse()?;
    Ok(if purpose.reserves() { spec } else { unreserved(spec, purpose == Purpose::Read) })
}

/// How a store is written to be opened again: what it was taken over from once, it is not again.
pub(super) fn again(text: &str) -> String {
    parts(text).filter(|part| key_of(part) != "takeover").collect::<Vec<_>>().join(",")
}

/// The names of the keys that a store is to have whenever it is opened.
pub(super) fn lasting_keys(text: &str) -> Vec<&str> {
    let is_lasting = |key: &&str| !["size", "grow", "takeover", "reconnect"].contains(key);
    parts(text).skip(1).map(key_of).filter(is_lasting).collect()
}

/// Where a member is, for its label: without keys, which may name secrets of this host, and so that it means the same in every directory.
pub(super) fn place(text: &str, spec: &StoreSpec) -> String {
    match spec.backing.absolute().and_then(|rewritten| rewritten.store) {
        Some(store) => store.replace(',', r"\,"),
        None => parts(text).next().unwrap_or_default().to_owned(),
    }
}

impl Members {
    /// Opens these stores, and all others that the newest label among them names. What cannot be opened is left out.
    #[must_use]
    pub fn open(name: &str, texts: &[String], opening: Opening) -> Members {
        let mut members = Members::open_only(texts, opening);
        let Ok(found) = members.find(name) else { return members };
        let failed = |place: &str| members.failures.iter().any(|(text, _)| parts(text).next() == Some(place));
        // Nothing but the store: a label is written by who can write one member.
        let others = found.missing().filter_map(|place| parts(place).next()).filter(|place| !failed(place));
        let others: Vec<_> = others.map(str::to_owned).collect();
        members.add(&others, opening, None);
        members
    }

    /// Opens these stores and no others.
    #[must_use]
    pub fn open_only(texts: &[String], opening: Opening) -> Members {
        Members::look(texts, opening, None).0
    }

    /// Opens these stores and no others, side by side. So many were not looked at, because the time was over.
    pub(super) fn look(texts: &[String], opening: Opening, end: Option<Instant>) -> (Members, usize) {
        let mut members = Members::default();
        let left = members.add(texts, opening, end);
        (members, left)
    }

    fn add(&mut self, texts: &[String], opening: Opening, end: Option<Instant>) -> usize {
        let looks = look_at(texts, opening, end);
        let left = looks.iter().filter(|look| look.is_none()).count();
        for (text, look) in texts.iter().zip(looks) {
            match look {
                Some(Ok(Look { candidate, label })) => {
                    self.candidates.push(candidate);
                    self.texts.push(text.clone());
                    self.labels.push(label);
                }
                Some(Err(error)) => self.failures.push((text.clone(), error)),
                None => {}
            }
        }
        left
    }

    /// Says which of them are not there, though the array goes on without them.
    pub(super) fn warn_of_failures(&self, name: &str) {
        for (text, why) in &self.failures {
            tracing::warn!("array {name}: {text} cannot be opened: {why}; the array begins without it");
        }
    }

    /// Refuses those that cannot be opened for this purpose whatever becomes of them: without one of them the array would begin on a part of
    /// its members.
    ///
    /// # Errors
    /// The first of them, and why.
    pub fn check_guarded(&self, purpose: Purpose) -> Result<(), String> {
        let refused = self.failures.iter().find_map(|(text, _)| Some(format!("{text}: {}", purpose.refusal(text)?)));
        refused.map_or(Ok(()), Err)
    }

    /// Says of each that nothing reserves for this host that somebody else may use it, too.
    pub fn warn_of_unfenced(&self, name: &str) {
        for text in self.texts.iter().filter(|text| is_unfenced(text)) {
            tracing::warn!(
                "array {name}: {text} cannot be reserved for this host: nothing keeps another host from using the array at the same time, \
                 which destroys what it holds; see to it that none does"
            );
        }
    }

    /// What is to be said, too, where they make no array.
    pub(super) fn tell(&mut self, told: &str) {
        self.told = format!("; {told}");
    }

    /// The labels that were on them when they were opened, each with where it was found.
    #[must_use]
    pub fn labels(&self) -> Vec<(String, Label)> {
        let labels = self.candidates.iter().zip(&self.labels);
        labels.filter_map(|(candidate, label)| Some((candidate.place.clone(), label.clone()?))).collect()
    }

    /// What was found of an array.
    ///
    /// # Errors
    /// As for [`sanwire_array::find`].
    pub fn find(&self, name: &str) -> Result<Found, ArrayError> {
        find(name, &self.labels())
    }

    /// How the members of an array are written, those that were found.
    #[must_use]
    pub(super) fn texts(&self, name: &str) -> Vec<(usize, String)> {
        let labels = self.labels();
        let Ok(found) = find(name, &labels) else { return Vec::new() };
        let text = |(number, at): (usize, &Option<usize>)| {
            let (place, _) = &labels[(*at)?];
            let candidate = self.candidates.iter().position(|candidate| candidate.place == *place)?;
            Some((number, again(&self.texts[candidate])))
        };
        found.members.iter().enumerate().filter_map(text).collect()
    }

    /// Looks at an array of them.
    ///
    /// # Errors
    /// As for [`View::new`], with what kept members from being opened.
    pub(super) fn view(&self, name: &str) -> Result<View, AssembleError> {
        View::new(name, &self.candidates, &mut drive).map_err(|source| self.not_assembled(source))
    }

    /// Assembles an array of them.
    ///
    /// # Errors
    /// As for [`sanwire_array::assemble`], with what kept members from being opened.
    pub fn assemble(&self, name: &str, force: bool) -> Result<Array, AssembleError> {
        let run = u128::from_be_bytes(fresh()?) as u64;
        let made = sanwire_array::assemble(name, &self.candidates, force, run, &mut drive);
        made.map_err(|source| self.not_assembled(source))
    }

    fn not_assembled(&self, source: ArrayError) -> AssembleError {
        let failures = self.failures.iter().map(|(text, why)| format!("; {text} cannot be opened: {why}"));
        AssembleError::Array { source, failures: failures.collect::<String>() + &self.told }
    }
}

/// Opens a store that is to become a member.
pub(super) fn open_member(text: &str, opening: Opening) -> Result<Candidate, String> {
    let mut members = Members::open_only(&[text.to_owned()], opening);
    match (members.candidates.pop(), members.failures.pop()) {
        (Some(candidate), _) => Ok(candidate),
        (None, Some((_, why))) => Err(why),
        (None, None) => Err(format!("{text} cannot be opened")),
    }
}

/// What keeps a member from being put back.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// Another host has had the array since: the member never comes back here.
    TakenOver(String),
    /// Something that may pass.
    Other(String),
}

/// Opens members again that were away, or are kept and over, side by side, each as it is written, and puts them back. Gives what keeps
/// which from that.
pub(super) fn put_back(array: &Array, away: &[(usize, String)], opening: Opening) -> Vec<(usize, Obstacle)> {
    let texts: Vec<String> = away.iter().map(|(_, text)| text.clone()).collect();
    let back = |(number, look): (usize, Option<Result<Look, String>>)| match look? {
        Ok(Look { candidate, .. }) => {
            let is_kept = array.members().get(number).is_some_and(|member| member.is_present);
            let put = if is_kept { Array::reopen } else { Array::rejoin };
            let obstacle = put(array, number, &candidate, &mut drive).err().map(|error| match error {
                ArrayError::TakenOver { .. } => Obstacle::TakenOver(error.to_string()),
                error => Obstacle::Other(error.to_string()),
            })?;
            Some((number, obstacle))
        }
        Err(error) => Some((number, Obstacle::Other(error))),
    };
    away.iter().map(|(number, _)| *number).zip(look_at(&texts, opening, None)).filter_map(back).collect()
}

/// Why an array is not assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// Its members do not make one.
    #[error("{source}{failures}")]
    Array {
        /// Why.
        source: ArrayError,
        /// Those that could not be opened.
        failures: String,
    },
    /// This machine lacks something.
    #[error("{0}")]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_a_store_is_opened_with_each_time_are_those_that_a_label_would_have_to_hold() {
        let store = r"iscsi://u@host/t/0,password-file=/a\,b,takeover,reconnect=9s,block=4096";
        assert_eq!(lasting_keys(store), ["password-file", "block"]);
        assert_eq!(lasting_keys(r"file:/a\,direct,size=1G,grow"), Vec::<&str>::new());
    }
}
