//! How copies end, or do not begin.

use std::time::Instant;

use sanwire_store::{CompletionQueue, Geometry, Request as StoreRequest, Started};

use super::held::{Held, begin_held};
use super::*;
use crate::config::ServerConfig;
use crate::direct::ReadClientId;

const SLOWLY: Option<u64> = Some(1 << 20);

/// Begins with a slow copy, and waits until it has got somewhere.
fn begin_slowly(desk: &ManagementHandle, url: &str) -> u64 {
    let id = begin(desk, CopyOrder { cap_bytes_per_second: SLOWLY, ..order(url) }).unwrap();
    while job(desk, id, false).copy.is_none_or(|copy| copy.done_bytes == 0) {
        assert_eq!(job(desk, id, false).state, JobState::Running, "{:?}", job(desk, id, false));
        thread::sleep(Duration::from_millis(5));
    }
    id
}

fn cancel(desk: &ManagementHandle, id: u64) {
    assert!(matches!(desk.handle(&BY, Request::CancelJob { id }), Response::Done(_)));
}

/// A server of these volumes, and the same that reads `later` when it reads its configuration again.
fn serve_then(config: ServerConfig, later: DirectCopies) -> (ManagementHandle, Arc<LogicalUnit>) {
    let again = ServerConfig { direct_copies: later, ..config.clone() };
    let manager = Manager::start(config, Box::new(move || Ok(again.clone()))).unwrap();
    let (_, unit) = manager.target().units().find_named("disk").unwrap();
    (ManagementHandle::new(manager), unit)
}

#[test]
fn a_copy_is_over_only_when_its_writes_are() {
    let (desk, _) = serve(&[(0, &pattern(1, 8 * MIB))], 8 * MIB, DirectCopies::default());
    let far = Held::new(8 << 20);
    let url = put("held", Arc::clone(&far) as Arc<dyn Store>);
    let id = begin_held(&desk, &far, order(&url));
    cancel(&desk, id);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(job(&desk, id, false).state, JobState::Running, "who hears of its end may use the other volume");
    far.release();
    let ended = job(&desk, id, true);
    assert_eq!(ended.code.as_deref(), Some("copy-cancelled"), "{ended:?}");
    let refused = ended.refused.unwrap();
    assert!(!refused.contains("may still be done"), "{refused}");
    end(&desk);
}

#[test]
fn the_end_of_a_copy_tells_where_its_data_went() {
    let (desk, _) = serve(&[(0, &pattern(2, 32 * MIB))], 32 * MIB, DirectCopies::default());
    let url = put("told", Arc::new(RamStore::new(32 << 20, 512)));
    let key = "ab".repeat(32);
    let to = vec!["hs+ip://10.0.0.1/away".to_owned(), url.clone()];
    let ordered = CopyOrder { to, server_key: Some(key.clone()), ..order("") };
    let done = copy(&desk, ordered.clone());
    let line = done.changed.concat();
    assert!(line.contains(&url) && line.contains("33554432 bytes") && line.contains(&key), "{line}");
    let id = begin(&desk, CopyOrder { cap_bytes_per_second: SLOWLY, ..ordered }).unwrap();
    while job(&desk, id, false).copy.is_none_or(|copy| copy.done_bytes == 0) {
        thread::sleep(Duration::from_millis(5));
    }
    cancel(&desk, id);
    let line = job(&desk, id, true).refused.unwrap();
    assert!(line.contains(&url) && line.contains(" bytes of data") && line.contains(&key), "{line}");
    end(&desk);
}

#[test]
fn one_copy_too_many_is_refused_and_keeps_nobody_waiting() {
    let (desk, _) = serve(&[(0, &pattern(3, 32 * MIB))], 32 * MIB, DirectCopies::default());
    let url = put("many", Arc::new(RamStore::new(32 << 20, 512)));
    let slow = || begin(&desk, CopyOrder { cap_bytes_per_second: SLOWLY, ..order(&url) });
    let begun: Vec<u64> = (0..8).map(|_| slow().unwrap()).collect();
    let begun_at = Instant::now();
    assert_eq!(slow().unwrap_err(), "jobs-too-many");
    assert!(begun_at.elapsed() < Duration::from_secs(32));
    cancel(&desk, begun[0]);
    assert_eq!(job(&desk, begun[0], true).state, JobState::Refused);
    begun[1..].iter().copied().chain([slow().unwrap()]).for_each(|id| cancel(&desk, id));
    end(&desk);
}

