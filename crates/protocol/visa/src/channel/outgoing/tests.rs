//! The sender of both modes: windows, roll-back, timers, losses.

use sanwire_buffer::{Head, Slice, Slices};
use sanwire_core::Protection;

use super::*;
use crate::channel::{Held, Message};

const NOW: Instant = Instant::ZERO;

fn message(data_bytes: usize, cookie: u64) -> Message {
    let data = (data_bytes > 0).then(|| Slices::from(Slice::from(vec![7; data_bytes])));
    let mut head = Head::new();
    head.extend(b"head");
    Message { tag: 1, protection: Protection::Checksum, head, data, cookie: Some(cookie) }
}

fn ack(next: u32, room_packets: u32) -> Ack {
    Ack { next, newest: next.saturating_sub(1), delay_us: 0, room_packets, map: Vec::new() }
}

/// The sequences that go now.
fn sent(outgoing: &mut Outgoing, now: Instant) -> Vec<u32> {
    std::iter::from_fn(|| outgoing.poll(now).map(|part| part.sequence)).collect()
}

#[test]
fn classic_pauses_after_48_kb_and_goes_on_with_the_acknowledgement() {
    let mut outgoing = Outgoing::new(Recovery::Classic, 8192, 1000);
    outgoing.push(message(100 << 10, 5), NOW);
    assert_eq!(sent(&mut outgoing, NOW), [0, 1, 2, 3, 4, 5], "six packets of 8 KiB");
    assert_eq!(outgoing.acknowledged(&ack(6, 1), NOW), Some(vec![]));
    assert_eq!(sent(&mut outgoing, NOW), [6, 7, 8, 9, 10, 11]);
    assert_eq!(outgoing.acknowledged(&ack(12, 1), NOW), Some(vec![]));
    assert_eq!(sent(&mut outgoing, NOW), [12]);
    assert_eq!(outgoing.acknowledged(&ack(13, 1), NOW), Some(vec![5]));
    assert!(outgoing.is_idle() && outgoing.poll_timeout().is_none());
}

#[test]
fn classic_rolls_back_to_what_is_missing() {
    let mut outgoing = Outgoing::new(Recovery::Classic, 8192, 1000);
    outgoing.push(message(40 << 10, 5), NOW);
    assert_eq!(sent(&mut outgoing, NOW), [0, 1, 2, 3, 4, 5]);
    assert_eq!(outgoing.roll_back(2, NOW), Some(vec![]));
    assert_eq!(sent(&mut outgoing, NOW), [2, 3, 4, 5], "and all after it");
    // One of before the roll-back comes late, and then the acknowledgement of all.
    assert_eq!(outgoing.roll_back(3, NOW), Some(vec![]));
    assert_eq!(outgoing.acknowledged(&ack(6, 1), NOW), Some(vec![5]));
    assert!(outgoing.is_idle());
    assert_eq!(outgoing.roll_back(7, NOW), None, "nothing such was sent");
}

#[test]
fn a_classic_timer_is_a_second_at_first_and_follows_the_round_trip_then() {
    let mut outgoing = Outgoing::new(Recovery::Classic, 8192, 1000);
    outgoing.push(message(1, 1), NOW);
    assert_eq!(sent(&mut outgoing, NOW), [0]);
    assert_eq!(outgoing.poll_timeout(), Some(NOW + Duration::from_secs(1)));
    let later = NOW + Duration::from_millis(10);
    outgoing.acknowledged(&ack(1, 1), later).unwrap();
    outgoing.push(message(1, 2), later);
    assert_eq!(sent(&mut outgoing, later), [1]);
    let at = outgoing.poll_timeout().unwrap();
    assert!(at < later + Duration::from_millis(100));
    outgoing.handle_timeout(at);
    assert_eq!(sent(&mut outgoing, at), [1], "again");
    assert_eq!(outgoing.counts().0, 1);
}

