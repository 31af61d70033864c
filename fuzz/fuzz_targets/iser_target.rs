//! The target's datamover of iSER, and a peer that keeps no rule: no panic, no memory beyond what was opened, all memory back in the end.
#![no_main]

use std::sync::LazyLock;

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::Region;
use sanwire_fuzz::iser::{MEMORY_BYTES, run};
use sanwire_fuzz::iser_peer::Carriage;

static MEMORY: LazyLock<Region> = LazyLock::new(|| Region::new(MEMORY_BYTES).unwrap());

fuzz_target!(|bytes: &[u8]| {
    // When the bytes are used up the run is over.
    let _ = run(&mut Unstructured::new(bytes), true, Carriage::Stream, &MEMORY);
});
