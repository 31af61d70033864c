//! The formats of iSER: whatever bytes come, what is read is written as it was, and nothing is read that is not there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_iser::wire::{HEADER_BYTES, IserHeader, SHORT_HEADER_BYTES, SetUp};

/// Bits that mean something in the first byte of a header of this kind.
fn meant(kind: u8) -> u8 {
    match kind {
        1 => 0xfc,
        2 => 0xf0,
        _ => 0xf1,
    }
}

fuzz_target!(|input: &[u8]| {
    let said = SetUp::read(input);
    assert_eq!(SetUp::read(&said.write()), said);
    if let Some(bytes) = input.first_chunk::<HEADER_BYTES>()
        && let Some(header) = IserHeader::read(bytes)
    {
        let written = header.write();
        assert_eq!(IserHeader::read(&written), Some(header));
        assert_eq!(written[0], bytes[0] & meant(bytes[0] >> 4));
        if let IserHeader::Control { write, read } = header {
            assert!(write.is_none() || written[4..16] == bytes[4..16]);
            assert!(read.is_none() || written[16..] == bytes[16..]);
        } else {
            assert_eq!(written[1..4], bytes[1..4]);
        }
    }
    if let Some(bytes) = input.first_chunk::<SHORT_HEADER_BYTES>()
        && let Some(header) = IserHeader::read_short(bytes)
    {
        let written = header.write_short();
        assert_eq!(IserHeader::read_short(&written), Some(header));
        assert_eq!(written[0], bytes[0] & meant(bytes[0] >> 4));
        if let IserHeader::Control { write, read } = header {
            assert!([write, read].into_iter().flatten().all(|window| window.offset == 0));
            assert!(write.is_none() || written[4..8] == bytes[4..8]);
            assert!(read.is_none() || written[8..] == bytes[8..]);
        }
    }
});
