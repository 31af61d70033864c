//! Commands asked once and again, answered, withdrawn and aborted.

use sanwire_core::MacAddress;
use sanwire_core::quota::COMMAND_NUMBERS_OF_SESSION;
use sanwire_exchange::SPAN_MAX;

use super::*;

fn session() -> Session {
    let (host, memory) = (Peer::Ethernet(MacAddress([2; 6])), Region::new(1 << 20).unwrap());
    let mut session = Session::new((ClientId([0; 16]), 1), NexusId(1), host, memory, Instant::ZERO);
    session.connect(7);
    session
}

fn kept() -> Kept {
    Kept { head: Head::new(), data: None, is_compressible: false, is_bulk_read: false }
}

fn to(number: u16) -> ReplyTo {
    ReplyTo { tag: Tag::new(number).unwrap(), protection: Protection::Hash, is_local: false }
}

/// A request for a logical unit that demands nothing.
fn ask(session: &mut Session, number: u64, settled_below: u64, tag: u16) -> Asked {
    let terms = UnitTerms { protection: Protection::Checksum, is_compressible: true };
    let unit = Unit { lun: Some(Lun::default()), terms };
    session.ask((number, settled_below), to(tag), unit, &mut Account::new(&COMMAND_NUMBERS_OF_SESSION))
}

fn read(session: &mut Session, number: u64, tag: u16) -> Asked {
    ask(session, number, 0, tag)
}

/// What a READ of a disk has read.
fn data() -> Kept {
    Kept { is_bulk_read: true, ..told() }
}

/// Data that comes once.
fn told() -> Kept {
    Kept { data: Some(vec![1; 9].into()), ..kept() }
}

#[test]
fn a_command_asked_again_is_answered_from_memory() {
    let mut session = session();
    assert!(matches!(ask(&mut session, 0, 0, 1), Asked::Execute));
    session.connect(8);
    assert!(matches!(ask(&mut session, 0, 0, 2), Asked::Wait));
    assert_eq!(session.answer(0, kept()).to, Some(to(2)));
    session.connect(9);
    assert!(matches!(ask(&mut session, 0, 0, 3), Asked::Repeat(_)));
    session.delivered(0);
    assert!(matches!(ask(&mut session, 0, 0, 3), Asked::Refuse));
    assert_eq!(session.executing(), 0);
}

#[test]
fn an_answer_without_a_connection_is_kept() {
    let mut session = session();
    ask(&mut session, 5, 5, 1);
    session.disconnect(Instant::ZERO);
    assert_eq!(session.answer(5, kept()).to, None);
    session.connect(8);
    assert!(matches!(ask(&mut session, 5, 5, 4), Asked::Repeat(_)));
}

#[test]
fn a_settled_number_does_not_hide_what_the_device_works_on() {
    let mut session = session();
    for number in 0..10 {
        ask(&mut session, number, number, 1);
    }
    assert_eq!(session.executing(), 10);
    session.answer(0, kept());
    assert_eq!(session.executing(), 9);
}

#[test]
fn who_settles_what_a_request_waits_for_has_the_request_ended_all_the_same() {
    let mut session = session();
    (0..2).for_each(|number| drop(ask(&mut session, number, 0, number as u16)));
    assert!(session.abort(0, 1));
    assert!(matches!(ask(&mut session, 2, 2, 2), Asked::Execute));
    assert_eq!(session.answer(0, kept()).awaited_by, [1]);
    (1..3).for_each(|number| drop(session.answer(number, kept())));
    assert_eq!(session.executing(), 0, "the session can end");
    assert!(matches!(ask(&mut session, 3, 3, 3), Asked::Execute));
    assert_eq!(session.slots(), 1);
}

#[test]
fn one_connection_carries_an_answer_once() {
    let mut session = session();
    ask(&mut session, 0, 0, 1);
    session.answer(0, kept());
    assert!(matches!(ask(&mut session, 0, 0, 2), Asked::Refuse), "it is on its way");
    session.connect(8);
    assert!(matches!(ask(&mut session, 0, 0, 2), Asked::Repeat(_)));
    assert!(matches!(ask(&mut session, 0, 0, 2), Asked::Refuse));
}

#[test]
fn numbers_far_ahead_and_long_settled_are_refused() {
    let mut session = session();
    assert!(matches!(ask(&mut session, 10, 10, 0), Asked::Execute));
    assert!(matches!(ask(&mut session, 9, 9, 0), Asked::Refuse));
    assert!(matches!(ask(&mut session, 10 + SPAN_MAX, 10, 0), Asked::Refuse));
    assert!(matches!(ask(&mut session, u64::MAX, 0, 0), Asked::Refuse));
}

