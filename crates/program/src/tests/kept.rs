//! The state of programs: what is kept of it, and when commands wait for that.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_device::{CommandProgram, Keeping, Verdict};

use super::support::*;
use crate::{Failure, Limits, LoadError, Program, StateKeeper};

/// A place that can fail, or take as long as it is told to.
#[derive(Debug, Default)]
pub(super) struct Place {
    record: Mutex<Option<Vec<u8>>>,
    fails: AtomicBool,
    /// Saving waits as long as somebody else holds this.
    gate: Mutex<()>,
    saves: AtomicU32,
}

impl Place {
    /// The counter that is kept, in the state of [`counting`].
    fn counter(&self) -> Option<u32> {
        let record = self.record.lock().unwrap();
        record.as_ref().map(|record| u32::from_le_bytes(*record.last_chunk().unwrap()))
    }
}

impl StateKeeper for Place {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(self.record.lock().unwrap().clone())
    }

    fn save(&self, record: &[u8]) -> io::Result<()> {
        drop(self.gate.lock().unwrap());
        self.saves.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *self.record.lock().unwrap() = Some(record.to_vec());
        Ok(())
    }

    fn place(&self) -> String {
        "state/of/a/test".into()
    }
}

const FIELDS_OF_STATE: Fields = Fields { state_bytes: 4, ..FIELDS };

/// A program that counts its calls in its state, and returns this; it traps when the count is what the second number says.
fn counting(returned: u32, traps_at: u32, place: &Arc<Place>) -> Program {
    let body = format!(
        "(i32.store (i32.const {STATE}) (i32.add (i32.load (i32.const {STATE})) (i32.const 1)))
         (if (i32.eq (i32.load (i32.const {STATE})) (i32.const {traps_at})) (then unreachable))
         (i32.const {returned})"
    );
    let ended = r#"(func (export "ended") (param $token i64) (param $is_good i32) (result i32)
        (i32.store (i32.const 4096) (i32.wrap_i64 (local.get $token)))
        (select (i32.const 0x100) (i32.const 0) (local.get $is_good)))"#;
    with_state(FIELDS_OF_STATE, &body, ended, place)
}

fn wait_until(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "it has not come to that");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_command_that_asks_for_it_waits_until_the_state_is_durable() {
    let place = Arc::new(Place::default());
    let program = counting(0x101, 0, &place);
    let gate = place.gate.lock().unwrap();
    let wish = judge(&program).judgement.keep.unwrap();
    assert_eq!((program.keeping(wish), place.counter()), (Keeping::Pending, None));
    drop(gate);
    wait_until(|| program.keeping(wish) == Keeping::Kept);
    assert_eq!(place.counter(), Some(1));
}

/// Else the one that comes second would begin before its own reason to be let through is durable.
#[test]
fn a_state_that_did_not_change_is_waited_for_if_it_is_not_durable_yet() {
    let place = Arc::new(Place::default());
    let program =
        with_state(FIELDS_OF_STATE, "(i32.store (i32.const 4096) (i32.const 1)) (i32.const 0x101)", "", &place);
    let gate = place.gate.lock().unwrap();
    let first = judge(&program).judgement.keep.unwrap();
    let second = judge(&program).judgement.keep.unwrap();
    assert_eq!((program.keeping(first), program.keeping(second)), (Keeping::Pending, Keeping::Pending));
    drop(gate);
    wait_until(|| program.keeping(second) == Keeping::Kept);
    let third = judge(&program).judgement.keep.unwrap();
    assert_eq!(program.keeping(third), Keeping::Kept, "there is nothing to write");
    assert_eq!(place.saves.load(Ordering::SeqCst), 1);
}

#[test]
fn many_changes_are_kept_together() {
    let place = Arc::new(Place::default());
    let program = counting(0x101, 0, &place);
    let gate = place.gate.lock().unwrap();
    let wishes: Vec<u64> = (0..1000).map(|_| judge(&program).judgement.keep.unwrap()).collect();
    assert!(wishes.is_sorted());
    drop(gate);
    wait_until(|| program.keeping(wishes[999]) == Keeping::Kept);
    assert_eq!(place.counter(), Some(1000));
    assert!(place.saves.load(Ordering::SeqCst) <= 3);
}

#[test]
fn what_nobody_waits_for_is_kept_later_and_at_the_end() {
    let place = Arc::new(Place::default());
    let program = counting(1, 0, &place);
    for _ in 0..5 {
        assert_eq!(judge(&program).judgement.keep, None);
    }
    wait_until(|| place.counter() == Some(5));
    assert_eq!(place.saves.load(Ordering::SeqCst), 1, "all five at once");
    judge(&program);
    program.flush().unwrap();
    assert_eq!(place.counter(), Some(6));
    judge(&program);
    drop(program);
    wait_until(|| place.counter() == Some(7));
}

