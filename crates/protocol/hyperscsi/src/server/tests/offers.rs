//! What the ends say of themselves fits into the handshake.

use sanwire_core::limits::COMMANDS_IN_TRANSIT_MAX;

use crate::handshake::{Initiator, Responder};
use crate::keys::{Identity, Randomness};
use crate::wire::offer::Offer;
use crate::wire::options::{OPTIONS_MAX, OPTIONS_MAX_BYTES, Offered, OptionNumber, Options, Stance};
use crate::wire::setup::{AdnRequest, DISCOVERY_BYTES, NAME_MAX_BYTES, SecondStep};

/// An offer with as much in it as there may be.
fn longest_offer() -> Offer {
    let mut options = Options::default();
    let value = vec![0; OPTIONS_MAX_BYTES / OPTIONS_MAX - 5];
    for number in 0..OPTIONS_MAX as u16 {
        let offered = Offered { stance: Stance::Supported, value: value.clone() };
        options.set(OptionNumber::new(number).unwrap(), offered).unwrap();
    }
    Offer {
        packet_max_bytes: 9000,
        receive_capacity_packets: 800,
        commands_max: 64,
        transfer_max_bytes: 1 << 20,
        keep_alive_ms: 5000,
        instance: 1,
        name: "n".repeat(NAME_MAX_BYTES),
        unanswered: None,
        options,
    }
}

/// And a forged discovery amplifies nothing.
#[test]
fn the_longest_offers_fit_into_the_handshake() {
    let (psk, mut offer) = ([3; 32], longest_offer());
    let mut random = Randomness::new([9; 32]);
    let [client, server] = [[1; 32], [2; 32]].map(|private| Identity::from_private(private).unwrap());
    let (initiator, first) = Initiator::new(b"p", &mut random).unwrap();
    let said = (5, &offer.write()[..]);
    let (mut responder, noise, mark) = Responder::new((&server, &psk), b"p", &first, said, &mut random).unwrap();
    let second = SecondStep { connection: 5, noise: &noise, mark };
    let answer_bytes = AdnRequest::Handshake(second).write().len();
    assert!(answer_bytes <= DISCOVERY_BYTES, "{answer_bytes} bytes");
    let met = initiator.read(second).unwrap();
    assert_eq!(Offer::read(&met.payload), Ok(offer.clone()));
    offer.unanswered = Some((0..COMMANDS_IN_TRANSIT_MAX as u64).collect());
    let (third, _) = met.answer((&client, &psk), &offer.write(), &mut random).unwrap();
    let (payload, _) = responder.read(client.client_id(), &third).expect("no longer than what is taken");
    assert_eq!(Offer::read(&payload), Ok(offer));
}
