//! What is done with the copies of an array while it is in use.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::sync::PoisonError;

use sanwire_array::{ArrayError, Begin, Drive};
use sanwire_store::kind::Place;
use sanwire_store::{Cancellation, Copies, CopiesError, ErrorKind, Store, StoreError};

use super::keeper::{KeptArray, text_of};
use super::members::{again, drive, fresh, lasting_keys, member_spec, open_member, parts, step};

impl Copies for KeptArray {
    fn scrub(&self, cancellation: &Cancellation) -> Result<u64, CopiesError> {
        let different = until_cancelled(cancellation, |drive| self.array.scrub(drive))?;
        // What differs is known to nobody when this process ends, so it is copied before anything is said.
        while different > 0
            && let Some(end) = step(|completions| self.array.resync(completions))
        {
            end.map_err(|error| CopiesError(error.into()))?;
            if cancellation.is_cancelled() {
                return Err(cancelled());
            }
        }
        Ok(different)
    }

    fn replace(&self, member: usize, store: &str) -> Result<(), CopiesError> {
        let count = self.array.members().len();
        let number = member.checked_sub(1).filter(|number| *number < count);
        let number = number.ok_or_else(|| CopiesError(format!("it has members 1 to {count}").into()))?;
        let candidate = open_member(store, self.opening).map_err(|error| CopiesError(error.into()))?;
        let id = fresh().map_err(|error| CopiesError(error.into()))?;
        let replaced = self.array.replace(number, &candidate, id, &mut drive);
        // Also where the labels say so, and it could not be taken yet: it is looked for from now on.
        if self.array.table().members.get(number).is_some_and(|member| member.id == id) {
            self.note_text(number, store);
        }
        replaced.map_err(|error| CopiesError(error.into()))
    }

    fn grow(&self, others: &[String], cancellation: &Cancellation) -> Result<(), CopiesError> {
        if cancellation.is_cancelled() {
            return Err(cancelled());
        }
        let length = || sanwire_core::Size(self.array.geometry().length_bytes);
        let before = length();
        self.look_at_files()?;
        let opened = others.iter().map(|store| {
            let candidate = open_member(store, self.opening);
            candidate.map_err(|error| CopiesError(format!("{store}: {error}").into()))
        });
        let candidates = opened.collect::<Result<Vec<_>, _>>()?;
        let ids = others.iter().map(|_| fresh()).collect::<io::Result<Vec<_>>>();
        let ids = ids.map_err(|error| CopiesError(error.into()))?;
        let mut next = ids.iter().copied();
        let id = || next.next().unwrap_or_default();
        let grown = until_cancelled(cancellation, |drive| self.array.grow(&candidates, id, drive));
        // Also where not all know it yet: they are looked for from now on.
        let table = self.array.table();
        for (number, member) in table.members.iter().enumerate() {
            if let Some((_, store)) = ids.iter().zip(others).find(|(id, _)| **id == member.id) {
                self.note_text(number, store);
            }
        }
        grown?;
        tracing::info!("array {}: it has {} now, {before} before", table.name, length());
        others.iter().for_each(|store| warn_of_keys(&table.name, store));
        Ok(())
    }
}

impl KeptArray {
    /// How a member is written from now on that has come in.
    fn note_text(&self, number: usize, store: &str) {
        let texts = &mut *self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.retain(|(of, _)| *of != number);
        texts.push((number, again(store)));
    }

    /// Files and devices of this host do not tell by themselves that they have become longer.
    fn look_at_files(&self) -> Result<(), CopiesError> {
        for (number, member) in self.array.members().into_iter().enumerate().filter(|(_, member)| member.is_present) {
            let Ok(spec) = member_spec(&text_of(&self.texts, number, &member.place), self.opening) else { continue };
            let Place::File(path) = spec.backing.place() else { continue };
            let Ok(length_bytes) = File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))) else { continue };
            let lengthened = self.array.lengthen(number, length_bytes);
            lengthened.map_err(|error| CopiesError(format!("{}: {error}", member.place).into()))?;
        }
        Ok(())
    }
}

