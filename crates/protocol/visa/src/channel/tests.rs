//! Two ends of a connection, without what they carry.

use std::collections::VecDeque;

use super::testing::{START, end, message, terms};
use super::*;

/// All that a channel sends now.
fn sent(channel: &mut Channel, now: Instant) -> VecDeque<Vec<u8>> {
    let packets = std::iter::from_fn(|| channel.poll_transmit(now));
    packets.map(|packet| packet.to_vec()).collect()
}

/// A channel receives a packet; it has memory for it, or not.
fn receive(channel: &mut Channel, packet: &[u8], has_memory: bool, now: Instant) -> Result<(), Rejected> {
    let raw = RawPacket::read(packet).unwrap();
    if raw.header.kind != Kind::Data {
        return channel.handle_control(&raw, now).map(drop);
    }
    let mut take = |_: &Header, _: &[u8]| if has_memory { Ok(()) } else { Err(Rejected::NoMemory) };
    channel.handle_data(&raw, (&mut Vec::new(), true), &mut take, now)
}

#[test]
fn what_is_guarded_less_than_was_agreed_is_not_taken() {
    let careful = Terms { protection_min: Protection::Hash, ..terms() };
    let (mut client, mut server) = (end(false, careful, false), end(true, careful, false));
    for (protection, taken) in
        [(Protection::Checksum, Err(Rejected::Downgrade)), (Protection::Hash, Ok(())), (Protection::Aes256Gcm, Ok(()))]
    {
        client.send(message(10, protection), START);
        let mut packets = sent(&mut client, START);
        assert_eq!(receive(&mut server, &packets.pop_front().unwrap(), true, START), taken, "{protection}");
        // A sequence that was not taken would have the next one wait.
        if taken.is_err() {
            (client, server) = (end(false, careful, false), end(true, careful, false));
        }
    }
}

#[test]
fn who_sends_again_what_was_sent_gives_no_sign_of_life() {
    let (mut client, mut server) = (end(false, terms(), false), end(true, terms(), false));
    client.send(message(0, Protection::Hash), START);
    let packet = sent(&mut client, START).pop_front().unwrap();
    assert_eq!(receive(&mut server, &packet, true, START), Ok(()));
    let mut now = START;
    let mut is_alive = true;
    while is_alive && now < START + Duration::from_secs(10) {
        now += Duration::from_millis(10);
        assert_eq!(receive(&mut server, &packet, true, now), Err(Rejected::Duplicate));
        is_alive = server.handle_timeout(now);
        sent(&mut server, now);
    }
    assert!(!is_alive, "only its packets are left of the client");
    assert_eq!(server.heard(), 1);
}

/// What the server has to say after a moment arrives.
fn tell(client: &mut Channel, server: &mut Channel, now: Instant) -> Instant {
    let now = now + Duration::from_millis(3);
    server.handle_timeout(now);
    for packet in sent(server, now) {
        receive(client, &packet, true, now).unwrap();
    }
    now
}

#[test]
fn an_acknowledgement_of_all_that_is_lost_is_asked_for() {
    let small = Terms { window_packets_in: 8, ..terms() };
    let (mut client, mut server) = (end(false, small, false), end(true, small, false));
    client.send(message(20_000, Protection::Hash), START);
    let mut now = START;
    // The first one comes last; then there is memory for it alone.
    let packets = sent(&mut client, START);
    assert_eq!(packets.len(), 8);
    for packet in packets.range(1..) {
        receive(&mut server, packet, true, START).unwrap();
    }
    now = tell(&mut client, &mut server, now);
    let mut room = 1;
    let mut take = |_: &Header, _: &[u8]| {
        if room == 0 {
            Err(Rejected::NoMemory)
        } else {
            room -= 1;
            Ok(())
        }
    };
    let raw = RawPacket::read(&packets[0]).unwrap();
    let starved = server.handle_data(&raw, (&mut Vec::new(), true), &mut take, START);
    assert_eq!(starved, Err(Rejected::NoMemory));
    now = tell(&mut client, &mut server, now);
    let ninth = sent(&mut client, now);
    assert_eq!(ninth.len(), 1, "as far as the window goes");
    receive(&mut server, &ninth[0], true, now).unwrap();
    now = tell(&mut client, &mut server, now);
    // Now there is some, and the acknowledgement is lost.
    server.go_on(&mut |_, _| Ok(()), now).unwrap();
    now += Duration::from_millis(3);
    assert!(!sent(&mut server, now).is_empty());
    let mut has_gone_on = false;
    while !has_gone_on && now < START + Duration::from_secs(20) {
        now = now.max(client.poll_timeout().min(server.poll_timeout())) + Duration::from_millis(1);
        assert!(client.handle_timeout(now) && server.handle_timeout(now));
        for packet in sent(&mut client, now) {
            has_gone_on |= RawPacket::read(&packet).unwrap().header.sequence >= 9
                && RawPacket::read(&packet).unwrap().header.kind == Kind::Data;
            receive(&mut server, &packet, true, now).unwrap();
        }
        for packet in sent(&mut server, now) {
            receive(&mut client, &packet, true, now).unwrap();
        }
    }
    assert!(has_gone_on && now < START + Duration::from_secs(3), "{now:?}");
}

