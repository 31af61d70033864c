//! The derived volume at the destination that the source's server may write to.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use data_encoding::HEXLOWER;
use sanwire_core::{ClientId, Protection};
use sanwire_initiator::Server;
use sanwire_server::{Answer, DvdEnd, NewDvd, Request, Response};

use super::trace::{Made, Trace, left};
use super::{Side, Wanted, patience_seconds};
use crate::administration;
use crate::commands::manage;
use crate::config::state_directory;

/// How often the destination's server hears that this host is still there.
pub(super) const HERE_INTERVAL: Duration = Duration::from_secs(5);

/// How long the volume outlives this host, which may be killed, and how much longer where servers that are away are waited for: in that time
/// nobody can say that it is wanted.
const LIFE_SECONDS: u32 = 60;
const USUAL_PATIENCE_SECONDS: u32 = 60;

/// The code of a refusal where there is no such volume any more.
const IS_GONE: &str = "volume-unknown";

/// It is taken back when this is dropped.
pub(super) struct Guest<'a> {
    to: Side<'a>,
    trace: Trace,
    renewed_at: Cell<Instant>,
    is_over: Cell<bool>,
}

/// What the names begin with of all that is made for copies, and of what one client makes.
const PREFIX: &str = "copy-";

fn prefix(own: ClientId) -> String {
    format!("{PREFIX}{}-", own.to_string().chars().take(8).collect::<String>())
}

/// Where traces are left.
fn traces() -> anyhow::Result<PathBuf> {
    Ok(state_directory()?.join("direct-copies"))
}

/// Ends what copies of this host have left of this volume, if they were killed: their servers may still write there, whichever way is gone now.
///
/// # Errors
/// When something is there and does not end: what is copied beside it would be a mixture.
pub(in crate::commands::cp) fn end_left(to: Side<'_>, destination: &str) -> anyhow::Result<()> {
    for trace in left(&traces()?, destination, SystemTime::now()) {
        let Made { name, server, .. } = &trace.made;
        if !matches!(to.url.server, Server::HyperScsi(_) | Server::Visa(_)) {
            eprintln!(
                "sanwire: an earlier copy to {}, whose `cp` was killed, may go on for half a minute: `sanwire dvd revoke {name} --at {server}` \
                 ends it",
                to.url
            );
            continue;
        }
        end_one(to, name)?;
        trace.remove();
    }
    Ok(())
}

fn end_one(to: Side<'_>, name: &str) -> anyhow::Result<()> {
    let was_there = take_back(to, name).with_context(|| {
        format!(
            "an earlier copy to {} may still go on ({name}), and is not ended: it ends by itself half a minute after its `cp` was killed",
            to.url
        )
    })?;
    if was_there {
        eprintln!("sanwire: an earlier copy to {} is ended ({name})", to.url);
    }
    Ok(())
}

/// Ends what earlier copies of this client to the same volume have left there: whoever was killed could take nothing back, and its copy
/// may still go on.
///
/// # Errors
/// When something is there and does not end: what is copied beside it would be a mixture.
pub(super) fn end_earlier(to: Side<'_>, own: ClientId) -> anyhow::Result<()> {
    // Whoever may see none may make none either, and is told so then.
    let Ok(Answer::Dvds(found)) = to.ask(&Request::Dvds { parent: Some(to.volume()?) }) else { return Ok(()) };
    let (own, others): (Vec<_>, Vec<_>) = found
        .iter()
        .map(|volume| &*volume.name)
        .filter(|name| name.starts_with(PREFIX))
        .partition(|name| name.starts_with(&prefix(own)));
    for name in others {
        tracing::warn!(
            "another client may copy to {}, too: `sanwire dvd revoke {name} --at {}` ends that",
            to.url,
            to.url.server
        );
    }
    own.into_iter().try_for_each(|name| end_one(to, name))
}

