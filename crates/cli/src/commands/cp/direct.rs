//! Copies that the source's server makes straight to the destination's. This host makes a derived volume at the destination for it, has it
//! begin, watches, and takes the derived volume back; no data comes by here.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use data_encoding::HEXLOWER;
use indicatif::ProgressBar;
use sanwire_core::Protection;
use sanwire_initiator::{Server, Url};
use sanwire_server::{Answer, CopyOrder, CopyProgress, CopyTerms, DvdEnd, JobState, JobStatus, NewDvd, Request};

use crate::args::{CpArgs, CpEnd, Patience};
use crate::commands::manage;
use crate::connect::Connection;
use crate::copy::{Copied, Journal};
use crate::signals;

/// How often it is asked how far the copy is.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How often the destination's server hears that this host is still there.
const HERE_INTERVAL: Duration = Duration::from_secs(5);

/// How long the derived volume is there if this host cannot take it back, and how often that begins anew.
const UNTIL: &str = "15min";
const RENEWAL_INTERVAL: Duration = Duration::from_secs(300);

/// How long servers that are away may be waited for.
const PATIENCE_MAX_SECONDS: u64 = 3600;

/// One end of a copy, and its server.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) connection: &'a Connection,
    pub(super) url: &'a Url,
}

impl Side<'_> {
    fn ask(&self, request: &Request) -> anyhow::Result<Answer> {
        manage::ask(self.connection, request)
    }

    fn terms(&self) -> Result<CopyTerms, String> {
        let server = &self.url.server;
        match self.ask(&Request::CopyTerms) {
            Ok(Answer::CopyTerms(CopyTerms { refused: Some(reason), .. })) => Err(format!("{server}: {reason}")),
            Ok(Answer::CopyTerms(terms)) => Ok(terms),
            Ok(_) => Err(format!("{server} gives an answer that cannot be read: is it another version?")),
            Err(error) => Err(format!("{server}: {error:#}")),
        }
    }

    fn volume(&self) -> anyhow::Result<String> {
        Ok(self.url.volume()?.to_owned())
    }
}

/// What came of it.
pub(super) enum Attempt {
    /// It was copied, by this way.
    Done(Copied, String),
    /// Nothing was, for this reason.
    NotBegun(String),
}

/// Whether servers may be asked at all: both ends are volumes of two servers that are managed in band.
pub(super) fn check_ends(from: &CpEnd, to: &CpEnd) -> Result<(), &'static str> {
    let (CpEnd::Volume(from), CpEnd::Volume(to)) = (from, to) else {
        return Err("both ends of a direct copy are volumes");
    };
    match (&from.server, &to.server) {
        (Server::HyperScsi(from), Server::HyperScsi(to)) if from == to => {
            Err("both volumes are on one server, which copies by itself anyway")
        }
        (Server::HyperScsi(_), Server::HyperScsi(_)) => Ok(()),
        _ => Err("servers are asked for direct copies by HyperSCSI: name both volumes by hs+ip or hs+eth"),
    }
}

/// What is to be copied.
pub(super) struct Wanted<'a> {
    pub(super) args: &'a CpArgs,
    pub(super) size_bytes: u64,
    /// What an interrupted copy had done.
    pub(super) resumed_bytes: Option<u64>,
    pub(super) journal: &'a Journal,
    pub(super) bar: &'a ProgressBar,
}

/// Has the server of the source copy straight to that of the destination.
///
/// # Errors
/// When it was begun, and failed or was cancelled; the journal then stays.
pub(super) fn attempt(wanted: &Wanted<'_>, from: Side<'_>, to: Side<'_>) -> anyhow::Result<Attempt> {
    let (here, there) = match (from.terms(), to.terms()) {
        (Ok(here), Ok(there)) => (here, there),
        (Err(reason), _) | (_, Err(reason)) => return Ok(Attempt::NotBegun(reason)),
    };
    let Some(client) = &here.client else {
        return Ok(Attempt::NotBegun(format!("{} has no key as a client of other servers", from.url.server)));
    };
    let guest = match Guest::make(wanted, to, client) {
        Ok(guest) => guest,
        Err(error) => return Ok(Attempt::NotBegun(format!("{}: {error:#}", to.url.server))),
    };
    let urls = ways(&here.urls, &there.urls, &guest.name);
    if urls.is_empty() {
        let (from, to) = (&from.url.server, &to.url.server);
        return Ok(Attempt::NotBegun(format!("{from} and {to} have no wire in common on which clients have keys")));
    }
    if wanted.resumed_bytes.is_none() {
        // From here on the destination is no longer what an interrupted copy has left.
        wanted.journal.remove()?;
    }
    let request = Request::Start { request: Box::new(Request::CopyOut(order(wanted, from, to, urls)?)) };
    match from.ask(&request) {
        Ok(Answer::Job(job)) => watch(wanted, from, &guest, job),
        Ok(_) => Ok(Attempt::NotBegun("the server did not begin: is it another version?".to_owned())),
        Err(error) => Ok(Attempt::NotBegun(format!("{}: {error:#}", from.url.server))),
    }
}

