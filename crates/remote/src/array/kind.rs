//! How an array is written as a store: `array:NAME,member=STORE`, with a `member` for one of them at least.

use std::any::Any;
use std::sync::Arc;

use sanwire_array::ArrayError;
use sanwire_store::kind::{Backing, Likeness, Place, StoreKind};
use sanwire_store::{Expectation, Known, OpenError, SpecError, Store, Written};

use super::keeper::KeptArray;
use super::members::{AssembleError, Members, member_spec};

/// Arrays of volumes wherever they are.
pub struct ArrayKind;

#[derive(Debug)]
struct ArrayBacking {
    name: String,
    /// The same, as it is told.
    place: String,
    members: Vec<String>,
}

impl StoreKind for ArrayKind {
    fn words(&self) -> &'static [&'static str] {
        &["array"]
    }

    fn form(&self) -> &'static str {
        "array:NAME,member=STORE"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["member"]
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
        if members.is_empty() {
            return Err(SpecError::NotHere {
                key: "array:",
                reason: "it is found by its members: name one of them at least, like member=hs+ip://HOST/VOLUME",
            });
        }
        if written.block_bytes().is_some() {
            return Err(SpecError::NotHere { key: "block", reason: "an array has the blocks that its members have" });
        }
        members.iter().try_for_each(|member| member_spec(member, true).map(drop))?;
        Ok(Arc::new(ArrayBacking { place: format!("array:{name}"), name, members }))
    }
}

impl Backing for ArrayBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        let members = Members::open(&self.name, &self.members);
        let texts = members.texts(&self.name);
        let failed = |source: Box<dyn std::error::Error + Send + Sync>, is_away| OpenError::Elsewhere {
            store: self.place.clone(),
            source,
            is_away,
        };
        let array = members.assemble(&self.name, false).map_err(|error| {
            // Members that are not there may come.
            let is_away = matches!(
                &error,
                AssembleError::Array {
                    source: ArrayError::Unknown { .. } | ArrayError::NoQuorum { .. } | ArrayError::Incomplete { .. },
                    ..
                }
            );
            failed(Box::new(error), is_away && !members.failures.is_empty())
        })?;
        members.warn_of_unguarded(&self.name);
        let kept = KeptArray::new(array, texts).map_err(|error| failed(Box::new(error), false))?;
        Ok((kept.into_store(), None))
    }

    fn place(&self) -> Place<'_> {
        Place::Elsewhere(&self.place)
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        match (other as &dyn Any).downcast_ref::<Self>() {
            Some(other) if (&other.name, &other.members) == (&self.name, &self.members) => Likeness::Same,
            _ => Likeness::Other,
        }
    }
}