/// Does something step by step, until it is done or cancelled.
fn until_cancelled<T>(
    cancellation: &Cancellation,
    work: impl FnOnce(&mut Drive<'_>) -> Result<T, ArrayError>,
) -> Result<T, CopiesError> {
    let mut was_cancelled = false;
    let done = work(&mut |begin: Begin| {
        if cancellation.is_cancelled() {
            was_cancelled = true;
            return Err(StoreError::new(ErrorKind::Other, 0));
        }
        drive(begin)
    });
    done.map_err(|error| if was_cancelled { cancelled() } else { CopiesError(error.into()) })
}

fn cancelled() -> CopiesError {
    CopiesError("it was ended before it was done, and is begun anew by doing it again".into())
}

/// By its label alone a member is found without its keys, which is another one then, or none: without it, a part of the array is missing.
fn warn_of_keys(array: &str, store: &str) {
    let keys = lasting_keys(store).join(", ");
    if !keys.is_empty() {
        let place = parts(store).next().unwrap_or_default();
        tracing::warn!(
            "array {array}: {place} has keys that no label holds ({keys}): where the array is written, name this store as a member, too, \
             with its keys (member=), or the array may not be assembled when it is begun to be used again"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use sanwire_array::{Arrangement, Candidate, Plan, assemble, create};
    use sanwire_store::{CompletionQueue, Geometry, RamStore, Request, Started};

    use super::*;
    use crate::array::Purpose;

    const MIB: u64 = 1 << 20;

    /// A store that becomes longer, in which somebody cancels what goes on with the array, by a read of this place.
    #[derive(Debug)]
    struct Stopping {
        store: RamStore,
        length_bytes: Mutex<u64>,
        at: Mutex<Option<(u64, Cancellation)>>,
    }

    impl Store for Stopping {
        fn geometry(&self) -> Geometry {
            Geometry { length_bytes: *self.length_bytes.lock().unwrap(), ..self.store.geometry() }
        }

        fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
            if let (Some((at, cancellation)), Request::Read { offset_bytes, .. }) =
                (&*self.at.lock().unwrap(), &request)
                && offset_bytes == at
            {
                cancellation.cancel();
            }
            self.store.start(request, completions)
        }
    }

    /// A mirror of two, of which the first can cancel what goes on.
    fn kept() -> (KeptArray, Vec<Arc<Stopping>>) {
        let store = |_| {
            let (store, length_bytes) = (RamStore::new(32 * MIB, 512), Mutex::new(16 * MIB));
            Arc::new(Stopping { store, length_bytes, at: Mutex::default() })
        };
        let stores: Vec<_> = (0..2).map(store).collect();
        let candidate = |(number, store): (usize, &Arc<Stopping>)| {
            let store = Arc::clone(store) as Arc<dyn Store>;
            Candidate { place: format!("ram:{number}"), store }
        };
        let candidates: Vec<_> = stores.iter().enumerate().map(candidate).collect();
        let plan = Plan { name: "a".to_owned(), arrangement: Arrangement::Concat, copies: 2, force: false };
        create(&plan, &candidates, || fresh().unwrap(), &mut drive).unwrap();
        let array = assemble("a", &candidates, false, 7, &mut drive).unwrap();
        while let Some(end) = step(|completions| array.resync(completions)) {
            end.unwrap();
        }
        (KeptArray::new(array, Vec::new(), Purpose::Use.into()).unwrap(), stores)
    }

    #[test]
    fn a_comparison_ends_when_it_is_cancelled_and_the_next_one_does_not() {
        let (array, stores) = kept();
        let cancellation = Cancellation::default();
        *stores[0].at.lock().unwrap() = Some((4 * MIB, cancellation.clone()));
        let ended = array.scrub(&cancellation).unwrap_err().to_string();
        assert!(ended.contains("ended before it was done"), "{ended}");
        assert_eq!(array.scrub(&Cancellation::default()).unwrap(), 0);
    }

    #[test]
    fn what_was_cancelled_before_it_has_begun_does_not_begin() {
        let (array, stores) = kept();
        let before = array.geometry().length_bytes;
        stores.iter().for_each(|store| *store.length_bytes.lock().unwrap() = 32 * MIB);
        let cancellation = Cancellation::default();
        cancellation.cancel();
        let others = ["ram:nothing".to_owned()];
        for ended in [array.scrub(&cancellation).map(drop), array.grow(&others, &cancellation)] {
            let ended = ended.unwrap_err().to_string();
            assert!(ended.contains("ended before it was done"), "{ended}");
        }
        assert_eq!((array.scrub(&Cancellation::default()).unwrap(), array.geometry().length_bytes), (0, before));
    }

    #[test]
    fn an_array_whose_growth_is_cancelled_is_as_long_as_it_was() {
        let (array, stores) = kept();
        let before = array.geometry().length_bytes;
        stores.iter().for_each(|store| *store.length_bytes.lock().unwrap() = 32 * MIB);
        let cancellation = Cancellation::default();
        *stores[0].at.lock().unwrap() = Some((20 * MIB, cancellation.clone()));
        let ended = array.grow(&[], &cancellation).unwrap_err().to_string();
        assert!(ended.contains("ended before it was done"), "{ended}");
        assert_eq!(array.geometry().length_bytes, before);
        array.grow(&[], &Cancellation::default()).unwrap();
        assert_eq!(array.geometry().length_bytes, before + 16 * MIB);
    }
}
