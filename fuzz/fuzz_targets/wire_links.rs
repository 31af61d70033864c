//! What reads as a value is written and read again as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_hyperscsi::wire::links::{AddrReply, AddrReport};

fuzz_target!(|input: &[u8]| {
    if let Ok(report) = AddrReport::read(input) {
        assert_eq!(AddrReport::read(&report.write()), Ok(report));
    }
    if let Ok(reply) = AddrReply::read(input) {
        assert_eq!(AddrReply::read(&reply.write()), Ok(reply));
    }
});
