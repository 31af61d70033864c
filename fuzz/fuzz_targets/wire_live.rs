//! What reads as a value is written and read again as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_hyperscsi::wire::live::{LiveRequest, read_disconnect, read_live_reply, write_live_reply};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = LiveRequest::read(input) {
        assert_eq!(LiveRequest::read(&request.write()), Ok(request));
    }
    if let Ok(nonce) = read_live_reply(input) {
        assert_eq!(read_live_reply(&write_live_reply(nonce)), Ok(nonce));
    }
    let _ = read_disconnect(input);
});
