//! The members of an array, opened by how they are written.

use std::io;
use std::sync::Arc;

use sanwire_array::{Array, ArrayError, Begin, Candidate, Found, Label, find};
use sanwire_store::{Completion, SpecError, StoreSpec};
use sanwire_store_file::blocking;

/// How long the requests to a member wait for its server, where nothing else is said: the others have what it has.
const PATIENCE: &str = "5s";

/// Drives what was begun with ordinary blocking calls, and waits for its end.
///
/// # Errors
/// Whatever that comes to.
pub fn drive(begin: Begin) -> Completion {
    sanwire_store::drive(begin, blocking::perform)
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
    /// Those that could not, and why.
    pub failures: Vec<(String, String)>,
}

/// A store as it is to be written for a member: for this host alone to write to, and given up soon where its server is away.
pub(super) fn member_spec(text: &str) -> Result<StoreSpec, SpecError> {
    if !text.contains("://") {
        return text.parse();
    }
    let mut written = text.to_owned();
    let has = |key: &str| text.split(',').skip(1).any(|part| part.split('=').next() == Some(key));
    // Other kinds of stores elsewhere, like nbd, have no such key.
    for (key, addition) in [("exclusive", ",exclusive".to_owned()), ("reconnect", format!(",reconnect={PATIENCE}"))] {
        let longer = format!("{written}{addition}");
        if !has(key) && longer.parse::<StoreSpec>().is_ok() {
            written = longer;
        }
    }
    written.parse()
}

/// How a store is written so that it means the same in every directory.
fn absolute(text: &str, spec: &StoreSpec) -> String {
    let rest = text.split_once(',').map(|(_, keys)| format!(",{keys}")).unwrap_or_default();
    match spec.backing.absolute().and_then(|rewritten| rewritten.store) {
        Some(store) => store.replace(',', r"\,") + &rest,
        None => text.to_owned(),
    }
}

impl Members {
    /// Opens these stores, and all others that the newest label among them names. What cannot be opened is left out.
    #[must_use]
    pub fn open(name: &str, texts: &[String]) -> Members {
        let mut members = Members::default();
        texts.iter().for_each(|text| members.add(text));
        let Ok(found) = members.find(name) else { return members };
        let others: Vec<_> =
            found.missing().filter(|place| !texts.iter().any(|text| text == place)).map(str::to_owned).collect();
        others.iter().for_each(|place| members.add(place));
        members
    }

    /// Opens these stores and no others.
    #[must_use]
    pub fn open_only(texts: &[String]) -> Members {
        let mut members = Members::default();
        texts.iter().for_each(|text| members.add(text));
        members
    }

    fn add(&mut self, text: &str) {
        let open = |spec: StoreSpec| Ok((absolute(text, &spec), spec.open().map_err(|error| error.to_string())?));
        match member_spec(text).map_err(|error| error.to_string()).and_then(open) {
            Ok((place, store)) => self.candidates.push(Candidate { place, store }),
            Err(error) => self.failures.push((text.to_owned(), error)),
        }
    }

    /// The labels on them, each with where it was found.
    #[must_use]
    pub fn labels(&self) -> Vec<(String, Label)> {
        let label = |candidate: &Candidate| Some((candidate.place.clone(), candidate.label(&mut drive).ok()??));
        self.candidates.iter().filter_map(label).collect()
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
        let members = found.members.iter().enumerate();
        members.filter_map(|(number, at)| Some((number, labels[(*at)?].0.clone()))).collect()
    }

    /// Assembles an array of them.
    ///
    /// # Errors
    /// As for [`sanwire_array::assemble`], with what kept members from being opened.
    pub fn assemble(&self, name: &str, force: bool) -> Result<Array, AssembleError> {
        let run = u128::from_be_bytes(fresh()?) as u64;
        sanwire_array::assemble(name, &self.candidates, force, run, &mut drive).map_err(|source| {
            let failures = self.failures.iter().map(|(text, why)| format!("; {text} cannot be opened: {why}"));
            AssembleError::Array { source, failures: failures.collect() }
        })
    }
}

/// Opens a member again that was away, and puts it back.
pub(super) fn put_back(array: &Array, number: usize, text: &str) -> Result<(), String> {
    let store = member_spec(text).map_err(|error| error.to_string())?.open().map_err(|error| error.to_string())?;
    let candidate = Candidate { place: text.to_owned(), store: Arc::clone(&store) };
    array.rejoin(number, &candidate, &mut drive).map_err(|error| error.to_string())
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
