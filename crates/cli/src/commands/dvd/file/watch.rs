//! Looking after a file that is a device: the volume ends when the file is not where it was any more, and by itself when nobody looks.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use sanwire_server::{Answer, DvdEnd, RegionStatus, Request};

use super::Ask;
use super::layout::Layout;
use super::opened::Opened;
use crate::{service, signals};

/// How long the volume lasts from each renewal on, as the server is told, and for us.
pub(super) const LEASE: &str = "30s";
const LEASE_LENGTH: Duration = Duration::from_secs(30);

/// How often that is renewed, and how soon it is tried again.
const RENEWED_EVERY: Duration = Duration::from_secs(10);
const RENEWED_AGAIN: Duration = Duration::from_secs(2);

/// How often the file is looked at, at least and at most: a look has the kernel write back what others write to it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Why the watch looks up.
enum Event {
    /// Somebody has done something to the file.
    Touched,
    /// It is to end.
    Stop,
}

/// What may wake the watch. The process is not ended by signals any more: it ends in order.
pub(super) struct Alarm {
    sender: SyncSender<Event>,
    events: Receiver<Event>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        // It holds one: who looks up for that looks at everything.
        let (sender, events) = mpsc::sync_channel(1);
        let (stopper, toucher) = (sender.clone(), sender.clone());
        signals::on_stop(move || drop(stopper.send(Event::Stop)))?;
        signals::on_lease_break(move || drop(toucher.try_send(Event::Touched)))?;
        Ok(Alarm { sender, events })
    }
}

/// A file that is looked after, with how it is to stay.
pub(super) struct Watch<'a> {
    layout: &'a Layout,
    block_bytes: u32,
    events: Receiver<Event>,
}

/// The volume that it is, and who serves that.
struct Served<'a> {
    parent: &'a str,
    name: &'a str,
    /// Another one may get its name.
    id: String,
    ask: &'a Ask<'a>,
    /// When it is over at the latest, if it is not renewed any more.
    until: Instant,
    next: Instant,
}