#[test]
fn over_tcp_packets_wait_behind_one_that_finds_no_memory_and_are_no_violation() {
    let (mut client, mut server) = (end(false, terms(), true), end(true, terms(), true));
    client.send(message(5000, Protection::Hash), START);
    let packets = sent(&mut client, START);
    assert_eq!(receive(&mut server, &packets[0], false, START), Err(Rejected::NoMemory));
    for packet in packets.range(1..3) {
        assert_eq!(receive(&mut server, packet, false, START), Ok(()));
    }
    assert_eq!(receive(&mut server, &packets[4], false, START), Err(Rejected::Violation), "TCP leaves nothing out");
    let mut taken = 0;
    let mut take = |_: &Header, _: &[u8]| {
        taken += 1;
        Ok(())
    };
    server.go_on(&mut take, START).unwrap();
    assert_eq!((taken, server.held_bytes(), server.gap_since()), (3, 0, None));
}

#[test]
fn over_tcp_the_next_packet_is_kept_however_much_others_keep() {
    let (mut client, mut server) = (end(false, terms(), true), end(true, terms(), true));
    client.send(message(100, Protection::Hash), START);
    let packet = sent(&mut client, START).pop_front().unwrap();
    let raw = RawPacket::read(&packet).unwrap();
    let mut take = |_: &Header, _: &[u8]| Err(Rejected::NoMemory);
    let result = server.handle_data(&raw, (&mut Vec::new(), false), &mut take, START);
    assert_eq!((result, server.is_starved()), (Err(Rejected::NoMemory), true));
}

#[test]
fn what_waits_for_a_packet_that_never_comes_is_seen() {
    let (mut client, mut server) = (end(false, terms(), false), end(true, terms(), false));
    client.send(message(5000, Protection::Hash), START);
    let packets = sent(&mut client, START);
    assert_eq!((receive(&mut server, &packets[1], true, START), server.gap_since()), (Ok(()), Some(START)));
    let later = START + Duration::from_secs(1);
    receive(&mut server, &packets[3], true, later).unwrap();
    assert_eq!(server.gap_since(), Some(START), "more behind the gap is no progress");
    receive(&mut server, &packets[0], true, later).unwrap();
    assert_eq!(server.gap_since(), Some(later), "that it moves is");
    receive(&mut server, &packets[2], true, later).unwrap();
    assert_eq!(server.gap_since(), None);
}

#[test]
fn without_a_check_what_is_far_ahead_is_nobodys_fault() {
    for (is_unchecked, expected) in [(true, Rejected::OutOfOrder), (false, Rejected::Violation)] {
        let terms = Terms { is_unchecked, ..terms() };
        let (mut client, mut server) = (end(false, terms, false), end(true, terms, false));
        let guarding = client.guard.guarding(Protection::Checksum);
        let header = Header { first: true, guarding, sequence: 5000, ..Header::single(Kind::Data, false, 9) };
        let packet = client.guard.seal_data(header, b"........", None).unwrap();
        let packet = packet.to_vec();
        assert_eq!(receive(&mut server, &packet, true, START), Err(expected));
    }
}

