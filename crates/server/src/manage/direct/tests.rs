//! Copies from a server to what stands for a volume of another one: memory, by URLs of a made-up kind.

mod ending;
mod frozen;
mod held;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use sanwire_core::ClientId;
use sanwire_store::kind::{self, Backing, Likeness, Place, StoreKind};
use sanwire_store::{Expectation, Known, OpenError, Outcome, RamStore, SpecError, Store, Written};
use sanwire_store_file::blocking;

use super::*;
use crate::direct::{CopyOrderers, CopyPlace, DirectCopies};
use crate::manage::testing::config;
use crate::manage::{JobState, JobStatus, ManagementHandle, Request, Response};
use crate::server::Server;

const MIB: usize = 1 << 20;
const BY: Asker = Asker::Signal { signal: "test" };

/// The end of URLs of servers that do not answer.
const SILENT: &str = "/silent";
/// They answer after all when a test is over for certain, also on a busy machine.
const SILENCE: Duration = Duration::from_secs(60);

/// What there is elsewhere, by the URLs.
static ELSEWHERE: Mutex<BTreeMap<String, Arc<dyn Store>>> = Mutex::new(BTreeMap::new());

struct ElsewhereKind;

#[derive(Debug)]
struct ElsewhereBacking {
    url: String,
    security: Option<String>,
}

/// How packets were to be protected when it was opened last, by the URLs.
static OPENED: Mutex<BTreeMap<String, Option<String>>> = Mutex::new(BTreeMap::new());

impl StoreKind for ElsewhereKind {
    fn words(&self) -> &'static [&'static str] {
        &["hs+ip"]
    }

    fn form(&self) -> &'static str {
        "hs+ip://HOST/VOLUME"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["reconnect", "server-key", "server-security"]
    }

    fn read(&self, written: &Written<'_>) -> Result<Arc<dyn Backing>, SpecError> {
        let security = written.value("server-security", "a level", |text| Some(text.to_owned()))?;
        Ok(Arc::new(ElsewhereBacking { url: written.store().to_owned(), security }))
    }
}

impl Backing for ElsewhereBacking {
    fn open(&self, _: Option<&Expectation<'_>>) -> Result<(Arc<dyn Store>, Option<Known>), OpenError> {
        if self.url.ends_with(SILENT) {
            thread::sleep(SILENCE);
        }
        OPENED.lock().unwrap_or_else(PoisonError::into_inner).insert(self.url.clone(), self.security.clone());
        let there = ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
        match there.get(&self.url) {
            Some(store) => Ok((Arc::clone(store), None)),
            None => Err(OpenError::Elsewhere { store: self.url.clone(), source: "it is away".into(), is_away: true }),
        }
    }

    fn place(&self) -> Place<'_> {
        Place::Elsewhere(&self.url)
    }

    fn compare(&self, other: &dyn Backing) -> Likeness {
        let is_same = (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| other.url == self.url);
        if is_same { Likeness::Same } else { Likeness::Other }
    }
}

/// Puts a store elsewhere; gives its URL.
fn put(name: &str, store: Arc<dyn Store>) -> String {
    kind::register(&ElsewhereKind);
    let url = format!("hs+ip://10.0.0.1/{name}");
    ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner).insert(url.clone(), store);
    url
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 512).wrapping_mul(31).wrapping_add(usize::from(seed)) as u8 | 1).collect()
}

/// A server with one volume of this content; the rest of it has no space.
fn serve(content: &[(usize, &[u8])], length: usize, direct: DirectCopies) -> (ManagementHandle, Arc<LogicalUnit>) {
    let mut config = config(&[&format!("disk=ram:{length}")]);
    config.direct_copies = direct;
    let manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
    let (_, unit) = manager.target().units().find_named("disk").unwrap();
    content.iter().for_each(|(at, bytes)| write(&**unit.store(), *at, bytes));
    (ManagementHandle::new(manager), unit)
}

fn write(store: &dyn Store, at: usize, bytes: &[u8]) {
    let request = sanwire_store::Request::Write { offset_bytes: at as u64, data: bytes.to_vec().into() };
    blocking::run(store, request).unwrap();
}