#[test]
fn modern_sends_again_what_is_missing_and_no_more() {
    let mut outgoing = Outgoing::new(Recovery::Modern, 1000, 64);
    outgoing.push(message(7900, 5), NOW);
    assert_eq!(sent(&mut outgoing, NOW), (0..8).collect::<Vec<u32>>());
    let later = NOW + Duration::from_millis(10);
    let mut told = ack(2, 64);
    [3, 4, 7].into_iter().for_each(|sequence| told.mark(sequence));
    told.newest = 7;
    assert_eq!(outgoing.acknowledged(&told, later), Some(vec![]));
    let at = outgoing.poll_timeout().unwrap();
    outgoing.handle_timeout(at);
    let mut again = Vec::new();
    let mut now = at;
    while again.len() < 3 {
        again.extend(sent(&mut outgoing, now));
        now += Duration::from_millis(1);
    }
    assert_eq!(again, [2, 5, 6]);
    assert_eq!(outgoing.acknowledged(&ack(8, 64), now), Some(vec![5]));
    assert!(outgoing.is_idle());
}

#[test]
fn modern_keeps_to_the_window_and_to_the_room() {
    let mut outgoing = Outgoing::new(Recovery::Modern, 1000, 3);
    outgoing.push(message(20_000, 5), NOW);
    assert_eq!(sent(&mut outgoing, NOW), [0, 1, 2]);
    outgoing.acknowledged(&ack(3, 1), NOW + Duration::from_millis(1)).unwrap();
    assert_eq!(sent(&mut outgoing, NOW + Duration::from_millis(1)), [3]);
    assert_eq!(outgoing.acknowledged(&ack(5, 3), NOW), None, "that was never sent");
}

#[test]
fn over_tcp_no_timer_runs_and_there_is_no_window_but_that_of_tcp() {
    let mut outgoing = Outgoing::new(Recovery::Stream, 60_000, 4);
    outgoing.push(message(500_000, 5), NOW);
    assert_eq!(sent(&mut outgoing, NOW), (0..9).collect::<Vec<u32>>());
    assert!(outgoing.poll_timeout().is_none());
    assert_eq!(outgoing.acknowledged(&ack(9, 4), NOW), Some(vec![5]));
}

#[test]
fn over_tcp_what_that_has_taken_has_arrived_and_what_it_takes_not_is_stuck() {
    let mut outgoing = Outgoing::new(Recovery::Stream, 1000, 4);
    let [later, last, end] = [3, 6, 9].map(|seconds| NOW + Duration::from_secs(seconds));
    outgoing.push(message(1988, 5), NOW);
    assert_eq!((outgoing.arrived_and_left_bytes(), outgoing.stuck_since()), ((0, 2000), Some(NOW)));
    for sequence in sent(&mut outgoing, later) {
        outgoing.handed_over(sequence, later);
    }
    assert_eq!((outgoing.arrived_and_left_bytes(), outgoing.stuck_since()), ((2000, 0), None));
    assert!(outgoing.sent.iter().all(|sent| sent.part.data.is_none()), "nothing keeps it");
    outgoing.note_unsent(1500, later);
    outgoing.note_unsent(1500, last);
    assert_eq!((outgoing.arrived_and_left_bytes(), outgoing.stuck_since()), ((500, 1500), Some(later)));
    outgoing.note_unsent(100, last);
    assert_eq!(outgoing.stuck_since(), Some(last));
    outgoing.note_unsent(0, last);
    let unacknowledged = Held { messages: 1, ..Held::default() };
    assert_eq!((outgoing.held(), outgoing.stuck_since()), (unacknowledged, None));
    outgoing.push(message(0, 6), end);
    assert_eq!(outgoing.stuck_since(), Some(end));
}

#[test]
fn parts_say_where_they_belong_and_the_first_has_the_whole_head() {
    let mut outgoing = Outgoing::new(Recovery::Modern, 512, 64);
    outgoing.push(message(1000, 5), NOW);
    let mut at = 0;
    let mut is_over = false;
    while let Some(part) = outgoing.poll(NOW) {
        assert_eq!((part.offset as usize, part.before.is_empty()), (at, at > 0));
        at += part.before.len() + part.data.as_ref().map_or(0, |data| data.len());
        is_over = part.is_last;
    }
    assert!(is_over && at == 8 + 4 + 1000);
}