fn order(wanted: &Wanted<'_>, from: Side<'_>, to: Side<'_>, urls: Vec<String>) -> anyhow::Result<CopyOrder> {
    let args = wanted.args;
    let patience = match args.client.reach.wait {
        None => None,
        Some(Patience::For(time)) => Some(time.as_secs().clamp(1, PATIENCE_MAX_SECONDS)),
        Some(Patience::Forever) => Some(PATIENCE_MAX_SECONDS),
    };
    Ok(CopyOrder {
        volume: from.volume()?,
        to: urls,
        server_key: to.connection.server_key().map(|key| HEXLOWER.encode(&key)),
        resume_bytes: wanted.resumed_bytes.unwrap_or_default(),
        verify: args.verify,
        cap_bytes_per_second: args.client.cap.map(|cap| cap.0),
        patience_seconds: patience.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
    })
}

/// The URLs of a volume of a server by the wires that both have, the best first.
fn ways(here: &[String], there: &[String], volume: &str) -> Vec<String> {
    let scheme = |url: &str| url.split_once("://").map(|(scheme, _)| scheme.to_owned());
    let common = there.iter().filter(|url| here.iter().any(|own| scheme(own) == scheme(url)));
    common.map(|url| format!("{url}/{volume}")).collect()
}

/// The derived volume at the destination that the source's server may write to. It is taken back when this is dropped.
struct Guest<'a> {
    to: Side<'a>,
    name: String,
    renewed_at: Cell<Instant>,
}

impl<'a> Guest<'a> {
    fn make(wanted: &Wanted<'_>, to: Side<'a>, client: &str) -> anyhow::Result<Guest<'a>> {
        let random: [u8; 4] = sanwire_hyperscsi::random().context("there are no random numbers")?;
        let name = format!("copy-{}", HEXLOWER.encode(&random));
        let reads = wanted.args.verify || wanted.resumed_bytes.is_some();
        let operations = ["write", "discard"].into_iter().chain(reads.then_some("read"));
        let security = wanted.args.client.security.0;
        let request = Request::CreateDvd(NewDvd {
            parent: to.volume()?,
            name: name.clone(),
            regions: vec![format!("0+{}", wanted.size_bytes)],
            operations: operations.map(str::to_owned).collect(),
            principals: vec![format!("key:{client}")],
            until: Some(UNTIL.to_owned()),
            security: (security != Protection::default()).then(|| security.to_string()),
            ..NewDvd::default()
        });
        to.ask(&request)?;
        Ok(Guest { to, name, renewed_at: Cell::new(Instant::now()) })
    }

    /// Lets its server hear that this host is there, and that the volume is still wanted.
    fn be_here(&self) {
        let name = self.name.clone();
        let request = if self.renewed_at.get().elapsed() < RENEWAL_INTERVAL {
            Request::Dvd { name }
        } else {
            self.renewed_at.set(Instant::now());
            Request::SetDvd(DvdEnd { name, until: Some(UNTIL.to_owned()) })
        };
        if let Err(error) = self.to.ask(&request) {
            tracing::debug!("{}: {error:#}", self.to.url.server);
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let (name, server) = (&self.name, &self.to.url.server);
        if let Err(error) = self.to.ask(&Request::RevokeDvd { name: name.clone() }) {
            eprintln!(
                "sanwire: the volume {name} that was made for the copy is still there ({error:#}): `sanwire dvd revoke {name} --at {server}` \
                 ends it, or its time, in {UNTIL} at the most"
            );
        }
    }
}