#[test]
fn a_program_goes_on_with_the_state_that_was_kept() {
    let place = Arc::new(Place::default());
    let program = counting(1, 0, &place);
    judge(&program);
    judge(&program);
    program.flush().unwrap();
    let again = counting(1, 0, &place);
    judge(&again);
    again.flush().unwrap();
    assert_eq!(place.counter(), Some(3));
}

#[test]
fn after_a_trap_the_state_is_that_of_before() {
    let place = Arc::new(Place::default());
    let program = counting(1, 3, &place);
    let failed: Vec<bool> = (0..5).map(|_| judge(&program).failure.is_some()).collect();
    assert_eq!(failed, [false, false, true, true, true], "it comes to the same place each time");
    program.flush().unwrap();
    assert_eq!(place.counter(), Some(2));
}

#[test]
fn after_an_answer_without_sense_the_state_is_that_of_before() {
    let place = Arc::new(Place::default());
    let program = counting(0, 0, &place);
    assert!(judge(&program).failure.is_some() && judge(&program).failure.is_some());
    program.flush().unwrap();
    assert_eq!(place.counter(), None, "nothing has changed");
}

#[test]
fn the_end_of_a_command_may_change_the_state_before_it_is_answered() {
    let place = Arc::new(Place::default());
    let program = counting(0x201, 0, &place);
    assert_eq!(judge(&program).judgement.end, Some(0));
    assert_eq!(program.ended(7, false), None, "that need not be durable at once");
    let wish = program.ended(9, true).unwrap();
    wait_until(|| program.keeping(wish) == Keeping::Kept);
    assert_eq!(place.counter(), Some(9));
}

#[test]
fn nobody_waits_for_long_for_what_cannot_be_kept() {
    let place = Arc::new(Place::default());
    let program = counting(0x101, 0, &place).with_patience(Duration::from_millis(50));
    place.fails.store(true, Ordering::SeqCst);
    let first = judge(&program);
    let wish = first.judgement.keep.unwrap();
    wait_until(|| program.keeping(wish) == Keeping::Failed);
    let refused = judge(&program);
    assert_eq!(refused.failure, Some(Failure::StateNotKept));
    assert!(matches!(refused.judgement.verdict, Verdict::Refuse(sense) if sense == crate::program::NOT_KEPT));
    // What has happened at the end of a command is not forgotten: that command fails, and the state is kept when it can be.
    let end = program.ended(40, true).unwrap();
    assert_eq!(program.keeping(end), Keeping::Failed);
    place.fails.store(false, Ordering::SeqCst);
    wait_until(|| program.keeping(end) == Keeping::Kept);
    assert_eq!(place.counter(), Some(40));
    let wish = judge(&program).judgement.keep.unwrap();
    wait_until(|| program.keeping(wish) == Keeping::Kept);
    assert_eq!(place.counter(), Some(41), "the one that was refused did not count");
}

#[test]
fn a_state_that_is_not_of_this_program_is_refused() {
    let place = Arc::new(Place::default());
    let load = |state_bytes| {
        let keeper = Arc::clone(&place) as Arc<dyn StateKeeper>;
        let module = module(Fields { state_bytes, ..FIELDS }, "(i32.const 1)", "");
        Program::load(&module, Limits::default(), Some(keeper)).map(drop)
    };
    let program = counting(1, 0, &place);
    judge(&program);
    drop(program);
    wait_until(|| place.counter() == Some(1));
    let error = load(8).unwrap_err();
    assert!(matches!(&error, LoadError::StateLength { kept_bytes: 4, wanted_bytes: 8, .. }), "{error}");
    assert!(error.to_string().contains("state/of/a/test"), "{error}");
    load(0).unwrap();
    place.record.lock().unwrap().as_mut().unwrap()[17] ^= 1;
    assert!(matches!(load(4), Err(LoadError::StateDamaged { .. })));
    place.fails.store(true, Ordering::SeqCst);
    assert!(matches!(load(4), Err(LoadError::StateUnreadable { .. })));
}

/// However many shards ask at once, each change is made on the one before.
#[test]
fn calls_of_several_threads_come_one_after_the_other() {
    let place = Arc::new(Place::default());
    let program = counting(1, 0, &place);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| assert_eq!(judge(&program).failure, None)));
        }
    });
    program.flush().unwrap();
    assert_eq!((place.counter(), program.statistics().calls), (Some(2_000), 2_000));
}
