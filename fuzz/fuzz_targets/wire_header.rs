//! What reads as a value is written and read again as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_hyperscsi::wire::{Header, PREFIX_BYTES, Prefix};

fuzz_target!(|input: &[u8]| {
    if let Ok(header) = Header::read(input) {
        assert_eq!(Header::read(&header.write()), Ok(header));
    }
    if let Ok((prefix, _, body)) = Prefix::read(input) {
        let written = prefix.write(body.len());
        let again = [&written[..], body].concat();
        assert_eq!(Prefix::read(&again), Ok((prefix, 0, body)));
        assert_eq!(input[PREFIX_BYTES..].get(..body.len()), Some(body));
    }
});
