//! The formats of iWARP: whatever bytes come, what is read is written as it was, and nothing is read that is not there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_buffer::Head;
use sanwire_iwarp::wire::{PRIVATE_DATA_MAX_BYTES, ReadRequest, STARTUP_BYTES, Segment, Startup, Terminate};

/// Bits of the second byte of a header that are reserved, and of the first one.
const RESERVED: [u8; 2] = [0x3c, 0x30];

fuzz_target!(|input: &[u8]| {
    for is_reply in [false, true] {
        if let Ok(Some((startup, length))) = Startup::read(input, is_reply) {
            assert!(length <= input.len() && length <= STARTUP_BYTES + PRIVATE_DATA_MAX_BYTES);
            let written = startup.write();
            assert_eq!(Startup::read(&written, is_reply), Ok(Some((startup, written.len()))));
            assert_eq!((&written[..16], &written[17..]), (&input[..16], &input[17..length]));
        }
    }
    if let Some(segment) = Segment::read(input) {
        let mut head = Head::new();
        segment.write(&mut head);
        let mut expected = input[..head.len()].to_vec();
        expected.iter_mut().zip(RESERVED).for_each(|(byte, reserved)| *byte &= !reserved);
        assert_eq!(*head, expected[..]);
    }
    if let Some(bytes) = input.first_chunk() {
        assert_eq!(&ReadRequest::read(bytes).write(), bytes);
    }
    if let Some(terminate) = Terminate::read(input) {
        let written = terminate.write();
        assert_eq!(Terminate::read(&written), Some(terminate));
    }
});
