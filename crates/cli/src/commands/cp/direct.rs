//! Copies that the source's server makes straight to the destination's. This host makes a derived volume at the destination for it, has it
//! begin, watches, and takes the derived volume back; no data comes by here.

mod guest;
mod trace;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use data_encoding::HEXLOWER;
use indicatif::ProgressBar;
use sanwire_core::Protection;
use sanwire_initiator::{Server, Url};
use sanwire_server::{Answer, CopyOrder, CopyProgress, CopyTerms, JobState, JobStatus, Request};

pub(super) use self::guest::end_left;
use self::guest::{Guest, end_earlier};
use crate::args::{CpArgs, CpEnd, Patience};
use crate::commands::manage;
use crate::connect::{self, Connection};
use crate::copy::{Copied, Journal};
use crate::signals::Caught;

/// How often it is asked how far the copy is.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How long the source's server goes on with a copy about which this host asks no more: it may have been killed, and whoever copies to the
/// same volume then must not find that somebody else writes there, too.
const UNASKED_SECONDS: u32 = 30;

/// How long a server is waited for that is away while the other one has to hear from this host.
const SOON: Duration = Duration::from_secs(5);

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

    /// The same of a server that may be away, while something else goes on that needs this host.
    fn ask_soon(&self, request: &Request) -> anyhow::Result<Answer> {
        manage::ask_within(self.connection, SOON, request)
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
    let is_managed = |server: &Server| matches!(server, Server::HyperScsi(_) | Server::Visa(_));
    if !is_managed(&from.server) || !is_managed(&to.server) {
        return Err(
            "servers are asked for direct copies in band: name both volumes by hs+ip, hs+eth, visa or visa+tcp",
        );
    }
    if from.server == to.server {
        return Err("both volumes are on one server, which copies by itself anyway");
    }
    Ok(())
}

/// What is to be copied.
pub(super) struct Wanted<'a> {
    pub(super) args: &'a CpArgs,
    pub(super) size_bytes: u64,
    /// What tells the destination from any other one.
    pub(super) destination: String,
    /// How what the source's server writes to is protected: as both volumes are, and this host demands.
    pub(super) security: Protection,
    /// What an interrupted copy had done.
    pub(super) resumed_bytes: Option<u64>,
    pub(super) journal: &'a Journal,
    pub(super) bar: &'a ProgressBar,
}

/// Has the server of the source copy straight to that of the destination.
///
/// # Errors
/// When it was begun, and failed or was cancelled; the journal then stays. Also when somebody has ended this process in order before, or it
/// cannot be known that nothing of it goes on.
pub(super) fn attempt(wanted: &Wanted<'_>, from: Side<'_>, to: Side<'_>) -> anyhow::Result<Attempt> {
    // Before anything is made or begun at a server that would have to be ended.
    let caught = Caught::new().context("cannot catch signals")?;
    let attempt = begin(wanted, from, to, &caught);
    match (attempt, caught.end()) {
        (Ok(Attempt::NotBegun(_)), true) => anyhow::bail!("it was ended before anything was copied"),
        (attempt, _) => attempt,
    }
}

fn begin(wanted: &Wanted<'_>, from: Side<'_>, to: Side<'_>, caught: &Caught) -> anyhow::Result<Attempt> {
    let there = match to.terms() {
        Ok(there) => there,
        Err(reason) => return Ok(Attempt::NotBegun(reason)),
    };
    let own = connect::identity(wanted.args.client.reach.key_file.as_deref())?.client_id();
    end_earlier(to, own)?;
    let here = match from.terms() {
        Ok(here) => here,
        Err(reason) => return Ok(Attempt::NotBegun(reason)),
    };
    let Some(client) = &here.client else {
        return Ok(Attempt::NotBegun(format!("{} has no key as a client of other servers", from.url.server)));
    };
    let guest = match Guest::make(wanted, to, own, client) {
        Ok(guest) => guest,
        Err(error) => return Ok(Attempt::NotBegun(format!("{}: {error:#}", to.url.server))),
    };
    let urls = ways(&here.urls, &there.urls, guest.name());
    match start(wanted, (from, to), &guest, urls, caught)? {
        Attempt::NotBegun(reason) => {
            // An answer may have been lost, and the copy may have begun after all: it must not write beside this host.
            guest
                .take_back()
                .with_context(|| format!("the copy may have begun, and nothing else is done: {reason}"))?;
            Ok(Attempt::NotBegun(reason))
        }
        done => Ok(done),
    }
}

/// Has the copy begin, and follows it.
fn start(
    wanted: &Wanted<'_>,
    (from, to): (Side<'_>, Side<'_>),
    guest: &Guest<'_>,
    urls: Vec<String>,
    caught: &Caught,
) -> anyhow::Result<Attempt> {
    if urls.is_empty() {
        let (from, to) = (&from.url.server, &to.url.server);
        return Ok(Attempt::NotBegun(format!("{from} and {to} have no wire in common on which clients have keys")));
    }
    if caught.is_stopped() {
        return Ok(Attempt::NotBegun("somebody has ended it".to_owned()));
    }
    if wanted.resumed_bytes.is_none() {
        // From here on the destination is no longer what an interrupted copy has left.
        wanted.journal.remove()?;
    }
    let request = Request::Start { request: Box::new(Request::CopyOut(order(wanted, from, to, urls)?)) };
    match from.ask(&request) {
        Ok(Answer::Job(job)) => watch(wanted, from, guest, caught, job),
        Ok(_) => Ok(Attempt::NotBegun("the server did not begin: is it another version?".to_owned())),
        Err(error) => Ok(Attempt::NotBegun(format!("{}: {error:#}", from.url.server))),
    }
}