impl<'a> Watch<'a> {
    /// Looks from now on.
    pub(super) fn begin(
        alarm: Alarm,
        opened: &Opened,
        layout: &'a Layout,
        block_bytes: u32,
    ) -> anyhow::Result<Watch<'a>> {
        watch_inode(opened, alarm.sender).context("cannot watch the file")?;
        Ok(Watch { layout, block_bytes, events: alarm.events })
    }

    /// Serves the file, until it changes or a signal comes. `ready` is told once, when it is known to have stayed as it was until the volume was
    /// there.
    pub(super) fn stay(
        self,
        opened: &Opened,
        (parent, name): (&str, &str),
        ask: &Ask<'_>,
        ready: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut served = Served::new((parent, name), ask);
        let ended = self.serve(opened, &mut served, ready);
        service::stopping();
        // First nobody uses it any more, then others of this host may do what they like.
        let is_over = matches!(ended, Ok(End::Gone)) || served.revoke();
        if !is_over {
            served.outlast(opened);
        }
        let shown = opened.path().display();
        match ended? {
            End::Stopped => Ok(()),
            End::Changed(why) if is_over => anyhow::bail!("{shown} has changed, and volume {name} is revoked: {why}"),
            End::Changed(why) => anyhow::bail!("{shown} has changed, and volume {name} ends by itself: {why}"),
            End::Gone => anyhow::bail!("volume {name}, which was the file {shown}, is not served any more: somebody has revoked it, or its parent \
                 is gone"),
            End::Unrenewed(error) => Err(error.context(format!(
                "volume {name}, which was the file {shown}, has ended by itself: its server could not be told that the file is still there"
            ))),
        }
    }

    fn serve(
        &self,
        opened: &Opened,
        served: &mut Served<'_>,
        ready: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<End> {
        let mut ready = Some(ready);
        served.id = served.find_id()?;
        loop {
            let looked = Instant::now();
            if let Some(why) = opened.difference(self.layout, self.block_bytes) {
                return Ok(End::Changed(why));
            }
            if let Some(ready) = ready.take() {
                ready()?;
            }
            if let Some(end) = served.renew() {
                return Ok(end);
            }
            match self.events.recv_timeout(LOOK_EVERY.min(served.next.saturating_duration_since(Instant::now()))) {
                Ok(Event::Stop) => return Ok(End::Stopped),
                Ok(Event::Touched) => thread::sleep(LOOK_PAUSE.saturating_sub(looked.elapsed())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("nobody watches the file any more"),
            }
        }
    }
}

/// How it has ended.
enum End {
    Stopped,
    /// The file is not where it was.
    Changed(String),
    /// Somebody else has ended it.
    Gone,
    /// The server could not be told in time.
    Unrenewed(anyhow::Error),
}

impl<'a> Served<'a> {
    /// One that is made now.
    fn new((parent, name): (&'a str, &'a str), ask: &'a Ask<'a>) -> Served<'a> {
        let now = Instant::now();
        Served { parent, name, id: String::new(), ask, until: now + LEASE_LENGTH, next: now + RENEWED_EVERY }
    }

    /// Looks for the volume that was asked for: no other one is these regions of that parent.
    fn find_made(&mut self, regions: &[RegionStatus]) -> bool {
        let Ok(Answer::Dvd(dvd)) = (self.ask)(&Request::Dvd { name: self.name.to_owned() }) else { return false };
        let volume = dvd.volume;
        let is_it = volume.derived.is_some_and(|it| it.parent == self.parent && it.regions == regions);
        self.id = if is_it { volume.id } else { String::new() };
        is_it
    }

    /// Keeps others of this host from the file until it is over by itself.
    fn outlast(&self, opened: &Opened) {
        if opened.is_guarded() {
            thread::sleep(self.until.saturating_duration_since(Instant::now()));
        }
    }

    fn find_id(&self) -> anyhow::Result<String> {
        match (self.ask)(&Request::Dvd { name: self.name.to_owned() })? {
            Answer::Dvd(dvd) => Ok(dvd.volume.id),
            _ => anyhow::bail!("the server's answer cannot be read: is it another version?"),
        }
    }

    /// Has it last longer, when it is time for that.
    fn renew(&mut self) -> Option<End> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        let renewed = self.find_id().and_then(|id| {
            if id != self.id {
                return Ok(false);
            }
            let end = DvdEnd { name: self.name.to_owned(), until: Some(LEASE.to_owned()) };
            // Also where the answer is lost it may have been done.
            let renewed = (self.ask)(&Request::SetDvd(end));
            let until = Instant::now() + LEASE_LENGTH;
            self.until = if renewed.is_ok() { until } else { self.until.max(until) };
            renewed.map(|_| true)
        });
        match renewed {
            Ok(true) => self.next = now + RENEWED_EVERY,
            Ok(false) => return Some(End::Gone),
            Err(_) if self.is_gone() => return Some(End::Gone),
            Err(error) if now >= self.until => return Some(End::Unrenewed(error)),
            Err(error) => {
                tracing::warn!(
                    "volume {} ends soon unless its server can be told that the file is still there: {error:#}",
                    self.name
                );
                self.next = Instant::now() + RENEWED_AGAIN;
            }
        }
        None
    }

    /// Ends it. Whether it is known to be over.
    fn revoke(&self) -> bool {
        // One that was never found is the one that was made a moment ago.
        if !self.id.is_empty() && self.find_id().is_ok_and(|id| id != self.id) {
            return true;
        }
        match (self.ask)(&Request::RevokeDvd { name: self.name.to_owned() }) {
            Ok(_) => true,
            Err(_) if self.is_gone() => true,
            Err(error) => {
                tracing::error!("volume {} cannot be revoked, and ends by itself within {LEASE}: {error:#}", self.name);
                false
            }
        }
    }

    /// Whether the server says that there is no such volume any more.
    fn is_gone(&self) -> bool {
        match (self.ask)(&Request::Dvds { parent: Some(self.parent.to_owned()) }) {
            Ok(Answer::Dvds(volumes)) => !self.id.is_empty() && !volumes.iter().any(|volume| volume.id == self.id),
            _ => false,
        }
    }
}