#[test]
fn answers_that_the_client_does_not_wait_for_are_forgotten() {
    let mut session = session();
    for number in 0..3 {
        ask(&mut session, number, 0, number as u16);
    }
    session.answer(1, kept());
    session.answer(2, kept());
    session.connect(8);
    session.keep_only(&[0, 2]);
    assert!(matches!(ask(&mut session, 0, 0, 0), Asked::Wait));
    assert!(matches!(ask(&mut session, 1, 0, 1), Asked::Refuse));
    assert!(matches!(ask(&mut session, 2, 0, 2), Asked::Repeat(_)));
}

#[test]
fn a_read_of_which_the_data_was_lost_with_its_connection_is_executed_again() {
    let mut session = session();
    assert!(matches!(read(&mut session, 0, 1), Asked::Execute));
    assert!(matches!(read(&mut session, 1, 2), Asked::Execute));
    assert_eq!(session.answer(0, data()).to, Some(to(1)));
    assert!(matches!(read(&mut session, 0, 3), Asked::Refuse), "it is on its way");
    assert_eq!(session.answer(1, data()).to, Some(to(2)));
    session.delivered(1);
    session.connect(8);
    assert!(matches!(read(&mut session, 0, 4), Asked::Execute));
    assert!(matches!(read(&mut session, 1, 5), Asked::Refuse), "the client has it");
    assert_eq!(session.executing(), 1);
}

#[test]
fn nobodys_read_is_forgotten_when_it_is_answered() {
    let mut session = session();
    (0..2).for_each(|number| drop(read(&mut session, number, 1)));
    session.disconnect(Instant::ZERO);
    assert_eq!(session.answer(0, data()).to, None);
    session.connect(8);
    assert_eq!(session.answer(1, data()).to, None, "not asked for on this connection");
    assert!((0..2).all(|number| matches!(read(&mut session, number, 1), Asked::Execute)));
}

#[test]
fn what_a_read_has_failed_with_is_kept() {
    let mut session = session();
    read(&mut session, 0, 1);
    session.answer(0, kept());
    session.connect(8);
    assert!(matches!(read(&mut session, 0, 2), Asked::Repeat(_)), "a unit attention is told once");
}

#[test]
fn what_changes_something_is_never_executed_again() {
    let mut session = session();
    ask(&mut session, 0, 0, 1);
    session.answer(0, told());
    session.connect(8);
    assert!(matches!(ask(&mut session, 0, 0, 2), Asked::Repeat(Kept { data: Some(_), .. })));
}

#[test]
fn what_was_withdrawn_is_executed_when_it_is_asked_again() {
    let mut session = session();
    ask(&mut session, 0, 0, 1);
    assert!(session.abort(0, 1));
    session.disconnect(Instant::ZERO);
    assert_eq!((session.withdraw(0), session.executing()), (vec![1], 0));
    assert!(session.withdraw(0).is_empty() && session.executing() == 0);
    session.connect(8);
    assert!(matches!(ask(&mut session, 0, 0, 2), Asked::Execute));
}

#[test]
fn every_abort_waits_for_the_commands_end() {
    let mut session = session();
    ask(&mut session, 0, 0, 1);
    assert!(session.abort(0, 1) && session.abort(0, 2));
    let answered = session.answer(0, kept());
    assert_eq!((answered.to, answered.awaited_by), (Some(to(1)), vec![1, 2]));
    assert!(!session.abort(0, 3), "already gone");
}

#[test]
fn a_command_that_comes_after_its_abort_is_not_executed() {
    let mut session = session();
    ask(&mut session, 1, 0, 1);
    assert!(!session.abort(0, 1));
    assert!(matches!(ask(&mut session, 0, 0, 2), Asked::Abort));
    assert_eq!(session.answer(0, kept()).to, Some(to(2)));
    session.connect(8);
    assert!(matches!(ask(&mut session, 0, 0, 2), Asked::Repeat(_)));
}

#[test]
fn requests_never_wait_for_each_other() {
    let mut session = session();
    ask(&mut session, 0, 0, 1);
    ask(&mut session, 1, 0, 2);
    assert!(!session.abort(0, 0) && !session.abort(1, 0) && session.abort(0, 1));
}
