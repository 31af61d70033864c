//! Stores that complete requests themselves, perhaps from other threads.

use std::sync::{Mutex, PoisonError};
use std::thread;

use sanwire_store::{Completer, Completion};

use super::*;

/// Does everything in two halves: the first itself, the second it leaves to the kernel or does itself too.
#[derive(Debug)]
struct PendingStore {
    file: Arc<File>,
    is_split: bool,
    held: Mutex<Vec<(Request, Completer)>>,
}

impl PendingStore {
    fn new(is_split: bool) -> Arc<Self> {
        let file = Arc::new(File::open("/dev/null").unwrap());
        Arc::new(PendingStore { file, is_split, held: Mutex::default() })
    }

    fn take(&self) -> Vec<(Request, Completer)> {
        std::mem::take(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for PendingStore {
    fn geometry(&self) -> Geometry {
        GEOMETRY
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let (pending, completer) = completions.pend();
        self.held.lock().unwrap().push((request, completer));
        if !self.is_split {
            return Started::Pending(pending);
        }
        let op = KernelOp { file: Arc::clone(&self.file), is_block_device: false, request: Request::Flush };
        let worse = |ends: Vec<Completion>, _: &CompletionQueue| {
            Started::Done(ends.into_iter().find(Result::is_err).unwrap_or(Ok(Outcome::Done)))
        };
        Started::join(vec![Started::Pending(pending), Started::Kernel(op)], completions, worse)
    }
}

#[test]
fn another_thread_completes_a_request_and_wakes_the_driver() {
    let store = PendingStore::new(false);
    let world = World::over(store.clone(), Patience::default());
    let (sender, bell) = std::sync::mpsc::channel();
    let mut shard = Engine::new(world.memory.clone(), CompletionQueue::new(move || sender.send(()).unwrap()));
    world.begin(&mut shard, Command(ONE, 1), read(3));
    world.begin(&mut shard, Command(ONE, 2), write(4));
    assert!(
        shard.poll_work().is_none() && shard.poll_timeout().is_some_and(|at| at > world.now),
        "it is not asked again"
    );
    let held = store.take();
    let thread = thread::spawn(move || {
        for (request, completer) in held.into_iter().rev() {
            completer.complete(Ok(match request {
                Request::Read { mut buffer, .. } => {
                    buffer.fill(9);
                    Outcome::Read(buffer)
                }
                _ => Outcome::Done,
            }));
        }
    });
    bell.recv().unwrap();
    thread.join().unwrap();
    shard.reap(world.now);
    let ended = [(); 2].map(|()| shard.poll_ended().unwrap());
    assert_eq!(ended.each_ref().map(|ended| ended.handle), [Command(ONE, 2), Command(ONE, 1)]);
    assert_eq!(ended[1].reply.as_ref().unwrap().data_in.as_ref().unwrap().to_vec(), [9; BLOCK_BYTES]);
    assert!(shard.is_idle());
}

#[test]
fn an_abort_waits_for_what_a_store_does_itself() {
    let store = PendingStore::new(false);
    let world = World::over(store.clone(), Patience::default());
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    let (barrier, is_passed) = barrier();
    shard.abort(&Selection { by: TWO, which: Which::Command(Command(ONE, 1)) }, Some(&barrier));
    drop(barrier);
    assert!(!is_passed() && shard.poll_ended().is_none());
    store.take().into_iter().for_each(|(_, completer)| completer.complete(Ok(Outcome::Done)));
    shard.reap(world.now);
    assert!(is_passed());
    assert_eq!(status(shard.poll_ended().unwrap().reply), Some(Status::TaskAborted));
}

#[test]
fn a_lost_nexus_keeps_its_blocks_until_its_store_has_done_what_it_does_itself() {
    let store = PendingStore::new(false);
    let world = World::over(store.clone(), Patience::default());
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    let lost = store.take();
    shard.leave(&Selection { by: ONE, which: Which::Own }, None);
    world.begin(&mut shard, Command(TWO, 1), read(0));
    assert!(store.take().is_empty());
    // It is given up: nobody knows more of it, and nobody waits any longer.
    drop(lost);
    shard.reap(world.now);
    shard.retry(shard.poll_timeout().unwrap());
    assert_eq!(store.take().len(), 1);
}

#[test]
fn a_request_in_parts_is_called_back_only_before_any_of_them_has_begun() {
    let store = PendingStore::new(true);
    let world = World::over(store.clone(), Patience::default());
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    shard.abort(&Selection { by: TWO, which: Which::Command(Command(ONE, 1)) }, None);
    let work = shard.poll_work().expect("the other part is at its store: this one goes on too");
    shard.completed(work.id, Ok(Outcome::Done), world.now);
    shard.completed(work.id, Ok(Outcome::Done), world.now);
    assert!(shard.poll_ended().is_none(), "a part twice is not both parts");
    store.take().into_iter().for_each(|(_, completer)| completer.complete(Ok(Outcome::Done)));
    shard.reap(world.now);
    assert_eq!(status(shard.poll_ended().unwrap().reply), Some(Status::TaskAborted));
    assert!(shard.is_idle());
}

#[test]
fn a_store_that_has_lost_a_request_is_asked_again_where_there_is_patience_with_that() {
    let store = PendingStore::new(false);
    let world = World::over(store.clone(), Patience { full: None, gone: Some(Duration::from_secs(9)) });
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    drop(store.take());
    shard.reap(world.now);
    assert!(shard.poll_ended().is_none());
    let at = shard.poll_timeout().unwrap();
    shard.handle_timeout(at);
    let again = store.take();
    assert!(matches!(&again[..], [(Request::Write { offset_bytes: 0, .. }, _)]));
    again.into_iter().for_each(|(_, completer)| completer.complete(Ok(Outcome::Done)));
    shard.reap(at);
    assert_eq!(status(shard.poll_ended().unwrap().reply), Some(Status::Good));
}
