//! Answers whose data lies in several places, also in memory that a store lends.

use sanwire_core::quota::ISCSI_LENT_BYTES;

use super::*;
use crate::wire::SnackRequest;

/// The pattern, cut into pieces of these lengths and what is left.
fn cut(length: usize, lengths: &[usize]) -> Slices {
    let whole = Slice::from(pattern(length));
    let (mut pieces, mut from) = (Vec::new(), 0);
    for piece in lengths.iter().copied().chain([length]) {
        let end = (from + piece).min(length);
        pieces.push(whole.slice(from..end));
        from = end;
    }
    Slices::join(pieces.into_iter()).unwrap()
}

/// All that is sent on connection 1, as it stands on the wire.
fn stream(world: &mut World) -> Vec<u8> {
    let packets = std::iter::from_fn(|| world.server.poll_transmit(ConnectionId(1)));
    packets.flat_map(|packet| packet.to_vec()).collect()
}

/// What a session sends that is answered with this, and after a SNACK for some of it if it recovers.
fn answered(length: usize, data: Slices, digests: Digests, (pdu_max, error_recovery_level): (u32, u8)) -> Vec<u8> {
    let mut world = World::new(1 << 20);
    let mut login =
        admitted(SessionParameters { error_recovery_level, max_burst_bytes: 3 * pdu_max / 2, ..parameters() });
    (login.connection.digests, login.connection.send_data_max_bytes) = (digests, pdu_max);
    world.admit(1, login, 1);
    world.take_one(1);
    world.server.poll_event();
    let handle = world.read(5, length as u32);
    world.server.reply(handle, Reply::good(Some(data)), world.now);
    let mut bytes = stream(&mut world);
    if error_recovery_level > 0 {
        let (is_final, transfer_tag) = (true, TAG_NONE);
        let snack = SnackRequest { is_final, task_tag: 5, transfer_tag, first: 1, ..SnackRequest::default() };
        world.send(1, snack.write(), &[]);
        bytes.extend(stream(&mut world));
    }
    bytes
}

#[test]
fn data_in_several_places_goes_as_if_it_were_in_one() {
    for (length, lengths) in [
        (40_000, &[8192, 8192][..]),
        (40_000, &[1, 8190, 2, 3, 20_000]),
        (40_001, &[512, 0, 39_000, 488]),
        (9000, &[1000; 8]),
    ] {
        for (header, data) in [(false, false), (true, true)] {
            let digests = Digests { header, data };
            for terms in [(512, 0), (8192, 0), (65_536, 0), (4096, 1)] {
                let one = answered(length, cut(length, &[]).cut(0..length).into(), digests, terms);
                assert!(answered(length, cut(length, lengths), digests, terms) == one, "{lengths:?} {terms:?}");
            }
        }
    }
}

#[test]
fn the_rest_of_a_pdu_waits_until_it_is_taken() {
    let mut world = World::with_session(parameters());
    let handle = world.read(5, 4096);
    world.server.reply(handle, Reply::good(Some(cut(4096, &[1000, 2000]))), world.now);
    let packets: Vec<_> = std::iter::from_fn(|| {
        let is_left = !world.server.connection(ConnectionId(1)).unwrap().mover.is_empty();
        let packet = world.server.poll_transmit(ConnectionId(1));
        assert_eq!(packet.is_some(), is_left);
        packet
    })
    .collect();
    let lengths: Vec<_> = packets.iter().map(|packet| (packet.head.len(), packet.length_bytes())).collect();
    assert_eq!(lengths, [(48, 1048), (0, 2000), (0, 1096)]);
}

/// Short answers that keep a mebibyte of a store each.
fn lend(world: &mut World, tag: u32) -> bool {
    let number = world.next_number();
    world.send(1, read_command(tag, 512, number).write(), &[]);
    let (handle, task) = world.command();
    world.reply(handle, Some(Frame::from(vec![7; 1 << 20]).of_store().freeze().slice(0..512)));
    task.may_share
}

#[test]
fn who_has_much_of_a_store_waiting_gets_copies() {
    let mut world = World::with_session(parameters());
    let most = (ISCSI_LENT_BYTES.limit >> 20) as u32;
    let shared = (0..2 * most).filter(|tag| lend(&mut world, *tag)).count();
    assert_eq!(shared, most as usize + 1, "until there is too much");
    let usage = world.server.quotas().into_iter().find(|usage| *usage.quota == ISCSI_LENT_BYTES).unwrap();
    assert_eq!((usage.most, usage.refused), (Some(ISCSI_LENT_BYTES.limit), u64::from(most) - 1));
    assert_eq!(world.take(1).len(), 2 * most as usize);
    assert!(lend(&mut world, 1), "it has taken them");
}

#[test]
fn what_is_kept_for_recovery_is_no_share_of_a_store() {
    let mut world = World::with_session(SessionParameters { error_recovery_level: 1, ..parameters() });
    assert!(!lend(&mut world, 1));
}