/// Follows a copy to its end.
fn watch(wanted: &Wanted<'_>, from: Side<'_>, guest: &Guest<'_>, job: JobStatus) -> anyhow::Result<Attempt> {
    let id = job.id;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let (mut job, mut watching) = (
        job,
        Watching { stable_bytes: wanted.resumed_bytes.unwrap_or_default(), is_caught: false, is_cancelled: false },
    );
    let mut here_at = Instant::now();
    loop {
        let progress = *job.copy.clone().unwrap_or_default();
        watching.show(wanted, &progress)?;
        match job.state {
            JobState::Done => {
                wanted.journal.remove()?;
                return Ok(Attempt::Done(copied(&progress), progress.way.unwrap_or_default()));
            }
            JobState::Refused if progress.way.is_none() && !watching.is_cancelled => {
                return Ok(Attempt::NotBegun(job.refused.unwrap_or_default()));
            }
            JobState::Refused => {
                let reason = job.refused.unwrap_or_default();
                anyhow::bail!("{reason}; the same command with --resume goes on with what was copied");
            }
            JobState::Running => {}
        }
        if progress.way.is_some() && !watching.is_caught {
            // Before that there may be another way, with its own.
            let stop = Arc::clone(&is_stopped);
            signals::on_stop(move || stop.store(true, Ordering::Relaxed)).context("cannot catch signals")?;
            watching.is_caught = true;
        }
        if is_stopped.load(Ordering::Relaxed) && !watching.is_cancelled {
            watching.is_cancelled = true;
            from.ask(&Request::CancelJob { id })?;
        }
        if here_at.elapsed() >= HERE_INTERVAL {
            guest.be_here();
            here_at = Instant::now();
        }
        thread::sleep(LOOK_INTERVAL);
        job = match from.ask(&Request::Job { id, wait: false })? {
            // Numbers begin anew when a server does.
            Answer::Job(other) if other.begun != job.begun || other.copy.is_none() => anyhow::bail!(
                "{} was restarted, and the copy has ended; the same command with --resume goes on with what was copied",
                from.url.server
            ),
            Answer::Job(job) => job,
            _ => anyhow::bail!("{} gives an answer that cannot be read: is it another version?", from.url.server),
        };
    }
}

/// What is known of a copy that is watched.
struct Watching {
    stable_bytes: u64,
    is_caught: bool,
    is_cancelled: bool,
}

impl Watching {
    /// Shows how far it is, and remembers what need not be copied again.
    fn show(&mut self, wanted: &Wanted<'_>, progress: &CopyProgress) -> anyhow::Result<()> {
        wanted.bar.set_position(progress.done_bytes);
        if progress.stable_bytes > self.stable_bytes {
            self.stable_bytes = progress.stable_bytes;
            wanted.journal.save(progress.stable_bytes)?;
        }
        Ok(())
    }
}

fn copied(progress: &CopyProgress) -> Copied {
    Copied {
        resumed_bytes: progress.resumed_bytes,
        data_bytes: progress.data_bytes,
        server_bytes: progress.data_bytes,
        zero_bytes: progress.zero_bytes,
        verified_bytes: progress.verified_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> CpEnd {
        text.parse().unwrap()
    }

    #[test]
    fn servers_are_asked_only_where_both_are_managed_in_band() {
        let may = |from: &str, to: &str| check_ends(&end(from), &end(to)).is_ok();
        assert!(may("hs+ip://a/v", "hs+ip://b/v") && may("hs+eth://eth0/a/v", "hs+ip://b/v"));
        for (from, to) in [
            ("hs+ip://a/v", "hs+ip://a/w"),
            ("hs+ip://a/v", "visa://b/v"),
            ("iscsi://a/iqn.2026-11.org.example:v/0", "hs+ip://b/v"),
            ("file.img", "hs+ip://b/v"),
            ("hs+ip://a/v", "-"),
        ] {
            assert!(!may(from, to), "{from} {to}");
        }
    }

    #[test]
    fn ways_are_those_of_the_destination_that_both_have() {
        let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let there = urls(&["hs+eth:///b", "hs+ip://10.0.0.2:5674", "hs+ip://10.1.0.2:5674", "visa://10.0.0.2:5675"]);
        let here = urls(&["hdsp:///a", "hs+ip://10.0.0.1:5674", "visa://10.0.0.1:5675"]);
        assert_eq!(
            ways(&here, &there, "copy-1"),
            ["hs+ip://10.0.0.2:5674/copy-1", "hs+ip://10.1.0.2:5674/copy-1", "visa://10.0.0.2:5675/copy-1"]
        );
        assert!(ways(&urls(&["hdsp:///a"]), &there, "copy-1").is_empty());
    }
}
