//! What reads as a value is written and read again as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_hyperscsi::wire::command::{Fragment, ReplyHead, RequestHead};

fuzz_target!(|input: &[u8]| {
    if let Ok((fragment, head, data)) = Fragment::read(input) {
        let again = [&fragment.write()[..], head, data].concat();
        assert_eq!(Fragment::read(&again), Ok((fragment, head, data)));
    }
    if let Ok(head) = RequestHead::read(input) {
        let _ = head.logical_unit();
        assert_eq!(RequestHead::read(&head.write()), Ok(head));
    }
    if let Ok(head) = ReplyHead::read(input) {
        assert_eq!(ReplyHead::read(&head.write()), Ok(head));
    }
});
