use super::*;
use crate::wire::Register;

const NOW: Instant = Instant::from_nanos(1_000_000_000);

fn piece(command: u16, last: bool) -> Piece {
    let register = Register { feature: 0, count: 2, code: 0, lba: 0, is_long: false };
    let data = vec![0u8; 1024];
    let flags = Flags { last, ..Flags::default() };
    Piece { flags, fields: Fields::Ata(register), command, before: Vec::new(), data: Some(data.into()) }
}

fn outgoing(window: u32, group: u16, pieces: u16) -> Outgoing {
    let mut outgoing = Outgoing::new(1500, window, group);
    (0..pieces).for_each(|command| outgoing.push(piece(command, true), NOW));
    outgoing
}

fn drain(outgoing: &mut Outgoing, now: Instant) -> Vec<(Place, Flags)> {
    std::iter::from_fn(|| outgoing.poll(now).map(|(place, piece)| (place, piece.flags))).collect()
}

fn ack(next: Place, newest: Place) -> Ack {
    Ack { next, newest, delay_us: 0, room_packets: 1000 }
}

#[test]
fn groups_end_when_they_are_full_when_nothing_follows_and_when_the_window_is() {
    let mut full = outgoing(100, 2, 3);
    let sent = drain(&mut full, NOW);
    let ends: Vec<_> = sent.iter().map(|(place, flags)| (*place, flags.group_end, flags.ack_now)).collect();
    assert_eq!(ends, [((0, 0), false, false), ((0, 1), true, false), ((1, 0), true, false)]);
    let mut narrow = outgoing(2, 32, 3);
    let sent = drain(&mut narrow, NOW);
    assert_eq!(sent.len(), 2);
    assert!(sent[1].1.group_end && sent[1].1.ack_now, "it waits for an acknowledgement");
}

#[test]
fn no_more_than_w_and_the_room_of_the_receiver_is_under_way() {
    let mut outgoing = outgoing(4, 32, 12);
    assert_eq!(drain(&mut outgoing, NOW).len(), 4);
    assert_eq!(outgoing.acknowledged(&Ack { room_packets: 1, ..ack((1, 0), (0, 3)) }, NOW), Some(vec![0, 1, 2, 3]));
    assert_eq!(drain(&mut outgoing, NOW).len(), 1);
    outgoing.acknowledged(&Ack { room_packets: 0, ..ack((2, 0), (1, 0)) }, NOW);
    assert!(drain(&mut outgoing, NOW).is_empty());
    let at = outgoing.poll_timeout().expect("it asks for room");
    assert!(outgoing.handle_timeout(at).is_some());
}

#[test]
fn a_receiver_that_says_only_again_what_it_has_is_asked_no_later() {
    let mut outgoing = outgoing(8, 32, 4);
    drain(&mut outgoing, NOW);
    let at = outgoing.poll_timeout().unwrap();
    for millis in 1..5 {
        outgoing.acknowledged(
            &Ack { room_packets: 8 + millis, ..ack((0, 0), (7, 0)) },
            NOW + Duration::from_millis(millis.into()),
        );
    }
    assert_eq!(outgoing.poll_timeout(), Some(at));
    outgoing.acknowledged(&ack((0, 2), (7, 0)), NOW + Duration::from_millis(5));
    assert!(outgoing.poll_timeout() > Some(at), "some of it has come");
}

#[test]
fn only_what_is_missed_is_sent_again_and_as_it_was() {
    let mut outgoing = outgoing(100, 4, 8);
    let first = drain(&mut outgoing, NOW);
    let later = NOW + Duration::from_millis(5);
    outgoing.missing(0, &[(1, 2), (200, 255)], later);
    let again = drain(&mut outgoing, later);
    assert_eq!(again, first[1..3], "with the same flags: its number seals one thing");
    outgoing.missing(0, &[(1, 2)], later);
    assert!(drain(&mut outgoing, later).is_empty(), "it is on its way");
}

/// Within one round trip, however often it is said and whatever it names.
#[test]
fn a_storm_that_all_is_missed_has_each_packet_sent_again_once() {
    let mut outgoing = outgoing(100, 4, 8);
    let first = drain(&mut outgoing, NOW);
    assert_eq!(first.len(), 8);
    let mut again = Vec::new();
    for storm in 0..10_000u64 {
        let later = NOW + Duration::from_millis(5) + Duration::from_nanos(99 * storm);
        (0..4).for_each(|group| outgoing.missing(group, &[(0, u16::MAX), (1, 2), (3, 0xff)], later));
        again.extend(drain(&mut outgoing, later));
    }
    assert_eq!(again, first);
    assert_eq!(outgoing.counts().0, 8, "packets that were sent again");
}

#[test]
fn no_change_makes_more_of_what_was_agreed() {
    let mut outgoing = outgoing(4, 2, 12);
    outgoing.change(1000, 256, 0, NOW);
    assert_eq!(outgoing.acknowledged(&Ack { room_packets: 1000, ..ack((0, 0), (0, 0)) }, NOW), Some(Vec::new()));
    let sent = drain(&mut outgoing, NOW);
    assert_eq!(sent.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    assert_eq!(outgoing.group_limit, 2);
}

#[test]
fn a_receiver_that_has_told_absurd_rates_is_sent_to_as_it_tells_at_last() {
    let mut outgoing = outgoing(64, 4, 12);
    outgoing.change(64, 4, u64::MAX, NOW);
    assert!(outgoing.poll(NOW).is_some());
    outgoing.change(u32::MAX, u16::MAX, 1, NOW);
    outgoing.change(64, 4, 1_000_000, NOW);
    assert!(outgoing.poll(NOW + Duration::from_secs(1)).is_some());
}

#[test]
fn numbers_of_groups_never_come_again() {
    let mut outgoing = outgoing(100, 2, 12);
    outgoing.next = (GROUPS_MAX - 3, 0);
    assert!(outgoing.is_worn());
    let sent = drain(&mut outgoing, NOW);
    assert_eq!(sent.last().map(|(place, _)| *place), Some((GROUPS_MAX - 2, 1)));
    assert_eq!(sent.len(), 4);
}

#[test]
fn what_was_never_sent_is_not_acknowledged() {
    let mut outgoing = outgoing(100, 4, 2);
    drain(&mut outgoing, NOW);
    assert_eq!(outgoing.acknowledged(&ack((1, 1), (0, 0)), NOW), None);
    assert_eq!(outgoing.acknowledged(&ack((1, 0), (9, 0)), NOW), Some(vec![0, 1]));
}

#[test]
fn silence_is_answered_by_a_question_and_a_window_as_small_as_can_be() {
    let mut outgoing = outgoing(100, 32, 10);
    drain(&mut outgoing, NOW);
    for _ in 0..2 {
        let at = outgoing.poll_timeout().unwrap();
        assert_eq!(outgoing.handle_timeout(at), Some((0, 9)));
    }
    assert!(outgoing.congestion.window_bytes() <= 1500);
}

#[test]
fn losses_in_a_burst_make_groups_smaller_and_calm_makes_them_larger() {
    let mut outgoing = outgoing(200, 32, 10);
    drain(&mut outgoing, NOW);
    outgoing.missing(0, &[(0, 9)], NOW + Duration::from_millis(5));
    assert_eq!(outgoing.group_packets, 32, "not half of a group");
    outgoing.group_packets = 16;
    outgoing.again.clear();
    outgoing.missing(0, &[(0, 9)], NOW + Duration::from_millis(10));
    assert_eq!(outgoing.group_packets, 8);
    outgoing.grow_groups(64);
    assert_eq!(outgoing.group_packets, 16);
}