fn read(store: &dyn Store) -> Vec<u8> {
    let buffer = vec![0; store.geometry().length_bytes as usize].into();
    match blocking::run(store, sanwire_store::Request::Read { offset_bytes: 0, buffer }).unwrap() {
        Outcome::Read(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn end(desk: &ManagementHandle) {
    desk.end().map(Server::stop).unwrap().unwrap();
}

fn order(url: &str) -> CopyOrder {
    CopyOrder { volume: "disk".into(), to: vec![url.into()], ..CopyOrder::default() }
}

fn begin(desk: &ManagementHandle, order: CopyOrder) -> Result<u64, String> {
    match desk.handle(&BY, Request::Start { request: Box::new(Request::CopyOut(order)) }) {
        Response::Done(Answer::Job(job)) => Ok(job.id),
        Response::Refused(refusal) => Err(refusal.code.into()),
        other => panic!("{other:?}"),
    }
}

fn job(desk: &ManagementHandle, id: u64, wait: bool) -> JobStatus {
    match desk.handle(&BY, Request::Job { id, wait }) {
        Response::Done(Answer::Job(job)) => job,
        other => panic!("{other:?}"),
    }
}

/// Copies to the end of it. Who asks for one that has ended before its job is told of hears how it has ended; it is the last in the list.
fn copy(desk: &ManagementHandle, order: CopyOrder) -> JobStatus {
    let last = || match desk.handle(&BY, Request::Jobs) {
        Response::Done(Answer::Jobs(jobs)) => jobs.last().map(|job| job.id),
        other => panic!("{other:?}"),
    };
    let before = last();
    let id = begin(desk, order).or_else(|code| last().filter(|id| Some(*id) > before).ok_or(code)).unwrap();
    let job = job(desk, id, true);
    assert_ne!(job.state, JobState::Running, "{job:?}");
    job
}

#[test]
fn a_volume_is_copied_with_its_holes_and_compared() {
    let (first, second) = (pattern(1, 5 * MIB), pattern(2, MIB));
    let (desk, unit) = serve(&[(0, &first), (40 * MIB, &second)], 64 * MIB, DirectCopies::default());
    let far = Arc::new(RamStore::new(64 << 20, 512));
    let url = put("holes", Arc::clone(&far) as Arc<dyn Store>);
    // What is elsewhere is no hole there.
    write(&*far, 20 * MIB, &pattern(9, MIB));
    let job = copy(&desk, CopyOrder { verify: true, ..order(&url) });
    assert_eq!((job.state, &job.refused), (JobState::Done, &None));
    let told = job.copy.unwrap();
    assert_eq!((told.total_bytes, told.done_bytes, told.stable_bytes), (64 << 20, 64 << 20, 64 << 20));
    assert_eq!((told.verified_bytes, told.way.as_deref()), (64 << 20, Some(&*url)));
    assert!(told.data_bytes >= 6 << 20 && told.data_bytes < 16 << 20, "{told:?}");
    assert!(read(&*far) == read(&**unit.store()));
    end(&desk);
}

#[test]
fn an_interrupted_copy_copies_again_only_what_differs() {
    let content = pattern(3, 8 * MIB);
    let (desk, unit) = serve(&[(0, &content)], 8 * MIB, DirectCopies::default());
    let far = Arc::new(RamStore::new(8 << 20, 512));
    let url = put("resumed", Arc::clone(&far) as Arc<dyn Store>);
    write(&*far, 0, &content[..4 * MIB]);
    write(&*far, MIB, &[0; 512]);
    let job = copy(&desk, CopyOrder { resume_bytes: 4 << 20, ..order(&url) });
    let told = job.copy.unwrap();
    assert_eq!(job.refused, None);
    assert_eq!(told.resumed_bytes, (4 << 20) - (256 << 10), "{told:?}");
    assert_eq!(told.data_bytes, (4 << 20) + (256 << 10));
    assert!(read(&*far) == read(&**unit.store()));
    end(&desk);
}

#[test]
fn a_copy_ends_when_it_is_cancelled() {
    let content = pattern(4, 32 * MIB);
    let (desk, _) = serve(&[(0, &content)], 32 * MIB, DirectCopies::default());
    let url = put("cancelled", Arc::new(RamStore::new(32 << 20, 512)));
    let id = begin(&desk, CopyOrder { cap_bytes_per_second: Some(1 << 20), ..order(&url) }).unwrap();
    while job(&desk, id, false).copy.is_none_or(|copy| copy.done_bytes == 0) {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(job(&desk, id, false).state, JobState::Running);
    assert!(matches!(desk.handle(&BY, Request::CancelJob { id }), Response::Done(Answer::Changed(_))));
    let ended = job(&desk, id, true);
    assert_eq!(ended.code.as_deref(), Some("copy-cancelled"), "{ended:?}");
    assert!(ended.copy.unwrap().done_bytes < 32 << 20);
    let code = |response| match response {
        Response::Refused(refusal) => refusal.code.into_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(code(desk.handle(&BY, Request::CancelJob { id })), "job-not-cancellable", "it is over");
    assert_eq!(code(desk.handle(&BY, Request::CancelJob { id: 99 })), "job-unknown");
    end(&desk);
}

#[test]
fn a_copy_of_a_volume_that_is_removed_ends() {
    let content = pattern(5, 32 * MIB);
    let (desk, _) = serve(&[(0, &content)], 32 * MIB, DirectCopies::default());
    let url = put("removed", Arc::new(RamStore::new(32 << 20, 512)));
    let id = begin(&desk, CopyOrder { cap_bytes_per_second: Some(1 << 20), ..order(&url) }).unwrap();
    while job(&desk, id, false).copy.is_none_or(|copy| copy.done_bytes == 0) {
        thread::sleep(Duration::from_millis(5));
    }
    let remove = |force| Request::RemoveVolume { name: "disk".into(), force };
    match desk.handle(&BY, remove(false)) {
        Response::Refused(refusal) => assert_eq!(refusal.code, "volume-in-use", "the copy uses it"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(desk.handle(&BY, remove(true)), Response::Done(_)));
    let ended = job(&desk, id, true);
    assert_eq!(ended.code.as_deref(), Some("copy-failed"), "{ended:?}");
    end(&desk);
}

#[test]
fn the_server_ends_while_it_copies() {
    let content = pattern(6, 32 * MIB);
    let (desk, _) = serve(&[(0, &content)], 32 * MIB, DirectCopies::default());
    let url = put("ending", Arc::new(RamStore::new(32 << 20, 512)));
    let id = begin(&desk, CopyOrder { cap_bytes_per_second: Some(1 << 20), ..order(&url) }).unwrap();
    while job(&desk, id, false).copy.is_none_or(|copy| copy.done_bytes == 0) {
        thread::sleep(Duration::from_millis(5));
    }
    end(&desk);
}

#[test]
fn copies_go_only_where_and_for_whom_the_configuration_says() {
    let refused = |direct: DirectCopies, by: &Asker, url: &str| {
        let (desk, _) = serve(&[], MIB, direct);
        let response = desk.handle(by, Request::Start { request: Box::new(Request::CopyOut(order(url))) });
        end(&desk);
        match response {
            Response::Refused(refusal) => refusal.code.into_owned(),
            other => panic!("{other:?}"),
        }
    };
    let url = put("refused", Arc::new(RamStore::new(1 << 20, 512)));
    let off = DirectCopies { by: CopyOrderers::Off, ..DirectCopies::default() };
    assert_eq!(refused(off, &BY, &url), "copy-refused");
    let nowhere = DirectCopies { to: Vec::new(), ..DirectCopies::default() };
    assert_eq!(refused(nowhere, &BY, &url), "copy-refused");
    assert_eq!(refused(DirectCopies::default(), &BY, "hs+ip://127.0.0.1/v"), "copy-refused");
    assert_eq!(
        refused(DirectCopies { to: vec![CopyPlace::Any], ..DirectCopies::default() }, &BY, "file:/x"),
        "copy-refused"
    );
    let client = ClientId([7; 16]);
    let owner = Principal { client: Some(client), ..Principal::default() };
    let owner = Asker::Client { client, address: "10.0.0.9:1".into(), as_owner: Some(owner) };
    let owners = DirectCopies { by: CopyOrderers::Owners, ..DirectCopies::default() };
    assert_eq!(refused(owners, &owner, &url), "not-permitted", "the volume is not theirs");
}

#[test]
fn owners_order_no_copies_unless_the_configuration_says_so() {
    assert_eq!(DirectCopies::default().by, CopyOrderers::Managers);
}

#[test]
fn a_copy_that_would_take_for_ever_is_refused() {
    let (desk, _) = serve(&[], MIB, DirectCopies::default());
    let url = put("too-slow", Arc::new(RamStore::new(1 << 20, 512)));
    for cap in [0, 1, (1 << 20) - 1] {
        let refused = begin(&desk, CopyOrder { cap_bytes_per_second: Some(cap), ..order(&url) });
        assert_eq!(refused.unwrap_err(), "copy-refused", "{cap}");
    }
    end(&desk);
}

#[test]
fn packets_of_a_copy_are_protected_as_those_of_the_volume() {
    let url = put("protected", Arc::new(RamStore::new(1 << 20, 512)));
    for (spec, usual, wanted) in [
        ("disk=ram:1M", Protection::Checksum, None),
        ("disk=ram:1M,security=hash", Protection::Checksum, Some("hash")),
        ("disk=ram:1M", Protection::Aes128Gcm, Some("aes-128-gcm")),
        ("disk=ram:1M,security=none", Protection::Aes128Gcm, None),
    ] {
        let mut config = config(&[spec]);
        config.protection = usual;
        // iSCSI protects no packets.
        config.exports.clear();
        let manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
        let desk = ManagementHandle::new(manager);
        assert_eq!(copy(&desk, order(&url)).refused, None, "{spec}");
        let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner).get(&url).cloned();
        assert_eq!(opened, Some(wanted.map(str::to_owned)), "{spec}, and {usual} where nothing is said");
        end(&desk);
    }
}

#[test]
fn a_copy_that_goes_on_within_a_block_copies_that_block() {
    let content = pattern(8, MIB);
    for (number, resume_bytes) in [1, 511, 1000, (1 << 20) - 1, 1 << 20, u64::MAX].into_iter().enumerate() {
        let (desk, unit) = serve(&[(0, &content)], MIB, DirectCopies::default());
        let far = Arc::new(RamStore::new(1 << 20, 512));
        let url = put(&format!("within-{number}"), Arc::clone(&far) as Arc<dyn Store>);
        let job = copy(&desk, CopyOrder { resume_bytes, ..order(&url) });
        assert_eq!(job.refused, None, "{resume_bytes}");
        assert!(read(&*far) == read(&**unit.store()), "{resume_bytes}");
        end(&desk);
    }
}

#[test]
fn a_destination_that_is_away_too_short_or_of_other_blocks_is_refused_with_the_reason() {
    let (desk, _) = serve(&[], 2 * MIB, DirectCopies::default());
    let (short, blocks) =
        (put("short", Arc::new(RamStore::new(1 << 20, 512))), put("blocks", Arc::new(RamStore::new(4 << 20, 4096))));
    for (url, reason) in [
        ("hs+ip://10.0.0.1/away", "cannot be reached"),
        (&short, "the other volume 1048576"),
        (&blocks, "blocks have 512"),
    ] {
        let job = copy(&desk, order(url));
        assert_eq!(job.code.as_deref(), Some("copy-failed"));
        assert!(job.refused.as_ref().is_some_and(|told| told.contains(reason)), "{job:?}");
        assert_eq!(job.copy.unwrap().way, None, "who ordered it may go another way");
    }
    let second = put("second", Arc::new(RamStore::new(2 << 20, 512)));
    let to = vec!["hs+ip://10.0.0.1/away".to_owned(), second.clone()];
    let job = copy(&desk, CopyOrder { to, ..order("") });
    assert_eq!(job.copy.and_then(|told| told.way), Some(second), "the first that can be reached");
    end(&desk);
}

#[test]
fn who_owns_a_volume_copies_it_and_sees_and_ends_only_their_own_jobs() {
    crate::derived::register();
    let mut config = config(&["disk=ram:8M", "other=ram:8M"]);
    let client = ClientId([7; 16]);
    config.volumes[0].spec = format!("disk=ram:8M,owner=key:{client}").parse().unwrap();
    config.direct_copies.by = CopyOrderers::Owners;
    let manager = Manager::start(config.clone(), Box::new(move || Ok(config.clone()))).unwrap();
    let desk = ManagementHandle::new(manager);
    let owner = |client: ClientId| Asker::Client {
        client,
        address: "10.0.0.9:1".into(),
        as_owner: Some(Principal { client: Some(client), ..Principal::default() }),
    };
    let url = put("owned", Arc::new(RamStore::new(8 << 20, 512)));
    let start = |volume: &str| {
        let cap_bytes_per_second = Some(1 << 20);
        let order = CopyOrder { volume: volume.into(), cap_bytes_per_second, ..order(&url) };
        desk.handle(&owner(client), Request::Start { request: Box::new(Request::CopyOut(order)) })
    };
    let Response::Done(Answer::Job(job)) = start("disk") else { panic!("a job") };
    assert!(matches!(start("other"), Response::Refused(refusal) if refusal.code == "not-permitted"));
    let stranger = owner(ClientId([8; 16]));
    for request in [Request::Job { id: job.id, wait: false }, Request::CancelJob { id: job.id }] {
        let refused = desk.handle(&stranger, request.clone());
        assert!(matches!(&refused, Response::Refused(refusal) if refusal.code == "job-unknown"), "{refused:?}");
        assert!(matches!(desk.handle(&owner(client), request), Response::Done(_)));
    }
    let Response::Done(Answer::Job(ended)) = desk.handle(&owner(client), Request::Job { id: job.id, wait: true })
    else {
        panic!("a job")
    };
    assert_eq!(ended.code.as_deref(), Some("copy-cancelled"));
    end(&desk);
}