/// Whether it was there.
///
/// # Errors
/// When it may still be there.
fn take_back(to: Side<'_>, name: &str) -> anyhow::Result<bool> {
    match manage::respond(to.connection, &Request::RevokeDvd { name: name.to_owned() })? {
        Response::Refused(refusal) if refusal.code == IS_GONE => Ok(false),
        Response::Refused(refusal) => anyhow::bail!(refusal.reason),
        Response::Done(Answer::Job(_)) => anyhow::bail!("it is not yet closed"),
        Response::Done(_) => Ok(true),
    }
}

impl<'a> Guest<'a> {
    /// Makes one for this client: the server of the source.
    pub(super) fn make(wanted: &Wanted<'_>, to: Side<'a>, own: ClientId, client: &str) -> anyhow::Result<Guest<'a>> {
        let random: [u8; 4] = sanwire_hyperscsi::random().context("there are no random numbers")?;
        let name = format!("{}{}", prefix(own), HEXLOWER.encode(&random));
        let reads = wanted.args.verify || wanted.resumed_bytes.is_some();
        let operations = ["write", "discard"].into_iter().chain(reads.then_some("read"));
        let security = wanted.security;
        let life_seconds = LIFE_SECONDS + patience_seconds(wanted.args).unwrap_or(USUAL_PATIENCE_SECONDS);
        let request = Request::CreateDvd(NewDvd {
            parent: to.volume()?,
            name: name.clone(),
            regions: vec![format!("0+{}", wanted.size_bytes)],
            operations: operations.map(str::to_owned).collect(),
            principals: vec![format!("key:{client}")],
            until: Some(until(life_seconds)),
            security: (security != Protection::default()).then(|| security.to_string()),
            ..NewDvd::default()
        });
        let (server, destination) = (to.url.server.to_string(), wanted.destination.clone());
        let trace = Trace::leave(&traces()?, Made { name, server, destination, life_seconds })?;
        // Where no answer comes it may be there.
        let response = manage::respond(to.connection, &request)?;
        if matches!(response, Response::Refused(_)) {
            trace.remove();
        }
        administration::answer_of(response)?;
        Ok(Guest { to, trace, renewed_at: Cell::new(Instant::now()), is_over: Cell::new(false) })
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.trace.made.name
    }

    /// Lets its server hear that this host is there, and that the volume is still wanted.
    pub(super) fn be_here(&self) {
        let Made { name, life_seconds, .. } = self.trace.made.clone();
        // Each renewal stands in the audit log there.
        let interval = Duration::from_secs((life_seconds / 4).into());
        let request = if self.renewed_at.get().elapsed() < interval {
            Request::Dvd { name }
        } else {
            Request::SetDvd(DvdEnd { name, until: Some(until(life_seconds)) })
        };
        match self.to.ask_soon(&request) {
            Ok(_) if matches!(request, Request::SetDvd(_)) => {
                self.renewed_at.set(Instant::now());
                self.trace.renew();
            }
            Ok(_) => {}
            Err(error) => tracing::debug!("{}: {error:#}", self.to.url.server),
        }
    }

    /// Ends it, and with it all that is written by it.
    ///
    /// # Errors
    /// When that is not known.
    pub(super) fn take_back(&self) -> anyhow::Result<()> {
        self.is_over.set(true);
        take_back(self.to, self.name()).with_context(|| self.is_left())?;
        self.trace.remove();
        Ok(())
    }

    fn is_left(&self) -> String {
        let Made { name, server, life_seconds, .. } = &self.trace.made;
        format!(
            "the volume {name} that was made for the copy is still there: `sanwire dvd revoke {name} --at {server}` ends it, or its \
             time, in {life_seconds} s at the most"
        )
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if !self.is_over.get()
            && let Err(error) = self.take_back()
        {
            eprintln!("sanwire: {error:#}");
        }
    }
}

fn until(seconds: u32) -> String {
    format!("{seconds}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_makes_is_known_by_its_name() {
        let (one, other) = (prefix(ClientId([0xab; 16])), prefix(ClientId([0xac; 16])));
        assert!(one.starts_with("copy-abab") && !one.starts_with(&other), "{one}");
        assert!(until(120).parse::<humantime::Duration>().is_ok());
    }
}
