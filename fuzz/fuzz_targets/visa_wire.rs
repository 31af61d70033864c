//! What reads as a value is written and read again as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_exchange::{ReplyHead, RequestHead};
use sanwire_visa::framing::Deframer;
use sanwire_visa::wire::flow::{Ack, Close, Ping, read_nak, read_waiting, write_nak, write_waiting};
use sanwire_visa::wire::header::RawPacket;
use sanwire_visa::wire::message::Prologue;
use sanwire_visa::wire::offer::{Offer, ServerOffer, Terms};
use sanwire_visa::wire::setup::{Accept, Confirm, Connect};

fuzz_target!(|input: &[u8]| {
    if let Ok(raw) = RawPacket::read(input) {
        let again = [&raw.header.write(raw.check)[..], raw.payload, raw.tag].concat();
        let read = RawPacket::read(&again).map(|raw| (raw.header, raw.check));
        assert_eq!(read.ok(), Some((raw.header, raw.check)));
        let _ = raw.is_whole();
    }
    if let Ok((prologue, head, data)) = Prologue::read(input) {
        let again = [&prologue.write()[..], head, data].concat();
        assert_eq!(Prologue::read(&again), Ok((prologue, head, data)));
    }
    if let Ok(connect) = Connect::read(input) {
        assert_eq!(Connect::read(&connect.write()), Ok(connect));
    }
    if let Ok(accept) = Accept::read(input) {
        assert_eq!(Accept::read(&accept.write()), Ok(accept));
    }
    if let Ok(confirm) = Confirm::read(input) {
        assert_eq!(confirm.write(), input);
    }
    if let Ok(ack) = Ack::read(input) {
        assert_eq!(ack.write(), input);
        assert!(ack.beyond().all(|sequence| sequence > ack.next));
    }
    if let Ok(expected) = read_nak(input) {
        assert_eq!(write_nak(expected), input);
    }
    if let Ok(ping) = Ping::read(input) {
        assert_eq!(ping.write(), input);
    }
    if let Ok(close) = Close::read(input) {
        assert_eq!([close as u8], input);
    }
    if let Ok(numbers) = read_waiting(input) {
        assert_eq!(write_waiting(&numbers), input);
    }
    if let Ok(offer) = Offer::read(input) {
        assert_eq!(Offer::read(&offer.write()), Ok(offer));
        let terms = offer.agree(&offer, false);
        assert_eq!(Terms::read(&terms.write()), Ok(terms));
        assert!(terms.is_within(&offer));
    }
    if let Ok(offer) = ServerOffer::read(input) {
        assert_eq!(ServerOffer::read(&offer.write()), Ok(offer));
    }
    if let Ok(terms) = Terms::read(input) {
        assert_eq!(Terms::read(&terms.write()), Ok(terms));
    }
    if let Ok(head) = RequestHead::read(input) {
        assert_eq!(RequestHead::read(&head.write()), Ok(head));
    }
    if let Ok(head) = ReplyHead::read(input) {
        assert_eq!(ReplyHead::read(&head.write()), Ok(head));
    }
    let mut deframer = Deframer::default();
    let space = deframer.space();
    let bytes = input.len().min(space.len());
    space[..bytes].copy_from_slice(&input[..bytes]);
    deframer.filled(bytes);
    while let Ok(Some(_)) = deframer.poll() {}
});