fn order(wanted: &Wanted<'_>, from: Side<'_>, to: Side<'_>, urls: Vec<String>) -> anyhow::Result<CopyOrder> {
    let args = wanted.args;
    Ok(CopyOrder {
        volume: from.volume()?,
        to: urls,
        server_key: to.connection.server_key().map(|key| HEXLOWER.encode(&key)),
        resume_bytes: wanted.resumed_bytes.unwrap_or_default(),
        verify: args.verify,
        cap_bytes_per_second: args.client.cap.map(|cap| cap.0),
        patience_seconds: patience_seconds(args),
        unasked_seconds: Some(UNASKED_SECONDS),
    })
}

/// How long servers that are away are waited for, where that is said.
fn patience_seconds(args: &CpArgs) -> Option<u32> {
    let seconds = match args.client.reach.wait? {
        Patience::For(time) => time.as_secs().clamp(1, PATIENCE_MAX_SECONDS),
        Patience::Forever => PATIENCE_MAX_SECONDS,
    };
    u32::try_from(seconds).ok()
}

/// The URLs of a volume of a server by the wires that both have, the best first.
fn ways(here: &[String], there: &[String], volume: &str) -> Vec<String> {
    let scheme = |url: &str| url.split_once("://").map(|(scheme, _)| scheme.to_owned());
    let common = there.iter().filter(|url| here.iter().any(|own| scheme(own) == scheme(url)));
    common.map(|url| format!("{url}/{volume}")).collect()
}

/// Follows a copy to its end.
fn watch(
    wanted: &Wanted<'_>,
    from: Side<'_>,
    guest: &Guest<'_>,
    caught: &Caught,
    job: JobStatus,
) -> anyhow::Result<Attempt> {
    let id = job.id;
    let mut job = job;
    let mut watching = Watching {
        stable_bytes: wanted.resumed_bytes.unwrap_or_default(),
        is_cancelled: false,
        here_at: Instant::now(),
    };
    loop {
        let progress = *job.copy.clone().unwrap_or_default();
        watching.show(wanted, &progress)?;
        match job.state {
            JobState::Done => {
                wanted.journal.remove()?;
                // The first line says what this program says itself.
                let notes = job.changed.iter().skip(1);
                notes.for_each(|note| wanted.bar.suspend(|| eprintln!("sanwire: {note}")));
                return Ok(Attempt::Done(copied(&progress), progress.way.unwrap_or_default()));
            }
            JobState::Refused if progress.way.is_none() && !watching.is_cancelled => {
                return Ok(Attempt::NotBegun(job.refused.unwrap_or_default()));
            }
            JobState::Refused => anyhow::bail!("{}{}", job.refused.unwrap_or_default(), watching.hint()),
            JobState::Running => {}
        }
        if caught.is_stopped() && !watching.is_cancelled {
            watching.is_cancelled = true;
            if let Err(error) = from.ask(&Request::CancelJob { id }) {
                // It may just be over, which is seen next.
                tracing::debug!("{}: {error:#}", from.url.server);
            }
        }
        if watching.here_at.elapsed() >= guest::HERE_INTERVAL {
            guest.be_here();
            watching.here_at = Instant::now();
        }
        thread::sleep(LOOK_INTERVAL);
        job = watching.next(from, &job)?;
    }
}

/// What is known of a copy that is watched.
struct Watching {
    stable_bytes: u64,
    is_cancelled: bool,
    /// When the destination's server has heard from this host.
    here_at: Instant,
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

    /// How it is now.
    fn next(&self, from: Side<'_>, job: &JobStatus) -> anyhow::Result<JobStatus> {
        let server = &from.url.server;
        match from.ask(&Request::Job { id: job.id, wait: false }) {
            // Numbers begin anew when a server does.
            Ok(Answer::Job(other)) if other.begun != job.begun || other.copy.is_none() => {
                anyhow::bail!("{server} was restarted, and the copy has ended{}", self.hint())
            }
            Ok(Answer::Job(job)) => Ok(job),
            Ok(_) => anyhow::bail!("{server} gives an answer that cannot be read: is it another version?"),
            Err(error) => Err(error.context(format!("{server} does not tell how far the copy is{}", self.hint()))),
        }
    }

    /// What is to be done to go on later.
    fn hint(&self) -> &'static str {
        if self.stable_bytes > 0 { "; the same command with --resume goes on with what was copied" } else { "" }
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
        for (from, to) in [
            ("hs+ip://a/v", "hs+ip://b/v"),
            ("hs+eth://eth0/a/v", "hs+ip://b/v"),
            ("hs+ip://a/v", "visa://b/v"),
            ("visa+tcp://a/v", "visa://b/v"),
        ] {
            assert!(may(from, to), "{from} {to}");
        }
        for (from, to) in [
            ("hs+ip://a/v", "hs+ip://a/w"),
            ("visa://a/v", "visa://a/w"),
            ("hdsp://eth0/a/v", "visa://b/v"),
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
