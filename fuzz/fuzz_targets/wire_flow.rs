//! What reads as a value is written and read again as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_hyperscsi::wire::flow::{Ack, Snr};

fuzz_target!(|input: &[u8]| {
    if let Ok(snr) = Snr::read(input) {
        assert_eq!(Snr::read(&snr.write(input.len())), Ok(snr));
    }
    if let Ok(ack) = Ack::read(input) {
        assert_eq!(Ack::read(&ack.write()), Ok(ack));
    }
});
