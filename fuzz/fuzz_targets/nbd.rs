//! NBD's negotiation and the heads of its requests.
#![no_main]
#![allow(dead_code, unused_imports, reason = "the sources of another crate, of which a part is used")]

#[path = "../../crates/attach/src/nbd/handshake.rs"]
mod handshake;
#[path = "../../crates/attach/src/nbd/request.rs"]
mod request;

use handshake::{Export, Handshake, Progress};
use libfuzzer_sys::fuzz_target;
use request::{Bounds, Command};
use sanwire_nbd::wire::{REQUEST_BYTES, RawRequest};

fuzz_target!(|input: &[u8]| {
    let export = Export {
        name: "vol".into(),
        size_bytes: 1 << 30,
        read_only: false,
        discards: true,
        block_min_bytes: 1,
        block_preferred_bytes: 4096,
        request_max_bytes: 32 << 20,
    };
    let mut handshake = Handshake::new(export);
    let mut rest = input;
    while handshake.progress() == Progress::Negotiating && !rest.is_empty() {
        let wanted = handshake.wanted();
        assert!(wanted > 0 && wanted <= 1 << 20, "it wants {wanted} bytes");
        // In pieces, as a stream brings them.
        let piece = rest.len().min(1 + usize::from(rest[0] % 32));
        let taken = handshake.handle_input(&rest[..piece]);
        assert!(taken > 0 && taken <= piece);
        rest = &rest[taken..];
        assert!(handshake.take_output().len() <= 1 << 16, "an endless answer");
    }
    for chunk in rest.as_chunks::<REQUEST_BYTES>().0 {
        if let Some(request) = RawRequest::parse(chunk) {
            for (read_only, tells_allocation) in [(false, false), (true, false), (false, true), (true, true)] {
                let bounds = Bounds { size_bytes: 1 << 30, read_only, tells_allocation };
                if let Ok(Command::Read { length, .. } | Command::Write { length, .. }) =
                    Command::check(&request, bounds)
                {
                    assert!(length <= request::REQUEST_MAX_BYTES);
                }
            }
        }
    }
});
