//! What reads as a value is written and read again as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_hyperscsi::wire::offer::Offer;
use sanwire_hyperscsi::wire::setup::{AdnRequest, Discovery, read_adn_reply, write_adn_reply};

fuzz_target!(|input: &[u8]| {
    if let Ok((discovery, prologue)) = Discovery::read(input) {
        assert!(input.starts_with(prologue));
        assert_eq!(Discovery::read(&discovery.write()).map(|(read, _)| read), Ok(discovery));
    }
    if let Ok(request) = AdnRequest::read(input) {
        assert_eq!(AdnRequest::read(&request.write()), Ok(request));
    }
    if let Ok(noise) = read_adn_reply(input) {
        assert_eq!(read_adn_reply(&write_adn_reply(noise)), Ok(noise));
    }
    if let Ok(offer) = Offer::read(input) {
        assert_eq!(Offer::read(&offer.write()), Ok(offer));
    }
});
