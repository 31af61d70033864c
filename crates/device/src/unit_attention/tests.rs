//! What nexuses are told, once or until they have heard it.

use super::*;
use sanwire_scsi::Receipts;

/// A nexus that comes now.
fn met(is_unseen: bool) -> Met {
    Met { since: Generation::next(), is_unseen, locked: None }
}

#[test]
fn each_nexus_is_told_once_in_order_of_weight() {
    let nexuses = Nexuses::default();
    let (one, other) = (NexusId(1), NexusId(65));
    nexuses.establish(one, met(false));
    nexuses.establish(other, met(false));
    nexuses.raise(UnitAttention::ModeChanged, Some(other));
    let told = |nexus| nexuses.take(nexus).map(|sense| sense.additional);
    assert_eq!(told(one), Some(AdditionalSense::POWER_ON_OR_RESET_OCCURRED));
    assert_eq!(told(one), Some(AdditionalSense::MODE_PARAMETERS_CHANGED));
    assert_eq!(told(one), None);
    assert_eq!(told(other), Some(AdditionalSense::POWER_ON_OR_RESET_OCCURRED), "shares a bit with the first");
    assert_eq!(told(other), None);
    assert_eq!(nexuses.pending.load(Ordering::Acquire), 0);
    nexuses.raise(UnitAttention::LunsChanged, None);
    nexuses.clear(UnitAttention::LunsChanged, one);
    nexuses.forget(other);
    assert_eq!((told(one), told(other)), (None, None));
    assert_eq!(nexuses.pending.load(Ordering::Acquire), 0);
}

/// Thousands of sessions that each hear of a reset must not each look at all others.
#[test]
fn what_is_shown_to_commands_is_what_the_table_says_whatever_changes() {
    let nexuses = Nexuses::default();
    let mut seed = 1u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for turn in 0..20_000 {
        let (nexus, attention) = (NexusId(draw(150)), UnitAttention::ALL[draw(13) as usize]);
        match draw(10) {
            0 => nexuses.establish(nexus, met(draw(2) == 0)),
            1 => nexuses.forget(nexus),
            2 => nexuses.see(nexus),
            3 if draw(20) == 0 => nexuses.raise(attention, Some(nexus)),
            4 => nexuses.raise_for(attention, [nexus, NexusId(draw(150))].into_iter()),
            5 => nexuses.clear(attention, nexus),
            6 => drop(nexuses.take_reset(nexus)),
            7 => drop(nexuses.tell(nexus, draw(2) * u64::MAX)),
            _ => drop(nexuses.take(nexus)),
        }
        let table = nexuses.lock();
        let told = table.by_id.iter().filter(|(_, state)| state.must_be_told());
        let pending = told.fold(0u64, |all, (nexus, _)| all | 1 << place(*nexus));
        assert_eq!(nexuses.pending.load(Ordering::Acquire), pending, "turn {turn}");
    }
}

#[test]
fn of_a_preemption_all_is_told_that_was_given_before_it_was_heard_of() {
    let nexuses = Nexuses::default();
    let (nexus, preempted) = (NexusId(1), Some(AdditionalSense::REGISTRATIONS_PREEMPTED));
    nexuses.establish(nexus, met(false));
    nexuses.take(nexus);
    let mut answers = Receipts::default();
    let mut told = |receipts, is_sent: bool| {
        let (sense, receipt) = nexuses.tell(nexus, receipts)?;
        receipt.filter(|_| is_sent).into_iter().for_each(|receipt| _ = answers.issue(receipt, ()));
        Some(sense.additional)
    };
    for turn in 0..2 {
        nexuses.raise_for(UnitAttention::RegistrationsPreempted, [nexus].into_iter());
        nexuses.raise_for(UnitAttention::ModeChanged, [nexus].into_iter());
        let before = 3 * turn;
        assert_eq!(told(before, false), Some(AdditionalSense::MODE_PARAMETERS_CHANGED), "once");
        assert_eq!(told(u64::MAX, false), preempted, "its answer is never sent");
        for _ in 0..3 {
            assert_eq!(told(before, true), preempted);
        }
        assert_eq!(told(before + 1, false), None, "it had the first of them");
        assert_eq!(told(before, false), None);
        assert!(nexuses.lock().tellings.is_empty());
    }
    nexuses.raise_for(UnitAttention::ReservationsPreempted, [nexus].into_iter());
    assert_eq!(told(6, false), Some(AdditionalSense::RESERVATIONS_PREEMPTED));
    nexuses.forget(nexus);
    assert_eq!((told(6, false), nexuses.lock().tellings.len()), (None, 0));
}

#[test]
fn removal_is_prevented_while_one_nexus_asks() {
    let nexuses = Nexuses::default();
    nexuses.establish(NexusId(1), met(false));
    nexuses.set_prevent(NexusId(1), true);
    assert!(nexuses.is_removal_prevented());
    nexuses.forget(NexusId(1));
    assert!(!nexuses.is_removal_prevented());
}

/// As by a wire of which it is only known that a client has an answer when it gives a command so much later.
#[test]
fn who_gives_many_commands_before_it_hears_is_not_told_for_ever() {
    const LATER: u64 = 256;
    let nexuses = Nexuses::default();
    nexuses.establish(NexusId(1), met(false));
    nexuses.take(NexusId(1));
    nexuses.raise_for(UnitAttention::RegistrationsPreempted, [NexusId(1)].into_iter());
    let mut receipts = Receipts::default();
    let is_told = |number: &u64| {
        let received = receipts.received(|answered| number - *answered >= LATER);
        receipts.retain(|answered| number - *answered < 2 * LATER);
        let told = nexuses.tell(NexusId(1), received);
        told.map(|(_, receipt)| receipt.map(|receipt| receipts.issue(receipt, *number))).is_some()
    };
    assert_eq!((0..10_000).take_while(is_told).count() as u64, LATER);
}
