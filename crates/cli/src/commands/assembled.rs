//! Arrays as volumes of a command: assembled at this host, or only looked at, for as long as the command runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::{ArgMatches, Args, Command, CommandFactory};
use sanwire_attach::{Registry, RegistryError};
use sanwire_core::Outages;
use sanwire_initiator::{Claim, Volume};
use sanwire_remote::array::{Assembled, Looked, Purpose, assemble, look};
use sanwire_remote::store_volume::{StoreNames, StoreVolume};
use sanwire_remote::volume::release_all;
use sanwire_server::AttachedArray;
use sanwire_store::{OpenError, Store};

use super::device;
use crate::args::{ArrayPlace, Cli, ClientArgs, ReachArgs};
use crate::connect;
use crate::failure::misuse;
use crate::signals;

/// How long the end waits until the array is closed, and its members are released.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same where somebody ends the command who waits for that.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(3);

/// The options of connections that mean something: what a member needs is said with the member.
const OPTIONS: [&str; 1] = ["wait"];

/// A signal has come, and this process ends when it has given back what it has.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// An array, until this is dropped.
pub(crate) struct ArrayVolume {
    name: String,
    attended: Option<StoreVolume>,
    /// Who is asked for what is to be done with its copies, where it is used.
    desk: Option<AttachedArray>,
    /// It is only read.
    looked: Option<Looked>,
    _claim: Option<Claim>,
}

impl ArrayVolume {
    /// Assembles an array for this host alone; `claim`: what keeps other programs of this host from that.
    pub(crate) fn assemble(place: &ArrayPlace, reach: &ReachArgs, claim: Option<Claim>) -> anyhow::Result<Self> {
        // From here on it is dropped whatever happens, and gives back what it has.
        let name = place.name().to_owned();
        let mut array = ArrayVolume { name: name.clone(), attended: None, desk: None, looked: None, _claim: claim };
        let spec = place.spec()?;
        let Assembled { store, identity } = found(place, assemble(&spec))?;
        array.desk = Some(AttachedArray::new(name, &store, spec.backing.below_layers().is_some()));
        array.attend(store, identity, reach)
    }

    /// The same for a command that ends by itself, or by a signal.
    pub(crate) fn assemble_for_now(place: &ArrayPlace, reach: &ReachArgs) -> anyhow::Result<Self> {
        let claim = claim(place)?;
        signals::on_end(|| {
            IS_ENDING.store(true, Ordering::Relaxed);
            release_all(SIGNAL_TIMEOUT);
        })
        .context("cannot catch signals")?;
        ArrayVolume::assemble(place, reach, claim)
    }

    /// Looks at an array that no other host has, to read it.
    pub(crate) fn look(place: &ArrayPlace, reach: &ReachArgs) -> anyhow::Result<Self> {
        // Whoever has attached it here has more of it than its members.
        drop(claim(place)?);
        let looked = look_at(place, Purpose::Read)?;
        let (store, identity) = (Arc::clone(&looked.store), looked.identity());
        let name = place.name().to_owned();
        let array = ArrayVolume { name, attended: None, desk: None, looked: Some(looked), _claim: None };
        array.attend(store, identity, reach)
    }

    fn attend(mut self, store: Arc<dyn Store>, identity: String, reach: &ReachArgs) -> anyhow::Result<Self> {
        let names = StoreNames { name: self.name.clone(), server: "array".to_owned(), identity };
        let attended = StoreVolume::start(store, names, connect::patience(reach));
        self.attended = Some(attended.context("cannot start threads for the array")?);
        Ok(self)
    }

    /// A handle.
    pub(crate) fn volume(&self) -> anyhow::Result<Volume> {
        Ok(self.attended()?.volume())
    }

    /// Who is asked for what is to be done with its copies; `None`: it is only read.
    pub(crate) fn desk(&self) -> Option<&AttachedArray> {
        self.desk.as_ref()
    }

    /// How often it was gone.
    pub(crate) fn outages(&self) -> anyhow::Result<Arc<Outages>> {
        Ok(self.attended()?.outages())
    }

    fn attended(&self) -> anyhow::Result<&StoreVolume> {
        self.attended.as_ref().context("the array is not attended to")
    }

    /// What was read is what the array holds, unless somebody has used it meanwhile.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.looked.as_ref().map_or(Ok(()), |looked| Ok(looked.check()?))
    }
}

impl Drop for ArrayVolume {
    fn drop(&mut self) {
        if IS_ENDING.load(Ordering::Relaxed) {
            // What fails now fails because of that, and the process ends with the signal.
            loop {
                thread::park();
            }
        }
        // What goes on with its copies has it open.
        self.desk.take().into_iter().for_each(|desk| desk.end(LEAVE_TIMEOUT));
        self.attended.take().into_iter().for_each(|attended| attended.leave(LEAVE_TIMEOUT));
        if self.looked.is_none() {
            release_all(LEAVE_TIMEOUT);
        }
    }
}

/// What the labels of an array say, whoever has it.
pub(crate) fn look_at(place: &ArrayPlace, purpose: Purpose) -> anyhow::Result<Looked> {
    found(place, look(&place.spec()?, purpose))
}

fn found<T>(place: &ArrayPlace, opened: Option<Result<T, OpenError>>) -> anyhow::Result<T> {
    Ok(opened.ok_or_else(|| misuse(format!("{place} is no array")))??)
}

/// Keeps other programs of this host from the array. Who has no place for attachments has none.
fn claim(place: &ArrayPlace) -> anyhow::Result<Option<Claim>> {
    let registry = match Registry::open(device::helper) {
        Err(RegistryError::NoPlace) => return Ok(None),
        registry => registry?,
    };
    let shown = place.to_string();
    match registry.claim(&shown, &shown, false) {
        Err(RegistryError::Attached { place, .. }) => {
            Err(anyhow::anyhow!("{shown} is in use on this host already{place}: use that, or end it first"))
        }
        claim => Ok(Some(claim?)),
    }
}

/// Options of connections mean nothing to arrays alone, and who gives one relies on what it says. `command`: the one that is run.
pub(crate) fn check_options(command: &str) -> anyhow::Result<()> {
    let options = ClientArgs::augment_args(Command::new("client"));
    let matches = Cli::command().get_matches_from(std::env::args_os());
    let matches = matches.subcommand().filter(|(name, _)| *name == command).map(|(_, matches)| matches);
    let is_given = |option: &&clap::Arg| matches.is_some_and(|matches| is_said(matches, option.get_id().as_str()));
    let given = options.get_arguments().filter(is_given).filter_map(clap::Arg::get_long);
    match given.into_iter().find_map(|option| ArrayPlace::refusal(option, &OPTIONS)) {
        Some(message) => Err(misuse(message)),
        None => Ok(()),
    }
}

/// Whether the command line has an option.
pub(super) fn is_said(matches: &ArgMatches, id: &str) -> bool {
    matches!(matches.try_contains_id(id), Ok(true))
        && matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine)
}
