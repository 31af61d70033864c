use proptest::prelude::*;

use super::*;
use crate::outbox::Outbox;
use crate::wire::{DataOut, NopOut};

const ALL: [Digests; 4] = [
    Digests { header: false, data: false },
    Digests { header: true, data: false },
    Digests { header: false, data: true },
    Digests { header: true, data: true },
];

fn stream(digests: Digests, lengths: &[usize]) -> Vec<u8> {
    let mut outbox = Outbox::default();
    outbox.set_digests(digests);
    for (number, &length) in (0..).zip(lengths) {
        let header = DataOut { data_number: number, ..DataOut::default() }.write();
        outbox.push(header, Some(vec![number as u8; length].into()));
    }
    let mut bytes = Vec::new();
    while let Some(packet) = outbox.pop() {
        bytes.extend_from_slice(&packet.head);
        bytes.extend(packet.payload.iter().flat_map(|payload| payload.iter()));
    }
    assert!(outbox.is_empty() && outbox.queued_bytes() == 0);
    bytes
}

/// Feeds the stream in pieces of these sizes, over and over, and gives what came out.
fn receive(digests: Digests, bytes: &[u8], pieces: &[usize]) -> Vec<(u32, Vec<u8>)> {
    let mut receiver = Receiver::new(2048);
    receiver.set_digests(digests);
    let (mut found, mut rest, mut pieces) = (Vec::new(), bytes, pieces.iter().cycle());
    while !rest.is_empty() {
        let piece = pieces.next().copied().unwrap_or(1).clamp(1, rest.len());
        let taken = receiver.take(&rest[..piece]);
        rest = &rest[taken..];
        loop {
            match receiver.poll() {
                Step::Starving => break,
                Step::Header(header) => {
                    receiver.place(Destination::Frame(Frame::from(vec![0xee; header.data_bytes() + 8]), 8));
                }
                Step::Pdu(pdu) => {
                    assert!(pdu.is_intact);
                    let data = pdu.data.map_or(Vec::new(), |frame| frame[8..].to_vec());
                    found.push((DataOut::read(&pdu.header).data_number, data));
                }
                Step::Torn => panic!("torn"),
            }
        }
    }
    assert!(receiver.is_at_rest());
    found
}

proptest! {
    #[test]
    fn a_stream_comes_out_as_it_went_in(
        lengths in prop::collection::vec(prop_oneof![Just(0), 1..20usize, 4000..9000usize], 1..8),
        pieces in prop::collection::vec(prop_oneof![1..60usize, 1000..6000usize], 1..8),
        digests in prop::sample::select(&ALL[..]),
    ) {
        let found = receive(digests, &stream(digests, &lengths), &pieces);
        let sent: Vec<_> = (0..).zip(&lengths).map(|(number, &length)| (number, vec![number as u8; length])).collect();
        prop_assert_eq!(found, sent);
    }
}

#[test]
fn a_flipped_bit_is_found() {
    let digests = ALL[3];
    let bytes = stream(digests, &[10]);
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        let mut receiver = Receiver::new(0);
        receiver.set_digests(digests);
        receiver.take(&bytes);
        match receiver.poll() {
            // A longer header than was sent.
            Step::Starving => assert_eq!(at, 4),
            Step::Torn => assert!(at < HEADER_BYTES + DIGEST_BYTES),
            Step::Header(header) => {
                receiver.place(Destination::Frame(Frame::from(vec![0; header.data_bytes()]), 0));
                assert!(matches!(receiver.poll(), Step::Pdu(Pdu { is_intact: false, .. })), "byte {at}");
            }
            Step::Pdu(_) => panic!("byte {at}"),
        }
    }
}

#[test]
fn data_without_a_place_is_skipped() {
    let mut bytes = stream(ALL[0], &[5000]);
    bytes.extend(NopOut { task_tag: 9, ..NopOut::default() }.write().as_bytes());
    let mut receiver = Receiver::new(10_000);
    receiver.take(&bytes);
    assert!(matches!(receiver.poll(), Step::Header(_)));
    receiver.place(Destination::Frame(Frame::from(vec![0; 4999]), 0));
    assert!(matches!(receiver.poll(), Step::Pdu(Pdu { data: None, .. })));
    let Step::Pdu(nop) = receiver.poll() else { panic!("the next one") };
    assert_eq!(nop.header.task_tag(), 9);
}