#[test]
fn a_map_in_classic_mode_breaks_the_rules() {
    for recovery in [Recovery::Classic, Recovery::Stream] {
        let mut outgoing = Outgoing::new(recovery, 8192, 1000);
        outgoing.push(message(20_000, 5), NOW);
        assert_eq!(sent(&mut outgoing, NOW), [0, 1, 2]);
        let mut told = ack(0, 1);
        told.mark(1);
        assert_eq!(outgoing.acknowledged(&told, NOW), None);
        assert_eq!(outgoing.in_flight_bytes, 20_012, "and changes nothing");
    }
}

#[test]
fn classic_goes_back_to_a_packet_once_and_then_the_timer_does() {
    let mut outgoing = Outgoing::new(Recovery::Classic, 8192, 1000);
    outgoing.push(message(40 << 10, 5), NOW);
    assert_eq!(sent(&mut outgoing, NOW).len(), 6);
    outgoing.roll_back(2, NOW).unwrap();
    assert_eq!(sent(&mut outgoing, NOW), [2, 3, 4, 5]);
    for _ in 0..100 {
        outgoing.roll_back(2, NOW).unwrap();
        assert!(sent(&mut outgoing, NOW).is_empty(), "a small packet asks for a whole window");
    }
    let at = outgoing.poll_timeout().unwrap();
    outgoing.handle_timeout(at);
    assert_eq!(sent(&mut outgoing, at), [2, 3, 4, 5]);
}

#[test]
fn the_window_is_no_larger_than_an_acknowledgement_tells_of() {
    let mut outgoing = Outgoing::new(Recovery::Modern, 512, u32::MAX);
    outgoing.push(message(8 << 20, 5), NOW);
    let mut now = NOW;
    for _ in 0..200 {
        sent(&mut outgoing, now);
        now += Duration::from_millis(1);
        let next = outgoing.base + 1;
        outgoing.acknowledged(&ack(next, u32::MAX), now).unwrap();
        assert!(outgoing.sent.len() <= MAP_MAX_PACKETS as usize);
    }
    assert_eq!(outgoing.counts().2, MAP_MAX_PACKETS);
}

#[test]
fn what_messages_hold_is_known_until_they_have_arrived() {
    let mut outgoing = Outgoing::new(Recovery::Modern, 1000, 64);
    outgoing.push(message(2500, 5), NOW);
    outgoing.push(message(0, 6), NOW);
    let held = |messages, heap_bytes| Held { messages, heap_bytes, lent_bytes: 0 };
    assert_eq!((outgoing.held(), sent(&mut outgoing, NOW).len()), (held(2, 2500), 4));
    let later = NOW + Duration::from_millis(1);
    outgoing.acknowledged(&ack(2, 64), later).unwrap();
    assert_eq!((outgoing.held(), outgoing.arrived_and_left_bytes()), (held(2, 2500), (2000, 524)));
    outgoing.acknowledged(&ack(4, 64), later).unwrap();
    assert_eq!((outgoing.held(), outgoing.arrived_and_left_bytes()), (held(0, 0), (2524, 0)));
}

#[test]
fn modern_does_not_trust_its_window_after_a_pause() {
    let mut outgoing = Outgoing::new(Recovery::Modern, 1000, 4096);
    let mut now = NOW;
    outgoing.push(message(2_000_000, 5), now);
    while !outgoing.is_idle() {
        sent(&mut outgoing, now);
        now += Duration::from_millis(1);
        outgoing.acknowledged(&ack(outgoing.next(), 4096), now).unwrap();
    }
    let grown = outgoing.congestion.window_bytes();
    for (pause, is_trusted) in [(Duration::from_millis(100), true), (Duration::from_secs(5), false)] {
        now += pause;
        outgoing.push(message(1, 5), now);
        assert_eq!(outgoing.congestion.window_bytes() >= grown, is_trusted, "{pause:?}");
        sent(&mut outgoing, now);
        outgoing.acknowledged(&ack(outgoing.next(), 4096), now).unwrap();
    }
}
