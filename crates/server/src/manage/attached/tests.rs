use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_store::{CompletionQueue, Copies, CopiesError, Geometry, RamStore, Started};

use super::*;
use crate::manage::{JobState, JobStatus};

const BY: Asker = Asker::Process { uid: 0, pid: 7 };

/// A store whose copies are compared until that is cancelled, as soon as it may begin.
#[derive(Debug)]
struct Copied {
    store: RamStore,
    length_bytes: AtomicU64,
    may_begin: Arc<Mutex<()>>,
}

impl Store for Copied {
    fn geometry(&self) -> Geometry {
        Geometry { length_bytes: self.length_bytes.load(Ordering::Relaxed), ..self.store.geometry() }
    }

    fn start(&self, request: sanwire_store::Request, completions: &CompletionQueue) -> Started {
        self.store.start(request, completions)
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(self)
    }
}

impl Copies for Copied {
    fn scrub(&self, cancellation: &Cancellation) -> Result<u64, CopiesError> {
        drop(self.may_begin.lock().unwrap());
        while !cancellation.is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
        Err(CopiesError("it was ended".into()))
    }

    fn replace(&self, member: usize, _: &str) -> Result<(), CopiesError> {
        if member == 2 { Ok(()) } else { Err(CopiesError("that member is there".into())) }
    }

    fn grow(&self, others: &[String], _: &Cancellation) -> Result<(), CopiesError> {
        self.length_bytes.fetch_add((others.len() as u64) << 20, Ordering::Relaxed);
        Ok(())
    }
}

fn store() -> Arc<dyn Store> {
    store_that_begins(Arc::default())
}

fn store_that_begins(may_begin: Arc<Mutex<()>>) -> Arc<dyn Store> {
    Arc::new(Copied { store: RamStore::new(8 << 20, 512), length_bytes: AtomicU64::new(1 << 20), may_begin })
}

fn replacement(name: &str, member: usize) -> Request {
    Request::ReplaceMember(MemberReplacement { name: name.to_owned(), member, store: "file:/new".to_owned() })
}

fn growth() -> Request {
    Request::GrowArray(ArrayGrowth { name: "data".to_owned(), add: vec!["ram:1M".to_owned(); 2] })
}

fn scrub() -> Request {
    Request::ScrubVolume { name: "data".to_owned() }
}

fn done(response: Response) -> String {
    match response {
        Response::Done(Answer::Changed(lines)) => lines.join("\n"),
        other => panic!("{other:?}"),
    }
}

fn refused(response: Response) -> (String, String) {
    match response {
        Response::Refused(Refusal { code, reason }) => (code.into_owned(), reason),
        done @ Response::Done(_) => panic!("{done:?}"),
    }
}

#[test]
fn an_attached_array_gets_other_members_and_becomes_longer() {
    let store = store();
    let array = AttachedArray::new("data".to_owned(), &store, false);
    let told = done(array.handle(&BY, replacement("data", 2)));
    assert!(told.starts_with("file:/new is member 2 of data now"), "{told}");
    let (code, reason) = refused(array.handle(&BY, replacement("data", 1)));
    assert!(code == "copies-refused" && reason.contains("that member is there"), "{code}: {reason}");
    assert_eq!(done(array.handle(&BY, growth())), "array data has 3 MiB now, 1 MiB before");
    let layered = AttachedArray::new("data".to_owned(), &store, true);
    assert!(refused(layered.handle(&BY, growth())).1.contains("it has layers"));
    assert_eq!(refused(array.handle(&BY, replacement("other", 2))).0, "volume-unknown");
    for request in [Request::Status, Request::RemoveVolume { name: "data".to_owned(), force: true }] {
        assert_eq!(refused(array.handle(&BY, request)).0, "request-invalid");
    }
    assert_eq!(refused(array.handle_json(&BY, b"nonsense")).0, "request-invalid");
}

#[test]
fn what_takes_long_is_a_job_which_can_be_cancelled() {
    let may_begin = Arc::<Mutex<()>>::default();
    let not_yet = may_begin.lock().unwrap();
    let store = store_that_begins(Arc::clone(&may_begin));
    let array = AttachedArray::new("data".to_owned(), &store, false);
    let begun = array.handle(&BY, Request::Start { request: Box::new(scrub()) });
    let Response::Done(Answer::Job(JobStatus { id, state: JobState::Running, progress, .. })) = begun else {
        panic!("{begun:?}")
    };
    assert_eq!(progress.as_deref(), Some("comparing the copies of data"));
    assert_eq!(refused(array.handle(&BY, growth())).0, "volume-busy", "one thing at a time");
    assert!(done(array.handle(&BY, Request::CancelJob { id })).contains("ends before it is done"));
    // Also what has not begun yet when it is cancelled.
    drop(not_yet);
    let Response::Done(Answer::Job(ended)) = array.handle(&BY, Request::Job { id, wait: true }) else { panic!() };
    assert_eq!((ended.state, ended.code.as_deref()), (JobState::Refused, Some("copies-refused")));
    assert_eq!(refused(array.handle(&BY, Request::CancelJob { id })).0, "job-not-cancellable");
    assert_eq!(refused(array.handle(&BY, Request::CancelJob { id: id + 1 })).0, "job-unknown");
    assert_eq!(done(array.handle(&BY, growth())), "array data has 3 MiB now, 1 MiB before");
}

#[test]
fn an_array_that_is_detached_is_let_go_whatever_went_on() {
    let store = store();
    let array = AttachedArray::new("data".to_owned(), &store, false);
    array.handle(&BY, Request::Start { request: Box::new(scrub()) });
    array.end(Duration::from_secs(60));
    let weak = Arc::downgrade(&store);
    drop(store);
    assert!(weak.upgrade().is_none(), "somebody has it still");
    let (code, reason) = refused(array.handle(&BY, scrub()));
    assert!(code == "volume-busy" && reason.contains("being detached"), "{code}: {reason}");
}

/// A new member that does not answer may keep it for longer than anybody waits.
#[test]
fn nothing_is_begun_when_an_array_was_to_be_detached_and_that_was_not_waited_for() {
    let store = store();
    let array = AttachedArray::new("data".to_owned(), &store, false);
    let hold = array.0.busy.hold("data", "being given another member").unwrap();
    array.end(Duration::ZERO);
    drop(hold);
    let (code, reason) = refused(array.handle(&BY, scrub()));
    assert!(code == "volume-busy" && reason.contains("being detached"), "{code}: {reason}");
}