#[test]
fn long_data_is_received_in_place() {
    let bytes = stream(ALL[0], &[20_000]);
    let mut receiver = Receiver::new(2048);
    assert_eq!(receiver.take(&bytes[..100]), 100);
    assert!(matches!(receiver.poll(), Step::Header(_)));
    receiver.place(Destination::Frame(Frame::from(vec![9; 20_000]), 0));
    assert!(matches!(receiver.poll(), Step::Starving));
    assert_eq!(receiver.spaces().map(|space| space.len()), [20_000 - 52, BEHIND_LONG_BYTES]);
    assert_eq!(receiver.take(&bytes[100..]), 20_000 - 52);
    assert!(matches!(receiver.poll(), Step::Pdu(Pdu { data: Some(_), .. })));
    assert_eq!((receiver.placed_bytes(), receiver.direct_bytes()), (20_000, 20_000 - 52));
}

#[test]
fn behind_a_long_segment_little_is_received_that_would_be_copied() {
    const LONG: usize = 64 << 10;
    let bytes = stream(ALL[3], &[LONG, LONG, 0]);
    let mut receiver = Receiver::new(LONG);
    receiver.set_digests(ALL[3]);
    let (mut rest, mut copied, mut data) = (&bytes[..], 0, Vec::new());
    while !rest.is_empty() {
        let [direct, staged] = receiver.spaces();
        let (first, second) = (direct.len().min(rest.len()), staged.len().min(rest.len().saturating_sub(direct.len())));
        direct[..first].copy_from_slice(&rest[..first]);
        staged[..second].copy_from_slice(&rest[first..first + second]);
        receiver.filled(first + second);
        rest = &rest[first + second..];
        copied += second;
        loop {
            match receiver.poll() {
                Step::Starving => break,
                Step::Header(header) => {
                    receiver.place(Destination::Frame(Frame::from(vec![0xee; header.data_bytes()]), 0));
                }
                Step::Pdu(pdu) => data.extend(pdu.data.map(|frame| frame.to_vec())),
                Step::Torn => panic!("torn"),
            }
        }
    }
    assert!(data == [vec![0; LONG], vec![1; LONG]], "what was sent");
    // How long the first one is, nobody could know.
    assert!(copied < LONG + 4096, "{copied} bytes were received where they do not belong");
}

#[test]
fn after_a_long_segment_and_many_short_pdus_as_much_is_received_at_once_as_before() {
    let mut receiver = Receiver::new(64 << 10);
    let mut feed = |bytes: &[u8]| {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = &rest[receiver.take(rest)..];
            loop {
                match receiver.poll() {
                    Step::Header(header) => {
                        receiver.place(Destination::Frame(Frame::from(vec![0; header.data_bytes()]), 0));
                    }
                    Step::Pdu(_) => {}
                    Step::Starving => break,
                    Step::Torn => panic!("torn"),
                }
            }
        }
        receiver.spaces()[1].len()
    };
    assert_eq!(feed(&stream(ALL[0], &[32 << 10])), BEHIND_LONG_BYTES);
    assert_eq!(feed(&stream(ALL[0], &[0, 0])), BEHIND_LONG_BYTES, "the next segments may come after some commands");
    assert_eq!(feed(&stream(ALL[0], &[0; 6])), 64 << 10);
}

#[test]
fn a_segment_of_which_the_beginning_is_kept_takes_memory_as_it_comes() {
    for digests in ALL {
        let bytes = stream(digests, &[200_000, 0]);
        let mut receiver = Receiver::new(0);
        receiver.set_digests(digests);
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            rest = &rest[receiver.take(&rest[..rest.len().min(1000)])..];
            loop {
                match receiver.poll() {
                    Step::Starving => break,
                    Step::Header(_) => receiver.place(Destination::Beginning(Beginning::of(8192))),
                    Step::Pdu(pdu) => found.push((pdu.is_intact, pdu.data.map_or(0, |data| data.capacity()))),
                    Step::Torn => panic!("torn"),
                }
            }
            if let State::Data { destination: Destination::Beginning(beginning), done, .. } = &receiver.state {
                assert!(beginning.held_bytes() <= 2 * (*done).min(8192), "after {done} bytes");
            }
        }
        assert_eq!(found, [(true, 8192), (true, 0)]);
    }
}