/// Nobody can tell whether the volume of these regions was made: it is revoked if it is there, and the file stays as it is for as long as one may
/// last that comes now.
pub(super) fn give_up(opened: &Opened, (parent, name): (&str, &str), regions: &[RegionStatus], ask: &Ask<'_>) {
    service::stopping();
    let mut served = Served::new((parent, name), ask);
    if served.find_made(regions) && served.revoke() {
        return;
    }
    tracing::warn!("whether volume {name} was made is not known: if it was, it ends by itself within {LEASE}");
    served.outlast(opened);
}

/// Tells when somebody does something to the file, whatever it is called by then.
fn watch_inode(opened: &Opened, sender: SyncSender<Event>) -> io::Result<()> {
    let watched = init(CreateFlags::CLOEXEC)?;
    let path = format!("/proc/self/fd/{}", opened.file().as_raw_fd());
    let what = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
    add_watch(&watched, Path::new(&path), what)?;
    thread::Builder::new().name("file".into()).spawn(move || {
        let mut events = [0; 4096];
        loop {
            match rustix::io::read(&watched, &mut events) {
                Ok(1..) => drop(sender.try_send(Event::Touched)),
                Err(rustix::io::Errno::INTR) => {}
                // It is still looked at every now and then.
                Ok(0) | Err(_) => return,
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use sanwire_server::DvdStatus;

    use super::*;

    /// What a server tells of the volume `cam`.
    fn told(id: &str) -> Answer {
        let told = serde_json::json!({
            "id": id, "name": "cam", "origin": "management", "lun": 1, "size_bytes": 512, "block_bytes": 512, "read_only": false,
            "security": "checksum", "used_by": [], "not_admitted": 0,
            "derived": {
                "parent": "disk", "operations": [], "principals": [], "regions": [{ "offset_bytes": 1024, "length_bytes": 512 }],
            },
        });
        let told: DvdStatus = serde_json::from_value(told).unwrap();
        Answer::Dvd(Box::new(told))
    }

    /// A server that has this volume, and notes whether it was asked to revoke it.
    fn server<'a>(id: &'a str, is_revoked: &'a RefCell<bool>) -> impl Fn(&Request) -> anyhow::Result<Answer> + 'a {
        move |request| match request {
            Request::Dvd { .. } => Ok(told(id)),
            Request::RevokeDvd { name } => {
                assert!(name == "cam" && !is_revoked.replace(true));
                Ok(Answer::Changed(Vec::new()))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_volume_that_could_not_be_looked_at_is_revoked_and_another_one_of_its_name_is_not() {
        for (known, expected) in [("", true), ("7", true), ("6", false)] {
            let is_revoked = RefCell::new(false);
            let ask = server("7", &is_revoked);
            let served = Served { id: known.to_owned(), ..Served::new(("disk", "cam"), &ask) };
            assert!(served.revoke());
            assert_eq!(is_revoked.take(), expected, "{known:?}");
        }
    }

    #[test]
    fn who_was_not_answered_finds_what_was_made_by_where_it_lies() {
        let is_revoked = RefCell::new(false);
        let ask = server("7", &is_revoked);
        let region = |offset_bytes| [RegionStatus { offset_bytes, length_bytes: 512 }];
        for (parent, offset_bytes, expected) in [("disk", 1024, true), ("disk", 0, false), ("other", 1024, false)] {
            let mut served = Served::new((parent, "cam"), &ask);
            assert_eq!(served.find_made(&region(offset_bytes)), expected, "{parent} {offset_bytes}");
            assert_eq!(served.id, if expected { "7" } else { "" });
        }
        let silent = |_: &Request| -> anyhow::Result<Answer> { anyhow::bail!("no answer") };
        let mut served = Served::new(("disk", "cam"), &silent);
        assert!(!served.find_made(&region(1024)) && !served.revoke(), "then only its time ends it");
    }
}
