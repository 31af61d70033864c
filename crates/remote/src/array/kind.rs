//! How an array is written as a store: `array:NAME`, with a `member=STORE` for what is not found, `discover=URL` for whom to ask,
//! `unfenced` for who takes members that nothing keeps from other hosts, and `iser-path` for all that iSER leads to.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use sanwire_array::{ArrayError, View};
use sanwire_initiator::Url;
use sanwire_store::kind::{Backing, Likeness, Place, StoreKind};
use sanwire_store::{Expectation, Known, OpenError, SpecError, Store, StoreSpec, Written};

use super::discovery::{Discover, Discovery, Sought};
use super::keeper::KeptArray;
use super::members::{AssembleError, Members, member_spec};
use super::purpose::{Opening, Purpose};
use crate::volume::MakeOptions;

/// Arrays of volumes wherever they are.
pub struct ArrayKind {
    /// Asks servers for volumes.
    pub discover: Discover,
    /// Makes the options of each client.
    pub options: MakeOptions,
}

pub(super) struct ArrayBacking {
    pub(super) name: String,
    /// The same, as it is told.
    place: String,
    members: Vec<String>,
    /// The same, read.
    specs: Vec<StoreSpec>,
    /// Whom to ask for others; `None`: nobody.
    places: Option<Vec<Url>>,
    discovery: Discovery,
    /// Whether members are taken, too, that nothing keeps from other hosts.
    unfenced: bool,
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
        &["member", "discover", "unfenced", "iser-path"]
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
        let iser_path = written.value("iser-path", "tcp or rdma", |text| text.parse().ok())?;
        let opening = Opening { purpose: Purpose::Use, iser_path };
        let specs = members.iter().map(|member| member_spec(member, opening)).collect::<Result<_, _>>()?;
        let places = written.values("discover").iter().map(|text| {
            let expected =
                "the URL of a server or of an Ethernet, like iscsi://HOST, hs+ip://HOST, hdsp://IF or aoe://IF";
            let is_wrong = || SpecError::Value { key: "discover", value: text.clone(), expected };
            text.parse::<Url>().ok().filter(|url| url.volume.is_none()).ok_or_else(is_wrong)
        });
        let places: Vec<Url> = places.collect::<Result<_, _>>()?;
        let places = (members.is_empty() || !places.is_empty()).then_some(places);
        let discovery = Discovery { discover: self.discover, options: self.options, iser_path };
        let (place, unfenced) = (format!("array:{name}"), written.flag("unfenced")?);
        Ok(Arc::new(ArrayBacking { place, name, members, specs, places, discovery, unfenced }))
    }
}

impl ArrayBacking {
    /// Assembles it for this host, which keeps its members the same from now on.
    pub(super) fn assemble(&self) -> Result<KeptArray, OpenError> {
        let purpose = if self.unfenced { Purpose::UseUnfenced } else { Purpose::Use };
        let (members, found) = self.open_members(purpose)?;
        // A member that was there a moment ago and cannot be had now is somebody else's: without it copies of members could be taken for them.
        if let Some((text, why)) = members.failures.iter().find(|(text, _)| found.contains(text)) {
            let why = format!("{text} is a member of it, and cannot be had for this host alone: {why}");
            return Err(self.failed(why.into(), true));
        }
        let texts = members.texts(&self.name);
        let array = members.assemble(&self.name, false).map_err(|error| self.not_assembled(&members, error))?;
        members.warn_of_failures(&self.name);
        members.warn_of_unfenced(&self.name);
        KeptArray::new(array, texts, self.opening(purpose)).map_err(|error| self.failed(Box::new(error), false))
    }

    /// Looks at it, without reserving anything.
    pub(super) fn look(&self, purpose: Purpose) -> Result<View, OpenError> {
        let (members, _) = self.open_members(purpose)?;
        let view = members.view(&self.name).map_err(|error| self.not_assembled(&members, error))?;
        members.warn_of_failures(&self.name);
        if purpose == Purpose::Read {
            members.warn_of_unfenced(&self.name);
        }
        Ok(view)
    }

    /// Opens what is written, and what is found; how the latter is written is given, too.
    fn open_members(&self, purpose: Purpose) -> Result<(Members, Vec<String>), OpenError> {
        let seek = |places: &Vec<Url>| self.discovery.seek(&self.name, &self.members, places);
        let Sought { texts: found, told } = self.places.as_ref().map(seek).unwrap_or_default();
        let texts: Vec<String> = self.members.iter().cloned().chain(found.iter().cloned()).collect();
        let mut members = Members::open(&self.name, &texts, self.opening(purpose));
        members.check_guarded(purpose).map_err(|why| self.failed(why.into(), false))?;
        if !told.is_empty() {
            members.tell(&told);
        }
        Ok((members, found))
    }

    fn opening(&self, purpose: Purpose) -> Opening {
        Opening { purpose, iser_path: self.discovery.iser_path }
    }

    fn not_assembled(&self, members: &Members, error: AssembleError) -> OpenError {
        // Members that are not there may come, and who has offered what is none may go.
        let is_lacking = matches!(
            &error,
            AssembleError::Array {
                source: ArrayError::Unknown { .. } | ArrayError::NoQuorum { .. } | ArrayError::Incomplete { .. },
                ..
            }
        );
        self.failed(Box::new(error), self.places.is_some() || is_lacking && !members.failures.is_empty())
    }

    fn failed(&self, source: Box<dyn Error + Send + Sync>, is_away: bool) -> OpenError {
        OpenError::Elsewhere { store: self.place.clone(), source, is_away }
    }
}

impl Backing for ArrayBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        Ok((self.assemble()?.into_store(), None))
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
                if (&other.name, &other.members, &other.places) == (&self.name, &self.members, &self.places)
                    && (other.unfenced, other.discovery.iser_path) == (self.unfenced, self.discovery.iser_path) =>
            {
                Likeness::Same
            }
            _ => Likeness::Other,
        }
    }
}