#[test]
fn a_server_that_does_not_answer_keeps_a_copy_neither_from_the_next_way_nor_from_its_end() {
    let (desk, _) = serve(&[(0, &pattern(4, MIB))], MIB, DirectCopies::default());
    let second = put("answers", Arc::new(RamStore::new(1 << 20, 512)));
    let silent = format!("hs+ip://10.0.0.1{SILENT}");
    let begun_at = Instant::now();
    let id = begin(&desk, order(&silent)).unwrap();
    cancel(&desk, id);
    assert_eq!(job(&desk, id, true).code.as_deref(), Some("copy-cancelled"));
    assert!(begun_at.elapsed() < SILENCE, "{:?}", begun_at.elapsed());
    let begun_at = Instant::now();
    let done = copy(&desk, CopyOrder { to: vec![silent, second.clone()], ..order("") });
    assert_eq!(done.copy.and_then(|copy| copy.way), Some(second), "{:?}", done.refused);
    assert!(begun_at.elapsed() < SILENCE, "{:?}", begun_at.elapsed());
    end(&desk);
}

#[test]
fn a_copy_goes_on_only_as_long_as_it_could_be_ordered() {
    crate::derived::register();
    let client = ClientId([7; 16]);
    let owner = Principal { client: Some(client), ..Principal::default() };
    let by = Asker::Client { client, address: "10.0.0.9:1".into(), as_owner: Some(owner) };
    let owners = DirectCopies { by: CopyOrderers::Owners, ..DirectCopies::default() };
    let off = DirectCopies { by: CopyOrderers::Off, ..DirectCopies::default() };
    let elsewhere = DirectCopies { to: vec!["192.168.0.0/16".parse().unwrap()], ..DirectCopies::default() };
    let take_away =
        || Request::SetVolume { name: "disk".into(), security: None, protected: None, owners: Some(Vec::new()) };
    let reload = || Request::Reload { force: false, dry_run: false, reset: false };
    let url = put("no-longer", Arc::new(RamStore::new(32 << 20, 512)));
    for (later, change) in [(owners.clone(), take_away()), (off, reload()), (elsewhere, reload())] {
        let mut config = config(&["disk=ram:32M"]);
        config.volumes[0].spec = format!("disk=ram:32M,owner=key:{client}").parse().unwrap();
        config.direct_copies = owners.clone();
        let (desk, unit) = serve_then(config, later);
        write(&**unit.store(), 0, &pattern(5, 32 * MIB));
        let order = CopyOrder { cap_bytes_per_second: SLOWLY, ..order(&url) };
        let started = desk.handle(&by, Request::Start { request: Box::new(Request::CopyOut(order)) });
        let Response::Done(Answer::Job(begun)) = started else { panic!("{started:?}") };
        while job(&desk, begun.id, false).copy.is_none_or(|copy| copy.done_bytes == 0) {
            thread::sleep(Duration::from_millis(5));
        }
        let changed = desk.handle(&BY, change.clone());
        assert!(matches!(changed, Response::Done(_)), "{changed:?}");
        let ended = job(&desk, begun.id, true);
        assert_eq!(ended.code.as_deref(), Some("copy-failed"), "{change:?}: {ended:?}");
        assert!(ended.refused.is_some_and(|reason| reason.contains("may not go on")));
        end(&desk);
    }
}

#[test]
fn a_copy_ends_when_its_volume_is_to_be_protected_more_than_the_copy_is() {
    let mut config = config(&["disk=ram:32M,security=hash"]);
    // iSCSI protects no packets.
    config.exports.clear();
    let (desk, unit) = serve_then(config, DirectCopies::default());
    write(&**unit.store(), 0, &pattern(7, 32 * MIB));
    let id = begin_slowly(&desk, &put("raised", Arc::new(RamStore::new(32 << 20, 512))));
    let set = |level: &str| {
        let (name, security) = ("disk".to_owned(), Some(level.to_owned()));
        let changed = desk.handle(&BY, Request::SetVolume { name, security, protected: None, owners: None });
        assert!(matches!(changed, Response::Done(_)), "{changed:?}");
    };
    for level in ["none", "hash"] {
        set(level);
        thread::sleep(Duration::from_millis(300));
        assert_eq!(job(&desk, id, false).state, JobState::Running, "{level}");
    }
    set("aes-128-gcm");
    let ended = job(&desk, id, true);
    assert_eq!(ended.code.as_deref(), Some("copy-failed"), "{ended:?}");
    assert!(ended.refused.is_some_and(|reason| reason.contains("protected by aes-128-gcm now")));
    end(&desk);
}

