//! Errors of stores, as they are counted.

use super::*;

impl World {
    fn errors(&self) -> Vec<(&'static str, u64)> {
        let unit = self.units.iter().remove(0).1;
        unit.store_errors().all().collect()
    }
}

#[test]
fn each_answer_of_a_store_that_fails_is_counted_and_the_end_of_patience_is_none() {
    let world = World::new(Patience { full: Some(Duration::from_millis(15)), gone: None });
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), write(0));
    let mut now = world.now;
    for _ in 0..2 {
        let work = shard.poll_work().unwrap();
        shard.completed(work.id, Err(StoreError::new(ErrorKind::Full, 0)), now);
        now = shard.poll_timeout().unwrap();
        shard.handle_timeout(now);
    }
    let work = shard.poll_work().unwrap();
    shard.completed(work.id, Err(StoreError::new(ErrorKind::Full, 0)), now);
    assert_eq!(status(shard.poll_ended().unwrap().reply), Some(Status::CheckCondition));
    assert_eq!(world.errors(), [("full", 3)]);
}

#[test]
fn an_error_that_nobody_hears_of_any_more_is_counted_too() {
    let world = World::new(Patience::default());
    let mut shard = world.shard();
    for (number, command) in [(1, read(0)), (2, write(1))] {
        world.begin(&mut shard, Command(ONE, number), command);
        let work = shard.poll_work().unwrap();
        shard.leave(&Selection { by: ONE, which: Which::Own }, None);
        shard.completed(work.id, Err(StoreError::new(ErrorKind::Unwritable, 0)), world.now);
    }
    assert_eq!(world.errors(), [("unwritable", 2)]);
}

/// Has no work for the kernel: it says at once what it has to say.
#[derive(Debug)]
struct Broken;

impl Store for Broken {
    fn geometry(&self) -> Geometry {
        GEOMETRY
    }

    fn start(&self, _: Request, _: &CompletionQueue) -> Started {
        Started::Done(Err(StoreError::new(ErrorKind::Unreadable, 0)))
    }
}

#[test]
fn an_error_at_once_is_counted_once() {
    let world = World::over(Arc::new(Broken), Patience::default());
    let mut shard = world.shard();
    world.begin(&mut shard, Command(ONE, 1), read(0));
    assert_eq!(status(shard.poll_ended().unwrap().reply), Some(Status::CheckCondition));
    assert_eq!(world.errors(), [("unreadable", 1)]);
}