#[test]
fn a_suspended_end_gives_nothing_on_before_the_other_one_has_answered_what_it_asks_now() {
    for is_stream in [false, true] {
        let (mut client, mut server) = (end(false, terms(), is_stream), end(true, terms(), is_stream));
        let mut answers = |server: &mut Channel| {
            sent(server, START).iter().for_each(|packet| receive(&mut client, packet, true, START).unwrap());
            sent(&mut client, START)
        };
        server.ask(START);
        let early = answers(&mut server);
        server.suspend(START);
        receive(&mut server, &early[0], true, START).unwrap();
        assert!(server.is_suspended(), "that was asked before");
        let in_time = answers(&mut server);
        client.send(message(0, Protection::Hash), START);
        let (data, mut taken) = (sent(&mut client, START).pop_front().unwrap(), 0);
        let mut take = |_: &Header, _: &[u8]| {
            taken += 1;
            Ok(())
        };
        let (raw, answer) = (RawPacket::read(&data).unwrap(), RawPacket::read(&in_time[0]).unwrap());
        assert_eq!(server.handle_data(&raw, (&mut Vec::new(), true), &mut take, START), Ok(()));
        assert!(!server.is_starved(), "it lacks no memory");
        assert_eq!(server.handle_control(&answer, START), Ok(Heard::Lives));
        server.go_on(&mut take, START).unwrap();
        assert_eq!((taken, server.is_suspended()), (1, false));
    }
}

#[test]
fn a_suspended_end_whose_other_one_is_gone_asks_for_a_while_and_misses_it() {
    let mut server = end(true, terms(), false);
    server.suspend(START);
    let (mut asked, mut now) = (sent(&mut server, START).len(), START);
    while server.handle_timeout(now) {
        asked += sent(&mut server, now).len();
        now = server.poll_timeout().max(now);
    }
    assert_eq!((asked, now), (5, START + Duration::from_secs(1)));
}

/// Each moment at which a channel is to be woken from now on, and what it sends then, but for what is told of the last `until`.
fn wakings(channel: &mut Channel, from: Instant, until: Instant) -> Vec<(Instant, usize)> {
    let (mut now, mut wakings) = (from, Vec::new());
    while channel.poll_timeout() < until {
        now = now.max(channel.poll_timeout());
        assert!(channel.handle_timeout(now), "it is missed at {now:?}");
        wakings.push((now, sent(channel, now).len()));
    }
    wakings
}

#[test]
fn who_is_not_listened_to_for_want_of_memory_hears_that_we_live_and_is_not_missed() {
    let (mut client, mut server) = (end(false, terms(), true), end(true, terms(), true));
    client.send(message(0, Protection::Hash), START);
    let packet = sent(&mut client, START).pop_front().unwrap();
    assert_eq!(receive(&mut server, &packet, false, START), Err(Rejected::NoMemory));
    let minute = START + Duration::from_secs(60);
    let asked = wakings(&mut server, START, minute);
    assert_eq!(asked[..2], [400, 800].map(|ms| (START + Duration::from_millis(ms), 1)));
    assert_eq!(asked.len(), 149);
    let mut take = |_: &Header, _: &[u8]| Ok(());
    server.go_on(&mut take, minute).unwrap();
    let mut now = minute;
    while server.handle_timeout(now) {
        now = server.poll_timeout();
    }
    assert_eq!(now, minute + Duration::from_secs(2), "what it has said since is read now");
}

#[test]
fn an_acknowledgement_that_tcp_does_not_take_wakes_nobody_again_and_again() {
    let (mut client, mut server) = (end(false, terms(), true), end(true, terms(), true));
    client.send(message(0, Protection::Hash), START);
    let packet = sent(&mut client, START).pop_front().unwrap();
    assert_eq!(receive(&mut server, &packet, true, START), Ok(()));
    let at = server.poll_timeout();
    server.handle_timeout(at);
    assert!(server.poll_timeout() > at);
    assert_eq!(sent(&mut server, at).len(), 1);
}
