//! How an array is written as a store: `array:NAME`, with a `member=STORE` for what is not found, and `discover=URL` for whom to ask.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use sanwire_array::ArrayError;
use sanwire_initiator::Url;
use sanwire_store::kind::{Backing, Likeness, Place, StoreKind};
use sanwire_store::{Expectation, Known, OpenError, SpecError, Store, StoreSpec, Written};

use super::discovery::{Discover, Discovery, Sought};
use super::keeper::KeptArray;
use super::members::{AssembleError, Members, member_spec};
use crate::volume::MakeOptions;

/// Arrays of volumes wherever they are.
pub struct ArrayKind {
    /// Asks servers for volumes.
    pub discover: Discover,
    /// Makes the options of each client.
    pub options: MakeOptions,
}

struct ArrayBacking {
    name: String,
    /// The same, as it is told.
    place: String,
    members: Vec<String>,
    /// The same, read.
    specs: Vec<StoreSpec>,
    /// Whom to ask for others; `None`: nobody.
    places: Option<Vec<Url>>,
    discovery: Discovery,
}

impl fmt::Debug for ArrayBacking {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ArrayBacking").field("place", &self.place).finish_non_exhaustive()
    }
}

impl StoreKind for ArrayKind {
    fn words(&self) -> &'static [&'static str] {
        &["array"]
    }

    fn form(&self) -> &'static str {
        "array:NAME"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["member", "discover"]
    }

    fn lacks(&self, key: &str) -> &'static str {
        match key {
            "size" | "grow" => "an array has the size that its members make",
            _ => "arrays have no such key: give it to a member",
        }
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let (name, members) = (written.place().to_owned(), written.values("member").to_vec());
        if name.is_empty() {
            return Err(written.is_no_store());
        }
        if written.block_bytes().is_some() {
            return Err(SpecError::NotHere { key: "block", reason: "an array has the blocks that its members have" });
        }
        let specs = members.iter().map(|member| member_spec(member, true)).collect::<Result<_, _>>()?;
        let places = written.values("discover").iter().map(|text| {
            let expected =
                "the URL of a server or of an Ethernet, like iscsi://HOST, hs+ip://HOST, hdsp://IF or aoe://IF";
            let is_wrong = || SpecError::Value { key: "discover", value: text.clone(), expected };
            text.parse::<Url>().ok().filter(|url| url.volume.is_none()).ok_or_else(is_wrong)
        });
        let places: Vec<Url> = places.collect::<Result<_, _>>()?;
        let places = (members.is_empty() || !places.is_empty()).then_some(places);
        let discovery = Discovery { discover: self.discover, options: self.options };
        Ok(Arc::new(ArrayBacking { place: format!("array:{name}"), name, members, specs, places, discovery }))
    }
}

impl Backing for ArrayBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        let seek = |places: &Vec<Url>| self.discovery.seek(&self.name, &self.members, places);
        let Sought { texts: found, told } = self.places.as_ref().map(seek).unwrap_or_default();
        let texts: Vec<String> = self.members.iter().cloned().chain(found.iter().cloned()).collect();
        let mut members = Members::open(&self.name, &texts);
        if !told.is_empty() {
            members.tell(&told);
        }
        let texts = members.texts(&self.name);
        let failed = |source: Box<dyn std::error::Error + Send + Sync>, is_away| OpenError::Elsewhere {
            store: self.place.clone(),
            source,
            is_away,
        };
        // A member that was there a moment ago and cannot be had now is somebody else's: without it copies of members could be taken for them.
        if let Some((text, why)) = members.failures.iter().find(|(text, _)| found.contains(text)) {
            return Err(failed(
                format!("{text} is a member of it, and cannot be had for this host alone: {why}").into(),
                true,
            ));
        }
        let array = members.assemble(&self.name, false).map_err(|error| {
            // Members that are not there may come, and who has offered what is none may go.
            let is_lacking = matches!(
                &error,
                AssembleError::Array {
                    source: ArrayError::Unknown { .. } | ArrayError::NoQuorum { .. } | ArrayError::Incomplete { .. },
                    ..
                }
            );
            failed(Box::new(error), self.places.is_some() || is_lacking && !members.failures.is_empty())
        })?;
        members.warn_of_failures(&self.name);
        members.warn_of_unguarded(&self.name);
        let kept = KeptArray::new(array, texts).map_err(|error| failed(Box::new(error), false))?;
        Ok((kept.into_store(), None))
    }

    fn place(&self) -> Place<'_> {
        Place::Elsewhere(&self.place)
    }

    fn places(&self) -> Vec<Place<'_>> {
        [self.place()].into_iter().chain(self.specs.iter().flat_map(|spec| spec.backing.places())).collect()
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        match (other as &dyn Any).downcast_ref::<Self>() {
            Some(other)
                if (&other.name, &other.members, &other.places) == (&self.name, &self.members, &self.places) =>
            {
                Likeness::Same
            }
            _ => Likeness::Other,
        }
    }
}