#[test]
fn what_has_grown_meanwhile_is_told() {
    let (desk, _) = serve(&[(0, &pattern(6, 8 * MIB))], 8 * MIB, DirectCopies::default());
    let far = Held::new(16 << 20);
    let id = begin_held(&desk, &far, order(&put("grown", Arc::clone(&far) as Arc<dyn Store>)));
    let grow = Request::ResizeVolume { name: "disk".into(), size: "9M".into() };
    assert!(matches!(desk.handle(&BY, grow), Response::Done(_)));
    far.release();
    let done = job(&desk, id, true);
    assert_eq!(done.state, JobState::Done, "{done:?}");
    assert!(done.changed.len() == 2 && done.changed[1].contains("has grown"), "{:?}", done.changed);
    end(&desk);
}

#[test]
fn owners_are_told_no_paths_of_the_host() {
    let client_id: ReadClientId = || Err("/secret/client.key: permission denied".to_owned());
    let direct = DirectCopies { by: CopyOrderers::Owners, client_id: Some(client_id), ..DirectCopies::default() };
    let (desk, _) = serve(&[], MIB, direct);
    let client = ClientId([7; 16]);
    let owner = Principal { client: Some(client), ..Principal::default() };
    let owner = Asker::Client { client, address: "10.0.0.9:1".into(), as_owner: Some(owner) };
    for (by, is_told) in [(&BY, true), (&owner, false)] {
        match desk.handle(by, Request::CopyTerms) {
            Response::Done(Answer::CopyTerms(terms)) => {
                assert_eq!(terms.refused.unwrap().contains("/secret"), is_told, "{by:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    end(&desk);
}

#[test]
fn a_copy_is_asked_about_now_and_then_or_ends() {
    let (desk, _) = serve(&[], MIB, DirectCopies::default());
    let url = put("unasked", Arc::new(RamStore::new(1 << 20, 512)));
    for seconds in [0, 9, 121, u32::MAX] {
        let refused = begin(&desk, CopyOrder { unasked_seconds: Some(seconds), ..order(&url) });
        assert_eq!(refused.unwrap_err(), "copy-refused", "{seconds}");
    }
    assert_eq!(copy(&desk, CopyOrder { unasked_seconds: Some(30), ..order(&url) }).state, JobState::Done);
    end(&desk);
}

/// Memory that loses what is written to one place.
#[derive(Debug)]
struct Forgetful {
    below: RamStore,
    at_bytes: u64,
}

impl Store for Forgetful {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn start(&self, request: StoreRequest, completions: &CompletionQueue) -> Started {
        let (offset_bytes, length_bytes) = request.range_bytes();
        let is_hit = matches!(request, StoreRequest::Write { .. })
            && (offset_bytes..offset_bytes + length_bytes).contains(&self.at_bytes);
        let started = self.below.start(request, completions);
        if is_hit {
            write(&self.below, self.at_bytes as usize, &[0; 512]);
        }
        started
    }
}

#[test]
fn a_copy_that_differs_from_its_source_fails_when_it_is_verified() {
    let (desk, _) = serve(&[(0, &pattern(1, 8 * MIB))], 8 * MIB, DirectCopies::default());
    let url = put("forgetful", Arc::new(Forgetful { below: RamStore::new(8 << 20, 512), at_bytes: 5 << 20 }));
    assert_eq!(copy(&desk, order(&url)).state, JobState::Done, "nobody has looked");
    let job = copy(&desk, CopyOrder { verify: true, ..order(&url) });
    assert_eq!(job.code.as_deref(), Some("copy-failed"), "{job:?}");
    let reason = "it differs between the bytes 5242880 and 5505024: copy it again";
    assert!(job.refused.as_ref().is_some_and(|told| told.contains(reason)), "{job:?}");
    end(&desk);
}
