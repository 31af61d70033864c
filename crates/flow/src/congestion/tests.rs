use super::*;

const PACKET: usize = 1500;

/// A sender that always has data, on a path of `rate` bytes in a millisecond with a round trip of 1 ms and a buffer.
struct Path {
    rate: u64,
    buffer: u64,
    now: Instant,
    order: u64,
}

impl Path {
    /// One round trip; whether the buffer overflowed.
    fn round(&mut self, congestion: &mut Congestion) -> bool {
        let window = congestion.window_bytes();
        let queue = window.saturating_sub(self.rate);
        let round_trip = Duration::from_micros(1000 + queue * 1000 / self.rate);
        self.now += round_trip;
        let (order, next_order) = (self.order, self.order + window / PACKET as u64);
        self.order = next_order;
        if queue > self.buffer {
            congestion.lost(order, next_order);
            return true;
        }
        for part in 1..=4 {
            let acknowledged = Acknowledged {
                bytes: window / 4,
                order: order + (next_order - order) * part / 4,
                next_order,
                round_trip: Some(round_trip),
                in_flight_bytes: window,
            };
            congestion.acknowledged(&acknowledged, self.now);
        }
        false
    }
}

fn path(rate: u64, buffer: u64) -> Path {
    Path { rate, buffer, now: Instant::ZERO, order: 1 }
}

#[test]
fn a_buffer_of_the_paths_size_keeps_it_full() {
    let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, 100_000));
    let (mut used, mut losses) = (0, 0);
    for round in 0..2000 {
        losses += u64::from(path.round(&mut congestion));
        if round >= 100 {
            used += congestion.window_bytes().min(100_000);
        }
    }
    assert!(used > 1900 * 97_000, "{used}");
    assert!((2..100).contains(&losses), "{losses} losses");
}

#[test]
fn growing_delay_ends_slow_start_before_anything_is_lost() {
    let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, 10_000_000));
    assert!((0..20).all(|_| !path.round(&mut congestion)));
    assert!(!congestion.is_slow_start() && congestion.window_bytes() < 10_000_000, "{congestion:?}");
}

#[test]
fn a_queue_does_not_stand_for_longer_than_it_may() {
    let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, u64::MAX));
    for _ in 0..5000 {
        path.round(&mut congestion);
    }
    // The least round trip of late is one with the queue that a smaller window leaves: x = 0.7 x + 50 ms, and what a round adds.
    assert!(congestion.window_bytes() < 250 * 100_000, "{congestion:?}");
}

#[test]
fn a_way_that_becomes_longer_is_no_queue() {
    let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, 100_000));
    (0..100).for_each(|_| {
        path.round(&mut congestion);
    });
    for _ in 0..20 {
        path.now += Duration::from_millis(90);
        let order = path.order + 100;
        path.order = order;
        let window = congestion.window_bytes();
        let acknowledged = Acknowledged {
            bytes: window,
            order,
            next_order: order + 100,
            round_trip: Some(Duration::from_millis(90)),
            in_flight_bytes: window,
        };
        congestion.acknowledged(&acknowledged, path.now);
    }
    assert!(congestion.window_bytes() > 60_000, "{congestion:?}");
}

#[test]
fn all_losses_of_a_round_trip_are_one() {
    let mut congestion = Congestion::new(PACKET);
    let before = congestion.window_bytes();
    (5..10).for_each(|order| {
        congestion.lost(order, 10);
    });
    assert_eq!(congestion.window_bytes(), before * 7 / 10);
    congestion.lost(10, 12);
    assert_eq!(congestion.window_bytes(), before * 49 / 100);
}

#[test]
fn a_loss_that_was_none_is_undone_when_the_last_of_its_packets_has_come() {
    let mut congestion = Congestion::new(PACKET);
    let before = congestion.window_bytes();
    let [(first, _), (second, _)] = [5, 6].map(|order| congestion.lost(order, 10));
    congestion.was_late(5, first);
    assert_eq!(congestion.window_bytes(), before * 7 / 10, "one is still missing");
    congestion.was_late(6, second);
    assert!(congestion.window_bytes() == before && congestion.is_slow_start());
    congestion.was_late(6, second);
    assert!(congestion.lost(7, 10).1, "one of the same round trip that is lost counts");
    assert_eq!(congestion.window_bytes(), before * 7 / 10);
    congestion.lost(10, 20);
    congestion.was_late(7, first);
    assert_eq!(congestion.window_bytes(), before * 49 / 100, "what came before the last loss is past");
}

#[test]
fn of_a_heavier_sender_a_loss_takes_a_part_of_one_flow_only() {
    let mut congestion = Congestion::new(PACKET);
    let before = congestion.window_bytes();
    congestion.set_weight(3);
    assert_eq!(congestion.window_bytes(), before);
    congestion.lost(5, 10);
    assert_eq!(congestion.window_bytes(), before * 9 / 10);
    // All of its flows are hit before long.
    (10..1000).for_each(|order| {
        congestion.lost(order, 1000);
    });
    assert_eq!(congestion.window_bytes(), before * 9 / 10 * 7 / 10);
}

#[test]
fn three_flows_grow_as_fast_as_three_senders() {
    let grown = |weight: u16| {
        let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, 1_000_000));
        congestion.set_weight(weight);
        (0..1000).for_each(|order| {
            congestion.lost(order, 1000);
        });
        path.order = 1000;
        let before = congestion.window_bytes();
        assert!(!path.round(&mut congestion));
        congestion.window_bytes() - before
    };
    let (one, three) = (grown(1), grown(3));
    assert!((one * 28 / 10..=one * 32 / 10).contains(&three), "{three}, {one}");
}

#[test]
fn the_window_never_falls_below_a_packet_and_comes_back() {
    let mut congestion = Congestion::new(9000);
    (0..50).for_each(|order| {
        congestion.lost(order, order + 1);
    });
    congestion.collapse();
    assert_eq!(congestion.window_bytes(), 9000);
    let mut path = path(100_000, 100_000);
    path.order = 60;
    for _ in 0..200 {
        path.round(&mut congestion);
    }
    assert!(congestion.window_bytes() >= 100_000, "{congestion:?}");
}

#[test]
fn after_a_pause_the_window_begins_anew_and_is_soon_what_it_was() {
    let (mut congestion, mut path) = (Congestion::new(PACKET), path(100_000, 100_000));
    (0..200).for_each(|_| {
        path.round(&mut congestion);
    });
    let before = congestion.window_bytes();
    assert!(before > 100_000);
    congestion.restart();
    assert_eq!(congestion.window_bytes(), 14_600);
    let rounds = (0..20).find(|_| path.round(&mut congestion) || congestion.window_bytes() >= before / 2);
    assert!(rounds.is_some_and(|rounds| rounds <= 4), "{congestion:?}");
    // What is small already stays as it is.
    let mut small = Congestion::new(PACKET);
    (0..50).for_each(|order| {
        small.lost(order, order + 1);
    });
    let before = small.window_bytes();
    small.restart();
    assert_eq!(small.window_bytes(), before);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut congestion = Congestion::new(PACKET);
    let before = congestion.window_bytes();
    for order in 0..1000 {
        let acknowledged =
            Acknowledged { bytes: 3000, order, next_order: order + 1, round_trip: None, in_flight_bytes: 3000 };
        congestion.acknowledged(&acknowledged, Instant::ZERO);
    }
    assert_eq!(congestion.window_bytes(), before);
}
