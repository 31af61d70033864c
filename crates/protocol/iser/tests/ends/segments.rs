//! FPDUs and TCP's segments.

use sanwire_buffer::Slice;
use sanwire_iscsi::wire::{DataIn, ScsiCommand};
use sanwire_iser::wire::{IserHeader, SetUp, Window, with_long_fpdus};
use sanwire_iwarp::Registration;
use sanwire_iwarp::wire::fpdu_bytes;

use super::pair::{Pair, message};
use super::world::{World, config, name};

const MSS: usize = 1448;

/// Bytes of each FPDU of a stream.
fn lengths(mut stream: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(ulpdu) = stream.first_chunk() {
        let whole = fpdu_bytes(usize::from(u16::from_be_bytes(*ulpdu)));
        lengths.push(whole);
        stream = &stream[whole..];
    }
    lengths
}

/// RFC 5044 5.1.
#[test]
fn fpdus_fit_into_segments_of_tcp_unless_the_other_end_takes_longer_ones() {
    let normal = SetUp { has_addresses: true, lacks_invalidation: false }.write();
    for (private_data, longest, most) in [(normal, 1444, 1448), (with_long_fpdus(normal), 10_020, 65_544)] {
        let mut pair = Pair::of_target(&private_data);
        pair.ours.note_segment_bytes(MSS);
        let stag = pair.theirs.register(Registration::of_frame(vec![0; 10_000].into())).expect("a key");
        let read = Some(Window { stag, offset: 0 });
        let command = ScsiCommand {
            is_final: true,
            is_read: true,
            task_tag: 5,
            expected_bytes: 10_000,
            ..ScsiCommand::default()
        };
        pair.say(message(IserHeader::Control { write: None, read }, command.write(), &[]), None);
        assert_eq!(pair.got().task_tag(), 5);
        let data = DataIn { is_final: true, task_tag: 5, ..DataIn::default() };
        pair.ours.push(data.write(), Some(Slice::from(vec![1; 10_000]).into()));
        let sent: Vec<u8> = std::iter::from_fn(|| pair.ours.pop()).flat_map(|packet| packet.to_vec()).collect();
        assert_eq!(lengths(&sent).into_iter().max(), Some(longest));
        let rdma = pair.ours.movement().rdma.expect("RDMA");
        assert_eq!((rdma.fpdu_max_bytes, rdma.segment_bytes), (most, Some(MSS as u32)));
    }
}

#[test]
fn two_ends_of_ours_send_each_other_long_fpdus_whatever_their_segments_are() {
    let mut world = World::new(config(Some(name())), usize::MAX);
    world.order(0, 0, None, 0);
    world.settle();
    for connection in world.connections() {
        world.client.note_segment_bytes(connection, MSS);
        world.host.server.note_segment_bytes(connection, MSS);
    }
    let ends = [world.client.movement().expect("a session"), world.host.server.movements().rdma];
    for rdma in ends.map(|movement| movement.rdma.expect("RDMA")) {
        assert_eq!((rdma.fpdu_max_bytes, rdma.segment_bytes), (65_544, Some(MSS as u32)));
    }
}
