//! What reads as a value is written and read again as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_hyperscsi::wire::live::{LiveReply, LiveRequest, read_disconnect};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = LiveRequest::read(input) {
        assert_eq!(LiveRequest::read(&request.write()), Ok(request));
    }
    if let Ok(reply) = LiveReply::read(input) {
        assert_eq!(LiveReply::read(&reply.write()), Ok(reply));
    }
    let _ = read_disconnect(input);
});
