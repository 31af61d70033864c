use proptest::prelude::*;

use super::*;

const NOW: Instant = Instant::ZERO;

fn note(incoming: &mut Incoming, place: Place, group_end: bool) {
    assert_eq!(incoming.judge(place, NOW), Verdict::New);
    assert!(incoming.note((place, Flags { group_end, ..Flags::default() }), None, NOW));
}

fn later(millis: u64) -> Instant {
    NOW + Duration::from_millis(millis)
}

#[test]
fn whole_groups_are_acknowledged_at_once_and_others_after_a_quiet() {
    let mut incoming = Incoming::new(100, 3);
    note(&mut incoming, (0, 0), false);
    assert_eq!(incoming.poll_ack(NOW), None);
    assert_eq!(incoming.poll_ack(later(2)).unwrap().next, (0, 1));
    for serial in 1..4 {
        note(&mut incoming, (0, serial), serial == 3);
    }
    assert_eq!(incoming.poll_ack(NOW).unwrap().next, (1, 0), "as many as a group has");
}

#[test]
fn a_gap_is_told_of_when_a_later_group_is_whole_or_after_a_while() {
    let mut incoming = Incoming::new(100, 32);
    note(&mut incoming, (0, 0), false);
    note(&mut incoming, (0, 2), true);
    assert!(incoming.poll_gaps(None, NOW).is_empty(), "it may be late");
    assert_eq!(incoming.poll_gaps(None, later(1)), [(0, vec![(1, 1)])]);
    note(&mut incoming, (2, 0), true);
    let gaps = [(0, vec![(1, 1)]), (1, vec![(0, 255)])];
    assert_eq!(incoming.poll_gaps(None, NOW), gaps, "nobody knows how long group 1 is");
    assert!(incoming.poll_gaps(None, NOW).is_empty());
    assert_eq!(incoming.poll_gaps(None, later(20)), gaps, "again");
    note(&mut incoming, (0, 1), false);
    note(&mut incoming, (1, 0), true);
    assert!(incoming.poll_gaps(None, later(100)).is_empty() && incoming.next_group == 3);
}

#[test]
fn who_asks_hears_of_the_end_that_was_lost() {
    let mut incoming = Incoming::new(100, 32);
    incoming.queried((1, 4), NOW);
    assert_eq!(incoming.poll_ack(NOW).unwrap().next, (0, 0));
    assert_eq!(incoming.poll_gaps(None, NOW), [(0, vec![(0, 255)]), (1, vec![(0, 4)])]);
    incoming.queried((u32::MAX >> 1, 0), NOW);
    assert!(incoming.poll_gaps(None, NOW).is_empty(), "beyond any window");
}

#[test]
fn a_sender_that_contradicts_itself_and_one_that_exceeds_the_window_are_found() {
    let mut incoming = Incoming::new(4, 32);
    assert_eq!(incoming.judge((4, 0), NOW), Verdict::Beyond);
    note(&mut incoming, (1, 3), true);
    let end = Flags { group_end: true, ..Flags::default() };
    assert!(!incoming.note(((1, 4), Flags::default()), None, NOW), "behind the end");
    assert!(!incoming.note(((1, 2), end), None, NOW), "a second end");
}

#[test]
fn a_sender_that_has_used_up_half_of_its_numbers_is_worn() {
    let mut incoming = Incoming::new(100, 32);
    incoming.next_group = GROUPS_MAX / 2 - 1;
    assert!(!incoming.is_worn());
    note(&mut incoming, (GROUPS_MAX / 2 - 1, 0), true);
    assert!(incoming.is_worn());
}

#[test]
fn a_group_of_the_largest_size_is_acknowledged() {
    let mut incoming = Incoming::new(100, 256);
    (0..255).for_each(|serial| note(&mut incoming, (0, serial), false));
    assert_eq!(incoming.poll_ack(later(2)).unwrap().next, (0, 255));
    note(&mut incoming, (0, 255), true);
    assert_eq!(incoming.poll_ack(later(2)).unwrap().next, (1, 0));
}

/// Of some all packets come that a group can have, of others the first one alone; none says that it is the last.
#[test]
fn groups_that_never_end_stay_within_the_window_and_few_are_told_of_now_and_then() {
    let mut incoming = Incoming::new(128, 32);
    for group in 0..128 {
        let packets = if group % 2 == 0 { GROUP_PACKETS_MAX } else { 1 };
        (0..packets).for_each(|serial| note(&mut incoming, (group, serial), false));
    }
    for group in [128, 129, GROUPS_MAX - 1] {
        assert_eq!(incoming.judge((group, 0), NOW), Verdict::Beyond);
    }
    assert_eq!(incoming.groups.len(), 128);
    assert_eq!(incoming.poll_ack(later(2)).unwrap().next, (0, 255), "all but the last one, which may not be that");
    let mut times = 0;
    while let Some(at) = incoming.poll_timeout().filter(|at| *at < later(1000)) {
        let gaps = incoming.poll_gaps(None, at);
        assert!(gaps.len() == NACKS_MAX && gaps.iter().all(|(_, ranges)| *ranges == [(1, 255)]), "{gaps:?}");
        times += 1;
        assert!(times < 200, "more than every 5 ms");
    }
    assert!(times > 50, "{times} times in a second");
}

proptest! {
    /// Whatever comes in whichever order, once or twice: in the end all is acknowledged, and no gap is told of that is none.
    #[test]
    fn all_that_came_is_known_and_no_more(
        lengths in proptest::collection::vec(1u16..9, 1..8),
        order in any::<u64>(),
        keep in 0usize..64,
    ) {
        let mut packets: Vec<(Place, bool)> = Vec::new();
        for (group, length) in lengths.iter().enumerate() {
            packets.extend((0..*length).map(|serial| ((group as u32, serial), serial + 1 == *length)));
        }
        let mut random = order;
        for index in (1..packets.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            packets.swap(index, (random >> 33) as usize % (index + 1));
        }
        let (come, lost) = packets.split_at(packets.len().saturating_sub(keep % packets.len()));
        let mut incoming = Incoming::new(100, 32);
        for (place, end) in come.iter().chain(come) {
            if incoming.judge(*place, NOW) == Verdict::New {
                note(&mut incoming, *place, *end);
            }
        }
        let next = incoming.poll_ack(later(2)).unwrap().next;
        let first_lost = lost.iter().map(|(place, _)| *place).min();
        prop_assert!(first_lost.is_none_or(|first| next == first));
        prop_assert!(first_lost.is_some() || next == (lengths.len() as u32, 0));
        incoming.queried((lengths.len() as u32 - 1, lengths[lengths.len() - 1] - 1), NOW);
        let gaps = incoming.poll_gaps(None, later(50));
        let told = |(group, serial): Place| gaps.iter().any(|(of, ranges)| {
            *of == group && ranges.iter().any(|(first, last)| (*first..=*last).contains(&serial))
        });
        prop_assert!(lost.iter().all(|(place, _)| told(*place)));
        prop_assert!(!come.iter().any(|(place, _)| told(*place)));
    }
}
